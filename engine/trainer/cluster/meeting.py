"""All workers meet before TensorFlow connects them, so that one that never comes can be named.

MultiWorkerMirroredStrategy waits for its peers inside its constructor, without a time limit and without letting any
Python thread run. So each worker first listens on its own address and calls all others. It goes on when it has reached
everybody and everybody has reached it; TensorFlow's server then takes the port over. The connections stay open
(lines.py).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...runs.cluster import Cluster, host_of, port_of
from ..common.faults import TrainerError
from .lines import Lines

VARIABLE = "GPUTUI_PEER_SECONDS"
WAIT_SECONDS = 300.0
CALL_SECONDS, PAUSE_SECONDS, LOOK_SECONDS = 5.0, 0.2, 0.1
TELL_SECONDS = 30.0
_MOST_BYTES = 1_000_000
_OTHER_PORT = "perhaps two workers were given the same number; otherwise end that program, or give another port"
Hello = Mapping[str, Any]


def seconds() -> float:
    """How long the others are waited for."""
    try:
        return float(os.environ.get(VARIABLE, "")) or WAIT_SECONDS
    except ValueError:
        return WAIT_SECONDS


class Meeting:
    """The hellos of all workers by index; `reached` are those that it has called, `called_by` those that called it."""

    def __init__(self, cluster: Cluster, hello: Hello) -> None:
        self._cluster, self._hello = cluster, {"index": cluster.index, "workers": list(cluster.workers), **hello}
        self._others = [index for index in range(len(cluster.workers)) if index != cluster.index]
        self._heard: dict[int, Hello] = {cluster.index: self._hello}
        self._reached: set[int] = set()
        self._called_by: set[int] = set()
        self.lines = Lines()
        self._fault: TrainerError | None = None
        self._over = threading.Event()

    def hold(self, tell: Callable[[str], None], check: Callable[[], None]) -> list[Hello]:
        """Wait for everybody; `tell` is told whom it waits for, `check` may raise. Raises TrainerError."""
        with self._listening():
            for index in self._others:
                threading.Thread(target=self._call, args=(index,), name=f"call {index}", daemon=True).start()
            try:
                self._wait(tell, check)
            except BaseException:
                self.lines.close()
                raise
            finally:
                self._over.set()
        return [self._heard[index] for index in range(len(self._cluster.workers))]

    def _wait(self, tell: Callable[[str], None], check: Callable[[], None]) -> None:
        limit = seconds()
        until, told, told_at = time.monotonic() + limit, "", 0.0
        while missing := self._missing():
            check()
            if self._fault is not None:
                raise self._fault
            now, names = time.monotonic(), ", ".join(map(self._cluster.named, missing))
            if names != told or now - told_at > TELL_SECONDS:
                tell(f"waiting for {names}")
                told, told_at = names, now
            if now > until:
                raise TrainerError("peer_missing", *_never_came(names, limit, self._cluster))
            time.sleep(LOOK_SECONDS)
        if self._fault is not None:
            raise self._fault

    def _missing(self) -> list[int]:
        return [index for index in self._others if index not in self._reached & self._called_by]

    # ---- calling ------------------------------------------------------------------------------

    def _call(self, index: int) -> None:
        address = self._cluster.workers[index]
        while not self._over.is_set():
            with contextlib.suppress(OSError, ValueError):
                self._speak(index, (host_of(address), port_of(address)))
                return
            self._over.wait(PAUSE_SECONDS)

    def _speak(self, index: int, address: tuple[str, int]) -> None:
        with _kept(socket.create_connection(address, timeout=CALL_SECONDS)) as line, line.makefile("rwb") as file:
            _send(file, self._hello)
            answer = _read(file)
            self._take(index, answer)
            _send(file, {})  # the other knows by this that it was heard
            self.lines.called[index] = line
            self._reached.add(index)

    def _take(self, index: int, hello: Hello) -> None:
        """Keep what a worker says of itself, or note that it is another than its address should be."""
        named = self._cluster.named(index)
        if hello.get("workers") != self._hello["workers"]:
            message = f"{named} was started with other workers: {', '.join(map(str, hello.get('workers') or ()))}"
            self._fault = TrainerError("peer", message, "give every worker the same list of workers")
        elif hello.get("index") != index:
            message = f"{named} says that it is worker {hello.get('index')}"
            self._fault = TrainerError("peer", message, "give each worker its own number in the list of workers")
        else:
            self._heard[index] = hello

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
                line, _ = server.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        """Whoever calls may be another program, or TensorFlow of a worker that is a moment ahead."""
        line.settimeout(CALL_SECONDS)
        with contextlib.suppress(OSError, ValueError, KeyError), _kept(line), line.makefile("rwb") as file:
            hello = _read(file)
            _send(file, self._hello)
            _read(file)
            if (index := int(hello["index"])) not in self._others:
                raise ValueError("no other worker of this cluster")
            self._take(index, hello)
            self.lines.answered.append(line)
            self._called_by.add(index)


@contextlib.contextmanager
def _kept(line: socket.socket) -> Iterator[socket.socket]:
    """A connection that stays open unless something fails."""
    try:
        yield line
    except BaseException:
        line.close()
        raise


def _never_came(names: str, limit: float, cluster: Cluster) -> tuple[str, str]:
    return (
        f"{names} did not come within {limit:g} s ({cluster.source})",
        f"start all workers, and see that their ports can be reached; {VARIABLE} sets another limit",
    )


def _server(port: int) -> socket.socket:
    """Listens on all addresses of this machine, as TensorFlow's server will."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", port), backlog=128)


def _send(file: Any, value: Hello) -> None:
    file.write(json.dumps(value).encode() + b"\n")
    file.flush()


def _read(file: Any) -> dict[str, Any]:
    found = json.loads(file.readline(_MOST_BYTES))
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found
