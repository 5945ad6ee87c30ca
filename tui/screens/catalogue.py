"""All screens in one table: how each is called, which key opens it, what it shows, and what it is opened with.

The application makes its keys, its commands and the opening of screens from it. Classes are named, not imported:
whoever starts the form does not pay for the other screens.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from textual.binding import Binding
from textual.screen import Screen


@dataclass(frozen=True)
class ScreenEntry:
    """One screen; `opened_with` is empty where it needs nothing and opens from everywhere."""

    name: str
    title: str
    shows: str
    class_name: str  # in the module of `module`, beside this one
    module: str
    opened_with: str = ""
    keys: str = ""  # keys that open the screen from anywhere
    key_display: str = ""
    key_label: str = ""  # label in the footer, if not the title
    in_footer: bool = False

    @property
    def screen_class(self) -> type[Screen[Any]]:
        found: type[Screen[Any]] = getattr(import_module(f".{self.module}", __package__), self.class_name)
        return found


SCREENS = (
    ScreenEntry("form", "Form", "The options of the preset", "FormScreen", "form", "a preset",
                keys="f2,1", key_display="F2", in_footer=True),
    ScreenEntry("live", "Live view", "The running run, or the latest", "LiveScreen", "live", "a run",
                keys="f3,2", key_display="F3", key_label="Live", in_footer=True),
    ScreenEntry("runs", "Runs", "Past and present runs", "RunsScreen", "runs",
                keys="f4,3", key_display="F4", in_footer=True),
    ScreenEntry("proofs", "Proofs", "Changes that were measured, and their gains", "ProofsScreen", "proofs"),
    ScreenEntry("gpus", "GPUs", "All GPUs and the host as they are now", "GpusScreen", "gpus",
                keys="f5,5", key_display="F5"),
    ScreenEntry("doctor", "Doctor", "Checks GPUs, driver, TensorFlow and host for problems", "DoctorScreen", "doctor",
                keys="f6,4", key_display="F6"),
    ScreenEntry("diagnosis", "Diagnosis", "What holds a run back", "DiagnosisScreen", "diagnosis", "a live view"),
    ScreenEntry("compare", "Comparison", "Runs side by side", "CompareScreen", "compare", "two or more runs"),
    ScreenEntry("proof", "Proof", "A proof as it is made, or as it ended", "ProofScreen", "proof", "a proof"),
    ScreenEntry("presets", "Presets", "Shipped presets and your own", "PresetsScreen", "presets", "a form"),
    ScreenEntry("text", "Text", "YAML, command line or Python of the form", "TextScreen", "text", "a form"),
)
_BY_NAME = {entry.name: entry for entry in SCREENS}


def entry(name: str) -> ScreenEntry:
    return _BY_NAME[name]


def key_bindings() -> list[Binding]:
    """The keys of the application that open screens, in the order of its footer."""
    listed = sorted((one for one in SCREENS if one.keys), key=lambda one: one.keys)
    return [Binding(one.keys, f"show('{one.name}')", one.key_label or one.title, key_display=one.key_display,
                    show=one.in_footer) for one in listed]


def left_out(name: str) -> Binding:
    """For a screen whose footer has no room, or no use, for the key of another one; the key works all the same."""
    one = entry(name)
    return Binding(one.keys, f"app.show('{name}')", one.key_label or one.title, show=False)
