"""How the workers of several machines meet, and who ends meanwhile: in threads of this process, on its loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.engine import Cluster, port_of
from tests.doors.trainer import Hello, Meeting, TrainerError, rendezvous
from tests.support.cluster import free_ports
from tests.support.front_door import until


class Clock:
    """The time of all workers, which a test puts forward."""

    def __init__(self) -> None:
        self.forward = 0.0
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + self.forward


class Ended(Exception):
    """Ends a worker as if it were killed: the kernel closes its connections."""


class Worker(threading.Thread):
    """One that meets the others, and what it tells meanwhile."""

    def __init__(self, workers: tuple[str, ...], index: int, run: str) -> None:
        super().__init__(daemon=True)
        self.meeting = Meeting(Cluster(workers, index, "a test"), {"run": run})
        self.told, self.looks, self.killed = [""], 0, False
        self.heard: list[Hello] = []
        self.fault: TrainerError | None = None
        self.start()

    @property
    def waits_for(self) -> str:
        """What it waits for, without until when."""
        return self.told[-1].partition(", until ")[0]

    def run(self) -> None:
        try:
            self.heard = self.meeting.hold(self._tell, self._look)
        except TrainerError as fault:
            self.fault = fault
        except Ended:
            pass

    def end(self) -> None:
        self.killed = True
        self.join()

    def again(self) -> None:
        """It has seen what is so now."""
        seen = self.looks
        until(lambda: self.looks > seen + 1)

    def _tell(self, what: str) -> None:
        self.told.append(what)

    def _look(self) -> None:
        self.looks += 1
        if self.killed:
            raise Ended


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(rendezvous, "time", found)
    return found


def addresses() -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port}" for port in free_ports(3))


def test_a_worker_that_is_started_again_takes_its_place_again(clock: Clock) -> None:
    """The others wait for it as long as for one that has just been started."""
    workers = addresses()
    away = f"worker 1 ({workers[1]}); was there and has ended: worker 1 ({workers[1]})"
    chief, first = Worker(workers, 0, "chief"), Worker(workers, 1, "first")
    until(lambda: chief.waits_for == first.waits_for == f"waiting for worker 2 ({workers[2]})")
    clock.forward += 200
    _another_with_its_number(workers)
    first.again()
    assert not any("was there and has ended" in told for told in first.told), "its own line to the chief stays"
    first.end()
    last = Worker(workers, 2, "last")
    until(lambda: chief.waits_for == f"waiting for {away}")
    until(lambda: last.waits_for == f"waiting for worker 1 ({workers[1]})")
    clock.forward += 200
    chief.again()
    again = Worker(workers, 1, "again")
    for worker in (chief, again, last):
        worker.join()
        assert worker.fault is None
        assert [hello["run"] for hello in worker.heard] == ["chief", "again", "last"]
        assert worker.meeting.connections.drop_ended() == set(), "no line is that of the one before"
    for worker in (chief, again, last):
        worker.meeting.connections.close()


def _another_with_its_number(workers: tuple[str, ...]) -> None:
    """One that calls the chief as worker 1, and does not listen at that worker's address."""
    with socket.create_connection(("127.0.0.1", port_of(workers[0]))) as line, line.makefile("rwb") as file:
        file.write(json.dumps({"index": 1, "workers": workers, "process": "another"}).encode() + b"\n")
        file.flush()
        assert json.loads(file.readline())["index"] == 0
        file.write(b"{}\n")
        file.flush()
        assert file.readline() == b"", "it is sent away"


def test_a_host_that_is_not_known_yet_is_waited_for_and_named(clock: Clock) -> None:
    first, second = free_ports(2)
    workers = (f"localhost:{first}", f"no-such-host.invalid:{second}")
    chief = Worker(workers, 0, "a")
    until(lambda: "not known on this machine" in chief.waits_for)
    assert chief.waits_for == (
        f"waiting for worker 1 (no-such-host.invalid:{second}); not known on this machine: no-such-host.invalid"
    )
    clock.forward += 301
    chief.join(60)
    assert chief.fault is not None
    assert "did not come within 300 s" in str(chief.fault)
    assert "not known on this machine: no-such-host.invalid" in str(chief.fault)


