"""Runs all tests and measurements that need a GPU, and writes one Markdown report.

    python -m benchmarks.gpu_report [--output gpu-report.md] [--only NAME ...]

or `make gpu-report`. Each step runs in processes of its own with a time limit. A step that fails
is a row with its reason. The report is written after each step, so that it is usable after an interruption. Without a
GPU the command says so and ends.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from gputui.engine.telemetry import machine

from . import steps
from .commands import ROOT, Failed, Lab, Skipped, call

STEPS: Mapping[str, tuple[str, Callable[[Lab], str]]] = {
    "doctor": ("What the doctor says of this machine", steps.doctor),
    "driver": ("What the driver says", steps.tools),
    "tests": ("Tests that need a GPU", steps.tests),
    "several": ("Several GPUs: `single` opens one, `mirrored` all", steps.several),
    "memory": ("Memory: what TensorFlow may take, and what it takes", steps.memory),
    "strategies": ("Strategies, and where the time of their steps goes", steps.by_strategy),
    "gaps": ("Gaps between kernels, and copies beside them", steps.gaps),
    "clock": ("The cost of gputui's step clock", steps.clock),
    "xla": ("XLA: the first step, without and with a filled cache", steps.xla),
    "options": ("What the GPU options bring", steps.options),
    "hang": ("A GPU operation that never ends", steps.hang),
}
COUNT_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"


@dataclass(frozen=True)
class Row:
    """A step that was done: how it ended, and its part of the report."""

    name: str
    title: str
    result: str
    seconds: float
    text: str


def done(lab: Lab, name: str) -> Row:
    """Do one step, whatever happens in it."""
    title, do = STEPS[name]
    began = time.monotonic()
    try:
        result, text = "done", do(lab)
    except Skipped as reason:
        result, text = f"left out: {reason}", ""
    except Failed as reason:
        result, text = f"failed: {reason}", ""
    except Exception as fault:  # noqa: BLE001 - whatever a machine answers, the other steps follow
        result, text = f"failed: {type(fault).__name__}: {' '.join(str(fault).split())[:300]}", ""
    return Row(name, title, result, time.monotonic() - began, text)


def report(lab: Lab, rows: Sequence[Row]) -> str:
    gpus = ", ".join(f"{gpu.name} ({gpu.compute_capability})" for gpu in machine.read().gpus) or "unknown to NVML"
    pixels = f"{lab.pixels} x {lab.pixels} pixels"
    size = f"{lab.model}, width {lab.width:g}, {pixels}, batch {lab.batch_size}, {lab.steps} steps"
    head = [
        "# gputui on a GPU",
        f"{time.strftime('%Y-%m-%d %H:%M')}, gputui {_commit()}, TensorFlow {version('tensorflow')}, Keras "
        f"{version('keras')}, Python {platform.python_version()}, {len(os.sched_getaffinity(0))} CPUs; GPUs: {gpus}.",
        f"Speeds are of {size}, unless a section says otherwise.",
        steps.table(("step", "result", "seconds"), [[row.title, row.result, f"{row.seconds:.0f}"] for row in rows]),
    ]
    parts = [f"## {row.title}\n\n{row.text or row.result}" for row in rows]
    return "\n\n".join([*head, *parts]) + "\n"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or version("gputui")


def no_gpu() -> str:
    """Why there is nothing to report; empty where there is a GPU."""
    here = machine.read()
    if here.gpus or not here.missing:
        return "" if here.gpus else here.no_gpu_reason
    try:  # NVML tells nothing, as in some containers: TensorFlow knows
        counted = call([sys.executable, "-P", "-c", COUNT_GPUS], 120).out.split()
    except Failed as reason:
        return f"{here.missing}, and TensorFlow cannot be asked: {reason}"
    return "" if counted and counted[-1] != "0" else f"{here.missing}, and TensorFlow finds none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="python -m benchmarks.gpu_report")
    parser.add_argument("--output", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP",
                        help=f"of {', '.join(STEPS)}")  # fmt: skip
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit-seconds", type=float, default=600.0, help="for each training")
    arguments = parser.parse_args()
    if reason := no_gpu():
        print(f"no GPU to report on: {reason}")
        return
    folder = Path(tempfile.mkdtemp(prefix="gpu-report-"))
    size = (arguments.model, arguments.pixels, arguments.width, arguments.batch_size, arguments.steps)
    lab = Lab(folder, *size, arguments.limit_seconds)
    rows: list[Row] = []
    try:
        for name in arguments.only:
            print(f"{STEPS[name][0]} ...", flush=True)
            rows.append(done(lab, name))
            print(f"    {rows[-1].result} ({rows[-1].seconds:.0f} s)", flush=True)
            arguments.output.write_text(report(lab, rows))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"the report is in {arguments.output}")


if __name__ == "__main__":
    main()
