"""The rule by which a change is called faster: how pairs are judged, and how often noise alone passes for a gain."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine import diagnosis, plan, presets
from gputui.engine.diagnosis import collector
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.proof import folder, request, trial_diagnosis
from gputui.engine.runs import Run
from gputui.engine.runs.events import Diagnosis
from gputui.engine.trials import comparing, scaling_sentences, significance
from gputui.engine.trials.record import Comparison
from gputui.engine.trials.trial import Trial
from gputui.engine.trials.trial_runner import TrialRunner

from tests.support.judged import measured
from tests.support.typed import typed


@pytest.mark.parametrize(
    ("gains", "decision"),
    [
        ((0.30, 0.32, 0.28), "faster"),
        ((0.019, 0.0191, 0.0189), "no difference"),  # sure, but not worth it
        ((0.10, 0.13, 0.07), "undecided"),  # 10 % at a spread of 3 %: not more than 4.1 times
        ((0.10, 0.13, 0.07, 0.12, 0.08), "faster"),  # five pairs tell it
        ((0.00, 0.03, -0.03), "undecided"),  # nothing below 6 % would have been seen
        ((-0.30, -0.32, -0.28), "slower"),
        ((4.0, 6.1, 9.4), "faster"),  # 5, 7 and 10 times as fast, however far these gains are apart
        ((-0.8, -0.86, -0.904), "slower"),  # the same with the sides exchanged
        ((0.30, 0.32), "undecided"),  # two pairs do not show their spread
        ((7.0, 7.6), "faster"),  # unless they agree by far
        ((-0.87, -0.88), "slower"),
        ((7.0, 9.6), "undecided"),  # the logarithm is 2.2, and the spread 14 %
        ((1.0, 1.0), "undecided"),  # twice as fast: two pairs that happen to agree are not enough
        ((), "undecided"),
    ],
)
def test_a_change_counts_beyond_two_percent_and_chance(gains: Sequence[float], decision: str) -> None:
    assert significance.verdict(gains)[0] == decision


def test_gain_is_the_median_and_spread_the_sample_standard_deviation_of_logarithms() -> None:
    assert significance.gain(200.0, 300.0) == pytest.approx(0.5)
    assert significance.gain_and_spread([0.0, 1.0, 3.0]) == pytest.approx((1.0, math.log(2)))
    assert significance.gain_and_spread([0.1]) == (0.1, None)
    assert [significance.order(repeat) for repeat in (1, 2, 3)] == ["ab", "ba", "ab"]


@pytest.mark.parametrize("count", [3, 5, 10, 15])
def test_noise_alone_passes_for_a_gain_as_rarely_as_the_docstring_says(count: int) -> None:
    noise = random.Random(5)
    drawn = ([math.expm1(noise.gauss(0, 0.1)) for _ in range(count)] for _ in range(20_000))
    assert sum(significance.verdict(gains)[0] == "faster" for gains in drawn) / 20_000 < 0.012


def test_the_spreads_that_count_follow_the_known_quantiles_of_student() -> None:
    known = {2: 31.821, 3: 6.965, 4: 4.541, 5: 3.747, 6: 3.365, 7: 3.143, 10: 2.821, 30: 2.462}  # for 99 %
    for count, quantile in known.items():
        of_the_median = math.sqrt(math.pi / (2 * count + math.pi))
        assert significance.spreads(count) == pytest.approx(quantile * of_the_median, abs=0.002)


@pytest.mark.parametrize("noise", [0.03, 0.3])
def test_a_search_that_looks_after_two_pairs_claims_nothing_as_rarely_as_the_docstring_says(
    noise: float,
) -> None:
    """Of a change that does nothing: after two pairs, after three, and after as many as their spread asks for."""
    drawn = random.Random(11)

    def pairs(count: int) -> list[float]:
        return [math.expm1(drawn.gauss(0, math.sqrt(2) * noise)) for _ in range(count)]

    claims = Counter[str]()
    for _ in range(8_000):
        gains = pairs(significance.FEW)
        if significance.verdict(gains)[0] == "faster":
            claims["two"] += 1
            continue
        decision = significance.verdict(gains := gains + pairs(1))[0]
        median, spread = significance.gain_and_spread(gains)
        if decision == "undecided" and median is not None and spread is not None and median > 0:
            more = significance.pairs_needed(median, spread) - len(gains)
            decision = significance.verdict(gains + pairs(min(more, significance.MOST_MORE_PAIRS)))[0]
        claims["more"] += decision == "faster"
    assert claims.total() / 8_000 < 0.025
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
    assert scaling_sentences.of_comparison(typed(Comparison, {"trials": trials, "gain": gain})) == said
    mixed = [*trials, {"side": "b", "outcome": "ok", "replicas": 3}]
    assert scaling_sentences.of_comparison(typed(Comparison, {"trials": mixed, "gain": gain})) == ""


@pytest.mark.parametrize(
    ("samples", "loss"), [(9, None), (10, 4.0), (15, 3.0), (20, 2.0), (30, 2.0), (40, 2.0), (41, None)]
)
def test_the_loss_is_that_between_the_two_readings_around(samples: float, loss: float | None) -> None:
    assert comparing.loss_at([(10, 4.0), (20, 2.0), (20, 1.0), (40, 2.0)], samples) == (
        1.5 if samples == 30 else loss)  # fmt: skip


def test_a_remedy_is_tried_once_and_not_where_all_it_changes_is_set_already() -> None:
    picking, preset = trial_diagnosis.Picking(), presets.defaults(["input.cache=memory", "input.prefetch=auto"])
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
    assert trial_diagnosis.undecided(diagnosis, 2.0) == "Nothing is known; measure longer: --seconds 6"
    assert trial_diagnosis.undecided(diagnosis | {"steps": plan.LEAST_STEPS}, 2.0) == "Nothing is known"
    assert trial_diagnosis.undecided(diagnosis | {"verdict": "input"}, 2.0) == ""


def row(speed: float | None, **fields: Any) -> Trial:
    known: dict[str, Any] = {"side": "a", "repeat": 1, "run": "01-a", "outcome": "ok", "samples_per_second": speed}
    return Trial(**known | fields)


def test_the_trial_of_median_speed_stands_for_all() -> None:
    assert trial_diagnosis.middle([row(3.0), row(1.0), row(2.0)]).samples_per_second == 2.0
    assert trial_diagnosis.middle([row(3.0), row(2.0)]).samples_per_second == 2.0
    assert trial_diagnosis.middle([row(None), row(4.0), row(5.0)]).samples_per_second == 4.0


@pytest.mark.parametrize(("gain", "cost"), [(None, None), (0.25, 0.2), (0.0, 0.0), (-0.1, 0.0)])
def test_the_cost_of_the_input_is_the_share_that_a_step_without_it_saves(
    gain: float | None, cost: float | None
) -> None:
    assert trial_diagnosis.input_cost(gain) == (None if cost is None else pytest.approx(cost))


class ProfilingBench:
    """Measures nothing, and says of the profiled trial what a test plants."""

    def __init__(self, measure_seconds: float, outcome: str) -> None:
        self.measure_seconds, self.outcome = measure_seconds, outcome
        self.asked: dict[str, Any] = {}

    def measure(self, preset: presets.Preset, side: str, repeat: int, **how: Any) -> Trial:
        self.asked = {"steps_per_execution": preset.options.compile.steps_per_execution, "side": side} | how
        return row(10.0, outcome=self.outcome, error="no\nmore")

    def run_of(self, trial: Trial) -> str:
        return trial.run


@pytest.mark.parametrize(("step_ms", "least", "seconds"), [(100.0, 5.0, 5.8), (100.0, 6.0, 6.0), (None, 5.0, 5.0)])
def test_a_profiled_trial_is_long_enough_for_its_last_profiled_step(
    step_ms: float | None, least: float, seconds: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Step 49 is the 29th after the warm-up, and may take twice the time that the real trial needed."""
    record = folder.empty_record(tmp_path, request.of_preset("diagnosis", "quickstart", []))
    bench = ProfilingBench(least, "ok")
    shares = SimpleNamespace(communication=0.3)
    monkeypatch.setattr("gputui.engine.profile.reports.read", lambda run: SimpleNamespace(shares=shares))
    monkeypatch.setattr(trial_diagnosis, "asdict", vars)
    preset = presets.defaults(["compile.steps_per_execution=8"])
    share = trial_diagnosis.profile(
        cast(TrialRunner, bench), preset, row(9.0, step_ms=step_ms), record, lambda text: None
    )
    assert (share, record.profile, record.profile_missing) == (0.3, {"shares": shares}, "")
    assert bench.asked == {"steps_per_execution": 1, "side": "p", "seconds": pytest.approx(seconds), "profile": "30-49"}
    assert record.profile_trial is not None


