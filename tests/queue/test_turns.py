"""Turns among users, by tickets and devices as a test gives them: who goes first, and who gives way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from gputui.engine.leases import lease, tickets
from gputui.engine.leases.lease import Holder
from gputui.engine.leases.tickets import Ticket
from gputui.engine.queue import fair_share
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.fair_share import FairShare
from gputui.engine.queue.free_devices import CPU

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
    monkeypatch.setattr(fair_share, "time", SimpleNamespace(time=made.time, monotonic=made.monotonic))
    return made


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Turns:
    """The turns of this user, with the tickets of others and the number of devices of each user; `me` is this user."""

    def made(waiting: list[Entry], *others: Ticket, gpus: int = 4, **devices: int) -> FairShare:
        monkeypatch.setattr(lease, "user_name", lambda _uid: "me")
        holders = {f"{user}{at}": Holder(f"{user}{at}", user) for user in devices for at in range(devices[user])}
        holders["stuck"] = Holder("stuck", "me", stuck="its memory is in use")
        monkeypatch.setattr(lease, "holders", lambda: holders)
        monkeypatch.setattr(tickets, "of_others", lambda: list(others))
        share = FairShare()
        share.exchange_tickets(waiting, gpus)
        return share

    return made


def waiting(needs: str = "free:1", since: float = NOW - 50) -> Entry:
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
    monkeypatch.setattr(tickets, "write", written.append)
    monkeypatch.setattr(tickets, "remove", lambda: written.append(None))
    monkeypatch.setattr(tickets, "is_shown", lambda: bool(written and written[-1]))
    share = turns([waiting(needs), waiting("free:1", NOW)], gpus=gpus)
    share.exchange_tickets([waiting(needs), waiting("free:1", NOW)], gpus)
    assert written == [ticket], "it is written once"
    share.exchange_tickets([], gpus)
    share.exchange_tickets([], gpus)
    share.close()
    assert written == [ticket, None], "and removed once"
    share.exchange_tickets([waiting(needs)], gpus)
    share.close()
    assert written[2:] == [Ticket("me", 1, ticket.devices, ticket.since, ticket.on_cpu), None]


def test_a_ticket_that_the_runner_of_another_home_has_removed_is_written_again(turns: Turns) -> None:
    share = turns([waiting()])
    tickets.remove()
    share.exchange_tickets([waiting()], 4)
    assert tickets.is_shown()


@pytest.mark.parametrize(
    ("needs", "free", "number", "first"),
    [
        (1, "a", 1, "bob"),
        (1, "ab", 1, ""),  # enough for both
        (2, "a", 1, ""),  # too few for bob
        (2, "ab", 1, "bob"),
        (2, "abc", 2, "bob"),
        (2, "abcd", 2, ""),
        (1, "", 0, "bob"),  # a place on a shared GPU
        (1, "a", 0, ""),
        (2, "a", 0, "bob"),
    ],
)
def test_free_devices_are_left_to_a_user_for_whom_alone_they_are_enough(
    turns: Turns, needs: int, free: str, number: int, first: str
) -> None:
    share = turns([waiting()], Ticket("bob", 1, needs, NOW - 60))
    assert share.turn_of(free, number) == first


def test_the_devices_are_left_to_another_user_for_a_minute_from_the_last_that_became_free(
    turns: Turns, clock: Clock
) -> None:
    share = turns([waiting()], Ticket("bob", 1, 2, NOW - 60))
    seen = []
    for passed, free in ((0, "ab"), (59.9, "ab"), (60, "ab"), (61, "b"), (62, "bc"), (121.9, "bc"), (122, "bc")):
        clock.passed = passed
        seen.append(share.turn_of(free, 1))
    assert seen == ["bob", "bob", "", "", "bob", "bob", ""]
    nobody = turns([], Ticket("bob", 1, 1, NOW - 60))
    assert nobody.turn_of("a", 1) == nobody.turn_of("", 0) == "", "this user waits for nothing"


@pytest.mark.parametrize(
    ("case", "ticket", "devices", "free", "asked"),
    [
        ("of two runs the last gives way", Ticket("bob", 1, 1, NOW - 10), {"me": 2}, 0, ["late"]),
        ("as many as are lacking", Ticket("bob", 1, 2, NOW - 10), {"me": 2}, 0, ["late", "early"]),
        ("with what is free", Ticket("bob", 1, 2, NOW - 10), {"me": 2}, 1, ["late"]),
        ("none if all together are too few", Ticket("bob", 1, 3, NOW - 10), {"me": 2}, 0, []),
        ("none if enough are free", Ticket("bob", 1, 1, NOW - 10), {"me": 2}, 1, []),
        ("none sooner than after ten seconds", Ticket("bob", 1, 1, NOW - 9.9), {"me": 2}, 0, []),
        ("none to a user with as many", Ticket("bob", 1, 1, NOW - 10), {"me": 2, "bob": 2}, 0, []),
        ("a user with fewer", Ticket("bob", 1, 1, NOW - 10), {"me": 2, "bob": 1}, 0, ["late"]),
        ("a stuck GPU is not counted", Ticket("bob", 1, 1, NOW - 10), {"me": 1, "bob": 1}, 0, []),
        ("no GPU to a user of the CPU", Ticket("bob", 1, 1, NOW - 10, on_cpu=True), {"me": 2}, 0, []),
    ],
)
def test_runs_give_way_to_a_user_with_fewer_devices_the_last_ones_first(
    turns: Turns, case: str, ticket: Ticket, devices: Counter[str], free: int, asked: list[str]
) -> None:
    share = turns([waiting()], ticket, **devices)
    runs = [running("early", 1.0, "a"), running("late", 2.0, "b")]
    assert share.to_give_way(runs, (), free) == dict.fromkeys(asked, "bob waits for it"), case


def test_only_a_run_that_may_give_way_and_has_run_for_half_a_minute_is_asked(turns: Turns) -> None:
    share = turns([waiting()], Ticket("bob", 1, 1, NOW - 10), me=2)
    refusals = [running("a", 1.0, "a", gives_way=False), running("a", 1.0, "a", ago=29.9),
                running("a", 1.0, "a", yields=True)]  # fmt: skip
    assert [share.to_give_way([run], (), 0) for run in refusals] == [{}] * 3
    assert share.to_give_way([running("a", 1.0, "a")], (), 0) == {"a": "bob waits for it"}
    together = [running("a", 1.0, "a"), running("b", 2.0, "a")]
    assert list(share.to_give_way(together, (), 0)) == ["a", "b"], "both leave their GPU"
    assert share.to_give_way([together[0], running("b", 2.0, "a", gives_way=False)], (), 0) == {}
    assert share.to_give_way([running("c", 1.0, CPU)], (), 0) == {}, "the CPU is no GPU"
    on_cpu = turns([waiting(CPU)], Ticket("bob", 1, 1, NOW - 10, on_cpu=True), me=1)
    assert on_cpu.to_give_way([running("c", 1.0, CPU)], (), 0) == {"c": "bob waits for it"}
