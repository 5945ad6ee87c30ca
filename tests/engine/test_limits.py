"""What a container or a batch job leaves of the machine, by control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from gputui.engine.telemetry import limits
from gputui.engine.telemetry.host import Host

from tests.support.machines import put

GIB = 1024**3
GROUP = "sys/fs/cgroup"
V1_UNLIMITED = 9223372036854771712


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "ROOT", tmp_path)
    return tmp_path


def test_without_limits_it_is_what_the_machine_has(tree: Path) -> None:
    assert limits.memory().total == psutil.virtual_memory().total
    assert limits.cpus() is None
    put(tree, {f"{GROUP}/memory.max": "max", f"{GROUP}/cpu.max": "max 100000"})
    put(tree, {f"{GROUP}/memory/memory.limit_in_bytes": str(V1_UNLIMITED), f"{GROUP}/cpu/cpu.cfs_quota_us": "-1"})
    assert limits.memory().total == psutil.virtual_memory().total
    assert limits.cpus() is None


def test_a_container_of_version_2(tree: Path) -> None:
    put(tree, {f"{GROUP}/memory.max": str(GIB), f"{GROUP}/memory.current": str(GIB // 4)})
    put(tree, {f"{GROUP}/cpu.max": "150000 100000"})
    assert limits.memory() == limits.Memory(GIB, GIB - GIB // 4)
    assert limits.cpus() == 1.5


def test_a_container_of_version_1(tree: Path) -> None:
    memory, cpu = f"{GROUP}/memory/memory", f"{GROUP}/cpu/cpu"
    put(tree, {"proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n1:name=systemd:/docker/1\n0::/"})
    put(tree, {f"{memory}.limit_in_bytes": str(GIB), f"{memory}.usage_in_bytes": str(GIB)})
    put(tree, {f"{memory}.stat": f"cache 7\ninactive_file 3\ntotal_inactive_file {GIB // 2}"})
    put(tree, {f"{cpu}.cfs_quota_us": "50000", f"{cpu}.cfs_period_us": "100000"})
    assert limits.memory() == limits.Memory(GIB, GIB // 2)  # the kernel gives back what it keeps of files
    assert limits.cpus() == 0.5


def test_the_tightest_group_above_a_batch_job_counts(tree: Path) -> None:
    put(tree, {"proc/self/cgroup": "0::/slurm/job_1/step_0"})
    put(tree, {f"{GROUP}/slurm/job_1/step_0/memory.max": "max"})
    put(tree, {f"{GROUP}/slurm/job_1/memory.max": str(GIB), f"{GROUP}/slurm/memory.max": str(2 * GIB)})
    assert limits.memory().total == GIB


def test_the_readings_of_a_run_are_of_the_containers_memory(tree: Path) -> None:
    put(tree, {f"{GROUP}/memory.max": str(GIB), f"{GROUP}/memory.current": str(GIB // 4)})
    reading = Host(os.getpid()).read()
    assert (reading.memory_total_bytes, reading.memory_used_bytes) == (GIB, GIB // 4)
