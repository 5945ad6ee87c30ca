"""Numbers, titles and the trash of runs, and what seldom happens to their folders."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    EVENTS_FILE,
    EventWriter,
    LineUp,
    Run,
    RunError,
    Started,
    Trash,
    Warn,
    compare,
    delete_all,
    jobs,
    launch,
    launched_with,
    locks,
    options_json,
    parsing,
    presets,
    run_numbers,
    runs,
    sweep,
)
from tests.doors.engine import runs_title as title
from tests.doors.tui import tui_cli as cli
from tests.support.small_disk import small_disk as small_disk

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


def test_a_number_stays_after_a_deletion_and_a_new_name(home: Path) -> None:
    first, second, third = made("one"), made("two"), made("r1")
    (second.path / "events.jsonl").write_text(
        f'{{"t": 1.0, "type": "phase", "run": "{second.id}", "phase": "ended"}}\n'
    )
    renamed = Run(second.path.rename(second.path.with_name("best")))
    assert (renamed.name, runs.find("r2")) == ("r2", renamed)
    shutil.copytree(renamed.path, second.path)
    assert (second.name, renamed.name, runs.find("r2")) == ("r2", "best", second), "of a copy"
    longer = Run(shutil.copytree(second.path, second.path.with_name(f"{second.id}-002")))
    assert (runs.find(second.id), runs.find(longer.id)) == (second, longer), "a whole id is that of its run alone"
    shutil.rmtree(longer.path)
    shutil.rmtree(first.path)
    with pytest.raises(RunError, match=rf"r1 \({first.id}\) has been deleted"):
        runs.find("r1")  # and not the run whose id contains it
    assert (runs.find("R3"), made().number) == (third, 4)


def test_a_preset_is_found_by_the_short_name_of_its_run(home: Path) -> None:
    run = runs.create("some", presets.resolve("quickstart").to_yaml())
    assert presets.find("run:r1") == run.file("preset.yaml")


# ---- A run is named by its preset and by what was changed of it ----------------------------------


def started(name: str, *settings: str) -> Run:
    """The folder of a run as the launcher makes it."""
    preset = presets.resolve(name, settings)
    return runs.create(preset.name, launch.settle(preset, Path.cwd()).to_yaml(), launch.origin_of(preset))


def test_a_run_is_named_by_what_was_changed_of_its_preset(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("extends: quickstart\ncompile: {xla: true}\ninput: {batch_size: 32}\n")
    plain, changed = started(str(own)), started(str(own), "batch_size=256", "xla=false", "tf32=true")
    assert title(plain) == "mine"
    assert title(changed) == "mine: no xla batch_size=256", "what the preset says anyway is no change"
    assert title(started("quickstart", "xla=true", "data=tfrecord:/data/x/train-*.tfrecord", "max_minutes=5")) == (
        "quickstart: xla data=tfrecord:train-*.tfrecord max_minutes=5"
    )
    again = started(str(changed.file("preset.yaml")), "epochs=7", "batch_size=32")
    assert title(again) == "mine: no xla epochs=7", "the changes of a run that is run again add up"
    own.write_text("broken: [")
    own.rename(tmp_path / "gone.yaml")
    assert title(changed) == "mine: no xla batch_size=256", "whatever becomes of the preset"
    found = compare(LineUp((plain, changed)))
    assert found.as_dict()["titles"] == ["mine", "mine: no xla batch_size=256"]


# ---- Deleted runs --------------------------------------------------------------------------------


SCREEN = """
import sys
import time
from gputui.engine import runs
from gputui.engine.runs.trash import Trash
trash = Trash()
print(trash.put([runs.find(sys.argv[1])]), flush=True)
sys.stdin.read()
"""


def made_of_trash(name: str) -> Run:
    return runs.create(name, "extends: quickstart\n")


def ended(name: str) -> Run:
    run = made_of_trash(name)
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
    trash, run, other = Trash(), made_of_trash("runs"), ended("other")
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


def test_what_a_link_inside_a_run_shows_stays(tmp_path: Path) -> None:
    run = ended("one")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").touch()
    run.file("data").symlink_to(tmp_path / "data")
    assert delete_all([run]) == ([run], [])
    assert (tmp_path / "data/kept").exists()


# ---- What the folders of runs and the queue refuse or leave out seldom ---------------------------


@pytest.mark.parametrize("text", ["a\x7fb c", "a\\u007fb\\tc", "a\x7fb\\tc", "a\\u001bb c"])
def test_no_text_of_an_event_file_reaches_a_terminal_as_it_is(text: str) -> None:
    line = '{"t":1.0,"type":"warning","run":"one","kind":"a","message":"%s","hint":"","option":""}' % text  # noqa: UP031
    ((event, raw),) = parsing.parse_block(f"{line}\n".encode())
    assert isinstance(event, Warn)
    assert event.message == "a?b c"
    assert raw == line.encode()
    assert parsing.parse_line(line.encode()) == event


def test_a_module_is_the_same_code_as_its_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "models" / "small.py"
    file.parent.mkdir()
    file.write_text("def model(): ...\n")
    os.utime(file, (1000, 1000))
    workload = {"entry": "models.small:model", "folder": str(tmp_path)}
    run = runs.create("one", "schema: 1\n", more={options_json.FILE: json.dumps({"workload": workload})})
    started = Started(
        pid=1, versions={}, devices=[], options={}, actual={}, replicas=1, global_batch_size=1, steps_per_epoch=1,
        epochs=1, steps=1, train_samples=1, validation_samples=None,
    )  # fmt: skip
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    writer.emit(started, 2000.0)
    writer.close()
    for entry, found in (
        ("models.small:model", True), ("models/small.py:model", True), ("models.small:other", False),
        ("models/other.py:model", False),
    ):  # fmt: skip
        preset = presets.defaults([f"workload.entry={entry}", f"workload.folder={tmp_path}"])
        event = launched_with.of_same_code(preset.options)
        assert (event is not None and event.t == 2000.0) is found, entry
    os.utime(file, (2001, 2001))
    assert launched_with.of_same_code(preset.options) is None


# ---- the queue -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        ({"budget_seconds": 60, "started_t": 990.0}, 50.0), ({"budget_seconds": 60, "started_t": 900.0}, 0.0),
        ({"budget_seconds": 60}, None), ({"started_t": 990.0}, None), ({}, None),
    ],
)  # fmt: skip
def test_a_measurement_has_the_rest_of_its_time_and_never_less_than_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], seconds: float | None
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    job = jobs.ProofJob(home / "proofs" / "one")
    job.path.mkdir(parents=True)
    (job.path / "proof.json").write_text(json.dumps(record))
    assert job.seconds_left() == seconds
