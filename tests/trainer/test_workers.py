"""What one worker of several does with the answers of the others: with stand-ins for them, for TensorFlow and time."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import Cluster, Run
from tests.doors.trainer import (
    Agreement,
    Exchange,
    StopRequested,
    StopSwitch,
    TrainerError,
    Wishes,
    exchange,
    rendezvous,
)
from tests.support.training import options

WORKERS = ("a:1", "b:2", "c:3")


def refused(call: Callable[[], object]) -> tuple[str, str, str]:
    with pytest.raises(TrainerError) as raised:
        call()
    return raised.value.kind, raised.value.message, raised.value.hint


# ---- exchanging values -------------------------------------------------------------------------


class Collective:
    """TensorFlow's sum over the workers, which are threads."""

    def __init__(self, workers: int) -> None:
        self.workers, self.barrier = workers, threading.Barrier(workers, timeout=60)
        self.values: dict[int, list[Any]] = {}
        self.keys: list[tuple[int, int]] = []  # of each exchange, and its number of values
        self.lock = threading.Lock()

    def __call__(self, input: Any, group_size: int, instance_key: int, merge_op: str, **_: Any) -> Any:
        assert (group_size, merge_op) == (self.workers, "Add")
        with self.lock:
            self.values.setdefault(instance_key, []).append(np.array(input))
            self.keys.append((instance_key, len(input)))
        self.barrier.wait()
        assert len(self.values[instance_key]) == self.workers, "all exchange the same"
        total = np.sum(self.values[instance_key], axis=0)
        if self.barrier.wait() == 0:
            self.values.clear()
        self.barrier.wait()
        return total


def by_all(monkeypatch: pytest.MonkeyPatch, each: Callable[[Exchange], Any]) -> list[Any]:
    """What `each` returns on three workers."""
    collective = Collective(3)
    monkeypatch.setattr(tf.raw_ops, "CollectiveReduceV2", collective)
    monkeypatch.setattr(exchange, "CHUNK_WORDS", 2)
    answers: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda index=index: answers.update({index: each(Exchange(3, index))}))
        for index in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(dict(collective.keys)) == len(set(collective.keys)), "a key is of one size"
    return [answers[index] for index in range(3)]


# ---- agreement ---------------------------------------------------------------------------------


class Others:
    """Exchanges with workers whose numbers are given; `mine` are the numbers that this worker, the second, has sent."""

    def __init__(self, *others: list[float]) -> None:
        self.others, self.mine, self.count = others, list[float](), 0

    def rows(self, numbers: list[float]) -> Any:
        self.count += 1
        self.mine = [float(number) for number in numbers]
        return np.array([self.others[0], self.mine, self.others[1]], float)


