"""Trainings whose truth is known because it was planted: the verdict, the stage it names, and the ablation.

Each trains for real, in this process, until it has measured for a while; only sleeps are planted, in the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import yaml
from gputui.engine.diagnosis import collector, diagnose
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.options import Options
from gputui.engine.trainer.data import pipeline as pipelines
from gputui.engine.trainer.data import source
from gputui.engine.trainer.data.source import Source

from tests.support.planted import SLEEP, slow_load, slow_read
from tests.support.training import Build

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.flaky(reruns=2), pytest.mark.usefixtures("cpus")]
MEASURED = ("measure_seconds=1.2", "epochs=1", "steps_per_epoch=1000000", "validation_split=0")
TINY = ("model=mlp", "width=0.05", "data=synthetic", "shape=[8, 8, 1]", "samples=64", "batch_size=16", "shuffle=off")
LONGER = "measure_seconds=2.1"  # what is told where no cause stands out
Plant = Callable[[Source], Source]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Plant], None]:
    """Makes synthetic data slow in one place."""

    def into(change: Plant) -> None:
        def changed(options: Options, seed: int) -> Source:
            return change(source.synthetic(options, seed))

        monkeypatch.setitem(pipelines.SOURCES, "synthetic", changed)

    return into


def _measured(build: Build, *settings: str) -> Measurements:
    """Of a training with these settings that has measured for a while."""
    training = build(*MEASURED, *settings)
    training.run.file("preset.yaml").write_text(yaml.safe_dump(dataclasses.asdict(training.loop.built.options)))
    training.announce().train()
    training.loop.built.report.finish("ok", 0)
    return collector.read(training.run)


@pytest.mark.parametrize(
    ("change", "stage", "ahead"), [(slow_load, "load", "auto"), (slow_read, "read", "off")], ids=["map", "source"]
)
def test_a_slow_input_is_named_by_its_stage(
    build: Build, plant: Callable[[Plant], None], change: Plant, stage: str, ahead: str
) -> None:
    plant(change)
    found = _measured(build, *TINY, f"prefetch={ahead}", f"parallel_calls={ahead}")
    diagnosis = diagnose(found)
    assert diagnosis.verdict == "input_bound", diagnosis
    assert found.slowest_stage is not None
    assert found.slowest_stage["name"] == stage, found.stages
    assert stage in diagnosis.sentence
    # Its own time, however many calls run at once; a loaded machine may sleep longer.
    assert 16 * 1000 * SLEEP <= found.slowest_stage["ms_per_batch"] < 3 * 16 * 1000 * SLEEP


def test_the_ablation_agrees_with_the_input_wait(build: Build, plant: Callable[[Plant], None]) -> None:
    plant(slow_load)
    alone = (*TINY, "prefetch=off", "parallel_calls=off", "width=2", "batch_size=32")
    real, one_batch = _measured(build, *alone), _measured(build, *alone, "one_batch=true")
    assert real.step_ms is not None
    assert one_batch.step_ms is not None
    ablation = 1 - one_batch.step_ms / real.step_ms
    assert real.input_wait == pytest.approx(ablation, abs=0.10)
    assert ablation > 0.3
    confirmed = diagnose(dataclasses.replace(real, ablation=ablation))
    assert confirmed.confidence > diagnose(real).confidence


def test_python_between_tiny_steps_is_found(build: Build) -> None:
    tiny = ("model=mlp", "width=0.05", "data=digits", "batch_size=8", "cache=memory", "shuffle=off")
    diagnosis = diagnose(_measured(build, *tiny, "steps_per_execution=1"))
    assert diagnosis.verdict == "python_overhead", diagnosis
    assert dict(diagnosis.remedies[0]["changes"]) == {"compile.steps_per_execution": 16}


def test_a_large_model_on_cached_data_is_compute_bound(build: Build) -> None:
    large = ("model=cnn", "width=1", "data=synthetic", "shape=[32, 32, 3]", "samples=64", "cache=memory")
    diagnosis = diagnose(_measured(build, *large, "batch_size=32", LONGER))
    assert diagnosis.verdict == "compute_bound", diagnosis
    assert {"compile.xla": True}.items() <= dict(diagnosis.remedies[-1]["changes"]).items()


def test_a_training_with_all_in_use_is_healthy(build: Build) -> None:
    used = ("model=cnn", "width=1", "data=digits", "cache=memory", "batch_size=128", "drop_remainder=true")
    diagnosis = diagnose(_measured(build, *used, LONGER, "steps_per_execution=16", "xla=true", "policy=mixed_bfloat16"))
    assert diagnosis.verdict == "healthy", diagnosis
    assert diagnosis.remedies == []
