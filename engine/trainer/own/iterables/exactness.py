"""Finds what prevents a resumed run from getting the very batches of a user's generator, function or iterable again.

A function is exact if each of its passes depends only on numbers that it draws from a generator made within it. Its
code shows that, together with the code of the user's functions that it names.
"""

from __future__ import annotations

import ast
import inspect
import random
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..unsaved_state import GENERATORS, GLOBAL_STATES
from .kinds import Once
from .recognised import is_torch, passes_of

WITHIN = "make the random generator within the function, such as rng = np.random.default_rng(seed)"
STATEFUL = "return a function that makes it, or give it the methods get_state() and set_state(state), as Grain's have"
DEEPEST = 3  # from the user's function to one that it calls by way of others
CLOSED = "<closed>"  # holds the variables of the enclosing function and the attributes of the object
_RANDOM = (np.random.Generator, np.random.RandomState, random.Random, tf.random.Generator, keras.random.SeedGenerator)


def inexact(data: Any, owns_file: Callable[[str], bool]) -> tuple[list[str], str]:
    """Return texts on what is not repeated in a resumed run, and what to do about it. Empty if there is nothing.

    `owns_file` says if a file belongs to the user's code.
    """
    passes = passes_of(data)
    if is_torch(data):
        return _of_loader(data, owns_file)
    if passes is None or passes.exact:
        return [], ""
    functions = [function for function in _functions(data) if owns_file(function[0].co_filename)]
    if not functions:
        what = (
            f"{passes.name} keeps its place to itself: a resumed run draws its first batches again and leaves them out"
        )
        return [f"{what}, and later batches are the same only if they depend on nothing else"], STATEFUL
    # Variables that only a generator of one pass reaches begin again with it, and its batches are then drawn again.
    places = [
        place
        for code, names in functions
        for place in _of_code(code, names, owns_file, DEEPEST, closures=not isinstance(passes, Once))
    ]
    return [f"{place}: a resumed run draws other numbers" for place in dict.fromkeys(places)], WITHIN


def _of_loader(loader: Any, owns_file: Callable[[str], bool]) -> tuple[list[str], str]:
    """Return what `inexact` returns for a DataLoader of torch, whose own random states are in checkpoints."""
    if loader.num_workers and loader.persistent_workers:
        what = (
            "the processes of the DataLoader keep their random states from pass to pass, and a resumed run begins them"
        )
        return [f"{what} with others"], "set persistent_workers=False"
    if loader.num_workers > 1 and not getattr(loader, "in_order", True):
        return ["with in_order=False the order of batches depends on the processes' speed"], "set in_order=True"
    parts = [loader.sampler, loader.batch_sampler, *([] if loader.num_workers else [loader.dataset])]
    methods = [(getattr(type(part), name, None), part) for part in parts for name in ("__iter__", "__getitem__")]
    places = [
        place
        for method, part in methods
        if isinstance(method, FunctionType) and owns_file(method.__code__.co_filename)
        for place in _of_code(*_named(method, part), owns_file, DEEPEST, closures=True)
    ]
    what = "a resumed run draws other numbers"
    return [f"{place}: {what}" for place in dict.fromkeys(places)], "draw with torch.rand and the like"


def _functions(data: Any) -> list[tuple[CodeType, dict[str, Any]]]:
    if isinstance(data, GeneratorType):
        frame = data.gi_frame
        return [] if frame is None else [(data.gi_code, {**frame.f_globals})]
    if isinstance(data, FunctionType | MethodType):
        return [_named(data)]
    methods = [getattr(type(data), name, None) for name in ("__iter__", "__next__", "__call__")]
    return [_named(method, data) for method in methods if isinstance(method, FunctionType)]


def _named(function: FunctionType | MethodType, owner: Any = None) -> tuple[CodeType, dict[str, Any]]:
    owner = getattr(function, "__self__", owner)
    plain: Any = getattr(function, "__func__", function)
    try:
        closed = dict(inspect.getclosurevars(plain).nonlocals)
    except ValueError:  # a variable of the enclosing function has no value yet
        closed = {}
    if hasattr(owner, "__dict__"):
        closed |= {f"self.{name}": value for name, value in vars(owner).items()}
    return plain.__code__, {**plain.__globals__, CLOSED: closed}


def _of_code(
    code: CodeType, names: dict[str, Any], owns_file: Callable[[str], bool], depth: int, closures: bool
) -> Iterator[str]:
    """Yield places in the code that draw from a random state which begins elsewhere, and those of functions that it
    names, up to `depth` of them deep. `closures`: variables of the enclosing function count.
    """
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    file, closed = Path(code.co_filename).name, names.get(CLOSED, {}) if closures else {}
    for node in (part for part in ast.walk(tree) if isinstance(part, ast.Call)):
        called = ast.unparse(node.func)
        owner, _, method = called.rpartition(".")
        place = f"({file}:{first + node.lineno - 1})"
        value = closed.get(owner, names.get(owner))
        if owner in GLOBAL_STATES and method not in GENERATORS:
            yield f"{code.co_name} draws from {owner} {place}"
        elif isinstance(value, _RANDOM):
            yield f"{code.co_name} draws from {owner}, which is made outside of it {place}"
        function = closed.get(called, names.get(called))
        if depth and isinstance(function, FunctionType) and owns_file(function.__code__.co_filename):
            inner, within = _named(function)
            if inner is not code:
                yield from _of_code(inner, within, owns_file, depth - 1, closures)
