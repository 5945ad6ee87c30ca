"""Devices: which GPUs are opened under which numbers, what is asked of the driver, and which trainings are refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.doors.engine import Gpu, Machine, resource_limits
from tests.doors.trainer import (
    Devices,
    TrainerError,
    devices,
    environment,
)
from tests.support.training import options

GIB = 1024**3


def gpu(index: int, **more: Any) -> Gpu:
    known = Gpu(index, f"GPU-{index}", "A GPU", (9, 0), 80 * GIB, pci_bus_id=f"00000000:{index + 1:02X}:00.0")
    return replace(known, **more)


BOX = Machine((gpu(0), gpu(1), gpu(2)), "", 1, 1)


# ---- identity ----------------------------------------------------------------------------------


class Driver:
    """Stands for libcuda: one GPU, of which it tells everything but the number of its multiprocessors."""

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal + 7
        return 0 if ordinal == 0 else 101

    def cuDeviceGetPCIBusId(self, text: Any, length: int, device: Any) -> int:
        text.value = f"{device.value}:{length}".encode()
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: Any) -> int:
        size._obj.value = 5 * GIB
        return 0

    def cuDeviceGetAttribute(self, count: Any, attribute: int, device: Any) -> int:
        count._obj.value = 80
        return 0 if attribute == 99 else 1


def test_the_driver_is_asked_for_its_device_and_a_refusal_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(ordinal: int) -> tuple[Any, ...]:
        asked = devices.driver_pci_bus_id, devices.driver_memory_total_bytes
        return (*(each(ordinal) for each in asked), devices.driver_multiprocessors(ordinal))

    there: list[Any] = [Driver()]
    monkeypatch.setattr(devices, "_driver", lambda: there[0])
    assert facts(0) == ("7:32", 5 * GIB, None)
    assert facts(1) == (None, None, None)
    there[0] = SimpleNamespace(cuDeviceGet=lambda device, ordinal: 0)  # an older one without these functions
    assert facts(0) == (None, None, None)
    there[0] = None
    assert facts(0) == (None, None, None)


# ---- usable GPUs -------------------------------------------------------------------------------


def test_the_parts_of_a_gpu_share_nine_tenths_of_its_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def divide(_gpu: object, parts: list[Any]) -> None:
        raise InterruptedError([part.memory_limit for part in parts])

    monkeypatch.setattr(environment, "machine", lambda: BOX)
    monkeypatch.setattr(resource_limits, "cpus_limited", lambda: False)
    monkeypatch.setattr(devices, "usable_gpus", lambda *_: [0])
    monkeypatch.setattr(devices, "memory_free_bytes", lambda *_: 10 * GIB)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _kind: ["a GPU"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *_: None)
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", divide)
    with pytest.raises(InterruptedError, match=r"^\[4608, 4608\]$"):
        devices.configure(options("logical_devices=2"))


# ---- the strategy ------------------------------------------------------------------------------


def test_a_device_that_is_not_there_and_nccl_without_gpus_are_refused() -> None:
    few = Devices("GPU", ("/device:GPU:0", "/device:GPU:1"), positions=(2, 3), available=6)
    assert few.by_position == {2: "/device:GPU:0", 3: "/device:GPU:1"}
    for there, named, message in (
        (few, "[2, 7, 9]", "strategy.devices names GPU 7, but there are 6 (counted from 0)"),
        (
            Devices("CPU", ("/device:CPU:0",)),
            "[0, 1]",
            "strategy.devices names CPU 1, but there are 1 (counted from 0)",
        ),
    ):
        with pytest.raises(TrainerError) as raised:
            devices.build_strategy(options("strategy.kind=mirrored", f"strategy.devices={named}"), there)
        assert (raised.value.kind, raised.value.message) == ("device", message)
        assert raised.value.hint == "list fewer devices, or set device.logical_devices"
    asked = options("strategy.kind=mirrored", "strategy.communication=nccl")
    with pytest.raises(TrainerError) as raised:
        devices.build_strategy(asked, Devices("CPU", ("/device:CPU:0",)))
    assert (raised.value.kind, raised.value.message, raised.value.hint) == (
        "strategy", "strategy.communication=nccl needs GPUs", "set it to auto",
    )  # fmt: skip
    assert devices.build_strategy(options(), few) is None
    joined: Any = object()
    several = options("strategy.kind=multi_worker")
    assert devices.build_strategy(several, replace(few, connected=joined)) is joined
