"""The folder, the record and the process of a proof: names, ends, full disks, and what is resumed."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    PROOF_LOCK,
    BaselineFailed,
    ForkServer,
    Liveness,
    Measurement,
    Options,
    Process,
    Proof,
    ProofError,
    Prover,
    Record,
    Stop,
    Stopped,
    Sweep,
    SweepSettings,
    SweepTrial,
    Trial,
    TrialRunner,
    create_at,
    defaults,
    folder,
    gpu_use,
    locks,
    presets,
    results,
    sending,
    this_machine,
    trial_runner,
)
from tests.doors.engine import proof_process as process
from tests.doors.engine import proof_request as request
from tests.doors.engine import proof_request_Request as Request
from tests.doors.engine import record_Comparison as Comparison
from tests.support.proving import HERE, Figures, Planted, PlantedBench
from tests.support.recorded_proof import write_proof
from tests.support.small_disk import no_writing


def asked(kind: str = "ab", name: str = "small", *settings: str, **more: Any) -> Request:
    preset = presets.defaults(settings)
    return request.of_opened(kind, presets.Preset(name, preset.options, preset.description), **more)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ProofError) as fault:
        call()
    return str(fault.value)


def test_a_proof_is_named_by_its_id_a_part_of_it_or_as_the_latest(home: Path) -> None:
    nothing = (
        f"there are no proofs in {home / 'proofs'}; gputui ab, diagnose, tune, scaling, sweep and fit-batch make them"
    )
    assert refusal(lambda: folder.find("latest")) == nothing
    assert folder.proofs() == []
    names = ("20261127-1-cnn", "20261127-1-cnn-2", "20261127-0-mlp")
    for moment, name in enumerate(names, 1):
        proof = write_proof(home, name)
        os.utime(proof.path / "request.json", (moment, moment))
    for name in (".20261127-2-gone", "notes"):
        (home / "proofs" / name).mkdir()
    (home / "proofs" / ".20261127-2-gone" / "request.json").touch()
    assert [proof.id for proof in folder.proofs()] == list(reversed(names)), "the newest first"
    assert folder.find("latest").id == names[2]
    assert folder.find(names[0]).id == names[0], "although it is a part of another id"
    assert [folder.find(part).id for part in ("mlp", "n-2", "-0-")] == [names[2], names[1], names[2]]
    assert refusal(lambda: folder.find("cnn")) == (
        f"'cnn' matches 2 proofs ({names[1]}, {names[0]} ...); give more of the id"
    )
    assert refusal(lambda: folder.find("LATEST")) == "no proof called 'LATEST'; gputui proof lists them"
    for name in names:
        os.utime(home / "proofs" / name / "request.json", (5, 5))
    assert [proof.id for proof in folder.proofs()] == [names[1], names[0], names[2]], "of one moment by their ids"


def test_a_folder_whose_record_cannot_be_written_is_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Record, doing: str | None = None) -> None:
        assert (self.path.parent / "request.json").exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Record, "put", refuse)
    with pytest.raises(OSError, match="No space left"):
        folder.create(asked())
    assert list((home / "proofs").iterdir()) == []


def as_living(monkeypatch: pytest.MonkeyPatch, live: Liveness) -> None:
    monkeypatch.setattr(folder.Proof, "liveness", lambda _self, _record: live)


def test_a_proof_is_reserved_unless_it_waits_runs_or_is_in_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = write_proof(home, "20261127-a", state="stopped")

    def reserve(*done: str) -> None:
        with folder.reserved(proof, *done):
            assert locks.held(proof.path / PROOF_LOCK)

    reserve()
    assert not locks.held(proof.path / PROOF_LOCK)
    with locks.take(proof.path / PROOF_LOCK), monkeypatch.context() as context:
        as_living(context, Liveness())
        assert refusal(reserve) == "20261127-a cannot be deleted: another gputui is using it"
    for live, where in ((Liveness(engine=True), ""), (Liveness(engine=True, host="node7"), " on node7")):
        with monkeypatch.context() as context:
            as_living(context, live)
            assert refusal(lambda: reserve("queued")) == (
                f"20261127-a cannot be queued: it is running{where}; gputui proof 20261127-a --stop stops it"
            )
    (home / "queue").mkdir()
    proof.queue_file.write_text('{"kind": "proof", "state": "waiting"}')
    assert proof.state == "waiting"
    assert "it waits in the queue" in refusal(reserve)
    assert "waits in the queue" in refusal(lambda: folder.request_stop(proof))


ELSEWHERE = {"host": "node7", "boot_id": "another", "pid_namespace": "1"}


@pytest.mark.parametrize(
    ("ago", "state", "live"),
    [(30.0, "running", Liveness(engine=True, host="node7")), (90.0, "crashed", Liveness())],
)  # fmt: skip
def test_a_proof_of_another_machine_goes_on_while_its_record_is_new(
    home: Path, ago: float, state: str, live: Liveness
) -> None:
    now = time.time()
    proof = write_proof(home, state="running", pid=1, started_t=now - 500.0 - ago, seconds=500.0, **ELSEWHERE)
    assert (proof.state, proof.liveness(proof.record)) == (state, live)
    if state == "running":
        with pytest.raises(ProofError) as refused:
            folder.request_stop(proof)
        assert str(refused.value) == (f"{proof.id} is running on node7; stop it there: gputui proof {proof.id} --stop")


@pytest.fixture
def proof(home: Path, monkeypatch: pytest.MonkeyPatch) -> folder.Proof:
    """A proof that this process may carry out."""
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    monkeypatch.setattr(this_machine, "read", lambda: HERE)
    monkeypatch.setattr(sending, "send_to", lambda _find, _make: [])
    return folder.create(request.of_opened("ab", presets.defaults(["train.seed=5"])))


@pytest.mark.parametrize(
    ("fault", "code", "state", "because", "error"),
    [
        (None, 0, "done", "all was measured", None),
        (Stopped(), 0, "stopped", "a stop was requested", None),
        (BaselineFailed("no room"), 1, "failed", "all was measured", "no room"),
        (RuntimeError("a\n  b"), 1, "failed", "all was measured", "RuntimeError: a b"),
    ],
)
def test_a_proof_ends_with_a_state_and_a_reason(
    proof: folder.Proof, capsys: Any, fault: Exception | None, code: int, state: str, because: str, error: str | None
) -> None:
    def work(site: Measurement) -> None:
        record = site.record
        assert folder.read_record(proof.path).doing == "examining this machine"
        assert (record.state, site.bench.seed, site.machine, list(site.earlier)) == ("running", 5, HERE, [])
        assert locks.held(proof.path / PROOF_LOCK)
        assert Process.read(vars(folder.read_record(proof.path))) == Process.current()
        record.ended_because, record.budget_seconds, record.budget_most_seconds = "all was measured", 60.0, 90.0
        record.earlier = [Trial(side="a", repeat=1, run="01-a", outcome="ok")]
        for decision in ("kept", "running"):
            record.comparisons.append(Comparison(changes={}, decision=decision, why="w"))
        if fault is not None:
            raise fault

    assert process.main(proof.path, work) == code
    record = folder.read_record(proof.path)
    assert (record.state, record.ended_because, record.error, record.doing) == (state, because, error, "ended")
    assert [(each.decision, each.why) for each in record.comparisons] == [
        ("kept", "w"), ("failed", "the proof ended before it was finished")]  # fmt: skip
    assert (record.budget_seconds, record.budget_most_seconds) == (None, None)
    assert [trial.run for trial in record.earlier] == ([] if fault is None else ["01-a"]), "a resumed proof needs them"
    assert ("Traceback" in capsys.readouterr().err) is isinstance(fault, RuntimeError | KeyError)
    assert not locks.held(proof.path / PROOF_LOCK)


@pytest.mark.parametrize(
    ("key", "repeat", "seed", "goes_on"),
    [
        ("", 1, 5, True),
        ("", 1, 6, False),
        ("a:1:", 2, 6, True),
        ("a:1:", 2, 5, False),
        ("sweep", 0, 5, True),
        ("sweep", 0, 6, False),
    ],
)
def test_a_resumed_proof_refuses_another_seed_than_its_trials_have(
    proof: folder.Proof, key: str, repeat: int, seed: int, goes_on: bool
) -> None:
    create_at(proof.path / "trials" / "01-a", presets.defaults([f"train.seed={seed}"]).to_yaml())
    record = folder.read_record(proof.path)
    record.state, record.earlier = "stopped", [Trial(side="a", repeat=repeat, run="01-a", outcome="ok", key=key)]
    if key == "sweep":
        record.set_process(Process.current())
        settings = SweepSettings(axes=[], metric="val_loss")
        sweep = Sweep(settings=settings, trials=[SweepTrial(run="01-a", changes={}, seed=seed)])
        record.sweep, record.earlier = sweep, []
    record.put()
    assert process.main(proof.path, lambda _site: None) == (0 if goes_on else 1)
    record = folder.read_record(proof.path)
    assert record.state == ("done" if goes_on else "failed")
    if not goes_on:
        assert "train.seed=" in (record.error or "")
        assert "the request now has 5: what is resumed keeps its seed" in (record.error or "")
        kept = record.sweep.trials if record.sweep else record.earlier
        assert [trial.run for trial in kept] == ["01-a"], "nothing is lost"


def test_a_proof_that_another_process_carries_out_is_left_alone(proof: folder.Proof) -> None:
    before = (proof.path / "proof.json").read_bytes()
    with locks.take(proof.path / PROOF_LOCK), pytest.raises(SystemExit) as ended:
        process.main(proof.path, lambda _site: None)
    assert str(ended.value) == f"another process is already carrying out {proof.path}"
    assert (proof.path / "proof.json").read_bytes() == before


def test_gpus_are_given_back_and_the_notice_is_sent_after_the_record_is_written(
    proof: folder.Proof, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    states: list[str] = []

    def told(words: str) -> list[str]:
        states.append(f"{words}: {folder.read_record(proof.path).state}")
        return [f"{words} failed"]

    monkeypatch.setenv(locks.LEASED, "GPU-1 7")
    monkeypatch.setattr(gpu_use, "inherited", lambda given: [given])
    monkeypatch.setattr(gpu_use, "give_back", lambda leases: told(f"giving back {leases}"))
    monkeypatch.setattr(sending, "send_to", lambda _find, make: told(f"notice of {make().outcome}"))
    assert process.main(proof.path, lambda _site: None) == 0
    back, notice = "giving back ['GPU-1 7']", "notice of done"
    assert states == [f"{back}: done", f"{notice}: done"]
    assert capsys.readouterr().err == f"gputui: {back} failed\ngputui: {notice} failed\n"
    assert locks.LEASED not in os.environ, "its trials inherit no lease"


SIXTEEN = "steps_per_execution=16"


def of_a_change(path: Path, figures: Figures = lambda options, before: Planted()) -> tuple[Prover, Proof]:
    """Everything of an A/B but its process."""
    path.mkdir()
    asked = request.of_change("quickstart", [SIXTEEN])
    bench = PlantedBench(path / "trials", figures)
    return Prover(Measurement(asked, folder.empty_record(path, asked), bench, HERE)), Proof(path)


def test_a_disk_that_refuses_the_record_for_a_time_ends_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda below: 0)

    def figures(options: Options, before: int) -> Planted:
        if before == 1:
            in_the_way.mkdir()  # where the draft of proof.json is written
        return Planted()

    def work() -> None:
        prover.prove()
        assert len(proof.data["comparisons"][0]["trials"]) < 2, "nothing could be written since"
        threading.Timer(0.1, in_the_way.rmdir).start()

    prover, proof = of_a_change(tmp_path / "proof", figures)
    in_the_way = tmp_path / "proof" / f".proof.json.{os.getpid()}000000000"
    assert process._make(prover.record, work, Stop()) == 0
    assert proof.data["state"] == "done"
    assert len(proof.data["comparisons"][0]["trials"]) == 6


def test_a_trial_waits_for_a_full_disk_and_then_fails_the_proof_and_not_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search would take its candidates for failed, one after another."""
    numbers = [errno.ENOSPC, errno.EDQUOT, errno.EAGAIN]

    def refused(*given: Any) -> Any:
        raise OSError(numbers.pop(0), "refused")

    measures = TrialRunner(tmp_path / "trials", tmp_path, 7, 5.0, HERE, Stop())
    monkeypatch.setattr(results, "RESULT_RETRY_SECONDS", 0.0)
    with monkeypatch.context() as planted:
        planted.setattr(ForkServer, "start", refused)
        row = measures.measure(defaults(()), "a", 1)
    assert (row.outcome, row.error, numbers) == ("crashed", "not started: [Errno 11] refused", [])
    monkeypatch.setattr(trial_runner, "ROOM_SECONDS", 0.0)
    prover, proof = of_a_change(tmp_path / "proof")

    def work() -> None:
        with no_writing():
            measures.measure(defaults(()), "a", 1)

    assert process._make(prover.record, work, Stop()) == 1
    path = tmp_path / "trials" / "02-a"
    told = f"largest file size (ulimit -f) reached at {path} (File too large): no trial can be started"
    assert proof.data["error"] == told
    measures.stop.ask()
    with no_writing():
        assert measures.measure(defaults(()), "a", 1).outcome == "crashed"
