"""How the workers of several machines meet, and who ends meanwhile: in threads of this process, on its loopback."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from gputui.engine.runs.run_cluster import Cluster, port_of
from gputui.engine.trainer.cluster import rendezvous
from gputui.engine.trainer.cluster.rendezvous import Hello, Meeting
from gputui.engine.trainer.common.training_errors import TrainerError

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
        return self.told[-1]

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


def test_a_worker_that_ends_and_does_not_come_again_is_named(clock: Clock) -> None:
    workers = addresses()
    away = f"worker 1 ({workers[1]}); was there and has ended: worker 1 ({workers[1]})"
    chief, first = Worker(workers, 0, "chief"), Worker(workers, 1, "first")
    until(lambda: chief.waits_for == f"waiting for worker 2 ({workers[2]})")
    first.end()
    last = Worker(workers, 2, "last")
    until(lambda: chief.waits_for == f"waiting for {away}")
    clock.forward += 301
    chief.join()
    assert chief.fault is not None
    assert chief.fault.kind == "peer_missing"
    told = f"worker 1 ({workers[1]})"
    assert chief.fault.message == f"{told} did not come within 300 s (a test); was there and has ended: {told}"
    last.end()


def _another_with_its_number(workers: tuple[str, ...]) -> None:
    """One that calls the chief as worker 1, and does not listen at that worker's address."""
    with socket.create_connection(("127.0.0.1", port_of(workers[0]))) as line, line.makefile("rwb") as file:
        file.write(json.dumps({"index": 1, "workers": workers, "process": "another"}).encode() + b"\n")
        file.flush()
        assert json.loads(file.readline())["index"] == 0
        file.write(b"{}\n")
        file.flush()
        assert file.readline() == b"", "it is sent away"


def test_workers_that_were_given_other_lists_both_end_with_the_list_of_the_other(clock: Clock) -> None:
    workers = addresses()
    chief, other = Worker(workers, 0, "chief"), Worker(workers[:2], 1, "other")
    for worker, named, given in ((chief, 1, workers[:2]), (other, 0, workers)):
        worker.join()
        assert worker.fault is not None
        message = f"worker {named} ({workers[named]}) was started with other workers: {', '.join(given)}"
        assert worker.fault.message == message


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
