"""The share of its GPU memory that a training takes, and its growth: of which peaks, of which limit, since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.diagnosis.memory import MB, limit_of
from gputui.engine.runs.parsing import recalled

FULL: dict[str, Any] = {"input.cache": "off", "input.shuffle": "off"}  # nothing fills
TRAINING = {"type": "phase", "phase": "training"}


def started(*devices: dict[str, Any], **actual: Any) -> dict[str, Any]:
    return {
        "type": "started", "gpus": ["GPU-a", "GPU-b"], "devices": ["/device:GPU:0"], "gpu_devices": list(devices),
        "actual": actual,
    }  # fmt: skip


def device(place: int, uuid: str = "GPU-a", limit: int | None = 1000, **more: Any) -> dict[str, Any]:
    return {"device": f"/device:GPU:{place}", "uuid": uuid, "memory_limit_bytes": limit, **more}


def reading(total: int = 2000, others: int = 0, uuid: str = "GPU-a") -> dict[str, Any]:
    programs = [{"name": "x", "own": False, "memory_used_bytes": others},
                {"name": "python", "own": True, "memory_used_bytes": 900}]  # fmt: skip
    gpu = {"uuid": uuid, "index": 0, "busy": 0.9, "memory_total_bytes": total, "processes": programs}
    return {"type": "gpu", "gpus": [gpu]}


def taken(first_step: bool = False, **devices: tuple[int | None, int | None]) -> dict[str, Any]:
    """Peak and present bytes of the logical devices, by their names such as GPU0."""
    of = {f"{name[:3]}:{name[3:]}": {"peak_bytes": peak, "current_bytes": now} for name, (peak, now) in devices.items()}
    return {"type": "allocator", "devices": of, "first_step": first_step}


def fed(*events: dict[str, Any], options: Mapping[str, Any] = FULL) -> Measurements:
    collector = Collector(options)
    collector.feed(recalled({"t": float(number)} | event) for number, event in enumerate(events))
    return collector.measurements()


def growing(first: int = 100, by: int = 10) -> list[dict[str, Any]]:
    return [taken(GPU0=(900, first + by * number)) for number in range(30)]


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
    given = FULL | options
    assert fed(started(device(0)), TRAINING, *growing(), options=given).memory_growth == pytest.approx(growth)
    epoch = {"type": "epoch", "epoch": 1}
    later = fed(started(device(0)), TRAINING, *growing(), epoch, *growing(500, 0), options=given)
    assert later.memory_growth == pytest.approx(0.0), "what was taken before counts no more"
    once = fed(started(device(0)), TRAINING, epoch, *growing(), {"type": "epoch", "epoch": 2}, options=given)
    assert once.memory_growth == pytest.approx(0.2), "only the first epoch ends it"


def test_the_growth_is_that_of_the_fullest_device_and_needs_thirty_readings() -> None:
    begun = started(device(0), device(1, "GPU-b", 2000))
    events = [taken(GPU0=(900, 500), GPU1=(900, 1000 + 20 * number)) for number in range(30)]
    assert fed(begun, TRAINING, *events).memory_growth == pytest.approx(0.2)
    assert fed(begun, TRAINING, *events[:29]).memory_growth is None
    unknown = [taken(GPU0=(900, None), CPU0=(1, 1)) for _ in range(30)]
    assert fed(begun, TRAINING, *unknown).memory_growth is None
    assert fed(begun, TRAINING, *unknown).memory_peak == 0.9


def test_the_peak_is_the_highest_share_of_any_device_and_that_of_the_first_step_alone_does_not_last() -> None:
    begun = started(device(0), device(1, "GPU-b", 500), memory_growth=False)
    assert fed(begun, TRAINING, taken(GPU0=(300, 1), GPU1=(200, 1))).memory_peak == 0.4
    lower = (taken(GPU0=(800, 1)), taken(GPU0=(300, 1), GPU1=(None, 1)))
    assert fed(begun, TRAINING, *lower).memory_peak == 0.8, "a peak lasts"
    first = taken(True, GPU0=(950, 1))
    assert fed(begun, TRAINING, first).memory_peak == 0.95
    assert fed(begun, TRAINING, first, taken(GPU0=(300, 1))).memory_peak == 0.3
    assert fed(begun, TRAINING, first, taken(GPU0=(300, 1)), taken(GPU0=(200, 1))).memory_peak == 0.3
    assert fed(begun, TRAINING).memory_peak is None
    assert fed(started(), TRAINING, taken(GPU0=(300, 1))).memory_peak is None, "its limit is not known"


def test_logical_devices_share_the_memory_of_their_gpu() -> None:
    """GPU 0 and 1 are parts of the first one, 2 and 3 of the second."""
    begun = started(device(0), device(2, "GPU-b", 400))
    options = FULL | {"device.logical_devices": 2}
    for place, share in ((0, 0.2), (1, 0.2), (2, 0.5), (3, 0.5)):
        assert fed(begun, TRAINING, taken(False, **{f"GPU{place}": (100, 1)}), options=options).memory_peak == share


@pytest.mark.parametrize(
    ("actual", "options", "share"),
    [
        ({}, {}, 0.5),  # of 1000 bytes, others have taken 1400 of 2000 since
        ({"memory_growth": True}, {}, 0.5),
        ({"memory_growth": None}, {}, 0.5),
        ({"memory_growth": False}, {}, 0.3),  # it has taken all of its memory at the start
        ({}, {"device.logical_devices": 2}, 0.6),
    ],
)
def test_what_other_programs_have_taken_since_the_start_is_not_left(
    actual: dict[str, Any], options: dict[str, Any], share: float
) -> None:
    events = (TRAINING, reading(others=1400), taken(GPU0=(300, 1)))
    assert fed(started(device(0), **actual), *events, options=FULL | options).memory_peak == pytest.approx(share)
    events = (TRAINING, reading(others=500), taken(GPU0=(300, 1)))
    most = share if options or actual.get("memory_growth") is False else 0.3
    assert fed(started(device(0), **actual), *events, options=FULL | options).memory_peak == pytest.approx(most)


@pytest.mark.parametrize(
    ("of_device", "options", "total", "limit"),
    [
        ({"memory_limit_bytes": 1000, "memory_total_bytes": 3000}, {}, 2000, 1000),
        ({"memory_total_bytes": 3000}, {}, 2000, 2000),
        ({"memory_total_bytes": 3000}, {}, None, 3000),
        ({}, {}, None, None),
        ({"memory_limit_bytes": 1000}, {"device.logical_devices": 4}, 2000, 250),
        ({"memory_limit_bytes": 1000}, {"device.logical_devices": None}, 2000, 1000),
        ({"memory_limit_bytes": 1000}, {"device.memory_limit_mb": 5, "device.logical_devices": 4}, 2000, 5 * MB),
    ],
)
def test_the_memory_that_tensorflow_may_take_of_a_device(
    of_device: dict[str, Any], options: dict[str, Any], total: int | None, limit: float | None
) -> None:
    assert limit_of(of_device, options, total) == limit
