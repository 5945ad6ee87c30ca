"""What reading 8 GPUs at 1 Hz costs: training throughput with and without it, and NVML calls per GPU and second.

The GPUs are the tests' stand-in for NVML, whose calls take 1 ms each; the training is real, on the CPU, which it shares
with the engine that reads: beside a training on GPUs the cost can only be smaller. 1 means that reading costs nothing.

    python benchmarks/telemetry.py [--groups 15] [--seconds 4] [--count-seconds 60]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gputui.engine.runs import Run, request_stop
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import Progress

GPUS = 8
SOURCE = Path(__file__).parents[1] / "tests/support/fakenvml/nvml.c"
OFF = 3600  # seconds between two readings: in a short run there is none but the first
WARM_UP_SECONDS = 15.0
READER = """
import sys, time
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.telemetry.sampler import Sampler
from pathlib import Path
Sampler(EventWriter(Path("/dev/null"), "benchmark"), int(sys.argv[1]), 1.0).start()
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 36_000)
"""


def compiled(folder: Path) -> Path:
    """Compile the stand-in for NVML into `folder`, and return the folder. The machine's own NVML is not changed."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("a C compiler is needed (cc or gcc)")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", library, SOURCE], check=True)
    return folder


def environment(library: Path, words: str) -> dict[str, str]:
    return os.environ | {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": f"gpus={GPUS} gpm=1 nvlinks=18 procs=1 {words}"}


def group_ratios(library: Path, groups: int, seconds: float) -> list[float]:
    """Return for each group of windows the throughput with reading divided by the throughput without reading.

    A group is four neighbouring windows of one training: with, without, without, with reading, each of `seconds`. The
    training's own engine hardly reads. A second process reads as an engine does, and is paused in the windows without
    reading. So both kinds of window are of one training and seconds apart, as two trainings would differ by more than
    the effect of reading. `library` is the folder with the stand-in for NVML.
    """
    with tempfile.TemporaryDirectory() as home:
        known = environment(library, "slow_ms=1") | {"GPUTUI_HOME": home}
        settings = {
            "train.epochs": 100_000,
            "train.validation_split": 0,
            "compile.steps_per_execution": 16,
            "device.visible": "none",
            "run.sample_seconds": OFF,
        }
        command = [str(Path(sys.executable).parent / "gputui"), "--preset", "quickstart", "--detach"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        run = Run(Path(home) / "runs" / subprocess.check_output(command, text=True, env=known).split()[-1])
        while not has_trained(run):
            if run.result is not None:
                sys.exit(f"the training gave no figure: {run.result}")
            time.sleep(0.5)
        reader = subprocess.Popen([sys.executable, "-P", "-c", READER, str(run.status["trainer_pid"])], env=known)
        time.sleep(WARM_UP_SECONDS)
        try:
            windows = [window(reader, on, seconds) for _ in range(groups) for on in (True, False, False, True)]
        finally:
            reader.kill()
            request_stop(run)
        while run.state in ("running", "stopping"):
            time.sleep(0.5)
        steps = [(event.t, event.step) for event in read_events(run.path).of(Progress)]
        speeds = [(step_at(steps, end) - step_at(steps, begin)) / (end - begin) for begin, end in windows]
        grouped = zip(*[iter(speeds)] * 4, strict=True)
        return [(with_1 + with_2) / (without_1 + without_2) for with_1, without_1, without_2, with_2 in grouped]


def has_trained(run: Run) -> bool:
    return read_events(run.path).last(Progress) is not None


def window(reader: subprocess.Popen[bytes], on: bool, seconds: float) -> tuple[float, float]:
    """Let the reader read (`on`) or pause for `seconds`. Return the Unix times of the begin and the end."""
    reader.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
    begin = time.time()
    time.sleep(seconds)
    return begin, time.time()


def step_at(steps: Sequence[tuple[float, int]], t: float) -> float:
    """Return the step at the Unix time `t`, interpolated between two of the progress events `steps` (time, step)."""
    after = next(i for i, (at, _) in enumerate(steps) if at >= t)
    (t0, step0), (t1, step1) = steps[after - 1], steps[after]
    return step0 + (step1 - step0) * (t - t0) / (t1 - t0)


def calls_per_gpu_second(library: Path, seconds: float) -> float:
    """Return the number of NVML calls per GPU and second while a reader reads for `seconds`, as counted by the
    stand-in.

    Calls that open NVML are not counted. `library` is the folder with the stand-in.
    """
    log = library / "calls"
    known = environment(library, f"log={log}")
    subprocess.run([sys.executable, "-P", "-c", READER, str(os.getpid()), str(seconds)], env=known, check=True)
    times = [float(line.split()[0]) for line in log.read_text().splitlines()]
    first = next(number for number, line in enumerate(log.read_text().splitlines()) if "GetUtilization" in line)
    return (len(times) - first) / GPUS / (times[-1] - times[first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=15, help="of four windows: with, without, without, with")
    parser.add_argument("--seconds", type=float, default=4, help="of each window")
    parser.add_argument("--count-seconds", type=float, default=60)
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}")
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        calls = calls_per_gpu_second(library, arguments.count_seconds)
        print(f"NVML calls per GPU and second at 1 Hz: {calls:.2f} (goal: at most 12)", flush=True)
        ratios = group_ratios(library, arguments.groups, arguments.seconds)
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"throughput with / without, {len(ratios)} groups of four windows: median {median:.4f}, "
        f"middle half {low:.4f} to {high:.4f}, all {min(ratios):.4f} to {max(ratios):.4f} (goal: at least 0.995)"
    )


if __name__ == "__main__":
    main()
