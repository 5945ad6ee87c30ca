"""The short names of runs: numbers are given once, whatever happens, and commands find the run by its short name."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import run_numbers
from gputui.engine.runs import Run, RunError, folders
from gputui.engine.system import locks
from gputui.tui.cli import completion

EACH = 5


def made(name: str = "some") -> Run:
    return runs.create(name, "schema: 1\n")


def test_runs_that_are_created_at_the_same_time_have_numbers_of_their_own(home: Path) -> None:
    with multiprocessing.get_context("fork").Pool(8) as creators:
        created = creators.map(made, ["some"] * 8 * EACH, chunksize=EACH)
    assert sorted(run.number or 0 for run in created) == list(range(1, 8 * EACH + 1))
    assert {runs.find(f"r{run.number}") for run in created} == set(created)


def test_no_number_is_given_twice_after_a_kill(home: Path) -> None:
    first = made()
    code = "import os; os.fdatasync = lambda _: os.kill(os.getpid(), 9)\n"
    code += "from gputui.engine import runs; runs.create('killed', 'schema: 1')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    file = run_numbers.file_of(first.path)
    with open(file, "r+b") as stream:  # what a power cut may leave of the last line
        stream.truncate(file.stat().st_size - 3)
    assert [first.number, made().number] == [1, 3]
    with pytest.raises(RunError, match="no run called 'r9'"):
        runs.find("r9")


def test_a_run_starts_without_a_number_if_the_disk_is_full(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, write = made(), os.write

    def until_full(fd: int, block: bytes) -> int:
        write(fd, block[:4])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", until_full)
        second = made()
    assert (second.number, second.name, runs.find(second.id)) == (None, second.id, second)
    third = made()
    assert [first.number, third.number] == [1, 2]


def test_another_process_that_holds_the_lock_costs_the_number_alone(home: Path) -> None:
    made()
    with locks.take(run_numbers.file_of(home / "runs" / "any")):
        assert made().number is None
    assert made().number == 2


def test_a_number_stays_after_a_deletion_and_a_new_name(home: Path) -> None:
    first, second, third = made("one"), made("two"), made("r1")
    (second.path / "events.jsonl").write_text(
        f'{{"t": 1.0, "type": "phase", "run": "{second.id}", "phase": "ended"}}\n'
    )
    renamed = Run(second.path.rename(second.path.with_name("best")))
    assert (renamed.name, runs.find("r2")) == ("r2", renamed)
    shutil.copytree(renamed.path, second.path)
    assert (second.name, renamed.name, runs.find("r2")) == ("r2", "best", second), "of a copy"
    shutil.rmtree(first.path)
    with pytest.raises(RunError, match=rf"r1 \({first.id}\) has been deleted"):
        runs.find("r1")  # and not the run whose id contains it
    assert (runs.find("R3"), made().number) == (third, 4)


def test_a_whole_id_is_that_of_its_run_though_other_ids_have_it_in_them(home: Path) -> None:
    ids = ("20200101-120000-a", "20200101-120000-a-2", "my-20200101-120000-a")
    made = [runs.create_at(home / "runs" / name, "schema: 1\n") for name in ids]
    assert [runs.find(name) for name in ids] == made
    with pytest.raises(RunError, match="matches 3 runs"):
        runs.find("120000-a")


def test_runs_of_an_older_version_and_of_another_home_are_called_by_their_ids(home: Path, tmp_path: Path) -> None:
    older = runs.create_at(home / "runs" / "20200101-120000-older", "schema: 1\n")
    assert (older.number, older.name) == (None, older.id)
    newer = made()
    shutil.copytree(newer.path, home / "runs" / "20990101-120000-copy")
    assert [run.name for run in runs.all_runs()].count("r1") == 1
    trial = runs.create_at(home / "proofs" / "p" / "trials" / newer.id, "schema: 1\n")
    assert trial.name == newer.id


def test_presets_and_tab_take_short_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.create("some", presets.resolve("quickstart").to_yaml(), '{"preset": "quick", "changes": {}}')
    assert presets.find("run:r1") == run.file("preset.yaml")
    offered = completion.run(None, None, "r")  # type: ignore[arg-type]
    assert [(item.value, item.help) for item in offered] == [("r1", "quick")]
    assert [item.value for item in completion.run(None, None, "")] == ["latest", "r1", run.id]  # type: ignore[arg-type]


def test_among_many_runs_one_file_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"20260101-{number:06}-some" for number in range(1, 10_001)]
    for name in names[::2000]:
        runs.create_at(home / "runs" / name, "schema: 1\n")
    (home / run_numbers.FILE).write_text("".join(f"{name}\n" for name in names))
    monkeypatch.setattr(folders, "survey", lambda: pytest.fail("the folders of all runs are read"))
    assert runs.find("r8001").id == names[8000]
    opened: list[Path] = []
    monkeypatch.setattr(run_numbers, "open_regular", opened.append)
    assert [Run(home / "runs" / name).number for name in names] == list(range(1, 10_001))
    assert opened == []
