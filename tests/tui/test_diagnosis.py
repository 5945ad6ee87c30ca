"""The diagnosis of a run on its screen, and the way from there to a proof."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Run, folder, proof_start, runs
from tests.doors.tui import BaseApp, DiagnosisScreen, GputuiApp, LiveScreen, starting
from tests.support import recorded
from tests.support.form_pilot import settled, told
from tests.support.recorded import DIAGNOSIS, STAGES
from tests.support.tiny import Tiny, text_of, wait_for


def at(seconds: float) -> Any:
    return lambda: recorded.BEGAN + seconds


def diagnosed(home: Path, **changes: Any) -> Run:
    fields: dict[str, Any] = {"gpus": 1, "seconds": 40, "name": "20260921-100000-mine"}
    return recorded.write(home, **fields | {"diagnosis": DIAGNOSIS, "input_stages": STAGES} | changes)


# ---- the screen -------------------------------------------------------------------------------------


async def test_before_training_there_is_nothing_to_judge(home: Path) -> None:
    run = diagnosed(home, outcome=None, engine_pid=os.getpid(), seconds=12, diagnosis=None)
    lines = [line for line in run.file("events.jsonl").read_text().splitlines() if '"training"' not in line]
    run.file("events.jsonl").write_text("\n".join(lines) + "\n")
    async with Tiny(lambda: LiveScreen(run, clock=at(11))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "compiling")
        await pilot.press("w")
        await wait_for(pilot, "training has not begun")


async def test_of_a_run_that_failed_the_error_comes_first(home: Path) -> None:
    run = diagnosed(home, seconds=3, outcome="error", diagnosis=None)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✗ failed")
        await pilot.press("w")
        shown = await wait_for(pilot, "No verdict")
        assert shown.index("✗") < shown.index("No verdict")
        assert "no change is proposed" not in shown


async def test_a_run_that_left_no_diagnosis_is_judged_from_its_folder(home: Path) -> None:
    run = diagnosed(home, seconds=90, diagnosis=None)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("w")
        shown = await wait_for(pilot, "measured steps")
        assert "evidence" in shown
        assert "training has not begun" not in shown


# ---- into the form ------------------------------------------------------------------------------------


async def test_a_remedy_is_started_with_two_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number puts it into the form of the run, marked as not saved; Enter starts it."""
    run = diagnosed(home, settings=("input.parallel_calls=off",))
    launched: list[Any] = []

    def start(preset: Any, warm: object) -> tuple[Run, object]:
        launched.append(preset)
        return run, object()

    monkeypatch.setattr(starting, "start", start)
    app = GputuiApp(opens=("live", run))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("w")
        await wait_for(pilot, "1 Apply")
        await pilot.press("7")
        await wait_for(pilot, lambda: "there is no remedy 7, only 1 to 3" in told(pilot))
        app.clear_notifications()  # which lie over what is read next
        await pilot.press("1")
        await wait_for(pilot, lambda: app.screen is app.form and app.form.query("#start:focus"))
        assert app.form.state.texts["input.cache"] == "memory"
        assert app.form.state.unsaved() == ["input.cache"]
        shown = await wait_for(pilot, " + cache  ")
        assert "mine of a run + 1 not saved" in shown
        assert "enter starts it with cache=memory" in shown
        assert "input.cache  calls Dataset.cache" in shown  # the help is that of what was changed
        await pilot.press("enter")
        await wait_for(pilot, lambda: launched)
        assert launched[0].options.input.cache == "memory"
        assert launched[0].name == "mine"
        # A second remedy comes on top of the first, and each is one step of undo.
        await wait_for(pilot, lambda: not isinstance(app.screen, DiagnosisScreen))
        host: BaseApp = app
        host.apply(run.file("preset.yaml"), {"input.parallel_calls": "auto", "no.such": 3}, "parallel_calls=auto")
        await wait_for(pilot, lambda: app.form.state.unsaved() == ["input.parallel_calls", "input.cache"])
        await wait_for(pilot, "enter starts it with parallel_calls=auto")
        await pilot.press("u")
        await settled(pilot)
        assert app.form.state.unsaved() == ["input.cache"]
        assert app.form.options.rows["input.parallel_calls"].has_focus
        assert "enter starts it" not in text_of(app)
        await pilot.press("u")
        await settled(pilot)
        assert app.form.state.name == "quickstart"


# ---- to a proof ---------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be started."""
    found: list[Any] = []

    def start(proof: Any) -> str:
        found.append(proof)
        return "process"

    monkeypatch.setattr(folder, "start", start)
    monkeypatch.setattr(proof_start, "other_training", lambda ours, here, but: "")
    return found


async def test_a_run_that_goes_on_has_to_end_first(
    home: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = diagnosed(home, outcome=None, engine_pid=os.getpid())
    stopped: list[Run] = []
    monkeypatch.setattr(runs, "request_stop", stopped.append)
    async with Tiny(lambda: LiveScreen(run, clock=at(40))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "! Input-bound")
        await pilot.press("w")
        await wait_for(pilot, "Prove")
        for key, count in (("k", 0), ("s", 1)):
            await pilot.press("p")
            await wait_for(pilot, "it has to end first")
            await pilot.press(key)
            await wait_for(pilot, lambda: isinstance(pilot.app.screen, DiagnosisScreen))
            await pilot.pause(0.1)
            assert len(stopped) == count
        await wait_for(pilot, "stopping after this step")
    assert not started
