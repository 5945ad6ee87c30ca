"""The followers that the engine starts (run.follow), and what it says about them. The training never waits for them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Iterator

from ..runs import Run, run_cluster
from ..runs.events import Warn

LATE_SECONDS = 10.0  # a target that answers again within this time is not worth a warning
RESTARTS = 3  # of a follower that was killed
KEY = "run.follow"
HINT = "the training goes on, and its figures wait in the run folder; gputui follow {} shows how far each follower is"


class Followers:
    """The followers of a run for `targets`. A worker of several machines has none unless it is the chief."""

    def __init__(self, run: Run, targets: Collection[str]) -> None:
        cluster = run_cluster.of_run(run)
        self._run = run
        self._targets = tuple(targets) if cluster is None or cluster.is_chief else ()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._left = dict.fromkeys(self._targets, RESTARTS)
        self._reported: set[str] = set()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def start(self) -> Iterator[Warn]:
        """Start all followers. Yield a warning for each that cannot be started."""
        for target in self._targets:
            yield from self._start(target)

    def _start(self, target: str) -> Iterator[Warn]:
        from ..follow import start  # only a run with followers needs it

        try:
            self._processes[target] = start.start(self._run.path, target)
        except OSError as fault:
            yield self._warning(f"the follower for {target} cannot be started: {fault.strerror or fault}")

    def check(self) -> Iterator[Warn]:
        """Yield a warning for each follower that waits for its target, once until it goes on.

        A follower that has ended before the run is started again.
        """
        if not self._processes:
            return
        from ..follow import start  # only a run with followers needs it

        for target, process in list(self._processes.items()):
            state = start.state(self._run.path, target)
            if process.poll() is not None and not state.is_alive and state.place.state != "done":
                yield from self._again(target, state.damage)
            elif state.place.state == "waiting" and time.time() - state.place.since > LATE_SECONDS:
                if target not in self._reported:
                    self._reported.add(target)
                    yield self._warning(f"{target} {state.words}")
            elif state.place.state == "following":
                self._reported.discard(target)

    def _again(self, target: str, damage: str) -> Iterator[Warn]:
        del self._processes[target]
        self._left[target] -= 1
        again = self._left[target] >= 0 and not damage
        yield self._warning(
            f"the follower for {target} has ended" + (f": {damage}" if damage else ", and is started again" * again)
        )
        if again:
            yield from self._start(target)

    def _warning(self, message: str) -> Warn:
        return Warn(kind="follow", message=message, hint=HINT.format(self._run.id), option=KEY)
