"""What the folders of runs and the queue refuse or leave out seldom: names that are taken, disks, files of others."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import run_numbers
from gputui.engine.files.appending import LineFile
from gputui.engine.leases.start_devices import Devices
from gputui.engine.process import launch
from gputui.engine.queue import entries, queue_settings, user_service
from gputui.engine.queue.entries import Entry, Listing, ListingReader
from gputui.engine.runs import (
    Run,
    RunError,
    code_copy,
    code_files,
    control,
    event_reading,
    folders,
    parsing,
    quick_json,
    results,
    trash,
)
from gputui.engine.runs.event_reading import Tail, read_events
from gputui.engine.runs.events import EVENTS_FILE
from gputui.engine.runs.liveness import Liveness
from gputui.engine.runs.parsing import parse_block
from gputui.engine.system import locks
from gputui.engine.system.locks import ENGINE_LOCK

DISK = OSError(errno.EIO, "Input/output error", "/x")


def fails(fault: Exception) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise fault

    return call


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.0)


# ---- folders of runs -----------------------------------------------------------------------------


def test_a_run_in_a_folder_of_its_own_choice_has_a_number_and_is_never_put_over_another(home: Path) -> None:
    chosen = runs.runs_folder() / "mine"
    run = runs.create("fast", "schema: 1\n", '{"preset": "a"}', {"more.json": "{}"}, path=chosen)
    assert (run.path, run.number, sorted(file.name for file in chosen.iterdir())) == (
        chosen, 1, ["more.json", "origin.json", "preset.yaml"]
    )  # fmt: skip
    assert chosen.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError) as refusal:
        runs.create("fast", "schema: 2\n", path=chosen)
    assert (refusal.value.filename, run.file("preset.yaml").read_text()) == (str(chosen), "schema: 1\n")
    assert [path.name for path in chosen.parent.iterdir()] == ["mine"]


def test_runs_of_one_second_are_counted_and_a_measurement_that_waits_keeps_its_id(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-120000")
    entries.queue_folder().mkdir(parents=True)
    entries.file_of("20260101-120000-a-b-2").write_text("{}")
    made = [runs.create(name, "schema: 1\n").id for name in ("A  b!", "a-b", "--", "x" * 40)]
    assert made == [
        "20260101-120000-a-b", "20260101-120000-a-b-3", "20260101-120000-run", f"20260101-120000-{'x' * 32}"
    ]  # fmt: skip
    tried: list[str] = []

    def taken(path: Path, *_: object) -> Run:
        tried.append(path.name)
        raise FileExistsError

    monkeypatch.setattr(folders, "create_at", taken)
    with pytest.raises(RunError, match=f"^cannot create a run folder in {runs.runs_folder()}$"):
        runs.create("c", "schema: 1\n")
    assert (len(tried), tried[0], tried[-1]) == (999, "20260101-120000-c", "20260101-120000-c-999")


def test_folders_that_cannot_be_read_are_named_with_the_reason(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (str(folders.survey()), run_numbers.named("r1", home / "runs")) == ("", None)
    made = [runs.create(name, "schema: 1\n") for name in ("a", "b", "c")]
    lstat = os.lstat

    def refuses(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith((str(made[0].path), str(made[1].path))):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return lstat(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", refuses)
        survey = folders.survey()
        assert (survey.runs, survey.closed) == (made[2:], {run.id: "Permission denied" for run in made[:2]})
        with pytest.raises(RunError, match=f"^{made[0].path} cannot be read: Permission denied$"):
            runs.find(made[0].id)
    named = next(iter(survey.closed))
    left_out = f"left out, as gputui cannot read it: {runs.runs_folder()}/{named} (Permission denied)"
    assert str(survey) == f"{left_out} and 1 more"
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fails(DISK))
        assert folders.survey() == folders.Survey([], {".": "Input/output error"})
    file = run_numbers.file_of(made[0].path)
    file.write_text(file.read_text().replace(f"{made[1].id}\n", f"\n{made[1].id}\n"))
    assert [run.number for run in made] == [1, 3, 4], "each has the number of its line"
    assert run_numbers.short_names(home / "runs") == {run.id: run.name for run in made}
    file.write_text("".join(f"{run.id}\n" for run in made))
    (runs.runs_folder() / "r2").mkdir()
    with pytest.raises(RunError) as refusal:
        runs.find("r2")
    assert str(refusal.value) == (
        f"r2 is the short name of {made[1].id}, and another run's folder: rename that folder"
    )  # fmt: skip
    for text, words in (("", "name a run, or latest; gputui runs lists them"), ("zz", "no run called 'zz'; gputui")):
        with pytest.raises(RunError) as refusal:
            runs.find(text)
        assert str(refusal.value).startswith(words)
    shutil.rmtree(runs.runs_folder())
    with pytest.raises(RunError, match="there are no runs in"):
        runs.find("zz")


def test_the_lock_of_a_run_that_cannot_be_had_is_the_reason(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = presets.resolve("quickstart", ["visible=none"])
    run = launch.create_queued(preset)
    taken = pytest.raises(RunError, match=f"^another gputui is using the new run {run.name}$")
    with locks.take(run.file(ENGINE_LOCK)), taken:
        launch.begin(run, preset, None)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "liveness", property(lambda _: Liveness(trainer=True)))
        patched.setattr(
            "gputui.engine.leases.start_devices.lease_devices", lambda *_, **__: Devices(preset.options, ())
        )
        with pytest.raises(RunError, match=f"^{run.name} cannot be started: its trainer has not ended yet$"):
            launch.begin(run, preset, None)
    run.file("result.json").write_text('{"outcome": "stopped"}')
    for fault, words in (
        (locks.Taken(), "cannot be deleted: it is running, or another gputui is using it"),
        (DISK, "cannot be locked: Input/output error: /x"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(locks, "take", fails(fault))
            with pytest.raises(RunError) as refusal, control.reserved(run, "delete"):
                pass
            assert str(refusal.value) == f"{run.name} {words}"
    bin_ = trash.Trash()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fails(OSError(errno.EXDEV, "Invalid cross-device link")))
        assert bin_.put([run]) == ([], [f"{run.id} cannot be deleted: Invalid cross-device link"])
    assert bin_.bring_back() == ([], []), "it was not deleted"
    assert bin_.empty() == ""
    assert runs.all_runs() == [run]


# ---- code ----------------------------------------------------------------------------------------


def test_of_a_module_nothing_is_copied_and_of_a_folder_that_cannot_be_listed_the_reason_is_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings, left_out in (
        (["run.code=copy"], "mine.train:build names a module, which is not copied"), (["run.code=live"], ""),
    ):  # fmt: skip
        run = launch.create(launch.settle(presets.defaults(["entry=mine.train:build", *settings]), tmp_path))
        assert (code_copy.read(run), code_copy.of(run)) == (code_copy.Source(left_out=left_out), None)
    (tmp_path / "parts/closed").mkdir(parents=True)
    for name in ("train.py", "parts/helper.py"):
        (tmp_path / name).write_text("x = 1\n")
    scandir = os.scandir
    closed = [tmp_path / "parts/closed"]

    def refuses(path: Any) -> Any:
        if Path(path) in closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuses)
    preset = presets.defaults([f"entry={tmp_path}/train.py:build", "run.code=copy"])
    run = launch.create(launch.settle(preset, tmp_path))
    copy = run.file("code")
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        "parts", "parts/closed", "parts/helper.py", "train.py"
    ]  # fmt: skip
    assert (copy / "parts/closed").readlink() == tmp_path / "parts/closed"
    closed.append(tmp_path)
    run = launch.create(launch.settle(preset, tmp_path))
    assert code_copy.of(run) is None
    reason = f"the Python files in {tmp_path} are not copied: {tmp_path}: Permission denied"
    assert code_copy.read(run) == code_copy.Source(str(tmp_path), reason)


def test_a_record_of_code_changes_only_with_the_code(home: Path, tmp_path: Path) -> None:
    run = runs.create("a", "schema: 1\n")
    file, gone = tmp_path / "a.py", tmp_path / "b.py"
    for path in (file, gone):
        path.write_text("x = 1\n")
    code_files.add(run, tmp_path, [str(file), str(gone), str(tmp_path / "none.py")])
    record = run.file(code_files.FILE)
    assert sorted(code_files.read(run).files) == [str(file), str(gone)]
    before = record.stat().st_mtime_ns
    code_files.accept(run)
    code_files.add(run, tmp_path, [str(file)])
    assert (record.stat().st_mtime_ns, code_files.read(run).changes) == (before, [])
    file.write_text("x = 2\n")
    gone.unlink()
    code_files.accept(run)
    assert code_files.changed(run) == []
    change = {"step": None, "files": ["a.py", "b.py"]}
    assert (list(code_files.read(run).files), code_files.read(run).changes) == ([str(file)], [change])
    assert code_files.record_step(run, 40) == ["a.py", "b.py"]
    assert code_files.record_step(run, 50) == []
    assert code_files.read(run).changes == [{"step": 40, "files": ["a.py", "b.py"]}]


# ---- files of events and results -----------------------------------------------------------------


def test_many_events_are_read_without_collecting_garbage_and_collecting_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / EVENTS_FILE, list[bool]()
    line = json.dumps({"t": 1.0, "type": "phase", "run": "r", "phase": "training", "detail": "x" * 1000})

    def noted(block: bytes) -> Any:
        seen.append(gc.isenabled())
        return parse_block(block)

    monkeypatch.setattr(event_reading, "parse_block", noted)
    for count, enabled in ((2, True), (2000, False)):
        path.write_text(f"{line}\n" * count)
        assert (len(Tail(path).read()), seen[-1], gc.isenabled()) == (count, enabled, True)
    gc.disable()
    try:
        Tail(path).read()
        assert (seen[-1], gc.isenabled()) == (False, False), "whoever has switched it off"
    finally:
        gc.enable()


def test_large_files_are_read_by_a_quicker_parser_with_the_same_events(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = {"t": 1.0, "type": "phase", "run": "r", "phase": "training", "detail": "x" * 1000}
    lines = [json.dumps(phase | {"t": float(number)}).encode() for number in range(1000)]
    odd = [b"", b"{", b"[1]", json.dumps(phase | {"t": 5}).encode(), json.dumps(phase | {"phase": 7}).encode(),
           b'{"t":1.5,"type":"phase","run":"r","phase":"ended","detail":NaN}', b'{"t":NaN,"type":"phase"}',
           b'{"type":"new","t":2.0,"run":"r","more":[1,{"a":null}]}', b'{"t":1.0}', lines[0][:-1]]  # fmt: skip
    block = b"\n".join([*lines, *odd, b"incomplete"])
    monkeypatch.setattr(parsing, "quick_reader", None)
    usual = [(event and vars(event), line) for event, line in parse_block(block)]
    quick_json.use()
    assert parsing.quick_reader is not None
    assert [(event and vars(event), line) for event, line in parse_block(block)] == usual
    assert [line for _, line in usual] == [*lines, *odd]
    assert [event is not None for event, _ in usual[1000:]] == [
        False, False, False, True, False, False, False, True, False, False
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_any_more_is_told_with_its_first_damaged_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / EVENTS_FILE
    path.write_text("\n" * 7 + "broken\nbroken\n")
    events = read_events(tmp_path, [EVENTS_FILE])
    assert events.damage == ("line 8 of events.jsonl and 1 more are damaged, left out",)
    tail = Tail(path)
    assert tail.read() == []
    path.unlink()
    path.mkdir()
    assert (tail.read(), str(tail.damage)) == ([], "events.jsonl cannot be read: is a folder, not a file")
    assert event_reading.Tail(path, from_now=True).read() == []
    monkeypatch.setattr(fcntl, "fcntl", fails(OSError(errno.EINVAL, "Invalid argument")))
    reader, writer = os.pipe()
    lines = ["x" * 5000] * 9
    results.hand_over(results.Report({"outcome": "ok"}, lines, 1), writer)
    taken = results.take(reader)
    os.close(reader)
    os.close(writer)
    assert (taken.result, list(taken.lines), taken.lost_events) == ({"outcome": "ok"}, lines[:3], 7), "of 16 KiB"


def test_lines_that_have_waited_are_written_in_blocks_whole_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write, blocks = tmp_path / "lines", os.write, list[int]()
    path.write_text("of a killed process")
    room = [0]

    def limited(descriptor: int, block: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, block[: room[0]])
        room[0] -= written
        blocks.append(len(block))
        return written

    monkeypatch.setattr(os, "write", limited)
    file = LineFile(path)
    lines = ["a" * 30_000, "b" * 30_000, "c" * 70_000, "d", "e" * 65_535]
    for line in lines:
        assert file.append(line) is None
    assert (file.lines, file.waiting, file.missing) == (lines, 5, 5)
    room[0] = 40_000
    assert (file.flush(), file.waiting, file.reason) == (None, 4, "No space left on device")
    assert path.read_text() == f"of a killed process\n{lines[0]}\n", "of a line no part stays"
    blocks.clear()
    room[0] = 10**6
    gap = file.flush()
    assert gap is not None
    assert (gap.late, gap.lost, blocks) == (5, 0, [30_001, 70_001, 2, 65_536])
    file.close()
    assert path.read_text().split("\n")[1:] == [*lines, ""]


# ---- the queue -----------------------------------------------------------------------------------


def test_a_queue_without_locks_or_whose_folder_cannot_be_used_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(entries.subprocess, "Popen", started.append)  # type: ignore[attr-defined]
    reader = ListingReader()
    assert (reader.read(), reader.listing, reader.read()) == (True, Listing(), False), "there is no folder yet"
    with entries.locked():
        entries.write(Entry("20260101-120000-a", 1.0))
    assert (reader.read(), len(reader.listing.entries)) == (True, 1)
    runner_lock = entries.queue_folder() / entries.RUNNER_LOCK
    with locks.take(runner_lock):
        assert entries.take_runner_lock(None) is None
    lock = entries.take_runner_lock(None)
    assert lock is not None
    lock.release()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", fails(OSError(errno.ENOLCK, "No locks available")))
        with pytest.raises(RunError) as refusal, entries.locked():
            pass
        assert str(refusal.value) == (
            f"the file system of {entries.queue_folder()} has no locks; set GPUTUI_HOME to a folder on a local disk"
        )
        entries.ensure_runner()
    assert started == []
    file = queue_settings.path()
    file.mkdir(parents=True)
    read = queue_settings.read()
    assert read == queue_settings.Settings(
        faults=(f"{file}: is a folder, not a file",), engine_faults=(f"{file}: is a folder, not a file",)
    )


def test_without_systemd_a_unit_is_left_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    by_hand = "systemctl --user daemon-reload && systemctl --user enable gputui-queue.service"
    assert user_service.install() == by_hand
    assert user_service.path().read_text() == user_service.text()
    (tmp_path / "systemctl").write_text("no program\n")
    (tmp_path / "systemctl").chmod(0o755)
    assert user_service.install() == by_hand
    assert (user_service.remove(), user_service.remove()) == (True, False)
