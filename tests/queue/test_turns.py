"""Turns among users: tickets, who goes first, and which runs give way."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
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
    entries,
    entry_changes,
    forecast,
    gpu_use,
    records,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_devices_Device as Device
from tests.support.queued import GPUS, Trainings, add, no_runner, states, waiting

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


def running(run: str, place: float, *devices: str, gives_way: bool = True, ago: float = 30.0, **more: bool) -> Entry:
    return Entry(run, place, "running", devices=devices, gives_way=gives_way, started_at=NOW - ago, **more)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("needs", "free", "number", "first"),
    [
        (1, "a", 1, "bob"),
        (2, "a", 1, ""),  # too few for bob
        (2, "abcd", 2, ""),
        (1, "", 0, "bob"),  # a place on a shared GPU
        (2, "a", 0, "bob"),
    ],
)
def test_queue_devices_are_left_to_a_user_for_whom_alone_they_are_enough(
    turns: Turns, needs: int, free: str, number: int, first: str
) -> None:
    share = turns([entry()], Ticket("bob", 1, needs, NOW - 60))
    assert share.turn_of(free, number) == first


@pytest.mark.parametrize(
    ("case", "ticket", "devices", "free", "asked"),
    [
        ("of two runs the last gives way", Ticket("bob", 1, 1, NOW - 10), {"me": 2}, 0, ["late"]),
        ("as many as are lacking", Ticket("bob", 1, 2, NOW - 10), {"me": 2}, 0, ["late", "early"]),
        ("none if all together are too few", Ticket("bob", 1, 3, NOW - 10), {"me": 2}, 0, []),
        ("none sooner than after ten seconds", Ticket("bob", 1, 1, NOW - 9.9), {"me": 2}, 0, []),
        ("none to a user with as many", Ticket("bob", 1, 1, NOW - 10), {"me": 2, "bob": 2}, 0, []),
        ("no GPU to a user of the CPU", Ticket("bob", 1, 1, NOW - 10, on_cpu=True), {"me": 2}, 0, []),
    ],
)
def test_runs_give_way_to_a_user_with_fewer_devices_the_last_ones_first(
    turns: Turns, case: str, ticket: Ticket, devices: Counter[str], free: int, asked: list[str]
) -> None:
    share = turns([entry()], ticket, **devices)
    runs = [running("early", 1.0, "a"), running("late", 2.0, "b")]
    assert share.to_give_way(runs, (), free) == dict.fromkeys(asked, "bob waits for it"), case


def test_only_a_run_that_may_give_way_and_has_run_for_half_a_minute_is_asked(turns: Turns) -> None:
    share = turns([entry()], Ticket("bob", 1, 1, NOW - 10), me=2)
    refusals = [running("a", 1.0, "a", gives_way=False), running("a", 1.0, "a", ago=29.9),
                running("a", 1.0, "a", yields=True)]  # fmt: skip
    assert [share.to_give_way([run], (), 0) for run in refusals] == [{}] * 3
    assert share.to_give_way([running("a", 1.0, "a")], (), 0) == {"a": "bob waits for it"}
    together = [running("a", 1.0, "a"), running("b", 2.0, "a")]
    assert list(share.to_give_way(together, (), 0)) == ["a", "b"], "both leave their GPU"
    assert share.to_give_way([together[0], running("b", 2.0, "a", gives_way=False)], (), 0) == {}
    assert share.to_give_way([running("c", 1.0, CPU)], (), 0) == {}, "the CPU is no GPU"
    on_cpu = turns([entry(CPU)], Ticket("bob", 1, 1, NOW - 10, on_cpu=True), me=1)
    assert on_cpu.to_give_way([running("c", 1.0, CPU)], (), 0) == {"c": "bob waits for it"}


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[Ticket]:
    """The tickets of other users, as a test puts them here."""
    shown: list[Ticket] = []
    monkeypatch.setattr(forecast, "LEAST_RUNNING_SECONDS", 0.0)
    monkeypatch.setattr(records, "tickets_of_others", lambda: list(shown))
    return shown


def test_queue_devices_are_left_to_a_user_who_waits_longer_for_a_minute_at_most(
    others: list[Ticket], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, run = Trainings(), waiting(visible="free:2")
    add(run)
    others.append(Ticket("bob", 1, 1, time.time() - 60))
    runner = trainings.runner()
    runner.tick()
    assert states() == {run.id: "waiting"}
    assert entries.news().why[run.id] == "needs 2 GPUs; bob, who has fewer devices or waits longer, goes first"
    others[0] = replace(others[0], since=time.time() + 60)
    runner.tick()
    assert states() == {run.id: "running"}, "it is our turn"
    trainings.end(run.id)
    again = waiting(visible="free:2")
    add(again)
    others[0] = replace(others[0], since=time.time() - 60)
    runner.tick()
    runner.tick()
    assert states() == {again.id: "waiting"}
    monkeypatch.setattr(forecast, "TURN_SECONDS", 0.0)
    runner.tick()
    assert states() == {again.id: "running"}, "the others have had their time"


def test_a_run_gives_way_to_a_user_with_fewer_devices_and_goes_on_later(
    others: list[Ticket], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, _numbers: stopped.append(run.id))
    (mine,) = gpu_use.take([CPU], "mine")
    trainings = Trainings((Device(),))
    gives, keeps = waiting(visible="none", give_way=True, checkpoint="epoch"), waiting(visible="none")
    add(gives, keeps)
    runner = trainings.runner()
    runner.tick()
    others.append(Ticket("bob", 1, 1, time.time() - 60, on_cpu=True))
    runner.tick()
    assert stopped == [gives.id]
    runner.tick()
    assert stopped == [gives.id], "it is asked once"
    log = [line[20:] for line in capsys.readouterr().out.splitlines()]
    assert log == [f"{gives.id} gives way: bob waits for it"]
    trainings.end(gives.id, "stopped")
    mine.release()
    runner.tick()
    assert gives.state == "waiting"
    assert [entry.tries for entry in entries.all_entries() if entry.run == gives.id] == [0]
    others.clear()
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [gives.id], "it goes on before those behind it"
    trainings.end(gives.id)
    for _ in range(3):
        runner.tick()
    others.append(Ticket("bob", 1, 1, time.time() - 60, on_cpu=True))
    (mine,) = gpu_use.take([CPU], "mine")
    runner.tick()
    assert stopped == [gives.id], "the other does not give way"
    mine.release()


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
