"""What needs an NVIDIA GPU: memory options as the driver sees them, number formats, running out of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Gpu, compatibility, this_machine
from tests.support.front_door import Finished, trained

# XLA compiles and autotunes for minutes on a busy machine.
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
MB = 1024**2
# Contexts of CUDA, cuDNN and cuBLAS, which no option of TensorFlow counts.
BESIDE = 2500 * MB
# What TensorFlow leaves to the driver of any GPU, at most (`MinSystemMemory` in its gpu_device.cc).
RESERVED = 1800 * MB


@pytest.fixture(scope="session")
def gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process is given, where TensorFlow can use as many; else the reason to skip."""
    found = this_machine.read()
    given = found.shown
    if not given:
        pytest.skip(f"no GPU: {found.missing or found.no_gpu_reason or 'CUDA_VISIBLE_DEVICES leaves none'}")
    program = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    environment = os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    usable = int(done.stdout.split()[-1])
    if usable == 0:
        pytest.skip(f"the driver shows {len(given)} GPU(s), but TensorFlow can use none")
    return given[:usable]


@pytest.fixture(scope="session")
def gpu(gpus: tuple[Gpu, ...]) -> Gpu:
    return gpus[0]


@dataclass(frozen=True)
class Done(Finished):
    """What these tests look at in a finished run."""

    def losses(self) -> list[float]:
        return [event["metrics"]["loss"] for event in self.of("epoch")]

    def memory(self, gpu: Gpu) -> tuple[int, int]:
        """Bytes of a GPU in use before TensorFlow, and at most."""
        readings = [one for event in self.of("gpu") for one in event["gpus"]]
        used = [one["memory_used_bytes"] for one in readings if one["index"] == gpu.index]
        return used[0], max(used)

    def otherwise(self) -> list[dict[str, Any]]:
        """Warnings that something is not as the options say."""
        return [event for event in self.of("warning") if event["kind"] == "not_as_asked"]


def on(gpu: Gpu, *settings: str) -> Done:
    """A run on this GPU alone."""
    return run(f"visible={gpu.index}", *settings)


def run(*settings: str) -> Done:
    """A training; without XLA, unless it is what is looked at."""
    return Done(**vars(trained("sample_seconds=0.2", "xla=off", *settings, timeout=500)))


def by_xla(gpu: Gpu) -> None:
    """Skip where XLA of this TensorFlow crashes on the chip, which is told before a training begins."""
    if compatibility.xla_aborts(gpu.compute_capability):
        pytest.skip(f"XLA of this TensorFlow has no code for compute capability {gpu.compute_capability}")


def enough(gpu: Gpu, capability: tuple[int, int]) -> None:
    if not gpu.compute_capability or gpu.compute_capability < capability:
        pytest.skip(f"needs compute capability {capability}, this GPU has {gpu.compute_capability}")


# Some seconds long, so that the driver's readings see it.
LASTING = ("data=synthetic", "shape=[32,32,3]", "samples=1024", "batch_size=32", "cache=memory", "steps_per_epoch=300")


def test_variables_live_on_the_gpu_and_the_allocators_peak_is_within_what_the_driver_sees(gpu: Gpu) -> None:
    done = on(gpu, *LASTING, "epochs=2")
    assert done.code == 0, done.errors
    started = done.only("started")
    assert all("GPU:0" in place for place in started["actual"]["variables_on"])
    assert done.otherwise() == []
    summary = done.only("finished")["summary"]
    assert 0 < summary["peak_memory_bytes"] <= done.memory(gpu)[1]
    if not gpu.mig:  # NVML has no utilization of instances
        assert 0 < summary["gpu_busy_mean"] <= 1
    assert 10 < summary["gpu_power_mean_w"] < 2000


def test_single_opens_one_of_several_gpus_and_mirrored_trains_on_all(gpus: tuple[Gpu, ...]) -> None:
    if len(gpus) < 2:
        pytest.skip("needs two GPUs that TensorFlow can use")
    single = run(*LASTING, "epochs=1", "visible=all", "kind=single")
    assert single.code == 0, single.errors
    assert single.only("started")["gpus"] == [gpus[0].uuid]
    assert [device["index"] for device in single.only("started")["gpu_devices"]] == [gpus[0].index]
    assert single.otherwise() == []
    for other in gpus[1:]:
        before, most = single.memory(other)
        assert most - before < 100 * MB, f"GPU {other.index} does not train, and yet something is taken of it"
    mirrored = run(*LASTING, "epochs=2", "visible=all", "kind=mirrored")
    assert mirrored.code == 0, mirrored.errors
    assert mirrored.only("started")["gpus"] == [gpu.uuid for gpu in gpus]
    assert mirrored.only("started")["replicas"] == len(gpus)
    assert mirrored.losses()[1] < mirrored.losses()[0]