def test_why_there_is_no_profile_is_recorded_in_one_line(tmp_path: Path) -> None:
    record = folder.empty_record(tmp_path, request.of_preset("diagnosis", "quickstart", []))
    bench = cast(TrialRunner, ProfilingBench(5.0, "crashed"))
    assert trial_diagnosis.profile(bench, presets.defaults(), row(9.0), record, lambda text: None) is None
    assert record.profile_missing == "the profiled trial failed: crashed: no more"


@pytest.mark.parametrize(
    ("figures", "settings", "per_epoch"),
    [
        ({"train_samples": 100, "global_batch_size": 32}, (), 4),
        ({"train_samples": 100, "global_batch_size": 32}, ("input.drop_remainder=true",), 3),
        ({"train_samples": 10, "global_batch_size": 32}, ("input.drop_remainder=true",), 1),
        ({"train_samples": 100, "global_batch_size": 32}, ("train.steps_per_epoch=7",), 7),
        ({"train_samples": None, "global_batch_size": 32}, (), None),
        ({"train_samples": 100, "global_batch_size": None}, (), None),
    ],
)
def test_a_trial_is_diagnosed_as_the_real_run_with_what_the_proof_knows(
    figures: dict[str, Any], settings: tuple[str, ...], per_epoch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Measurements] = []

    def diagnose(known: Measurements) -> Diagnosis:
        seen.append(known)
        return diagnosis.diagnose(known)

    monkeypatch.setattr(trial_diagnosis, "diagnose", diagnose)
    monkeypatch.setattr(collector, "read", lambda run: measured(steps_per_epoch=999, **figures))
    preset = presets.defaults(settings)
    diagnosed = trial_diagnosis.of_trial(Run(Path("x")), preset, 0.25, 0.1)
    assert diagnosed["verdict"]
    assert (seen[0].steps_per_epoch, seen[0].ablation, seen[0].communication) == (per_epoch, 0.25, 0.1)
    assert seen[0].options == trial_diagnosis.flat(preset)
    assert seen[0].options["train.steps_per_epoch"] == preset.options.train.steps_per_epoch