def test_a_worker_that_was_started_again_is_missing_until_its_new_process_calls() -> None:
    """Although the end of its earlier process was not noticed yet."""
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(3):
            ours = socket.create_connection(server.getsockname())
            lines.append((ours, server.accept()[0]))
    contacts = rendezvous.Contacts(0, {"process": "me"}, [1])
    assert contacts.missing() == [1]
    contacts.called_by(1, {"process": "first"}, lines[0][0])
    contacts.reached(1, {"process": "again"}, lines[1][0])
    assert contacts.missing() == [1]
    with pytest.raises(ValueError, match="another process"):
        contacts.called_by(1, {"process": "first"}, lines[2][0])
    contacts.called_by(1, {"process": "again"}, lines[2][0])
    assert (contacts.missing(), contacts.hellos[1]) == ([], {"process": "again"})
    contacts.leave()
    assert [ours.fileno() for ours, _ in lines] == [-1] * 3
    for call in (contacts.reached, contacts.called_by):
        with pytest.raises(ValueError, match="this worker has left"):
            call(1, {"process": "again"}, lines[0][1])
    for _, theirs in lines:
        theirs.close()


def _serve(address: str, hello: dict[str, Any]) -> Callable[[], None]:
    """One that listens at the address of a worker and says this of itself. Returns the function that ends it."""
    server = socket.create_server(("127.0.0.1", port_of(address)))

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as line, line.makefile("rwb") as file:
                    file.readline()
                    file.write(json.dumps(hello).encode() + b"\n")
                    file.flush()
                    file.readline()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()

    return end


@pytest.mark.parametrize(
    ("changed", "message", "hint"),
    [
        ({"index": 2}, "says that it is worker 2", "give each worker its own number in the list of workers"),
        ({"workers": ["x:1"]}, "was started with other workers: x:1", "give every worker the same list of workers"),
        ({"workers": None}, "was started with other workers: ", "give every worker the same list of workers"),
    ],
)  # fmt: skip
def test_what_a_worker_says_of_itself_must_be_that_of_its_address(
    changed: dict[str, Any], message: str, hint: str, clock: Clock
) -> None:
    workers = addresses()
    end = _serve(workers[1], {"index": 1, "workers": list(workers), "process": "p"} | changed)
    chief = Worker(workers, 0, "chief")
    chief.join()
    end()
    assert chief.fault is not None
    assert (chief.fault.kind, chief.fault.message, chief.fault.hint) == (
        "peer",
        f"worker 1 ({workers[1]}) {message}",
        hint,
    )


def test_other_programs_that_call_a_worker_are_sent_away_and_the_wait_goes_on(clock: Clock) -> None:
    workers = addresses()
    chief = Worker(workers, 0, "chief")
    until(lambda: len(chief.told) > 1)
    mine = {"workers": list(workers), "process": "p"}
    all_said: list[Any] = [[], "GET / HTTP/1.1", mine, mine | {"index": 0}, mine | {"index": 3}, mine | {"index": "x"}]
    for said in all_said:
        with socket.create_connection(("127.0.0.1", port_of(workers[0]))) as line, line.makefile("rwb") as file:
            text = said if isinstance(said, str) else json.dumps(said)
            with contextlib.suppress(OSError):
                file.write(text.encode() + b"\n{}\n")
                file.flush()
                assert file.readlines()[1:] == [], "nothing but the message of the chief"
    chief.again()
    assert chief.fault is None
    assert chief.waits_for == f"waiting for worker 1 ({workers[1]}), worker 2 ({workers[2]})"
    chief.end()
