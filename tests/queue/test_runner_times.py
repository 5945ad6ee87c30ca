"""The times and limits of the runner, without waiting for them: failures, tries again, hours, and what it reports."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from gputui.engine.notify import notice, sending
from gputui.engine.queue import empty_notice, entries, jobs, queue_settings, runner
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.queue.runner import NOT_FREE
from gputui.engine.runs import Run, events

from tests.support.queued import GPUS, Trainings, add, no_runner, states, waiting


class Clock:
    """The time of the runner."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def time(self) -> float:
        return time.time() + self.passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    no_runner(monkeypatch)
    made = Clock()
    stand_in = SimpleNamespace(monotonic=made.monotonic, time=made.time, strftime=time.strftime, sleep=time.sleep)
    monkeypatch.setattr(runner, "time", stand_in)
    return made


@pytest.mark.parametrize(
    ("ends", "held"),
    [
        ((60.0, 60.0, 60.0), True),
        ((60.0, 60.0, 60.1), False),
        ((60.0, 60.1, 60.0), False),  # a late failure sets the count to 0
        ((60.0, None, 60.0), False),  # and so does a run that ends well
    ],
)
def test_three_failures_each_within_a_minute_of_its_start_hold_the_group(
    clock: Clock, capsys: pytest.CaptureFixture[str], ends: tuple[float | None, ...], held: bool
) -> None:
    made, other = [waiting("broken") for _ in range(5)], waiting("other")
    add(*made, other)
    entry = entries.all_entries()[4]
    with entries.locked():
        entries.write(replace(entry, slurm_job="7"))  # Slurm starts it
    trainings = Trainings((Device(CPU),))
    carried = trainings.runner()
    for seconds in ends:
        carried.tick()
        (name,) = trainings.alive
        trainings.end(name, "ok" if seconds is None else "error", "" if seconds is None else "data")
        ended = Run(made[0].path.parent / name).file("result.json").stat().st_mtime
        begun = next(each for each in entries.all_entries() if each.run == name)
        with entries.locked():
            entries.write(replace(begun, started_at=ended - (seconds or 0.0)))
        carried.tick()
        carried.tick()
    third = made[2].id
    why = f"3 runs of broken failed within a minute of their start: data in {third}"
    shown = {each.run: (each.state, each.hold_reason) for each in entries.all_entries() if each.run == made[3].id}
    assert shown == {made[3].id: ("held", why) if held else ("running", "")}
    assert [line[20:] for line in capsys.readouterr().out.splitlines()] == ([f"broken is held: {why}"] if held else [])
    last = {each.run: each.state for each in entries.all_entries()}
    assert (last[made[4].id], last[other.id] in ("waiting", "running")) == ("waiting", True)


def test_a_start_that_found_its_devices_busy_is_tried_again_after_2_4_8_16_30_and_30_seconds(clock: Clock) -> None:
    run = waiting(visible=[0])
    trainings = Trainings(GPUS, refused={run.id: NOT_FREE})
    add(run)
    carried, tried, reports = trainings.runner(), list[float](), list[object]()
    while len(tried) < 7:
        before = states()[run.id]
        carried.tick()
        if (before, states()[run.id]) == ("waiting", "starting"):
            tried.append(clock.passed)
        elif tried and states()[run.id] == "waiting":
            reports.append((entries.news()["why"], entries.news()["delayed"], entries.all_entries()[0].tries))
        clock.passed += 0.5
    assert [round(after - before) for before, after in itertools.pairwise(tried)] == [2, 4, 8, 16, 30, 30]
    late = ({run.id: "its start was interrupted; it is tried again"}, [run.id], 0)
    assert len(reports) > 50
    assert reports == [late] * len(reports), "such a start is no try"


def test_the_devices_are_looked_at_every_two_seconds_or_after_a_change(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "WALK_SECONDS", 2.0)
    looks: list[float] = []
    trainings = Trainings((replace(GPUS[0], holder="bob's python"),))

    def look() -> Sequence[Device]:
        looks.append(clock.passed)
        return trainings.seen

    monkeypatch.setattr(trainings, "look", look)
    monkeypatch.setattr(entries, "SETTLED_SECONDS", -1e9)
    add(waiting())
    carried = trainings.runner()
    carried.tick()
    carried.tick()  # its own report has changed the folder
    looks.clear()
    for passed in (0.5, 1.9, 2.0, 2.5, 3.9, 4.0):
        clock.passed = passed
        carried.tick()
    assert looks == [2.0, 4.0]
    add(waiting())
    carried.tick()
    assert looks == [2.0, 4.0, 4.0]


