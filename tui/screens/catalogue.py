"""All screens in one table: how each is called, which key opens it, what it shows, and what it is opened with.

The application makes its keys, its commands and the opening of screens from it. Classes are named, not imported:
whoever starts the form does not pay for the other screens.
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
    """One screen; `opened_with` is empty where it needs nothing and opens from everywhere."""

    name: str
    title: str
    shows: str
    class_name: str
    module: str  # of `class_name`, relative to this folder
    opened_with: str = ""
    verb: str = ""  # whose keys open the screen from anywhere
    in_footer: bool = False
    place: str = ""  # the place in the header that it belongs to, if it is none itself

    @property
    def keys(self) -> str:
        return keys.VERBS[self.verb].keys if self.verb else ""

    @property
    def screen_class(self) -> type[Screen[Any]]:
        found: type[Screen[Any]] = getattr(import_module(f".{self.module}", __package__), self.class_name)
        return found


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
    """The screens that open from everywhere by a key of their own, in the order of these keys."""
    return sorted((one for one in SCREENS if one.keys), key=lambda one: one.keys)


def place_of(screen: Screen[Any]) -> str:
    """The name of the place that a screen is, or belongs to; a chart belongs to that of the screen that has it."""
    if isinstance(source := getattr(screen, "source", None), Screen):
        return place_of(source)
    names = {kind.__name__ for kind in type(screen).__mro__}
    found = next((one for one in SCREENS if one.class_name in names), None)
    return (found.place or found.name) if found else ""


def place_of_key(app: App[Any], key: str) -> str:
    """The name of the screen that a function key opens from anywhere, as the settings have it; else nothing."""
    return next((one.name for one in places() if key in keys.keys_of(app, one.verb) and len(key) > 1), "")


def key_bindings() -> list[Binding]:
    """The keys of the application that open screens, in the order of its footer."""
    return [keys.bind(one.verb, f"show('{one.name}')", show=one.in_footer) for one in places()]


def left_out(name: str) -> Binding:
    """For a screen whose footer has no room, or no use, for the key of another one; the key works all the same."""
    return keys.bind(entry(name).verb, f"app.show('{name}')", show=False)
