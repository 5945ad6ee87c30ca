"""Finds state of a user's code that no checkpoint holds: kept by a PyDataset or a callback, or by random operations of
a step. Finds callbacks that replace the training step, too.

On resuming, a new PyDataset is made, and on_epoch_begin and on_epoch_end are called again for the earlier passes. So
their changes of the PyDataset's attributes are repeated exactly. Draws from a global random state are not repeated, nor
are changes of attributes by other methods.

A callback is made again too. What its class keeps in attributes is in a checkpoint only if it has get_state and
set_state (../checkpoint/callback_state.py).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras

from ..checkpoint import callback_state, object_graph
from ..measure.run_report import RunReport
from .user_code import UserCode

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
    """Return texts on methods of the PyDataset whose effects a resumed run does not repeat, at most one for each
    method.

    A text is such as `Data.on_epoch_end draws from np.random (train.py:14)`. Empty if there are none.
    """
    return _of_methods(data, keras.utils.PyDataset, _inexact)


def _of_methods(value: object, base: type, inexact_of: Inexact) -> list[str]:
    """Return a text for each method with a statement that `inexact_of` yields, of the user's classes of `value` below
    `base`.
    """
    by_method: dict[str, str] = {}
    for kind in reversed(type(value).__mro__):
        if issubclass(kind, base) and not kind.__module__.startswith("keras."):
            by_method |= dict(_of_class(kind, inexact_of))
    return list(by_method.values())


def _of_class(kind: type, inexact_of: Inexact) -> Iterator[tuple[str, str]]:
    try:
        lines, first = inspect.getsourcelines(kind)
        file = Path(inspect.getsourcefile(kind) or "").name
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    assert isinstance(tree, ast.ClassDef)
    for method in tree.body:
        if isinstance(method, ast.FunctionDef) and (first_place := next(inexact_of(method), None)):
            what, line = first_place
            yield method.name, f"{kind.__name__}.{method.name} {what} ({file}:{first + line - 1})"


def _inexact(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """Yield the statements of a method that a resumed run does not repeat: a text for each, and its line in the class
    (from 1).
    """
    me = method.args.args[0].arg if method.args.args else ""
    for node in (part for part in ast.walk(method) if isinstance(part, ast.stmt | ast.expr)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and method.name != "__init__":
            module, called = ast.unparse(node.func.value), node.func.attr
            if module in GLOBAL_STATES and called not in GENERATORS:
                yield f"draws from {module}", node.lineno
        if method.name not in REPEATED:
            yield from ((f"changes {kept}", node.lineno) for kept in _changed(node, me))


def _changed(node: ast.AST, me: str) -> list[str]:
    """Return the attributes of the object that a statement changes. `me` is the name of the `self` parameter."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        targets = [node.func.value]
    return [name for target in targets for part in _unpacked(target) if (name := _attribute(part, me))]


def _unpacked(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for item in target.elts for part in _unpacked(item)]
    return _unpacked(target.value) if isinstance(target, ast.Starred) else [target]


def _attribute(target: ast.expr, me: str) -> str:
    while isinstance(target, ast.Attribute | ast.Subscript):
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me:
            return f"{me}.{target.attr}"
        target = target.value
    return ""


# ---- callbacks ------------------------------------------------------------------------------------


_CALLED_AGAIN = ("__init__", "set_model", "set_params", "on_train_begin", "on_train_end", *callback_state.PAIR)
_OF_KERAS = ("model", "params")  # attributes that Keras sets; a checkpoint has the model
_OF_WEIGHTS = ("get_weights", "weights", "trainable_weights", "variables", "trainable_variables", "predict", "evaluate")
GIVE_STATE = "give the class get_state(), which returns a dict, and set_state(state)"


def of_callbacks(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """Return texts on methods of the callbacks that change attributes which no checkpoint holds.

    A text is such as `Counts.on_epoch_end changes self.seen (train.py:14)`.
    """
    classes = {type(callback): callback for callback in callbacks if not callback_state.gives_state(callback)}
    return [
        text for callback in classes.values() for text in _of_methods(callback, keras.callbacks.Callback, _counting)
    ]


def _counting(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    if method.name in _CALLED_AGAIN:
        return
    me = method.args.args[0].arg if method.args.args else ""
    local = _local_names(method)
    for node in (part for part in ast.walk(method) if isinstance(part, ast.stmt | ast.expr)):
        for kept in [*_changed(node, me), *_changed_globals(node, local)]:
            if kept.partition(".")[2] not in _OF_KERAS and not _begins(method, node, kept):
                yield f"changes {kept}", node.lineno


def _local_names(method: ast.FunctionDef) -> set[str]:
    nodes = list(ast.walk(method))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return ({node.arg for node in nodes if isinstance(node, ast.arg)} | bound) - declared


def _changed_globals(node: ast.AST, local: set[str]) -> list[str]:
    """Return the names of variables outside of the method that a statement sets, or of which it sets an item."""
    if not isinstance(node, ast.Assign | ast.AugAssign):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = []
    for target in (part for each in targets for part in _unpacked(each)):
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name) and target.id not in local:
            names.append(target.id)
    return names


def _begins(method: ast.FunctionDef, node: ast.AST, kept: str) -> bool:
    """Return True if the statement sets the attribute `kept` at the begin of each epoch or batch from other values: the
    method is called again before the value is needed.
    """
    if not method.name.endswith("_begin") or not isinstance(node, ast.Assign) or node not in method.body:
        return False
    if any(getattr(part, "attr", "") in _OF_WEIGHTS for part in ast.walk(node.value)):
        return False  # a run that is resumed within an epoch has other weights when the method is called again
    return all(ast.unparse(part) != kept for part in ast.walk(node.value))


def replacing_steps(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """Return texts on methods of the callbacks that replace the function of the model's training steps.

    A text is such as `Unfreeze.on_epoch_begin calls make_train_function (train.py:14)`.
    """
    return [text for callback in callbacks for text in _of_methods(callback, keras.callbacks.Callback, _replacing)]


def _replacing(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "make_train_function":
            yield "calls make_train_function", node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "train_function" and isinstance(node.ctx, ast.Store):
            yield "sets train_function", node.lineno


# ---- random operations ----------------------------------------------------------------------------


MOST_NAMED = 4
STATEFUL_DRAWS = (
    "draw with keras.random and a keras.random.SeedGenerator that the model keeps, or with a tf.random.Generator: "
    "their states are saved"
)


def warn_of_draws(graph: object, code: UserCode, model: keras.Model, report: RunReport) -> None:
    """Warn about operations in the graph of a step whose random numbers start again in a resumed run. No warning if
    there are none.
    """
    places = list(dict.fromkeys(_place_of_draw(draw, code, model) for draw in object_graph.draws(graph)))
    if not places:
        return
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    verb = "draws" if len(places) == 1 else "draw"
    report.warn(
        "random_anew",
        f"{', '.join(places[:MOST_NAMED])}{more} {verb} from a random state of TensorFlow that cannot be saved: it "
        "starts again, so that losses differ from those of a run that was not interrupted",
        STATEFUL_DRAWS,
    )


def _place_of_draw(draw: object_graph.Draw, code: UserCode, model: keras.Model) -> str:
    """Return a text that names the operation and the innermost line of the user's code that draws.

    If no line of the user's code draws, but for example a layer of Keras, the text names the model.
    """
    theirs = [line for line in draw.lines if code.owns_file(line[0])]
    if not theirs:
        return f"{draw.name} in a step of {type(model).__name__}"
    file, line, function = theirs[-1]
    return f"{draw.name} in {function} ({code.name_of(file)}:{line})"
