"""Trainings on stand-ins for GPUs (support/fakegpu), through the front door."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.engine import RESUMED, Run, checkpoint_files, collector, presets, resuming, runs, script
from tests.doors.engine import titles_title as title
from tests.end_to_end import gpu_input
from tests.support.fakegpu import FakeGpu
from tests.support.front_door import Finished, ended, events, gputui, happened, opened, trained, until
from tests.support.own import PROGRAMS

MB = 1024**2
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


@pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")
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


@pytest.mark.usefixtures("nothing_left_running")
@pytest.mark.nightly
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
        assert (gpu.index, gpu.name, tuple(gpu.compute_capability)) == (None, "NVIDIA H100 80GB HBM3", (9, 0))
        assert 0.9 * 8192 * MB < gpu.memory_limit_bytes < gpu.memory_total_bytes == 8192 * MB


# ---- too small, lost, hanging ---------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")
@pytest.mark.nightly
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


@pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")
@pytest.mark.nightly
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


@pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")
@pytest.mark.slow
def test_a_gpu_is_lost_and_the_training_goes_on_without_it(
    fakegpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    box, fallen = tmp_path / "box", tmp_path / "box" / "use.lost"
    words = f"lost_when={fallen}@7 xid=79@7 xid_when={fallen}"
    before = os.environ | fakegpu.environment(box, gpus=8, settings="lost_after=4500", words=words)
    after = os.environ | fakegpu.environment(box, gpus=8, words=words, in_tensorflow=7)
    settings = ("model=mlp", "width=0.05", "xla=off", "validation_split=0", "sample_seconds=0.2", "numa=off",
                "epochs=2", "kind=mirrored", "prefetch_to_device=off", "run.checkpoint=2", "batch_size=40")  # fmt: skip
    wanted = ["--preset", "quickstart", *(word for setting in settings for word in ("--set", setting))]
    crashed = gputui(*wanted, env=before)
    run = runs.find("latest")
    assert crashed.returncode == 1, crashed.stderr
    assert "the driver has lost GPU 7: the trainer ended with signal SIGABRT" in crashed.stdout
    assert run.result is not None
    assert (run.result["outcome"], run.result["error"]["kind"]) == ("crashed", "gpu_lost")
    saved = checkpoint_files.whole_step(run.file("checkpoints"))
    assert saved is not None
    assert run.result["steps"] >= saved, "what is saved was trained"
    assert "the driver has lost GPU 7" in gputui("diagnose", run.id).stdout

    anew = gputui(*wanted, "--dry-run", env=after)
    assert (anew.returncode, "GPU 7: the GPU is lost" in anew.stderr) == (2, True)
    resumed = gputui("resume", run.id, env=after)
    assert resumed.returncode == 0, resumed.stdout
    assert "the run goes on with 2 replicas, and had 3: a step has 80 samples instead of 120" in resumed.stdout
    assert ended(run)["outcome"] == "ok"
    assert happened(run, "started")[-1]["resumed_at_step"] == saved
    assert happened(run, "started")[-1]["gpus"] == ["GPU-0000-5", "GPU-0000-6"]


# ---- how batches come to GPUs --------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(fakegpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that trains on GPUs has found; it does so once for all tests here."""
    parts = ("memory", "ahead", "ways", "micro_batches", "first_convolution")
    return gpu_input.told(fakegpu, tmp_path_factory.mktemp("trained"), *parts, settings="conv_scratch=128")


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_how_batches_come_to_the_gpu_makes_no_difference_to_the_result(told: dict[str, Any]) -> None:
    for name, (one, other) in told["ways"].items():
        assert len(one) > 1
        assert other == pytest.approx(one, rel=1e-6), name


