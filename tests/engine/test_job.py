"""Several tasks of one job: never n silent copies of one training, and nothing of the job ignored without a word."""

from __future__ import annotations

import json
import os

import pytest
from gputui.engine import runs
from gputui.engine.job import allocation, several_tasks
from gputui.tui import cli

from tests.support.form_pilot import finished, form, opened, seen, settled
from tests.support.front_door import gputui, until
from tests.support.standing_in import stand_in

__all__ = ["stand_in"]

# A shell that salloc has opened: Slurm counts it as a step with a special number.
INTERACTIVE = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "2"}


def cluster(**members: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": members, "task": {"type": "worker", "index": 0}})}


REFUSED = [
    (STEP, "task 2 of the 4 that srun started", "srun --ntasks=1 gputui"),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "task 1 of the 2", "srun --ntasks=1"),
    (
        {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "0"},
        "process 0 of the 8 that mpirun started",
        "without mpirun",
    ),
    ({"PMI_SIZE": "2", "PMI_RANK": "1"}, "process 1 of the 2", "without mpirun"),
    ({"WORLD_SIZE": "2", "RANK": "1"}, "process 1 of the 2 that torchrun started", "without torchrun"),
    (cluster(worker=["a:1", "b:1"]), "a cluster of 2 tasks, and each would train a copy", "env -u TF_CONFIG"),
    (cluster(chief=["a:1"], worker={"0": "b:1"}, evaluator=["c:1"]), "a cluster of 2", "env -u TF_CONFIG"),
]
WARNED = [
    ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, "the Slurm job has 4 tasks"),
    ({"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7"}, "the Slurm job has 2 nodes"),
    (INTERACTIVE | {"SLURM_JOB_NUM_NODES": "2"}, "the Slurm job has 2 nodes"),
    (cluster(worker=["a:1"]), "a cluster of one task, and is ignored"),
    ({"TF_CONFIG": "{"}, "does not contain a readable cluster"),
    ({"TF_CONFIG": "[" * 100_000}, "does not contain a readable cluster"),
    ({"TF_CONFIG": '{"cluster": 7}'}, "does not contain a readable cluster"),
]
SILENT = [
    {},
    {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
    STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},  # srun --ntasks=1 in a job of four tasks
    {"SLURM_NTASKS": "many", "WORLD_SIZE": "4", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
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
        assert err.count("\n") == 1


@pytest.mark.parametrize(("environment", "why"), WARNED, ids=range(len(WARNED)))
def test_what_is_not_used_is_said_where_one_task_is_right(
    environment: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["--preset", "quickstart", "--dry-run"]) == 0
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("environment", SILENT, ids=range(len(SILENT)))
def test_one_task_alone_is_told_nothing(environment: dict[str, str]) -> None:
    assert several_tasks.read(environment) == ()


def test_of_several_launchers_the_first_is_told() -> None:
    both = STEP | {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "0", "WORLD_SIZE": "2", "RANK": "1"}
    (remark,) = several_tasks.read(both)
    assert "task 2 of the 4 that srun started" in str(remark)
    assert len(several_tasks.read(both | cluster(worker=["a:1", "b:1"]))) == 2, "the cluster is another matter"


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
        assert "the Slurm job 7:" in str(several_tasks.when_detached(environment))
    assert several_tasks.when_detached({"PBS_JOBID": "7"}) is None


async def test_the_form_refuses_to_start_as_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUI_WARM", "0")
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    async with opened((160, 40)) as pilot:
        assert "cannot start" in seen(pilot)
        assert "task 2 of the 4 that srun started" in form(pilot).refusal
        await pilot.press("r")
        await settled(pilot)
        await finished(pilot, "start")
        form(pilot).state.set("workload.data", "npz:no.npz")
        form(pilot).load(form(pilot).state)
        await settled(pilot)
        assert any(remark.text.startswith("there is no file no.npz") for remark in form(pilot).remarks)
    assert runs.all_runs() == []


@pytest.mark.parametrize(
    ("variables", "gpus", "allocated"),
    [
        ({"SLURM_JOB_GPUS": "0,2-3"}, 8, ("0", "2", "3")),
        ({"SLURM_JOB_GPUS": "0,1"}, 2, None),  # NVML shows the GPUs of the job alone
        ({"SLURM_JOB_GPUS": "2"}, 2, None),  # GPU 2 of the machine is one of the two that are seen here
        ({"SLURM_JOB_GPUS": "1"}, 2, ("1",)),
        ({"SLURM_JOB_GPUS": "0,gpu"}, 8, None),
        ({"SLURM_JOB_GPUS": "4", "SLURM_STEP_GPUS": "5"}, 8, ("5",)),
        ({"SLURM_JOB_GPUS": "4", "GPU_DEVICE_ORDINAL": "6"}, 8, ("6",)),
        ({"GPU_DEVICE_ORDINAL": "6", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 8, ()),
        ({}, 8, None),
    ],
)
def test_the_allocation_of_a_job_is_read(variables: dict[str, str], gpus: int, allocated: tuple[str, ...]) -> None:
    found = allocation.read(variables, gpus)
    assert (None if found is None else found.names) == allocated


def test_names_of_another_kind_are_compared_only_where_the_gpus_are_known() -> None:
    numbers = allocation.Allocation("CUDA_VISIBLE_DEVICES", ("4", "5"))
    assert [numbers.allows(name, ()) for name in (4, "5", "0", "GPU-0")] == [True, True, False, True]
    assert not allocation.Allocation("CUDA_VISIBLE_DEVICES", ()).allows(0, ())
