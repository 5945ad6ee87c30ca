"""Several machines share one sweep: members, in processes of their own, and the log that they share."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Claims,
    Look,
    ProofError,
    Record,
    SharedStudy,
    Stop,
    Stopped,
    StudyError,
    SweepTrial,
    presets,
    shared_study,
    storage,
    sweep_record,
    sweep_request,
)
from tests.support.swept import Killed, Simulated, request_of, swept
from tests.sweep.test_sweep import loss

RATES = "learning_rate=1e-3,2e-3,3e-3,4e-3"
# Members, each in a process of its own, whose trainings end at the next look. They are forked, so that the imports are
# paid once.
MEMBERS = """\
import json, os, sys, time, traceback
from pathlib import Path
import optuna
from gputui.engine.sweep import shared_study
from gputui.engine.sweep.sweep_loop import SweepLoop
from gputui.engine.sweep.trainings import Look
from gputui.engine.trials import sweep_record
from gputui.engine.trials.comparing import Stopped
from gputui.engine.trials.trial_runner import Stop
from tests.doors.engine import Record, folder
from tests.support.swept import Simulated, request_of
from tests.sweep.test_sweep import loss

base, where, number, over, more = Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
shared_study.SYNC_SECONDS, shared_study.QUIET_SECONDS = 0.1, 2.0
shared_study.BEAT_SECONDS = more.pop("beat", 20.0)
epochs = more.pop("epochs", 1)

def member(name):
    path = base / name
    path.mkdir()
    request = request_of(over, epochs, study=where, member=name, **more)
    trainings, record = Simulated(loss, epochs), folder.empty_record(path, request)
    study = shared_study.SharedStudy(request)
    SweepLoop(request, record, trainings, Stop(), wait=lambda: time.sleep(0.05), study=study).run()
    sweep = record.sweep
    (base / f"{name}.json").write_text(json.dumps({
        "trained": [shared_study.key_of(sweep.trials[int(run[-3:]) - 1]) for run in trainings.trained],
        "epochs": trainings.trained, "values": {shared_study.key_of(trial): trial.value for trial in sweep.trials},
        "states": [trial.state for trial in sweep.trials], "winner": sweep.winner,
        "result": sweep_record.result(sweep),
    }))

children = []
for place in range(number):
    children.append(os.fork())
    if not children[-1]:
        code = 1
        try:
            member(f"m{place}")
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def members(folder: Path, where: str, number: int, over: list[str], **more: Any) -> list[dict[str, Any]]:
    """Carry out a sweep of `over` by so many members of the study `where`, and return what each of them has."""
    command = [sys.executable, "-c", MEMBERS, str(folder), *map(json.dumps, (where, number, over, more))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"m{place}.json").read_text()) for place in range(number)]


def agree(members: list[dict[str, Any]], count: int) -> None:
    """Check that `count` trials were trained, each by one member, and that all have the same result."""
    trained = [key for each in members for key in each["trained"]]
    assert len(trained) == len(set(trained)) == count
    assert len({json.dumps(each["values"], sort_keys=True) for each in members}) == 1
    assert len({each["result"] for each in members}) == 1
    assert {state for each in members for state in each["states"]} <= {"done", "dropped"}


