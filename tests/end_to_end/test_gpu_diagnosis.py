"""What a diagnosis knows of the GPUs of a run that trained on stand-ins for GPUs (support/fakegpu)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.diagnosis import collector
from gputui.engine.diagnosis.remedies import remedies

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import events, gputui

pytest_plugins = ("tests.support.fakegpu.fixture",)


def test_the_gpu_beside_the_one_that_trains_is_idle_and_memory_is_a_share_of_its_limit(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    two = fakegpu.environment(tmp_path / "gpus", gpus=2, memory_mb=2048)
    settings = ("model=mlp", "epochs=1", "steps_per_epoch=200", "sample_seconds=0.1", "xla=off", "validation_split=0")
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", "--json", *arguments, env=os.environ | two)
    assert done.returncode == 0, done.stderr
    told = events(done.stdout)
    (gpu,) = next(event for event in told if event["type"] == "started")["gpu_devices"]
    found = collector.read(runs.find(told[0]["run"]))
    assert (found.on_gpu, found.gpus, found.idle_gpus, found.busy_gap) == (True, 1, 1, None)
    assert 0 < gpu["memory_limit_bytes"] < 2048 * 1024**2
    peak = told[-1]["summary"]["peak_memory_bytes"]
    assert found.memory_peak == pytest.approx(peak / gpu["memory_limit_bytes"])
    more = [dict(remedy.changes) for remedy in remedies(found, ["compute_bound"]) if remedy.step == "gpus"]
    assert more == [{"device.visible": "all", "strategy.kind": "mirrored"}]
