"""Which compared runs are repeats of each other, and what mean and spread their seeds have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine.compare.baseline import LineUp, line_up, pin
from gputui.engine.compare.comparison import compare
from gputui.engine.compare.over_seeds import SeedFigure, SeedGroup, seed_groups
from gputui.engine.compare.same_code import CodeRow, code_row
from gputui.engine.figures import metric

from tests.support import recorded

LOSS, ACCURACY = metric("loss"), metric("accuracy")


@pytest.mark.parametrize(
    ("setting", "differing", "groups"),
    [
        ("train.seed=2", ["train.seed"], (0, 0)),
        ("run.code=copy", ["run.code"], (0, 0)),
        ("run.checkpoint=epoch", ["run.checkpoint"], (0, 1)),
        ("input.batch_size=32", ["input.batch_size"], (0, 1)),
        ("notify.when=never", [], (0, 0)),
    ],
)
def test_runs_are_repeats_unless_an_option_of_the_training_differs(
    home: Path, setting: str, differing: list[str], groups: tuple[int, int]
) -> None:
    base = ("train.seed=1", "run.code=live", "run.checkpoint=off", "input.batch_size=64", "notify.when=end")
    runs = [recorded.write(home, name=name, seconds=30, gpus=0, settings=settings)
            for name, settings in (("a", base), ("b", (*base, setting)))]  # fmt: skip
    found = compare(LineUp(tuple(runs)))
    assert [row.key for row in found.options] == differing
    assert found.groups == groups


def test_mean_and_spread_are_those_of_runs_with_different_seeds() -> None:
    groups, seeds = (0, 1, 0, 1, 2, 0), (1, 5, 2, 5, 9, 2)
    losses, accuracies = (1.0, 9.0, 3.0, 9.0, 7.0, 2.0), (None, 0.5, None, 0.5, 0.5, 0.9)
    made = seed_groups(groups, seeds, [(LOSS, losses), (ACCURACY, accuracies)])
    figure = SeedFigure(LOSS.key, LOSS.label, LOSS.unit, (1.0, 3.0, 2.0), 2.0, 1.0)
    assert made == (SeedGroup((0, 2, 5), (1, 2, 2), (figure,)),)
    assert seed_groups((0, 0), (1, 2), [(ACCURACY, (0.5, None))]) == ()


def test_the_baseline_is_first_and_each_run_is_compared_once(home: Path) -> None:
    a, b, c = (recorded.write(home, name=name, seconds=30, gpus=0) for name in "abc")
    assert line_up([a, b, a]) == LineUp((a, b), "first", "")
    assert line_up([a, b], c) == LineUp((c, a, b), "given", "")
    pin(b)
    assert line_up([a, b, c]) == LineUp((b, a, c), "pinned", "")
    assert line_up([a, b], c) == LineUp((c, a, b), "given", "")
    b.file("preset.yaml").unlink()
    lost = f"the pinned baseline {b.id} no longer exists; it is left out; gputui compare --unpin removes the pin"
    assert line_up([a, c]) == LineUp((a, c), "first", lost)
    assert line_up([a], c) == LineUp((c, a), "given", ""), "a lost pin does not matter then"


def test_the_code_of_runs_is_compared_with_that_of_the_baseline_if_both_are_known(home: Path) -> None:
    runs = [recorded.write(home, name=name, seconds=30, gpus=0) for name in "abcd"]
    for run, files in zip(runs, ({"x.py": "1"}, {"x.py": "2", "y.py": "9"}, None, {"x.py": "1"}), strict=True):
        if files is not None:
            code = {"folder": "/code", "files": {f"/code/{name}": digest for name, digest in files.items()}}
            run.file("code.json").write_text(json.dumps(code))
    row = code_row(runs)
    assert row == CodeRow(("",) * 4, ((), ("x.py", "y.py"), None, ()), (0, 1, 2, 0))
    assert [row.text(place) for place in range(4)] == ["", "differs: x.py, y.py", "", "same"]
    assert code_row(runs[2:3]) is None
    unknown = code_row([runs[2], runs[0]])
    assert unknown is not None
    assert unknown.differing == (None, None)
