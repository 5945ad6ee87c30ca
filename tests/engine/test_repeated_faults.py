"""Faults that come back: a driver that is away again, a disk that is full again, a call that hangs again."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.files import appending
from gputui.engine.files.appending import Gap, LineFile
from gputui.engine.runs import parsing
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import Event, GpuReadings, Phase, Warn
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.system import locks
from gputui.engine.system.background_call import BackgroundCall, BackgroundCalls
from gputui.engine.system.run_clock import RunClock
from gputui.engine.telemetry import sampler
from gputui.engine.telemetry.nvml.connection import NO_GPU
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable
from gputui.engine.telemetry.nvml.xid_errors import DriverError
from gputui.engine.telemetry.sampler import ALL_LOST_HINT, GpuReader

# ---- the driver ----------------------------------------------------------------------------------


class Ends(threading.Event):
    """The event that ends a reader: its waits take no time, and the last of `most` ends it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.waits, self._most = list[float](), most

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if len(self.waits) >= self._most:
            self.set()
        return self.is_set()


def words(notes: list[Event]) -> list[str]:
    return [getattr(event, "message", None) or str(getattr(event, "missing", "")) for event in notes]


def test_a_driver_that_is_away_is_tried_again_after_5_to_60_seconds_and_each_reason_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = iter(["not loaded", "not loaded", "too old", "not loaded", "", "", "", ""])
    closed: list[int] = []

    def opened(**how: object) -> Any:
        assert how == {"pcie": True, "own_pid": 7, "processes": True}
        if reason := next(faults):
            raise NvmlUnavailable(reason)
        return SimpleNamespace(count=0, close=lambda: closed.append(1))

    monkeypatch.setattr(sampler, "Nvml", opened)
    notes: list[Event] = []
    reader = GpuReader(notes.append, 1.0, pcie=True, own_pid=7, processes=True)
    ends = reader._done = Ends(7)
    reader.run()
    assert ends.waits == [5, 10, 20, 40, 60, 60, 60]
    assert words(notes) == ["not loaded", "too old", NO_GPU]
    assert all(isinstance(event, GpuReadings) and event.gpus == [] for event in notes)
    assert len(closed) == 3


def test_a_driver_is_read_every_interval_with_the_slow_figures_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [100.0], list[tuple[float, bool]]()

    def read(slow: bool, stopping: Callable[[], bool]) -> list[dict[str, Any]]:
        asked.append((now[0], slow))
        now[0] += 0.25
        assert not stopping()
        return [{"index": 0, "uuid": "GPU-a"}]

    class Passing(Ends):
        def wait(self, timeout: float | None = None) -> bool:
            now[0] += timeout or 0.0
            return super().wait(timeout)

    nvml = SimpleNamespace(count=1, read=read, errors=list, close=lambda: asked.append((now[0], False)))
    monkeypatch.setattr(sampler, "Nvml", lambda **_: nvml)
    monkeypatch.setattr(sampler, "time", SimpleNamespace(monotonic=lambda: now[0]))
    notes: list[Event] = []
    reader = GpuReader(notes.append, 4.0)
    ends = reader._done = Passing(6)
    reader.run()
    assert ends.waits == [3.75] * 6
    *readings, closed = asked
    assert readings == [(100.0 + 4 * at, at in (0, 3)) for at in range(6)]
    assert closed == (124.0, False)
    assert notes == [GpuReadings(gpus=[{"index": 0, "uuid": "GPU-a"}], interval_seconds=4.0)] * 6


