"""The loss of a run: one figure with the same digits in every table, list and picture, told for what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.tui import cli
from gputui.tui.reading.run import epoch_mean
from gputui.tui.reading.run.reader import RunReader
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen
from textual.pilot import Pilot
from textual.screen import Screen

from tests.support import recorded
from tests.support.tiny import Tiny, text_of, wait_for


def run_with(home: Path, loss: float, epochs: int, name: str, outcome: str = "stopped") -> Run:
    """Its last progress says something else than its result, as in every run that was interrupted."""
    run = recorded.write(home, name=name, gpus=0, seconds=50, outcome=outcome)
    result = json.loads(run.file("result.json").read_text()) | {"metrics": {"loss": loss}, "epochs": epochs}
    run.file("result.json").write_text(json.dumps(result))
    lines = run.file("events.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    last["summary"] = result
    run.file("events.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    return run


def _shows(pilot: Pilot[None], text: str) -> bool:
    """Whether the screen has the text, whatever the width of its blanks."""
    return text in " ".join(text_of(pilot.app).split())


async def test_every_screen_and_list_shows_the_same_loss(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(home, 0.123456, 1, "20260921-100000-one")
    other = run_with(home, 0.654321, 0, "20260921-110000-two")
    screens: list[tuple[Callable[[], Screen[None]], tuple[str, ...]]] = [
        (RunsScreen, (" 0.123 ", " 0.654 ")),
        (partial(CompareScreen, [run, other]), ("0.123", "0.654")),
        (partial(LiveScreen, run), ("mean 0.123", "loss 0.123")),
        (partial(LiveScreen, other), ("mean 0.654", "loss so far 0.654")),
    ]
    for screen, texts in screens:
        async with Tiny(screen).run_test(size=(120, 40)) as pilot:
            for text in texts:
                await wait_for(pilot, partial(_shows, pilot, text))
    assert cli.run(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "0.123" in listed
    assert "0.654" in listed


def test_while_it_runs_it_is_the_mean_of_the_epoch_so_far(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=30, outcome=None)
    feed = RunReader(run)
    feed.poll()
    now = feed.picture.snapshot
    assert epoch_mean.of_run(now) == epoch_mean.EpochMean(now.progress["loss"], epoch_mean.SO_FAR)
    assert epoch_mean.of_run(now, "accuracy").value == now.progress["metrics"]["accuracy"]


@pytest.mark.parametrize(
    ("summary", "progress", "value"),
    [
        ({}, {}, epoch_mean.EpochMean()),
        ({}, {"loss": 0.0}, epoch_mean.EpochMean(0.0, epoch_mean.SO_FAR)),
        ({}, {"loss": None}, epoch_mean.EpochMean()),
        ({"outcome": "stopped"}, {"loss": -2.5}, epoch_mean.EpochMean(-2.5, epoch_mean.UNFINISHED)),
        ({"metrics": {"loss": 0.0}, "epochs": 2}, {"loss": 1.0}, epoch_mean.EpochMean(0.0, epoch_mean.WHOLE)),
        ({"metrics": {"loss": 0.5}, "epochs": 0}, {"loss": 1.0}, epoch_mean.EpochMean(0.5, epoch_mean.UNFINISHED)),
        ({"metrics": {"accuracy": 0.5}, "epochs": 2}, {}, epoch_mean.EpochMean()),
    ],
)
def test_the_result_comes_before_the_progress(
    summary: dict[str, Any], progress: dict[str, Any], value: epoch_mean.EpochMean
) -> None:
    assert epoch_mean.latest(summary, progress) == value
