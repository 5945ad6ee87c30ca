"""A job that is queued again goes on by itself: with the newest run that can be resumed, or with that of its preset."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace

import pytest
from gputui.engine import runs
from gputui.engine.presets import resolve
from gputui.engine.process import launch, resuming
from gputui.engine.runs import Run, liveness
from gputui.tui import cli

from tests.support.front_door import until
from tests.support.standing_in import kept, stand_in

__all__ = ["stand_in"]

AGAIN = ("--preset", "quickstart", "--set", "epochs=5", "--resume-if-any", "--detach")


@pytest.fixture
def trains(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of this process start engines that the stand-in's fixture ends."""
    spawn = launch.spawn
    monkeypatch.setattr(launch, "spawn", lambda *given: kept(spawn(*given)))


def started(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Run, str]:
    """The run that a detached command has started or resumed, at its training, and what stderr said."""
    assert cli.run(words) == 0
    out, err = capsys.readouterr()
    run = runs.find(out.strip())
    until(lambda: run.status.get("phase") == "training" and run.state == "running")
    return run, err


def stopped(run: Run) -> Run:
    runs.request_stop(run)
    until(lambda: run.state == "stopped")
    return run


def test_a_job_that_is_queued_again_goes_on_with_its_run(trains: None, capsys: pytest.CaptureFixture[str]) -> None:
    first, said = started(capsys, *AGAIN)
    assert said == "r1 quickstart: epochs=5 started; gputui watch r1 shows it\n", "nothing is there to be resumed"
    second, _ = started(capsys, *AGAIN)
    assert second != first, "a run that goes on is left alone"
    stopped(second)
    again, said = started(capsys, *AGAIN)
    assert again == second
    assert f"{second.name} is resumed" in said
    stopped(again)
    stopped(first)
    assert started(capsys, *AGAIN, "--set", "epochs=6")[0] not in (first, second), "other settings, another training"
    third = stopped(runs.all_runs()[0])
    _memory_ran_out(second, 6)
    _memory_ran_out(second, 3)
    assert stopped(started(capsys, *AGAIN)[0]) == second, "what run.on_oom has changed is no other training"

    second.file("result.json").write_text('{"outcome": "ok"}')
    assert cli.run(AGAIN) == 0
    out, said = capsys.readouterr()
    assert (out, said) == ("", f"{second.name} has completed: nothing is trained\n")
    assert stopped(started(capsys, "resume", "--latest", "--detach")[0]) == third, "the newest has completed"
    for run in (first, third):
        run.file("result.json").write_text('{"outcome": "ok"}')
    assert cli.run(("resume", "--latest")) == 2
    said = capsys.readouterr().err
    assert "there is no run to resume: " in said
    assert "it has completed; nor can any of the 2 before it" in said
    assert len(runs.all_runs()) == 3


def _memory_ran_out(run: Run, after: int) -> None:
    """As it is left behind if run.on_oom=halve has gone on with a smaller batch."""
    preset = run.file("preset.yaml")
    text, found = re.subn(r"\bbatch_size: (\d+)", f"batch_size: {after}", preset.read_text())
    before = resolve(str(preset)).options.input.batch_size
    assert found == 1
    preset.write_text(text)
    event = {
        "type": "memory_answer",
        "t": time.time(),
        "run": run.id,
        "answer": "halve",
        "number": 1,
        "before": before,
        "option": "input.batch_size",
        "after": after,
        "ran_out_after_step": 9,
        "resumes_at_step": None,
        "message": "x",
    }
    with run.file("telemetry.jsonl").open("a") as stream:
        stream.write(json.dumps(event) + "\n")


def test_a_run_without_a_checkpoint_is_begun_anew(trains: None, capsys: pytest.CaptureFixture[str]) -> None:
    first = stopped(started(capsys, *AGAIN)[0])
    first.file("checkpoints").rename(first.file("gone"))
    second, said = started(capsys, *AGAIN)
    stopped(second)
    assert second != first
    assert f"{first.name} has no checkpoint to resume from" in said
    assert "a new run is started" in said


def test_a_run_on_a_machine_that_has_died_is_waited_for_and_resumed(
    trains: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stopped(started(capsys, *AGAIN)[0])
    first.file("result.json").unlink()
    elsewhere = {"host": "node7", "boot_id": "x", "pid_namespace": "y", "phase": "training", "heartbeat": time.time()}
    first.file("status.json").write_text(json.dumps({**first.status, **elsewhere}))
    monkeypatch.setattr(liveness, "_seen", {})

    def an_hour_passes(seconds: float) -> None:
        monkeypatch.setattr(liveness, "FRESH_SECONDS", 0.0)

    monkeypatch.setattr(liveness, "FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(resuming, "time", SimpleNamespace(sleep=an_hour_passes))
    assert first.state == "running"
    second, said = started(capsys, *AGAIN)
    assert second == first
    assert "was running on node7: waiting until its heartbeat goes on" in said
    assert f"{first.name} is resumed" in said
    stopped(second)


def test_what_does_not_go_together_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        ("resume", "name one run to resume, or give --latest alone"),
        ("resume latest --latest", "name one run to resume, or give --latest alone"),
        ("resume --latest", "there are no runs in"),
        ("--resume-if-any", "name a preset"),
        ("--preset quickstart --dry-run --resume-if-any", "--dry-run starts and resumes nothing"),
        ("--resume-if-any quickstart", "--resume-if-any needs no screen"),
    ):
        assert cli.run(words.split()) == 2, words
        assert told in capsys.readouterr().err, words
