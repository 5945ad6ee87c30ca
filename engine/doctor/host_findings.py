"""Findings about the host: processors, memory, room for runs, its cluster, and installed Python packages, of which
several provide the module `pynvml`. Without compiled bytecode TensorFlow is compiled again at each start.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import pwd
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil

from ..files.places import runs_folder
from ..finding import Finding
from ..interpreter import installed
from ..job import cluster
from ..telemetry import resource_limits
from ..units import GIB, counted, size

LOGIND, LINGER = Path("/etc/systemd"), Path("/var/lib/systemd/linger")
TENSORFLOW_BYTES = GIB  # memory of a process with TensorFlow and a small model


def findings(gpus: int = 0) -> Iterator[Finding]:
    mine, all_of_them, quota = len(os.sched_getaffinity(0)), psutil.cpu_count() or 0, resource_limits.cpus()
    cpus = counted(mine, "CPUs")
    what = cpus + (f" of {all_of_them}" if mine < all_of_them else "")
    if quota is not None and quota < mine:
        what = f"{quota:g} of {cpus} (the container's limit)"
    if min(mine, quota or mine) < 2:
        yield Finding("note", "CPU", what, "at least two are needed to prepare input while the model trains")
    else:
        yield Finding("ok", "CPU", what)

    memory = resource_limits.memory()
    what = f"{size(memory.available)} of {size(memory.total)} free"
    if memory.total < psutil.virtual_memory().total:
        what += " (the container's limit)"
    if memory.available < TENSORFLOW_BYTES:
        yield Finding("warning", "memory", what, "TensorFlow alone needs about 1 GiB: end other programs first")
    else:
        yield Finding("ok", "memory", what)

    # NCCL and worker processes exchange data through /dev/shm. Containers get 64 MiB by default.
    try:
        total = shutil.disk_usage("/dev/shm").total
        if total < GIB:
            remedy = "for training on several GPUs start the container with --shm-size=8g or --ipc=host"
            yield Finding("warning" if gpus > 1 else "note", "/dev/shm", size(total), remedy)
        else:
            yield Finding("ok", "/dev/shm", size(total))
    except OSError:
        yield Finding("note", "/dev/shm", "/dev/shm does not exist", "training on several GPUs may need it")

    folder = runs_folder()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    what = f"{size(free)} free in {folder}"
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        yield Finding("error", "runs", f"cannot write to {place}", "set GPUTUI_HOME to a folder of your own")
    elif free < 64 * 1024**2:
        yield Finding("error", "runs", what, "free some space, or set GPUTUI_HOME to a folder on another disk")
    elif free < 5 * GIB:
        remedy = "checkpoints of a large model need more; set GPUTUI_HOME to keep runs on another disk"
        yield Finding("warning", "runs", what, remedy)
    else:
        yield Finding("ok", "runs", what)

    # A run that is started here would belong to this cluster.
    named, fault = cluster.read_or_reason(os.environ)
    if fault:
        yield Finding("warning", "cluster", fault.what, fault.remedy)
    elif named is not None and len(named.workers) > 1:
        change = "strategy.kind=multi_worker trains on all of them; with another strategy a run is refused here"
        yield Finding("note", "cluster", f"this is {named}", change)

    ends_processes = False  # systemd, of this user at logout
    for file in [LOGIND / "logind.conf", *sorted((LOGIND / "logind.conf.d").glob("*.conf"))]:
        with suppress(OSError, UnicodeError):
            for line in file.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "KillUserProcesses":
                    ends_processes = value.strip().lower() in ("yes", "true", "on", "1")
    with suppress(OSError, KeyError):
        if ends_processes and not (LINGER / pwd.getpwuid(os.geteuid()).pw_name).exists():
            what = "this machine ends your processes when you log out (KillUserProcesses), also runs and the queue"
            yield Finding("warning", "logout", what, "loginctl enable-linger lets them go on")


# ---- Python packages ------------------------------------------------------------------------------


RIGHT = "nvidia-ml-py"
ABOUT = "pynvml"


def python_packages() -> Iterator[Finding]:
    """The module pynvml is missing, from another package, slowed down by an old one, or `ok`."""
    right, old = _version(RIGHT), _version("pynvml")
    place, owner = None, None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(ABOUT)
        place = Path(spec.origin) if spec and spec.origin else None
    if place is not None:
        checksum = base64.urlsafe_b64encode(hashlib.sha256(place.read_bytes()).digest()).decode("ascii").rstrip("=")
        names = set(metadata.packages_distributions().get(ABOUT, []))
        owners = {name: listed for name in names if (listed := _listed(name, place))}
        last = [name for name, listed in owners.items() if checksum in listed]
        owner = next(iter(sorted(last) or sorted(owners)), None)
    if owner is not None and owner != RIGHT:
        what = f"the module pynvml comes from {owner} {_version(owner)}, not from {RIGHT}: readings may be wrong"
        yield Finding("warning", ABOUT, what, f"pip uninstall {owner}; pip install --force-reinstall {RIGHT}")
    elif right is None or place is None:
        yield Finding("error", ABOUT, f"{RIGHT} is not installed: GPUs cannot be read", f"pip install {RIGHT}")
    elif owner is None:
        what = f"the module pynvml is {place}, not that of {RIGHT}: readings may be wrong"
        yield Finding("warning", ABOUT, what, "rename that file, or take its folder off PYTHONPATH")
    elif old is not None:
        what = f"the deprecated package pynvml {old} is installed with {RIGHT}: it slows down every start of Python"
        yield Finding("note", ABOUT, what, "pip uninstall pynvml")
    else:
        yield Finding("ok", ABOUT, f"{RIGHT} {right}")
    yield from _bytecode_findings()
    if installed.intended().place and installed.site("tensorboard") is None:  # TensorFlow 2.21 no longer brings it
        what = "the package tensorboard is not installed: Keras' TensorBoard callback and tf.summary fail"
        yield Finding("note", "tensorboard", what, installed.install("tensorboard"))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _listed(distribution: str, place: Path) -> list[str]:
    """Checksums with which a package lists a file; empty text: without one, as of a system package."""
    files = metadata.files(distribution)
    if files is None:
        return [""]
    ours = [file for file in files if file.name == place.name and Path(str(file.locate())).resolve() == place.resolve()]
    return [file.hash.value if file.hash else "" for file in ours]


# ---- TensorFlow's bytecode -----------------------------------------------------------------------


LOOKED_AT = ("tensorflow/python/framework/ops.py", "keras/src/models/model.py")  # one for its package
_HEADER_BYTES = 16
_BY_HASH = 1  # a flag in the header of a .pyc file


def _bytecode_findings() -> Iterator[Finding]:
    """Nothing is reported about a Python of another version than gputui's own, whose bytecode has another form."""
    python = installed.intended()
    sources = [source for source in map(installed.site, LOOKED_AT) if source is not None]
    stale = next((source for source in sources if not _is_fresh(source)), None)
    if python.version[:2] != sys.version_info[:2] or stale is None:
        return
    package = installed.site("tensorflow")
    folder = package.parent if package else stale.parent
    cache = Path(importlib.util.cache_from_source(str(stale))).parent
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if (locked := not os.access(there, os.W_OK | os.X_OK)) or sys.dont_write_bytecode:
        why = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else f"{folder} cannot be written to"
        again = "TensorFlow is compiled again at each start, which takes seconds"
        command = f"{python.python} -m compileall -q {folder}"
        remedy = f"ask the owner of the folder to run: {command}" if locked else command
        yield Finding("note", "TensorFlow", f"{again}: there is no compiled bytecode, and {why}", remedy)


def _is_fresh(source: Path) -> bool:
    """This Python has made the compiled file from the present source (PEP 552)."""
    try:
        with Path(importlib.util.cache_from_source(str(source))).open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
        made_of = source.stat()
    except OSError:
        return False
    magic, flags, seconds, size = header[:4], *(int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if len(header) < _HEADER_BYTES or magic != importlib.util.MAGIC_NUMBER:
        return False
    same = (seconds, size) == (int(made_of.st_mtime) & 0xFFFFFFFF, made_of.st_size & 0xFFFFFFFF)
    return bool(flags & _BY_HASH) or same
