"""The connections between workers, the process that watches them, and how TensorFlow joins the workers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.options import OPTIONS
from gputui.engine.runs import Run
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.trainer.cluster import connection_watch, connections, tensorflow_cluster
from gputui.engine.trainer.cluster.connections import Connections
from gputui.engine.trainer.cluster.tensorflow_cluster import Joined
from gputui.engine.trainer.common.training_errors import TrainerError

from tests.support.training import options
from tests.trainer.test_workers import Met

CLUSTER = Cluster(("a:1", "b:2"), 1, "a test")


class Lines:
    """Connections over the loopback: of each, the end of this worker and that of the other."""

    def __init__(self) -> None:
        self.opened: list[socket.socket] = []

    def pair(self) -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        self.opened += [ours, theirs]
        return ours, theirs


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines()
    yield made
    for each in made.opened:
        each.close()


def reset(line: socket.socket) -> None:
    """End the connection as a machine that has lost its memory of it does."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def test_a_worker_is_lost_if_it_was_connected_both_ways_and_one_of_them_has_ended(lines: Lines) -> None:
    held = Connections()
    ends: dict[tuple[str, int], socket.socket] = {}
    for way, group, index in (("to", held.called, 0), ("from", held.answered, 0), ("to", held.called, 2),
                              ("from", held.answered, 3), ("from", held.answered, 2)):  # fmt: skip
        ours, ends[way, index] = lines.pair()
        connections.keep(group, index, ours)
    assert [held.both_ways(index) for index in range(4)] == [True, False, True, False]
    assert held.drop_ended() == set()
    reset(ends["from", 3])
    assert held.drop_ended() == set(), "it was not there yet"
    assert (set(held.called), set(held.answered)) == ({0, 2}, {0, 2})
    ends["to", 2].close()
    assert held.drop_ended() == {2}
    assert (set(held.called), set(held.answered)) == ({0}, {0, 2})
    assert held.drop_ended() == set(), "it is named once"
    ends["from", 2].close()
    reset(ends["from", 0])
    assert held.drop_ended() == {0}
    kept = held.called[0]
    held.close()
    assert (held.called, held.answered, kept.fileno()) == ({}, {}, -1)


def test_a_later_connection_takes_the_place_of_an_earlier_one_and_a_silent_machine_is_asked(lines: Lines) -> None:
    held = Connections()
    (first, _), (second, _) = lines.pair(), lines.pair()
    for line in (first, second):
        connections.keep(held.called, 1, line)
    assert (held.called, first.fileno()) == ({1: second}, -1)
    assert second.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    asked = [
        second.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{name}")) for name in ("IDLE", "INTVL", "CNT")
    ]
    assert asked == [5, 5, 3]
    connections.drop(held.called, 7)
    connections.drop(held.called, 1)
    assert (held.called, second.fileno()) == ({}, -1)


class Over(Exception):
    """Ends the watching process, which is a call here."""


