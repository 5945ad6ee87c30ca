"""Undo and redo over the whole form: single options, remedies with several of them, and other presets that were opened.

What the form held before each act is kept, with the act in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .state import FormState

LONGEST = 200  # acts that can be undone


@dataclass(frozen=True)
class Moment:
    """What the form held: the preset that was open, and what stood in its fields."""

    state: FormState
    texts: Mapping[str, str]
    description: str

    @classmethod
    def of(cls, state: FormState) -> Moment:
        return cls(state, dict(state.texts), state.description)

    def differs(self, state: FormState) -> bool:
        return state is not self.state or state.texts != self.texts or state.description != self.description

    def keys(self, state: FormState) -> list[str]:
        """The options whose texts differ from those of `state`."""
        return [key for key, text in self.texts.items() if state.texts[key] != text]


@dataclass(frozen=True)
class Act:
    """Something that was done to the form, which held `before`; what is typed into one field is one `edit`."""

    before: Moment
    what: str
    edit: object = None


@dataclass
class History:
    """The acts that can be undone, and those that can be done again."""

    done: list[Act] = field(default_factory=list)
    undone: list[Act] = field(default_factory=list)

    def record(self, before: Moment, state: FormState, what: str, edit: object = None) -> None:
        """An act, in words, has made `state` of what was `before`; one that has changed nothing is not kept."""
        if edit is not None and self.done and self.done[-1].edit == edit:
            before = self.done.pop().before
        if before.differs(state):
            self.done = [*self.done[1 - LONGEST :], Act(before, what, edit)]
            self.undone = []

    def undo(self, state: FormState) -> Act | None:
        """The act to take back, whose `before` the form shall hold; None where nothing was done."""
        return _moved(self.done, self.undone, state)

    def redo(self, state: FormState) -> Act | None:
        """The act to do again, whose `before` the form shall hold."""
        return _moved(self.undone, self.done, state)


def _moved(source: list[Act], target: list[Act], state: FormState) -> Act | None:
    if not source:
        return None
    act = source.pop()
    target.append(Act(Moment.of(state), act.what))
    return act
