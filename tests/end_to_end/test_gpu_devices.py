"""Which GPUs a training opens and tells, through the front door, on stand-ins for GPUs (support/fakegpu)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.telemetry.machine import Gpu, Machine
from gputui.engine.trainer.common.faults import TrainerError
from gputui.engine.trainer.setup.library_log import LibraryLog
from gputui.engine.trainer.setup.no_gpu import require_gpus

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import Finished, happened, trained
from tests.support.training import options as wanted

pytest_plugins = ("tests.support.fakegpu.fixture",)

MB = 1024**2
SHORT = ("workload.model=mlp", "epochs=1", "steps_per_epoch=3", "validation_split=0", "sample_seconds=0.2")


@dataclass(frozen=True)
class Done(Finished):
    """What these tests look at in a finished run."""

    @property
    def warnings(self) -> list[str]:
        return [event["message"] for event in self.of("warning")]

    @property
    def most_used(self) -> list[int]:
        """The most memory that the driver has seen in use, by GPU."""
        readings = [event["gpus"] for event in self.of("gpu")]
        return [max(gpu["memory_used_bytes"] for gpu in of_one) for of_one in zip(*readings, strict=True)]


def train(environment: dict[str, str], *settings: str) -> Done:
    return Done(**vars(trained(*SHORT, *settings, env=os.environ | environment)))


def test_single_opens_the_one_gpu_that_trains_beside_a_display_card_that_comes_first(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=3, multiprocessors=(3, 132, 132))
    done = train(boxes, "memory_growth=false")
    assert done.code == 0, done.errors
    assert done.warnings == []
    started = done.only("started")
    assert started["gpus"] == ["GPU-0000-1"]
    (gpu,) = started["gpu_devices"]
    limit = gpu.pop("memory_limit_bytes")
    assert gpu == {
        "device": "/device:GPU:0", "pci_bus_id": "00000000:02:00.0", "uuid": "GPU-0000-1", "index": 1,
        "name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "memory_total_bytes": 8192 * MB, "mig": False,
    }  # fmt: skip
    # TensorFlow keeps something back for the system, and without growth takes the rest of the one GPU.
    assert 0.9 * 8192 * MB < limit < 8192 * MB
    assert [used >= limit * 0.99 for used in done.most_used] == [False, True, False]
    assert done.most_used[0] == done.most_used[2] == 0


def test_mirrored_over_two_of_four_opens_these(fakegpu: FakeGpu, tmp_path: Path) -> None:
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=4, words="mem_used=4096@2")
    done = train(boxes, "kind=mirrored", "strategy.devices=3,1")
    assert done.code == 0, done.errors
    assert done.warnings == []
    started = done.only("started")
    assert done.warnings == []
    assert started["actual"]["memory_growth"] is True
    assert started["replicas"] == 2
    assert started["gpus"] == ["GPU-0000-3", "GPU-0000-1"]
    assert [gpu["device"] for gpu in started["gpu_devices"]] == ["/device:GPU:1", "/device:GPU:0"]
    # Memory grows as it is needed, up to what TensorFlow may take.
    assert all(gpu["memory_limit_bytes"] > 7000 * MB for gpu in started["gpu_devices"])
    assert done.most_used[0] == 0
    assert done.most_used[2] == 4096 * MB
    assert all(0 < done.most_used[place] < 1024 * MB for place in (1, 3))


def test_partitions_share_what_others_have_left_and_run_out_of_it(fakegpu: FakeGpu, tmp_path: Path) -> None:
    # The driver's second GPU is the first that CUDA shows, and TensorFlow logs nothing of its devices.
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=2, settings="used=7680", words="mem_used=7680")
    quiet = {"CUDA_VISIBLE_DEVICES": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    large = ("workload.model=cnn", "data=synthetic", "shape=[64,64,3]", "batch_size=512", "samples=1024")
    done = train(boxes | quiet, "kind=mirrored", "logical_devices=2", *large)
    started = done.only("started")
    assert started["gpus"] == ["GPU-0000-1"]
    assert started["devices"] == ["/device:GPU:0", "/device:GPU:1"]
    (gpu,) = started["gpu_devices"]
    assert 0.85 * 512 * MB < gpu["memory_limit_bytes"] <= 0.9 * 512 * MB
    assert done.warnings == []
    assert done.code == 3
    assert "out of memory at batch size 512" in done.only("finished")["summary"]["error"]["message"]


def test_gpus_that_tensorflow_cannot_use_end_the_training_before_it_begins(fakegpu: FakeGpu, tmp_path: Path) -> None:
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=8, in_tensorflow=0) | {"FAKE_CUDA": "SYSTEM_NOT_READY"}
    done = train(boxes)
    assert done.code == 1
    error = done.only("finished")["summary"]["error"]
    assert error["kind"] == "device"
    assert "the driver shows 8 GPU(s), but TensorFlow can use none of them" in error["message"]
    assert "NVLink switches" in error["message"]
    assert "nvidia-fabricmanager" in error["hint"]
    assert "device.visible=none" in error["hint"]


def test_the_cpu_trains_where_it_is_meant_and_a_gpu_by_name_must_be_there() -> None:
    class Silent(LibraryLog):
        def text(self) -> str:
            return ""

    gpu = Gpu(0, "GPU-a", "A GPU", (9, 0), 80 * 1024**3)
    box = Machine((gpu,), "", 1, 1, driver="580.10")
    without_nvml = Machine((), "no NVML", 1, 1, missing="no NVML")
    require_gpus(wanted("device.visible=none"), box, 0, [], Silent())
    require_gpus(wanted(), without_nvml, 0, [], Silent())
    old = Machine((Gpu(0, "GPU-b", "A card for the screen", (5, 2), 2 * 1024**3),), "", 1, 1, driver="580.10")
    for seen in (0, 1):
        require_gpus(wanted(), old, seen, [], Silent())
    none: list[int] = []
    for options, machine, seen, said in (
        (wanted("device.visible=0"), without_nvml, 0, "asks for 1 GPU(s), but TensorFlow can use 0"),
        (wanted(), box, 0, "the driver shows 1 GPU(s), but TensorFlow can use none of them"),
        (wanted("device.visible=0"), without_nvml, 1, "TensorFlow sees 1 GPU(s), but their chips are too old"),
    ):
        with pytest.raises(TrainerError, match=re.escape(said)):
            require_gpus(options, machine, seen, none, Silent())


def test_a_script_reports_its_gpus_without_nvml(fakegpu: FakeGpu, tmp_path: Path, home: Path) -> None:
    """TensorFlow and CUDA know their chip and their place, and how much TensorFlow may take of them."""
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=3, words="init=9") | {"CUDA_VISIBLE_DEVICES": "2,0"}
    program = (
        "import keras, numpy as np, tensorflow as tf\n"
        "from gputui.engine import Monitor\n"
        "x = np.zeros((64, 4), 'float32')\n"
        "def fit():\n"
        "    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse', jit_compile=False)\n"
        "    model.fit(x, x[:, :1], batch_size=16, verbose=0, callbacks=[Monitor()])\n"
        "fit()\n"
        "with tf.distribute.MirroredStrategy().scope():\n"
        "    fit()\n"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, env=os.environ | boxes, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    both = [happened(run, "started", "warning") for run in runs.all_runs()]
    alone, mirrored = sorted((started for (started,) in both), key=lambda started: len(started["gpus"]))
    assert alone["gpus"] == ["0000:03:00.0"]
    assert mirrored["gpus"] == ["0000:03:00.0", "0000:01:00.0"]
    for gpu in (*alone["gpu_devices"], *mirrored["gpu_devices"]):
        assert (gpu["index"], gpu["name"], gpu["compute_capability"]) == (None, "NVIDIA H100 80GB HBM3", [9, 0])
        assert 0.9 * 8192 * MB < gpu["memory_limit_bytes"] < gpu["memory_total_bytes"] == 8192 * MB
