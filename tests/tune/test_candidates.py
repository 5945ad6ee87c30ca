"""The candidates of a search: which are tried, judged, ended early or measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.doors.engine import (
    EVENTS_FILE,
    Candidate,
    Gpu,
    Limits,
    LossCheck,
    Measurement,
    OutOfTime,
    Preset,
    Run,
    Screening,
    Search,
    Space,
    SpeedWatch,
    TimePlan,
    Trial,
    below,
    defaults,
    losses,
    measure_at_once,
    presets,
    proof_request,
    undisturbed,
)
from tests.doors.engine import (
    folder as proof_folder,
)
from tests.doors.engine import judgement_Best as Best
from tests.doors.engine import screening as judgement
from tests.doors.engine import wide_search_Place as Place
from tests.support.proving import HERE, Figures, Planted, PlantedBench, started

XLA = {"compile.xla": True}


def measurement(bench: PlantedBench, *settings: str, earlier: Sequence[Trial] = ()) -> Measurement:
    """A search of a quarter of an hour, of whose first trial nothing is known."""
    request = proof_request.of_preset("tune", "quickstart", settings, search=Limits())
    record = proof_folder.empty_record(bench.folder, request)
    record.search = Search(limits=Limits())
    measurement = Measurement(request, record, bench, HERE, earlier)
    measurement.end_after(minutes=15)
    return measurement


class Site:
    """A screening of a preset with batches of 32, whose doings are noted."""

    def __init__(
        self,
        path: Path,
        figures: Figures,
        earlier: Sequence[Trial] = (),
        conflict: Callable[[Preset], str] = lambda _: "",
    ) -> None:
        self.doings = list[str]()
        self.bench = PlantedBench(path / "trials", figures)
        self.trials = measurement(self.bench, "batch_size=32", "xla=false", "train.seed=1", earlier=earlier)
        vars(self.trials)["conflict"] = conflict
        self.screening = Screening(self.trials, self.doings.append, 2.0)
        self.search = self.screening.search

    def rows(self) -> list[tuple[str, str, int]]:
        return [(each.decision, each.why, len(each.trials)) for each in self.search.candidates]


def speeds(speed_of: Callable[[Any], float], **more: Any) -> Figures:
    return lambda options, before: Planted(speed_of(options), **more)


def test_a_candidate_that_cannot_be_trained_here_is_left_out_with_the_reason(tmp_path: Path) -> None:
    def conflict(preset: Preset) -> str:
        return "no GPU" if preset.options.compile.xla is True else ""

    site = Site(tmp_path, speeds(lambda options: 1000.0), conflict=conflict)
    site.screening.measure_best("baseline", "as it is", without_input=False)
    assert site.screening.attempt("xla", XLA, "r", predicted_bytes=7).trials == []
    wrong = site.screening.attempt("batch_size", {"input.batch_size": -1})
    assert site.rows() == [("kept", "", 1), ("left out", "no GPU", 0), ("left out", wrong.why, 0)]
    assert wrong.why.startswith("-1 does not fit")
    assert "\n" not in wrong.why
    assert site.screening.measured(XLA) is None
    assert site.screening.measured({"input.batch_size": -1}) is None
    site.screening.leave_out("batch_size", {"input.batch_size": 64}, "too large", 9)
    left = site.search.candidates[-1]
    assert left == Candidate(
        stage="batch_size", settings={"input.batch_size": 64}, tried={"input.batch_size": 64}, decision="left out",
        why="too large", predicted_bytes=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("side", "outcome", "again"), [("s", "timeout", False), ("s", "crashed", True), ("a", "timeout", True)]
)
def test_a_trial_is_measured_again_only_if_chance_may_have_ended_it(
    tmp_path: Path, side: str, outcome: Any, again: bool
) -> None:
    site = Site(tmp_path / "p", lambda options, before: Planted(outcome=outcome))
    preset = presets.defaults()
    row = site.trials.measure(preset, side, 1)
    assert site.trials.remembers(preset, side, 1) is not again
    assert site.trials.measure(preset, side, 1).outcome == outcome
    assert len(site.bench.asked) == 1 + again
    resumed = Site(tmp_path / "q", lambda options, before: Planted(), [row])
    resumed.trials.measure(preset, side, 1)
    assert len(resumed.bench.asked) == again, "also by a resumed search"
    for other in ((preset, side, 2), (preset, "x", 1), (presets.defaults(["batch_size=7"]), side, 1)):
        assert not resumed.trials.remembers(*other)
    assert not resumed.trials.remembers(preset, side, 1, seconds=2.0), "measured for another time"


def test_trials_side_by_side_have_a_gpu_each_and_speeds_of_the_first_one(tmp_path: Path) -> None:
    judged: list[list[float]] = []

    def judge(speeds: Sequence[float]) -> bool:
        judged.append(list(speeds))
        return False

    site = Site(tmp_path, speeds(lambda options: 500.0))
    preset = presets.defaults()
    rows = measure_at_once(site.screening, [preset, preset], [Place(0), Place("GPU-1", 0.5)], "s", judge)
    assert [(row.repeat, row.gpu_speed) for row in rows] == [(1, 1.0), (2, 0.5)]
    assert [row.speed for row in rows] == pytest.approx([500.0, 1000.0])
    assert sorted(judged) == [[500.0] * 3, [1000.0] * 3]
    assert sorted(map(str, (options.device.visible for options in site.bench.asked))) == ["['GPU-1']", "[0]"]
    assert site.trials.remembers(preset, "s", 2, seconds=2.0)
    assert [row.good for row in measure_at_once(site.screening, [preset], [Place(0)], "t")] == [True]
    places = [Place(0), Place(1), Place(2), Place(3)]
    left = undisturbed(places, [100.0, 95.0, 94.9, None], alone=100.0)
    assert left == [Place(0, 1.0), Place(1, 0.95)]


def candidate(*speeds: float, peak_bytes: int | None = None) -> Candidate:
    trials = [Trial(side="s", repeat=1, run="01-s", outcome="ok", samples_per_second=speed) for speed in speeds]
    return Candidate(stage="xla", settings={}, tried={}, trials=trials, peak_bytes=peak_bytes)


def best(*speeds: float, peak_bytes: int | None = None) -> Best:
    return Best(presets.defaults(), {}, candidate(*speeds, peak_bytes=peak_bytes))


@pytest.mark.parametrize(
    ("speeds", "decision", "words"),
    [
        ((106.0,), "kept", "+6.0 %"),
        ((104.0,), "rejected", "not more than"),
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


@pytest.mark.parametrize(("gain", "spread", "may"), [(-0.05, None, True), (-0.12, None, False), (-0.12, 0.07, True)])
def test_chance_may_have_rejected_what_was_not_clearly_slower(
    gain: float | None, spread: float | None, may: bool
) -> None:
    """A single trial each with a spread of 4 % differs by 5.7 %."""
    judged = candidate(100.0)
    judged.gain, judged.spread = gain, spread
    assert judgement.may_be_faster(judged, 0.04) is may


@pytest.mark.parametrize(("speed", "decision"), [(101.9, "rejected"), (102.1, "kept")])
def test_a_gain_of_less_than_a_fiftieth_does_not_count_however_certain(speed: float, decision: str) -> None:
    judged = candidate(speed)
    assert judgement.seems_to_gain(judged, best(100.0), 0.013) is (decision == "kept")
    judgement.decide(judged, best(100.0), 0.001, None)
    assert judged.decision == decision


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


def test_waits_that_promise_much_more_than_is_measured_are_not_believed() -> None:
    """An input that runs beside the training on busy cores is no longer waited for, and nothing is gained."""
    gain, error = judgement.weighed(0.0, 0.04, 1.0)
    assert gain < error


def test_a_trial_is_judged_by_each_report_of_further_steps(tmp_path: Path) -> None:
    run, asked = Run(tmp_path), []

    def judge(speeds: Sequence[float]) -> bool:
        asked.append(list(speeds))
        return len(speeds) == 3

    watch = SpeedWatch(run, judge)
    with run.file(EVENTS_FILE).open("a", buffering=1) as file:
        for step, speed, ended in ((0, 9.0, False), (5, None, False), (10, 8.0, False), (10, 7.0, False),
                                   (20, 6.0, False), (30, 5.0, True)):  # fmt: skip
            more = {} if speed is None else {"samples_per_second": speed}
            file.write(json.dumps({"t": 1.0, "type": "progress", "step": step, **more}) + "\n")
            assert watch.is_slower() is ended, step
    assert asked == [[8.0], [8.0, 6.0], [8.0, 6.0, 5.0]]
    assert not below(8.0)((8.0, 8.0, 8.0))


def test_a_candidate_that_is_clearly_slower_is_rejected_with_its_speed_so_far(tmp_path: Path) -> None:
    speeds = {32: 1000.0, 16: 790.0, 64: 810.0}
    bench = PlantedBench(tmp_path / "trials", lambda options, _: Planted(speeds[options.input.batch_size]))
    screening = Screening(measurement(bench, "batch_size=32"), lambda doing: None, 2.0)
    screening.measure_best("baseline", "as it is", without_input=False)
    slow = screening.attempt("batch_size", {"input.batch_size": 16})
    assert [trial.outcome for trial in slow.trials] == ["slower"]
    assert slow.decision == "rejected"
    assert slow.samples_per_second == pytest.approx(790)
    assert slow.gain == pytest.approx(-0.21)
    assert "ended before its time" in slow.why
    close = screening.attempt("batch_size", {"input.batch_size": 64})
    assert ([trial.outcome for trial in close.trials], close.decision) == (["ok"], "rejected")


GPUS = tuple(Gpu(index, f"GPU-{index}", "NVIDIA A100", (8, 0), 40 * 2**30) for index in (0, 1))


def space(*, gpus: bool = True, **limits: Any) -> Space:
    """Of 1000 samples, on two GPUs or none."""
    built = started(presets.resolve("quickstart").options, 32)
    there = replace(HERE, gpus=GPUS) if gpus else HERE
    return Space(Limits(**limits), there, replace(built, compute_capability=(8, 0) if gpus else None))


def test_the_values_that_are_tried_fit_the_devices() -> None:
    preset = presets.resolve("quickstart", ["batch_size=32", "xla=auto", "cache=off"])
    on_gpus, on_cpu = space(), space(gpus=False)
    policies = ["mixed_float16", "mixed_bfloat16"]
    assert [tried["precision.policy"] for tried in on_gpus.of("precision", preset)] == policies
    assert space(avoid_precisions=["mixed_float16"]).of("precision", preset) == [{"precision.policy": policies[1]}]
    assert space(gpus=False, avoid_precisions=["float32"]).of("precision", preset) == []
    assert space(precisions=["mixed_float16"], gpus=False).of("precision", preset) == [
        {"precision.policy": "mixed_float16"}
    ], "it is asked for"
    assert not any("input.parallel_reads" in tried for tried in on_cpu.of("input", preset))
    records = presets.resolve("quickstart", ["data=tfrecord:here", "parallel_reads=off"])
    assert {"input.parallel_reads": "auto"} in on_cpu.of("input", records)
    assert on_cpu.of("precision", preset) == []  # this CPU has no instructions for bfloat16
    assert on_cpu.of("strategy", preset) == []
    assert on_gpus.of("strategy", preset) == [{"strategy.kind": "mirrored"}]
    assert on_gpus.of("threads", preset) == [{"device.gpu_thread_mode": "gpu_private"}]
    assert {"input.cache": "memory"} in on_cpu.of("input", preset)
    steps = [tried["compile.steps_per_execution"] for tried in on_cpu.of("steps_per_execution", preset)]
    assert steps == [4, 16, 31]  # as many as a pass has
    assert on_gpus.of(
        "steps_per_execution", presets.resolve("quickstart", ["batch_size=32", "strategy.kind=mirrored"])
    ) == [{"compile.steps_per_execution": count} for count in (4, 15)], "a step takes the samples of both GPUs"
    short = presets.resolve("quickstart", ["batch_size=32", "steps_per_epoch=10"])
    assert [tried["compile.steps_per_execution"] for tried in on_cpu.of("steps_per_execution", short)] == [4, 10]


def test_the_global_batch_stays_within_its_limit_on_several_gpus() -> None:
    preset = presets.resolve("quickstart", ["batch_size=64"])
    assert space().most_batch(preset) == 100  # a pass keeps ten steps
    assert space().of("strategy", preset) == [{"strategy.kind": "mirrored", "input.batch_size": 50}]
    assert space(largest_batch=200).of("strategy", preset) == [{"strategy.kind": "mirrored"}]


def test_a_trial_ends_before_the_time_that_is_kept_and_one_that_hangs_long_before(tmp_path: Path) -> None:
    bench = PlantedBench(tmp_path / "trials", lambda options, before: Planted())
    trials = measurement(bench)
    clock = vars(trials)["record"] = SimpleNamespace(elapsed=0.0, versions={"python": "3.11"})
    trials.guess = 10.0
    trials.end_after(minutes=10)
    trials.reserved_seconds = 100.0
    assert trials.most_seconds() == 500, "how long the first one takes is not known"
    trials.measure(defaults(()), "s", 1, seconds=2.0)
    assert trials.most_seconds() == pytest.approx(6 * 10 + 12 * 5), "the others took 10 s"
    clock.elapsed = 460.0
    assert trials.most_seconds() == 40
    clock.elapsed = 495.0
    with pytest.raises(OutOfTime):
        trials.measure(defaults(()), "s", 2, seconds=2.0)


BATCH = {"input.batch_size": 128}


@pytest.mark.parametrize(
    ("pairs", "falls", "decision", "worse_from"),
    [
        ([(1.0, 1.06), (1.0, 1.06)], [], "worse", 1.05),
        ([(1.0, 1.04), (1.0, 1.06)], [], "no worse", 1.05),
        ([(0.9, 0.96), (1.1, 1.14)], [], "no worse", 1.05),  # each pair by itself
        ([(1.0, 1.02)], [0.1], "worse", 1.01),  # the loss had hardly fallen
        ([(1.0, None), (1.0, 1.0)], [], "worse", None),
        ([(None, 1.0)], [], "not judged", None),
    ],
)
def test_a_loss_is_worse_if_it_is_so_in_each_pair(
    pairs: list[tuple[float | None, float | None]], falls: list[float], decision: str, worse_from: float | None
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


@pytest.mark.parametrize(("trial", "whole"), [(10.0, True), (10.2, False)])
def test_eight_changes_are_enough(trial: float, whole: bool) -> None:
    """101 of 200 s are for trials: ten of them, of which two are no changes."""
    plan = TimePlan(limit=200.0, trial=trial, pair_trial=15.0, repeats=3, compares_losses=False)
    assert (plan.pairs, plan.changes, plan.is_whole) == (3, 8 if whole else 7, whole)
