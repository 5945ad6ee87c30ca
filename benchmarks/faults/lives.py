"""Whether a run is alive and who may act on it: changed clocks, other machines, resumes at once, a foreign status.json.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .ends import is_one, send
from .lab import (
    ENDLESS,
    LIVES,
    LONG,
    SHORT,
    Lab,
    check,
    events,
    lab,
    lives,
    result,
    step,
    until,
)

# time.time() of a process and of all it starts, moved by what a file says: what a clock that is set looks like.
CLOCK = """
import os, time
_real, _file = time.time, os.environ["FAULTS_CLOCK"]
def _moved():
    try:
        with open(_file) as stream:
            return _real() + float(stream.read() or 0)
    except (OSError, ValueError):
        return _real()
time.time = _moved
"""


@contextmanager
def running(*options: str) -> Iterator[tuple[Lab, Path]]:
    """A context with a case and the folder of its run, which is training and has written a checkpoint. `options` are
    KEY=VALUE.
    """
    with lab() as case:
        run = case.detached(*(options or ENDLESS))
        until(lambda: any((run / "checkpoints").glob("step-*")), 120, "a checkpoint")
        yield case, run


def boot_time_moved(case: Lab, seconds: int) -> tuple[str, ...]:
    """Return the words of a command for `before`: the command sees a /proc/stat whose boot time has moved by `seconds`,
    as after a change of the clock. Needs root.
    """
    stat = case.folder / "stat"
    text = Path("/proc/stat").read_text()
    stat.write_text(re.sub(r"(?m)^btime (\d+)$", lambda found: f"btime {int(found[1]) + seconds}", text))
    return ("unshare", "-m", "sh", "-c", f'mount --bind {stat} /proc/stat && exec "$0" "$@"')


def seen_after(seconds: int) -> Callable[[random.Random], None]:
    def case_of(_chance: random.Random) -> None:
        with running() as (case, run):
            view = boot_time_moved(case, seconds)
            for _ in range(5):
                _is_running_here(case, run, view)
            done = case.gputui("stop", run.name, before=view)
            check(done.returncode == 0, f"stop: {done.stderr}")
            check(case.end(run).get("outcome") == "stopped", f"outcome {result(run)}")

    return case_of


def _is_running_here(case: Lab, run: Path, view: tuple[str, ...]) -> None:
    state = case.state(run, view)
    check(state == "running", f"a running run is {state}")
    done = case.gputui("resume", run.name, "--detach", before=view)
    check(done.returncode == 2, f"resume of a run that runs: exit code {done.returncode}")
    check(len(case.engines()) == 1, f"{len(case.engines())} engines")
    check(not result(run), "the run has a result while it runs")


def _comes_to(run: Path, at: int) -> Callable[[], Any]:
    return lambda: step(run) >= at or result(run)


def clock_set(*steps: float) -> Callable[[random.Random], None]:
    """Return a case that moves the clock of a run by each of `steps` (seconds), one after the other. The durations that
    the run reports must stay true.
    """

    def case_of(chance: random.Random) -> None:
        with lab() as case:
            (case.folder / "site").mkdir()
            (case.folder / "site" / "sitecustomize.py").write_text(CLOCK)
            clock = case.folder / "clock"
            clock.write_text("0")
            case.environment |= {"FAULTS_CLOCK": str(clock), "PYTHONPATH": str(case.folder / "site")}
            began = time.monotonic()
            run = case.detached(*LONG, "run.max_minutes=20")
            for moved in steps:
                at = step(run) + chance.randrange(50, 250)
                until(_comes_to(run, at), 90, f"step {at}")
                clock.write_text(str(moved))
            end = case.end(run)
            took = time.monotonic() - began
            check(end.get("outcome") == "ok", f"outcome {end.get('outcome')}: {end.get('error')}")
            check(0 < end["seconds"] <= took + 1, f"a run of {took:.0f} s is said to have taken {end['seconds']:.0f} s")
            check(0 < end["goodput"] <= 1, f"goodput {end['goodput']}")
            epochs = [event["seconds"] for event in events(run, "epoch")]
            check(all(0 <= seconds <= took for seconds in epochs), f"epochs of {epochs} s")

    return case_of


def other_machine(_chance: random.Random) -> None:
    """Look at a running run from another process namespace, as a second container or node on a shared home does. The
    run must count as running, and a stop or a resume from there must be refused.
    """
    view = ("unshare", "-pf", "--mount-proc", "--uts", "sh", "-c", 'hostname elsewhere && exec "$0" "$@"')
    with running() as (case, run):
        for _ in range(3):
            state = case.state(run, view)
            check(state.startswith("running"), f"a run that runs elsewhere is {state}")
            for command in (("resume", run.name, "--detach"), ("stop", run.name)):
                done = case.gputui(*command, before=view)
                check(done.returncode == 2, f"{command[0]} from elsewhere: exit code {done.returncode}: {done.stderr}")
            check(len(case.engines()) == 1, f"{len(case.engines())} engines")


def resumes_at_once(number: int) -> Callable[[random.Random], None]:
    def case_of(_chance: random.Random) -> None:
        with running() as (case, run):
            send(case, 9, "engine and trainer")
            case.end(run)
            several = [case.open("resume", run.name, "--detach") for _ in range(number)]
            codes = []
            most = 0
            while any(one.poll() is None for one in several):
                most = max(most, len(case.engines()))
                time.sleep(0.02)
            for one in several:
                _, err = one.communicate()
                codes.append(one.returncode)
                check("Traceback" not in err, err[-200:])
            until(lambda: case.trainers(), 30, "one trains")
            check(sorted(codes) == [0] + [2] * (number - 1), f"exit codes {codes}")
            check(len(case.trainers()) == 1, f"{len(case.trainers())} trainers")
            until(lambda: len(events(run, "started")) == 2, 60, "it goes on")
            until(lambda: step(run) > 100, 60, "it trains on")
            case.gputui("stop", run.name)
            case.end(run)
            check(is_one(run), "the events of two trainings are mixed")
            check(case.state(run) == "stopped", "it does not end as stopped")

    return case_of


def foreign_status(how: str) -> Callable[[random.Random], None]:
    """Return a case with a status.json that names a process which is no engine. `gputui stop` must be refused, and the
    process must continue.

    If `how` is `of another user`, the file belongs to another user.
    """

    def case_of(_chance: random.Random) -> None:
        with lab() as case:
            run = case.detached(*SHORT)
            case.end(run)
            bystander = subprocess.Popen(["sleep", "60"], env=case.environment)
            try:
                _name(run, bystander.pid, how)
                done = case.gputui("stop", run.name)
                check(done.returncode == 2, f"stop: exit code {done.returncode}")
                time.sleep(0.2)
                check(bystander.poll() is None, "a process that is no engine was ended")
                check(case.state(run) not in LIVES, f"state {case.state(run)}")
            finally:
                bystander.kill()
                bystander.wait()

    return case_of


def _name(run: Path, pid: int, how: str) -> None:
    """Write the process `pid` into status.json as the engine and as the trainer, and delete the result. `how` is that
    of `foreign_status`.
    """
    file = run / "status.json"
    status = json.loads(file.read_text())
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    started = ticks / os.sysconf("SC_CLK_TCK") + _boot_time()
    for key in list(status):
        for role in ("engine", "trainer"):
            if key == f"{role}_pid":
                status[key] = pid
            elif key.startswith(f"{role}_start"):
                status[key] = ticks if isinstance(status[key], int) else started
    (run / "result.json").unlink()
    file.write_text(json.dumps(status))
    if how == "of another user":
        os.chown(file, 65534, 65534)


def _boot_time() -> int:
    return int(re.search(r"(?m)^btime (\d+)$", Path("/proc/stat").read_text())[1])  # type: ignore[index]


def private(_chance: random.Random) -> None:
    """Check that other users can neither list the runs nor read one."""
    with lab() as case:
        os.umask(0o022)
        run = case.detached(*SHORT)
        case.end(run)
        for folder in (case.home / "runs", run):
            check(folder.stat().st_mode & 0o077 == 0, f"{folder.name} has mode {folder.stat().st_mode & 0o777:o}")


def warm_killed(role: str) -> Callable[[random.Random], None]:
    """Return a case that kills a process of the warm engine before a run is started with it. The run must end well all
    the same.

    `role` is `engine` or `trainer`.
    """
    program = (
        "import sys, time\n"
        "from gputui.engine import presets\nfrom gputui.engine.process import launch\n"
        "warm = launch.Warm()\n"
        "print('warm', flush=True)\n"
        "sys.stdin.readline()\n"
        f"run, engine = warm.start(presets.resolve('quickstart', {list(SHORT)!r}))\n"
        "print(run.id, flush=True)\n"
        "engine.wait()\n"
    )

    def case_of(chance: random.Random) -> None:
        with lab() as case:
            pipe = subprocess.PIPE
            form = subprocess.Popen(
                [sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True, env=case.environment
            )
            assert form.stdin
            assert form.stdout
            form.stdout.readline()
            until(case.trainers, 20, "a warm trainer")
            time.sleep(chance.uniform(0, 4))
            there = case.engines() if role == "engine" else case.trainers()
            send(case, 9, role)
            until(lambda: not any(map(lives, there)), 20, "what was killed is gone")
            form.stdin.write("start\n")
            form.stdin.flush()
            run = case.home / "runs" / form.stdout.readline().strip()
            until(lambda: result(run), 90, "the run has a result")
            check(result(run)["outcome"] == "ok", f"outcome {result(run)}")
            form.wait(60)

    return case_of
