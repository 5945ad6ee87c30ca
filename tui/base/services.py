"""What screens may ask of the application that they run in.

Screens depend on this interface and not on app.py, which knows all of them.
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
    """The application as its screens see it."""

    engines: list[Any]  # started here; kept so that their exit status is collected
    warm: Warm | None = None  # an engine that waits for the form's run

    def __init__(self) -> None:
        super().__init__()
        self.typeahead = Typeahead(self, super().on_event)

    @cached_property
    def trash(self) -> Trash:
        """The runs that were deleted in this application."""
        from ...engine.runs.trash import Trash  # not needed for the first paint

        return Trash()

    def on_unmount(self) -> None:
        if "trash" in vars(self):
            self.trash.empty()

    async def on_event(self, event: events.Event) -> None:
        """Keys wait for what is being opened; everything else goes to Textual."""
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
        from .terminal_input import TerminalDriver  # only where a terminal is driven, not in tests

        return TerminalDriver

    @property
    def form_state(self) -> FormState:
        """The values and errors of the form."""
        raise NotImplementedError

    def open_run(self, run: Run) -> None:
        """Open a run, running or finished."""
        raise NotImplementedError

    def open_compare(self, runs: list[Run]) -> None:
        """Open the comparison of runs."""
        raise NotImplementedError

    def open_proof(self, proof: Proof) -> None:
        """Open a proof, running or finished."""
        raise NotImplementedError

    def open_proofs(self) -> None:
        """Open the list of all proofs."""
        raise NotImplementedError

    def open_form(self, preset_yaml_path: Path) -> Any:
        """Fill the form with the preset of a file, once its present content is safe."""
        raise NotImplementedError

    def warm_up(self) -> Any:
        """Let an engine import TensorFlow in advance, unless a run needs the machine."""
        raise NotImplementedError

    def complain(self, reason: str) -> None:
        self.notify(clean(reason), severity="error", markup=False, timeout=10)
