"""What screens ask of the application they run in.

Separates the screens from app.py, which knows them all: a screen knows this, and never another one's application.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App

from .errors import clean
from .typeahead import Typeahead

if TYPE_CHECKING:
    from pathlib import Path

    from textual.driver import Driver

    from ...engine.process.launch import Warm
    from ...engine.proof.folder import Proof
    from ...engine.runs import Run
    from ...engine.runs.trash import Trash
    from ..form.state import FormState


class Host(App[None]):
    """The application as a screen sees it."""

    engines: list[Any]  # started here; kept so that ended children are reaped
    warm: Warm | None = None  # an engine that waits for the form's run

    def __init__(self) -> None:
        super().__init__()
        self.typeahead = Typeahead(self, super().on_event)

    @cached_property
    def trash(self) -> Trash:
        """The runs that were deleted here."""
        from ...engine.runs.trash import Trash

        return Trash()

    def on_unmount(self) -> None:
        if "trash" in vars(self):
            self.trash.empty()

    async def on_event(self, event: events.Event) -> None:
        """What is typed waits for what opens; all else is Textual's."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.typeahead.take(event)
        elif isinstance(event, events.MouseUp) and not event.is_forwarded:
            await self.typeahead.click(event)
        else:
            await super().on_event(event)

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        if driver.__name__ != "LinuxDriver":
            return driver
        from .terminal_input import TerminalDriver

        return TerminalDriver

    @property
    def form_state(self) -> FormState:
        """What the form holds."""
        raise NotImplementedError

    def open_run(self, run: Run) -> None:
        """Look at a run, running or finished."""
        raise NotImplementedError

    def open_compare(self, runs: list[Run]) -> None:
        """Runs side by side."""
        raise NotImplementedError

    def open_proof(self, proof: Proof) -> None:
        """Look at a proof, as it is made or as it ended."""
        raise NotImplementedError

    def open_proofs(self) -> None:
        """All proofs."""
        raise NotImplementedError

    def open_form(self, preset_yaml_path: Path) -> Any:
        """Fill the form with the preset of a file, once what stands there is safe."""
        raise NotImplementedError

    def warm_up(self) -> Any:
        """Let an engine import TensorFlow and wait, unless a run needs the machine."""
        raise NotImplementedError

    def complain(self, reason: str) -> None:
        self.notify(clean(reason), severity="error", markup=False, timeout=10)
