"""Findings about the host: processors, memory, shared memory, room for runs, and the cluster it belongs to."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from ..files.places import runs_folder
from ..finding import Finding
from ..job import cluster
from ..telemetry import resource_limits
from ..units import GIB, counted, size

TENSORFLOW_BYTES = GIB  # memory of a process with TensorFlow and a small model


def findings(gpus: int = 0) -> Iterator[Finding]:
    yield from _processors()
    yield from _memory()
    yield from _shared_memory(gpus)
    yield from _runs()
    yield from _cluster()
    yield from _logout()


def _cluster() -> Iterator[Finding]:
    """A run that is started here would belong to this cluster."""
    named, fault = cluster.read_or_reason(os.environ)
    if fault:
        yield Finding("warning", "cluster", fault.what, fault.remedy)
    elif named is not None and len(named.workers) > 1:
        change = "strategy.kind=multi_worker trains on all of them; with another strategy a run is refused here"
        yield Finding("note", "cluster", f"this is {named}", change)


LOGIND, LINGER = Path("/etc/systemd"), Path("/var/lib/systemd/linger")


def _logout() -> Iterator[Finding]:
    """systemd ends the processes of this user at logout."""
    files = [LOGIND / "logind.conf", *sorted((LOGIND / "logind.conf.d").glob("*.conf"))]
    ends = False
    for file in files:
        with contextlib.suppress(OSError, UnicodeError):
            for line in file.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "KillUserProcesses":
                    ends = value.strip().lower() in ("yes", "true", "on", "1")
    with contextlib.suppress(OSError, KeyError):
        if ends and not (LINGER / pwd.getpwuid(os.geteuid()).pw_name).exists():
            what = "this machine ends your processes when you log out (KillUserProcesses), also runs and the queue"
            yield Finding("warning", "logout", what, "loginctl enable-linger lets them go on")


def _processors() -> Iterator[Finding]:
    mine, all_of_them = len(os.sched_getaffinity(0)), psutil.cpu_count() or 0
    cpus = counted(mine, "CPUs")
    what = cpus + (f" of {all_of_them}" if mine < all_of_them else "")
    quota = resource_limits.cpus()
    if quota is not None and quota < mine:
        what = f"{quota:g} of {cpus} (the container's limit)"
    if min(mine, quota or mine) < 2:
        yield Finding("note", "CPU", what, "at least two are needed to prepare input while the model trains")
    else:
        yield Finding("ok", "CPU", what)


def _memory() -> Iterator[Finding]:
    memory = resource_limits.memory()
    what = f"{size(memory.available)} of {size(memory.total)} free"
    if memory.total < psutil.virtual_memory().total:
        what += " (the container's limit)"
    if memory.available < TENSORFLOW_BYTES:
        yield Finding("warning", "memory", what, "TensorFlow alone needs about 1 GiB: end other programs first")
    else:
        yield Finding("ok", "memory", what)


def _shared_memory(gpus: int) -> Iterator[Finding]:
    """NCCL and worker processes exchange data through /dev/shm. Containers get 64 MiB by default."""
    try:
        total = shutil.disk_usage("/dev/shm").total
    except OSError:
        yield Finding("note", "/dev/shm", "/dev/shm does not exist", "training on several GPUs may need it")
        return
    if total < GIB:
        remedy = "for training on several GPUs start the container with --shm-size=8g or --ipc=host"
        yield Finding("warning" if gpus > 1 else "note", "/dev/shm", size(total), remedy)
    else:
        yield Finding("ok", "/dev/shm", size(total))


def _runs() -> Iterator[Finding]:
    folder = runs_folder()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        yield Finding("error", "runs", f"cannot write to {place}", "set GPUTUI_HOME to a folder of your own")
        return
    free = shutil.disk_usage(place).free
    what = f"{size(free)} free in {folder}"
    if free < 64 * 1024**2:
        yield Finding("error", "runs", what, "free some space, or set GPUTUI_HOME to a folder on another disk")
    elif free < 5 * GIB:
        remedy = "checkpoints of a large model need more; set GPUTUI_HOME to keep runs on another disk"
        yield Finding("warning", "runs", what, remedy)
    else:
        yield Finding("ok", "runs", what)
