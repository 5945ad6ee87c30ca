"""What a run's report makes of the engine's readings, and of earlier sittings of the run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.process.ending import Ending, summary_of
from gputui.engine.runs import Run, results
from gputui.engine.runs.events import Best, MemoryAnswer, PhaseName, XlaAnswer
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.system.run_clock import RunClock, steady
from gputui.engine.trainer.measure.run_figures import Moment, Plan, Speed
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.measure.step_clock import Spent


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


def test_energy_clocks_and_slowed_time_are_of_the_moments_that_train(tmp_path: Path) -> None:
    def told(name: str, without: tuple[str, ...] = (), **more: object) -> dict[str, object]:
        """The result of a training on two GPUs that draw 200 and 300 W, at 100 samples a second."""
        run = Run(tmp_path / name)
        run.path.mkdir()
        report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
        report.writer.clock = RunClock(100.0, steady() - 40)
        report.gpus, report.training_since, report.doing = {"GPU-a", "GPU-b"}, 110.0, "training"
        report.speed.plan = Plan(1, 100, 100)
        report.speed.begin_measuring(Spent(0.0, samples=0))
        report.pulse(Moment(epoch=1, step=3, spent=Spent(3.0, samples=300), metrics={}))
        lines = []
        for t in (20.0, *range(100, 140, 5)):  # the first is of an earlier sitting
            part = {"power": 0.5 * t, "heat": 0.1 * t}
            gpus = [
                {"uuid": uuid, "busy": 0.9 if t >= 110 else 0.0, "power_w": watts, "energy_j": watts * t,
                 "sm_clock_mhz": 600.0 if t >= 110 else 200.0, "max_sm_clock_mhz": 1980.0, "throttle": ["power cap"]}
                | {f"slowed_by_{name}_seconds": seconds for name, seconds in part.items()} | more
                for uuid, watts in (("GPU-a", 200.0), ("GPU-b", 300.0), ("GPU-c", 999.0))
            ]  # fmt: skip
            gpus = [{key: value for key, value in gpu.items() if key not in without} for gpu in gpus]
            lines.append(json.dumps({"t": t, "type": "gpu", "gpus": gpus}))
        run.file("telemetry.jsonl").write_text("\n".join(lines) + "\n")
        report.finish("ok", 0)
        return dict(run.result or {})

    counted = told("counted")
    assert counted["gpu_power_mean_w"] == pytest.approx(250)
    assert counted["sample_energy_j"] == pytest.approx(5.0), "500 W at 100 samples a second"
    assert counted["gpu_energy_wh"] == pytest.approx(500 * 35 / 3600)
    assert (counted["gpu_energy_estimated_wh"], counted["sample_energy_estimated_j"]) == (None, None)
    assert counted["sm_clock_mean_mhz"] == pytest.approx(600)
    assert (counted["slowed_by_power"], counted["slowed_by_heat"]) == (pytest.approx(0.5), pytest.approx(0.1))
    no_counters = ("energy_j", "slowed_by_power_seconds", "slowed_by_heat_seconds")
    sampled = told("sampled", no_counters)
    assert (sampled["gpu_energy_wh"], sampled["sample_energy_j"]) == (None, None)
    assert sampled["gpu_energy_estimated_wh"] == pytest.approx(500 * 35 / 3600)
    assert sampled["sample_energy_estimated_j"] == pytest.approx(5.0)
    assert (sampled["slowed_by_power"], sampled["slowed_by_heat"]) == (1.0, 0.0)
    zeros = told("zeros", slowed_by_power_seconds=0.0, slowed_by_heat_seconds=0.0)
    assert (zeros["slowed_by_power"], zeros["slowed_by_heat"]) == (1.0, 0.0), "some drivers count nothing but 0"
    of_an_instance = told("mig", mig=[{"uuid": "MIG-0"}])
    for key in ("gpu_power_mean_w", "gpu_energy_wh", "gpu_energy_estimated_wh", "sample_energy_j"):
        assert of_an_instance[key] is None, key
    assert of_an_instance["sm_clock_mean_mhz"] == pytest.approx(600)


def test_the_peak_is_that_after_the_first_step_unless_no_other_was_trained(tmp_path: Path) -> None:
    def told(later: int, ends: bool = True) -> tuple[int | None, int | None]:
        run = Run(tmp_path / f"{later} {ends}")
        run.path.mkdir()
        report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
        clock = report.speed.clock
        clock.mark(0.0, 1)
        report.first_step_done(1.0)
        report.memory({"GPU:0": {"current_bytes": 10, "peak_bytes": 900}}, first_step=True)
        for step in range(later):
            clock.mark(1.0 + step, 1)
        clock.pause(9.0)
        report.memory({"GPU:0": {"current_bytes": 10, "peak_bytes": 300 if later else 10}})
        if ends:
            report.finish("ok", 0)
            result = run.result or {}
            return result["peak_memory_bytes"], result["first_step_memory_bytes"]
        report.writer.close()
        summary = summary_of(run, Ending("crashed", "crash", ""), 1, 1.0)
        return summary.peak_memory_bytes, summary.first_step_memory_bytes

    assert told(later=3) == told(later=3, ends=False) == (300, 900)
    assert told(later=0) == (900, 900)


def test_the_time_left_is_that_of_the_steps_left() -> None:
    speed = Speed()
    speed.plan = Plan(1, 200, 8)
    speed.begin_measuring(Spent(0.0), 20)
    told = speed.progress(Moment(epoch=1, step=50, spent=Spent(7.5), metrics={}))
    assert told.eta_seconds == pytest.approx(150 * 0.25)


def test_the_time_left_includes_what_is_done_between_steps(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    report.speed.plan = Plan(3, 30, 8)
    report.speed.begin_measuring(Spent(0.0))
    report.writer.clock = RunClock(100.0, steady())
    for now, steps in ((0.0, 1), (1.0, 9)):
        report.speed.clock.mark(now, steps)
    report.first_step_done(1.0)
    report.speed.clock.pause(5.5)
    report.first_seconds.evaluation = 4.0  # of which it was compiled
    report.writer.clock = RunClock(112.5, steady())  # 12.5 s after the first step: 4.5 s of steps, 8 s of an evaluation
    report.pulse(Moment(epoch=1, step=10, spent=Spent(5.0), metrics={}))
    report.writer.close()
    told = json.loads(run.file("events.jsonl").read_text().splitlines()[-1])
    assert told["eta_seconds"] == pytest.approx(2 * (5.0 + 4.0), rel=0.01)


def test_a_pulse_tells_all_that_is_known_of_the_moment() -> None:
    speed = Speed()
    speed.plan, speed.samples_per_second_at_peak, speed.transfer_seconds = Plan(3, 60, 8), 80.0, 0.02
    for number in range(1, 6):
        speed.clock.mark(0.2 * number, 1)
    speed.begin_measuring(Spent(0.0, 0.0, 0.0, 0))
    known = {"traces": 2, "loss_scale": 512.0, "skipped_steps": 1, "window_loss": 0.25}
    told = speed.progress(Moment(2, 20, Spent(10.0, 1.0, 8.0, 200), {"loss": 0.5, "mae": 0.1}, 208, **known))  # type: ignore[arg-type]
    assert asdict(told) == {
        "epoch": 2, "epochs": 3, "step": 20, "steps": 60, "samples_per_second": pytest.approx(20.0),
        "samples": 208, "step_ms_p50": pytest.approx(200.0), "step_ms_p95": pytest.approx(200.0),
        "input_wait": pytest.approx(0.1),
        "loss": 0.5, "metrics": {"mae": 0.1}, "eta_seconds": pytest.approx(20.0), "mfu": pytest.approx(0.25),
        "python_share": pytest.approx(0.2), "transfer": pytest.approx(0.1), **known,
    }  # fmt: skip
    beyond = speed.progress(Moment(3, 61, Spent(20.0, 4.0, 18.0), {}))
    assert (beyond.eta_seconds, beyond.loss, beyond.metrics) == (0.0, None, {})
    assert (beyond.input_wait, beyond.python_share) == pytest.approx((0.3, 0.0))
    speed.plan = Plan(0, 0, 0)
    unknown = speed.progress(Moment(3, 62, Spent(20.0), {}))
    assert (unknown.eta_seconds, unknown.samples_per_second) == (None, None)


def test_a_result_has_every_figure_of_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    report.writer.clock = RunClock(100.0, steady() - 50)
    speed = report.speed
    speed.plan, speed.samples_per_second_at_peak = Plan(3, 60, 8), 80.0
    speed.transfer_seconds, speed.exchange_ms = 0.02, 1.5
    speed.begin(2, on_gpu=False)  # of the warm-up only the first step, which compiles, is no time of steps
    for number in range(1, 8):
        speed.clock.mark(0.2 * number, 1)
        if number == 2:
            report.first_step_done(0.7)
    report.first_seconds.evaluation = 0.8
    report.first_checkpoint_done(0.9)
    report.first_checkpoint_done(99.0)
    speed.begin_measuring(Spent(0.0, 0.0, 0.0, 0))
    report.pulse(Moment(2, 20, Spent(10.0, 1.0, 8.0, 200), {"loss": 0.5}, traces=2, skipped_steps=1))
    report.epoch_done(2, 20, {"loss": 0.25, "val_loss": float("nan")})
    report.memory({"GPU:0": {"current_bytes": 1, "peak_bytes": 70}, "GPU:1": {"current_bytes": 1, "peak_bytes": 90}})
    report.memory({"GPU:0": {"current_bytes": 1, "peak_bytes": 60}})
    report.memory({})
    report.best_epoch(Best(option="run.keep_best", figure="loss", epoch=2, step=20, value=0.25))
    report.ended_by = "early_stop"
    memory = [
        MemoryAnswer(answer="halve", number=number, option="input.batch_size", before=16 // number, after=8 // number,
                     ran_out_after_step=None, resumes_at_step=None, message="no memory")
        for number in (1, 2)
    ]  # fmt: skip
    without_xla = XlaAnswer(option="compile.xla", before="auto", after=False, resumes_at_step=3, error="x", message="y")
    of_engine = EventWriter(run.file("telemetry.jsonl"), run.id)
    for event in (*memory, without_xla):
        of_engine.emit(event)
    of_engine.close()
    report.finish("ok", 0, None)
    result = dict(run.result or {})
    answers, answer = result.pop("memory_answers"), result.pop("xla_answer")
    assert [asdict(event) | {"type": event.type, "t": got["t"], "run": run.id} for event, got in
            zip((*memory, without_xla), (*answers, answer), strict=True)] == [*answers, answer]  # fmt: skip
    result["memory_answers"], result["xla_answer"] = [], None
    told = list(map(json.loads, run.file("events.jsonl").read_text().splitlines()))
    given = result | {"memory_answers": answers, "xla_answer": answer}
    assert (told[-1]["type"], told[-1]["summary"], told[-2]["phase"]) == ("finished", given, "ended")
    seconds = result.pop("seconds")
    assert 50 <= seconds < 110
    assert result.pop("goodput") == pytest.approx(1.0 / seconds)
    assert 50 <= result.pop("startup_seconds") <= seconds
    assert result.pop("peak_process_bytes") > 10_000_000
    result.pop("peak_address_space_bytes")
    best = {"option": "run.keep_best", "figure": "loss", "epoch": 2, "step": 20, "value": 0.25, "files": [],
            "restores": False}  # fmt: skip
    assert {name: value for name, value in result.items() if value not in (None, [], "")} == {
        "outcome": "ok", "trainer_returncode": 0, "samples_per_second": pytest.approx(20.0),
        "step_ms": {"p50": pytest.approx(200.0), "p95": pytest.approx(200.0)}, "measured_steps": 4,
        "measured_seconds": pytest.approx(0.8), "global_batch_size": 8, "first_step_seconds": 0.7,
        "first_evaluation_seconds": 0.8, "first_checkpoint_seconds": 0.9, "input_wait": pytest.approx(0.1),
        "python_share": pytest.approx(0.2), "transfer": pytest.approx(0.1), "exchange_ms": 1.5, "traces": 2,
        "peak_memory_bytes": 90, "mfu": pytest.approx(0.25), "epochs": 2, "steps": 20, "skipped_steps": 1,
        "metrics": {"loss": 0.25, "val_loss": None}, "ended_by": "early_stop", "best": [best],
    }  # fmt: skip


def test_a_warning_is_written_once_for_each_kind_and_option(tmp_path: Path) -> None:
    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    for kind, message, option in (("a", "1", ""), ("a", "2", ""), ("a", "3", "x"), ("b", "4", "x"), ("a", "5", "x")):
        report.warn(kind, message, "do it", option)
    report.not_applied([{"option": "input.cast", "why": "the data are not bytes (uint8)"}] * 2)
    report.writer.close()
    told = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()]
    assert [(each["kind"], each["message"], each["option"]) for each in told] == [
        ("a", "1", ""), ("a", "3", "x"), ("b", "4", "x"),
        ("not_applied", "input.cast does nothing here: the data are not bytes (uint8)", "input.cast"),
    ]  # fmt: skip
    assert {each["hint"] for each in told[:3]} == {"do it"}


def test_a_result_that_no_disk_takes_is_handed_to_the_engine_or_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handed: list[Any] = []
    seconds: list[float] = []

    def refuse(run: Run, summary: Any, patience: float) -> OSError:
        seconds.append(patience)
        return OSError("full")

    waits: list[float] = []
    drain = EventWriter.drain

    def noted(writer: EventWriter, patience: float) -> int:
        waits.append(patience)
        return drain(writer, patience)

    monkeypatch.setattr(EventWriter, "drain", noted)
    monkeypatch.setattr(results, "write", refuse)
    monkeypatch.setattr(results, "hand_over", lambda left, pipe: handed.append((left.result["outcome"], pipe)))
    for pipe in (7, None):
        run = Run(tmp_path / str(pipe))
        run.path.mkdir()
        report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
        report.engine_pipe = pipe
        report.finish("stopped", 0)
        report.writer.close()
    assert handed == [("stopped", 7)]
    assert seconds == [results.TRAINER_SECONDS] * 2
    assert waits == [0.0] * 2, "it has waited for the disk"
    assert capsys.readouterr().err == "gputui: the result could not be written: full\n"


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
    report.when_finished, report.ended_by = codes.append, "early_stop"
    error = {"kind": "crash", "message": "it fails", "hint": "look"}
    for _ in range(2):
        report.finish("crashed", 1, error)
    assert codes == [1], "once, and then the process ends within a time limit"
    result = run.result or {}
    assert result["measured_steps"] == 117, "the first step, which compiles, is not measured"
    assert result["steps"] == before + 118
    assert (result["error"], result["ended_by"]) == (error, None), "what failed has not ended early"
    last = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()][-3:]
    assert [each["type"] for each in last] == ["error", "phase", "finished"]
    assert {key: last[0][key] for key in error} == error
    assert last[2]["outcome"] == "crashed"


def test_a_resumed_run_that_ends_before_it_trains_stands_where_it_ended_before(tmp_path: Path) -> None:
    run, best = Run(tmp_path), list[list[int]]()

    def sitting(*moments: tuple[int, int]) -> tuple[int, int, float]:
        """Train to these epochs and steps, and stop; what the result says."""
        report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
        for epoch, step in moments:
            report.pulse(Moment(epoch=epoch, step=step, spent=Spent(0.0), metrics={"loss": 0.5}))
            if step % 10 == 0:
                report.epoch_done(epoch, step, {"loss": 0.25})
        if moments and moments[0] == (1, 10):
            report.best_epoch(Best(option="run.keep_best", figure="loss", epoch=2, step=20, value=0.25))
        report.finish("stopped", 0)
        result = run.result or {}
        best.append([each["epoch"] for each in result["best"]])
        return result["epochs"], result["steps"], result["metrics"]["loss"]

    assert sitting((1, 10), (2, 20), (3, 25)) == (2, 25, 0.25)
    assert sitting() == (2, 25, 0.25)
    by_engine = summary_of(run, Ending("crashed", "crash", "", ""), None, 1.0)
    assert (by_engine.epochs, by_engine.steps, by_engine.metrics) == (2, 25, {"loss": 0.25})
    assert sitting((3, 28)) == (2, 28, 0.5), "it has ended no epoch itself"
    assert best == [[2], [2], []], "a training that goes on knows its own"
