"""From readings of GPUs to figures and verdicts: which GPUs train, and what TensorFlow may take of their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from gputui.engine.diagnosis import clocks, diagnose
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.runs.parsing import recalled
from gputui.engine.telemetry.gpu_totals import GpuTotals

from tests.support.judged import OPTIONS

GIB = 1024**3
TRAINING = {"type": "phase", "phase": "training"}


def fed(*events: dict[str, Any], options: Mapping[str, Any] = {}, visible: str | None = None) -> Measurements:
    collector = Collector(OPTIONS | dict(options), visible)
    collector.feed(recalled({"t": float(i)} | event) for i, event in enumerate(events))
    return collector.measurements()


def started(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    uuids = [device["uuid"] for device in devices]
    return {"type": "started", "gpus": uuids, "gpu_devices": list(devices), "devices": ["/device:GPU:0"]} | more


def card(number: int = 0, **more: Any) -> dict[str, Any]:
    """What the started event tells of a GPU that trains."""
    return {"device": f"/device:GPU:{number}", "uuid": f"GPU-{number}"} | more


def reading(*gpus: dict[str, Any]) -> dict[str, Any]:
    plain = {"busy": 0.97, "memory_used_bytes": 5 * GIB, "memory_total_bytes": 8 * GIB}
    return {"type": "gpu", "gpus": [{"index": i, "uuid": f"GPU-{i}"} | plain | gpu for i, gpu in enumerate(gpus)]}


def allocated(*gigabytes: float) -> dict[str, Any]:
    each = [{"current_bytes": int(one * GIB), "peak_bytes": int(one * GIB)} for one in gigabytes]
    return {"type": "allocator", "devices": {f"GPU:{i}": one for i, one in enumerate(each)}}


DESKTOP = [{"pid": 1, "name": "Xorg", "memory_used_bytes": int(1.2 * GIB), "own": False}]
MIG = [{"uuid": "MIG-0", "memory_used_bytes": GIB, "memory_total_bytes": 20 * GIB, "sm_active": 0.9},
       {"uuid": "MIG-1", "memory_used_bytes": GIB, "memory_total_bytes": 10 * GIB, "sm_active": 0.3}]  # fmt: skip
GROWS, TAKES = {"actual": {"memory_growth": True}}, {"actual": {"memory_growth": False}}
LIMIT = card(memory_limit_bytes=int(5.3 * GIB))


@pytest.mark.parametrize(
    ("events", "options", "share"),
    [
        # A laptop with 8 GB and a desktop: TensorFlow may take 5.3.
        ([started(LIMIT, **TAKES), reading({"processes": DESKTOP})], {}, 5.2 / 5.3),
        ([started(LIMIT, **GROWS), reading({"processes": DESKTOP})], {}, 5.2 / 5.3),
        # Others have come since; where it has taken all at the start, they have nothing of it.
        ([started(card(memory_limit_bytes=7 * GIB), **GROWS), reading({"processes": DESKTOP})], {}, 5.2 / 6.8),
        ([started(card(memory_limit_bytes=7 * GIB), **TAKES), reading({"processes": DESKTOP})], {}, 5.2 / 7),
        ([started(card(), **GROWS), reading({"processes": DESKTOP})], {}, 5.2 / 6.8),
        # Not known: the whole GPU, by the driver or as the trainer has told.
        ([started(card()), reading({})], {}, 5.2 / 8),
        ([started(card(memory_total_bytes=16 * GIB))], {}, 5.2 / 16),
        # A MIG instance is what trains, whichever way it is named, and others are not on it.
        ([started(card()), reading({"mig": MIG, "busy": None, "processes": DESKTOP})], {}, 5.2 / 20),
        ([started(card()), reading({"mig": MIG})], {"device.visible": ["MIG-1"]}, 5.2 / 10),
        (
            [started(card(), actual={"environment": {"CUDA_VISIBLE_DEVICES": "MIG-1"}}), reading({"mig": MIG})],
            {},
            5.2 / 10,
        ),
        (
            [started(card(), actual={"environment": {"CUDA_VISIBLE_DEVICES": "MIG-0,MIG-1"}}), reading({"mig": MIG})],
            {"device.visible": ["MIG-1"]},
            5.2 / 10,
        ),
        ([started(card(uuid="MIG-1")), reading({"mig": MIG})], {}, 5.2 / 10),
        # A part of each GPU.
        ([started(LIMIT), reading({})], {"device.memory_limit_mb": 6144}, 5.2 / 6),
        ([started(card(memory_limit_bytes=16 * GIB)), reading({})], {"device.logical_devices": 2}, 5.2 / 8),
        # The parts of a GPU are taken at the start, so that others have nothing of them.
        (
            [started(card(memory_limit_bytes=16 * GIB), **GROWS), reading({"processes": DESKTOP})],
            {"device.logical_devices": 2},
            5.2 / 8,
        ),
    ],
)
def test_memory_is_a_share_of_what_tensorflow_may_take(
    events: list[dict[str, Any]], options: dict[str, Any], share: float
) -> None:
    head, *readings = events
    found = fed(head, TRAINING, *readings, allocated(5.2), options=options)
    assert found.memory_peak == pytest.approx(share, abs=0.01)


def test_the_fullest_gpu_counts_each_by_its_own_memory() -> None:
    two = started(card(0, memory_limit_bytes=10 * GIB), card(1, memory_limit_bytes=40 * GIB))
    cards = reading({"memory_total_bytes": 80 * GIB}, {"memory_total_bytes": 80 * GIB})
    assert fed(two, TRAINING, cards, allocated(5.0, 30.0)).memory_peak == pytest.approx(0.75)
    halves = {"device.logical_devices": 2}
    two["gpu_devices"][1]["device"] = "/device:GPU:2"
    found = fed(two, TRAINING, cards, allocated(1.0, 4.0, 5.0, 5.0), options=halves)
    assert found.memory_peak == pytest.approx(0.8)


def test_what_the_first_step_alone_takes_is_no_peak_of_the_training() -> None:
    """cuDNN takes memory for a moment to try its algorithms."""
    first = allocated(5.2) | {"first_step": True}
    assert fed(started(LIMIT), TRAINING, reading({}), first).memory_peak == pytest.approx(5.2 / 5.3)
    found = fed(started(LIMIT), TRAINING, reading({}), first, allocated(2.0), allocated(3.0), allocated(1.0))
    assert found.memory_peak == pytest.approx(3.0 / 5.3)


def test_memory_grows_by_shares_of_what_tensorflow_may_take() -> None:
    more = [allocated(2 + i / 30) for i in range(30)]
    plain = {"input.cache": "off", "input.shuffle": "off"}
    found = fed(started(LIMIT), TRAINING, reading({}), *more, options=plain)
    assert found.memory_growth == pytest.approx(20 / 30 / 5.3, abs=0.001)


def test_what_the_first_epoch_takes_on_the_gpu_is_no_memory_that_grows() -> None:
    first, rest = [allocated(1 + i / 10) for i in range(30)], [allocated(4.0)] * 40
    plain = {"input.cache": "off", "input.shuffle": "off"}
    events = (*first, {"type": "epoch", "epoch": 1}, *rest[:20], {"type": "epoch", "epoch": 2}, *rest[20:])
    assert fed(started(LIMIT), TRAINING, reading({}), *events, options=plain).memory_growth == pytest.approx(0.0)
    again = (*events, {"type": "epoch", "epoch": 3}, *[allocated(5.3)] * 10)
    assert fed(started(LIMIT), TRAINING, reading({}), *again, options=plain).memory_growth == (
        pytest.approx(1.3 / 5.3, abs=0.001))  # fmt: skip


def test_where_no_larger_batch_fits_none_is_proposed_and_the_limit_is_reported() -> None:
    """A laptop with 8 GB and a desktop, a MIG instance of 10 GB on a GPU of 80, and a GPU of which others take most."""
    half = {"busy": 0.4, "memory_total_bytes": 80 * GIB}
    for name, head, gpu, full in (
        ("laptop", started(LIMIT, **GROWS), {"busy": 0.4, "processes": DESKTOP}, 5.2),
        ("MIG", started(card(uuid="MIG-1")), half | {"mig": [one | {"sm_active": 0.3} for one in MIG]}, 9.5),
        (
            "others",
            started(card(memory_limit_bytes=78 * GIB), **GROWS),
            half | {"processes": [DESKTOP[0] | {"memory_used_bytes": 50 * GIB}]},
            29.0,
        ),
    ):
        samples = {"train_samples": 10**6, "global_batch_size": 64}
        for gigabytes, limited, doubled in ((full, True, False), (full / 2, False, False), (full / 4, False, True)):
            told = diagnose(fed(head | samples, TRAINING, *[reading(gpu)] * 30, allocated(gigabytes), *STEPS))
            changes = [set(remedy["changes"]) for remedy in told.remedies]
            assert ("memory_limit" in (told.verdict, *told.others)) == limited, (name, gigabytes, told)
            assert ({"input.batch_size"} in changes) == doubled, (name, gigabytes, told)


def test_of_a_gpu_in_mig_mode_the_activity_is_that_of_the_instance() -> None:
    gpu = {"mig": MIG, "busy": None, "sm_active": 0.99}
    assert fed(started(card()), TRAINING, reading(gpu)).sm_active == 0.9
    assert fed(started(card()), TRAINING, reading(gpu), visible="MIG-1").sm_active == 0.3
    unread = [{"uuid": "MIG-0", "memory_total_bytes": 20 * GIB}]
    assert fed(started(card()), TRAINING, reading(gpu | {"mig": unread})).sm_active is None


def test_a_gpu_without_a_uuid_is_known_by_its_place() -> None:
    place, another = ({"uuid": None, "pci_bus_id": f"00000000:0{number}:00.0"} for number in (1, 2))
    nameless = reading(place | {"busy": 0.8}, another | {"busy": 0.1})
    assert fed(started(card(uuid=place["pci_bus_id"])), TRAINING, nameless).busy_mean == pytest.approx(0.8)


# ---- GPUs beside those that train ---------------------------------------------------------------

FREE = {"busy": 0.0, "memory_used_bytes": 2**20, "memory_total_bytes": 80 * GIB, "name": "NVIDIA H100 80GB HBM3"}
STEPS = [{"type": "progress", "step": 20 * i, "step_ms_p50": 50.0, "step_ms_p95": 55.0, "input_wait": 0.01,
          "python_share": 0.01} for i in range(1, 40)]  # fmt: skip


def test_one_of_eight_that_trains_at_its_limit_is_compute_bound_and_the_others_are_idle() -> None:
    eight = reading({**FREE, "busy": 0.97, "memory_used_bytes": 20 * GIB}, *[FREE] * 7)
    found = fed(started(card(), compute_capability=[9, 0]), TRAINING, *[eight] * 30, *STEPS)
    assert found.busy_mean == pytest.approx(0.97)
    assert (found.gpus, found.idle_gpus, found.busy_gap) == (1, 7, None)
    verdict = diagnose(found)
    assert (verdict.verdict, verdict.others) == ("compute_bound", []), verdict
    changes = [dict(remedy["changes"]) for remedy in verdict.remedies]
    assert {"device.visible": "all", "strategy.kind": "mirrored"} in changes
    assert {"compile.steps_per_execution": 16} not in changes


@pytest.mark.parametrize(
    ("visible", "option", "others", "change"),
    [
        (None, "all", (FREE, FREE), {"device.visible": "all"}),
        (None, [0], (FREE, FREE), {"device.visible": "all"}),
        (None, "all", (FREE, FREE | {"busy": 0.9}), {"device.visible": [0, 1]}),
        (None, "all", (FREE, FREE | {"name": "NVIDIA GeForce GT 1030"}), {"device.visible": [0, 1]}),
        # A launcher has given a part of the machine: "all" stands for this part.
        ("0,2", "all", (FREE, FREE), {}),
        ("0,2", [0], (FREE, FREE), {"device.visible": [0, 2]}),
        ("0,1,2", "all", (FREE, FREE | {"busy": 0.9}), {"device.visible": [0, 1]}),
        ("0", "all", (FREE, FREE), None),
        (None, "all", (FREE | {"busy": 0.9}, FREE | {"mig": []}), None),
    ],
)
def test_more_gpus_are_proposed_where_this_process_may_use_them_and_nobody_else_does(
    visible: str | None, option: Any, others: tuple[dict[str, Any], ...], change: dict[str, Any] | None
) -> None:
    told = [reading({**FREE, "busy": 0.97}, *others)] * 30
    found = fed(started(card()), TRAINING, *told, *STEPS, options={"device.visible": option}, visible=visible)
    # Asked later, in a shell that knows nothing of the job, it is the run that knows.
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    begun = started(card(), actual={"environment": environment})
    later = fed(begun, TRAINING, *told, *STEPS, options={"device.visible": option})
    for known in (found, later):
        changes = [dict(remedy["changes"]) for remedy in diagnose(known).remedies if remedy["step"] == "gpus"]
        assert changes == ([] if change is None else [change | {"strategy.kind": "mirrored"}])


def test_the_gpus_of_this_shell_count_and_without_them_those_of_the_run() -> None:
    begun = started(card(), actual={"environment": {"CUDA_VISIBLE_DEVICES": "1,2"}})
    for visible, given in (("0,1", (0, 1)), (None, (1, 2))):
        assert fed(begun, TRAINING, reading({}, {}, {}), visible=visible).given_gpus == given
    assert fed(started(card()), TRAINING, reading({}, {}, {})).given_gpus is None


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ({"nvlink": {"links": 18, "rx_bytes_per_second": 5, "tx_bytes_per_second": 9}}, True),
        ({"nvlink": {"links": 12, "rx_bytes_per_second": 0, "tx_bytes_per_second": 0}}, False),
        ({"nvlink": {"links": 18, "rx_bytes_per_second": None, "tx_bytes_per_second": None}}, None),
        ({"reasons": {"nvlink": "unsupported"}}, False),
        ({"nvlink": {"links": 18, "rx_bytes_per_second": None}, "reasons": {"nvlink": "unsupported"}}, None),
        ({"reasons": {"nvlink": "error"}}, None),
        ({}, None),
    ],
)
def test_nvlink_is_known_by_what_passes_over_it(told: dict[str, Any], used: bool | None) -> None:
    assert fed(started(card()), TRAINING, reading(told)).nvlink is used


HOT = {"throttle": ["software thermal"], "sm_clock_mhz": 1200.0}
FULL = {"throttle": [], "sm_clock_mhz": 1700.0}
TRAINER_OF_ANOTHER = {"pid": 7, "name": "{python}", "memory_used_bytes": 9 * GIB, "own": False}
# The readings of GPU 1 of three, and those of the others; whether it is the slow one, and how its cause is told.
SLOW: dict[str, tuple[dict[str, Any], dict[str, Any], bool, str]] = {
    "hot": (HOT, FULL, True, "slowed down in 100 % of its readings (software thermal)"),
    "shared": (
        {"busy": 0.98, "processes": [TRAINER_OF_ANOTHER]}, {"busy": 0.6}, True, "another program uses it ({python})"
    ),
    "other model": ({"busy": 0.98, "name": "A"}, {"busy": 0.5, "name": "B"}, True, "it is another model (A)"),
    "set": (FULL | {"sm_clock_mhz": 1000.0, "clocks_set_by": ["application clocks"]}, FULL, True, "set by somebody"),
    "unknown": ({"busy": 0.98}, {"busy": 0.6}, True, "look for other processes on GPU 1, which the others wait for"),
    "alike": (FULL | {"sm_clock_mhz": 1600.0}, FULL, False, ""),
    "all hot": (HOT, HOT, False, ""),
    "a screen": ({"processes": DESKTOP[:0]}, {}, False, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_the_gpu_that_the_others_wait_for_is_named_with_its_cause(name: str) -> None:
    mine, others, slow, cause = SLOW[name]
    three = started(card(0), card(1), card(2), replicas=3)
    found = fed(three, TRAINING, *[reading(others, mine, others)] * 30, *STEPS)
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
    found = fed(started(card(), compute_capability=[9, 0]), TRAINING, *told, *STEPS)
    assert (found.sm_clock_mhz, found.max_sm_clock_mhz) == (600.0, 1980.0)
    assert found.clock_share == pytest.approx(600 / 1980)
    assert found.power_capped == pytest.approx(0.9)
    assert found.throttled == 0.0
    assert (found.power_limit_w, found.power_limit_default_w, found.gpu_indexes) == (300.0, 700.0, (0,))
    verdict = diagnose(found)
    assert (verdict.verdict, verdict.others) == ("low_clocks", ["compute_bound"])
    hot = [at(float(second), slowed_by_heat_seconds=0.3 * second, throttle=[]) for second in range(30)]
    found = fed(started(card()), TRAINING, *hot, *STEPS)
    assert found.throttled == pytest.approx(0.3), "the driver has counted what no reading saw"
    assert found.throttle == ("heat",)
    ahead = [at(float(second), slowed_by_heat_seconds=0.0 if second < 15 else 9000.0) for second in range(30)]
    found = fed(started(card()), TRAINING, *ahead, *STEPS)
    assert found.throttled == pytest.approx(1 / 29), "no more than the time that has passed"


def test_counters_that_begin_again_with_the_driver_take_nothing_from_the_energy() -> None:
    totals = GpuTotals()
    for t, joules in enumerate((9000.0, 9300.0, 100.0, 400.0)):
        totals.take(float(t), {"uuid": "GPU-a", "energy_j": joules})
    assert totals.energy_wh == pytest.approx(600 / 3600)
    assert totals.power_w == pytest.approx(300.0)


def test_the_power_limit_that_is_lowest_for_its_gpu_is_the_one_that_counts() -> None:
    limits = ((700.0, 700.0), (300.0, 700.0), (250.0, 250.0))
    gpus = [{"power_limit_w": limit, "power_limit_default_w": default} for limit, default in limits]
    found = clocks.measured(gpus, GpuTotals())
    assert (found["power_limit_w"], found["power_limit_default_w"]) == (300.0, 700.0)
