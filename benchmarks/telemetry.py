"""What reading 8 GPUs at 1 Hz costs: training throughput with and without it, and NVML calls per GPU and second.

The GPUs are the tests' stand-in for NVML, whose calls take 1 ms each; the training is real, on the CPU, which it shares
with the engine that reads: beside a training on GPUs the cost can only be smaller. With and without are run in turn;
each ratio is of one pair, and 1 means that reading costs nothing.

    python benchmarks/telemetry.py [--pairs 5] [--seconds 40] [--count-seconds 60]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GPUS = 8
SOURCE = Path(__file__).parents[1] / "tests/fakenvml/nvml.c"
OFF = 3600  # seconds between two readings: in a short run there is none but the first
READER = """
import sys, time
from gputui.engine.telemetry.reader import GpuReader
reader = GpuReader(lambda event: None, 1.0)
reader.start()
time.sleep(float(sys.argv[1]))
reader.stop()
"""


def compiled(folder: Path) -> Path:
    """The folder with the stand-in; the machine's own NVML is left alone."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("a C compiler is needed (cc or gcc)")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", library, SOURCE], check=True)
    return folder


def environment(library: Path, words: str) -> dict[str, str]:
    return os.environ | {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": f"gpus={GPUS} gpm=1 nvlinks=18 procs=1 {words}"}


def throughput(library: Path, sample_seconds: float, seconds: float) -> float:
    """Samples a second of a run that is stopped after `seconds`, its start left out."""
    with tempfile.TemporaryDirectory() as home:
        settings = {
            "train.epochs": 100_000,
            "train.validation_split": 0,
            "compile.steps_per_execution": 16,
            "device.visible": "none",
            "run.max_minutes": (seconds + 15) / 60,
            "run.sample_seconds": sample_seconds,
        }
        command = [str(Path(sys.executable).parent / "gputui"), "--preset", "quickstart", "--json"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        known = environment(library, "slow_ms=1") | {"GPUTUI_HOME": home}
        done = subprocess.run(command, capture_output=True, text=True, env=known, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    if last["type"] != "finished" or not last["summary"].get("samples_per_second"):
        sys.exit(f"the training gave no figure: {done.stderr or last}")
    return float(last["summary"]["samples_per_second"])


def calls_per_gpu_second(library: Path, seconds: float) -> float:
    """All calls that reach the driver, counted by the stand-in, the opening left out."""
    log = library / "calls"
    known = environment(library, f"log={log}")
    subprocess.run([sys.executable, "-P", "-c", READER, str(seconds)], env=known, check=True)
    times = [float(line.split()[0]) for line in log.read_text().splitlines()]
    first = next(number for number, line in enumerate(log.read_text().splitlines()) if "GetUtilization" in line)
    return (len(times) - first) / GPUS / (times[-1] - times[first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40, help="of each training")
    parser.add_argument("--count-seconds", type=float, default=60)
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}")
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        calls = calls_per_gpu_second(library, arguments.count_seconds)
        print(f"NVML calls per GPU and second at 1 Hz: {calls:.2f} (goal: at most 12)", flush=True)
        ratios = []
        for pair in range(arguments.pairs):
            figures: dict[float, float] = {}
            for sample_seconds in (1, OFF) if pair % 2 == 0 else (OFF, 1):
                figures[sample_seconds] = throughput(library, sample_seconds, arguments.seconds)
            ratios.append(figures[1] / figures[OFF])
            print(f"pair {pair + 1}: with {figures[1]:,.0f} without {figures[OFF]:,.0f} samples/s, {ratios[-1]:.4f}")
    if ratios:
        spread = f"{min(ratios):.4f} to {max(ratios):.4f}"
        print(f"throughput with / without: median {statistics.median(ratios):.4f}, {spread} (goal: at least 0.995)")


if __name__ == "__main__":
    main()
