"""What the GPU options bring on this machine's GPU, each against plain float32, by runs of `gputui --preset`.

Every round runs the baseline and all variants once, so that a GPU whose clocks drift favours none. The model is
ResNet-50 on one batch that is prepared once (`input.one_batch`), as the host's memory alone could not feed an H100.
What is left of the input stands beside each row: the wait for it, and the transfer to the GPU where that is measured.
So does the first step, which for XLA is its compiling. Says so and ends where there is no GPU.

    python benchmarks/gpu.py [--rounds 3] [--width 1] [--batch-size 128] [--steps 120]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gputui.engine.telemetry import compatible, machine

BASE = {
    "workload.data": "synthetic",
    "workload.classes": 1000,
    "workload.samples": 1024,
    "input.one_batch": "true",
    "input.shuffle": "off",
    "input.drop_remainder": "true",
    "train.validation_split": 0,
    "train.epochs": 1,
    "train.steps_per_epoch": 120,
    "train.seed": 1,
    "precision.tf32": "false",
    "compile.xla": "false",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "TF32": {"precision.tf32": "true"},
    "bfloat16": {"precision.policy": "mixed_bfloat16"},
    "float16": {"precision.policy": "mixed_float16"},
    "TF32 + XLA": {"precision.tf32": "true", "compile.xla": "true"},
    "bfloat16 + XLA": {"precision.policy": "mixed_bfloat16", "compile.xla": "true"},
    "float16 + XLA": {"precision.policy": "mixed_float16", "compile.xla": "true"},
    "bfloat16 + 8 steps together": {"precision.policy": "mixed_bfloat16", "compile.steps_per_execution": 8},
}


COLUMNS = ("variant", "samples/s", "times float32", "peak MiB", "busy %", "MFU %", "input wait %", "transfer %",
           "first step s")  # fmt: skip


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """The summary of one run; an outcome such as oom stands in it."""
    command = [str(Path(sys.executable).parent / "gputui"), "--preset", "quickstart", "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"GPUTUI_HOME": home},
                              check=False)  # fmt: skip
    if not done.stdout:
        raise SystemExit(done.stderr)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["summary"]
    return summary


def middle(runs: list[dict[str, Any]], key: str) -> float | None:
    """The median over the rounds that have this figure."""
    known = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(known) if known else None


def cell(value: float | None, factor: float = 1, digits: int = 0) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


def row(name: str, runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> str:
    """One line of the table: medians, and the ratio to the baseline round by round."""
    ended = next((run for run in runs if not run["samples_per_second"]), None)
    if ended is not None:
        return f"| {name} | {ended['outcome']}: {(ended.get('error') or {}).get('message', 'no speed')} |" + " |" * 7
    pairs = [(run["samples_per_second"], of["samples_per_second"]) for run, of in zip(runs, base, strict=True)]
    ratios = [mine / theirs for mine, theirs in pairs if theirs]
    times = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"
    cells = (
        name, cell(middle(runs, "samples_per_second")), times, cell(middle(runs, "peak_memory_bytes"), 2**-20),
        cell(middle(runs, "gpu_busy_mean"), 100), cell(middle(runs, "mfu"), 100, 1),
        cell(middle(runs, "input_wait"), 100, 1), cell(middle(runs, "transfer"), 100, 1),
        cell(middle(runs, "first_step_seconds"), 1, 1),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--width", type=float, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=120)
    arguments = parser.parse_args()
    here = machine.read()
    if not here.gpus:
        raise SystemExit(f"this benchmark needs a GPU: {here.missing or here.no_gpu_reason}")
    base = BASE | {
        "workload.model": arguments.model,
        "workload.shape": f"[{arguments.pixels}, {arguments.pixels}, 3]",
        "workload.width": arguments.width,
        "input.batch_size": arguments.batch_size,
        "train.steps_per_epoch": arguments.steps,
    }
    aborts = any(compatible.xla_aborts(gpu.compute_capability) for gpu in machine.visible_gpus())
    variants = {name: change for name, change in VARIANTS.items() if not (aborts and change.get("compile.xla"))}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for _ in range(arguments.rounds):
        for name, change in variants.items():
            runs[name].append(measure(base | change))
    size = f"{arguments.model}, width {arguments.width:g}, {arguments.pixels} pixels, batch {arguments.batch_size}"
    left = "; without XLA, which crashes on this chip" if aborts else ""
    print(f"{here.gpus[0].name}, {size}, {arguments.rounds} rounds of {arguments.steps} steps{left}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for name, measured in runs.items():
        print(row(name, measured, runs["float32"]))


if __name__ == "__main__":
    main()
