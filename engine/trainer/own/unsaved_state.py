"""Finds state of a user's code that no checkpoint holds, in the source of its classes and functions. A checkpoint has
the attributes of a PyDataset and the global random states of its step, but batches are loaded ahead of it. If whole
passes are, on_epoch_begin and on_epoch_end are called again for the earlier ones, and draw from other states.
"""

from __future__ import annotations

import ast
import contextlib
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
INSTEAD = (
    "draw in on_epoch_end from a generator that __init__ makes, such as np.random.default_rng(seed), and keep nothing "
    "in other methods"
)


@dataclass(frozen=True)
class SourceCode:
    """The source of a user's function, with its `name` in texts; the name of its `tree` is that of its call."""

    name: str
    function: Any
    tree: ast.FunctionDef  # without statements if there is no source
    file: str = ""
    before: int = 0  # the line before it

    def text(self, what: str, line: int) -> str:
        return f"{self.name} {what} ({self.file}:{self.before + line})"

    def calls(self) -> Iterator[tuple[str, int]]:
        """Yield the names of the functions that are called, such as `np.random.normal`, each with its line."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return ((ast.unparse(call.func), call.lineno) for call in calls)

    def changes(self) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
        """Yield what outlives a call and is changed, `self.seen` (of the first argument) or a name, and by what."""
        nodes, me = list(ast.walk(self.tree)), self.tree.args.args[0].arg if self.tree.args.args else ""
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        local = ({node.arg for node in nodes if isinstance(node, ast.arg)} | bound) - declared
        for node in (each for each in nodes if isinstance(each, ast.stmt | ast.expr)):
            for target in _targets(node.value if isinstance(node, ast.Expr) else node):
                while isinstance(target, ast.Attribute | ast.Subscript):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == me:
                        yield f"{me}.{target.attr}", node
                    target = target.value
                # np.append, whose result is used, changes nothing
                if isinstance(target, ast.Name) and target.id not in local and not isinstance(node, ast.Call):
                    yield target.id, node


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [part for target in node.targets for part in _unpacked(target)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        return [node.func.value]
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _unpacked(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for item in target.elts for part in _unpacked(item)]
    return _unpacked(target.value) if isinstance(target, ast.Starred) else [target]


def _source(function: FunctionType | CodeType, name: str = "", called: str = "") -> SourceCode:
    code = function if isinstance(function, CodeType) else inspect.unwrap(function).__code__
    name, arguments = name or code.co_name, ast.arguments([], [], None, [], [], None, [])
    try:
        lines, first = inspect.getsourcelines(code)
        for node in ast.walk(ast.parse(textwrap.dedent("".join(lines)))):
            # The lines of a lambda may be those of another function, whose argument it is.
            if isinstance(node, ast.FunctionDef | ast.Lambda) and getattr(node, "name", "<lambda>") == code.co_name:
                body = node.body if isinstance(node, ast.FunctionDef) else [ast.Expr(node.body, lineno=node.lineno)]
                tree = ast.FunctionDef(called, node.args, [*body], [])
                return SourceCode(name, function, tree, Path(code.co_filename).name, first - 1)
    except (OSError, TypeError, SyntaxError, ValueError):
        pass
    return SourceCode(name, function, ast.FunctionDef(called, arguments, [], []))


def _methods(value: object, base: type) -> list[SourceCode]:
    # those of the user's classes, of which a class that inherits overrides
    methods: dict[str, SourceCode] = {}
    for kind in reversed(type(value).__mro__):
        if issubclass(kind, base) and not kind.__module__.startswith("keras."):
            functions = ((name, inspect.unwrap(each)) for name, each in vars(kind).items())
            methods |= {
                name: _source(each, f"{kind.__name__}.{name}", name)
                for name, each in functions
                if isinstance(each, FunctionType)
            }
    return list(methods.values())


def _draws_from(called: str) -> str:
    """Return the module from whose global state a call draws, if it does."""
    module, _, name = called.rpartition(".")
    return module if module in GLOBAL_STATES and name not in GENERATORS else ""


def inexact(data: keras.utils.PyDataset, passes_ahead: bool) -> list[str]:
    """Return texts such as `Data.__getitem__ draws from np.random (train.py:14)`, for what no resumed run repeats."""
    texts = list[str]()
    for method in _methods(data, keras.utils.PyDataset):
        name, calls, places = method.tree.name, method.calls(), list[tuple[str, int]]()
        if name not in REPEATED or (passes_ahead and name != "__init__"):
            places += [(f"draws from {module}", line) for called, line in calls if (module := _draws_from(called))]
        if name not in REPEATED:
            places += [(f"changes {kept}", by.lineno) for kept, by in method.changes() if "." in kept]
        texts += [method.text(*place) for place in places[:1]]
    return texts


def replacing_steps(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """Return a text such as `Unfreeze.on_epoch_begin calls make_train_function (train.py:14)` for each such method."""

    def is_set(node: ast.Attribute) -> bool:
        return node.attr == "train_function" and isinstance(node.ctx, ast.Store)

    texts = list[str]()
    for method in (method for each in callbacks for method in _methods(each, keras.callbacks.Callback)):
        makes = [line for called, line in method.calls() if called.endswith(".make_train_function")]
        sets = [kept.lineno for kept in ast.walk(method.tree) if isinstance(kept, ast.Attribute) and is_set(kept)]
        texts += [method.text("calls make_train_function", line) for line in makes[:1]]
        texts += [method.text("sets train_function", line) for line in sets[:1]]
    return texts


# ---- callbacks ------------------------------------------------------------------------------------


_CALLED_AGAIN = ("__init__", "set_model", "set_params", "on_train_begin", "on_train_end", *callback_state.PAIR)
_OF_KERAS = ("model", "params")  # attributes that Keras sets; a checkpoint has the model
_OF_WEIGHTS = ("get_weights", "weights", "trainable_weights", "variables", "trainable_variables", "predict", "evaluate")
GIVE_STATE = "keep it in a callback class with get_state(), which returns a dict, and set_state(state)"


def of_callbacks(callbacks: Sequence[keras.callbacks.Callback]) -> list[KeptValue]:
    """Return what they keep without get_state: `Counts.on_epoch_end changes self.seen (train.py:14)`."""
    changed: dict[tuple[int, str], KeptValue] = {}
    for callback in callbacks:
        kind = type(callback).__name__
        own = [] if callback_state.gives_state(callback) else _methods(callback, keras.callbacks.Callback)
        functions = [  # the user's functions in a callback, such as Keras' LambdaCallback
            _source(function, f"the function of {kind}", called)
            for called, function in vars(callback).items()
            if isinstance(function, FunctionType) and not function.__module__.startswith("keras.")
        ]
        for source in (each for each in (*own, *functions) if each.tree.name not in _CALLED_AGAIN):
            for place, by in source.changes():
                if place.partition(".")[2] not in _OF_KERAS and not _begins(source.tree, by, place):
                    owner, name = _owner(callback, source, place)
                    kept = KeptValue(f"{kind} changes {place}", owner, name, source.text(f"changes {place}", by.lineno))
                    changed.setdefault((id(getattr(owner, "values", owner)), name), kept)
    return list(changed.values())


def _owner(callback: keras.callbacks.Callback, source: SourceCode, kept: str) -> tuple[Any, str]:
    if "." in kept:
        return callback, kept.partition(".")[2]
    function = inspect.unwrap(source.function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return (cells[kept], "cell_contents") if kept in cells else (Module(function.__globals__), kept)


def _begins(method: ast.FunctionDef, node: ast.AST, kept: str) -> bool:
    """Return True if it sets `kept` at the begin of each epoch or batch anew, before the value is needed."""
    if not method.name.endswith("_begin") or not isinstance(node, ast.Assign) or node not in method.body:
        return False
    if any(getattr(part, "attr", "") in _OF_WEIGHTS for part in ast.walk(node.value)):
        return False  # a run that is resumed within an epoch has other weights when the method is called again
    return all(ast.unparse(part) != kept for part in ast.walk(node.value))


# ---- data that is read by iterating over it --------------------------------------------------------


WITHIN = "make the random generator within the function, such as rng = np.random.default_rng(seed)"
STATEFUL = "return a function that makes it, or give it the methods get_state() and set_state(state), as Grain's have"
DEEPEST = 3  # from the user's function to one that it calls by way of others
_RANDOM = (np.random.Generator, np.random.RandomState, random.Random, tf.random.Generator, keras.random.SeedGenerator)


def inexact_iterable(data: Any, owns_file: Callable[[str], bool]) -> tuple[list[str], str]:
    """Return texts on what a resumed run does not repeat, and what to do about it. A function is exact if each pass
    depends only on numbers from a generator made within it, as its code shows, and that of functions it names.
    """
    passes, owners, remedy = passes_of(data), [data], WITHIN
    names_called: tuple[str, ...] = ("__iter__", "__next__", "__call__")
    if is_torch(data):  # torch's own random states are in checkpoints
        if data.num_workers and data.persistent_workers:
            what = "the processes of the DataLoader keep their random states from pass to pass"
            return [f"{what}, and a resumed run begins them with others"], "set persistent_workers=False"
        if data.num_workers > 1 and not getattr(data, "in_order", True):
            return ["with in_order=False the order of batches depends on the processes' speed"], "set in_order=True"
        owners = [data.sampler, data.batch_sampler, *([] if data.num_workers else [data.dataset])]
        names_called, remedy = ("__iter__", "__getitem__"), "draw with torch.rand and the like"
    elif passes is None or passes.exact:
        return [], ""
    # Variables that only a generator of one pass reaches begin again with it, and its batches are then drawn again.
    closures = not isinstance(passes, Once)
    if isinstance(data, GeneratorType):
        functions = [] if data.gi_frame is None else [(data.gi_code, {**data.gi_frame.f_globals})]
    elif isinstance(data, FunctionType | MethodType):
        functions = [_with_names(data, closures)]
    else:
        methods = [(getattr(type(owner), name, None), owner) for owner in owners for name in names_called]
        functions = [_with_names(each, closures, of) for each, of in methods if isinstance(each, FunctionType)]

    def owns(code: CodeType) -> bool:
        return owns_file(code.co_filename)

    theirs = [function for function in functions if owns(function[0])]
    if passes is not None and not passes.exact and not theirs:
        what = f"{passes.name} keeps its place to itself: a resumed run draws its first batches again and leaves them"
        return [f"{what} out, and later batches are the same only if they depend on nothing else"], STATEFUL

    def drawing(code: CodeType, names: dict[str, Any], depth: int = DEEPEST) -> Iterator[str]:
        # places that draw from a random state which begins elsewhere, in the code and functions it names
        source = _source(code)
        for called, line in source.calls():
            owner = called.rpartition(".")[0]
            if _draws_from(called):
                yield source.text(f"draws from {owner}", line)
            elif isinstance(names.get(owner), _RANDOM):
                yield source.text(f"draws from {owner}, which is made outside of it", line)
            inner = names.get(called)
            if depth and isinstance(inner, FunctionType) and inner.__code__ is not code and owns(inner.__code__):
                yield from drawing(*_with_names(inner, closures), depth - 1)

    places = dict.fromkeys(place for function in theirs for place in drawing(*function))
    return [f"{place}: a resumed run draws other numbers" for place in places], remedy


def _with_names(function: Any, closures: bool, owner: Any = None) -> tuple[CodeType, dict[str, Any]]:
    """Return the function's code, and the values of the names in it: with `closures`, also those of the enclosing
    function and the attributes of the object.
    """
    owner, plain = getattr(function, "__self__", owner), getattr(function, "__func__", function)
    names = dict(plain.__globals__)
    if closures:
        with contextlib.suppress(ValueError):  # a variable of the enclosing function has no value yet
            names |= inspect.getclosurevars(plain).nonlocals
        names |= {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
    return plain.__code__, names
