"""Trainings on boxes of eight GPUs, through the front door, on stand-ins for them (support/fakegpu)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.diagnosis import collector, rules
from gputui.engine.runs import Run

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import gputui, happened

pytest_plugins = ("tests.support.fakegpu.fixture",)

# A kernel takes long enough for the GPU to be what is waited for.
SETTINGS = ("model=mlp", "epochs=1", "sample_seconds=0.1", "xla=off", "validation_split=0")
KERNELS = "kernel_us=1500"


def train(fakegpu: FakeGpu, folder: Path, *settings: str) -> Run:
    eight = fakegpu.environment(folder, gpus=8, settings=KERNELS)
    arguments = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", *arguments, env=os.environ | eight)
    assert done.returncode == 0, done.stdout + done.stderr
    run = runs.find("latest")
    warned = {event["kind"]: event["message"] for event in happened(run, "warning")}
    warned.pop("telemetry_slow", None)  # on a machine with much else to do
    assert warned == {}
    return run


def used(run: Run) -> set[int]:
    """The GPUs on which the driver has seen memory taken."""
    readings = [gpu for event in happened(run, "gpu") for gpu in event["gpus"]]
    return {gpu["index"] for gpu in readings if gpu["memory_used_bytes"]}


def several(found: Any) -> list[dict[str, Any]]:
    """The remedies that use more GPUs."""
    return [dict(one["changes"]) for one in found.remedies if "strategy.kind" in one["changes"]]


def test_on_a_box_of_eight_single_trains_on_one_and_the_diagnosis_knows_the_seven_idle_ones(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    run = train(fakegpu, tmp_path / "gpus", "steps_per_epoch=20")
    (started,) = happened(run, "started")
    assert started["gpus"] == ["GPU-0000-0"]
    assert used(run) == {0}
    found = rules.of_run(run)
    assert "imbalance" not in (found.verdict, *found.others)
    measured = collector.read(run)
    assert (measured.gpus, measured.idle_gpus, measured.busy_gap) == (1, 7, None)
    assert measured.busy_mean is not None
    assert measured.busy_mean > 1 / 8, "idle GPUs do not count"
    assert several(found) in ([], [{"device.visible": "all", "strategy.kind": "mirrored"}])


def test_in_an_allocation_of_two_of_eight_mirrored_trains_on_these_and_proposes_no_other(
    fakegpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CUDA_VISIBLE_DEVICES", "4,5"), ("SLURM_JOB_ID", "77"), ("SLURM_JOB_GPUS", "4,5")):
        monkeypatch.setenv(name, value)
    run = train(fakegpu, tmp_path / "gpus", "steps_per_epoch=10", "strategy.kind=mirrored")
    (started,) = happened(run, "started")
    assert started["gpus"] == ["GPU-0000-4", "GPU-0000-5"]
    assert [gpu["index"] for gpu in started["gpu_devices"]] == [4, 5]
    assert started["replicas"] == 2
    assert used(run) == {4, 5}
    measured = collector.read(run)
    assert (measured.gpus, measured.idle_gpus, measured.given_gpus) == (2, 0, (4, 5))
    assert several(rules.of_run(run)) == []
