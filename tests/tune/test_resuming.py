"""A search that is killed, stopped or out of time goes on, measures nothing twice, and saves what it has found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Limits,
    Options,
    Process,
    Proof,
    Record,
    Run,
    folder,
    improved_preset,
    proof_start,
    tune_request,
)
from tests.doors.engine import proof_process as process
from tests.doors.engine import proof_request as request
from tests.doors.tui import tui_cli as cli
from tests.support.front_door import gputui, opened, until
from tests.support.proving import Planted, searching
from tests.support.proving import forked_trials as forked_trials
from tests.support.recorded_proof import typed

SEARCH = ("tune", "--preset", "small.yaml", "--only", "xla", "--minutes", "6", "--seconds", "0.5")
# Its steps wait, so that a trial takes less of the CPU, and with XLA clearly longer. The trials that are disturbed wait
# for it in `build`.
DISTURBED = (1, 2, 4, 6, 7)
PRESET = """\
description: small
workload: {entry: "train.py:build"}
input: {batch_size: 16}
train: {seed: 3}
"""
CODE = """\
import time
import keras, numpy as np
class Waits(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1 if self.model.jit_compile is True else 0.03)
def build(context):
    with open("builds", "a+") as builds:
        builds.write("x")
        number = builds.tell()
    while number in DISTURBED:
        time.sleep(0.03)
    x = np.zeros((512, 4), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    return {"model": model, "loss": "mse", "train": (x, x[:, :1]), "callbacks": [Waits()]}
"""


@pytest.fixture
def nothing_left(home: Path) -> Iterator[None]:
    """A test that fails must not leave its search measuring."""
    yield
    for proof in folder.proofs():
        of_trials = [run.process(role) for run in proof.trials for role in ("engine", "trainer")]
        for found in (Process.read(proof.data), *of_trials):
            if found is not None and found.alive():
                with suppress(ProcessLookupError):
                    os.kill(found.pid, signal.SIGKILL)


def building(proof: Proof, number: int) -> Run:
    """The trial of that number, from 1, whose trainer builds its model."""
    assert number in DISTURBED
    until(lambda: Path("builds").exists() and len(Path("builds").read_text()) == number)
    assert len(proof.trials) == number
    until(lambda: proof.trials[-1].process("trainer"))
    return proof.trials[-1]


def killed(viewer: subprocess.Popen[str], pid: int) -> str:
    """What the command says when its search is killed."""
    os.kill(pid, signal.SIGKILL)
    out, complaints = viewer.communicate(timeout=60)
    assert viewer.returncode == 1, out + complaints
    assert "Traceback" not in out + complaints
    return out


def good(proof: Proof) -> list[str]:
    """The keys of the trials that have counted so far, in the order in which they were measured."""
    return [trial.key for trial in proof.record.all_trials if trial.good]


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left", "forked_trials")
@pytest.mark.nightly
def test_a_search_goes_on_after_it_was_killed_at_several_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in its first trial and in its third; trainer and engine of a trial killed; stopped; one at a time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(PRESET)
    (tmp_path / "train.py").write_text(CODE.replace("DISTURBED", str(DISTURBED)))
    with opened(*SEARCH, "--anyway") as viewer:
        proof: Proof = until(lambda: next(iter(folder.proofs()), None))
        first = building(proof, 1)
        out = killed(viewer, proof.data["pid"])
        assert f"go on      gputui tune --resume {proof.id}\n" in out
    assert first.alive("trainer"), "its trial is an orphan"

    with opened("tune", "--resume", "--anyway") as viewer:
        _kill(building(proof, 2), "trainer")
        assert not first.alive("trainer")
        assert not first.alive("engine")
        fourth = building(proof, 4)
        assert len(good(proof)) == 1, "the baseline was measured again"
        _kill(fourth, "engine")
        building(proof, 6)
        kept, seconds = good(proof), proof.data["seconds"]
        assert len(kept) == 2
        os.kill(proof.data["pid"], signal.SIGSTOP)  # it takes no step further meanwhile
        _is_alone(proof)
        killed(viewer, proof.data["pid"])
    assert proof.state == "crashed"

    with opened("tune", "--resume", proof.id, "--anyway") as viewer:
        trial = building(proof, 7)
        assert good(proof) == kept
        assert proof.data["seconds"] >= seconds, "the time of earlier sittings counts"
        viewer.send_signal(signal.SIGINT)
        out, complaints = viewer.communicate(timeout=60)
    assert viewer.returncode == 130, out + complaints
    assert proof.state == "stopped"
    assert not trial.alive("trainer")

    done = gputui("tune", "--resume", proof.id, "--anyway", "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["state"] == "done"
    assert told["ended_because"].startswith("every option was tried")
    stages = [one["stage"] for one in told["search"]["candidates"]]
    assert stages[:3] == ["baseline", "ceiling", "xla"], "its input is measured again where it held the training back"
    rows = [trial for trial in proof.record.all_trials if trial.good]
    assert len({trial.key for trial in rows}) == len(rows), "nothing is measured twice"
    assert [trial.key for trial in rows][: len(kept)] == kept
    assert told["earlier"] == []
    assert cli.run(["tune", "--resume", proof.id]) == 2


def _kill(trial: Run, role: str) -> None:
    process = trial.process(role)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def _is_alone(proof: Proof) -> None:
    """A second search is refused with the reason, or waits for the first."""
    second = gputui(*SEARCH)
    assert second.returncode == 2
    assert f"the search {proof.id} is running: figures measured at the same time would be worthless" in second.stderr
    with opened(*SEARCH, "--wait") as third:
        assert third.stdout is not None
        assert third.stdout.readline() == f"waiting: the search {proof.id} is running\n"
        third.send_signal(signal.SIGINT)
        third.communicate(timeout=60)
    assert third.returncode == 130


def figures(options: Options, before: int) -> Planted:
    return Planted(1000.0 * (options.input.batch_size / 32) ** 0.5)


def recorded(name: str, state: str, **changes: Any) -> Proof:
    """A search of planted trials, in the state in which it was left."""
    wanted = request.of_preset("tune", "quickstart", ["batch_size=32"], search=Limits(only=["batch_size"]))
    made = folder.create(wanted)
    searcher, _ = searching(made.path, wanted, figures)
    searcher.run()
    searcher.record.state = state
    searcher.record.write("ended")
    data = json.loads((made.path / "proof.json").read_text()) | changes
    (made.path / "proof.json").write_text(json.dumps(data))
    return made


@pytest.mark.usefixtures("home")
def test_a_search_that_cannot_go_on_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("done", {}, "has ended"),
        ("stopped", {"search": {"candidates": [{"trials": [{"run": "01-s"}]}]}, "comparisons": []}, "is damaged"),
        ("stopped", {"started_t": "yesterday"}, "is damaged"),
    ]
    for state, changes, said in cases:
        proof = recorded("one", state, **changes)
        capsys.readouterr()
        assert cli.run(["tune", "--resume", proof.id]) == 2, said
        complaint = capsys.readouterr().err
        assert said in complaint
        assert len(complaint.splitlines()) <= 2
        assert "Traceback" not in complaint
        assert cli.run(["proof", proof.id]) in (0, 2), said
    (proof.path / "request.json").write_text("{")
    capsys.readouterr()
    cli.run(["tune", "--resume", proof.id])
    assert "request" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_a_search_that_has_ended_is_given_more_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Proof] = []
    monkeypatch.setattr(proof_start, "start", started.append)
    monkeypatch.setattr(proof_start, "other_training", lambda ours, here, but=None: "")
    proof = recorded("one", "done", seconds=300.0, ended_because="the time budget of 5 min allows no further trial")
    proof_start.start_again(proof, tune_request.resumed(proof, "tune", 2.5))
    assert proof.request.search is not None
    assert (started, proof.request.search.minutes, proof.request.search.only) == ([proof], 7.5, ["batch_size"])


def test_rows_of_earlier_sittings_stay_until_the_search_has_come_to_them(home: Path, tmp_path: Path) -> None:
    """A search that is killed again while it goes over what it knows must not forget the rest."""
    proof = recorded("one", "stopped")
    known = proof.record.all_trials
    record = folder.empty_record(proof.path, proof.request)
    assert process._go_on(proof.path, record) == known
    record.write("examining this machine")
    assert proof.data["search"] is None
    assert proof.record.all_trials == known


def test_what_has_ended_a_search_is_tried_anew_and_trials_that_it_has_left_running_are_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = recorded("one", "failed")
    data = json.loads((proof.path / "proof.json").read_text())
    rows = [row for one in data["search"]["candidates"] for row in one["trials"]]
    for row, outcome in zip(rows, ["error", "oom", "slower"], strict=False):
        row["outcome"] = outcome
    (proof.path / "proof.json").write_text(json.dumps(data))
    (proof.path / "trials" / "01-s").rename(proof.path / "trials" / "100-s")
    ended: list[str] = []
    monkeypatch.setattr(process, "_end", lambda run: ended.append(run.id))
    record = folder.empty_record(proof.path, proof.request)
    left = [trial.run for trial in process._go_on(proof.path, record)]
    assert left == [trial.run for trial in proof.record.all_trials if trial.run not in (rows[0]["run"], rows[1]["run"])]
    assert (ended[0], ended[-1]) == ("02-s", "100-s"), "trials side by side, too; the hundredth is the last"
    assert len(ended) == len(proof.record.all_trials)


def test_what_was_kept_instead_of_another_option_is_compared_with_the_preset() -> None:
    """XLA with the precision as it was is a third faster than the mixed precision, which had gained a quarter."""
    steps, policy, xla = "compile.steps_per_execution", "precision.policy", "compile.xla"
    tried = [({steps: 64}, 0.5), ({policy: "mixed_bfloat16"}, 0.25), ({xla: True, policy: "float32"}, 1 / 3)]
    candidates = [{"tried": one, "decision": "kept", "gain": gain, "spread": 0.03} for one, gain in tried]
    data: dict[str, Any] = {"changes_kept": {steps: 64, xla: True}, "search": {"candidates": candidates}}
    assert improved_preset.reasons(typed(Record, data), {steps: 1, policy: "float32", xla: False}) == {
        steps: "tried alone: 1.50 times as fast as 1 (spread 3.0 %)",
        xla: "tried alone: 1.67 times as fast as false (spread 4.2 %)",
    }
