"""A disk that takes no proof.json, or no trial, for a time."""

from __future__ import annotations

import errno
import os
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.options import Options
from gputui.engine.presets import defaults
from gputui.engine.process.fork_client import ForkServer
from gputui.engine.proof import process, request
from gputui.engine.runs import results
from gputui.engine.trials import trial_runner
from gputui.engine.trials.trial_runner import Stop, TrialRunner

from tests.support.proving import HERE, Planted, proving
from tests.support.small_disk import no_writing

SIXTEEN = "steps_per_execution=16"


def test_a_disk_that_refuses_the_record_for_a_time_ends_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda below: 0)

    def figures(options: Options, before: int) -> Planted:
        if before == 1:
            in_the_way.mkdir()  # where the draft of proof.json is written
        return Planted()

    def work() -> None:
        made.prover.prove()
        assert len(made.written["comparisons"][0]["trials"]) < 2, "nothing could be written since"
        threading.Timer(0.1, in_the_way.rmdir).start()

    made = proving(tmp_path / "proof", request.of_change("quickstart", [SIXTEEN]), figures)
    in_the_way = tmp_path / "proof" / f".proof.json.{os.getpid()}000000000"
    assert process._make(made.record, work, Stop()) == 0
    assert made.written["state"] == "done"
    assert len(made.written["comparisons"][0]["trials"]) == 6


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
    made = proving(tmp_path / "proof", request.of_change("quickstart", [SIXTEEN]), lambda o, n: Planted())

    def work() -> None:
        with no_writing():
            measures.measure(defaults(()), "a", 1)

    assert process._make(made.record, work, Stop()) == 1
    path = tmp_path / "trials" / "02-a"
    told = f"largest file size (ulimit -f) reached at {path} (File too large): no trial can be started"
    assert made.written["error"] == told
    measures.stop.ask()
    with no_writing():
        assert measures.measure(defaults(()), "a", 1).outcome == "crashed"


def test_only_a_person_who_asks_again_ends_a_trial_at_once() -> None:
    stop = Stop()
    for _ in range(3):
        stop.ask()
    assert stop.count == 1
    stop.ask_by_person()
    assert stop.count == 1
    stop.ask_by_person()
    assert stop.count == 2
