"""How much GPU memory a run with `device.visible=fits:1` needs: measured before, or predicted from other batches."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.files.places import TRIALS, proofs_folder, runs_folder
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.leases import free_gpus, memory_needs, start_devices
from gputui.engine.leases.memory_needs import NotMeasuredError
from gputui.engine.options import Options, options_json
from gputui.engine.queue import adding, entries, start
from gputui.engine.queue.free_devices import Device
from gputui.engine.queue.runner import REFUSED
from gputui.engine.runs import events
from gputui.tui.base.errors import WRONG

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import gputui
from tests.support.queued import Trainings, no_runner

pytest_plugins = ("tests.support.fakegpu.fixture",)

MB = 1024**2


def options(batch: int, *settings: str) -> Options:
    return presets.resolve("quickstart", [f"batch_size={batch}", *settings]).options


def ended(path: Path, batch: int, peak_mb: int | None, *settings: str, outcome: events.Outcome = "ok") -> None:
    """A run folder at `path` of a training that has ended, with its peak on a GPU."""
    run = runs.create_at(path, "schema: 1\n", more={options_json.FILE: options_json.to_json(options(batch, *settings))})
    peak = None if peak_mb is None else peak_mb * MB
    run.file("result.json").write_text(json.dumps(asdict(events.Summary(outcome=outcome, peak_memory_bytes=peak))))


def in_runs(name: str) -> Path:
    return runs_folder() / f"20260921-1{name}-quickstart"


def in_trials(name: str) -> Path:
    return proofs_folder() / "20260921-150000-quickstart" / TRIALS / name


def with_margin(mb: float) -> int:
    return round(1.1 * mb * MB) + 768 * MB


def test_a_measured_peak_counts_before_a_prediction_and_the_newest_first() -> None:
    ended(in_runs("00001"), 64, 900)
    ended(in_runs("00002"), 32, 500)
    ended(in_runs("00003"), 16, 300)
    ended(in_runs("00004"), 64, 1000, "epochs=7", "learning_rate=0.5", "visible=[0]", "run.checkpoint=epoch")
    for name, folder in enumerate(sorted(runs_folder().iterdir())):
        os.utime(folder / "preset.yaml", (1000 + name,) * 2)
    assert memory_needs.of_options(options(64)) == memory_needs.MemoryNeed(with_margin(1000))


@pytest.mark.parametrize("place", [in_runs, in_trials])
def test_two_other_batch_sizes_predict_the_memory_also_if_only_trials_have_measured_them(
    place: Callable[[str], Path],
) -> None:
    """As `gputui fit-batch --dry-run` measures a quarter and half of the batch."""
    ended(place("01-s"), 64, 1000, "train.steps_per_epoch=30", "train.decay_steps=100", "seed=3")
    with pytest.raises(NotMeasuredError, match=r"no run with these settings.*\ngputui fit-batch --dry-run"):
        memory_needs.of_options(options(256))
    ended(place("02-s"), 128, 1640)
    need = memory_needs.of_options(options(256))
    assert need.bytes == with_margin(2920)
    assert need.prediction == "predicted from batch sizes 64 and 128"
    ended(place("03-s"), 32, 680)
    assert memory_needs.of_options(options(256)).prediction == "predicted from batch sizes 32, 64 and 128"


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
            memory_needs.of_options(options(batch))


def gpu(index: int, free_mb: int) -> free_gpus.GpuUse:
    total = 24_000 * MB
    return free_gpus.GpuUse(index, f"GPU-{index}", "NVIDIA A10", total - free_mb * MB, total, 0.0, ())


def test_a_start_and_the_queue_say_from_what_the_memory_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    for name, batch, peak in (("00001", 64, 1000), ("00002", 128, 1640)):
        ended(in_runs(name), batch, peak)
    asked, said = options(256, "visible=fits:1"), list[str]()
    uses = [gpu(0, 3000), gpu(1, 3000)]
    gpus = tuple(Gpu(use.index, use.uuid, use.name, (8, 6), use.memory_total_bytes) for use in uses)
    box = Machine(gpus, "", 8, 64 * 1024**3)
    monkeypatch.setattr(free_gpus, "read", lambda: uses)
    needs = "needs a GPU with 3.9 GiB free (predicted from batch sizes 64 and 128); "
    why = start_devices.why_not(asked, box)
    assert why.startswith(f"{needs}GPU 0: 2.9 GiB are free of the 3.9 GiB needed")
    uses[:] = [gpu(0, 20_000), gpu(1, 5000)]
    monkeypatch.setattr(this_machine, "read", lambda: box)
    devices = start_devices.lease_devices(asked, "quickstart", said.append)
    assert [each.name for each in devices.leases] == ["GPU-1"]
    devices.release()
    assert said == ["needs 3.9 GiB on each GPU, predicted from batch sizes 64 and 128"]
    entry = adding.queue_preset(presets.resolve("quickstart", ["batch_size=256", "visible=fits:1"]))
    trainings = Trainings((Device("GPU-0", 0, "bob's python", free_bytes=3000 * MB),))
    trainings.runner().tick()
    assert entries.news()["why"][entry.run] == f"{needs}GPU 0: 2.9 GiB of its memory are free"
    assert entries.all_entries()[0].bytes == with_margin(2920)


def test_a_queued_run_whose_memory_is_not_known_any_more_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For instance if the runs that had measured it were deleted: it would wait for ever."""
    no_runner(monkeypatch)
    ended(in_runs("00001"), 256, 3000)
    entry = adding.queue_preset(presets.resolve("quickstart", ["batch_size=256", "visible=fits:1"]))
    shutil.rmtree(in_runs("00001"))
    gpus = (Gpu(0, "GPU-0", "NVIDIA A10", (8, 6), 24_000 * MB),)
    monkeypatch.setattr(this_machine, "read", lambda: Machine(gpus, "", 8, 64 * 1024**3))
    monkeypatch.setattr(start, "_refuse", lambda *_: None)
    with entries.locked():
        entries.write(replace(entry, state="starting", started_at=1.0))
    assert start.main([entry.run, "1.0", "GPU-0"]) == REFUSED
    assert capsys.readouterr().out == f"{memory_needs.NOT_MEASURED.splitlines()[0]}\n"


@pytest.mark.slow
def test_after_the_two_trials_that_a_refusal_names_the_run_starts(fakegpu: FakeGpu, tmp_path: Path) -> None:
    box = {**os.environ, **fakegpu.environment(tmp_path / "box", gpus=2), "GPUTUI_IDLE_SECONDS": "0"}
    train = ("--preset", "quickstart", "--set", "epochs=1", "--set", "workload.samples=512")
    refused = gputui(*train, "--set", "visible=fits:1", env=box)
    assert refused.returncode == WRONG
    assert "gputui fit-batch --dry-run --set device.visible=free:1, with the same --preset" in refused.stderr
    measured = gputui("fit-batch", "--dry-run", *train, "--set", "visible=free:1", env=box)
    assert measured.returncode == 0, measured.stderr
    done = gputui(*train, "--set", "visible=fits:1", env=box)
    assert done.returncode == 0, done.stderr
    assert "on each GPU, predicted from batch sizes 8 and 16\n" in done.stderr
