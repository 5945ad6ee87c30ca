"""From a run's events to figures: of which moments, of which GPUs, of which sitting."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.diagnosis import collector as collecting
from gputui.engine.diagnosis import diagnose
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.diagnosis.verdict import remedies
from gputui.engine.process.live_diagnosis import LiveDiagnosis
from gputui.engine.runs import Run
from gputui.engine.runs.events import Diagnosis, Event
from gputui.engine.runs.parsing import recalled
from gputui.engine.system.run_clock import RunClock

from tests.support.judged import OPTIONS, STAGES


def _fed(*events: dict[str, Any], options: Mapping[str, Any] = OPTIONS, visible: str | None = None) -> Measurements:
    collector = Collector(options, visible)
    collector.feed(recalled({"t": float(i)} | event) for i, event in enumerate(events))
    return collector.measurements()


def _progress(step: int, **more: Any) -> dict[str, Any]:
    return {"type": "progress", "step": step, "step_ms_p50": 10.0, "step_ms_p95": 12.0} | more


def test_signals_of_a_run_that_goes_on_are_of_its_last_moments() -> None:
    old = [_progress(step, input_wait=0.9) for step in range(30)]
    new = [_progress(30 + step, input_wait=0.2, python_share=0.1) for step in range(collecting.RECENT)]
    found = _fed({"type": "phase", "phase": "training"}, *old, *new)
    assert found.input_wait == pytest.approx(0.2)
    assert found.compute_share == pytest.approx(0.7)
    assert found.uneven == pytest.approx(1.2)


def test_signals_of_a_finished_run_are_of_the_whole() -> None:
    summary = {"input_wait": 0.5, "python_share": 0.1, "measured_steps": 77, "step_ms": {"p50": 20.0, "p95": 30.0}}
    found = _fed(_progress(1, input_wait=0.1), {"type": "finished", "summary": summary | {"outcome": "ok"}})
    assert (found.input_wait, found.steps, found.step_ms) == (0.5, 77, 20.0)


def test_evaluation_and_checkpoints_are_pauses() -> None:
    found = _fed(
        *({"t": t, "type": "phase", "phase": name} for t, name in ((0, "training"), (6, "evaluating"), (9, "saving"))),
        {"t": 10.0, "type": "phase", "phase": "training"},
        {"t": 20.0} | _progress(5),
    )
    assert found.pauses == pytest.approx(4 / 20)


def _phases(*begun: tuple[float, str, str]) -> list[dict[str, Any]]:
    return [{"t": t, "type": "phase", "phase": phase, "detail": detail} for t, phase, detail in begun]


@pytest.mark.parametrize(
    ("begun", "seconds", "often"),
    [
        # The first evaluation counts as long as the others, and so does the first checkpoint.
        ([(10, "evaluating"), (30, "training"), (40, "evaluating"), (42, "training"), (50, "evaluating"),
          (56, "training")], 3 * 4, 3),
        ([(10, "evaluating"), (30, "training"), (40, "saving"), (41, "training")], 20 + 1, 1),
        ([(10, "evaluating"), (30, "saving"), (31, "training"), (40, "saving"), (44, "training")], 20 + 2 * 4, 2),
        # Compiling for the smaller last batch is a part of the evaluation that it interrupts.
        ([(10, "evaluating"), (12, "compiling"), (20, "evaluating"), (23, "training")], 2 + 3, 1),
        ([(10, "saving", "model.keras"), (30, "training")], 0, 0),
    ],
)  # fmt: skip
def test_pauses_are_those_of_their_kind_without_what_happens_once(
    begun: list[tuple[Any, ...]], seconds: float, often: int
) -> None:
    phases = _phases(*((t, phase, *more, "")[:3] for t, phase, *more in [(0, "training"), *begun]))
    found = _fed(*phases, {"t": 100.0} | _progress(5))
    trained = 100 - sum(
        later["t"] - each["t"] for each, later in pairwise([*phases, {"t": 100}]) if each["phase"] != "training"
    )
    assert found.pauses == pytest.approx(seconds / (trained + seconds))
    assert found.pauses_counted == often


def test_the_newest_chip_and_the_first_one_are_those_of_all_gpus_that_train() -> None:
    devices = [{"uuid": uuid, "compute_capability": pair} for uuid, pair in (("a", [8, 0]), ("b", [9, 0]), ("c", None))]
    started = {"type": "started", "gpus": ["a", "b", "c"], "gpu_devices": devices, "compute_capability": [8, 0]}
    found = _fed(started)
    assert (found.compute_capability, found.newest_capability, found.gpus) == ((8, 0), (9, 0), 3)


def test_figures_of_the_host_are_means_and_its_free_memory_is_the_last_reading() -> None:
    def host(used: int, **more: float) -> dict[str, Any]:
        return {"type": "host", "memory_used_bytes": used, "memory_total_bytes": 1000, **more}

    before = host(900, cpu=0.9, others_cpu=0.9, trainer_cpu=9.0, io_wait=0.9, trainer_read_bytes_per_second=900)
    first = host(100, cpu=0.2, others_cpu=0.1, trainer_cpu=1.0, io_wait=0.0, trainer_read_bytes_per_second=10)
    found = _fed(before, {"type": "phase", "phase": "training"}, first, host(300, cpu=0.6, others_cpu=0.3,
                 trainer_cpu=4.0, io_wait=0.2, trainer_read_bytes_per_second=30))  # fmt: skip
    assert found.host_memory_free_bytes == 700
    assert [found.cpu, found.others_cpu, found.trainer_cores, found.io_wait, found.read_bytes_per_second] == (
        pytest.approx([0.4, 0.2, 2.5, 0.1, 20]))  # fmt: skip


def _other(uuid: str = "GPU-b", **more: Any) -> dict[str, Any]:
    """A GPU that does not train and that nobody uses."""
    free = {"uuid": uuid, "index": 1, "busy": 0.0, "memory_used_bytes": 5 * 2**20, "memory_total_bytes": 80 * 2**30}
    return free | more


def test_only_the_gpus_of_the_run_count_and_only_while_it_trains() -> None:
    def reading(mine: float, **more: Any) -> dict[str, Any]:
        return {"type": "gpu", "gpus": [{"uuid": "GPU-a", "busy": mine, "memory_total_bytes": 100} | more, _other()]}

    started = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    training = {"type": "phase", "phase": "training"}
    throttled = [reading(0.8, throttle=["hardware thermal", "power cap"])] * 5
    allocator = {"type": "allocator", "devices": {"GPU:0": {"current_bytes": 50, "peak_bytes": 95}}}
    found = _fed(started, reading(0.0), training, *[reading(0.8)] * 15, *throttled, allocator)
    assert found.on_gpu
    assert found.gpus == 1
    assert found.idle_gpus == 1
    assert found.busy_mean == pytest.approx(0.8)
    assert found.throttled == pytest.approx(0.25)
    assert found.throttle == ("hardware thermal",)
    assert found.memory_peak == pytest.approx(0.95)


def test_a_gpu_that_is_lost_is_not_idle_and_its_readings_dilute_nothing() -> None:
    def reading(missing: str, **more: Any) -> dict[str, Any]:
        gpus = [{"uuid": "GPU-a", "index": 0} | more, _other()]
        return {"type": "gpu", "gpus": [gpu | ({"missing": missing} if missing else {}) for gpu in gpus]}

    head = (
        {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]},
        {"type": "phase", "phase": "training"},
    )
    well = [reading("", busy=0.98, throttle=["hardware thermal"], memory_total_bytes=100)] * 10
    lost = [reading("the GPU is lost")] * 30
    allocator = {"type": "allocator", "devices": {"GPU:0": {"current_bytes": 50, "peak_bytes": 95}}}
    found = _fed(*head, *well, allocator, *lost)
    assert (found.idle_gpus, found.throttled) == (0, 1.0)
    assert found.memory_peak == pytest.approx(0.95)
    assert _fed(*head, *well, *lost, *well).idle_gpus == 1, "it answers again"


@pytest.mark.parametrize(
    ("visible", "other", "idle"),
    [
        (None, _other(), 1),
        (None, _other(busy=1.0, memory_used_bytes=75 * 2**30), 0),
        (None, _other(memory_used_bytes=75 * 2**30), 0),
        (None, _other(memory_used_bytes=3 * 2**30), 1),
        (None, _other(busy=0.2), 0),
        (None, _other(busy=None), 0),
        (None, _other(memory_used_bytes=None), 0),
        (None, _other(mig=[{"uuid": "MIG-1"}]), 0),
        ("0", _other(), 0),
        ("0,1", _other(), 1),
        ("GPU-a,GPU-b", _other(), 1),
        ("GPU-a", _other(), 0),
    ],
)
def test_a_gpu_is_idle_where_nobody_uses_it_and_this_training_may_see_it(
    visible: str | None, other: dict[str, Any], idle: int
) -> None:
    started = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    readings = [{"type": "gpu", "gpus": [{"uuid": "GPU-a", "index": 0, "busy": 0.98}, other]}] * 20
    found = _fed(started, {"type": "phase", "phase": "training"}, *readings, visible=visible)
    assert found.idle_gpus == idle
    more = [remedy for remedy in remedies(found, ["compute_bound"]) if remedy.step == "gpus"]
    assert len(more) == idle


# ---- memory that grows ------------------------------------------------------------------------

TRAINING = {"type": "phase", "phase": "training"}
PLAIN = OPTIONS | {"input.cache": "off", "input.shuffle": "off"}


def _host(share: float) -> dict[str, Any]:
    return {"type": "host", "trainer_bytes": share * 1000, "memory_total_bytes": 1000, "memory_used_bytes": 500}


FILLING = [_host(0.1 + i / 100) for i in range(30)]


@pytest.mark.parametrize(
    ("options", "growth"),
    [
        (PLAIN, 0.2),
        (PLAIN | {"input.cache": "/fast/disk"}, 0.2),
        (PLAIN | {"input.cache": "memory"}, None),
        (PLAIN | {"input.shuffle": 1024}, None),
        (PLAIN | {"workload.entry": "train.py:build"}, None),  # which may keep what it likes
        ({}, None),
    ],
)
def test_memory_may_grow_while_caches_and_buffers_fill(options: Mapping[str, Any], growth: float | None) -> None:
    assert _fed(TRAINING, *FILLING, options=options).host_memory_growth == pytest.approx(growth)


def test_memory_grows_from_the_first_to_the_last_third_of_enough_readings() -> None:
    assert _fed(TRAINING, *FILLING[:29], options=PLAIN).host_memory_growth is None
    assert _fed(TRAINING, *FILLING[::-1], options=PLAIN).host_memory_growth == pytest.approx(-0.2)


def test_memory_that_grows_after_the_first_epoch_counts() -> None:
    epoch = {"type": "epoch", "epoch": 1}
    assert _fed(TRAINING, *FILLING, epoch, *[_host(0.4)] * 40).host_memory_growth == pytest.approx(0.0)
    assert _fed(TRAINING, epoch, *FILLING).host_memory_growth == pytest.approx(0.2)
    once = _fed(TRAINING, *FILLING, epoch, *[_host(0.4)] * 40, options=PLAIN).host_memory_growth
    assert once == pytest.approx(0.0), "with no cache that fills, the first epoch still has what is done once"


def test_epochs_that_are_shorter_than_a_pass_do_not_end_the_filling() -> None:
    started = {"type": "started", "train_samples": 1000, "global_batch_size": 10, "resumed_at_step": 500}
    epochs = [{"type": "epoch", "epoch": number} for number in (51, 52)]
    assert _fed(started, TRAINING, *epochs, _progress(520), *FILLING).host_memory_growth is None
    assert _fed(started, TRAINING, *epochs, _progress(600), *FILLING).host_memory_growth == pytest.approx(0.2)


def test_beside_a_gpu_the_memory_of_the_host_may_grow_too() -> None:
    started = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    reading = {"type": "gpu", "gpus": [{"uuid": "GPU-a", "busy": 0.9, "memory_total_bytes": 100}]}
    steady = {"type": "allocator", "devices": {"GPU:0": {"current_bytes": 50, "peak_bytes": 60}}}
    between = [event for host in FILLING for event in (host, steady)]
    found = _fed(started, TRAINING, reading, *between, options=PLAIN)
    assert found.memory_growth == pytest.approx(0.0)
    assert found.host_memory_growth == pytest.approx(0.2)
    assert found.memory_peak == pytest.approx(0.6)


# ---- a run that goes on in another sitting -----------------------------------------------------


def _sitting(t: float, wait: float, steps: int = 60) -> list[dict[str, Any]]:
    phases = [{"t": t, "type": "phase", "phase": "importing"}, {"t": t + 5, "type": "phase", "phase": "training"}]
    steps_told = [{"t": t + 5 + i} | _progress(i, input_wait=wait, python_share=0.01) for i in range(steps)]
    return [*phases, *steps_told]


def _after(*events: dict[str, Any]) -> Diagnosis:
    collector = Collector(OPTIONS | {"compile.xla": True})
    collector.feed(map(recalled, events))
    return diagnose(collector.measurements())


def test_a_resumed_run_is_judged_by_its_own_sitting() -> None:
    summary = {"outcome": "stopped", "input_wait": 0.6, "measured_steps": 4900, "step_ms": {"p50": 10.0, "p95": 11.0}}
    first = [*_sitting(0, 0.6), {"t": 70.0, "type": "finished", "summary": summary}]
    assert _after(*first).verdict == "input_bound"
    assert _after(*first, *_sitting(100, 0.0, steps=0)).verdict == "undecided"
    assert _after(*first, *_sitting(100, 0.0)).verdict == "healthy"


def test_the_time_between_two_sittings_is_no_phases() -> None:
    killed = [*_sitting(0, 0.0), {"t": 66.0, "type": "phase", "phase": "evaluating"}]
    found = _after(*killed, *_sitting(36_000, 0.0))
    assert found.verdict == "healthy", found
    assert "stalls" not in found.others


def test_nothing_of_the_last_sitting_outlives_it() -> None:
    started = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    reading = {"type": "gpu", "gpus": [{"uuid": "GPU-a", "busy": 0.9, "memory_total_bytes": 100}, _other()]}
    allocator = {"type": "allocator", "devices": {"GPU:0": {"current_bytes": 50, "peak_bytes": 95}}}
    stages = {"type": "input_stages", "stages": list(STAGES), "buffer_fill": 0.5}
    told: list[dict[str, Any]] = [started, TRAINING, reading, allocator, stages, _host(0.5), _progress(5)]
    assert _fed(*told) != _fed()
    assert _fed(*told, {"type": "phase", "phase": "importing"}) == _fed()


def test_the_engine_of_a_resumed_run_does_not_tell_its_last_verdict(tmp_path: Path) -> None:
    run, told = Run(tmp_path), list[Event]()
    run.file("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in _sitting(0, 0.6)))
    watcher = LiveDiagnosis(run, told.append, RunClock.launched())
    watcher._update(final=True)
    assert told == []
    with run.file("events.jsonl").open("a") as events:
        events.writelines(json.dumps(event) + "\n" for event in _sitting(time.time(), 0.0))
    watcher._update(final=True)
    (found,) = told
    assert isinstance(found, Diagnosis)
    assert found.verdict != "input_bound"


def test_unknown_and_missing_figures_are_none_and_no_error() -> None:
    gpu_event: dict[str, Any] = {"type": "gpu", "gpus": [None, {"uuid": 5}]}
    others = [{"type": name} for name in ("host", "progress", "what")]
    found = _fed({"type": "phase", "phase": "training"}, gpu_event, *others, options={})
    assert found.step_ms is None
    assert found.cpu is None
    assert found.busy_mean is None
    assert diagnose(found).verdict == "undecided"
