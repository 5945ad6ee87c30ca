"""What a run stands in: limits of the shell, variables, terminals that close or block."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from .lab import LONG, SHORT, check, lab, result, settings, step, until

TRAIN = ("--preset", "quickstart", *settings(*SHORT))


def named(word: str, *, codes: tuple[int, ...], shell: str = "", **variables: str) -> Callable[[random.Random], None]:
    """Under a limit or with a variable: an exit code of these, and where it is not 0 a text that names the cause."""

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
    """The run goes on and ends well; the exit code is that of the run."""

    def case_of(_chance: random.Random) -> None:
        with lab() as case:
            done = case.gputui(*TRAIN, before=("sh", "-c", f'exec "$0" "$@" {redirection}'))
            (run,) = (case.home / "runs").glob("2*")
            check(case.end(run).get("outcome") == "ok", f"outcome {result(run)}")
            check(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-200:]}")

    return case_of


def reader_gone(_chance: random.Random) -> None:
    """`gputui ... | head -1`: the run goes on; the exit code does not say that the training failed."""
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
    """Ctrl-C while nobody reads what is printed."""
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
    """A preset.yaml from the future, as a file server whose clock is ahead makes: the run can be deleted or resumed."""
    with lab() as case:
        run = case.detached(*SHORT)
        case.end(run)
        for name in ("status.json", "result.json"):
            (run / name).unlink(missing_ok=True)
        ahead = time.time() + 3600
        os.utime(run / "preset.yaml", (ahead, ahead))
        check(case.state(run) == "crashed", f"state {case.state(run)}")
