"""How long the trials of a search may take."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine.presets import defaults
from gputui.engine.tune.candidates.search_trials import OutOfTime, Trials

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
