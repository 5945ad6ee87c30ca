"""Undo and redo of changes to the form: of single options, of several at once, and of opening another preset.

The content of the form before each change is kept, with the change in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .state import FormState

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
        """Return the keys of the options whose texts differ from the texts of `state`."""
        return [key for key, text in self.texts.items() if state.texts[key] != text]


@dataclass(frozen=True)
class Act:
    """A change of the form, with the content `before` it. All characters typed into one field have the same `edit`, and
    so are one change.
    """

    before: Moment
    what: str
    edit: object = None


@dataclass
class History:
    """The changes that can be undone (`done`), and the undone changes that can be redone (`undone`)."""

    done: list[Act] = field(default_factory=list)
    undone: list[Act] = field(default_factory=list)

    def record(self, before: Moment, state: FormState, what: str, edit: object = None) -> None:
        """Store a change from `before` to `state`, unless both are equal. `what` names the change in words."""
        if edit is not None and self.done and self.done[-1].edit == edit:
            before = self.done.pop().before
        if before.differs(state):
            self.done = [*self.done[1 - LONGEST :], Act(before, what, edit)]
            self.undone = []

    def undo(self, state: FormState) -> Act | None:
        """Return the change to undo; the caller gives the form its content `before`. None if there is no change to
        undo.
        """
        return _moved(self.done, self.undone, state)

    def redo(self, state: FormState) -> Act | None:
        """Return the change to redo; the caller gives the form its content `before`. None if there is no change to
        redo.
        """
        return _moved(self.undone, self.done, state)


def _moved(source: list[Act], target: list[Act], state: FormState) -> Act | None:
    if not source:
        return None
    act = source.pop()
    target.append(Act(Moment.of(state), act.what))
    return act
