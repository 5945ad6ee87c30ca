"""Trials that are clearly slower than the best end before their time; test_fork_server.py ends one that trains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from gputui.engine import presets
from gputui.engine.runs import Run
from gputui.engine.runs.events import EVENTS_FILE
from gputui.engine.trials.search_record import Limits, Search
from gputui.engine.trials.trial_runner import SpeedWatch, below
from gputui.engine.tune.candidates.screening import Screening
from gputui.engine.tune.candidates.search_trials import Trials

from tests.support.proving import Planted, PlantedBench


def test_only_three_reports_that_are_all_slow_end_a_trial() -> None:
    for speeds, ended in (((7, 7), False), ((7, 7, 7), True), ((7, 9, 7), False), ((9, 7, 7, 7), True), ((), False)):
        assert below(8.0)(speeds) is ended, speeds


def test_a_trial_is_judged_by_each_report_of_further_steps(tmp_path: Path) -> None:
    run, asked = Run(tmp_path), []

    def judge(speeds: Sequence[float]) -> bool:
        asked.append(list(speeds))
        return len(speeds) == 3

    watch = SpeedWatch(run, judge)
    with run.file(EVENTS_FILE).open("a", buffering=1) as file:
        for step, speed, ended in ((0, 9.0, False), (5, None, False), (10, 8.0, False), (10, 7.0, False),
                                   (20, 6.0, False), (30, 5.0, True)):  # fmt: skip
            more = {} if speed is None else {"samples_per_second": speed}
            file.write(json.dumps({"t": 1.0, "type": "progress", "step": step, **more}) + "\n")
            assert watch.is_slower() is ended, step
    assert asked == [[8.0], [8.0, 6.0], [8.0, 6.0, 5.0]]
    assert not below(8.0)((8.0, 8.0, 8.0))


def test_a_candidate_that_is_clearly_slower_is_rejected_with_its_speed_so_far(tmp_path: Path) -> None:
    speeds = {32: 1000.0, 16: 790.0, 64: 810.0}
    bench = PlantedBench(tmp_path / "trials", lambda options, _: Planted(speeds[options.input.batch_size]))
    trials = Trials(bench, (), lambda: 0.0, 1000.0, 5.0)
    preset = presets.resolve("quickstart", ["batch_size=32"])
    screening = Screening(trials, Search(limits=Limits()), preset, lambda doing: None, lambda preset: "", 2.0)
    screening.measure_best("baseline", "as it is", without_input=False)
    slow = screening.attempt("batch_size", {"input.batch_size": 16})
    assert [trial.outcome for trial in slow.trials] == ["slower"]
    assert slow.decision == "rejected"
    assert slow.samples_per_second == pytest.approx(790)
    assert slow.gain == pytest.approx(-0.21)
    assert "ended before its time" in slow.why
    close = screening.attempt("batch_size", {"input.batch_size": 64})
    assert ([trial.outcome for trial in close.trials], close.decision) == (["ok"], "rejected")
