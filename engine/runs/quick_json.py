"""Has large event files read with pydantic's JSON parser, which takes a third of the time of Python's own.

A trainer does without it: its interpreter need not have pydantic (run.python).
"""

from __future__ import annotations

from functools import partial

from . import parsing
from .parsing import Reader


def use() -> None:
    """In this process, from now on."""
    parsing.quick_reader = _pydantics


def _pydantics() -> Reader:
    from pydantic_core import from_json  # 25 ms, only where much is read

    return partial(from_json, allow_inf_nan=False)
