"""Proofs over planted trials: the rule, trials that die, the loop of remedies, and what is refused."""

from __future__ import annotations

import io
import json
import os
import signal
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    BaselineFailed,
    Options,
    Process,
    ProofError,
    Record,
    Run,
    Stopped,
    folder,
    improved_preset,
    presets,
    proof_start,
    runs,
    trial_runner,
)
from tests.doors.engine import proof_request as request
from tests.doors.tui import printing_proof as proof_tables
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.front_door import gputui
from tests.support.proving import HERE, Planted, Proving, proving
from tests.support.recorded_proof import typed

SIXTEEN = "steps_per_execution=16"


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


def ab(path: Path, figures: Any, *settings: str, name: str = "quickstart") -> Proving:
    """An A/B of a shipped preset, measured to whatever end."""
    made = proving(path / "proof", request.of_change(name, list(settings)), figures)
    made.prover.prove()
    made.record.write()
    return made


def heavy(options: Options, before: int) -> Planted:
    """A training whose input is made cheap by a cache; the others of its remedies help nothing or fail."""
    cached = options.input.cache == "memory"
    if options.input.parallel_calls == "auto":
        return Planted(outcome="oom")
    if options.input.one_batch:
        return Planted(5000.0)
    wait = 0.3 if cached else 0.8
    return Planted((4000.0 if cached else 1000.0) * (1 + 0.004 * (before % 3)), wait)


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


def test_nothing_is_measured_beside_a_training(home: Path) -> None:
    going_on = recorded.write(home, name="long", seconds=20, gpus=0, outcome=None, engine_pid=os.getpid())
    done = gputui("ab", "--preset", "quickstart", "--set", "steps_per_execution=16")
    assert done.returncode == 2
    assert f"the run {going_on.name} is running" in done.stderr
    assert "--anyway" in done.stderr
    assert not (home / "proofs").exists()


def test_a_proof_that_is_asked_to_stop_while_its_interpreter_starts_ends_as_stopped(home: Path, capsys: Any) -> None:
    in_a_job = presets.resolve("quickstart", ["run.stop_signal=SIGUSR1"])
    proof = folder.create(request.of_opened("ab", in_a_job, changes={"compile.steps_per_execution": 16}))
    process = folder.start(proof)
    process.send_signal(signal.SIGUSR2)  # a scheduler's signal that the preset does not name stops nothing
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 0, (proof.path / "proof.log").read_text()
    assert (proof.state, proof.data["ended_because"]) == ("stopped", "a stop was requested")
    assert not proof.trials
    assert cli.run(["proof", proof.id]) == 0
    assert "stopped before the comparison was complete" in capsys.readouterr().out


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


def proved(path: Path, asked: request.Request, figures: Any) -> Proving:
    """A proof to whatever end, its state as its process would write it."""
    made = proving(path / "proof", asked, figures)
    try:
        made.prover.prove()
        made.record.state = "done"
    except Stopped:
        made.record.state = "stopped"
    except BaselineFailed as fault:
        made.record.state, made.record.error = "failed", str(fault)
    made.record.write("ended")
    return made


def shown(told: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        proof_tables.show_details(typed(Record, told))
    return out.getvalue()


def loop(*settings: str, **more: Any) -> request.Request:
    return request.of_preset("loop", "input-heavy", list(settings), **more)


def of_preset(*settings: str, **more: Any) -> request.Request:
    return request.of_preset("diagnosis", "input-heavy", list(settings), ablation_repeats=1, **more)


def test_a_trial_that_dies_while_it_is_profiled_is_a_row(tmp_path: Path) -> None:
    told = proved(
        tmp_path,
        of_preset(profile=True),
        lambda o, n: Planted(2000.0 if o.input.one_batch else 1000.0, 0.8, outcome="ok" if n < 2 else "oom"),
    ).written
    assert told["state"] == "done"
    assert told["ablation"]["input_cost"] == pytest.approx(0.5), "half of a step, as it takes twice as long with it"
    assert told["profile_missing"] == "the profiled trial failed: oom: planted"
    assert told["diagnosis"]["verdict"] == "input_bound"
    assert "oom: planted" in shown(told)
