"""Several machines share one sweep: members in processes of their own, and the log that they share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.proof.request import ProofError
from gputui.engine.sweep import claims, preset_block, sweep_request
from gputui.engine.sweep.claims import Claims
from gputui.engine.sweep.shared_study import SharedStudy
from gputui.engine.trials import sweep_sentences
from gputui.engine.trials.sweep_record import SweepTrial
from gputui.engine.tune.wide import storage
from gputui.engine.tune.wide.storage import StudyError

from tests.support.swept import request_of

RATES = "learning_rate=1e-3,2e-3,3e-3,4e-3"
# A member: its trainings, which end at the next look, are printed at the end.
MEMBER = """\
import json, os, sys, time
from pathlib import Path
from gputui.engine.proof import folder
from gputui.engine.sweep import claims, shared_study
from gputui.engine.sweep.sweep_loop import SweepLoop
from gputui.engine.trials import sweep_sentences
from gputui.engine.trials.trial_runner import Stop
from tests.support.swept import Simulated, request_of
from tests.sweep.test_sweep import loss

where, name, over, more = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
shared_study.SYNC_SECONDS, shared_study.QUIET_SECONDS = 0.1, more.pop("quiet", 2.0)
vanished, dies_at, epochs = more.pop("vanished", 600), more.pop("dies_at", 0), more.pop("epochs", 1)
path = Path(os.environ["FOLDER"]) / name
path.mkdir()
request = request_of(over, epochs, study=where, member=name, **more)

class Dying(Simulated):
    def start(self, trial):
        super().start(trial)
        if len(self.trained) == dies_at:
            print("dies", flush=True)
            time.sleep(1000)

trainings, record = Dying(loss, epochs), folder.empty_record(path, request)
study = shared_study.SharedStudy(request, vanished)
SweepLoop(request, record, trainings, Stop(), wait=lambda: time.sleep(0.05), study=study).run()
sweep = record.sweep
keys = [claims.key_of(trial) for trial in sweep.trials if not trial.on and trial.run in trainings.trained]
values = {claims.key_of(trial): trial.value for trial in sweep.trials}
print(json.dumps({
    "trained": keys, "epochs": trainings.trained, "values": values, "states": [trial.state for trial in sweep.trials],
    "on": [trial.on for trial in sweep.trials], "result": sweep_sentences.result(sweep), "winner": sweep.winner,
}))
"""


def member(folder: Path, where: str, name: str, over: list[str], **more: Any) -> subprocess.Popen[str]:
    """Start a member of the study `where` that sweeps `over`."""
    command = [sys.executable, "-c", MEMBER, where, name, json.dumps(over), json.dumps(more)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"FOLDER": str(folder)}
    )


def results(members: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Return what the members have printed at their end."""
    ended = [each.communicate(timeout=240) for each in members]
    assert all(each.returncode == 0 for each in members), [errors for _, errors in ended]
    return [json.loads(printed.splitlines()[-1]) for printed, _ in ended]


def agree(members: list[dict[str, Any]], count: int) -> None:
    """Check that `count` trials were trained, each by one member, and that all have the same result."""
    trained = [key for each in members for key in each["trained"]]
    assert len(trained) == len(set(trained)) == count
    assert len({json.dumps(each["values"], sort_keys=True) for each in members}) == 1
    assert len({each["result"] for each in members}) == 1
    assert {state for each in members for state in each["states"]} <= {"done", "dropped"}


@pytest.mark.needs("optuna")
@pytest.mark.slow
@pytest.mark.parametrize("where", ["study.journal", "sqlite:///{}/study.db"])
def test_eight_members_share_a_sweep_and_make_no_trial_twice(tmp_path: Path, where: str) -> None:
    place = where.format(tmp_path) if "://" in where else str(tmp_path / where)
    begun = [member(tmp_path, place, f"m{number}", [RATES, "batch_size=16,32,64"]) for number in range(8)]
    ended = results(begun)
    agree(ended, 12 + 2 * 5)
    assert sum(bool(each["trained"]) for each in ended) > 1
    assert ended[0]["winner"]["train.learning_rate"] == 0.004


@pytest.mark.needs("optuna")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "count", "more"),
    [
        (9, 9, {"epochs": 9, "rungs": [1, 3]}),
        (18, 2 * 14, {"sampler": "tpe", "most_trials": 14, "seeds": 2}),
    ],
)
def test_halving_and_proposals_are_shared(tmp_path: Path, values: int, count: int, more: dict[str, Any]) -> None:
    over = [f"learning_rate={','.join(f'{number}e-4' for number in range(1, values + 1))}"]
    begun = [member(tmp_path, str(tmp_path / "s.journal"), name, over, proof_seeds=3, **more) for name in ("a", "b")]
    ended = results(begun)
    agree(ended, count + 2 * 3)
    for each in ended:
        assert all(epochs == sorted(set(epochs)) for epochs in each["epochs"].values()), "no epoch is trained twice"


