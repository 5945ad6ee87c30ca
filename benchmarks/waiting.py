"""What waiting costs: the queue's runner with many entries that cannot start, and a viewer that shows them.

    python benchmarks/waiting.py [--entries 100] [--gpus 8] [--seconds 120]

The GPUs are the tests' stand-in for NVML; a foreign process is on each of them. Times are CPU times as the kernel
counts them, so that other load of the machine hardly matters.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from gputui.engine import presets
from gputui.engine.queue import adding, entries, entry_changes
from gputui.tui.reading import run_list

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.telemetry import compiled

GOAL_SHARE, GOAL_BYTES, GOAL_READING_MS = 0.01, 40e6, 10.0
SETTLE_SECONDS = 10.0  # after the runner has said why each entry waits
READINGS = 50


def queue_runs(count: int) -> None:
    """Put `count` runs of three presets in the queue, the presets in turn. The first of them starts the runner."""
    kinds = [presets.resolve(name, ["visible=free:1"]) for name in ("quickstart", "input-heavy", "safe-memory")]
    for number in range(count):
        adding.queue_preset(kinds[number % len(kinds)])


def the_runner(count: int) -> psutil.Process:
    """Return the process of the queue's runner, as soon as it has reported why each of `count` entries waits.

    Ends the program if that takes more than 120 s.
    """
    until = time.monotonic() + 120
    while len(entries.news().why) < count:
        if time.monotonic() > until:
            sys.exit(f"the runner has not looked at all entries: {(entries.queue_folder() / entries.LOG).read_text()}")
        time.sleep(0.5)
    return psutil.Process(entries.news().pid)


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def measure_runner(process: psutil.Process, seconds: float) -> None:
    most_threads, most_children = 0, 0
    began, before = time.monotonic(), cpu_seconds(process)
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(0.5)
        most_threads = max(most_threads, process.num_threads())
        most_children = max(most_children, len(process.children(recursive=True)))
    used, memory = cpu_seconds(process) - before, process.memory_full_info()
    print(f"runner: {used / passed:.2%} of a core ({used:.2f} s in {passed:.0f} s; goal: below {GOAL_SHARE:.0%})")
    print(f"runner: RSS {memory.rss / 1e6:.1f} MB, PSS {memory.pss / 1e6:.1f} MB (goal: below {GOAL_BYTES / 1e6:.0f})")
    print(f"runner: at most {most_threads} threads and {most_children} child processes", flush=True)


def measure_reading() -> None:
    """Print the CPU time of one reading of runs and queue, as the header of the screens makes it every 3 s."""
    running, taken = run_list.RunningRuns(), []
    for _ in range(READINGS):
        began = time.thread_time()
        now = running.read()
        taken.append((time.thread_time() - began) * 1e3)
    later = sorted(taken[1:])
    print(
        f"header: {len(now.queue.waiting)} waiting runs read in {statistics.median(later):.1f} ms of CPU time, "
        f"the first time in {taken[0]:.1f} ms (goal: at most {GOAL_READING_MS:.0f} ms)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120, help="for which the runner is watched")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {arguments.entries} entries, {arguments.gpus} GPUs")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stranger = subprocess.Popen(["sleep", "36000"])
        words = f"gpus={arguments.gpus} procs={stranger.pid} mem_used=40000"
        os.environ |= {
            "GPUTUI_HOME": str(folder / "home"), "GPUTUI_LEASES": str(folder / "leases"),
            "LD_LIBRARY_PATH": str(compiled(folder)), "FAKE_NVML": words,
        }  # fmt: skip
        try:
            queue_runs(arguments.entries)
            runner = the_runner(arguments.entries)
            time.sleep(SETTLE_SECONDS)
            measure_runner(runner, arguments.seconds)
            measure_reading()
        finally:
            for entry in entries.all_entries():
                entry_changes.remove(entry.run)
            stranger.kill()
            runner.wait(60)


if __name__ == "__main__":
    main()
