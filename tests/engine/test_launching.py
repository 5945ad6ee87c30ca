"""What a launch hands over, and jobs of a scheduler: their tasks and their end."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    ENGINE_LOCK,
    EVENTS_FILE,
    RESUMED,
    Devices,
    EventWriter,
    Lock,
    Phase,
    Run,
    RunClock,
    code_copy,
    launch,
    locks,
    options_json,
    presets,
    resuming,
    runs,
    slurm,
)
from tests.doors.tui import tui_cli as cli
from tests.support.front_door import gputui, until
from tests.support.recorded import stopped
from tests.support.standing_in import stand_in as stand_in


@dataclass
class Spawned:
    """Stands for the start of an engine, and keeps what it was given."""

    calls: list[tuple[Run, Lock, RunClock, Devices]] = field(default_factory=list)
    held: list[bool | None] = field(default_factory=list)  # whether the run's lock was held

    def __call__(self, run: Run, lock: Lock, clock: RunClock, devices: Devices, joins: object = None) -> Any:
        self.calls.append((run, lock, clock, devices))
        self.held.append(locks.held(run.file(ENGINE_LOCK)))
        devices.release()
        return "an engine"


@pytest.fixture
def spawned(home: Path, monkeypatch: pytest.MonkeyPatch) -> Spawned:
    made = Spawned()
    monkeypatch.setattr(launch, "spawn", made)
    return made


# ---- a resume ------------------------------------------------------------------------------------


def test_a_resume_writes_all_options_goes_on_in_the_log_and_begins_after_the_last_event(spawned: Spawned) -> None:
    run = stopped("visible=none", "epochs=3", "seed=5")
    before = presets.resolve(str(run.file("preset.yaml"))).options
    run.file("preset.yaml").write_text(
        "schema_version: 1\nextends: quickstart\ntrain: {epochs: 3, seed: 5}\nrun: {checkpoint: epoch}\n"
        "device: {visible: none}\n"
    )
    run.file("engine.log").write_text("earlier\n")
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    writer.emit(Phase(phase="ended"), time.time() + 900)
    writer.close()
    told: list[str] = []
    assert resuming.resume(run, tell=told.append) == "an engine"  # type: ignore[comparison-overlap]
    ((resumed, _, clock, devices),) = spawned.calls
    assert (resumed, clock.date, spawned.held, told) == (run, run.last_date(), [True], [])
    assert devices is not None
    assert devices.options == before
    assert presets.resolve(str(run.file("preset.yaml"))).options == before
    assert "extends" not in run.file("preset.yaml").read_text(), "an older gputui has written fewer options"
    assert run.file(options_json.FILE).read_text() == options_json.to_json(before)
    assert run.file("engine.log").read_text() == f"earlier\n{RESUMED}\n"
    assert run.result == {"outcome": "stopped"}, "its engine puts it aside"
    assert locks.held(run.file(ENGINE_LOCK)) is False


def test_a_resume_with_new_code_copies_it_and_one_with_the_copy_trains_the_copy(
    spawned: Spawned, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("x = 1\n")
    (mine / "data.csv").write_text("1\n")
    preset = presets.defaults([f"entry={mine}/train.py:build", "run.checkpoint=epoch", "visible=none"])
    run = launch.create(launch.settle(preset, mine))
    run.file("result.json").write_text('{"outcome": "stopped"}')
    step = run.file("checkpoints/step-0000000100")
    step.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (step / name).write_text("x")
    assert not (run.file(code_copy.FOLDER) / "data.csv").is_symlink()
    resuming.resume(run, from_copy=True)
    assert (run.file(code_copy.FOLDER) / "data.csv").readlink() == mine / "data.csv"
    assert json.loads(run.file(options_json.FILE).read_text())["run"]["code"] == "copy"
    (mine / "train.py").write_text("x = 2\n")
    resuming.resume(run, new_code=True)
    texts = [(run.file(name) / "train.py").read_text() for name in (code_copy.FOLDER, "code-1")]
    assert texts == ["x = 2\n", "x = 1\n"]
    assert sorted(path.name for path in run.path.glob("code*") if path.is_dir()) == ["code", "code-1"], "only once"


# ---- what is settled before a launch -------------------------------------------------------------


def test_the_origin_names_no_secret_and_no_folder_and_a_preset_without_a_file_has_none(
    home: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("workload: {entry: train.py:build}\n")
    (tmp_path / "train.py").write_text("")
    changed = presets.resolve(str(own), ["notify.url=https://a/secret", "epochs=7", f"workload.folder={tmp_path}"])
    assert json.loads(launch.origin_of(changed)) == {
        "preset": "own", "file": str(own), "changes": {"train.epochs": {"from": 2, "to": 7}}, "name": ""
    }  # fmt: skip
    assert launch.origin_of(presets.defaults(["epochs=7"])) == ""
    assert launch.title_of(changed) == "own: epochs=7"
    own.write_text("broken: [")
    assert json.loads(launch.origin_of(changed))["changes"] == {}, "of a preset that cannot be read nothing is a change"


# ---- Several tasks of one job --------------------------------------------------------------------


# A shell that salloc has opened: Slurm counts it as a step with a special number.
INTERACTIVE = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "2"}


def cluster(**members: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": members, "task": {"type": "worker", "index": 0}})}


REFUSED = [
    (STEP, "task 2 of the 4 that srun started", "srun --ntasks=1 gputui"),
    (
        {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "0"},
        "process 0 of the 8 that mpirun started",
        "without mpirun",
    ),
    ({"WORLD_SIZE": "2", "RANK": "1"}, "process 1 of the 2 that torchrun started", "without torchrun"),
    (cluster(worker=["a:1", "b:1"]), "a cluster of 2 tasks, and each would train a copy", "env -u TF_CONFIG"),
]


@pytest.mark.parametrize(("environment", "why", "change"), REFUSED, ids=range(len(REFUSED)))
def test_one_of_several_tasks_is_refused_by_every_command_that_trains(
    environment: dict[str, str], why: str, change: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    train = ("--preset", "quickstart")
    for words in (train, (*train, "--detach"), ("ab", *train, "--set", "xla=true"), ("diagnose", *train)):
        assert cli.run(words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert why in err
        assert change in err
        assert err.count("\n") <= 2


def test_a_run_that_is_left_alone_in_a_slurm_job_is_warned_of_its_end(stand_in: None) -> None:
    alone = STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_JOB_ID": "12"}
    done = gputui("--preset", "quickstart", "--detach", env=os.environ | alone)
    assert done.returncode == 0
    run = runs.find(done.stdout.strip())
    assert "the run dies with the Slurm job step 12.0" in done.stderr
    assert "keep gputui running until the end, without --detach; set run.checkpoint" in done.stderr, "nothing is cut"
    until(lambda: run.status.get("phase") == "training")
    runs.request_stop(run)
    until(lambda: run.state == "stopped")
    for environment in ({"SLURM_JOB_ID": "7"}, INTERACTIVE):
        assert "the Slurm job 7:" in str(slurm.when_detached(environment))
    assert slurm.when_detached({"PBS_JOBID": "7"}) is None


# ---- run.max_minutes=auto ------------------------------------------------------------------------


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


def test_a_run_ends_itself_before_its_job_does_and_its_exit_code_asks_to_be_resumed(stand_in: None) -> None:
    ends = {**os.environ, **IN_A_JOB, slurm.VARIABLE: str(int(time.time()) + 12)}
    done = gputui(*AUTO, "--set", "checkpoint=epoch", env=ends)
    (run,) = runs.all_runs()
    assert "the Slurm job 77 ends in 0:" in done.stdout + done.stderr
    assert "run.max_minutes=auto: the run ends itself in 0:" in run.file("engine.log").read_text()
    assert (run.result, run.state) == ({"outcome": "timeout"}, "timeout")
    assert done.returncode == 75, "a batch script requeues its job by it"
