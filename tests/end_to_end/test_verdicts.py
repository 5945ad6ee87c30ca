"""What is said of real trainings is true: the verdict, the stage that it names, and the profile."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.engine import Measurements, Options, Run, collector, diagnose, reports, runs
from tests.doors.engine import reports_read as read
from tests.doors.trainer import Source, sources
from tests.doors.trainer import pipeline as pipelines
from tests.support.front_door import events, gputui
from tests.support.planted import SLEEP, slow_load, slow_read
from tests.support.training import Build

pytestmark = [pytest.mark.alone, pytest.mark.flaky(reruns=2)]

# ---- a planted cause -----------------------------------------------------------------------------


MEASURED = ("measure_seconds=1.2", "epochs=1", "steps_per_epoch=1000000", "validation_split=0")
TINY = ("model=mlp", "width=0.05", "data=synthetic", "shape=[8, 8, 1]", "samples=64", "batch_size=16", "shuffle=off")
Plant = Callable[[Source], Source]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Plant], None]:
    """Makes synthetic data slow in one place."""

    def into(change: Plant) -> None:
        def changed(options: Options, seed: int) -> Source:
            return change(sources.synthetic(options, seed))

        monkeypatch.setitem(pipelines.SOURCES, "synthetic", changed)

    return into


def _measured(build: Build, *settings: str) -> Measurements:
    """Of a training with these settings that has measured for a while."""
    training = build(*MEASURED, *settings)
    training.run.file("preset.yaml").write_text(yaml.safe_dump(dataclasses.asdict(training.loop.built.options)))
    training.announce().train()
    training.loop.built.report.finish("ok", 0)
    return collector.read(training.run)


@pytest.mark.slow
@pytest.mark.usefixtures("cpus")
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


# ---- the profile ---------------------------------------------------------------------------------


needs_xprof = pytest.mark.needs("xprof")
DIGITS = ("--preset", "quickstart", "--set", "cache=memory", "--set", "visible=none")


def profiled(*settings: str) -> Run:
    """A run of its own, trained to its end. Where its profile begins with its warm-up over, both measured the same."""
    words = [word for setting in settings for word in ("--set", setting)]
    done = gputui(*DIGITS, *words, "--json")
    assert done.returncode == 0, done.stderr
    return runs.find(str(events(done.stdout)[-1]["run"]))


def known(value: float | None) -> float:
    assert value is not None
    return value


def result(run: Run) -> dict[str, Any]:
    return dict(run.result or {})


@pytest.mark.usefixtures("forked_trainers")
@needs_xprof
def test_a_run_that_waits_for_its_input() -> None:
    data = ("data=synthetic", "shape=[96, 96, 3]", "samples=2048", "shuffle=off", "prefetch=off", "parallel_calls=off")
    run = profiled("model=mlp", "width=0.05", "cache=off", *data, "epochs=2", "profile=32-999")
    report, measured = read(run), result(run)
    assert report.shares.input == pytest.approx(measured["input_wait"], abs=0.06)
    assert known(report.shares.input) > 0.4
    stage = report.slowest_stage
    assert stage is not None
    assert (stage.name, stage.op) == ("load", "Map")
    assert stage.share > 0.8
    assert stage.ms_per_batch == pytest.approx(known(report.shares.input) * report.step_ms, rel=0.3)
    assert report.input_time is not None
    assert report.input_time.preprocessing_ms > 0.9 * stage.ms
    assert report.input_time.transfer_ms is None
    assert "slowest input stage: load (Map)" in "\n".join(reports.lines(report))
    copied = shutil.copytree(run.path, run.path.with_name("20260101-000000-copied"))
    shutil.rmtree(copied / "profile" / "plugins")
    compared = json.loads(gputui("compare", run.id, copied.name, "--profile", "--json").stdout)
    differs = {figure["key"]: figure["values"] for figure in compared["figures"]}
    assert differs["profiled waiting for input"] == [known(report.shares.input) * report.step_ms, None]
    assert differs["layer dense"][0] > 0
    assert "has no profile of its steps 32-999 yet" in compared["notes"][-1]


# ---- shipped presets -----------------------------------------------------------------------------


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_short_runs_of_shipped_presets_tell_nothing_false() -> None:
    three_epochs = "5"
    command = [sys.executable, "benchmarks/verdicts.py", "--runs", "1", "--seed", three_epochs, "--only", "input-heavy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 runs" in done.stdout
    assert "input_bound" in done.stdout
