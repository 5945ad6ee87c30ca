"""What the runner makes of the states of Slurm's jobs, as a test gives them: waits, holds, ends, and their times."""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.job import slurm_programs
from gputui.engine.job.slurm_programs import SlurmJob
from gputui.engine.queue import entries, queue_settings, slurm_follower, slurm_queue
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.slurm_follower import SlurmFollower
from gputui.engine.runs import Run, RunError
from gputui.engine.system import locks

from tests.support.queued import add, no_runner, waiting


class Followed:
    """A run that is Slurm's job 7, and the follower of its states."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        no_runner(monkeypatch)
        self.run = waiting("one")
        add(self.run)
        self.now, self.asked = 1000.0, list[float]()
        self.jobs: Any = {}
        monkeypatch.setattr(slurm_programs, "jobs", self._jobs)
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: time.time() + self.now - 1000.0)
        monkeypatch.setattr(slurm_follower, "time", clock)
        self.follower = SlurmFollower()

    def _jobs(self, ids: list[str]) -> dict[str, SlurmJob]:
        self.asked.append(self.now)
        if isinstance(self.jobs, Exception):
            raise self.jobs
        return dict(self.jobs)

    def is_now(self, **fields: Any) -> Entry:
        (entry,) = entries.all_entries()
        changed = replace(entry, **{"slurm_job": "7"} | fields)
        with entries.locked():
            entries.write(changed)
        return changed

    def is_queued_again(self) -> Entry:
        """It was resumed, which writes its preset again."""
        self.run.file("result.json").unlink()
        os.utime(self.run.file("preset.yaml"), (time.time() + 60,) * 2)
        add(self.run)
        return self.is_now(state="running")

    def look(self, job: SlurmJob | None = None, passed: float = 10.0) -> str:
        """So much time passes, Slurm answers, and the reason why the run waits is returned."""
        if job is not None:
            self.jobs = {"7": job}
        self.now += passed
        assert not self.follower.follow(entries.all_entries())
        for _ in range(1000):
            if self.follower.follow(entries.all_entries()):
                break
            time.sleep(0.01)
        return self.follower.why.get(self.run.id, "")

    @property
    def state(self) -> tuple[str, str] | None:
        listed = entries.all_entries()
        return (listed[0].state, listed[0].hold_reason) if listed else None


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(monkeypatch)


def test_a_job_that_waits_is_held_or_has_its_reason(followed: Followed) -> None:
    followed.is_now()
    waits = "waits in Slurm as job 7: "
    assert followed.look(SlurmJob("PENDING", "Resources")) == f"{waits}Resources"
    assert followed.look(SlurmJob("REQUEUED")) == f"{waits}REQUEUED"
    assert followed.look(SlurmJob("PENDING", "Priority", "2026-11-26T18:00:00")) == (
        f"{waits}Priority; Slurm expects to start it at 2026-11-26 18:00:00"
    )
    assert followed.state == ("waiting", "")
    assert followed.look(SlurmJob("PENDING", "JobHeldUser")) == f"{waits}JobHeldUser"
    assert followed.state == ("held", "held in Slurm (JobHeldUser)")
    followed.look(SlurmJob("PENDING", "Resources"))
    assert followed.state == ("waiting", ""), "it was released"
    followed.is_now(after="20260101-000000-other")
    assert followed.look(SlurmJob("PENDING", "Dependency")) == f"{waits}Dependency (after 20260101-000000-other)"
    assert followed.look(SlurmJob("PENDING", "Resources")) == f"{waits}Resources"


def test_a_job_that_was_requeued_waits_again_if_its_engine_has_ended(followed: Followed) -> None:
    followed.is_now(state="running")
    with locks.take(followed.run.file(locks.ENGINE_LOCK)):
        followed.look(SlurmJob("PENDING", "BeginTime"))
        assert followed.state == ("running", "")
    followed.look(SlurmJob("PENDING", "BeginTime"))
    assert followed.state == ("waiting", "")


def test_a_job_that_begins_is_named_until_the_run_has_begun(followed: Followed) -> None:
    followed.is_now()
    assert followed.look(SlurmJob("RUNNING", nodes="node[1-2]")) == "Slurm starts job 7 on node[1-2]"
    followed.is_now(state="running")
    assert followed.look() == ""


def test_a_submission_that_never_arrived_is_an_error_after_two_minutes(followed: Followed) -> None:
    followed.is_now(slurm_job="", queued_at=time.time())
    assert followed.look(passed=100.0) == "is being submitted to Slurm"
    assert followed.state == ("waiting", "")
    followed.look(passed=30.0)
    assert followed.state is None
    message = "it was not submitted to Slurm, as its command was interrupted"
    assert (followed.run.result or {})["error"] == {
        "kind": "queue", "message": message, "hint": "slurm.log in the run folder has the job's output"
    }  # fmt: skip
    assert [job.path for job in followed.follower.ended] == [followed.run.path]


@pytest.mark.parametrize(
    ("state", "log", "outcome", "message"),
    [
        ("CANCELLED", "", "stopped", None),
        ("FAILED", "", "error", "Slurm job 7 has ended as FAILED before the run began"),
        ("GONE", "first\n last line \n\n", "error", "Slurm job 7 is not known to Slurm any more before the run began: "
         "last line"),
    ],
)  # fmt: skip
def test_a_job_that_ends_before_its_run_has_begun_leaves_a_result(
    followed: Followed, state: str, log: str, outcome: str, message: str | None
) -> None:
    followed.is_now()
    if log:
        followed.run.file("slurm.log").write_text(log)
    assert followed.look(SlurmJob(state)) == f"Slurm job 7 has ended ({state})"
    result = Run(followed.run.path).result or {}
    assert (followed.state, result["outcome"], (result.get("error") or {}).get("message")) == (None, outcome, message)


def test_the_result_of_a_run_is_waited_for_a_minute_after_its_job(followed: Followed) -> None:
    followed.is_now(state="running")
    followed.look(SlurmJob("TIMEOUT"))
    followed.look(passed=59.0)
    assert followed.state == ("running", "")
    with locks.take(followed.run.file(locks.ENGINE_LOCK)):
        followed.look(passed=10.0)
        assert followed.state == ("running", ""), "its engine is alive"
    followed.look()
    assert (followed.run.result or {})["error"]["message"] == "Slurm job 7 has ended as TIMEOUT"
    assert followed.state is None


def test_the_result_of_a_job_that_was_requeued_is_waited_for_a_minute_as_well(followed: Followed) -> None:
    followed.is_now(state="running")
    followed.look(SlurmJob("NODE_FAIL"))
    followed.look(SlurmJob("PENDING", "BeginTime"), passed=30.0)
    assert followed.state == ("waiting", "")
    followed.is_now(state="running")
    assert followed.look(SlurmJob("RUNNING", nodes="node2"), passed=900.0) == ""
    followed.look(SlurmJob("TIMEOUT"))
    assert followed.state == ("running", ""), "its node may not have written the result yet"
    followed.look(passed=59.0)
    assert followed.state == ("running", "")
    followed.look()
    assert followed.state is None
    again = followed.is_queued_again()
    followed.look(SlurmJob("TIMEOUT"))
    assert followed.state == (again.state, ""), "a run that is resumed later begins at zero"


def test_of_a_long_output_the_last_line_is_told(followed: Followed) -> None:
    followed.is_now()
    followed.run.file("slurm.log").write_text("first\n" + "x" * 9000 + "\n  last line\n")
    followed.look(SlurmJob("FAILED"))
    message = (followed.run.result or {})["error"]["message"]
    assert message == "Slurm job 7 has ended as FAILED before the run began: last line"


def test_a_run_that_has_a_result_leaves_the_queue_at_once(followed: Followed) -> None:
    followed.is_now(state="running")
    followed.run.file("result.json").write_text(json.dumps({"outcome": "ok"}))
    followed.look(SlurmJob("COMPLETED"))
    assert (followed.state, followed.run.result) == (None, {"outcome": "ok"})


def test_slurm_is_asked_every_ten_seconds_or_two_after_a_change_and_its_silence_is_the_reason(
    followed: Followed,
) -> None:
    followed.is_now()
    followed.look(SlurmJob("PENDING", "Resources"))
    for change, waits in (({}, (1.9, 9.9, 10.0)), ({"hold_reason": "changed"}, (1.9, 2.0))):
        begun = followed.asked[-1]
        followed.is_now(**change)
        for passed in waits[:-1]:
            followed.now = begun + passed
            assert not followed.follower.follow(entries.all_entries())
            assert not followed.follower.follow(entries.all_entries())
        assert followed.asked[-1] == begun
        followed.now = begun
        followed.look(passed=waits[-1])
        assert followed.asked[-1] == begun + waits[-1]
    followed.jobs = RunError("squeue has failed: no controller\ntry again")
    assert followed.look() == "Slurm does not answer: squeue has failed: no controller"
    assert followed.state == ("waiting", "changed")
    assert not followed.follower.follow(())
    assert followed.follower.why == {}


# ---- what sbatch gets ----------------------------------------------------------------------------


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of sbatch for each submitted job."""
    no_runner(monkeypatch)
    for name in ("SBATCH_GPUS", "SBATCH_GRES", "SBATCH_TRES_PER_TASK"):
        monkeypatch.delenv(name, raising=False)
    calls: list[list[str]] = []

    def submit(arguments: Any, _environment: object) -> str:
        calls.append(list(arguments))
        return str(100 + len(calls))

    monkeypatch.setattr(slurm_programs, "submit", submit)
    return calls


