"""What is extracted for exported scripts computes the same as the function it was taken from."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import pytest
from gputui.engine.export.specialised import Partly, Specialiser
from gputui.engine.options import Options

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
    return "\n\n\n".join(map(specialiser.function, functions))


def test_a_specialised_function_computes_what_the_function_does() -> None:
    original = defined(SOURCE)["chosen"]
    for settings, given, samples in itertools.product(SETTINGS, (0, 2, 5), (0, 7)):
        wanted = options(*settings)
        text = extracted(wanted)
        assert "options" not in text
        ours = original(given, Data(samples), "x", wanted, known=1)
        assert defined(text)["chosen"](given, Data(samples)) == ours, (settings, given, samples, text)


def test_lines_name_the_options_that_made_them() -> None:
    text = extracted(options("shuffle=5", "deterministic=true", "prefetch=off"))
    assert "def chosen(given: int, data: Any, last: int = 3) -> Any:\n" in text
    assert "        min(5, given),  # input.shuffle, input.cache\n" in text
    assert '    for name in ("c",):  # input.one_batch\n' in text
    assert '    found.append("more")  # train.deterministic\n' in text
    assert "        return value  # input.prefetch\n" in text
    assert "    # What stands alone.\n    found.append(inner(last + 1))\n" in text


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


CHOSEN = """
def function(options, given):
    train = options.train
    if train.deterministic:
        given += 1
    if train.nesterov and options.input.one_batch:
        given += 2
    return given
"""


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ((), ""),
        (("seed=5",), ""),
        (("optimizer=sgd", "momentum=0.5"), ""),
        (("nesterov=true",), "  # train.nesterov"),
        (("one_batch=true",), ""),
    ],
)
def test_what_is_left_out_because_of_a_default_names_no_option(settings: tuple[str, ...], keys: str) -> None:
    """An option that was changed, and because of which lines are left out, is named at the line that follows."""
    (node,) = ast.parse(CHOSEN).body
    assert isinstance(node, ast.FunctionDef)
    done = Specialiser(CHOSEN, options(*settings), {}).function(node)
    assert done == f"def function(given):\n    return given{keys}"


def test_the_whole_text_of_a_specialised_function(snapshot: Any) -> None:
    assert "\n\n\n".join(extracted(options(*settings)) for settings in SETTINGS) == snapshot


def specialised(text: str, *settings: str, **constants: Any) -> str:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    return Specialiser(text, options(*settings), constants).function(node)


@pytest.mark.parametrize(
    ("expression", "settings", "constants", "expected"),
    [
        ("not options.input.one_batch", "", {}, "True  # input.one_batch"),
        ("options.input.batch_size > 64", "", {}, "False  # input.batch_size"),
        ("options.input.batch_size >= 64", "", {}, "True  # input.batch_size"),
        ("options.input.batch_size < 64", "", {}, "False  # input.batch_size"),
        ("options.input.batch_size <= 64", "", {}, "True  # input.batch_size"),
        ("options.input.batch_size != 64", "", {}, "False  # input.batch_size"),
        ("options.input.cache in ('off', 'memory')", "", {}, "True  # input.cache"),
        ("options.input.cache not in ('off', 'memory')", "", {}, "False  # input.cache"),
        ("options.train.seed is None", "", {}, "False  # train.seed"),
        ("options.train.seed is not None", "", {}, "True  # train.seed"),
        ("options.workload.source[0]", "data=npz:/a", {}, '"npz"  # workload.data'),
        ("min(options.input.batch_size, 3)", "", {}, "3  # input.batch_size"),
        ("given if options.input.one_batch else other", "", {}, "other  # input.one_batch"),
        ("1 if given else options.input.batch_size", "", {}, "1 if given else 64  # input.batch_size"),
        ("given and options.input.one_batch", "", {}, "False  # input.one_batch"),
        ("given and options.input.deterministic_order", "", {}, "given  # input.deterministic_order"),
        ("given or options.input.one_batch or other", "", {}, "given or other  # input.one_batch"),
        ("given or options.input.batch_size", "", {}, "given or 64  # input.batch_size"),
        ("options.input.batch_size or given", "", {}, "64  # input.batch_size"),
        ("function(known, given, name=known, other=given)", "", {"known": 3}, "function(given, name=3, other=given)"),
        ("function(given, known)", "", {"known": 3}, "function(given)"),
        ("function(known)", "", {"known": 3}, "function()"),
        ("function(name=given, known=known)", "", {"known": 3}, "function(name=given)"),
        ("known + given", "", {"known": 3}, "3 + given"),
        ("[options.input.batch_size, given]", "", {}, "[64, given]  # input.batch_size"),
        ("options.bytes_to_device", "cast=device", {}, "True  # input.cast"),
        ("'# é', options.input.batch_size", "", {}, "'# é', 64  # input.batch_size"),
    ],
)
def test_an_expression_becomes_its_value_with_the_options_that_made_it(
    expression: str, settings: str, constants: dict[str, Any], expected: str
) -> None:
    text = f"def function(given, other, options):\n    return {expression}\n"
    made = specialised(text, *settings.split(), **constants)
    assert made == f"def function(given, other):\n    return {expected}"


def test_a_parameter_goes_with_its_default_and_its_comma() -> None:
    for head, expected in (
        ("known", ""), ("known, a", "a"), ("a, known", "a"), ("a, known=1", "a"), ("known=1, a=2", "a=2"),
        ("a, known, b=3", "a, b=3"), ("a=1, known=2, b=3", "a=1, b=3"),
    ):  # fmt: skip
        assert specialised(f"def f({head}):\n    return 1\n", known=5) == f"def f({expected}):\n    return 1"


@pytest.mark.parametrize(("length", "lines"), [(110, 1), (111, 4)])
def test_a_signature_is_put_on_one_line_if_it_fits(length: int, lines: int) -> None:
    name = "n" * (length - len("def f(, b):"))
    made = specialised(f"def f(\n    {name},\n    b,\n):\n    return 1\n").splitlines()
    assert len(made) == lines + 1
    assert made[0] == (f"def f({name}, b):" if lines == 1 else "def f(")


def test_statements_behind_a_decided_return_and_empty_bodies_are_left_out() -> None:
    text = (
        "def f(a, options):\n    if options.input.one_batch:\n        a = 1\n    else:\n        return a\n    a = 2\n"
    )
    assert specialised(text) == "def f(a):\n    return a  # input.one_batch"
    assert specialised(text, "one_batch=true") == "def f(a):\n    a = 1  # input.one_batch\n    a = 2"
    text = "def f(a, options):\n    while a:\n        if options.input.one_batch:\n            a = 1\n"
    assert specialised(text) == "def f(a):\n    while a:\n        pass"
    text = (
        "def f(a, options):\n    if a:\n        return 1\n    elif options.input.one_batch:\n        return 2\n"
        "    else:\n        a = 3  # why\n    return a\n"
    )
    assert specialised(text) == (
        "def f(a):\n    if a:\n        return 1\n    else:\n        a = 3  # input.one_batch: why\n    return a"
    )
