"""A training that XLA fails to compile goes on without it where `compile.xla` is auto, and ends with its name where it
is true; on a stand-in GPU for which XLA fails as with an old cuDNN.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from gputui.engine import presets, runs
from gputui.engine.diagnosis import collector
from gputui.engine.export import script
from gputui.engine.process import resuming
from gputui.engine.runs.titles import title

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import trained

pytest_plugins = ("tests.support.fakegpu.fixture",)

pytestmark = pytest.mark.usefixtures("nothing_left_running")

SHORT = ("model=cnn", "width=0.1", "epochs=1", "steps_per_epoch=3", "validation_split=0")
FAILED = "has found no way to compute a convolution with cuDNN"


@pytest.fixture
def failing(fakegpu: FakeGpu, tmp_path: Path) -> dict[str, str]:
    return os.environ | fakegpu.environment(tmp_path / "gpus", settings="xla_fails=1")


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_auto_begins_again_without_xla_and_says_so_everywhere(failing: dict[str, str]) -> None:
    done = trained(*SHORT, "checkpoint=epoch", env=failing)
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
    asked = presets.resolve("quickstart", [*SHORT, "checkpoint=epoch"])
    assert resuming.of_preset(asked, print) == run


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_auto_begins_again_also_after_a_failure_that_may_have_another_cause(fakegpu: FakeGpu, tmp_path: Path) -> None:
    text = "Autotuning failed for HLO: %cudnn-conv.7 with error: INTERNAL: no engine"
    done = trained(*SHORT, env=os.environ | fakegpu.environment(tmp_path / "gpus", settings=f"xla_fails={text}"))
    assert done.code == 0, done.errors
    (warning,) = [event for event in done.of("warning") if event["kind"] == "xla"]
    assert "compile.xla=false" in warning["hint"]
    assert done.only("finished")["summary"]["xla_answer"]["after"] is False


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_true_ends_with_the_name_of_the_failure(failing: dict[str, str]) -> None:
    done = trained(*SHORT, "compile.xla=true", env=failing)
    assert done.code == 1, done.errors
    error = done.only("finished")["summary"]["error"]
    assert (error["kind"], FAILED in error["message"]) == ("xla", True)
    assert "or set compile.xla=false" in error["hint"]
    assert yaml.safe_load(runs.find("latest").file("preset.yaml").read_text())["compile"]["xla"] is True
    assert len(done.of("started")) == 1
