"""Comparing runs, and which of them are repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Run
from tests.doors.tui import tui_cli as cli
from tests.support import recorded


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


@pytest.mark.usefixtures("four")
def test_one_run_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    for names, refusal in ((["a"], "two or more"), (["a", "a"], "two or more"), (["a", "zzz"], "zzz")):
        assert cli.run(["compare", *names]) == 2
        assert refusal in capsys.readouterr().err


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What `gputui compare ... --json` prints."""
    capsys.readouterr()
    assert cli.run(["compare", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_what_a_script_s_fit_decides_has_its_value_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ef":
        run = recorded.write(home, name=name, seconds=30, settings=("workload.entry=train.py", "train.epochs=9"))
    text = run.file("preset.yaml").read_text().replace("left_to_fit: [", "left_to_fit: [train.epochs, ")
    run.file("preset.yaml").write_text(text.replace("epochs: 9", "epochs: 2"))
    assert compared(capsys, "e", "f")["options"] == []


def test_a_pinned_baseline_comes_first_until_it_is_unpinned(
    four: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["compare", "--pin", "b"]) == 0
    assert "b is the baseline" in capsys.readouterr().out
    for words, shown in ((["a"], ["b", "a"]), (["c", "a"], ["b", "c", "a"]), (["a", "b"], ["b", "a"])):
        found = compared(capsys, *words)
        assert (found["baseline"], found["choice"], found["runs"]) == ("b", "pinned", shown)
    speed = next(row for row in compared(capsys, "a")["figures"] if row["key"] == "samples_per_second")
    assert speed["changes"] == [None, pytest.approx(1000 / 1020 - 1)]
    assert cli.run(["compare", "--pin", "c"]) == 0
    assert compared(capsys, "a")["runs"] == ["c", "a"]  # one at a time
    assert cli.run(["compare", "--unpin"]) == 0
    assert compared(capsys, "b", "a")["choice"] == "first"
    assert cli.run(["compare", "a"]) == 2
    assert cli.run(["compare", "--unpin"]) == 0
    assert "no baseline was pinned" in capsys.readouterr().out
