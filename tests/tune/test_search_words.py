"""What a search says while it runs, at its end and in its report, of planted trials."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.options import Options
from gputui.engine.proof import folder, request
from gputui.engine.proof.folder import Proof
from gputui.engine.trials.record import Record, search_of
from gputui.engine.trials.search_record import Limits, LossCheck, Memory
from gputui.engine.tune.report import memory_sentences, search_results, search_sentences
from gputui.tui.commands import proof as command
from gputui.tui.printing import proof as proof_tables
from gputui.tui.printing import tune
from gputui.tui.printing.plain_tables import broken

from tests.support.proving import Planted, searching
from tests.support.typed import typed

LIMITS = Limits(only=["batch_size", "xla", "steps_per_execution"], largest_batch=128, leave=["input.shuffle"])


def figures(options: Options, before: int) -> Planted:
    """Batches of 128 are out of memory, those of 64 learn worse than the preset's 32."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    if batch > 64:
        return Planted(outcome="oom", error="out of memory at batch size 128")
    speed = 1000 * batch / 32 * (1.2 if together >= 4 else 1.0) * (0.5 if options.compile.xla is True else 1.0)
    return Planted(samples_per_second=speed, loss=0.7 if batch > 40 else 0.5, peak_memory_bytes=batch * 2**20)


@pytest.fixture
def searched(home: Path) -> Proof:
    """A search that has ended."""
    wanted = request.of_preset("tune", "quickstart", ["train.seed=1"], search=LIMITS)
    made = folder.create(replace(wanted, seed=7))
    searcher, _ = searching(made.path, wanted, figures)
    searcher.run()
    searcher.record.trials[1].disturbed = "other programs used 50 % of the CPU's cores"
    searcher.record.state = "done"
    searcher.record.write("ended")
    return made


def test_each_candidate_each_pair_and_each_comparison_of_losses_is_a_line(searched: Proof) -> None:
    keys, lines = zip(*tune.news(typed(Record, searched.data)), strict=True)
    told = "\n".join(dict(zip(keys, lines, strict=True)).values())
    assert "batch size          batch_size=64 " in told
    assert all(len(line) <= 80 for line in told.splitlines() if line.endswith("+100 %  kept"))
    assert "+100 %  kept" in told
    assert told.count("against the best settings before it, and not against the start") == 1
    assert "failed: oom: out of memory at batch size 128" in told
    assert "rejected: ended before its time, as it was clearly slower" in told
    assert told.count("50 % of the CPU's cores") == 1, "a disturbance is told once"
    assert "validation loss after 4,800 samples" in told or "validation loss after 6,000 samples" in told
    assert told.count("\npair ") == 3
    assert "are kept: 1." in told or "is kept: 1." in told


