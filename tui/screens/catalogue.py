"""The table of all screens, from which the application makes its keys and commands. Classes are named, not imported, so
that the start of the form does not import the other screens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.screen import Screen

from ..base import keys
from ..base.themes import with_marks
from ..word_search import place, search


@dataclass(frozen=True)
class ScreenEntry:
    """A screen of the table. `opened_with` names the object that it needs, empty if it opens from everywhere."""

    name: str
    title: str
    shows: str
    class_name: str
    module: str  # of `class_name`, relative to this folder
    opened_with: str = ""
    verb: str = ""  # its keys open the screen from everywhere
    place: str = ""  # the screen in the header that it belongs to, if it is not in the header itself

    @property
    def keys(self) -> str:
        return keys.VERBS[self.verb].keys if self.verb else ""

    @property
    def screen_class(self) -> type[Screen[Any]]:
        screen_class: type[Screen[Any]] = getattr(import_module(f".{self.module}", __package__), self.class_name)
        return screen_class


SCREENS = (
    ScreenEntry("form", "Form", "the options of the preset", "FormScreen", "form.screen", "a preset", verb="form"),
    ScreenEntry("live", "Live view", "the run that is training, or the latest one", "LiveScreen", "live.screen",
                "a run", verb="live"),
    ScreenEntry("runs", "Runs", "past and present runs", "RunsScreen", "runs.screen", verb="runs"),
    ScreenEntry("gpus", "GPUs", "all GPUs and the host as they are now", "GpusScreen", "gpus", verb="gpus"),
    ScreenEntry("run_gpus", "GPUs of the run", "the GPUs of a run with all figures, as they are or were",
                "RunGpusScreen", "gpus", "a live view", place="live"),
    ScreenEntry("processes", "Processes", "who uses the GPUs: the processes of each user", "ProcessesScreen",
                "gpus", "the GPUs", place="gpus"),
    ScreenEntry("hosts", "Hosts", "GPUs, runs and queues of several machines", "HostsScreen", "hosts",
                "names of hosts"),
    ScreenEntry("doctor", "Doctor", "checks GPUs, driver, TensorFlow and host for problems", "DoctorScreen",
                "doctor", verb="doctor"),
    ScreenEntry("diagnosis", "Diagnosis", "what limits the speed of a run", "DiagnosisScreen", "live.screen",
                "a live view", place="live"),
    ScreenEntry("previews", "Previews", "images, texts and counts that a run shows of each epoch", "PreviewScreen",
                "previews", "a live view or a comparison"),
    ScreenEntry("chart", "Chart", "one chart alone, with a cursor", "ChartScreen", "chart",
                "a live view, a comparison or the GPUs"),
    ScreenEntry("compare", "Comparison", "what differs between runs", "CompareScreen", "compare",
                "two or more runs", place="runs"),
    ScreenEntry("proof", "Proof", "a proof as it is made, or as it ended", "ProofScreen", "proof.screen",
                "a proof", place="runs"),
    ScreenEntry("tune", "Tune", "a search for the fastest settings, as it is made or as it ended", "TuneScreen",
                "proof.screen", "a search", place="runs"),
    ScreenEntry("scaling", "Scaling", "how the speed grows with the replicas, as it is measured or as it ended",
                "ScalingScreen", "proof.screen", "a measurement of scaling", place="runs"),
    ScreenEntry("sweep", "Sweep", "which settings learn best, while their trials train or as it ended",
                "SweepScreen", "proof.screen", "a sweep", place="runs"),
    ScreenEntry("changes", "Changes", "what differs from the file and from the defaults", "ChangesScreen",
                "form.changes", "a form", place="form"),
    ScreenEntry("settings", "Settings", "theme, charts, log, notices", "SettingsScreen", "settings"),
    ScreenEntry("presets", "Open", "presets of this folder, recent, own and shipped ones", "PresetsScreen",
                "presets", "a form", place="form"),
    ScreenEntry("text", "Text", "YAML, command line or Python of the form", "TextScreen", "form.changes", "a form",
                place="form"),
)  # fmt: skip
_BY_NAME = {entry.name: entry for entry in SCREENS}


def entry(name: str) -> ScreenEntry:
    return _BY_NAME[name]


def screen(name: str, *opened_with: Any) -> Screen[Any]:
    return entry(name).screen_class(*opened_with)


def places() -> list[ScreenEntry]:
    """Return the screens that the header shows, in the order of their keys. All of them open from everywhere."""
    return sorted((entry for entry in SCREENS if entry.keys), key=lambda entry: entry.keys)


def place_of(screen: Screen[Any]) -> str:
    """Return the tab in the header to which a screen belongs; a chart to that of the screen that opened it."""
    if isinstance(source := getattr(screen, "source", None), Screen):
        return place_of(source)
    names = {kind.__name__ for kind in type(screen).__mro__}
    listed = next((entry for entry in SCREENS if entry.class_name in names), None)
    return (listed.place or listed.name) if listed else ""


def place_of_key(app: App[Any], key: str) -> str:
    """Return the screen that a key (Textual's name) opens from everywhere; empty for keys of one character."""
    return next((entry.name for entry in places() if key in keys.keys_of(app, entry.verb) and len(key) > 1), "")


def key_bindings() -> list[Binding]:
    """Return the bindings of the application's keys that open screens, which the header names."""
    return [keys.bind(entry.verb, f"show('{entry.name}')", show=False) for entry in places()]


# ---- the command palette --------------------------------------------------------------------------


class Commands(Provider):
    """Offers the application's commands: all of them, or those that match typed words, the best first."""

    async def discover(self) -> Hits:
        first = tuple(NAMES.values())
        commands = sorted(
            self.app.get_system_commands(self.screen),
            key=lambda command: (not command.title.startswith(first), command.title),
        )
        for title, about, run, is_listed in commands:
            if is_listed:
                yield DiscoveryHit(title, run, help=about)

    async def search(self, query: str) -> Hits:
        commands = self.app.get_system_commands(self.screen)
        for hit in search(query, commands, lambda each: (place(each.title), place(each.help, 1, False, "help"))):
            line = with_marks(Content(hit.item.title), hit)
            yield Hit(1 / (1 + hit.rank), line, hit.item.callback, hit.item.title, hit.item.help)


# The two questions, which come first, by their verbs.
NAMES = {"tune": "Make it faster", "learn": "Make it learn better"}


def of_screen(screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Yield a screen's commands for the palette: its keys' actions, then its `commands`. Left out are keys that are
    disabled, move, edit a field, open a screen from everywhere, leave, or open the palette."""
    seen = set()
    for active in screen.active_bindings.values():
        binding = active.binding
        verb = keys.VERBS.get(binding.id or "")
        if verb is None or not active.enabled or verb.group in (keys.MOVING, keys.PLACES, keys.FIELD):
            continue
        if verb.id in ("palette", "leave") or binding.action in seen:
            continue
        seen.add(binding.action)
        run = partial(screen.app.run_action, binding.action, active.node)
        name = NAMES.get(verb.id, binding.description)
        yield SystemCommand(f"{name}  ({keys.shown(binding.key)})", binding.tooltip, run)
    yield from getattr(screen, "commands", tuple)()