@pytest.mark.needs("optuna")
@pytest.mark.slow
def test_the_trials_of_a_member_that_was_killed_are_taken_over_and_count_once(tmp_path: Path) -> None:
    place = str(tmp_path / "s.journal")
    killed = member(tmp_path, place, "killed", [RATES], dies_at=2)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "dies\n"
    other = member(tmp_path, place, "other", [RATES], vanished=3, quiet=0.5)
    time.sleep(1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    (ended,) = results([other])
    assert len(ended["values"]) == 4 + 10
    assert None not in ended["values"].values()
    assert sum(map(bool, ended["on"])) <= 1, "at most the trial that had ended is that of the other machine"
    assert len(ended["trained"]) == 14 - sum(map(bool, ended["on"]))


def test_of_two_claims_the_earlier_counts_and_what_is_lost_stays_lost() -> None:
    log = Claims()

    def claim(token: str, part: str = "search", key: str = "k") -> None:
        log.take({"op": "claim", "key": key, "token": token, "member": token, "host": "h", "run": "r", "part": part})

    def report(token: str, state: str, key: str = "k") -> None:
        log.take({"op": "report", "key": key, "token": token, "report": {"state": state}})

    claim("a")
    claim("b")
    assert log.claims["k"].member == "a"
    report("b", "done")
    assert log.claims["k"].state == "waiting", "it is not its trial"
    log.take({"op": "choice", "choice": {"finalists": []}})
    assert log.choice is None, "a trial of the search is open"
    log.take({"op": "release", "key": "k", "token": "a", "member": "b"})
    claim("b")
    report("a", "done")
    assert (log.claims["k"].member, log.claims["k"].state) == ("b", "waiting"), "a has lost it"
    report("b", "done")
    log.take({"op": "release", "key": "k", "token": "b", "member": "a"})
    assert log.claims["k"].state == "done", "a result is not taken over"
    log.take({"op": "choice", "choice": {"finalists": [1]}})
    log.take({"op": "choice", "choice": {"finalists": [2]}})
    assert log.choice == {"finalists": [1]}
    claim("c", key="late")
    assert "late" not in log.claims, "the search has ended"
    claim("c", "proof", "fresh")
    assert log.claims["fresh"].member == "c"
    log.take({"op": "of a later version"})


def test_another_sweep_and_other_code_are_refused(home: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "s.journal")
    first = SharedStudy(request_of([RATES], study=place, member="a"))
    first.join()
    assert not first.other_code({"model.py": "1"})
    for over, preset, why in (
        (["learning_rate=1e-3,2e-3"], "", "other --over"),
        ([RATES], "compile: {xla: true}\n", r"other compile.xla \(there .*, here true\)"),
    ):
        request = request_of(over, study=place, member="b")
        object.__setattr__(request, "preset", request.preset + preset)
        with pytest.raises(StudyError, match=why):
            SharedStudy(request).join()
    second = SharedStudy(request_of([RATES], study=place, member="b"))
    second.join()
    assert "model.py differs from that on" in second.other_code({"model.py": "2", "data.py": "3"})
    assert not second.other_code({"model.py": "1"})
    trial = SweepTrial(run="r-001", changes={"train.learning_rate": 0.001}, seed=1)
    assert first.claim(trial)
    assert not second.claim(trial)
    second.sync([trial], "r")
    assert sweep_sentences.outcome(trial).startswith("waiting on ")
    assert claims.key_of(trial).startswith("search 1 ")


def test_a_study_is_refused_in_one_line_before_the_start(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**more: Any) -> str:
        with pytest.raises(ProofError) as fault:
            sweep_request.of_preset("quickstart", (), [RATES], "val_loss", None, **more)
        assert "\n" not in str(fault.value)
        return str(fault.value)

    assert "give --study as well" in refused(study_name="mine")
    assert "there is no folder" in refused(study=str(tmp_path / "none" / "s.journal"))
    (tmp_path / "text").write_text("no journal\n")
    assert "is not a journal of Optuna" in refused(study=str(tmp_path / "text"))
    monkeypatch.setattr(storage, "is_installed", lambda: False)
    assert "pip install 'optuna>=5,<6'" in refused(study=str(tmp_path / "s.journal"))
    assert preset_block.of_block({"study": "/shared/s", "name": "mine"}) == {"study": "/shared/s", "study_name": "mine"}
