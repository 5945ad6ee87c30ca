"""Values on both sides of each limit of a search: its time, batches, learning rate and second look."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine import presets
from gputui.engine.proof import folder, request
from gputui.engine.proof.request import ProofError
from gputui.engine.trials.search_record import Candidate, Limits, LossCheck
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import decision, losses, tune_request
from gputui.engine.tune.rate import suggestion
from gputui.engine.tune.stages import recheck
from gputui.engine.tune.stages.batch_size import rounded
from gputui.engine.tune.time_plan import TimePlan, changes_learning

from tests.support import recorded
from tests.support.proving import HERE
from tests.support.recorded_search import write_search
from tests.support.typed import typed

XLA, CACHE, BATCH = {"compile.xla": True}, {"input.cache": "memory"}, {"input.batch_size": 128}


@pytest.mark.parametrize(
    ("minutes", "trial", "pairs", "learning", "changes"),
    [
        (2.2, 10.0, 3, 0.0, 4),  # 66 s for the decision, which are 3 pairs
        (2.19, 10.0, 2, 21.7, 4),
        (1.46, 10.0, 0, 0.0, 6),
        (10.0, 10.0, 3, 120.0, 39),
        (0.5, 10.0, 0, 0.0, 1),
        (0.33, 10.0, 0, 0.0, 0),
    ],
)
def test_the_minutes_are_divided(minutes: float, trial: float, pairs: int, learning: float, changes: int) -> None:
    plan = TimePlan.of(Limits(minutes=minutes), trial, measure_seconds=2.0, repeats=3)
    assert (plan.pairs, plan.changes) == (pairs, changes)
    assert plan.learning_seconds == pytest.approx(learning)
    assert plan.decision_seconds == pytest.approx(66.0 * pairs / 3 + learning)
    assert plan.grace_seconds == pytest.approx(6 * minutes)


def test_a_trial_of_a_pair_lasts_longer_by_its_measured_seconds() -> None:
    assert TimePlan.of(Limits(), 10.0, 5.0, 3).pair_trial == 13.0
    assert TimePlan.of(Limits(), 10.0, 1.0, 3).pair_trial == 10.0
    assert [changes_learning(stages) for stages in ((), ("xla", "input"), ("xla", "precision"))] == [True, False, True]


@pytest.mark.parametrize(("batch", "multiple"), [(15, 15), (16, 16), (23, 16), (24, 24), (1, 1)])
def test_a_batch_size_is_a_multiple_of_eight_from_sixteen_on(batch: int, multiple: int) -> None:
    assert rounded(batch) == multiple


@pytest.mark.parametrize(
    ("settings", "limits", "expected"),
    [
        ({"input.batch_size": 128}, {"learning_rate": "keep"}, {}),
        ({"input.batch_size": 32}, {"learning_rate": "linear"}, {}),
        ({"input.batch_size": 128}, {"learning_rate": "linear"}, {"train.learning_rate": 0.004,
         "train.decay_steps": 25}),
        ({"input.batch_size": 128}, {"learning_rate": "sqrt", "warmup_steps": 7}, {"train.learning_rate": 0.002,
         "train.decay_steps": 25, "train.warmup_steps": 7}),
        ({"input.batch_size": 16}, {"learning_rate": "linear"}, {"train.learning_rate": 0.0005,
         "train.decay_steps": 200}),
        ({"input.batch_size": 32_000}, {"learning_rate": "linear"}, {"train.learning_rate": 1.0,
         "train.decay_steps": 1}),
    ],
)  # fmt: skip
def test_the_learning_rate_and_its_schedule_follow_the_batch(
    settings: dict[str, Any], limits: dict[str, Any], expected: dict[str, Any]
) -> None:
    preset = presets.defaults(["batch_size=32", "learning_rate=0.001", "schedule=cosine", "decay_steps=100"])
    assert decision.scaled(preset, settings, Limits(**limits), HERE) == settings | expected


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        ({"only": ["xlla"]}, "'xlla' cannot be searched, did you mean xla?; there are "),
        ({"precisions": ["float8"]}, "there is no precision 'float8'; there are float32"),
        ({"warmup_steps": 5, "learning_rate": "keep"}, "warm-up steps belong to a scaled learning rate: choose linear "
         "or sqrt as well"),
        ({"only": ["xla"], "leave": ["xla"]}, "nothing is left to search: xla is both searched and left out"),
        ({"leave": ["input"]}, "--leave takes single options; input is left out by naming the others with --only"),
        ({"study": "s"}, "a study belongs to a wide search: give --wide as well"),
    ],
)  # fmt: skip
def test_limits_that_mean_nothing_are_refused_in_a_line(limits: dict[str, Any], fault: str) -> None:
    with pytest.raises(ProofError) as refused:
        tune_request.checked(Limits(**limits))
    assert str(refused.value).startswith(fault)
    checked = tune_request.checked(Limits(only=["xla", "input"], leave=["batch_size", "cache"]))
    assert list(checked.leave) == ["input.batch_size", "input.cache"]


def test_a_search_from_the_form_is_asked_for_and_checked_as_one_of_a_command(home: Path, tmp_path: Path) -> None:
    preset, source = presets.defaults(["epochs=3"]), tmp_path / "mine.yaml"
    limits = Limits(leave=["batch_size", "cache"], minutes=12.0, only=["xla", "input"])
    made = tune_request.of_opened(preset, source, limits, repeats=4)
    assert (made.kind, made.source, made.repeats, made.baseline().options.train.epochs) == ("tune", str(source), 4, 3)
    assert made.search == Limits(leave=["input.batch_size", "input.cache"], minutes=12.0, only=["xla", "input"])
    assert tune_request.of_opened(preset, None, limits).source is None
    for wrong, fault in (({"only": ["xlla"]}, "'xlla' cannot be searched"), ({"minutes": 0.01}, "0.01 min are too few"),
                         ({"leave": ["nothing_like_that"]}, "--leave nothing_like_that: "),
                         ({"study_name": "mine"}, "a study belongs to a wide search")):  # fmt: skip
        refused_limits: dict[str, Any] = dict(wrong)
        with pytest.raises(ProofError) as refused:
            tune_request.of_opened(preset, source, Limits(**refused_limits))
        assert str(refused.value).startswith(fault)


def curve(lowest: float, steps: int = 100, low: float = 0.1) -> tuple[list[float], list[float | None]]:
    """A ramp from 1e-5 to 1 whose loss is 2, falls to `low` around the rate `lowest`, and rises again."""
    rates = [suggestion.rate_at(step, 1e-5, 1.0, steps) for step in range(steps)]
    away = [abs(math.log10(rate / lowest)) for rate in rates]
    return rates, [2.0 - (2.0 - low) * math.exp(-((2 * far) ** 2)) for far in away]


def test_the_suggestion_of_a_curve_without_noise() -> None:
    rates, losses = curve(0.01)
    made = suggestion.suggest(rates, losses)
    assert made.lowest_at == pytest.approx(0.01, rel=0.06)
    assert (made.rate, made.reason) == (
        0.004, "the smoothed loss falls fastest at 0.004, and is lowest at 0.01")  # fmt: skip
    assert suggestion.rate_at(50, 1e-5, 1.0, 100) == pytest.approx(10**-2.5)
    assert suggestion.rate_at(150, 1e-5, 1.0, 100) == pytest.approx(1.0)


@pytest.mark.parametrize(("finite", "reason"), [(9, "the ramp has only 9 finite losses"), (10, "")])
def test_ten_finite_losses_are_the_least(finite: int, reason: str) -> None:
    rates, losses = curve(1e-4, steps=20)
    made = suggestion.suggest(rates, [*losses[:finite], *[None] * (20 - finite)])
    assert made.reason == reason if reason else "finite losses" not in made.reason


@pytest.mark.parametrize(("low", "suggested"), [(1.981, False), (1.975, True)])
def test_a_fall_of_less_than_a_hundredth_is_no_suggestion(low: float, suggested: bool) -> None:
    assert (suggestion.suggest(*curve(0.01, low=low)).rate is not None) is suggested


@pytest.mark.parametrize(("lowest", "falls_on"), [(90, False), (93, False), (94, True), (95, True)])
def test_a_loss_that_is_lowest_within_the_smoothed_end_of_the_ramp_still_falls(lowest: int, falls_on: bool) -> None:
    """The window reaches over six of a hundred steps."""
    rates, losses = curve(suggestion.rate_at(lowest, 1e-5, 1.0, 100))
    made = suggestion.suggest(rates, losses)
    assert made.lowest_at == rates[lowest]
    assert made.reason.endswith("; it still falls at the highest rate of the ramp") is falls_on


@pytest.mark.parametrize(("noisy", "rate"), [(range(15), None), (range(30, 100), 0.0045), (range(0), 0.004)])
def test_only_the_noise_before_the_model_learns_hides_a_small_fall(noisy: range, rate: float | None) -> None:
    """At higher rates the loss of single batches jumps more, as the model diverges."""
    rates, losses = curve(0.01, low=1.9)
    jumps = [(loss or 0.0) + (0.3 * math.sin(7 * step) if step in noisy else 0.0) for step, loss in enumerate(losses)]
    made = suggestion.suggest(rates, jumps)
    assert made.rate == rate
    if rate is None:
        assert made.reason == "the loss does not fall clearly below 2.07 at any rate of the ramp"


@pytest.mark.parametrize(
    ("steps", "best", "wobble", "rate", "fastest", "lowest", "length", "least"),
    [
        (300, 1e-2, 0.0, 0.002, "0.001", "0.006", 190, 0.3191),
        (300, 1e-2, 0.2, 0.002, "0.001", "0.006", 191, 0.3191),
        (60, 1e-3, 0.1, 0.00021, "9.6e-05", "0.00063", 31, 0.2518),
        (100, 5.0, 0.05, 1.1, "0.55", "3.2", 100, 0.3097),  # it diverges only beyond the ramp
    ],
)
def test_the_suggestion_of_fixed_ramps(
    steps: int, best: float, wobble: float, rate: float, fastest: str, lowest: str, length: int, least: float
) -> None:
    """The loss falls from 2.3 to 0.3, fastest at a tenth of `best`, and explodes above `best`."""
    rates = [suggestion.rate_at(step, 1e-6, 10.0, steps) for step in range(steps)]
    curve_of = [
        2.3 - 2.0 / (1 + (0.1 * best / each) ** 3) + (max(0.0, math.log10(each / best)) * 4) ** 2
        + wobble * math.sin(7.0 * number)
        for number, each in enumerate(rates)
    ]  # fmt: skip
    made = suggestion.suggest(rates, curve_of)
    assert (made.rate, made.reason) == (
        rate, f"the smoothed loss falls fastest at {fastest}, and is lowest at {lowest}, of which a third is taken",
    )  # fmt: skip
    assert (len(made.smoothed), round(min(made.smoothed), 4)) == (length, least)


@pytest.mark.parametrize(
    ("pairs", "falls", "decision", "worse_from"),
    [
        ([(1.0, 1.06), (1.0, 1.06)], [None], "worse", 1.05),
        ([(1.0, 1.06), (1.0, 1.04)], [None], "no worse", 1.05),
        ([(1.0, 1.04), (1.0, 1.06)], [None], "no worse", 1.05),
        ([(0.9, 0.96), (1.1, 1.14)], [], "no worse", 1.05),  # each pair by itself
        ([(1.0, 1.02)], [0.1], "worse", 1.01),  # the loss had hardly fallen
        ([(1.0, 1.02)], [0.1, 0.5], "no worse", 1.03),
        ([(1.0, None), (1.0, 1.0)], [None], "worse", None),
        ([(None, 1.0)], [None], "not judged", None),
    ],
)
def test_a_loss_is_worse_if_it_is_so_in_each_pair(
    pairs: list[tuple[float | None, float | None]], falls: list[float | None], decision: str, worse_from: float | None
) -> None:
    trials = [
        Trial(side=side, repeat=repeat, run=f"{side}{repeat}", outcome="ok", loss_at_samples=loss)
        for repeat, pair in enumerate(pairs, 1)
        for side, loss in zip("ab", pair, strict=True)
    ]
    made = LossCheck(settings=BATCH, trials=trials)
    made.loss_a, made.loss_b = (losses._mean(trials, side) for side in "ab")
    losses.Losses._apply_rule(cast(Any, None), made, falls)
    assert (made.decision, made.worse_from) == (decision, worse_from and pytest.approx(worse_from))


@pytest.mark.parametrize(
    ("changes", "whole"), [({}, True), ({"trial": 40.0}, False), ({"repeats": 99}, False), ({"all_changes": 5}, True)]
)
def test_a_search_is_whole_with_time_for_eight_changes_the_losses_and_all_pairs(
    changes: dict[str, Any], whole: bool
) -> None:
    assert TimePlan(**{"limit": 600.0, "trial": 12.0, "pair_trial": 15.0, "repeats": 3, **changes}).is_whole is whole


@pytest.mark.parametrize(("trial", "whole"), [(10.0, True), (10.2, False)])
def test_eight_changes_are_enough(trial: float, whole: bool) -> None:
    """101 of 200 s are for trials: ten of them, of which two are no changes."""
    plan = TimePlan(limit=200.0, trial=trial, pair_trial=15.0, repeats=3, compares_losses=False)
    assert (plan.pairs, plan.changes, plan.is_whole) == (3, 8 if whole else 7, whole)


def test_the_plan_names_the_source_of_its_times() -> None:
    plan = TimePlan(limit=600.0, trial=12.0, pair_trial=15.0, repeats=3, source="as in p")
    assert plan.in_words() == "10 minutes: about 29 changes and the proof (trials of 12.0 s, as in p)"
    assert plan.longer_in_words().endswith("changes and the proof")


def test_a_search_that_has_ended_gets_more_minutes_unless_there_is_nothing_to_measure(home: Path) -> None:
    asked = request.of_opened("tune", presets.defaults(), None, search=tune_request.checked(Limits(minutes=10)))

    def ended(name: str, **fields: Any) -> folder.Proof:
        proof = write_search(home, name, **fields)
        (proof.path / "request.json").write_text(asked.to_json())
        return proof

    late = ended("20261127-a", ended_because="the time budget of 10 min allows no more")
    resumed = tune_request.resumed(late, 2.0).search
    assert resumed is not None
    assert resumed.minutes == 8.7, "402 s have passed"
    with pytest.raises(ProofError, match="gputui tune --resume 20261127-a --minutes N gives it N more minutes"):
        tune_request.resumed(late)
    with pytest.raises(ProofError) as refused:
        tune_request.resumed(ended("20261127-b"), 2.0)
    assert str(refused.value) == (
        "20261127-b: every option was tried, and its gain is proved: there is nothing to measure with more minutes"
    )
    same = tune_request.resumed(ended("20261127-c", state="stopped"))
    assert same.search is not None
    assert same.search.minutes == 10


def test_minutes_that_are_too_few_for_two_trials_are_refused(home: Path) -> None:
    write_search(home, "20261127-a", preset_name="quickstart")  # trials of 12.4 s
    with pytest.raises(ProofError) as refused:
        tune_request.of_preset("quickstart", [], Limits(minutes=0.4))
    assert str(refused.value).startswith(
        "0.4 min are too few: a trial of the preset and one of a change take about 0.4 min here; give more minutes ("
    )
    assert tune_request.of_preset("quickstart", [], Limits(minutes=0.43)).search is not None


def test_a_request_about_a_run_names_it(home: Path) -> None:
    run = recorded.write(home, name="20260921-110000-my-cnn", seconds=30, gpus=0)
    asked = request.of_run(run, repeats=4)
    assert (asked.kind, asked.run, asked.preset_name, asked.source, asked.repeats) == (
        "loop",
        run.id,
        "my-cnn",
        None,
        4,
    )


# ---- the second look ------------------------------------------------------------------------------------


def near(change: dict[str, Any], gain: float, spread: float | None = None) -> Candidate:
    return typed(Candidate, {"tried": change, "gain": gain, "spread": spread, "decision": "rejected"})


@pytest.mark.parametrize(
    ("gains", "together"),
    [((0.01, 0.02), 2), ((0.01, -0.042), 2), ((0.01, -0.043), 0), ((-0.029, -0.029), 2), ((-0.031, -0.031), 0)],
)
def test_small_gains_are_tried_together_within_their_errors(gains: tuple[float, float], together: int) -> None:
    """A spread of 3 % is an error of 4.24 % of one trial each, and of 6 % of the sum of two."""
    misses = [near(XLA, gains[0]), near(CACHE, gains[1])]
    assert len(recheck.may_gain_together(misses, 0.03)) == together


def test_changes_of_one_option_are_not_tried_together() -> None:
    misses = [near(XLA, 0.01), near({"compile.xla": False}, 0.01), near(CACHE, 0.01)]
    parts = recheck.may_gain_together(misses, 0.03)
    assert parts == [misses[0], misses[2]]
    assert recheck.changes_of(parts) == XLA | CACHE
    assert recheck.may_gain_together(misses[:2], 0.03) == []


def test_candidates_that_chance_may_have_rejected_are_in_the_order_of_their_gain() -> None:
    def candidate(change: dict[str, Any], gain: float | None, decision: str = "rejected", count: int = 1) -> Candidate:
        trials = [{"outcome": "ok", "samples_per_second": 100.0, "run": str(n)} for n in range(count)]
        return typed(Candidate, {"tried": change, "settings": change, "gain": gain, "decision": decision,
                                 "trials": trials, "stage": "xla"})  # fmt: skip

    several = candidate({"input.prefetch": 2}, 0.05, count=3)
    small, larger = candidate(XLA, 0.01), candidate(CACHE, 0.02)
    later = candidate({"input.batch_size": 64}, 0.0)
    every = [several, small, larger, later, candidate({"input.shuffle": 9}, -0.5), candidate(BATCH, 0.5, "kept"),
             candidate({"device.numa": "off"}, None, "failed")]  # fmt: skip
    screening = SimpleNamespace(
        search=SimpleNamespace(candidates=every), best=SimpleNamespace(measured=None), noise=0.03, without_input=False,
        may_take=None,
        has=lambda tried: tried == {"none": 0}, settings_with=dict,
    )  # fmt: skip
    assert recheck.near_misses(cast(Any, screening)) == [larger, small, later]
