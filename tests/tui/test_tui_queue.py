"""The queue on the screens: a run is put in it from the form, waits where all runs are shown, and is moved there."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.leases.lease import NotFree
from gputui.engine.leases.memory_needs import NOT_MEASURED, NotMeasuredError
from gputui.engine.proof import folder, request
from gputui.engine.queue import entries, entry_changes
from gputui.engine.queue.entries import Entry
from gputui.engine.runs import Run, all_runs
from gputui.tui import app, show
from gputui.tui.app import GputuiApp
from gputui.tui.reading import newest_runs, queue_times, run_list
from gputui.tui.reading.queue_places import Queue, Waiting
from gputui.tui.screens.dialogs import Ask
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.screens.starting import new_measurement, resumed_measurement
from gputui.tui.widgets.key_footer import KeyFooter
from textual.pilot import Pilot

from tests.support import queued, recorded
from tests.support.fake_slurm import FakeSlurm
from tests.support.form_pilot import settled
from tests.support.tiny import Tiny, text_of, wait_for


@pytest.fixture(autouse=True)
def no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    queued.no_runner(monkeypatch)


FIRST = "place 1 in the queue, needs the CPU: it starts as soon as that is free"
SECOND = "place 2 in the queue, needs the CPU: r1 quickstart is before it"


async def test_a_run_is_queued_by_its_key_and_from_the_question_about_busy_devices(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.write(home, name="20260921-100000-busy", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    app, said = GputuiApp(), list[str]()
    monkeypatch.setattr(app, "notify", lambda text, **_: said.append(text))  # a message goes after some seconds
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("Q")
        await wait_for(pilot, lambda: len(entries.all_entries()) == 1, 20)
        await wait_for(pilot, lambda: f"queued: quickstart, {FIRST}" in said)
        await pilot.press("r")
        await wait_for(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("w")
        await wait_for(pilot, lambda: f"queued: quickstart, {SECOND}" in said)
    first, second = entries.all_entries()
    assert first.folder.state == second.folder.state == "waiting"
    assert first.folder.file("preset.yaml").exists()


async def test_the_screens_start_a_runner_again_while_runs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    app, starts = GputuiApp(), list[bool]()
    queued.add(queued.waiting())
    monkeypatch.setattr(entries, "ensure_runner", lambda: starts.append(True))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: bool(starts))


async def test_a_start_whose_gpus_are_not_free_says_who_has_them_and_offers_the_queue(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> tuple[Run, Any]:
        raise NotFree("needs 1 GPU; GPU 0: used by bob's python since 14:02")

    monkeypatch.setattr("gputui.engine.process.launch.start", start)
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for key, count in (("c", 0), ("q", 1)):
            await pilot.press("r")
            await wait_for(pilot, lambda: isinstance(app.screen, Ask))
            await wait_for(pilot, "used by bob's python since")
            await pilot.press(key)
            await wait_for(pilot, lambda: not isinstance(app.screen, Ask))
            await settled(pilot)
            if count:
                await wait_for(pilot, lambda: len(entries.all_entries()) == 1)
            assert len(entries.all_entries()) == count


async def test_a_start_whose_memory_is_not_known_says_how_to_measure_it_and_asks_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> tuple[Run, Any]:
        raise NotMeasuredError(NOT_MEASURED)

    monkeypatch.setattr("gputui.engine.process.launch.start", start)
    app, said = GputuiApp(), list[str]()
    monkeypatch.setattr(app, "complain", said.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("r")
        await wait_for(pilot, lambda: said == [f"the run cannot be started: {NOT_MEASURED}"])
        assert not isinstance(app.screen, Ask)


def test_a_resumed_measurement_waits_as_itself_and_a_new_one_gets_a_folder(home: Path) -> None:
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    ended = folder.create(asked)
    file = ended.path / "proof.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "stopped", "started_t": time.time() - 3600}))
    app = GputuiApp()
    resumed = resumed_measurement(app, "the proof", ended, lambda: pytest.fail("it was started"), lambda: asked)
    assert resumed.queue().startswith("place 1 in the queue, needs the CPU: ")
    assert new_measurement(app, "ab", asked).queue().endswith("needs the CPU: ab of quickstart is before it")
    first, second = entries.all_entries()
    assert first.run == ended.id
    assert {proof.id for proof in folder.proofs()} == {first.run, second.run}


def rows(pilot: Pilot[None]) -> list[str]:
    """The names of the runs in the table, in the order of its rows."""
    screen = pilot.app.screen
    assert isinstance(screen, RunsScreen)
    return [name.split("-", 2)[2] for name in screen.shown]


def offered(pilot: Pilot[None]) -> set[str]:
    """The verbs of the queue that the footer offers, by their labels."""
    labels = {key.binding.description for key in pilot.app.screen.query_one(KeyFooter).chosen_keys()}
    return labels & {"Earlier", "Later", "Next", "Hold", "Release", "Take out"}


def three_waiting(home: Path) -> list[Run]:
    """Three waiting runs, and older ones: one that has ended and one that goes on."""
    ended = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=40)
    os.utime(ended.file("preset.yaml"), (recorded.BEGAN - 3600,) * 2)
    recorded.write(home, name="20260921-140000-mlp", gpus=0, seconds=40, outcome=None, engine_pid=os.getpid())
    made = [queued.waiting(name) for name in ("one", "two", "three")]
    queued.add(*made)
    return made


def test_a_running_run_is_found_among_many_that_wait_and_their_files_are_read_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = recorded.write(home, name="20260921-140000-mlp", gpus=0, seconds=40, outcome=None, engine_pid=os.getpid())
    made = [queued.waiting(f"p{number}") for number in range(newest_runs.LOOKED_AT + 1)]
    queued.add(*made)
    read, listing = list[int](), entries.listing

    def counted() -> entries.Listing:
        read.append(1)
        return listing()

    monkeypatch.setattr(entries, "listing", counted)
    watch = run_list.RunningRuns()
    assert [run.id for run in watch.read().running] == [going.id]
    assert GputuiApp().going_on() == [going]
    os.utime(entries.queue_folder(), (1.0, 1.0))  # it has not changed for long
    read.clear()
    assert [len(watch.read().queue.waiting) for _ in range(3)] == [len(made)] * 3
    assert read == [1]
    entry_changes.hold(made[0].id)
    assert watch.read().queue.waiting[made[0].id].held


def test_a_screen_forecasts_again_if_the_queue_changes_or_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    forecasts, clock = list[int](), [100.0]

    def forecast(*_: Any) -> dict[str, float | None]:
        forecasts.append(1)
        return {"one": 60.0, "two": None}

    monkeypatch.setattr(queue_times, "starts_in", forecast)
    monkeypatch.setattr(queue_times, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    times, listed = queue_times.StartTimes(), (Entry("one", 1.0),)
    assert times.starts_in(listed, {}) == {"one": 60, "two": None}
    clock[0] += 4
    assert times.starts_in(listed, {}) == {"one": 56, "two": None}
    clock[0] += 1
    assert times.starts_in(listed, {})["one"] == 60
    assert times.starts_in(listed, {"gpus": 1})["one"] == 60
    assert len(forecasts) == 3
    times.starts_in((*listed,) * 2, {"gpus": 1})
    assert len(forecasts) == 4


async def test_waiting_runs_stand_below_the_running_ones_and_are_moved_held_and_taken_out(home: Path) -> None:
    one, *_ = three_waiting(home)
    entries.write_news({"why": {one.id: "needs a GPU; GPU 0: used by bob's python since 14:02"}, "gpus": 1})
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5 runs")
        await pilot.press("down")  # the running run stands above the queue
        await wait_for(pilot, "place 1: needs a GPU; GPU 0: used by bob's python since 14:02")
        assert rows(pilot) == ["mlp", "one", "two", "three", "cnn"]
        assert offered(pilot) == {"Earlier", "Later", "Next", "Hold", "Take out"}
        await pilot.press("I")
        assert rows(pilot) == ["one", "two", "three", "cnn", "mlp"], "in the order of the queue, however it is sorted"
        await pilot.press("I", "end")
        await wait_for(pilot, lambda: not offered(pilot))
        await pilot.press("K", "N", "H", "home", "down")
        await wait_for(pilot, lambda: offered(pilot))
        await pilot.press("J")
        await wait_for(pilot, lambda: rows(pilot)[1:4] == ["two", "one", "three"])
        assert one.id in text_of(pilot.app), "the cursor stays on the run"
        await pilot.press("down", "N")
        await wait_for(pilot, lambda: rows(pilot)[1:4] == ["three", "two", "one"])
        await pilot.press("down", "down", "K", "K")
        await wait_for(pilot, lambda: rows(pilot)[1:4] == ["one", "three", "two"])
        await pilot.press("H")
        assert "held by you" in await wait_for(pilot, "… held")
        await wait_for(pilot, lambda: "Release" in offered(pilot))
        assert [entry.state for entry in entries.all_entries()] == ["held", "waiting", "waiting"]
        await pilot.press("H")
        await wait_for(pilot, lambda: queued.states()[one.id] == "waiting")
        await pilot.press("d")
        await wait_for(pilot, "waits in the queue; x takes it out")
        for answer, left in (("k", 3), ("x", 2)):  # the key that asks takes it out, too
            await pilot.press("x")
            await wait_for(pilot, "It has not begun, and ends as stopped")
            await pilot.press(answer)
            await wait_for(pilot, lambda: not isinstance(pilot.app.screen, Ask))
            await wait_for(pilot, lambda: len(entries.all_entries()) == left)  # noqa: B023
        await wait_for(pilot, "one is taken out of the queue; u puts it back")
        await wait_for(pilot, lambda: rows(pilot)[1:4] == ["three", "two", "one"])
        assert one.state == "stopped"
        await pilot.press("K")
        await wait_for(pilot, "K (Earlier) has no effect now: this run does not wait in the queue")
        await pilot.press("u")
        await wait_for(pilot, lambda: rows(pilot)[1:4] == ["one", "three", "two"])
        assert one.result is None
        await pilot.press("u")
        await wait_for(pilot, lambda: rows(pilot)[1:4] == ["three", "one", "two"])
        entry_changes.remove(one.id)
        await pilot.press("u")
        await wait_for(pilot, lambda: rows(pilot)[1:3] == ["three", "two"])


async def test_a_run_that_waits_in_slurm_is_stopped_by_its_job_and_not_moved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = FakeSlurm.install(tmp_path / "slurm", monkeypatch)
    run = queued.waiting("one")
    entries.add(run)
    with entries.locked():
        entries.write(replace(entries.all_entries()[0], slurm_job="7"))
    entries.write_news({"why": {run.id: "waits in Slurm as job 7: Resources"}, "gpus": 0})
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "waits in Slurm as job 7: Resources")
        assert "place 1" not in text_of(pilot.app)
        assert offered(pilot) == {"Hold", "Take out"}
        await pilot.press("H")
        await wait_for(pilot, lambda: offered(pilot) == {"Release", "Take out"})
        with entries.locked():  # the job begins on a node
            entries.write(replace(entries.all_entries()[0], state="running"))
        goes_on = recorded.write(tmp_path, name=run.id, gpus=0, seconds=40, outcome=None, engine_pid=os.getpid())
        shutil.copytree(goes_on.path, run.path, dirs_exist_ok=True)
        await wait_for(pilot, "running")
        await pilot.press("x")
        await wait_for(pilot, "keeps no checkpoint")
        await pilot.press("s")
        await wait_for(pilot, lambda: "--batch --signal=URG 7" in slurm.calls("scancel"))
    assert slurm.calls("scontrol") == ["hold 7"]


async def test_waiting_runs_are_listed_filtered_and_said_to_be_held(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are older than the runs that are read at first."""
    monkeypatch.setattr("gputui.tui.screens.runs.screen.FIRST", 1)
    _, two, _ = three_waiting(home)
    late = recorded.write(home, name="20991231-235959-late", gpus=0, seconds=40)
    os.utime(late.file("preset.yaml"), (time.time() + 60,) * 2)
    why = "3 runs of two failed within a minute of their start: train.py:29 in build: ValueError: " + "gone " * 20
    entry_changes.hold(two.id, why)
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: rows(pilot)[:4] == ["one", "two", "three", "late"])
        await pilot.press("slash", *"held", "enter", "down")
        shown = " ".join((await wait_for(pilot, "1 of 6 runs")).split())
        assert f"held: {why[:140]}" in shown
        assert "…" in shown.partition("held: ")[2]


