"""The event that says what has been built and where it trains."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.runs import titles

from tests.support.training import Build


def test_a_training_tells_its_gpus_in_tensorflows_order(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from gputui.engine.trainer import session
    from gputui.engine.trainer.assembly import Training
    from gputui.engine.trainer.setup.gpu_identity import TrainingGpu

    training = build("workload.model=mlp")
    known = (("/device:GPU:0", "GPU-b", (9, 0)), ("/device:GPU:1", "GPU-a", (8, 0)), ("/device:GPU:2", None, None))
    gpus = tuple(
        TrainingGpu(device, f"0000:0{place}:00.0", uuid, place, "A GPU", capability, 70 * 1024**3, 80 * 1024**3)
        for place, (device, uuid, capability) in enumerate(known)
    )
    loop = training.loop
    object.__setattr__(loop, "built", replace(loop.built, devices=replace(loop.built.devices, gpus=gpus)))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(titles, "leave_out", full)  # the training starts without a shorter title
    session._announce(Training(loop, {}, 0), loop.built.report, None)
    (started,) = training.events("started")
    assert started["gpus"] == ["GPU-b", "GPU-a", "0000:02:00.0"]
    assert [gpu["device"] for gpu in started["gpu_devices"]] == [device for device, _, _ in known]
    assert started["gpu_devices"][1]["compute_capability"] == [8, 0]
    assert started["compute_capability"] == [8, 0]


def test_gpus_of_which_nobody_tells_the_place_are_the_first_and_uncertain(cpus: Any) -> None:
    from gputui.engine.trainer.setup import gpu_identity

    gpus = tuple(Gpu(index, f"GPU-{index}", "A GPU", (9, 0), 80 * 1024**3) for index in range(3))
    box = Machine(gpus, "", 1, 1, visible_devices="2,1")
    (found,), uncertain = gpu_identity.identify(["/device:GPU:0"], box, {})
    assert (found.uuid, found.index, found.memory_limit_bytes) == ("GPU-2", 2, None)
    assert "assumed to be the first in CUDA's order" in uncertain
    (found,), uncertain = gpu_identity.identify(["/device:GPU:0"], replace(box, gpus=gpus[2:]), {})
    assert (found.uuid, uncertain) == ("GPU-2", "")
