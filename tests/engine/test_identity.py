"""Which process and which machine is meant: places, processes by id and start, ancestors, and the signals to them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine.system import descendants, identity, locks, stop_signals
from gputui.engine.system.descendants import Descendant
from gputui.engine.system.identity import Place, Process

HERE = Place("box", "boot-1", "pid:[1]")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "here", lambda: HERE)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("place", "is_here", "shares_kernel", "name"),
    [
        (HERE, True, True, "box (another container of this machine)"),
        (replace(HERE, host="renamed"), True, True, "renamed (another container of this machine)"),
        (replace(HERE, pid_namespace="pid:[2]"), False, True, "box (another container of this machine)"),
        (replace(HERE, boot_id="boot-2"), False, False, "box"),
        (Place("other", "boot-2", "pid:[1]"), False, False, "other"),
    ],
)
def test_process_ids_are_valid_in_one_container_between_two_starts_of_its_machine(
    here: None, place: Place, is_here: bool, shares_kernel: bool, name: str
) -> None:
    assert (place.is_here, place.shares_kernel, place.name) == (is_here, shares_kernel, name)
    assert Place.read(place.as_fields()) == place
    assert Place.read(place.as_fields() | {"boot_id": 7}) is None


def test_without_an_id_of_the_start_the_names_of_the_machines_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "here", lambda: Place("box", "", "pid:[1]"))
    assert Place("box", "", "pid:[1]").is_here
    assert not Place("other", "", "pid:[1]").is_here
    assert not Place("box", "", "pid:[1]").shares_kernel


@pytest.mark.parametrize(
    ("fields", "process"),
    [
        ({"pid": 7, "start_ticks": 9}, (7, 9)), ({"pid": 7}, (7, 0)), ({"pid": 7, "start_ticks": -1}, (7, 0)),
        ({"pid": 7, "start_ticks": True}, (7, 0)), ({"pid": 0}, None), ({"pid": "7"}, None), ({"pid": True}, None),
        ({"pid": 2**63}, None), ({"pid": 2**63 - 1}, (2**63 - 1, 0)), ({}, None),
    ],
)  # fmt: skip
def test_a_process_is_read_with_what_is_known_of_its_start(
    fields: dict[str, object], process: tuple[int, int] | None
) -> None:
    read = Process.read(fields)
    assert (None if read is None else (read.pid, read.start_ticks)) == process
    of_engine = Process.read({f"engine_{name}": value for name, value in fields.items()}, "engine")
    assert of_engine == read
    assert Process(7, 9, None).as_fields("engine") == {"engine_pid": 7, "engine_start_ticks": 9}


def test_exactly_the_process_with_this_id_and_start_is_alive(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process.of(child.pid)
    other = replace(process, start_ticks=process.start_ticks + 1)
    elsewhere = replace(process, place=replace(Place.here(), pid_namespace="pid:[1]"))
    unknown, nowhere = replace(process, start_ticks=0), replace(process, place=None)
    assert [each.alive() for each in (process, other, elsewhere, unknown, nowhere)] == [True] + [False] * 4

    def fails(_pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(identity, "_start_ticks", fails)
        assert process.alive(), "nobody can say that it has ended"
        assert Process.of(child.pid).start_ticks == 0
        assert other.place is not None
    assert (process.is_mine(), Process(2**22 + 7, 1, None).is_mine()) == (True, False)
    child.kill()
    child.wait()
    assert (process.alive(), process.is_mine(), Process.of(child.pid).start_ticks) == (False, False, 0)


def test_a_process_works_for_a_folder_by_its_command_line_or_its_open_file(tmp_path: Path) -> None:
    code = "import time; print(1, flush=True); time.sleep(60)"
    file = tmp_path / "events.jsonl"
    file.touch()
    with file.open() as stream:
        command = [sys.executable, "-c", code, "-m", "gputui.engine", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=stream) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = Process.of(process.pid)
            assert (found.serves(tmp_path), found.serves(tmp_path.parent)) == (True, False)
            assert (found.has_open(file), found.has_open(tmp_path / "other")) == (True, False)
            process.kill()
    assert (Process.current().serves(tmp_path), found.serves(tmp_path), found.has_open(file)) == (False, False, False)


def test_a_process_works_for_a_folder_only_as_one_of_the_programs_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    process, words = Process.current(), list[str]()
    monkeypatch.setattr(Path, "read_bytes", lambda _path: b"".join(os.fsencode(word) + b"\0" for word in words))
    ours = ("", ".trainer", ".proof", ".scaling", ".sweep", ".tune")
    for module, works in (*((name, True) for name in ours), (".follow", False), (".engine", False), ("s", False)):
        for folder, is_it in ((tmp_path, True), (tmp_path / "link", True), (tmp_path.parent, False)):
            words[:] = ["/opt/python", "-P", "-m", f"gputui.engine{module}", str(folder)]
            assert process.serves(tmp_path) is (works and is_it), words
    for other in (["-m", "gputui.engine"], [str(tmp_path)], ["python", "-c", "gputui.engine", str(tmp_path)], [],
                  ["python", "-m", "gputui.engine", str(tmp_path), "more"]):  # fmt: skip
        words[:] = other
        assert not process.serves(tmp_path), words


def test_this_place_has_what_the_kernel_says_of_it() -> None:
    here = Place.here()
    assert (here.host, here.boot_id, here.pid_namespace) == (
        os.uname().nodename, Path("/proc/sys/kernel/random/boot_id").read_text()[:36],
        os.readlink("/proc/self/ns/pid"),
    )  # fmt: skip


def test_a_process_descends_from_all_above_it_and_what_cannot_be_seen_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = {9: 7, 7: 5, 5: 1, 4: 3, **{100 + number: 101 + number for number in range(40)}}

    def read(pid: int) -> Descendant | None:
        return Descendant(pid, parents[pid], "", False, 0) if pid in parents else None

    monkeypatch.setattr(descendants, "_read", read)
    assert [descendants.descends(9, [ancestor]) for ancestor in (9, 7, 5, 4)] == [True, True, True, False]
    assert descendants.descends(4, [9]), "its parent has ended"
    assert descendants.descends(100, [9]), "too many to look at"
    assert not descendants.descends(5, ())


def test_a_kernel_without_handles_of_processes_gets_the_signal_by_the_id(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status.json").touch()

    def refuses(number: int) -> None:
        def opened(_pid: int) -> int:
            raise OSError(number, "refused")

        monkeypatch.setattr(os, "pidfd_open", opened)

    process = Process.of(child.pid)
    refuses(errno.EMFILE)
    with pytest.raises(stop_signals.NotVerified, match=f"^process {child.pid} has ended$"):
        stop_signals.send(process, [signal.SIGTERM], tmp_path / "status.json", lambda _: True)
    assert child.poll() is None
    refuses(errno.ENOSYS)
    stop_signals.send(process, [signal.SIGTERM], tmp_path / "status.json", lambda _: True)
    assert child.wait(30) == -signal.SIGTERM


def test_a_file_system_without_locks_excludes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.lock"

    def refuses(number: int) -> None:
        def flock(_fd: int, _how: int) -> None:
            raise OSError(number, "refused")

        monkeypatch.setattr(fcntl, "flock", flock)

    for number in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
        refuses(number)
        with locks.take(path) as lock:
            assert (lock.works, locks.held(path)) == (False, None)
    fd = os.open(path, os.O_RDWR)
    inherited = locks.inherited(fd)
    assert (inherited.works, os.get_inheritable(fd)) == (False, False)
    inherited.release()
    refuses(errno.EIO)
    with pytest.raises(OSError, match="refused"):
        locks.take(path)


def test_a_lock_whose_file_was_replaced_is_taken_on_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, moved = tmp_path / "x.lock", tmp_path / "y.lock"
    flock = fcntl.flock
    replaced: list[bool] = []

    def replaces(fd: int, how: int) -> None:
        flock(fd, how)
        if not replaced:
            replaced.append(True)
            path.rename(moved)

    monkeypatch.setattr(fcntl, "flock", replaces)
    with locks.take(path, 2) as lock:
        assert os.fstat(lock.fd).st_ino == path.stat().st_ino
    replaced.clear()
    with pytest.raises(locks.Taken):
        locks.take(path, 1)