def agreement(others: Others, monkeypatch: pytest.MonkeyPatch) -> tuple[Agreement, StopSwitch, list[float]]:
    now = [100.0]
    monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stop = StopSwitch()
    return Agreement(Cluster(WORKERS, 1, "a test"), others, stop), stop, now  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mine", "slowest", "between"), [(0.5, 0.01, 1), (0.1, 0.01, 2), (0.01, 0.05, 5), (0.0, 0.0, 10_000)]
)
def test_workers_exchange_their_wishes_four_times_a_second(
    mine: float, slowest: float, between: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others([0, 0, 0, 0, slowest], [0, 0, 0, 0, 0])
    agreed, _, now = agreement(others, monkeypatch)
    for number in range(2):  # a second of it is divided by the executions between
        now[0] += mine * (between if number else 1)
        agreed.before_execution()
        assert others.count == number + 1
        assert others.mine[4] == pytest.approx(mine)
        for _ in range(between - 1):
            assert agreed.before_execution() == Wishes()
        assert others.count == number + 1
    agreed.before_execution()
    now[0] += 9.0  # of an evaluation
    agreed.soon()
    agreed.before_execution()
    assert (others.count, others.mine[4]) == (4, 0.0)


@pytest.mark.parametrize(
    ("reason", "others", "raised", "asked_by"),
    [
        ("stopped", (0, 0), ("stopped", ""), None),
        ("", (0, 1), ("stopped", ""), 2),
        ("", (1, 2), ("timeout", ""), 0),
        ("timeout", (1, 0), ("timeout", ""), None),
        ("stopped", (3, 0), ("engine", "worker 0 (a:1)"), None),
        ("engine", (3, 3), ("engine", ""), None),
        ("", (0, 3), ("engine", "worker 2 (c:3)"), 2),
        ("another", (0, 0), ("stopped", ""), None),
    ],
)
def test_a_stop_of_one_worker_stops_all_with_the_reason_that_prevails(
    reason: str, others: tuple[int, int], raised: tuple[str, str], asked_by: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed, stop, _ = agreement(Others([others[0], 0, 0, 0, 0], [others[1], 0, 0, 0, 0]), monkeypatch)
    stop.reason = reason
    with pytest.raises(StopRequested) as caught:
        agreed.now()
    assert (caught.value.reason, caught.value.engine_of, agreed.asked_by) == (*raised, asked_by)


# ---- meeting -----------------------------------------------------------------------------------


class Met:
    """Stands for the meeting: the others send what this worker does, but for `changed`."""

    changed: dict[str, Any] = {}
    connections: Any = None

    def __init__(self, cluster: Cluster, hello: dict[str, Any]) -> None:
        self.hello = hello

    def hold(self, tell: Any, check: Any) -> list[Any]:
        other = json.loads(json.dumps(self.hello))
        other["options"] |= {key: value for key, value in self.changed.items() if "." in key}
        other |= {key: value for key, value in self.changed.items() if "." not in key}
        return [other, self.hello]


@pytest.mark.parametrize(
    ("changed", "message", "hint"),
    [
        ({"device.visible": "none", "input.cache": "memory", "train.seed": 3, "run.keep": 9}, "", ""),
        (
            {"train.epochs": 77}, "worker 0 (a:1) was started with train.epochs=77, and this one with 2",
            "start all workers with the same preset and the same --set",
        ),
        (
            {"tensorflow": "2.18.0"}, f"worker 0 (a:1) has TensorFlow 2.18.0, and this one {tf.__version__}",
            "install the same version everywhere",
        ),
    ],
)  # fmt: skip
def test_workers_agree_on_options_and_take_the_seed_of_the_chief(
    changed: dict[str, Any], message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    monkeypatch.setattr(rendezvous, "Meeting", Met)
    monkeypatch.setattr(Met, "changed", changed)
    given = options("epochs=2", "seed=8")
    if message:
        assert refused(lambda: rendezvous.meet(given, Run(tmp_path), print, print)) == ("peer", message, hint)
        return
    taken, joined = rendezvous.meet(given, Run(tmp_path), print, print)
    assert (taken.train.seed, taken.train.epochs) == (3, 2)
    assert (joined.exchange.workers, joined.exchange.index) == (2, 1)
    assert {name: joined.hellos[1][name] for name in ("host", "run", "folder")} == {
        "host": socket.gethostname(), "run": tmp_path.name, "folder": str(tmp_path),
    }  # fmt: skip


# ---- a worker that fails -----------------------------------------------------------------------


class Over(Exception):
    """Ends a thread that would watch for ever."""


@pytest.mark.parametrize(
    ("passed", "computed", "later", "seconds"),
    [
        (1.0, 0.0, 0.0, None),
        (5.0, 0.0, 0.0, None),
        (5.5, 0.0, 0.0, 5.5),
        (10.0, 1.0, 0.0, None),
        (10.0, 0.9, 0.0, 10.0),
        (60.0, 0.0, 120.0, 60.0),
        (60.0, 0.0, 120.5, None),
    ],
)
def test_a_process_was_suspended_if_it_comes_too_late_and_has_not_computed(
    passed: float, computed: float, later: float, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, cpu, sleeps = [0.0], [0.0], itertools.count()

    def sleep(asked: float) -> None:
        assert asked == 1.0
        if next(sleeps):
            raise Over
        now[0] += passed
        cpu[0] += computed

    clock = SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: cpu[0], sleep=sleep)
    monkeypatch.setattr(exchange, "time", clock)
    watch = exchange.SuspensionWatch()
    assert watch.seconds is None
    with pytest.raises(Over):
        watch.run()
    now[0] += later
    assert watch.seconds == seconds
