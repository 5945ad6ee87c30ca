"""What a user's code draws from TensorFlow's own random state, found in its source: a plain script draws others.

TensorFlow seeds such an operation by its place in the graph, and the graph of Keras' fit is another than gputui's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

DRAWS = frozenset({
    "normal", "uniform", "truncated_normal", "shuffle", "categorical", "gamma", "poisson", "random_crop",
})  # fmt: skip
MOST_TOLD = 5
MOST_BYTES = 1_000_000


def told(file: Path) -> list[str]:
    """`tf.random.normal in train_step (train.py:12)` for each draw within a function of the file, if it is readable."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return []
        tree = ast.parse(file.read_bytes())
        return [f"{name} in {function} ({file.name}:{line})" for name, function, line in _draws(tree, "")]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _draws(node: ast.AST, function: str) -> Iterator[tuple[str, str, int]]:
    for inner in ast.iter_child_nodes(node):
        within = inner.name if isinstance(inner, ast.FunctionDef) else function
        if within and isinstance(inner, ast.Call) and (name := _stateful(inner)):
            yield name, within, inner.lineno
        yield from _draws(inner, within)


def _stateful(call: ast.Call) -> str:
    """The name of a call such as tf.random.normal(...) that gives no seed of its own."""
    name = ast.unparse(call.func) if isinstance(call.func, ast.Attribute) else ""
    package, _, operation = name.rpartition(".")
    plain = package in ("tf.random", "tensorflow.random", "tf.image", "tensorflow.image") and operation in DRAWS
    seeded = any(keyword.arg == "seed" for keyword in call.keywords)
    return name if plain and not seeded else ""
