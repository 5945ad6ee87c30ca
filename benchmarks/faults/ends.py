"""Signals to the engine and the trainer at random moments. A killed run must be resumed to exactly the same losses.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .lab import LONG, SHORT, Lab, check, events, lab, losses, result, settings, step, until

WHO: dict[str, tuple[str, ...]] = {
    "trainer": ("trainers",), "engine": ("engines",), "engine and trainer": ("engines", "trainers")
}  # fmt: skip


def send(case: Lab, number: int, who: str) -> None:
    for group in WHO[who]:
        for pid in getattr(case, group)():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@functools.cache
def undisturbed() -> dict[int, float]:
    """Return the loss of each epoch of a run without a fault. The run is trained only at the first call."""
    with lab() as case:
        run = case.detached(*LONG)
        check(case.end(run).get("outcome") == "ok", "the undisturbed run does not end well")
        return losses(run)


def disturbed(number: int, who: str) -> Callable[[random.Random], None]:
    """Return a case that sends the signal `number` at a random step and then resumes the run. Its losses must be those
    of an undisturbed run.

    `who` is a key of WHO: the processes that get the signal.
    """

    def case_of(chance: random.Random) -> None:
        with lab() as case:
            run = case.detached(*LONG)
            at = chance.randrange(120, 1200)
            until(lambda: step(run) >= at or result(run), 90, f"step {at}")
            send(case, number, who)
            case.end(run)
            state = case.state(run)
            expected = ("crashed", "stopped") if number == signal.SIGKILL else ("stopped",)
            check(state in expected, f"state {state}, expected {' or '.join(expected)}")
            _resumes(case, run)

    return case_of


def _resumes(case: Lab, run: Path) -> None:
    done = case.gputui("resume", run.name, "--json")
    check(done.returncode == 0, f"resume: exit code {done.returncode}: {done.stderr[-300:]}")
    check(losses(run) == undisturbed(), f"the losses differ: {losses(run)}, undisturbed {undisturbed()}")
    check(not case.processes(), "processes are left")


def stopped_early(number: int, who: str) -> Callable[[random.Random], None]:
    """Return a case that sends the signal `number` in the first four seconds, before training begins. The run must end
    as stopped.

    `who` is a key of WHO: the processes that get the signal.
    """

    def case_of(chance: random.Random) -> None:
        with lab() as case:
            run = case.detached(*SHORT, "epochs=100000")
            time.sleep(chance.uniform(0, 4))
            send(case, number, who)
            case.end(run)
            state = case.state(run)
            check(state == "stopped", f"state {state}, expected stopped: {result(run).get('error')}")

    return case_of


def hang_up(chance: random.Random) -> None:
    """Send SIGHUP to the engine and the trainer. The run must end well, with the losses of an undisturbed run."""
    with lab() as case:
        run = case.detached(*LONG)
        until(lambda: step(run) >= chance.randrange(1, 300), 90, "it trains")
        send(case, signal.SIGHUP, "engine and trainer")
        check(case.end(run).get("outcome") == "ok", f"outcome {result(run).get('outcome')}")
        check(losses(run) == undisturbed(), "the losses differ")


def interrupted_at_start(chance: random.Random) -> None:
    """Send Ctrl-C in the first 1.2 s. The run must stop, or the command must name the run that continues."""
    with lab() as case:
        viewer = case.open("--preset", "quickstart", *settings(*SHORT, "epochs=100000"))
        time.sleep(chance.uniform(0, 1.2))
        viewer.send_signal(signal.SIGINT)
        out, err = viewer.communicate(timeout=60)
        check("Traceback" not in err + out, f"a traceback: {err[-200:]}")
        check(viewer.returncode in (130, -2), f"exit code {viewer.returncode}: {err[-200:]}")
        runs = list((case.home / "runs").glob("2*"))
        if any(run.name in err + out for run in runs) and "goes on" in err + out:
            return
        until(lambda: not case.engines() and not case.trainers(), 40, "the run has stopped")
        states = set(case.states().values())
        check(states <= {"stopped"}, f"states {states}")


def twice(chance: random.Random) -> None:
    """Send Ctrl-C twice. The run must end as stopped, and the command with the exit code 130."""
    with lab() as case:
        viewer = case.open("--preset", "quickstart", *settings(*SHORT, "epochs=100000"), "--json")
        run = until(lambda: next(iter((case.home / "runs").glob("2*")), None), 30, "a run")
        until(lambda: step(run) > 0, 90, "it trains")
        for _ in range(2):
            viewer.send_signal(signal.SIGINT)
            time.sleep(chance.uniform(0, 0.3))
        viewer.communicate(timeout=60)
        check(viewer.returncode == 130, f"exit code {viewer.returncode}")
        check(case.end(run).get("outcome") == "stopped", f"outcome {result(run)}")


def is_one(run: Path) -> bool:
    """Return True if the events are those of one training at a time: the step never decreases, except by a resume."""
    last = 0
    for event in events(run, "started", "progress"):
        if event["type"] == "started":
            last = event.get("resumed_at_step") or 0
        elif event["step"] < last:
            return False
        else:
            last = event["step"]
    return True
