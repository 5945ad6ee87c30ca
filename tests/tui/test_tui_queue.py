"""The queue on the screens: a run is put in it from the form, and waits where all runs are shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.leases.lease import NotFree
from gputui.engine.queue import entries
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.screens.dialogs import Ask

from tests.support import queued, recorded
from tests.support.form_pilot import settled
from tests.support.tiny import wait_for


@pytest.fixture(autouse=True)
def no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    queued.no_runner(monkeypatch)


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
        await wait_for(pilot, lambda: "place 1 in the queue, needs the CPU: it starts" in " ".join(said))
        await pilot.press("r")
        await wait_for(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press("w")
        await wait_for(pilot, lambda: "place 2 in the queue" in " ".join(said))
        assert not app.waiting_title, "nothing is lost if gputui quits"
    first, second = entries.all_entries()
    assert first.folder.state == second.folder.state == "waiting"
    assert first.folder.file("preset.yaml").exists()


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
