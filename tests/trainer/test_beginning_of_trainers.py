"""What a trainer's process, and that of `gputui prepare`, does before its work: with stand-ins for what it changes."""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.process.spawn import DUMP_STACKS, addressed
from gputui.engine.system import child_process, heartbeat, stop_signals
from gputui.engine.system.run_clock import VARIABLE, RunClock
from gputui.engine.trainer import __main__ as trainer
from gputui.engine.trainer import fork_server, session
from gputui.engine.trainer.common import process_exit
from gputui.engine.trainer.common.process_exit import ProcessExit
from gputui.engine.trainer.common.stopping import StopSwitch
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.prepare import __main__ as preparing
from gputui.engine.trainer.setup import environment

CLOCK = RunClock(1_000_000.0, 50.0)


class Left(Exception):
    """The process has ended."""


class Begins:
    """A trainer's process from its start to its end, in which nothing of this process is changed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, line: str = "") -> None:
        self.calls: list[Any] = []
        self.limits: list[tuple[float, int]] = []
        self.folder = folder
        monkeypatch.setattr(sys, "argv", ["-m", given])
        lifeline, engine = os.pipe()
        os.write(engine, line.encode())
        os.close(engine)
        self.report, self.pipe = os.pipe()
        monkeypatch.setenv("GPUTUI_LIFELINE", str(lifeline))
        monkeypatch.setenv("GPUTUI_REPORT", str(self.pipe))
        monkeypatch.setenv(VARIABLE, CLOCK.as_text())
        monkeypatch.setenv(heartbeat.VARIABLE, "")
        for owner, name, returned in (
            (child_process, "release", None), (trainer, "forgive_full_disk", None), (faulthandler, "register", None),
            (environment, "choose_backend", "jax"), (stop_signals, "set_defaults", None),
            (trainer, "write_to_log", None),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.note(name, returned))
        monkeypatch.setattr(os, "set_inheritable", self.note("inheritable"))
        monkeypatch.setattr(StopSwitch, "listen", self.listen)
        monkeypatch.setattr(session, "train_run", self.train)
        monkeypatch.setattr(ProcessExit, "at_the_end", lambda _, code: self.calls.append(("ends", code)))
        # Else this process ends after that time.
        monkeypatch.setattr(process_exit, "_end_after", lambda seconds, code: self.limits.append((seconds, code)))

    def note(self, name: str, returned: Any = None) -> Callable[..., Any]:
        def noted(*given: Any, **more: Any) -> Any:
            self.calls.append((name, *given, *more.items()) if given or more else name)
            return returned

        return noted

    def listen(self, lifeline: Any) -> None:
        self.calls.append("listens")
        lifeline.close()

    def train(self, report: Any, stop: Any) -> int:
        self.calls.append("trains")
        self.built = report, stop
        return 3

    def began(self) -> list[tuple[Any, ...]]:
        """The events up to the training."""
        trainer.main()
        report, stop = self.built
        assert report.run.path == self.folder
        assert (report.engine_pipe, report.writer.clock.as_text()) == (self.pipe, CLOCK.as_text())
        assert report.when_finished.__self__ is stop.exit.__self__, "both end this process"
        assert (report.when_finished.__name__, stop.exit.__name__) == ("limit", "at_once")
        stop.leave_result("stopped")
        assert self.limits == [(30.0, 0)]
        report.writer.close()
        for descriptor in (self.report, self.pipe):
            os.close(descriptor)
        assert (report.run.result or {})["outcome"] == "stopped"
        lines = map(json.loads, (self.folder / "events.jsonl").read_text().splitlines())
        return [(event["type"], event.get("phase") or event.get("message"), event["t"]) for event in lines][:3]


BACKEND = "KERAS_BACKEND=jax does nothing here: gputui trains with TensorFlow"


def test_a_trainer_says_that_it_starts_before_it_imports_tensorflow_and_hears_a_stop_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Begins(tmp_path, monkeypatch, str(tmp_path))
    first, second, warned = process.began()
    assert first == ("phase", "starting", CLOCK.date), "at the moment of the launch"
    assert (second[:2], warned[:2]) == (("phase", "importing"), ("warning", BACKEND))
    assert process.calls == [
        "release", "forgive_full_disk", ("inheritable", process.pipe, False), ("register", DUMP_STACKS, ("file", 2)),
        "choose_backend", "listens", "trains", ("ends", 3),
    ]  # fmt: skip
    left = {"GPUTUI_LIFELINE", "GPUTUI_REPORT", VARIABLE, heartbeat.VARIABLE} & set(os.environ)
    assert not left, "processes that the user's code starts do not get them"


def test_a_warm_trainer_waits_for_the_address_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Begins(tmp_path, monkeypatch, "--warm", f"{addressed(CLOCK, tmp_path)}\n")
    monkeypatch.setenv(VARIABLE, RunClock(5.0, 6.0).as_text())  # the moment at which the process itself was started
    assert process.began()[0] == ("phase", "starting", CLOCK.date)
    assert process.calls[4:] == [
        "choose_backend", "set_defaults", ("write_to_log", tmp_path), "listens", "trains", ("ends", 3),
    ]  # fmt: skip


def test_a_process_that_is_to_fork_trainers_goes_on_as_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Begins(tmp_path, monkeypatch, "--fork-server")

    def serve() -> None:
        process.calls.append("forked")
        sys.argv[1:] = [str(tmp_path)]

    monkeypatch.setattr(fork_server, "serve", serve)
    process.began()
    assert process.calls[:3] == ["release", "forked", "forgive_full_disk"]


# ---- samples to prepare ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        (None, [{"a": 1}]),
        (TrainerError("data", "no samples", "add some"), [{"a": 1}, {"error": "no samples", "hint": "add some"}]),
        (BrokenPipeError(), [{"a": 1}]),
    ],
)
def test_answers_go_to_the_process_that_asks_and_all_that_is_printed_to_the_log(
    fault: Exception | None, answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    stream, given = io.StringIO(), dict[str, str]()

    def serve(answer: Any) -> None:
        calls.append("serves")
        answer({"a": 1})
        if fault is not None:
            raise fault

    def opened(descriptor: int, mode: str, encoding: str) -> io.StringIO:
        calls.append(("answers to", descriptor, mode, encoding))
        return stream

    def redirected(source: int, target: int) -> None:
        calls.append(("to", source, target))

    process = SimpleNamespace(dup=lambda number: number + 70, dup2=redirected, fdopen=opened, environ=given)
    monkeypatch.setattr(preparing, "os", process)
    monkeypatch.setattr(signal, "signal", lambda number, handler: calls.append((number, handler)))
    monkeypatch.setattr(environment, "choose_backend", lambda: calls.append("TensorFlow"))
    monkeypatch.setattr(preparing, "_serve", serve)
    preparing.main()
    assert calls == [
        (signal.SIGINT, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_IGN), ("answers to", 71, "w", "utf-8"),
        ("to", 2, 1), "TensorFlow", "serves",
    ]  # fmt: skip
    assert list(map(json.loads, stream.getvalue().splitlines())) == answers
    assert given == {"CUDA_VISIBLE_DEVICES": "-1"}, "no GPU is touched"
