"""What the GPU options bring on this machine's GPU, each against plain float32, by runs of `gputui --preset`.

Every round runs the baseline and all variants once, so that a GPU whose clocks drift favours none. The model is
ResNet-50 on cached synthetic images: the GPU computes, nothing waits for input. Says so and ends where there is no GPU.

    python benchmarks/gpu.py [--rounds 3] [--width 1] [--batch-size 128]
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

from gputui.engine.telemetry import machine

BASE = {
    "workload.model": "resnet50",
    "workload.data": "synthetic",
    "workload.shape": "[224, 224, 3]",
    "workload.classes": 1000,
    "workload.samples": 1024,
    "input.cache": "memory",
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


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """The summary of one run; an outcome such as oom stands in it."""
    command = [str(Path(sys.executable).parent / "gputui"), "--preset", "quickstart", "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"GPUTUI_HOME": home})
    if not done.stdout:
        raise SystemExit(done.stderr)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["summary"]
    return summary


def row(name: str, runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> str:
    """One line of the table: medians, and the ratio to the baseline round by round."""
    speeds = [run["samples_per_second"] for run in runs]
    if not all(speeds):
        return f"| {name} | {runs[0]['outcome']} | | | |"
    ratios = [a / b["samples_per_second"] for a, b in zip(speeds, base, strict=True)]
    peak = max(run["peak_memory_bytes"] or 0 for run in runs) / 2**20
    busy = [run["gpu_busy_mean"] for run in runs if run["gpu_busy_mean"] is not None]
    percent = f"{100 * statistics.mean(busy):.0f}" if busy else "-"
    return (
        f"| {name} | {statistics.median(speeds):.0f} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) | {peak:.0f} | {percent} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=float, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()
    here = machine.read()
    if not here.gpus:
        raise SystemExit(f"this benchmark needs a GPU: {here.no_gpu_reason}")
    base = BASE | {"workload.width": arguments.width, "input.batch_size": arguments.batch_size}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for _ in range(arguments.rounds):
        for name, change in VARIANTS.items():
            runs[name].append(measure(base | change))
    size = f"ResNet-50 x {arguments.width}, batch {arguments.batch_size}"
    print(f"{here.gpus[0].name}, {size}, {arguments.rounds} rounds\n")
    print("| variant | samples/s | times float32 | peak MiB | busy % |")
    print("| --- | --- | --- | --- | --- |")
    for name, measured in runs.items():
        print(row(name, measured, runs["float32"]))


if __name__ == "__main__":
    main()
