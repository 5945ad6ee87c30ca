"""Follows a run: returns its events as they are written, until it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator

from . import outage
from .events import Event, Finished, OptionChanged, Started, Warn
from .outage import Silence
from .parsing import dated
from .reading import EVENT_FILES, Damage, Tail, in_time
from .run import Run


class Follower:
    """A run's events from both files, merged by time; `finished` is held back until it is certain to be the last event.

    A resumed run has several `finished` events; following ends with the one after which no process is alive.
    """

    def __init__(self, run: Run, from_now: bool = False) -> None:
        self._run = run
        self._tails = [Tail(run.file(name), from_now) for name in EVENT_FILES]
        self._damage_told: set[Damage] = set()
        self._silence = Silence(run.path)
        self._finished: Finished | None = None
        self.ended = False
        self.outcome = ""  # when it has ended

    def poll(self) -> list[Event]:
        """The events since the last poll; sets `ended` with the last of them."""
        life = self._run.life
        alive = life.engine or life.trainer
        fresh = in_time(event for tail in self._tails for event in tail.read())
        news = self._new_damage()
        for event in fresh:
            if isinstance(event, Finished):
                self._finished = event
            else:
                if isinstance(event, Started | OptionChanged):  # another trainer follows
                    self._finished = None
                news.append(event)
        trains = life.trainer or life.starting or bool(life.host)
        if alive and (silent := self._silence.look(bool(fresh), trains)):
            news.append(self._warning("disk", silent))
        if not alive and not fresh and self._run.state != "starting":
            self.ended = True
            last = self._finished or self._lost()
            self.outcome = last.outcome
            news.append(last)
        return news

    def _new_damage(self) -> list[Event]:
        """A warning for each damaged file, once."""
        found = [damage for tail in self._tails for damage in tail.damages if damage not in self._damage_told]
        found = [damage for damage in found if str(damage)]
        self._damage_told.update(found)
        return [self._warning("damaged_file", str(damage)) for damage in found]

    def _warning(self, kind: str, message: str) -> Event:
        """A warning from the viewer itself."""
        return dated(Warn(kind=kind, message=message), time.time(), self._run.id)

    def _lost(self) -> Finished:
        result = self._run.result
        summary = result or {"outcome": "crashed", "error": outage.lost(self._run.path, self._run.log_tail())}
        last = dated(Finished(outcome=summary["outcome"], summary=summary), time.time(), self._run.id)
        assert isinstance(last, Finished)
        return last


def follow(run: Run, interval_seconds: float = 0.1) -> Iterator[Event]:
    """All events of a run, past and coming, until it has ended."""
    follower = Follower(run)
    while not follower.ended:
        yield from follower.poll()
        if not follower.ended:
            time.sleep(interval_seconds)
