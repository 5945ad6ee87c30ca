"""Runs side by side: only what differs, differences from the first, and the noise of repeats."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.compare import compare
from gputui.engine.runs import Run, RunError
from gputui.tui import listing_compare
from gputui.tui.errors import Refused

from . import recorded


@pytest.fixture
def four(home: Path) -> list[Run]:
    """Two repeats at batch size 64, then one of 128, then one that has no result."""
    batch = ("input.batch_size=128",)
    return [
        recorded.write(home, name="a", seconds=30, gpus=1, samples_per_second=1000.0, settings=("train.seed=1",)),
        recorded.write(home, name="b", seconds=30, gpus=1, samples_per_second=1020.0, settings=("train.seed=2",)),
        recorded.write(home, name="c", seconds=30, gpus=1, samples_per_second=1500.0, settings=batch),
        recorded.write(home, name="d", seconds=30, gpus=1, outcome=None, settings=batch),
    ]


def test_only_options_that_differ(four: list[Run]) -> None:
    found = compare(four)
    assert {row.key: row.values for row in found.options} == {
        "input.batch_size": (64, 64, 128, 128),
        "train.seed": (1, 2, 7, 7),
    }
    assert found.groups == (0, 0, 1, 1)
    assert found.states == ("ok", "ok", "ok", "crashed")


def test_figures_with_differences_and_noise(four: list[Run]) -> None:
    rows = {row.key: row for row in compare(four).figures}
    speed = rows["samples_per_second"]
    assert speed.values == (1000.0, 1020.0, 1500.0, None)
    assert speed.changes[1] == pytest.approx(0.02)
    assert speed.changes[2] == pytest.approx(0.5)
    assert speed.changes[3] is None
    assert speed.noise == pytest.approx(0.02)
    assert speed.tells(1) is False
    assert speed.tells(2) is True
    assert rows["step_ms.p50"].changes[2] == pytest.approx(-1 / 3)
    assert rows["metrics.loss"].more_is_better is False
    assert rows["metrics.accuracy"].more_is_better is True


def test_without_repeats_nothing_is_called_noise(four: list[Run]) -> None:
    found = compare([four[0], four[2]])
    assert all(row.noise is None for row in found.figures)
    assert found.figures[0].tells(1) is None


def test_shares_differ_in_points(four: list[Run]) -> None:
    for run, wait in zip(four[:2], (0.05, 0.30), strict=True):
        result = dict(run.result or {}) | {"input_wait": wait}
        run.file("result.json").write_text(json.dumps(result))
    row = next(row for row in compare(four[:2]).figures if row.key == "input_wait")
    assert row.changes[1] == pytest.approx(0.25)
    assert listing_compare.change_text(row, 1).endswith("+25.0 points")


def test_broken_presets_and_results_are_no_obstacle(four: list[Run]) -> None:
    four[0].file("preset.yaml").write_text("- [red]\n")
    four[1].file("result.json").write_text("{")
    found = compare(four[:2])
    assert found.figures[0].values[1] is None
    assert any(row.values[0] is None for row in found.options)


def test_the_table(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    listing_compare.show_comparison(["a", "b", "c"], "table")
    out = capsys.readouterr().out
    assert "1,500 samples/s +50.0 %" in out
    assert "spread of repeats" in out
    assert "1,020 samples/s ~+2.0 %" in out
    assert "device.visible" not in out


def test_markdown_csv_and_json(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    listing_compare.show_comparison(["a", "c"], "markdown")
    markdown = capsys.readouterr().out.splitlines()
    assert markdown[0] == "|  | a | c |"
    assert "| throughput | 1,000 samples/s | 1,500 samples/s +50.0 % |" in markdown
    assert len({line.count("|") for line in markdown}) == 1
    listing_compare.show_comparison(["a", "c"], "csv")
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(capsys.readouterr().out))}
    assert rows["samples_per_second"] == ["samples/s", "1000.0", "1500.0", ""]
    listing_compare.show_comparison(["a", "c"], "json")
    assert json.loads(capsys.readouterr().out)["runs"] == ["a", "c"]


def test_one_run_cannot_be_compared(four: list[Run]) -> None:
    with pytest.raises(Refused, match="two or more"):
        listing_compare.show_comparison(["a"], "table")
    with pytest.raises(RunError):
        listing_compare.show_comparison(["a", "zzz"], "table")


def test_deleting_a_run(four: list[Run], home: Path) -> None:
    import os

    runs.delete(four[0])
    assert not four[0].path.exists()
    going_on = recorded.write(home, name="e", seconds=20, gpus=0, outcome=None, engine_pid=os.getpid())
    with pytest.raises(RunError, match="stop it before"):
        runs.delete(going_on)
    assert going_on.file("events.jsonl").exists()