def test_the_end_shows_a_leaderboard_what_each_option_brought_and_what_to_do_next(
    searched: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    command.show_proof(searched.id, "table", None, stop=False)
    said = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any("batch_size=64, steps_per_execution=15 2,400 +140 % +20.0 %" in line for line in lines)
    assert any("in pairs: batch_size=40, steps_per_execution=15 1,500 +50.0 % -" in line for line in lines)
    assert any(line.startswith("all together +50.0 %") and "vs. start, in pairs" in line for line in lines)
    assert not any("batch_size=64" in line and line.endswith("kept") for line in lines), "as below"
    brought = [" ".join(re.sub("[│┊├─•┤┼]", " ", line).split()) for line in said.splitlines()]  # without the bars
    assert any(line.startswith("batch size +100 % 4.2 % not chosen") for line in brought)
    assert "XLA -50.0 % - nothing" in brought
    assert "memory: " in said
    assert "0.5 with the preset, 0.7 with batch_size=64" in said
    assert "learn clearly worse and are not chosen: batch_size=40, steps_per_execution=15 instead" in said
    assert said.count("trials was disturbed") == 1
    check = searched.data["search"]["losses"][0]
    one_pair = [trial for trial in check["trials"] if trial["repeat"] == 1]
    assert "in both pairs of trainings)" in said
    assert search_sentences.loss_check(typed(LossCheck, check | {"trials": one_pair})).endswith(
        "from one pair, as there was time for no more)"
    )
    first = said.splitlines()
    assert "1.50 times as fast with batch_size=40, steps_per_execution=15 (gain +50.0 %, spread" in first[0]
    assert first[3] == f"gputui proof {searched.id} -o fastest.yaml saves the fastest preset"
    assert "--learning-rate linear" in first[5]
    assert "--allow-worse-loss" in first[6]


def test_the_report_holds_everything(searched: Proof, capsys: pytest.CaptureFixture[str]) -> None:
    command.show_proof(searched.id, "markdown", None, stop=False)
    report = capsys.readouterr().out
    for part in (
        "# The fastest settings: quickstart",
        "left as they are: input.shuffle",
        "## Leaderboard",
        "| 64.0 MiB |",
        "## What each option brought",
        "## Memory",
        "out of memory",
        "## What is learnt",
        "| worse |",
        "## Trials of the search",
        "## Proof: `batch_size=40",
        "## Before and after",
        "## The resulting preset",
    ):
        assert part in report, part
    for candidate in search_of(searched.record).candidates:
        assert all(f"| {trial.run} |" in report for trial in candidate.trials)


def test_the_report_of_a_prediction_claims_no_search(searched: Proof, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((searched.path / "proof.json").read_text())
    data["search"]["limits"] |= {"dry_run": True, "memory_bytes": 2**30}
    rows = next(one["trials"] for one in data["search"]["candidates"] if one["trials"])
    rows += [rows[0] | {"run": run} for run in ("100-s", "99-s")]
    data |= {
        "comparisons": [],
        "changes_kept": {},
        "before": None,
        "preset_after": None,
        "gain_total": None,
        "ended_because": "batch 32 will take 1.0 GiB",
    }
    (searched.path / "proof.json").write_text(json.dumps(data))
    command.show_proof(searched.id, "markdown", None, stop=False)
    report = capsys.readouterr().out
    assert report.startswith("# What memory it takes: quickstart\n\n**Batch 32 will take 1.0 GiB")
    assert report.count("will take 1.0 GiB") == 1
    assert report.index("| 01-s") < report.index("| 99-s") < report.index("| 100-s"), "in the order of the search"
    for part in ("## Memory", "## Trials\n", "Limits: memory at most 1.0 GiB.", "a line of memory over the batch size"):
        assert part in report, part
    for part in ("pair", "minutes;", "searched", "nothing", "Leaderboard", "What each option brought"):
        assert part not in report.replace("nothing else was searched", ""), part


def test_a_search_of_an_older_version_and_one_that_is_damaged_are_told(searched: Proof, capsys: Any) -> None:
    data = json.loads((searched.path / "proof.json").read_text())
    del data["search"]["losses"], data["search"]["rate_fixed"]
    data["search"]["memory"] = None
    (searched.path / "proof.json").write_text(json.dumps(data))
    command.show_proof(searched.id, "table", None, stop=False)
    command.show_proof(searched.id, "markdown", None, stop=False)
    assert "batch_size=64" in capsys.readouterr().out


def test_who_has_followed_a_search_is_not_told_its_losses_twice_and_lines_break_between_words(
    searched: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    proof_tables.show_result(typed(Record, searched.data), was_followed=True)
    said = capsys.readouterr().out
    assert "0.7 with batch_size=64" not in said
    assert "learn clearly worse and are not chosen" in said
    text = " ".join(lines := broken(said, 60).splitlines())
    assert text.split() == said.split(), "no word is broken"
    assert all(len(line) <= 60 for line in lines)


def test_a_training_for_the_loss_is_a_line_that_says_how_far_it_came() -> None:
    for outcome, error, words in (
        ("ok", None, "trained on 4,800 samples"),
        ("timeout", None, "trained on 4,800 samples"),  # as long as the search allows it
        ("oom", "out of memory at batch size 64", "oom: out of memory at batch size 64"),
        ("error", "a loss that is not finite", "error: a loss that is not finite"),
        ("crashed", None, "crashed"),
        ("stopped", None, "stopped"),
    ):
        for side, title in (("a", "the preset as it is"), ("b", "batch_size=64")):
            trial = {"side": side, "repeat": 1, "run": "7-s", "outcome": outcome, "error": error}
            check = {"settings": {"input.batch_size": 64}, "samples": 4800, "trials": [trial]}
            line = dict(tune.news(typed(Record, {"search": {"losses": [check]}})))["7-s"]
            assert " ".join(line.split()) == f"loss {title} {words}"


def test_a_footnote_stands_only_where_a_figure_refers_to_it(searched: Proof, capsys: Any) -> None:
    data = json.loads((searched.path / "proof.json").read_text())
    for candidate in data["search"]["candidates"]:
        candidate["samples_per_second"] = None if candidate["without_input"] else candidate["samples_per_second"]
    (searched.path / "proof.json").write_text(json.dumps(data))
    for form in ("table", "markdown"):
        command.show_proof(searched.id, form, None, stop=False)
    said = capsys.readouterr().out + "".join(dict(tune.news(typed(Record, data))).values())
    assert "measured on one repeated batch" not in said


def test_of_an_option_that_brought_nothing_the_best_gain_is_told_also_where_it_is_none_at_all() -> None:
    tried = [{"stage": "xla", "tried": {"compile.xla": True}, "decision": "rejected", "gain": gain}
             for gain in (-0.1, 0.0, None)]  # fmt: skip
    (one,) = search_results.brought(typed(Record, {"search": {"candidates": tried, "limits": {"only": ["xla"]}}}))
    assert (one.state, one.gain) == ("nothing", 0.0)
    failed = [{"stage": "xla", "tried": {"compile.xla": True}, "decision": "failed"}]
    (one,) = search_results.brought(typed(Record, {"search": {"candidates": failed, "limits": {"only": ["xla"]}}}))
    assert (one.state, one.figures) == ("nothing", "no gain")


def test_both_sides_of_each_comparison_stand_in_the_table_with_their_own_trials() -> None:
    def trial(side: str, speed: float | None, outcome: str = "ok", repeat: int = 1) -> dict[str, Any]:
        return {"side": side, "samples_per_second": speed, "outcome": outcome, "run": f"{side}{speed}",
                "repeat": repeat}  # fmt: skip

    first = [trial("a", 110.0), trial("b", 200.0), trial("b", 250.0, repeat=2), trial("a", 120.0, repeat=2),
             trial("b", 900.0, "oom")]  # fmt: skip
    second = [trial("a", 90.0), trial("b", None)]
    baseline = [{"peak_memory_bytes": 5}, {"peak_memory_bytes": None}, {"peak_memory_bytes": 7}]
    data = {
        "baseline_trials": baseline,
        "search": {"before_speed": 100.0, "candidates": [
            {"settings": {"compile.xla": True}, "samples_per_second": 130.0, "decision": "kept"},
            {"settings": {"compile.xla": False}, "samples_per_second": None, "decision": "failed"},
            {"settings": {"input.cache": "memory"}, "samples_per_second": 300.0, "without_input": True,
             "decision": "kept"},
            {"settings": {"input.batch_size": 64}, "decision": "running"}]},
        "comparisons": [{"changes": {"compile.xla": True}, "trials": first, "gain": 0.8, "decision": "kept"},
                        {"changes": {"input.cache": "memory"}, "trials": second, "decision": "failed"}],
    }  # fmt: skip
    rows = search_results.ranked(typed(Record, data))
    assert [(row.number, row.samples_per_second) for row in rows] == [
        (3, None), (-3, 200.0), (0, 130.0), (-2, 110.0), (-1, 100.0), (-4, 90.0), (2, 300.0), (1, None)]  # fmt: skip
    assert [search_results.since_start(row, typed(Record, data)) for row in rows] == [
        None, 0.8, pytest.approx(0.3), None, None, None, None, None]  # fmt: skip
    assert rows[4].peak_bytes == 7
    assert [row.run for row in rows[1].trials] == ["b200.0", "b250.0", "b900.0"]
    assert search_results.ranked(typed(Record, {"search": {"before_speed": None}})) == []


def test_memory_is_predicted_by_the_line_and_the_largest_error_told() -> None:
    assert memory_sentences.predicted(typed(Memory, {"base_bytes": 100.0, "bytes_per_sample": 3.0}), 32) == 196.0
    assert memory_sentences.predicted(typed(Memory, {"base_bytes": 100.0}), 32) is None
    points = [{"peak_bytes": 100, "predicted_bytes": 110}, {"peak_bytes": 200, "predicted_bytes": 150},
              {"peak_bytes": None, "predicted_bytes": 900}, {"peak_bytes": 50}]  # fmt: skip
    assert memory_sentences.largest_error(typed(Memory, {"points": points})) == 0.25
    assert memory_sentences.largest_error(typed(Memory, {"points": points[2:]})) is None
    assert search_results.limit_seconds(typed(Record, {"search": {"limits": {"minutes": 2.5}}})) == 150.0
    assert search_results.limit_seconds(typed(Record, {})) is None
