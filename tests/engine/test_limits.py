"""What a container or a batch job leaves of the machine, by control groups of both versions."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from gputui.engine.runs.events import Event, HostReading, Warn
from gputui.engine.telemetry import host, resource_limits
from gputui.engine.telemetry.host import Host
from gputui.engine.telemetry.sampler import GpuReader, Sampler

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


@pytest.mark.parametrize(("user", "container", "processes"), [(0, "900", 900), (0, "max", None), (7, "900", 50)])
def test_the_superusers_processes_are_limited_by_the_container_alone(
    tree: Path, monkeypatch: pytest.MonkeyPatch, user: int, container: str, processes: int | None
) -> None:
    put(tree, {f"{GROUP}/pids.max": container})
    limits = {resource.RLIMIT_NPROC: 50, resource.RLIMIT_AS: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (limits[limit], resource.RLIM_INFINITY))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = resource_limits.ceilings()
    assert (found.processes, found.address_space_bytes) == (processes, None)


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


def test_the_readings_of_a_run_are_of_the_containers_memory(tree: Path) -> None:
    put(tree, {f"{GROUP}/memory.max": str(GIB), f"{GROUP}/memory.current": str(GIB // 4)})
    reading = Host(os.getpid()).read()
    assert (reading.memory_total_bytes, reading.memory_used_bytes) == (GIB, GIB // 4)


@pytest.mark.parametrize(("quota", "usable"), [(None, 4), ("150000", 2), ("10000", 1), ("800000", 4)])
def test_a_limit_on_the_cpus_leaves_at_least_one_and_at_most_those_that_there_are(
    tree: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, usable: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    put(tree, {f"{GROUP}/cpu.max": f"{quota or 'max'} 100000"})
    assert (resource_limits.usable_cpus(), resource_limits.cpus_limited()) == (usable, usable < 4)


def test_rates_are_those_since_the_last_reading_without_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent = [100.0], [0]

    def counters(pernic: bool) -> dict[str, SimpleNamespace]:
        assert pernic
        return {
            "lo": SimpleNamespace(bytes_recv=10**9 * now[0], bytes_sent=10**9 * now[0]),
            "eth0": SimpleNamespace(bytes_recv=sent[0], bytes_sent=3 * sent[0]),
            "eth1": SimpleNamespace(bytes_recv=sent[0], bytes_sent=0),
        }

    monkeypatch.setattr(psutil, "net_io_counters", counters)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    read, rates = Host(os.getpid(), network=True), []
    for seconds, count in ((0, 1000), (2, 3000), (1, 4000), (1, 500), (1, 700)):  # a counter begins anew
        now[0], sent[0] = now[0] + seconds, count
        reading = read.read()
        rates.append((reading.network_rx_bytes_per_second, reading.network_tx_bytes_per_second))
    assert rates == [(None, None), (2000, 3000), (2000, 3000), (None, None), (400, 600)]
    unasked = Host(os.getpid())
    now[0] += 1
    assert [unasked.read().network_rx_bytes_per_second for _ in range(2)] == [None, None]


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
    monkeypatch.setattr(host, "_descendants", lambda pid: [3] if pid == 5 else [])
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
    monkeypatch.setattr(host, "_descendants", lambda pid: [os.getpid(), os.getpid()])
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


def test_processes_of_the_training_are_found_with_those_that_they_start() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        found = host._descendants(os.getpid())
        os.kill(sleeper, signal.SIGKILL)
    assert {shell.pid, sleeper} <= set(found)
