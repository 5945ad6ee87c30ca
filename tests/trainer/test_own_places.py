"""How a user's code is imported, which files are theirs, and at which of their lines an exception is reported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from gputui.engine.trainer.common.stopping import StopRequested
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.own.user_code import NO_ARGUMENTS, OWN_STRATEGY, UserCode, UserError

LOG = "the full traceback is in engine.log"
BUILD = "def build(context):\n    return 3\n"
Write = Callable[..., UserCode]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """code("source", "pkg/train.py"): the imported code. What it changes of this process is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    modules = set(sys.modules)

    def make(
        source: str = BUILD, name: str = "train.py", function: str = "build", copy: Path | None = None
    ) -> UserCode:
        path = (tmp_path if copy is None else copy) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return UserCode(f"{name}:{function}", str(tmp_path), copy)

    yield make
    for each in set(sys.modules) - modules:
        del sys.modules[each]
    keras.config.enable_traceback_filtering()
    tf.debugging.enable_traceback_filtering()


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


# ---- imported ----------------------------------------------------------------------------------


def test_their_file_is_imported_as_python_would_start_it(code: Write, tmp_path: Path) -> None:
    source = "import os, sys\nSEEN = os.getcwd(), sys.argv, sys.path[0], __name__\n" + BUILD
    made = code(source, "pkg/mine.py")
    folder, file = tmp_path / "pkg", tmp_path / "pkg" / "mine.py"
    seen = sys.modules["mine"].SEEN
    assert seen == (str(tmp_path), [str(file)], str(folder), "mine")
    assert (made.function(None), made.file, made.home, made.origin) == (3, file, folder, folder)
    assert not keras.config.is_traceback_filtering_enabled()
    assert not tf.debugging.is_traceback_filtering_enabled()
    assert made.files() == [str(file)]
    assert [module.__name__ for module in made.modules()] == ["mine"]
    assert (made.owns("mine"), made.owns("keras"), made.owns("no_such_module"), made.owns("sys")) == (
        True, False, False, False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["json.py", "a-b.py"])
def test_a_file_whose_name_is_taken_or_no_name_has_one_of_its_own(name: str, code: Write) -> None:
    taken = sys.modules["json"]
    assert code(name=name).function(None) == 3
    assert sys.modules["json"] is taken
    assert [each for each in sys.modules if each.startswith("_own_")]


def test_a_file_that_fails_is_not_left_half_imported(code: Write) -> None:
    assert refused(lambda: code("x = 1\nraise ValueError('no')\n")) == (
        "train.py:2: ValueError: no\n    raise ValueError('no')",
        LOG,
    )
    assert "train" not in sys.modules
    with pytest.raises(KeyboardInterrupt):
        code("raise KeyboardInterrupt\n")
    assert "train" not in sys.modules


def test_what_cannot_be_imported_is_named(code: Write, tmp_path: Path) -> None:
    for source in ("other = 3\n", "build = 3\n"):
        told = refused(partial(code, source))
        assert told == ("train.py has no function build", "workload.entry names it")
    assert refused(lambda: UserCode("none.py:build", str(tmp_path))) == (
        f"{tmp_path}/none.py does not exist", "name a file with your code, such as train.py",
    )  # fmt: skip
    assert refused(lambda: UserCode("train.py:build", "/no/such")) == (
        "workload.folder: cannot change to /no/such: No such file or directory", "",
    )  # fmt: skip


@pytest.mark.usefixtures("code")
def test_of_a_module_the_folder_is_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "inner.py").write_text(BUILD)
    made = UserCode("package.inner:build", str(tmp_path))
    assert (made.home, made.origin, sys.path[0]) == (tmp_path, tmp_path, str(tmp_path))
    assert made.name_of(str(made.file)) == "package/inner.py"
    assert made.function(None) == 3


def test_of_a_copy_the_modules_that_are_not_from_it_are_named(code: Write, tmp_path: Path) -> None:
    (tmp_path / "live.py").write_text("")
    (tmp_path / "apart.txt").write_text("")
    copy = tmp_path / "runs" / "code"
    copy.mkdir(parents=True)
    (copy / "beside.py").write_text("")
    live = f"import sys\nsys.path.append({str(tmp_path)!r})\nimport beside, live\n"
    made = code(live + BUILD, copy=copy)
    assert (made.home, made.origin) == (copy, tmp_path)
    assert made.not_copied() == ["live.py"]
    assert made.files() == sorted(map(str, (copy / "beside.py", copy / "train.py", tmp_path / "live.py")))
    assert code(live + BUILD, "other.py").not_copied() == [], "without a copy there is none"


