"""All workers meet before TensorFlow connects them, so that a worker that never comes can be named; for how long
they wait.

MultiWorkerMirroredStrategy waits for the other workers inside its constructor, without a time limit and without letting
any Python thread run. So each worker first listens on its own address and calls all others. It continues when it has
reached all others and all have reached it. TensorFlow's server then takes the port over. The connections stay open
(connections.py), and show which worker ends before all have met.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ...runs.run_cluster import Cluster, host_of, port_of
from ..common.training_errors import TrainerError
from . import connections
from .connections import Connections

VARIABLE = "GPUTUI_PEER_SECONDS"
WAIT_SECONDS = 300.0
CALL_SECONDS, PAUSE_SECONDS, LOOK_SECONDS = 5.0, 0.2, 0.1
TELL_SECONDS = 30.0
_MOST_BYTES = 1_000_000
_OTHER_PORT = "perhaps two workers were given the same number; otherwise end that program, or give another port"
_NEVER_CAME = f"start all workers, and see that their ports can be reached; {VARIABLE} sets another limit"
Hello = Mapping[str, Any]


def seconds() -> float:
    """Return the longest time in seconds to wait for the other workers, by the variable GPUTUI_PEER_SECONDS. Without
    this variable, return 300. Raises TrainerError if its value is not a number above 0.
    """
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
    """The messages (`hellos`) in which the workers describe themselves, and the connections to the workers, by index.

    `index` and `itself` are the index and the message of this worker, and `others` the indexes of the other workers.
    Several threads use this object.
    """

    def __init__(self, index: int, itself: Hello, others: Sequence[int]) -> None:
        self.hellos: dict[int, Hello] = {index: itself}
        self.connections = Connections()
        self.ended: dict[int, float] = {}  # when workers ended that had been connected both ways
        self._others = others
        self._lock = threading.Lock()
        self._left = False

    def missing(self) -> list[int]:
        """Return the indexes of the other workers that are not connected in both directions now."""
        with self._lock:
            self.ended |= dict.fromkeys(self.connections.drop_ended(), time.monotonic())
            return [index for index in self._others if not self.connections.both_ways(index)]

    def reached(self, index: int, hello: Hello, connection: socket.socket) -> None:
        """Keep the connection that this worker has opened to the worker `index`. Raises ValueError after `leave`."""
        with self._lock:
            self._require_not_left()
            if not self._is_same_process(index, hello):
                connections.drop(self.connections.answered, index)  # of an earlier process of this worker
            self.hellos[index] = hello
            connections.keep(self.connections.called, index, connection)

    def called_by(self, index: int, hello: Hello, connection: socket.socket) -> None:
        """Keep the connection that the worker `index` has opened to this one.

        Raises ValueError after `leave`, and if another process with this index is connected. In that case the worker
        was started again, and the end of its earlier process has not been noticed yet, or two workers have the same
        index. The worker calls again later.
        """
        with self._lock:
            self._require_not_left()
            if index in self.connections.called and not self._is_same_process(index, hello):
                raise ValueError("another process")
            self.hellos[index] = hello
            connections.keep(self.connections.answered, index, connection)

    def leave(self) -> None:
        """Close all connections, and keep no further ones."""
        with self._lock:
            self._left = True
            self.connections.close()

    def _is_same_process(self, index: int, hello: Hello) -> bool:
        return bool(self.hellos.get(index, {}).get("process") == hello.get("process"))

    def _require_not_left(self) -> None:
        if self._left:
            raise ValueError("this worker has left")


class Meeting:
    """The part of one worker, a member of `cluster`, in the meeting of all workers.

    `hello` is the message about this worker for the others. `connections` are the connections between this worker and
    the others.
    """

    def __init__(self, cluster: Cluster, hello: Hello) -> None:
        self._cluster = cluster
        itself = {"index": cluster.index, "workers": list(cluster.workers), "process": secrets.token_hex(8)}
        self._hello: Hello = {**itself, **hello}
        self._others = [index for index in range(len(cluster.workers)) if index != cluster.index]
        self._contacts = Contacts(cluster.index, self._hello, self._others)
        self.connections = self._contacts.connections
        self._fault: TrainerError | None = None
        self._unknown: set[int] = set()  # workers whose host has no address on this machine yet
        self._over = threading.Event()

    def hold(self, tell: Callable[[str], None], check: Callable[[], None]) -> list[Hello]:
        """Wait for all workers. Returns the message that each worker has sent about itself, by index.

        `tell` is called with a text that names the workers that are still missing, and `check` while waiting. Raises
        TrainerError, or the exception that `check` raises.
        """
        with self._listening():
            for index in self._others:
                threading.Thread(target=self._call, args=(index,), name=f"call {index}", daemon=True).start()
            try:
                self._wait(tell, check)
            except BaseException:
                self._contacts.leave()
                raise
            finally:
                self._over.set()
        return [self._contacts.hellos[index] for index in range(len(self._cluster.workers))]

    def _wait(self, tell: Callable[[str], None], check: Callable[[], None]) -> None:
        limit, last_text, last_time = seconds(), "", 0.0
        began, began_at = time.monotonic(), datetime.now()
        while missing := self._contacts.missing():
            check()
            if self._fault is not None:
                raise self._fault
            since = min(self._contacts.ended.get(index, began) for index in missing) - began
            until = f"until {began_at + timedelta(seconds=since + limit):%H:%M:%S} at most ({VARIABLE}: {limit:g} s)"
            now, waiting = time.monotonic(), f"waiting for {self._named(missing)}{self._ended(missing)}, {until}"
            if waiting != last_text or now - last_time > TELL_SECONDS:
                tell(waiting)
                last_text, last_time = waiting, now
            if late := [index for index in missing if now - self._contacts.ended.get(index, began) > limit]:
                message = f"{self._named(late)} did not come within {limit:g} s ({self._cluster.source})"
                raise TrainerError("peer_missing", message + self._ended(late), _NEVER_CAME)
            time.sleep(LOOK_SECONDS)
        if self._fault is not None:
            raise self._fault

    def _named(self, missing: Sequence[int]) -> str:
        """Return the `missing` workers (indexes) as text. Hosts for which this machine finds no address are added."""
        unknown = [host_of(self._cluster.workers[index]) for index in missing if index in self._unknown]
        addition = f"; not known on this machine: {', '.join(dict.fromkeys(unknown))}" if unknown else ""
        return ", ".join(map(self._cluster.named, missing)) + addition

    def _ended(self, missing: Sequence[int]) -> str:
        """Return the end of a message: the names of the missing workers that were connected before and have ended.
        Return an empty text if there are none.
        """
        ended = [index for index in missing if index in self._contacts.ended]
        return f"; was there and has ended: {self._named(ended)}" if ended else ""

    # ---- calling ------------------------------------------------------------------------------

    def _call(self, index: int) -> None:
        address = self._cluster.workers[index]
        while not self._over.is_set():
            if index not in self.connections.called:
                with contextlib.suppress(OSError, ValueError):
                    self._reach(index, (host_of(address), port_of(address)))
            self._over.wait(PAUSE_SECONDS)

    def _reach(self, index: int, address: tuple[str, int]) -> None:
        try:
            connection = socket.create_connection(address, timeout=CALL_SECONDS)
        except socket.gaierror:
            self._unknown.add(index)
            raise
        except OSError:
            self._unknown.discard(index)  # it has an address now, at which no worker listens yet
            raise
        self._unknown.discard(index)
        self._introduce(index, connection)

    def _introduce(self, index: int, called: socket.socket) -> None:
        with _kept(called) as connection, connection.makefile("rwb") as file:
            _send(file, self._hello)
            answer = _read(file)
            _send(file, {})  # it shows the other worker that its answer has arrived
            self._examine(index, answer)
            self._contacts.reached(index, answer, connection)

    def _examine(self, index: int, hello: Hello) -> None:
        """Raise ValueError if the process at the address of the worker `index` is another worker or was started with
        other workers.

        `hello` is its message. The fault is stored, and ends the wait.
        """
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
        try:
            server = _server(port)
        except OSError as fault:
            why = os.strerror(fault.errno) if fault.errno else str(fault)
            message = f"port {port} of {self._cluster.named(self._cluster.index)} cannot be used: {why}"
            if fault.errno == errno.EADDRINUSE:
                message = f"another program uses port {port} of {self._cluster.named(self._cluster.index)}"
            raise TrainerError("peer", message, _OTHER_PORT) from None
        answering = threading.Thread(target=self._answer_all, args=(server,), name="answers", daemon=True)
        answering.start()
        try:
            yield
        finally:
            self._over.set()
            answering.join()
            server.close()

    def _answer_all(self, server: socket.socket) -> None:
        server.settimeout(LOOK_SECONDS)
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Exchange messages with a caller, and keep its connection if the caller is a worker of this cluster.

        Otherwise the connection is closed. The caller may be another program, or the TensorFlow of a worker that has
        already met all others. A worker that was started with another list of workers also ends the wait with an error.
        """
        connection.settimeout(CALL_SECONDS)
        with contextlib.suppress(OSError, ValueError, KeyError), _kept(connection), connection.makefile("rwb") as file:
            hello = _read(file)
            _send(file, self._hello)
            _read(file)
            if (index := int(hello["index"])) not in self._others:
                raise ValueError("no other worker of this cluster")
            self._examine(index, hello)
            self._contacts.called_by(index, hello, connection)


@contextlib.contextmanager
def _kept(connection: socket.socket) -> Iterator[socket.socket]:
    """A context after which the connection stays open unless an exception is raised in it."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _server(port: int) -> socket.socket:
    """Return a server that listens to `port` on all addresses of this machine, as TensorFlow's server does later."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", port), backlog=128)


def _send(file: Any, value: Hello) -> None:
    file.write(json.dumps(value).encode() + b"\n")
    file.flush()


def _read(file: Any) -> dict[str, Any]:
    value = json.loads(file.readline(_MOST_BYTES))
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
