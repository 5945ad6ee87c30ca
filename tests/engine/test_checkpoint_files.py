"""Which checkpoint of a run is intact, found out without TensorFlow, and what is said of one that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gputui.engine.runs import checkpoint_files
from gputui.engine.runs.checkpoint_files import Damage, describe, path_of, seal, steps_in, verify, whole_step

INDEX, DATA, SECOND = "state.index", "state.data-00000-of-00002", "state.data-00001-of-00002"


def saved(folder: Path, step: int, sealed: bool = True) -> Path:
    path = path_of(folder, step)
    path.mkdir(parents=True)
    for name, text in ((INDEX, "index"), (DATA, "first"), (SECOND, "second")):
        (path / name).write_text(text)
    if sealed:
        seal(path, step)
    return path


def manifest(change: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        found = json.loads((path / "manifest.json").read_text())
        change(found)
        (path / "manifest.json").write_text(json.dumps(found))

    return write


def test_the_newest_intact_checkpoint_counts(tmp_path: Path) -> None:
    assert steps_in(tmp_path / "none") == []
    assert whole_step(tmp_path) is None
    for step in (3, 20, 100):
        saved(tmp_path, step)
    for name in ("step-0000000200.draft", "step-200", "old"):
        (tmp_path / name).mkdir()
    assert steps_in(tmp_path) == [100, 20, 3]
    assert whole_step(tmp_path) == 100
    (path_of(tmp_path, 100) / SECOND).write_text("SECOND")
    assert whole_step(tmp_path) == 20
    (path_of(tmp_path, 20) / SECOND).unlink()
    (path_of(tmp_path, 3) / INDEX).write_text("")
    with pytest.raises(Damage) as raised:
        whole_step(tmp_path)
    assert str(raised.value) == (
        f"checkpoint of step 100 is damaged (the checksum of {SECOND} does not match); "
        f"checkpoint of step 20 is damaged ({SECOND} is missing); "
        f"checkpoint of step 3 is damaged ({INDEX} has 0 of 5 bytes)")  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (manifest(lambda found: found.update(step=6)), "it belongs to step 6"),
        (manifest(lambda found: found.update(step="5")), "manifest.json is damaged"),
        (manifest(lambda found: found["files"].pop(INDEX)), "manifest.json is damaged"),  # type: ignore[attr-defined]
        (manifest(lambda found: found["files"].update({"../x": {"bytes": 1, "crc32": 1}})),  # type: ignore[attr-defined]
         "manifest.json is damaged"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda path: (path / SECOND).write_text("secon"), f"{SECOND} has 5 of 6 bytes"),
        (lambda path: (path / DATA).write_text("tsrif"), f"the checksum of {DATA} does not match"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    saved(tmp_path, 5)
    assert verify(tmp_path, 5) is True
    damage(path_of(tmp_path, 5))
    with pytest.raises(Damage) as raised:
        verify(tmp_path, 5)
    assert str(raised.value) == said


def test_a_checkpoint_without_checksums_is_intact_if_no_file_is_missing_or_empty(tmp_path: Path) -> None:
    path = saved(tmp_path, 5, sealed=False)
    assert verify(tmp_path, 5) is False
    for change, said in (("", f"{SECOND} is empty"), (None, f"{SECOND} is missing")):
        (path / SECOND).unlink() if change is None else (path / SECOND).write_text(change)
        with pytest.raises(Damage, match=said):
            verify(tmp_path, 5)
    with pytest.raises(Damage, match="it is not a folder"):
        verify(tmp_path, 6)


def test_checksums_are_those_of_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "_BLOCK_BYTES", 2)
    path = saved(tmp_path, 5)
    for place in range(6):
        (path / SECOND).write_text("second"[:place] + "X" + "second"[place + 1 :])
        with pytest.raises(Damage, match="checksum"):
            verify(tmp_path, 5)


def test_of_many_damaged_checkpoints_three_are_described() -> None:
    assert describe({3: "a", 2: "b", 1: "c"}).endswith("; checkpoint of step 1 c")
    assert describe({4: "a", 3: "b", 2: "c", 1: "d"}).endswith("; checkpoint of step 2 c; and 1 more")
