"""When a candidate of a search counts as faster: the spread of repeated trials, their errors, and the memory taken."""

from __future__ import annotations

import math

import pytest
from gputui.engine import presets
from gputui.engine.trials.search_record import Candidate
from gputui.engine.trials.significance import LEAST_GAIN
from gputui.engine.trials.trial import Trial
from gputui.engine.tune.candidates import judgement
from gputui.engine.tune.candidates.judgement import FIRST_NOISE, Best

GB = 1_000_000_000


def candidate(*speeds: float, peak_bytes: int | None = None) -> Candidate:
    trials = [Trial(side="s", repeat=1, run="01-s", outcome="ok", samples_per_second=speed) for speed in speeds]
    return Candidate(stage="xla", settings={}, tried={}, trials=trials, peak_bytes=peak_bytes)


def best(*speeds: float, peak_bytes: int | None = None) -> Best:
    return Best(presets.defaults(), {}, candidate(*speeds, peak_bytes=peak_bytes))


def test_the_noise_is_pooled_over_all_repeated_trials() -> None:
    """Each repetition weighs the same; the first guess weighs as one."""
    assert judgement.noise_of([]) == judgement.noise_of([candidate(100.0), candidate(7.0)]) == FIRST_NOISE
    three, two = candidate(90.0, 100.0, 110.0), candidate(100.0, 104.0)  # variances 100 and 8
    expected = math.sqrt((2 * 100 / 100**2 + 8 / 102**2 + FIRST_NOISE**2) / (2 + 1 + 1))
    assert judgement.noise_of([three, candidate(50.0), two]) == pytest.approx(expected)
    three.trials.append(Trial(side="s", repeat=2, run="02-s", outcome="oom"))
    assert judgement.noise_of([three, two]) == pytest.approx(expected), "what failed has no speed"


@pytest.mark.parametrize(
    ("speeds", "decision", "words"),
    [
        ((110.0,), "kept", "+10.0 %"),
        ((106.0,), "kept", "+6.0 %"),
        ((104.0,), "rejected", "not more than"),
        ((99.0,), "rejected", "not more than"),
        ((80.0,), "rejected", "slower"),
        ((104.0, 104.0, 104.0), "kept", "+4.0 %"),
    ],
)
def test_a_gain_counts_above_its_standard_error(speeds: tuple[float, ...], decision: str, words: str) -> None:
    """Of one trial each with a spread of 4 % that is 5.7 %; of three against four it is 3.1 %."""
    judged = candidate(*speeds)
    judgement.decide(judged, best(*[100.0] * (1 if len(speeds) == 1 else 4)), 0.04, None)
    assert judged.decision == decision
    assert words in judged.why


@pytest.mark.parametrize(
    ("peak", "may_take", "before", "fits"),
    [
        (9, 10, None, True),
        (10, 10, None, True),
        (11, 10, None, False),
        (11, None, None, True),
        (12, 10, 12, True),
        (12, 10, 11, False),
        (None, 10, 4, True),
    ],
)
def test_memory_may_be_planned_or_was_taken_before(
    peak: int | None, may_take: float | None, before: int | None, fits: bool
) -> None:
    size = None if peak is None else peak * GB
    judged, base = candidate(150.0, peak_bytes=size), best(100.0, peak_bytes=None if before is None else before * GB)
    limit = None if may_take is None else may_take * GB
    assert (judgement.takes_too_much(judged, base, limit) == "") is fits
    judgement.decide(judged, base, 0.03, limit)
    assert judged.decision == ("kept" if fits else "rejected")
    if not fits:
        assert "but only" in judged.why


def test_what_the_waits_say_is_weighed_with_the_speeds_unless_these_gain_clearly_more() -> None:
    judged = candidate(103.0)
    judged.gain_by_waits = 0.05
    gain, error = judgement.compare(judged, best(100.0), 0.04)
    assert (judged.gain, judged.spread) == (gain, error)
    assert 0.03 < gain < 0.05
    assert error < judgement.standard_error(0.04, 1, 1)
    judged = candidate(140.0)  # more than the waits explain: the work itself is faster
    judged.gain_by_waits = 0.05
    assert judgement.compare(judged, best(100.0), 0.04) == pytest.approx((0.4, 0.04 * math.sqrt(2)))
    judged.gain_by_waits = LEAST_GAIN  # says nothing
    assert judgement.compare(judged, best(141.0), 0.04)[0] == pytest.approx(140 / 141 - 1)


@pytest.mark.parametrize(
    ("speed", "by_waits", "again"),
    [
        (105.0, None, False),  # within a standard error of 5.7 %
        (107.0, None, True),
        (112.0, None, False),  # clear: twice the error
        (100.0, 0.09, True),  # by the waits alone
        (100.0, 0.019, False),
    ],
)
def test_a_gain_that_counts_and_may_be_chance_is_measured_again(
    speed: float, by_waits: float | None, again: bool
) -> None:
    judged = candidate(speed)
    judged.gain_by_waits = by_waits
    assert judgement.seems_to_gain(judged, best(100.0), 0.04) is again


def test_a_failed_candidate_names_its_fault_and_one_that_was_ended_its_speed() -> None:
    judged = candidate(100.0, 80.0)
    judged.trials[-1].outcome, judged.trials[-1].error = "slower", "ended after 2 s"
    judgement.decide_failed(judged, best(100.0))
    assert (judged.decision, judged.why) == ("rejected", "-20.0 %: ended after 2 s")
    assert judged.gain == pytest.approx(-0.2)
    judged = candidate(100.0)
    judged.trials[-1].outcome, judged.trials[-1].error = "oom", "no room"
    judgement.decide_failed(judged, best(100.0))
    assert (judged.decision, judged.why, judged.gain) == ("failed", "oom: no room", None)


@pytest.mark.parametrize(
    ("gain", "spread", "may"),
    [(None, 0.5, False), (-0.05, None, True), (-0.12, None, False), (-0.12, 0.07, True), (0.03, None, True)],
)
def test_chance_may_have_rejected_what_was_not_clearly_slower(
    gain: float | None, spread: float | None, may: bool
) -> None:
    """A single trial each with a spread of 4 % differs by 5.7 %."""
    judged = candidate(100.0)
    judged.gain, judged.spread = gain, spread
    assert judgement.may_be_faster(judged, 0.04) is may


def test_the_gain_by_waits_is_told_where_it_is_more() -> None:
    for by_waits, words in ((0.30, "+10.0 % (+30.0 % by its waits)"), (0.05, "+10.0 %")):
        judged = candidate(110.0)
        judged.gain_by_waits = by_waits
        assert judgement._gain_text(judged, 0.10) == words


@pytest.mark.parametrize(("speed", "decision"), [(101.9, "rejected"), (102.1, "kept")])
def test_a_gain_of_less_than_a_fiftieth_does_not_count_however_certain(speed: float, decision: str) -> None:
    judged = candidate(speed)
    assert judgement.seems_to_gain(judged, best(100.0), 0.013) is (decision == "kept")
    judgement.decide(judged, best(100.0), 0.001, None)
    assert judged.decision == decision
