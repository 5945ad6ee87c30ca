"""A run as it is followed while it goes on, without a process: events in their order, its end, and its workers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import writing
from gputui.engine.files.places import proofs_folder
from gputui.engine.job import worker_readings
from gputui.engine.process import launch, resuming
from gputui.engine.queue import entries, interrupted_sweeps
from gputui.engine.queue.entries import Entry
from gputui.engine.runs import Run, event_reading, part_of_sweep, run_cluster
from gputui.engine.runs.event_reading import Follower
from gputui.engine.runs.events import EVENTS_FILE, TELEMETRY_FILE, Event, Started, Warn, WorkerReadings
from gputui.engine.runs.liveness import Liveness
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system.identity import Place


class Followed:
    """A run whose processes a test decides, with what a follower sees of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = runs.create("one", "schema: 1\n")
        self.folder = self.run.path  # where it is now
        self.now = Liveness(engine=True, trainer=True)
        self.t = 1_800_000_000.0
        monkeypatch.setattr(Run, "liveness", property(lambda _run: self.now))
        monkeypatch.setattr("gputui.engine.runs.run.STARTING_SECONDS", 0.0)
        self.follower = Follower(self.run)

    def wrote(self, name: str, kind: str, t: float, **fields: object) -> None:
        line = json.dumps({"t": self.t + t, "type": kind, "run": self.run.id} | fields)
        with (self.folder / name).open("a") as stream:
            stream.write(line + "\n")

    def phase(self, name: str, t: float, phase: str) -> None:
        self.wrote(name, "phase", t, phase=phase, detail="")

    def finished(self, t: float, outcome: str) -> None:
        self.wrote(EVENTS_FILE, "finished", t, outcome=outcome, summary={"outcome": outcome})

    def started(self, t: float) -> None:
        figures = dict.fromkeys(
            ("pid", "replicas", "global_batch_size", "steps_per_epoch", "epochs", "steps", "train_samples",
             "validation_samples"), 1,
        )  # fmt: skip
        self.wrote(EVENTS_FILE, "started", t, versions={}, devices=[], options={}, actual={}, **figures)

    def poll(self) -> list[str]:
        return [getattr(event, "phase", "") or event.type for event in self.follower.poll()]


@pytest.fixture
def followed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(monkeypatch)


def test_events_of_both_files_come_in_the_order_of_time_and_the_end_last(followed: Followed) -> None:
    followed.phase(EVENTS_FILE, 3.0, "training")
    followed.phase(TELEMETRY_FILE, 2.0, "compiling")
    followed.finished(4.0, "ok")
    assert followed.poll() == ["compiling", "training"], "the engine is alive"
    assert (followed.follower.ended, followed.follower.outcome) == (False, "")
    followed.now = Liveness(trainer=True)
    assert (followed.poll(), followed.follower.ended) == ([], False)
    followed.now = Liveness()
    followed.phase(TELEMETRY_FILE, 5.0, "ended")
    assert (followed.poll(), followed.follower.ended) == (["ended"], False), "there may be more"
    assert (followed.poll(), followed.follower.ended, followed.follower.outcome) == (["finished"], True, "ok")


def test_a_resumed_run_ends_with_its_last_result_only(followed: Followed) -> None:
    followed.finished(1.0, "stopped")
    followed.started(2.0)
    assert followed.poll() == ["started"]
    followed.now = Liveness()
    followed.run.file("result.json").write_text('{"outcome": "oom"}')
    assert followed.poll() == ["finished"]
    assert followed.follower.outcome == "oom", "that of before does not count"


def test_a_run_that_waits_in_the_queue_has_not_ended(followed: Followed) -> None:
    followed.now = Liveness()
    followed.finished(1.0, "stopped")
    entry = followed.run.queue_file
    entry.parent.mkdir(parents=True)
    for state in ("waiting", "held", "starting"):
        entry.write_text(json.dumps({"state": state}))
        assert (followed.poll(), followed.poll(), followed.follower.ended) == ([], [], False), state
    entry.unlink()
    assert (followed.poll(), followed.follower.outcome) == (["finished"], "stopped")


