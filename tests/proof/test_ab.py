"""Proofs as a user makes them: real trials in real processes, some of which die.

The first test has its trials forked by the process of its proof, as users have them; the others have forked_trials.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Proof, Run, folder, presets, runs, significance
from tests.doors.tui import tui_cli as cli
from tests.support.front_door import gputui, happened, opened, until
from tests.support.proving import forked_trials as forked_trials

# A training that sleeps for each sample: how much faster it is with several at once depends on no other program.
SLEEPY = """\
# Each sample is waited for.
description: sleepy
workload: {entry: "train.py:build"}
input: {batch_size: 4, shuffle: off, prefetch: off, parallel_calls: off, private_threads: 16}   # one after the other
train: {seed: 3, learning_rate: 0.02}
"""
SECOND_WAITS = """\
def build_but_second(context):
    with open("builds", "a+") as builds:
        builds.write("x")
        second = builds.tell() == 2
    if second:
        time.sleep(600)  # until it is killed
    return build(context)
"""
SLEEPY_CODE = """\
import time
import keras, numpy as np, tensorflow as tf
def sleep(x):
    time.sleep(0.004)
    return x
def load(x, y):
    return tf.ensure_shape(tf.numpy_function(sleep, [x], tf.float32), (4,)), y
def build(context):
    x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))
    return {"model": model, "loss": "mse", "train": data, "map": load}
