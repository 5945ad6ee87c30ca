"""Which GPUs a training sees and tells, in CUDA's order; with the stand-in for NVML behind the real `pynvml`."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.telemetry.machine import Gpu

from tests.support.fakenvml import FakeNvml
from tests.support.training import Build

pytest_plugins = ("tests.support.fakenvml.fixture",)

GIB = 1024**3
PROGRAM = """
import json, os
from gputui.engine.telemetry import machine
if {chosen!r} is None:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
else:
    os.environ["CUDA_VISIBLE_DEVICES"] = {chosen!r}
print(json.dumps([[gpu.index, gpu.mig, gpu.memory_total_bytes] for gpu in machine.visible_gpus()]))
"""


def visible(nvml: FakeNvml, chosen: str | None, words: str = "gpus=4") -> list[list[Any]]:
    found: list[list[Any]] = nvml.run(PROGRAM.format(chosen=chosen), words)
    return found


@pytest.mark.parametrize(
    ("chosen", "indexes"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("3", [3]),
        ("3, 1", [3, 1]),
        ("3,-1,1", [3]),
        ("2,7,1", [2]),
        ("GPU-0000-2,GPU-0000-0", [2, 0]),
        ("GPU-0000,1", []),  # of several GPUs
        ("GPU-0000-2,GPU-9", [2]),
    ],
)
def test_the_visible_gpus_end_at_the_first_that_is_none(
    nvml: FakeNvml, chosen: str | None, indexes: list[int]
) -> None:
    assert [index for index, _, _ in visible(nvml, chosen)] == indexes


@pytest.mark.parametrize(
    "chosen", ["MIG-0000-101", "MIG-GPU-0000-1/1/0", "GPU-0000-1", "1"], ids=["uuid", "older", "parent", "index"]
)
def test_an_instance_stands_for_its_gpu_with_its_own_memory(nvml: FakeNvml, chosen: str) -> None:
    assert visible(nvml, chosen, "gpus=2 mig=2@1") == [[1, True, 20 * GIB]]


def test_a_gpu_in_mig_mode_without_instances_cannot_compute(nvml: FakeNvml) -> None:
    assert visible(nvml, None, "gpus=2 mig=0@0") == [[1, False, 80 * GIB]]
    assert visible(nvml, "0", "gpus=2 mig=0@0") == []


def test_a_training_tells_its_gpus_in_tensorflows_order(build: Build) -> None:
    from gputui.engine.trainer import session
    from gputui.engine.trainer.assembly import Training

    training = build("workload.model=mlp")
    gpus = [Gpu(index, uuid, "A GPU", (9, 0), 80 * GIB) for index, uuid in ((3, "GPU-b"), (1, "GPU-a"), (2, None))]
    training.loop.report.gpus = {"GPU-a", "GPU-b"}
    loop = training.loop
    session._announce(Training(loop.options, loop.devices, loop, gpus, {}, 0), loop.report, None)
    (started,) = training.events("started")
    assert started["gpus"] == ["GPU-b", "GPU-a", "2"]
