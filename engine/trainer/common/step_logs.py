"""The figures that a step, an evaluation or a callback hands over, which need not be plain numbers.

A training step may return a metric that is a dict of several, or a vector (F1Score), and a callback may write words
among the figures. Separates what Keras' callbacks see of it (`as_keras`) from the numbers that a run keeps (`floats`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

MOST_PARTS = 10  # of a vector that are kept, each under a name of its own


def flat(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Dicts within the logs opened, as Keras does; nothing is read, so that it can be used in a graph.

    A name that is no text, as code of the user's may give one, becomes its text.
    """
    found: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        found.update(flat(value) if isinstance(value, Mapping) else {_text(name): value})
    return found


def as_keras(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """What Keras' fit gives callbacks: numbers, arrays where a metric is no scalar, and whatever is no figure."""
    found = {name: (value, _array(value)) for name, value in flat(logs).items()}
    return {name: value if array is None else _number(array) for name, (value, array) in found.items()}


def floats(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """The numbers alone: a short vector as `name_0`, `name_1`; what is larger or no number is left out."""
    return {name: number for key, value in flat(logs).items() for name, number in _numbers(key, value)}


def _text(name: Any) -> str:
    """An object of the user's may fail to tell what it is."""
    try:
        return str(name)
    except Exception:
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


def _number(array: np.ndarray[Any, Any]) -> Any:
    return float(array) if array.ndim == 0 else array


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    """Its numbers, which waits for the device; None where it has none."""
    if value is None or isinstance(value, (str, bytes, complex)):
        return None
    try:
        return np.asarray(value, dtype="float64")
    except Exception:  # an object of the user's may raise anything when it is asked for its number
        return None
