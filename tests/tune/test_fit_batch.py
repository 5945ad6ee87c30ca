"""The batch finder alone: the largest batch that fits within one step, and the fastest, on planted figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.options import Options
from gputui.engine.proof import folder, request
from gputui.engine.proof.request import ProofError, Request
from gputui.engine.trials import proof_sentences
from gputui.engine.trials.comparing import BaselineFailed
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Limits, Memory, Search
from gputui.engine.tune import tune_request
from gputui.engine.tune.dry_run import Prediction
from gputui.engine.tune.memory_model import ROOM
from gputui.engine.tune.report.memory_sentences import largest_error
from gputui.engine.tune.stages.batch_size import STEP, LargestBatch

from tests.support.proving import HERE, Planted, PlantedBench, searching, searching_in_time
from tests.support.typed import typed

MB = 2**20
LIMIT = 4000 * MB


def asked(*settings: str, batch: int = 32) -> Request:
    limits = Limits(only=["batch_size"], memory_bytes=LIMIT, largest_batch=100_000)
    given = (f"batch_size={batch}", "train.seed=1", *settings)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(limits))


def test_a_preset_above_the_largest_batch_that_is_allowed_is_refused(home: Path) -> None:
    wanted = asked(batch=32)
    for most, said in ((31, r"batch of 32 is above the largest that is allowed, 31; .*batch_size=31"), (32, "")):
        limited = replace(wanted, search=Limits(largest_batch=most))
        if said:
            with pytest.raises(ProofError, match=said):
                tune_request.refuse(limited)
        else:
            assert tune_request.refuse(limited) is limited


def test_the_limit_of_the_batch_is_that_of_all_devices(home: Path) -> None:
    wanted = asked("device.logical_devices=2", "strategy.kind=mirrored", batch=32)
    with pytest.raises(ProofError) as refused:
        tune_request.refuse(replace(wanted, search=Limits(largest_batch=63)))
    assert str(refused.value) == (
        "the preset's batch of 64 (32 on each of 2 devices) is above the largest that is allowed, 63; begin with a "
        "smaller one (batch_size=31), or raise the limit"
    )


def test_only_a_prediction_needs_no_time_for_a_change(home: Path) -> None:
    assert tune_request.of_preset("quickstart", [], Limits(minutes=0.01, dry_run=True)).search is not None
    with pytest.raises(ProofError, match=r"0\.01 min are too few"):
        tune_request.of_preset("quickstart", [], Limits(minutes=0.01))


def test_the_largest_batch_is_found_also_if_there_is_no_time_to_find_the_fastest(tmp_path: Path) -> None:
    """Each trial takes 30 s of 5 min, and each doubling is twice as fast."""

    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        return Planted(samples_per_second=1000.0 * batch, peak_memory_bytes=straight(batch), loss=2.0)

    search = Limits(only=["batch_size"], memory_bytes=LIMIT, largest_batch=100_000, minutes=5)
    searcher, bench = searching_in_time(tmp_path / "p", replace(asked(), search=search), figures, lambda before: 30.0)
    searcher.run()
    tried = [options.input.batch_size for options in bench.asked]
    assert searcher.record.ended_because == (
        "the time budget of 5 min allows no further trial before the pairs that prove the gain"
    )
    doubled, largest = tried[: tried.index(1496)], tried[tried.index(1496)]
    assert doubled == [32 * 2**power for power in range(len(doubled))]
    assert searcher.search.memory is not None
    assert searcher.search.memory.fits == largest
    assert searcher.search.best["input.batch_size"] == doubled[-1]


@pytest.mark.parametrize(("replicas", "tried"), [(1, 704), (2, 352)])
def test_a_batch_whose_steps_take_too_long_is_not_tried(tmp_path: Path, replicas: int, tried: int) -> None:
    """Eight steps may take a minute, of 100 samples a second on all devices together."""

    def figures(options: Options, before: int) -> Planted:
        return Planted(samples_per_second=100.0, peak_memory_bytes=straight(options.input.batch_size), loss=2.0)

    of_two = ("device.logical_devices=2", "strategy.kind=mirrored") if replicas == 2 else ()
    search = Limits(only=["batch_size"], memory_bytes=LIMIT, largest_batch=100_000, minutes=60)
    searcher, bench = searching(tmp_path / "p", replace(asked(*of_two, batch=32), search=search), figures)
    searcher.run()
    assert max(options.input.batch_size for options in bench.asked) <= tried
    left_out = [each for each in searcher.search.candidates if each.decision == "left out"][-1]
    seconds = 8 * left_out.tried["input.batch_size"] * replicas / 100
    assert left_out.why == f"its steps would take {seconds:.0f} s, and its memory is predicted"
    assert seconds > 60


def straight(batch: int) -> int:
    return 600 * MB + 2 * MB * batch


def curved(batch: int) -> int:
    """Far more than the small batches tell: a library takes another algorithm from 700 on."""
    return straight(batch) + (700 * MB if batch >= 700 else 0)


def steps(batch: int) -> int:
    """The allocator keeps memory in blocks of 128 MB."""
    return -(-straight(batch) // (128 * MB)) * 128 * MB


def fitted(path: Path, taken: Callable[[int], int], most: int, **more: Any) -> Search:
    """A search on trainings that run out of memory above `most` bytes."""

    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        speed = 1000 * batch / (batch + 20)  # hardly faster from 500 on
        if taken(batch) > most:
            return Planted(outcome="oom", error=f"out of memory at batch size {batch}")
        return Planted(samples_per_second=speed, peak_memory_bytes=taken(batch), loss=2.0)

    searcher, _ = searching(path, asked(**more), figures)
    searcher.run()
    return searcher.search


def largest(taken: Callable[[int], int], most: float) -> int:
    return next(batch for batch in range(5000, 0, -1) if taken(batch) <= most)


@pytest.mark.parametrize("taken", [straight, curved, steps])
def test_the_largest_batch_that_fits_is_found_within_one_step(tmp_path: Path, taken: Callable[[int], int]) -> None:
    for number, most in enumerate((LIMIT, 3000 * MB)):  # the second: other programs have taken some of it meanwhile
        found = fitted(tmp_path / str(number), taken, most).memory
        assert found is not None
        fits = largest(taken, min(most, ROOM * LIMIT))
        assert found.fits is not None
        assert fits / STEP - 8 <= found.fits <= fits, (taken.__name__, most, found)
        tried = [point.batch_size for point in found.points]
        assert len(tried) == len(set(tried)) <= 12, "nothing is tried twice"


def test_a_data_set_that_fits_as_one_batch_is_tried_whole(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        return Planted(samples_per_second=1000.0, peak_memory_bytes=straight(options.input.batch_size))

    for most in (102, None):  # allowed, or the samples that there are
        wanted = replace(asked(), search=replace(asked().search or Limits(), largest_batch=most))
        searcher, _ = searching(tmp_path / str(most), wanted, figures)
        searcher.run()
        memory = searcher.search.memory
        assert memory is not None
        assert memory.fits == memory.largest_batch == memory.most_batch == (most or 1000)


def test_below_a_preset_that_leaves_no_room_the_batch_that_does_is_found(tmp_path: Path) -> None:
    found = fitted(tmp_path / "p", straight, LIMIT, batch=1600).memory  # 3800 of 4000 MB
    assert found is not None
    assert found.fits is not None
    fits = largest(straight, ROOM * LIMIT)
    assert fits / STEP - 8 <= found.fits <= fits, found


def test_what_was_predicted_and_tried_is_told_with_its_error(tmp_path: Path) -> None:
    search = fitted(tmp_path / "p", straight, LIMIT)
    assert isinstance(search.memory, Memory)
    error = largest_error(typed(Memory, {"points": [vars(point) for point in search.memory.points]}))
    assert error is not None
    assert error < 0.01
    probe = next(one for one in search.candidates if one.reason == "the largest that may fit")
    assert probe.predicted_bytes == pytest.approx(probe.peak_bytes, rel=0.01)
    assert (probe.decision, probe.samples_per_second, probe.gain) == ("measured", None, None)
    assert probe.peak_bytes is not None
    assert probe.peak_bytes <= ROOM * LIMIT
    assert search.best["input.batch_size"] < probe.settings["input.batch_size"], "the fastest is another one"


def test_a_preset_above_the_users_own_limit_is_refused_and_fit_batch_says_that_nothing_fits(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        return Planted(peak_memory_bytes=610 * MB)

    small = Limits(only=["batch_size"], memory_bytes=100 * MB)
    more = replace(asked(), search=replace(small, only=["batch_size", "xla"]))
    searcher, _ = searching(tmp_path / "p", more, figures)
    with pytest.raises(BaselineFailed, match=r"takes 610 MiB of memory, and you allow 100 MiB: .*fit-batch"):
        searcher.run()
    searcher, bench = searching(tmp_path / "q", replace(asked(), search=small), figures)
    searcher.run()
    assert {options.input.batch_size for options in bench.asked} == {32, 16}, "two tell that no other fits"
    memory = searcher.search.memory
    assert memory is not None
    assert (memory.fits, memory.largest_batch, memory.limit_is_asked) == (None, 0, True)


def test_the_memory_of_all_candidates_is_of_one_kind_also_where_no_batch_size_is_searched(tmp_path: Path) -> None:
    wanted = replace(asked(), search=Limits(only=["xla"]))
    searcher, _ = searching(tmp_path / "p", wanted, lambda options, before: Planted(peak_memory_bytes=800 * MB))
    searcher.run()
    assert {one.peak_bytes for one in searcher.search.candidates} == {800 * MB}, "of the process, not of the allocator"


def test_a_preset_that_runs_out_of_memory_is_measured_with_less_and_the_batch_that_fits_is_kept(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        good = Planted(samples_per_second=1000.0 + batch, peak_memory_bytes=straight(batch), loss=2.0)
        return good if straight(batch) <= LIMIT else Planted(outcome="oom", error="out of memory")

    searcher, _ = searching(tmp_path / "p", asked(batch=6000), figures)
    searcher.run()
    baselines = [one for one in searcher.search.candidates if one.stage == "baseline"]
    assert [one.decision for one in baselines] == ["failed", "failed", "kept"]
    assert baselines[-1].settings == {"input.batch_size": 1500}
    assert searcher.record.comparisons == []
    assert searcher.record.changes_kept["input.batch_size"] == 1500
    searcher.record.state = "done"
    searcher.record.write("ended")
    data = dict(vars(searcher.record)) | {"search": None}
    assert (
        proof_sentences.conclusion(typed(Record, data))
        == "the preset runs out of memory, and trains with batch_size=1500"
    )


def test_a_prediction_without_time_for_its_trials_asks_for_more_minutes(tmp_path: Path) -> None:
    """A trial is expected to take longer than these."""
    wanted = replace(asked(), search=Limits(only=["batch_size"], minutes=0.15, dry_run=True))
    bench = PlantedBench(tmp_path / "trials", lambda options, before: Planted(peak_memory_bytes=610 * MB))
    prediction = Prediction(wanted, folder.empty_record(tmp_path, wanted), bench, HERE)
    with pytest.raises(BaselineFailed, match=r"0\.15 min do not allow .* give more --minutes"):
        prediction.run()
    assert bench.asked == []


def test_a_larger_batch_is_tried_under_a_limit_of_the_users_own_although_one_batch_tells_little(tmp_path: Path) -> None:
    """As TensorFlow itself takes most of it: twice the batch takes little more, and a larger one harms nobody."""

    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        return Planted(1000 * batch / (batch + 20), peak_memory_bytes=(780 + 2 * batch) * MB, loss=2.0)

    limits = Limits(only=["batch_size"], memory_bytes=1_200_000_000, largest_batch=1000)
    given = ("batch_size=32", "train.seed=1")
    wanted = request.of_preset("tune", "quickstart", given, search=tune_request.checked(limits))
    searcher, _ = searching(tmp_path / "p", wanted, figures)
    searcher.run()
    tried = next(one for one in searcher.search.candidates if one.tried)
    assert (tried.tried, tried.decision) == ({"input.batch_size": 64}, "kept")


@pytest.mark.parametrize(
    ("fits", "beyond", "predicted", "most", "batch"),
    [
        (32, None, None, 1000, 64),  # it is doubled where nothing is predicted
        (32, None, 70, 1000, 64),  # down to a multiple of 8
        (32, None, 1001, 1000, 1000),
        (32, None, 32, 1000, None),
        (32, None, 40, 32, None),
        (32, 64, None, 1000, 48),  # half way where twice is known not to fit
        (32, 64, 40, 1000, 40),
        (32, 64, 63, 1000, 56),
        (32, 64, 64, 1000, 48),
        (56, 64, 20, 1000, None),  # the next multiple of 8 does not fit
        (32, 34, None, 1000, None),
        (None, 64, None, 1000, 32),
        (None, 64, 0, 1000, None),
        (None, 2, None, 1000, 1),
        (None, 1, None, 1000, None),
        (None, None, None, 1000, None),
    ],
)
def test_the_next_batch_lies_between_what_fits_and_what_does_not(
    fits: int | None, beyond: int | None, predicted: int | None, most: int, batch: int | None
) -> None:
    memory = SimpleNamespace(fits=fits, beyond=beyond, largest=lambda: predicted)
    largest = LargestBatch(None, memory, None, most, 100.0)  # type: ignore[arg-type]
    assert largest._next() == batch


@pytest.mark.parametrize(
    ("batch", "speed", "left", "fits"),
    [
        (100, 20.0, 1000.0, True),  # eight steps of 5 s
        (150, 20.0, 1000.0, True),  # just a minute
        (151, 20.0, 1000.0, False),
        (100, 20.0, 65.0, True),  # 40 s, a trial of 15 s and 10 s that are reserved
        (100, 20.0, 64.9, False),
        (10_000, 0.0, 1000.0, True),  # nothing is known of the speed
    ],
)
def test_a_batch_whose_steps_take_too_long_is_left_out(batch: int, speed: float, left: float, fits: bool) -> None:
    out: list[str] = []
    trials = SimpleNamespace(seconds_left=left, reserved_seconds=10.0, trial_seconds=15.0)
    screening = SimpleNamespace(trials=trials, leave_out=lambda stage, settings, why, predicted: out.append(why))
    memory = SimpleNamespace(predict=lambda batch: 7)
    largest = LargestBatch(screening, memory, None, 10**6, speed)  # type: ignore[arg-type]
    assert largest._affordable(batch) is fits
    said = f"its steps would take {8 * batch / speed:.0f} s" if speed else ""
    assert [why.partition(",")[0] for why in out] == ([] if fits else [said])
