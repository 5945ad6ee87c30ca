"""What is extracted for exported scripts computes the same as the function it was taken from."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import pytest

from tests.doors.engine import Options, Partly, Specialiser, shorten
from tests.support.training import options

SOURCE = '''
def chosen(given: int, data: Any, unused: str, options: Options, last: int = 3, known: int = 0) -> Any:
    """Everything that a function of the pipeline may be made of."""
    wanted, train = options.input, options.train
    found = []
    if wanted.shuffle == "off":
        found.append("in order")
    elif given > 1 and wanted.one_batch:
        found.append(helped(given, options))
    else:
        found.append(
            min(wanted.shuffle, given) if wanted.cache == "off" else wanted.cache,
        )
    if given > 2 or train.deterministic:  # a reason
        found.append("more")
    if given > 2 and wanted.drop_remainder:
        found.append("both")

    def inner(value):
        if wanted.prefetch != "off":
            return value, wanted.prefetch
        return value

    if data.load is None and not data.samples:
        return found, "nothing"
    # What stands alone.
    found.append(inner(last + known))
    if wanted.augment in ("light", "heavy"):
        return found
    found += [given or wanted.batch_size, not given and wanted.batch_size, "img  # no comment" or given]
    if given > 9:
        if wanted.one_batch:
            found.append("one")
    for name in ("a", "b") if wanted.one_batch else ("c",):
        if name == "b" or wanted.private_threads == "auto":
            found.append(name)
        else:
            found.append(wanted.private_threads)
    return found, wanted.parallel_calls


def helped(value: int, options: Options) -> Any:
    return value * (2 if options.input.drop_remainder else 1), options.train.warmup_steps
'''
SETTINGS = (
    (), ("shuffle=off",), ("one_batch=true", "drop_remainder=true"), ("cache=memory", "deterministic=true"),
    ("prefetch=off", "augment=light"), ("private_threads=3", "parallel_calls=2", "warmup_steps=4"),
)  # fmt: skip


class Data:
    def __init__(self, samples: int) -> None:
        self.load, self.samples = None, samples


def defined(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"Any": Any, "Options": Options}
    exec(compile(text, "extracted", "exec"), names)
    return names


def extracted(wanted: Options) -> str:
    specialiser = Specialiser(SOURCE, wanted, {"known": 1, "unused": "x", "data": Partly(load=None)})
    functions = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.FunctionDef)]
    sources = {node.name: specialiser.function(node) for node in functions}
    shorten(sources, ["chosen"])
    return "\n\n\n".join(sources.values())


def test_a_specialised_function_computes_what_the_function_does() -> None:
    original = defined(SOURCE)["chosen"]
    for settings, given, samples in itertools.product(SETTINGS, (0, 2, 5), (0, 7)):
        wanted = options(*settings)
        text = extracted(wanted)
        assert "options" not in text
        ours = original(given, Data(samples), "x", wanted, known=1)
        assert defined(text)["chosen"](given, Data(samples)) == ours, (settings, given, samples, text)


def test_what_cannot_be_worked_out_is_refused() -> None:
    for body in ("known = data", "for one in data:\n        pass\n    else:\n        return 1"):
        text = f"def function(data, known):\n    {body}\n"
        (node,) = ast.parse(text).body
        assert isinstance(node, ast.FunctionDef)
        with pytest.raises(ValueError, match="cannot be exported"):
            Specialiser(text, options(), {"known": 1}).function(node)


def test_a_sign_within_a_text_begins_no_comment() -> None:
    text = "def function(options):\n    return (options.workload.tfrecord_input, 1)  # why\n"
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    done = Specialiser(text, options("tfrecord_input='img  # a'"), {}).function(node)
    assert done.endswith('return ("img  # a", 1)  # workload.tfrecord_input: why')


HELPERS = {
    "scaled": "def scaled(x, by=2):\n    return x * by  # input.cast: bytes",
    "named": "def named(x, y):\n    return [x for _ in range(y)]",
    "unused": "def unused(x):\n    return x",
    "entry": '''def entry(a, b):
    """Return some numbers."""
    extra = a + 1  # train.epochs
    # What stands alone.
    total = scaled(extra) - b  # why
    later = 'x'
    again = lambda: later
    many = named(a + b, 2)
    flag = False
    return total, again(), many, 1 if flag else "two" * b''',
}


def test_a_name_or_a_helper_that_is_used_once_gives_way_to_its_expression() -> None:
    sources = dict(HELPERS)
    shorten(sources, ["entry"])
    assert {*sources} == {"named", "entry"}, "an argument would be evaluated several times"
    lines = sources["entry"].splitlines()
    assert lines[2:4] == [
        "    # What stands alone.",
        "    total = (a + 1) * 2 - b  # train.epochs, input.cast, why, bytes",
    ]
    assert lines[-1] == '    return (total, (lambda: later)(), named(a + b, 2), "two" * b)'
    assert "    later = 'x'" in lines, "evaluated later"
    entries = [defined("\n\n".join(texts.values()))["entry"] for texts in (HELPERS, sources)]
    assert entries[0](3, 4) == entries[1](3, 4)