def settings(text: str) -> None:
    queue_settings.path().parent.mkdir(parents=True, exist_ok=True)
    queue_settings.path().write_text(text)


@pytest.mark.parametrize(
    ("visible", "sbatch", "variable", "gpus"),
    [
        ("all", "[]", "", ["--gpus=1"]), ("free:3", "[]", "", ["--gpus=3"]), ("none", "[]", "", []),
        ("free:3", "[--gres=gpu:2]", "", ["--gres=gpu:2"]), ("free:2@A100", "[-G 2]", "", ["-G", "2"]),
        ("all", "[--tres-per-task=gres/gpu:1]", "", ["--tres-per-task=gres/gpu:1"]), ("all", "[]", "SBATCH_GRES", []),
        ("all", "[]", "SBATCH_TRES_PER_TASK", []), ("all", "[--time=1:00]", "", ["--gpus=1", "--time=1:00"]),
    ],
)  # fmt: skip
def test_a_job_asks_for_the_gpus_of_its_run_unless_the_user_does(
    submitted: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    visible: str,
    sbatch: str,
    variable: str,
    gpus: list[str],
) -> None:
    settings(f"engine: slurm\nsbatch: {sbatch}\n")
    if variable:
        monkeypatch.setenv(variable, "gpu:1")
    run = waiting("one", visible=visible, tries=2 if visible == "free:3" else 1)
    entry = slurm_queue.submit(entries.entry_of(run))
    (arguments,) = submitted
    requeue = "--requeue" if visible == "free:3" else "--no-requeue"
    first = ["--nodes=1", "--ntasks=1", f"--job-name={run.id}", f"--output={run.path}/slurm.log", "--open-mode=append"]
    assert arguments[:-1] == [*first, requeue, *gpus]
    assert arguments[-1].startswith("--wrap=exec env GPUTUI_HOME=")
    assert arguments[-1].endswith(f" -P -m gputui.engine.queue.slurm_job {run.id}")
    assert (entry.slurm_job, [each.slurm_job for each in entries.all_entries()]) == ("101", ["101"])


