"""Measurements that wait, in their order, until the devices are free; they are lost when gputui quits.

Runs wait in the queue (engine/queue), which goes on without gputui.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.timer import Timer

from .errors import clean

LOOK_SECONDS = 2.0
GROUP = "waiting"  # of its workers; no key waits for them


@dataclass(frozen=True)
class Start:
    """A run or a proof that is to be started or resumed; both functions are called in a thread.

    `in_the_way` returns a text that names another training on the same devices, or an empty text. `launch` returns the
    run or the proof, and its process. `measures`: another training at the same time would disturb its figures. `queue`
    puts a run in the queue, and returns its place and what it waits for; None for a measurement.
    """

    title: str
    in_the_way: Callable[[], str]
    launch: Callable[[], tuple[Any, Any]]
    measures: bool = False
    queue: Callable[[], str] | None = None


class WaitingStarts:
    """The starts that wait. `began` gets what a start has launched. `changed` gets the titles after each change of the
    list.
    """

    def __init__(self, app: App[Any], began: Callable[[Any, Any], None], changed: Callable[[str], None]) -> None:
        self._app, self._began, self._changed = app, began, changed
        self.starts: list[Start] = []
        self._timer: Timer | None = None

    @property
    def words(self) -> str:
        """The title of the first waiting start and the number of the others; empty if no start waits."""
        more = f" and {len(self.starts) - 1} more" if len(self.starts) > 1 else ""
        return f"{self.starts[0].title}{more}" if self.starts else ""

    def add(self, start: Start) -> None:
        self.starts.append(start)
        if self._timer is None:
            self._timer = self._app.set_interval(LOOK_SECONDS, self._look)
        self._changed(self.words)

    def give_up(self) -> str:
        """Drop the start that was added last; returns its title, empty if no start waits."""
        title = self.starts.pop().title if self.starts else ""
        self._changed(self.words)
        return title

    def _look(self) -> None:
        if self.starts and not any(worker.group == GROUP for worker in self._app.workers):
            self._app.run_worker(self._begin_what_is_free, thread=True, group=GROUP, exit_on_error=False)

    def _begin_what_is_free(self) -> None:
        """In a thread: launch the first waiting start whose devices are free."""
        for start in tuple(self.starts):
            if not start.in_the_way():
                self._app.call_from_thread(self._begin, start)
                return

    def _begin(self, start: Start) -> None:
        """Launch a waiting start, unless it was dropped since its devices were checked."""
        if start in self.starts:
            self.starts.remove(start)
            self._changed(self.words)
            self._app.run_worker(lambda: self._launch(start), thread=True, group=GROUP, exit_on_error=False)

    def _launch(self, start: Start) -> None:
        try:
            run, engine = start.launch()
        except Exception as reason:  # noqa: BLE001 - shown to the user, whatever it is
            self._app.call_from_thread(self._say, f"{start.title} was not started: {reason}", "error")
        else:
            self._app.call_from_thread(self._began, run, engine)
            self._app.call_from_thread(self._say, f"{start.title} has started: the devices are free", "information")

    def _say(self, text: str, severity: Any) -> None:
        self._app.notify(clean(text), severity=severity, markup=False)