@pytest.mark.needs("optuna")
@pytest.mark.slow
@pytest.mark.parametrize("where", ["study.journal", pytest.param("sqlite:///{}/study.db", marks=pytest.mark.nightly)])
def test_three_members_share_a_sweep_and_make_no_trial_twice(tmp_path: Path, where: str) -> None:
    place = where.format(tmp_path) if "://" in where else str(tmp_path / where)
    ended = members(tmp_path, place, 3, [RATES, "batch_size=16,32"], proof_seeds=3)
    agree(ended, 8 + 2 * 3)
    assert sum(bool(each["trained"]) for each in ended) > 1
    assert ended[0]["winner"]["train.learning_rate"] == 0.004


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that read the study at each look, and do not wait long for each other."""
    monkeypatch.setattr(shared_study, "SYNC_SECONDS", 0.0)
    monkeypatch.setattr(shared_study, "QUIET_SECONDS", 0.2)


@pytest.mark.needs("optuna")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("kill_at", "more"), [
    (9, {}), (16, {"epochs": 3, "rungs": [1]}), pytest.param(2, {}, marks=pytest.mark.nightly),
    pytest.param(8, {"epochs": 3, "rungs": [1]}, marks=pytest.mark.nightly),
])  # fmt: skip
def test_the_trials_of_a_member_that_was_killed_are_taken_over_and_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int, more: dict[str, Any]
) -> None:
    """It is killed before one of its entries, and resumed after the other one has taken over its trials."""
    first, second = (Simulated(loss, more.get("epochs", 1)) for _ in range(2))
    request, other = (request_of([RATES], study=f"{tmp_path}/s.journal", member=name, **more) for name in ("a", "b"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    added, add = [], SharedStudy._add

    def dying(study: SharedStudy, entry: Mapping[str, Any], value: float | None = None) -> None:
        added.append(entry)
        if len(added) == kill_at:
            raise Killed
        add(study, entry, value)

    with monkeypatch.context() as patched:
        patched.setattr(SharedStudy, "_add", dying)
        with pytest.raises(Killed):
            swept(request, first, tmp_path / "a", study=SharedStudy(request))
    whole = swept(other, second, tmp_path / "b", study=SharedStudy(other, vanished_seconds=0.5))
    before = sum(map(len, first.trained.values()))
    resumed = swept(request, first, tmp_path / "a", study=SharedStudy(request))
    assert whole.sweep is not None
    assert resumed.sweep is not None
    assert sum(map(len, first.trained.values())) == before, "it trains nothing more"
    for a, b in zip(resumed.sweep.trials, whole.sweep.trials, strict=True):
        assert (a.changes, a.seed, a.state, a.value) == (b.changes, b.seed, b.state, b.value)
        assert bool(a.on) != bool(b.on), "each trial is that of one member"
    assert not second.trained_twice(whole.sweep)
    given_up = [trial.run for trial in whole.sweep.trials if trial.state == "dropped" and not trial.on]
    assert second.given_up == given_up, "the other member gives up its own"
    assert whole.sweep.winner == resumed.sweep.winner == {"train.learning_rate": 0.004}
    assert sweep_record.result(resumed.sweep) == sweep_record.result(whole.sweep)


@pytest.mark.needs("optuna")
@pytest.mark.usefixtures("quick")
def test_a_storage_that_is_away_for_a_while_loses_nothing(tmp_path: Path) -> None:
    folder, away = tmp_path / "shared", tmp_path / "away"
    folder.mkdir()
    notes = []

    class Absent(Simulated):
        """The folder is away from the second training until the sweep has waited twenty times."""

        def start(self, trial: SweepTrial) -> None:
            super().start(trial)
            if len(self.trained) == 2:
                folder.rename(away)

        def pass_time(self, record: Record) -> None:
            notes.append(record.doing)
            if len(notes) > 20 and away.exists():
                away.rename(folder)

    request = request_of([RATES], study=str(folder / "s.journal"), member="a")
    sweep = swept(request, Absent(loss), tmp_path, study=SharedStudy(request)).sweep
    assert any("waiting: the study in" in note and "No such file or directory" in note for note in notes)
    assert sweep is not None
    assert {trial.state for trial in sweep.trials} == {"done"}
    study = SharedStudy(request_of([RATES], study=str(folder / "s.journal"), member="b"))
    study.join()
    read = [replace(trial, state="planned", value=None) for trial in sweep.trials]
    study.sync(read, "b")
    assert [trial.value for trial in read] == [trial.value for trial in sweep.trials]


@pytest.mark.needs("optuna")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("has_begun", "states"), [(False, ["done"]), (True, ["done", "stopped"])])
def test_a_member_that_stops_gives_back_what_has_not_begun(tmp_path: Path, has_begun: bool, states: list[str]) -> None:
    import optuna

    stop = Stop()

    class Asking(Simulated):
        def start(self, trial: SweepTrial) -> None:
            super().start(trial)
            if trial.run.endswith("002"):
                stop.ask()

        def stop(self, trial: SweepTrial) -> bool:
            super().stop(trial)
            if trial.run.endswith("002") and not has_begun:
                del self.trained[trial.run]  # it was taken out of the queue
            return True

        def look(self, trial: SweepTrial) -> Look:
            return super().look(trial) if trial.run in self.trained else Look("planned")

    request = request_of([RATES], study=str(tmp_path / "s.journal"), member="a")
    with pytest.raises(Stopped):
        swept(request, Asking(loss), tmp_path, stop, study=SharedStudy(request))
    log = Claims()
    for trial in optuna.load_study(study_name="sweep small", storage=storage.opened(f"{tmp_path}/s.journal")).trials:
        log.take(trial.user_attrs["gputui"])
    assert sorted(claim.state for claim in log.claims.values()) == states


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
    second = SharedStudy(replace(request_of([RATES], study=place, member="b"), seed=99))
    second.join()
    assert second.seed == 1, "the seed that was drawn first is that of all"
    assert "model.py differs from that on" in second.other_code({"model.py": "2", "data.py": "3"})
    assert not second.other_code({"model.py": "1"})
    trial = SweepTrial(run="r-001", changes={"train.learning_rate": 0.001}, seed=1)
    assert first.claim(trial)
    assert not second.claim(trial)
    second.sync([trial], "r")
    assert sweep_record.outcome(trial).startswith("waiting on ")
    assert shared_study.key_of(trial).startswith("search 1 ")


def test_a_study_is_refused_in_one_line_before_the_start(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**more: Any) -> str:
        with pytest.raises(ProofError) as fault:
            sweep_request.of_preset(presets.resolve("quickstart"), [RATES], "val_loss", None, **more)
        assert "\n" not in str(fault.value)
        return str(fault.value)

    assert "give --study as well" in refused(study_name="mine")
    assert "there is no folder" in refused(study=str(tmp_path / "none" / "s.journal"))
    (tmp_path / "text").write_text("no journal\n")
    assert "is not a journal of Optuna" in refused(study=str(tmp_path / "text"))
    monkeypatch.setattr(storage, "is_installed", lambda: False)
    assert "pip install 'optuna>=5,<6'" in refused(study=str(tmp_path / "s.journal"))


RATE = "train.learning_rate"
RATES_MEMBERS = "learning_rate=1e-3,2e-3"


class Clock:
    """The steady clock of the members, which only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(shared_study, "time", made)
    return made