def test_a_gpu_that_is_lost_again_is_told_again_and_all_at_once_in_one_warning() -> None:
    notes: list[Event] = []
    reader = GpuReader(notes.append, 1.0)
    good = [{"index": index, "name": "T4"} for index in range(3)]

    def lost(index: int, since: float) -> dict[str, Any]:
        return good[index] | {"missing": "gone", "lost_since": since}

    for readings in (
        [good[0], lost(1, 5.0), good[2]], [good[0], lost(1, 5.0), good[2]], good,
        [good[0], lost(1, 9.0), lost(2, 9.5)], [good[0], lost(1, 9.0), lost(2, 9.5)], [good[0], good[1], lost(2, 9.5)],
        [lost(0, 20.0), lost(1, 20.0), lost(2, 9.5)], [lost(0, 20.0), lost(1, 20.0), lost(2, 9.5)], good,
        [lost(0, 30.0), lost(1, 31.0), lost(2, 30.0)], good,
    ):  # fmt: skip
        reader._report_lost(readings)
    assert words(notes) == [
        "GPU 1 (T4): gone", "GPU 1 can be read again", "GPU 1 (T4): gone", "GPU 2 (T4): gone",
        "GPU 1 can be read again", "none of the GPUs answers any more: gone", "all GPUs can be read again",
        "none of the GPUs answers any more: gone", "all GPUs can be read again",
    ]  # fmt: skip
    warnings = [event for event in notes if isinstance(event, Warn)]
    assert [event.kind for event in warnings].count("gpu_back") == 4
    assert warnings[0].hint == "dmesg shows more (look for Xid); the readings of the other GPUs go on"
    assert warnings[5].hint == ALL_LOST_HINT


def test_an_error_is_told_once_for_each_gpu_and_kind_and_kept_each_time() -> None:
    notes: list[Event] = []
    reader = GpuReader(notes.append, 1.0)
    gpus = [{"index": index, "uuid": f"GPU-{index}", "name": "T4"} for index in range(2)]
    for _ in range(2):
        reader._report_errors([DriverError(0, 79), DriverError(0, 48), DriverError(1, 79), DriverError(0, 13)], gpus)
    told = "the NVIDIA driver has reported Xid"
    assert words(notes) == [
        f"GPU 0 (T4): {told} 79, it has fallen off the bus", f"GPU 0 (T4): {told} 48, an uncorrectable memory error",
        f"GPU 1 (T4): {told} 79, it has fallen off the bus",
    ]  # fmt: skip
    assert len(reader.errors_since(0.0, ["GPU-0"])) == 6
    assert reader.errors_since(0.0, ["GPU-1"]) == ["NVRM: Xid (GPU 1): 79, it has fallen off the bus"] * 2


