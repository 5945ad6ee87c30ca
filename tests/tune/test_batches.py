"""The largest and the fastest batch: predictions, probes and limits, on planted figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.doors.engine import (
    BaselineFailed,
    BatchSize,
    Candidate,
    Ceilings,
    Limits,
    Measurement,
    MemoryModel,
    Options,
    Screening,
    Search,
    TrainingGpu,
    Trial,
    folder,
    memory_model,
    resource_limits,
    tune_search,
)
from tests.doors.engine import proof_request as request
from tests.support.proving import HERE, Planted, PlantedBench, searching, started
from tests.support.training import options

MB = 2**20


GB = 2**30


def test_the_limit_is_that_of_the_device_or_the_host_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(wanted: Options, gpus: tuple[Any, ...] = (), asked: int | None = None, **peaks: Any) -> Any:
        told = started(wanted, 32)
        object.__setattr__(told, "gpu_devices", gpus)
        object.__setattr__(told, "gpus", ["GPU-a"] * len(gpus))
        return memory_model.limit_and_kind(
            told, wanted, Trial(side="s", repeat=1, run="01", outcome="ok", **peaks), asked
        )

    gpu = TrainingGpu("/device:GPU:0", memory_limit_bytes=14 * GB, memory_total_bytes=16 * GB)
    assert found(options(), (gpu,)) == (14 * GB, "allocator")
    assert found(options(), (gpu, replace(gpu, memory_limit_bytes=None, memory_total_bytes=8 * GB))) == (
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


class PlantedScreening:
    """Measures batches of which a test says how fast they are; from `too_large` on they run out of memory."""

    def __init__(self, size: int, speeds: dict[int, float], too_large: int, memory: MemoryModel) -> None:
        self.memory = memory
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
        ({128: 0.5, 256: 0.5}, 9999, 200, None, [128, 200], 128),  # a limit that is no power of two
        ({32: 0.2, 16: 0.1}, 9999, 4096, None, [128, 32, 16, 8], 16),  # slower when larger: smaller ones
        ({96: 0.1}, 100, 4096, None, [128, 96, 112], 96),  # between 64 and 128, which runs out
        ({128: 0.5, 256: 0.5, 360: 0.1}, 9999, 4096, 4000 * MB, [128, 256, 360], 360),  # of 90 % of 4,000 MB
        ({128: 0.5, 256: 0.5}, 9999, 4096, 3000 * MB, [128, 256], 256),  # 270 are not worth a trial
    ],
)
def test_the_batch_grows_while_that_gains_and_is_halved_where_it_does_not(
    gains: dict[int, float], too_large: int, most: int, limit: int | None, tried: list[int], size: int
) -> None:
    screening = PlantedScreening(64, gains, too_large, MemoryModel(limit, "allocator"))
    screening.memory.add(64, 640 * MB)
    sizes = BatchSize(cast(Screening, screening), most)
    sizes.find()
    assert (screening.tried, sizes.size) == (tried, size)
    assert screening.left_out == ([] if limit is None else [512] if size == 256 else [512, 720])


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with memory for everything."""
    monkeypatch.setattr(resource_limits, "memory", lambda: SimpleNamespace(available=2**50))
    monkeypatch.setattr(resource_limits, "ceilings", lambda: SimpleNamespace(address_space_bytes=None))


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
    tune_search.measure(Measurement(asked, record, bench, HERE))
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
