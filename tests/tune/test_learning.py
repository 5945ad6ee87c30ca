"""A faster training that learns clearly worse is not chosen: losses after the same number of samples, planted."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.options import Options
from gputui.engine.presets import Preset, defaults
from gputui.engine.proof import request
from gputui.engine.proof.request import Request
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Limits
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import decision, losses, tune_request
from gputui.engine.tune.losses import Data, Length, affordable, epochs_and_steps, margin, of_earlier
from gputui.engine.tune.report import search_sentences

from tests.support.proving import HERE, Planted, searching
from tests.support.typed import typed


def asked(*settings: str, **more: Any) -> Request:
    """A search for the batch size and the steps per execution, from batches of 32."""
    limits: dict[str, Any] = {"only": ["batch_size", "steps_per_execution"], "largest_batch": 128, **more}
    given = ("batch_size=32", "train.seed=1", *settings)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(Limits(**limits)))


def figures(options: Options, before: int) -> Planted:
    """Four times as fast with batches of 128, which learn worse unless the learning rate is larger, too."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    learns = batch <= 64 or options.train.learning_rate > 0.004
    speed = 1000 * batch / 32 * (1.2 if together >= 4 else 1.0)
    return Planted(samples_per_second=speed, loss=0.5 if learns else 0.6)


def searched(path: Path, wanted: Request, planted: Any = figures) -> dict[str, Any]:
    """What a search has recorded."""
    searcher, _ = searching(path, wanted, planted)
    searcher.run()
    searcher.record.state = "done"
    searcher.record.write("ended")
    data: dict[str, Any] = {**vars(searcher.record), "search": searcher.search}
    return data


def test_a_batch_that_learns_worse_gives_way_to_the_one_half_way_back(tmp_path: Path) -> None:
    found = searched(tmp_path / "p", asked())
    losses = found["search"].losses
    assert [one.settings["input.batch_size"] for one in losses] == [128, 64]
    assert [one.decision for one in losses] == ["worse", "no worse"]
    assert (losses[0].of, losses[0].samples, losses[0].passes) == ("validation", 6000, 6), "the preset's own training"
    assert (losses[0].loss_a, losses[0].loss_b) == pytest.approx((0.5, 0.6))
    assert losses[0].worse_from == pytest.approx(0.525)
    assert found["changes_kept"] == {"input.batch_size": 64, "compile.steps_per_execution": 7}
    assert "learn clearly worse and are not chosen: batch_size=64" in found["search"].learning
    assert len(found["comparisons"]) == 1, "pairs are measured of what can be chosen only"
    seeds = [one.seed for one in (trial.options.train for trial in trained(tmp_path / "p", losses[0].trials))]
    assert len(set(seeds)) == 2
    assert seeds[0] == seeds[1]


def trained(path: Path, trials: Any) -> list[Preset]:
    """The presets of these trials."""
    return [presets.resolve(str(path / "trials" / trial.run / "preset.yaml")) for trial in trials]


def test_the_learning_rate_follows_the_batch_where_the_user_wants_it(tmp_path: Path) -> None:
    found = searched(tmp_path / "p", asked(learning_rate="linear", warmup_steps=7))
    assert [one.decision for one in found["search"].losses] == ["no worse"]
    assert found["changes_kept"] == {
        "input.batch_size": 128,
        "compile.steps_per_execution": 7,
        "train.learning_rate": 0.008,
        "train.warmup_steps": 7,
    }
    scaled = decision.scaled
    given = defaults(["batch_size=16", "learning_rate=0.01", "schedule=cosine", "decay_steps=100", "warmup_steps=3"])
    larger = {"input.batch_size": 64}
    assert scaled(given, larger, Limits(learning_rate="sqrt"), HERE) == larger | {
        "train.learning_rate": 0.02,
        "train.decay_steps": 25,
        "train.warmup_steps": 1,
    }
    assert scaled(given, larger, Limits(learning_rate="sqrt", warmup_steps=9), HERE)["train.warmup_steps"] == 9
    assert scaled(given, larger, Limits(), HERE) == larger
    mirrored = {"strategy.kind": "mirrored", "device.logical_devices": 2}
    assert scaled(given, mirrored, Limits(learning_rate="linear"), HERE)["train.learning_rate"] == 0.02
    by_itself = defaults(["batch_size=16", "learning_rate=0.01", "learning_rate_scaling=linear"])
    for more, rate in ({}, 0.01), (larger, 0.04):  # the replicas are the training's own matter
        found = scaled(by_itself, mirrored | more, Limits(learning_rate="linear"), HERE)
        assert found["train.learning_rate"] == rate
    mirror = ("strategy.kind=mirrored", "device.logical_devices=2")
    replicas = defaults(["batch_size=16", "learning_rate=0.01", "learning_rate_scaling=linear", *mirror])
    assert scaled(replicas, larger, Limits(learning_rate="linear"), HERE)["train.learning_rate"] == 0.04
    alone = scaled(replicas, {"strategy.kind": "single"}, Limits(learning_rate="linear"), HERE)
    assert alone["train.learning_rate"] == 0.01, "half the batch, and no longer twice the rate by itself"


