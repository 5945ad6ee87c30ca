"""The actions on the row of a sweep in the list of runs: open it, mark its trials, go to its screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ....engine.runs import Run
from ...reading.run_list import Entry
from .queue_actions import QueueActions
from .run_table import RunsTable

if TYPE_CHECKING:
    from ...reading.sweep_rows import SweepEntry

OF_A_RUN = ("again", "change", "copy", "note", "stop", "resume")  # actions that only a run has
MOST_COMPARED = 12  # trials, the best first


class SweepActions(QueueActions):
    """The actions on runs, and those on a sweep, for the list of runs. Subclasses define `current`, `marked`,
    `rearrange` and `go_to`."""

    marked: dict[str, Run]

    @property
    def current(self) -> Entry | None:
        raise NotImplementedError

    @property
    def current_sweep(self) -> SweepEntry | None:
        """The sweep whose row is under the cursor. None for a run."""
        at = self.current
        return cast("SweepEntry", at) if at is not None and at.group else None

    @property
    def _under_cursor(self) -> list[Entry]:
        at = self.current
        return [] if at is None else list(at.trials) if at.group else [at]

    @property
    def runs_meant(self) -> list[Run]:
        """Return the marked runs or, if none are marked, the run under the cursor or the trials of the sweep there."""
        return list(self.marked.values()) or [entry.run for entry in self._under_cursor]

    @property
    def run_meant(self) -> Run | None:
        """The run under the cursor, also if other runs are marked. None if there is none, and for a sweep."""
        return self.current.run if self.current and not self.current.group else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        at = self.current
        if at is not None and ((action in OF_A_RUN and at.group) or (action == "resume" and not at.resumable)):
            return False
        if action in ("sweep", "proofs"):
            return (action == "sweep") == bool(at and at.group)
        return super().check_action(action, parameters)

    def rearrange(self, go_to: str = "") -> None:
        """Show the table again, with the cursor on the row `go_to`."""
        raise NotImplementedError

    def on_runs_table_folded(self, event: RunsTable.Folded) -> None:
        self.rearrange(event.sweep)

    def action_open(self) -> None:
        """Open the run under the cursor. A sweep there shows its trials below it, or hides them."""
        if (at := self.current) is not None and at.group:
            self.query_one(RunsTable).open_or_close(at.run.id)
        elif at is not None:
            self.app.open_run(at.run)

    def action_mark(self) -> None:
        """Mark the run under the cursor, or unmark it. For a sweep this marks or unmarks all of its trials."""
        runs = {entry.run.id: entry.run for entry in self._under_cursor}
        if all(name in self.marked for name in runs):
            self.marked = {name: run for name, run in self.marked.items() if name not in runs}
        else:
            self.marked |= runs
        self.rearrange()

    def action_sweep(self) -> None:
        if (sweep := self.current_sweep) is not None and sweep.record.is_read:
            self.app.open_proof(sweep.proof)
        else:
            self.say("this sweep was deleted; its trials are still here")
