"""Watches running and waiting runs: for the header, the title of the terminal, and a message when a run ends."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ....engine import units
from ...base.base_app import BaseApp
from ...base.errors import clean
from ...base.glyphs import is_poor

if TYPE_CHECKING:
    from ...reading.run_list import Ended, Now

LOOK_SECONDS = 3.0  # between two readings
SHOWN_SECONDS = 8.0  # how long the end of a run is shown


class RunWatch:
    """Watches which runs are running or wait, until `close`, which also restores the title of the terminal."""

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._leaving = threading.Event()
        self._title: TerminalTitle | None = None

    def start(self) -> None:
        if self.at_terminal and self._app.settings.notify.title:
            self._title = TerminalTitle(self._app.write_sequence)
        self._app.run_worker(self._read_running, group="running", thread=True)

    def close(self) -> None:
        self._leaving.set()
        if self._title is not None:
            self._title.show("")

    @property
    def at_terminal(self) -> bool:
        """True if the output is a terminal that understands titles and notifications, and no test."""
        shown = not self._app.is_headless and sys.__stderr__ is not None and sys.__stderr__.isatty()
        return shown and understands(os.environ)

    def _read_running(self) -> None:
        """Every 3 s, until the application ends; also start the runner of the queue if it has died."""
        from ...reading.proofs import all_proofs  # not needed for the first paint
        from ...reading.run_list import RunningRuns  # the same

        running_runs = RunningRuns()
        while self._app.is_running and not self._leaving.is_set():
            measuring: list[str] = []
            with contextlib.suppress(OSError):  # the home cannot be read, which the lists say
                measuring = [entry.under_way for entry in all_proofs() if entry.is_active]
            self._app.call_later(self._take, now := running_runs.read(), measuring)
            if now.queue.waiting:  # the runner may have been killed
                from ....engine.queue import entries  # few have a queue
                from ....engine.runs import RunError  # the same

                with contextlib.suppress(OSError, RunError):  # commands of the queue say why it cannot be started
                    entries.ensure_runner()
            self._leaving.wait(LOOK_SECONDS)

    def _take(self, now: Now, measuring: Sequence[str] = ()) -> None:
        self._app.running_count = len(now.running)
        self._app.queue_words = words_of(now, measuring)
        if self._title is not None and not self._leaving.is_set():
            self._title.show(title_of(now))
        for ended in now.ended:
            self._show_end(ended)

    def _show_end(self, ended: Ended) -> None:
        """By the bell or a notification of the terminal, and as a message unless the present screen shows this run."""
        from ...wording.run import ASKED_FOR, ENDED  # not needed for the first paint

        app, outcome = self._app, ENDED.get(ended.state, ended.state)
        well = ended.state in ("ok", *ASKED_FOR)
        app.withdraw()  # that it is stopping
        if self.at_terminal and app.settings.notify.bell:
            app.bell()
        if self.at_terminal and app.settings.notify.desktop:
            app.write_sequence(notification(f"gputui: {ended.title}: {outcome}", os.environ))
        seen = getattr(app.screen, "run_folder", None)
        if seen is not None and seen.id == ended.id:
            return  # the screen shows the end, and the footer the keys that work now
        text = clean(f"{ended.title}: {outcome}")
        app.notify(text, severity="information" if well else "error", markup=False, timeout=SHOWN_SECONDS)


def words_of(now: Now, measuring: Sequence[str]) -> tuple[str, ...]:
    """Return the header's texts, the longest first: measurements under way, runs that train and wait."""
    of_queue = now.queue.words(len(now.running))
    if not measuring:
        return of_queue
    what = ", ".join(measuring)
    return (*(f"{what}, {text}" for text in of_queue), what, *of_queue)


def title_of(now: Now) -> str:
    """Return the terminal's title: how much the newest running run has done, and its title; else empty."""
    if not now.running:
        return ""
    done = f"{units.share(now.done)} " if now.done is not None else ""
    more = f" (+{len(now.running) - 1})" if len(now.running) > 1 else ""
    return f"{done}{now.title}{more} - gputui"


# ---- the terminal's title -------------------------------------------------------------------------


KEEP, BRING_BACK = "\x1b[22;2t", "\x1b[23;2t"
LONGEST = 120  # characters of a title or a notification


class TerminalTitle:
    """Sets the terminal's title by `write`, and restores the former one at the end."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._now = ""

    def show(self, text: str) -> None:
        if text == self._now:
            return
        if text:
            self._write(("" if self._now else KEEP) + titled(text))
        else:  # a terminal that keeps no titles then has none until the shell sets one
            self._write(titled("") + BRING_BACK)
        self._now = text


def titled(text: str) -> str:
    return f"\x1b]2;{_harmless(text)}\x07"


def notification(text: str, environment: Mapping[str, str]) -> str:
    """Return the sequence of a desktop notification, cut to 120 characters; empty in GNU screen, which would show it.
    A tmux whose user does not allow sequences to pass (allow-passthrough) drops it."""
    sequence = f"\x1b]9;{_harmless(text)}\x07"
    if "TMUX" in environment:
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\"
    if "STY" in environment or environment.get("TERM", "").startswith("screen"):
        return ""
    return sequence


def understands(environment: Mapping[str, str]) -> bool:
    """Return True if titles and notifications may be sent to the terminal: it understands or ignores them."""
    return not is_poor(environment)


def _harmless(text: str) -> str:
    return clean(text).replace("\n", " ")[:LONGEST]
