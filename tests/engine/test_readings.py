"""Readings of the machine during a run, and faults that come again."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.doors.engine import (
    BackgroundCalls,
    Event,
    Gap,
    Gpu,
    GpuReader,
    GpuTotals,
    Host,
    HostReading,
    LineFile,
    Sampler,
    Warn,
    appending,
    parsing,
    proc,
    resource_limits,
)
from tests.support.machines import put

GIB = 1024**3
GROUP = "sys/fs/cgroup"
V1_UNLIMITED = 9223372036854771712


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    return tmp_path


def test_without_limits_it_is_what_the_machine_has(tree: Path) -> None:
    assert resource_limits.memory().total == psutil.virtual_memory().total
    assert resource_limits.cpus() is None
    put(tree, {f"{GROUP}/memory.max": "max", f"{GROUP}/cpu.max": "max 100000"})
    put(tree, {f"{GROUP}/memory/memory.limit_in_bytes": str(V1_UNLIMITED), f"{GROUP}/cpu/cpu.cfs_quota_us": "-1"})
    assert resource_limits.memory().total == psutil.virtual_memory().total
    assert resource_limits.cpus() is None


def test_a_container_of_version_2(tree: Path) -> None:
    put(tree, {f"{GROUP}/memory.max": str(GIB), f"{GROUP}/memory.current": str(GIB // 4)})
    put(tree, {f"{GROUP}/cpu.max": "150000 100000"})
    assert resource_limits.memory() == resource_limits.Memory(GIB, GIB - GIB // 4)
    assert resource_limits.cpus() == 1.5


def test_of_the_memory_in_use_the_kernel_gives_back_what_it_keeps_of_files_unused(tree: Path) -> None:
    put(tree, {f"{GROUP}/memory.max": str(GIB), f"{GROUP}/memory.current": str(GIB)})
    put(tree, {f"{GROUP}/memory.stat": f"active_file 5\ninactive_file {GIB // 2}\ntotal_inactive_file 7"})
    assert resource_limits.memory() == resource_limits.Memory(GIB, GIB // 2)


def test_a_container_of_version_1(tree: Path) -> None:
    memory, cpu = f"{GROUP}/memory/memory", f"{GROUP}/cpu/cpu"
    put(tree, {"proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n1:name=systemd:/docker/1\n0::/"})
    put(tree, {f"{memory}.limit_in_bytes": str(GIB), f"{memory}.usage_in_bytes": str(GIB)})
    put(tree, {f"{memory}.stat": f"cache 7\ninactive_file 3\ntotal_inactive_file {GIB // 2}"})
    put(tree, {f"{cpu}.cfs_quota_us": "50000", f"{cpu}.cfs_period_us": "100000"})
    # the kernel gives back what it keeps of files
    assert resource_limits.memory() == resource_limits.Memory(GIB, GIB // 2)
    assert resource_limits.cpus() == 0.5


def test_the_tightest_group_above_a_batch_job_counts(tree: Path) -> None:
    put(tree, {"proc/self/cgroup": "0::/slurm/job_1/step_0"})
    put(tree, {f"{GROUP}/slurm/job_1/step_0/memory.max": "max"})
    put(tree, {f"{GROUP}/slurm/job_1/memory.max": str(GIB), f"{GROUP}/slurm/memory.max": str(2 * GIB)})
    put(tree, {f"{GROUP}/slurm/job_1/cpu.max": "300000 100000", f"{GROUP}/slurm/cpu.max": "200000 100000"})
    put(tree, {f"{GROUP}/slurm/job_1/memory.current": str(GIB // 2), f"{GROUP}/slurm/memory.current": str(GIB)})
    assert resource_limits.memory() == resource_limits.Memory(GIB, GIB // 2)
    assert resource_limits.cpus() == 2.0


@pytest.mark.parametrize(("quota", "usable"), [(None, 4), ("150000", 2), ("10000", 1), ("800000", 4)])
def test_a_limit_on_the_cpus_leaves_at_least_one_and_at_most_those_that_there_are(
    tree: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, usable: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    put(tree, {f"{GROUP}/cpu.max": f"{quota or 'max'} 100000"})
    assert (resource_limits.usable_cpus(), resource_limits.cpus_limited()) == (usable, usable < 4)


class OfThisHost:
    """Stands for psutil.Process: engine and trainer have figures of their own, which grow with each question."""

    def __init__(self, pid: int = 0) -> None:
        if pid == 9:
            raise psutil.NoSuchProcess(pid)
        self.pid, self.asked = pid, 0

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=1000 + self.pid)

    def cpu_percent(self) -> float:
        self.asked += 1
        return 10.0 * self.asked + self.pid

    def io_counters(self) -> SimpleNamespace:
        return SimpleNamespace(read_bytes=5000 * self.asked, read_chars=10**9 * self.asked)


def test_a_reading_of_the_host_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    memory = SimpleNamespace(total=4000, available=1500)
    nics = {"eth0": SimpleNamespace(bytes_recv=300, bytes_sent=100)}
    for name, answer in (
        ("Process", OfThisHost), ("cpu_percent", lambda: 62.5), ("cpu_count", lambda: 4),
        ("cpu_times_percent", lambda: SimpleNamespace(iowait=12.345, idle=50.0)),
        ("net_io_counters", lambda pernic: nics),
    ):  # fmt: skip
        monkeypatch.setattr(psutil, name, answer)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(resource_limits, "memory", lambda: memory)
    monkeypatch.setattr(proc, "below", lambda pid: [3] if pid == 5 else [])
    read = Host(5, network=True)
    first = read.read()
    assert first == HostReading(
        cpu=0.625, others_cpu=round(0.625 - (0.2 + 0.25 + 0.13) / 4, 3), io_wait=0.123, memory_used_bytes=2500,
        memory_total_bytes=4000, engine_bytes=1000, engine_cpu=0.2, trainer_bytes=1005, trainer_cpu=0.25,
        trainer_read_bytes_per_second=None, network_rx_bytes_per_second=None, network_tx_bytes_per_second=None,
    )  # fmt: skip
    now[0] += 2.0
    nics["eth0"] = SimpleNamespace(bytes_recv=700, bytes_sent=200)
    later = read.read()
    assert (later.engine_cpu, later.trainer_cpu, later.trainer_read_bytes_per_second) == (0.3, 0.35, 2500)
    assert (later.network_rx_bytes_per_second, later.network_tx_bytes_per_second) == (200, 50)
    gone = Host(9).read()
    assert (gone.trainer_bytes, gone.trainer_cpu, gone.trainer_read_bytes_per_second, gone.others_cpu) == (None,) * 4
    assert (gone.engine_bytes, gone.network_rx_bytes_per_second) == (1000, None)


def test_other_programs_have_what_neither_the_training_nor_its_workers_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 90.0)
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda self: 50.0)
    monkeypatch.setattr(proc, "below", lambda pid: [os.getpid(), os.getpid()])
    read = Host(os.getpid())
    reading = read.read()
    assert (reading.cpu, reading.engine_cpu, reading.trainer_cpu) == (0.9, 0.5, 0.5)
    assert reading.others_cpu == pytest.approx(0.9 - (0.5 + 0.5 + 0.5) / 4)
    assert [read._others_cpu(*known) for known in ((None, 1, 1), (0.5, None, 1), (0.5, 1, None))] == [None] * 3
    assert read._others_cpu(0.5, 1.0, 2.0) == 0.0, "it is never below nothing"


def test_a_driver_that_hangs_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    done = threading.Event()

    def emit(event: Event) -> None:
        events.append(event)
        if len(events) >= 5:
            done.set()

    stopped: list[bool] = []
    monkeypatch.setattr(GpuReader, "start", lambda self: None)
    monkeypatch.setattr(GpuReader, "stop", lambda self: stopped.append(True))
    monkeypatch.setattr(GpuReader, "stuck_seconds", 31.0)
    thread = Sampler(SimpleNamespace(emit=emit), os.getpid(), 0.001)  # type: ignore[arg-type]
    thread.start()
    assert done.wait(60)
    thread.stop()
    assert (thread.is_alive(), stopped) == (False, [True])
    assert [event for event in events if isinstance(event, Warn)] == [Warn(
        kind="telemetry_stuck", message="the NVIDIA driver has not answered for 31 s: there are no new GPU readings",
        hint="the training goes on; nvidia-smi probably hangs, too",
    )]  # fmt: skip
    last = next(event for event in reversed(events) if isinstance(event, HostReading))
    assert last.trainer_bytes is not None
    assert thread.trainer_memory_share == pytest.approx(last.trainer_bytes / last.memory_total_bytes, rel=0.5)


# ---- processes and totals ------------------------------------------------------------------------


def test_energy_and_slowed_time_are_counted_between_readings_and_not_over_a_pause() -> None:
    def reading(energy: float, heat: float) -> Gpu:
        return Gpu(uuid="GPU-a", energy_j=energy, slowed_by_heat_seconds=heat, power_w=100.0, busy=1.0)

    totals = GpuTotals()
    assert (totals.counts_energy, totals.energy_wh, totals.power_w, totals.watts) == (False, None, None, None)
    totals.take(10.0, reading(1000.0, 0.0))
    totals.take(20.0, reading(4600.0, 5.0))
    assert (totals.energy_wh, totals.power_w, totals.watts, totals.slowed_by("heat")) == (1.0, 360.0, 360.0, 0.5)
    totals.pause()
    totals.take(100.0, reading(9000.0, 90.0))
    totals.take(110.0, reading(12600.0, 190.0))  # no more than the time between them
    assert (totals.energy_wh, totals.power_w, totals.slowed_by("heat")) == (2.0, 360.0, 0.75)
    totals.take(120.0, reading(5.0, 5.0))
    assert totals.energy_wh == 2.0, "the driver was loaded again"
    both = GpuTotals()
    for t, energy in ((0.0, 0.0), (10.0, 1000.0)):
        both.take(t, reading(energy, 0.0))
        both.take(t, Gpu(uuid="GPU-b", power_w=50.0 + t, busy=0.4, sm_clock_mhz=300))
    assert not both.counts_energy, "the driver counts that of one of them"
    assert both.energy_wh == pytest.approx((100 * 10 + 55 * 10) / 3600)
    assert (both.power_w, both.watts) == (77.5, 155.0)
    assert both.figures()["sm_clock_mean_mhz"] is None, "an idle GPU lowers its clock"
    both.take(20.0, Gpu(uuid="GPU-b", busy=0.5, sm_clock_mhz=900, max_sm_clock_mhz=1200))
    assert (both.mean("sm_clock_mhz"), both.mean("clock_share")) == (900, 0.75)
    both.take(30.0, Gpu(uuid="GPU-c", mig=()))
    assert (both.energy_wh, both.power_w, both.watts) == (None, None, None), "others may use the other parts"


# ---- the driver ----------------------------------------------------------------------------------


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
