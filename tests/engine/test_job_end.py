"""run.max_minutes=auto: the run ends itself before the time limit of its Slurm job is reached."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.job import slurm
from gputui.engine.process.time_limits import TimeLimit
from gputui.engine.runs.events import Event, Warn
from gputui.engine.system.run_clock import RunClock
from gputui.tui import cli

from tests.support.front_door import gputui, until
from tests.support.standing_in import stand_in

__all__ = ["stand_in"]

IN_A_JOB = {"SLURM_JOB_ID": "77"}
AUTO = ("--preset", "quickstart", "--set", "max_minutes=auto")


def squeue(folder: Path, script: str) -> None:
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_time_that_is_left_is_read_as_slurm_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for script, seconds, problem in (
        ('[ "$*" = "--noheader --jobs 77 --format %L" ] && echo 5:07', 307, ""),
        ("echo 3:05:07", 3 * 3600 + 307, ""),
        ("echo 2-03:05:07", 51 * 3600 + 307, ""),
        ("echo UNLIMITED", None, ""),
        ("echo INVALID", None, "squeue does not report it: INVALID"),
        ("echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1", None, "slurm_load_jobs error: Invalid job id"),
        ("exit 3", None, "it ended with 3"),
        ("exec sleep 600", None, "squeue did not answer within 0.5 s"),
    ):
        squeue(tmp_path, script)
        monkeypatch.setattr(slurm, "ANSWER_SECONDS", 0.5 if "sleep" in script else 90.0)
        left = slurm.time_left(IN_A_JOB)
        assert left.seconds == seconds, script
        assert problem in left.problem, script
        assert bool(problem) == bool(left.problem), script
    by_variable = slurm.time_left(IN_A_JOB | {slurm.VARIABLE: str(int(time.time()) + 600)}).seconds
    assert by_variable == pytest.approx(600, abs=120), "squeue is not asked"
    squeue(tmp_path, "echo 5:07")
    monkeypatch.setattr(slurm, "ANSWER_SECONDS", 90.0)
    for text in ("0", "Unknown", "-5", ""):
        assert slurm.time_left(IN_A_JOB | {slurm.VARIABLE: text}).seconds == 307, text
    assert slurm.time_left({slurm.VARIABLE: "1"}) == slurm.Left(), "this is no job"
    (tmp_path / "squeue").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "squeue cannot be run: No such file" in slurm.time_left(IN_A_JOB).problem


def test_time_is_kept_for_the_last_checkpoint() -> None:
    for seconds, usable in ((7200.0, 7080.0), (600.0, 540.0), (0.0, 0.0), (-5.0, 0.0), (None, None)):
        assert slurm.Left(seconds).usable_seconds == usable, seconds


def test_a_run_ends_itself_before_its_job_does_and_its_exit_code_asks_to_be_resumed(stand_in: None) -> None:
    ends = {**os.environ, **IN_A_JOB, slurm.VARIABLE: str(int(time.time()) + 12)}
    done = gputui(*AUTO, "--set", "checkpoint=epoch", env=ends)
    (run,) = runs.all_runs()
    assert "the Slurm job 77 ends in 0:" in done.stdout + done.stderr
    assert "run.max_minutes=auto: the run ends itself in 0:" in run.file("engine.log").read_text()
    assert (run.result, run.state) == ({"outcome": "timeout"}, "timeout")
    assert done.returncode == 75, "a batch script requeues its job by it"


def test_a_limit_that_is_not_known_is_a_warning_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, "echo INVALID")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    told: list[Event] = []
    limit = TimeLimit("auto", RunClock.launched(), told.append)
    (warning,) = until(lambda: told)
    why = "squeue does not report it: INVALID"
    assert warning == Warn(
        kind="job_limit", option="run.max_minutes",
        hint="set run.max_minutes to a little less than the job's time limit",
        message=f"run.max_minutes=auto: the job's time limit is not known, and the run has none ({why})",
    )  # fmt: skip
    assert not limit.is_over


def test_a_limit_in_minutes_counts_from_the_start_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = 0.0
    monkeypatch.setattr(RunClock, "elapsed", lambda _: elapsed)
    limit, none = (TimeLimit(minutes, RunClock.launched(), lambda _: None) for minutes in (2.5, None))
    for elapsed, is_over in ((149.0, False), (151.0, True)):
        assert (limit.is_over, none.is_over) == (is_over, False), elapsed


def asked() -> None:
    """Wait until it is known how long the job has."""
    for thread in threading.enumerate():
        if thread.name == "job's end":
            thread.join()


def test_outside_of_a_job_auto_is_no_limit_and_minutes_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    told: list[Event] = []
    limit = TimeLimit("auto", RunClock.launched(), told.append)
    asked()
    words = "gputui: run.max_minutes=auto: there is no job with a time limit, and the run has none\n"
    assert (capsys.readouterr().out, told, limit.is_over) == (words, [], False)
    for minutes, option in ((2.5, "run.max_minutes=2.5"), (3, "run.max_minutes=3"), (None, "run.max_minutes=0")):
        of_minutes = TimeLimit(minutes, RunClock.launched(), told.append)
        assert (of_minutes.is_of_job, of_minutes.option) == (False, option)


def test_the_limit_counts_from_now_and_not_from_the_start_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv(slurm.VARIABLE, str(int(time.time()) + 600))
    elapsed = 3600.0
    monkeypatch.setattr(RunClock, "elapsed", lambda _: elapsed)
    limit = TimeLimit("auto", RunClock.launched(), lambda _: None)
    asked()
    assert (limit.is_of_job, limit.option) == (True, "run.max_minutes=auto")
    for seconds, is_over in ((0, False), (400, False), (541, True)):
        elapsed = 3600.0 + seconds
        assert limit.is_over is is_over, seconds


def test_what_auto_will_do_is_said_beforehand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for environment, *told in (
        ({}, "outside of a Slurm job auto is no limit"),
        (IN_A_JOB, "squeue is asked for the end of the Slurm job 77", "2 minutes less", "without checkpoints"),
        ({slurm.VARIABLE: str(int(time.time()) + 7200)}, "the Slurm job 77 ends in 1:59:", "itself after 1:57:"),
    ):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert cli.run([*AUTO, "--dry-run"]) == 0
        said = capsys.readouterr().err
        for text in told:
            assert text in said, (environment, said)
