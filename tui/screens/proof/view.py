"""What the screens of a proof and of a search share: they follow the proof's folder, and stop and copy it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.binding import BindingType

from ....engine.runs import Run
from ....engine.trials.record import UNREAD
from ....engine.trials.trial import Trial
from ...base import keys
from ...base.errors import clean
from ..base import FollowingScreen, Reading
from . import actions

if TYPE_CHECKING:
    from ....engine.proof.folder import Proof

READ_SECONDS = 0.5
ENDED_READ_SECONDS = 3.0


class ProofView(FollowingScreen[Reading]):
    """The base of the screens of proofs. `data` is the newest content of proof.json that could be read. The proof runs
    in its own process.
    """

    FOLLOWS_COVERED = True  # a trial of it is looked at over it
    # Verbs of which the screen says why their key does nothing, with their actions ("": it has none here).
    EXPLAINED: ClassVar[Mapping[str, str]] = {}
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("copy", label="Copy report", meaning="copy the report as Markdown", show=False),
        *keys.back(),
    ]

    def __init__(self, proof: Proof) -> None:
        super().__init__()
        self.proof = proof
        self.data = UNREAD

    @property
    def goes_on(self) -> bool:
        return self.data.state == "running"

    def on_key(self, event: events.Key) -> None:
        """If a key of `EXPLAINED` has no effect now, and so is not in the footer, show the reason."""
        for verb, action in self.EXPLAINED.items():
            idle = not action or self.check_action(action, ()) is False
            if self.data.is_read and idle and event.key in keys.keys_of(self.app, verb) and (why := self.why_not(verb)):
                self.app.notify(clean(why), markup=False)

    def why_not(self, verb: str) -> str:  # noqa: ARG002 - of those that override it
        """The reason why the key of a verb has no effect now, as a message to the user; empty if no
        message is needed.
        """
        return ""

    def open_trial(self, name: str) -> None:
        """Open the run of the trial with this name, if the run's folder exists."""
        path = self.proof.path / "trials" / Path(name).name
        if name and path.is_dir():
            self.app.open_run(Run(path))

    @work(exclusive=True, group="stop")
    async def action_stop(self) -> None:
        await actions.stop(self.app, self.proof, self.data.kind == "tune")

    @work(exclusive=True, group="save")
    async def action_save_report(self) -> None:
        await actions.save_report(self.app, self.proof, self.data, Path.cwd())

    @work(exclusive=True, group="save")
    async def action_copy(self) -> None:
        await actions.copy_report(self.app, self.data)


def latest_run(trials: Sequence[Trial]) -> str:
    """The name of the run of the latest trial; empty if no trial has a run yet."""
    return next((trial.run for trial in reversed(trials) if trial.run), "")