def test_the_origin_of_a_copy_is_the_folder_of_the_file_that_the_entry_names(
    code: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    copy = tmp_path / "runs" / "code"
    copy.mkdir(parents=True)
    (copy / "mine.py").write_text(BUILD)
    for entry, origin in (("~/deep/mine.py", tmp_path / "home" / "deep"), ("sub/mine.py", tmp_path / "sub"),
                          ("/abs/mine.py", Path("/abs"))):  # fmt: skip
        made = UserCode(f"{entry}:build", str(tmp_path), copy)
        assert (made.origin, made.home, made.file) == (origin, copy, copy / "mine.py")


def test_files_that_another_module_hides_are_named(code: Write, tmp_path: Path) -> None:
    for name in ("json", "beside", "unused"):
        (tmp_path / f"{name}.py").write_text("")
    made = code("import beside, json\n" + BUILD)
    assert made.shadowed() == ["json.py"]


def test_files_are_theirs_below_their_folders_unless_they_are_installed_or_generated(
    code: Write, tmp_path: Path
) -> None:
    made = code(name="pkg/train.py")
    for file, theirs in (
        (f"{tmp_path}/pkg/train.py", True), (f"{tmp_path}/pkg/deep/x.py", True), (f"{tmp_path}/beside.py", True),
        ("beside.py", True), (f"{tmp_path}/venv/lib/site-packages/x.py", False), ("<string>", False),
        (f"{tmp_path}/tmp/__autograph_generated_filex.py", False), (tf.__file__, False), (os.__file__, False),
        (sys.modules[UserCode.__module__].__file__, False), ("/elsewhere/x.py", False),
        (f"{tmp_path}-not/x.py", False),
    ):  # fmt: skip
        assert made.owns_file(str(file)) is theirs, file
    assert made.name_of(f"{tmp_path}/pkg/deep/x.py") == "deep/x.py"
    assert made.name_of(f"{tmp_path}/beside.py") == f"{tmp_path}/beside.py"


# ---- where it was raised -----------------------------------------------------------------------

RAISES = """\
def inner():
    raise KeyError("a")
def build(context):
    try:
        inner()
    except KeyError as fault:
        kind(context, fault)
def kind(context, fault):
    if context == "cause":
        raise ValueError("from it") from fault
    if context == "context":
        raise ValueError("while it")
    if context == "none":
        raise ValueError("alone") from None
    int("x")
"""


def error(made: UserCode, call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call()
    found = made.error_of(raised.value)
    assert found is not None
    assert found.kind == "user_code"
    return found.message, found.hint


def test_an_exception_is_reported_at_their_innermost_line(code: Write) -> None:
    made = code(RAISES)
    for context, message in (
        ("cause", 'train.py:10 in kind: ValueError: from it\n    raise ValueError("from it") from fault'),
        ("context", 'train.py:12 in kind: ValueError: while it\n    raise ValueError("while it")'),
        ("none", 'train.py:14 in kind: ValueError: alone\n    raise ValueError("alone") from None'),
        ("", "train.py:15 in kind: ValueError: invalid literal for int() with base 10: 'x'\n    int(\"x\")"),
    ):
        assert error(made, lambda context=context: made.function(context)) == (message, LOG)  # type: ignore[misc]


def test_an_exception_of_a_library_is_reported_at_the_line_of_theirs_that_led_to_it(code: Write) -> None:
    made = code("def build(context):\n    raise ValueError('theirs')\n")

    def call() -> None:
        try:
            made.function(None)
        except ValueError as fault:
            raise RuntimeError("in a library") from fault

    assert error(made, call) == ("train.py:2 in build: RuntimeError: in a library\n    raise ValueError('theirs')", LOG)
    assert made.error_of(ValueError("of nobody")) is None

    def on_the_way(hides: bool) -> UserError | None:
        try:
            try:
                made.function(None)
            except ValueError:
                if hides:
                    raise RuntimeError("in a library") from None
                raise RuntimeError("in a library")  # noqa: B904
        except RuntimeError as fault:
            return made.error_of(fault)
        return None

    told = on_the_way(hides=False)
    assert told is not None
    assert told.message.startswith("train.py:2 in build: RuntimeError: in a library")
    assert on_the_way(hides=True) is None


def test_a_syntax_error_is_reported_at_its_line(code: Write, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ny = (\n")
    assert refused(lambda: code("import broken\n" + BUILD)) == (
        "broken.py:2: SyntaxError: '(' was never closed\n    y = (", LOG,
    )  # fmt: skip
    made = code(name="good.py")
    assert made.error_of(SyntaxError("bad", ("/elsewhere/x.py", 3, 0, ""))) is None


GRAPH = """\
Graph execution error:

Detected at node model/dense/MatMul defined at (most recent call last):
  File "{folder}/train.py", line 2, in build

  File "{folder}/beside.py", line 1, in <module>

  File "/usr/lib/python3/keras.py", line 9, in call

{rest}
"""


@pytest.mark.parametrize(
    ("rest", "what"),
    [
        (
            "Matrix size-incompatible: In[0]: [8,3] {{node model/dense/MatMul}}\n\t [[{{node x}}]] [Op:y]",
            "InvalidArgumentError: Matrix size-incompatible: In[0]: [8,3]",
        ),
        ("2 root error(s) found.\nKeyError: 'file two'\nTraceback (most recent call last):", "KeyError: 'file two'"),
        ("my.own.Warning: odd\n", "my.own.Warning: odd"),
        ("Stack trace for op definition: \n", "InvalidArgumentError: no message"),
        ("x" * 400, "InvalidArgumentError: " + "x" * 278),
        ("ValueError: " + "x" * 400, "ValueError: " + "x" * 288),
    ],
)
def test_an_error_of_tensorflow_is_reported_at_the_last_of_its_places_that_is_theirs(
    rest: str, what: str, code: Write, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("x = tf.matmul(x, y)\n")
    made = code()
    text = GRAPH.format(folder=tmp_path, rest=rest)
    found = made.error_of(tf.errors.InvalidArgumentError(None, None, text))
    assert found is not None
    assert found.message == f"beside.py:1: {what}\n    x = tf.matmul(x, y)"


def test_a_strategy_of_their_own_is_to_be_removed(code: Write) -> None:
    made = code("def build(context):\n    raise RuntimeError('Mixing different tf.distribute.Strategy objects')\n")
    assert error(made, lambda: made.function(None))[1] == OWN_STRATEGY


# ---- what is blamed on their code --------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [TrainerError("data", "x"), StopRequested("stopped"), MemoryError(), KeyboardInterrupt(),
     tf.errors.ResourceExhaustedError(None, None, "OOM")],
)  # fmt: skip
@pytest.mark.parametrize("found_only", [False, True])
def test_what_is_not_a_fault_of_their_code_stays_what_it_is(
    fault: BaseException, found_only: bool, code: Write
) -> None:
    made = code("def build(fault):\n    raise fault\n")
    with pytest.raises(type(fault)) as raised, made.blamed(found_only):
        made.function(fault)
    assert raised.value is fault


def test_an_exception_without_a_line_of_theirs_is_blamed_on_the_entry_unless_it_must_be_found(code: Write) -> None:
    made = code()
    with made.blamed():
        pass
    fault = OSError("gone")
    with pytest.raises(UserError) as raised, made.blamed():
        raise fault
    assert (raised.value.message, raised.value.__cause__) == ("train.py:build: OSError: gone", fault)
    with pytest.raises(OSError, match=r"^gone$"), made.blamed(found_only=True):
        raise fault


def test_the_end_of_the_process_is_reported_with_the_message_of_a_parser(code: Write) -> None:
    made = code("import argparse, sys\ndef build(parse):\n    parse.parse_args([]) if parse else sys.exit(0)\n")
    line = "\n    parse.parse_args([]) if parse else sys.exit(0)"

    def ended(parse: Any) -> tuple[str, str]:
        def call() -> None:
            with made.blamed(found_only=True):
                made.function(parse)

        return refused(call)

    assert ended(None) == (f"train.py:3 in build ended the process with sys.exit{line}", "return instead")
    parser = argparse.ArgumentParser("train.py")
    parser.add_argument("--data", required=True)
    told = "the following arguments are required: --data (usage: train.py [-h] --data DATA)"
    assert ended(parser) == (f"train.py:3 in build: {told}{line}", NO_ARGUMENTS)

    def without() -> None:
        with made.blamed():
            sys.exit(1)

    assert refused(without) == ("train.py ended the process with sys.exit", "return instead")