async def test_a_waiting_run_shows_its_place_and_then_its_training(home: Path) -> None:
    one, two, _ = three_waiting(home)
    entries.write_news({"why": {two.id: "needs a GPU; GPU 0 is kept for a run before it"}, "gpus": 1})
    async with Tiny(lambda: LiveScreen(two)).run_test(size=(80, 24), notifications=True) as pilot:
        shown = await wait_for(pilot, "2 of 3")
        for text in ("waiting in the queue", "needs         a GPU", "GPU 0 is kept for a run before it"):
            assert text in shown, text
        await wait_for(pilot, lambda: offered(pilot) == {"Earlier", "Later", "Next", "Hold", "Take out"})
        await pilot.press("N")
        await wait_for(pilot, "1 of 3")
        await pilot.press("H")
        shown = " ".join((await wait_for(pilot, "held by you")).split())
        assert f"It does not start until it is released, in the runs or by gputui queue release {two.name}" in shown
        assert "starts by itself" not in shown
        await pilot.press("x")
        await wait_for(pilot, "Take r2 two out of the queue?")
        await pilot.press("k")
        training = recorded.write(
            home, name="20260921-150000-two", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid()
        )
        for name in ("events.jsonl", "telemetry.jsonl", "status.json"):
            shutil.copy(training.file(name), two.file(name))
        with entries.locked():
            entries.write(replace(entries.all_entries()[0], state="running"))
        shown = await wait_for(pilot, " elapsed")
        assert "waiting in the queue" not in shown
        await wait_for(pilot, lambda: not offered(pilot))
        assert entries.all_entries()[1].run == one.id


