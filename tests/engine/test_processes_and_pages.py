"""Children, locks, signals, memory and garbage of this process, as the system has them: nothing stays changed."""

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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.process import spawn
from gputui.engine.system import child_process, descendants, import_cost, locks, process_memory, stop_signals
from gputui.engine.system.child_process import Child
from gputui.engine.system.process_memory import Peaks
from gputui.engine.system.run_clock import RunClock

PAGE = os.sysconf("SC_PAGE_SIZE")
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2}

# ---- children ------------------------------------------------------------------------------------


def forked(code: int | None) -> int:
    """A child that ends with the code at once, or waits for a signal."""
    pid = os.fork()
    if not pid:
        if code is None:
            signal.pause()
        os._exit(code or 0)
    return pid


def test_a_child_that_another_program_has_started_is_waited_for_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Child(forked(None))
    assert (waits.poll(), waits.returncode) == (None, None)
    slept: list[float] = []
    now = [5.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with monkeypatch.context() as patched:
        patched.setattr(child_process, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        with pytest.raises(subprocess.TimeoutExpired) as fault:
            waits.wait(0.05)
    assert (fault.value.cmd, fault.value.timeout) == (str(waits.pid), 0.05)
    assert slept == pytest.approx([0.02, 0.02, 0.01])
    waits.send_signal(0)
    waits.kill()
    assert (waits.wait(60.0), waits.poll(), waits.returncode) == (-signal.SIGKILL,) * 3
    waits.kill()  # it has ended: nobody gets the signal
    assert Child(forked(7)).wait(60.0) == 7


def test_the_status_of_adopted_processes_is_collected_up_to_that_of_the_trainer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead, collected = [5, 6, 7, 8], list[tuple[int, int]]()

    def waitid(kind: int, _id: int, how: int) -> Any:
        assert (kind, how) == (os.P_ALL, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return SimpleNamespace(si_pid=dead[0]) if dead else None

    def waitpid(pid: int, how: int) -> None:
        assert pid == dead.pop(0)
        collected.append((pid, how))

    monkeypatch.setattr(os, "waitid", waitid)
    monkeypatch.setattr(os, "waitpid", waitpid)
    descendants.collect_dead(7)
    assert (collected, dead) == ([(5, os.WNOHANG), (6, os.WNOHANG)], [7, 8])
    descendants.collect_dead(99)
    assert dead == []

    def nobody(*_: object) -> None:
        raise ChildProcessError(errno.ECHILD, "No child processes")

    monkeypatch.setattr(os, "waitid", nobody)
    descendants.collect_dead(7)


def test_a_log_takes_all_output_of_a_process_behind_what_it_has(tmp_path: Path) -> None:
    kept = [os.dup(number) for number in (1, 2)]
    log = tmp_path / "engine.log"
    log.write_text("before\n")
    try:
        spawn.write_to_log(tmp_path)
        os.write(1, b"out\n")
        os.write(2, b"err\n")
        spawn.write_to_log(tmp_path / "nowhere")
        os.write(1, b"more\n")
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
    assert log.read_text() == "before\nout\nerr\nmore\n"


# ---- locks ---------------------------------------------------------------------------------------


def test_a_forked_process_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    with locks.take(tmp_path / "a.lock") as lock, locks.take(tmp_path / "b.lock") as other:
        pid = os.fork()
        if not pid:
            left = 0
            for each in (lock, other):
                try:
                    os.fstat(each.fd)
                    left += 1
                except OSError:
                    continue
            os._exit(left)
        assert Child(pid).wait(60.0) == 0
        assert locks.held(tmp_path / "a.lock") is True


def test_a_lock_of_all_users_can_be_read_by_all_whoever_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.lock"
    before = os.umask(0o077)
    try:
        with locks.take(path, of_all_users=True) as lock:
            assert (path.stat().st_mode & 0o777, lock.works) == (0o644, True)
            with pytest.raises(locks.Taken):
                locks.take(path, 1, of_all_users=True)
        with locks.take(tmp_path / "mine.lock"):
            assert (tmp_path / "mine.lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    path.unlink()
    opened, attempts = os.open, list[int]()

    def another_is_first(given: Any, flags: int, *mode: int) -> int:
        attempts.append(flags & os.O_CREAT)
        if flags & os.O_CREAT:
            os.close(opened(path, os.O_CREAT | os.O_WRONLY, 0o644))
        return opened(given, flags, *mode)

    monkeypatch.setattr(os, "open", another_is_first)
    locks.take(path, of_all_users=True).release()
    assert attempts == [0, os.O_CREAT, 0]


def test_a_lock_that_another_holds_is_not_inherited_and_an_error_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"
    with locks.take(path):
        other = os.open(path, os.O_RDWR)
        with pytest.raises(locks.Taken):
            locks.inherited(other)
        os.close(other)
    with pytest.raises(OSError, match="Bad file descriptor"):
        locks.inherited(other)

    def fails(_fd: int, _how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    left = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", fails)
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            locks.take(path)
    assert len(os.listdir("/proc/self/fd")) == left
    assert locks.held(tmp_path / "none.lock") is None


# ---- signals and time ----------------------------------------------------------------------------


def blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@pytest.fixture
def _mask() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in stop_signals.NUMBERS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("_mask")
def test_requests_to_stop_are_held_back_around_a_start_and_as_before_after_it() -> None:
    before = blocked()
    assert not before & SIGNALS
    within: list[set[int]] = []

    def fails() -> None:
        with stop_signals.held():
            within.append(blocked())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert (within, blocked()) == ([before | SIGNALS], before)
    stop_signals.hold()
    assert blocked() == before | SIGNALS
    with stop_signals.held():
        pass
    assert blocked() == before | SIGNALS, "as it was"
    stop_signals.let_through()
    assert blocked() == before
    stop_signals.hold()
    stop_signals.set_defaults()
    assert blocked() == before
    assert {signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} == {signal.SIG_DFL}


def test_a_clock_is_read_as_it_was_written_or_begins_now(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunClock(1_790_000_000.125, 7.5)
    assert RunClock.read(clock.as_text()) == clock
    monkeypatch.setattr(time, "time", lambda: 50.0)
    monkeypatch.setattr(time, "clock_gettime", lambda _: 9.5)
    for text in (None, "", "5", "5 x", "1 2 3"):
        assert RunClock.read(text) == RunClock(50.0, 9.5), text
    assert (RunClock.launched(49.0), RunClock.launched(51.0)) == (RunClock(50.0, 9.5), RunClock(51.0, 9.5))
    assert (clock.elapsed(), clock.now()) == (2.0, 1_790_000_002.125)


# ---- memory --------------------------------------------------------------------------------------


def test_the_pages_of_libraries_are_those_of_files_and_can_be_brought_back() -> None:
    pages = process_memory.library_pages()
    assert pages
    assert all(address % PAGE == length % PAGE == 0 < length for address, length in pages)
    maps = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    of_files = [
        tuple(int(end, 16) for end in words[0].split("-")) for words in maps if words[4] != "0" and words[1][0] == "r"
    ]
    inside = [
        any(begin <= address and address + length <= end for begin, end in of_files) for address, length in pages[:50]
    ]
    assert all(inside)
    process_memory.populate(pages[:3])
    with pytest.raises(OSError, match="the pages of a library cannot be read"):
        process_memory.populate([*pages[:1], (0, PAGE)])


def test_the_peak_of_this_process_is_that_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\ta: b\nVmPeak:\t  900 kB\nVmHWM:\t  700 kB\nVmRSS:\t  500 kB\nno colon\n")
    monkeypatch.setattr(process_memory, "STATUS", status)
    for limit, address_space in ((-1, None), (10**9, 900 * 1024)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, -1))
        assert process_memory.peaks() == Peaks(700 * 1024, address_space)
    status.write_text("VmHWM:\tunknown\n")
    assert process_memory.peaks() == Peaks()
    status.unlink()
    assert process_memory.peaks() == Peaks()
    for kilobytes, peak in ((0, None), (3, 3072)):
        monkeypatch.setattr("resource.getrusage", lambda _, size=kilobytes: SimpleNamespace(ru_maxrss=size))
        assert process_memory.peaks_of_ended_children() == Peaks(peak)


def test_objects_of_an_import_are_not_scanned_later_unless_user_code_freezes_more() -> None:
    class Thing:
        pass

    early = Thing()
    assert gc.isenabled()
    try:
        for fault in (None, ValueError()):
            try:
                with import_cost.exempt_from_gc():
                    assert not gc.isenabled()
                    if fault is not None:
                        raise fault
            except ValueError:
                pass
            assert gc.isenabled()
        late = Thing()
        found = {id(each) for each in import_cost.tracked_objects()}
        assert (id(late) in found, id(early) in found) == (True, False)
        more = [Thing() for _ in range(20_000)]
        gc.freeze()  # as user code may do
        found = {id(each) for each in import_cost.tracked_objects()}
        assert (id(late) in found, id(early) in found) == (True, True)
        assert (gc.get_freeze_count(), len(more)) == (0, 20_000)
    finally:
        gc.unfreeze()
    assert import_cost.with_room(lambda: sys.getrecursionlimit()) == sys.getrecursionlimit()
