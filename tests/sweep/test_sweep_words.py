"""The whole texts about a sweep, and its arithmetic on both sides of each limit, without a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.proof.request import ProofError
from gputui.engine.sweep import decision, halving, metric, preset_block, sweep_request, swept_values, trainings
from gputui.engine.sweep.failures import why_to_hold
from gputui.engine.trials import sweep_groups, sweep_sentences
from gputui.engine.trials.sweep_record import Axis, Rival, Sweep, SweepSettings, SweepTrial

RATE = "train.learning_rate"
ONE, TWO, THREE = ({RATE: rate} for rate in (0.001, 0.002, 0.003))


def made(trials: Sequence[SweepTrial] = (), metric: str = "val_loss", higher: bool = False, **more: Any) -> Sweep:
    fields = {name: more.pop(name) for name in list(more) if name in SweepSettings.__dataclass_fields__}
    settings = SweepSettings(axes=[Axis(key=RATE, values=[0.001, 0.002])], metric=metric, higher=higher, **fields)
    return Sweep(settings=settings, trials=list(trials), **more)


def trial(changes: dict[str, Any] = ONE, seed: int = 1, state: str = "done", **more: Any) -> SweepTrial:
    return SweepTrial(run=f"r{seed}", changes=changes, seed=seed, state=state, **more)


# ---- words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "2 settings, at most 1 at once, then the best 2 with 5 fresh seeds; at most 60 min; "),
        ({"seeds": 2, "parallel": 3, "proof_seeds": 0, "minutes": 0.5}, "2 settings with 2 seeds, at most 3 at once; "
         "at most 0.5 min; "),
        ({"most_trials": 9, "finalists": 3, "proof_seeds": 4}, "9 settings, at most 1 at once, then the best 3 with 4 "
         "fresh seeds; at most 60 min; "),
    ],
)  # fmt: skip
def test_what_a_sweep_will_train(settings: dict[str, Any], text: str) -> None:
    end = "Ctrl-C ends it, gputui sweep --resume goes on with it"
    assert sweep_sentences.plan(made(**settings).settings) == text + end


@pytest.mark.parametrize(
    ("settings", "seconds", "text"),
    [
        ({}, 60.0, "2 settings: 2 trainings, then 10 for the proof; about 12 min"),
        ({"minutes": 12.0}, 60.0, "2 settings: 2 trainings, then 10 for the proof; about 12 min"),
        ({"minutes": 11.9}, 60.0, "2 settings: 2 trainings, then 10 for the proof; about 12 min, more than 11.9 min"),
        ({"most_trials": 7, "seeds": 3, "proof_seeds": 0, "parallel": 2, "rungs": [1]}, 60.0,
         "7 settings with 3 seeds: 21 trainings; 2 at once; at most 11 min"),
        ({"finalists": 9}, None, "2 settings: 2 trainings, then 10 for the proof; how long is not known, as no run "
         "here had these options"),
        ({"most_trials": 1, "proof_seeds": 0}, 60.0, "1 setting: 1 training; about 60 s"),
    ],
)  # fmt: skip
def test_how_many_trainings_and_how_long(settings: dict[str, Any], seconds: float | None, text: str) -> None:
    assert sweep_sentences.cost(made(**settings).settings, seconds) == text


def test_what_a_sweep_is_doing() -> None:
    trials = [
        trial(ended_t=1.0), trial(seed=2, state="failed", ended_t=2.0), trial(seed=3, state="running"),
        trial(seed=4, state="waiting", on="h1"), trial(seed=5, state="planned"),
        trial(seed=6, state="running", part="proof"),
    ]  # fmt: skip
    sweep = made(trials)
    assert sweep_sentences.doing(sweep, "search") == (
        "search: 2 of 5 trials ended, 1 training, 1 in the queue (1 of them on other machines)"
    )
    assert sweep_sentences.doing(sweep, "proof", "no disk") == (
        "proof on fresh seeds: 0 of 1 trial ended, 1 training, 0 in the queue; waiting: no disk"
    )


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ([], "no trial has trained to its end with a finite val_loss"),
        ([trial(state="failed", error="first"), trial(seed=2, state="failed", error="last"), trial(state="dropped")],
         "no trial has trained to its end with a finite val_loss; the last one: last"),
        ([trial(state="stopped", whole_seconds=600.0), trial(seed=2, state="not trained", whole_seconds=120.0)],
         "the 60 min ended before a trial had trained to its end, which takes about 2 min; give more --minutes"),
        ([trial(state="dropped")], "the 60 min ended before a trial had trained to its end; give more --minutes"),
    ],
)  # fmt: skip
def test_why_no_setting_is_the_best(trials: list[SweepTrial], text: str) -> None:
    assert sweep_sentences.no_result(made(trials)) == text


def test_the_result_of_each_stage_of_a_sweep() -> None:
    result = sweep_sentences.result
    assert result(None) == "stopped before the search had ended (0 trials complete)"
    assert result(made([trial(), trial(state="failed")])) == "stopped before the search had ended (1 trial complete)"
    assert result(made(best=ONE, compared=4)) == (
        "stopped before the proof had ended; learning_rate=0.001 is the best of 4 in the search, which is no proof"
    )
    equal = made([trial(each, value=0.5) for each in (ONE, TWO)], best=ONE, winner=ONE, compared=2)
    same = "learning_rate=0.001 is one of 2 settings with the same val_loss, the best of 2 in the search, which is no "
    assert result(equal).startswith(f"{same}proof: ")
    only = "learning_rate=0.001 is the only setting with a val_loss in the search, which is no proof: "
    assert result(made(best=ONE, winner=ONE, compared=1)).startswith(only)
    alone = "learning_rate=0.001 is the best of 4 in the search, which is no proof: "
    assert result(made(best=ONE, winner=ONE, compared=4)) == alone + "it was not trained on fresh seeds"
    apart = Rival(changes=TWO, why="only 2 of the fresh seeds are complete with both")
    assert result(made(best=ONE, winner=ONE, compared=4, rivals=[apart])) == alone + apart.why
    better = Rival(changes=TWO, differences=[0.1] * 3, mean=0.1, half_width=0.05, mean_of_rival=1.0, decision="better")
    assert result(made(best=ONE, winner=ONE, rivals=[better, apart])) == (
        "learning_rate=0.001 beats learning_rate=0.002 by 10.0 ± 5.0 % val_loss (3 seeds); "
        "learning_rate=0.002 is not compared: only 2 of the fresh seeds are complete with both"
    )


@pytest.mark.parametrize(
    ("rival", "higher", "text"),
    [
        # The share is that of the loser: the rival has lost, then the best setting of the search.
        (Rival(changes=TWO, mean=0.1, half_width=0.02, mean_of_rival=0.5, decision="better"), False, "20.0 ± 4.0 %"),
        (Rival(changes=TWO, mean=-0.1, half_width=0.02, mean_of_rival=0.4, decision="worse"), False, "20.0 ± 4.0 %"),
        (Rival(changes=TWO, mean=-0.1, half_width=0.02, mean_of_rival=0.6, decision="worse"), True, "20.0 ± 4.0 %"),
        (Rival(changes=TWO, mean=0.1, half_width=0.2, mean_of_rival=-0.5, decision="undecided"), False,
         "20.0 ± 40.0 %"),
        (Rival(changes=TWO, mean=0.002, half_width=0.001, mean_of_rival=1.0, decision="better"), False, "0.2 ± 0.1 %"),
        (Rival(changes=TWO, mean=0.002, half_width=0.0009, mean_of_rival=1.0, decision="better"), False,
         "0.20 ± 0.09 %"),
        (Rival(changes=TWO, mean=0.25, half_width=0.125, mean_of_rival=0.0, decision="better"), False, "0.25 ± 0.125"),
    ],
)  # fmt: skip
def test_the_difference_is_a_share_of_the_loser(rival: Rival, higher: bool, text: str) -> None:
    assert sweep_sentences.difference(made(higher=higher), rival) == f"{text} val_loss"


def test_a_sentence_about_each_rival() -> None:
    def sentence(decision: str, mean: float) -> str:
        rival = Rival(changes=TWO, differences=[mean] * 4, mean=mean, half_width=0.01, mean_of_rival=1.0,
                      decision=decision)  # fmt: skip
        return sweep_sentences.rival_sentence(made(best=ONE), rival)

    both = "learning_rate=0.001", "learning_rate=0.002"
    assert sentence("better", 0.1) == f"{both[0]} beats {both[1]} by 10.0 ± 1.0 % val_loss (4 seeds)"
    assert sentence("worse", -0.25) == (
        f"{both[1]} beats {both[0]}, the best of the search, by 20.0 ± 0.8 % val_loss (4 seeds)"
    )
    for mean, by in ((0.001, "0.1"), (-0.001, "-0.1")):  # of the first one, whose figure is better or worse
        assert sentence("undecided", mean) == (
            f"{both[0]} cannot be told apart from {both[1]}: better by {by} ± 1.0 % val_loss (4 seeds)"
        )


@pytest.mark.parametrize(
    ("searched", "proved", "higher", "compared", "lucky"),
    [(1.0, 1.2, False, 3, True), (1.2, 1.0, False, 3, False), (1.0, 1.0, False, 3, False), (1.2, 1.0, True, 3, True),
     (1.0, 1.2, True, 3, False), (1.0, 1.2, False, 1, False), (1.0, 1.0, True, 3, False)],
)  # fmt: skip
def test_the_best_of_several_is_lucky_if_fresh_seeds_are_worse(
    searched: float, proved: float, higher: bool, compared: int, lucky: bool
) -> None:
    sweep = made(higher=higher, searched=searched, proved=proved, compared=compared)
    assert sweep_sentences.luck(sweep) == (
        f"val_loss of the best setting: in the search {searched:g}, on fresh seeds {proved:g}"
        f"{f': the best of {compared} is lucky' if lucky else ''}"
    )


def test_the_best_of_a_search_without_a_proof_is_not_called_lucky() -> None:
    assert sweep_sentences.luck(made(searched=1.0, compared=3)) == ""
    assert sweep_sentences.luck(made(proved=1.0, compared=3)) == ""


def test_the_rule_of_the_halving_and_what_it_has_saved() -> None:
    assert sweep_sentences.saved(made(seconds_saved=90.0)) == ""
    rule = "halving: after epoch 1, 3 the best 1 of 3 goes on, the others end"
    assert sweep_sentences.saved(made(rungs=[1, 3])) == rule
    saved = f"{rule}; about 1:30 of training saved against the whole grid"
    assert sweep_sentences.saved(made(rungs=[1, 3], seconds_saved=90.0)) == saved


def test_each_trial_and_each_setting_is_a_line() -> None:
    trials = [
        trial(ONE, 1, value=0.5, ended_t=5.0, seconds=61.0), trial(ONE, 2, value=0.7, seconds=62.0),
        trial(TWO, 1, "dropped", rungs=[0.9, 0.8], ended_t=6.0), trial(TWO, 2, "failed", error="no file", on="h1"),
        trial(THREE, 1, "planned"), trial(ONE, 9, "running", part="proof", rungs=[None], ended_t=7.0),
    ]  # fmt: skip
    sweep = made(trials)
    table = sweep_sentences.groups_table(sweep)
    assert table.rows == [
        ["learning_rate=0.001", "0.6", "0.141", "0.5  0.7"],
        ["learning_rate=0.002", "-", "-", "0.8 (dropped)  failed"],
        ["learning_rate=0.003", "-", "-", "planned"],
    ]
    assert list(table.right) == [1, 2]
    assert list(sweep_sentences.trials_table(sweep).right) == [3, 5, 6]
    assert [line for _, line in sweep_sentences.news(sweep)] == [
        "r1  learning_rate=0.001 seed=1  done  val_loss 0.5",
        "r1  learning_rate=0.002 seed=1  dropped  val_loss 0.8",
        "r9  proof  learning_rate=0.001 seed=9  running",
    ]
    assert [key for key, _ in sweep_sentences.news(sweep)] == ["r1 5.0", "r1 6.0", "r9 7.0"]
    assert sweep_sentences.outcome(trials[3]) == "failed on h1: no file"
    groups = list(sweep_groups.groups(trials).values())
    assert [sweep_sentences.mean_or_state(group) for group in groups] == [
        ("0.6", "0.141"), ("0.8 dropped", "-"), ("planned", "-")]  # fmt: skip
    assert [row[2:6] for row in sweep_sentences.trials_table(sweep).rows][:2] == [
        ["learning_rate=0.001", "1", "done", "0.5"], ["learning_rate=0.001", "2", "done", "0.7"]]  # fmt: skip


def test_settings_are_in_the_order_of_their_means_and_those_that_ended_early_are_last() -> None:
    trials = [trial(ONE, value=0.5), trial(TWO, value=0.2), trial(THREE, state="dropped", rungs=[0.1]),
              trial({RATE: 0.004}, state="failed")]  # fmt: skip

    def order(higher: bool) -> list[float]:
        return [group[0].changes[RATE] for group in sweep_groups.in_order(trials, higher)]

    assert order(higher=False) == [0.002, 0.001, 0.003, 0.004]
    assert order(higher=True) == [0.001, 0.002, 0.003, 0.004]
    trials.append(trial(TWO, 2, "failed"))
    assert sweep_groups.ranked(trials, higher=False) == [(ONE, 0.5)], "a setting that fails with a seed is no finalist"
    assert sweep_groups.ranked([*trials, trial(THREE, value=0.9)], higher=True) == [(THREE, 0.9), (ONE, 0.5)]
    assert sweep_groups.ranked([*trials, trial(THREE, value=0.9)], higher=False) == [(ONE, 0.5), (THREE, 0.9)]


def test_the_swept_options_in_words() -> None:
    axes = [Axis(key=RATE, values=[0.001, 0.002]), Axis(key="train.weight_decay", low=0.0, high=0.1),
            Axis(key="input.batch_size", low=8, high=512, log=True)]  # fmt: skip
    assert sweep_sentences.swept(SweepSettings(axes=axes, metric="loss")) == (
        "learning_rate: 0.001, 0.002; weight_decay: 0 to 0.1; batch_size: 8 to 512 by equal factors"
    )


# ---- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weight_decay=0.01..0.1", Axis(key="train.weight_decay", low=0.01, high=0.1, log=True)),
        ("weight_decay=0.011..0.1", Axis(key="train.weight_decay", low=0.011, high=0.1)),
        ("weight_decay=0..0.1", Axis(key="train.weight_decay", low=0.0, high=0.1)),
        ("args.x=-10..10", Axis(key="workload.args.x", low=-10.0, high=10.0, whole=True)),
        ("args.x=-10..10.0", Axis(key="workload.args.x", low=-10.0, high=10.0)),
        ("batch_size=8..80", Axis(key="input.batch_size", low=8.0, high=80.0, log=True, whole=True)),
    ],
)
def test_a_range_is_divided_by_factors_from_a_tenfold_on(text: str, expected: Axis) -> None:
    assert swept_values.axis(text, in_grid=False) == expected


@pytest.mark.parametrize(
    ("text", "count"), [("weight_decay=0..0.1:2", 2), ("weight_decay=0..0.1:1000", 1000), ("batch_size=1..3:3", 3)]
)
def test_a_range_has_as_many_values_as_are_given_each_once(text: str, count: int) -> None:
    assert len(swept_values.axis(text).values) == count


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("weight_decay=0..0.1:1001", "a range has 2 to 1,000 values"),
        ("weight_decay=0.1..0.1", "a range is LOW..HIGH, two numbers of which the first is the lower one"),
        ("weight_decay=0..1e999", "the ends of a range are finite numbers"),
        ("weight_decay=1-2..3", "a range is LOW..HIGH, two numbers of which the first is the lower one"),
        ("batch_size=1..3:4", "from 1 to 3 there are only 3 whole numbers"),
        ("batch_size=1..2.5", "the values are whole numbers, and so are the ends of a range"),
        ("weight_decay=", "write OPTION=VALUE,VALUE or OPTION=LOW..HIGH"),
        ("weight_decay=1,", "a value is missing next to a comma"),
    ],
)
def test_a_range_that_means_nothing_is_refused_in_a_line(text: str, why: str) -> None:
    with pytest.raises(ProofError) as fault:
        swept_values.axis(text)
    assert str(fault.value) == f"--over {text}: {why}"


@pytest.mark.parametrize(
    ("axis", "share", "value"),
    [
        (Axis(key=RATE, low=1.0, high=3.0), 0.5, 2.0),
        (Axis(key=RATE, low=1.0, high=100.0, log=True), 0.5, 10.0),
        (Axis(key=RATE, low=1.0, high=100.0, log=True), 0.25, 3.162),
        (Axis(key=RATE, low=0.0, high=1 / 3), 1.0, 1 / 3),
        (Axis(key=RATE, low=-1 / 3, high=1.0), 0.0, -1 / 3),
        (Axis(key=RATE, low=1.0, high=4.0, whole=True), 0.5, 2),
    ],
)
def test_a_share_of_a_range_is_a_value_of_at_most_four_digits(axis: Axis, share: float, value: float) -> None:
    assert swept_values.value_at(axis, share) == value
    if not axis.whole:
        assert swept_values.share_of(axis, value) == pytest.approx(share, abs=1e-4)


def test_a_value_beyond_a_range_is_at_its_end() -> None:
    ranged = Axis(key=RATE, low=1.0, high=3.0)
    assert (swept_values.share_of(ranged, 0.0), swept_values.share_of(ranged, 9.0)) == (0.0, 1.0)


def test_a_grid_has_all_combinations_and_a_random_search_each_setting_once() -> None:
    axes = [Axis(key="a", values=[1, 2]), Axis(key="b", values=["x", "y"])]
    assert swept_values.size(axes) == 4
    assert list(swept_values.grid(axes)) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"},
                                             {"a": 2, "b": "y"}]  # fmt: skip
    drawn = swept_values.distinct(axes, 5, 3)
    assert len(drawn) == len({str(setting) for setting in drawn}) == 3
    assert sorted(map(str, swept_values.distinct(axes, 5, 9))) == sorted(map(str, swept_values.grid(axes)))
    assert swept_values.as_settings({RATE: 0.5, "train.optimizer": "adam"}) == [f"{RATE}=0.5", "train.optimizer=adam"]
    own = {"workload.args.x": 1, RATE: 0.5}
    assert swept_values.as_changes(own, {"x": 1, "y": 2}) == {RATE: 0.5, "workload.args": {"x": 1, "y": 2}}
    assert swept_values.as_changes({RATE: 0.5}, {"y": 2}) == {RATE: 0.5}


# ---- the proof --------------------------------------------------------------------------------------


def test_a_rival_is_compared_on_the_seeds_of_both_from_three_on() -> None:
    def compared(other: dict[int, float], higher: bool = False, rivals: int = 1) -> Rival:
        rival = Rival(changes=TWO)
        decision.compare(rival, {1: 1.0, 2: 1.1, 3: 1.2, 9: 0.0}, other, higher, rivals)
        return rival

    few = compared({1: 2.0, 2: 2.0, 8: 0.0})
    assert (few.why, few.mean) == ("only 2 of the fresh seeds are complete with both", None)
    better = compared({1: 2.0, 2: 2.2, 3: 2.1})
    assert better.differences == pytest.approx([1.0, 1.1, 0.9])
    assert better.decision == "better"
    assert [better.mean, better.mean_of_rival] == pytest.approx([1.0, 2.1])
    assert better.half_width == pytest.approx(decision.student(2, 0.03) * 0.1 / math.sqrt(3))
    worse = compared({1: 2.0, 2: 2.2, 3: 2.1}, higher=True)
    assert worse.decision == "worse"
    assert worse.differences == pytest.approx([-1.0, -1.1, -0.9])
    half = compared({1: 2.0, 2: 2.2, 3: 2.1}, rivals=2).half_width
    assert half == pytest.approx(decision.student(2, 0.015) * 0.1 / math.sqrt(3)), "the risk is divided"
    assert compared({1: 1.0, 2: 1.2, 3: 1.1}).decision == "undecided"
    same = compared({1: 1.0, 2: 1.1, 3: 1.2})
    assert (same.why, same.mean, same.half_width, same.decision) == ("", 0.0, 0.0, "undecided")
    rival = Rival(changes=TWO)
    decision.compare(rival, {1: 1.0, 2: 2.0, 3: 3.0}, {1: 1.5, 2: 2.5, 3: 3.5}, False)
    assert (rival.mean, rival.why) == (
        None, "all fresh seeds gave the same difference: does the training obey train.seed?")  # fmt: skip


def test_the_winner_is_the_rival_that_is_furthest_ahead() -> None:
    def swept(higher: bool, *levels: float) -> Sweep:
        trials = [
            trial(changes, seed, value=level + seed / 1000 * (1 + number), part="proof")
            for number, (changes, level) in enumerate(zip((ONE, TWO, THREE), levels, strict=True))
            for seed in range(4)
        ]
        return made(trials, best=ONE, higher=higher)

    for higher, levels, winner in ((False, (1.0, 0.5, 0.4), THREE), (False, (1.0, 0.4, 0.5), TWO),
                                   (True, (1.0, 0.5, 0.4), ONE), (True, (0.1, 0.5, 0.4), TWO)):  # fmt: skip
        sweep = swept(higher, *levels)
        assert decision.decide(sweep, higher) == winner == sweep.winner
        assert sweep.proved == pytest.approx(levels[0] + 0.0015)
        assert [rival.changes for rival in sweep.rivals] == [TWO, THREE]


def test_a_best_setting_that_diverges_gives_way_to_the_best_whole_rival() -> None:
    lost: dict[str, Any] = {"state": "failed", "cause": trainings.NOT_FINITE, "part": "proof"}
    trials = [trial(ONE, 1, **lost), trial(ONE, 2, value=0.1, part="proof"), trial(TWO, 1, value=0.5, part="proof"),
              trial(THREE, 1, value=0.4, part="proof"), trial({RATE: 0.004}, 1, value=0.0, part="proof"),
              trial({RATE: 0.004}, 2, **lost)]  # fmt: skip
    sweep = made(trials, best=ONE)
    assert decision.decide(sweep, False) == THREE
    assert {rival.why for rival in sweep.rivals} == {"learning_rate=0.001 diverged with 1 of the fresh seeds"}
    assert decision.decide(made(trials, best=ONE, higher=True), True) == TWO
    sweep = made(trials, best=THREE)
    decision.decide(sweep, False)
    assert [rival.why for rival in sweep.rivals] == [
        "learning_rate=0.001 diverged with 1 of the fresh seeds",
        "only 1 of the fresh seeds are complete with both",
        "learning_rate=0.004 diverged with 1 of the fresh seeds",
    ]


# ---- halving, metric, failures ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "epochs", "factor", "ends"), [(1, 9, 3, [1, 3]), (1, 10, 3, [1, 3, 9]), (2, 2, 3, []), (4, 9, 2, [4, 8])]
)
def test_the_rungs_are_below_the_last_epoch(first: int, epochs: int, factor: int, ends: list[int]) -> None:
    assert halving.rungs(first, epochs, factor) == ends


def test_epochs_are_saved_by_trials_of_the_search_that_ended_at_a_rung() -> None:
    trials = [trial(state="dropped", rungs=[0.5]), trial(state="paused", rungs=[0.5, 0.4]), trial(rungs=[0.5, 0.4]),
              trial(state="failed", rungs=[0.5]), trial(state="dropped"),
              trial(state="dropped", rungs=[0.5], part="proof")]  # fmt: skip
    assert halving.saved_epochs(trials, [1, 3], 9) == 8 + 6
    assert [halving.next_pause(each, [1, 3]) for each in trials[:2]] == [3, None]


def test_the_paused_setting_of_the_highest_rung_goes_on_and_of_several_the_best() -> None:
    low, high = trial(ONE, state="paused", rungs=[0.1]), trial(TWO, state="paused", rungs=[0.9, 0.9])
    assert halving.best_paused([low, high], False) is high
    worse = trial(THREE, state="paused", rungs=[0.9, 0.95])
    assert halving.best_paused([low, worse, high], False) is high
    assert halving.best_paused([low, worse, high], True) is worse
    high.on = "h1"
    assert halving.best_paused([low, high], False) is low, "another machine has the other one"
    ahead, behind = (trial(ONE, seed, "paused", rungs=rungs) for seed, rungs in ((1, [0.5, 0.5]), (2, [0.5])))
    assert halving.best_paused([ahead, behind], False) is behind, "the seeds of a setting go on together"
    assert halving.best_paused([trial(), trial(TWO, state="failed", rungs=[0.1])], False) is None


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([{"f": 1.0}, {}, {"f": 2.0}], [1.0, 1.0, 2.0]),
        ([{}, {"f": 1.0}, {"f": math.inf}, {}], [None, 1.0, None, None]),
        ([{"f": math.nan}, {"f": 1.0}, {"f": None}], [None, 1.0, None]),
    ],
)
def test_a_metric_is_that_of_the_latest_epoch_and_finite(figures: list[Any], expected: list[float | None]) -> None:
    assert metric.values("f", figures) == expected


@pytest.mark.parametrize(
    ("causes", "text"),
    [
        (["data", "data", "data"], "3 trials in a row failed with one cause: no file"),
        (["data", "data"], ""),
        (["data", "data", ""], ""),
        (["", "data", "data", "data"], "3 trials in a row failed with one cause: no file"),
        (["data", "crash", "data"], ""),
        (["oom", "oom", "oom"], "3 trials in a row failed with one cause: no file"),
        (["", "oom", "oom", "oom"], ""),
        (["timeout", "timeout", "timeout"], "3 trials in a row failed with one cause: no file"),
        (["timeout", "oom", "timeout"], ""),
        (["nan", "nan", "nan"], ""),
    ],
)
def test_three_failures_in_a_row_with_one_cause_hold_a_sweep(causes: list[str], text: str) -> None:
    trials = [
        trial(seed=n, state="failed" if cause else "done", cause=cause, error=cause and "no file",
              ended_t=10.0 + n)
        for n, cause in enumerate(causes)
    ]  # fmt: skip
    assert why_to_hold(trials, 0.0) == text
    assert why_to_hold(trials, 10.0 + len(causes) - 2) == "", "two of them have ended since the resume"
    trials[-1].failures = 1
    assert why_to_hold(trials, 0.0) == "", "a trial that fails again after a resume does not count"


# ---- the request ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "higher"),
    [("val_loss", False), ("error_rate", False), ("my_mse", False), ("val_accuracy", True), ("AUC", True), ("f1", True),
     ("my_cost:min", False), ("val_loss:max", True)],
)  # fmt: skip
def test_the_better_direction_follows_from_the_name_of_the_metric(home: Any, name: str, higher: bool) -> None:
    own = ["workload.entry=train.py:build"] if name.startswith(("my", "error", "AUC", "f1")) else []
    preset = presets.resolve("quickstart", own)
    settings = sweep_request.settings_of(preset, ["learning_rate=1e-3,2e-3"], name, None)
    assert (settings.metric, settings.higher) == (name.partition(":")[0], higher)


@pytest.mark.parametrize(
    ("block", "parameters"),
    [
        ({"seeds": 1, "trials": 2, "finalists": 2, "parallel": 1}, {"seeds": 1, "most_trials": 2, "finalists": 2,
         "parallel": 1}),
        ({"seeds": 100, "minutes": 0.01, "halving": 0, "proof_seeds": 0}, {"seeds": 100, "minutes": 0.01,
         "halve_from": 0, "proof_seeds": 0}),
        ({"minutes": 5, "sampler": "tpe", "study": "s", "name": "n"}, {"minutes": 5, "sampler": "tpe", "study": "s",
         "study_name": "n"}),
    ],
)  # fmt: skip
def test_the_entries_of_a_block_are_parameters_of_the_command(
    block: dict[str, Any], parameters: dict[str, Any]
) -> None:
    assert preset_block.of_block(block) == parameters


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ({"seeds": 0}, "seeds: 0 does not fit: give a whole number from 1 to 100"),
        ({"seeds": True}, "seeds: true does not fit: give a whole number from 1 to 100"),
        ({"trials": 1}, "trials: 1 does not fit: give a whole number from 2 to 10,000"),
        ({"trials": 2.0}, "trials: 2.0 does not fit: give a whole number from 2 to 10,000"),
        ({"minutes": 0}, "minutes: 0 does not fit: give a number from 0.01 to 10,000,000"),
        ({"finalists": 21}, "finalists: 21 does not fit: give a whole number from 2 to 20"),
        ({"metric": 5}, "metric: 5 does not fit: give a text"),
        ({"metrik": "loss"}, "metrik: there is no such entry, did you mean metric?"),
        ({"sampler": "x"}, "sampler: give grid, random or tpe"),
        ({"over": {}}, "over: give options with their values, such as {learning_rate: [1e-3, 3e-3]}"),
    ],
)  # fmt: skip
def test_a_wrong_entry_of_a_block_is_refused_in_a_line(block: dict[str, Any], fault: str) -> None:
    with pytest.raises(ProofError) as refused:
        preset_block.of_block(block, "p: sweep.")
    assert str(refused.value) == f"p: sweep.{fault}"
