"""How long the trials of a search may take, and what the row of a trial keeps of its GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine.presets import defaults
from gputui.engine.runs import Run
from gputui.engine.trials.trial_runner import disturbed, outcome
from gputui.engine.tune.candidates.search_trials import OutOfTime, Trials

from tests.support import recorded
from tests.support.proving import Planted, PlantedBench


def test_a_trial_ends_before_the_time_that_is_kept_and_one_that_hangs_long_before(tmp_path: Path) -> None:
    now = [0.0]
    bench = PlantedBench(tmp_path / "trials", lambda options, before: Planted())
    trials = Trials(bench, (), lambda: now[0], limit_seconds=600.0, guess=10.0)
    trials.reserved_seconds = 100.0
    assert trials.most_seconds == 500, "how long the first one takes is not known"
    trials.measure(defaults(()), "s", 1, seconds=2.0)
    assert trials.most_seconds == pytest.approx(6 * 10 + 12 * 5), "the others took 10 s"
    now[0] = 460.0
    assert trials.most_seconds == 40
    now[0] = 495.0
    with pytest.raises(OutOfTime):
        trials.measure(defaults(()), "s", 2, seconds=2.0)


def slowed_by_heat(home: Path, name: str, seconds: float) -> Run:
    """A trial on one GPU, which heat has slowed down for so many seconds of each second."""
    run = recorded.write(home, name=name, gpus=1, seconds=40)
    for file in (run.file("events.jsonl"), run.file("telemetry.jsonl")):
        told = [json.loads(line) for line in file.read_text().splitlines()]
        for event in told:
            if event["type"] == "started":
                event["gpus"] = ["GPU-00000000-aaaa-bbbb-cccc-000000000000"]
            for gpu in event["gpus"] if event["type"] == "gpu" else ():
                gpu["slowed_by_heat_seconds"] = seconds * (event["t"] - told[0]["t"])
        file.write_text("".join(f"{json.dumps(event)}\n" for event in told))
    return run


def test_a_trial_keeps_clock_power_and_energy_and_heat_makes_it_a_disturbed_one(home: Path) -> None:
    hot, cool = slowed_by_heat(home, "hot", 0.3), slowed_by_heat(home, "cool", 0.05)
    assert disturbed(hot) == "its GPU was slowed down (heat)"
    assert disturbed(cool) == ""
    figures = {"gpu_power_mean_w": 612.0, "sm_clock_mean_mhz": 1410.0, "slowed_by_power": 0.9, "slowed_by_heat": 0.3,
               "sample_energy_j": 0.4}  # fmt: skip
    result = hot.result or {}
    hot.file("result.json").write_text(json.dumps({**result, **figures}))
    row = outcome(hot, "a", 1)
    assert {key: getattr(row, key) for key in figures} == figures
