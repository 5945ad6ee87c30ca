"""All workers meet before TensorFlow connects them, so that a worker that never comes can be named.
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
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ...runs.run_cluster import Cluster, host_of, port_of
from ..common.training_errors import TrainerError
from . import connection_watch

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
        """Close all connections, and keep no further ones."""
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
                self._wait(tell, check)
            except BaseException:
                self.connections.leave()
                raise
            finally:
                self._over.set()
        return [self.connections.hellos[index] for index in range(len(self._cluster.workers))]

    def _wait(self, tell: Callable[[str], None], check: Callable[[], None]) -> None:
        limit, last_text, last_time = seconds(), "", 0.0
        began, began_at = time.monotonic(), datetime.now()
        while missing := self.connections.missing():
            check()
            if self._fault is not None:
                raise self._fault
            since = min(self.connections.ended.get(index, began) for index in missing) - began
            until = f"until {began_at + timedelta(seconds=since + limit):%H:%M:%S} at most ({VARIABLE}: {limit:g} s)"
            now, waiting = time.monotonic(), f"waiting for {self._named(missing)}{self._ended(missing)}, {until}"
            if waiting != last_text or now - last_time > TELL_SECONDS:
                tell(waiting)
                last_text, last_time = waiting, now
            if late := [index for index in missing if now - self.connections.ended.get(index, began) > limit]:
                message = f"{self._named(late)} did not come within {limit:g} s ({self._cluster.source})"
                raise TrainerError("peer_missing", message + self._ended(late), _NEVER_CAME)
            time.sleep(LOOK_SECONDS)
        if self._fault is not None:
            raise self._fault

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
        with _kept(connection), connection.makefile("rwb") as file:
            _send(file, self._hello)
            answer = _read(file)
            _send(file, {})  # it shows the other worker that its answer has arrived
            self._examine(index, answer)
            self.connections.reached(index, answer, connection)

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


def _server(port: int) -> socket.socket:
    # on all addresses of this machine, as TensorFlow's server does later
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


def keep(group: ByIndex, index: int, connection: socket.socket) -> None:
    """Keep a connection to the worker `index` in `group`, in place of an older one."""
    drop(group, index)
    group[index] = connection
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT_SECONDS), ("TCP_KEEPINTVL", _ASK_SECONDS), ("TCP_KEEPCNT", _ASKED)):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def drop(group: ByIndex, index: int) -> None:
    if (older := group.pop(index, None)) is not None:
        older.close()
