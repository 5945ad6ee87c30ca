"""Runs whose files are damaged in any way, beside good ones: no screen ends for them, and none hides another run."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from gputui.engine.runs import Run, all_runs
from gputui.tui.screens.compare import CompareScreen
from gputui.tui.screens.diagnosis import DiagnosisScreen
from gputui.tui.screens.live import LiveScreen
from gputui.tui.screens.runs import RunsScreen
from textual.pilot import Pilot

from tests.support import recorded
from tests.support.damage import FILES, kinds
from tests.support.tiny import Tiny, tiny, wait_for

SHOWN = 8  # of the damaged runs, in the screens that show one


@pytest.fixture
def damaged(home: Path) -> list[Run]:
    """One run each for half of the kinds of damage to each file, its other files whole; beside two good ones."""
    good = recorded.write(home, name="20260921-100000-good", gpus=1, seconds=20)
    recorded.write(home, name="20260921-110000-fine", gpus=0, seconds=20)
    made = []
    every = [(kind, name) for kind in kinds() for name in FILES]
    for number, (kind, name) in enumerate(random.Random(6).sample(every, len(every) // 2)):
        run = Run(home / "runs" / f"20260920-100000-bad-{number}")
        shutil.copytree(good.path, run.path)
        kind.damage(run.file(name))
        made.append(run)
    return made


async def settled(pilot: Pilot[None]) -> None:
    """Until what is read of the run has been read and shown."""
    for _ in range(4):
        await pilot.pause(0.1)


async def test_the_table_shows_the_good_beside_the_damaged(damaged: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        count = len(all_runs())
        assert count > len(damaged) // 2
        await wait_for(pilot, f"{count} of {count} runs")
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        assert {"20260921-100000-good", "20260921-110000-fine"} <= set(screen.shown)
        for column in ("state", "samples/s", "loss", "memory", "when", "description", "run"):
            screen.sort_by(column)
            await pilot.pause()
        await pilot.press("end", "home", "slash", *"good", "enter")
        await wait_for(pilot, f"of {count} runs")


async def test_one_damaged_run_is_looked_at(damaged: list[Run]) -> None:
    chosen = random.Random(7).sample([run for run in damaged if run.path.is_dir()], SHOWN)
    async with Tiny(lambda: LiveScreen(chosen[0])).run_test(size=(120, 40), notifications=True) as pilot:
        for run in chosen:
            live = LiveScreen(run)
            await tiny(pilot).push_screen(live)
            await settled(pilot)
            await tiny(pilot).push_screen(DiagnosisScreen(live))
            await settled(pilot)
            await pilot.press("escape", "escape")
        assert pilot.app.is_running


async def test_damaged_runs_are_compared(damaged: list[Run]) -> None:
    listed = [run for run in all_runs() if run in damaged]
    runs = random.Random(8).sample(listed, 40)
    good = [run for run in all_runs() if run not in damaged]
    async with Tiny(lambda: CompareScreen(good)).run_test(size=(120, 40), notifications=True) as pilot:
        for start in range(0, len(runs), 20):
            screen = CompareScreen([*good, *runs[start : start + 20]])
            await tiny(pilot).push_screen(screen)
            await wait_for(pilot, lambda screen=screen: screen.found is not None)  # type: ignore[misc]
            await pilot.press("escape")
        assert pilot.app.is_running