def test_a_learning_rate_that_only_the_users_code_can_set_is_not_scaled_and_told(tmp_path: Path) -> None:
    def own(options: Options, before: int) -> Planted:
        return replace(figures(options, before), inapplicable={"train.learning_rate": "your code chose the optimizer"})

    found = searched(tmp_path / "p", asked(learning_rate="sqrt"), own)
    assert "train.learning_rate" not in found["changes_kept"]
    told = search_sentences.learning(typed(Record, {**found, "search": asdict(found["search"])}))
    assert "the learning rate is not scaled: your code chose the optimizer" in told


def test_a_worse_loss_may_be_allowed_and_the_end_says_what_may_mend_it(tmp_path: Path) -> None:
    bold = searched(tmp_path / "p", asked(allow_worse_loss=True))
    assert bold["changes_kept"]["input.batch_size"] == 128
    assert bold["search"].learning == "the fastest settings learn clearly worse, which was allowed"
    told = " ".join(search_sentences.next_steps(typed(Record, {**bold, "search": asdict(bold["search"])})))
    assert "--learning-rate linear" in told
    assert "--allow-worse-loss" not in told


@pytest.mark.parametrize(("outcome", "decision"), [("oom", "failed"), ("error", "failed"), ("crashed", "not judged")])
def test_settings_that_cannot_be_trained_to_the_end_are_not_chosen(tmp_path: Path, outcome: Any, decision: str) -> None:
    def ending(options: Options, before: int) -> Planted:
        planted = figures(options, before)
        if options.run.measure_seconds is None and options.input.batch_size == 128:
            planted.outcome = outcome
        return planted

    bold = searched(tmp_path / "bold", asked(allow_worse_loss=True), ending)
    assert bold["changes_kept"]["input.batch_size"] == {"failed": 64, "not judged": 128}[decision], "it was no loss"
    found = searched(tmp_path / "p", asked(), ending)
    check = found["search"].losses[0]
    assert check.decision == decision
    assert [trial.side for trial in check.trials] == ["a", "b"] if decision == "failed" else ["a", "b", "b"]
    assert check.why == f"{outcome}: planted" if decision == "failed" else check.why.startswith("crashed: ")
    chosen = {"failed": 64, "not judged": 128}[decision]
    assert found["changes_kept"]["input.batch_size"] == chosen
    if decision == "not judged":
        assert found["search"].learning == "whether it learns as well is not known"


def test_trials_for_the_loss_are_trained_once_also_by_a_resumed_search(tmp_path: Path) -> None:
    wanted = asked("epochs=100000")  # as long as there is time
    first, bench = searching(tmp_path / "p", wanted, figures)
    first.run()
    last = first.search.losses[0].trials[1].run
    half = [trial for trial in first.record.trials if int(trial.run[:2]) <= int(last[:2])]
    for trial in half:
        shutil.copytree(bench.folder / trial.run, tmp_path / "q" / "trials" / trial.run)
        trial.seconds = 11.0  # the length of a training depends on it, and has to stay
    again, more = searching(tmp_path / "q", wanted, figures, half)
    again.run()
    assert len(more.asked) == len(bench.asked) - len(half)
    assert again.record.changes_kept == first.record.changes_kept
    assert again.search.losses[0].samples == first.search.losses[0].samples


