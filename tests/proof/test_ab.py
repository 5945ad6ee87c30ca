"""Proofs as a user makes them: real trials in real processes, some of which die. Each takes about 5 s."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.proof import folder
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run

from tests.support.front_door import gputui, happened, opened, until

# A step of a fraction of a millisecond: what Python does between two of them is most of the time.
TINY = """\
# A step that costs nearly nothing.
description: tiny
workload: {model: mlp, width: 0.05, data: digits}
input: {batch_size: 8, cache: memory, one_batch: true}   # nothing to wait for
train: {seed: 3}
"""
# Others of gputui may train on this machine while the tests run; the differences looked for are large.
ANYWAY = ("--seconds", "1", "--anyway")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_proof_left_running")]


@pytest.fixture
def no_proof_left_running(home: Path) -> Iterator[None]:
    """A test that fails must not leave its proof measuring."""
    yield
    for proof in folder.proofs():
        data = proof.data
        if data.get("state") == "running" and data.get("pid"):
            os.kill(data["pid"], signal.SIGKILL)
        for run in proof.trials:
            for role in ("engine", "trainer"):
                process = run.process(role)
                if process is not None and process.alive():
                    os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def the_proof() -> Proof:
    found: Proof = until(lambda: next(iter(folder.proofs()), None))
    return found


def training(proof: Proof, number: int) -> Run:
    """The trial of that number, from 1, once it trains."""
    until(lambda: len(proof.trials) >= number and happened(proof.trials[number - 1], "progress"))
    return proof.trials[number - 1]


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_a_faster_change_is_proved_although_one_of_its_trials_is_killed(tiny: Path, tmp_path: Path) -> None:
    arguments = ["ab", "--preset", str(tiny), "--set", "steps_per_execution=64", *ANYWAY, "--json"]
    with opened(*arguments, cwd=tmp_path) as viewer:
        trainer = training(the_proof(), 2).process("trainer")
        assert trainer is not None
        os.kill(trainer.pid, signal.SIGKILL)
        out, complaints = viewer.communicate(timeout=120)
    assert viewer.returncode == 0, complaints
    told: dict[str, Any] = json.loads(out)
    comparison = told["comparisons"][0]
    assert comparison["decision"] == "faster", comparison
    assert comparison["gain"] > 0.3
    assert [trial["outcome"] for trial in comparison["trials"]] == ["ok", "crashed", *["ok"] * 5]
    assert "killed" in comparison["trials"][1]["error"]
    assert runs.all_runs() == [], "trials do not clutter the list of runs"
    proof = the_proof()
    for trial in comparison["trials"]:
        result = Run(proof.path / "trials" / trial["run"]).result or {}
        if trial["outcome"] == "ok":
            assert result["measured_seconds"] == pytest.approx(1.0, abs=0.5)
            assert result["epochs"] == 0, "no epoch has ended, and nothing was evaluated"
            mean = result["measured_steps"] * 8 / result["measured_seconds"]
            assert trial["samples_per_second"] == pytest.approx(mean)

    shown = gputui("proof", proof.id)
    assert "crashed: the trainer was killed" in shown.stdout
    assert "times as fast" in shown.stdout
    report = gputui("proof", proof.id, "--markdown").stdout
    assert "`steps_per_execution=64`: faster" in report
    assert "tensorflow 2." in report
    assert json.loads(gputui("proof", proof.id, "--json").stdout) == told
    assert proof.id in gputui("proof").stdout
    saved = gputui("proof", proof.id, "-o", "better.yaml", cwd=tmp_path)
    assert saved.returncode == 0, saved.stderr
    better = tmp_path / "better.yaml"
    assert better.read_text().startswith("# A step that costs nearly nothing.")
    assert presets.resolve(str(better)).options.compile.steps_per_execution == 64


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_a_slower_change_is_said_to_be_so_with_what_it_learns(tiny: Path, tmp_path: Path) -> None:
    done = gputui("ab", "--preset", str(tiny), "--set", "width=8", *ANYWAY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "width=8.0 makes the training 0." in done.stdout
    assert "another model or other data is learnt; loss after" in done.stdout
    assert "improved.yaml" not in done.stdout
    comparison = the_proof().data["comparisons"][0]
    assert comparison["decision"] == "slower"
    assert comparison["learning"]["loss_a"] != comparison["learning"]["loss_b"]
    assert comparison["learning"]["samples"] > 0


def test_a_change_that_needs_too_much_memory_is_a_row_and_no_crash(tmp_path: Path) -> None:
    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (9 * 10**9, 9 * 10**9))

    # At width 16 the first layer alone has 13 GB of weights.
    wide = tmp_path / "wide.yaml"
    wide.write_text("workload: {model: mlp, data: synthetic, shape: [512, 512, 3], samples: 64, width: 0.05}\n"
                    "input: {batch_size: 2, shuffle: off}\ntrain: {seed: 1}\n")
    done = gputui("ab", "--preset", str(wide), "--set", "width=16", *ANYWAY, preexec_fn=limit_memory)
    assert done.returncode == 3, done.stdout
    comparison = the_proof().data["comparisons"][0]
    assert [trial["outcome"] for trial in comparison["trials"]] == ["ok", "oom"]
    assert comparison["decision"] == "failed"
    assert "width=16.0 cannot be used: oom: out of memory at batch size 2" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_ctrl_c_stops_the_proof_with_its_trial_and_shows_what_there_is(tiny: Path, tmp_path: Path) -> None:
    with opened("ab", "--preset", str(tiny), "--set", "xla=true", *ANYWAY, cwd=tmp_path) as viewer:
        proof = the_proof()
        trial = training(proof, 1)
        viewer.send_signal(signal.SIGINT)
        out, complaints = viewer.communicate(timeout=60)
    assert viewer.returncode == 130, complaints
    assert "stopping" in out
    assert "the measurement of xla=true is incomplete" in out
    assert "Traceback" not in out + complaints
    assert proof.state == "stopped"
    assert not trial.alive("engine")
    assert not trial.alive("trainer")
    assert trial.result is not None


def test_losing_the_terminal_leaves_the_proof_measuring(tiny: Path, tmp_path: Path) -> None:
    arguments = ["ab", "--preset", str(tiny), "--set", "xla=true", *ANYWAY]
    with opened(*arguments, cwd=tmp_path, start_new_session=True) as viewer:
        proof = the_proof()
        until(lambda: proof.data.get("pid"))
        os.killpg(viewer.pid, signal.SIGHUP)
        viewer.communicate(timeout=120)
    assert viewer.returncode == -signal.SIGHUP
    training(proof, 1)
    assert "running" in gputui("proof").stdout
    assert "running: repeat 1 of 3" in gputui("proof", proof.id).stdout
    assert gputui("ab", "--preset", str(tiny), "--set", "xla=true").returncode == 2, "one at a time"
    assert gputui("proof", proof.id, "--stop").returncode == 0
    until(lambda: proof.state == "stopped")


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_a_preset_is_diagnosed_with_and_without_its_input(tmp_path: Path) -> None:
    done = gputui("diagnose", "--preset", "input-heavy", "--profile", *ANYWAY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = the_proof().data
    assert data["diagnosis"]["verdict"] == "input_bound"
    assert data["ablation"]["input_cost"] == pytest.approx(data["ablation"]["input_wait"], abs=0.1)
    assert f"input costs {100 * data['ablation']['input_cost']:.0f} % of a step's time" in done.stdout
    assert "Input-bound" in done.stdout
    slowest = next(line for line in done.stdout.splitlines() if line.rstrip().endswith("slowest"))
    assert slowest.startswith("load"), "synthetic samples are made one by one"
    assert "cache=memory" in done.stdout
    installed = importlib.util.find_spec("xprof") is not None
    told = ", read by XProf" if installed else "pip install 'gputui[profile]'"
    assert told in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("03-p") and "profiled" in line]
    assert bool(data["profile"]) == installed
    assert installed or "pip install" in data["profile_missing"]
    assert "1 pair of trials" in gputui("proof", "latest", "--markdown").stdout
    assert gputui("diagnose", "latest", "--profile").returncode == 2, "a run has its profile or has none"


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_the_loop_makes_a_training_that_waits_for_its_input_three_times_as_fast(tmp_path: Path) -> None:
    """The time budget bounds it: on a quiet machine one or two remedies are measured."""
    limits = ("--seconds", "1", "--minutes", "1.5", "--anyway")
    done = gputui(
        "diagnose", "--preset", "input-heavy", "--apply", *limits, "-o", "better.yaml", cwd=tmp_path, timeout=400
    )
    assert done.returncode == 0, done.stderr
    proof = the_proof()
    data = proof.data
    assert data["gain_total"] >= 3, done.stdout
    assert data["after"]["samples_per_second"] > 2.5 * data["before"]["samples_per_second"]
    kept = [one for one in data["comparisons"] if one["decision"] == "kept"]
    report = gputui("proof", proof.id, "--markdown").stdout
    for one in kept:
        good = [trial for trial in one["trials"] if trial["outcome"] == "ok"]
        assert sorted({(trial["side"], trial["repeat"]) for trial in good}) == [(s, n) for s in "ab" for n in (1, 2, 3)]
        assert one["gain"] > max(0.02, 2 * one["spread"])
        assert all(f"| {trial['run']} |" in report for trial in good)
    assert kept
    better = presets.resolve(str(tmp_path / "better.yaml")).options
    assert all(getattr(better.input, key.removeprefix("input.")) == value
               for one in kept for key, value in one["changes"].items() if key.startswith("input."))
