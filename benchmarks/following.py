"""What followers cost a training whose targets fail: its speed and its CPU time per step, with and without them.

The targets: MLflow on a server that refuses, or that accepts and never answers (needs MLflow); Prometheus in a folder
whose disk is full (needs root that may mount); TensorBoard with a follower that is killed and started again each
second. 1 means that they cost nothing.

    python -m benchmarks.following [--groups 2] [--seconds 20]
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gputui.engine.follow import following
from gputui.engine.runs import Run, request_stop
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import Progress

from benchmarks.telemetry import has_trained, step_at

WARM_UP_SECONDS = 10.0
KILL_SECONDS = 1.0
TICKS = os.sysconf("SC_CLK_TCK")
CPU_TIME = slice(11, 13)  # fields of /proc/PID/stat (proc(5)) after the name: user and system time


@dataclass(frozen=True)
class Failure:
    """A way in which a target fails: its name, and the environment variables of its follower.

    `is_killed`: the follower is killed and started again each second.
    """

    name: str
    target: str
    variables: Mapping[str, str]
    is_killed: bool = False


@dataclass(frozen=True)
class Window:
    """A part of the training from `begin` to `end` (Unix seconds), in which its process took `cpu_seconds`."""

    begin: float
    end: float
    cpu_seconds: float


@contextmanager
def failures(folder: Path) -> Iterator[list[Failure]]:
    """A context with the failures that this machine can have. `folder` is used for what they need."""
    with ExitStack() as stack:
        ways = [Failure("killed each second", "tensorboard", {}, is_killed=True)]
        if following.TARGETS["mlflow"].missing:
            print("left out: MLflow is not installed")
        else:
            silent, closed = (stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
            silent_port, closed_port = silent.getsockname()[1], closed.getsockname()[1]
            closed.close()
            ways += [
                Failure("hangs", "mlflow", {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{silent_port}"}),
                Failure("refuses", "mlflow", {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{closed_port}"}),
            ]
        disk = folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
        if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
            print("left out: a full disk needs root that may mount")
        else:
            stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
            fill(disk / "filler")
            ways.append(Failure("full disk", "prometheus", {"GPUTUI_PROMETHEUS_FOLDER": str(disk)}))
        yield ways


def fill(path: Path) -> None:
    """Write to the file until its disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(1024))


def windows(run: Run, failure: Failure, groups: int, seconds: float) -> list[Window]:
    """Return the windows of the groups, each with, without, without, and with the follower."""
    os.environ.update(failure.variables)
    try:
        return [window(run, failure if on else None, seconds) for _ in range(groups) for on in (1, 0, 0, 1)]
    finally:
        for name in failure.variables:
            del os.environ[name]


def window(run: Run, failure: Failure | None, seconds: float) -> Window:
    begin, before = time.time(), cpu_seconds(run)
    while (left := begin + seconds - time.time()) > 0:
        process = following.start(run.path, failure.target) if failure else None
        time.sleep(min(left, KILL_SECONDS) if failure and failure.is_killed else left)
        if process is not None:
            process.kill()
            process.wait()
    return Window(begin, time.time(), cpu_seconds(run) - before)


def cpu_seconds(run: Run) -> float:
    """Return the CPU time of the trainer so far, all its threads together."""
    fields = Path(f"/proc/{run.status['trainer_pid']}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[CPU_TIME])) / TICKS


def ratios(steps: Sequence[tuple[float, int]], parts: Sequence[Window]) -> tuple[list[float], list[float]]:
    """Return for each group the speed with the follower / without it, and the CPU time per step with / without."""
    done = [step_at(steps, part.end) - step_at(steps, part.begin) for part in parts]
    speeds = [count / (part.end - part.begin) for count, part in zip(done, parts, strict=True)]
    costs = [part.cpu_seconds / count for count, part in zip(done, parts, strict=True)]
    return _of_groups(speeds), _of_groups(costs)


def _of_groups(values: Sequence[float]) -> list[float]:
    grouped = zip(*[iter(values)] * 4, strict=True)
    return [(with_1 + with_2) / (without_1 + without_2) for with_1, without_1, without_2, with_2 in grouped]


def words(values: Sequence[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"median {median:.4f}, middle half {low:.4f} to {high:.4f}"


@contextmanager
def training(home: Path) -> Iterator[Run]:
    """A context with a run that trains on the CPU until its end."""
    os.environ["GPUTUI_HOME"] = str(home)
    command = [str(Path(sys.executable).parent / "gputui"), "--preset", "quickstart", "--detach"]
    settings = ("train.epochs=100000", "train.validation_split=0", "device.visible=none")
    command += [word for setting in settings for word in ("--set", setting)]
    run = Run(home / "runs" / subprocess.check_output(command, text=True).split()[-1])
    while not has_trained(run):
        if run.result is not None:
            sys.exit(f"the training gave no figure: {run.result}")
        time.sleep(0.5)
    time.sleep(WARM_UP_SECONDS)
    try:
        yield run
    finally:
        request_stop(run)
        while run.state in ("running", "stopping"):
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=2, help="of four windows: with, without, without, with")
    parser.add_argument(
        "--seconds", type=float, default=20, help="of each window; a follower starts in every second one"
    )
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {load:.0f}, {time.strftime('%Y-%m-%d')}", flush=True)
    with tempfile.TemporaryDirectory() as folder, failures(Path(folder)) as ways:
        with training(Path(folder) / "home") as run:
            parts = [windows(run, way, arguments.groups, arguments.seconds) for way in ways]
        steps = [(event.t, event.step) for event in read_events(run.path).of(Progress)]
    for way, measured in zip(ways, parts, strict=True):
        speeds, costs = ratios(steps, measured)
        print(f"{way.name}: steps per second with / without: {words(speeds)}")
        print(f"{way.name}: CPU time per step with / without: {words(costs)}")


if __name__ == "__main__":
    main()
