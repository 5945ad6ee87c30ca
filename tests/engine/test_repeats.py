"""Which of the compared runs are repeats of each other, whose spread is the noise, and what is noted of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.compare import caveats, comparison
from gputui.engine.compare.baseline import LineUp
from gputui.engine.compare.same_code import CodeRow
from gputui.engine.runs import Run, run_cluster
from gputui.engine.runs.events import Started
from gputui.engine.runs.parsing import recalled

from tests.support import recorded


@pytest.fixture
def three(home: Path) -> list[Run]:
    """Runs with equal options but for their seeds."""
    return [
        recorded.write(home, name=f"20260921-11000{n}-r", seconds=30, gpus=0, settings=(f"train.seed={n}",),
                       samples_per_second=1000.0 + 10 * n)
        for n in range(3)
    ]  # fmt: skip


def groups(runs: Sequence[Run]) -> tuple[int, ...]:
    return comparison.compare(LineUp(tuple(runs))).groups


def versions(run: Run, before: str, after: str) -> None:
    events = run.file("events.jsonl")
    assert before in events.read_text()
    events.write_text(events.read_text().replace(before, after))


def test_runs_that_differ_in_their_seed_or_copy_of_the_code_alone_are_repeats(
    three: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert groups(three) == (0, 0, 0)
    for numbers in ((0, 0, 1), (0, 1, 0), (0, 1, 2), (0, 0, 0)):
        row = CodeRow(("a", "b", "c"), ((), (), ()), numbers)
        monkeypatch.setattr(comparison, "code_row", lambda _runs, row=row: row)
        found = comparison.compare(LineUp(tuple(three)))
        assert (found.groups, found.code) == (numbers, row)
        (speed,) = (each for each in found.figures if each.key == "samples_per_second")
        assert (speed.noise is None) is (len(set(numbers)) == 3)


def test_workers_and_runs_with_other_versions_are_no_repeats(three: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    version = next(text for text in three[1].file("events.jsonl").read_text().split('"') if text.startswith("2."))
    versions(three[1], f'"{version}"', '"2.99"')
    assert groups(three) == (0, 1, 0)

    places: dict[str, Any] = {
        run.id: SimpleNamespace(index=n, workers=("a", "b"), is_chief=n == 0)
        for run, n in zip(three, (0, 0, 1), strict=True)
    }
    monkeypatch.setattr(run_cluster, "local_chief", lambda _run: None)
    monkeypatch.setattr(run_cluster, "of_run", lambda run: places[run.id])
    assert groups(three) == (0, 1, 2)
    monkeypatch.setattr(run_cluster, "of_run", lambda _run: None)
    assert groups(three) == (0, 1, 0)


@pytest.mark.parametrize(
    ("chiefs", "together"),
    [
        ([None, None, None], False),
        ([None, 0, None], True),  # the second is a worker of the first
        ([None, None, 1], True),
        ([None, "x", "x"], True),  # both are workers of a run that is not compared
        (["x", None, "y"], False),
        ([None, "x", None], False),
    ],
)
def test_workers_of_one_training_have_its_speed_together(
    three: list[Run], monkeypatch: pytest.MonkeyPatch, chiefs: list[int | str | None], together: bool
) -> None:
    found = {run.id: None if chief is None else three[chief] if isinstance(chief, int) else SimpleNamespace(id=chief)
             for run, chief in zip(three, chiefs, strict=True)}  # fmt: skip
    monkeypatch.setattr(run_cluster, "local_chief", lambda run: found[run.id])
    note = "some of these runs are workers of one training: the speed of each is that of all workers together"
    assert (note in comparison.compare(LineUp(tuple(three))).notes) is together


def test_each_file_that_cannot_be_read_is_a_note_of_its_run(three: list[Run]) -> None:
    assert comparison.compare(LineUp(tuple(three))).notes == ()
    three[1].file("options.json").unlink(missing_ok=True)
    three[1].file("preset.yaml").write_text("{")
    three[2].file("result.json").write_text("{")
    lost, options, result = comparison.compare(LineUp(tuple(three), "first", "the pin is lost")).notes
    assert lost == "the pin is lost"
    assert options.startswith(f"{three[1].name}: line 1 of preset.yaml is damaged, so that its options are unknown: ")
    assert result == f"{three[2].name}: result.json is damaged, left out"


def test_the_noise_of_a_share_is_in_points_and_of_other_figures_a_share_of_the_smallest(three: list[Run]) -> None:
    for number, run in enumerate(three):
        result = dict(run.result or {}) | {"input_wait": 0.1 * (number + 1)}
        run.file("result.json").write_text(json.dumps(result))
    rows = {row.key: row for row in comparison.compare(LineUp(tuple(three))).figures}
    wait, speed = rows["input_wait"], rows["samples_per_second"]
    assert wait.unit == "share"
    for row, noise, changes in ((wait, 0.2, (0.1, 0.2)), (speed, 0.02, (0.01, 0.02))):
        assert row.noise == pytest.approx(noise)
        assert row.changes[0] is None
        assert row.changes[1:] == pytest.approx(changes)
    assert [speed.exceeds_noise(place) for place in range(3)] == [None, False, False]


@pytest.mark.parametrize(("entry", "batch"), [("train.py:build", 32.0), (None, 64.0)])
def test_the_batch_of_own_code_without_a_result_is_that_which_its_trainer_has_told(
    entry: str | None, batch: float
) -> None:
    options = {"workload.entry": entry, "input.batch_size": 64, "strategy.kind": "single"}
    begun = recalled({"t": 1.0, "type": "started", "global_batch_size": 32})
    assert isinstance(begun, Started)
    ended = {"global_batch_size": 128.0}
    notes = caveats.caveats([options, options], [{}, ended], ["running", "ok"], [begun, begun])
    expected = f"the global batch sizes differ ({batch:.0f}, 128 samples): a step is not the same amount of work"
    assert expected in notes
    notes = caveats.caveats([options, options], [{}, ended], ["waiting", "ok"], [None, begun])
    assert any("batch sizes" in note for note in notes) == (entry is None), "nobody knows it before the run begins"