def test_what_a_gpu_needs_belongs_to_the_error_before_it_whenever_the_driver_tells_it() -> None:
    notes: list[Event] = []
    reader = GpuReader(notes.append, 1.0)
    gpus = [{"index": index, "uuid": f"GPU-{index}", "name": "T4"} for index in range(4)]
    reset = "a reset"
    for errors in (
        [DriverError(0, 79), DriverError(1, 79, reset), DriverError(1, 154, reset), DriverError(3, 31)],
        [DriverError(0, 154, reset), DriverError(1, 154, reset), DriverError(2, 154, reset), DriverError(3, 154)],
    ):
        reader._report_errors(errors, gpus)
    told, kept = "the NVIDIA driver has reported Xid", "Xid (GPU 0): 79, it has fallen off the bus; it needs a reset"
    after = f"{told} 154, the GPU needs a reset, a restart or a drain after the error before"
    assert words(notes) == [
        *(f"GPU {index} (T4): {told} 79, it has fallen off the bus" for index in (0, 1, 0)),
        f"GPU 2 (T4): {after}", f"GPU 3 (T4): {after}",
    ]  # fmt: skip
    assert [event.hint == "the GPU needs a reset" for event in notes if isinstance(event, Warn)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert [reader.errors_since(0.0, [f"GPU-{index}"]) for index in (0, 1)] == [
        [f"NVRM: {kept}"], [f"NVRM: {kept.replace('0', '1', 1)}"],
    ]  # fmt: skip


# ---- the disk ------------------------------------------------------------------------------------


class Disk:
    """A disk that refuses each write while `is_full`, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full, self.now, self._write = False, 100.0, os.write
        monkeypatch.setattr(os, "write", self.write)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(appending, "time", clock)
        monkeypatch.setattr(parsing, "time", clock)

    def write(self, descriptor: int, block: Any) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(descriptor, block)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_each_time_in_which_a_disk_was_full_has_its_own_lines_and_seconds(tmp_path: Path, disk: Disk) -> None:
    lines = LineFile(tmp_path / "lines", kept_bytes=12)
    gaps: list[Gap | None] = []
    for seconds, more in ((2.0, ["a" * 5, "b" * 5, "c" * 5]), (3.0, ["d" * 5])):
        assert lines.append("usual") is None
        disk.is_full = True
        for line in more:
            assert lines.append(line) is None
            disk.now += seconds / len(more)
        assert (lines.waiting, lines.missing) == (min(2, len(more)), len(more))
        disk.is_full = False
        gaps.append(lines.flush())
    reason = "No space left on device"
    assert gaps == [Gap(pytest.approx(2.0), reason, 2, 1), Gap(pytest.approx(3.0), reason, 1, 0)]  # type: ignore[arg-type]
    assert (lines.waiting, lines.missing, lines.reason) == (0, 0, "")
    lines.close()
    lines.append("after")
    lines.close()
    written = (tmp_path / "lines").read_text().split()
    assert written == ["usual", "b" * 5, "c" * 5, "usual", "d" * 5, "after"]


def test_a_writer_of_events_tells_each_gap_after_its_events_and_writes_nothing_after_its_end(
    tmp_path: Path, disk: Disk
) -> None:
    writer = EventWriter(tmp_path / "events.jsonl", "r", RunClock(5.0, 0.0))
    for number in (1, 2):
        disk.is_full = True
        writer.emit(Phase(phase="training", detail=f"late {number}"), float(number))
        assert writer.drain(0.6) == 1
        assert len(writer.unwritten()) == 1
        disk.is_full, before = False, disk.now
        assert (writer.drain(5.0), disk.now) == (0, before), "it waits no longer than it must"
        disk.now += 10.0
    writer.close()
    writer.emit(Phase(phase="ended"), 9.0)
    writer.close()
    events = [
        line.partition('"type":"')[2].partition('"')[0] for line in (tmp_path / "events.jsonl").read_text().splitlines()
    ]
    assert events == ["phase", "warning", "phase", "warning"]
    told = [event.message for event in read_events(tmp_path, ["events.jsonl"]).of(Warn)]
    assert told == [
        f"No space left on device: nothing could be written to {tmp_path}/events.jsonl for 0.8 s; no event is missing"
    ] * 2  # fmt: skip


# ---- calls and locks -----------------------------------------------------------------------------


def test_a_call_that_hangs_keeps_the_others_away_until_it_is_answered() -> None:
    calls, answer, threads = BackgroundCalls(), threading.Event(), set[int]()

    def ask(value: Any) -> Any:
        threads.add(threading.get_ident())
        if isinstance(value, Exception):
            raise value
        return value

    def hangs() -> str:
        threads.add(threading.get_ident())
        answer.wait()
        return "late"

    assert calls.result(lambda: ask(1), 60.0) == 1
    for _ in range(2):
        answer.clear()
        with pytest.raises(TimeoutError, match=r"^no answer within 0\.01 s$"):
            calls.result(hangs, 0.01)
        with pytest.raises(TimeoutError, match=r"^an earlier call has not been answered$"):
            calls.result(lambda: ask("never"), 60.0)
        answer.set()
        while True:  # until the late answer is there
            try:
                assert calls.result(lambda: ask(2), 60.0) == 2
                break
            except TimeoutError:
                continue
        with pytest.raises(ValueError, match="broken"):
            calls.result(lambda: ask(ValueError("broken")), 60.0)
        assert calls.result(lambda: ask(3), 60.0) == 3
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_call_in_the_background_answers_once_with_what_it_returns_or_raises() -> None:
    assert BackgroundCall(lambda: 7).result(60.0) == 7

    def fails() -> int:
        raise KeyError("x")

    with pytest.raises(KeyError):
        BackgroundCall(fails).result(60.0)
    answer = threading.Event()
    late = BackgroundCall(lambda: answer.wait() and 8)
    with pytest.raises(TimeoutError, match=r"^no answer within 0 s$"):
        late.result(0)
    answer.set()
    assert late.result(60.0) == 8


def test_a_lock_that_was_released_closes_no_other_file(tmp_path: Path) -> None:
    lock = locks.take(tmp_path / "a.lock")
    lock.release()
    other = os.open(tmp_path / "b", os.O_RDWR | os.O_CREAT)
    assert other == lock.fd, "the number is used again"
    lock.release()
    os.write(other, b"x")
    os.close(other)
    with locks.take(tmp_path / "a.lock") as again:
        again.release()
        assert locks.held(tmp_path / "a.lock") is False
