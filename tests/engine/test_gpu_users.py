"""Who uses a GPU: what is seen of the processes, since when they are idle, and the tree that they stand in."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
from gputui.engine.telemetry import gpu_processes
from gputui.engine.telemetry.gpu_processes import HIDDEN, NOT_HERE, Branch, described
from gputui.engine.telemetry.nvml.gpu_reader import Work
from gputui.tui.drawing.gpu_details import doing
from gputui.tui.reading import machine
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess, numbers

from tests.support.front_door import until

USER = pwd.getpwuid(os.getuid()).pw_name
PID = os.getpid()


def test_a_process_is_described_with_its_user_command_and_start() -> None:
    (found,) = described([{"pid": PID, "memory_used_bytes": 5}], None, whole=True)
    assert (found["user"], found["own"], found["memory_used_bytes"]) == (USER, False, 5)
    assert found["started"] == psutil.Process().create_time()
    assert found["command"].startswith(os.path.basename(psutil.Process().cmdline()[0]))
    (brief,) = described([{"pid": PID}], PID)
    assert brief == {"pid": PID, "name": psutil.Process().name(), "own": True, "user": USER}, "as the events have it"


def test_what_the_system_hides_is_said_and_not_taken_for_an_ended_process(monkeypatch: pytest.MonkeyPatch) -> None:
    (ended,) = described([{"pid": 4_194_304}], None)
    assert (ended["name"], ended["own"], ended["user"], ended["hidden"]) == (None, None, None, NOT_HERE)

    def gone(pid: int) -> Any:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", gone)  # as with hidepid=2
    assert described([{"pid": PID}], None)[0]["hidden"] == HIDDEN
    for fault, hidden in (
        (PermissionError(1, "x"), HIDDEN), (ProcessLookupError(3, "x"), NOT_HERE), (OverflowError(), NOT_HERE),
    ):  # fmt: skip

        def fails(_pid: int, fault: Exception = fault) -> int:
            raise fault

        monkeypatch.setattr(os, "getsid", fails)
        assert described([{"pid": PID}], None)[0]["hidden"] == hidden, fault


def test_of_a_process_whose_files_are_closed_the_user_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: psutil.Process) -> Any:
        raise psutil.AccessDenied(self.pid)

    for name in ("name", "uids", "cmdline", "create_time"):  # as with hidepid=1
        monkeypatch.setattr(psutil.Process, name, refused)
    (found,) = described([{"pid": PID}], None, whole=True)
    assert (found["user"], found["name"], found["command"], found["started"]) == (USER, None, None, None)


def test_in_a_container_a_number_may_be_that_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "_namespace", lambda: "pid:[4026532001]")
    assert described([{"pid": PID}], None)[0]["hidden"] == NOT_HERE, "this one has not opened NVIDIA's driver"
    assert described([{"pid": PID}], PID)[0]["user"] == USER, "that of the training is known"
    links = {"0": "/dev/null", "1": "/dev/nvidia0", "2": "socket:[7]"}
    monkeypatch.setattr(os, "readlink", lambda path: links.get(Path(path).name, "/dev/tty"))
    assert described([{"pid": PID}], None)[0]["user"] == USER
    links["1"] = "/dev/nvram"
    assert described([{"pid": PID}], None)[0]["hidden"] == NOT_HERE
    for namespace in ("", "pid:[4026531836]"):  # not known; that of the host
        monkeypatch.setattr(gpu_processes, "_namespace", lambda name=namespace: name)
        assert described([{"pid": PID}], None)[0]["user"] == USER
    unknown: Any = SimpleNamespace(uids=lambda: SimpleNamespace(real=2**31 - 7))
    assert gpu_processes.user_of(unknown) == "user 2147483641"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the driver answers: the use of each process in percent, or the number of an error; and the time."""
    told = SimpleNamespace(used={}, fault=None, now=100.0)

    def ask(_gpu: Any, since: int) -> list[Any]:
        if told.fault is not None or not told.used:
            raise pynvml.NVMLError(told.fault if told.fault is not None else pynvml.NVML_ERROR_NOT_FOUND)
        names = ("smUtil", "memUtil", "encUtil", "decUtil")
        return [
            SimpleNamespace(pid=pid, timeStamp=since + 1, **dict(zip(names, used, strict=True)))
            for pid, used in told.used.items()
        ]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", ask)
    monkeypatch.setattr(time, "monotonic", lambda: told.now)
    return told


