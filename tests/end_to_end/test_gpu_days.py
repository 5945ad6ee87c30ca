"""What happens to trainings on a box of eight GPUs (support/fakegpu) in the course of a day: GPUs that become slow, are
shared, lost, or whose driver is loaded again, memory that runs out, a home without room.

Each scenario looks at what a user sees: the lines of the command, its exit status, result, list, diagnosis, live view.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.runs import Run, checkpoint_files
from gputui.tui.screens.live.screen import LiveScreen

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import ended, gputui, happened, opened, step, until
from tests.support.small_disk import no_writing
from tests.support.tiny import Tiny, text_of, wait_for

pytest_plugins = ("tests.support.fakegpu.fixture",)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running", "forked_gpu_trainers")]

MLP = ("model=mlp", "width=0.05", "xla=off", "validation_split=0", "sample_seconds=0.2", "numa=off")
MIRRORED = ("kind=mirrored", "prefetch_to_device=off")
# Compares all samples of a part of a batch with each other: in evaluation four times.
EVALUATES = """
import keras, numpy as np
from keras import layers, ops

class Pairs(layers.Layer):
    def call(self, x, training=None):
        wide = x if training else ops.tile(x, (1, 4))
        apart = ops.expand_dims(wide, 0) - ops.expand_dims(wide, 1)
        return x + 0 * ops.mean(ops.tanh(apart))

