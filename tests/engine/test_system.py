"""Small services of the operating system: processes, signals, the heartbeat, disks that refuse, lists of CPUs."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from gputui.engine.files import writing as disk
from gputui.engine.files.appending import LineFile
from gputui.engine.system import descendants, process_memory, stop_signals
from gputui.engine.system.heartbeat import TrainerHeartbeat, create_shared
from gputui.engine.system.identity import Process
from gputui.engine.telemetry import gpu_processes, resource_limits
from gputui.engine.telemetry.host import Host
from gputui.engine.telemetry.nvml import connection, gpm_nvlink
from gputui.engine.telemetry.nvml.gpm_nvlink import GPM_SHARES
from gputui.engine.telemetry.nvml.reasons import Reason


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


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


def test_descendants_are_known_by_name_parent_and_start(child: subprocess.Popen[bytes]) -> None:
    (result,) = (item for item in descendants.all_now() if item.pid == child.pid)
    assert (result.name, result.parent, result.ended) == ("sleep", os.getpid(), False)
    descendants.Descendant(child.pid, os.getpid(), "sleep", False, result.start_ticks + 1).end()
    assert child.poll() is None, "a later process with its id"
    child.send_signal(signal.SIGSTOP)
    result.end()
    assert child.wait(30) == -signal.SIGTERM, "a stopped process is continued"

    def descendant(pid: int, parent: int) -> descendants.Descendant:
        return descendants.Descendant(pid, parent, "", False, 0)

    tree = {
        1: [descendant(2, 1), descendant(3, 1)],
        3: [descendant(4, 3)],
        4: [descendant(3, 4)],
        9: [descendant(8, 9)],
    }
    assert [process.pid for process in descendants._below(1, tree)] == [2, 3, 4, 3]


def test_what_outlives_a_run_is_ended_by_request_then_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, str]] = []
    alive = {5, 6, 7}

    class Below:
        def __init__(self, pid: int) -> None:
            self.pid, self.name, self.parent, self.ended = pid, f"p{pid}", 0, False

        def end(self) -> None:
            sent.append((self.pid, "term"))
            alive.discard(6)

        def send(self, number: int) -> None:
            sent.append((self.pid, signal.Signals(number).name))
            alive.discard(self.pid)

    monkeypatch.setattr(descendants, "all_now", lambda _apart: [Below(pid) for pid in sorted(alive)])
    monkeypatch.setattr("gputui.engine.system.descendants.time.sleep", lambda _: None)
    assert descendants.end_descendants(spared=7) == ["p5 (pid 5)", "p6 (pid 6)"]
    assert sent == [(5, "term"), (6, "term"), (5, "SIGKILL")]
    sent.clear()
    assert descendants.end_descendants(spared=7) == []
    assert sent == []


def test_what_outlived_a_run_is_told_in_one_sentence() -> None:
    assert descendants.describe(["a"]).startswith("1 process that was started in this run outlived it")
    assert descendants.describe(list("abcde")).endswith("ended: a, b, c, d, e")
    assert descendants.describe(list("abcdefg")).endswith("ended: a, b, c, d, e and 2 more")
    assert descendants.describe(["a", "b"]).startswith("2 processes that were")


def test_the_heartbeat_counts_round_and_ends_user_code_with_a_beat() -> None:
    shared, descriptor = create_shared()
    assert descriptor is not None
    with TrainerHeartbeat.inherited(str(descriptor)) as nothing:
        assert nothing is None
        assert (shared.in_user_code, shared.count) == (True, 0)
    assert (shared.in_user_code, shared.count) == (False, 1)
    alone = TrainerHeartbeat.inherited(None)
    for _ in range(257):
        alone.beat()
    assert alone.count == 1


def test_peaks_are_bytes_and_the_address_space_counts_only_where_it_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_memory, "STATUS", tmp_path / "status")
    assert process_memory.peaks() == process_memory.Peaks()
    (tmp_path / "status").write_text("Name:\tx\nVmPeak:\t   300 kB\nVmHWM:\t   20 kB\n")
    for limit, space in ((resource.RLIM_INFINITY, None), (10**12, 300 * 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, resource.RLIM_INFINITY))
        assert process_memory.peaks() == process_memory.Peaks(20 * 1024, space)
    (tmp_path / "status").write_text("Name: x\n")
    assert process_memory.peaks() == process_memory.Peaks()
    for kilobytes, result in ((7, 7 * 1024), (0, None)):
        monkeypatch.setattr(resource, "getrusage", lambda _, kb=kilobytes: SimpleNamespace(ru_maxrss=kb))
        assert process_memory.peaks_of_ended_children() == process_memory.Peaks(result)


def test_pages_in_memory_are_told_in_runs() -> None:
    page, here = process_memory._PAGE, 1 << 63
    assert process_memory._runs(page, array("Q", [here, here, 5, 0, here])) == [(page, 2 * page), (5 * page, page)]
    assert process_memory._runs(0, array("Q", [1, 2])) == []


# ---- readings of the system ---------------------------------------------------------------------


def test_processes_on_a_gpu_are_named_and_the_training_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied() -> str:
        raise psutil.AccessDenied(2)

    def process(pid: int) -> SimpleNamespace:
        if pid == 3:
            raise psutil.NoSuchProcess(pid)
        return SimpleNamespace(name=denied if pid == 2 else lambda: f"p{pid}", uids=lambda: SimpleNamespace(real=-pid))

    monkeypatch.setattr(psutil, "Process", process)
    monkeypatch.setattr(gpu_processes, "_is_counted_here", lambda _: True)
    monkeypatch.setattr(gpu_processes, "_user", lambda number: f"user {number}")
    monkeypatch.setattr(gpu_processes, "_exists", lambda _: False)
    result = gpu_processes.described([{"pid": 1, "memory_used_bytes": 9}, {"pid": 2}, {"pid": 3}], own_pid=1)
    assert result == [
        {"pid": 1, "memory_used_bytes": 9, "name": "p1", "own": True, "user": "user -1"},
        {"pid": 2, "name": None, "own": False, "user": "user -2"},
        {"pid": 3, "name": None, "own": None, "user": None, "hidden": gpu_processes.NOT_HERE},
    ]
    monkeypatch.setattr(gpu_processes, "_is_counted_here", lambda _: False)
    own, other = gpu_processes.described([{"pid": 1}, {"pid": 2}], own_pid=1)
    assert (own["name"], other) == (
        "p1",
        {"pid": 2, "name": None, "own": None, "user": None, "hidden": gpu_processes.NOT_HERE},
    )
    assert (gpu_processes.sole(result[:1]), gpu_processes.sole(result[1:]), gpu_processes.sole([])) == (
        "p1 1",
        "process 2",
        "",
    )
    assert gpu_processes.sole([result[0], {"pid": 4, "name": "nvidia-cuda-mps-server"}]) == ""


def test_lists_of_cpus_and_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [resource_limits.cpu_list(cpus) for cpus in ([8, 3, 2, 1, 0], [5], [], [1, 3])] == ["0-3,8", "5", "", "1,3"]
    assert connection._cpus([0b101, 0, 1 << 63]) == {0, 2, 191}
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    assert resource_limits.numa_nodes() == 1
    for name in ("node0", "node1", "nodes", "power"):
        (tmp_path / "sys/devices/system/node" / name).mkdir(parents=True)
    assert resource_limits.numa_nodes() == 2


def test_rates_are_of_the_time_between_two_readings_and_begin_anew_with_their_counter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counter = [10.0], [100]
    host = Host(os.getpid())
    monkeypatch.setattr("gputui.engine.telemetry.host.time.monotonic", lambda: now[0])
    assert host._rate("x", lambda: counter[0]) is None
    now[0], counter[0] = 12.0, 500
    assert host._rate("x", lambda: counter[0]) == 200
    assert host._rate("x", lambda: counter[0]) is None, "no time has passed"
    now[0], counter[0] = 13.0, 40
    assert host._rate("x", lambda: counter[0]) is None
    now[0], counter[0] = 14.0, 50
    assert host._rate("x", lambda: counter[0]) == 10
    assert host._rate("x", lambda: None) is None
    assert host._rate("y", lambda: counter[0]) is None
    nics = {"lo": SimpleNamespace(bytes_recv=1, bytes_sent=2), "a": SimpleNamespace(bytes_recv=10, bytes_sent=20),
            "b": SimpleNamespace(bytes_recv=100, bytes_sent=200)}  # fmt: skip
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: nics)
    assert (host._received(), host._sent()) == (110, 220)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(host._children, "cores", lambda: 1.0)
    assert host._others_cpu(0.9, 0.2, 0.8) == 0.4
    assert host._others_cpu(0.1, 0.2, 0.8) == 0.0
    assert host._others_cpu(None, 0.2, 0.8) is None


def test_instances_of_a_gpu_are_read_in_turn_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    closed: list[int] = []

    class Gpm:
        def __init__(self, _: Any, instance: int) -> None:
            self.instance = instance

        def read(self) -> dict[str, Any]:
            read.append(self.instance)
            return dict.fromkeys(GPM_SHARES, self.instance / 10) | {"dram_active": Reason.UNSUPPORTED, "nvlink_rx": 5}

        def close(self) -> None:
            closed.append(self.instance)

    monkeypatch.setattr(gpm_nvlink, "Gpm", Gpm)
    monkeypatch.setattr(gpm_nvlink, "ask_for_gpm", lambda _: None)
    result = gpm_nvlink.Instances("gpu")
    listed: list[dict[str, Any]] = [
        {"uuid": "b", "gpu_instance": 2},
        {"uuid": "a", "gpu_instance": 1},
        {"uuid": "c", "gpu_instance": None},
    ]
    turns = []
    for _ in range(6):
        turns.append(result.turn_of_the_whole)
        notes = result.read(listed)
    assert turns == [True, False, False, True, False, False]
    assert read == [1, 2, 1, 2]
    assert notes == [
        {**listed[0], "sm_active": 0.2, "tensor_active": 0.2}, {**listed[1], "sm_active": 0.1, "tensor_active": 0.1},
        listed[2],
    ]  # fmt: skip
    assert result.read(listed[:1]) == notes[:1]
    assert closed == [1]
    assert result.read(listed)[1] == listed[1], "made anew, nothing is known of it"
    result.close()
    assert sorted(closed) == [1, 2]


# ---- disks --------------------------------------------------------------------------------------


def test_lines_wait_for_a_disk_that_refuses_and_the_gap_tells_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, refuses = [100.0], [False]
    monkeypatch.setattr("gputui.engine.files.appending.time.monotonic", lambda: now[0])
    write = os.write

    def writing(descriptor: int, block: memoryview) -> int:
        if refuses[0]:
            if len(block) > 3:
                return write(descriptor, block[:3])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, block)

    monkeypatch.setattr(os, "write", writing)
    path = tmp_path / "lines"
    path.write_text("killed writer")
    lines = LineFile(path, kept_bytes=12)
    assert lines.append("one") is None
    refuses[0] = True
    assert lines.append("tw") is None
    assert path.read_text() == "killed writer\none\n", "no part of a line stays"
    assert (lines.waiting, lines.reason, lines.lines) == (1, "No space left on device", ["tw"])
    refuses[0] = False
    now[0] += 0.2
    assert lines.append("three") is None
    assert lines.waiting == 2, "it is not tried again so soon"
    now[0] += 0.1
    lines._next_try = now[0] + 1
    assert lines.append("sixsix") is None
    assert (lines.lines, lines.missing) == (["sixsix"], 3)
    gap = lines.flush()
    assert gap is not None
    assert (gap.late, gap.lost, gap.reason, round(gap.seconds, 3)) == (1, 2, "No space left on device", 0.3)
    assert (lines.reason, lines.missing, lines.append("end")) == ("", 0, None)
    lines.close()
    assert path.read_text() == "killed writer\none\nsixsix\nend\n"
    lines.append("a line that is longer than all that is kept")
    assert lines.waiting == 0, "the newest is always kept"
    lines.close()


def test_a_disk_that_refuses_is_known_by_number_and_by_words(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/a/b")
    for fault, number, place in (
        (full, errno.ENOSPC, "/a/b"), (OSError(errno.EACCES, "x", "/c"), None, "/c"), (OSError(), None, None),
        (RuntimeError("{{node x}} /d/e f; No space left on device"), errno.ENOSPC, "/d/e f"),
        (RuntimeError("HDF5: errno = 122, error"), errno.EDQUOT, None), (RuntimeError("errno = 2"), None, None),
        (ValueError("other"), None, None),
    ):  # fmt: skip
        assert (disk.refusal(fault), disk.place(fault)) == (number, place), fault
    assert disk.reason(full) == "No space left on device"
    assert disk.reason(OSError(errno.EACCES, "x")) == "Permission denied"
    assert disk.reason(ValueError(" a \n {{node b}} c" + "d" * 300)) == ("a c" + "d" * 300)[:200]
    assert [disk.passes(number) for number in (errno.ENOSPC, errno.EROFS, errno.EFBIG)] == [True, True, False]
    assert "ulimit -f" in disk.remedy(errno.EFBIG)
    assert disk.remedy(errno.ENOSPC) == "free some space"
    assert disk.try_writing(tmp_path) == disk.try_writing(tmp_path / "nowhere") == ""
    (tmp_path / "a").write_bytes(bytes(5000))
    (tmp_path / "sub").mkdir()
    before = disk.used_bytes(tmp_path)
    (tmp_path / "sub" / "b").write_bytes(bytes(5000))
    assert disk.used_bytes(tmp_path) - before == 8192
    (tmp_path / "link").symlink_to(sys.executable)
    assert disk.used_bytes(tmp_path) - before <= 8192 + 4096, "a link is not what it leads to"