def test_visible_none_trains_on_the_cpu(gpu: Gpu) -> None:
    done = run("visible=none", "epochs=1", "steps_per_epoch=3")
    assert done.code == 0, done.errors
    assert all("CPU:0" in name for name in done.only("started")["devices"])


def test_visible_takes_a_uuid(gpu: Gpu) -> None:
    done = run(f"visible={gpu.uuid}", "epochs=1", "steps_per_epoch=3")
    assert done.code == 0, done.errors
    assert len(done.only("started")["devices"]) == 1


def test_memory_growth_takes_what_is_needed_and_without_it_nearly_all_is_taken(gpu: Gpu) -> None:
    assert gpu.memory_total_bytes
    growing = on(gpu, *LASTING, "epochs=1", "memory_growth=on")
    before, most = growing.memory(gpu)
    assert most - before < 1000 * MB + BESIDE
    assert growing.only("started")["actual"]["memory_growth"] is True
    taking = on(gpu, *LASTING, "epochs=1", "memory_growth=off")
    before, most = taking.memory(gpu)
    free = gpu.memory_total_bytes - before - RESERVED
    assert most - before > 0.8 * free
    assert taking.only("started")["actual"]["memory_growth"] is False
    (device,) = taking.only("started")["gpu_devices"]
    assert 0.9 * device["memory_limit_bytes"] < most - before < device["memory_limit_bytes"] + BESIDE


def test_memory_limit_bounds_what_the_driver_sees(gpu: Gpu) -> None:
    done = on(gpu, *LASTING, "epochs=1", "memory_limit_mb=2048")
    assert done.code == 0, done.errors
    before, most = done.memory(gpu)
    assert 2048 * MB * 0.9 < most - before < 2048 * MB + BESIDE


def test_logical_devices_are_partitions_of_one_gpu(gpu: Gpu) -> None:
    partitions = ("memory_limit_mb=2048", "logical_devices=2", "strategy.kind=mirrored")
    done = on(gpu, *LASTING, "epochs=2", *partitions)
    assert done.code == 0, done.errors
    started = done.only("started")
    assert [name.rsplit("/", 1)[-1] for name in started["devices"]] == ["device:GPU:0", "device:GPU:1"]
    assert started["replicas"] == 2
    before, most = done.memory(gpu)
    assert 2 * 2048 * MB * 0.9 < most - before < 2 * 2048 * MB + BESIDE
    assert done.losses()[1] < done.losses()[0]


@pytest.mark.parametrize("xla", ["off", "on"])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_each_precision_learns_with_and_without_xla(policy: str, xla: str, gpu: Gpu) -> None:
    enough(gpu, {"float32": (0, 0), "mixed_float16": (7, 0), "mixed_bfloat16": (8, 0)}[policy])
    if xla == "on":
        by_xla(gpu)
    done = on(gpu, "epochs=3", f"policy={policy}", f"xla={xla}", "drop_remainder=on", "steps_per_execution=4")
    assert done.code == 0, done.errors
    first, *_, last = done.losses()
    assert last < 0.7 * first
    actual = done.only("started")["actual"]
    assert actual["jit_compile"] is (xla == "on")
    assert policy.removeprefix("mixed_") in actual["compute_dtypes"]


def test_tf32_rounds_float32_products(gpu: Gpu, tmp_path: Path) -> None:
    enough(gpu, (8, 0))
    program = """
import sys
import numpy as np
from tests.support.training import options
from gputui.engine.trainer.setup import devices, environment
wanted = options(f"tf32={sys.argv[1]}")
environment.prepare(wanted)
devices.configure(wanted)
import tensorflow as tf
a = np.random.default_rng(0).standard_normal((1024, 1024))
product = tf.linalg.matmul(tf.constant(a, tf.float32), tf.constant(a, tf.float32)).numpy()
print(np.abs(product - a @ a).max() / np.abs(a @ a).max())
"""

    def error(tf32: str) -> float:
        command = [sys.executable, "-c", program, tf32]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ)
        return float(done.stdout.split()[-1])

    assert error("off") < 2e-6
    assert error("on") > 2e-5


@pytest.mark.parametrize("xla", ["off", "on"])
def test_memory_that_runs_out_is_told_with_the_batch_size_and_exit_code_3(xla: str, gpu: Gpu) -> None:
    if xla == "on":
        by_xla(gpu)
    # The first layer's output alone is 2048 x 64 x 64 x 32 floats: 1 GB.
    limited = ("memory_limit_mb=512", "drop_remainder=on", f"xla={xla}")
    done = on(gpu, "data=synthetic", "shape=[64,64,3]", "batch_size=2048", "samples=8192", "epochs=1", *limited)
    assert done.code == 3
    finished = done.only("finished")
    assert finished["outcome"] == "oom"
    error = finished["summary"]["error"]
    assert "out of memory at batch size 2048" in error["message"]
    assert "input.batch_size=1024" in error["hint"]
    assert "Traceback" not in done.errors