def build(context):
    x = np.random.default_rng(0).normal(size=(2048, 32)).astype("float32")
    model = keras.Sequential([keras.Input((32,)), layers.Dense(32), Pairs(), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return {"model": model, "train": (x, x[:, :1]), "validation": (x, x[:, :1])}
"""


class Box:
    """Eight GPUs, of which the driver tells something else from the moment on in which it is said."""

    def __init__(self, fakegpu: FakeGpu, folder: Path, settings: str = "", words: str = "") -> None:
        self._fakegpu, self._folder = fakegpu, folder
        self.words = f"also={folder / 'also'} {words}"
        self.environment = fakegpu.environment(folder, gpus=8, settings=settings, words=self.words)

    def driver_tells(self, words: str) -> None:
        new = self._folder / "also.new"
        new.write_text(f"{words}\n")
        new.rename(self._folder / "also")

    def without(self, lost: int) -> dict[str, str]:
        """Its environment where TensorFlow sees only the GPUs before this one."""
        return self._fakegpu.environment(self._folder, gpus=8, words=self.words, in_tensorflow=lost)

    @contextmanager
    def stranger(self, gpu: int, mib: int, percent: int) -> Iterator[None]:
        """Another program, which uses a GPU."""
        with subprocess.Popen(["sleep", "600"]) as program:
            use = self._folder / f"use.{program.pid}"
            use.write_text(f"{gpu} {mib} {percent}\n")
            yield
            use.unlink()
            program.kill()


def words_of(*settings: str) -> list[str]:
    return ["--preset", "quickstart", *(word for setting in settings for word in ("--set", setting))]


def warned(run: Run, kind: str) -> list[str]:
    return [event["message"] for event in happened(run, "warning") if event["kind"] == kind]


def diagnosed(run: Run) -> str:
    done = gputui("diagnose", run.id)
    assert done.returncode == 0, done.stderr
    return done.stdout


def looked_at(run: Run, *what: str) -> str:
    """The live view of a run, as soon as all of this stands there."""

    async def look() -> str:
        async with Tiny(lambda: LiveScreen(run)).run_test(size=(200, 60)) as pilot:
            await wait_for(pilot, lambda: all(words in text_of(pilot.app) for words in what))
            return text_of(pilot.app)

    return asyncio.run(look())


def reads(run: Run, condition: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Wait until the last readings of the GPUs are so."""
    until(lambda: (found := happened(run, "gpu")) and condition(found[-1]["gpus"]))


def more_readings(run: Run, count: int) -> None:
    before = len(happened(run, "gpu"))
    until(lambda: len(happened(run, "gpu")) >= before + count)


def test_a_gpu_is_throttled_one_is_shared_the_driver_is_loaded_again_and_the_home_is_full(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    """All of it in one training on two of the eight, which goes on until it is stopped."""
    box = Box(fakegpu, tmp_path / "box", settings="kernel_us=500")
    settings = (*MLP, *MIRRORED, "strategy.devices=6,7", "epochs=1", "steps_per_epoch=1000000", "run.checkpoint=10")
    with opened(*words_of(*settings), env=os.environ | box.environment) as command:
        run = until(lambda: next(iter(runs.all_runs()), None))
        until(lambda: step(run) >= 10)

        box.driver_tells("throttle=72@7 clock=900@7 slowed=0,80@7")
        reads(run, lambda gpus: gpus[7]["throttle"])
        more_readings(run, 20)
        with box.stranger(7, 4096, 60):
            reads(run, lambda gpus: "sleep" in [process["name"] for process in gpus[7].get("processes", ())])
            found = until(lambda: "No verdict" not in (words := diagnosed(run)) and words)
        # The driver's count of slowed time begins anew, and is ahead of the clock.
        assert re.search(r"slows itself down \d\d? % of the time", found), found
        assert "the others wait for GPU 7" in found
        assert "(hardware thermal)" in found
        assert "another program uses it (sleep)" in found

        box.driver_tells("loaded=2 init=9")
        until(lambda: warned(run, "gpu_lost"))
        before = step(run)
        looked_at(run, "none of the GPUs answers any more", "no readings")
        until(lambda: step(run) > before)  # it goes on without readings
        box.driver_tells("loaded=2")
        reads(run, lambda gpus: gpus[7].get("busy") is not None)
        (back,) = until(lambda: warned(run, "gpu_back"))
        assert back == "all GPUs can be read again"

        with no_writing(*(run.status[f"{role}_pid"] for role in ("engine", "trainer"))):
            until(lambda: time.time() - run.status["heartbeat"] > 4)
        until(lambda: "there is a checkpoint again" in str(happened(run, "warning")))
        assert "there is a checkpoint again" in looked_at(run, "training", "GPU 7")
        assert gputui("stop", run.id).returncode == 0
        out, errors = command.communicate(timeout=60)
    assert command.returncode == 130, errors
    for said in (
        "warning: none of the GPUs answers any more: ",
        "warning: all GPUs can be read again",
        "File too large",
        f"stopped; everything is in {run.path}",
        f"gputui resume {run.name} continues from the last checkpoint",
    ):
        assert said in out, out
    assert out.count("answers any more") == 1, "one warning for all of them"
    assert run.result is not None
    assert (run.result["outcome"], run.result["error"]) == ("stopped", None)
    assert checkpoint_files.whole_step(run.file("checkpoints")) == run.result["steps"]
    assert 0 < run.result["slowed_by_heat"] <= 1
    assert "stopped" in gputui("runs").stdout


def test_a_gpu_is_lost_and_the_training_goes_on_without_it(
    fakegpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    fallen = tmp_path / "box" / "use.lost"
    words = f"lost_when={fallen}@7 xid=79@7 xid_when={fallen}"
    box = Box(fakegpu, tmp_path / "box", settings="lost_after=4500", words=words)
    settings = (*MLP, *MIRRORED, "epochs=2", "run.checkpoint=2", "batch_size=40")
    crashed = gputui(*words_of(*settings), env=os.environ | box.environment)
    run = runs.find("latest")
    assert crashed.returncode == 1, crashed.stderr
    for said in (
        "GPU 7 (NVIDIA H100 80GB HBM3): the NVIDIA driver has reported Xid 79, it has fallen off the bus",
        "the driver has lost GPU 7: the trainer ended with signal SIGABRT",
        f"; everything is in {run.path}",
        f"gputui resume {run.name} continues from the last checkpoint",
    ):
        assert said in crashed.stdout, crashed.stdout
    assert run.result is not None
    assert (run.result["outcome"], run.result["error"]["kind"]) == ("crashed", "gpu_lost")
    saved = checkpoint_files.whole_step(run.file("checkpoints"))
    assert saved is not None
    assert run.result["steps"] >= saved, "what is saved was trained"
    assert " crashed " in gputui("runs").stdout
    assert "the driver has lost GPU 7" in diagnosed(run)
    view = looked_at(run, "✗ crashed", "R Resume")
    assert "the driver has lost GPU 7" in view

    anew = gputui(*words_of(*settings), "--dry-run", env=os.environ | box.without(7))
    assert anew.returncode == 2
    assert "GPU 7: the GPU is lost" in anew.stderr
    resumed = gputui("resume", run.id, env=os.environ | box.without(7))
    assert resumed.returncode == 0, resumed.stdout
    assert "on GPU:0, GPU:1, 2 replicas; global batch 80" in resumed.stdout
    assert "the driver has lost GPU 7, and TensorFlow sees 2 GPU(s)" in resumed.stdout
    assert "the run goes on with 2 replicas, and had 3: a step has 80 samples instead of 120" in resumed.stdout
    assert ended(run)["outcome"] == "ok"
    assert happened(run, "started")[-1]["resumed_at_step"] == saved
    assert happened(run, "started")[-1]["gpus"] == ["GPU-0000-5", "GPU-0000-6"]


def test_memory_runs_out_in_the_first_step_and_in_the_evaluation(fakegpu: FakeGpu, tmp_path: Path) -> None:
    (tmp_path / "evaluates.py").write_text(EVALUATES)
    box = os.environ | Box(fakegpu, tmp_path / "box").environment
    settings = (f"entry={tmp_path}/evaluates.py:build", "batch_size=1024", "epochs=2", "memory_limit_mb=100",
                "run.checkpoint=1", "seed=3", "sample_seconds=0.2", "numa=off")  # fmt: skip
    done = gputui(*words_of(*settings, "on_oom=accumulate"), env=box)
    assert done.returncode == 0, done.stdout + done.stderr
    run = runs.find("latest")
    first, second = ended(run)["memory_answers"]
    assert "out of memory in the first steps: the training begins again" in done.stdout
    assert "with run.checkpoint set" not in done.stdout, "it is set"
    assert "the training goes on from step 1 with each batch of 1024 in 4 parts" in done.stdout, done.stdout
    assert (first["resumes_at_step"], second["resumes_at_step"]) == (None, 1)
    assert f"done; everything is in {run.path}" in done.stdout

    stopped = gputui(*words_of(*settings, "micro_batches=2"), env=box)
    run = runs.find("latest")
    assert stopped.returncode == 3
    assert "out of memory in the evaluation at batch size 1024: " in stopped.stdout
    assert "workload.width" not in stopped.stdout, "the model is their own"
    assert f"; everything is in {run.path}" in stopped.stdout
    assert ended(run)["outcome"] == "oom"
    assert " oom " in gputui("runs").stdout
    assert "out of memory in the evaluation" in diagnosed(run)
    looked_at(run, "✗ out of memory", "try input.batch_size=512")
