"""`python -P -m gputui.engine.trainer FOLDER --fork-server`: imports TensorFlow once, and forks a trainer for each
run. A process is forked that forks the trainer and becomes its engine by exec: it sees how the trainer ends, and
adopts what that leaves behind. A GPU driver does not survive a fork. Variables that options set are read after the
import.

Deferred imports: TensorFlow takes seconds, and the reasons against a fork are checked before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import traceback
import warnings
from pathlib import Path

from ..files import places
from ..process.spawn import FORKED, LOCK, Channels, put_result_aside, read_address, write_to_log
from ..system import child_process, descendants, process_memory, stop_signals
from ..system.import_cost import exempt_from_gc
from ..system.run_clock import VARIABLE, RunClock
from .setup import environment

_START, _END = 45, 46  # arg_start and arg_end in /proc/PID/stat (proc(5)), counted from 0 after the name


def _write(words: list[str], new: bytes) -> None:
    if sys.platform != "linux":
        raise OSError("only Linux shows what is written there")
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    old = _joined(words)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(int(fields[_END]) - 1 - len(old))
        if int(fields[_START]) <= 0 or memory.read(len(old)) != old:
            raise OSError("the arguments are not where they were passed")
        memory.seek(-len(old), 1)
        memory.write(new)


def _joined(words: list[str]) -> bytes:
    return b"\0".join(map(os.fsencode, words))


_PLUGIN = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"  # a driver that TensorFlow loads when it is imported
_PLUGINS = "/tensorflow-plugins/"  # the folder from which it loads all
_DRIVERS = ("libcuda.so", "libnvidia-ml.so", "libhsa-runtime", _PLUGINS)
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


def serve() -> None:
    """Fork until no further run comes. Returns only in the trainers, with arguments and environment of one started
    alone.
    """
    stop_signals.set_defaults()
    environment_given, words = dict(os.environ), sys.argv[-2:]
    try:
        pages = _prepared(words)
    except OSError:
        os._exit(1)
    request, descriptors = _next_run()
    try:
        _part(environment_given, words, *read_address(os.fsdecode(request)), *descriptors)
        with contextlib.suppress(OSError):  # memory is short: they are read when they are needed
            process_memory.populate(pages)
        _seed_numpy()
    except BaseException:  # noqa: BLE001 - a forked process ends here and never returns to the code of its parent
        traceback.print_exc()
        os._exit(1)


def _prepared(words: list[str]) -> process_memory.Pages:
    """Import TensorFlow, and return the pages of its libraries. Raises OSError if this process must not be forked."""
    _write(words, _joined(words))  # as the words of the command line will be replaced by those of the run
    if os.environ.get(_PLUGIN):
        raise OSError("a plugin may open its device when it is imported")
    backend = environment.choose_backend()
    with exempt_from_gc():
        from . import assembly, session  # noqa: F401
    if backend:  # `choose_backend` is called again for each run
        os.environ["KERAS_BACKEND"] = backend
    if _has_opened_a_device():
        raise OSError("the import has opened a device")
    pages = process_memory.library_pages()
    process_memory.populate(pages)  # raises OSError if the kernel cannot
    return pages


def _next_run() -> tuple[bytes, list[int]]:
    """Fork a process for each run, and return only in these, with the request and its file descriptors."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the engines are not waited for
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            request, descriptors, _, _ = socket.recv_fds(requests, 65536, 2)
            if not request:
                os._exit(0)
            stop_signals.hold()  # until engine and trainer have handlers
            if _fork() == 0:
                return request, descriptors
            stop_signals.let_through()
            for descriptor in descriptors:
                os.close(descriptor)


def _part(given: dict[str, str], words: list[str], clock: RunClock, folder: str, lock: int, line: int) -> None:
    """Fork the trainer of a run, and become its engine. Returns only in the trainer."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.setsid()
    # The list of processes shows the folder in place of the last words, with slashes before its last part as filling.
    # This is the line of the trainer; the engine gets one with its program.
    parent, name = os.path.split(os.fsencode(folder))
    filling = len(_joined(words)) - len(parent) - len(name)
    if filling < 1:
        raise OSError(f"no room for {folder}")
    _write(words, parent + b"/" * filling + name)
    with socket.socket(fileno=line) as asking:
        asking.sendall(str(os.getpid()).encode())
        if not asking.recv(1):
            os._exit(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    write_to_log(Path(folder))
    engines = given | {LOCK: str(lock), VARIABLE: clock.as_text()}
    os.set_inheritable(lock, True)
    try:
        put_result_aside(Path(folder))
        channels = Channels()
        places.make_scratch()
        # This lasts through exec, and the trainer's first orphans may come before the engine.
        descendants.adopt_orphans()
        trainer = _fork()
        if trainer == 0:
            for descriptor in (channels.lifeline, channels.report, lock):
                os.close(descriptor)
            os.environ.update(channels.environment(clock))
            sys.argv[1:] = [folder]
            return
        ours = [channels.lifeline, channels.report] + ([] if channels.memory is None else [channels.memory])
        for descriptor in ours:
            os.set_inheritable(descriptor, True)
        engines[FORKED] = " ".join(map(str, [trainer, *ours]))
        if (scratch := os.environ.get(places.SCRATCH_VARIABLE)) is not None:
            engines[places.SCRATCH_VARIABLE] = scratch
    except OSError:  # no further process: the engine itself tries once more, and says why it cannot
        places.remove_scratch()
    python = child_process.own_python()
    os.execve(python, [python, "-P", "-m", "gputui.engine", folder], engines)


def _seed_numpy() -> None:
    # Python does the same with its own generator.
    import numpy as np

    np.random.seed()


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.12 on: NumPy's threads end at a fork and are started again
        return os.fork()


def _has_opened_a_device() -> bool:
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    opened = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own
            opened.append(os.readlink(f"/proc/self/fd/{name}"))
    return any(driver in mapped for driver in _DRIVERS) or any(path.startswith(_DEVICES) for path in opened)
