"""Which batches a prediction probes, and what the stages of a search decide, with planted trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine import presets
from gputui.engine.options import Options
from gputui.engine.proof import folder, request
from gputui.engine.runs.events import Started
from gputui.engine.telemetry import resource_limits
from gputui.engine.trials.comparing import BaselineFailed
from gputui.engine.trials.rate_record import RateSettings, RateTest
from gputui.engine.trials.search_record import Limits, Search
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import memory_model
from gputui.engine.tune.candidates.search_space import Space
from gputui.engine.tune.dry_run import Prediction
from gputui.engine.tune.rate import rate_test
from gputui.engine.tune.stages.input import InputStage

from tests.support.proving import HERE, Planted, PlantedBench, searching, started

MB = 2**20


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with memory for everything."""
    monkeypatch.setattr(resource_limits, "memory", lambda: SimpleNamespace(available=2**50))
    monkeypatch.setattr(resource_limits, "ceilings", lambda: SimpleNamespace(address_space_bytes=None))


# ---- a prediction -----------------------------------------------------------------------------------


def predicted(path: Path, megabytes: int | None, most: int, size: int = 64, too_large: int = 9999) -> Any:
    """The batches that are probed on the CPU, where each takes 600 MB and 1 MB a sample, and the record's search."""
    limits = Limits(dry_run=True, memory_bytes=None if megabytes is None else megabytes * MB, largest_batch=most)
    asked = request.of_preset("tune", "quickstart", [f"batch_size={size}", "train.seed=1"], search=limits)

    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        outcome: Any = "oom" if batch >= too_large else "ok"
        return Planted(samples_per_second=1e6, outcome=outcome, peak_memory_bytes=(600 + batch) * MB)

    path.mkdir()
    record, bench = folder.empty_record(path, asked), PlantedBench(path / "trials", figures)
    Prediction(asked, record, bench, HERE).run()
    return [options.input.batch_size for options in bench.asked], record.search


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    ("megabytes", "most", "size", "probed"),
    [
        (100_000, 9000, 64, [16, 512]),  # 32 times the first one
        (100_000, 100, 64, [16, 96]),  # no more than there are samples, in eights
        (4000, 9000, 64, [16, 40]),  # half of what may be taken: 16 * 0.5 * 3600 / 616 is 46
        (2000, 9000, 64, [16, 32]),  # twice the first surely fits
        (1300, 9000, 64, [16, 8]),  # twice of 616 MB are more than 1,170
        (100_000, 31, 64, [16, 8]),
        (100_000, 9000, 3, [1, 32]),
    ],
)
def test_the_second_probe_is_as_large_as_surely_fits(
    tmp_path: Path, megabytes: int, most: int, size: int, probed: list[int]
) -> None:
    batches, search = predicted(tmp_path / "p", megabytes, most, size)
    assert batches == probed
    assert [point.batch_size for point in search.memory.points] == probed
    assert (search.memory.batch_size, search.memory.replicas) == (size, 1)


@pytest.mark.usefixtures("roomy")
def test_a_probe_that_runs_out_of_memory_is_followed_by_a_smaller_one(tmp_path: Path) -> None:
    batches, search = predicted(tmp_path / "p", 100_000, 9000, 64, too_large=16)
    assert batches == [16, 4]
    assert [(point.batch_size, point.peak_bytes) for point in search.memory.points] == [(16, None), (4, 604 * MB)]
    assert (search.memory.too_large, search.memory.fits) == (16, 4)
    with pytest.raises(BaselineFailed, match="even batch size 4 cannot be trained: oom"):
        predicted(tmp_path / "q", 100_000, 9000, 64, too_large=1)
    with pytest.raises(BaselineFailed, match="even batch size 1 cannot be trained: oom"):
        predicted(tmp_path / "r", 100_000, 9000, 4, too_large=1)


