"""Finds the functions of a user's own pipeline, with file and line, so that a slow stage can be named by its function.

A tf.data.Dataset keeps the function that it maps; that of from_generator lies in a closure of TensorFlow's.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import tensorflow as tf

from .user_code import UserCode

DEEPEST = 5  # from TensorFlow's function of from_generator to the user's generator it is three
# The class of a data set -> the kind of the operation in which its function works.
KINDS = {"_MapDataset": "Map", "_ParallelMapDataset": "Map", "_FlatMapDataset": "Generator"}
_OF_TENSORFLOW = "tensorflow.python.data"


def user_functions(data: tf.data.Dataset, code: UserCode) -> dict[str, list[str]]:
    """The names and places of the user's functions, such as `load (train.py:12)`, by the kind of operation that calls
    them. They are in order from the source on.

    Empty if this fails: a name in a report must not end a training.
    """
    try:
        return _user_functions(data, code)
    except Exception:  # noqa: BLE001 - private names of TensorFlow, and attributes of a user's objects, may raise anything
        return {}


def _user_functions(data: tf.data.Dataset, code: UserCode) -> dict[str, list[str]]:
    functions: dict[str, list[str]] = {}
    for each in _chain(data):
        kind = KINDS.get(type(each).__name__)
        # Private names of TensorFlow: if a version lacks them, stages have no function's name.
        function = getattr(getattr(each, "_map_func", None), "_func", None)
        if kind is None or function is None:
            continue
        theirs = next(_owned(function, code, DEEPEST), None)
        if theirs is not None and (kind == "Map" or theirs is not function):
            file, line = theirs.__code__.co_filename, theirs.__code__.co_firstlineno
            functions.setdefault(kind, []).append(f"{theirs.__name__} ({code.name_of(file)}:{line})")
    return functions


def _chain(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    for source in data._inputs():
        yield from _chain(source)
    yield data


def _owned(value: Any, code: UserCode, depth: int) -> Iterator[FunctionType]:
    """The user's functions that a function or an object contains, the outermost first."""
    value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, FunctionType):
        if code.owns_file(value.__code__.co_filename):
            yield value
            return
        inner: list[Any] = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
    else:
        inner = list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []
    for item in inner if depth else ():
        if isinstance(item, FunctionType | MethodType) or type(item).__module__.startswith(_OF_TENSORFLOW):
            yield from _owned(item, code, depth - 1)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
