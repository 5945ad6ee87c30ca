"""What a change gains by the waits of its trials."""

from __future__ import annotations

import pytest
from gputui.engine.trials.search_record import Candidate
from gputui.engine.trials.trial import Trial
from gputui.engine.tune.candidates import judgement
from gputui.engine.tune.report import search_sentences

from tests.support.typed import typed


def trial(input_wait: float | None, python_share: float | None) -> Trial:
    return Trial(side="s", repeat=1, run="r", outcome="ok", input_wait=input_wait, python_share=python_share)


STEPS, PREFETCH = {"compile.steps_per_execution": 4}, {"input.prefetch": "auto"}


def test_the_gain_is_that_of_the_time_beside_the_waits_that_the_options_change() -> None:
    after, before = [trial(0.0, 0.1)], [trial(0.3, 0.2), trial(0.5, 0.2)]
    assert judgement.gain(STEPS, after, before) == pytest.approx(0.9 / 0.8 - 1)
    assert judgement.gain(PREFETCH, after, before) == pytest.approx(1.0 / 0.6 - 1)
    assert judgement.gain(STEPS | PREFETCH, after, before) == pytest.approx(0.9 / 0.4 - 1)
    assert judgement.gain(STEPS, [trial(0.0, None)], before) is None
    assert judgement.gain(STEPS, after, []) is None
    assert judgement.gain(STEPS | PREFETCH, after, [trial(0.6, 0.4)]) is None, "nothing is left to compare with"


def test_only_the_input_and_the_steps_of_an_execution_leave_the_work_as_it_is() -> None:
    assert judgement.leaves_the_work(STEPS | PREFETCH)
    for other in ("input.batch_size", "precision.policy", "compile.xla"):
        assert not judgement.leaves_the_work(STEPS | {other: 64}), other


def test_the_surer_of_two_gains_counts_for_more() -> None:
    small, error = judgement.weighed(0.0, judgement.LEAST_ERROR, 0.05)
    assert small == pytest.approx(1.05**0.5 - 1)
    assert error == pytest.approx(judgement.LEAST_ERROR / 2**0.5)
    assert judgement.weighed(0.0, 0.001, 0.05)[0] < 0.001
    assert judgement.weighed(0.0, 1.0, 0.05)[0] > 0.049


def test_waits_that_promise_much_more_than_is_measured_are_not_believed() -> None:
    """An input that runs beside the training on busy cores is no longer waited for, and nothing is gained."""
    gain, error = judgement.weighed(0.0, 0.04, 1.0)
    assert gain < error


def test_a_list_says_what_a_gain_by_waits_is_where_one_counted() -> None:
    figures = {"gain": 0.04}, {"gain": 0.2, "gain_by_waits": 0.06}, {"gain": -0.04, "gain_by_waits": 0.01}
    by_speed = [typed(Candidate, one) for one in figures]
    assert search_sentences.about_gains(by_speed) == search_sentences.ABOUT_COLUMNS
    assert search_sentences.about_gains([*by_speed, typed(Candidate, {"gain": 0.04, "gain_by_waits": 0.06})]).endswith(
        search_sentences.ABOUT_WAITS
    )
