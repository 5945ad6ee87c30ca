"""Keys that arrive in bursts in a real terminal (tmux): each must go where it was meant to go, or have no effect.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .lab import COMMAND, SHORT, Lab, Violation, check, lab, until


class Terminal:
    """A tmux server in which gputui shows the form, in the home of a case."""

    def __init__(self, case: Lab) -> None:
        self._tmux = ["tmux", "-L", f"faults-{case.mark}"]
        told = [f"{name}={value}" for name, value in case.environment.items() if name not in ("TMUX", "TERM")]
        self._run(
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
            "env",
            "-i",
            "TERM=xterm-256color",
            *told,
            f"PATH={os.environ['PATH']}",
            "GPUTUI_WARM=0",
            COMMAND,
        )

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def burst(self, text: str, chance: random.Random) -> None:
        """Type the text at once, or divided at random places with short pauses. "\\r" is Enter."""
        cuts = sorted(chance.sample(range(1, len(text)), chance.randrange(min(3, len(text)))))
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            self._run("send-keys", "-H", *(f"{ord(key):x}" for key in text[begin:end]))
            time.sleep(chance.choice((0, 0, 0.01, 0.1)))

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def shows(self, text: str) -> None:
        try:
            until(lambda: text in self.screen(), 20, text)
        except Violation:
            raise Violation(f"{text!r} is not on the screen:\n{self.screen()}") from None

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


@contextmanager
def terminal() -> Iterator[tuple[Lab, Terminal]]:
    with lab() as case:
        window = Terminal(case)
        try:
            window.shows("Start")
            yield case, window
        finally:
            window.close()


def no_run(case: Lab) -> None:
    check(not list((case.home / "runs").glob("2*")), "a training was started")


def form(text: str, *shown: str) -> Callable[[random.Random], None]:
    """Return a case that types the text in the form, four times. The screen must show each text of `shown`, and no run
    may be started.
    """

    def case_of(chance: random.Random) -> None:
        with terminal() as (case, window):
            for _ in range(4):
                window.burst(text, chance)
                for word in shown:
                    window.shows(word)
                no_run(case)
                window.burst("\x1b", chance)
                time.sleep(0.3)
                window.burst("\x1b", chance)
                time.sleep(0.3)

    return case_of


def value(chance: random.Random) -> None:
    """Type a number on the row of an option. The row must show this number, and no run may be started."""
    with terminal() as (case, window):
        window.burst("/batch_size\r", chance)
        window.shows("batch_size")
        time.sleep(0.3)
        for _ in range(4):
            number = str(chance.randrange(100, 9999))
            window.burst(f"{number}\r", chance)
            window.shows(number)
        no_run(case)


def runs_filter(chance: random.Random) -> None:
    """Type `/diverge` and Enter in the list of runs. The list must be filtered, and no run deleted, although `d`
    deletes.
    """
    with lab() as case:
        run = case.detached(*SHORT)
        case.end(run)
        window = Terminal(case)
        try:
            window.shows("Start")
            window.burst("\x1bOS", chance)  # F4
            window.shows(run.name[:15])
            for _ in range(4):
                window.burst("/diverge\r", chance)
                time.sleep(0.5)
                window.burst("\x1b", chance)
                time.sleep(0.5)
                check((run / "result.json").exists(), "a run was deleted")
        finally:
            window.close()
        listed = [json.loads(line)["id"] for line in case.gputui("runs", "--json").stdout.splitlines()]
        check(listed == [run.name], f"listed: {listed}")
