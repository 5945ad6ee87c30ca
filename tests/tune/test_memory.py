"""The line of memory over the batch size: what it predicts, from what, and where it says nothing."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine.memory_line import through
from gputui.engine.options import Options
from gputui.engine.telemetry import resource_limits
from gputui.engine.telemetry.resource_limits import Ceilings
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Candidate, Limits, Memory, MemoryPoint, Search
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import memory_model
from gputui.engine.tune.candidates.screening import Screening
from gputui.engine.tune.memory_model import MemoryModel
from gputui.engine.tune.report import memory_sentences
from gputui.engine.tune.report.memory_sentences import largest_error
from gputui.engine.tune.stages.batch_size import BatchSize, LargestBatch

from tests.support.proving import started
from tests.support.training import options
from tests.support.typed import typed

MB = 2**20
GB = 2**30


def model(points: dict[int, int | None], limit: int | None = 10 * GB, of: str = "allocator") -> MemoryModel:
    found = MemoryModel(limit, of)
    for batch, peak in points.items():
        found.add(batch, peak)
    return found


def test_two_batches_predict_the_next_and_one_predicts_nothing() -> None:
    found = model({64: 1000 * MB})
    assert (found.predict(128), found.largest()) == (None, None)
    found.add(128, 1640 * MB)
    assert found.predict(256) == 2920 * MB
    assert found.largest() == (0.9 * 10 * GB - 360 * MB) // (10 * MB)
    found.add(256, 3000 * MB)
    state = found.state()
    assert [point.predicted_bytes for point in state.points] == [None, None, 2920 * MB]
    assert largest_error(typed(Memory, asdict(state))) == pytest.approx(80 / 3000)
    assert state.fits == 256


def test_a_point_beside_the_line_and_steps_of_the_allocator_hardly_turn_it() -> None:
    line = {batch: 500 * MB + batch * 10 * MB for batch in (16, 32, 64, 128, 256)}
    straight = through(list(line.items()))
    assert straight is not None
    assert straight.at(1024) == pytest.approx(500 * MB + 1024 * 10 * MB)
    off = through(list((line | {32: line[32] + 400 * MB}).items()))
    assert off is not None
    assert off.at(512) == pytest.approx(straight.at(512), rel=0.01), "least squares alone is 4 % off"
    random.seed(1)
    for _ in range(50):
        steps = through([(batch, taken + random.choice((0, 0, 128)) * MB) for batch, taken in line.items()])
        assert steps is not None
        assert steps.at(512) == pytest.approx(straight.at(512), rel=0.06)


def test_what_was_tried_bounds_what_is_predicted() -> None:
    line: dict[int, int | None] = {64: 1000 * MB, 128: 1640 * MB}
    assert model(line | {600: None}).largest() == 599, "it has run out of memory"
    assert model(line | {600: None, 500: None}).state().too_large == 500
    assert model(line | {900: 9 * GB}).state().fits == 900
    assert (model(line | {900: 9 * GB}).largest() or 0) >= 900, "it was trained"
    assert model(line | {950: 9500 * MB}).state().fits == 128, "that was more than 90 % of the limit"
    assert model(line, limit=None).largest() is None
    few = model(line)
    few.most_batch = 300
    assert few.largest() == 300, "no more can be tried"
    assert model({64: 640 * MB, 128: 630 * MB}).largest() is None, "it does not grow"
    assert model({64: 640 * MB, 128: 630 * MB}).predict(512) == 635 * MB


def test_a_batch_that_ran_out_of_memory_in_one_of_its_trials_does_not_fit() -> None:
    """A process beside it, or another order of the steps, decides whether a batch at the edge fits."""
    points, search = model({}), Search(limits=Limits())
    sizes = BatchSize(cast(Screening, SimpleNamespace(search=search)), points, most=1024)
    good = Trial(side="s", repeat=1, run="01-s", outcome="ok", peak_memory_bytes=5 * GB)
    candidate = Candidate(stage="batch_size", settings={}, tried={}, trials=[good])
    sizes.note(64, candidate)
    assert (points.fits, points.too_large) == (64, None)
    candidate.trials.append(replace(good, repeat=2, outcome="oom", peak_memory_bytes=None))
    sizes.note(128, candidate)
    assert (points.fits, points.too_large) == (64, 128)
    assert search.memory is not None
    assert search.memory.too_large == 128


def test_on_the_host_chance_tells_nothing_of_larger_batches_and_one_point_bounds_them() -> None:
    one = model({64: 1000 * MB}, 4000 * MB, "process")
    assert one.largest() == 230, "twice the batch takes at most twice the memory"
    assert one.state().at_least
    over = model({64: 3900 * MB}, 4000 * MB, "process")
    assert (over.largest(), over.state().at_least) == (32, False), "nothing is known to fit"
    assert over.state().largest_batch is None, "half of it is worth a trial, and no prediction"
    none = model({4: 609 * MB, 8: 611 * MB}, 100 * MB, "process")
    assert (none.largest(), none.state().largest_batch) == (0, 0), "even 1 is too large"
    assert model({4: 609 * MB, 8: 611 * MB}, 650 * MB, "process").largest() == 2, "chance may hide that 1 fits"
    near = model({16: 709 * MB, 32: 730 * MB}, 4000 * MB, "process")
    assert near.largest() == int(32 * 3600 / 730), "21 MB may be chance"
    far = model({32: 700 * MB, 512: 1028 * MB}, 4000 * MB, "process")
    assert far.largest() == pytest.approx(32 + (3600 - 700) / (1028 - 700) * 480, abs=1)


def test_the_memory_of_the_first_step_is_that_of_a_gpu() -> None:
    for kind, first in (("allocator", 3 * GB), ("process", None)):
        found = MemoryModel(10 * GB, kind)
        trial = Trial(side="s", repeat=1, run="01", outcome="ok", first_step_memory_bytes=3 * GB)
        found.add(64, GB, [trial, replace(trial, first_step_memory_bytes=GB), replace(trial, outcome="oom")])
        assert found.state().points == [MemoryPoint(batch_size=64, peak_bytes=GB, first_step_bytes=first)]


def test_other_settings_have_a_line_of_their_own() -> None:
    found = model({64: 1000 * MB, 128: 1640 * MB})
    found.begin_anew({"precision.policy": "mixed_bfloat16"})
    assert (found.predict(256), found.state().points) == (None, [])
    found.add(64, 500 * MB)
    found.begin_anew({"precision.policy": "mixed_bfloat16"})
    assert len(found.state().points) == 1


def test_the_limit_is_that_of_the_device_or_the_host_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(wanted: Options, gpus: tuple[Any, ...] = (), asked: int | None = None, **peaks: Any) -> Any:
        told = started(wanted, 32)
        object.__setattr__(told, "gpu_devices", gpus)
        object.__setattr__(told, "gpus", ["GPU-a"] * len(gpus))
        return memory_model.limit_and_kind(
            told, wanted, Trial(side="s", repeat=1, run="01", outcome="ok", **peaks), asked
        )

    gpu = {"device": "/device:GPU:0", "memory_limit_bytes": 14 * GB, "memory_total_bytes": 16 * GB}
    assert found(options(), (gpu,)) == (14 * GB, "allocator")
    assert found(options(), (gpu, gpu | {"memory_limit_bytes": None, "memory_total_bytes": 8 * GB})) == (
        8 * GB, "allocator")  # fmt: skip
    assert found(options("device.memory_limit_mb=1000"), (gpu,)) == (1000 * MB, "allocator")
    assert found(options("device.logical_devices=2"), (gpu,)) == (7 * GB, "allocator")
    assert found(options(), (gpu,), 3 * GB) == (3 * GB, "allocator")
    monkeypatch.setattr(resource_limits, "memory", lambda: resource_limits.Memory(16 * GB, 12 * GB))
    assert found(options(), peak_process_bytes=GB) == (12 * GB, "process")
    assert found(options(), asked=2 * GB, peak_process_bytes=GB) == (2 * GB, "process")
    monkeypatch.setattr(resource_limits, "ceilings", lambda: Ceilings(address_space_bytes=4 * GB))
    both: Any = {"peak_process_bytes": GB, "peak_address_space_bytes": 3 * GB}
    assert found(options(), **both) == (4 * GB, "address_space")
    assert found(options(), asked=int(1.2 * GB), **both) == (int(1.2 * GB), "process"), "the tighter of the two"


def test_what_is_predicted_is_told_in_one_sentence() -> None:
    points: dict[int, int | None] = {64: 3 * GB, 128: 5 * GB}
    for batch, limit, more, said in (
        (256, 14 * GB, {}, "batch 256 will take 9.0 GiB of the 14.0 GiB that TensorFlow may take of a device; "
         "the largest that fits, with a tenth left free, is about 371"),
        (400, 14 * GB, {}, "batch 400 may run out of memory: it will take 13.5 GiB of the 14.0 GiB that"),
        (512, 14 * GB, {"replicas": 2}, "batch 512 on each of 2 devices will run out of memory: it would take 17"),
        (256, None, {}, "batch 256 will take 9.0 GiB"),
        (None, 14 * GB, {}, "it takes 5.0 GiB of the 14.0 GiB that TensorFlow may take of a device; your code"),
    ):  # fmt: skip
        found = model(points, limit)
        state = asdict(found.state()) | {"batch_size": batch, "predicted_bytes": batch and found.predict(batch)} | more
        assert memory_sentences.prediction(typed(Memory, state)).startswith(said), memory_sentences.prediction(
            typed(Memory, state)
        )
    for first, said in ((900 * MB, "free, is about 371"), (6 * GB, "take 15.0 GiB: it may run out of memory, or")):
        tried = MemoryModel(14 * GB, "allocator")
        for batch, peak in points.items():
            trial = Trial(side="s", repeat=1, run="01", outcome="ok", first_step_memory_bytes=(peak or 0) + first)
            tried.add(batch, peak, [trial])
        of_both = {"predicted_bytes": tried.predict(256), "first_step_bytes": tried.predict_first_step(256)}
        sentence = memory_sentences.prediction(typed(Memory, asdict(tried.state()) | {"batch_size": 256} | of_both))
        assert sentence.startswith("batch 256 will take 9.0 GiB of the 14.0 GiB that TensorFlow may take of a device; ")
        assert said in sentence
    failed = model({64: None, 16: 6 * GB}, 10 * GB)
    state = asdict(failed.state()) | {"batch_size": 256}
    assert memory_sentences.prediction(typed(Memory, state)) == (
        "batch 256 does not fit: 64 has run out of memory; "
        "the largest that fits, with a tenth left free, is at least 24"
    )
    small = {"limit_is_asked": True, "batch_size": 32, "predicted_bytes": 612 * MB}
    state = asdict(model({4: 609 * MB, 8: 611 * MB}, 100 * MB, "process").state()) | small
    assert memory_sentences.prediction(typed(Memory, state)) == (
        "batch 32 is above your limit: it takes 612 MiB of the 100 MiB that you allow; even 1 is too large"
    )
    few = asdict(model(points, 14 * GB).state()) | {"batch_size": 64, "predicted_bytes": 3 * GB, "most_batch": 371}
    assert memory_sentences.prediction(typed(Memory, few)).endswith(
        "; all up to 371, the largest that can be tried, fit with a tenth left free"
    )
    for found, more, said in (
        (model(points, 14 * GB), {}, "batch 371 should fit into 14.0 GiB"),
        (model(points, 140 * GB), {}, "batch 4,000 should fit into 140 GiB (a guess from batches up to 128)"),
        (model(points | {350: 12485 * MB}, 14 * GB), {}, "batch 350 fits into 14.0 GiB"),
        (model(points, 14 * GB), {"most_batch": 371}, "batch 371, the largest that can be tried, should fit into"),
        (model({64: 3 * GB}, 14 * GB, "process"), {}, "at least batch 268 should fit into 14.0 GiB"),
        (model({4: 609 * MB, 8: 611 * MB}, 100 * MB, "process"), {}, "not even batch 1 fits into 100 MiB"),
        (model({64: 13 * GB}, 14 * GB, "process"), {}, "14.0 GiB may be taken"),
        (model(points, None), {}, ""),
    ):
        words = memory_sentences.should_fit(typed(Memory, asdict(found.state()) | more))
        assert words.startswith(said), words
        assert said or not words
    over = {"search": {"memory": asdict(model({32: 612 * MB, 16: 611 * MB}, 100 * MB, "process").state())}}
    assert memory_sentences.fitted(typed(Record, over)) == (
        "no batch was found that leaves a tenth of the memory free: batch 16 takes 611 MiB of the 100 MiB that the "
        "host has free; even 1 is too large"
    )
    all_samples = {"search": {"memory": asdict(model(points | {300: 10 * GB}, 14 * GB).state()) | {"most_batch": 300}}}
    assert memory_sentences.fitted(typed(Record, all_samples)) == (
        "batch 300 is the largest that was trained within the memory: 10.0 GiB of 14.0 GiB; no larger one can be tried"
    )
    data = {"search": {"memory": asdict(model(points | {370: 12 * GB, 400: None}, 14 * GB).state())}}
    assert memory_sentences.fitted(typed(Record, data)) == (
        "batch 370 is the largest that was trained within the memory: 12.0 GiB of 14.0 GiB; 400 ran out of it"
    )


class PlantedScreening:
    """Measures batches of which a test says how fast they are; from `too_large` on they run out of memory."""

    def __init__(self, size: int, speeds: dict[int, float], too_large: int) -> None:
        self.search, self.too_large, self.speeds = Search(limits=Limits()), too_large, speeds
        self.best = SimpleNamespace(preset=SimpleNamespace(options=options(f"input.batch_size={size}")))
        self.tried: list[int] = []
        self.left_out: list[int] = []

    def attempt(self, stage: str, settings: dict[str, int], predicted_bytes: int | None) -> Candidate:
        (batch,) = settings.values()
        self.tried.append(batch)
        ran_out = batch >= self.too_large
        trial = Trial(side="s", repeat=1, run="01-s", outcome="oom" if ran_out else "ok")
        if not ran_out:
            trial.peak_memory_bytes = batch * 10 * MB
        gain = self.speeds.get(batch, 0.0)
        candidate = Candidate(stage=stage, settings=settings, tried=settings, trials=[trial], gain=gain)
        candidate.decision = "failed" if ran_out else "kept" if gain > 0 else "rejected"
        if candidate.decision == "kept":
            self.best.preset.options = options(f"input.batch_size={batch}")
        return candidate

    def leave_out(self, stage: str, settings: dict[str, int], why: str, predicted_bytes: int | None) -> None:
        self.left_out += settings.values()


@pytest.mark.parametrize(
    ("gains", "too_large", "most", "limit", "tried", "size"),
    [
        ({128: 0.5, 256: 0.3, 512: 0.04}, 9999, 4096, None, [128, 256, 512], 512),  # 4 % is kept and ends it
        ({128: 0.5, 256: 0.05}, 9999, 4096, None, [128, 256, 512], 256),  # 5 % is enough to go on
        ({128: 0.5, 256: 0.5}, 9999, 200, None, [128, 200], 128),  # a limit that is no power of two
        ({128: 0.5}, 9999, 143, None, [128], 128),  # by less than an eighth more
        ({128: 0.5}, 9999, 144, None, [128, 144], 128),
        ({32: 0.2, 16: 0.1}, 9999, 4096, None, [128, 32, 16, 8], 16),  # slower when larger: smaller ones
        ({}, 9999, 64, None, [32], 64),
        ({96: 0.1}, 100, 4096, None, [128, 96, 112], 96),  # between 64 and 128, which runs out
        ({}, 100, 4096, None, [128, 96, 32], 64),  # 96 fits and is not faster, nor is the half
        ({80: 0.2}, 81, 4096, None, [128, 96, 80], 80),
        ({128: 0.5, 256: 0.5, 360: 0.1}, 9999, 4096, 4000 * MB, [128, 256, 360], 360),  # of 90 % of 4,000 MB
        ({128: 0.5, 256: 0.5}, 9999, 4096, 3000 * MB, [128, 256], 256),  # 270 are not worth a trial
    ],
)
def test_the_batch_grows_while_that_gains_and_is_halved_where_it_does_not(
    gains: dict[int, float], too_large: int, most: int, limit: int | None, tried: list[int], size: int
) -> None:
    screening, points = PlantedScreening(64, gains, too_large), model({}, limit)
    points.add(64, 640 * MB)
    sizes = BatchSize(cast(Screening, screening), points, most)
    sizes.find()
    assert (screening.tried, sizes.size) == (tried, size)
    assert screening.left_out == ([] if limit is None else [512] if size == 256 else [512, 720])


@pytest.mark.parametrize(
    ("points", "most", "batch"),
    [
        ({}, 4096, None),  # nothing is known
        ({64: None}, 4096, 32),
        ({1: None}, 4096, None),
        ({64: 640 * MB}, 4096, 128),  # one batch predicts nothing: twice as many
        ({64: 640 * MB}, 100, 100),
        ({64: 640 * MB}, 64, None),  # for more there are no samples
        ({64: 640 * MB, 128: 1280 * MB}, 4096, 920),  # 921 are predicted to fit into 90 % of 10 GiB
        ({64: 640 * MB, 128: 1280 * MB}, 921, 921),
        ({64: 640 * MB, 128: 1280 * MB, 512: None}, 4096, 320),  # the line is wrong: the middle
        ({64: 640 * MB, 128: 1280 * MB, 144: None}, 4096, 136),
        ({64: 640 * MB, 128: 1280 * MB, 135: None}, 4096, None),  # by less than a sixteenth
        ({1000: 8000 * MB, 1050: None}, 4096, None),
        ({1000: 8000 * MB, 1065: None}, 4096, 1032),
        ({960: 9000 * MB, 480: 4500 * MB}, 4096, None),  # 982 are predicted, which are hardly more
        ({900: 8400 * MB, 450: 4200 * MB}, 4096, 984),
    ],
)
def test_the_next_batch_that_may_be_the_largest(points: dict[int, int | None], most: int, batch: int | None) -> None:
    unused = cast(Any, None)
    assert LargestBatch(unused, model(points), unused, most, 1000.0)._next() == batch


@pytest.mark.parametrize(
    ("batch", "speed", "left", "affordable"),
    [
        (1000, 1000.0, 100.0, True),  # 8 steps take 8 s, and a trial 30 s
        (1000, 1000.0, 48.0, True),
        (1000, 1000.0, 47.9, False),  # 10 s are kept for the comparison
        (7500, 1000.0, 1000.0, True),
        (7501, 1000.0, 1000.0, False),  # more than a minute
        (7501, 0.0, 1000.0, True),
    ],
)
def test_a_batch_whose_steps_take_too_long_is_left_out(batch: int, speed: float, left: float, affordable: bool) -> None:
    screening = PlantedScreening(64, {}, 9999)
    trials = SimpleNamespace(seconds_left=left, reserved_seconds=10.0, trial_seconds=30.0)
    of_trials = cast(Screening, SimpleNamespace(trials=trials, leave_out=screening.leave_out))
    assert LargestBatch(of_trials, model({}), cast(Any, None), 9999, speed)._affordable(batch) is affordable
    assert screening.left_out == ([] if affordable else [batch])
