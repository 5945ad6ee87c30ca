"""How the process of a proof ends: the state, the reason, the exit code, and what else it leaves and tells."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.files import writing
from gputui.engine.job import this_machine
from gputui.engine.leases import free_gpus, lease
from gputui.engine.notify import sending
from gputui.engine.proof import folder, process, request
from gputui.engine.proof.process import Site
from gputui.engine.system import locks
from gputui.engine.system.identity import Process
from gputui.engine.system.locks import PROOF_LOCK
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.record import Comparison
from gputui.engine.trials.trial import Trial

from tests.support.proving import HERE


@pytest.fixture
def proof(home: Path, monkeypatch: pytest.MonkeyPatch) -> folder.Proof:
    """A proof that this process may carry out."""
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    monkeypatch.setattr(this_machine, "read", lambda: HERE)
    monkeypatch.setattr(sending, "send_to", lambda _find, _make: [])
    return folder.create(request.of_opened("ab", presets.defaults(["train.seed=5"]), None))


@pytest.mark.parametrize(
    ("fault", "code", "state", "because", "error"),
    [
        (None, 0, "done", "all was measured", None),
        (Stopped(), 0, "stopped", "a stop was requested", None),
        (BaselineFailed("no room"), 1, "failed", "all was measured", "no room"),
        (RuntimeError("a\n  b"), 1, "failed", "all was measured", "RuntimeError: a b"),
        (KeyError(), 1, "failed", "all was measured", "KeyError: no message"),
    ],
)
def test_a_proof_ends_with_a_state_and_a_reason(
    proof: folder.Proof, capsys: Any, fault: Exception | None, code: int, state: str, because: str, error: str | None
) -> None:
    def work(site: Site) -> None:
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


def test_a_full_disk_is_named_with_its_place(proof: folder.Proof) -> None:
    def work(_site: Site) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert process.main(proof.path, work) == 1
    words = writing.describe(errno.ENOSPC, proof.path)
    assert folder.read_record(proof.path).error == f"{words}: no trial can be started"


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
    monkeypatch.setattr(lease, "inherited", lambda given: [given])
    monkeypatch.setattr(free_gpus, "give_back", lambda leases: told(f"giving back {leases}"))
    monkeypatch.setattr(sending, "send_to", lambda _find, make: told(f"notice of {make().outcome}"))
    assert process.main(proof.path, lambda _site: None) == 0
    back, notice = "giving back ['GPU-1 7']", "notice of done"
    assert states == [f"{back}: done", f"{notice}: done"]
    assert capsys.readouterr().err == f"gputui: {back} failed\ngputui: {notice} failed\n"
    assert locks.LEASED not in os.environ, "its trials inherit no lease"
