"""How many keys the daily tasks take. Each task stands here with its keys, pressed as a user presses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.engine.presets import Preset
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.live.screen import LiveScreen
from textual.pilot import Pilot

from tests.support import recorded, recorded_proof
from tests.support.form_pilot import form, opened, settled
from tests.support.tiny import wait_for

AGAIN = ("escape", "slash", "b", "enter", "6", "4", "ctrl+r")  # from the live view: another batch size
REMEDY = ("w", "1", "r")
COMPARE = ("space", "down", "c")  # in the list of runs
BY_PATH = ("o", "full_stop", "slash", "s", "enter", "enter")  # ./sub/mine.yaml
OVER_IT = ("comma", "f4", "f5", "f6", "question_mark", "ctrl+p", "o", "y", "c", "S", "T")  # screens over the form


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Preset]:
    """The presets that were started. In place of each run, a recorded one is shown."""
    shown = recorded.write(home, name="20260921-110000-shown", gpus=0, seconds=30, diagnosis=recorded_proof.DIAGNOSIS)
    recorded.write(home, name="20260921-090000-other", gpus=0, seconds=20)
    presets_started: list[Preset] = []

    def start(preset: Preset, *_: Any) -> tuple[Run, str]:
        presets_started.append(preset)
        return shown, "engine"

    monkeypatch.setattr("gputui.engine.process.launch.start", start)
    return presets_started


async def train(pilot: Pilot[Any], count: int, started: list[Preset], *keys: str) -> None:
    """Press the keys, each after what the one before it has opened, and wait for the live view of a new run."""
    for key in keys:
        await pilot.press(key)
        await settled(pilot)
    await wait_for(pilot, lambda: len(started) == count and isinstance(pilot.app.screen, LiveScreen))


async def test_train_change_and_train_again_apply_a_remedy(started: list[Preset]) -> None:
    async with opened((80, 24)) as pilot:
        await train(pilot, 1, started, "r")
        assert len(AGAIN) <= 7
        await train(pilot, 2, started, *AGAIN)
        assert started[1].options.input.batch_size == 64
        assert len(REMEDY) <= 3
        await wait_for(pilot, "Input-bound")
        await train(pilot, 3, started, *REMEDY)
        assert started[2].options.input.cache == "memory"


async def test_compare_two(started: list[Preset]) -> None:
    async with opened((80, 24)) as pilot:
        await pilot.press("f4")
        await wait_for(pilot, "2 of 2 runs")
        assert len(COMPARE) <= 3
        await pilot.press(*COMPARE)
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))
        shown = await wait_for(pilot, "figures")
        assert "20260921-090000" in shown
        assert "20260921-110000" in shown


async def test_open_a_preset_by_its_path(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/mine.yaml").write_text("schema_version: 1\ntrain:\n  epochs: 3\n")
    monkeypatch.chdir(tmp_path)
    assert len(BY_PATH) <= 6
    async with opened((80, 24)) as pilot:
        await pilot.press(*BY_PATH[:-2])
        await wait_for(pilot, "sub/")
        await pilot.press("enter")
        await wait_for(pilot, "mine.yaml")
        await pilot.press("enter")
        await wait_for(pilot, lambda: form(pilot).state.preset.options.train.epochs == 3)


async def test_one_key_leads_back_from_every_screen(home: Path, started: list[Preset]) -> None:
    proof = recorded_proof.write_proof(home)
    runs = [Run(home / "runs" / name) for name in ("20260921-090000-other", "20260921-110000-shown")]
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        opens = (lambda: app.open_run(runs[1]), lambda: app.open_compare(runs), lambda: app.open_proof(proof))
        for key, way in [*((key, None) for key in OVER_IT), *(("", way) for way in opens)]:
            if way is None:
                await pilot.press(key)
            else:
                way()
            await wait_for(pilot, lambda: not isinstance(app.screen, FormScreen))
            await pilot.press("escape")
            await wait_for(pilot, lambda: isinstance(app.screen, FormScreen))
        app.open_run(runs[1])
        await wait_for(pilot, "Input-bound")
        for key in ("w", "enter"):  # the diagnosis, and a chart alone
            await pilot.press(key)
            await wait_for(pilot, lambda: not isinstance(app.screen, LiveScreen))
            await pilot.press("escape")
            await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