@pytest.mark.usefixtures("roomy")
def test_of_own_batches_only_their_memory_is_said(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        return Planted(inapplicable={"input.batch_size": "your code makes the batches"}, peak_memory_bytes=600 * MB)

    asked = request.of_preset("tune", "quickstart", ["batch_size=64"], search=Limits(dry_run=True))
    (tmp_path / "p").mkdir()
    record = folder.empty_record(tmp_path / "p", asked)
    bench = PlantedBench(tmp_path / "p" / "trials", figures)
    Prediction(asked, record, bench, HERE).run()
    assert len(bench.asked) == 1, "another size would be the same"
    assert record.search is not None
    assert record.search.memory is not None
    assert (record.search.memory.batch_size, record.search.memory.predicted_bytes) == (None, None)
    assert record.ended_because == (
        "it takes 600 MiB of the 1048576 GiB that the host has free; your code makes its own batches, so that other "
        "sizes are not predicted"
    )


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(("size", "probed"), [(64, [16, 32]), (5, [1, 2]), (2, [1, 2])])
def test_on_a_gpu_two_smaller_batches_are_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, probed: list[int]
) -> None:
    def of_gpu(*_given: Any) -> tuple[int, str]:
        return 4000 * MB, "allocator"

    monkeypatch.setattr(memory_model, "limit_and_kind", of_gpu)
    batches, search = predicted(tmp_path / "p", None, 9000, size)
    assert batches == probed
    assert search.memory.predicted_bytes == (600 + size) * MB / 8


# ---- the input ----------------------------------------------------------------------------------------


def stage(wait: float | None, speed: float = 100.0, ceiling: float | None = None, **more: Any) -> InputStage:
    trial = Trial(side="s", repeat=1, run="01-s", outcome="ok", input_wait=wait)
    screening = SimpleNamespace(
        search=Search(limits=Limits(), ceiling=ceiling), best=SimpleNamespace(trials=[trial], speed=speed),
        waits_count=more.get("waits_count", True),
    )  # fmt: skip
    space = SimpleNamespace(
        limits=SimpleNamespace(only=more.get("only", ["input"])),
        started=SimpleNamespace(inapplicable=more.get("inapplicable", {})),
    )
    return InputStage(cast(Any, screening), cast(Any, space), is_short=more.get("is_short", False))


@pytest.mark.parametrize(
    ("wait", "only", "waited_for"),
    [(0.2, ["input"], True), (0.199, ["input"], False), (None, ["input"], False), (0.9, ["xla"], False)],
)
def test_the_input_comes_first_from_a_fifth_of_waiting_on(
    wait: float | None, only: list[str], waited_for: bool
) -> None:
    assert stage(wait, only=only).is_waited_for is waited_for


@pytest.mark.parametrize(
    ("wait", "speed", "ceiling", "harmless"),
    [(0.05, 1.0, None, True), (0.051, 1.0, None, False), (None, 1.0, None, False), (0.9, 95.0, 100.0, True),
     (0.0, 94.9, 100.0, False)],
)  # fmt: skip
def test_an_input_is_harmless_within_a_twentieth_of_the_ceiling(
    wait: float | None, speed: float, ceiling: float | None, harmless: bool
) -> None:
    assert stage(wait, speed, ceiling).is_harmless is harmless


def test_the_training_is_not_measured_without_an_input_that_cannot_be_left_out_or_hardly_takes_time() -> None:
    assert stage(0.05, is_short=True).leave_out() is False
    assert stage(0.5, inapplicable={"input.one_batch": "your code makes the batches"}).leave_out() is False
    for more in ({"wait": 0.051}, {"wait": 0.05, "waits_count": False}, {"wait": None}):
        with pytest.raises(AttributeError, match="measure_best"):  # it is measured
            stage(**more, is_short=True).leave_out()
    with pytest.raises(AttributeError, match="measure_best"):
        stage(0.05).leave_out()


# ---- what is tried ------------------------------------------------------------------------------------


def space(cpus: int = 4, samples: int | None = 1000, **limits: Any) -> Space:
    built: Started = replace(started(presets.resolve("quickstart").options, 32), train_samples=samples)
    return Space(Limits(**limits), replace(HERE, cpus=cpus), built)


def test_the_threads_of_a_cpu_are_divided_in_two_ways() -> None:
    preset = presets.resolve("quickstart")
    inter, intra = "device.inter_op_threads", "device.intra_op_threads"
    assert space().of("threads", preset) == [{inter: 1, intra: 4}, {inter: 4, intra: 1}]
    assert space(cpus=1).of("threads", preset) == []


@pytest.mark.parametrize(
    ("samples", "limits", "most", "samples_at_most"),
    [
        (1000, {}, 100, 1000),
        (9, {}, 1, 9),
        (1000, {"largest_batch": 200}, 200, 200),
        (None, {}, 10_000_000, 10_000_000),
    ],
)
def test_the_largest_batch_of_a_search(
    samples: int | None, limits: dict[str, Any], most: int, samples_at_most: int
) -> None:
    preset, tried = presets.resolve("quickstart"), space(samples=samples, **limits)
    assert (tried.most_batch(preset), tried.most_samples(preset)) == (most, samples_at_most)


