"""The process of a Slurm job that trains a queued run: requests to stop, the end of the job, and its exit code."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.follow import start as follow
from gputui.engine.job import slurm
from gputui.engine.job.slurm import Left
from gputui.engine.queue import entries, slurm_job
from gputui.engine.queue.entries import Entry
from gputui.engine.runs import ASKED_BY_PERSON, Run, RunError

from tests.support.queued import add, no_runner, waiting

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """After each test this process takes its signals as before."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_slurms_first_signal_counts_and_each_request_of_a_person() -> None:
    requests = slurm_job.Requests()
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.raise_signal(number)
    assert (requests.asked, requests.is_by_slurm) == ([(signal.SIGTERM,)], True)
    for _ in range(2):
        signal.raise_signal(signal.SIGURG)
    signal.raise_signal(signal.SIGINT)
    assert requests.asked == [(signal.SIGTERM,), ASKED_BY_PERSON, ASKED_BY_PERSON]
    other = slurm_job.Requests()
    signal.raise_signal(signal.SIGURG)
    other.stop()
    assert (other.asked, other.is_by_slurm) == ([ASKED_BY_PERSON], False), "it is asked to stop already"


class Job:
    """A queued run that is Slurm's job 7, whose engine ends by itself after `lasts` seconds or when it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lasts: float = 5.0) -> None:
        no_runner(monkeypatch)
        self.run, self.now, self.lasts = waiting("one"), 100.0, lasts
        add(self.run)
        self.is_now(slurm_job="7", most_tries=3, hold_reason="held in Slurm", code="new")
        self.asked: list[tuple[float, Sequence[int]]] = []
        self.refusals = 0
        self.outcome = "ok"
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: 5.0, sleep=self.sleep)
        monkeypatch.setattr(slurm_job, "time", clock)
        monkeypatch.setattr(slurm_job, "_started", self.start)
        monkeypatch.setattr(runs, "request_stop", self.ask)
        monkeypatch.setattr(follow, "wait", lambda _path: None)
        self._monkeypatch = monkeypatch
        self.left(Left())

    def left(self, left: Left) -> None:
        self._monkeypatch.setattr(slurm, "time_left", lambda _environment: left)

    def is_now(self, **fields: Any) -> None:
        (entry,) = entries.all_entries()
        with entries.locked():
            entries.write(replace(entry, **fields))

    def sleep(self, seconds: float) -> None:
        assert seconds == 0.1
        self.now += seconds

    def start(self, entry: Entry) -> Any:
        assert (entry.state, entry.tries, entry.started_at, entry.slurm_job) == ("starting", 1, 5.0, "7")
        assert (entry.hold_reason, entry.code) == ("", "new")
        assert entries.all_entries() == (entry,), "so that all see it"
        return SimpleNamespace(poll=self.poll)

    def poll(self) -> int | None:
        if self.now - 100.0 < self.lasts and not self.asked:
            (entry,) = entries.all_entries()
            assert (entry.state, entry.code, entry.hold_reason) == ("running", "", "")
            return None
        self.run.file("result.json").write_text(json.dumps({"outcome": self.outcome}))
        return 0

    def ask(self, run: Run, numbers: Sequence[int]) -> None:
        assert run == self.run
        if self.refusals:
            self.refusals -= 1
            raise RunError("its engine has not written who it is")
        self.asked.append((round(self.now - 100.0, 1), tuple(numbers)))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [("ok", 0, "ok"), ("stopped", 0, "stopped"), ("error", 1, "error: failed"), ("oom", 1, "oom: oom")],
)
def test_the_exit_code_is_that_of_the_run_and_its_entry_leaves_the_queue(
    job: Job, capsys: pytest.CaptureFixture[str], outcome: str, code: int, words: str
) -> None:
    job.outcome = outcome
    assert slurm_job.carry_out(job.run.id, "7") == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{job.run.id} trains in job 7 on ")
    assert lines[-1] == f"{job.run.id} has ended: {words}"
    assert (job.asked, entries.all_entries()) == ([], ())


def test_a_run_is_stopped_before_its_job_ends_and_asked_until_its_engine_hears_it(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.left(Left(3.0))
    job.refusals = 2
    assert slurm_job.carry_out(job.run.id, "7") == 0
    ((when, numbers),) = job.asked
    assert 2.7 <= when <= 3.0, "0.3 s before the end of the job, and after two refusals"
    assert numbers == (signal.SIGTERM,)
    assert "the time limit of the job comes soon: the run is stopped" in capsys.readouterr().out


def test_a_time_limit_that_is_not_known_is_told(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.left(Left(problem="squeue did not answer within 10 s"))
    assert slurm_job.carry_out(job.run.id, "7") == 0
    assert "the time limit of the job is not known: squeue did not answer within 10 s\n" in capsys.readouterr().out
    assert job.asked == []


def test_the_entry_of_a_run_that_slurm_has_stopped_stays_as_the_job_may_be_requeued(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = job.start

    def stopped(entry: Entry) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return start(entry)

    monkeypatch.setattr(slurm_job, "_started", stopped)
    assert slurm_job.carry_out(job.run.id, "7") == 0
    assert [entry.run for entry in entries.all_entries()] == [job.run.id]


@pytest.mark.parametrize(
    ("fields", "number", "reason"),
    [
        ({"slurm_job": "8"}, "7", "is not in the queue as job 7; nothing is started"),
        ({"slurm_job": None}, "7", "is not in the queue as job 7; nothing is started"),
        ({"slurm_job": "", "tries": 3}, "7", "was started 3 times, as run.tries allows; nothing is started"),
        ({"tries": 3}, "7", "was started 3 times, as run.tries allows; nothing is started"),
    ],
)
def test_a_job_that_is_not_the_entrys_or_was_tried_often_enough_starts_nothing(
    job: Job, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], number: str, reason: str
) -> None:
    job.is_now(**fields)
    assert slurm_job.carry_out(job.run.id, number) == 3
    assert capsys.readouterr().out == f"{job.run.id} {reason}\n"
    assert len(entries.all_entries()) == 1
    assert job.run.result is None


def test_a_run_that_cannot_be_started_ends_with_the_reason(
    job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_entry: Entry) -> Any:
        raise OSError(28, "No space left on device", "/data/x")

    job.is_now(most_tries=1, tries=5)  # one try: Slurm alone decides how often
    monkeypatch.setattr(slurm_job, "_started", refuses)
    assert slurm_job.carry_out(job.run.id, "7") == 3
    assert capsys.readouterr().out == "No space left on device: /data/x\n"
    assert (job.run.result or {})["error"] == {
        "kind": "queue",
        "message": "No space left on device: /data/x",
        "hint": "",
    }
    assert entries.all_entries() == ()
