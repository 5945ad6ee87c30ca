"""How a training ends: each exception and each request to stop as the result that a run has in the end."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.options import options_json
from gputui.engine.process import ending, known_failures
from gputui.engine.runs import Run, events, run_cluster
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer import session
from gputui.engine.trainer.common import stopping
from gputui.engine.trainer.common.stopping import StopRequested, StopSwitch
from gputui.engine.trainer.common.training_errors import DataError, TrainerError
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.setup import environment
from gputui.engine.trainer.setup.environment import Prepared

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


FULL = OSError(errno.ENOSPC, "No space left on device", "/data/log")
MANY_LINES = """Graph execution error:

Detected at node model/dense/MatMul defined at (most recent call last):
  File "/x/train.py", line 3, in <module>

2 root error(s) found.
(0) INVALID_ARGUMENT:  Matrix size-incompatible: In[0]: [8,3] {{node model/dense/MatMul}}
     [[{{node model/dense/MatMul}}]]
"""


@pytest.mark.parametrize(
    ("fault", "phase", "told"),
    [
        (TrainerError("model", "too wide", "less"), "building", error("model", "too wide", "less")),
        (DataError("no samples"), "building", error("data", "no samples", "")),
        (ValueError("a\nb"), "training", error("ValueError", "ValueError: a")),
        (ValueError(""), "training", error("ValueError", "ValueError: no message")),
        (ValueError("x" * 240), "training", error("ValueError", "ValueError: " + "x" * 240)),
        (ValueError("x" * 241), "training", error("ValueError", "ValueError: " + "x" * 240 + "...")),
        (ImportError("no libx"), "training", error("ImportError", "ImportError: no libx")),
        (ImportError("no libx"), "importing",
         error("ImportError", f"TensorFlow cannot be imported in {sys.executable}: ImportError: no libx",
               f"{sys.executable} -c 'import tensorflow' shows the whole error; install TensorFlow there again")),
        (tf.errors.InvalidArgumentError(None, None, MANY_LINES), "training",
         error("InvalidArgumentError", "InvalidArgumentError: Matrix size-incompatible: In[0]: [8,3]")),
        (SystemExit(3), "training", error("SystemExit", "SystemExit: 3")),
    ],
)  # fmt: skip
def test_an_exception_is_told_by_its_kind_and_the_line_that_matters(
    fault: BaseException, phase: str, told: Any, ended: Callable[..., Any]
) -> None:
    assert ended(fault, phase=phase) == (1, ("error", told))


def test_a_disk_that_is_full_is_named_with_its_place(ended: Callable[..., Any]) -> None:
    code, (outcome, told) = ended(FULL)
    assert (code, outcome, told["kind"]) == (1, "error", "disk")
    assert told["message"].endswith(": the training could not go on")
    assert "/data" in told["message"]
    assert told["hint"].endswith(f"; {TRACEBACK}")


def test_memory_that_is_exhausted_is_recognised_also_behind_an_error_of_the_users_code(
    ended: Callable[..., Any],
) -> None:
    exhausted = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9] on GPU:0")
    code, (outcome, told) = ended(exhausted, "batch_size=512")
    assert (code, outcome) == (1, "oom")
    assert "batch size 512" in told["message"]
    theirs = TrainerError("user_code", "train.py:3: OOM")
    theirs.__cause__ = exhausted
    assert ended(theirs, "batch_size=512")[1][0] == "oom"
    theirs.__cause__ = ValueError("OOM when allocating tensor")
    assert ended(theirs)[1] == ("error", error("user_code", "train.py:3: OOM", ""))


def test_a_run_is_proposed_to_be_resumed_only_if_it_has_a_checkpoint(
    ended: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ending.Ending("oom", "memory", "no memory", f"take less; {known_failures.RESUME}")
    monkeypatch.setattr(ending, "named_by", lambda *_: found)
    assert ended(ValueError("x"))[1][1]["hint"] == f"take less; {ending.NOTHING_SAVED}"
    monkeypatch.setattr(run_cluster, "is_saved", lambda run: run.path == tmp_path)
    assert ended(ValueError("x")) == (1, ("oom", error("memory", "no memory", found.hint)))


def test_a_signal_that_the_users_code_takes_is_a_stop_if_one_was_asked_for(
    ended: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = TrainerError("user_code", "train.py ended the process")
    wrapped.__cause__ = SystemExit(0)
    for fault in (KeyboardInterrupt(), SystemExit(0), wrapped):
        assert ended(fault, stop="stopped") == (0, ("stopped", None))
        assert ended(fault, stop="timeout")[1][0] == "timeout"
        assert ended(fault)[1][0] == "error"
    assert ended(ValueError("x"), stop="stopped")[1][0] == "error"

    def hear(switch: StopSwitch) -> bool:
        switch.reason = "stopped"
        return True

    monkeypatch.setattr(StopSwitch, "requested", hear)
    assert ended(KeyboardInterrupt()) == (0, ("stopped", None)), "the thread of signals was a moment later"


# ---- a stop ------------------------------------------------------------------------------------


class Timers:
    """Stands for threading.Timer; none of them ever rings by itself."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, function: Callable[[], None]) -> Any:
        self.set.append((seconds, function))
        return SimpleNamespace(start=lambda: None)


