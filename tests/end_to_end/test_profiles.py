"""What XProf says of the profiles of real runs, held against what the runs measured themselves."""

from __future__ import annotations

import os
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.profile.reports import read
from gputui.engine.runs import Run
from gputui.tui.printing.diagnosis import lines

from tests.support.front_door import events, gputui

needs_xprof = pytest.mark.needs("xprof")
pytestmark = [pytest.mark.usefixtures("forked_trainers"), pytest.mark.alone, pytest.mark.flaky(reruns=2)]
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
    assert "slowest input stage: load (Map)" in "\n".join(lines(report))


@needs_xprof
def test_a_run_that_computes() -> None:
    run = profiled("model=cnn", "width=2", "batch_size=128", "epochs=3", "profile=7-999")
    before = sorted(run.file("profile").rglob("*"))
    report, measured = read(run), result(run)
    assert (report.device, report.operations_on) == ("CPU", "CPU")
    assert 0 <= measured["measured_steps"] - report.steps <= 4  # XProf leaves out those that may be cut off
    assert report.shares.input == pytest.approx(measured["input_wait"], abs=0.06)
    assert known(report.shares.input) < 0.1
    assert known(report.shares.compute) > 0.75
    assert known(report.shares.host) < 0.15
    assert sum(value for value in vars(report.shares).values() if value is not None) == pytest.approx(1, abs=0.01)
    assert len(report.operations) == 10
    assert "Conv2D" in report.operations[0].type
    assert 0 < report.operations[0].ms < report.steps * report.step_ms * (os.cpu_count() or 1)
    assert report.layers is not None
    assert {"conv2d", "conv2d_1", "max_pooling2d", "dense", "logits"} <= {layer.name for layer in report.layers}
    longest = report.layers[0]
    assert longest.name == "conv2d_1"  # it has 32 times as many products as conv2d
    assert longest.backward_ms > longest.forward_ms > 0
    assert 0.6 < sum(layer.share for layer in report.layers) < 1
    assert report.peak_memory_bytes == pytest.approx(measured["peak_memory_bytes"], rel=0.25)
    # XProf has written nothing of its own into the run folder.
    assert sorted(run.file("profile").rglob("*")) == before


@needs_xprof
def test_python_between_the_graphs_is_the_hosts() -> None:
    run = profiled("model=mlp", "width=0.05", "batch_size=8", "epochs=2", "validation_split=0", "profile=21-399")
    report, measured = read(run), result(run)
    # The clock counts the way of the first operation to a thread as Python's, too: a tenth of so short a step.
    assert 0.15 < known(report.shares.host) < measured["python_share"] + 0.05
    # Markers lie end to end: the mean of the steps is the mean of the clock.
    mean_ms = 1000 * measured["measured_seconds"] / measured["measured_steps"]
    assert report.step_ms == pytest.approx(mean_ms, rel=0.35)
