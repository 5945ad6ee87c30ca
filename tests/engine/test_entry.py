"""What is said of a user's code before anything is launched: which file, which function, what to write."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine import entry as entries
from gputui.engine.checks import file_rules
from gputui.engine.entry import Entry, EntryFault, examine, parse, source_file
from gputui.engine.interpreter import installed

from tests.support.checked import NONE
from tests.support.training import options

NO_MODULE = "modules are searched in workload.folder, which defaults to the folder of the preset's file"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("train.py:build", Entry("train.py", None, "build")),
        ("a/b c.py:f_1", Entry("a/b c.py", None, "f_1")),
        ("package.module:build", Entry(None, "package.module", "build")),
    ],
)
def test_an_entry_names_a_file_or_a_module_and_a_function(text: str, entry: Entry) -> None:
    assert parse(text) == entry
    assert str(entry) == text


DEFINED = {
    "def build(context): ...": "",
    "def build(context, more=1): ...": "",
    "def build(*all): ...": "",
    "def build(context, *, name=1): ...": "",
    "def build(context, /): ...": "",
    "def build(a=1, b=2): ...": "",
    "class build: ...": "",
    "build = 3": "",
    "(a, build) = 1, 2": "",
    "build: int = 3": "",
    "import build": "",
    "from x import y as build": "",
    "import build.inner": "",
    "from x import *": "",
    "if x:\n    pass\nelse:\n    def build(c): ...": "",
    "try:\n    pass\nexcept E:\n    def build(c): ...": "",
    "try:\n    pass\nfinally:\n    def build(c): ...": "",
    "try:\n    pass\nexcept E:\n    pass\nelse:\n    def build(c): ...": "",
    "with x:\n    def build(c): ...": "",
    "for i in x:\n    def build(c): ...": "",
    "while x:\n    def build(c): ...": "",
    "def build(): ...": "train.py:1: build must accept one argument, the context",
    "x = 1\ndef build(a, b): ...": "train.py:2: build must accept one argument, the context",
    "def build(a, b, c=1): ...": "train.py:1: build must accept one argument, the context",
    "def build(a, /, b): ...": "train.py:1: build must accept one argument, the context",
    "def build(a, *, b): ...": "train.py:1: build must accept one argument, the context",
    "def build(**named): ...": "train.py:1: build must accept one argument, the context",
    "async def build(context): ...": "train.py:1: build is async",
    "": "train.py has no function build (it has none)",
    "build": "train.py has no function build (it has none)",
    "def f():\n    def build(c): ...": "train.py has no function build (it has f)",
    "class Build: ...\nx = 1\nasync def g(): ...\ndef a(): ...\ndef b(): ...":
        "train.py has no function build (it has a, b)",
    "\n".join(f"def f{number}(): ..." for number in range(9)):
        "train.py has no function build (it has f0, f1, f2, f3, f4, f5, f6, f7)",
    "import x.build": "train.py has no function build (it has none)",
    "from build import y": "train.py has no function build (it has none)",
    "def build(c:\n  pass": "train.py:1: '(' was never closed: def build(c:",
    "x = 1\n  y = " + "2" * 200: "train.py:2: unexpected indent: y = " + "2" * 116,
}  # fmt: skip


@pytest.mark.parametrize("code", DEFINED)
def test_a_function_that_takes_the_context_must_be_defined(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(code + "\n")
    message = DEFINED[code]
    if not message:
        examine("train.py:build", tmp_path)
        return
    with pytest.raises(EntryFault) as fault:
        examine("train.py:build", tmp_path)
    assert fault.value.message == str(fault.value) == message
    change = "correct the line" if "never closed" in message or "indent" in message else "write def build(context): ..."
    assert fault.value.change == change


def test_code_for_a_newer_python_is_left_to_that_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def build(c): return (\n")
    examine("train.py:build", tmp_path, newer_python=True)
    (tmp_path / "train.py").write_text("def other(c): ...\n")
    with pytest.raises(EntryFault, match="has no function build"):
        examine("train.py:build", tmp_path, newer_python=True)
    (tmp_path / "train.py").write_bytes(b"x = 1\0\n")
    with pytest.raises(EntryFault, match=r"^train\.py.*: source code string cannot contain null bytes$"):
        examine("train.py:build", tmp_path)


UNREADABLE = {  # the content of a file, what is said of it, and what to do
    b"# coding: nope\n": ("unknown encoding: nope", "correct the file"),
    b"x = " + b"-" * 20_000 + b"1\n": ("is nested too deeply for Python to read it", "give another file"),
    b"if x:\n  pass\n" + b"elif y:\n  pass\n" * 1500: ("is nested too deeply to be checked", "give another file"),
}


@pytest.mark.parametrize("content", UNREADABLE, ids=[words for words, _ in UNREADABLE.values()])
def test_a_file_that_cannot_be_read_as_python_is_named_without_a_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(content)
    what, change = UNREADABLE[content]
    with pytest.raises(EntryFault) as fault:
        examine("train.py:build", tmp_path)
    gap = " " if what.startswith("is ") else ": "
    assert (fault.value.message, fault.value.change) == (f"train.py{gap}{what}", change)


@pytest.mark.parametrize(("minor", "is_refused"), [(-1, True), (0, True), (1, False)])
def test_what_is_no_python_for_this_one_is_refused_unless_a_newer_one_trains(
    minor: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("def build(c) -> ...:\n    retrun 1\n")
    described = installed.intended()
    trains = replace(described, version=(sys.version_info[0], sys.version_info[1] + minor, 99))
    monkeypatch.setattr(installed, "intended", lambda: trains)
    found = list(file_rules.entry(options("entry=train.py:build", f"workload.folder={tmp_path}"), NONE))
    assert [(finding.options, finding.message) for finding in found] == (
        [(("workload.entry",), f"{tmp_path}/train.py:2: invalid syntax: retrun 1")] if is_refused else []
    )


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_file_of_more_than_a_mebibyte_is_not_read(more: int, is_read: bool, tmp_path: Path) -> None:
    code = "def build(c): ...\n#"
    (tmp_path / "train.py").write_text(code + "x" * (1024**2 + more - len(code)))
    if is_read:
        examine("train.py:build", tmp_path)
    else:
        with pytest.raises(EntryFault, match=r"train\.py cannot be read: .*1\.0 MiB") as fault:
            examine("train.py:build", tmp_path)
        assert fault.value.change == "give another file"


def test_a_file_is_searched_in_the_folder_and_a_module_also_in_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, name in ((here, "both.py"), (there, "both.py"), (there, "only.py"), (there, "package/inner.py")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("def build(c): ...\n")
    (there / "package" / "__init__.py").touch()
    monkeypatch.setenv("HOME", str(there))
    search = [str(there)]
    for text, path in (
        ("both.py:f", here / "both.py"), ("~/only.py:f", there / "only.py"), ("both:f", here / "both.py"),
        ("only:f", there / "only.py"), ("package.inner:f", there / "package" / "inner.py"),
        ("package:f", there / "package" / "__init__.py"),
    ):  # fmt: skip
        assert source_file(parse(text), here, search) == path
    for text, message, change in (
        ("only.py:f", f"{here}/only.py does not exist", "name a file with your code, such as train.py"),
        ("only:f", f"there is no module only in {here} or among the installed packages", NO_MODULE),
        ("both.inner:f", f"there is no module both.inner in {here} or among the installed packages", NO_MODULE),
        ("sys:f", f"there is no module sys in {here} or among the installed packages", NO_MODULE),
    ):  # fmt: skip
        with pytest.raises(EntryFault) as fault:
            source_file(parse(text), here, [] if text == "only:f" else search)
        assert (fault.value.message, fault.value.change) == (message, change)
    (here / "folder.py").mkdir()
    with pytest.raises(EntryFault, match=r"folder\.py is a folder$"):
        source_file(parse("folder.py:f"), here)
    assert source_file(parse("json:loads"), here).name == "__init__.py", "of this Python, if no other is given"
    assert entries.MAX_SOURCE_BYTES == 1024**2