def member(folder: Path, name: str, **more: Any) -> SharedStudy:
    """The member `name`, which has joined the study in the folder."""
    joined = SharedStudy(request_of([RATES_MEMBERS], study=str(folder / "s.journal"), member=name, **more))
    joined.join()
    return joined


def trials_of(name: str) -> list[SweepTrial]:
    """The trials of the search in the record of the member `name`, before they begin."""
    return [
        SweepTrial(run=f"{name}-{place:03d}", changes={RATE: rate}, seed=1)
        for place, rate in enumerate((0.001, 0.002), 1)
    ]


@pytest.mark.needs("optuna")
def test_a_silent_member_is_seen_as_such_and_loses_its_trial_after_ten_minutes(tmp_path: Path, clock: Clock) -> None:
    host = socket.gethostname()
    first, second = (member(tmp_path, name) for name in "ab")
    ours, theirs = trials_of("a"), trials_of("b")
    assert first.claim(ours[0])
    assert not second.claim(theirs[0])
    first.sync(ours, "a", now=True)
    second.sync(theirs, "b", now=True)
    assert [(trial.run, trial.on, trial.state) for trial in theirs] == [
        ("a-001", host, "waiting"), ("b-002", "", "planned")]  # fmt: skip
    for seconds, words in ((149.0, host), (150.0, f"{host}, last seen 2 min ago")):
        clock.now = 1000 + seconds
        second.sync(theirs, "b", now=True)
        assert theirs[0].on == words
    first.sync(ours, "a", now=True)  # it was asleep, and shows that it is alive
    second.sync(theirs, "b", now=True)
    assert theirs[0].on == host
    clock.now += 599
    second.sync(theirs, "b", now=True)
    assert theirs[0].on == f"{host}, last seen 10 min ago"
    clock.now += 1
    second.sync(theirs, "b", now=True)
    assert theirs == trials_of("b"), "the trial is as it was, and anybody's"
    ours[0].state = "running"
    assert [trial.run for trial in first.sync(ours, "a", now=True)] == ["a-001"], "it still trains, for nothing"
    assert second.claim(theirs[0])
    first.sync(ours, "a", now=True)
    assert (ours[0].run, ours[0].on, ours[0].state) == ("b-001", host, "waiting")


@pytest.mark.needs("optuna")
def test_a_member_shows_every_twenty_seconds_that_it_is_alive(tmp_path: Path, clock: Clock) -> None:
    import optuna

    first = member(tmp_path, "a")

    def shown() -> float:
        study = optuna.load_study(study_name="sweep small", storage=storage.opened(str(tmp_path / "s.journal")))
        sign: Mapping[str, Any] = study.user_attrs["member a"]
        assert sign["host"] == socket.gethostname()
        return float(sign["beat_t"])

    first.sync([], "a", now=True)
    begun = shown()
    clock.now += 19
    first.sync([], "a", now=True)
    assert shown() == begun
    clock.now += 1
    first.sync([], "a", now=True)
    assert shown() > begun


@pytest.mark.needs("optuna")
def test_a_member_that_fails_gives_back_what_another_machine_may_train(tmp_path: Path) -> None:
    first, second = (member(tmp_path, name) for name in "ab")
    ours, theirs = trials_of("a"), trials_of("b")
    for trial, cause in zip(ours, ("nan", "no such file"), strict=True):
        assert first.claim(trial)
        trial.state, trial.cause, trial.error = "failed", cause, cause
    first.leave(ours, "a", ("failed",))
    second.sync(theirs, "b", now=True)
    assert [(trial.state, trial.cause, trial.run) for trial in theirs] == [
        ("failed", "nan", "a-001"), ("planned", "", "b-002")]  # fmt: skip
    assert not second.claim(theirs[0])
    assert second.claim(theirs[1])
