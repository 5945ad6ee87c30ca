"""Faults around a run: limits of the shell, environment variables, terminals that close or block.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from .lab import LONG, SHORT, check, lab, result, settings, step, until

TRAIN = ("--preset", "quickstart", *settings(*SHORT))


def named(word: str, *, codes: tuple[int, ...], shell: str = "", **variables: str) -> Callable[[random.Random], None]:
    """Return a case that trains under a limit of the shell or with environment variables. The exit code must be one of
    `codes` and, unless it is 0, the output must contain `word`.

    `shell` is a shell command such as `ulimit -v 1000000`, which is given before the training.
    """

    def case_of(_chance: random.Random) -> None:
        with lab() as case:
            case.environment |= variables
            before = ("sh", "-c", f'{shell}; exec "$0" "$@"') if shell else ()
            done = case.gputui(*TRAIN, before=before)
            said = done.stdout + done.stderr
            check(done.returncode in codes, f"exit code {done.returncode}: {said[-300:]}")
            check(done.returncode == 0 or word in said.lower(), f"nothing names {word!r}: {said[-300:]}")

    return case_of


def descriptors_closed(redirection: str) -> Callable[[random.Random], None]:
    """Return a case in which the shell closes a standard stream. The run must end well, with the exit code 0.

    `redirection` is that of the shell, such as `2>&-`.
    """

    def case_of(_chance: random.Random) -> None:
        with lab() as case:
            done = case.gputui(*TRAIN, before=("sh", "-c", f'exec "$0" "$@" {redirection}'))
            (run,) = (case.home / "runs").glob("2*")
            check(case.end(run).get("outcome") == "ok", f"outcome {result(run)}")
            check(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-200:]}")

    return case_of


def reader_gone(_chance: random.Random) -> None:
    """Close the pipe that reads the output, as `gputui ... | head -1` does. The run must end well, and the exit code
    must not be that of a failed training.
    """
    with lab() as case:
        reader, writer = os.pipe()
        viewer = case.open(*TRAIN, "--json", stdout=writer)
        os.close(writer)
        os.read(reader, 10)
        os.close(reader)
        _, err = viewer.communicate(timeout=120)
        (run,) = (case.home / "runs").glob("2*")
        check(case.end(run).get("outcome") == "ok", f"outcome {result(run)}")
        check(viewer.returncode != 1 and "Traceback" not in err, f"exit code {viewer.returncode}: {err[-200:]}")


def blocked(_chance: random.Random) -> None:
    """Send Ctrl-C while the pipe of the output is full. The run must stop within 40 s."""
    with lab() as case:
        reader, writer = os.pipe()
        viewer = case.open("--preset", "quickstart", *settings(*LONG, "epochs=100000"), "--json", stdout=writer)
        os.close(writer)
        run = until(lambda: next(iter((case.home / "runs").glob("2*")), None), 30, "a run")
        until(lambda: step(run) > 3000, 120, "the pipe is full")
        time.sleep(1)
        viewer.send_signal(signal.SIGINT)
        check(case.end(run, 40).get("outcome") == "stopped", f"outcome {result(run)}")
        os.close(reader)
        viewer.communicate(timeout=30)


def relative_clock_free(_chance: random.Random) -> None:
    """Give preset.yaml a time in the future, as a file server does whose clock is ahead. A run without status and
    result must still count as crashed, so that it can be deleted or resumed.
    """
    with lab() as case:
        run = case.detached(*SHORT)
        case.end(run)
        for name in ("status.json", "result.json"):
            (run / name).unlink(missing_ok=True)
        ahead = time.time() + 3600
        os.utime(run / "preset.yaml", (ahead, ahead))
        check(case.state(run) == "crashed", f"state {case.state(run)}")
