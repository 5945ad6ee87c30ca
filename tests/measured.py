"""`make test`: runs the suite, and counts the CPU time of every process that it starts, also of detached ones.

tests/durations.json holds the seconds of each file, by which the next run orders them, and the CPU time of the whole
suite; `--record` writes it. If all tests are demanded, as in continuous integration, a suite that takes 20 % more CPU
time fails. Machines differ in speed, and on one that others use as well it changes by half from one minute to the next:
CPU time is counted in turns of a fixed loop that is timed all the while. With files or options of pytest
(`python -m tests.measured tests/leases`) only these are run and measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

FILE = Path(__file__).with_name("durations.json")
MEASURED = "GPUTUI_TESTS_DURATIONS"  # where tests/conftest.py writes the seconds of each file
# Five at a time, as most tests wait for something that starts; those that measure times come after, alone. If one of
# them dies, all end: with a new one in its place pytest-xdist may wait for ever.
PASSES = (
    ("-n", "5", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0",
     "-m", "not alone and not slurm and not extras and not nightly", "--durations", "20"),
    ("-m", "alone and not nightly", "--durations", "5"),
)  # fmt: skip
MOST_MORE = 1.2
SECONDS_BETWEEN_TURNS = 10.0
LEAVING_SECONDS = 10.0  # for detached processes after the last test
PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans become children of this process, so that their time is counted


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    record = "--record" in sys.argv
    chosen = [given for given in sys.argv[1:] if given != "--record"]
    turn_seconds: list[float] = []
    threading.Thread(target=_time_turns, args=(turn_seconds,), daemon=True).start()
    written = Path(tempfile.mkdtemp()) / "seconds.json"
    os.environ[MEASURED] = str(written)
    began = time.monotonic()
    failed = 0
    for options in [chosen] if chosen else PASSES:
        failed = failed or _run([sys.executable, "-m", "pytest", *options])
    _reap(LEAVING_SECONDS)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = used.ru_utime + used.ru_stime
    print(f"{time.monotonic() - began:.0f} s; {cpu_seconds:.0f} s of CPU in all processes", end="")
    if chosen:
        print()
        return failed
    turns = round(cpu_seconds / statistics.median(turn_seconds))
    before = json.loads(FILE.read_text(encoding="utf-8"))["turns"]
    print(f", {turns / before:.2f} times what tests/durations.json has")
    if record and not failed:
        files = json.loads(written.read_text(encoding="utf-8"))
        FILE.write_text(
            json.dumps({"turns": turns, "seconds": files}, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
    elif not failed and "GPUTUI_TESTS_DEMAND_ALL" in os.environ and turns > MOST_MORE * before:
        print("That is more than 20 % more. If it has to be: python -m tests.measured --record")
        return 1
    return failed


def _time_turns(seconds: list[float]) -> None:
    while True:
        began = time.thread_time()
        sum(number * number % 7 for number in range(1_000_000))
        seconds.append(time.thread_time() - began)
        time.sleep(SECONDS_BETWEEN_TURNS)


def _run(command: list[str]) -> int:
    """The exit status of the command. Processes that outlive their parents are waited for meanwhile."""
    process = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            return os.waitstatus_to_exitcode(status)


def _reap(at_most_seconds: float) -> None:
    until = time.monotonic() + at_most_seconds
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
