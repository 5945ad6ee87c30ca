"""Deleted runs: set aside where nothing lists them, brought back, and removed when nobody can bring them back."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.runs import Run
from gputui.engine.runs.trash import Trash, delete_all, sweep
from gputui.engine.system import locks
from gputui.tui import cli

from tests.support.small_disk import SmallDisk
from tests.support.small_disk import small_disk as small_disk

SCREEN = """
import sys
import time
from gputui.engine import runs
from gputui.engine.runs.trash import Trash
trash = Trash()
print(trash.put([runs.find(sys.argv[1])]), flush=True)
sys.stdin.read()
"""


def made(name: str) -> Run:
    return runs.create(name, "extends: quickstart\n")


def ended(name: str) -> Run:
    run = made(name)
    run.file("result.json").write_text('{"outcome": "ok"}')
    return run


def test_deleted_runs_are_listed_nowhere_and_come_back_as_they_were() -> None:
    trash, one, two, three = Trash(), ended("one"), ended("two"), ended("three")
    assert trash.put([one, two]) == ([one, two], [])
    assert trash.put([three]) == ([three], [])
    assert runs.all_runs() == []
    with pytest.raises(runs.RunError, match="there are no runs"):
        runs.find("one")
    assert trash.bring_back() == ([three], [])
    assert trash.bring_back() == ([one, two], [])
    assert trash.bring_back() == ([], [])
    older, _ = trash.put([one])
    trash.put([two])
    assert trash.bring_back(older) == ([one], [])
    assert trash.bring_back(older) == ([], []), "it is there already"
    assert trash.bring_back() == ([two], [])
    assert one.result == {"outcome": "ok"}
    trash.put([one])
    trash.empty()
    assert not one.path.exists()
    assert trash.bring_back() == ([], [])


def test_a_run_that_goes_on_stays_where_it_is() -> None:
    trash, run, other = Trash(), made("runs"), ended("other")
    with locks.take(run.file(locks.ENGINE_LOCK)):
        moved, refused = trash.put([run, other])
    assert moved == [other]
    assert "stop it before deleting it" in refused[0]
    assert run.path.exists()


def test_a_name_that_is_taken_again_is_not_written_over() -> None:
    trash, run = Trash(), ended("one")
    trash.put([run])
    run.path.mkdir()
    back, refused = trash.bring_back()
    assert back == []
    assert "there is another folder of this name now" in refused[0]
    run.path.rmdir()
    assert trash.bring_back() == ([run], []), "it was kept"


def test_what_a_killed_screen_left_is_removed_and_what_a_living_one_holds_is_not(home: Path) -> None:
    run = ended("one")
    command = [sys.executable, "-c", SCREEN, run.id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as screen:
        assert screen.stdout is not None
        screen.stdout.readline()
        sweep(runs.runs_folder())
        assert [path.name for path in home.glob("runs/.deleted-*/2*")] == [run.id]
        screen.kill()
        screen.wait()
        sweep(runs.runs_folder())
        assert list((home / "runs").iterdir()) == []


def test_runs_are_deleted_for_good_where_the_disk_has_no_room_for_a_trash_folder(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(small_disk.path))
    run, other = ended("one"), ended("other")
    for each in (run, other):
        each.file(locks.ENGINE_LOCK).touch()
        each.file("checkpoints").mkdir()
        each.file("checkpoints/big").touch()
    with small_disk.without_inodes():
        assert Trash().refusal(run.path.parent) == "No space left on device"
        assert cli.run(["runs", "rm", run.id, "--yes"]) == 0
        assert delete_all([other]) == ([other], [])
    assert capsys.readouterr().out.startswith("deleted 1 run: ")
    assert list(run.path.parent.iterdir()) == []


def test_a_run_of_which_something_stays_is_not_deleted_and_still_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, unlink = ended("one"), os.unlink
    run.file("request.json").touch()  # the file that makes a folder a proof

    def refuse(path: str, **more: Any) -> None:
        if str(path).endswith("result.json"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    assert cli.run(["runs", "rm", run.id, "--yes"]) == 2
    out, err = capsys.readouterr()
    assert out == "deleted 0 runs\n"
    assert err.splitlines() == [
        f"{run.id} cannot be deleted: Operation not permitted: {run.file('result.json')}",
        f"what is left of it is in {run.path}",
    ]
    assert runs.all_runs() == [run]
    assert {path.name for path in run.path.iterdir()} >= {"preset.yaml", "request.json", "result.json"}
    trash = Trash()
    trash.put([run])
    assert trash.empty().endswith("cannot be removed: Operation not permitted")


def test_nothing_of_a_run_is_deleted_if_its_folder_could_not_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ended("one")
    files = sorted(run.path.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != run.path.parent.resolve())  # root may do all
    assert cli.run(["runs", "rm", run.id, "--yes"]) == 2
    out, err = capsys.readouterr()
    assert out == "deleted 0 runs\n"
    assert err == (
        f"{run.id} cannot be deleted: {run.path.parent.resolve()} cannot be written; nothing of it was deleted\n"
    )
    assert sorted(run.path.iterdir()) == files


def test_no_lock_is_deleted_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS renames such a file to .nfs and keeps it, and then the folder is not empty."""
    unlink, before = os.unlink, set(locks._held)
    open_ones: list[str] = []

    def noted(path: Any, **more: Any) -> None:
        if os.path.basename(path) in (locks.ENGINE_LOCK, "held") and locks._held - before:
            open_ones.append(path)
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", noted)
    run, other, trash = ended("one"), ended("other"), Trash()
    assert delete_all([run]) == ([run], [])
    trash.put([other])
    assert trash.empty() == ""
    left = runs.runs_folder() / ".deleted-x"
    left.mkdir()
    sweep(runs.runs_folder())
    assert open_ones == []
    assert list(runs.runs_folder().iterdir()) == []


def test_a_link_to_elsewhere_is_deleted_with_its_run(tmp_path: Path) -> None:
    moved = ended("other")
    moved.path.rename(tmp_path / "elsewhere")
    moved.path.symlink_to(tmp_path / "elsewhere")
    assert [each.id for each in runs.all_runs()] == [moved.id]
    assert delete_all([moved]) == ([moved], [])
    assert not os.path.lexists(moved.path)
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_link_inside_a_run_shows_stays(tmp_path: Path) -> None:
    run = ended("one")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").touch()
    run.file("data").symlink_to(tmp_path / "data")
    assert delete_all([run]) == ([run], [])
    assert (tmp_path / "data/kept").exists()


def test_a_file_that_is_deleted_between_its_opening_and_its_locking_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    flock = fcntl.flock
    locked: list[int] = []

    def deleted_before(fd: int, operation: int) -> None:
        if not locked:
            path.unlink()
        locked.append(fd)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleted_before)
    with locks.take(path):
        assert locks.held(path) is True, "the lock is on the file that is there"
    assert len(locked) > 1


def test_a_sweep_takes_only_what_screens_have_left(home: Path) -> None:
    run = ended("one")
    sweep(run.path.parent)
    assert sorted(path.name for path in run.path.iterdir()) == ["preset.yaml", "result.json"]


@pytest.mark.parametrize(("days", "stays"), [(6.9, True), (7.1, False)])
def test_without_locks_only_what_is_older_than_a_week_is_swept(
    days: float, stays: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left = home / "runs" / ".deleted-x"
    left.mkdir(parents=True)
    (left / "held").touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    then = time.time() - days * 86400
    os.utime(left, (then, then))
    sweep(home / "runs")
    assert [path.name for path in (home / "runs").iterdir()] == ([left.name] if stays else [])