def test_no_run_starts_outside_of_the_hours_and_the_reason_names_them(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = [(20, 8)]
    monkeypatch.setattr(queue_settings, "stamp", lambda: float(len(hours)))
    monkeypatch.setattr(queue_settings, "read", lambda: queue_settings.Settings(hours=hours[-1]))
    monkeypatch.setattr(queue_settings.Settings, "is_time", lambda self, hour=None: self.hours == (1, 2))
    run, trainings = waiting(), Trainings()
    add(run)
    carried = trainings.runner()
    carried.tick()
    assert entries.news()["why"] == {run.id: f"{queue_settings.path()} starts runs from 20:00 to 8:00"}
    hours.append((1, 2))
    carried.tick()
    assert trainings.alive == [run.id]


def test_an_entry_whose_folder_was_deleted_leaves_the_queue(clock: Clock) -> None:
    run, other = waiting(), waiting()
    add(run, other)
    shutil.rmtree(run.path)
    trainings = Trainings((Device(CPU),))
    carried = trainings.runner()
    carried.tick()
    assert states() == {other.id: "running"}
    shutil.rmtree(other.path)
    for name in trainings.alive:
        trainings._alive.pop(name).release()
    carried.tick()
    carried.tick()
    assert (states(), carried.tick(), carried.ended) == ({}, False, [])


def test_another_process_that_has_put_a_run_back_meanwhile_decides(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, trainings = waiting(), Trainings((Device(CPU),))
    add(run)
    carried = trainings.runner()
    carried.tick()
    trainings.end(run.id)
    read = entries.read

    def put_back(name: str) -> entries.Entry | None:
        entry = read(name)
        return None if entry is None else replace(entry, started_at=5.0)

    with monkeypatch.context() as patched:
        patched.setattr(entries, "read", put_back)
        carried.tick()
    assert run.id in states()
    assert carried.ended == []
    carried.tick()
    assert [job.path for job in carried.ended] == [run.path]


def test_a_run_that_was_held_or_taken_out_at_the_last_moment_is_not_started(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, trainings = waiting(), Trainings((Device(CPU),))
    add(run)
    read = entries.read
    for now in (lambda entry: replace(entry, state="held"), lambda _: None):
        carried = trainings.runner()
        with monkeypatch.context() as patched:
            patched.setattr(entries, "read", lambda name, now=now: (entry := read(name)) and now(entry))
            patched.setattr(entries, "listing", lambda: entries.Listing((read(run.id),)))  # type: ignore[arg-type]
            carried.tick()
        assert (trainings.begun, states()) == ([], {run.id: "waiting"})
    trainings.runner().tick()
    assert [name for name, _ in trainings.begun] == [run.id]


def test_what_the_runner_reports_is_whole(clock: Clock) -> None:
    first, second = waiting("a", visible="free:2"), waiting("b", visible=[1])
    add(first, second)
    trainings = Trainings((GPUS[0], replace(GPUS[1], holder="used by eve", settles=True), Device(CPU)))
    trainings.runner().tick()
    about = {"kind": "", "total_bytes": None, "instance": None, "run": ""}
    assert entries.news() == {
        "pid": os.getpid(),
        "gpus": 2,
        "devices": [
            about | {"name": "GPU-a", "index": 0, "is_taken": False},
            about | {"name": "GPU-b", "index": 1, "is_taken": False},  # it only settles
            about | {"name": CPU, "index": None, "is_taken": False},
        ],
        "why": {
            first.id: "needs 2 GPUs; GPU 1: used by eve",
            second.id: "needs GPU 1; GPU 1: used by eve",
        },
        "delayed": [],
        "failures": {},
    }


def test_the_notice_of_an_empty_queue_counts_and_names_the_failed_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[notice.Notice] = []

    def send(_targets: object, make: object) -> list[str]:
        made.append(make())  # type: ignore[operator]
        return ["the notice was refused"]

    monkeypatch.setattr(sending, "send_to", send)
    empty_notice.send([])
    assert made == []
    ended = []
    for outcome in ("ok", *["error"] * 6):
        run = waiting()
        run.file("result.json").write_text(json.dumps(asdict(events.Summary(outcome=outcome))))  # type: ignore[arg-type]
        ended.append(jobs.job_of(run.id))
    names = [job.path.name for job in ended]
    for jobs_of, kind, result in (
        (ended[:1], "ok", "the queue is empty: 1 ended"),
        (ended[:6], "failed", f"the queue is empty: 6 ended, 5 of them failed: {', '.join(names[1:6])}"),
        (ended, "failed", f"the queue is empty: 7 ended, 6 of them failed: {', '.join(names[1:6])} ..."),
    ):
        empty_notice.send(jobs_of)
        assert made.pop() == notice.Notice("queue", kind, kind == "failed", result=result)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("the ")[2] for line in lines] == ["notice was refused"] * 3
