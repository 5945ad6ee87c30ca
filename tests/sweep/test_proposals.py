"""Settings that are drawn at random or proposed: each once, and what the sampler learns from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.sweep import proposals, swept_values
from gputui.engine.trials.sweep_record import SEARCH, Axis

from tests.support.swept import Simulated, request_of, swept

RATE = "train.learning_rate"


def test_random_settings_are_distinct_and_as_many_as_there_are() -> None:
    few = [Axis(key=RATE, values=[1, 2]), Axis(key="train.optimizer", values=["adam", "sgd"])]
    assert len(swept_values.distinct(few, 1, 3)) == 3
    every = swept_values.distinct(few, 1, 9)
    assert len(every) == 4
    assert all(setting not in every[:place] for place, setting in enumerate(every))
    assert swept_values.distinct(few, 1, 3) == every[:3], "the same for the same seed"
    assert swept_values.drawn(few, 1, 0) == every[0]
    assert swept_values.size(few) == 4
    combined = [tuple(setting.values()) for setting in swept_values.grid(few)]
    assert combined == [(1, "adam"), (1, "sgd"), (2, "adam"), (2, "sgd")]


@pytest.mark.parametrize("higher", [False, True])
def test_a_diverging_setting_is_as_bad_as_the_worst_for_the_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, higher: bool
) -> None:
    learnt: list[tuple[int, list[tuple[Mapping[str, Any], float]], bool]] = []

    def proposed(axes: Sequence[Axis], seed: int, number: int, results: Any, higher: bool) -> dict[str, Any]:
        learnt.append((number, list(results), higher))
        return swept_values.drawn(axes, seed, 7000 + number)

    def metric(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
        rate: float = changes[RATE]
        return math.nan if rate < 0.02 else rate + seed

    monkeypatch.setattr(proposals, "proposed", proposed)
    axis = Axis(key=RATE, low=0.001, high=0.1)
    request = request_of([f"{RATE}=0.1,0.2"], sampler="tpe", most_trials=12, proof_seeds=0, ahead=0, higher=higher)
    object.__setattr__(request.sweep, "axes", [axis])
    sweep = swept(request, Simulated(metric), tmp_path).sweep
    assert sweep is not None
    assert [(number, of_higher) for number, _, of_higher in learnt] == [(10, higher), (11, higher)]
    settings = list(dict.fromkeys(trial.changes[RATE] for trial in sweep.trials if trial.part == SEARCH))
    assert len(settings) == 12
    whole = {rate: rate + 1 for rate in settings[:10] if rate >= 0.02}
    worst = (min if higher else max)(whole.values())
    expected = whole | {rate: worst for rate in settings[:10] if rate < 0.02}
    assert len(expected) == 10 > len(whole)
    assert {changes[RATE]: value for changes, value in learnt[0][1]} == pytest.approx(expected)
    assert sweep.best == {RATE: (max if higher else min)(rate for rate in settings if rate >= 0.02)}
