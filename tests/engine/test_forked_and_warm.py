"""Processes that start a run sooner: one that forks trainers, and one that waits for a run; played by the test."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import places
from gputui.engine.interpreter import interpreter
from gputui.engine.leases import lease, start_devices
from gputui.engine.process import launch, spawn
from gputui.engine.process.fork_client import ForkServer
from gputui.engine.process.launch import Warm
from gputui.engine.process.spawn import FORK_SERVER, Trainer
from gputui.engine.runs import Run
from gputui.engine.system import child_process, locks
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.locks import ENGINE_LOCK, Lock
from gputui.engine.system.run_clock import RunClock

PRESET = presets.defaults(["visible=none"])


@dataclass
class Peer:
    """The other end of a line to a process: a thread that answers each message that has descriptors."""

    line: socket.socket
    answer: Callable[[str], bytes | None]  # None: it ends
    messages: list[str] = field(default_factory=list)
    confirmed: list[bytes] = field(default_factory=list)
    held: list[bool | None] = field(default_factory=list)
    killed: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        with self.line:
            while True:
                text, descriptors, _, _ = socket.recv_fds(self.line, 65536, 8)
                if not text:
                    return
                self.messages.append(os.fsdecode(text))
                lock, back, *_ = descriptors
                folder = Path(self.messages[-1].split(" ", 2)[2])
                self.held.append(locks.held(folder / ENGINE_LOCK))
                os.close(lock)
                with socket.socket(fileno=back) as theirs, contextlib.suppress(OSError):  # it waits no more
                    if (answer := self.answer(self.messages[-1])) is None:
                        return
                    theirs.sendall(answer)
                    self.confirmed.append(theirs.recv(1))

    # what the client asks of a process
    def poll(self) -> int | None:
        return None if self.thread.is_alive() else 1

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        return 0


class Forking:
    """Stands for the start of processes; `peers` has those that fork, `commands` how each was started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peers: list[Peer] = []
        self.commands: list[tuple[list[str], dict[str, Any]]] = []
        self.spawned: list[Run] = []
        self.answer: Callable[[str], bytes | None] = lambda _text: str(os.getpid()).encode()
        monkeypatch.delenv("GPUTUI_WARM", raising=False)
        monkeypatch.setattr(child_process, "start", self.start)
        monkeypatch.setattr(launch, "spawn", self.spawn)

    def start(self, command: list[str], **how: Any) -> Any:
        self.commands.append((command, how))
        line = socket.socket(fileno=os.dup(how.pop("stdin")))
        self.peers.append(Peer(line, lambda text: self.answer(text)))
        return self.peers[-1]

    def spawn(self, run: Run, _lock: Lock, _clock: RunClock) -> Any:
        self.spawned.append(run)
        return SimpleNamespace(poll=lambda: 1 if len(self.spawned) == 2 else None)


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> Forking:
    return Forking(monkeypatch)


