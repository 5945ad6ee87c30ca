"""Acts that lose something, by place: the runs, the presets, the proofs, the settings. Each can be taken back. The list
lives as long as the application. The form has a history of its own (`form/form_state.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Act:
    """An act and how it is taken back. `what` says in the past tense what was done. `take_back` is called in a thread;
    it returns the reasons for what could not be taken back, if any, and raises an exception with a sentence if nothing
    could. `done` is the message afterwards, by default made of `what`. `key` is the row that then gets the cursor."""

    what: str
    take_back: Callable[[], Sequence[str] | None]
    done: str = ""
    key: str = ""
    at: float = field(default_factory=time.time)

    @property
    def message(self) -> str:
        return self.done or f"taken back: {self.what}"


class Acts:
    """The acts of one place that can be taken back, the latest last. `nothing` is the message if there is none."""

    def __init__(self, nothing: str) -> None:
        self.nothing = nothing
        self._acts: list[Act] = []

    def add(self, what: str, take_back: Callable[[], Sequence[str] | None], done: str = "", key: str = "") -> None:
        """Add an act. `take_back` may return None for no reasons; the other parameters are those of `Act`."""
        self._acts.append(Act(what, take_back, done, key))

    @property
    def newest_first(self) -> list[Act]:
        return self._acts[::-1]

    def postpone(self, act: Act) -> None:
        """Put an act that cannot be taken back now below all others, so that `u` reaches these."""
        if act in self._acts:
            self._acts.remove(act)
            self._acts.insert(0, act)

    def take_back(self, act: Act) -> Sequence[str]:
        """Take the act back, and return the reasons for what could not be; then it stays in the list. In a thread."""
        reasons = act.take_back() or ()
        if not reasons and act in self._acts:
            self._acts.remove(act)
        return reasons
