"""The settings of the screens, which are kept in ~/.config/gputui/settings.yaml. Each setting is declared here once.
The file is read once, when the application starts. A change in the interface is written at once by a thread, so that no
screen waits for the disk.
Deferred imports: without a file, the start reads no YAML."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...engine.files import located_yaml, places
from ...engine.files.located_yaml import Located, YamlFault
from ...engine.files.values import brief
from ...engine.files.writing import write_atomically
from ...engine.notify import targets
from ...engine.options.run import BEGINNINGS

LOGARITHMIC = ("auto", "on", "off")
X_AXES = ("auto", "step", "epoch", "time", "samples")


def setting(default: Any, meaning: str, *, choices: tuple[str, ...] = (), limits: tuple[float, float] = (0, 0)) -> Any:
    about = {"default": default, "meaning": meaning, "choices": choices, "limits": limits}
    return field(default_factory=lambda: default, metadata=about)


def of_option(name: str) -> Any:
    """Declare the setting of the option `notify.NAME`, which is the value for presets that do not give the option."""
    info, default = targets.option(name), vars(targets.Targets())[name]
    return setting(default, info.about.help.removesuffix(f"; not given: {default}"), choices=info.choices)


@dataclass(frozen=True)
class Runs:
    columns: tuple[str, ...] = setting((), "its columns in this order; an empty list shows those that fit")
    sort: str = setting("when", "the column by which it is sorted")
    descending: bool = setting(True, "whether the largest or latest comes first")
    filter: str = setting("", "the words by which it is filtered")
    side_view: bool = setting(True, "whether the run under the cursor is shown next to it, from 120 columns on")


@dataclass(frozen=True)
class Form:
    file_view: bool = setting(True, "whether the preset's file is shown next to the options, from 172 columns on")


@dataclass(frozen=True)
class Charts:
    """The settings of the charts of the live view and of the comparison."""

    x_axis: str = setting(
        "auto",
        "what the horizontal axis shows; auto: time in the live view; elsewhere steps for loss and metrics, else time",
        choices=X_AXES,
    )
    logarithmic: str = setting(
        "auto",
        "whether charts, except those of shares, have a logarithmic vertical axis; auto: a loss that spans two decades",
        choices=LOGARITHMIC,
    )
    smoothing: float = setting(
        0.0, "the weight of earlier values in a smoothed line; 0 smooths nothing", limits=(0.0, 0.99)
    )
    fill: bool = setting(True, "whether the area below the first line is filled, if the axis begins at zero")


@dataclass(frozen=True)
class Log:
    wrap: bool = setting(False, "whether long lines are wrapped")
    fold: bool = setting(True, "whether TensorFlow's own messages are folded")


@dataclass(frozen=True)
class AtEnd:
    """The settings of the signals that the terminal gives at the end of a run, and while a run is running; and of the
    notice that the engine sends, for presets that do not give the option of the same name."""

    bell: bool = setting(True, "whether the terminal rings its bell when a run ends")
    desktop: bool = setting(True, "whether the terminal is asked for a notification (OSC 9) when a run ends")
    title: bool = setting(True, "whether the title of the terminal shows the progress of a run")
    command: str = of_option("command")
    url: str = of_option("url")
    format: str = of_option("format")
    when: str = of_option("when")


@dataclass(frozen=True)
class Values:
    theme: str = setting("", "the colour theme; empty: the one that suits the terminal")
    form: Form = field(default=Form())
    runs: Runs = field(default=Runs())
    charts: Charts = field(default=Charts())
    log: Log = field(default=Log())
    notify: AtEnd = field(default=AtEnd())
    keys: Mapping[str, str] = setting({}, "other keys for verbs, as in `stop: ctrl+x`; commas between several")


SECTIONS: dict[str, Any] = {"form": Form, "runs": Runs, "charts": Charts, "log": Log, "notify": AtEnd}


def declared() -> Iterator[tuple[str, Field[Any]]]:
    """Yield each setting with its dotted key, such as `runs.sort`."""
    for setting_field in fields(Values):
        if setting_field.name in SECTIONS:
            yield from ((f"{setting_field.name}.{inner.name}", inner) for inner in fields(SECTIONS[setting_field.name]))
        else:
            yield setting_field.name, setting_field


class Settings:
    """The settings in use. `problems` has one line for each fault of the file, whose settings keep their defaults."""

    theme: str
    form: Form
    runs: Runs
    charts: Charts
    log: Log
    notify: AtEnd
    keys: Mapping[str, str]

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or places.settings_file()
        self.problems: list[str] = []
        self.complain: Callable[[str], None] = self.problems.append  # gets the reason if a change was not written
        self._use(self._read())
        self._unwritten: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def _use(self, values: Values) -> None:
        self._values = values
        for section in fields(Values):
            setattr(self, section.name, getattr(values, section.name))

    def get(self, key: str) -> Any:
        value: Any = self._values
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def change(self, key: str, value: Any) -> None:
        """Set a dotted key, such as `runs.sort`, and write it in a thread. Raises ValueError for a wrong value."""
        if reason := wrong(dict(declared())[key], value):
            raise ValueError(f"{key} {reason}")
        if value == self.get(key):
            return
        self._use(_with(self._values, key, value))
        with self._lock:
            self._unwritten[key] = value
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="settings")
                self._writer.start()

    def flush(self) -> None:
        if (writer := self._writer) is not None:
            writer.join()

    # ---- the file -------------------------------------------------------------------------------

    def _read(self) -> Values:
        values = Values()
        if not self.path.exists():
            return values

        settings = dict(declared())
        try:
            content = located_yaml.read_settings(self.path)
        except (OSError, YamlFault) as fault:
            self._add_problem(getattr(fault, "line", 0), f"{_reason(fault, 'read')}; the defaults are used")
            return values
        given: list[tuple[str, Located]] = []
        for name, located in content.items():
            if isinstance(located.value, dict) and name not in WHOLE:
                given += [(f"{name}.{inner}", item) for inner, item in located.value.items()]
            elif located.value is not None or name in WHOLE:
                given.append((name, located))
        for key, located in given:
            line = located.line
            if key not in settings:
                near = ", ".join(name for name in settings if name.partition(".")[0] == key.partition(".")[0])
                self._add_problem(line, f"there is no setting {brief(key)}; known: {near or ', '.join(settings)}")
                continue
            value = _as_declared(settings[key], _plain(located))
            if reason := wrong(settings[key], value):
                self._add_problem(line, f"{key} {reason}; {shown(settings[key].metadata['default'])} is used")
            else:
                values = _with(values, key, value)
        return values

    def _add_problem(self, line: int, text: str) -> None:
        self.problems.append(f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}")

    def _write(self) -> None:
        """Write the changed values to the file until there are no more changes. This runs in a thread."""

        while True:
            with self._lock:
                changes, self._unwritten = self._unwritten, {}
                if not changes:
                    self._writer = None
                    return
            try:
                write(self.path, changes)
            except (OSError, YamlFault) as fault:
                where = f"{self.path}:{line}" if (line := getattr(fault, "line", 0)) else self.path
                reason = _reason(fault, "written")
                self.complain(f"{where}: {', '.join(changes)} lasts until gputui ends: {reason}")


# ---- values -------------------------------------------------------------------------------------


def takes(setting_field: Field[Any]) -> str:
    """Return a text that says which values the setting takes, such as `a number from 0 to 1`."""
    default, choices, (low, high) = (setting_field.metadata[name] for name in ("default", "choices", "limits"))
    if choices:
        return "one of " + ", ".join(choices)
    numbers = f"a number from {low:g} to {high:g}"
    kinds = {bool: "true or false", float: numbers, tuple: "a list of names", dict: "a mapping of verbs to keys"}
    return kinds.get(type(default), "text")


def wrong(setting_field: Field[Any], value: Any) -> str:
    default, choices, (low, high) = (setting_field.metadata[name] for name in ("default", "choices", "limits"))
    if isinstance(default, tuple):
        fits = isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    elif isinstance(default, dict):
        fits = isinstance(value, dict) and all(isinstance(item, str) for pair in value.items() for item in pair)
    else:
        fits = type(value) is type(default) and (not choices or value in choices)
        fits = fits and (not isinstance(value, float) or low <= value <= high)
        if fits and value and setting_field.name == "url" and not value.startswith(BEGINNINGS):
            return f"must begin with {' or '.join(BEGINNINGS)}, not {shown(value)}"
    return "" if fits else f"must be {takes(setting_field)}, not {shown(value)}"


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return brief(repr(value))


def _as_declared(setting_field: Field[Any], value: Any) -> Any:
    """Convert a value of YAML: list to tuple, numbers in a mapping to text, None to the default."""
    default = setting_field.metadata["default"]
    if value is None:
        return default
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(default, dict) and isinstance(value, dict):
        return {str(name): str(item) if isinstance(item, int) else item for name, item in value.items()}
    if setting_field.metadata["choices"] == LOGARITHMIC and isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _with(values: Values, key: str, value: Any) -> Values:
    section, _, name = key.rpartition(".")
    if not section:
        return replace(values, **{name: value})
    return replace(values, **{section: replace(getattr(values, section), **{name: value})})


# ---- its file -------------------------------------------------------------------------------------


NEW = "# Settings of gputui's screens; `gputui` writes here what is changed in them. See docs/operations.md.\n"
WHOLE = ("theme", "keys")  # the settings without a section


def write(path: Path, changes: Mapping[str, Any]) -> None:
    """Write the changed values, by dotted key, into the file, whose rest stays. Raises OSError or YamlFault."""
    from ...engine.files import yaml_writing

    path = path.resolve()  # a link to a file elsewhere stays one
    before = ""
    if path.exists():
        located_yaml.read_settings(path)  # what cannot be understood is not written over
        before = located_yaml.read_text(path)
    try:
        yaml, document = yaml_writing.load(before if located_yaml.has_content(before) else "{}\n")
    except yaml_writing.LayoutFault as fault:
        raise YamlFault(str(fault), line=0) from None
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        place = document
        if section:
            if not isinstance(document.get(section), dict):
                document[section] = type(document)()
            place = document[section]
        place[name] = yaml_writing.node(dict(value) if isinstance(value, Mapping) else value)
    text = yaml_writing.dump(yaml, document, before)
    # Comments, else NEW; not an empty mapping, to which nothing can be added below it.
    comments = "".join(f"{line}\n" for line in before.splitlines() if line.strip() != "{}") or NEW
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = text if located_yaml.has_content(before) else comments + text
    write_atomically(path, whole, mode=0o600)  # an address for notices may hold a token


def _reason(fault: Exception, done: str) -> str:
    return f"cannot be {done}: {fault.strerror or fault}" if isinstance(fault, OSError) else str(fault)


def _plain(value: Located) -> Any:
    if isinstance(value.value, dict):
        return {name: _plain(item) if isinstance(item, Located) else item for name, item in value.value.items()}
    return value.value
