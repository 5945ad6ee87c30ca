"""Trainings on stand-ins for GPUs (support/fakegpu), through the front door: which GPUs they open and tell, what the
diagnosis knows of those, and GPUs that are too small, lost, or hang.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.diagnosis import collector, of_run
from gputui.engine.diagnosis.verdict import remedies
from gputui.engine.job.machine_gpus import Fault, Gpu, Machine
from gputui.engine.process.known_failures import RESUMED
from gputui.engine.runs import Run
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.setup.devices import require_gpus
from gputui.engine.trainer.setup.gpu_identity import LibraryLog

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import Finished, ended, events, gputui, happened, opened, trained, until
from tests.support.own import PROGRAMS
from tests.support.training import options as wanted

pytest_plugins = ("tests.support.fakegpu.fixture",)

pytestmark = pytest.mark.usefixtures("nothing_left_running")

MB = 1024**2
SHORT = ("model=mlp", "width=0.05", "epochs=1", "steps_per_epoch=3", "validation_split=0", "sample_seconds=0.2")
# Goes on until it is stopped.
BUSY = ("model=mlp", "width=0.05", "epochs=1", "steps_per_epoch=1000000", "sample_seconds=0.1", "xla=off",
        "validation_split=0")  # fmt: skip
# Each of its 20 activations of a batch takes 4 MiB.
LARGE = (f"entry={PROGRAMS / 'runs_out.py'}:build", f"workload.folder={PROGRAMS}", "batch_size=1024",
         "args={samples: 1024, units: 1024, depth: 20}", "validation_split=0", "seed=3")  # fmt: skip


@dataclass(frozen=True)
class Done(Finished):
    """What these tests look at in a finished run."""

    @property
    def warnings(self) -> list[str]:
        """But that readings take long, as they do on a machine with much else to do."""
        return [event["message"] for event in self.of("warning") if event["kind"] != "telemetry_slow"]


def most_used(readings: list[dict[str, Any]]) -> list[int]:
    """The most memory that the driver has seen in use, by GPU."""
    of_each = zip(*(event["gpus"] for event in readings), strict=True)
    return [max(gpu["memory_used_bytes"] for gpu in of_one) for of_one in of_each]


def train(environment: dict[str, str], *settings: str) -> Done:
    return Done(**vars(trained(*SHORT, *settings, env=os.environ | environment)))


def stopped_when_watched(*words: str, environment: dict[str, str]) -> Done:
    """A training that was stopped when it had taken steps after which the engine had read its GPUs several times."""
    with opened("--preset", "quickstart", *words, env=os.environ | environment) as command:
        until(lambda: command.poll() is not None or any(map(was_watched, runs.all_runs())))
        assert command.poll() is None, command.communicate()
        runs.request_stop(runs.find("latest"))
        out, errors = command.communicate(timeout=120)
    assert command.returncode == 130, out + errors
    return Done(130, events(out) if "--json" in words else [], errors)


def was_watched(run: Run) -> bool:
    first = next((event["t"] for event in happened(run, "progress") if event["step"] >= 10), math.inf)
    return len([event for event in happened(run, "gpu") if event["t"] > first]) >= 3


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_mirrored_over_two_of_four_opens_these(fakegpu: FakeGpu, tmp_path: Path) -> None:
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=4, words="mem_used=4096@2")
    words = [word for setting in (*BUSY, "kind=mirrored", "strategy.devices=3,1") for word in ("--set", setting)]
    done = stopped_when_watched("--json", *words, environment=boxes)
    started = done.only("started")
    assert done.warnings == []
    assert started["actual"]["memory_growth"] is True
    assert started["replicas"] == 2
    assert started["gpus"] == ["GPU-0000-3", "GPU-0000-1"]
    assert [gpu["device"] for gpu in started["gpu_devices"]] == ["/device:GPU:1", "/device:GPU:0"]
    # Memory grows as it is needed, up to what TensorFlow may take.
    assert all(gpu["memory_limit_bytes"] > 7000 * MB for gpu in started["gpu_devices"])
    most = most_used(done.of("gpu"))
    assert most[0] == 0
    assert most[2] == 4096 * MB
    assert all(0 < most[place] < 1024 * MB for place in (1, 3))


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_partitions_share_what_others_have_left_and_run_out_of_it(fakegpu: FakeGpu, tmp_path: Path) -> None:
    # The driver's second GPU is the first that CUDA shows, and TensorFlow logs nothing of its devices.
    boxes = fakegpu.environment(tmp_path / "gpus", gpus=2, settings="used=8064", words="mem_used=8064")
    quiet = {"CUDA_VISIBLE_DEVICES": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = train(boxes | quiet, "kind=mirrored", "logical_devices=2")
    assert done.code == 0, done.errors
    started = done.only("started")
    assert started["gpus"] == ["GPU-0000-1"]
    assert started["devices"] == ["/device:GPU:0", "/device:GPU:1"]
    (gpu,) = started["gpu_devices"]
    assert 0.85 * 128 * MB < gpu["memory_limit_bytes"] <= 0.9 * 128 * MB
    assert done.warnings == []
    one = os.environ | boxes | {"CUDA_VISIBLE_DEVICES": "1"}
    replicas = ("kind=mirrored", "logical_devices=2", "args={samples: 2048, units: 1024, depth: 20}")
    too_large = trained(*LARGE, *replicas, "epochs=1", env=one)
    assert too_large.code == 3, too_large.errors
    assert too_large.only("started")["replicas"] == 2
    assert "out of memory at batch size 1024" in too_large.only("finished")["summary"]["error"]["message"]


def test_the_cpu_trains_where_it_is_meant_and_a_gpu_by_name_must_be_there() -> None:
    class Silent(LibraryLog):
        def text(self) -> str:
            return ""

    gpu = Gpu(0, "GPU-a", "A GPU", (9, 0), 80 * 1024**3)
    box = Machine((gpu,), "", 1, 1, driver="580.10")
    without_nvml = Machine((), "no NVML", 1, 1, missing="no NVML")
    without_driver = Machine((), "no driver", 1, 1, fault=Fault("warning", "GPU", "no driver", "install one"))
    stopped = Machine((), "not loaded", 1, 1, fault=Fault("error", "driver", "not loaded", "load it"))
    mistaken = replace(box, visible_devices="GPU-9")
    for there in (box, without_nvml, stopped, mistaken):
        require_gpus(wanted("device.visible=none"), there, 0, [], Silent())
        require_gpus(wanted(), replace(there, visible_devices=""), 0, [], Silent())
    require_gpus(wanted(), without_driver, 0, [], Silent())
    require_gpus(wanted(), without_nvml, 1, [0], Silent())
    old = Machine((Gpu(0, "GPU-b", "A card for the screen", (5, 2), 2 * 1024**3),), "", 1, 1, driver="580.10")
    require_gpus(wanted("device.visible=none"), old, 0, [], Silent())
    require_gpus(wanted(), replace(old, visible_devices=""), 0, [], Silent())
    none: list[int] = []
    for options, machine, seen, said in (
        (wanted("device.visible=0"), without_nvml, 0, "asks for 1 GPU(s), but TensorFlow can use 0"),
        (wanted(), without_nvml, 0, "this machine has GPUs that the driver does not show (no NVML), nor"),
        (wanted(), stopped, 0, "this machine has GPUs that the driver does not show (not loaded)"),
        (wanted(), mistaken, 0, "CUDA shows none of this machine's GPUs"),
        (wanted(), box, 0, "the driver shows 1 GPU(s), but TensorFlow can use none of them"),
        (wanted("device.visible=0"), without_nvml, 1, "TensorFlow sees 1 GPU(s), but their chips are too old"),
        (wanted(), old, 1, "TensorFlow sees 1 GPU(s), but their chips are too old: it has no code for them"),
        (wanted(), old, 0, "the chips of GPU 0 (A card for the screen) are too old: TensorFlow has no code for them"),
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


# ---- boxes of eight -----------------------------------------------------------------------------

# A kernel takes long enough for the GPU to be what is waited for.
KERNELS = "kernel_us=1500"


def trained_on_eight(fakegpu: FakeGpu, folder: Path, *settings: str, sizes: Sequence[int] = ()) -> Run:
    eight = fakegpu.environment(folder, gpus=8, settings=KERNELS, multiprocessors=sizes)
    arguments = [word for setting in (*BUSY, *settings) for word in ("--set", setting)]
    stopped_when_watched(*arguments, environment=eight)
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


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_single_opens_the_one_gpu_that_trains_beside_a_display_card_and_the_diagnosis_knows_the_idle_ones(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    """A box of eight, of which the first is the card of the display; memory does not grow."""
    sizes = (3, *[132] * 7)
    run = trained_on_eight(fakegpu, tmp_path / "gpus", "memory_growth=false", sizes=sizes)
    (started,) = happened(run, "started")
    assert started["gpus"] == ["GPU-0000-1"]
    (gpu,) = started["gpu_devices"]
    limit = gpu.pop("memory_limit_bytes")
    assert gpu == {
        "device": "/device:GPU:0", "pci_bus_id": "00000000:02:00.0", "uuid": "GPU-0000-1", "index": 1,
        "name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "memory_total_bytes": 8192 * MB, "mig": False,
    }  # fmt: skip
    # TensorFlow keeps something back for the system, and without growth takes the rest of the one GPU.
    assert 0.9 * 8192 * MB < limit < 8192 * MB
    most = most_used(happened(run, "gpu"))
    assert [used >= limit * 0.99 for used in most] == [place == 1 for place in range(8)]
    assert sum(most) == most[1], "the others have nothing taken"
    found, measured = of_run(run), collector.read(run)
    assert "imbalance" not in (found.verdict, *found.others)
    assert (measured.on_gpu, measured.gpus, measured.idle_gpus, measured.busy_gap) == (True, 1, 7, None)
    assert measured.busy_mean is not None
    assert measured.busy_mean > 1 / 8, "idle GPUs do not count"
    assert run.result is not None
    assert measured.memory_peak == pytest.approx(run.result["peak_memory_bytes"] / limit)
    assert run.result["gpu_energy_wh"] > 0
    assert run.result["sm_clock_mean_mhz"] == 1980
    assert run.result["first_step_memory_bytes"] > 0
    more = [dict(remedy.changes) for remedy in remedies(measured, ["compute_bound"]) if remedy.step == "gpus"]
    assert more == [{"device.visible": "all", "strategy.kind": "mirrored"}]
    assert several(found) in ([], more)


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_in_an_allocation_of_two_of_eight_mirrored_trains_on_these_and_proposes_no_other(
    fakegpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CUDA_VISIBLE_DEVICES", "4,5"), ("SLURM_JOB_ID", "77"), ("SLURM_JOB_GPUS", "4,5")):
        monkeypatch.setenv(name, value)
    run = trained_on_eight(fakegpu, tmp_path / "gpus", "strategy.kind=mirrored")
    (started,) = happened(run, "started")
    assert started["gpus"] == ["GPU-0000-4", "GPU-0000-5"]
    assert [gpu["index"] for gpu in started["gpu_devices"]] == [4, 5]
    assert started["replicas"] == 2
    assert used(run) == {4, 5}
    measured = collector.read(run)
    assert (measured.gpus, measured.idle_gpus, measured.given_gpus) == (2, 0, (4, 5))
    assert several(of_run(run)) == []


# ---- too small, lost, hanging ---------------------------------------------------------------------


@pytest.mark.usefixtures("forked_gpu_trainers")
@pytest.mark.slow
def test_a_gpu_that_is_lost_is_named_and_the_run_resumes_and_a_gpu_that_hangs_is_found(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    def with_gpus(settings: str) -> dict[str, str]:
        folder = tmp_path / settings.partition("=")[0]
        lost = f"lost_when={folder / 'use.lost'}@0 xid=79@0 xid_when={folder / 'use.lost'}"
        return os.environ | fakegpu.environment(folder, gpus=2, memory_mb=4096, settings=settings, words=lost)

    settings = ("model=mlp", "width=0.05", "epochs=50", "run.checkpoint=5", "hang_seconds=300", "xla=false",
                "sample_seconds=0.2")  # fmt: skip
    wanted = ["--preset", "quickstart", *(word for setting in settings for word in ("--set", setting))]
    lost = gputui(*wanted, env=with_gpus("lost_after=2000"))
    run = runs.find("latest")
    assert lost.returncode == 1
    assert run.result is not None
    assert (run.result["outcome"], run.result["error"]["kind"]) == ("crashed", "gpu_lost"), lost.stdout
    assert "the driver has lost GPU 0" in run.result["error"]["message"]
    assert any("has reported Xid 79" in event["message"] for event in happened(run, "warning"))
    assert f"gputui resume {run.name}" in lost.stdout
    preset = run.file("preset.yaml")
    preset.write_text(re.sub(r"hang_seconds: 300(\.0)?\b", "hang_seconds: 5", preset.read_text()))
    hung = gputui("resume", run.id, env=with_gpus("hang_after=2000"))
    result = ended(run)
    assert hung.returncode == 1
    assert [event["resumed_at_step"] for event in happened(run, "started")][1] >= 5
    assert (result["outcome"], result["error"]["kind"]) == ("timeout", "hang"), hung.stdout
    assert "no step was completed" in result["error"]["message"]
    assert RESUMED in run.log_tail(2000)
    assert "in _execute" in "\n".join(run.log_tail(400)), "the log has the stack of the main thread"


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_a_gpu_that_is_too_small_trains_the_whole_batch_in_parts(fakegpu: FakeGpu, tmp_path: Path) -> None:
    """Without a checkpoint from the beginning, and it learns what a GPU with enough memory learns at once."""
    box = os.environ | fakegpu.environment(tmp_path / "gpus")
    done = trained(*LARGE, "epochs=2", "on_oom=accumulate", "memory_limit_mb=64", env=box)
    whole = trained(*LARGE, "epochs=2", env=box)
    assert done.code == whole.code == 0, done.errors
    summary, at_once = (one.only("finished")["summary"] for one in (done, whole))
    answers = summary["memory_answers"]
    assert answers
    assert {one["resumes_at_step"] for one in answers} == {None}
    assert (summary["steps"], summary["global_batch_size"]) == (2, 1024)
    assert 32 * MB < summary["peak_memory_bytes"] < 64 * MB < at_once["peak_memory_bytes"]
    for in_parts, event in zip(done.of("epoch"), whole.of("epoch"), strict=True):
        assert in_parts["metrics"] == pytest.approx(event["metrics"], rel=1e-4)
