"""The state of the form: the text, the value and the error of every option, its changes, and undo. All that the form
shows of an option is available here, without Textual. Values are read from text exactly as `--set` reads them."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...engine import presets
from ...engine.files import located_yaml, places
from ...engine.options import BY_KEY, GROUPS, OptionInfo, Options, is_private
from ...engine.options.own_code import OF_COMMAND, OWN_CODE_LABELS
from ...engine.presets import Preset, PresetError, paths, resolving
from ...engine.presets.paths import RUN, STAMP

INFO = BY_KEY
LEFT = "workload.left_to_fit"
Kind = Literal["bool", "choice", "text"]


def kind(info: OptionInfo) -> Kind:
    """Return how the option is edited: `choice` (one of fixed values), `bool` (switched) or `text` (typed)."""
    if info.only_choices or (info.is_bool and info.choices and not info.is_number):
        return "choice"
    return "bool" if info.is_bool and not info.choices else "text"


def about_group(group: str) -> str:
    return (GROUPS[group].__doc__ or "").strip().splitlines()[0].rstrip(".")


def to_text(value: Any) -> str:
    """Return the text for the field of a value; empty for None. `to_value` reads it back."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if _is_plain(value):
        return str(value)
    import yaml  # not needed for the first paint

    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")


def _is_plain(value: Any) -> bool:
    # Integers, floats without an exponent, and lists of them.
    if isinstance(value, list):
        return all(_is_plain(item) and not isinstance(item, bool) for item in value)
    return isinstance(value, int) or value == {} or (isinstance(value, float) and "e" not in repr(value))


def to_value(info: OptionInfo, text: str) -> Any:
    """Return the value of a field's text: fixed words and free text as they are, other text as YAML."""
    text = text.strip()
    free = isinstance(info.default, str) and not info.choices and not info.is_number
    return text if free or text in info.choices else located_yaml.scalar(text)


