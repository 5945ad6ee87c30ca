"""How a process that has imported TensorFlow forks an engine and a trainer for each run: with stand-ins for forks."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.files import places
from gputui.engine.process import spawn
from gputui.engine.process.spawn import FORKED, LOCK
from gputui.engine.system import child_process, descendants, process_memory, stop_signals
from gputui.engine.system.run_clock import VARIABLE, RunClock
from gputui.engine.trainer import fork_server

CLOCK = RunClock(1_000_000.0, 50.0)


class Over(Exception):
    """The process has ended, or has become another program."""


class Process:
    """The process, and what it does, in order. `forks` are the answers of its next forks: 0 in the child."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *forks: int) -> None:
        self.calls: list[Any] = []
        self.requests, self.theirs = socket.socketpair()
        self.forks = list(forks)
        self.patch = monkeypatch.setattr
        self.patch(os, "dup", lambda number: self.theirs.detach() if number == 0 else pytest.fail("another one"))
        self.patch(os, "_exit", self.over("exit"))
        self.patch(signal, "signal", self.note("handler"))
        for name in ("hold", "let_through", "set_defaults"):
            self.patch(stop_signals, name, self.note(name))
        self.patch(process_memory, "populate", self.note("pages"))
        self.patch(fork_server, "_fork", self._fork)
        self.patch(fork_server, "_prepared", self.note("prepared", "the pages"))
        self.patch(fork_server, "_seed_numpy", self.note("seeded"))

    def _fork(self) -> int:
        self.calls.append("fork")
        return self.forks.pop(0)

    def note(self, name: str, returned: Any = None) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            self.calls.append((name, *given) if given else name)
            return returned

        return noted

    def over(self, name: str) -> Callable[..., Any]:
        def ended(*given: Any) -> None:
            self.calls.append((name, *given))
            raise Over

        return ended

    def send(self, folder: str) -> int:
        """Ask for a run. Returns the end of a pipe that is at its end when nobody holds the other one any longer."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        socket.send_fds(self.requests, [spawn.addressed(CLOCK, folder).encode()], [writer, writer])
        os.close(writer)
        return reader

    def close(self) -> None:
        self.requests.close()
        self.theirs.close()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    made = Process(monkeypatch)
    yield made
    monkeypatch.undo()
    made.close()


DEFAULTS = "set_defaults"
NO_CHILDREN = ("handler", signal.SIGCHLD, signal.SIG_IGN)


def test_each_run_is_forked_and_the_server_keeps_nothing_of_it(process: Process) -> None:
    process.forks += [101, 0]
    parted: list[Any] = []
    process.patch(fork_server, "_part", lambda *given: parted.append(given))
    process.patch(sys, "argv", ["-m", "/first/folder", "--fork-server"])
    first, second = process.send("/runs/a"), process.send("/runs/b c")
    fork_server.serve()
    assert process.calls == [
        DEFAULTS, ("prepared", ["/first/folder", "--fork-server"]), NO_CHILDREN,
        "hold", "fork", "let_through", "hold", "fork", ("pages", "the pages"), "seeded",
    ]  # fmt: skip
    assert os.read(first, 1) == b"", "the descriptors of the run are closed"
    with pytest.raises(BlockingIOError):
        os.read(second, 1)
    ((environment, words, clock, folder, lock, line),) = parted
    assert (environment, words) == (dict(os.environ), ["/first/folder", "--fork-server"])
    assert (clock.as_text(), folder) == (CLOCK.as_text(), "/runs/b c")
    for descriptor in (lock, line, first, second):
        os.close(descriptor)
    assert environment is not os.environ


def test_the_server_ends_with_its_launcher_or_if_it_must_not_be_forked(process: Process) -> None:
    process.requests.close()
    with pytest.raises(Over):
        fork_server.serve()
    assert process.calls == [DEFAULTS, ("prepared", sys.argv[-2:]), NO_CHILDREN, ("exit", 0)]
    process.calls.clear()

    def refuse(words: list[str]) -> Any:
        raise OSError("a plugin may open its device")

    process.patch(fork_server, "_prepared", refuse)
    with pytest.raises(Over):
        fork_server.serve()
    assert process.calls == [DEFAULTS, ("exit", 1)]


@pytest.mark.parametrize(
    ("parting", "populating", "ends"),
    [
        (ValueError("no way"), None, "ValueError: no way"), (None, ValueError("odd"), "ValueError: odd"),
        (None, OSError("no memory"), ""),
    ],
)  # fmt: skip
def test_a_forked_process_that_fails_says_why_and_ends(
    parting: Exception | None, populating: Exception | None, ends: str, process: Process,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    held: list[int] = []

    def part(*given: Any) -> None:
        held.extend(given[-2:])
        if parting is not None:
            raise parting

    def populate(_: Any) -> None:
        if populating is not None:
            raise populating

    process.forks.append(0)
    process.patch(fork_server, "_part", part)
    process.patch(process_memory, "populate", populate)
    held.append(process.send("/runs/a"))
    if ends:
        with pytest.raises(Over):
            fork_server.serve()
        assert process.calls[-1] == ("exit", 1)
        assert capsys.readouterr().err.endswith(f"{ends}\n")
    else:
        fork_server.serve()
        assert process.calls[-1] == "seeded", "pages are read when they are needed"
        assert capsys.readouterr().err == ""
    for descriptor in held:
        os.close(descriptor)


class Parting(Process):
    """A forked process that parts into the trainer of a run and its engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trainer: int) -> None:
        super().__init__(monkeypatch, trainer)
        self.close()
        self.environment: dict[str, str] = {"HOME": "/root", "TF2_BEHAVIOR": "1"}  # an import has set one
        self.patch(os, "environ", self.environment)
        self.patch(os, "setsid", self.note("session"))
        self.patch(os, "close", self.note("close"))
        self.patch(os, "dup2", lambda number, onto: self.calls.append(("dup2", onto)))
        self.patch(os, "set_inheritable", self.note("inheritable"))
        self.patch(os, "execve", self.over("execve"))
        self.patch(sys, "argv", ["-m", "/first", "--fork-server"])
        self.patch(fork_server, "replace_last", self.note("shown"))
        self.patch(fork_server, "_announce", self.note("announced"))
        self.patch(fork_server, "write_to_log", self.note("log"))
        self.patch(fork_server, "put_result_aside", self.note("aside"))
        channels = SimpleNamespace(
            lifeline=5, report=6, memory=None, environment=lambda clock: {"GPUTUI_LIFELINE": clock.as_text()}
        )
        self.patch(fork_server, "Channels", lambda: channels)
        self.patch(places, "make_scratch", self._make_scratch)
        self.patch(places, "remove_scratch", self.note("no scratch"))
        self.patch(descendants, "adopt_orphans", self.note("adopts"))
        self.patch(child_process, "own_python", lambda: "/python")

    def _make_scratch(self) -> None:
        self.calls.append("scratch")
        self.environment[places.SCRATCH_VARIABLE] = "/scratch"

    def part(self) -> None:
        words = ["/first", "--fork-server"]
        fork_server._part({"HOME": "/root"}, words, CLOCK, "/runs/a", 8, 9)