@pytest.mark.parametrize(
    ("visible", "more", "words"),
    [
        ([0, 1], {}, "device.visible names GPUs of one machine, and Slurm chooses them\nset device.visible=free:2"),
        ("free:1", {"give_way": True}, "run.give_way is for the queue of one machine: in Slurm, preemption does it\n"
         "set run.give_way=false"),
        ("free:2@24GB", {}, "free:2@24GB: the kinds of GPUs have names of their own in Slurm\nin {} write sbatch: "
         "[--gpus=KIND:2]; scontrol show node lists the kinds"),
    ],
)  # fmt: skip
def test_what_slurm_cannot_follow_is_refused_and_leaves_nothing(
    submitted: list[list[str]], visible: Any, more: dict[str, Any], words: str
) -> None:
    settings("engine: slurm\n")
    with pytest.raises(RunError) as refusal:
        slurm_queue.submit(entries.entry_of(waiting("one", visible=visible, **more)))
    assert str(refusal.value) == words.format(queue_settings.path())
    assert (submitted, entries.all_entries()) == ([], ())


def test_a_sign_of_percent_in_the_home_is_none_of_slurms_patterns(
    submitted: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path / "100%j of 'it'"))
    settings("engine: slurm\n")
    run = waiting("one", visible="none")
    slurm_queue.submit(entries.entry_of(run))
    ((*_, output, _, _, wrap),) = submitted
    assert output == f"--output={str(run.path).replace('%', '%%')}/slurm.log"
    command = shlex.split(wrap.removeprefix("--wrap="))
    assert command[:3] == ["exec", "env", f"GPUTUI_HOME={tmp_path}/100%j of 'it'"]


