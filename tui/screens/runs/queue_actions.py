"""The actions on a run that waits in the queue. All work with the disk runs in a thread.
Deferred imports: the queue is needed only when a key asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import work
from textual.binding import BindingType

from ....engine.runs import Run, RunError
from ....engine.runs.run import WAITING
from ....engine.runs.titles import with_name
from ...base import keys
from ..dialogs import Ask
from .actions import RunActions

if TYPE_CHECKING:
    from ....engine.queue.entry_changes import Removed
    from ...reading.queue_places import Waiting

TAKE_OUT, KEEP = "Take out", "Keep waiting"
ENDS = "It has not begun, and ends as stopped; its folder stays."
STAYS = "It has begun before: its result and its checkpoints stay."
BINDINGS: list[BindingType] = [
    keys.bind("queue_up", "move_waiting('up')"),
    keys.bind("queue_down", "move_waiting('down')"),
    keys.bind("queue_top", "move_waiting('top')"),
    keys.bind("hold", "hold_waiting", meaning="hold the waiting run, so that it is not started"),
    keys.bind("hold", "release_waiting", "Release", meaning="release the held run, so that it is started in its turn"),
    keys.bind("stop", "take_out", "Take out", meaning="take the waiting run out of the queue"),
]


class QueueActions(RunActions):
    """The actions on runs, and those on waiting runs, for a screen. Subclasses define `waiting_now`."""

    @property
    def waiting_now(self) -> Waiting | None:
        """The place in the queue of the run to which the next action applies. None if it does not wait."""
        raise NotImplementedError

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        """Actions of the queue need a waiting run, and a waiting run cannot be stopped or resumed."""
        now = self.waiting_now
        if action == "move_waiting":
            return now is not None and now.place is not None  # Slurm orders its jobs
        if action == "take_out":
            return now is not None
        if action in ("hold_waiting", "release_waiting"):
            return now is not None and now.held == (action == "release_waiting")
        return action not in ("stop", "resume") or now is None

    def why_without_effect(self, verb: str) -> str:
        if verb in ("queue_up", "queue_down", "queue_top", "hold"):
            return ": this run does not wait in the queue"
        return ": there is no stopped run with a checkpoint here" if verb == "resume" else ""

    @work(group="queue")
    async def action_move_waiting(self, where: Any) -> None:
        """Move the waiting run in the queue. `where` is `top`, or `up` or `down` for one place."""
        from ....engine.queue import entry_changes
        from ....engine.queue.entries import all_entries
        from ...reading.queue import places_of

        if (run := self.run_meant) is not None:
            name, before = await asyncio.to_thread(lambda: (with_name(run), entry_changes.places()))
            if await self._change(run, lambda: entry_changes.move(run.id, where)):
                after = await asyncio.to_thread(entry_changes.places)
                place = places_of(await asyncio.to_thread(all_entries)).get(run.id)
                moved = {entry: place for entry, place in before.items() if after.get(entry, place) != place}
                if moved:
                    take_back = partial(entry_changes.restore_places, moved)
                    self.did(f"moved {name} in the queue", take_back, key=run.id)
                self.say(f"{name} {'now has' if moved else 'stays at'} place {place} in the queue")

    @work(group="queue")
    async def action_hold_waiting(self) -> None:
        from ....engine.queue import entry_changes

        if (run := self.run_meant) is not None:
            await self._change(run, lambda: entry_changes.hold(run.id))

    @work(group="queue")
    async def action_release_waiting(self) -> None:
        from ....engine.queue import entry_changes

        if (run := self.run_meant) is not None:
            await self._change(run, lambda: entry_changes.release(run.id))

    @work(group="queue")
    async def action_take_out(self) -> None:
        from ....engine.queue import entry_changes

        if (run := self.run_meant) is None:
            return
        name, has_result = await asyncio.to_thread(lambda: (with_name(run), run.result is not None))
        question = f"Take {name} out of the queue?\n{STAYS if has_result else ENDS}"
        answer = await self.app.push_screen_wait(Ask(question, (TAKE_OUT, KEEP), lambda: _waits_no_more(run), "stop"))
        removed: list[Removed | None] = []
        if answer == TAKE_OUT and await self._change(run, lambda: removed.append(entry_changes.remove(run.id))):
            back = ""
            if removed[0] is not None:
                put_back, done = removed[0].put_back, f"{name} waits in the queue again"
                self.did(f"took {name} out of the queue", put_back, done, run.id)
                back = f"; {self.app.key('undo')} puts it back"
            self.say(f"{name} is taken out of the queue{back}")

    async def _change(self, run: Run, act: Callable[[], Any]) -> bool:
        """In a thread; then the run is shown again. False after a message with the error."""
        try:
            await asyncio.to_thread(act)
        except (RunError, OSError) as reason:
            self.say(str(reason), "error")
            return False
        finally:
            self.acted(run)
        return True


def _waits_no_more(run: Run) -> str:
    return "" if run.state == WAITING else f"{with_name(run)} waits no more: it has begun, or was taken out"
