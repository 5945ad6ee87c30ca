"""Finds state of a user's code that no checkpoint holds, in the source of its classes and functions. On resuming, a
PyDataset and callbacks are made again, and on_epoch_begin and on_epoch_end are called again for earlier passes, so that
these repeat their changes, but neither draws from global random states nor changes by other methods.
"""

from __future__ import annotations

import ast
import inspect
import random
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..checkpoint import callback_state
from ..checkpoint.object_graph import Module
from ..checkpoint.training_state import KeptValue
from .iterated import Once, is_torch, passes_of

REPEATED = ("__init__", "on_epoch_begin", "on_epoch_end")
GLOBAL_STATES = ("np.random", "numpy.random", "random")
GENERATORS = ("default_rng", "RandomState", "Random", "Generator", "SeedSequence")
CHANGES = ("append", "appendleft", "extend", "insert", "pop", "popleft", "remove", "update", "clear", "setdefault")
# Yields the statements of a method that a resumed run does not repeat: a text for each, and its line in the class (from
# 1).
Inexact = Callable[[ast.FunctionDef], Iterator[tuple[str, int]]]
INSTEAD = (
    "draw in on_epoch_end from a generator that __init__ makes, such as np.random.default_rng(seed), and keep nothing "
    "in other methods"
)


def inexact(data: keras.utils.PyDataset) -> list[str]:
    """Return texts such as `Data.on_epoch_end draws from np.random (train.py:14)`, for what no resumed run repeats."""
    return _of_methods(data, keras.utils.PyDataset, _inexact)


@dataclass(frozen=True)
class _Method:
    name: str
    code: ast.FunctionDef
    file: str
    first: int  # the line before the code
    function: Any = None

    def text(self, what: str, line: int) -> str:
        return f"{self.name} {what} ({self.file}:{self.first + line})"


def _of_methods(value: object, base: type, inexact_of: Inexact) -> list[str]:
    # the first place of each method
    places = ((method, next(inexact_of(method.code), None)) for method in _methods(value, base))
    return [method.text(*place) for method, place in places if place is not None]


def _methods(value: object, base: type) -> list[_Method]:
    # those of the user's classes, of which a class that inherits overrides
    methods: dict[str, _Method] = {}
    for kind in reversed(type(value).__mro__):
        if issubclass(kind, base) and not kind.__module__.startswith("keras."):
            tree, file, first = _source(kind)
            for code in tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else ():
                if isinstance(code, ast.FunctionDef):
                    function = getattr(kind, code.name, None)
                    methods[code.name] = _Method(f"{kind.__name__}.{code.name}", code, file, first, function)
    return list(methods.values())


def _source(value: type | FunctionType | CodeType) -> tuple[ast.Module, str, int]:
    # Empty if there is no source; with the name of its file and the line before it.
    try:
        lines, first = inspect.getsourcelines(value)
        return ast.parse(textwrap.dedent("".join(lines))), Path(inspect.getsourcefile(value) or "").name, first - 1
    except (OSError, TypeError, SyntaxError, ValueError):
        return ast.Module([], []), "", 0


