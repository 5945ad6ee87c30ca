"""`python -P server.py SOCKET -m gputui.engine.trainer ROOM --forks-for-tests`: forks engines and their trainers."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests.doors.engine import LEASED, LOCK, MOST_LEASES, RunClock, process_memory, stop_signals
from tests.doors.engine import run_clock_VARIABLE as VARIABLE
from tests.doors.trainer import fork_server
from tests.support import shared

sys.path.remove(os.environ.pop("PYTHONPATH"))  # where the tests are: no trainer looks there

# TensorFlow's import sets these, in whatever process of tests has imported it.
OF_TENSORFLOW = {"ENABLE_RUNTIME_UPTIME_TELEMETRY", "TF2_BEHAVIOR", "TPU_ML_PLATFORM", "TPU_ML_PLATFORM_VERSION",
                 "HDF5_PLUGIN_PATH"}  # fmt: skip
# What may differ between the server and a run: neither TensorFlow nor Python reads it when it starts.
MAY_DIFFER = {*OF_TENSORFLOW, "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "GPUTUI_HOME", "XDG_CONFIG_HOME",
              "TMPDIR", "PWD", "OLDPWD", "PYTHONPATH", "GPUTUI_TEST_ENGINES", "GPUTUI_TEST_PLANT", "COLUMNS",
              "LINES", LOCK, VARIABLE, "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID",
              "SLURM_JOB_GPUS", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS",
              "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "TF_CONFIG", "GPUTUI_PEER_SECONDS", "FAKEGPU",
              "FAKE_NVML", "FAKE_CUDA", "FAKE_CUDA_MIB", "FAKE_CUDA_SMS", "GPUTUI_WARM", "LANG", "COLORTERM", "TERM",
              "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "SHELL", "SHLVL", "_",
              "KERAS_BACKEND", "PATH", "USER", "HOSTNAME", "GPUTUI_LEASES", "GPUTUI_IDLE_SECONDS", LEASED}  # fmt: skip
LIMITS = Path("/proc/self/limits").read_text()
AS_HERE = {name: value for name, value in os.environ.items() if name not in MAY_DIFFER}


def is_as_here(wanted: dict[str, Any]) -> bool:
    environment = {name: value for name, value in wanted["environment"].items() if name not in MAY_DIFFER}
    return environment == AS_HERE and bool(wanted["limits"] == LIMITS)


def next_run(listener: socket.socket) -> tuple[dict[str, Any], list[int], int]:
    """Fork for each run; returns in the forked processes, with the run, its locks (the first is the engine's, the
    others are those of leases) and the line to who waits for it.
    """
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in readable:
            os._exit(0)  # the tests are over
        line, _ = listener.accept()
        with line:
            request, locks, _, _ = asked(line)
            if request and is_as_here(wanted := json.loads(request)):
                stop_signals.hold()
                if fork_server._fork() == 0:
                    listener.close()
                    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
                    return wanted, locks, line.detach()
                stop_signals.let_through()
        for lock in locks:
            os.close(lock)


def asked(line: socket.socket) -> tuple[bytes, list[int], int, Any]:
    """What a command asks for; nothing of one that was killed before it has asked."""
    try:
        return socket.recv_fds(line, 1 << 20, MOST_LEASES + 1)
    except OSError:
        return b"", [], 0, None


def main() -> None:
    words = sys.argv[-2:]
    stop_signals.set_defaults()
    fork_server._PLUGIN = ""  # the stand-ins for GPUs, which open nothing when they are imported
    try:
        pages = fork_server._prepared(words)
    except OSError:
        print(shared.CANNOT, flush=True)  # every command starts its engine itself
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print(shared.READY, flush=True)
        wanted, (lock, *leases), line = next_run(listener)
    try:
        os.chdir(wanted["at"])
        clock = RunClock.read(wanted["environment"].pop(VARIABLE))
        os.environ.clear()
        names = [entry.partition(" ")[2] for entry in wanted["environment"].pop(LEASED, "").split(",")]
        os.environ.update({name: value for name, value in wanted["environment"].items() if name != LOCK})
        wanted["environment"][LEASED] = ",".join(f"{fd} {name}" for fd, name in zip(leases, names, strict=False))
        for descriptor in leases:
            os.set_inheritable(descriptor, True)
        tempfile.tempdir = None
        sys.argv[1:] = []
        fork_server._part(wanted["environment"], words, clock, wanted["folder"], lock, line)
        for descriptor in leases:  # the engine has them, and its trainer has none
            os.close(descriptor)
        with contextlib.suppress(OSError):
            process_memory.populate(pages)
        fork_server._seed_numpy()
        if os.environ.get("FAKEGPU"):
            from tensorflow.python.eager import context

            context.context().reinitialize_physical_devices()  # those that the import has found are the server's
        if planted := os.environ.get("GPUTUI_TEST_PLANT"):  # a file of Python that changes how the trainer behaves
            exec(Path(planted).read_text(), {})
    except BaseException:  # noqa: BLE001 - a forked process ends here
        traceback.print_exc()
        os._exit(1)
    runpy.run_module("gputui.engine.trainer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
