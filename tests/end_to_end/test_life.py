"""Who lives, and where: the lock of a run, other machines, who gets a signal, and which run goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    ENGINE_LOCK,
    Process,
    Run,
    RunError,
    launch,
    locks,
    presets,
    resolve,
    resuming,
    runs,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import run as control
from tests.doors.tui import tui_cli as cli
from tests.support.front_door import gputui, until
from tests.support.standing_in import engines_of, kept, training

pytestmark = pytest.mark.usefixtures("nothing_left_running")

ELSEWHERE = Place("node-b", "another-start", "pid:[1]")


def rewritten(run: Run, **changes: Any) -> Run:
    """Its status says something else."""
    run.file("status.json").write_text(json.dumps({**run.status, **changes}))
    return run


def left_of(run: Run) -> None:
    """Its checkpoint."""
    shards = run.file("checkpoints") / "step-0000000001"
    shards.mkdir(parents=True, exist_ok=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (shards / name).write_text("x")


def left(*, place: Place = ELSEWHERE, heartbeat: float | None = None, phase: str = "training") -> Run:
    """A run of another place, with a checkpoint, as it looks from here."""
    run = runs.create("left", presets.resolve("quickstart").to_yaml())
    left_of(run)
    run.file(ENGINE_LOCK).touch()
    run.file("status.json").write_text("{}")
    beat = time.time() if heartbeat is None else heartbeat
    return rewritten(run, **place.as_fields(), phase=phase, heartbeat=beat, engine_pid=1, engine_start_ticks=7)


def stopped(run: Run) -> None:
    """Ask it to stop, and wait until it has."""
    runs.request_stop(run)
    until(lambda: not run.alive("engine"))


# ---- the lock -----------------------------------------------------------------------------------


def test_the_lock_of_a_deleted_run_is_worth_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = locks.take(path)
    path.unlink()
    with first, locks.take(path):
        assert locks.held(path)


# ---- several at once -----------------------------------------------------------------------------


def resumed_at_once(run: Run, times: int) -> list[subprocess.Popen[bytes]]:
    """The engines of those that won."""
    ready, won, lost = threading.Barrier(times), [], []

    def resume() -> None:
        ready.wait()
        try:
            won.append(kept(resuming.resume(run)))
        except RunError as reason:
            lost.append(str(reason))

    threads = [threading.Thread(target=resume) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) + len(lost) == times
    return won


def test_of_several_resumes_at_once_one_wins(stand_in: None) -> None:
    run = training()
    for sitting in (2, 3):
        stopped(run)
        (engine,) = resumed_at_once(run, 4)
        until(lambda: run.state == "running" and run.status["phase"] == "training")
        assert engines_of(run) == [engine.pid] == [run.status["engine_pid"]]
        assert len(list(run.path.glob("result-*.json"))) == sitting - 1
    stopped(run)


# ---- what cannot be resumed loses nothing -------------------------------------------------------


def test_a_resume_whose_engine_cannot_start_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = left(place=Place.here(), phase="ended")
    run.file("result.json").write_text('{"outcome": "stopped"}')
    before = run.status
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(OSError, match="No such file"):
        resuming.resume(run)
    assert run.state == "stopped"
    assert run.status == before


# ---- who gets a signal --------------------------------------------------------------------------


@pytest.mark.needs("root")  # to give a file away
def test_a_status_of_another_user_sends_no_signal(stand_in: None) -> None:
    run = training()
    foreign = left(place=Place.here())
    foreign.file(ENGINE_LOCK).unlink()
    foreign.file(ENGINE_LOCK).symlink_to(run.file(ENGINE_LOCK))
    foreign.file("status.json").write_text(json.dumps(dict(run.status)))
    os.chown(foreign.file("status.json"), 65534, 65534)
    engine = foreign.process("engine")
    assert engine is not None
    with pytest.raises(RunError, match="belongs to another user"):
        runs.signal_process(foreign, "engine", engine)
    assert run.state == "running"
    stopped(run)


# ---- private ------------------------------------------------------------------------------------


def test_runs_and_proofs_are_their_users_alone(home: Path) -> None:
    from tests.doors.engine import folder
    from tests.doors.engine import proof_request as request

    (home / "runs").mkdir(parents=True, mode=0o755)
    run = runs.create("mine", presets.resolve("quickstart").to_yaml())
    proof = folder.create(request.of_change("quickstart", ["steps_per_execution=4"]))
    for path in (home / "runs", run.path, home / "proofs", proof.path):
        assert path.stat().st_mode & 0o777 == 0o700, path
    (home / "runs").chmod(0o755)
    gputui("runs")
    assert (home / "runs").stat().st_mode & 0o777 == 0o700


# ---- a job that is queued again ------------------------------------------------------------------


AGAIN = ("--preset", "quickstart", "--set", "epochs=5", "--resume-if-any", "--detach")


ENGINES: dict[str, int] = {}  # the descriptors of their locks


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines of this process: they hold the lock of their run and leave a checkpoint, and train nothing."""

    def spawn(run: Run, lock: locks.Lock, _clock: Any, devices: Any, _joins: Any = None) -> Any:
        devices.release()
        ENGINES[run.id] = os.dup(lock.fd)
        left_of(run)
        me = Process.current().as_fields("engine") | Place.here().as_fields()
        run.file("status.json").write_text(json.dumps({"phase": "training"} | me))
        return SimpleNamespace(pid=os.getpid(), poll=lambda: None)

    monkeypatch.setattr(launch, "spawn", spawn)
    yield
    while ENGINES:
        os.close(ENGINES.popitem()[1])
    for run in runs.all_runs():
        run.file("status.json").unlink()  # else the process of this test is ended with what is left running