def test_without_time_for_the_losses_nothing_is_said_to_be_learnt(tmp_path: Path) -> None:
    wanted = asked(minutes=1.0)
    found = searched(tmp_path / "p", wanted)
    (check,) = found["search"].losses
    assert (check.decision, check.trials, check.passes) == ("not judged", [], None)
    assert check.why == "there is not enough time to train long enough for that; give more --minutes"
    assert found["search"].learning == "whether it learns as well is not known"


def test_trainings_that_come_to_their_time_limit_are_compared_after_the_passes_of_all(tmp_path: Path) -> None:
    def late(options: Options, before: int) -> Planted:
        planted = figures(options, before)
        if options.run.measure_seconds is None and options.input.batch_size == 128:
            planted.outcome = "timeout"
        return planted

    check = searched(tmp_path / "p", asked(), late)["search"].losses[0]
    assert {trial.outcome for trial in check.trials} == {"ok", "timeout"}
    assert (check.samples, check.passes, check.of) == (1000, 1, "validation")
    firsts = [2.5 + (loss - 2.5) / 6 for loss in (0.5, 0.6)]
    assert [check.loss_a, check.loss_b] == pytest.approx(firsts), "after the first of six passes"


def test_a_margin_is_a_share_of_the_loss_within_shares_of_what_was_learnt() -> None:
    assert margin(0.5, 1.0) == pytest.approx(0.025)
    assert margin(0.001, 2.0) == pytest.approx(0.02), "near 0 a share of the loss means nothing"
    assert margin(2.2, 0.1) == pytest.approx(0.01), "early in a training the loss has hardly fallen"
    assert margin(-3.0, None) == pytest.approx(0.15)


def test_of_less_than_a_pass_the_loss_is_that_of_the_second_half() -> None:
    curve = [(10.0, 5.0), (40.0, 4.5), (60.0, 3.5), (100.0, 3.0)]  # means since the beginning
    assert losses._of_second_half(curve, 3.0, 100) == pytest.approx(2.0)  # 4 in the first half
    assert losses._of_second_half(curve[-1:], 3.0, 100) == 3.0, "of the first half nothing is known"
    assert losses._of_second_half([(0.0, -1.0), (100.0, -3.0)], -3.0, 100) == pytest.approx(-4.0)


@pytest.mark.parametrize(
    ("told", "mean"), [([1.0, -4.0], -1.5), ([1.0, None], None), ([None, None], None), ([], None), ([0.0], 0.0)]
)
def test_the_loss_of_a_side_is_the_mean_of_its_own_trainings(told: list[float | None], mean: float | None) -> None:
    trials = [Trial(side="b", repeat=n, run=f"b{n}", outcome="ok", loss_at_samples=loss) for n, loss in enumerate(told)]
    other = Trial(side="a", repeat=1, run="a", outcome="ok", loss_at_samples=9.0)
    assert losses._mean([other, *trials], "b") == mean


