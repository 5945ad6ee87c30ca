"""The screen of a sweep: the settings by their metric, their trials, and the metric over each swept option."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run, runs_folder
from gputui.tui.screens.proof.sweep import SweepScreen

from tests.support import recorded
from tests.support.swept import Simulated, request_of, swept
from tests.support.tiny import Tiny, text_of, wait_for


def loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float | None:
    """The higher rate learns better, and the highest diverges."""
    rate = changes["train.learning_rate"]
    return None if rate > 0.005 else 1 - 100 * rate + 1 / epoch + random.Random(f"{rate} {seed}").gauss(0, 0.01)


@pytest.fixture
def proof(home: Path) -> Proof:
    """A sweep that has ended."""
    path = home / "proofs" / "20261126-120000-small"
    path.mkdir(parents=True)
    request = request_of(["learning_rate=1e-3,3e-3,1e-2"], seeds=2)
    (path / "request.json").write_text(request.to_json())
    swept(request, Simulated(loss), path)
    text = (path / "proof.json").read_text()
    (path / "proof.json").write_text(text.replace('"state": "running"', '"state": "done"'))
    return Proof(path)


async def test_a_sweep_is_shown_with_each_setting_and_its_trials(
    proof: Proof, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Tiny(lambda: SweepScreen(proof)).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "learning_rate=0.003 beats learning_rate=0.001")
        lines = text_of(pilot.app).splitlines()
        rows = [line.split()[0] for line in lines if line.startswith(" learning_rate=0.0") and "beats" not in line]
        assert rows == ["learning_rate=0.003", "learning_rate=0.001", "learning_rate=0.01"], "the best one first"
        assert any("failed" in line for line in lines if line.startswith(" learning_rate=0.01 "))
        assert sum(" proof " in line for line in lines) == 5
        await pilot.resize_terminal(120, 40)
        shown = await wait_for(pilot, "mean val_loss over each swept option")
        assert re.search(r"learning_rate=0\.003 .* [├─•┤]+ +┊? .*\n learning_rate=0\.001 .* │ .*•.*\n", shown), "bars"
        assert re.search(r"learning_rate=0\.01 .* │ [┊ ]* failed", shown)
        await pilot.press("down", "down")
        await wait_for(pilot, "failed: val_loss is not a finite number")
        assert "Curves" not in text_of(pilot.app), "the runs of these trials do not exist"
        for number in (1, 2):
            recorded.write(home, name=f"{proof.id}-00{number}")  # of the second best setting, and of the best
        assert (runs_folder() / f"{proof.id}-001").is_dir()
        pilot.app.screen.refresh_bindings()
        await wait_for(pilot, "Curves")
        compared: list[list[Run]] = []
        monkeypatch.setattr(pilot.app, "open_compare", compared.append)
        await pilot.press("c")
        await wait_for(pilot, lambda: compared)
        assert [run.id[-3:] for run in compared[0]] == ["002", "001"], "the best one first"
