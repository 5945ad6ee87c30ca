"""Which GPUs are free or fit, how much memory a run needs, and what a start gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    TRIALS,
    Gpu,
    GpuProcess,
    GpuUse,
    Machine,
    NotFree,
    NotMeasuredError,
    Options,
    RunError,
    adding,
    entries,
    events,
    gpu_use,
    options_json,
    presets,
    proofs_folder,
    records,
    runs,
    this_machine,
)
from tests.doors.engine import lease_CPU as CPU
from tests.doors.engine import places_runs_folder as runs_folder
from tests.doors.engine import queue_devices_Device as Device
from tests.support.queued import Trainings, no_runner

# ---- when a GPU is free --------------------------------------------------------------------------


MIB, GIB = 1024**2, 1024**3
FREE = GpuUse(1, "GPU-1", "A100", None, 24 * GIB, 0, 0.0, ())
BOB = GpuProcess(1, "bob", "python")


def test_in_wsl_a_gpu_has_a_display_whose_processes_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.engine.telemetry.chips.is_wsl", lambda: True)
    assert replace(FREE, memory_used_bytes=6 * GIB - 1, busy=0.3, processes=None).why_not_free() == ""


# ---- the devices of a start ----------------------------------------------------------------------


GPUS = tuple(Gpu(index, f"GPU-{index}", "A100", (8, 0), 40 * GIB, memory_used_bytes=index * MIB) for index in range(3))
THREE_FREE = [GpuUse(index, f"GPU-{index}", "A100", None, 40 * GIB, index * MIB, 0.0, ()) for index in range(3)]


def options(*settings: str) -> Options:
    return presets.resolve("quickstart", settings).options


def box(*gpus: Gpu, cpus: int = 8) -> Machine:
    return Machine(gpus, "", cpus, 64 * GIB)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GpuUse]]:
    """The use of three GPUs, as a test changes it; none is leased after it."""
    made = list(THREE_FREE)
    monkeypatch.setattr(this_machine, "read", lambda: box(*GPUS))
    monkeypatch.setattr(gpu_use, "read", lambda: made)
    monkeypatch.setenv(gpu_use.IDLE_VARIABLE, "0")
    yield made
    assert records.holders() == {}


def test_named_gpus_are_used_even_if_another_has_leased_one_unless_the_run_is_queued(uses: list[GpuUse]) -> None:
    (held,) = gpu_use.take(["GPU-1"], "words")
    named = options("visible=[2,1,0]", "strategy.kind=mirrored")
    leased = gpu_use.lease_devices(named, "digits")
    assert leased.options == named
    assert [each.name for each in leased.leases] == ["GPU-2", "GPU-0"]
    assert [each.used_bytes for each in leased.leases] == [2 * MIB, 0]
    leased.release()
    with pytest.raises(NotFree, match=r"GPU-1 is used by .*words"):
        gpu_use.lease_devices(named, "digits", among=["GPU-0", "GPU-1", "GPU-2"])
    held.release()
    single = options("visible=[2,1]")
    for all_visible, names in ((False, ["GPU-2"]), (True, ["GPU-1", "GPU-2"])):
        leased = gpu_use.lease_devices(single, "digits", all_visible=all_visible)
        assert sorted(each.name for each in leased.leases) == names
        leased.release()


def test_a_run_that_shares_its_gpu_gets_its_part_of_memory_and_threads_in_the_queue_alone(
    uses: list[GpuUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options("visible=free:1", "per_gpu=2")
    leased = gpu_use.lease_devices(asked, "digits", among=["GPU-1"])
    assert leased.options.device == replace(
        asked.device, visible=["GPU-1"], memory_limit_mb=int(0.95 * 40 * 1024 / 2 - 768), intra_op_threads=4,
        inter_op_threads=4,
    )  # fmt: skip
    assert [each.key for each in leased.leases] == ["GPU-1~1"]
    leased.release()
    leased = gpu_use.lease_devices(asked, "digits")
    assert leased.options.device == replace(asked.device, visible=["GPU-0"])
    assert [each.key for each in leased.leases] == ["GPU-0"]
    leased.release()
    monkeypatch.setattr(this_machine, "read", lambda: box(replace(GPUS[0], memory_total_bytes=1700 * MIB)))
    with pytest.raises(RunError, match=r"leave each less than 64\.0 MiB of .*: set run\.per_gpu to less than 2$"):
        gpu_use.lease_devices(asked, "digits", among=["GPU-0"])


# ---- looking at them for some seconds ------------------------------------------------------------


class Looks:
    """The uses of the GPUs at each look, and the time, which only waiting passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: dict[int, dict[str, Any]] | None) -> None:
        self.now, self.slept, self._looks = 100.0, list[float](), list(looks)
        monkeypatch.setattr(gpu_use, "read", self.read)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep, time=lambda: 1e9)
        monkeypatch.setattr(gpu_use, "time", clock)
        monkeypatch.setattr(this_machine, "read", lambda: box(*GPUS))

    def read(self) -> list[GpuUse]:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if look is None:
            raise NotFree("the GPUs cannot be read")
        return [replace(gpu, **look.get(gpu.index, {})) for gpu in THREE_FREE]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_gpu_is_chosen_if_it_was_idle_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_use.IDLE_VARIABLE, "5")
    busy = {"busy": 0.5}
    looks = Looks(monkeypatch, {}, {0: busy}, {}, {})
    told: list[str] = []
    leased = gpu_use.lease_devices(options("visible=free:2"), "digits", told.append)
    assert leased.options.device.visible == ["GPU-1", "GPU-2"], "the first was in use in between"
    assert (told, looks.slept) == (["looking for 5 s whether GPU 0, 1, 2 stay idle"], [2.0, 2.0, 1.0])
    leased.release()
    Looks(monkeypatch, {0: busy, 1: busy}, {0: busy, 1: busy}, {}, {})
    gpu_use.lease_devices(options("visible=free:1"), "digits", told.append).release()
    assert told.pop() == "looking for 5 s whether GPU 2 stays idle"
    for seen, slept, words in (
        (({}, {0: busy, 1: busy}, {}), [2.0], "needs 2 GPUs, and 1 can be had: GPU 0: busy for 50 % of the time; "
         "GPU 1: busy for 50 % of the time"),
        (({}, {0: busy}, {1: busy}, {}), [2.0, 2.0], "needs 2 GPUs; GPUs that are free now were in use a moment ago"),
        (({}, {0: busy}, {}, {}, {2: {"processes": (BOB,)}}), [2.0, 2.0, 1.0],
         "needs 2 GPUs; GPUs that are free now were in use a moment ago"),
    ):  # fmt: skip
        looks = Looks(monkeypatch, *seen)
        with pytest.raises(NotFree) as refusal:
            gpu_use.lease_devices(options("visible=free:2"), "digits")
        assert (str(refusal.value), looks.slept) == (words, slept)
    looks = Looks(monkeypatch, {})
    leased = gpu_use.lease_devices(options("visible=free:1"), "digits", told.append, among=["GPU-2"])
    assert (leased.options.device.visible, looks.slept, len(told)) == (["GPU-2"], [], 1), "the queue has looked"
    leased.release()
    assert records.holders() == {}