async def test_the_key_of_the_live_view_leaves_a_waiting_run_for_the_one_that_trains(home: Path) -> None:
    one, *_ = three_waiting(home)
    going = next(run for run in all_runs() if run.state == "running")
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.open_run(one)
        await wait_for(pilot, "waiting in the queue")
        await pilot.press("f3")
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen) and app.screen.run_folder == going)


async def test_the_header_counts_the_runs_that_train_and_wait(home: Path) -> None:
    three_waiting(home)
    app = GputuiApp()
    async with app.run_test(size=(120, 24)) as pilot:
        await wait_for(pilot, " 1 train, 3 wait ")
        await pilot.resize_terminal(80, 24)
        await wait_for(pilot, " 3 wait ")
        for entry in entries.all_entries():
            entry_changes.remove(entry.run)
        await wait_for(pilot, lambda: " wait " not in text_of(app))


def test_the_header_says_when_the_next_starts_if_there_is_room() -> None:
    queue = Queue({"a": Waiting("a", 1, when="in about 4:10"), "b": Waiting("b", 2)}, 1)
    longest, *_, shortest = queue.words(2)
    assert (longest, shortest) == ("2 train, 2 wait, next in about 4:10", "2 wait")
    assert Queue(begun=2).words(2) == ()


def test_after_the_screens_the_terminal_says_how_many_wait(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = SimpleNamespace(run=lambda: None, going_on=lambda: [], measuring=lambda: [], not_deleted="", return_code=0)
    monkeypatch.setattr(app, "GputuiApp", lambda *_, **__: closed)
    monkeypatch.setattr(show, "need_a_terminal", lambda *_: None)
    monkeypatch.setattr(show, "gc", SimpleNamespace(disable=lambda: None, freeze=lambda: None))
    show.show()
    assert capsys.readouterr().out == ""
    three_waiting(home)
    show.show()
    assert capsys.readouterr().out == "3 jobs wait in the queue: gputui queue shows why\n"


def test_a_run_that_is_queued_again_waits_in_the_list_and_no_longer_after_it_was_taken_out(home: Path) -> None:
    known, run = run_list.RunList(), recorded.write(home, gpus=0, seconds=20)

    def state() -> str:
        return next(entry.state for entry in known.read() if entry.run.id == run.id)

    before = state()
    run.queue_file.parent.mkdir(exist_ok=True)
    run.queue_file.write_text("{}")
    assert (before, state()) == ("ok", "waiting")
    run.queue_file.unlink()
    assert state() == before
