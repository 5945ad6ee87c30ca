"""`gputui prepare` as a user runs it: killed and started again, and on a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.class_folders import check, class_folders, manifest
from tests.support.front_door import gputui, opened, until
from tests.support.small_disk import SmallDisk
from tests.support.small_disk import small_disk as small_disk


def command(images: Path, folder: Path, *words: str) -> list[str]:
    given = [word for setting in (f"data=images:{images}", "shape=[8, 8, 3]") for word in ("--set", setting)]
    return ["prepare", "--preset", "quickstart", *given, "-o", str(folder), *words]


@pytest.mark.slow
def test_a_preparation_that_is_killed_goes_on_with_the_next_file(tmp_path: Path) -> None:
    good, folder = class_folders(tmp_path / "images", 190, 10), tmp_path / "ready"
    arguments = command(tmp_path / "images", folder, "--shards", "90")
    with opened(*arguments) as process:
        until(lambda: len(manifest(folder)["written"]) >= 3, every=0.005)
        process.kill()
    first = manifest(folder)["written"][0]
    assert not manifest(folder)["complete"]
    done = gputui(*arguments, "--workers", "2", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout) == manifest(folder)
    assert manifest(folder)["written"][0] == first
    check(folder, good, 10)


@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.nightly
def test_a_full_disk_is_refused_before_and_named_meanwhile(tmp_path: Path, small_disk: SmallDisk) -> None:
    """What was complete is kept."""
    _, folder = class_folders(tmp_path / "images", 190, 10), small_disk.path / "ready"
    arguments = command(tmp_path / "images", folder, "--shards", "90")
    with small_disk.full():
        refused = gputui(*arguments)
    assert (refused.returncode, folder.exists()) == (2, False), refused
    process = opened(*arguments)
    until(lambda: len(manifest(folder)["written"]) >= 3, every=0.005)
    with small_disk.full():
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 1, (out, errors)
    assert f"disk full at {folder}" in errors
    assert "free some space, then the same command goes on" in errors
    assert "Traceback" not in errors
    assert list(folder.glob(".*.part")) == []
    assert len(manifest(folder)["written"]) >= 3
