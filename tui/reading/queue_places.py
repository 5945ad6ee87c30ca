"""The places of waiting runs in the queue, as plain values for lists, headers and views. queue.py reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Waiting:
    """The place of the run with the name `run` in the queue, from 1 on, why it waits, and about when it starts. `place`
    is None for a run that Slurm starts, and `count` is the number of runs that have a place. `why` and `when` are empty
    if they are not known. `when` is `soon`, or a text such as `in about 4:10`. `since` is the Unix time at which the
    run was queued, and `after` the name of the run that has to end first, else empty."""

    run: str
    place: int | None
    held: bool = False
    why: str = ""
    when: str = ""
    needs: str = ""
    since: float = 0.0
    after: str = ""
    count: int = 1

    def __str__(self) -> str:
        """Return place, start and reason in one line. The most important part comes first, as the end may be cut."""
        if self.held:
            return self.why if self.why.startswith("held") else f"held: {self.why}"
        lead = ", ".join(filter(None, (f"place {self.place}" if self.place else "", self.when)))
        return ": ".join(filter(None, (lead, self.why)))


@dataclass(frozen=True)
class Queue:
    """The waiting runs by their ids, in the order of the queue, and the number of queued runs that have begun."""

    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    begun: int = 0

    def words(self, training: int) -> tuple[str, ...]:
        """Return how many runs train and wait, and the next start, as texts from the longest; empty if none waits."""
        if not self.waiting:
            return ()
        waits = f"{len(self.waiting)} wait"
        both = f"{max(training, self.begun)} train, {waits}"  # one that has just begun is not running yet
        when = next((each.when for each in self.waiting.values() if each.when), "")
        timed = (f"{both}, next {when}", f"{both}, next {when.removeprefix('in about ')}") if when else ()
        return (*timed, both, waits)