def test_as_many_samples_are_trained_as_the_time_allows() -> None:
    small = Data(batch=32, per_pass=1000, passes=6)
    assert affordable(small, 128, 60, 0.001) == Length(6000, 6), "no more than the preset's own training"
    large = Data(batch=32, per_pass=1_000_000, passes=6)
    assert affordable(large, 128, 60, 0.001) == Length(60_000 // 128 * 128, None)
    assert affordable(large, 2048, 60, 0.001) is None, "29 updates say nothing"
    unknown = Data(batch=32, per_pass=None, passes=2)
    assert affordable(unknown, 64, 10, 0.001) == Length(9984, None)
    preset = defaults(["batch_size=32"])
    assert epochs_and_steps(Length(6000, 6), preset, 128) == (6, None)
    assert epochs_and_steps(Length(9984, None), preset, 64) == (1, 156)
    in_steps = defaults(["steps_per_epoch=100"])
    assert epochs_and_steps(Length(6400, 2), in_steps, 64) == (2, 50)


def test_settings_nearer_to_the_preset() -> None:
    preset = defaults(["batch_size=32"])
    large = {"input.batch_size": 512, "precision.policy": "mixed_bfloat16", "compile.xla": True}
    rest = {key: value for key, value in large.items() if key != "input.batch_size"}
    assert list(decision.nearer(preset, large)) == [
        large | {"input.batch_size": 128},
        large | {"input.batch_size": 64},
        rest,
    ]
    assert decision.learns_alike(preset, large) == {"compile.xla": True}
    assert list(decision.nearer(preset, rest)) == []


def test_pairs_that_leave_it_undecided_are_followed_by_as_many_more_as_their_spread_asks_for(tmp_path: Path) -> None:
    def uneven(options: Options, before: int) -> Planted:
        """The gains of the first pairs lie far apart."""
        planted = figures(options, before)
        pairs.append(options.run.measure_seconds == 5.0)
        if sum(pairs) == 3 and planted.samples_per_second > 1200:
            planted.samples_per_second *= 2.5
        return planted

    pairs: list[bool] = []
    found = searched(tmp_path / "p", asked(largest_batch=64), uneven)
    (comparison,) = found["comparisons"]
    assert comparison.decision == "kept", comparison.why
    assert len(comparison.trials) == 12

    def slow(options: Options, before: int) -> Planted:
        """The time is over in the first of the further pairs."""
        planted = uneven(options, before)
        searcher.record.started_mark -= 10_000 if sum(pairs) == 7 else 0
        return planted

    pairs.clear()
    searcher, _ = searching(tmp_path / "q", asked(largest_batch=64), slow)
    searcher.run()
    (comparison,) = searcher.record.comparisons
    assert (comparison.decision, len(comparison.trials)) == ("undecided", 7)
    assert "more pairs would be needed" in comparison.why, "what was measured until then is judged"
    assert "no time was left for further pairs" in comparison.why
    assert searcher.search.unproved == comparison.changes


@pytest.mark.parametrize(
    ("gains", "trials", "decision"),
    [((0.05, 0.35, 0.2), 14, "kept"), ((-0.05, -0.35, 0.2), 6, "undecided"), ((0.3, 0.3, 0.3), 6, "kept")],
)
def test_more_pairs_are_measured_only_of_what_seems_faster(
    tmp_path: Path, gains: tuple[float, ...], trials: int, decision: str
) -> None:
    pairs: list[float] = []

    def uneven(options: Options, before: int) -> Planted:
        if options.compile.xla is not True:
            return Planted(1000.0)
        if options.run.measure_seconds != 5.0:
            return Planted(1300.0)
        pairs.append(gains[len(pairs)] if len(pairs) < 3 else 0.2)
        return Planted(1000.0 * (1 + pairs[-1]))

    found = searched(tmp_path / "p", asked("xla=false", only=["xla"], largest_batch=None, minutes=60), uneven)
    (comparison,) = found["comparisons"]
    assert (len(comparison.trials), comparison.decision) == (trials, decision)
    assert found["search"].unproved == {}, "pairs that are slower in the middle do not seem faster"


@pytest.mark.parametrize(
    ("known", "length"),
    [
        ((3, None), Length(3000, 3)),  # whole passes of 1,000 samples
        ((2, 10), Length(2000, 2)),  # in epochs of as many steps as the preset's
        ((1, 25), Length(800, None)),  # a part of a pass, in batches of 32
    ],
)
def test_the_length_of_earlier_trials_is_found_again(known: tuple[int, int | None], length: Length) -> None:
    preset = defaults(["batch_size=32", "steps_per_epoch=10"])
    assert of_earlier(known, Data(batch=32, per_pass=1000, passes=6), preset) == length


@pytest.mark.parametrize(
    ("data", "seconds", "length"),
    [
        (Data(batch=32, per_pass=1000, passes=6), 1.6, Length(1000, 1)),  # a pass takes 1 s and 0.6 s beside it
        (Data(batch=32, per_pass=1000, passes=6), 1.5, None),  # 1,472 samples are more than a pass
        (Data(batch=32, per_pass=1000, passes=1), 1.6, Length(1000, 1)),
        (Data(batch=32, per_pass=None, passes=2), 0.64, Length(640, None)),  # 40 updates of 16
        (Data(batch=32, per_pass=None, passes=2), 0.63, None),
    ],
)
def test_a_training_for_its_loss_has_at_least_forty_updates(data: Data, seconds: float, length: Length | None) -> None:
    assert affordable(data, 16, seconds, 0.001) == length
