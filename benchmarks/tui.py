"""How much the screen costs: first paint, CPU and bytes of a live view, opening a long run, going back and forth.

    python benchmarks/tui.py [--seconds 20] [--only screens]

Everything is measured in this one run, on recorded run folders, in a real pseudo-terminal of 120x40 or 200x60.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support import recorded

SIZE, LARGE = (40, 120), (60, 200)
SCREENFUL = 2000  # bytes that only a painted screen has
STILL_SECONDS = 0.05  # without output: a screen has been painted
BACK_AND_FORTH = {"live": "\x1bOR", "runs": "\x1bOS", "live again": "\x1bOR", "form": "\x1bOQ"}  # F3, F4, F3, F2
KEYS, BURNERS = 20, 8
WATCH = """
import sys
from pathlib import Path
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
GputuiApp(opens=("live", Run(Path(sys.argv[1])), 1.0)).run()
"""
COMPARE = """
import sys
from pathlib import Path
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
class Comparing(GputuiApp):
    def on_ready(self):
        self.set_timer(4, lambda: self.open_compare([Run(Path(path)) for path in sys.argv[2:]]))
Comparing(opens=("live", Run(Path(sys.argv[1])), 1.0)).run()
"""
FORM = "from gputui.tui import main; main()"
BARE = """
import sys
from textual.app import App
from textual.widgets import Label
class Bare(App):
    def compose(self):
        for number in range(int(sys.argv[1])):
            yield Label(f"label {number}")
Bare().run()
"""
COUNT = """
import asyncio
from gputui.tui.app import GputuiApp
async def main():
    app = GputuiApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        print(len(list(app.screen.walk_children())))
asyncio.run(main())
"""


OPEN = """
import re, sys, time
from pathlib import Path
from gputui.engine.runs import Run
from gputui.tui.reading.run.reader import RunReader
def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before, began = peak_kb(), time.process_time()
feed = RunReader(Run(Path(sys.argv[1])))
while not feed.ended:
    feed.poll()