def test_a_job_waits_for_another_job_and_not_for_what_is_none(
    submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[int] = []
    monkeypatch.setattr(entries, "ensure_runner", lambda: followed.append(len(submitted)))
    settings("engine: slurm\n")
    first, second, ended, local = waiting("a"), waiting("b"), waiting("c"), waiting("d")
    slurm_queue.submit(entries.entry_of(first))
    slurm_queue.submit(entries.entry_of(second, first.id))
    assert "--dependency=afterany:101" in submitted[1]
    assert followed == [1, 2], "a runner follows each job"
    ended.file("result.json").write_text('{"outcome": "ok"}')
    slurm_queue.submit(entries.entry_of(waiting("e"), ended.id))
    assert not [word for word in submitted[2] if word.startswith("--dependency")]
    entries.add(local)
    with pytest.raises(RunError) as refusal:
        slurm_queue.submit(entries.entry_of(waiting("f"), local.id))
    assert str(refusal.value) == (
        f"{local.name} is waiting, and not in a job of the queue, so that Slurm cannot wait for it\n"
        "leave out --after, or give the command again when that has ended"
    )


def test_a_request_to_stop_goes_to_the_job_that_has_begun(
    submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(slurm_programs, "signal_batch", lambda job, name: sent.append((job, name)))
    settings("engine: slurm\n")
    run, local = waiting("a"), waiting("b")
    slurm_queue.submit(entries.entry_of(run))
    entries.add(local)
    assert [slurm_queue.stop(name) for name in (run.id, local.id, "gone")] == [False, False, False]
    for entry in entries.all_entries():
        with entries.locked():
            entries.write(replace(entry, state="running"))
    assert [slurm_queue.stop(name) for name in (run.id, local.id)] == [True, False]
    assert sent == [("101", "URG")]


def test_it_must_be_certain_who_starts_the_runs() -> None:
    assert not slurm_queue.is_used()
    for text, used in (("engine: slurm\n", True), ("engine: local\n", False), ("most: x\n", False)):
        settings(text)
        assert slurm_queue.is_used() is used, text
    settings("engine: pbs\n")
    with pytest.raises(RunError, match=r"queue\.yaml:1: engine takes local or slurm, not 'pbs'$"):
        slurm_queue.is_used()
