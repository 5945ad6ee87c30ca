"""How much of the machine's memory and processors this process may use: the limits of its control groups, of both
versions and at every level above this process.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..system import proc

# The root of the kernel's files about the machine; tests put a tree of their own in its place.
ROOT = Path(os.environ.get("GPUTUI_ROOT", "/"))
_MEMORY_INFO = Path("/proc/meminfo")  # of the kernel itself: a container may have a limit, but no smaller machine
# Version 2 and version 1: the limit, how much of it is used, and how much of that the kernel can reclaim.
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True)
class Memory:
    """The total and the available memory, in bytes."""

    total: int
    available: int


def memory() -> Memory:
    """Return the memory that this process may use: the least that the machine and its control groups allow."""
    machine = _of_machine()
    total, available = machine.total, machine.available
    for folder in _groups("memory"):
        for limit_name, used_name, given_back in _MEMORY_FILES:
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is None or limit >= machine.total:  # no limit reads as "max", or as a huge number
                continue
            total = min(total, limit)
            path = folder / "memory.stat"
            words = (line.split() for line in proc.text(path).splitlines())
            needed = (used or 0) - next((int(line[1]) for line in words if len(line) == 2 and line[0] == given_back), 0)
            available = min(available, max(0, limit - needed))
    return Memory(total, available)


def _of_machine() -> Memory:
    sizes = proc.sizes(_MEMORY_INFO)
    return Memory(sizes.get("MemTotal", 0), sizes.get("MemAvailable", sizes.get("MemFree", 0)))


@dataclass(frozen=True)
class Ceilings:
    """Limits of a process; a request for more than a limit fails. None if there is no limit or if it is not known."""

    address_space_bytes: int | None = None  # ulimit -v
    processes: int | None = None  # ulimit -u, or the container's; a thread counts as one
    memory_bytes: int | None = None


def ceilings() -> Ceilings:
    """Return the limits of this process and of the processes that it starts."""
    limits = [_number(folder / "pids.max") for folder in _groups("pids")]
    limits += [_soft(resource.RLIMIT_NPROC)] * (os.geteuid() != 0)  # the superuser's number is not limited by ulimit
    processes = min((limit for limit in limits if limit is not None), default=None)
    return Ceilings(_soft(resource.RLIMIT_AS), processes, memory().total)


def _soft(limit: int) -> int | None:
    value = resource.getrlimit(limit)[0]
    return None if value == resource.RLIM_INFINITY else value


def cpus() -> float | None:
    """The processors that the CPU time allowed by the control groups is worth, such as 1.5; None without a limit."""
    allowed = []
    for folder in _groups("cpu"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            of_v2, of_period = (folder / "cpu.max").read_text().split()
            allowed.append(int(of_v2) / int(of_period))
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota and period and quota > 0:
            allowed.append(quota / period)
    return min(filter(None, allowed), default=None)


def usable_cpus() -> int:
    """The CPUs on which this process may run, at least 1, or fewer if its CPU time is limited."""
    allowed, limit = len(os.sched_getaffinity(0)), cpus()
    return allowed if limit is None else max(1, min(allowed, math.ceil(limit)))


def cpus_limited() -> bool:
    """`usable_cpus` are fewer than those on which the process may run, which TensorFlow uses."""
    return usable_cpus() < len(os.sched_getaffinity(0))


def memory_limited() -> bool:
    """Return True if the control groups allow less memory than the machine has, which TensorFlow uses."""
    return memory().total < _of_machine().total


def _groups(controller: str) -> Iterator[Path]:
    """The folders of this process' control groups, as seen from inside and outside; some may not exist."""
    mounted = ROOT / "sys/fs/cgroup"
    for line in proc.text(ROOT / "proc/self/cgroup").splitlines() or ["0::/", f"1:{controller}:/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mounted / controller if controllers else mounted
        inner = top / path.strip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


# ---- NUMA nodes ----------------------------------------------------------------------------------


def numa_nodes() -> int:
    """Return the number of the machine's NUMA nodes; 1 if it is not known."""
    return max(1, len(list((ROOT / "sys/devices/system/node").glob("node[0-9]*"))))


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers as a text in the kernel's form: `0-3,8`."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
