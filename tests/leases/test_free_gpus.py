"""When a GPU is free, may be shared or is given back, and how that is worded: from readings, without a driver."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from gputui.engine.files.places import runs_folder
from gputui.engine.leases import free_gpus, lease, tickets
from gputui.engine.leases.free_gpus import GpuUse, GpuUser, Wish
from gputui.engine.leases.lease import Holder
from gputui.engine.leases.tickets import Ticket
from gputui.engine.options import gpu_choice
from gputui.engine.units import since

MIB, GIB, HOUR = 1024**2, 1024**3, 3600.0
FREE = GpuUse(1, "GPU-1", "A100", 0, 24 * GIB, 0.0, ())
BOB = GpuUser(1, "bob", "python")
EVES = Holder("GPU-1", "eve", 1, what="digits")
STUCK = replace(EVES, stuck="its run has ended")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"memory_used_bytes": GIB - 1, "busy": 0.02}, ""),
        ({"memory_used_bytes": None, "busy": None, "users": None}, ""),
        ({"memory_used_bytes": GIB}, "1.0 GiB of its memory are in use, by processes that are not visible"),
        ({"memory_used_bytes": GIB, "holder": STUCK}, "1.0 GiB of its memory are in use, stuck: its run has ended"),
        ({"memory_used_bytes": GIB - 1, "holder": STUCK}, ""),
        ({"busy": 0.021}, "busy for 2 % of the time"),
        ({"busy": 0.5, "memory_used_bytes": 2 * GIB, "users": (BOB,)}, "used by bob's python"),
        ({"users": (BOB, replace(BOB, pid=2), replace(BOB, pid=3))}, "used by bob's python and 2 more"),
        ({"users": (BOB,), "holder": EVES}, "used by eve's digits"),
        ({"users": (BOB,), "holder": EVES, "fault": "lost"}, "lost"),
    ],
)
def test_a_gpu_is_free_if_nobody_has_it_or_uses_more_than_a_display_does(changes: dict[str, Any], reason: str) -> None:
    assert replace(FREE, **changes).why_not_free() == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory_used_bytes": 16 * GIB, "users": (BOB,), "busy": 1.0}, ""),
        ({"memory_used_bytes": 16 * GIB + 1}, "8.0 GiB are free of the 8.0 GiB needed"),
        ({"memory_used_bytes": 20 * GIB, "users": (BOB,)}, "4.0 GiB are free of the 8.0 GiB needed (bob's python)"),
        ({"memory_used_bytes": 30 * GIB}, "0 B are free of the 8.0 GiB needed"),
        ({"memory_total_bytes": None}, "0 B are free of the 8.0 GiB needed"),
        ({"holder": EVES}, "used by eve's digits"),
        ({"holder": STUCK}, ""),
        ({"fault": "lost", "holder": EVES}, "lost"),
    ],
)
def test_a_run_fits_on_a_gpu_that_has_the_memory_and_is_not_leased(changes: dict[str, Any], reason: str) -> None:
    assert replace(FREE, **changes).why_not_fitting(8 * GIB) == reason


@pytest.mark.parametrize(
    ("seconds", "hours"), [(None, 0), (2 * HOUR - 1, 0), (2 * HOUR, 2), (3 * HOUR - 1, 2), (25 * HOUR, 25)]
)
def test_an_idle_process_is_named_so_from_two_hours_on(seconds: float | None, hours: int) -> None:
    user = replace(BOB, idle_seconds=seconds)
    assert user.idle_hours == hours
    assert str(user) == "bob's python" + (f", idle for {hours} h" if hours else "")


@pytest.mark.usefixtures("not_at_utc")
def test_a_process_is_named_by_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    at = time.mktime((2026, 2, 3, 14, 5, 59, 0, 0, -1))
    monkeypatch.setattr(free_gpus, "since", partial(since, now=at + 60))
    assert str(GpuUser(7, "bob", "python", at, idle_seconds=3 * HOUR)) == "bob's python since 14:05, idle for 3 h"
    assert str(GpuUser(7, "bob")) == "bob's process"
    assert str(GpuUser(7, None, "python", at)) == "process 7 since 14:05"


@pytest.mark.usefixtures("not_at_utc")
@pytest.mark.parametrize(
    ("year", "month", "day", "said"),
    [
        (2026, 2, 3, "since 14:05"),
        (2026, 2, 4, "since Feb 03 14:05"),
        (2026, 3, 3, "since Feb 03 14:05"),
        (2027, 2, 3, "since 2026-02-03 14:05"),
    ],
)
def test_the_begin_of_a_use_has_its_day_if_that_is_not_today(year: int, month: int, day: int, said: str) -> None:
    at = time.mktime((2026, 2, 3, 14, 5, 59, 0, 0, -1))
    assert since(at, time.mktime((year, month, day, 14, 6, 0, 0, 0, -1))) == said


@pytest.mark.usefixtures("not_at_utc")
def test_the_holder_of_a_lease_is_named_by_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    at = time.mktime((2026, 2, 3, 14, 5, 59, 0, 0, -1))
    monkeypatch.setattr(lease, "since", partial(since, now=at + 60))
    assert str(replace(EVES, since=at)) == "eve's digits since 14:05"
    assert str(Holder("GPU-1", "eve")) == "eve"
    assert str(Holder("GPU-1")) == "another process"
    slots = (EVES, replace(EVES, pid=2), replace(EVES, pid=3))
    assert str(replace(EVES, per_gpu=4, sharers=slots)) == "3 of 4 runs: eve's digits and 2 more"
    assert str(replace(EVES, per_gpu=4, sharers=slots[:1])) == "1 of 4 runs: eve's digits"


def test_a_run_joins_runs_of_its_home_with_the_same_number_while_there_is_a_place() -> None:
    me, folder = lease.user_name(os.geteuid()), str(runs_folder() / "a")
    ours = Holder("GPU-1", me, 1, run=folder, per_gpu=3)
    others = [replace(ours, user="eve"), replace(ours, run="/elsewhere/runs/a"), replace(ours, per_gpu=4)]
    shared = {"none": (), "one": (ours,), "two": (ours,) * 2, "full": (ours,) * 3}
    assert {name: replace(ours, sharers=them).can_be_joined(3) for name, them in shared.items()} == {
        "none": False, "one": True, "two": True, "full": False
    }  # fmt: skip
    assert [replace(ours, sharers=(ours, other)).can_be_joined(3) for other in others] == [False] * 3


def test_the_turn_is_of_users_with_fewer_devices_then_of_those_who_wait_longer() -> None:
    ours = Ticket("me", 1, 1, since=100.0)
    kinds = {
        "longer": Ticket("a", 1, 1, 99.0), "as long": Ticket("b", 1, 1, 100.0), "shorter": Ticket("c", 1, 1, 101.0),
        "fewer": Ticket("d", 1, 1, 101.0), "more": Ticket("e", 1, 1, 99.0), "on the CPU": Ticket("f", 1, 1, 99.0, True),
    }  # fmt: skip
    held = {"me": 2, "a": 2, "b": 2, "c": 2, "d": 1, "e": 3}
    before = list(tickets.before(ours, list(kinds.values()), held))
    assert [name for name, ticket in kinds.items() if ticket in before] == ["longer", "fewer"]
    assert list(tickets.before(ours, [kinds["shorter"]], {"me": 1})) == [kinds["shorter"]], "it has none"
    assert list(tickets.before(ours, [kinds["longer"]], {"a": 1})) == [], "we have none"


def test_each_instance_of_a_gpu_in_mig_mode_is_a_gpu_of_its_own() -> None:
    process = {"pid": 7, "user": "bob", "name": "python", "started": 5.0, "memory_used_bytes": 3, "use": 0.5,
               "cpu_seconds": 9.0}  # fmt: skip
    reading = {"index": 3, "uuid": "GPU-3", "name": "A100", "memory_used_bytes": 30, "memory_total_bytes": 40,
               "busy": 0.4, "processes": [process], "missing": ""}  # fmt: skip
    user = GpuUser(7, "bob", "python", 5.0, 3, 0.5, 9.0)
    whole = GpuUse(3, "GPU-3", "A100", 30, 40, 0.4, (user,))
    assert free_gpus.uses_of(reading) == [whole]
    assert free_gpus.uses_of(reading | {"mig": []}) == [replace(whole, fault="in MIG mode without an instance")]
    part = {"uuid": "MIG-a", "memory_used_bytes": 1, "memory_total_bytes": 10, "processes": [], "sm_active": 0.7}
    other = {"uuid": "MIG-b", "memory_used_bytes": 2, "memory_total_bytes": 20, "processes": None}
    assert free_gpus.uses_of(reading | {"mig": [part, other]}) == [
        GpuUse(3, "MIG-a", "A100", 1, 10, 0.7, (), instance=0),
        GpuUse(3, "MIG-b", "A100", 2, 20, None, None, instance=1),
    ]
    lost = free_gpus.uses_of({"index": 3, "mig": [part], "missing": "lost"})
    assert lost == [GpuUse(3, "3", "GPU", fault="lost")]


@pytest.mark.parametrize(("value", "seconds"), [(None, 20.0), ("3.5", 3.5), ("0", 0.0), ("-1", 0.0), ("soon", 20.0)])
def test_the_seconds_of_idleness_are_those_of_the_environment(
    value: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTUI_IDLE_SECONDS", raising=False)
    if value is not None:
        monkeypatch.setenv("GPUTUI_IDLE_SECONDS", value)
    assert free_gpus.idle_seconds() == seconds


@pytest.mark.parametrize(
    ("before", "after", "is_stuck"),
    [(0, 256 * MIB, False), (0, 256 * MIB + 1, True), (GIB, GIB + 256 * MIB, False), (None, GIB, False),
     (0, None, False)],
)  # fmt: skip
def test_a_gpu_is_given_back_if_it_has_no_more_memory_in_use_than_before(
    before: int | None, after: int | None, is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_gpus, "GIVE_BACK_SECONDS", 0.0)
    monkeypatch.setattr(free_gpus, "read", lambda: [replace(FREE, memory_used_bytes=after, users=(BOB,))])
    leases = [*lease.take([lease.CPU], "digits"), *lease.take(["GPU-1"], "digits", {"GPU-1": before})]
    reason = "its run has ended, and 256 MiB of its memory are still in use, by bob's python"
    assert free_gpus.give_back(leases) == ([f"GPU 1 is stuck: {reason}"] if is_stuck else [])
    holders = lease.holders()
    assert {name: who.stuck for name, who in holders.items()} == ({"GPU-1": reason} if is_stuck else {})


def test_a_wish_names_what_is_missing_and_what_can_be_had() -> None:
    choice = gpu_choice.parse("free:2")
    assert choice is not None
    wish = Wish(choice, 0, ("GPU-0", "GPU-1", "GPU-2"))
    busy, other = replace(FREE, index=0, uuid="GPU-0", users=(BOB,)), replace(FREE, index=2, uuid="GPU-2")
    foreign = replace(FREE, index=3, uuid="GPU-3")
    assert wish.missing([busy, FREE, other, foreign]) == ""
    assert wish.missing([busy, FREE, foreign]) == "needs 2 GPUs, and 1 can be had: GPU 0: used by bob's python"
    assert wish.missing([busy, foreign]) == "needs 2 GPUs; GPU 0: used by bob's python"
    shared = gpu_choice.parse("fits:1")
    assert shared is not None
    fits = Wish(shared, 30 * GIB, ("GPU-1",), "predicted from 3 runs")
    assert fits.missing([FREE]) == (
        "needs a GPU with 30.0 GiB free (predicted from 3 runs); GPU 1: 24.0 GiB are free of the 30.0 GiB needed"
    )
