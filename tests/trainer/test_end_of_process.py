"""How the trainer's process ends, and how it hears that it is to end: limits, threads, open files, signals."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.files import places
from gputui.engine.process.spawn import FORKED
from gputui.engine.trainer import __main__ as trainer
from gputui.engine.trainer import fork_server
from gputui.engine.trainer.common import process_exit
from gputui.engine.trainer.common.process_exit import ProcessExit
from gputui.engine.trainer.common.stopping import ENGINE_GONE, ENGINE_LOST, StopSwitch

# ---- the end -----------------------------------------------------------------------------------


class Left(Exception):
    """The process has ended."""


class Ending:
    """Stands for what ends a process, and tells in which order it happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Any] = []
        self.threads: list[Callable[[], None]] = []
        self.no_threads: type[BaseException] | None = None
        self.open: list[Any] = []
        modules = {
            "atexit": SimpleNamespace(_run_exitfuncs=lambda: self.told.append("atexit")),
            "os": SimpleNamespace(_exit=self._exit),
            "faulthandler": SimpleNamespace(
                dump_traceback_later=lambda seconds, exit: self.told.append(("python", seconds, exit))
            ),
            "time": SimpleNamespace(sleep=lambda seconds: self.told.append(("sleeps", seconds))),
            "threading": SimpleNamespace(
                Lock=threading.Lock, Event=threading.Event, Timer=self._timer, Thread=self._thread,
                _shutdown=lambda: self.told.append("threads"), main_thread=threading.main_thread,
                enumerate=lambda: self.running,
            ),
            "descendants": SimpleNamespace(end_descendants=lambda: self.told.append("descendants")),
            "places": SimpleNamespace(remove_scratch=lambda: self.told.append("scratch")),
            "import_cost": SimpleNamespace(tracked_objects=lambda: self.open),
        }  # fmt: skip
        for name, stand_in in modules.items():
            monkeypatch.setattr(process_exit, name, stand_in)
        self.running: list[Any] = []
        self.stop = StopSwitch()
        self.leaving = ProcessExit(self.stop)

    def _exit(self, code: int) -> None:
        self.told.append(code)
        raise Left

    def _timer(self, seconds: float, function: Any, arguments: tuple[int]) -> Any:
        if self.no_threads:
            raise self.no_threads
        assert function == self._exit
        made = SimpleNamespace(daemon=False)
        made.start = lambda: self.told.append(("limit", seconds, *arguments, made.daemon))
        return made

    def _thread(self, target: Callable[[], None], name: str, daemon: bool) -> Any:
        assert daemon
        return SimpleNamespace(start=lambda: self.threads.append(target))

    def left(self, call: Callable[[], None]) -> list[Any]:
        with pytest.raises(Left):
            call()
        told, self.told = self.told, []
        return told


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Ending:
    return Ending(monkeypatch)


def test_a_process_whose_result_is_written_waits_for_its_threads_and_ends_once(ending: Ending) -> None:
    limits: list[Any] = [("limit", 30.0, 7, True), ("python", 35.0, True)]
    assert ending.left(lambda: ending.leaving.at_the_end(7)) == [*limits, "threads", "atexit", 7]
    ending.leaving.at_the_end(3)
    assert ending.told == [("sleeps", 35.0)], "another thread ends the process"
    ending.leaving.at_once(3)
    assert len(ending.told) == 1


def test_a_process_that_is_stopped_ends_in_seconds_and_waits_for_no_thread(ending: Ending) -> None:
    assert ending.left(lambda: ending.leaving.at_once(143)) == [
        ("limit", 3.0, 143, True), ("python", 8.0, True), "atexit", 143,
    ]  # fmt: skip


def test_a_process_without_an_engine_ends_what_it_has_started(ending: Ending) -> None:
    ending.stop.engine_gone = True
    assert ending.left(lambda: ending.leaving.at_once(0))[2:] == ["atexit", "descendants", "scratch", 0]


