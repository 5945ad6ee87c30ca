"""The candidates of a search: which are tried, judged, ended early or measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    EVENTS_FILE,
    Candidate,
    Gpu,
    Limits,
    Measurement,
    OutOfTime,
    Preset,
    Run,
    Screening,
    Search,
    Space,
    SpeedWatch,
    Trial,
    below,
    defaults,
    measure_at_once,
    presets,
    proof_request,
)
from tests.doors.engine import (
    folder as proof_folder,
)
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