BEFORE: list[Any] = [
    ("handler", signal.SIGCHLD, signal.SIG_DFL), ("handler", signal.SIGHUP, signal.SIG_IGN), "session",
    ("shown", ["/first", "--fork-server"], "/runs/a"), ("announced", 9), ("dup2", 0), ("log", Path("/runs/a")),
    ("inheritable", 8, True), ("aside", Path("/runs/a")), "scratch",
]  # fmt: skip
ENGINE = ["/python", "-P", "-m", "gputui.engine", "/runs/a"]


def test_the_trainer_closes_what_is_the_engines_and_goes_on_as_one_that_was_started_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Parting(monkeypatch, 0)
    process.part()
    assert process.calls == [*BEFORE, "adopts", "fork", ("close", 5), ("close", 6), ("close", 8)]
    assert sys.argv == ["-m", "/runs/a"]
    assert process.environment == {
        "HOME": "/root", "TF2_BEHAVIOR": "1", places.SCRATCH_VARIABLE: "/scratch", "GPUTUI_LIFELINE": CLOCK.as_text(),
    }  # fmt: skip


def test_the_engine_gets_its_trainer_the_lock_and_the_launch_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Parting(monkeypatch, 77)
    with pytest.raises(Over):
        process.part()
    known = {"HOME": "/root", LOCK: "8", VARIABLE: CLOCK.as_text()}
    given = known | {FORKED: "77 5 6", places.SCRATCH_VARIABLE: "/scratch"}
    handed = [("inheritable", 5, True), ("inheritable", 6, True)]
    assert process.calls == [*BEFORE, "adopts", "fork", *handed, ("execve", "/python", ENGINE, given)]


def test_an_engine_without_a_trainer_starts_one_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Parting(monkeypatch, 77)

    def no_process() -> int:
        raise BlockingIOError("no further process")

    process.patch(fork_server, "_fork", no_process)
    with pytest.raises(Over):
        process.part()
    known = {"HOME": "/root", LOCK: "8", VARIABLE: CLOCK.as_text()}
    assert process.calls == [*BEFORE, "adopts", "no scratch", ("execve", "/python", ENGINE, known)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_launcher_hears_which_process_the_engine_is_and_one_that_is_gone_ends_it(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    launcher, line = socket.socketpair()
    if waits:
        launcher.sendall(b"1")
    else:
        launcher.shutdown(socket.SHUT_WR)
    fork_server._announce(line.detach())
    assert launcher.recv(99) == str(os.getpid()).encode()
    assert launcher.recv(99) == b"", "the line is closed"
    assert left == ([] if waits else [0])
    launcher.close()
