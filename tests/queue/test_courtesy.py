"""Turns among users: tickets, runs that give way, and the settings of one's own queue."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine.leases import lease, tickets
from gputui.engine.leases.free_gpus import GpuUser
from gputui.engine.leases.tickets import Ticket
from gputui.engine.queue import entries, entry_changes, fair_share, queue_settings
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.system.identity import Place, Process

from tests.support.fakenvml import FakeNvml
from tests.support.queued import GPUS, Trainings, add, no_runner, states, waiting

pytest_plugins = ("tests.support.fakenvml.fixture",)


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    monkeypatch.setattr(fair_share, "LEAST_RUNNING_SECONDS", 0.0)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[Ticket]:
    """The tickets of other users, as a test puts them here."""
    shown: list[Ticket] = []
    monkeypatch.setattr(tickets, "of_others", lambda: list(shown))
    return shown


def test_free_devices_are_left_to_a_user_who_waits_longer_for_a_minute_at_most(
    others: list[Ticket], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, run = Trainings(), waiting(visible="free:2")
    add(run)
    others.append(Ticket("bob", 1, 1, time.time() - 60))
    runner = trainings.runner()
    runner.tick()
    assert states() == {run.id: "waiting"}
    assert entries.news()["why"][run.id] == "needs 2 GPUs; bob, who has fewer devices or waits longer, goes first"
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
    monkeypatch.setattr(fair_share, "TURN_SECONDS", 0.0)
    runner.tick()
    assert states() == {again.id: "running"}, "the others have had their time"


def test_a_run_gives_way_to_a_user_with_fewer_devices_and_goes_on_later(
    others: list[Ticket], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, _numbers: stopped.append(run.id))
    (mine,) = lease.take([CPU], "mine")
    trainings = Trainings((Device(CPU),))
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
    (mine,) = lease.take([CPU], "mine")
    runner.tick()
    assert stopped == [gives.id], "the other does not give way"
    mine.release()


@pytest.mark.parametrize("both", [True, False])
def test_runs_that_share_a_gpu_give_way_together_or_not_at_all(
    both: bool, others: list[Ticket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is free for another user only if both have left it."""
    stopped: list[str] = []
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, _numbers: stopped.append(run.id))
    (mine,) = lease.take(["GPU-a"], "mine")
    trainings = Trainings(GPUS[:1])
    made = [waiting(per_gpu=2, give_way=able, checkpoint="epoch") for able in (True, both)]
    add(*made)
    runner = trainings.runner()
    runner.tick()
    runner.tick()
    assert len(trainings.alive) == 2
    others.append(Ticket("bob", 1, 1, time.time() - 60))
    runner.tick()
    assert sorted(stopped) == (sorted(run.id for run in made) if both else [])
    mine.release()


def test_a_run_gives_way_to_a_process_of_another_program_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, _numbers: stopped.append(run.id))
    trainings, run = Trainings(), waiting(visible="free:1", give_way=True)
    add(run)
    runner = trainings.runner()
    runner.tick()
    run.file("status.json").write_text(json.dumps(Process.current().as_fields("engine") | Place.here().as_fields()))
    child = subprocess.Popen(["sleep", "600"])
    try:
        trainings.seen = (replace(GPUS[0], users=(GpuUser(child.pid, "me", "python"),)), GPUS[1])
        runner.tick()
        assert not stopped, "its own processes"
        trainings.seen = (replace(GPUS[0], users=(GpuUser(1, "bob", "python"),)), GPUS[1])
        runner.tick()
        assert stopped == [run.id]
    finally:
        child.kill()
        child.wait()


LOOKS = """
import json, sys, time
from gputui.engine.queue.free_devices import DeviceReader
look = DeviceReader()
look.idle_seconds = 1.0
first = look()
time.sleep(1.1)
print(json.dumps([[[str(each), each.holder, each.shut] for each in seen] for seen in (first, look())]))
"""


def test_a_gpu_is_free_after_it_was_so_for_long_enough_and_not_if_it_is_leased(nvml: FakeNvml, tmp_path: Path) -> None:
    (leased,) = lease.take(["GPU-0000-1"], "digits")
    first, later = nvml.run(LOOKS, f"gpus=3 use={tmp_path / 'use'}")
    names = [name for name, _, _ in first]
    assert names == ["GPU 0", "GPU 1", "GPU 2", "the CPU"]
    assert [holder for _, holder, _ in first][0::2] == ["must stay idle for 1 s first"] * 2
    assert [bool(holder) for _, holder, _ in later] == [False, True, False, False], later
    assert [bool(shut) for _, _, shut in later] == [False, True, False, False]
    leased.release()


def test_the_queue_starts_on_a_gpu_that_draws_the_screen_and_gives_way_to_no_such_program(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    """By the readings of the driver, with X's process on the GPU."""
    program = LOOKS.replace("each.shut", "len(each.users)")
    display = subprocess.Popen(["sleep", "600"])
    try:
        for kind, is_used in (("graphics", 0), ("procs", 1)):
            gpu, _ = nvml.run(program, f"use={tmp_path / 'use'} {kind}={display.pid}")[1]
            assert (bool(gpu[1]), gpu[2]) == (is_used, is_used), (kind, gpu)
    finally:
        display.kill()
        display.wait()


@pytest.mark.needs("root")
def test_a_ticket_counts_while_its_owner_s_runner_is_alive() -> None:
    process = subprocess.Popen(["sleep", "600"])
    path = lease.folder() / "ticket.65534.json"
    about = {"entries": 2, "devices": 1, "since": 1.0, "on_cpu": False}
    path.write_text(json.dumps(about | Process.of(process.pid).as_fields() | Place.here().as_fields()))
    assert tickets.of_others() == [], "it belongs to another user than the one in its name"
    os.chown(path, 65534, 65534)
    (theirs,) = tickets.of_others()
    assert (theirs.entries, theirs.devices, theirs.since) == (2, 1, 1.0)
    tickets.write(Ticket("me", 1, 1, 2.0))
    assert len(tickets.of_others()) == 1, "one's own is not another's"
    process.kill()
    process.wait()
    assert tickets.of_others() == []


def test_the_settings_choose_gpus_their_number_and_the_hours() -> None:
    file = queue_settings.path()
    file.parent.mkdir(parents=True)
    file.write_text("gpus: [1, 0]\nmost: 1\n")
    trainings, made = Trainings(), [waiting(f"p{number}") for number in range(2)]
    add(*made)
    runner = trainings.runner()
    runner.tick()
    assert trainings.begun == [(made[0].id, ("GPU-b",))]
    assert entries.news()["why"][made[1].id] == f"needs a GPU; {file} allows 1 at once"
    file.write_text("never: [0, GPU-b]\n")
    os.utime(file, (1, 1))
    trainings.end(made[0].id)
    runner.tick()
    assert entries.news()["why"][made[1].id] == f"needs a GPU; {file} leaves too few to the queue"
    file.write_text('hours: "20-8"\nmost: many\nnever: {}\nidle: 3\nidle_seconds: 0\n')
    read = queue_settings.read()
    assert [read.is_time(hour) for hour in (20, 23, 0, 7, 8, 19)] == [True, True, True, True, False, False]
    assert read.idle_seconds == 0
    assert [line.removeprefix(str(file)) for line in read.faults] == [
        ":2: most takes a number from 1, not 'many'",
        ":3: never takes a list of numbers or UUIDs of GPUs, not {}",
        ":4: idle is no setting; there are gpus, never, most, hours, idle_seconds, engine, sbatch",
    ]
    file.write_text("gpus: [")
    assert len(queue_settings.read().faults) == 1