def _nodes(method: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    return (node for node in ast.walk(method) if isinstance(node, ast.stmt | ast.expr))


def _draws_from(called: str) -> str:
    """Return the module from whose global state a call draws, if it does."""
    module, _, name = called.rpartition(".")
    return module if module in GLOBAL_STATES and name not in GENERATORS else ""


def _inexact(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for node in _nodes(method):
        if isinstance(node, ast.Call) and method.name != "__init__" and (module := _draws_from(ast.unparse(node.func))):
            yield f"draws from {module}", node.lineno
        if method.name not in REPEATED:
            yield from ((f"changes {kept}", node.lineno) for kept in _changed(node, method))


def _changed(node: ast.AST, method: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes of the object, the first argument of its method, that a statement changes."""
    me = method.args.args[0].arg if method.args.args else ""
    for target in _targets(node):
        while isinstance(target, ast.Attribute | ast.Subscript):
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me:
                yield f"{me}.{target.attr}"
                break
            target = target.value


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [part for target in node.targets for part in _unpacked(target)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        return _unpacked(node.func.value)
    return _unpacked(node.target) if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _unpacked(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for item in target.elts for part in _unpacked(item)]
    return _unpacked(target.value) if isinstance(target, ast.Starred) else [target]


# ---- callbacks ------------------------------------------------------------------------------------


_CALLED_AGAIN = ("__init__", "set_model", "set_params", "on_train_begin", "on_train_end", *callback_state.PAIR)
_OF_KERAS = ("model", "params")  # attributes that Keras sets; a checkpoint has the model
_OF_WEIGHTS = ("get_weights", "weights", "trainable_weights", "variables", "trainable_variables", "predict", "evaluate")
GIVE_STATE = "keep it in a callback class with get_state(), which returns a dict, and set_state(state)"


def of_callbacks(callbacks: Sequence[keras.callbacks.Callback]) -> list[KeptValue]:
    """Return what they keep without get_state: `Counts.on_epoch_end changes self.seen (train.py:14)`."""
    changed: dict[tuple[int, str], KeptValue] = {}
    for callback in callbacks:
        own = [] if callback_state.gives_state(callback) else _methods(callback, keras.callbacks.Callback)
        for method in (*own, *_functions_of(callback)):
            for place, line in _counting(method.code):
                owner, name = _owner(callback, method, place)
                what = f"changes {place}"
                kept = KeptValue(f"{type(callback).__name__} {what}", owner, name, method.text(what, line))
                changed.setdefault((id(getattr(owner, "values", owner)), name), kept)
    return list(changed.values())


def _owner(callback: keras.callbacks.Callback, method: _Method, kept: str) -> tuple[Any, str]:
    root, _, name = kept.partition(".")
    if name and root == next((argument.arg for argument in method.code.args.args), ""):
        return callback, name
    function = inspect.unwrap(getattr(method.function, "__func__", method.function))
    if not isinstance(function, FunctionType):
        return None, root
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return (cells[root], "cell_contents") if root in cells else (Module(function.__globals__), root)


def _functions_of(callback: keras.callbacks.Callback) -> Iterator[_Method]:
    # the user's functions in a callback, such as Keras' LambdaCallback
    for called, function in vars(callback).items():
        if isinstance(function, FunctionType) and not function.__module__.startswith("keras."):
            tree, file, first = _source(function)
            for node in ast.walk(tree):  # the lines of a lambda may be those of another function, whose argument it is
                is_it = getattr(node, "name", "<lambda>") == function.__name__
                if isinstance(node, ast.FunctionDef | ast.Lambda) and node.args.args and is_it:
                    body = node.body if isinstance(node.body, list) else [ast.Expr(node.body, lineno=node.lineno)]
                    method = ast.FunctionDef(called, node.args, [*body], [], lineno=node.lineno)
                    yield _Method(f"the function of {type(callback).__name__}", method, file, first, function)


def _counting(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    if method.name in _CALLED_AGAIN:
        return
    nodes = list(ast.walk(method))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    local = ({node.arg for node in nodes if isinstance(node, ast.arg)} | bound) - declared
    for node in _nodes(method):
        for kept in [*_changed(node, method), *_changed_globals(node, local)]:
            if kept.partition(".")[2] not in _OF_KERAS and not _begins(method, node, kept):
                yield kept, node.lineno


def _changed_globals(node: ast.AST, local: set[str]) -> list[str]:
    """Return the names of variables outside of the method that a statement changes, or of which it changes a part."""
    names = []
    statement = node.value if isinstance(node, ast.Expr) else node  # np.append, whose result is used, changes nothing
    for target in [] if isinstance(node, ast.Call) else _targets(statement):
        while isinstance(target, ast.Subscript):
            target = target.value
        if (name := ast.unparse(target)).partition(".")[0] not in local and name.replace(".", "").isidentifier():
            names.append(name)
    return names


def _begins(method: ast.FunctionDef, node: ast.AST, kept: str) -> bool:
    """Return True if it sets `kept` at the begin of each epoch or batch anew, before the value is needed."""
    if not method.name.endswith("_begin") or not isinstance(node, ast.Assign) or node not in method.body:
        return False
    if any(getattr(part, "attr", "") in _OF_WEIGHTS for part in ast.walk(node.value)):
        return False  # a run that is resumed within an epoch has other weights when the method is called again
    return all(ast.unparse(part) != kept for part in ast.walk(node.value))


def replacing_steps(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """Return a text such as `Unfreeze.on_epoch_begin calls make_train_function (train.py:14)` for each such method."""
    return [text for callback in callbacks for text in _of_methods(callback, keras.callbacks.Callback, _replacing)]


def _replacing(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "make_train_function":
            yield "calls make_train_function", node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "train_function" and isinstance(node.ctx, ast.Store):
            yield "sets train_function", node.lineno


WITHIN = "make the random generator within the function, such as rng = np.random.default_rng(seed)"
STATEFUL = "return a function that makes it, or give it the methods get_state() and set_state(state), as Grain's have"
DEEPEST = 3  # from the user's function to one that it calls by way of others
CLOSED = "<closed>"  # holds the variables of the enclosing function and the attributes of the object
_RANDOM = (np.random.Generator, np.random.RandomState, random.Random, tf.random.Generator, keras.random.SeedGenerator)


def inexact_iterable(data: Any, owns_file: Callable[[str], bool]) -> tuple[list[str], str]:
    """Return texts on what a resumed run does not repeat, and what to do about it. A function is exact if each pass
    depends only on numbers from a generator made within it, as its code shows, and that of functions it names.
    """
    passes = passes_of(data)
    if is_torch(data):  # torch's own random states are in checkpoints
        if data.num_workers and data.persistent_workers:
            what = "the processes of the DataLoader keep their random states from pass to pass"
            return [f"{what}, and a resumed run begins them with others"], "set persistent_workers=False"
        if data.num_workers > 1 and not getattr(data, "in_order", True):
            return ["with in_order=False the order of batches depends on the processes' speed"], "set in_order=True"
        parts = [data.sampler, data.batch_sampler, *([] if data.num_workers else [data.dataset])]
        functions = [method for part in parts for method in _called(part, "__iter__", "__getitem__")]
        return _drawing(functions, owns_file, closures=True), "draw with torch.rand and the like"
    if passes is None or passes.exact:
        return [], ""
    if isinstance(data, GeneratorType):
        functions = [] if data.gi_frame is None else [(data.gi_code, {**data.gi_frame.f_globals})]
    elif isinstance(data, FunctionType | MethodType):
        functions = [_named(data)]
    else:
        functions = _called(data, "__iter__", "__next__", "__call__")
    if not any(owns_file(code.co_filename) for code, _ in functions):
        what = f"{passes.name} keeps its place to itself: a resumed run draws its first batches again and leaves them"
        return [f"{what} out, and later batches are the same only if they depend on nothing else"], STATEFUL
    # Variables that only a generator of one pass reaches begin again with it, and its batches are then drawn again.
    return _drawing(functions, owns_file, closures=not isinstance(passes, Once)), WITHIN


_Function = tuple[CodeType, dict[str, Any]]  # with its global names, and others in CLOSED


def _drawing(functions: Sequence[_Function], owns_file: Callable[[str], bool], closures: bool) -> list[str]:
    theirs = [function for function in functions if owns_file(function[0].co_filename)]
    places = [place for function in theirs for place in _of_code(*function, owns_file, DEEPEST, closures)]
    return [f"{place}: a resumed run draws other numbers" for place in dict.fromkeys(places)]


def _called(value: Any, *names: str) -> list[_Function]:
    methods = (getattr(type(value), name, None) for name in names)
    return [_named(method, value) for method in methods if isinstance(method, FunctionType)]


def _named(function: FunctionType | MethodType, owner: Any = None) -> _Function:
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
    """Yield places that draw from a random state which begins elsewhere, in the code and functions it names."""
    (tree, file, first), closed = _source(code), names.get(CLOSED, {}) if closures else {}
    for node in (part for part in ast.walk(tree) if isinstance(part, ast.Call)):
        called = ast.unparse(node.func)
        owner = called.rpartition(".")[0]
        place = f"({file}:{first + node.lineno})"
        value = closed.get(owner, names.get(owner))
        if _draws_from(called):
            yield f"{code.co_name} draws from {owner} {place}"
        elif isinstance(value, _RANDOM):
            yield f"{code.co_name} draws from {owner}, which is made outside of it {place}"
        function = closed.get(called, names.get(called))
        if depth and isinstance(function, FunctionType) and owns_file(function.__code__.co_filename):
            inner, within = _named(function)
            if inner is not code:
                yield from _of_code(inner, within, owns_file, depth - 1, closures)
