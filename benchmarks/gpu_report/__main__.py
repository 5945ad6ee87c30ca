"""Runs all tests and measurements that need a GPU, and writes one Markdown report without names or paths of the user.

    python -m benchmarks.gpu_report [--quick] [--minutes N] [--only NAME ...] [--output gpu-report.md]

or `make gpu-report`, and `make gpu-report QUICK=1`. Each step runs in processes of its own with a time limit. If a step
fails, the report has its reason, the other steps follow, and the exit status is 1. The report is written after each
step, and what is there stays after Ctrl-C (exit status 130). Without a GPU the command says so and ends.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from gputui.engine.interpreter import compatibility
from gputui.engine.job import this_machine
from gputui.engine.telemetry import chips as telemetry

from . import steps
from .commands import QUICK, Failed, Lab, Size, Skipped, call
from .text import ROOT, anonymous, table

QUICK_MINUTES = 10.0
START_SECONDS = 14.0  # until a training of the image model measures; a guess, until some have been timed
GUESSED = 3.0  # trainings that this guess counts as beside the timed ones
PACKAGES = ("tensorflow", "keras", "nvidia-cudnn-cu12", "nvidia-nccl-cu12", "nvidia-cuda-runtime-cu12", "nvidia-ml-py")
COUNT_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
PLUGIN = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"


class Step(NamedTuple):
    """A step of the report. `do` returns its text in Markdown. `quick` and `whole` are the durations of the step in the
    short and in the full report, with the duration of a training of the image model as the unit.
    """

    title: str
    do: Callable[[Lab], str]
    quick: float
    whole: float


STEPS: Mapping[str, Step] = {
    "doctor": Step("What the doctor says of this machine", steps.doctor, 0.5, 0.5),
    "driver": Step("What the driver says", steps.driver, 0.1, 0.1),
    "beside": Step("gputui's readings beside those of nvidia-smi", steps.beside, 0.8, 1),
    "strategies": Step("Strategies, and where the time of their steps goes", steps.by_strategy, 2.5, 4),
    "copies": Step("Copies of batches beside the computing", steps.copies, 2, 4),
    "plain": Step("A plain fit and gputui", steps.plain, 2, 6),
    "batches": Step("Memory of a large batch: predicted, measured, in parts, and too little", steps.batches, 6, 8),
    "proof": Step("A search and its proof", steps.proof, 6, 20),
    "precisions": Step("What precision and XLA bring", steps.precisions, 3, 24),
    "xla": Step("XLA: the first step, without and with a filled cache", steps.xla, 2, 5),
    "memory": Step("Memory: what TensorFlow may take, and what it takes", steps.memory, 1.6, 2),
    "several": Step("Several GPUs: `single` opens one, `mirrored` all", steps.several, 1.6, 2),
    "hang": Step("A GPU operation that never ends", steps.hang, 3, 6),
    "tests": Step("Tests that need a GPU", steps.tests, 2, 20),
}


@dataclass(frozen=True)
class Row:
    """A step that was carried out: its title, its result (`ok`, or `failed: ...`, or `not measured here: ...`), its
    duration and its part of the report.
    """

    title: str
    result: str
    seconds: float
    text: str
    size: float  # in trainings

    @property
    def failed(self) -> bool:
        return self.result.startswith("failed")


def done(lab: Lab, name: str, needs_seconds: float = 0.0) -> Row:
    """Carry out the step `name`, and return its row, also if it fails.

    If the report's time ends within `needs_seconds`, the step is left out, and the row says so.
    """
    step, text, began = STEPS[name], "", time.monotonic()
    try:
        if began + needs_seconds > lab.deadline:
            raise Skipped(f"it takes about {needs_seconds:.0f} s, and the report's time ends before (--minutes)")
        result, text = "ok", step.do(lab)
    except Skipped as reason:
        result = f"not measured here: {reason}"
    except Failed as reason:
        result, _, text = f"failed: {reason}".partition("\n\n")
    except Exception as fault:  # noqa: BLE001 - whatever a machine answers, the other steps follow
        result = f"failed: {type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
    return Row(step.title, result, time.monotonic() - began, text, step.quick if lab.quick else step.whole)


def estimate(lab: Lab, names: Sequence[str], rows: Sequence[Row] = ()) -> float:
    """Return the expected duration of the named steps in seconds. It is estimated from the durations of the steps in
    `rows`.
    """
    timed = [row for row in rows if row.result == "ok"]
    seconds = (START_SECONDS + lab.size.seconds) * GUESSED + sum(row.seconds for row in timed)
    trainings = sum(STEPS[name].quick if lab.quick else STEPS[name].whole for name in names)
    return trainings * seconds / (GUESSED + sum(row.size for row in timed))


def about(lab: Lab, seconds: float) -> str:
    seconds = max(0.0, min(seconds, lab.deadline - time.monotonic()))
    return f"about {seconds:.0f} s" if seconds < 100 else f"about {seconds / 60:.0f} min"


def report(lab: Lab, rows: Sequence[Row], ended: str = "") -> str:
    box, size = (
        this_machine.read(),
        ", ".join(f"{name} {value}" for name, value in asdict(lab.size).items() if value != ""),
    )
    chips = [f"{gpu.name} ({compatibility.dotted(gpu.compute_capability or ())})" for gpu in box.gpus]
    parts = [
        "# gputui on a GPU",
        f"{time.strftime('%Y-%m-%d %H:%M')}, gputui {_commit()}, {', '.join(_versions())}, Python "
        f"{platform.python_version()}, driver {box.driver or 'unknown'}, {len(os.sched_getaffinity(0))} CPUs; GPUs: "
        f"{', '.join(chips) or 'unknown to NVML'}.",
    ]
    kernel, modules = platform.release(), Path("/proc/driver/nvidia/version")
    where = "in WSL" if telemetry.is_wsl() else "in a container or job" if telemetry.confined() else "on the machine"
    driver = "open" if modules.exists() and "Open Kernel Module" in modules.read_text() else "closed or unknown"
    given = sorted(name for name in os.environ if name.startswith(("TF_", "XLA_", "NCCL_", "CUDA_")))
    parts.append(
        f"{where[0].upper()}{where[1:]}, kernel {kernel}, {_cpu()}; kernel modules of the driver: {driver}; set in the "
        f"environment: {', '.join(given) or 'none of TF_, XLA_, NCCL_, CUDA_'}."
    )
    if os.environ.get(PLUGIN):
        parts.append("TensorFlow has its GPUs from a plug-in, and not from CUDA: the speeds are those of the plug-in.")
    parts += [
        f"Sizes: {size}.",
        table(("step", "result", "seconds"), [[r.title, r.result, f"{r.seconds:.0f}"] for r in rows]),
    ]
    parts += [f"**{ended}**"] if ended else []
    parts += [f"## {row.title}\n\n{row.text}" for row in rows if row.text]
    lacks = [f"- {row.title}: {row.result.partition(': ')[2]}" for row in rows if row.result.startswith("not measured")]
    lacks += [f"- {what}: {why}" for what, why in sorted(lab.missing.items()) if why]
    parts += ["## Not measured here\n\n" + "\n".join(lacks)] if lacks else []
    return anonymous("\n\n".join(parts) + "\n")


def _cpu() -> str:
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    return "unknown CPU"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or version("gputui")
    return version("gputui")


def _versions() -> Iterator[str]:
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def no_gpu() -> str:
    """Return the reason why there is no GPU to report on; empty if there is a GPU."""
    here = this_machine.read()
    if here.gpus or not here.missing:
        return "" if here.gpus else here.no_gpu_reason
    try:  # NVML tells nothing, as in some containers: TensorFlow knows
        counted = call([sys.executable, "-P", "-c", COUNT_GPUS], 120).out.split()
    except Failed as reason:
        return f"{here.missing}, and TensorFlow cannot be asked: {reason}"
    return "" if counted and counted[-1] != "0" else f"{here.missing}, and TensorFlow finds none"


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.gpu_report", description=__doc__, formatter_class=lines)
    parser.add_argument("--output", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--quick", action="store_true", help=f"fewer and shorter, at most {QUICK_MINUTES:.0f} minutes")
    parser.add_argument("--minutes", type=float, help="the most that the report takes; what is left is named in it")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP",
                        help=f"of {', '.join(STEPS)}")  # fmt: skip
    for each in fields(Size):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(each.default),
                            help=f"{each.default!r}; quick: {getattr(QUICK, each.name)!r}")  # fmt: skip
    return parser.parse_args(words)


def measure(lab: Lab, names: Sequence[str], output: Path) -> int:
    """Carry out the named steps, and write the report to `output` after each. Return the exit code."""
    print(f"{len(names)} steps, {about(lab, estimate(lab, names))}", flush=True)
    rows: list[Row] = []
    try:
        for place, name in enumerate(names):
            needs = estimate(lab, [name], rows)
            print(f"{place + 1}/{len(names)} {STEPS[name].title} ({about(lab, needs)})", flush=True)
            rows.append(done(lab, name, needs))
            output.write_text(report(lab, rows), encoding="utf-8")
            left = about(lab, estimate(lab, names[place + 1 :], rows))
            print(f"    {rows[-1].result.partition(chr(10))[0]} ({rows[-1].seconds:.0f} s); {left} left", flush=True)
    except KeyboardInterrupt:
        title = STEPS[names[len(rows)]].title if len(rows) < len(names) else "its end"
        output.write_text(report(lab, rows, f"Interrupted in: {title}"), encoding="utf-8")
        return 130
    return 1 if any(row.failed for row in rows) else 0


def main(words: Sequence[str] | None = None) -> int:
    given = arguments_of(words)
    if reason := no_gpu():
        print(f"no GPU to report on: {reason}")
        return 0
    sizes = {each.name: getattr(given, each.name) for each in fields(Size) if getattr(given, each.name) is not None}
    minutes = given.minutes or (QUICK_MINUTES if given.quick else math.inf)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="gpu-report-"))
    try:
        lab = Lab(
            folder, replace(QUICK if given.quick else Size(), **sizes), given.quick, time.monotonic() + 60 * minutes
        )
        code = measure(lab, given.only, given.output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"the report is in {given.output}")
    return code


if __name__ == "__main__":
    sys.exit(main())
