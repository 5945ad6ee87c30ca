"""The queue on the screens: a run is put in it from the form, waits where all runs are shown, and is moved there."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.doors.engine import Run, entries
from tests.doors.tui import Ask, GputuiApp, KeyFooter, LiveScreen, RunsScreen
from tests.queue.fake_slurm import FakeSlurm
from tests.support import queued, recorded
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


async def test_a_run_that_waits_in_slurm_is_stopped_by_its_job_and_not_moved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = FakeSlurm.install(tmp_path / "slurm", monkeypatch)
    run = queued.waiting("one")
    entries.add_entry(entries.entry_of(run))
    with entries.locked():
        entries.write(replace(entries.all_entries()[0], slurm_job="7"))
    entries.write_news(entries.News(why={run.id: "waits in Slurm as job 7: Resources"}, gpus=0))
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
        await wait_for(pilot, "▶ 100 %")
        await pilot.press("x")
        await wait_for(pilot, "keeps no checkpoint")
        await pilot.press("s")
        await wait_for(pilot, lambda: "--batch --signal=URG 7" in slurm.calls("scancel"))
    assert slurm.calls("scontrol") == ["hold 7"]


async def test_a_waiting_run_shows_its_place_and_then_its_training(home: Path) -> None:
    one, two, _ = three_waiting(home)
    entries.write_news(entries.News(why={two.id: "needs a GPU; GPU 0 is kept for a run before it"}, gpus=1))
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
        await pilot.press("u")
        await wait_for(pilot, "none of the moved runs waits in the queue any longer")
        assert entries.all_entries()[1].run == one.id