def test_a_newer_diagnosis_counts_and_one_that_is_undecided_keeps_the_earlier_remedies() -> None:
    earlier = {"verdict": "input_bound", "remedies": [{"changes": {"a": 1}, "expected_gain": 1.5}]}
    decided = {"verdict": "compute_bound", "remedies": []}
    assert trial_diagnosis.renewed(decided, earlier) == decided
    assert trial_diagnosis.renewed({"verdict": "undecided", "remedies": [], "steps": 3}, earlier) == {
        "verdict": "undecided", "remedies": [{"changes": {"a": 1}, "expected_gain": None}], "steps": 3,
    }  # fmt: skip


def test_a_diagnosis_of_too_few_steps_says_how_long_to_measure() -> None:
    unsure = {"verdict": "undecided", "sentence": "too short", "steps": plan.LEAST_STEPS - 1}
    assert trial_diagnosis.undecided(unsure, 1.0) == f"too short; measure longer: --seconds {plan.seconds_to_ask(1.0)}"
    assert trial_diagnosis.undecided(unsure | {"steps": plan.LEAST_STEPS}, 1.0) == "too short"
    assert trial_diagnosis.undecided(unsure | {"verdict": "healthy"}, 1.0) == ""


class SpeedsBench:
    """Measures trials of planted speeds, or of outcomes other than `ok`, in the order in which they are asked for."""

    def __init__(self, *planted: float | str) -> None:
        self.planted = list(planted)
        self.sides: list[str] = []
        self.stop = SimpleNamespace(count=0)

    def measure(self, preset: presets.Preset, side: str, repeat: int, **how: Any) -> Trial:
        assert preset.options.compile.xla is (side == "b"), "the changed side has the change"
        self.sides.append(side)
        now = self.planted.pop(0)
        if now == "stop":
            self.stop.count, now = 1, "stopped"
        return row(None, side=side, outcome=now) if isinstance(now, str) else row(now, side=side)