def test_gpus_are_given_back_when_their_memory_is_free_and_one_that_stays_full_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = {"memory_used_bytes": 5 * GIB}
    looks = Looks(monkeypatch, {0: full, 1: full}, {0: full, 1: full}, {1: full | {"processes": (BOB,)}})
    leases = gpu_use.take(["GPU-0", "GPU-1", CPU], "digits", {"GPU-0": 0, "GPU-1": 4 * GIB})
    held: list[list[str]] = []
    sleep = looks.sleep

    def noted(seconds: float) -> None:
        held.append(sorted(records.holders()))
        sleep(seconds)

    monkeypatch.setattr(gpu_use.time, "sleep", noted)  # type: ignore[attr-defined]
    reason = "its run has ended, and 5.0 GiB of its memory are still in use, by bob's python"
    assert gpu_use.give_back(leases) == [f"GPU 1 is stuck: {reason}"]
    assert (looks.slept, held) == ([0.5] * 20, [["GPU-0", "GPU-1"]] * 2 + [["GPU-1"]] * 18)
    who = records.holder("GPU-1")
    assert who is not None
    assert (who.stuck, who.what) == (reason, "digits")
    (again,) = gpu_use.take(["GPU-1"], "words", {"GPU-1": 5 * GIB - gpu_use.LEFT_BYTES})
    assert (gpu_use.give_back([again]), records.holders()) == ([], {}), "it had as much before"
    looks = Looks(monkeypatch, None)
    assert gpu_use.give_back(gpu_use.take(["GPU-0"], "words", {"GPU-0": 0})) == []
    assert (looks.slept, records.holders()) == ([], {}), "nobody knows whether it is free"
    unknown = gpu_use.take(["GPU-2"], "words")
    Looks(monkeypatch, {2: full})
    assert (gpu_use.give_back(unknown), gpu_use.give_back([])) == ([], [])


# ---- the memory that a run needs -----------------------------------------------------------------


