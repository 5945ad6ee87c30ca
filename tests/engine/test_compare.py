"""Runs side by side: only what differs, differences from the baseline, noise of repeats, what cannot be compared."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.compare import baseline
from gputui.engine.compare.baseline import LineUp
from gputui.engine.compare.caveats import caveats
from gputui.engine.compare.comparison import Comparison
from gputui.engine.compare.comparison import compare as compare_line_up
from gputui.engine.runs import Run, RunError
from gputui.engine.runs.events import Started
from gputui.engine.runs.parsing import recalled
from gputui.tui import cli
from gputui.tui.base.errors import Refused
from gputui.tui.commands import compare as compare_command
from gputui.tui.wording import comparison

from tests.support import recorded
from tests.support.deleting import deleted


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


def test_without_repeats_nothing_is_called_noise(four: list[Run]) -> None:
    found = compare([four[0], four[2]])
    assert all(row.noise is None for row in found.figures)
    assert found.figures[0].exceeds_noise(1) is None


@pytest.mark.parametrize(
    ("speeds", "noise", "expected"),
    [
        ((1000.0, 900.0, 1500.0, 1500.0), 100 / 900, (False, True, True)),
        ((1000.0, 1000.0, 1500.0, 1800.0), 0.2, (False, True, True)),  # the repeats of the change differ by more
        ((-1000.0, -800.0, -2000.0, -2200.0), 0.25, (False, True, True)),
        ((1000.0, 1000.0, 1250.0, 1000.0), 0.25, (False, False, False)),
        ((0.0, 0.0, 10.0, 20.0), 1.0, (None, None, None)),  # nothing is a share of zero
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


def test_a_figure_below_zero_that_rises_has_a_change_above_zero(four: list[Run]) -> None:
    for run, loss in zip(four[:2], (-2.0, -1.0), strict=True):
        amend(run, metrics={"loss": loss})
    row = next(row for row in compare(four[:2]).figures if row.key == "metrics.loss")
    assert row.changes[1] == pytest.approx(0.5)
    assert comparison.change_text(row, 1).endswith("+50.0 %")


def test_broken_presets_and_results_are_no_obstacle(four: list[Run]) -> None:
    four[0].file("preset.yaml").write_text("- [red]\n")
    four[1].file("result.json").write_text("{")
    found = compare(four[:2])
    assert found.figures[0].values[1] is None
    assert any(row.values[0] is None for row in found.options)


def test_the_table(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    compare_command.show_comparison(["a", "b", "c"], "table")
    out = capsys.readouterr().out
    assert "1,500 samples/s +50.0 %" in out
    assert "spread of repeats" in out
    assert "1,020 samples/s ~+2.0 %" in out
    assert "device.visible" not in out
    assert "differences are from the first run" in out


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


def test_markdown_csv_and_json(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    compare_command.show_comparison(["a", "c"], "markdown")
    markdown = capsys.readouterr().out.splitlines()
    assert markdown[0] == "|  | a | c |"
    assert "| throughput | 1,000 samples/s | 1,500 samples/s +50.0 % |" in markdown
    table, rest = markdown[: markdown.index("")], markdown[markdown.index("") + 1 :]
    assert len({line.count("|") for line in table}) == 1
    assert rest[0] == "- differences are from the first run"
    compare_command.show_comparison(["a", "c"], "csv")
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(capsys.readouterr().out))}
    assert rows["samples_per_second"] == ["samples/s", "1000.0", "1500.0", ""]
    compare_command.show_comparison(["a", "c"], "json")
    assert json.loads(capsys.readouterr().out)["runs"] == ["a", "c"]


def test_one_run_cannot_be_compared(four: list[Run]) -> None:
    with pytest.raises(Refused, match="two or more"):
        compare_command.show_comparison(["a"], "table")
    with pytest.raises(Refused, match="two or more"):
        compare_command.show_comparison(["a", "a"], "table")
    with pytest.raises(RunError):
        compare_command.show_comparison(["a", "zzz"], "table")


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What `gputui compare ... --json` prints."""
    capsys.readouterr()
    assert cli.run(["compare", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_first_named_is_the_baseline_where_none_is_pinned(
    four: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "c", "a")
    assert (found["baseline"], found["choice"], found["runs"]) == ("c", "first", ["c", "a"])


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


def test_a_baseline_for_one_time(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    baseline.pin(four[1])
    found = compared(capsys, "a", "--baseline", "c")
    assert (found["baseline"], found["choice"], found["runs"]) == ("c", "given", ["c", "a"])
    assert compared(capsys, "a")["baseline"] == "b"
    deleted(four[1])
    assert not any("no longer exists" in note for note in compared(capsys, "a", "--baseline", "c")["notes"])


@pytest.mark.parametrize("form", ["table", "markdown", "csv"])
def test_every_form_says_which_baseline_it_is(four: list[Run], form: str, capsys: pytest.CaptureFixture[str]) -> None:
    baseline.pin(four[1])
    compare_command.show_comparison(["a"], form)
    out = capsys.readouterr().out
    said = "differences are from the pinned baseline, b"
    assert {"table": said, "markdown": f"- {said}", "csv": "baseline,,pinned,,"}[form] in out.splitlines()


def test_a_deleted_baseline_is_said_and_left_out(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    baseline.pin(four[1])
    deleted(four[1])
    found = compared(capsys, "a", "c")
    assert (found["choice"], found["runs"]) == ("first", ["a", "c"])
    assert "pinned baseline b no longer exists" in found["notes"][0]
    assert cli.run(["compare", "a"]) == 2
    said = capsys.readouterr().err
    assert "b no longer exists" in said
    assert "two or more" in said
    assert cli.run(["compare", "--unpin"]) == 0
    assert compared(capsys, "a", "d")["notes"][0].startswith("the global batch sizes")


BROKEN = ["", "{", "[]", "{}", '{"run": null}', '{"run": "../runs/b"}', '{"run": ".."}', "\xff"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_baseline_file_is_no_obstacle(four: list[Run], home: Path, text: str) -> None:
    (home / "baseline.json").write_text(text, encoding="latin-1")
    found = baseline.pinned()
    assert found.run is None
    assert "--unpin removes the pin" in found.lost
    assert baseline.line_up(four).runs == tuple(four)
    baseline.pin(four[2])
    assert baseline.pinned().run == four[2]


def test_pinning_replaces_the_file_and_leaves_no_draft(four: list[Run], home: Path) -> None:
    baseline.pin(four[0])
    with (home / "baseline.json").open() as opened_before:
        baseline.pin(four[1])
        assert json.load(opened_before) == {"run": "a"}  # a reader has the old one whole
    assert sorted(path.name for path in home.iterdir()) == ["baseline.json", "runs"]


@pytest.mark.parametrize(
    "words",
    [["a", "--pin", "b"], ["--pin", "a", "--unpin"], ["--pin", "a", "--json"], ["--unpin", "--baseline", "a"], []],
    ids=" ".join,
)
def test_nothing_is_accepted_and_ignored(four: list[Run], words: list[str]) -> None:
    baseline.pin(four[3])
    assert cli.run(["compare", *words]) == 2
    assert baseline.pinned().run == four[3]


def notes(*recorded_runs: Run) -> str:
    return "\n".join(compare(list(recorded_runs)).notes)


def test_repeats_and_another_speed_need_no_note(four: list[Run]) -> None:
    assert notes(four[0], four[1]) == ""


def test_batch_sizes_and_samples_are_told(four: list[Run]) -> None:
    said = notes(four[0], four[2])
    assert "global batch sizes differ (64, 128 samples)" in said
    assert "losses are after different numbers of samples (11,520, 23,040)" in said
    amend(four[2], steps=90)  # half the steps of twice the size
    assert "after different numbers" not in notes(four[0], four[2])
    amend(four[2], global_batch_size=64, steps=180)  # what was measured counts, not what was asked
    assert notes(four[0], four[2]) == ""


def begun(run: Run, **fields: object) -> None:
    """Other fields in the event with which the run began to train."""
    file = run.file("events.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [event | fields if event["type"] == "started" else event for event in events]
    file.write_text("".join(json.dumps(event) + "\n" for event in changed))


def test_a_smaller_last_batch_counts_as_the_samples_that_it_has(four: list[Run]) -> None:
    """Five epochs of 3,200 samples: 25 batches of 128, or 12 of 256 and one of 128."""
    for run, batch, steps in ((four[0], 128, 25), (four[2], 256, 13)):
        begun(run, global_batch_size=batch, steps_per_epoch=steps, train_samples=3200, replicas=1)
        amend(run, global_batch_size=batch, steps=5 * steps)
    assert "different numbers of samples" not in notes(four[0], four[2])
    amend(four[2], steps=4 * 13)
    assert "(16,000, 12,800)" in notes(four[0], four[2])
    begun(four[2], global_batch_size=512, steps_per_epoch=7)  # memory ran out, and the batch was halved
    amend(four[2], steps=5 * 13)
    assert "different numbers of samples" not in notes(four[0], four[2])


def test_an_option_that_did_nothing_is_marked(four: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    why = "your code has batched the data"
    begun(four[2], not_applied=[{"option": "input.batch_size", "why": why}])
    (row,) = [row for row in compare([four[0], four[2]]).options if row.key == "input.batch_size"]
    assert (row.values, row.no_effect) == ((64, 128), ("", why))
    compare_command.show_comparison(["a", "c"], "table")
    out = capsys.readouterr().out
    assert re.search(r"input.batch_size +64 +\(128\)", out)
    assert "options in parentheses did nothing in that run" in out
    compare_command.show_comparison(["a", "b"], "table")
    assert "parentheses" not in capsys.readouterr().out


def test_losses_at_other_lengths_of_the_same_training_are_told(four: list[Run]) -> None:
    amend(four[1], steps=270)
    assert "losses are after different numbers of samples (11,520, 17,280)" in notes(four[0], four[1])
    amend(four[1], steps=181)  # as good as the same
    assert notes(four[0], four[1]) == ""
    amend(four[1], steps=270)
    amend(four[1], metrics={})
    assert notes(four[0], four[1]) == ""


def test_replicas_make_the_batch_unknown_unless_it_was_measured(four: list[Run], home: Path) -> None:
    mirrored = recorded.write(home, name="m", seconds=30, settings=("strategy.kind=mirrored", "batch_size=32"))
    assert notes(four[0], mirrored) == ""
    amend(mirrored, global_batch_size=512)
    assert "(64, 512 samples)" in notes(four[0], mirrored)


@pytest.mark.parametrize(
    ("steps", "batch", "begun", "options", "said"),
    [
        (100, 32, {}, {}, ""),
        (99, 32, {}, {}, ""),  # a hundredth less
        (98, 32, {}, {}, "3,136, 3,200"),
        (50, 64, {}, {}, ""),
        # Of 100 samples the fourth batch has 4; of another batch size than the trainer has told, others make a pass.
        (100, 32, {"train_samples": 100, "steps_per_epoch": 4}, {}, "2,500, 3,200"),
        (100, 16, {"train_samples": 100, "steps_per_epoch": 4}, {}, "1,432, 3,200"),
        (100, 32, {"train_samples": 100, "steps_per_epoch": 3}, {}, ""),  # the smaller batch is left out
        (100, 32, {"train_samples": 100, "steps_per_epoch": 3}, {"train.steps_per_epoch": 3}, "2,500, 3,200"),
        (100, 32, {"train_samples": 100, "steps_per_epoch": 3},
         {"train.steps_per_epoch": 3, "input.drop_remainder": True}, ""),
        # Without the whole batch that the option asks for, nothing is known of a pass; without a batch, of nothing.
        (100, 16, {"train_samples": 10, "steps_per_epoch": 1}, {"input.drop_remainder": True}, "1,600, 3,200"),
        (100, 0, {"train_samples": 100, "steps_per_epoch": 4}, {}, "0, 3,200"),
        # A last batch of 4 samples is too small for 5 replicas.
        (100, 16, {"train_samples": 100, "steps_per_epoch": 4, "replicas": 5}, {}, "1,600, 3,200"),
        (100, 16, {"train_samples": 100, "steps_per_epoch": 4, "replicas": 4}, {}, "1,432, 3,200"),
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


def test_energy_is_compared_in_wh_and_for_each_sample_in_j(four: list[Run]) -> None:
    for run, watt_hours, joules in zip(four[:3], (2.0, 2.0, 1.5), (0.5, 0.5, 0.25), strict=True):
        amend(run, gpu_energy_wh=watt_hours, sample_energy_j=joules)
    rows = {row.key: row for row in compare(four[:3]).figures}
    whole, of_a_sample = rows["gpu_energy_wh"], rows["sample_energy_j"]
    assert (whole.values, whole.more_is_better) == ((2.0, 2.0, 1.5), False)
    assert whole.changes[2] == pytest.approx(-0.25)
    assert of_a_sample.values == (0.5, 0.5, 0.25)
    assert of_a_sample.changes[2] == pytest.approx(-0.5)
    assert (whole.unit, of_a_sample.unit) == ("Wh", "J")


def test_other_work_is_told(four: list[Run], home: Path) -> None:
    other = recorded.write(home, name="o", seconds=30, settings=("model=mlp", "width=0.5"))
    assert "the runs do different work (workload.model, workload.width)" in notes(four[0], other)


def test_one_batch_again_and_again_is_told(four: list[Run], home: Path) -> None:
    other = recorded.write(home, name="o", seconds=30, settings=("one_batch=true",))
    assert "input.one_batch repeats a single batch" in notes(four[0], other)


def test_a_baseline_without_figures_is_told(four: list[Run]) -> None:
    assert "no figures to compare with (it is crashed)" in notes(four[3], four[0])
    assert "no figures" not in notes(four[0], four[3])


def test_the_figures_of_the_loop_are_compared(four: list[Run]) -> None:
    amend(four[0], python_share=0.10, traces=1, measured_steps=160)
    amend(four[1], python_share=0.35, traces=4, measured_steps=140)
    rows = {row.key: row for row in compare(four[:2]).figures}
    assert rows["python_share"].changes[1] == pytest.approx(0.25)
    assert rows["python_share"].more_is_better is False
    assert rows["traces"].values == (1, 4)
    assert rows["measured_steps"].values == (160, 140)


def test_deleting_a_run(four: list[Run], home: Path) -> None:
    import os

    deleted(four[0])
    assert not four[0].path.exists()
    going_on = recorded.write(home, name="e", seconds=20, gpus=0, outcome=None, engine_pid=os.getpid())
    with pytest.raises(RunError, match="stop it before"):
        deleted(going_on)
    assert going_on.file("events.jsonl").exists()


def amend_started(run: Run, name: str, **entries: object) -> None:
    """Other entries in a mapping of the run's started event."""
    lines = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()]
    for event in lines:
        if event["type"] == "started":
            event[name] |= entries
    run.file("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines))


def test_the_versions_that_trained_are_shown_where_they_differ(
    four: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "TensorFlow" not in comparison.as_markdown(compare(four))
    amend_started(four[1], "versions", tensorflow="2.18.1", python="3.12.3")
    four[3].file("events.jsonl").write_text("")  # it has not told any
    found = compare(four)
    shown = comparison.as_markdown(found)
    assert "| TensorFlow | 2.21.0 | 2.18.1 | 2.21.0 |  |\n| Python | 3.11.7 | 3.12.3 | 3.11.7 |  |" in shown
    assert "- the versions of TensorFlow and Python differ: the speed may differ for that reason" in shown
    assert "TensorFlow,,2.21.0,2.18.1,2.21.0,," in comparison.as_csv(found).splitlines()
    assert json.loads(comparison.as_json(found))["versions"][0]["values"] == ["2.21.0", "2.18.1", "2.21.0", None]
    assert found.groups[0] != found.groups[1], "a run with another TensorFlow is no repeat"
    assert all(row.noise is None for row in found.figures)


def test_runs_in_other_environments_are_told(four: list[Run]) -> None:
    mine = {"TF_CUDNN_USE_AUTOTUNE": "0", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "1"}
    amend_started(four[0], "actual", environment=mine)
    assert "environments" not in notes(four[0], four[1]), "nothing is known of the other one"
    other = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "4", "CUDA_HOME": "/x"}
    amend_started(four[1], "actual", environment=other, jit_compile=True)
    told = notes(four[0], four[1])
    assert "the environments differ (TF_CUDNN_USE_AUTOTUNE): the speed may differ" in told
    assert "XLA has compiled only some of these runs" in told


def test_runs_are_different_work_whatever_is_not_known_of_others() -> None:
    def noted(*models: str | None) -> list[str]:
        options = [{"workload.model": model} if model else {} for model in models]
        return caveats(options, [{"steps": 1.0}] * len(models), ["ok"] * len(models), [None] * len(models))

    assert noted(None, "cnn", "cnn") == []
    assert noted(None, "cnn", "mlp")[0].startswith("the runs do different work (workload.model)")


@pytest.mark.parametrize(
    ("asked", "built", "named"),
    [
        (("auto", "auto"), (True, False), True),
        (("auto", "auto"), (True, True), False),
        (("auto", "auto"), (True, None), False),  # nothing is known of the second
        (("auto", False), (True, False), False),  # it was asked for
    ],
)
def test_what_automatic_xla_has_done_is_told_where_it_differs(
    asked: tuple[Any, ...], built: tuple[Any, ...], named: bool
) -> None:
    begun = [recalled({"t": 1.0, "type": "started", "actual": {"jit_compile": compiled}}) for compiled in built]
    options = [{"compile.xla": xla} for xla in asked]
    notes = caveats(options, [{"x": 1.0}] * 2, ["ok", "ok"], [event for event in begun if isinstance(event, Started)])
    assert [note.partition(",")[0] for note in notes] == (["compile.xla is auto"] if named else [])


def test_shares_have_noise_also_where_one_is_nothing(four: list[Run]) -> None:
    for run, wait in zip(four[:2], (0.0, 0.02), strict=True):
        amend(run, input_wait=wait)
    row = next(row for row in compare(four[:2]).figures if row.key == "input_wait")
    assert row.noise == pytest.approx(0.02)