def test_a_result_that_is_written_limits_the_rest(ending: Ending) -> None:
    ending.leaving.limit(7)
    assert ending.told == [("limit", 30.0, 7, True), ("python", 35.0, True)]
    for fault in (RuntimeError, MemoryError):
        ending.no_threads = fault
        ending.leaving.limit(7)
    assert len(ending.told) == 2


class File(io.StringIO):
    """A text file that is still open."""

    def __init__(self, told: list[Any], name: str, refuses: bool = False) -> None:
        super().__init__()
        self.told, self.label, self.refuses = told, name, refuses

    def writable(self) -> bool:
        return bool(self.label != "read only")

    def flush(self) -> None:
        self.told.append(self.label)
        if self.refuses:
            raise OSError


@pytest.mark.parametrize("fault", [RuntimeError, MemoryError])
def test_without_a_thread_for_its_limits_a_process_writes_its_files_and_ends_at_once(
    fault: type[BaseException], ending: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending.no_threads = fault
    told = ending.told
    closed = File(told, "closed")
    closed.close()
    told.clear()
    ending.open += [File(told, "a", refuses=True), File(told, "read only"), closed, 3, "text", File(told, "b")]
    monkeypatch.setattr(process_exit, "sys", SimpleNamespace(stdout=File(told, "out", True), stderr=File(told, "err")))
    assert ending.left(lambda: ending.leaving.at_the_end(7)) == ["out", "err", "a", "b", 7]


def test_threads_that_still_run_are_named(ending: Ending, capsys: pytest.CaptureFixture[str]) -> None:
    def thread(name: str, daemon: bool = False) -> Any:
        return SimpleNamespace(name=name, daemon=daemon)

    ending.running = [threading.main_thread(), thread("writer"), thread("daemon", True), thread("loader")]
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    ending.leaving._threads_gone = SimpleNamespace(wait=wait, set=lambda: None)  # type: ignore[assignment]
    ending.left(lambda: ending.leaving.at_the_end(7))
    (patience,) = ending.threads
    ending.leaving._closing = threading.Lock()
    assert ending.left(patience) == ["atexit", 7]
    assert waits == [10.0]
    assert capsys.readouterr().err == "gputui: threads that still run are not waited for: loader, writer\n"


def test_threads_that_have_ended_are_not_waited_for(ending: Ending, capsys: pytest.CaptureFixture[str]) -> None:
    ending.left(lambda: ending.leaving.at_the_end(7))
    assert ending.leaving._threads_gone.is_set()
    (patience,) = ending.threads
    patience()
    assert (ending.told, capsys.readouterr().err) == ([], "")


# ---- a request to end --------------------------------------------------------------------------

HEARS = """
import os, signal, sys, threading
from gputui.engine.trainer.common import stopping
from gputui.engine.trainer.common.stopping import StopRequested, StopSwitch
lifeline, engine = os.pipe()
switch = StopSwitch()
switch.at_once = False
before = signal.getsignal(signal.SIGINT)
switch.listen_again()
assert signal.getsignal(signal.SIGINT) == before
switch.listen(os.fdopen(lifeline))
assert {signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} == {switch.on_signal}
child = os.fork()
if child == 0:
    os.close(engine)
    defaults = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == (
        signal.SIG_DFL, signal.default_int_handler)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os._exit(0 if defaults and not mask and signal.set_wakeup_fd(-1) == -1 and not switch.reason else 1)
assert os.waitpid(child, 0)[1] == 0
def theirs(*_): pass
signal.signal(signal.SIGTERM, theirs)
pipe = os.pipe()
os.set_blocking(pipe[1], False)
before = signal.set_wakeup_fd(pipe[1])
child = os.fork()
if child == 0:
    os._exit(0 if signal.getsignal(signal.SIGTERM) is theirs and signal.set_wakeup_fd(-1) == pipe[1] else 1)
assert os.waitpid(child, 0)[1] == 0
assert signal.set_wakeup_fd(before) == pipe[1]
signal.signal(signal.SIGTERM, switch.on_signal)
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert signal.getsignal(signal.SIGTERM) == switch.on_signal
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(os.getpid(), signal.SIGUSR1)  # one that the code of a user handles
def heard():
    switch.requested()
    return switch.reason
HOW
"""
HOW = {
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); print(heard(), switch.engine_gone)", "stopped False"),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); print(heard(), switch.engine_gone)", "stopped False"),
    "together": ("os.write(switch.writer, bytes([signal.SIGUSR1, signal.SIGINT])); print(heard(), switch.engine_gone)",
                 "stopped False"),
    "closed": ("stopping.HEARING_SECONDS = 0.1\n"
               "hears = next(each for each in threading.enumerate() if each.name == 'signals')\n"
               "os.close(switch.writer - 1)\n"
               "try: os.write(switch.writer, b'0')\nexcept BrokenPipeError: pass  # it was not reading\n"
               "hears.join(60)\n"
               "print(heard(), switch.engine_gone)", "False"),
    "timeout": (r"os.write(engine, b'timeout\n'); print(heard(), switch.engine_gone)", "timeout False"),
    "stop": (r"os.write(engine, b'stop\n'); print(heard(), switch.engine_gone)", "stopped False"),
    "killed": ("stopping.stop_signals.GRACE_SECONDS, left = 0.0, threading.Event()\n"
               "switch.exit = lambda code: (print(code, flush=True), left.set())\n"
               "switch.leave_result = lambda reason: print(reason, flush=True)\n"
               "os.close(engine); print(heard(), switch.engine_gone); left.wait(60)", ""),
    "nothing": ("stopping.HEARING_SECONDS = 0.1; print(heard(), switch.engine_gone)", "False"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOW)