@pytest.mark.parametrize(
    ("pairs", "decision", "why"),
    [
        ([(None, None), (1.0, 0.5), (1.0, 0.5)], "undecided", "the training diverges with the suggestion in 1 of 3 "
         "pairs, with the preset's in 1"),
        ([(1.0, None), (1.0, None), (1.0, 0.5)], "worse", "the training diverges with the suggestion in 2 of 3 pairs"),
        ([(None, 0.5)] * 3, "better", "with the preset's rate the training diverges in all 3 pairs"),
        ([(0.0, 0.5)] * 3, "not judged", "losses that are not above 0 have no meaningful ratio"),
        ([(1.0, 0.5)] * 3, "better", "validation loss 0.5 instead of 1 on average, lower in 3 of 3 pairs, median "
         "-50.0 % (spread 0.0 %)"),
    ],
)  # fmt: skip
def test_the_decision_about_pairs_of_losses_with_its_reason(pairs: Any, decision: str, why: str) -> None:
    test = RateTest(settings=RateSettings(), before=1e-3, suggested=1e-2, of="validation")
    rate_test.decide(test, pairs)
    assert (test.decision, test.why) == (decision, why)


# ---- a whole search -----------------------------------------------------------------------------------


def test_a_search_leaves_its_stage_its_noise_and_why_each_change_was_compared(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        together = options.compile.steps_per_execution
        faster = 1.5 if together >= 4 else 1.0
        return Planted(samples_per_second=1000.0 * faster * (1.01 if before % 2 else 1.0), loss=1.0)

    limits = Limits(only=["steps_per_execution", "xla"], minutes=10)
    asked = request.of_preset("tune", "quickstart", ["batch_size=32", "train.seed=1", "xla=false"], search=limits)
    searcher, bench = searching(tmp_path / "p", asked, figures)
    searcher.run()
    record, search = searcher.record, searcher.search
    assert (search.stage, record.budget_seconds) == ("decision", 600.0)
    assert [candidate.stage for candidate in search.candidates if candidate.without_input] == ["ceiling"], "no gain"
    assert search.noise is not None
    assert 0.005 < search.noise < 0.03
    assert [search.before_speed, search.best_speed] == pytest.approx([1000, 1500], rel=0.02)
    rows = [(candidate.stage, dict(candidate.tried), candidate.decision) for candidate in search.candidates]
    steps = "compile.steps_per_execution"
    assert rows[0] == ("baseline", {}, "kept")
    assert [row for row in rows if row[2] == "kept" and row[1]] == [("steps_per_execution", search.best, "kept")]
    assert ("xla", {"compile.xla": True}, "rejected") in rows
    assert [comparison.reason for comparison in record.comparisons] == ["the fastest settings"]
    assert record.comparisons[0].changes == search.best == record.changes_kept
    assert set(search.best) == {steps}
    assert record.gain_total == pytest.approx(1.5, rel=0.03)
    assert len(bench.asked) == len(record.trials)


def test_settings_that_cannot_be_trained_to_their_end_are_named_with_the_reason(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        fails = batch > 32 and options.run.measure_seconds is None
        return Planted(samples_per_second=1000.0 * batch / 32, outcome="oom" if fails else "ok", error="no room")

    limits = Limits(only=["batch_size"], minutes=60, largest_batch=64)
    asked = request.of_preset("tune", "quickstart", ["batch_size=32", "train.seed=1"], search=limits)
    searcher, _ = searching(tmp_path / "p", asked, figures)
    searcher.run()
    assert searcher.search.learning == (
        "the fastest settings cannot be trained (oom: no room) and are not chosen: the preset as it is instead"
    )
    (check, *_) = searcher.search.losses
    assert (check.decision, check.why) == ("failed", "oom: no room")


def test_a_batch_is_halved_down_to_one_and_threads_are_tried_if_they_are_asked_for(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        return Planted(samples_per_second=4000.0 / options.input.batch_size, loss=1.0)

    limits = Limits(only=["batch_size", "threads"], minutes=60)
    asked = request.of_preset("tune", "quickstart", ["batch_size=4", "train.seed=1"], search=limits)
    searcher, _ = searching(tmp_path / "p", asked, figures)
    searcher.run()
    tried = [dict(candidate.tried) for candidate in searcher.search.candidates]
    assert [change["input.batch_size"] for change in tried if "input.batch_size" in change] == [8, 2, 1]
    assert searcher.search.best == {"input.batch_size": 1}
    inter, intra = "device.inter_op_threads", "device.intra_op_threads"
    assert [change for change in tried if inter in change] == [{inter: 1, intra: 2}, {inter: 2, intra: 1}]


def test_a_batch_of_one_is_the_smallest_with_which_a_search_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 95 % of the memory."""
    monkeypatch.setattr(resource_limits, "memory", lambda: SimpleNamespace(available=1000 * MB))
    monkeypatch.setattr(resource_limits, "ceilings", lambda: SimpleNamespace(address_space_bytes=None))

    def figures(options: Options, before: int) -> Planted:
        return Planted(peak_memory_bytes=950 * MB, outcome="oom" if options.input.batch_size > 1 else "ok")

    asked = request.of_preset("tune", "quickstart", ["batch_size=4"], search=Limits(only=["batch_size"], minutes=60))
    searcher, bench = searching(tmp_path / "p", asked, figures)
    searcher.run()
    assert [options.input.batch_size for options in bench.asked][:3] == [4, 2, 1]
    rows = [(candidate.reason, candidate.decision) for candidate in searcher.search.candidates[:3]]
    smaller = "the preset with a smaller batch, as it runs out of memory"
    assert rows == [("the preset as it is", "failed"), (smaller, "failed"), (smaller, "kept")]
    record = searcher.record
    assert (record.before, record.changes_kept, record.comparisons) == (None, {"input.batch_size": 1}, [])
    assert (record.after or {})["samples_per_second"] == pytest.approx(1000.0)
    assert "batch_size: 1" in (record.preset_after or "")


def test_a_smaller_batch_leaves_a_tenth_of_the_memory_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "memory", lambda: SimpleNamespace(available=1000 * MB))
    monkeypatch.setattr(resource_limits, "ceilings", lambda: SimpleNamespace(address_space_bytes=None))

    def figures(options: Options, before: int) -> Planted:
        batch = options.input.batch_size
        return Planted(peak_memory_bytes=(700 + batch) * MB, outcome="oom" if batch >= 400 else "ok")

    asked = request.of_preset("tune", "quickstart", ["batch_size=512"], search=Limits(only=["batch_size"], minutes=60))
    searcher, bench = searching(tmp_path / "p", asked, figures)
    searcher.run()
    assert [options.input.batch_size for options in bench.asked][:3] == [512, 256, 128], "256 take 956 MB"
    refused = request.of_preset(
        "tune", "quickstart", ["batch_size=64"], search=Limits(memory_bytes=750 * MB, only=["xla"])
    )
    with pytest.raises(BaselineFailed, match="the training takes 764 MiB of memory, and you allow 750 MiB: allow more"):
        searching(tmp_path / "q", refused, figures)[0].run()
    allowed = replace(refused, search=Limits(memory_bytes=764 * MB, only=["xla"]))
    searching(tmp_path / "r", allowed, figures)[0].run()
    fitted = replace(refused, search=Limits(memory_bytes=750 * MB, only=["batch_size"], minutes=60))
    searcher, _ = searching(tmp_path / "s", fitted, figures)
    searcher.run()
    assert searcher.search.memory is not None
    assert [point.batch_size for point in searcher.search.memory.points] == [64, 32, 16], "it looks for one that fits"
    assert (searcher.search.memory.fits, searcher.search.memory.largest_batch) == (None, 0)


def test_the_record_has_the_speed_with_the_input_and_no_password(tmp_path: Path) -> None:
    seen: list[float | None] = []

    def figures(options: Options, before: int) -> Planted:
        seen.append(searcher.search.best_speed)
        if options.input.one_batch:
            return Planted(samples_per_second=5000.0, loss=1.0)
        return Planted(samples_per_second=1000.0, input_wait=0.8, loss=1.0)

    limits = Limits(only=["xla", "input"], minutes=60)
    searcher, bench = searching(tmp_path / "p", request.of_preset("tune", "quickstart", [], search=limits), figures)
    searcher.run()
    assert any(options.input.one_batch for options in bench.asked)
    tried = [repr(each.tried) for each in searcher.search.candidates if each.stage == "input" and each.tried]
    assert len(tried) == len(set(tried)) > 1, "each setting of the input once"
    assert seen[0] is None
    assert seen[1:] == pytest.approx([1000.0] * (len(seen) - 1))
    assert searcher.search.ceiling == pytest.approx(5000.0)
    shared = Limits(wide="instead", study="postgresql://me:secret@host/base")
    asked = request.of_preset("tune", "quickstart", [], search=shared)
    searcher, _ = searching(tmp_path / "q", asked, figures)
    assert searcher.search.limits == replace(shared, study="postgresql://me@host/base")
    assert searcher.limits.study == shared.study