def test_before_the_first_step_a_stop_ends_the_process_at_once_and_later_within_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers()
    monkeypatch.setattr(threading, "Timer", timers)
    switch, told = StopSwitch(), list[Any]()
    switch.leave_result, switch.exit = told.append, told.append
    switch.request("stopped")
    assert told == ["stopped", 143]
    told.clear()
    switch = StopSwitch()
    switch.leave_result, switch.exit, switch.at_once = told.append, told.append, False
    switch.check()
    switch.request("stopped")
    assert (told, timers.set, switch.requested()) == ([], [], True)
    switch.request("engine", deadline=True)
    assert [seconds for seconds, _ in timers.set] == [30.0]
    timers.set[0][1]()
    assert told == ["stopped", 143], "with the first reason"
    with pytest.raises(StopRequested) as raised:
        switch.check()
    assert (raised.value.reason, raised.value.engine_of) == ("stopped", "")


def test_a_wait_for_a_stop_ends_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "HEARING_SECONDS", 0.01)
    assert not StopSwitch().requested()


@pytest.mark.parametrize(
    ("several", "together", "at_once", "reason", "leaves"),
    [
        (False, 1, False, "stopped", True),
        (True, 1, False, "stopped", False),
        (False, 2, False, "stopped", False),
        (False, 1, True, "stopped", False),
        (False, 1, False, "timeout", False),
        (False, 1, False, "", False),
    ],
)
def test_a_step_that_fails_after_a_request_to_stop_ends_the_training_with_its_last_step(
    several: bool, together: int, at_once: bool, reason: str, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "HEARING_SECONDS", 0.01)
    switch, told = StopSwitch(), list[Any]()
    switch.at_once = False
    if reason:
        switch.request(reason)
    switch.at_once = at_once
    built = SimpleNamespace(joined=object() if several else None, options=options(f"steps_per_execution={together}"))
    training = SimpleNamespace(loop=SimpleNamespace(built=built, leave=lambda: told.append("left")))
    report: Any = SimpleNamespace(warn=lambda *words: told.append(words))
    assert session._has_left(training, report, switch, ValueError("a worker died\nmore")) is leaves
    assert told == ([
        "left",
        (
            "stopped",
            "the training failed after it was asked to stop, and ends with its last step: ValueError: a worker died",
            "a process that loads data may have got the same signal; see engine.log",
        ),
    ] if leaves else [])  # fmt: skip


@pytest.mark.parametrize(("before", "is_told"), [(2, False), (1, True)])
def test_a_run_that_goes_on_with_another_number_of_replicas_says_so(before: int, is_told: bool) -> None:
    told: list[Any] = []
    pipeline = SimpleNamespace(replicas=2, global_batch_size=64)
    training = SimpleNamespace(loop=SimpleNamespace(built=SimpleNamespace(pipeline=pipeline), steps_per_epoch=10))
    earlier: Any = SimpleNamespace(replicas=before, global_batch_size=32, steps_per_epoch=20)
    report: Any = SimpleNamespace(warn=lambda *words: told.append(words))
    session._warn_of_other_replicas(earlier, training, report)
    assert told == ([(
        "other_replicas",
        "the run goes on with 2 replicas, and had 1: a step has 64 samples instead of 32, and an epoch 10 steps "
        "instead of 20",
        "the steps that are done count as they are; a batch of another size often needs another learning rate",
    )] if is_told else [])  # fmt: skip
