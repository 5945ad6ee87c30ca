"""Starting beside a run on the same devices asks: start it anyway, put it in the queue, or leave it.

A run whose code was edited since asks before it is resumed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.presets import Preset
from gputui.engine.process import launch
from gputui.engine.queue import entries
from gputui.engine.runs import Run, RunError, code_files
from gputui.tui.app import GputuiApp
from gputui.tui.screens.dialogs import Ask
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.starting import resumed_run
from textual.pilot import Pilot

from tests.support import queued, recorded
from tests.support.form_pilot import settled
from tests.support.tiny import wait_for


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Preset]:
    """What is launched, in whose place a finished run is shown."""
    shown = recorded.write(home, name="20260921-090000-shown", gpus=0, seconds=20)
    found: list[Preset] = []

    def start(preset: Preset, *_: Any) -> tuple[Run, str]:
        found.append(preset)
        return shown, "engine"

    monkeypatch.setattr("gputui.engine.process.launch.start", start)
    return found


async def asked(pilot: Pilot[Any], *keys: str) -> str:
    """Press the keys; the question that comes."""
    await pilot.press(*keys)
    await wait_for(pilot, lambda: isinstance(pilot.app.screen, Ask))
    return await wait_for(pilot, "Start anyway?")


async def test_a_start_beside_a_run_asks_and_waits_in_the_queue(
    home: Path, started: list[Preset], monkeypatch: pytest.MonkeyPatch
) -> None:
    queued.no_runner(monkeypatch)
    busy = recorded.write(home, name="20260921-100000-busy", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        shown = await asked(pilot, "r")
        assert busy.id in shown
        await pilot.press("enter")  # Cancel is the answer unless another is chosen
        await wait_for(pilot, lambda: isinstance(app.screen, FormScreen))
        assert entries.all_entries() == ()
        await asked(pilot, "r")
        await pilot.press("w")
        await wait_for(pilot, lambda: len(entries.all_entries()) == 1)
        assert not started
        busy.file("result.json").write_text('{"outcome": "ok"}')
        busy.file("status.json").write_text('{"phase": "ended"}')
        await pilot.press("r")  # nothing is in the way any more
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
        assert [preset.name for preset in started] == ["quickstart"]


async def test_anyway_starts_at_once_and_run_again_asks_as_well(home: Path, started: list[Preset]) -> None:
    busy = recorded.write(home, name="20260921-100000-busy", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    over = recorded.write(home, name="20260921-110000-over", gpus=0, seconds=20, outcome="stopped")
    with pytest.raises(RunError, match=r"set run\.checkpoint"):  # whatever is in the way
        resumed_run(over).in_the_way()
    settings = ("checkpoint=epoch",)
    early = recorded.write(home, name="20260921-090000-early", seconds=20, outcome="stopped", settings=settings)
    with pytest.raises(RunError, match="ended before its first"):
        resumed_run(early).in_the_way()
    shutil.rmtree(early.path)
    over.file("checkpoints/step-0000000010").mkdir(parents=True)
    os.utime(over.file("preset.yaml"))
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("f4")
        await wait_for(pilot, "3 of 3 runs")
        await pilot.press("down")  # the run that trains is on top
        await asked(pilot, "R")
        await pilot.press("c")
        assert busy.id in await asked(pilot, "r")
        await pilot.press("s")
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
        assert [preset.name for preset in started] == ["over"]
        assert launch.title_of(started[0]) == "over"


@pytest.mark.parametrize("answer", ["", "g", "u"], ids=["as-it-was", "new-code", "copy"])
async def test_a_stopped_run_is_resumed_in_two_keystrokes(
    answer: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose code was edited since is resumed after a question: with the new code, or with the run's copy."""
    edited = bool(answer)
    run = recorded.write(home, name="20260921-120000-mine", gpus=0, seconds=30, outcome="stopped")
    resumed: list[Run] = []
    run.file("checkpoints/step-0000000100").mkdir(parents=True)
    code = tmp_path / "train.py"
    code.write_text("x = 1")
    code_files.add(run, tmp_path, [str(code)])
    run.file("code").mkdir()
    run.file("code/train.py").write_text("x = 1")
    code.write_text("x = 2" if edited else "x = 1")

    def resume(run: Run, new_code: bool, from_copy: bool) -> str:
        resumed.append(run)
        assert (new_code, from_copy) == (answer == "g", answer == "u")
        return "engine"

    monkeypatch.setattr("gputui.engine.process.resuming.resume", resume)
    app = GputuiApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("f3")
        await wait_for(pilot, run.id)
        await pilot.press("R")
        if edited:
            await wait_for(pilot, "train.py (1 line) has changed since")
            await pilot.press("escape", "R")
            await wait_for(pilot, "Go on with the new code?")
            assert resumed == []
            await pilot.press(answer)
        await wait_for(pilot, "mine is resumed")
        assert resumed == [run]
        assert app.engines == ["engine"]
