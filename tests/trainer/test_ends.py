"""How a training and its process end: outcomes, their reasons, threads, and what must not be forked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import EventWriter, Run, events, options_json
from tests.doors.trainer import (
    ENGINE_GONE,
    ENGINE_LOST,
    DataError,
    Prepared,
    ProcessExit,
    RunReport,
    StopRequested,
    StopSwitch,
    environment,
    fork_server,
    session,
    stopping,
)
from tests.doors.trainer import __main__ as trainer
from tests.support.training import options

TRACEBACK = "the full traceback is in engine.log"


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Train, which raises an exception in a phase; the exit status of the process, and the result of the run."""
    monkeypatch.setattr(stopping, "HEARING_SECONDS", 0.01)
    monkeypatch.setattr(environment, "prepare", lambda _: Prepared())

    def end(fault: BaseException, *settings: str, phase: events.PhaseName = "training", stop: str = "") -> Any:
        run = Run(tmp_path)
        run.file(options_json.FILE).write_text(options_json.to_json(options(*settings)))
        report, switch = RunReport(run, EventWriter(run.file("events.jsonl"), run.id)), StopSwitch()
        if stop:
            switch.at_once = False
            switch.request(stop)

        def train(*_: Any) -> None:
            report.phase(phase)
            raise fault

        monkeypatch.setattr(session, "_train", train)
        code = session.train_run(report, switch)
        report.writer.close()
        result = run.result or {}
        assert result["trainer_returncode"] == code
        return code, (result["outcome"], result["error"])

    return end


def error(kind: str, message: str, hint: str = TRACEBACK) -> dict[str, str]:
    return {"kind": kind, "message": message, "hint": hint}


@pytest.mark.parametrize(
    ("request_", "settings", "outcome", "told"),
    [
        (StopRequested("stopped"), (), "stopped", None),
        (StopRequested("timeout"), ("max_minutes=3",), "timeout",
         error("timeout", "ended after run.max_minutes=3", "raise it")),
        (StopRequested("timeout"), ("max_minutes=auto",), "timeout",
         error("timeout", "ended before the time limit of the job was reached (run.max_minutes=auto)",
               "with run.checkpoint on, gputui resume continues it")),
        (StopRequested("engine"), (), "crashed",
         error("engine", "the engine of this run was killed or has failed, so that the training has ended by itself",
               "engine.log and dmesg may show why")),
        (StopRequested("engine", "worker 2 (c:3)"), (), "error",
         error("peer", "the engine of worker 2 (c:3) was killed or has failed, so that all workers have ended",
               "start all workers again with the same command and --resume-if-any: they go on from the last "
               "checkpoint; the log of that worker may say why it ended")),
    ],
)  # fmt: skip
def test_a_request_to_stop_is_no_failure(
    request_: StopRequested, settings: tuple[str, ...], outcome: str, told: Any, ended: Callable[..., Any]
) -> None:
    assert ended(request_, *settings) == (0, (outcome, told))


def test_an_exception_is_a_failure_with_what_is_said_of_it(ended: Callable[..., Any]) -> None:
    told = error("data", "no samples", "")
    assert ended(DataError("no samples"), phase="building") == (1, ("error", told))


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
            monkeypatch.setattr(stopping, name, stand_in)
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


def test_a_process_that_is_stopped_ends_in_seconds_and_waits_for_no_thread(ending: Ending) -> None:
    assert ending.left(lambda: ending.leaving.at_once(143)) == [
        ("limit", 3.0, 143, True), ("python", 8.0, True), "atexit", 143,
    ]  # fmt: skip


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


@pytest.mark.parametrize("fault", [None, OSError(12, "Cannot allocate memory")])
def test_a_forked_trainer_reads_its_memory_at_once_unless_memory_is_short(
    fault: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def populate(pages: str) -> None:
        read.append(pages)
        if fault is not None:
            raise fault

    monkeypatch.setattr(fork_server, "stop_signals", SimpleNamespace(set_defaults=lambda: None))
    monkeypatch.setattr(fork_server, "process_memory", SimpleNamespace(populate=populate))
    stand_ins = {
        "_prepared": "pages",
        "_next_run": (b"run", ()),
        "read_address": (),
        "_part": None,
        "_seed_numpy": None,
    }
    for name, answer in stand_ins.items():
        monkeypatch.setattr(fork_server, name, lambda *_, answer=answer: answer)
    fork_server.serve()
    assert read == ["pages"]


# ---- a request to end --------------------------------------------------------------------------


def test_a_run_that_ends_before_it_trains_has_a_result_unless_the_engine_writes_it() -> None:
    told: list[Any] = []
    report = SimpleNamespace(finish=lambda *given: told.append(given))
    for reason in (ENGINE_GONE, "stopped", "timeout"):
        trainer._leave_result(report, reason)
    assert told == [("crashed", 0, ENGINE_LOST), ("stopped", 0)]


# ---- a process that is forked ------------------------------------------------------------------


def test_of_keras_each_version_says_which_step_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.doors.trainer import versions

    for first, ended in ((True, 14), (False, 10)):
        monkeypatch.setattr(versions, "_TELLS_FIRST_STEP", first)
        assert versions.ended_step(10, 5) == ended
