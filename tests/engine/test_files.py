"""Values and files that any program may have written: what is taken, what is left out, and what is said of it."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import GrowingFile, locks, values, writing

# ---- values --------------------------------------------------------------------------------------


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


# ---- reading -------------------------------------------------------------------------------------


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