def pairs_of(bench: SpeedsBench, repeats: int = 3, **more: Any) -> tuple[comparing.Comparing, Comparison]:
    comparison = Comparison(changes={"compile.xla": True})
    a, b = (presets.defaults([f"compile.xla={xla}"]) for xla in ("false", "true"))
    return comparing.Comparing(
        cast(TrialRunner, bench), comparison, a, b, repeats, lambda text: None, **more
    ), comparison


def test_pairs_are_measured_in_turns_and_end_early_only_if_they_may_and_agree_by_far() -> None:
    bench = SpeedsBench(1.0, 8.0, 8.0, 1.0, 1.0, 8.0)
    assert pairs_of(bench)[0].measure() == [7.0] * 3
    assert bench.sides == list("abbaab")
    assert pairs_of(SpeedsBench(1.0, 8.0, 8.0, 1.0), may_end_early=True)[0].measure() == [7.0] * 2
    assert len(pairs_of(SpeedsBench(1.0, 2.0, 2.0, 1.0, 1.0, 2.0), may_end_early=True)[0].measure()) == 3


def test_a_trial_that_was_just_measured_is_side_a_of_the_first_pair_and_of_no_other() -> None:
    bench = SpeedsBench(8.0, 8.0, 2.0)
    pairs, comparison = pairs_of(bench, repeats=2, first_a=row(4.0))
    assert pairs.measure() == [1.0, 3.0]
    assert (bench.sides, len(comparison.trials)) == (list("bba"), 4)


def test_further_pairs_are_those_that_are_missing_and_end_with_a_changed_side_that_fails() -> None:
    bench = SpeedsBench(*[1.0, 2.0, 2.0, 1.0], *[1.0, 2.0, 2.0, 1.0])
    pairs, comparison = pairs_of(bench, repeats=2)
    pairs.measure()
    pairs.measure_more(4)
    assert (len(pairs.gains), bench.sides) == (4, list("abbaabba"))
    bench.planted = [1.0, "oom"]
    pairs.measure_more(6)
    assert (len(pairs.gains), comparison.gain, comparison.decision) == (4, 1.0, "running")


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        ((1.0, 2.0, "oom"), "oom: None"),
        ((1.0, "error"), "error: None"),
        ((1.0, "crashed", 2.0, "crashed"), "it died 2 times; the last was crashed: None"),
    ],
)
def test_a_changed_side_that_fails_ends_the_comparison_without_a_gain(planted: tuple[Any, ...], why: str) -> None:
    pairs, comparison = pairs_of(SpeedsBench(*planted))
    pairs.measure()
    assert (comparison.decision, comparison.why) == ("failed", why)
    assert (comparison.gain, comparison.spread) == (None, None)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        (("oom", "error"), comparing.BaselineFailed),
        (("stop",), comparing.Stopped),
        ((1.0, "stop"), comparing.Stopped),
    ],
)
def test_a_baseline_that_fails_twice_or_a_stop_ends_the_comparison(
    planted: tuple[Any, ...], fault: type[Exception]
) -> None:
    bench = SpeedsBench(*planted)
    pairs, comparison = pairs_of(bench)
    with pytest.raises(fault):
        pairs.measure()
    ended = "stopped" if fault is comparing.Stopped else "failed"
    why = {"stopped": "stopped before the comparison was complete", "failed": "the baseline cannot be measured"}[ended]
    assert (comparison.decision, comparison.why) == (ended, why)
    assert len(bench.sides) == len(planted)


def test_after_a_stop_no_further_trial_begins() -> None:
    bench = SpeedsBench(1.0)
    bench.stop.count = 1
    with pytest.raises(comparing.Stopped):
        pairs_of(bench)[0].measure()
    assert bench.sides == []


@pytest.mark.parametrize(
    ("gain", "spread", "pairs"),
    [(0.10, 0.01, 3), (0.10, 0.10, 12), (-0.10, 0.10, 10), (0.001, 0.02, 11), (0.10, 0.05, 5)],
)
def test_the_smallest_number_of_pairs_whose_threshold_is_below_the_gain_is_needed(
    gain: float, spread: float, pairs: int
) -> None:
    assert significance.pairs_needed(gain, spread) == pairs
    least = math.log1p(max(abs(gain), significance.LEAST_GAIN) if gain > 0 else -gain / (1 + gain))
    assert pairs == 3 or significance.spreads(pairs) * spread < least <= significance.spreads(pairs - 1) * spread
