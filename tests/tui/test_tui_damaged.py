"""Runs whose files are damaged in any way, beside good ones: no screen ends for them, and none hides another run."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from gputui.engine.runs import Run, all_runs
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.live.diagnosis import DiagnosisScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen
from textual.pilot import Pilot

from tests.support import recorded
from tests.support.damage import FILES, kinds
from tests.support.tiny import Tiny, text_of, tiny, wait_for

SHOWN = 6  # of the damaged runs, in the screens that show one


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
    text_of(pilot.app)


async def test_no_screen_ends_for_damaged_runs_and_none_hides_another(damaged: list[Run]) -> None:
    count = len(all_runs())
    assert count > len(damaged) // 2
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await in_the_table(pilot, count)
        for run in random.Random(7).sample([run for run in damaged if run.path.is_dir()], SHOWN):
            await by_itself(pilot, run)
        await compared(pilot, damaged)
        assert pilot.app.is_running


async def in_the_table(pilot: Pilot[None], count: int) -> None:
    await wait_for(pilot, f"{count} of {count} runs")
    screen = pilot.app.screen
    assert isinstance(screen, RunsScreen)
    assert {"20260921-100000-good", "20260921-110000-fine"} <= set(screen.shown)
    for column in ("state", "samples/s", "loss", "memory", "when", "description", "run"):
        screen.sort_by(column)
        await pilot.pause()
        text_of(pilot.app)
    await pilot.press("end", "home", "slash", *"good", "enter")
    await wait_for(pilot, f"of {count} runs")


async def by_itself(pilot: Pilot[None], run: Run) -> None:
    live = LiveScreen(run)
    await tiny(pilot).push_screen(live)
    await settled(pilot)
    await tiny(pilot).push_screen(DiagnosisScreen(live))
    await settled(pilot)
    await pilot.press("escape", "escape")


async def compared(pilot: Pilot[None], damaged: list[Run]) -> None:
    listed = [run for run in all_runs() if run in damaged]
    runs = random.Random(8).sample(listed, 40)
    good = [run for run in all_runs() if run not in damaged]
    for start in range(0, len(runs), 20):
        screen = CompareScreen([*good, *runs[start : start + 20]])
        await tiny(pilot).push_screen(screen)
        await wait_for(pilot, lambda screen=screen: screen.comparison is not None)  # type: ignore[misc]
        text_of(pilot.app)
        await pilot.press("escape")