def test_each_worker_that_is_there_is_told_and_one_that_is_gone_ends_the_trainer(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done: list[Any] = []

    def exit_(code: int) -> None:
        done.append(code)
        raise Over

    monkeypatch.setattr(connection_watch, "PATIENCE_SECONDS", 0.05)
    process = SimpleNamespace(read=os.read, getppid=lambda: 42, kill=lambda *what: done.append(what), _exit=exit_)
    monkeypatch.setattr(connection_watch, "os", process)
    opened = SimpleNamespace(socket=lambda fileno: next(line for line in lines.opened if line.fileno() == fileno))
    monkeypatch.setattr(connection_watch, "socket", opened)
    (ours, gone), (to_other, other) = lines.pair(), lines.pair()
    control, trainer = os.pipe()
    reset(gone)
    os.write(trainer, connection_watch.CONNECTED)
    connection_watch.watch(42, control, {}, [ours.fileno(), to_other.fileno()])
    other.settimeout(60)
    assert other.recv(99) == b"connected", "although the one before it has ended"
    (watched, dead), (still, there) = lines.pair(), lines.pair()
    there.sendall(b"connected")
    reset(dead)
    with pytest.raises(Over):
        connection_watch.watch(42, control, {still.fileno(): "worker 0", watched.fileno(): "worker 2"}, [])
    assert done == [(42, 9), 0]
    assert capfd.readouterr().err == "gputui: worker 2 has ended while TensorFlow connected the workers\n"
    for descriptor in (control, trainer):
        os.close(descriptor)


def test_the_watching_process_ends_with_the_wait_and_all_connections_are_closed(lines: Lines) -> None:
    held = Connections()
    (called, _), (answered, other) = lines.pair(), lines.pair()
    held.called[0], held.answered[0] = called, answered
    with held.watched(CLUSTER):
        pass
    other.settimeout(60)
    assert other.recv(99) == b"connected"
    assert other.recv(99) == b"", "and then it is closed"
    assert (held.called, held.answered, called.fileno()) == ({}, {}, -1)


# ---- TensorFlow's cluster ----------------------------------------------------------------------


@pytest.fixture
def joined() -> Joined:
    line: Any = SimpleNamespace(watched=lambda cluster: contextlib.nullcontext(cluster))
    nothing: Any = None
    return Joined(CLUSTER, [], nothing, line)


@pytest.mark.parametrize(("way", "implementation"), [("auto", "AUTO"), ("ring", "RING"), ("nccl", "NCCL")])
def test_the_workers_are_connected_in_the_way_that_the_options_name(
    way: str, implementation: str, joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(tensorflow_cluster, "SUSPENSION", SimpleNamespace(start=lambda: started.append("watch")))

    def strategy(communication_options: Any) -> str:
        started.append(communication_options.implementation.value)
        return "the strategy"

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", strategy)
    asked = options("strategy.kind=multi_worker", f"communication={way}")
    assert tensorflow_cluster.connect(asked, joined) == "the strategy"
    assert started == [implementation, "watch"]


def test_a_way_within_one_machine_and_workers_that_cannot_be_connected_are_refused(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("no\n  way " + "x" * 300)

    def refused(*settings: str) -> tuple[str, str, str]:
        with pytest.raises(TrainerError) as raised:
            tensorflow_cluster.connect(options("strategy.kind=multi_worker", *settings), joined)
        return raised.value.kind, raised.value.message, raised.value.hint

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", fail)
    assert refused() == (
        "peer", f"TensorFlow could not connect the workers: no way {'x' * 193}",
        "see that every worker can reach the ports of the others; this is worker 1 of 2, at b:2 (a test)",
    )  # fmt: skip
    message = "strategy.communication=hierarchical_copy exchanges within one machine"
    hint = "set it to auto, ring or nccl"
    assert refused("communication=hierarchical_copy") == ("strategy", message, hint)


# Settings of a machine; all others decide what is trained.
OF_A_MACHINE = {
    "device.visible", "device.memory_limit_mb", "device.inter_op_threads", "device.intra_op_threads", "device.numa",
    "device.log_placement", "workload.data", "workload.folder", "workload.entry", "input.cache", "train.seed",
    "run.max_minutes", "run.stop_signal", "run.keep", "run.code", "run.python", "run.hang_seconds",
    "compile.xla_cache",
}  # fmt: skip


def test_only_settings_of_a_machine_may_differ_between_workers() -> None:
    assert OF_A_MACHINE == tensorflow_cluster.OWN
    assert {info.key for info in OPTIONS} >= OF_A_MACHINE


def test_a_worker_that_has_an_option_which_the_others_lack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has another version of gputui."""
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1", "b:2"]}, "task": {"index": 1}}))
    monkeypatch.setattr(tensorflow_cluster, "Meeting", Met)
    monkeypatch.setattr(Met, "changed", {"train.newer": 5})
    with pytest.raises(
        TrainerError, match=r"^worker 0 \(a:1\) was started with train\.newer=5, and this one with None$"
    ):
        tensorflow_cluster.meet(options(), Run(tmp_path), print, print)
