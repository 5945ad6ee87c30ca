"""What a diagnosis measures of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import EVENT_FILES, Collector, Diagnosis, Measurements, Run, diagnose, options_of, recalled
from tests.doors.engine import collector as collecting
from tests.support import recorded
from tests.support.judged import OPTIONS
from tests.support.recorded import BEGAN, STAGES


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
    owners = (("mine", True), ("another", False), ("unknown", None))
    processes = [{"pid": 7, "name": name, "own": own, "memory_used_bytes": 2 * 1024**3} for name, own in owners]
    assert _fed(started, training, *[reading(0.8, processes=processes)] * 5).gpu_neighbours == ("another",)


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


# ---- memory that grows ------------------------------------------------------------------------

TRAINING = {"type": "phase", "phase": "training"}
PLAIN = OPTIONS | {"input.cache": "off", "input.shuffle": "off"}


def _host(share: float) -> dict[str, Any]:
    return {"type": "host", "trainer_bytes": share * 1000, "memory_total_bytes": 1000, "memory_used_bytes": 500}


FILLING = [_host(0.1 + i / 100) for i in range(30)]


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


# ---- The share of its GPU memory that a training takes, and its growth ---------------------------


GIB = 1024**3


def started(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    uuids = [device["uuid"] for device in devices]
    return {"type": "started", "gpus": uuids, "gpu_devices": list(devices), "devices": ["/device:GPU:0"]} | more


def card(number: int = 0, **more: Any) -> dict[str, Any]:
    """What the started event tells of a GPU that trains."""
    return {"device": f"/device:GPU:{number}", "uuid": f"GPU-{number}"} | more


def reading(*gpus: dict[str, Any]) -> dict[str, Any]:
    plain = {"busy": 0.97, "memory_used_bytes": 5 * GIB, "memory_total_bytes": 8 * GIB}
    return {"type": "gpu", "gpus": [{"index": i, "uuid": f"GPU-{i}"} | plain | gpu for i, gpu in enumerate(gpus)]}


def allocated(gigabytes: float) -> dict[str, Any]:
    return {"type": "allocator", "devices": {"GPU:0": dict.fromkeys(("current_bytes", "peak_bytes"), gigabytes * GIB)}}


@pytest.mark.parametrize(
    ("options", "growth"),
    [
        ({}, 0.2),
        ({"input.cache": "memory"}, None),
        ({"input.shuffle": 100}, None),
        ({"workload.entry": "a.py:b"}, None),
    ],
)
def test_the_memory_of_the_device_may_grow_while_caches_fill(options: dict[str, Any], growth: float | None) -> None:
    given = {"input.cache": "off", "input.shuffle": "off"} | options
    head, epoch = (started(card(memory_limit_bytes=10 * GIB)), TRAINING), {"type": "epoch", "epoch": 1}
    growing = [allocated(1 + number / 10) for number in range(30)]
    assert _fed(*head, *growing, options=given).memory_growth == pytest.approx(growth)
    later = _fed(*head, *growing, epoch, *[allocated(5)] * 30, options=given)
    assert later.memory_growth == pytest.approx(0.0), "what was taken before counts no more"
    once = _fed(*head, epoch, *growing, epoch | {"epoch": 2}, options=given)
    assert once.memory_growth == pytest.approx(0.2), "only the first epoch ends it"


DESKTOP = reading({"processes": [{"pid": 1, "name": "Xorg", "memory_used_bytes": int(1.2 * GIB), "own": False}]})
MIG = [{"uuid": "MIG-0", "memory_used_bytes": GIB, "memory_total_bytes": 20 * GIB, "sm_active": 0.9},
       {"uuid": "MIG-1", "memory_used_bytes": GIB, "memory_total_bytes": 10 * GIB, "sm_active": 0.3}]  # fmt: skip
PARTED = reading({"mig": MIG, "busy": None, "processes": DESKTOP["gpus"][0]["processes"]})
GROWS, TAKES = {"actual": {"memory_growth": True}}, {"actual": {"memory_growth": False}}
SHOWN = {"actual": {"environment": {"CUDA_VISIBLE_DEVICES": "MIG-0,MIG-1"}}}


@pytest.mark.parametrize(
    ("limit_gib", "more", "readings", "options", "share"),
    [
        (5.3, TAKES, DESKTOP, {}, 5.2 / 5.3), (7, GROWS, DESKTOP, {}, 5.2 / 6.8), (7, TAKES, DESKTOP, {}, 5.2 / 7),
        (None, {}, reading({}), {}, 5.2 / 8), (None, {}, PARTED, {}, 5.2 / 20),
        (None, {}, PARTED, {"device.visible": ["MIG-1"]}, 5.2 / 10),
        (None, SHOWN, PARTED, {"device.visible": ["MIG-1"]}, 5.2 / 10),
        (5.3, {}, reading({}), {"device.memory_limit_mb": 6144}, 5.2 / 6),
        (16, GROWS, DESKTOP, {"device.logical_devices": 2}, 5.2 / 8),
    ],
)  # fmt: skip
def test_memory_is_a_share_of_what_tensorflow_may_take(
    limit_gib: float | None, more: dict[str, Any], readings: dict[str, Any], options: dict[str, Any], share: float
) -> None:
    head = started(card(**{} if limit_gib is None else {"memory_limit_bytes": int(limit_gib * GIB)}), **more)
    found = _fed(head, TRAINING, readings, allocated(5.2), options=OPTIONS | options)
    assert found.memory_peak == pytest.approx(share, abs=0.01)


# ---- GPUs beside those that train ---------------------------------------------------------------

FREE = {"busy": 0.0, "memory_used_bytes": 2**20, "memory_total_bytes": 80 * GIB, "name": "NVIDIA H100 80GB HBM3"}
STEPS = [{"type": "progress", "step": 20 * i, "step_ms_p50": 50.0, "step_ms_p95": 55.0, "input_wait": 0.01,
          "python_share": 0.01} for i in range(1, 40)]  # fmt: skip


@pytest.mark.parametrize(
    ("visible", "option", "others", "change"),
    [
        (None, "all", (FREE, FREE), {"device.visible": "all"}),
        (None, "all", (FREE, FREE | {"busy": 0.9}), {"device.visible": [0, 1]}),
        (None, "all", (FREE, FREE | {"name": "NVIDIA GeForce GT 1030"}), {"device.visible": [0, 1]}),
        ("0,2", "all", (FREE, FREE), {}),
        ("0,2", [0], (FREE, FREE), {"device.visible": [0, 2]}),
        ("0", "all", (FREE, FREE), None),
        (None, "all", (FREE | {"busy": 0.9}, FREE | {"mig": []}), None),
    ],
)
def test_more_gpus_are_proposed_where_this_process_may_use_them_and_nobody_else_does(
    visible: str | None, option: Any, others: tuple[dict[str, Any], ...], change: dict[str, Any] | None
) -> None:
    told = [reading({**FREE, "busy": 0.97}, *others)] * 30
    found = _fed(
        started(card()), TRAINING, *told, *STEPS, options=OPTIONS | {"device.visible": option}, visible=visible
    )
    # Asked later, in a shell that knows nothing of the job, it is the run that knows.
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    begun = started(card(), actual={"environment": environment})
    later = _fed(begun, TRAINING, *told, *STEPS, options=OPTIONS | {"device.visible": option})
    for known in (found, later):
        changes = [dict(remedy["changes"]) for remedy in diagnose(known).remedies if remedy["step"] == "gpus"]
        assert changes == ([] if change is None else [change | {"strategy.kind": "mirrored"}])


HOT = {"throttle": ["software thermal"], "sm_clock_mhz": 1200.0}
FAST = {"throttle": [], "sm_clock_mhz": 1700.0}
TRAINER_OF_ANOTHER = {"pid": 7, "name": "{python}", "memory_used_bytes": 9 * GIB, "own": False}
# The readings of GPU 1 of three, and those of the others; whether it is the slow one, and how its cause is told.
SLOW: dict[str, tuple[dict[str, Any], dict[str, Any], bool, str]] = {
    "hot": (HOT, FAST, True, "slowed down in 100 % of its readings (software thermal)"),
    "shared": (
        {"busy": 0.98, "processes": [TRAINER_OF_ANOTHER]}, {"busy": 0.6}, True, "another program uses it ({python})"
    ),
    "unknown": ({"busy": 0.98}, {"busy": 0.6}, True, "look for other processes on GPU 1, which the others wait for"),
    "alike": (FAST | {"sm_clock_mhz": 1600.0}, FAST, False, ""), "all hot": (HOT, HOT, False, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_the_gpu_that_the_others_wait_for_is_named_with_its_cause(name: str) -> None:
    mine, others, slow, cause = SLOW[name]
    three = started(card(0), card(1), card(2), replicas=3)
    found = _fed(three, TRAINING, *[reading(others, mine, others)] * 30, *STEPS)
    assert (found.slow_gpu == 1) == slow
    told = diagnose(found)
    assert ("imbalance" in (told.verdict, *told.others)) == slow
    if slow:
        words = [*(piece["text"] for piece in told.evidence), *(one["reason"] for one in told.remedies)]
        assert cause in " ".join(words)


def test_clocks_and_slowed_time_are_summed_up_over_the_readings_that_train() -> None:
    def at(t: float, **more: Any) -> dict[str, Any]:
        counted = {"slowed_by_power_seconds": 0.9 * t, "slowed_by_heat_seconds": 0.0, "throttle": ["power cap"]}
        clock = {"sm_clock_mhz": 600.0, "max_sm_clock_mhz": 1980.0, "power_limit_w": 300.0}
        return reading({"power_limit_default_w": 700.0} | counted | clock | more)

    told = [at(float(second)) for second in range(30)]
    found = _fed(started(card(), compute_capability=[9, 0]), TRAINING, *told, *STEPS)
    assert (found.sm_clock_mhz, found.max_sm_clock_mhz) == (600.0, 1980.0)
    assert found.clock_share == pytest.approx(600 / 1980)
    assert found.power_capped == pytest.approx(0.9)
    assert found.throttled == 0.0
    assert (found.power_limit_w, found.power_limit_default_w, found.gpu_indexes) == (300.0, 700.0, (0,))
    verdict = diagnose(found)
    assert (verdict.verdict, verdict.others) == ("low_clocks", ["compute_bound"])
    hot = [at(float(second), slowed_by_heat_seconds=0.3 * second, throttle=[]) for second in range(30)]
    found = _fed(started(card()), TRAINING, *hot, *STEPS)
    assert found.throttled == pytest.approx(0.3), "the driver has counted what no reading saw"
    assert found.throttle == ("heat",)
    ahead = [at(float(second), slowed_by_heat_seconds=0.0 if second < 15 else 9000.0) for second in range(30)]
    found = _fed(started(card()), TRAINING, *ahead, *STEPS)
    assert found.throttled == pytest.approx(1 / 29), "no more than the time that has passed"


# ---- All figures that the diagnosis collects from the events of recorded trainings ---------------


GPUS = [f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000" for index in range(2)]
SLOW_CARD = {
    "busy": 0.99, "sm_clock_mhz": 1200, "throttle": ["hardware thermal"], "clocks_set_by": ["application clocks"],
    "max_sm_clock_mhz": 1980, "power_limit_default_w": 800.0,
    "processes": [{"pid": 7, "name": "blender", "own": False, "memory_used_bytes": 3 * GIB}],
}  # fmt: skip
HOSTS = [{"index": index, "address": f"h{index}:1", "host": f"h{index}"} for index in (0, 1)]
WORKERS = [HOSTS[0] | {"input_wait": 0.05}, HOSTS[1] | {"input_wait": 0.45}]
MORE = {"cpus": 16, "sample_bytes": 1024}
STORIES: dict[str, tuple[float, dict[str, Any]]] = {
    "two of four GPUs train": (41.0, {"gpus": 4, "readings_a_second": 2.0}),
    "one of two GPUs is slow": (60.0, {"gpus": 2}),
    "two workers train": (60.0, {"gpus": 2}),
}


def told(run: Run, slow: bool, workers: bool) -> Iterator[dict[str, Any]]:
    """The events with what only a real training has: its GPUs, a share of Python, pauses, and other programs."""
    lines = [line for name in EVENT_FILES for line in run.file(name).read_text().splitlines()]
    for event in sorted(map(json.loads, lines), key=lambda event: float(event["t"])):
        match event["type"]:
            case "started" if "GPU" in event["devices"][0]:
                of_gpu = {"memory_limit_bytes": 76 * GIB, "compute_capability": (9, 0)}
                devices = [of_gpu | {"uuid": uuid, "device": f"/device:GPU:{i}"} for i, uuid in enumerate(GPUS)]
                yield (
                    event
                    | MORE
                    | ({"workers": HOSTS} if workers else {})
                    | {"gpus": GPUS, "gpu_devices": devices, "compute_capability": (8, 0)}
                )
            case "started":
                yield event | MORE | {"cpu_bfloat16": True}
                yield {"t": event["t"], "type": "input_stages"} | STAGES
            case "progress":
                yield event | {"python_share": 0.1, "transfer": 0.02, "traces": 2}
                if workers:
                    yield {"t": event["t"] + 0.01, "type": "workers", "workers": WORKERS}
                    yield {"t": event["t"] + 0.02, "type": "exchange", "ms": 20.0, "bytes": 50_000_000, "step": 9}
                if event["step"] % 100 == 0:
                    yield {"t": event["t"] + 0.1, "type": "phase", "phase": "saving", "detail": "checkpoint"}
                    yield {"t": event["t"] + 0.25, "type": "phase", "phase": "training"}
            case "host":
                yield event | {"io_wait": 0.05, "others_cpu": 0.1, "trainer_read_bytes_per_second": 1e6}
            case "gpu" if slow and event["gpus"]:
                yield event | {"gpus": [event["gpus"][0], event["gpus"][1] | SLOW_CARD]}
            case _:
                yield event


@pytest.mark.parametrize("name", STORIES)
def test_the_figures_of_a_recorded_training(name: str, home: Path, snapshot: Any) -> None:
    after, settings = STORIES[name]
    run = recorded.write(home, name="run", **({"seconds": 72} | settings))
    collector = Collector(options_of(run), None)
    collector.feed(
        recalled(event) for event in told(run, "slow" in name, "workers" in name) if event["t"] <= BEGAN + after
    )
    known = collector.measurements()
    figures = [f"{key}: {_rounded(value)}" for key, value in asdict(known).items() if key not in ("options", "stages")]
    assert "\n".join([*figures, "", diagnose(known).sentence]) == snapshot


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
