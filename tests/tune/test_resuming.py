"""A search that is killed, stopped or disturbed at any moment goes on, and measures nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.options import OPTIONS, Options, by_key
from gputui.engine.proof import folder, process, proof_start, request
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.request import ProofError
from gputui.engine.runs import Run
from gputui.engine.system.identity import Process
from gputui.engine.trials.search_record import Limits
from gputui.engine.tune import tune_request
from gputui.tui import cli
from gputui.tui.cli import speed

from tests.support.front_door import gputui, opened, until
from tests.support.proving import Planted, searching
from tests.support.proving import forked_trials as forked_trials

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
        assert f"gputui tune --resume {proof.id} goes on with it" in out
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
def test_a_search_that_has_ended_is_given_more_minutes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Proof] = []
    monkeypatch.setattr(proof_start, "start", started.append)
    monkeypatch.setattr(proof_start, "other_training", lambda ours, here, but=None: "")
    proof = recorded("one", "done", seconds=300.0, ended_because="the time budget of 5 min allows no further trial")
    assert cli.run(["tune", "--resume", proof.id]) == 2
    assert f"gputui tune --resume {proof.id} --minutes N gives it N more minutes" in capsys.readouterr().err
    tune_request.resume(proof, minutes=2.5)
    asked = proof.request.search
    assert asked is not None
    assert (started, asked.minutes, asked.only) == ([proof], 7.5, ["batch_size"])

    whole = recorded("two", "done", ended_because="every option was tried", changes_kept={"input.batch_size": 64})
    with pytest.raises(ProofError, match="every option was tried, and its gain is proved"):
        tune_request.resume(whole, minutes=2)
    assert started == [proof]


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


def test_the_gpus_of_all_strategies_that_may_be_tried_count(home: Path) -> None:
    gpus = tuple(
        Gpu(index=number, uuid=f"GPU-{number}", name="A", compute_capability=(8, 0), memory_total_bytes=2**34)
        for number in range(2)
    )
    here = Machine(gpus=gpus, no_gpu_reason="", cpus=2, memory_bytes=2**34)
    for limits, expected in [
        (Limits(), {"GPU-0", "GPU-1"}),
        (Limits(only=["xla"]), {"GPU-0"}),
        (Limits(leave=["strategy.kind"]), {"GPU-0"}),
    ]:
        wanted = request.of_preset("tune", "quickstart", ["strategy.kind=single"], search=limits)
        assert proof_start.of_request(wanted, here) == expected, limits


def test_what_only_waits_for_a_training_is_none(home: Path) -> None:
    """A trainer that has no run folder yet, as one that has TensorFlow ready for the next run."""
    waiting = "import time; time.sleep(60)"
    words = ["-c", waiting, "gputui.engine.trainer", "--fork-server"]
    here = Machine(gpus=(), no_gpu_reason="none", cpus=2, memory_bytes=2**34)
    with psutil.Popen([sys.executable, *words]) as server:
        found = [what for what, _ in proof_start._of_other_homes(here, None)]
        server.kill()
    assert not any(f"(process {server.pid})" in what for what in found)


def test_limits_that_leave_nothing_to_search_are_refused() -> None:
    for limits, said in [
        (Limits(only=["batches"]), "'batches' cannot be searched"),
        (Limits(leave=["input"]), "input is left out by naming the others with --only"),
        (Limits(leave=["bsize"]), "--leave bsize: unknown option, did you mean batch_size"),
        (Limits(only=["xla", "batch_size"], leave=["compile.xla", "batch_size"]), "nothing is left to search"),
        (Limits(precisions=["half"]), "there is no precision 'half'"),
        (Limits(warmup_steps=3), "choose linear or sqrt"),
    ]:
        with pytest.raises(ProofError, match=said):
            tune_request.checked(limits)
    assert tune_request.checked(Limits(only=["xla", "input"], leave=["compile.xla"])).leave == ["compile.xla"]
    assert tune_request.checked(Limits(leave=["precision"])).leave == ["precision.policy"]


def test_the_help_names_the_precisions_that_there_are() -> None:
    help_of = {option.name: getattr(option, "help", "") for option in speed.tune.params}
    for policy in by_key(OPTIONS)["precision.policy"].choices:
        assert policy in help_of["precisions"], policy