@pytest.fixture
def served(forking: Forking, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a run in a new folder, by the server of the test."""
    servers: list[ForkServer] = []
    count = [0]

    def start(*settings: str, in_a_hurry: Callable[[], bool] = lambda: False) -> tuple[Run, Callable[[], bool]]:
        if not servers:
            servers.append(ForkServer(tmp_path, in_a_hurry))
        count[0] += 1
        return servers[0].start(presets.defaults(["visible=none", *settings]), tmp_path / f"run{count[0]}", tmp_path)

    yield start
    for server in servers:
        server.close()
    assert all(peer.killed for peer in forking.peers)


def test_a_forked_engine_is_asked_for_by_lock_and_address_and_confirmed(
    forking: Forking, served: Any, tmp_path: Path
) -> None:
    for number in (1, 2):
        run, is_alive = served()
        assert is_alive()
        (peer,) = forking.peers
        assert (run, len(peer.messages)) == (Run(tmp_path / f"run{number}"), number)
        clock, folder = spawn.read_address(peer.messages[-1])
        assert (folder, clock.date > 0) == (str(run.path), True)
        while len(peer.confirmed) < number:
            peer.thread.join(0.001)
        assert peer.confirmed[-1] == b"\n"
        assert peer.held[-1] is True, "it has the lock from the caller"
    ((command, how),) = forking.commands
    assert command == interpreter.command(sys.executable, "gputui.engine.trainer", str(tmp_path), FORK_SERVER)
    assert how == {
        "env": interpreter.environment(sys.executable), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL
    }  # fmt: skip
    assert forking.spawned == []


def test_there_is_one_server_for_each_interpreter_and_one_that_has_died_is_started_again(
    forking: Forking, served: Any
) -> None:
    served()
    served("run.python=/envs/a/bin/python")
    served()
    assert [command[0] for command, _ in forking.commands] == [sys.executable, "/envs/a/bin/python"]
    assert [len(peer.messages) for peer in forking.peers] == [2, 1]
    forking.answer = lambda _text: None
    served()
    assert (len(forking.spawned), len(forking.peers)) == (1, 2), "that run starts as usual"
    forking.answer = lambda _text: str(os.getpid()).encode()
    served()
    assert (len(forking.spawned), len(forking.peers)) == (1, 3), "as it has forked before"
    assert forking.peers[0].killed


def test_a_server_that_has_never_forked_is_not_tried_again(forking: Forking, served: Any) -> None:
    forking.answer = lambda _text: None
    _, first = served()
    _, second = served()
    assert [run.path.name for run in forking.spawned] == ["run1", "run2"]
    assert (len(forking.peers), forking.peers[0].killed, first(), second()) == (1, True, False, False)


def test_who_is_in_a_hurry_or_wants_no_waiting_process_gets_a_trainer_as_usual(
    forking: Forking, served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started_as_usual = threading.Event()

    def imports_tensorflow(_text: str) -> None:
        started_as_usual.wait(60)

    forking.answer = imports_tensorflow
    _, is_alive = served(in_a_hurry=lambda: True)
    started_as_usual.set()
    assert (len(forking.spawned), is_alive()) == (1, True)
    monkeypatch.setenv("GPUTUI_WARM", "0")
    other = ForkServer(tmp_path)
    other.start(PRESET, tmp_path / "other", tmp_path)
    other.close()
    assert (len(forking.spawned), len(forking.commands)) == (2, 1)


# ---- an engine that waits ------------------------------------------------------------------------


class Waiting:
    """Stands for an engine that waits with a trainer: it takes what it is sent, and accepts it or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, accepts: bool) -> None:
        self.did: list[str] = []
        self.how: dict[str, Any] = {}
        self.taken: tuple[str, str, list[str]] | None = None
        self.pid = os.getpid()
        monkeypatch.setattr(launch.subprocess, "Popen", self.started)  # type: ignore[attr-defined]
        monkeypatch.setattr(launch, "spawn", self.spawn)
        self._accepts = accepts

    def started(self, command: list[str], **how: Any) -> Any:
        self.did.append(" ".join(command[1:]))
        line = socket.socket(fileno=os.dup(how.pop("stdin")))
        self.how = how
        self.thread = threading.Thread(target=self._take, args=(line,), daemon=True)
        self.thread.start()
        return self

    def _take(self, line: socket.socket) -> None:
        with line:
            text, descriptors, _, _ = socket.recv_fds(line, 65536, 8)
            address, _, names = os.fsdecode(text).rpartition("\n")
            files = [os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")) for descriptor in descriptors]
            self.taken = address, names, files
            if self._accepts and text:
                line.sendall(b"\n")
            for descriptor in descriptors:
                os.close(descriptor)

    def spawn(self, run: Run, lock: Lock, _clock: RunClock, devices: Any) -> Any:
        self.did.append("starts another")
        assert locks.held(run.file(ENGINE_LOCK))
        assert lock.works
        devices.release()
        return "another"

    def kill(self) -> None:
        self.did.append("is killed")

    def wait(self) -> None:
        self.did.append("has ended")


def started(warm: Warm) -> tuple[Run, Any]:
    return warm.start(PRESET)


@pytest.mark.parametrize("accepts", [True, False])
def test_a_waiting_engine_gets_the_run_with_its_lock_and_its_leases(
    home: Path, monkeypatch: pytest.MonkeyPatch, accepts: bool
) -> None:
    waiting = Waiting(monkeypatch, accepts)
    handed: list[tuple[int, str]] = []
    leases = lease.take(["GPU-1", "GPU-2"], "mine")
    chosen = presets.defaults(["visible=none", "epochs=7"]).options

    class Devices:
        options = chosen

        def __init__(self) -> None:
            self.leases = leases

        def hand_over(self, pid: int, run: str) -> None:
            handed.append((pid, run))
            self.release()

        def release(self) -> None:
            for each in leases:
                each.release()

    monkeypatch.setattr(start_devices, "lease_devices", lambda *_, **__: Devices())
    warm = Warm()
    run, process = started(warm)
    waiting.thread.join(60)
    command = f"-P -m gputui.engine --warm {sys.executable}"
    assert waiting.how == {
        "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True
    }  # fmt: skip
    assert waiting.taken is not None
    address, names, files = waiting.taken
    assert (spawn.read_address(address)[1], names) == (str(run.path), "GPU-1,GPU-2")
    assert files == ["engine.lock", "GPU-1.lock", "GPU-2.lock"]
    if accepts:
        assert (process, waiting.did, handed) == (waiting, [command], [(os.getpid(), str(run.path))])
        again, second = started(warm)
        assert (second, waiting.did[1:]) == ("another", ["starts another"]), "it waits no more"
        assert again != run
        warm.start(presets.defaults(["visible=none", "run.python=/envs/a/bin/python"]))
        assert waiting.did[1:] == ["starts another"] * 2, "the engine that has the first run is left alone"
    else:
        assert (process, waiting.did, handed) == ("another", [command, "is killed", "has ended", "starts another"], [])
    assert presets.resolve(str(run.file("preset.yaml"))).options.train.epochs == PRESET.options.train.epochs
    assert '"epochs": 7' in run.file("options.json").read_text(), "as its devices were chosen"


def test_a_waiting_trainer_in_another_interpreter_is_of_no_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, accepts=True)
    warm = Warm("/envs/a/bin/python")
    assert started(warm)[1] == "another"
    assert waiting.did == [
        "-P -m gputui.engine --warm /envs/a/bin/python", "is killed", "has ended", "starts another"
    ]  # fmt: skip
    waiting.thread.join(60)
    assert waiting.taken == ("", "", [])


