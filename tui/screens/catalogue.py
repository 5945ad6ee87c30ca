"""The table of all screens: name, key, description, class, and what the screen is opened with.

The application makes its keys and commands from it, and opens screens by it. Classes are named, not imported, so that
the start of the form does not import the other screens.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from textual.app import App
from textual.binding import Binding
from textual.screen import Screen

from ..base import keys


@dataclass(frozen=True)
class ScreenEntry:
    """A screen of the table. `opened_with` says what the screen is opened with; it is empty if the screen opens from
    everywhere.
    """

    name: str
    title: str
    shows: str
    class_name: str
    module: str  # of `class_name`, relative to this folder
    opened_with: str = ""
    verb: str = ""  # its keys open the screen from everywhere
    in_footer: bool = False
    place: str = ""  # the screen in the header that it belongs to, if it is not in the header itself

    @property
    def keys(self) -> str:
        return keys.VERBS[self.verb].keys if self.verb else ""

    @property
    def screen_class(self) -> type[Screen[Any]]:
        screen_class: type[Screen[Any]] = getattr(import_module(f".{self.module}", __package__), self.class_name)
        return screen_class


SCREENS = (
    ScreenEntry(
        "form",
        "Form",
        "The options of the preset",
        "FormScreen",
        "form.screen",
        "a preset",
        verb="form",
        in_footer=True,
    ),
    ScreenEntry(
        "live",
        "Live view",
        "The running run, or the latest",
        "LiveScreen",
        "live.screen",
        "a run",
        verb="live",
        in_footer=True,
    ),
    ScreenEntry("runs", "Runs", "Past and present runs", "RunsScreen", "runs.screen", verb="runs", in_footer=True),
    ScreenEntry(
        "proofs", "Proofs", "Changes that were measured, and their gains", "ProofsScreen", "proof.proofs", place="runs"
    ),
    ScreenEntry("gpus", "GPUs", "All GPUs and the host as they are now", "GpusScreen", "gpus.screen", verb="gpus"),
    ScreenEntry(
        "processes",
        "Processes",
        "Who uses the GPUs: a tree of each user's processes",
        "ProcessesScreen",
        "gpus.processes",
        "the GPUs",
        place="gpus",
    ),
    ScreenEntry(
        "doctor",
        "Doctor",
        "Checks GPUs, driver, TensorFlow and host for problems",
        "DoctorScreen",
        "doctor",
        verb="doctor",
    ),
    ScreenEntry(
        "diagnosis",
        "Diagnosis",
        "What holds a run back",
        "DiagnosisScreen",
        "live.diagnosis",
        "a live view",
        place="live",
    ),
    ScreenEntry(
        "chart",
        "Chart",
        "One chart alone, with a cursor",
        "ChartScreen",
        "chart",
        "a live view, a comparison or the GPUs",
    ),
    ScreenEntry(
        "compare",
        "Comparison",
        "Runs side by side",
        "CompareScreen",
        "compare.screen",
        "two or more runs",
        place="runs",
    ),
    ScreenEntry(
        "proof",
        "Proof",
        "A proof as it is made, or as it ended",
        "ProofScreen",
        "proof.screen",
        "a proof",
        place="runs",
    ),
    ScreenEntry(
        "tune",
        "Tune",
        "A search for the fastest settings, as it is made or as it ended",
        "TuneScreen",
        "tune.screen",
        "a search",
        place="runs",
    ),
    ScreenEntry(
        "scaling",
        "Scaling",
        "How the speed grows with the replicas, as it is measured or as it ended",
        "ScalingScreen",
        "proof.scaling",
        "a measurement of scaling",
        place="runs",
    ),
    ScreenEntry(
        "changes",
        "Changes",
        "What differs from the file and from the defaults",
        "ChangesScreen",
        "form.changes",
        "a form",
        place="form",
    ),
    ScreenEntry(
        "presets",
        "Open",
        "Presets of this folder, recent, own and shipped ones",
        "PresetsScreen",
        "presets.screen",
        "a form",
        place="form",
    ),
    ScreenEntry(
        "text",
        "Text",
        "YAML, command line or Python of the form",
        "TextScreen",
        "form.text_views",
        "a form",
        place="form",
    ),
)
_BY_NAME = {entry.name: entry for entry in SCREENS}


def entry(name: str) -> ScreenEntry:
    return _BY_NAME[name]


def places() -> list[ScreenEntry]:
    """The screens that the header shows, in the order of their keys; each opens from everywhere."""
    return sorted((entry for entry in SCREENS if entry.keys), key=lambda entry: entry.keys)


def place_of(screen: Screen[Any]) -> str:
    """The name of the screen in the header to which `screen` belongs, empty if there is none. A chart belongs to the
    screen that opened it.
    """
    if isinstance(source := getattr(screen, "source", None), Screen):
        return place_of(source)
    names = {kind.__name__ for kind in type(screen).__mro__}
    listed = next((entry for entry in SCREENS if entry.class_name in names), None)
    return (listed.place or listed.name) if listed else ""


def place_of_key(app: App[Any], key: str) -> str:
    """The name of the screen that a key such as f2 opens from everywhere, with the keys of the settings; empty for
    other keys.
    """
    return next((entry.name for entry in places() if key in keys.keys_of(app, entry.verb) and len(key) > 1), "")


def key_bindings() -> list[Binding]:
    """The bindings of the application's keys that open screens, in the order of the footer."""
    return [keys.bind(entry.verb, f"show('{entry.name}')", show=entry.in_footer) for entry in places()]


def left_out(name: str) -> Binding:
    """The binding of a key that opens another screen and is not shown in the footer."""
    return keys.bind(entry(name).verb, f"app.show('{name}')", show=False)
