"""Values and files that any program may have written: what is taken, what is left out, and what is said of it."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.files import located_yaml, places, reading, values, writing, yaml_writing
from gputui.engine.files.declared_types import Form, completed, fits
from gputui.engine.files.reading import GrowingFile, Object, read_object
from gputui.engine.files.yaml_text import YamlFault, shorten, trap
from gputui.engine.system import locks

LARGEST, LARGEST_WHOLE, LAST_SECOND = 1e100, 2**63 - 1, 253402300799.0


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number", "whole", "moment"),
    [
        (0, 0, 0, 0), (-1, -1, -1, None), (1.5, 1.5, None, 1.5), (-0.5, -0.5, None, None), (True, None, None, None),
        (LARGEST, LARGEST, None, None), (-LARGEST, -LARGEST, None, None), (1.001e100, None, None, None),
        (LARGEST_WHOLE, LARGEST_WHOLE, LARGEST_WHOLE, None), (-LARGEST_WHOLE, -LARGEST_WHOLE, -LARGEST_WHOLE, None),
        (2**63, 2**63, None, None), (LAST_SECOND, LAST_SECOND, None, LAST_SECOND), (LAST_SECOND + 1,) * 2 + (None,) * 2,
        (math.nan, None, None, None), (math.inf, None, None, None), ("1", None, None, None), (None,) * 4,
    ],
)  # fmt: skip
def test_a_number_is_finite_and_no_switch(value: Any, number: Any, whole: Any, moment: Any) -> None:
    assert (values.number(value), values.whole(value), values.moment(value)) == (number, whole, moment)


def test_texts_are_made_harmless_to_a_terminal() -> None:
    assert values.harmless("a\tb\nc\x1b[1m\x07é\u200b") == "a b\nc?[1m?é?"
    deep: Any = "\x07"
    for _ in range(34):
        deep = [deep]
    assert values.depth(deep) == 34
    assert values.depth(values.harmless_in(deep)) == 34, "what is deeper than 33 levels is left out"
    assert "\x07" not in json.dumps(values.harmless_in(deep))
    assert values.harmless_in({"a\x07": ["b\x07", 1, {"c": None}]}) == {"a?": ["b?", 1, {"c": None}]}
    nested: tuple[Any, ...] = (1, [], [{}], {"a": [1, [2]]}, [[], [[]]])
    assert [values.depth(each) for each in nested] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("character", "is_nameable"),
    [("\x1f", False), (" ", True), ("~", True), ("\x7f", False), ("\x9f", False), ("\xa0", True), ("\ud7ff", True),
     ("\ud800", False), ("\ue000", True)],
)  # fmt: skip
def test_a_path_without_control_characters_can_be_named(character: str, is_nameable: bool) -> None:
    assert values.nameable(f"/data/{character}") is is_nameable


def test_a_long_line_loses_the_middle_of_its_words_then_words_and_last_its_place() -> None:
    place = "preset.yaml:7:"
    assert values.brief(f"{place} short", 20) == f"{place} short"
    assert values.brief(f"{place} {'x' * 100} end", 80) == f"{place} {'x' * 38}...{'x' * 20} end"
    words = " ".join(f"word{number:02}" for number in range(30))
    cut = values.brief(f"{place} {words}", 100)
    assert cut == f"{place} word00 word01 word02 word03 word04 word05 word06 ... word27 word28 word29"
    assert len(cut) <= 100
    assert values.brief("y" * 50, 20) == "y" * 11 + "..." + "y" * 6
    long = values.brief(f"/{'p' * 300}.yaml:3: {'word ' * 40}", 200)
    assert (len(long) <= 200, long.partition(" ")[0]) == (True, "/" + "p" * 83 + "..." + "p" * 35 + ".yaml:3:")
    rest = "is no preset: a b c d e f g h i"
    for length in (168, 169, 300):
        cut = values.brief(f"/{'p' * (length - 1)} {rest}", 200)
        assert (len(cut), cut.partition(" ")[2]) == (min(length, 168) + 32, rest), "no more of it than must be"


def test_json_is_strict() -> None:
    assert (
        values.to_json({"a": math.nan, "b": (1, math.inf), "c": Path("/x")}) == '{"a": null, "b": [1, null], "c": "/x"}'
    )
    assert values.to_json({"a": [1]}, short=True) == '{"a":[1]}'
    assert values.to_json({"a": 1}, indent=1) == '{\n "a": 1\n}'
    assert (values.finite(None), values.finite(math.nan), values.finite(2)) == (None, None, 2.0)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int | str | None, (1, "a", None), (1.5, True, [])),
        (int | None | str, (1, "a", None), (1.5, True, [])),
        (float, (1, 1.5, LARGEST), (True, "1", math.nan, 2e100)),
        (int, (LARGEST_WHOLE,), (LARGEST_WHOLE + 1, 1.0, True)),
        (bool, (True,), (1, 0)),
        (tuple[int, str], ([1, "a"],), ([1], [1, 2], (1, "a"), [1, "a", 2])),
        (list[int], ([], [1, 2]), ([1, "a"], (1,), {})),
        (dict[str, int], ({}, {"a": 1}), ({"a": "b"}, [])),
    ],
)
def test_a_value_has_its_declared_type_or_not(hint: Any, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    form = Form({"x": hint})
    for value in good:
        assert (fits(hint)(value), form.holds({"x": value}), form.wrong({"x": value})) == (True, True, []), value
    for value in bad:
        assert (fits(hint)(value), form.holds({"x": value}), form.wrong({"x": value})) == (False, False, ["x"]), value
    assert form.holds({"other": object()})


@dataclass
class Part:
    name: str
    size: int = 1


@dataclass
class Whole:
    parts: list[Part] = field(default_factory=list)
    one: Part | None = None


def test_the_defaults_of_what_is_declared_are_filled_in_at_each_depth() -> None:
    assert completed(Whole, {}) == {"parts": [], "one": None}
    assert completed(Whole, {"parts": [{"name": "a"}, {"name": "b", "size": 2}], "one": {"name": "c"}, "x": 1}) == {
        "parts": [{"name": "a", "size": 1}, {"name": "b", "size": 2}],
        "one": {"name": "c", "size": 1},
        "x": 1,
    }
    assert completed(Whole, {"parts": [{"size": 2}]}) is None


# ---- reading -------------------------------------------------------------------------------------


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"x" * 1024)
    assert reading.read_bytes(path, 1024) == b"x" * 1024
    with pytest.raises(OSError, match=r"is larger than 1023 B"):
        reading.read_bytes(path, 1023)


def test_an_object_is_taken_without_the_entries_of_another_type(tmp_path: Path) -> None:
    path, form = tmp_path / "x.json", Form(dict.fromkeys("abcd", int))
    assert read_object(path) == Object({})
    for text, value, damage, unreadable in (
        ('{"a": 1, "z": "w\\u0007"}', {"a": 1, "z": "w?"}, "", False),
        ('{"a": 1, "b": "x"}', {"a": 1}, "x.json is damaged, b left out", False),
        ('{"a": "x", "b": "x", "c": "x"}', {}, "x.json is damaged, a, b, c left out", False),
        ('{"a": "x", "b": "x", "c": "x", "d": "x"}', {}, "x.json is damaged, a, b, c ... left out", False),
        ("[1]", {}, "x.json is damaged, left out", False),
        ('{"a": NaN}', {}, "x.json is damaged, a left out", False),
        ('{"a":' * 32 + "1" + "}" * 32, None, "x.json is damaged, a left out", False),
        ('{"a":' * 33 + "1" + "}" * 33, {}, "x.json is damaged, left out", False),
    ):
        path.write_text(text)
        assert read_object(path, form) == Object(value or {}, damage, unreadable), text
    path.unlink()
    path.mkdir()
    assert read_object(path) == Object({}, "x.json cannot be read: is a folder, not a file", True)
    path.rmdir()
    os.mkfifo(path)
    assert read_object(path).damage == "x.json cannot be read: is a named pipe, not a file"


def test_a_growing_file_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one\ntwo\nthr")
    file = GrowingFile(path)
    assert (file.block(5), file.offset, file.size) == (b"one\n", 4, 11)
    assert (file.block(3), file.offset) == (b"", 4), "the next line is longer"
    assert (file.block(4), file.block(), file.offset) == (b"two\n", b"", 8)
    with path.open("ab") as stream:
        stream.write(b"ee\nfour\nfi")
    assert (list(file.lines()), file.offset, file.size) == ([b"three\n", b"four\n"], 19, 21)


# ---- writing -------------------------------------------------------------------------------------


def test_a_new_file_overwrites_nothing_and_leaves_nothing_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.yaml"
    writing.write_new(path, "first")
    for taken, kind in ((path, "file"), (tmp_path, "folder")):
        with pytest.raises(writing.ExistsError) as refusal:
            writing.refuse_existing(taken)
        assert str(refusal.value) == f"{taken} exists, and is not overwritten; name another {kind}, or remove it first"
    with pytest.raises(writing.ExistsError):
        writing.write_new(path, "second")
    assert path.read_text() == "first"
    (tmp_path / "empty").mkdir()
    writing.refuse_existing(tmp_path / "empty")
    other = tmp_path / "y.yaml"

    class Full:
        def __enter__(self) -> Full:
            other.touch()
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, _text: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda *_args, **_more: Full())
    with pytest.raises(OSError, match="No space left"):
        writing.write_new(other, "text")
    assert not other.exists()


def test_a_file_is_replaced_whole_and_what_a_killed_writer_left_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    writing.write_atomically(path, "new", mode=0o600)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    draft, place = synced
    assert (draft.startswith(f".x.json.{os.getpid()}"), len(draft) > 15, place) == (True, True, tmp_path.name)
    synced.clear()
    writing.write_atomically(path, "newer", durable=False)
    assert (path.read_text(), synced) == ("newer", [])

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="No space left") as refusal:
            writing.write_atomically(path, "newest")
    assert (refusal.value.filename, path.read_text(), [each.name for each in tmp_path.iterdir()]) == (
        str(path), "newer", ["x.json"]
    )  # fmt: skip
    for name in (".x.json.12", ".x.json.a", ".xx.json.12", ".x.json."):
        (tmp_path / name).touch()
    assert [each.name for each in writing.drafts(path)] == [".x.json.12"]


@pytest.mark.parametrize(
    ("number", "is_error"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EACCES, False), (errno.EIO, True)]
)
def test_a_file_system_that_cannot_sync_is_no_error_and_a_failing_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_error: bool
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "fsync", refuse)
    if is_error:
        with pytest.raises(OSError, match="refused"):
            writing.sync(tmp_path)
    else:
        writing.sync(tmp_path)


@pytest.mark.parametrize(
    ("number", "words", "passes", "remedy"),
    [
        (errno.ENOSPC, "disk full", True, "free some space"),
        (errno.EDQUOT, "disk quota used up", True, "free some space"),
        (errno.EROFS, "read-only disk", True, "free some space"),
        (errno.EFBIG, "largest file size (ulimit -f) reached", False,
         "raise the limit on the size of files (ulimit -f)"),
    ],
)  # fmt: skip
def test_a_disk_that_refuses_is_named_with_its_remedy(number: int, words: str, passes: bool, remedy: str) -> None:
    assert writing.describe(number, "/x") == f"{words} at /x ({os.strerror(number)})"
    assert (writing.passes(number), writing.remedy(number)) == (passes, remedy)
    fault = OSError(number, os.strerror(number), "/data/x")
    assert (writing.refusal(fault), writing.place(fault), writing.reason(fault)) == (
        number, "/data/x", os.strerror(number)
    )  # fmt: skip
    of_tensorflow = RuntimeError(f"{{{{node Save}}}} /data/y; {os.strerror(number)} [Op:Save]")
    assert (writing.refusal(of_tensorflow), writing.place(of_tensorflow)) == (number, "/data/y")
    of_hdf5 = RuntimeError(f"unable to write (file write failed: errno = {number}, error)")
    assert (writing.refusal(of_hdf5), writing.place(of_hdf5)) == (number, None)


def test_other_errors_are_no_refusal_of_a_disk() -> None:
    for fault in (OSError(errno.EACCES, "denied"), OSError("?"), RuntimeError("errno = 13"), ValueError("x" * 300)):
        assert writing.refusal(fault) is None, fault
    assert writing.reason(OSError(errno.EACCES, "x")) == "Permission denied"
    assert writing.reason(ValueError("{{node a}} some\n  words " + "x" * 300)) == ("some words " + "x" * 300)[:200]


def test_folders_are_counted_with_all_their_files(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/x").write_bytes(b"x" * 100_000)
    (tmp_path / "y").write_bytes(b"y" * 50_000)
    blocks = sum((tmp_path / name).stat().st_blocks for name in ("a", "a/b", "a/b/x", "y"))
    assert writing.used_bytes(tmp_path) == 512 * blocks
    assert writing.used_bytes(tmp_path, tmp_path / "gone") == writing.used_bytes(tmp_path)
    assert writing.used_bytes(tmp_path, tmp_path) == 1024 * blocks


def test_a_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "a/b"
    places.make(path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o077) != (0o700, 0)
    assert path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        places.make(path)
    path.chmod(0o750)
    places.make(path, exist_ok=True)
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_lock_is_held_by_one_and_released(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert locks.held(path) in (False, None)
    with locks.take(path) as lock:
        assert (lock.works, locks.held(path)) == (True, True)
        taken: list[bool] = []

        def other() -> None:
            try:
                locks.take(path, 2).release()
            except locks.Taken:
                taken.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert taken == [True]
    assert locks.held(path) is False
    locks.take(path, 1).release()


# ---- YAML ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("010", "010 is a number octal in YAML: write 10 or 8, or quote it if it is text"),
        ("-017", "-017 is a number octal in YAML: write -17 or -15, or quote it if it is text"),
        ("0b101", "0b101 is a number binary in YAML: write 5, or quote it if it is text"),
        ("1:30", "1:30 is a number of base 60 in YAML: write 90, or quote it if it is text"),
        ("1:30:15.5", "1:30:15.5 is a number of base 60 in YAML: write 5415.5, or quote it if it is text"),
        ("1:60", ""), ("09", ""), ("0b2", ""), ("10", ""), ("word", ""),
    ],
)  # fmt: skip
def test_a_number_that_yaml_reads_in_another_base_is_told(text: str, told: str) -> None:
    assert trap(text) == told


def test_a_value_is_shortened_for_a_message() -> None:
    assert (shorten("x" * 40), shorten("x" * 41)) == (repr("x" * 40), repr("x" * 40 + "..."))
    assert (shorten([1] * 3), shorten("a\nb"), shorten("abcdef", 3)) == ("[1, 1, 1]", "'a?b'", "'abc...'")


def test_a_yaml_file_has_a_limit_and_is_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("#" * (100 * 1024))
    assert len(located_yaml.read_text(path)) == 100 * 1024
    path.write_text("#" * (100 * 1024 + 1))
    with pytest.raises(YamlFault, match="the file is larger than 100 KiB, so it is no preset"):
        located_yaml.read_text(path)
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(YamlFault) as fault:
        located_yaml.read_text(path)
    assert (fault.value.line, "is not UTF-8 text" in str(fault.value)) == (2, True)
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert located_yaml.read_text(path) == "a: 1\n"


def test_a_comment_is_put_at_its_value_and_replaces_its_older_one() -> None:
    text = "train:\n  epochs: 3\n  name: 'x'\n  note: a  # mine\ninput: {batch_size: 4}\n"
    comments = {
        ("train", "epochs"): "faster", ("train", "name"): "quoted", ("train", "note"): "kept",
        ("input", "batch_size"): "larger", ("train", "absent"): "no", ("nowhere", "x"): "no",
        ("", "all changes"): "20 %",
    }  # fmt: skip
    expected = (
        "# tune: all changes: 20 %\n"
        "train:\n"
        "  epochs: 3  # tune: faster\n"
        "  # tune: name: quoted\n"
        "  name: 'x'\n"
        "  # tune: note: kept\n"
        "  note: a  # mine\n"
        "# tune: batch_size: larger\n"
        "input: {batch_size: 4}\n"
    )
    once = yaml_writing.with_comments(text, comments, "tune")
    assert once == expected
    assert yaml_writing.with_comments(once, comments, "tune") == expected
    changed = yaml_writing.with_comments(once, comments | {("train", "epochs"): "slower"}, "tune")
    assert changed == expected.replace("faster", "slower")
    headless = {key: comment for key, comment in comments.items() if key != yaml_writing.HEAD}
    assert yaml_writing.with_comments(once, headless, "tune") == expected.partition("\n")[2]
    ends = yaml_writing.with_comments(text.replace("\n", "\r\n"), comments, "tune")
    assert ends == expected.replace("\n", "\r\n")
    odd = "train:\n  one: [1,\n    2]\n  two: |\n    x\n  three: &a 1\n  four: [1, 2]\n"
    marked = yaml_writing.with_comments(odd, {("train", name): "c" for name in ("one", "two", "three", "four")}, "tune")
    assert marked == (
        "train:\n  # tune: one: c\n  one: [1,\n    2]\n  # tune: two: c\n  two: |\n    x\n  # tune: three: c\n"
        "  three: &a 1\n  four: [1, 2]  # tune: c\n"
    )
    with pytest.raises(yaml_writing.LayoutFault, match="the layout of the file cannot be kept"):
        yaml_writing.with_comments("a: [", {}, "tune")


def test_values_are_written_as_yaml_1_1_reads_them_and_the_layout_stays() -> None:
    before = "a:\n    - 1\n    - 2\nb: 'x'  # why\n"
    yaml, document = yaml_writing.load(before)
    values = {"c": None, "d": "on", "e": "off", "f": "1e3", "g": ["no", {"h": "0x1"}], "i": "word"}
    for name, value in values.items():
        document[name] = yaml_writing.node(value)
    written = yaml_writing.dump(yaml, document, before)
    assert written == (
        'a:\n    - 1\n    - 2\nb: \'x\'  # why\nc: null\nd: "on"\ne: off\nf: "1e3"\ng: ["no", h: "0x1"]\ni: word\n'
    )
    assert yaml_writing.dump(*yaml_writing.load("a: 1\r\n"), "a: 1\r\n") == "a: 1\r\n"