def test_an_engine_that_cannot_be_started_in_the_place_of_a_waiting_one_leaves_no_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Waiting(monkeypatch, accepts=False)

    def fails(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(launch, "spawn", fails)
    with pytest.raises(OSError, match="temporarily unavailable"):
        Warm().start(PRESET)
    assert runs.all_runs() == []
    assert lease.holders() == {}


def test_a_run_is_taken_from_standard_input_with_its_lock_and_its_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of standard input is taken by the line, and afterwards by nothing."""
    clock, kept = RunClock(5.0, 7.0), os.dup(0)
    try:
        for given, sent in ((f"{spawn.addressed(clock, '/a b/r')}\nGPU-1,CPU", 3), (f"{clock.as_text()} /r\n", 1)):
            mine, theirs = socket.socketpair()
            with mine, theirs:
                held = [locks.take(tmp_path / f"{number}.lock") for number in range(sent)]
                os.dup2(theirs.fileno(), 0)
                socket.send_fds(mine, [os.fsencode(given)], [lock.fd for lock in held])
                for each in held:
                    each.release()
                address, lock, leased = spawn.take_run()
                assert lock is not None
                assert mine.recv(1) == b"\n"
            assert os.path.samefile("/proc/self/fd/0", os.devnull)
            assert (address, spawn.read_address(address)[0]) == (given.rpartition("\n")[0], clock)
            assert (os.path.basename(os.readlink(f"/proc/self/fd/{lock.fd}")), locks.held(tmp_path / "0.lock")) == (
                "0.lock", True
            )  # fmt: skip
            lock.release()
            pairs = [each.split(" ") for each in leased.split(",") if each]
            assert [name for _, name in pairs] == given.rpartition("\n")[2].split(",")[: sent - 1]
            assert [os.readlink(f"/proc/self/fd/{number}") for number, _ in pairs] == [
                str(tmp_path / f"{number}.lock") for number in range(1, sent)
            ]
            for number, _ in pairs:
                os.close(int(number))
        for sent_alone in (b"", b"5.0 7.0 /r\n"):
            mine, theirs = socket.socketpair()
            with mine, theirs:
                os.dup2(theirs.fileno(), 0)
                mine.sendall(sent_alone)
                mine.shutdown(socket.SHUT_WR)
                assert spawn.take_run() == ("", None, ""), "nobody wants it any more, or gives it a lock"
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.mark.parametrize("how", ["waits", "has ended", "ends now"])
def test_a_waiting_trainer_is_woken_or_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    (reader, lifeline), (report, writer) = os.pipe(), os.pipe()
    did: list[str] = []
    clock = RunClock(5.0, 7.0)
    process: Any = SimpleNamespace(poll=lambda: 1 if how == "has ended" else None)
    trainer = Trainer(process, lifeline, report, TrainerHeartbeat())
    if how == "ends now":
        os.close(reader)
    monkeypatch.setattr(places, "remove_scratch", lambda: did.append("removes"))
    monkeypatch.setattr(places, "make_scratch", lambda: did.append("makes"))

    def start(folder: str, given: RunClock) -> Any:
        did.append(f"starts {folder}")
        assert given == clock
        return "another"

    monkeypatch.setattr(spawn, "start_trainer", start)
    woken: Any = spawn.wake(trainer, clock, "/a b/r")
    if how == "waits":
        assert (woken, did, os.read(reader, 99)) == (trainer, [], b"5.0 7.0 /a b/r\n")
        assert capsys.readouterr().err == ""
        left = [reader, lifeline, report, writer]
    else:
        assert (woken, did) == ("another", ["removes", "makes", "starts /a b/r"])
        assert capsys.readouterr().err == "gputui: the waiting trainer has ended; a new one is started\n"
        for descriptor in (lifeline, report):
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        left = [writer] if how == "ends now" else [reader, writer]
    for descriptor in left:
        os.close(descriptor)