MB = 1024**2


def in_batches(batch: int, *settings: str) -> Options:
    return presets.resolve("quickstart", [f"batch_size={batch}", *settings]).options


def ended(path: Path, batch: int, peak_mb: int | None, *settings: str, outcome: events.Outcome = "ok") -> None:
    """A run folder at `path` of a training that has ended, with its peak on a GPU."""
    run = runs.create_at(
        path, "schema: 1\n", more={options_json.FILE: options_json.to_json(in_batches(batch, *settings))}
    )
    peak = None if peak_mb is None else peak_mb * MB
    run.file("result.json").write_text(json.dumps(asdict(events.Summary(outcome=outcome, peak_memory_bytes=peak))))


def in_runs(name: str) -> Path:
    return runs_folder() / f"20260921-1{name}-quickstart"


def in_trials(name: str) -> Path:
    return proofs_folder() / "20260921-150000-quickstart" / TRIALS / name


def with_margin(mb: float) -> int:
    return round(1.1 * mb * MB) + 768 * MB


def test_two_other_batch_sizes_predict_the_memory_also_if_only_trials_have_measured_them() -> None:
    """As `gputui fit-batch --dry-run` measures a quarter and half of the batch."""
    ended(in_trials("01-s"), 64, 1000, "train.steps_per_epoch=30", "train.decay_steps=100", "seed=3")
    with pytest.raises(NotMeasuredError, match=r"no run with these settings.*\ngputui fit-batch --dry-run"):
        gpu_use.memory_need(in_batches(256))
    ended(in_trials("02-s"), 128, 1640)
    need = gpu_use.memory_need(in_batches(256))
    assert need.bytes == with_margin(2920)
    assert need.prediction == "predicted from batch sizes 64 and 128"
    ended(in_trials("03-s"), 32, 680)
    assert gpu_use.memory_need(in_batches(256)).prediction == "predicted from batch sizes 32, 64 and 128"


def test_other_settings_and_trainings_that_ran_out_of_memory_predict_nothing() -> None:
    ended(in_runs("00001"), 64, 1000)
    ended(in_runs("00002"), 128, 1640, "precision.policy=mixed_float16")
    ended(in_runs("00003"), 128, 1640, outcome="oom")
    ended(in_runs("00004"), 128, None)
    ended(in_runs("00005"), 256, 9000, outcome="oom")
    ended(in_trials(".02-s.draft"), 128, 1640)
    runs.Run(in_runs("00006")).path.mkdir()
    for batch in (128, 256):
        with pytest.raises(NotMeasuredError):
            gpu_use.memory_need(in_batches(batch))


def gpu(index: int, free_mb: int) -> gpu_use.GpuUse:
    total = 24_000 * MB
    return gpu_use.GpuUse(index, f"GPU-{index}", "NVIDIA A10", None, total, total - free_mb * MB, 0.0, ())


def test_a_start_and_the_queue_say_from_what_the_memory_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    for name, batch, peak in (("00001", 64, 1000), ("00002", 128, 1640)):
        ended(in_runs(name), batch, peak)
    asked, said = in_batches(256, "visible=fits:1"), list[str]()
    uses = [gpu(0, 3000), gpu(1, 3000)]
    gpus = tuple(Gpu(use.index, use.uuid, use.name, (8, 6), use.memory_total_bytes) for use in uses)
    box = Machine(gpus, "", 8, 64 * 1024**3)
    monkeypatch.setattr(gpu_use, "read", lambda: uses)
    needs = "needs a GPU with 3.9 GiB free (predicted from batch sizes 64 and 128); "
    why = gpu_use.why_not(asked, box)
    assert why.startswith(f"{needs}GPU 0: 2.9 GiB are free of the 3.9 GiB needed")
    uses[:] = [gpu(0, 20_000), gpu(1, 5000)]
    monkeypatch.setattr(this_machine, "read", lambda: box)
    leased = gpu_use.lease_devices(asked, "quickstart", said.append)
    assert [each.name for each in leased.leases] == ["GPU-1"]
    leased.release()
    assert said == ["needs 3.9 GiB on each GPU, predicted from batch sizes 64 and 128"]
    entry = adding.queue_preset(presets.resolve("quickstart", ["batch_size=256", "visible=fits:1"]))
    trainings = Trainings((Device(Gpu(0, "GPU-0", memory_total_bytes=3000 * MB), "bob's python"),))
    trainings.runner().tick()
    assert entries.news().why[entry.run] == f"{needs}GPU 0: 2.9 GiB of its memory are free"
    assert entries.all_entries()[0].bytes == with_margin(2920)
