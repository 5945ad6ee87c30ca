"""An application that is not run: it answers the questions of its screens, and keeps all that it is told and opens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual.screen import Screen

from tests.doors.tui import Ask, FormState
from tests.support.tiny import Tiny


class Answering(Tiny):
    """`answers` are those to its next questions. `asked` has each question with its answers, of a field its text.
    `state` is the content of the form.
    """

    state: FormState

    def __init__(self, *answers: Any) -> None:
        super().__init__(Screen)
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []
        self.fields: list[Any] = []  # the dialogs with a field
        self.told: list[str] = []  # a title stands before the message, a severity after it

    async def push_screen_wait(self, screen: Any) -> Any:  # type: ignore[override]
        if isinstance(screen, Ask):
            self.asked.append((screen.question, tuple(screen.answers)))
        else:
            self.asked.append((screen.question, screen.text))
            self.fields.append(screen)
        return self.answers.pop(0)

    def notify(self, message: str, *, title: str = "", severity: str = "", **_: Any) -> None:
        title = f"{title}: " if title else ""
        self.told.append(f"{title}{message}{f' ({severity})' if severity else ''}")

    @property
    def form_state(self) -> FormState:
        return self.state

    @contextmanager
    def suspend(self) -> Iterator[None]:
        yield

    def show_in_form(self, state: Any) -> None:
        self.opened.append(("shown", state))


def act(screen: Any, action: str, *given: Any) -> None:
    """Do what the key of the action does."""
    method = getattr(type(screen), f"action_{action}")
    asyncio.run(method.__wrapped__(screen, *given))