def started(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Run, str]:
    """The run that a detached command has started or resumed, and what stderr said."""
    assert cli.run(words) == 0
    out, err = capsys.readouterr()
    run = runs.find(out.strip())
    assert run.state == "running"
    return run, err


def brought_to_a_stop(run: Run) -> Run:
    run.file("result.json").write_text('{"outcome": "stopped"}')
    os.close(ENGINES.pop(run.id))
    assert run.state == "stopped"
    return run


def test_a_job_that_is_queued_again_goes_on_with_its_run(trains: None, capsys: pytest.CaptureFixture[str]) -> None:
    first, said = started(capsys, *AGAIN)
    assert said == "r1 quickstart: epochs=5 started; gputui watch r1 shows it\n", "nothing is there to be resumed"
    second, _ = started(capsys, *AGAIN)
    assert second != first, "a run that goes on is left alone"
    brought_to_a_stop(second)
    again, said = started(capsys, *AGAIN)
    assert again == second
    assert f"{second.name} is resumed" in said
    brought_to_a_stop(again)
    brought_to_a_stop(first)
    assert started(capsys, *AGAIN, "--set", "epochs=6")[0] not in (first, second), "other settings, another training"
    third = brought_to_a_stop(runs.all_runs()[0])
    _memory_ran_out(second, 6)
    _memory_ran_out(second, 3)
    assert brought_to_a_stop(started(capsys, *AGAIN)[0]) == second, "what run.on_oom has changed is no other training"

    second.file("result.json").write_text('{"outcome": "ok"}')
    assert cli.run(AGAIN) == 0
    out, said = capsys.readouterr()
    assert (out, said) == ("", f"{second.name} has completed: nothing is trained\n")
    assert brought_to_a_stop(started(capsys, "resume", "--latest", "--detach")[0]) == third, "the newest has completed"
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


def test_a_run_on_a_machine_that_has_died_is_waited_for_and_resumed(
    trains: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = brought_to_a_stop(started(capsys, *AGAIN)[0])
    first.file("result.json").unlink()
    elsewhere = {"host": "node7", "boot_id": "x", "pid_namespace": "y", "phase": "training", "heartbeat": time.time()}
    first.file("status.json").write_text(json.dumps({**first.status, **elsewhere}))
    monkeypatch.setattr(control, "_seen", {})

    def an_hour_passes(seconds: float) -> None:
        monkeypatch.setattr(control, "FRESH_SECONDS", 0.0)

    monkeypatch.setattr(control, "FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(resuming, "time", SimpleNamespace(sleep=an_hour_passes))
    assert first.state == "running"
    second, said = started(capsys, *AGAIN)
    assert second == first
    assert "was running on node7: waiting until its heartbeat goes on" in said
    assert f"{first.name} is resumed" in said
    brought_to_a_stop(second)
