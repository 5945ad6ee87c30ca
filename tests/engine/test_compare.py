"""Comparing runs, and which of them are repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import LineUp, Run, Started, caveats, recalled
from tests.doors.engine import compare as compare_line_up
from tests.doors.engine import comparison_Comparison as Comparison
from tests.doors.tui import comparison
from tests.doors.tui import tui_cli as cli
from tests.support import recorded


def compare(runs: list[Run]) -> Comparison:
    """Against the first, whatever is pinned."""
    return compare_line_up(LineUp(tuple(runs)))


def amend(run: Run, **figures: object) -> None:
    """Other figures in the run's result."""
    run.file("result.json").write_text(json.dumps(dict(run.result or {}) | figures))


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
    assert speed.exceeds_noise(1) is False
    assert speed.exceeds_noise(2) is True
    assert rows["step_ms.p50"].changes[2] == pytest.approx(-1 / 3)
    assert rows["metrics.loss"].more_is_better is False
    assert rows["metrics.accuracy"].more_is_better is True
    for run, loss in zip(four[::2], (-2.0, -1.0), strict=True):  # such as a log-likelihood
        amend(run, metrics={"loss": loss, "val_Perplexity": 9.0})
    rows = {row.key: row for row in compare(four).figures}
    assert rows["metrics.loss"].changes[2] == 0.5
    assert rows["metrics.val_Perplexity"].more_is_better is False


@pytest.mark.parametrize(
    ("speeds", "noise", "expected"),
    [
        ((1000.0, 900.0, 1500.0, 1500.0), 100 / 900, (False, True, True)),
        ((1000.0, 1000.0, 1500.0, 1800.0), 0.2, (False, True, True)),
        ((0.0, 0.0, 10.0, 20.0), 1.0, (None, None, None)),
        ((1000.0, None, 1500.0, None), None, (None, None, None)),
    ],
)
def test_noise_is_the_largest_spread_among_repeats_of_any_kind(
    four: list[Run], speeds: tuple[float | None, ...], noise: float | None, expected: tuple[bool | None, ...]
) -> None:
    result = dict(four[0].result or {})
    for run, speed in zip(four, speeds, strict=True):
        run.file("result.json").write_text(json.dumps(result | {"samples_per_second": speed}))
    row = next(row for row in compare(four).figures if row.key == "samples_per_second")
    assert row.noise == (None if noise is None else pytest.approx(noise))
    assert tuple(row.exceeds_noise(position) for position in (1, 2, 3)) == expected


def test_shares_differ_in_points(four: list[Run]) -> None:
    for run, wait in zip(four[:2], (0.05, 0.30), strict=True):
        amend(run, input_wait=wait)
    row = next(row for row in compare(four[:2]).figures if row.key == "input_wait")
    assert row.changes[1] == pytest.approx(0.25)
    assert comparison.change_text(row, 1).endswith("+25.0 points")


def test_runs_that_differ_only_in_the_seed_have_their_mean_spread_and_each_value(four: list[Run], home: Path) -> None:
    for run, loss in zip(four, (0.5, 0.7, 0.1, 0.1), strict=True):
        amend(run, metrics={"loss": 1.0, "val_loss": loss})
    names = [run.name for run in four]
    assert [line for line in comparison.remarks(compare(four)) if "mean ±" in line] == [
        f"{names[0]}, {names[1]} differ only in the seed: val loss 0.6 ± 0.141 (0.5 with 1, 0.7 with 2) "
        "(mean ± standard deviation)"
    ]
    assert f"{comparison.WITHIN}; over 2 seeds val loss 0.6 ± 0.141" in comparison.remarks(compare(four), brief=78)
    (group,) = json.loads(comparison.as_json(compare(four)))["over_seeds"]
    assert (group["places"], group["seeds"], group["figures"][1]["values"]) == ([0, 1], [1, 2], [0.5, 0.7])
    assert [group["figures"][1][key] for key in ("mean", "spread")] == pytest.approx([0.6, 0.02**0.5])
    again = recorded.write(home, name="e", seconds=30, gpus=1, settings=("input.batch_size=128",))
    amend(again, metrics={"val_loss": 0.2})
    assert comparison.over_seeds(compare([four[0], four[2], again])) == [], "repeats with one seed"


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


def notes(*recorded_runs: Run) -> str:
    return "\n".join(compare(list(recorded_runs)).notes)


def test_a_run_that_was_not_resumed_exactly_is_named(four: list[Run]) -> None:
    amend(four[1], not_restored=["Counts.on_epoch_end changes self.seen"])
    said = "b: a resume has not restored all, so that its figures may differ: Counts.on_epoch_end changes self.seen"
    assert said in notes(*four)


def begun(run: Run, **fields: object) -> None:
    """Other fields in the event with which the run began to train."""
    file = run.file("events.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [event | fields if event["type"] == "started" else event for event in events]
    file.write_text("".join(json.dumps(event) + "\n" for event in changed))


@pytest.mark.parametrize(
    ("steps", "batch", "begun", "options", "said"),
    [
        (100, 32, {}, {}, ""), (98, 32, {}, {}, "3,136, 3,200"), (50, 64, {}, {}, ""),
        (100, 32, {"train_samples": 100, "steps_per_epoch": 4}, {}, "2,500, 3,200"),
        (100, 16, {"train_samples": 100, "steps_per_epoch": 4}, {}, "1,432, 3,200"),
        (100, 32, {"train_samples": 100, "steps_per_epoch": 3}, {"train.steps_per_epoch": 3}, "2,500, 3,200"),
        (100, 32, {"train_samples": 100, "steps_per_epoch": 3},
         {"train.steps_per_epoch": 3, "input.drop_remainder": True}, ""),
        (100, 16, {"train_samples": 100, "steps_per_epoch": 4, "replicas": 5}, {}, "1,600, 3,200"),
    ],
)  # fmt: skip
def test_losses_are_compared_after_as_many_samples(
    steps: int, batch: int, begun: dict[str, int], options: dict[str, Any], said: str
) -> None:
    started = recalled({"t": 1.0, "type": "started", "global_batch_size": 32, "replicas": 1, **begun})
    assert isinstance(started, Started)
    results = [
        {"steps": float(of[0]), "global_batch_size": float(of[1]), "metrics.loss": -1.0}
        for of in ((steps, batch), (100, 32))
    ]
    notes = caveats([options, {}], results, ["ok", "ok"], [started, None])
    losses = f"the losses are after different numbers of samples ({said}): they do not show which learns better"
    assert [text for text in notes if text.startswith("the losses")] == ([losses] if said else [])
