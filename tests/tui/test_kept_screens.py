"""Screens that were opened before are there at once, as they were left, and rest while they are hidden."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.base.themes import THEMES
from gputui.tui.screens import base
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.upstream import busy_mark
from gputui.tui.upstream.busy_mark import BusyMark, mark
from textual.pilot import Pilot
from textual.screen import Screen

from tests.support import recorded
from tests.support.form_pilot import opened
from tests.support.tiny import text_of, wait_for


async def to(pilot: Pilot[Any], key: str, kind: type[Screen[Any]]) -> Any:
    await pilot.press(key)
    await wait_for(pilot, lambda: type(pilot.app.screen) is kind)
    return pilot.app.screen


def read_by(live: LiveScreen) -> list[object]:
    """The threads that read for this screen."""
    return [each for each in live.app.workers if each.node is live and each.group == "reading" and each.is_running]


def shows(app: GputuiApp, run: Run) -> bool:
    return isinstance(app.screen, LiveScreen) and app.screen.run_folder == run


async def test_a_screen_rests_while_it_is_hidden_and_then_catches_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "STALE_SECONDS", 0.0)
    run = recorded.write(home, gpus=1, seconds=100, outcome=None, engine_pid=os.getpid())
    async with opened((120, 40)) as pilot:
        live = await to(pilot, "f3", LiveScreen)
        await wait_for(pilot, "throughput")
        chart = await to(pilot, "enter", ChartScreen)
        assert read_by(live), "the chart shows its readings"
        await to(pilot, "f2", type(pilot.app.screen_stack[0]))
        await wait_for(pilot, lambda: not read_by(live))
        drawn: list[object] = []
        with monkeypatch.context() as counting:
            counting.setattr(LiveScreen, "charts", lambda *given: drawn.append(given))
            live.latest = live.latest
            await pilot.pause()
        assert drawn == [], "neither the hidden live view nor its hidden chart draws anything"

        last = json.loads(run.file("events.jsonl").read_text().splitlines()[-1])
        with run.file("events.jsonl").open("a") as stream:
            stream.write(json.dumps(last | {"type": "progress", "step": 77_777, "steps": 99_999, "epochs": 9}) + "\n")
        goes_on, poll = threading.Event(), live.reader.poll
        monkeypatch.setattr(live.reader, "poll", lambda: goes_on.wait(60) and poll())
        assert await to(pilot, "f3", LiveScreen) is live
        shown = await wait_for(pilot, "catching up")
        assert "throughput" in shown
        assert "77" not in shown.split("\n")[1]
        goes_on.set()
        await wait_for(pilot, "77,777")
        assert "catching up" not in text_of(pilot.app)
        assert await to(pilot, "enter", ChartScreen) is chart


async def test_few_runs_stay_built_and_each_is_open_once(home: Path) -> None:
    runs = [recorded.write(home, gpus=0, seconds=20, name=f"20260921-10000{number}-cnn") for number in range(10)]
    async with opened((120, 40)) as pilot:
        app = pilot.app
        assert isinstance(app, GputuiApp)
        live = await to(pilot, "f3", LiveScreen)
        table = await to(pilot, "f4", RunsScreen)
        await wait_for(pilot, lambda: table.current)
        assert await to(pilot, "enter", LiveScreen) is live
        assert [type(each) for each in app.screen_stack[1:]] == [RunsScreen, LiveScreen]
        assert await to(pilot, "escape", RunsScreen) is table
        for run in runs:
            app.open_run(run)
            await wait_for(pilot, partial(shows, app, run))
        built = [each for each in app._registry if isinstance(each, LiveScreen)]
        assert {each.run_folder.id for each in built} == {run.id for run in runs[-LiveScreen.KEPT :]}
        app.open_run(runs[-1])
        await pilot.pause()
        assert [type(each) for each in app.screen_stack[1:]] == [RunsScreen, LiveScreen]


async def test_a_hidden_screen_takes_the_theme_and_the_size_when_it_is_shown(home: Path) -> None:
    recorded.write(home, gpus=1, seconds=100)
    async with opened((120, 40)) as pilot:
        live = await to(pilot, "f3", LiveScreen)
        await wait_for(pilot, "throughput")
        await to(pilot, "f2", type(pilot.app.screen_stack[0]))
        before = live.styles.background
        pilot.app.theme = next(theme.name for theme in THEMES if not theme.dark)
        await pilot.resize_terminal(200, 60)
        await to(pilot, "f3", LiveScreen)
        await wait_for(pilot, lambda: live.size == (200, 60))
        await wait_for(pilot, lambda: max(map(len, text_of(pilot.app).rstrip().split("\n"))) == 200)
        assert live.styles.background not in (before, None)
        assert live.styles.background == pilot.app.screen_stack[0].styles.background


def test_the_mark_busy_is_written_once_if_a_key_waits_and_never_to_an_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_mark, "LATE_SECONDS", 0.02)
    monkeypatch.setattr(busy_mark, "ANSWER_SECONDS", 60.0)
    written, wrote = [], threading.Event()

    def write(sequence: str) -> None:
        written.append(sequence)
        wrote.set()

    mark_of_line = BusyMark(write, lambda: 80)
    mark_of_line.key_came()
    assert mark_of_line._thread is None, "the terminal belongs to the shell"
    mark_of_line.start()
    mark_of_line.key_came()
    mark_of_line.key_came()
    assert wrote.wait(60)
    mark_of_line.key_came()
    assert written == [mark(80)]
    wrote.clear()
    assert mark_of_line.answered()
    assert wrote.wait(60), "the answer was for the keys before the last one"
    monkeypatch.setattr(busy_mark, "ANSWER_SECONDS", 0.0)
    assert mark_of_line.answered()
    assert not mark_of_line.answered()
    monkeypatch.setattr(busy_mark, "LATE_SECONDS", 60.0)
    mark_of_line.key_came()
    mark_of_line.stop()
    assert mark_of_line._due is None, "the terminal belongs to an editor"
    mark_of_line.key_came()
    assert mark_of_line._due is None
    assert written == [mark(80)] * 2
