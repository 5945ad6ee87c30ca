"""Joins the cluster of TF_CONFIG: all workers meet before TensorFlow connects them, to name one that never comes.
MultiWorkerMirroredStrategy waits for them in its constructor, without a limit and without letting a Python thread
run. So each worker listens on its own address, and calls all others. TensorFlow's server then takes the port over.
The connections stay open until then, and show which worker dies.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ...options import OPTIONS, Options, is_private
from ...runs import Run
from ...runs.run_cluster import SOURCE, Cluster, host_of, port_of
from ...runs.run_cluster import VARIABLE as TF_CONFIG
from ..common.training_errors import TrainerError
from ..common.versions import tensorflow as tf
from . import connection_watch
from .exchange import SUSPENSION, Exchange

VARIABLE = "GPUTUI_PEER_SECONDS"
WAIT_SECONDS = 300.0
CALL_SECONDS, PAUSE_SECONDS, LOOK_SECONDS = 5.0, 0.2, 0.1
TELL_SECONDS = 30.0
_MOST_BYTES = 1_000_000
_OTHER_PORT = "perhaps two workers were given the same number; otherwise end that program, or give another port"
_NEVER_CAME = f"start all workers, and see that their ports can be reached; {VARIABLE} sets another limit"
Hello = Mapping[str, Any]
# The kernel asks whether the other machine is still there: one that has lost its power closes nothing.
_SILENT_SECONDS, _ASK_SECONDS, _ASKED = 5, 5, 3
_END_SECONDS = 10.0  # for the watching process, after the workers are connected
ByIndex = dict[int, socket.socket]


def seconds() -> float:
    """Return the longest time to wait for the other workers (GPUTUI_PEER_SECONDS, else 300 s). Raises TrainerError."""
    text = os.environ.get(VARIABLE, "")
    try:
        number = float(text) if text else WAIT_SECONDS
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        what = f"{VARIABLE}={text}: it is the longest time in seconds to wait for the other workers, a number above 0"
        raise TrainerError("options", what, f"set it to a number such as 300, or unset {VARIABLE}")
    return number


class Contacts:
    """The messages of the workers (`hellos`) and the connections to them, by index: those that this worker has opened
    (`called`), and those of the others. Several threads use it.
    """

    def __init__(self, index: int, itself: Hello, others: Sequence[int]) -> None:
        self.hellos: dict[int, Hello] = {index: itself}
        self.called: ByIndex = {}
        self.answered: ByIndex = {}
        self.ended: dict[int, float] = {}  # when workers ended that had been connected both ways
        self._others = others
        self._lock = threading.Lock()
        self._left = False

    def missing(self) -> list[int]:
        """Return the indexes of the other workers that are not connected in both directions now."""
        with self._lock:
            self.ended |= dict.fromkeys(self.drop_ended(), time.monotonic())
            return [index for index in self._others if not self._both_ways(index)]

    def reached(self, index: int, hello: Hello, connection: socket.socket) -> None:
        """Keep the connection that this worker has opened to the worker `index`. Raises ValueError after `leave`."""
        with self._lock:
            self._require_not_left()
            if not self._is_same_process(index, hello):
                drop(self.answered, index)  # of an earlier process of this worker
            self.hellos[index] = hello
            keep(self.called, index, connection)

    def called_by(self, index: int, hello: Hello, connection: socket.socket) -> None:
        """Keep the connection that the worker `index` has opened. ValueError after `leave`, and if another process with
        this index is connected, perhaps one whose end was not noticed yet: the worker calls again.
        """
        with self._lock:
            self._require_not_left()
            if index in self.called and not self._is_same_process(index, hello):
                raise ValueError("another process")
            self.hellos[index] = hello
            keep(self.answered, index, connection)

    def leave(self) -> None:
        with self._lock:
            self._left = True
            self.close()

    def _is_same_process(self, index: int, hello: Hello) -> bool:
        return bool(self.hellos.get(index, {}).get("process") == hello.get("process"))

    def _require_not_left(self) -> None:
        if self._left:
            raise ValueError("this worker has left")

    def _both_ways(self, index: int) -> bool:
        return index in self.called and index in self.answered

    def drop_ended(self) -> set[int]:
        """Return those that were connected both ways. No data is sent: one that can be read has ended."""
        poll, by_number = select.poll(), dict[int, tuple[ByIndex, int]]()
        for group in (self.called, self.answered):
            for index, connection in group.items():
                poll.register(connection, select.POLLIN)
                by_number[connection.fileno()] = group, index
        ended = [by_number[number] for number, _ in poll.poll(0)]
        lost = {index for _, index in ended if self._both_ways(index)}
        for group, index in ended:
            drop(group, index)
        return lost

    def close(self) -> None:
        for group in (self.called, self.answered):
            for index in tuple(group):
                drop(group, index)

    @contextlib.contextmanager
    def watched(self, cluster: Cluster) -> Iterator[None]:
        """A context in which another process watches the connections, and kills this one if a worker ends."""
        control, ours = os.pipe()
        called = {connection.fileno(): cluster.named(index) for index, connection in self.called.items()}
        answered = [connection.fileno() for connection in self.answered.values()]
        task = {"trainer": os.getpid(), "control": control, "watched": called, "answered": answered}
        command = [sys.executable, "-I", "-S", str(Path(connection_watch.__file__)), json.dumps(task)]
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(command, stdin=nothing, stdout=nothing, pass_fds=(control, *called, *answered))
        finally:
            os.close(control)
        try:
            yield
            with contextlib.suppress(BrokenPipeError):  # another process has ended it
                os.write(ours, connection_watch.CONNECTED)
        finally:
            os.close(ours)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            self.close()


class Meeting:
    """The part of one worker of `cluster`; `hello` is its message for the others."""

    def __init__(self, cluster: Cluster, hello: Hello) -> None:
        self._cluster = cluster
        itself = {"index": cluster.index, "workers": list(cluster.workers), "process": secrets.token_hex(8)}
        self._hello: Hello = {**itself, **hello}
        self._others = [index for index in range(len(cluster.workers)) if index != cluster.index]
        self.connections = Contacts(cluster.index, self._hello, self._others)
        self._fault: TrainerError | None = None
        self._unknown: set[int] = set()  # workers whose host has no address on this machine yet
        self._over = threading.Event()

    def hold(self, tell: Callable[[str], None], check: Callable[[], None]) -> list[Hello]:
        """The messages of all workers by index. `tell` gets a text that names those still missing, and `check` is
        called while waiting. Raises TrainerError, or what `check` raises.
        """
        with self._listening():
            for index in self._others:
                threading.Thread(target=self._call, args=(index,), name=f"call {index}", daemon=True).start()
            try:
                limit, last_text, last_time = seconds(), "", 0.0
                began, began_at = time.monotonic(), datetime.now()
                while missing := self.connections.missing():
                    check()
                    if self._fault is not None:
                        raise self._fault
                    ended = self.connections.ended
                    since = min(ended.get(index, began) for index in missing) - began
                    until = f"{began_at + timedelta(seconds=since + limit):%H:%M:%S} at most ({VARIABLE}: {limit:g} s)"
                    waiting = f"waiting for {self._named(missing)}{self._ended(missing)}, until {until}"
                    now = time.monotonic()
                    if waiting != last_text or now - last_time > TELL_SECONDS:
                        tell(waiting)
                        last_text, last_time = waiting, now
                    if late := [index for index in missing if now - ended.get(index, began) > limit]:
                        message = f"{self._named(late)} did not come within {limit:g} s ({self._cluster.source})"
                        raise TrainerError("peer_missing", message + self._ended(late), _NEVER_CAME)
                    time.sleep(LOOK_SECONDS)
                if self._fault is not None:
                    raise self._fault
            except BaseException:
                self.connections.leave()
                raise
            finally:
                self._over.set()
        return [self.connections.hellos[index] for index in range(len(self._cluster.workers))]

    def _named(self, missing: Sequence[int]) -> str:
        # with hosts for which this machine finds no address
        unknown = [host_of(self._cluster.workers[index]) for index in missing if index in self._unknown]
        addition = f"; not known on this machine: {', '.join(dict.fromkeys(unknown))}" if unknown else ""
        return ", ".join(map(self._cluster.named, missing)) + addition

    def _ended(self, missing: Sequence[int]) -> str:
        ended = [index for index in missing if index in self.connections.ended]
        return f"; was there and has ended: {self._named(ended)}" if ended else ""

    # ---- calling ------------------------------------------------------------------------------

    def _call(self, index: int) -> None:
        address = self._cluster.workers[index]
        while not self._over.is_set():
            if index not in self.connections.called:
                with contextlib.suppress(OSError, ValueError):
                    try:
                        connection = socket.create_connection((host_of(address), port_of(address)), CALL_SECONDS)
                        self._unknown.discard(index)
                    except socket.gaierror:
                        self._unknown.add(index)
                        raise
                    except OSError:  # it has an address now, at which no worker listens yet
                        self._unknown.discard(index)
                        raise
                    with _kept(connection), connection.makefile("rwb") as file:
                        _send(file, self._hello)
                        answer = _read(file)
                        _send(file, {})  # it shows the other worker that its answer has arrived
                        self._examine(index, answer)
                        self.connections.reached(index, answer, connection)
            self._over.wait(PAUSE_SECONDS)

    def _examine(self, index: int, hello: Hello) -> None:
        """Raise ValueError if the process is another worker, or was started with others. The fault ends the wait."""
        named = self._cluster.named(index)
        if hello.get("workers") != self._hello["workers"]:
            message = f"{named} was started with other workers: {', '.join(map(str, hello.get('workers') or ()))}"
            self._fault = TrainerError("peer", message, "give every worker the same list of workers")
        elif hello.get("index") != index:
            message = f"{named} says that it is worker {hello.get('index')}"
            self._fault = TrainerError("peer", message, "give each worker its own number in the list of workers")
        if self._fault is not None:
            raise ValueError("another worker")

    # ---- listening ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Any:
        port = port_of(self._cluster.address)
        try:  # on all addresses of this machine, as TensorFlow's server does later
            both: Any = {"family": socket.AF_INET6, "dualstack_ipv6": True} if socket.has_dualstack_ipv6() else {}
            server = socket.create_server(("", port), backlog=128, **both)
        except OSError as fault:
            why = os.strerror(fault.errno) if fault.errno else str(fault)
            message = f"port {port} of {self._cluster.named(self._cluster.index)} cannot be used: {why}"
            if fault.errno == errno.EADDRINUSE:
                message = f"another program uses port {port} of {self._cluster.named(self._cluster.index)}"
            raise TrainerError("peer", message, _OTHER_PORT) from None

        def answer_all() -> None:
            server.settimeout(LOOK_SECONDS)
            while not self._over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = server.accept()
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

        answering = threading.Thread(target=answer_all, name="answers", daemon=True)
        answering.start()
        try:
            yield
        finally:
            self._over.set()
            answering.join()
            server.close()

    def _answer(self, connection: socket.socket) -> None:
        """A caller may be another program, or the TensorFlow of a worker that has already met all others."""
        connection.settimeout(CALL_SECONDS)
        with contextlib.suppress(OSError, ValueError, KeyError), _kept(connection), connection.makefile("rwb") as file:
            hello = _read(file)
            _send(file, self._hello)
            _read(file)
            if (index := int(hello["index"])) not in self._others:
                raise ValueError("no other worker of this cluster")
            self._examine(index, hello)
            self.connections.called_by(index, hello, connection)


@contextlib.contextmanager
def _kept(connection: socket.socket) -> Iterator[socket.socket]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _send(file: Any, value: Hello) -> None:
    file.write(json.dumps(value).encode() + b"\n")
    file.flush()


def _read(file: Any) -> dict[str, Any]:
    value = json.loads(file.readline(_MOST_BYTES))
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def keep(group: ByIndex, index: int, connection: socket.socket) -> None:
    drop(group, index)
    group[index] = connection
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT_SECONDS), ("TCP_KEEPINTVL", _ASK_SECONDS), ("TCP_KEEPCNT", _ASKED)):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def drop(group: ByIndex, index: int) -> None:
    if (older := group.pop(index, None)) is not None:
        older.close()


# Options in which workers may differ, as they are settings of a machine. All take the seed of the chief.
OWN = {
    "device.visible", "device.memory_limit_mb", "device.inter_op_threads", "device.intra_op_threads", "device.numa",
    "device.log_placement", "workload.data", "workload.folder", "workload.entry", "input.cache", "train.seed",
    "run.max_minutes", "run.stop_signal", "run.keep", "run.code", "run.python", "run.hang_seconds",
    "compile.xla_cache",
}  # fmt: skip
_HOW = "start gputui on each machine by srun, with TF_CONFIG, or with --cluster HOST1:PORT,HOST2:PORT --worker N"
APART = 1_000_003  # between the seeds of two workers
_WAYS = {"auto": "AUTO", "ring": "RING", "nccl": "NCCL"}


@dataclass(frozen=True)
class Joined:
    """The cluster, with the messages that all workers have sent about themselves, by index."""

    cluster: Cluster
    hellos: list[Hello]
    exchange: Exchange
    connections: Contacts

    def described(self, replicas: int, gpus: list[str]) -> list[dict[str, Any]]:
        """Return the workers for the event `started`. All workers call this at the same place, as it exchanges data."""
        mine = json.dumps({"replicas": replicas, "gpus": gpus}).encode()
        own_values = [json.loads(data) for data in self.exchange.of_all(mine)]
        return [
            {"index": index, "address": self.cluster.workers[index]}
            | {name: hello[name] for name in ("host", "run", "folder")} | own
            for index, (hello, own) in enumerate(zip(self.hellos, own_values, strict=True))
        ]  # fmt: skip


def read() -> Cluster:
    """Return the cluster that TF_CONFIG describes. Raises TrainerError if it names none."""
    try:
        config = json.loads(os.environ.get(TF_CONFIG, "") or "{}")
        workers, index = tuple(map(str, config["cluster"]["worker"])), int(config["task"]["index"])
        workers[index]
    except (ValueError, KeyError, TypeError, IndexError):
        raise TrainerError(
            "strategy", f"strategy.kind=multi_worker needs a cluster, and {TF_CONFIG} names none", _HOW
        ) from None
    return Cluster(workers, index, str(config.get(SOURCE) or TF_CONFIG))


def meet(options: Options, run: Run, tell: Callable[[str], None], check: Callable[[], None]) -> tuple[Options, Joined]:
    """The options, with the chief's seed. `tell` gets a text that names missing workers, and `check` is called while
    waiting. Raises TrainerError.
    """
    cluster, groups = read(), asdict(options)
    hello = {
        "host": socket.gethostname(), "run": run.id, "folder": str(run.path.absolute()), "tensorflow": tf.__version__,
        "options": {info.key: groups[info.group][info.name] for info in OPTIONS if not is_private(info.key)},
    }  # fmt: skip
    meeting = Meeting(cluster, hello)
    hellos = meeting.hold(tell, check)
    for index, other in enumerate(hellos):
        _compare(cluster, hello, other, index)
    seed = hellos[0]["options"].get("train.seed")
    options = options.with_values({"train.seed": seed})
    return options, Joined(cluster, hellos, Exchange(len(cluster.workers), cluster.index), meeting.connections)


def _compare(cluster: Cluster, mine: Mapping[str, Any], other: Hello, index: int) -> None:
    """Raise TrainerError if a worker has other options, but those of a machine (OWN), or another TensorFlow."""
    if other.get("tensorflow") != mine["tensorflow"]:
        versions = f"TensorFlow {other.get('tensorflow')}, and this one {mine['tensorflow']}"
        raise TrainerError("peer", f"{cluster.named(index)} has {versions}", "install the same version everywhere")
    plain = json.loads(json.dumps(mine["options"]))
    theirs = other.get("options") or {}
    for key, value in sorted(theirs.items()):
        if key not in OWN and plain.get(key) != value:
            raise TrainerError(
                "peer", f"{cluster.named(index)} was started with {key}={value}, and this one with {plain.get(key)}",
                "start all workers with the same preset and the same --set",
            )  # fmt: skip


def connect(options: Options, joined: Joined) -> tf.distribute.Strategy:
    """Return the strategy over all workers. Its constructor waits for the others, and no thread of this process
    runs: another process watches whether a worker ends. Raises TrainerError. No device may have been opened before.
    """
    way = _WAYS.get(options.strategy.communication)
    if way is None:
        message = f"strategy.communication={options.strategy.communication} exchanges within one machine"
        raise TrainerError("strategy", message, "set it to auto, ring or nccl")
    implementation = getattr(tf.distribute.experimental.CommunicationImplementation, way)
    communication = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    try:
        with joined.connections.watched(joined.cluster):
            strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    except (RuntimeError, ValueError, tf.errors.OpError) as fault:
        reason = " ".join(str(fault).split())[:200]
        hint = f"see that every worker can reach the ports of the others; this is {joined.cluster}"
        raise TrainerError("peer", f"TensorFlow could not connect the workers: {reason}", hint) from None
    SUSPENSION.start()  # not before: while the constructor waits no thread runs, which is no suspension
    return strategy


def require_alike(joined: Joined, kind: str, count: int) -> None:
    """TrainerError for other numbers or kinds of devices: the exchange of gradients would wait without end."""
    rows = joined.exchange.rows([float(count), float(kind == "GPU")])
    devices = [f"{n:g} GPU{'s' if n > 1 else ''}" if are_gpus else "its CPU" for n, are_gpus in rows]
    own = joined.cluster.index
    for index, row in enumerate(rows):
        if (row != rows[own]).any():
            theirs = f"{joined.cluster.named(index)} trains on {devices[index]}, and this one on {devices[own]}"
            change = "give every worker as many GPUs in device.visible, or set it to none on all"
            raise TrainerError("peer", theirs, change)
