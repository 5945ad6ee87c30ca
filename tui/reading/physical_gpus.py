"""TensorFlow's devices by the numbers that NVML gives the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engine.files.values import mapping, number


def by_physical_gpu(
    devices: Mapping[str, Any], started: Mapping[str, Any], readings: Mapping[int, Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """TensorFlow's devices by NVML's numbers: GPU:0 may be a part of GPU 3."""
    parts = int(number(mapping(mapping(started.get("options")).get("device")).get("logical_devices")) or 1)
    numbers = _physical(started, readings, parts)
    found: dict[str, dict[str, float]] = {}
    for name, figures in devices.items():
        kind, _, position = str(name).partition(":")
        if kind == "GPU" and position.isdigit():
            order = int(position) // parts
            name = f"GPU:{numbers.get(order, order)}"
        total = found.setdefault(name, {})
        for key, value in mapping(figures).items():
            total[key] = total.get(key, 0) + (number(value) or 0)
    return found


def _physical(started: Mapping[str, Any], readings: Mapping[int, Mapping[str, Any]], parts: int) -> dict[int, int]:
    """TensorFlow's number of a GPU -> NVML's, by the GPUs in the started event, else by the option."""
    cards = {str(reading.get("uuid")): index for index, reading in readings.items()}
    cards |= {str(index): index for index in readings}
    devices = started.get("gpu_devices")
    told = [mapping(one) for one in devices] if isinstance(devices, list) else []
    if found := {order: cards[name] for one in told if (name := str(one.get("uuid"))) in cards
                 if (order := _order(one, parts)) is not None}:  # fmt: skip
        return found
    used, visible = started.get("gpus"), mapping(mapping(started.get("options")).get("device")).get("visible")
    names = used if isinstance(used, list) and used else visible if isinstance(visible, list) else []
    return {order: cards[str(name)] for order, name in enumerate(names) if str(name) in cards}


def _order(device: Mapping[str, Any], parts: int) -> int | None:
    """The place of a GPU among those that TensorFlow has opened, by the name of the first device on it."""
    position = str(device.get("device")).rpartition("GPU:")[2]
    return int(position) // parts if position.isdigit() else None