@dataclasses.dataclass
class FormState:
    """The options of one preset while they are edited. `path` is the preset's file, None if it has none. `opened` is
    the preset as it was opened or last saved, and `opened_text` the text of its file. `texts` are the texts of the
    fields and `errors` the messages about them, both by option key. `preset` has the values of the valid fields."""

    path: Path | None
    opened: Preset
    opened_text: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    description: str = ""
    preset: Preset = field(init=False)
    _kept: tuple[dict[str, str], str] = field(init=False)

    def __post_init__(self) -> None:
        if self.opened.file is None and self.path is not None:
            self.opened = replace(self.opened, file=self.path)
        self.texts = {key: shown(self.opened.options, info) for key, info in INFO.items()}
        self.description = self.opened.description
        self.preset = self.opened
        self.keep()

    @classmethod
    def open(cls, path: Path) -> FormState:
        """Return the state for a preset's file, or for a script. Raises PresetError if the preset is invalid."""
        preset = presets.resolve(str(path))
        if path.suffix == paths.SCRIPT:
            from ...engine.trials import script_fit  # not needed for the first paint

            return cls(None, script_fit.as_trained(preset) or preset)
        name, _ = _record_of(path)
        if name:
            # A run is named after its preset, and so is the next run with the same options.
            preset = replace(preset, name=STAMP.sub("", name))
        return cls(path, preset, _text_of(path))

    @classmethod
    def first(cls) -> FormState:
        return cls(resolving.FIRST, resolving.first(), _text_of(resolving.FIRST))

    @property
    def name(self) -> str:
        return self.opened.name

    @property
    def source(self) -> str:
        """The name of the preset and, for a record of a run or a proof, which of them."""
        return f"{self.name} {self.record}".rstrip()

    @property
    def shipped(self) -> bool:
        return self.path is not None and self.path.resolve().parent == presets.SHIPPED

    @property
    def record(self) -> str:
        """Say which record of a run or a proof the preset's file is, which must not be changed; else empty."""
        return _record_of(self.path)[1] if self.path is not None else ""

    @property
    def of_a_run(self) -> bool:
        return bool(self.record)

    def set(self, key: str, text: str) -> None:
        """Put a text into the field of the option `key`, and validate the whole form again."""
        self.texts[key] = text
        self._validate()

    def put(self, texts: Mapping[str, str], description: str | None = None) -> None:
        """Put texts, by option key, into their fields, then validate once. Without a `description`, it stays."""
        self.texts |= texts
        self.description = self.description if description is None else description
        self._validate()

    def change(self, values: Mapping[str, Any]) -> None:
        """Put values, by option key, into their fields. Keys that are no options are ignored."""
        self.put({key: to_text(value) for key, value in values.items() if key in INFO})

    def become(self, options: Options) -> None:
        if keys := self.differing(options):
            self.put({key: shown(options, INFO[key]) for key in keys})

    def differing(self, options: Options) -> dict[str, Any]:
        values = {key: options.value(info.key) for key, info in INFO.items()}
        return {key: value for key, value in values.items() if value != self.preset.options.value(key)}

    def text_of_file(self, key: str) -> str:
        return shown(self.opened.options, INFO[key])

    def describe(self, text: str) -> None:
        self.description = text
        self._validate()

    def is_default(self, key: str) -> bool:
        return key not in self.errors and self.preset.options.value(key) == INFO[key].default

    def is_unsaved(self, key: str) -> bool:
        """Return True if the field is invalid, or if its value differs from the file's value."""
        info = INFO[key]
        if key == LEFT:  # it follows from the other fields
            return False
        return key in self.errors or self.preset.options.value(info.key) != self.opened.options.value(info.key)

    def mark(self, key: str) -> str:
        """Return the sign of an invalid field, of an unsaved change, or of a value that is not the default."""
        if key in self.errors:
            return "!"
        return "+" if self.is_unsaved(key) else "" if self.is_default(key) else "*"

    def own(self, key: str) -> str:
        """Say on which condition the option applies to the user's own code or command; empty without these."""
        if self.preset.options.workload.command:
            return "" if key in OF_COMMAND or is_private(key) else "never: a command does not obey it"
        return "" if self.preset.options.workload.entry is None else OWN_CODE_LABELS[INFO[key].about.own]

    def no_effect(self, key: str) -> str:
        """Return why the option never applies to the user's own code; empty if it may apply."""
        never, _, reason = self.own(key).partition("never: ")
        return "" if never else reason.partition(";")[0]

    def is_hidden(self, key: str) -> bool:
        """Return True if the option does not apply to the user's own code, and nobody has changed it."""
        return bool(self.no_effect(key)) and self.is_default(key) and not self.is_unsaved(key)

    def unsaved(self) -> list[str]:
        return [key for key in INFO if self.is_unsaved(key)]

    def changed(self) -> list[str]:
        """Return the keys of the options that differ from the file, then of those that differ only from the default."""
        unsaved = self.unsaved()
        return [*unsaved, *(key for key in INFO if key not in unsaved and not self.is_default(key))]

    @property
    def modified(self) -> bool:
        return self.description != self.opened.description or bool(self.unsaved())

    @property
    def at_risk(self) -> bool:
        """True if changes would be lost if the form were closed: they were neither saved nor used for a started run."""
        return self.modified and (dict(self.texts), self.description) != self._kept

    def keep(self) -> None:
        """Mark the present values as kept: they are in a file, or in a run that was started with them."""
        self._kept = (dict(self.texts), self.description)

    def saved_as(self, path: Path) -> None:
        """Make `path`, to which the form was saved, the preset's file, with which its values are compared."""
        fresh = FormState.open(path)
        self.path, self.opened, self.opened_text = path, fresh.opened, fresh.opened_text
        self._validate()
        self.keep()

    def compare_with_file(self) -> None:
        """Compare the form's values from now on with the present content of its file, which was written elsewhere.
        Nothing changes if it cannot be read."""
        if self.path is not None:
            with contextlib.suppress(PresetError, OSError):
                fresh = FormState.open(self.path)
                self.opened, self.opened_text = fresh.opened, fresh.opened_text
                self._kept = (dict(fresh.texts), fresh.description)
                self._validate()

    def command(self) -> str:
        base = shlex.quote(self._reference())
        keys = dict.fromkeys(self.unsaved())
        if paths.ENTRY_KEY in keys and self.texts[paths.FOLDER].strip():
            keys |= {paths.FOLDER: None}  # to which the entry is relative
        settings = [f"{key}={self.texts[key].strip() or 'null'}" for key in keys]
        return " \\\n  ".join([f"gputui --preset {base}", *(f"--set {shlex.quote(text)}" for text in settings)])

    def _reference(self) -> str:
        # run:ID for the preset of a run; the preset's name if it stands for its file, else the path.
        if self.path is None:
            return self.name
        run, _ = _record_of(self.path)
        if run and self.path.name == "preset.yaml":
            return f"{RUN}{run}"
        named = presets.named_presets().get(self.path.stem)
        return self.path.stem if named and named.resolve() == self.path.resolve() else str(self.path)

    def _validate(self) -> None:
        """Update `errors` and `preset`, in which an invalid field has its value as it was opened."""
        values = {key: to_value(INFO[key], text) for key, text in self.texts.items()}
        self.errors = {}
        try:
            self.preset = presets.assemble(self.name, values, self.description)
        except PresetError as fault:
            self.errors = {problem.key: problem.message for problem in fault.problems}
            for key in self.errors:
                values[key] = self.opened.options.value(key)
            self.preset = presets.assemble(self.name, values, self.description)
        kept = {key: at for key, at in self.opened.origins.items() if not self.is_unsaved(key)}
        options = self.preset.options
        if left := options.workload.left_to_fit:
            options = options.with_values({LEFT: [key for key in left if not self.is_unsaved(key)]})
        self.preset = replace(self.preset, options=options, origins=kept, file=self.opened.file)


