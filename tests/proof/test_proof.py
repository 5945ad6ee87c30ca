"""The proof's rule, its policy for trials that die, the loop of remedies, and its report, over planted trials."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks, presets, runs
from gputui.engine.options import Options
from gputui.engine.proof import folder, improved_preset, proof_start, request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.request import ProofError
from gputui.engine.runs import Run, create_at
from gputui.engine.runs.events import Outcome
from gputui.engine.system.identity import Process
from gputui.engine.trials import comparing, proof_sentences, trial_preset, trial_runner
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.record import Record
from gputui.tui import cli

from tests.support import recorded
from tests.support.front_door import gputui
from tests.support.proving import HERE, Planted, Proving, proving
from tests.support.typed import typed

SIXTEEN = "steps_per_execution=16"

# ---- a trial ------------------------------------------------------------------------------------


def test_a_trial_never_ends_its_epoch_and_writes_nothing(home: Path) -> None:
    given = presets.defaults(
        ["steps_per_execution=7", "run.checkpoint=epoch", "save_model=true", "epochs=3", "profile=5-9", "max_minutes=1",
         "early_stop=loss", "early_stop_patience=2", "keep_best=val_loss", "keep_best_count=3"]
    )  # fmt: skip
    made = trial_preset.as_trial(given, 11, 30.0, HERE).options
    assert made.train.epochs == 1
    assert made.train.steps_per_epoch is not None
    assert made.train.steps_per_epoch % 7 == 0
    assert made.train.steps_per_epoch > 999_999_000
    assert (made.run.checkpoint, made.run.save_model, made.run.profile) == ("off", False, "off")
    assert (made.train.stops_by, made.run.keeps_best_by) == (None, None)
    assert not any("early_stop" in str(finding) for finding in checks.check(made, HERE))
    assert made.run.measure_seconds == 30.0
    assert made.run.max_minutes == pytest.approx(1 + 12 * 0.5), "slow steps are measured for longer"
    assert made.train.seed == 11
    assert made.compile == given.options.compile
    for most, minutes in ((math.inf, 7.0), (90.0, 1.5), (10_000.0, 7.0)):
        limited = trial_preset.as_trial(given, 11, 30.0, HERE, most_seconds=most).options
        assert limited.run.max_minutes == pytest.approx(minutes), "as long as there is time"


def test_a_trial_keeps_the_schedule_of_the_real_run() -> None:
    # 1,797 digits, a tenth of them kept for validation: 1,617 train; in batches of 64 these are 26 steps a pass.
    for settings, expected in [
        (["schedule=cosine", "epochs=10"], 260),
        (["schedule=cosine", "epochs=10", "warmup_steps=60"], 200),
        (["schedule=step", "epochs=3"], 26),
        (["schedule=cyclical"], 26),
        (["schedule=exponential", "steps_per_epoch=5", "epochs=4"], 20),
        (["schedule=cosine", "decay_steps=123"], 123),
        (["schedule=constant"], None),
        (["schedule=cosine", "data=synthetic", "samples=100", "validation_split=0", "batch_size=30"], 8),
        (["schedule=cosine", "data=images:there"], None),
        (["schedule=cosine", "epochs=1", "strategy.kind=mirrored", "logical_devices=2"], 13),
    ]:
        assert trial_preset.decay_steps(presets.defaults(settings).options, HERE) == expected, settings


def test_the_speed_of_a_trial_is_its_mean_and_an_end_without_figures_is_no_success(tmp_path: Path) -> None:
    run = Run(tmp_path)
    steps = {"measured_steps": 200, "measured_seconds": 4.0, "samples_per_second": 1600.0}
    run.file("result.json").write_text(json.dumps({"outcome": "ok", "step_ms": {"p50": 9.0, "p95": 9.0}, **steps}))
    row = trial_runner.outcome(run, "a", 1)
    assert (row.samples_per_second, row.step_ms, row.error) == (1600.0, 20.0, None)
    run.file("result.json").write_text(json.dumps({"outcome": "ok", "measured_steps": 0}))
    assert trial_runner.outcome(run, "a", 1).outcome == "error"
    run.file("result.json").write_text(json.dumps({"outcome": "stopped", **steps}))
    assert trial_runner.outcome(run, "a", 1).outcome == "crashed", "nobody asked it to stop"
    assert trial_runner.outcome(run, "a", 1, asked=True).outcome == "stopped"
    run.file("result.json").unlink()
    assert trial_runner.outcome(run, "b", 1).outcome == "crashed"


# ---- what is learnt -----------------------------------------------------------------------------


def test_a_trial_counts_from_when_its_folder_is_whole(tmp_path: Path) -> None:
    create_at(tmp_path / "trials" / "01-a", "")
    (tmp_path / "trials" / ".02-b.being-made").mkdir()
    assert [run.path.name for run in folder.Proof(tmp_path).trials] == ["01-a"]


@pytest.mark.parametrize(
    ("changes", "settings", "noted"),
    [
        (["input.batch_size"], [], True),
        (["precision.tf32"], [], True),
        (["train.clip_norm"], [], True),
        (["workload.width"], [], True),
        (["device.logical_devices"], [], False),
        (["device.logical_devices"], ["strategy.kind=mirrored"], True),
        (["compile.steps_per_execution", "input.cache", "input.prefetch"], [], False),
    ],
)
def test_changes_that_change_what_is_learnt_are_known(changes: list[str], settings: list[str], noted: bool) -> None:
    options = presets.defaults(settings).options
    assert bool(comparing.note(changes, options)) is noted
    assert comparing.note(changes, options, says_so=True)


def test_losses_are_compared_after_the_same_number_of_samples(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        return Planted(1000.0 if options.input.batch_size == 32 else 4000.0, loss=0.0)

    done = ab(tmp_path, figures, "batch_size=128")
    found = done.written["comparisons"][0]["learning"]
    # 5 s at 1,000 samples/s are 156 steps of 32; both losses fall to 0 at their own end.
    assert found["samples"] == 156 * 32
    assert found["loss_a"] == pytest.approx(0.0)
    assert found["loss_b"] == pytest.approx(1.5, abs=0.02)
    assert "batch size" in found["note"]
    assert comparing.loss_at([(10, 2.0), (20, 1.0)], 15) == pytest.approx(1.5)
    assert comparing.loss_at([(10, 2.0), (20, 1.0)], 25) is None


# ---- an A/B -------------------------------------------------------------------------------------


def ab(path: Path, figures: Any, *settings: str, name: str = "quickstart") -> Proving:
    """An A/B of a shipped preset, measured to whatever end."""
    made = proving(path / "proof", request.of_change(name, list(settings)), figures)
    made.prover.prove()
    made.record.write()
    return made


def spe(options: Options) -> int:
    return options.compile.steps_per_execution


def test_a_faster_change_is_found_in_interleaved_pairs(tmp_path: Path) -> None:
    noise = iter([1.0, 1.01, 0.99, 1.02, 1.0, 0.98])
    done = ab(tmp_path, lambda o, n: Planted((2000 if spe(o) == 16 else 1000) * next(noise)), SIXTEEN)
    told = done.written
    assert [spe(options) for options in done.bench.asked] == [1, 16, 16, 1, 1, 16]
    assert {options.train.seed for options in done.bench.asked} == {7}
    comparison = told["comparisons"][0]
    assert comparison["decision"] == "faster"
    assert comparison["gain"] == pytest.approx(0.98, abs=0.05)
    assert told["gain_total"] == pytest.approx(1 + comparison["gain"])
    assert told["changes_kept"] == {"compile.steps_per_execution": 16}
    assert presets.resolve_text(told["preset_after"], tmp_path / "x.yaml").options.compile.steps_per_execution == 16
    assert comparison["learning"] is None
    assert told["versions"]["keras"] == "3.15"


def test_more_replicas_are_compared_by_their_samples_and_the_efficiency_is_told(tmp_path: Path) -> None:
    several = {"strategy.kind=mirrored": 1840, "batch_size=64": 1800}
    for setting, speed in several.items():
        (tmp_path / setting).mkdir()
        done = ab(tmp_path / setting, lambda o, n, fast=speed: Planted(
            fast if o.strategy.kind == "mirrored" or o.input.batch_size == 64 else 1000
        ), "device.logical_devices=2", setting)  # fmt: skip
        told = done.written
        batches = {row["side"]: row["global_batch_size"] for row in told["comparisons"][0]["trials"]}
        assert batches == {"a": 32, "b": 64}
        said = "2 replicas instead of 1: an efficiency of 92 %"
        for text in (proof_sentences.result(typed(Record, told)), as_markdown(typed(Record, told))):
            assert (said in text) == (setting == "strategy.kind=mirrored"), setting


def test_a_slower_change_is_said_to_be_so_and_not_offered(tmp_path: Path) -> None:
    told = ab(tmp_path, lambda o, n: Planted(500 if spe(o) == 16 else 1000), SIXTEEN).written
    assert told["comparisons"][0]["decision"] == "slower"
    assert told["preset_after"] is None
    assert told["changes_kept"] == {}
    assert told["after"]["samples_per_second"] == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(("outcome", "trials"), [("oom", 2), ("error", 2), ("crashed", 3), ("timeout", 3)])
def test_a_changed_side_that_dies_is_a_row_and_the_decision(tmp_path: Path, outcome: Outcome, trials: int) -> None:
    """Out of memory and errors come again; what may be chance is tried once more."""
    told = ab(tmp_path, lambda o, n: Planted(outcome=outcome if spe(o) == 16 else "ok"), SIXTEEN).written
    comparison = told["comparisons"][0]
    assert comparison["decision"] == "failed"
    assert [row["outcome"] for row in comparison["trials"]] == ["ok", *[outcome] * (trials - 1)]
    assert comparison["gain"] is None
    assert outcome in comparison["why"]
    if outcome != "crashed":
        assert comparison["trials"][1]["error"] == "planted"


def test_a_trial_that_dies_once_is_measured_again(tmp_path: Path) -> None:
    dead: dict[int, Outcome] = {1: "crashed", 4: "crashed"}  # the first b, and later an a
    told = ab(
        tmp_path, lambda o, n: Planted(2000 if spe(o) == 16 else 1000, outcome=dead.get(n, "ok")), SIXTEEN
    ).written
    comparison = told["comparisons"][0]
    assert comparison["decision"] == "faster"
    assert len(comparison["trials"]) == 8
    assert [row["outcome"] for row in comparison["trials"]].count("crashed") == 2


def test_a_baseline_that_dies_twice_ends_the_proof(tmp_path: Path) -> None:
    with pytest.raises(BaselineFailed, match="planted"):
        ab(tmp_path, lambda o, n: Planted(outcome="ok" if spe(o) == 16 else "oom"), SIXTEEN)


def test_a_stop_leaves_what_was_measured(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        if before == 2:
            made.bench.stop.ask()
        return Planted(outcome="stopped" if before == 2 else "ok")

    made = proving(tmp_path / "proof", request.of_change("quickstart", [SIXTEEN]), figures)
    with pytest.raises(Stopped):
        made.prover.prove()
    comparison = made.written["comparisons"][0]
    assert len(comparison["trials"]) == 3
    assert made.record.comparisons[0].decision == "stopped"


# ---- the loop -----------------------------------------------------------------------------------


def heavy(options: Options, before: int) -> Planted:
    """A training whose input is made cheap by a cache; the others of its remedies help nothing or fail."""
    cached = options.input.cache == "memory"
    if options.input.parallel_calls == "auto":
        return Planted(outcome="oom")
    if options.input.one_batch:
        return Planted(5000.0)
    wait = 0.3 if cached else 0.8
    return Planted((4000.0 if cached else 1000.0) * (1 + 0.004 * (before % 3)), wait)


def looped(path: Path, figures: Any, *settings: str, **more: Any) -> Proving:
    made = proving(path / "proof", request.of_preset("loop", "input-heavy", list(settings), **more), figures)
    made.prover.prove()
    made.record.write()
    return made


def test_the_loop_keeps_what_helps_rejects_what_does_not_and_outlives_what_dies(tmp_path: Path) -> None:
    told = looped(tmp_path, heavy).written
    decisions = {json.dumps(one["changes"]): one["decision"] for one in told["comparisons"]}
    assert decisions['{"input.cache": "memory"}'] == "kept"
    assert decisions['{"input.parallel_calls": "auto"}'] == "failed"
    assert decisions['{"input.prefetch": "auto"}'] == "rejected"
    assert len(decisions) == len(told["comparisons"]), "none is tried twice"
    assert told["changes_kept"] == {"input.cache": "memory"}
    assert told["gain_total"] == pytest.approx(4.0, rel=0.05)
    assert told["before"]["samples_per_second"] == pytest.approx(1000, rel=0.02)
    assert told["after"]["samples_per_second"] == pytest.approx(4000, rel=0.02)
    assert told["diagnosis"]["verdict"] == "input_bound"
    assert told["comparisons"][0]["verdict_before"] == "input_bound"
    assert told["comparisons"][0]["expected_gain"]
    assert told["ended_because"] == "no remedy is left"


def test_a_loop_gains_no_more_than_its_first_and_last_pair_show(tmp_path: Path) -> None:
    """The machine gets half as fast between two comparisons, so that the product of their gains is too large."""

    def slowing(options: Options, before: int) -> Planted:
        faster = (4.0 if options.input.cache != "off" else 1.0) * (2.0 if options.input.parallel_calls == "auto" else 1)
        return Planted(1000.0 * faster * (0.5 if before >= 6 else 1.0), 0.6)

    told = looped(tmp_path, slowing).written
    assert [(one["gain"], one["decision"]) for one in told["comparisons"][:2]] == [(3.0, "kept"), (1.0, "kept")]
    assert [told[side]["samples_per_second"] for side in ("before", "after")] == [1000.0, 4000.0]
    assert told["gain_total"] == 4.0
    assert told["comparisons"][0]["why"].endswith("the rest is chance, or other programs"), "it cannot bring so much"


def test_the_first_comparison_takes_over_the_baseline_trial(tmp_path: Path) -> None:
    told = looped(tmp_path, heavy).written
    baseline = told["baseline_trials"][0]["run"]
    assert [row["run"] for row in told["comparisons"][0]["trials"]].count(baseline) == 1
    assert len(told["comparisons"][0]["trials"]) == 6


def test_what_a_proof_takes_lies_within_every_range_that_was_said(tmp_path: Path) -> None:
    """From the first trial on, whose time is that of all others here."""
    ranges: list[tuple[float, float]] = []

    def figures(options: Options, before: int) -> Planted:
        told = made.written
        least, most = told["budget_seconds"], told["budget_most_seconds"]
        if before:
            ranges.append((least / 10 + before, (most or least) / 10 + before))
        return heavy(options, before)

    made = proving(tmp_path / "proof", request.of_preset("loop", "input-heavy", []), figures)
    made.prover.prove()
    total = len(made.record.trials)
    assert len(made.record.comparisons) > 1
    assert ranges[0][1] > ranges[0][0], "a range, and no single figure"
    for least, most in ranges:
        assert least - 1 <= total <= most + 1, (ranges, total)


def test_the_ablation_says_what_the_input_costs(tmp_path: Path) -> None:
    told = looped(tmp_path, heavy, ablation_repeats=1).written
    assert told["ablation"]["input_cost"] == pytest.approx(0.8, abs=0.01)
    assert told["ablation"]["input_wait"] == pytest.approx(0.8)
    assert [row["side"] for row in told["ablation"]["trials"]] == ["a", "b"]


def test_a_time_budget_begins_no_comparison_that_would_not_end(tmp_path: Path) -> None:
    told = looped(tmp_path, heavy, limit_seconds=54.0).written
    assert told["comparisons"] == [], "six trials of 10 s each"
    assert "time budget of 0.9 min" in told["ended_because"]


def test_a_healthy_training_is_left_alone(tmp_path: Path) -> None:
    settings = ("xla=true", "precision.policy=mixed_bfloat16")
    told = looped(tmp_path, lambda options, n: Planted(), *settings).written
    assert told["comparisons"] == []
    assert told["gain_total"] is None
    assert told["before"]
    assert told["after"] is None


def test_every_change_of_the_record_is_on_disk_at_once(tmp_path: Path) -> None:
    seen: list[tuple[int, str]] = []
    ranges: list[float | None] = []

    def figures(options: Options, before: int) -> Planted:
        told = made.written
        seen.append((sum(len(one["trials"]) for one in told["comparisons"]), told["doing"]))
        ranges.append(told["budget_most_seconds"])
        return Planted()

    made = proving(tmp_path / "proof", request.of_change("quickstart", [SIXTEEN]), figures)
    made.prover.prove()
    assert [trials for trials, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert seen[1][1] == "repeat 1 of 3: with steps_per_execution=16"
    assert made.record.budget_seconds == pytest.approx(0, abs=5), "nothing is left to do"
    assert set(ranges) == {None}, "no range from 18.9 s to 18.9 s"


# ---- reports and saving -------------------------------------------------------------------------


def test_the_report_holds_every_trial_and_its_tables_are_whole(tmp_path: Path) -> None:
    made = looped(tmp_path, heavy, ablation_repeats=1)
    made.record.state = "done"
    machine = {"cpus": 2, "processor": "a|b", "memory_bytes": 2**34, "gpus": [], "no_gpu_reason": "no driver"}
    made.record.machine = machine
    made.record.write()
    text = as_markdown(typed(Record, made.written))
    for row in [row for one in made.written["comparisons"] for row in one["trials"]]:
        assert f"| {row['run']} |" in text
    for word in (
        "kept",
        "rejected",
        "failed",
        "oom: planted",
        "keras 3.15",
        "a\\|b",
        "no driver",
        "cache: memory",
        "The input costs 80 % of a step's time (measured by leaving it out)",
    ):
        assert word in text, word
    for table in text.split("\n\n"):
        rows = [line.replace("\\|", "") for line in table.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, table


def test_the_improved_preset_keeps_the_comments_of_its_file(home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("# my own\nextends: quickstart  # as shipped\ntrain: {epochs: 4}\n")
    proof = folder.create(request.of_change("mine.yaml", [SIXTEEN]))
    with pytest.raises(ProofError, match="kept no change"):
        improved_preset.preset(proof)
    record = folder.empty_record(proof.path, proof.request)
    record.changes_kept = {"compile.steps_per_execution": 16}
    record.write()
    improved_preset.save(proof, Path("better.yaml"))
    text = Path("better.yaml").read_text()
    assert "# my own" in text
    assert "# as shipped" in text
    better = presets.resolve("better.yaml").options
    assert better == presets.resolve("mine.yaml", [SIXTEEN]).options
    for name, why in [("better.yaml", "exists"), ("better.txt", "ends in .yaml"), ("no/where.yaml", "not a folder")]:
        with pytest.raises(ProofError, match=why):
            improved_preset.refuse(Path(name))


# ---- folders and refusals -----------------------------------------------------------------------


def test_a_proof_whose_process_is_gone_is_shown_as_crashed(home: Path) -> None:
    proof = folder.create(request.of_change("quickstart", [SIXTEEN]))
    record = folder.empty_record(proof.path, proof.request)
    this = Process.current()
    record.set_process(this)
    record.write()
    assert proof.state == "running"
    assert proof_start.other_training((), HERE) == f"the proof {proof.id} is running"
    record.start_ticks = this.start_ticks - 5  # an earlier process of that number
    record.write()
    assert proof.state == "crashed"
    with pytest.raises(ProofError, match="is not running"):
        folder.request_stop(proof)
    assert folder.find("latest") == proof
    assert [found.id for found in folder.proofs()] == [proof.id]
    assert runs.all_runs() == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["ab", "--preset", "quickstart"], "say what to compare"),
        (["ab", "--preset", "quickstart", "--set", "batch_size=32"], "changes nothing: input.batch_size is 32"),
        (["ab", "--preset", "quickstart", "--set", "epochs=3"], "every trial sets it for itself"),
        (["ab", "--preset", "quickstart", "--set", "batch_sise=3"], "did you mean batch_size"),
        (["ab", "--preset", "quickstart", "--set", "strategy.kind=parameter_server"], "strategy.kind"),
        (["ab", "--preset", "quickstart", "--set", "xla=true", "--repeats", "2"], "--repeats"),
        (["diagnose"], "name a run"),
        (["diagnose", "latest", "--preset", "quickstart"], "name a run"),
        (["diagnose", "latest", "--set", "xla=true"], "--set needs --preset"),
        (["diagnose", "latest", "--repeats", "3"], "--repeats needs --apply or --preset"),
        (["diagnose", "--preset", "quickstart", "-o", "x.yaml"], "--output needs --apply"),
        (["diagnose", "--preset", "quickstart", "--apply", "-o", "x.txt"], "ends in .yaml"),
        (["diagnose", "--preset", "quickstart", "--apply", "--repeats", "2"], "at least 3 repeats"),
        (["proof", "--markdown"], "name a proof"),
        (["proof", "nowhere"], "there are no proofs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refusals_say_why_in_two_lines_and_measure_nothing(
    home: Path, arguments: list[str], why: str, capsys: Any
) -> None:
    assert cli.run(arguments) == 2
    told = capsys.readouterr()
    assert why in told.err
    assert len(told.err.strip().splitlines()) <= 2
    assert told.out == ""
    assert not (home / "proofs").exists()


def test_nothing_is_measured_beside_a_training(home: Path) -> None:
    going_on = recorded.write(home, name="long", seconds=20, gpus=0, outcome=None, engine_pid=os.getpid())
    done = gputui("ab", "--preset", "quickstart", "--set", "steps_per_execution=16")
    assert done.returncode == 2
    assert f"the run {going_on.name} is running" in done.stderr
    assert "--anyway" in done.stderr
    assert not (home / "proofs").exists()


def test_what_is_said_before_a_change_is_measured() -> None:
    told = request.remarks(request.of_change("quickstart", ["gpu_thread_mode=gpu_private"]), HERE)
    assert any("does nothing without a GPU" in line for line in told)
    assert request.remarks(request.of_change("quickstart", [SIXTEEN]), HERE) == []
    several = request.remarks(request.of_change("multi-gpu", ["logical_devices=2"]), HERE)
    assert any("do not expect a speed-up" in line for line in several)
    rehearsed = request.of_opened("ab", presets.defaults(["logical_devices=2"]), None,
                                  changes={"strategy.kind": "mirrored"})  # fmt: skip
    assert any("do not expect a speed-up" in line for line in request.remarks(rehearsed, HERE))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_proof_that_is_asked_to_stop_while_its_interpreter_starts_ends_as_stopped(
    home: Path, capsys: Any, number: signal.Signals
) -> None:
    in_a_job = presets.resolve("quickstart", ["run.stop_signal=SIGUSR1"])
    proof = folder.create(request.of_opened("ab", in_a_job, None, changes={"compile.steps_per_execution": 16}))
    process = folder.start(proof)
    process.send_signal(signal.SIGUSR2)  # a scheduler's signal that the preset does not name stops nothing
    process.send_signal(number)
    assert process.wait(60) == 0, (proof.path / "proof.log").read_text()
    assert (proof.state, proof.data["ended_because"]) == ("stopped", "a stop was requested")
    assert not proof.trials
    assert cli.run(["proof", proof.id]) == 0
    assert "ended because: a stop was requested" in capsys.readouterr().out


def test_an_unexpected_fault_is_one_line_and_the_proof_failed(home: Path, capsys: Any) -> None:
    proof = folder.create(request.of_change("quickstart", [SIXTEEN]))
    data = json.loads((proof.path / "request.json").read_text())
    (proof.path / "request.json").write_text(json.dumps(data | {"preset": "- no preset\n"}))
    process = folder.start(proof)
    assert process.wait(30) == 1
    assert proof.data["state"] == "failed"
    assert "\n" not in proof.data["error"]
    assert "Traceback" in (proof.path / "proof.log").read_text()
    assert cli.run(["proof", proof.id]) == 0
    assert "the proof failed" in capsys.readouterr().out


def two_help(options: Options, before: int) -> Planted:
    """A training whose input a cache makes cheaper, and after that parallel calls."""
    cached, parallel = options.input.cache == "memory", options.input.parallel_calls == "auto"
    return Planted(1000.0 * (1 + cached) * (1 + parallel) * (1 + 0.004 * (before % 3)), 0.8 if not parallel else 0.3)


def test_each_comparison_after_the_first_measures_its_own_baseline(tmp_path: Path) -> None:
    told = looped(tmp_path, two_help).written
    assert [one["decision"] for one in told["comparisons"][:2]] == ["kept", "kept"]
    rows = [row["run"] for one in told["comparisons"] for row in one["trials"]]
    assert len(rows) == len(set(rows)), "no trial is in two comparisons"
