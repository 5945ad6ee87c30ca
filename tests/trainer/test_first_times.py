"""What is done once in a run is start-up wherever it happens: told as such, in no step's time, and never a stall."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.diagnosis import diagnose
from gputui.engine.diagnosis.collector import Collector, read
from gputui.engine.process.live_diagnosis import LiveDiagnosis
from gputui.engine.runs import Run
from gputui.engine.runs.event_reading import in_time
from gputui.engine.runs.events import LATER_COMPILING, Diagnosis, Event
from gputui.engine.runs.parsing import recalled
from gputui.engine.system.run_clock import RunClock
from gputui.engine.trainer.common.stopping import ENGINE_GONE, StopRequested, StopSwitch
from gputui.engine.trainer.measure import first_times
from gputui.engine.trainer.measure.first_times import FirstEvaluation, FirstTimes
from gputui.engine.trainer.measure.run_figures import FirstSeconds

from tests.support.judged import OPTIONS, measured, waits
from tests.support.training import Build

TINY = (
    "model=mlp",
    "width=0.05",
    "optimizer=sgd",
    "data=synthetic",
    "shape=[8, 8, 1]",
    "samples=80",
    "validation_split=0.2",
)


def _compiled(events: list[dict[str, Any]]) -> list[str]:
    return [event["detail"] for event in events if event["phase"] == "compiling"]


def test_the_first_evaluation_is_told_as_compiling_and_later_ones_as_evaluating(build: Build) -> None:
    training = build(*TINY, "batch_size=8", "epochs=3", "checkpoint=epoch").train()
    told = [event["phase"] for event in training.events("phase")]
    assert _compiled(training.events("phase")) == ["tracing", "evaluation"]
    assert told.count("evaluating") == 3
    report = training.loop.built.report
    assert 0 < (report.first_seconds.evaluation or 0) < 60
    assert 0 < (report.first_seconds.checkpoint or 0) < 60
    summary = report._summary("ok", 0, None)
    assert summary.first_evaluation_seconds == report.first_seconds.evaluation
    assert summary.first_checkpoint_seconds == report.first_seconds.checkpoint


def test_what_xla_compiles_for_a_smaller_batch_is_no_steps_time(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # 64 samples to train and 16 to evaluate with: 7 and 2 batches of 10, the last of each smaller.
    training = build(*TINY, "batch_size=10", "epochs=6", "xla=true")
    loop, hours, real = training.loop, [0.0], time.perf_counter
    execute = loop.executions.run_steps

    def compile_for_an_hour(*arguments: Any) -> Any:
        hours[0] += 3600.0 * (loop.built.report.doing == "compiling")
        return execute(*arguments)

    loop.executions.run_steps = compile_for_an_hour
    monkeypatch.setattr(time, "perf_counter", lambda: real() + hours[0])
    training.train()
    assert hours == [7200.0], "the first step, and that of the smaller batch"
    assert _compiled(training.events("phase")) == ["XLA", "smaller batch", "evaluation", "evaluation"]
    assert set(_compiled(training.events("phase"))) - {"XLA"} == set(LATER_COMPILING)
    assert training.loop.built.report.speed.clock.step_seconds_total < 3600
    assert read(training.run).pauses_counted == 6


class Phases:
    """Stands for the report of a run."""

    def __init__(self) -> None:
        self.first_seconds, self.told = FirstSeconds(), list[tuple[str, ...]]()

    def phase(self, *words: str) -> None:
        self.told.append(words)


def test_an_evaluation_that_ended_before_it_ran_takes_no_time_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now, report = [100.0], Phases()
    monkeypatch.setattr(first_times, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    evaluation = FirstEvaluation(report)  # type: ignore[arg-type]
    evaluation.begins()
    now[0] = 500.0
    evaluation.begins()
    now[0] = 501.0
    evaluation.compile()  # it has begun already
    now[0] = 503.0
    assert not evaluation.done
    evaluation.compiled()
    assert (evaluation.done, report.first_seconds.evaluation) == (True, 3.0)
    compiling, evaluating = ("compiling", "evaluation"), ("evaluating",)
    assert report.told == [compiling, compiling, evaluating]
    evaluation.begins()
    now[0] = 510.0
    evaluation.compiled()
    assert report.first_seconds.evaluation == 3.0
    evaluation.compile()  # of a smaller last batch
    now[0] = 512.0
    evaluation.compiled()
    assert report.first_seconds.evaluation == 5.0
    assert report.told[3:] == [evaluating, evaluating, compiling, evaluating]


@pytest.mark.parametrize(
    ("xla", "smaller", "replicas", "samples", "train", "test"),
    [
        (True, True, 1, 25, True, True), (True, False, 1, 20, False, False), (True, True, 2, 25, True, False),
        (True, True, 1, None, True, True), (False, True, 1, 25, False, False),
    ],
)  # fmt: skip
def test_xla_compiles_once_more_for_a_smaller_last_batch(
    xla: bool, smaller: bool, replicas: int, samples: int | None, train: bool, test: bool
) -> None:
    pipeline: Any = SimpleNamespace(
        batches_per_pass=5, smaller_last_batch=smaller, validation_samples=samples, global_batch_size=10,
        replicas=replicas,
    )  # fmt: skip
    report = Phases()
    times = FirstTimes(report, pipeline, xla)  # type: ignore[arg-type]
    assert [times.meets_smaller_batch(*steps) for steps in ((0, 4), (3, 1), (4, 1), (9, 1))] == [
        False,
        False,
        train,
        False,
    ]
    assert times.test_begins(1), "the first one is traced"
    times.evaluation.compiled()
    assert [times.test_begins(left) for left in (1, 0, 1, 0)] == [False, test, False, False]
    assert report.told.count(("compiling", "evaluation")) == 1 + test


# ---- what the diagnosis makes of it ------------------------------------------------------------


def _run(*phases: tuple[float, str, str], steps_until: float) -> Collector:
    """A run with these phases from their second on, and steps of 10 ms told each second."""
    told: list[dict[str, Any]] = [
        {"t": t, "type": "phase", "phase": name, "detail": detail} for t, name, detail in phases
    ]
    steps = [
        {
            "t": t + 0.5,
            "type": "progress",
            "step": 100 * t,
            "step_ms_p50": 10.0,
            "step_ms_p95": 11.0,
            "input_wait": 0.01,
            "python_share": 0.01,
        }
        for t in range(round(steps_until))
    ]
    collector = Collector(OPTIONS | {"compile.xla": True})
    collector.feed(in_time(map(recalled, [*told, *steps])))
    return collector


def test_compiling_the_evaluation_is_no_stall() -> None:
    found = _run(
        (0, "training", ""),
        (10, "compiling", "evaluation"),
        (30, "evaluating", ""),
        (30.2, "training", ""),
        (40, "evaluating", ""),
        (40.3, "training", ""),
        (50, "ended", ""),
        steps_until=50,
    ).measurements()
    assert found.pauses == pytest.approx(0.6 / 30.3, rel=0.02)
    assert diagnose(found).verdict == "healthy"


def test_the_first_checkpoint_counts_as_long_as_the_others() -> None:
    found = _run(
        (0, "training", ""),
        (10, "saving", "checkpoint"),
        (25, "training", ""),
        (35, "saving", "checkpoint"),
        (36, "training", ""),
        (46, "ended", ""),
        steps_until=46,
    ).measurements()
    assert found.pauses == pytest.approx(2 / 32)


def test_the_model_that_is_saved_in_the_end_is_no_stall() -> None:
    found = _run((0, "training", ""), (10, "saving", "model.keras"), (20, "ended", ""), steps_until=10).measurements()
    assert found.pauses == 0


def test_one_short_evaluation_is_no_stall_and_a_long_one_is() -> None:
    def verdict(seconds: float) -> str:
        return diagnose(
            _run(
                (0, "training", ""),
                (20, "evaluating", ""),
                (20 + seconds, "training", ""),
                (20.1 + seconds, "ended", ""),
                steps_until=20,
            ).measurements()
        ).verdict

    assert verdict(9) == "healthy"
    assert verdict(20) == "stalls"


def test_evaluations_that_take_half_of_the_time_are_a_stall() -> None:
    phases = [(t, name, "") for k in range(5) for t, name in ((4.0 * k, "training"), (4.0 * k + 2, "evaluating"))]
    found = diagnose(_run(*phases, (20, "ended", ""), steps_until=18).measurements())
    assert found.verdict == "stalls"
    assert "50 %" in found.sentence


@pytest.mark.parametrize(("steps", "seconds"), [(11, 4.0), (400, 0.3)])
def test_a_run_that_was_too_short_is_undecided_and_says_why(steps: int, seconds: float) -> None:
    collector = _run((0, "training", ""), steps_until=2)
    summary = {
        "outcome": "ok",
        "measured_steps": steps,
        "measured_seconds": seconds,
        "input_wait": 0.9,
        "python_share": 0.0,
        "step_ms": {"p50": 10.0, "p95": 11.0},
    }
    collector.feed([recalled({"t": 9.0, "type": "finished", "summary": summary})])
    found = diagnose(collector.measurements())
    assert found.verdict == "undecided"
    assert f"{steps} steps in {seconds:.1f} s measured" in found.sentence
    assert "20 steps and 0.5 s" in found.sentence
    assert "20 steps and 2 s" in diagnose(measured(steps=5)).sentence


def test_a_run_that_is_too_short_for_figures_is_told_as_undecided(tmp_path: Path) -> None:
    told: list[Event] = []
    watcher = LiveDiagnosis(Run(tmp_path), told.append, RunClock.launched())
    summary = {"outcome": "ok", "steps": 4, "measured_steps": 0, "step_ms": None}
    lines = [
        {"t": time.time(), "type": "phase", "phase": "training"},
        {"t": time.time(), "type": "finished", "summary": summary},
    ]
    Run(tmp_path).file("events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    watcher._update()
    assert told == [], "a run that has just begun has no verdict"
    watcher._update(final=True)  # nothing has happened since
    (found,) = told
    assert isinstance(found, Diagnosis)
    assert found.sentence.startswith("No verdict: the run ended before its first step was measured")


def test_in_a_short_run_and_beside_others_only_what_decides_counts() -> None:
    def found(share: float, **figures: Any) -> bool:
        judged = diagnose(measured(**waits(share), **figures))
        return "input_bound" in (judged.verdict, *judged.others)

    short: dict[str, Any] = {"seconds": 1.0, "outcome": "ok"}
    crowd: dict[str, Any] = {"cpu": 0.85, "others_cpu": 0.5}
    assert found(0.1)
    assert not found(0.1, **short)
    assert found(0.5, **short)
    assert not found(0.1, **crowd)
    assert found(0.5, **crowd)
    assert diagnose(measured(uneven=8.0)).verdict == "stalls"
    assert diagnose(measured(uneven=8.0, **crowd)).verdict != "stalls"
    assert diagnose(measured(**waits(0.5), **crowd)).sentence.endswith("other programs also use the CPU")
    assert any(row["signal"] == "others_cpu" for row in diagnose(measured(**waits(0.5), **crowd)).evidence)


def test_an_epoch_that_is_stopped_in_its_evaluation_is_told(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    training = build("model=mlp", "width=0.05", "epochs=3", "steps_per_epoch=4", "batch_size=8")
    loop = training.loop
    begin = loop.evaluation_begins

    def stopped() -> None:
        begin()
        loop.built.stop.reason = "stopped"

    monkeypatch.setattr(loop, "evaluation_begins", stopped)
    with pytest.raises(StopRequested):
        loop.run(None)
    loop.leave()
    (told,) = training.events("epoch")
    assert (told["epoch"], told["step"]) == (1, 4)
    assert told["metrics"]["loss"] > 0
    assert not any(name.startswith("val_") for name in told["metrics"])


def test_the_first_request_to_stop_is_the_reason_that_stays() -> None:
    switch = StopSwitch()
    switch.at_once = False
    for reason in ("timeout", "stopped", ENGINE_GONE):
        switch.request(reason)
    with pytest.raises(StopRequested, match=r"^timeout$"):
        switch.check()