def test_a_signal_and_the_engine_are_heard_and_forked_children_have_the_handlers_of_any_program(name: str) -> None:
    lines, said = HOW[name]
    done = subprocess.run(
        [sys.executable, "-c", HEARS.replace("HOW", lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.split("\n")
    if name == "killed":
        assert sorted(filter(None, printed)) == ["143", "engine", "engine True"]
    else:
        assert printed[0].strip() == said


def test_a_run_that_ends_before_it_trains_has_a_result_unless_the_engine_writes_it() -> None:
    told: list[Any] = []
    report = SimpleNamespace(finish=lambda *given: told.append(given))
    for reason in (ENGINE_GONE, "stopped", "timeout"):
        trainer._leave_result(report, reason)
    assert told == [("crashed", 0, ENGINE_LOST), ("stopped", 0)]


def test_the_address_of_a_run_is_a_line_and_without_one_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: SimpleQueue[str] = SimpleQueue()
    told: list[Any] = []

    def left(code: int) -> None:
        told.append(code)
        raise Left

    monkeypatch.setattr(os, "_exit", left)
    monkeypatch.setattr(places, "remove_scratch", lambda: told.append("scratch"))
    trainer._read_address(lambda: "1 2 /runs/a b\n", addresses)
    assert (addresses.get(), told) == ("1 2 /runs/a b", [])
    with pytest.raises(Left):
        trainer._read_address(lambda: "", addresses)
    assert told == ["scratch", 0]
    assert addresses.empty()


# ---- a process that is forked ------------------------------------------------------------------

RENAMED = """
import sys
from gputui.engine.trainer.fork_server import replace_last, require_replaceable
words = sys.argv[-2:]
require_replaceable(words)
replace_last(words, sys.argv[1])
print(open("/proc/self/cmdline").read().rstrip("\\0").replace("\\0", " ").rpartition(" -c ")[2][-60:])
try:
    replace_last(["another", "word"], "x")
except OSError as fault:
    print(fault)
"""


def test_a_forked_trainer_shows_its_own_folder_in_the_list_of_processes() -> None:
    place, room = "/home/me/runs/7", "/home/me/trials/in/a/folder"
    done = subprocess.run(
        [sys.executable, "-c", RENAMED, place, room, "--fork-server"], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown, fault = done.stdout.splitlines()[-2:]
    slashes = len(room) + 1 + len("--fork-server") - len("/home/me/runs") - len("7")
    assert shown.endswith(f" {place} /home/me/runs{'/' * slashes}7")
    assert fault == "the arguments are not where they were passed"
    with pytest.raises(OSError, match=r"^no room for /a/long/path$"):
        fork_server.replace_last(["/a/short", "er"], "/a/long/path")


def test_an_engine_gets_the_pipes_to_its_trainer_and_its_scratch_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    inherited: list[int] = []
    monkeypatch.setattr(os, "set_inheritable", lambda descriptor, value: inherited.append(descriptor))
    monkeypatch.setattr(os, "environ", {})
    for memory, pipes in ((None, "5 6"), (9, "5 6 9")):
        channels: Any = SimpleNamespace(lifeline=5, report=6, memory=memory)
        assert fork_server._with_trainer(77, channels) == {FORKED: f"77 {pipes}"}
    assert inherited == [5, 6, 5, 6, 9]
    os.environ[places.SCRATCH_VARIABLE] = "/tmp/x"
    assert fork_server._with_trainer(77, channels)[places.SCRATCH_VARIABLE] == "/tmp/x"


@pytest.mark.parametrize(
    ("maps", "opened", "found"),
    [
        ("", "/dev/null", False), ("7f00 /usr/lib/libcudart.so.12\n", "/dev/shm/x", False),
        ("7f00 /usr/lib/libcuda.so.1\n", "/dev/null", True), ("/usr/lib/libnvidia-ml.so.1", "/dev/null", True),
        ("/opt/rocm/libhsa-runtime64.so", "/dev/null", True), ("/x/tensorflow-plugins/a.so", "/dev/null", True),
        ("", "/dev/nvidia0", True), ("", "/dev/nvidiactl", True), ("", "/dev/kfd", True), ("", "/dev/dri/card0", True),
        ("", "/home/dev/nvidia", False),
    ],
)  # fmt: skip
def test_a_process_with_an_open_device_or_driver_is_not_forked(
    maps: str, opened: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(path: str) -> str:
        if path.endswith("/9"):
            raise FileNotFoundError
        return opened

    monkeypatch.setattr(fork_server, "Path", lambda path: SimpleNamespace(read_text=lambda **_: maps))
    monkeypatch.setattr(os, "listdir", lambda path: ["9", "3"])
    monkeypatch.setattr(os, "readlink", link)
    assert fork_server._has_opened_a_device() is found


def test_of_keras_each_version_says_which_step_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputui.engine.trainer.common import versions

    for first, ended in ((True, 14), (False, 10)):
        monkeypatch.setattr(versions, "_TELLS_FIRST_STEP", first)
        assert versions.ended_step(10, 5) == ended


@pytest.mark.usefixtures("cpus")
def test_the_limits_of_memory_are_those_of_all_devices_or_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tensorflow as tf
    from gputui.engine.trainer.common import versions
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session

    limits = versions.memory_limits()
    names = {f"/job:localhost/replica:0/task:0{device.name}" for device in tf.config.list_logical_devices()}
    assert names <= set(limits)
    assert all(isinstance(each, int) for each in limits.values())
    deleted: list[Any] = []
    delete = pywrap_tfe.TF_DeleteDeviceList
    monkeypatch.setattr(pywrap_tfe, "TF_DeleteDeviceList", lambda devices: deleted.append(delete(devices)))
    versions.memory_limits()
    monkeypatch.delattr(pywrap_tf_session, "TF_DeviceListCount")
    assert versions.memory_limits() == {}
    assert len(deleted) == 2
    monkeypatch.delattr(pywrap_tfe, "TFE_ContextListDevices")
    assert versions.memory_limits() == {}
    assert len(deleted) == 2
