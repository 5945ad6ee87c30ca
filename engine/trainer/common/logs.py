"""The logs of a step, with which Keras reports its figures, as numbers: also those of several numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

MOST_PARTS = 10  # elements of a vector that are kept, each under its own name


def flat(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Nested dictionaries flattened, as in Keras, and names as text, without reading values: also in a graph."""
    values: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        values.update(flat(value) if isinstance(value, Mapping) else {_text(name): value})
    return values


def as_keras(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the logs as Keras' fit gives them to callbacks: scalars as numbers, larger values as arrays."""
    values = flat(logs)
    for name, value in values.items():
        if (array := _array(value)) is not None:
            values[name] = float(array) if array.ndim == 0 else array
    return values


def floats(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Numbers by name; a vector of up to MOST_PARTS elements gives `name_0`, `name_1` and so on."""
    return {name: number for key, value in flat(logs).items() for name, number in _numbers(key, value)}


def _text(name: Any) -> str:
    try:
        return str(name)
    except Exception:  # noqa: BLE001 - the user's code
        return type(name).__name__


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    array = _array(value)
    if array is None:
        return
    if array.ndim == 0:
        yield name, float(array)
    elif array.ndim == 1 and array.size <= MOST_PARTS:
        for index, part in enumerate(array):
            yield f"{name}_{index}", float(part)


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if value is None or isinstance(value, (str, bytes, complex)):
        return None
    try:
        host = value.detach().cpu() if hasattr(value, "detach") else value  # a tensor of torch may be on a GPU
        return np.asarray(host, dtype="float64")
    except Exception:  # noqa: BLE001 - an object of the user's may raise any exception when it is converted
        return None
