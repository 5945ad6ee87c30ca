"""Processes: which one is alive, who gets a signal, what outlives a run, and locks."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doors.engine import (
    ENGINE_LOCK,
    Activity,
    Peaks,
    Process,
    Run,
    RunClock,
    RunError,
    TrainerHeartbeat,
    identity,
    import_cost,
    locks,
    process_memory,
    stop_signals,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import run as control
from tests.support import recorded
from tests.support.front_door import until

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
    ],
)
def test_process_ids_are_valid_in_one_container_between_two_starts_of_its_machine(
    here: None, place: Place, is_here: bool, shares_kernel: bool, name: str
) -> None:
    assert (place.is_here, place.shares_kernel, place.name) == (is_here, shares_kernel, name)
    assert Place.read(place.as_fields()) == place
    assert Place.read(place.as_fields() | {"boot_id": 7}) is None


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


# ---- What is started ends with the process that has started it, however that ends ----------------


STARTS = """
import threading, time
from gputui.engine.system import child_process
if THREADS:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
child_process.start(["/bin/sh", "-c", "echo $$; exec sleep 600"])
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for it")
def test_a_process_that_is_killed_takes_along_what_it_has_started_also_one_of_several_threads() -> None:
    for threads in ("False", "True"):
        code = STARTS.replace("THREADS", threads)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
            assert starter.stdout is not None
            started = Process.of(int(starter.stdout.readline()))
            assert started.alive()
            starter.kill()
            starter.wait(60)
            until(lambda found=started: not found.alive())  # type: ignore[misc]


# ---- processes ----------------------------------------------------------------------------------


def test_a_signal_goes_only_to_the_process_that_ones_own_file_means(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "status.json"
    file.touch()
    process = Process.of(child.pid)
    with pytest.raises(stop_signals.NotVerified, match="does not belong to it"):
        stop_signals.send(process, [signal.SIGTERM], file, lambda _: False)
    with pytest.raises(stop_signals.NotVerified, match="belongs to another user"):
        stop_signals.send(process, [signal.SIGTERM], tmp_path / "nowhere", lambda _: True)
    later = replace(process, start_ticks=process.start_ticks + 1)
    with pytest.raises(stop_signals.NotVerified, match="not the one that was started"):
        stop_signals.send(later, [signal.SIGTERM], file, lambda _: True)
    monkeypatch.setattr(Process, "is_mine", lambda _: False)
    with pytest.raises(stop_signals.NotVerified, match="runs as another user"):
        stop_signals.send(process, [signal.SIGTERM], file, lambda _: True)
    monkeypatch.undo()
    assert child.poll() is None
    stop_signals.send(process, [signal.SIGCONT, signal.SIGTERM], file, lambda _: True)
    assert child.wait(30) == -signal.SIGTERM
    with pytest.raises(stop_signals.NotVerified, match="has ended"):
        stop_signals.send(process, [signal.SIGTERM], file, lambda _: True)


# ---- What acts on a run from outside -------------------------------------------------------------


def test_one_at_a_time_has_a_run_that_is_not_alive(home: Path) -> None:
    run = recorded.write(home, name="a", seconds=13, gpus=0, outcome=None)
    with control.reserved(run, "delete"):
        assert locks.held(run.file(ENGINE_LOCK))
        with pytest.raises(RunError, match="cannot be"), control.reserved(run, "delete"):
            pass
    with control.reserved(run, "delete"):
        pass


# ---- memory --------------------------------------------------------------------------------------


def test_the_peak_of_this_process_is_that_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\ta: b\nVmPeak:\t  900 kB\nVmHWM:\t  700 kB\nno colon\n")
    monkeypatch.setattr(process_memory, "STATUS", status)
    for limit, address_space in ((-1, None), (10**9, 900 * 1024)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, -1))
        assert process_memory.peaks() == Peaks(700 * 1024, address_space)
    status.write_text("VmHWM:\tunknown\n")
    assert process_memory.peaks() == Peaks()


def test_objects_of_an_import_are_not_scanned_later_unless_user_code_freezes_more() -> None:
    class Thing:
        pass

    early = Thing()
    try:
        with import_cost.exempt_from_gc():
            assert not gc.isenabled()
        late = Thing()
        for freezes, scanned in ((False, (True, False)), (True, (True, True))):
            more = [Thing() for _ in range(20_000)]
            if freezes:
                gc.freeze()  # as user code may do
            found = {id(each) for each in import_cost.tracked_objects()}
            assert (id(late) in found, id(early) in found) == scanned
            assert len(more) == 20_000
    finally:
        gc.unfreeze()


def test_a_clock_begins_now_or_after_the_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 50.0)
    monkeypatch.setattr(time, "clock_gettime", lambda _: 9.5)
    assert (RunClock.launched(49.0), RunClock.launched(51.0)) == (RunClock(50.0, 9.5), RunClock(51.0, 9.5))


def test_a_trainer_is_suspended_while_its_process_is_stopped(tmp_path: Path) -> None:
    now = [0.0]
    with subprocess.Popen(["sleep", "600"]) as trainer:
        activity = Activity(Run(tmp_path), trainer.pid, TrainerHeartbeat(), lambda: now[0])

        def suspended_seconds() -> float:
            now[0] += 2.0
            activity.update()
            return activity.suspended_seconds

        trainer.send_signal(signal.SIGSTOP)
        until(lambda: suspended_seconds() >= 4.0)
        trainer.send_signal(signal.SIGCONT)
        until(lambda: not suspended_seconds())
        trainer.kill()