print(time.process_time() - began, (peak_kb() - before) / 1024)
"""


class Terminal:
    """A program in a pseudo-terminal whose output is counted."""

    def __init__(self, code: str, *arguments: str, home: Path, size: tuple[int, int] = SIZE) -> None:
        self.began = time.perf_counter()
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "GPUTUI_HOME": str(home)}
        environment["XDG_CONFIG_HOME"] = str(home / "config")
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(sys.executable, [sys.executable, "-P", "-c", code, *arguments], environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = psutil.Process(self.pid)

    def read(self, seconds: float) -> bytes:
        """Return the bytes that the program writes in the next `seconds`."""
        written, until = b"", time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                written += os.read(self._fd, 65536)
        return written

    def first_paint_seconds(self) -> float:
        """Return the seconds from the start of the program until it has written a screenful of text; 0 if it has not
        within 20 s.

        Returns after a pause of 0.15 s in the output.
        """
        last, seen = 0.0, 0
        while time.perf_counter() - self.began < 20:
            if select.select([self._fd], [], [], 0.15)[0]:
                seen += len(os.read(self._fd, 65536))
                last = last or (time.perf_counter() - self.began if seen > SCREENFUL else 0.0)
            elif last:
                break
        return last

    def painted_seconds(self, key: str) -> float:
        """Return the seconds from pressing `key` until the last byte of the screen that it opens. Raises
        AssertionError if none is painted within 20 s.
        """
        began, last, seen = time.perf_counter(), 0.0, 0
        os.write(self._fd, key.encode())
        while seen < SCREENFUL or select.select([self._fd], [], [], STILL_SECONDS)[0]:
            assert time.perf_counter() - began < 20, f"{key!r} has painted {seen} bytes"
            if select.select([self._fd], [], [], 1.0)[0]:
                seen += len(os.read(self._fd, 65536))
                last = time.perf_counter() - began
        return last

    def close(self) -> None:
        self.process.kill()
        os.waitpid(self.pid, 0)
        os.close(self._fd)


@dataclass
class Goal:
    """A measured figure with its goal: `limit` is the greatest value that reaches the goal."""

    name: str
    value: float
    unit: str
    limit: float

    def __str__(self) -> str:
        verdict = "reached" if self.value <= self.limit else "MISSED"
        return f"{self.name:<58} {self.value:>8.2f} {self.unit:<6} goal <= {self.limit:g}  {verdict}"


def watching(home: Path, seconds: float, readings_a_second: float) -> tuple[float, float]:
    """Return the CPU use (share of a core) and the output (bytes per second) of a live view, measured for `seconds`.

    The recorded run has eight GPUs, is replayed at its own pace, and has `readings_a_second`.
    """
    name = f"watched-{readings_a_second:g}"
    long = int(seconds) + 60
    run = recorded.write(home, name=name, gpus=8, seconds=long, readings_a_second=readings_a_second, epoch_seconds=20)
    return measured(Terminal(WATCH, str(run.path), home=home), seconds)


def measured(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """Return the CPU use (share of a core) and the output (bytes per second) of the program, measured for `seconds`.

    The measurement begins after 16 s, when the screen and the replay of the run have started. The program is ended.
    """
    terminal.read(16)
    before, began = sum(terminal.process.cpu_times()[:2]), time.perf_counter()
    written = len(terminal.read(seconds))
    took = time.perf_counter() - began
    cpu = sum(terminal.process.cpu_times()[:2]) - before
    terminal.close()
    return cpu / took, written / took


def large(home: Path, seconds: float) -> dict[str, tuple[float, float]]:
    """Return the CPU use (share of a core) and the output (bytes per second), by the name of the view, on a terminal of
    200x60.

    The views are the live view with all its charts, and the comparison of two running runs over it.
    """
    kinds: dict[str, Any] = {"gpus": 8, "seconds": int(seconds) + 60, "readings_a_second": 5.0, "epoch_seconds": 20}
    watched = recorded.write(home, name="large", **kinds)
    going_on: dict[str, Any] = {"outcome": None, "engine_pid": os.getpid()}
    pair = [recorded.write(home, name=f"compared-{n}", **kinds, **going_on) for n in range(2)]
    paths = [str(run.path) for run in (watched, *pair)]
    return {
        "at 200x60, 8 GPUs and 6 charts": measured(Terminal(WATCH, paths[0], home=home, size=LARGE), seconds),
        "at 200x60, two running runs compared over it": measured(
            Terminal(COMPARE, *paths, home=home, size=LARGE), seconds
        ),
    }


def first_paint(home: Path, code: str, *arguments: str) -> float:
    terminal = Terminal(code, *arguments, home=home)
    seconds = terminal.first_paint_seconds()
    terminal.close()
    return seconds


def first_paint_ratio(home: Path, repeats: int) -> tuple[float, float, float]:
    """Return the median times to the first paint in seconds, of gputui and of a bare application with as many widgets,
    and their ratio.

    The two are started in turn, `repeats` times.
    """
    counted = subprocess.run([sys.executable, "-P", "-c", COUNT], capture_output=True, text=True, check=True)
    widgets = counted.stdout.strip()
    pairs = [(first_paint(home, FORM), first_paint(home, BARE, widgets)) for _ in range(repeats)]
    ours, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
    return ours, bare, ours / bare


def back_and_forth(home: Path, burners: int) -> tuple[float, float]:
    """Return the median and the greatest time in seconds from a key to the painted screen, of 20 keys that go from the
    form to the live view of a running run with 8 GPUs, to the runs, and back.

    Each screen has been opened once before. `burners` processes use all the CPU that they can get.
    """
    kind: dict[str, Any] = {"gpus": 8, "seconds": 600, "readings_a_second": 1.0, "epoch_seconds": 20}
    recorded.write(home, name="20260921-100000-cnn", outcome=None, engine_pid=os.getpid(), **kind)
    for number in range(10):
        recorded.write(home, name=f"20260920-10000{number}-cnn", gpus=1, seconds=20)
    terminal, seconds = Terminal(FORM, home=home), []
    with burning(burners):
        assert terminal.first_paint_seconds()
        terminal.read(3)
        keys = [*BACK_AND_FORTH.values()] * (1 + KEYS // len(BACK_AND_FORTH))
        for key in keys:
            seconds.append(terminal.painted_seconds(key))
            terminal.read(0.7)
    terminal.close()
    counted = seconds[len(BACK_AND_FORTH) :]
    return statistics.median(counted), max(counted)


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def opening(home: Path, events: int) -> tuple[float, float, int]:
    """Return the CPU seconds and the megabytes of memory to open a finished run with eight GPUs, and the number of its
    events.

    `events` is about the number of events that the run is to have.
    """
    run = recorded.write(home, name="long", gpus=8, seconds=events // 4, epoch_seconds=300)
    count = sum(run.file(name).read_bytes().count(b"\n") for name in ("events.jsonl", "telemetry.jsonl"))
    command = [sys.executable, "-P", "-c", OPEN, str(run.path)]
    told = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    figures = [[float(word) for word in one.split()] for one in told]
    seconds, grown = (statistics.median(column) for column in zip(*figures, strict=True))
    return seconds, grown, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to watch")
    parser.add_argument("--repeats", type=int, default=5, help="of the first paint")
    parser.add_argument("--events", type=int, default=100_000, help="of the long run")
    parser.add_argument("--only", choices=PARTS, help="measure only this part")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            if given.only in (None, name):
                home = Path(folder) / name
                home.mkdir()
                part(home, given)


def watch(home: Path, given: argparse.Namespace) -> None:
    for readings in (1.0, 5.0):
        cpu, rate = watching(home, given.seconds, readings)
        what = f"watching a replay, 8 GPUs read {readings:g} times a second"
        print(Goal(f"{what}: CPU", 100 * cpu, "%", 4), flush=True)
        print(Goal(f"{what}: to the terminal", rate / 1000, "kB/s", 2), flush=True)
    for what, (cpu, rate) in large(home, given.seconds).items():
        print(Goal(f"{what}: CPU", 100 * cpu, "%", 5), flush=True)
        print(f"{what}: {rate / 1000:.2f} kB/s to the terminal", flush=True)


def open_long(home: Path, given: argparse.Namespace) -> None:
    seconds, grown, count = opening(home, given.events)
    print(Goal(f"opening a finished run of {count:,} events: CPU time", seconds, "s", 0.5), flush=True)
    print(Goal("memory that this took", grown, "MB", 64), flush=True)


def go_back_and_forth(home: Path, _given: argparse.Namespace) -> None:
    for burners in (0, BURNERS):
        median, worst = back_and_forth(home / str(burners), burners)
        what = f"from screen to screen and back, {burners} burners"
        print(Goal(f"{what}: median", 1000 * median, "ms", 100), flush=True)
        print(Goal(f"{what}: worst of {KEYS}", 1000 * worst, "ms", 100), flush=True)


def paint_first(home: Path, given: argparse.Namespace) -> None:
    ours, bare, ratio = first_paint_ratio(home, given.repeats)
    print(f"first paint: gputui {1000 * ours:.0f} ms, bare Textual {1000 * bare:.0f} ms")
    print(Goal("first paint against a bare Textual of as many widgets", ratio, "times", 1.15), flush=True)


PARTS = {"watch": watch, "open": open_long, "screens": go_back_and_forth, "first": paint_first}


if __name__ == "__main__":
    main()