def shown(options: Options, info: OptionInfo) -> str:
    """Return the option's value as the text for its field. A path inside the current folder becomes relative."""
    return to_text(paths.relative(info.key, options))


def _text_of(path: Path) -> str:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return stream.read()


def _record_of(path: Path) -> tuple[str, str]:
    folder = path.resolve().parent
    if path.name == "preset.yaml" and folder.parent == places.runs_folder().resolve():
        return folder.name, "of a run"
    if path.name == "improved.yaml" and folder.parent == places.proofs_folder().resolve():
        return folder.name, "of a proof"
    return "", ""


SETTING = re.compile(r"\b(?P<key>[a-z]+\.[a-z0-9_]+)=(?P<text>[^\s,;()]+)")


def proposed(hint: str) -> Mapping[str, Any]:
    """Return the values of the first proposal in a hint such as `try input.batch_size=16`; `and` joins settings."""
    for part in re.split(r"\bor\b|[,;]\s", hint):
        named = [(info, match["text"]) for match in SETTING.finditer(part) if (info := INFO.get(match["key"]))]
        if named:
            return {info.key: to_value(info, text.rstrip(".")) for info, text in named}
    return {}


# ---- undo -----------------------------------------------------------------------------------------


LONGEST = 200  # changes that can be undone


@dataclass(frozen=True)
class Moment:
    """The content of the form at one time: the preset, the texts of its fields, and the description."""

    state: FormState
    texts: Mapping[str, str]
    description: str

    @classmethod
    def of(cls, state: FormState) -> Moment:
        return cls(state, dict(state.texts), state.description)

    def differs(self, state: FormState) -> bool:
        return state is not self.state or state.texts != self.texts or state.description != self.description

    def keys(self, state: FormState) -> list[str]:
        return [key for key, text in self.texts.items() if state.texts[key] != text]


@dataclass(frozen=True)
class Act:
    """A change of the form, with the content `before` it. `what` names the change in words. All characters typed into
    one field have the same `edit`, and so are one change."""

    before: Moment
    what: str
    edit: object = None


@dataclasses.dataclass
class History:
    """The changes that can be undone (`done`), and the changes that were undone and can be redone (`undone`)."""

    done: list[Act] = field(default_factory=list)
    undone: list[Act] = field(default_factory=list)

    def record(self, before: Moment, state: FormState, what: str, edit: object = None) -> None:
        """Store a change to `state`, if it is one. Changes in a row with the same `edit` (not None) become one."""
        if edit is not None and self.done and self.done[-1].edit == edit:
            before = self.done.pop().before
        if before.differs(state):
            self.done = [*self.done[1 - LONGEST :], Act(before, what, edit)]
            self.undone = []

    def undo(self, state: FormState, count: int = 1) -> Act | None:
        """Return the first of the last `count` changes, undone by its `before`; `redo` brings back `state`."""
        skipped = self.done[len(self.done) - count + 1 :]
        del self.done[len(self.done) - len(skipped) :]
        return _moved(self.done, self.undone, state)

    def redo(self, state: FormState) -> Act | None:
        """Return the change undone last, to be repeated by its `before`; `undo` brings back `state`."""
        return _moved(self.undone, self.done, state)


def _moved(source: list[Act], target: list[Act], state: FormState) -> Act | None:
    if not source:
        return None
    act = source.pop()
    target.append(Act(Moment.of(state), act.what))
    return act