@pytest.mark.timeout(600)
@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_a_slow_copy_in_each_step_is_reported_and_gone_when_batches_are_copied_ahead(
    fakegpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The copy of a batch of floats (16 KiB) to a GPU takes 20 ms, a kernel 0.2 ms."""
    slow = "kernel_us=200;copy_gbs=0.0008"
    told = gpu_input.told(fakegpu, tmp_path_factory.mktemp("slow"), "copying", settings=slow)
    within, of_bytes, ahead = (told["copying"][name] for name in ("within", "bytes", "ahead"))
    assert (within["kind"], of_bytes["kind"]) == ("float32", "uint8")
    assert (within["device_batches"], ahead["device_batches"]) == (0, 2)
    assert within["transfer"] > 0.2
    assert within["diagnosis"]["verdict"] == "transfer_bound"
    assert within["diagnosis"]["remedies"][0]["changes"] == {"input.prefetch_to_device": "auto"}
    assert of_bytes["transfer"] * of_bytes["step_ms"]["p50"] < 0.5 * within["transfer"] * within["step_ms"]["p50"]
    assert ahead["step_ms"]["p50"] < within["step_ms"]["p50"]


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_only_the_clock_of_a_sample_keeps_the_host_from_running_ahead_of_the_gpu(told: dict[str, Any]) -> None:
    """Of a GPU that ends nothing: two batches wait there, and two steps are handed over."""
    assert told["ahead"]["plain"] >= 2
    assert told["ahead"]["clocked"] <= 1


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_validation_holds_one_batch_ahead_on_the_gpu_and_training_two(told: dict[str, Any]) -> None:
    for kind in ("single", "mirrored"):
        assert told["memory"][f"{kind} training"] == 1 + 2, told["memory"]
        assert told["memory"][f"{kind} validation"] == 1 + 1, told["memory"]


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_a_copy_that_does_not_fit_on_the_gpu_has_no_time_and_does_not_end_the_training(told: dict[str, Any]) -> None:
    assert told["memory"]["seconds"] is None


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_only_one_part_of_a_batch_is_in_the_gpus_memory(told: dict[str, Any]) -> None:
    assert len(told["micro_batches"]) == 2
    for name, (whole, peak) in told["micro_batches"].items():
        assert peak < 1.3 * whole / 4, (name, whole, peak)


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_what_cudnn_takes_to_choose_its_algorithms_is_no_part_of_the_peak(told: dict[str, Any]) -> None:
    found = told["first_convolution"]
    result, (first, *later) = found["result"], found["allocator"]
    assert result["first_step_memory_bytes"] > 128 * 2**20 > 2 * result["peak_memory_bytes"]
    assert first["first_step"]
    assert later
    for event in later:
        assert not event["first_step"]
        assert event["devices"]["GPU:0"]["peak_bytes"] <= result["peak_memory_bytes"]
    assert found["memory_peak"] < 0.5, "of the first step it is 0.8"


# ---- XLA that fails ------------------------------------------------------------------------------


SHORT_CNN = ("model=cnn", "width=0.1", "epochs=1", "steps_per_epoch=3", "validation_split=0")
FAILED = "has found no way to compute a convolution with cuDNN"


@pytest.fixture
def failing(fakegpu: FakeGpu, tmp_path: Path) -> dict[str, str]:
    return os.environ | fakegpu.environment(tmp_path / "gpus", settings="xla_fails=1")


@pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")
def test_auto_begins_again_without_xla_and_says_so_everywhere(failing: dict[str, str]) -> None:
    done = trained(*SHORT_CNN, "checkpoint=epoch", env=failing)
    assert done.code == 0, done.errors
    run, summary = runs.find("latest"), done.only("finished")["summary"]
    first, second = done.of("started")
    assert (first["actual"]["jit_compile"], second["actual"]["jit_compile"]) == (True, False)
    (told,) = [event for event in done.of("warning") if event["kind"] == "xla"]
    assert told["message"] == "XLA has failed: the training begins again without it"
    assert told["option"] == "compile.xla"
    assert told["hint"].startswith("compile.xla=false begins so: XLA of TensorFlow 2.21")
    assert "nvidia-cudnn-cu12>=9.24" in told["hint"]
    answer = summary["xla_answer"]
    assert (summary["outcome"], summary["steps"], summary["error"]) == ("ok", 3, None)
    assert (answer["before"], answer["after"], answer["resumes_at_step"]) == ("auto", False, None)
    assert FAILED in answer["error"]
    assert str(title(run)).startswith("quickstart: no xla ")
    assert run.file("result-1.json").exists()
    assert not run.file("result-2.json").exists()
    kept = presets.resolve(str(run.file("preset.yaml")))
    assert kept.options.compile.xla is False
    assert "jit_compile=False" in script.to_script(kept)
    assert collector.read(run).xla_reason.startswith("XLA cannot compile this training")
    # A launch that goes on with the newest run of the preset finds it.
    asked = presets.resolve("quickstart", [*SHORT_CNN, "checkpoint=epoch"])
    assert resuming.of_preset(asked, print) == run


@pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")
@pytest.mark.nightly
def test_true_ends_with_the_name_of_the_failure(failing: dict[str, str]) -> None:
    done = trained(*SHORT_CNN, "compile.xla=true", env=failing)
    assert done.code == 1, done.errors
    error = done.only("finished")["summary"]["error"]
    assert (error["kind"], FAILED in error["message"]) == ("xla", True)
    assert "or set compile.xla=false" in error["hint"]
    assert yaml.safe_load(runs.find("latest").file("preset.yaml").read_text())["compile"]["xla"] is True
    assert len(done.of("started")) == 1