def test_a_run_that_is_gone_without_a_result_has_crashed(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.run.file("engine.log").write_text("x\n last words \n\n")
    followed.now = Liveness()
    for full, message in (("", "the run ended without a result: its engine is gone"), ("no room", "no room")):
        monkeypatch.setattr(writing, "try_writing", lambda _folder, full=full: full)
        monkeypatch.setattr(event_reading, "SILENT_SECONDS", 0.0)
        follower = Follower(followed.run)
        (last,) = follower.poll()
        assert (follower.outcome, vars(last)["summary"]) == ("crashed", {
            "outcome": "crashed",
            "error": {"kind": "crash", "message": message, "hint": "the last line of engine.log: last words"},
        })  # fmt: skip


def test_a_damaged_file_and_a_silent_disk_are_told_once(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(event_reading, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 7.0))
    monkeypatch.setattr(writing, "try_writing", lambda _folder: "no room")
    followed.follower = Follower(followed.run)
    with followed.run.file(EVENTS_FILE).open("a") as stream:
        stream.write("broken\n")
    (warning,) = followed.follower.poll()
    assert isinstance(warning, Warn)
    assert (warning.kind, warning.message, warning.t, warning.run) == (
        "damaged_file", "line 1 of events.jsonl is damaged, left out", 7.0, followed.run.id
    )  # fmt: skip
    assert followed.follower.poll() == []
    now[0] = 103.0
    (warning,) = followed.follower.poll()
    assert isinstance(warning, Warn)
    waits = "no room: the training goes on, and its events wait in memory"
    assert (warning.kind, warning.message) == ("disk", waits)
    now[0], followed.now = 110.0, Liveness(engine=True)
    (warning,) = followed.follower.poll()
    assert isinstance(warning, Warn)
    assert warning.message == (
        "no room: the training has ended, and its result waits for room; it is given up after two minutes"
    )
    followed.now = Liveness(engine=True, host="other")
    now[0] = 120.0
    (warning,) = followed.follower.poll()
    assert isinstance(warning, Warn)
    assert warning.message == waits, "of another machine nobody knows its trainer"


def test_all_events_are_yielded_until_the_end(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            followed.now = Liveness()
            followed.run.file("result.json").write_text('{"outcome": "ok"}')

    monkeypatch.setattr(event_reading, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0, time=lambda: 1.0))
    followed.phase(EVENTS_FILE, 1.0, "training")
    assert [event.type for event in event_reading.follow(followed.run, 0.5)] == ["phase", "finished"]
    assert slept == [0.5, 0.5]


# ---- the workers of a training -------------------------------------------------------------------


class Waits:
    """The event that ends the thread of the workers: its waits pass the time, and act."""

    def __init__(self, now: list[float], acts: dict[int, Any], last: int) -> None:
        self._now, self._acts, self._last, self.number = now, acts, last, 0

    def wait(self, seconds: float) -> bool:
        assert seconds == 1.0
        self.number += 1
        self._now[0] += seconds
        self._acts.get(self.number, lambda: None)()
        return self.number >= self._last

    def set(self) -> None: ...


def test_the_chief_tells_the_figures_every_ten_seconds_after_a_change_and_at_the_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told, known = [100.0], list[tuple[float, Any]](), [False]
    monkeypatch.setattr(worker_readings, "time", SimpleNamespace(monotonic=lambda: now[0]))
    chief = runs.create("big", "", cluster=Cluster(("a:1", "b:1"), 0, ""))

    class OneWorker:
        def __init__(self, member: Any, replicas: int) -> None:
            self.member = member
            assert replicas == 3

        def update(self) -> None: ...

        def figures(self) -> dict[str, Any]:
            return {"index": self.member["index"]} | ({"input_wait": 0.1} if known[0] else {"missing": "yet"})

    members = [
        {"index": at, "address": "a:1", "host": "a", "run": "x", "folder": "/x", "replicas": at + 1, "gpus": []}
        for at in range(2)
    ]
    started = Started(
        pid=1, versions={}, devices=[], options={}, actual={}, replicas=3, global_batch_size=1, steps_per_epoch=1,
        epochs=1, steps=1, train_samples=1, validation_samples=0, workers=members,
    )  # fmt: skip

    def tell(event: Event) -> None:
        assert isinstance(event, WorkerReadings)
        told.append((now[0] - 100, ["missing" in worker for worker in event.workers]))

    from gputui.engine.runs.parsing import EventWriter

    monkeypatch.setattr(worker_readings, "Worker", OneWorker)
    workers = worker_readings.Workers(chief, tell)
    writer = EventWriter(chief.file(EVENTS_FILE), chief.id)

    def start_again() -> None:
        writer.emit(replace(started, workers=members[:1]))
        writer.emit(started)

    acts = {
        2: lambda: writer.emit(replace(started, workers=())),
        3: start_again,
        6: lambda: known.__setitem__(0, True),
    }
    workers._done = Waits(now, acts, 20)  # type: ignore[assignment]
    workers.run()
    yet, there = [True, True], [False, False]
    assert told == [(4, yet), (6, there), (16, there), (20, there)]
    other = worker_readings.Workers(runs.create("big", "", cluster=Cluster(("a:1", "b:1"), 1, "")), tell)
    alone = worker_readings.Workers(runs.create("big", ""), tell)
    told.clear()
    for each in (other, alone):
        each._done = Waits(now, {}, 2)  # type: ignore[assignment]
        each.run()
        assert each._done.number == 0  # type: ignore[attr-defined]
    assert told == []


# ---- runs that go on -----------------------------------------------------------------------------


def test_a_run_that_may_be_alive_elsewhere_is_watched_until_its_heartbeat_stops_or_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = presets.resolve("quickstart", ["epochs=3"])
    run = launch.create(launch.settle(preset, Path.cwd()))
    run.file("result.json").write_text('{"outcome": "stopped"}')
    looks, told, slept = [0], list[str](), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        looks[0] += 1

    monkeypatch.setattr(resuming, "time", SimpleNamespace(sleep=sleep))

    alive, goes_on = True, False
    monkeypatch.setattr(Run, "liveness", property(lambda _: Liveness(engine=alive and looks[0] < 3, host="box")))
    monkeypatch.setattr(Run, "status", property(lambda _: {"heartbeat": looks[0] if goes_on else 7}))
    assert resuming.of_preset(preset, told.append) == run
    assert told == [f"{run.name} was running on box: waiting until its heartbeat goes on, for at most a minute"]
    assert slept == [0.2] * 3
    looks[0], goes_on = 0, True
    assert resuming.of_preset(preset, told.append) is None
    assert (len(told), slept) == (2, [0.2] * 4)


def test_a_sweep_that_a_restart_of_this_machine_has_ended_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Place.here()
    listed = []
    for number, (state, place) in enumerate(
        [
            ("running", replace(here, boot_id="before")), ("running", here), ("done", replace(here, boot_id="before")),
            ("running", replace(here, boot_id="before", host="other")), ("running", replace(here, boot_id="before")),
        ]
    ):  # fmt: skip
        run = runs.create(f"t{number}", "schema: 1\n", more={
            part_of_sweep.FILE: part_of_sweep.content(f"sweep-{number}", 3, {"train.epochs": 2}, 5)
        })  # fmt: skip
        folder = proofs_folder() / f"sweep-{number}"
        folder.mkdir(parents=True)
        (folder / "proof.json").write_text(json.dumps({"state": state} | place.as_fields()))
        listed.append(Entry(run.id, float(number)))
    other = runs.create("t4b", "schema: 1\n", more={part_of_sweep.FILE: part_of_sweep.content("sweep-4", None, {}, 0)})
    alone = runs.create("alone", "schema: 1\n")
    listed += [Entry(other.id, 9.0), Entry(alone.id, 10.0)]
    assert interrupted_sweeps.interrupted(listed) == {
        proofs_folder() / "sweep-0": listed[0].run, proofs_folder() / "sweep-4": listed[4].run
    }  # fmt: skip
    trial = Run(runs.runs_folder() / listed[0].run)
    assert (part_of_sweep.sweep_of(trial), part_of_sweep.pause_after(trial), part_of_sweep.changes(trial)) == (
        "sweep-0", 3, {"train.epochs": 2}
    )  # fmt: skip
    part_of_sweep.set_pause(trial, None)
    assert (part_of_sweep.sweep_of(trial), part_of_sweep.pause_after(trial)) == ("sweep-0", None)
    assert (part_of_sweep.sweep_of(alone), part_of_sweep.pause_after(alone), part_of_sweep.changes(alone)) == (
        "", None, {}
    )  # fmt: skip
    assert (entries.all_entries(), run_cluster.members(alone)) == ((), ())
