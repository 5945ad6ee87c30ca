"""What a run's report makes of the engine's readings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine.runs import Run
from gputui.engine.runs.event_writer import EventWriter
from gputui.engine.runs.events import PhaseName
from gputui.engine.system.run_clock import RunClock, steady
from gputui.engine.trainer.measure.clock import Spent
from gputui.engine.trainer.measure.run_figures import Moment, Plan, Speed
from gputui.engine.trainer.measure.run_report import RunReport


def test_busy_and_power_are_means_over_the_gpus_and_the_moments_that_train(tmp_path: Path) -> None:
    run = Run(tmp_path)
    phases: tuple[tuple[PhaseName, float], ...] = (
        ("training", 90.0), ("evaluating", 110.0), ("compiling", 112.0), ("saving", 115.0), ("training", 120.0),
        ("saving", 130.0),
    )  # fmt: skip
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    for phase, t in phases:
        report.writer.clock = RunClock(t, steady())
        report.phase(phase)
    report.gpus, report.training_since = {"GPU-a", "GPU-b"}, 100.0
    readings = (
        (99.0, "GPU-a", 0.1, 70.0),  # before the first step
        (101.0, "GPU-a", 0.8, 300.0), (102.0, "GPU-b", 0.6, None), (103.0, "GPU-b", None, 500.0),
        (104.0, "GPU-c", 1.0, 900.0),  # somebody else's
        (111.0, "GPU-a", 0.0, 60.0), (116.0, "GPU-a", 0.0, 60.0), (131.0, "GPU-a", 0.0, 60.0),  # not while it trains
        (121.0, "GPU-a", 0.7, 400.0),
    )  # fmt: skip
    lines = [
        json.dumps({"t": t, "type": "gpu", "gpus": [{"uuid": uuid, "busy": busy, "power_w": power}]})
        for t, uuid, busy, power in readings
    ]
    run.file("telemetry.jsonl").write_text("\n".join(lines) + "\n")
    report.finish("ok", 0)
    result = run.result or {}
    assert result["gpu_busy_mean"] == pytest.approx(0.7)
    assert result["gpu_power_mean_w"] == pytest.approx(400)


def test_the_time_left_is_that_of_the_steps_left() -> None:
    speed = Speed()
    speed.plan = Plan(1, 200, 8)
    for number in range(1, 51):
        speed.clock.mark(0.25 * number, 1)
    told = speed.progress(Moment(epoch=1, step=50, spent=Spent(12.5), metrics={}))
    assert told.step_ms_p50 == pytest.approx(250)
    assert told.eta_seconds == pytest.approx(150 * 0.25)


def test_copying_a_batch_is_told_as_a_share_of_the_step() -> None:
    speed = Speed()
    assert speed.transfer(8.0) is None
    speed.transfer_seconds = 0.002
    assert speed.transfer(None) is None
    assert speed.transfer(8.0) == pytest.approx(0.25)
    assert speed.transfer(1.0) == 1.0, "it goes on beside the step"


def test_a_training_that_fails_between_two_pulses_has_done_all_steps_that_were_measured(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    speed, before = report.speed, 1000  # steps before it was resumed
    for number in range(1, 119):
        speed.clock.mark(float(number), 1)
        if number in (50, 116):
            report.pulse(Moment(epoch=1, step=before + number, spent=Spent(float(number)), metrics={}))
    speed.clock.mark(119.0, 1)  # the step that fails
    codes: list[int] = []
    report.when_finished = codes.append
    for _ in range(2):
        report.finish("crashed", 1)
    assert codes == [1], "once, and then the process ends within a time limit"
    result = run.result or {}
    assert result["measured_steps"] == 117, "the first step, which compiles, is not measured"
    assert result["steps"] == before + 118
