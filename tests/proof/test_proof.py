"""Proofs over planted trials: the rule, trials that die, the loop of remedies, and what is refused."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Process,
    ProofError,
    Run,
    folder,
    improved_preset,
    presets,
    proof_start,
    runs,
    trial_runner,
)
from tests.doors.engine import proof_request as request
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.front_door import gputui
from tests.support.proving import HERE

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