"""
# Others of gputui may train on this machine while the tests run; the differences looked for are large.
ANYWAY = ("--seconds", "0.5", "--anyway")
STAGED = ("--seconds", "1.2", "--anyway")  # the stages of the input are told after a second
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
def sleepy(tmp_path: Path) -> Path:
    """A folder with the preset and its code."""
    (tmp_path / "sleepy.yaml").write_text(SLEEPY)
    (tmp_path / "train.py").write_text(SLEEPY_CODE)
    return tmp_path


def the_proof() -> Proof:
    found: Proof = until(lambda: next(iter(folder.proofs()), None))
    return found


def training(proof: Proof, number: int) -> Run:
    """The trial of that number, from 1, once it trains."""
    until(lambda: len(proof.trials) >= number and happened(proof.trials[number - 1], "progress"))
    return proof.trials[number - 1]


@pytest.mark.usefixtures("forked_trials")
def test_a_faster_change_is_proved_with_what_it_learns_although_one_of_its_trials_is_killed(
    sleepy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ("--set", "parallel_calls=16", "--set", "learning_rate=0.05", "--repeats", "4")
    (sleepy / "sleepy.yaml").write_text(SLEEPY.replace(":build", ":build_but_second"))
    # Sixteen times as fast: of four pairs one may be disturbed for seconds, and the gain is certain nevertheless.
    (sleepy / "train.py").write_text(SLEEPY_CODE.replace("0.004", "0.01") + SECOND_WAITS)
    with opened("ab", "--preset", "sleepy.yaml", *changes, *ANYWAY, "--json", cwd=sleepy) as viewer:
        proof = the_proof()
        until(lambda: (sleepy / "builds").exists() and len((sleepy / "builds").read_text()) == 2)
        trainer = until(lambda: proof.trials[1].process("trainer"))
        os.kill(trainer.pid, signal.SIGKILL)
        out, complaints = viewer.communicate(timeout=200)
    assert viewer.returncode == 0, complaints
    told: dict[str, Any] = json.loads(out)
    comparison = told["comparisons"][0]
    assert comparison["decision"] == "faster", comparison
    assert comparison["gain"] > 1
    assert [trial["outcome"] for trial in comparison["trials"]] == ["ok", "crashed", *["ok"] * 7]
    assert "killed" in comparison["trials"][1]["error"]
    assert runs.all_runs() == [], "trials do not clutter the list of runs"
    for trial in comparison["trials"]:
        result = Run(proof.path / "trials" / trial["run"]).result or {}
        if trial["outcome"] == "ok":
            assert result["measured_seconds"] >= 0.5
            assert result["epochs"] == 0, "no epoch has ended, and nothing was evaluated"
            mean = result["measured_steps"] * 4 / result["measured_seconds"]
            assert trial["samples_per_second"] == pytest.approx(mean)
    assert comparison["learning"]["loss_a"] != comparison["learning"]["loss_b"]
    assert comparison["learning"]["samples"] > 0

    def printed(*arguments: str) -> str:
        assert cli.run(["proof", *arguments]) == 0
        return capsys.readouterr().out

    monkeypatch.chdir(sleepy)
    shown = printed(proof.id, "--details")
    assert "crashed: the trainer was killed" in shown
    assert "times as fast" in shown
    assert "the learning rate changes what is learnt; loss after" in " ".join(shown.split())
    report = printed(proof.id, "--markdown")
    assert re.search(r"(?m)^\| `parallel_calls=16, learning_rate=0.05` \|.* \| faster \|", report)
    assert "tensorflow 2." in report
    assert json.loads(printed(proof.id, "--json")) == told
    assert proof.id in printed()
    printed(proof.id, "-o", "better.yaml")
    better = sleepy / "better.yaml"
    assert better.read_text().startswith("# tuned: all changes: ")
    assert "# Each sample is waited for." in better.read_text()
    assert "# one after the other" in better.read_text()
    options = presets.resolve(str(better)).options
    assert (options.input.parallel_calls, options.train.learning_rate) == (16, 0.05)


@pytest.mark.usefixtures("forked_trials")
def test_losing_the_terminal_leaves_the_proof_measuring(
    sleepy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sleepy)
    arguments = ["ab", "--preset", "sleepy.yaml", "--set", "parallel_calls=8"]
    with opened(*arguments, "--seconds", "60", "--anyway", start_new_session=True) as viewer:
        proof = the_proof()
        until(lambda: proof.data.get("pid"))
        os.killpg(viewer.pid, signal.SIGHUP)
        viewer.communicate(timeout=120)
    assert viewer.returncode == -signal.SIGHUP
    training(proof, 1)

    def printed(*words: str, code: int = 0) -> str:
        assert cli.run(words) == code, words
        return capsys.readouterr().out

    assert "running" in printed("proof")
    assert "running: repeat 1 of 3" in printed("proof", proof.id)
    printed(*arguments, code=2)  # one at a time
    printed("proof", proof.id, "--stop")
    until(lambda: proof.state == "stopped")
    assert "the measurement of parallel_calls=8 is incomplete" in printed("proof", proof.id)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forked_trials")
def test_the_loop_makes_a_training_that_waits_for_its_input_three_times_as_fast(
    sleepy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("diagnose", "--preset", "sleepy.yaml", "--set", "batch_size=8", "--apply", *STAGED)
    done = gputui(*arguments, "-o", "better.yaml", cwd=sleepy, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr
    [proof] = folder.proofs()
    assert proof.state == "done"
    out = done.stdout

    data = proof.data
    _is_input_bound(data, out)
    assert data["gain_total"] >= 3, out
    assert data["after"]["samples_per_second"] > 2.5 * data["before"]["samples_per_second"]
    kept = [one for one in data["comparisons"] if one["decision"] == "kept"]
    assert cli.run(["proof", proof.id, "--markdown"]) == 0
    report = capsys.readouterr().out
    assert f"input costs {100 * data['ablation']['input_cost']:.0f} % of a step's time" in report
    for one in kept:
        good = [trial for trial in one["trials"] if trial["outcome"] == "ok"]
        assert sorted({(trial["side"], trial["repeat"]) for trial in good}) == [(s, n) for s in "ab" for n in (1, 2, 3)]
        assert one["gain"] > significance.detectable_gain(one["spread"], 3)
        assert all(f"| {trial['run']} |" in report for trial in good)
    assert kept
    better = presets.resolve(str(sleepy / "better.yaml")).options
    assert all(
        getattr(better.input, key.removeprefix("input.")) == value
        for one in kept
        for key, value in one["changes"].items()
        if key.startswith("input.")
    )


def _is_input_bound(data: dict[str, Any], shown: str) -> None:
    assert data["diagnosis"]["verdict"] == "input_bound"
    assert data["ablation"]["input_cost"] == pytest.approx(data["ablation"]["input_wait"], abs=0.2)
    assert "Input-bound" in shown
    slowest = next(line for line in shown.splitlines() if line.rstrip().endswith("slowest"))
    assert slowest.startswith("load"), "samples are made one by one"
    assert "set input.across_epochs=true with input.cache=memory" in shown, "Python code makes its samples"