def test_a_process_is_idle_since_it_was_seen_to_work_or_at_least_since_the_first_look(driver: SimpleNamespace) -> None:
    work, listed = Work(None), [{"pid": 1}, {"pid": 2}]

    def look(seconds: float, used: dict[int, tuple[int, ...]]) -> list[str]:
        driver.now += seconds
        driver.used = used
        found = work.of(listed, work.read())
        return [doing(GpuProcess(**one)) for one in found]

    assert look(0, {1: (40, 0, 0, 0)}) == ["busy  40 %", "idle at least 0:00"]
    assert look(70, {}) == ["idle 1:10", "idle at least 1:10"]
    assert look(5, {2: (0, 3, 0, 0), 1: (4_000_000, 0, 0, 0)}) == ["idle 1:15", "busy   0 %"], "copies; never filled"
    work.forget()  # as after an error
    assert look(5, {}) == ["idle at least 0:00"] * 2
    driver.fault = pynvml.NVML_ERROR_NOT_SUPPORTED
    with pytest.raises(pynvml.NVMLError):
        work.read()


@pytest.fixture
def family() -> Iterator[list[int]]:
    """A shell that has started three processes: two alike, and one that is on a GPU."""
    script = "sleep 61 & sleep 61 & sleep 62 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        last = int(shell.stdout.readline())
        until(lambda: [child.name() for child in psutil.Process(shell.pid).children()] == 3 * ["sleep"])  # not yet sh
        try:
            yield [shell.pid, last]
        finally:
            for child in psutil.Process(shell.pid).children():
                child.terminate()


def test_the_tree_has_what_started_a_process_and_what_it_started(family: list[int]) -> None:
    shell, on_gpu = family
    found = gpu_processes.trees([on_gpu, shell, 4_194_304])
    below = found[next(n for n, branch in enumerate(found) if branch.pid == shell) :]
    assert [(branch.command, branch.alike, branch.uses_gpu) for branch in below[1:]] == [
        ("sleep 61", 2, False), ("sleep 62", 1, True)
    ]  # fmt: skip
    assert [branch.edges[-1] for branch in below[1:]] == [True, False]
    assert {branch.user for branch in found} == {USER}
    assert PID in [branch.pid for branch in found], "which has started the shell"


def test_users_are_told_with_all_their_gpus(family: list[int]) -> None:
    shell, on_gpu = family

    def gpu(index: int, *on: GpuProcess) -> Gpu:
        return Gpu(index, processes=on)

    idle = GpuProcess(on_gpu, memory_used_bytes=2.0**30, use=0.0, idle_seconds=9.0, idle_at_least=True)
    busy = GpuProcess(on_gpu, memory_used_bytes=2.0**30, use=0.5, idle_seconds=0.0, idle_at_least=False)
    hidden = GpuProcess(7, memory_used_bytes=2.0**30, hidden=HIDDEN)
    refused = Gpu(5, reasons={"processes": "no_permission"})
    users = machine.read([gpu(0, idle), gpu(1, busy, hidden), gpu(2, idle), refused])
    lines = {line.key: line for line in users.lines}
    of_user = lines[f"user {USER}"]
    assert (of_user.gpus, of_user.count, of_user.memory_bytes) == ((0, 1, 2), 1, 3 * 2.0**30)
    process = lines[f"process {on_gpu}"].process
    assert process is not None
    assert doing(process) == "busy  50 %", "it is idle on two GPUs only"
    assert lines[f"process {shell}"].gpus == ()
    assert (lines["user not visible"].gpus, lines["process 7"].text) == ((1,), HIDDEN)
    assert users.unknown == "GPU 5: no permission"
    assert numbers([7, 0, 1, 2, 5, 6]) == "0-2,5-7"


# ---- whole trees ---------------------------------------------------------------------------------

