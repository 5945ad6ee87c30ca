"""The rule by which a change is called faster: how pairs are judged, and how often noise alone passes for a gain."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from gputui.engine import plan, presets
from gputui.engine.proof import comparing, diagnosing, efficiency, learning


@pytest.mark.parametrize(
    ("gains", "decision"),
    [
        ((0.30, 0.32, 0.28), "faster"),
        ((0.019, 0.0191, 0.0189), "no difference"),  # sure, but not worth it
        ((0.05, 0.30, -0.10), "undecided"),  # within twice the spread
        ((0.10, 0.16, 0.04), "undecided"),  # 10 % at a spread of 6 %: not more than twice
        ((0.10, 0.16, 0.04, 0.14, 0.06), "faster"),  # five pairs tell it
        ((0.00, 0.03, -0.03), "undecided"),  # nothing below 6 % would have been seen
        ((-0.30, -0.32, -0.28), "slower"),
        ((3.0, 6.1, 9.4), "faster"),  # 4, 7 and 10 times as fast, however far these gains are apart
        ((-0.75, -0.86, -0.904), "slower"),  # the same with the sides exchanged
        ((0.30, 0.32), "undecided"),  # two pairs do not show their spread
        ((7.0, 7.6), "faster"),  # unless they agree by far
        ((-0.87, -0.88), "slower"),
        ((7.0, 9.6), "undecided"),  # the logarithm is 2.2, and the spread 14 %
        ((1.0, 1.0), "undecided"),  # twice as fast: two pairs that happen to agree are not enough
        ((), "undecided"),
    ],
)
def test_a_change_counts_beyond_two_percent_and_twice_the_spread(gains: Sequence[float], decision: str) -> None:
    assert comparing.verdict(gains)[0] == decision


def test_gain_is_the_median_and_spread_the_sample_standard_deviation_of_logarithms() -> None:
    assert comparing.gain(200.0, 300.0) == pytest.approx(0.5)
    assert comparing.gain_and_spread([0.0, 1.0, 3.0]) == pytest.approx((1.0, math.log(2)))
    assert comparing.gain_and_spread([0.1]) == (0.1, None)
    assert [comparing.order(repeat) for repeat in (1, 2, 3)] == ["ab", "ba", "ab"]


def test_noise_alone_passes_for_a_gain_as_rarely_as_the_docstring_says() -> None:
    noise = random.Random(5)
    drawn = [[noise.gauss(0, 0.1) for _ in range(3)] for _ in range(20_000)]
    faster = sum(comparing.verdict(gains)[0] == "faster" for gains in drawn)
    assert 0.03 < faster / len(drawn) < 0.05


@pytest.mark.parametrize("noise", [0.03, 0.3])
def test_a_search_that_looks_after_two_pairs_claims_nothing_more_often_than_five_times_in_a_hundred(
    noise: float,
) -> None:
    """Of a change that does nothing: after two pairs, after three, and after as many as their spread asks for."""
    drawn = random.Random(11)

    def pairs(count: int) -> list[float]:
        return [math.expm1(drawn.gauss(0, math.sqrt(2) * noise)) for _ in range(count)]

    claims = Counter[str]()
    for _ in range(8_000):
        gains = pairs(comparing.FEW)
        if comparing.verdict(gains)[0] == "faster":
            claims["two"] += 1
            continue
        decision = comparing.verdict(gains := gains + pairs(1))[0]
        median, spread = comparing.gain_and_spread(gains)
        if decision == "undecided" and median is not None and spread is not None and median > 0:
            more = comparing.pairs_needed(median, spread) - len(gains)
            decision = comparing.verdict(gains + pairs(min(more, comparing.MOST_MORE_PAIRS)))[0]
        claims["more"] += decision == "faster"
    assert claims.total() / 8_000 < 0.05
    assert claims["two"] / 8_000 < 0.002


@pytest.mark.parametrize(
    ("replicas", "gain", "said"),
    [
        ((1, 2), 0.84, "2 replicas instead of 1: an efficiency of 92 %"),
        ((4, 1), -0.6, "1 replica instead of 4: an efficiency of 160 %"),
        ((2, 2), 0.5, ""),
        ((1, 2), None, ""),
        ((None, 2), 0.5, ""),
    ],
)
def test_the_efficiency_of_replicas_is_the_gain_over_their_number(
    replicas: tuple[int | None, int], gain: float | None, said: str
) -> None:
    trials = [{"side": s, "outcome": "ok", "replicas": n} for s, n in zip("ab", replicas, strict=True)]
    trials.append({"side": "b", "outcome": "error", "replicas": 9})
    assert efficiency.of_comparison({"trials": trials, "gain": gain}) == said
    mixed = [*trials, {"side": "b", "outcome": "ok", "replicas": 3}]
    assert efficiency.of_comparison({"trials": mixed, "gain": gain}) == ""


@pytest.mark.parametrize(
    ("samples", "loss"), [(9, None), (10, 4.0), (15, 3.0), (20, 2.0), (30, 2.0), (40, 2.0), (41, None)]
)
def test_the_loss_is_that_between_the_two_readings_around(samples: float, loss: float | None) -> None:
    assert learning.loss_at([(10, 4.0), (20, 2.0), (20, 1.0), (40, 2.0)], samples) == (
        1.5 if samples == 30 else loss)  # fmt: skip


def test_a_remedy_is_tried_once_and_not_where_all_it_changes_is_set_already() -> None:
    picking, preset = diagnosing.Picking(), presets.defaults(["input.cache=memory", "input.prefetch=auto"])
    remedies: list[dict[str, object]] = [
        {"changes": {"input.cache": "memory"}},
        {"changes": {"input.cache": "memory", "input.prefetch": 3}},
        {"changes": {"input.prefetch": 3, "input.cache": "memory"}},
        {"changes": {"compile.xla": True}},
        {"changes": {}},
    ]
    assert picking.untried({"remedies": remedies}, preset) == remedies[1:4]
    picking.tried(remedies[1])
    assert picking.untried({"remedies": remedies}, preset) == [remedies[3]]


def test_too_few_steps_are_to_be_measured_for_longer() -> None:
    diagnosis = {"verdict": "undecided", "sentence": "Nothing is known", "steps": plan.LEAST_STEPS - 1}
    assert diagnosing.undecided(diagnosis, 2.0) == "Nothing is known; measure longer: --seconds 6"
    assert diagnosing.undecided(diagnosis | {"steps": plan.LEAST_STEPS}, 2.0) == "Nothing is known"
    assert diagnosing.undecided(diagnosis | {"verdict": "input"}, 2.0) == ""
