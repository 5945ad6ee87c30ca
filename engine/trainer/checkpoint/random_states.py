"""Saves and restores the random states of Python and NumPy, which are not variables."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def read(generators: list[Any]) -> list[Any]:
    """The states of Python's and NumPy's global generators, and of the given ones, as values for JSON."""
    return [random.getstate(), _plain(np.random.get_state(legacy=False)), *map(_state, generators)]


def write(generators: list[Any], states: list[Any]) -> None:
    """Restore the states from `read` into as many generators."""
    random.setstate(_nested_tuple(states[0]))
    np.random.set_state(states[1])
    for generator, state in zip(generators, states[2:], strict=True):
        if isinstance(generator, random.Random):
            generator.setstate(_nested_tuple(state))
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        else:
            generator.bit_generator.state = state


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    return _plain(generator.bit_generator.state)


def _plain(value: Any) -> Any:
    """NumPy's arrays and numbers as Python's."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _nested_tuple(value: Any) -> Any:
    return tuple(map(_nested_tuple, value)) if isinstance(value, list | tuple) else value