# Each process with its parent, its user, its command and its start.
PROCESSES: dict[int, tuple[int, str | None, str, float | None]] = {
    1: (0, "root", "init", 1.0), 10: (1, "root", "sshd", 2.0), 20: (10, "bob", "bash", 3.0),
    21: (20, "bob", "make", 4.0), 22: (21, "bob", "train", 6.0), 23: (22, "bob", "load", 9.0),
    24: (22, "bob", "load", 8.0), 25: (22, "bob", "log", 7.0), 26: (20, "bob", "vim", 5.0),
    30: (1, "ann", "train", 4.0), 31: (30, "ann", "sh", 5.0),
    32: (31, "ann", "train", 6.0), 40: (1, None, "hidden", None), 50: (1, "eve", "gone", 5.0),
}  # fmt: skip


@pytest.fixture
def machine_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    def branch(pid: int, uses_gpu: bool) -> Branch | None:
        _, user, command, started = PROCESSES[pid]
        return None if command == "gone" else Branch(pid, user, command, started, uses_gpu)

    listed = [SimpleNamespace(pid=pid, info={"ppid": about[0]}) for pid, about in PROCESSES.items()]
    monkeypatch.setattr(psutil, "process_iter", lambda _names: iter(listed))
    monkeypatch.setattr(gpu_processes, "_branch", branch)


@pytest.mark.usefixtures("machine_of_three")
def test_processes_whose_user_is_not_known_are_counted_with_the_hidden_ones() -> None:
    nobodys = GpuProcess(40, memory_used_bytes=3.0)
    hidden = GpuProcess(7, memory_used_bytes=4.0, hidden=HIDDEN)
    users = machine.read(
        [Gpu(0, processes=(nobodys, GpuProcess(30, memory_used_bytes=1.0))), Gpu(1, processes=(hidden,))]
    )
    keys = ["user ann", "process 30", "process 31", "process 32", "user not visible", "process 40", "process 7"]
    assert [line.key for line in users.lines] == keys
    heading = users.lines[4]
    assert (heading.count, heading.gpus, heading.memory_bytes) == (2, (0, 1), 7.0)


@pytest.mark.usefixtures("machine_of_three")
def test_trees_have_the_processes_of_one_user_above_and_all_below_by_user_and_start() -> None:
    assert gpu_processes.trees([22, 32, 40, 50, 4_194_304]) == [
        Branch(30, "ann", "train", 4.0, False),
        Branch(31, "ann", "sh", 5.0, False, (False,)),
        Branch(32, "ann", "train", 6.0, True, (False, False)),
        Branch(20, "bob", "bash", 3.0, False),
        Branch(21, "bob", "make", 4.0, False, (False,)),
        Branch(22, "bob", "train", 6.0, True, (False, False)),
        Branch(25, "bob", "log", 7.0, False, (False, False, True)),
        Branch(24, "bob", "load", 8.0, False, (False, False, False), alike=2),
        Branch(40, None, "hidden", None, True),
    ], "not init, which adopts all, nor sshd of another user, nor vim, which stands next to it"
    assert gpu_processes.trees([]) == []
    both = gpu_processes.trees([23, 24])
    assert [(branch.pid, branch.alike, branch.edges) for branch in both] == [
        (20, 1, ()), (21, 1, (False,)), (22, 1, (False, False)), (24, 1, (False, False, True)),
        (23, 1, (False, False, False)),
    ], "each of those that use a GPU"  # fmt: skip


@pytest.mark.usefixtures("machine_of_three")
def test_of_a_machine_with_very_many_processes_some_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "MOST", 4)
    assert [branch.pid for branch in gpu_processes.trees([22])] == [20, 21, 22, 23]
    monkeypatch.setattr(gpu_processes, "MOST", 2)
    assert [branch.pid for branch in gpu_processes.trees([22])] == [21, 22]


def test_a_command_is_shown_without_its_folder_as_a_shell_takes_it_and_not_without_end() -> None:
    def command(*words: str) -> str | None:
        return gpu_processes.command_of(SimpleNamespace(cmdline=lambda: list(words)))  # type: ignore[arg-type]

    assert command("/usr/bin/python3", "my train.py", "--a=$b") == "python3 'my train.py' '--a=$b'"
    assert command() is None
    assert command("a", "x" * 3000) == "a " + "x" * 1998
