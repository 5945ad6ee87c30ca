"""What is extracted for exported scripts computes the same as the function it was taken from."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Options, Partly, definitions
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


def exported(folder: Path, text: str, name: str, wanted: Options, **constants: Any) -> list[str]:
    file = folder / f"source{len([*folder.iterdir()])}.py"
    file.write_text(text)
    return definitions(str(file), name, options=wanted, constants=constants)


def test_a_specialised_function_computes_what_the_function_does(tmp_path: Path) -> None:
    original = defined(SOURCE)["chosen"]
    for settings in SETTINGS:
        wanted = options(*settings)
        known = {"known": 1, "unused": "x", "data": Partly(load=None)}
        text = "\n\n\n".join(exported(tmp_path, SOURCE, "chosen", wanted, **known))
        assert "options" not in text
        for given, samples in itertools.product((0, 2, 5), (0, 7)):
            ours = original(given, Data(samples), "x", wanted, known=1)
            assert defined(text)["chosen"](given, Data(samples)) == ours, (settings, given, samples, text)


def test_what_cannot_be_worked_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be exported"):
        exported(tmp_path, "def function(data, known):\n    known = data\n", "function", options(), known=1)


def test_a_sign_within_a_text_begins_no_comment(tmp_path: Path) -> None:
    text = "def function(options):\n    return (options.workload.tfrecord_input, 1)  # why\n"
    (done,) = exported(tmp_path, text, "function", options("tfrecord_input='img  # a'"))
    assert done.endswith('return "img  # a", 1  # workload.tfrecord_input: why')


def test_what_does_not_change_keeps_its_layout(tmp_path: Path) -> None:
    text = '''def function(
    first: int = 1,  # counted
    *more: int,
) -> int:
    """One sentence.  And more."""
    while first > 1_000:
        first -= 2**3  # by the power
    else:
        # in the end
        first += sum(  # of all
            each for each in more
        )

    def inner(value: int, options: Options) -> int:
        """Return it. This is
        left out.
        """
        return value

    try:
        return inner(first, options)
    except ValueError:
        return 'x'
'''
    (done,) = exported(tmp_path, text, "function", options())
    assert (
        done
        == '''def function(
    first: int = 1,
    *more: int,
) -> int:  # counted
    """One sentence.  And more."""
    while first > 1_000:
        first -= 2**3  # by the power
    else:
        # in the end
        first += sum(
            each for each in more
        )  # of all

    def inner(value: int) -> int:
        """Return it."""
        return value

    try:
        return inner(first)
    except ValueError:
        return "x"'''
    )


HELPERS = '''
def scaled(x, by=2):
    return x * by  # bytes


def named(x, y):
    return [x for _ in range(y)]


def entry(a, b, options):
    """Return some numbers."""
    extra = a + options.train.epochs
    # What stands alone.
    total = scaled(extra) - b  # why
    later = 'x'
    again = lambda: later
    many = named(a + b, 2)
    flag = False
    return total, again(), many, 1 if flag else "two" * b
'''


def test_a_name_or_a_helper_that_is_used_once_gives_way_to_its_expression(tmp_path: Path) -> None:
    wanted = options("epochs=3")
    sources = exported(tmp_path, HELPERS, "entry", wanted)
    assert [text.partition("(")[0] for text in sources] == ["def named", "def entry"], "evaluated several times"
    lines = sources[-1].splitlines()
    assert lines[2:4] == ["    # What stands alone.", "    total = (a + 3) * 2 - b  # train.epochs: why; bytes"]
    assert lines[-1] == '    return total, (lambda: later)(), named(a + b, 2), "two" * b'
    assert "    later = 'x'" in lines, "evaluated later"
    assert defined("\n\n".join(sources))["entry"](3, 4) == defined(HELPERS)["entry"](3, 4, wanted)
