"""Turns among users: tickets, who goes first, and which runs give way."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.doors.engine import (
    Entry,
    FairShare,
    GpuProcess,
    Holder,
    Process,
    Ticket,
    entry_changes,
    forecast,
    records,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import queue_devices_CPU as CPU
from tests.support.queued import GPUS, Trainings, add, no_runner, waiting

Turns = Callable[..., FairShare]
NOW = 1_000_000.0


class Clock:
    """The time of the module under test."""

    def __init__(self) -> None:
        self.passed = 0.0

    def time(self) -> float:
        return NOW + self.passed

    def monotonic(self) -> float:
        return 5_000.0 + self.passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(forecast, "time", SimpleNamespace(time=made.time, monotonic=made.monotonic))
    return made


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Turns:
    """The turns of this user, with the tickets of others and the number of devices of each user; `me` is this user."""

    def made(waiting: list[Entry], *others: Ticket, gpus: int = 4, **devices: int) -> FairShare:
        monkeypatch.setattr(records, "user_name", lambda _uid: "me")
        holders = {f"{user}{at}": Holder(f"{user}{at}", user) for user in devices for at in range(devices[user])}
        holders["stuck"] = Holder("stuck", "me", stuck="its memory is in use")
        monkeypatch.setattr(records, "holders", lambda: holders)
        monkeypatch.setattr(records, "tickets_of_others", lambda: list(others))
        share = FairShare()
        share.exchange_tickets(waiting, gpus)
        return share

    return made


def entry(needs: str = "free:1", since: float = NOW - 50) -> Entry:
    return Entry("run", 1.0, needs=needs, queued_at=since)


@pytest.mark.parametrize(
    ("needs", "gpus", "ticket"),
    [
        ("free:2", 4, Ticket("me", 2, 2, NOW - 50, on_cpu=False)),
        ("all", 4, Ticket("me", 2, 4, NOW - 50, on_cpu=False)),
        (CPU, 4, Ticket("me", 2, 1, NOW - 50, on_cpu=True)),
        ("free:2", 0, Ticket("me", 2, 1, NOW - 50, on_cpu=True)),
    ],
)
def test_the_ticket_of_a_user_is_that_of_the_first_waiting_run(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, needs: str, gpus: int, ticket: Ticket
) -> None:
    written: list[Ticket | None] = []
    monkeypatch.setattr(records, "write_ticket", written.append)
    monkeypatch.setattr(records, "remove_ticket", lambda: written.append(None))
    monkeypatch.setattr(records, "has_ticket", lambda: bool(written and written[-1]))
    share = turns([entry(needs), entry("free:1", NOW)], gpus=gpus)
    share.exchange_tickets([entry(needs), entry("free:1", NOW)], gpus)
    assert written == [ticket], "it is written once"
    share.exchange_tickets([], gpus)
    share.exchange_tickets([], gpus)
    share.close()
    assert written == [ticket, None], "and removed once"
    share.exchange_tickets([entry(needs)], gpus)
    share.close()
    assert written[2:] == [Ticket("me", 1, ticket.devices, ticket.since, ticket.on_cpu), None]


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def test_a_run_gives_way_to_a_process_of_another_program_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "LEAST_RUNNING_SECONDS", 0.0)
    stopped: list[str] = []
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, _numbers: stopped.append(run.id))
    trainings, run = Trainings(), waiting(visible="free:1", give_way=True)
    add(run)
    runner = trainings.runner()
    runner.tick()
    run.file("status.json").write_text(json.dumps(Process.current().as_fields("engine") | Place.here().as_fields()))
    child = subprocess.Popen(["sleep", "600"])
    try:
        trainings.seen = (replace(GPUS[0], strangers=(GpuProcess(child.pid, "me", "python"),)), GPUS[1])
        runner.tick()
        assert not stopped, "its own processes"
        trainings.seen = (replace(GPUS[0], strangers=(GpuProcess(1, "bob", "python"),)), GPUS[1])
        runner.tick()
        assert stopped == [run.id]
    finally:
        child.kill()
        child.wait()


def test_a_held_run_asks_nothing_of_other_users() -> None:
    trainings = Trainings(tuple(replace(gpu, holder="bob's python") for gpu in GPUS))
    held, first = waiting(visible="free:2"), waiting(visible="free:1")
    add(held, first)
    entry_changes.hold(held.id)
    trainings.runner().tick()
    (path,) = records.folder().glob("ticket.*.json")
    ticket = json.loads(path.read_text())
    assert (ticket["entries"], ticket["devices"]) == (1, 1)


@pytest.mark.needs("root")
def test_a_ticket_counts_while_its_owner_s_runner_is_alive() -> None:
    process = subprocess.Popen(["sleep", "600"])
    path = records.folder() / "ticket.65534.json"
    about = {"entries": 2, "devices": 1, "since": 1.0, "on_cpu": False}
    path.write_text(json.dumps(about | Process.of(process.pid).as_fields() | Place.here().as_fields()))
    assert records.tickets_of_others() == [], "it belongs to another user than the one in its name"
    os.chown(path, 65534, 65534)
    (theirs,) = records.tickets_of_others()
    assert (theirs.entries, theirs.devices, theirs.since) == (2, 1, 1.0)
    before = os.umask(0o077)
    records.write_ticket(Ticket("me", 1, 1, 2.0))
    os.umask(before)
    assert len(records.tickets_of_others()) == 1, "one's own is not another's"
    assert (records.folder() / f"ticket.{os.geteuid()}.json").stat().st_mode & 0o777 == 0o644, "others can read it"
    process.kill()
    process.wait()
    assert records.tickets_of_others() == []
