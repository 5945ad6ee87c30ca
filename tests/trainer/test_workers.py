"""What one worker of several does with the answers of the others: with stand-ins for them, for TensorFlow and time."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.runs import Run
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.trainer.cluster import connection_watch, exchange, failed_worker, tensorflow_cluster
from gputui.engine.trainer.cluster.exchange import Agreement, Exchange, Wishes
from gputui.engine.trainer.cluster.tensorflow_cluster import Joined
from gputui.engine.trainer.common.stopping import StopRequested, StopSwitch
from gputui.engine.trainer.common.training_errors import TrainerError

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


def test_all_workers_get_the_numbers_and_bytes_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = by_all(monkeypatch, lambda mine: mine.rows([mine.index + 0.5, -1.0]).tolist())
    assert rows == [[[0.5, -1.0], [1.5, -1.0], [2.5, -1.0]]] * 3
    values = [b"", b"\xff", b"123456789\x00\xfe"]
    assert by_all(monkeypatch, lambda mine: mine.of_all(values[mine.index])) == [values] * 3
    assert by_all(monkeypatch, lambda mine: mine.of_all(b"")) == [[b""] * 3] * 3


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\xff\xff", b"12345\x00", bytes(range(33))])
def test_all_workers_get_the_bytes_of_the_chief(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_chief(mine: Exchange) -> bytes:
        return mine.of_chief(data if mine.index == 0 else None)

    assert by_all(monkeypatch, of_chief) == [data] * 3
    assert by_all(monkeypatch, lambda mine: mine.of_chief(data if mine.index == 0 else None, len(data))) == [data] * 3


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


def test_what_one_worker_wishes_all_do_and_a_wish_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for column, wish in enumerate(("enough", "check_weights", "end"), 1):
        others = Others([0, 0, 0, 0, 0], [0, 0, 0, 0, 0])
        agreed, *_ = agreement(others, monkeypatch)
        setattr(agreed.wishes, wish, True)
        assert agreed.now() == Wishes(**{wish: True})
        assert others.mine[:4] == [float(number == column) for number in range(4)]
        assert agreed.now() == Wishes()
        others.others[1][column] = 1
        assert agreed.now() == Wishes(**{wish: True})


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


def test_the_cluster_is_that_of_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"index": "1"}}
    for more, source in (({}, "TF_CONFIG"), ({"gputui": "--cluster"}, "--cluster")):
        monkeypatch.setenv("TF_CONFIG", json.dumps(config | more))
        assert tensorflow_cluster.read() == Cluster(("a:1", "b:2"), 1, source)
    for text in ("", "{", "[]", '{"cluster": {"worker": ["a:1"]}, "task": {"index": 1}}'):
        monkeypatch.setenv("TF_CONFIG", text)
        assert refused(tensorflow_cluster.read) == (
            "strategy",
            "strategy.kind=multi_worker needs a cluster, and TF_CONFIG names none",
            "start gputui on each machine by srun, with TF_CONFIG, or with --cluster HOST1:PORT,HOST2:PORT --worker N",
        )


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
    monkeypatch.setattr(tensorflow_cluster, "Meeting", Met)
    monkeypatch.setattr(Met, "changed", changed)
    given = options("epochs=2", "seed=8")
    if message:
        assert refused(lambda: tensorflow_cluster.meet(given, Run(tmp_path), print, print)) == ("peer", message, hint)
        return
    taken, joined = tensorflow_cluster.meet(given, Run(tmp_path), print, print)
    assert (taken.train.seed, taken.train.epochs) == (3, 2)
    assert (joined.exchange.workers, joined.exchange.index) == (2, 1)
    assert {name: joined.hellos[1][name] for name in ("host", "run", "folder")} == {
        "host": socket.gethostname(), "run": tmp_path.name, "folder": str(tmp_path),
    }  # fmt: skip


def joined_with(*rows: list[float]) -> Joined:
    others: Any = SimpleNamespace(
        rows=lambda mine: np.array([rows[0], mine, rows[1]]),
        of_all=lambda mine: [b'{"replicas": 3, "gpus": ["x"]}', mine, b'{"replicas": 1, "gpus": []}'],
    )
    hellos: list[Any] = [{"host": f"h{n}", "run": f"r{n}", "folder": f"f{n}", "options": {}} for n in range(3)]
    nothing: Any = None
    return Joined(Cluster(WORKERS, 1, "a test"), hellos, others, nothing)


def test_workers_are_described_by_what_each_has_sent() -> None:
    assert joined_with([0], [0]).described(2, ["y", "z"]) == [
        {"index": 0, "address": "a:1", "host": "h0", "run": "r0", "folder": "f0", "replicas": 3, "gpus": ["x"]},
        {"index": 1, "address": "b:2", "host": "h1", "run": "r1", "folder": "f1", "replicas": 2, "gpus": ["y", "z"]},
        {"index": 2, "address": "c:3", "host": "h2", "run": "r2", "folder": "f2", "replicas": 1, "gpus": []},
    ]


@pytest.mark.parametrize(
    ("rows", "kind", "count", "message"),
    [
        (([2, 1], [2, 1]), "GPU", 2, ""),
        (([1, 0], [1, 0]), "CPU", 1, ""),
        (([2, 1], [1, 1]), "GPU", 2, "worker 2 (c:3) trains on 1 GPU, and this one on 2 GPUs"),
        (([1, 0], [1, 1]), "GPU", 1, "worker 0 (a:1) trains on its CPU, and this one on 1 GPU"),
        (([4, 1], [1, 0]), "CPU", 1, "worker 0 (a:1) trains on 4 GPUs, and this one on its CPU"),
    ],
)
def test_workers_train_on_as_many_devices_of_one_kind(
    rows: tuple[list[float], list[float]], kind: str, count: int, message: str
) -> None:
    def require() -> None:
        tensorflow_cluster.require_alike(joined_with(*rows), kind, count)

    if not message:
        require()
        return
    hint = "give every worker as many GPUs in device.visible, or set it to none on all"
    assert refused(require) == ("peer", message, hint)


def test_each_worker_draws_other_numbers() -> None:
    given = {"dropout": [7, 5], "noise": [2**32 - 1, 6], "crop": [3_000_000_000, 0]}
    seeds = {f"{name}/seed_generator/state": tf.Variable(seed, dtype=tf.uint32) for name, seed in given.items()}
    mean = tf.Variable(1.0)
    held = [SimpleNamespace(path=path, value=value) for path, value in {**seeds, "norm/mean": mean}.items()]
    model: Any = SimpleNamespace(non_trainable_variables=held)
    tensorflow_cluster.draw_apart(model, joined_with())
    drawn = [seed.numpy().tolist() for seed in seeds.values()]
    assert drawn == [[7 + 1_000_003, 5], [1_000_002, 6], [3_001_000_003, 0]]
    assert mean.numpy() == 1.0


# ---- a worker that fails -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "is_of_peers"),
    [
        (tf.errors.UnavailableError(None, None, "Collective ops is aborted by: failed to connect"), True),
        (tf.errors.InternalError(None, None, "RPC of /tensorflow.WorkerService/RunGraph"), True),
        (tf.errors.CancelledError(None, None, "stopped sending heartbeats"), True),
        (tf.errors.UnavailableError(None, None, "no memory"), False),
        (tf.errors.InvalidArgumentError(None, None, "Collective ops is aborted by: a shape"), False),
        (tf.errors.ResourceExhaustedError(None, None, "Collective ops is aborted by: no memory"), False),
        (RuntimeError("Collective ops is aborted"), False),
    ],
)
def test_a_failed_exchange_is_told_from_a_failed_computation(fault: Exception, is_of_peers: bool) -> None:
    assert failed_worker.is_of_peers(fault) is is_of_peers


@pytest.fixture
def servers() -> Iterator[Callable[[bytes | None], str]]:
    """An address at which a server answers with these bytes, accepts and closes (b""), or is silent (None)."""
    with ExitStack() as held:

        def serve(answer: bytes | None) -> str:
            server = held.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept() -> None:
                with server.accept()[0] as connection:
                    connection.recv(99)  # all of it: else the end of the connection would discard the answer
                    if answer:
                        connection.sendall(answer)

            if answer is not None:
                threading.Thread(target=accept, daemon=True).start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield serve


AGAIN = "start all workers again with the same command and --resume-if-any: they go on from the last checkpoint"
HINT = f"{AGAIN}; the log of that worker may say why it ended"


def test_workers_that_do_not_answer_are_named(
    servers: Callable[[bytes | None], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_worker, "ANSWER_SECONDS", 0.3)
    here, gone, silent = servers(b"settings"), servers(b""), servers(None)
    cluster = Cluster((here, gone, silent, "me:1"), 3, "a test")
    found = failed_worker.blamed(RuntimeError("x"), cluster)
    assert (found.kind, found.message, found.hint) == (
        "peer_lost",
        f"worker 1 ({gone}) has ended; worker 2 ({silent}) does not answer any more: the training cannot go on "
        "without it",
        HINT,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "(stopped sending heartbeats): /job:worker/replica:0/task:0 /job:worker/replica:0/task:1 "
            "/job:worker/replica:0/task:7 x /job:worker/replica:0/task:0", "worker 0 ({0}) has failed",
        ),
        ("/tensorflow.CoordinationService/Barrier failed", "worker 0 ({0}) has failed"),
        ("many\n  words " + "y" * 200, "a worker has failed, and all answer: many words " + "y" * 149),
    ],
)  # fmt: skip
def test_if_all_answer_the_message_of_tensorflow_names_the_worker(
    text: str, named: str, servers: Callable[[bytes | None], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = servers(b"settings")
    found = failed_worker.blamed(RuntimeError(text), Cluster((here, "me:1"), 1, "a test"))
    assert found.message == f"{named.format(here)}: the training cannot go on without it"
    here = servers(b"settings")
    monkeypatch.setattr(failed_worker, "SUSPENSION", SimpleNamespace(seconds=12.4))
    found = failed_worker.blamed(RuntimeError(text), Cluster((here, "me:1"), 1, "a test"))
    assert (found.kind, found.message, found.hint) == (
        "suspended",
        "worker 1 (me:1), this one, was suspended for 12 s by SIGSTOP or a debugger, and the others have given it up; "
        + named.format(here),
        AGAIN,
    )


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
    monkeypatch.setattr(failed_worker, "time", clock)
    watch = failed_worker.SuspensionWatch()
    assert watch.seconds is None
    with pytest.raises(Over):
        watch.run()
    now[0] += later
    assert watch.seconds == seconds


def test_a_worker_lingers_until_five_seconds_after_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(failed_worker, "time", SimpleNamespace(monotonic=lambda: 103.0, sleep=slept.append))
    failed_worker.linger(100.0)
    failed_worker.linger(90.0)
    assert slept == [2.0, 0.0]


# ---- the process that watches ------------------------------------------------------------------


class Watched:
    """A trainer, worker 1, whose watching process is a call; the other worker is the other end of two connections."""

    def __init__(self, held: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.control, self.ours = os.pipe()
        pairs = [socket.socketpair() for _ in range(2)]
        (called, self.called), (answered, self.answered) = pairs
        self.descriptors = called.detach(), answered.detach()
        for end in (self.called, self.answered):
            held.enter_context(end)
        self.done: list[object] = []
        process = SimpleNamespace(read=os.read, getppid=lambda: 42, kill=self.note, _exit=self.exit)
        opened = SimpleNamespace(socket=lambda fileno: held.enter_context(socket.socket(fileno=fileno)))
        monkeypatch.setattr(connection_watch, "os", process)
        monkeypatch.setattr(connection_watch, "socket", opened)
        monkeypatch.setattr(connection_watch, "PATIENCE_SECONDS", 0.05)

    def note(self, *what: int) -> None:
        self.done.append(what)

    def exit(self, code: int) -> None:
        self.done.append(code)
        raise Over

    def watch(self, trainer: int = 42) -> None:
        called, answered = self.descriptors
        connection_watch.watch(trainer, self.control, {called: "worker 0 (a:1)"}, [answered])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with ExitStack() as held:
        yield Watched(held, monkeypatch)


@pytest.mark.parametrize("trainer", [42, 43])
def test_a_worker_that_dies_ends_the_trainer_that_waits_for_it(
    trainer: int, watched: Watched, capfd: pytest.CaptureFixture[str]
) -> None:
    watched.called.close()
    with pytest.raises(Over):
        watched.watch(trainer)
    assert watched.done == ([(42, 9), 0] if trainer == 42 else [0]), "never a process that is not its trainer"
    expected = "gputui: worker 0 (a:1) has ended while TensorFlow connected the workers\n"
    assert capfd.readouterr().err == expected


def test_a_trainer_that_is_connected_tells_the_others_before_its_connections_close(watched: Watched) -> None:
    watched.called.sendall(b"connected")  # the other one was first
    watched.called.close()
    os.write(watched.ours, b"connected")
    watched.watch()
    assert watched.done == []
    watched.answered.settimeout(10)
    assert watched.answered.recv(99) == b"connected"


def test_a_trainer_that_ends_by_itself_tells_nothing(watched: Watched) -> None:
    watched.called.close()
    os.close(watched.ours)
    watched.watch()
    assert watched.done == []
    watched.answered.setblocking(False)
    with pytest.raises(BlockingIOError):
        watched.answered.recv(99)
