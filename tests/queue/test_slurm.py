"""The queue with engine: slurm: commands and the process of a job, with stand-ins for the programs of Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    Run,
    Runner,
    entries,
    entry_changes,
    launch,
    presets,
    queue_settings,
    runs,
    slurm_job,
    slurm_queue,
)
from tests.doors.engine import folder as proofs
from tests.doors.engine import slurm as slurm_programs
from tests.doors.tui import WRONG
from tests.queue.fake_slurm import FakeSlurm
from tests.support.front_door import until
from tests.support.idle import idle
from tests.support.queued import Said, no_runner, states, waiting
from tests.support.standing_in import stand_in as stand_in

PRESET = ("--preset", "quickstart", "--queue")
ON_CPU = (*PRESET, "--set", "visible=none")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Stand-ins for Slurm, which starts the runs of the queue; the test itself is the runner."""
    no_runner(monkeypatch)
    monkeypatch.setattr(slurm_queue, "INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(slurm_queue, "LEAST_SECONDS", 0.0)
    write_settings("engine: slurm\n")
    return FakeSlurm.install(tmp_path / "slurm", monkeypatch)


def write_settings(text: str) -> None:
    queue_settings.path().parent.mkdir(parents=True, exist_ok=True)
    queue_settings.path().write_text(text)


def queued(said: Said, *words: str) -> tuple[Run, str]:
    """A run in the queue, and what the command says about it."""
    name, _, about = said(*(words or ON_CPU)).partition("\n")
    return runs.find(name), about.rstrip("\n")


def why(run: str) -> str:
    return str(entries.news().why.get(run, ""))


def follow(runner: Runner, condition: Callable[[], Any]) -> None:
    """Let the runner ask Slurm and act on its answers until the condition holds."""
    until(lambda: runner.tick() is not None and condition(), 30, every=0.02)


def test_a_queued_run_is_a_job_of_slurm_until_it_is_taken_out(slurm: FakeSlurm, said: Said) -> None:
    write_settings("engine: slurm\nsbatch: [--partition=gpu, -c 8]\n")
    first, about = queued(said, *PRESET, "--set", "visible=free:2", "--set", "run.tries=3")
    assert about == "r1: submitted to Slurm as job 100, needs 2 GPUs"
    second, about = queued(said, *ON_CPU, "--after", first.id)
    assert about == f"{second.name}: submitted to Slurm as job 101, needs the CPU; it waits for {first.name} to end"
    *options, wrap = slurm.submitted("100")
    assert options == [
        "--parsable", "--nodes=1", "--ntasks=1", f"--job-name={first.id}", f"--output={first.path}/slurm.log",
        "--open-mode=append", "--requeue", "--gpus=2", "--partition=gpu", "-c", "8",
    ]  # fmt: skip
    assert wrap.endswith(f" -P -m gputui.engine.queue.slurm_job {first.id}")
    others = slurm.submitted("101")
    assert {"--no-requeue", "--dependency=afterany:100"} < set(others)
    assert not [word for word in others if word.startswith("--gpu")]

    slurm.is_now("100", "PENDING", "Resources", starts="2026-11-27T18:00:00")
    slurm.is_now("101", "PENDING", "Dependency")
    runner = Runner()
    follow(runner, lambda: why(second.id))
    assert why(first.id) == "waits in Slurm as job 100: Resources; Slurm expects to start it at 2026-11-27 18:00:00"
    assert why(second.id) == f"waits in Slurm as job 101: Dependency (after {first.name})"
    rows = [json.loads(line) for line in said("queue", "--json").splitlines()]
    assert [(row["place"], row["state"], row["slurm_job"]) for row in rows] == [
        (None, "waiting", "100"),
        (None, "waiting", "101"),
    ]
    assert "waits in Slurm as job 100: Resources" in said("queue")

    assert "is held" in said("queue", "hold", first.id)
    assert said("queue", "rm", second.id) == f"{second.name} is taken out of the queue\n"
    assert slurm.calls("scancel") == ["101"]
    assert "held by you" in said("queue")
    follow(runner, lambda: not why(second.id))
    assert (first.state, second.state, states()) == ("waiting", "stopped", {first.id: "held"})
    assert "is released" in said("queue", "release", first.id)
    assert slurm.calls("scontrol") == ["hold 100", "release 100"]
    assert said("stop", first.id) == f"{first.name} is taken out of the queue\n"
    assert slurm.calls("scancel") == ["101", "100"]
    assert not entries.all_entries()


def test_the_gpus_of_a_job_are_those_of_the_preset_or_of_the_settings(
    slurm: FakeSlurm, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gpus(job: str) -> list[str]:
        return [word for word in slurm.submitted(job) if word.startswith(("--gpu", "--gres"))]

    assert queued(said, *PRESET)[1].endswith("needs the GPUs of its job")
    assert gpus("100") == ["--gpus=1"]
    refused = said(*PRESET, "--set", "visible=0,1", code=WRONG)
    assert refused.splitlines()[1] == "set device.visible=free:2"
    refused = said(*PRESET, "--set", "visible=free:2@A100", code=WRONG)
    assert f"in {queue_settings.path()} write sbatch: [--gpus=KIND:2]" in refused
    write_settings("engine: slurm\nsbatch: --gres=gpu:a100:2\n")
    queued(said, *PRESET, "--set", "visible=free:2@A100")
    assert gpus("101") == ["--gres=gpu:a100:2"]
    write_settings("engine: slurm\n")
    monkeypatch.setenv("SBATCH_GPUS", "h100:4")
    queued(said, *PRESET)
    assert gpus("102") == []
    assert len(runs.all_runs()) == 3, "what is refused leaves no folder"


def test_slurm_orders_its_jobs(slurm: FakeSlurm, said: Said) -> None:
    run, _ = queued(said)
    for verb in ("top", "up", "down"):
        assert said("queue", verb, run.id, code=WRONG).splitlines() == [
            f"{run.name} is not moved: Slurm orders its jobs",
            "scontrol top 100 puts it first; scontrol update JobId=100 Nice=100 lets others go first",
        ]
    assert "Slurm starts its runs" in said("queue", "pause", code=WRONG)
    assert not entries.is_paused()
    local = waiting("local")  # of the time before the setting was made
    entries.add_entry(entries.entry_of(local))
    assert "is at the top" in said("queue", "top", "local")
    rows = map(json.loads, said("queue", "--json").splitlines())
    assert {row["run"]: row["place"] for row in rows} == {run.id: None, local.id: 1}


@pytest.mark.parametrize(
    ("program", "message", "expected"),
    [
        (
            "sbatch",
            "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid",
            "sbatch has failed: invalid partition specified: x; Batch job submission failed: Invalid",
        ),
        ("sbatch", "", "sbatch is not on PATH, and the queue is Slurm's, as queue.yaml says"),
    ],
)
def test_a_job_that_slurm_refuses_leaves_nothing(
    slurm: FakeSlurm, said: Said, program: str, message: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.fails(program, message) if message else monkeypatch.setenv("PATH", str(slurm.folder))
    lines = said(*ON_CPU, code=WRONG).splitlines()
    assert lines[0] == expected
    assert len(lines) <= 2
    assert not runs.all_runs()
    assert not entries.all_entries()


def test_a_run_that_is_taken_out_while_sbatch_works_leaves_no_job(
    slurm: FakeSlurm, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = slurm_programs.submit

    def submit_late(*arguments: Any) -> str:
        entry_changes.remove(entries.all_entries()[0].run)
        return submit(*arguments)

    monkeypatch.setattr(slurm_programs, "submit", submit_late)
    run, _ = queued(said)
    assert (run.state, states(), slurm.calls("scancel")) == ("stopped", {}, ["100"])


def test_what_slurm_cannot_do_is_refused(slurm: FakeSlurm, said: Said) -> None:
    other = waiting("local")
    entries.add_entry(entries.entry_of(other))
    refused = said(*ON_CPU, "--after", other.id, code=WRONG)
    assert f"{other.name} is waiting, and not in a job of the queue" in refused
    refused = said(*ON_CPU, "--set", "give_way=true", "--set", "checkpoint=epoch", code=WRONG)
    assert refused.splitlines()[1] == "set run.give_way=false"
    refused = said(*PRESET, "--set", "visible=free:1", "--set", "per_gpu=2", code=WRONG)
    assert refused.splitlines()[-1] == "set run.per_gpu=1"
    write_settings("engine: slrum\n")
    assert "engine takes local or slurm, not 'slrum'" in said(*ON_CPU, code=WRONG)
    write_settings("engine: slurm\nsbatch: [--array=0-3]\nmost: 2\n")
    assert "sbatch takes a list of arguments of sbatch" in said(*ON_CPU, code=WRONG)
    assert "most: no effect with engine: slurm" in said("queue")
    assert [run.id for run in runs.all_runs()] == [other.id]
    assert not (slurm.folder / "calls").exists()


def test_jobs_that_end_without_their_run_leave_none_waiting(
    slurm: FakeSlurm, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled, failed on their nodes, forgotten, or not submitted: each run has a result that says so."""
    cancelled, failed, forgotten, lost, never, old, late = (queued(said)[0] for _ in range(7))
    failed.file("slurm.log").write_text("something\npython: not found\n\n")
    runner = Runner()
    follow(runner, lambda: why(never.id))
    slurm.is_now("100", "CANCELLED")
    slurm.is_now("101", "FAILED", "NonZeroExitCode")
    slurm.forgets("102")
    slurm.forgets("105")
    (slurm.folder / "accounts").write_text("105|TIMEOUT\n")
    slurm.is_now("103", "NODE_FAIL")
    with entries.locked():
        for run, changed in (
            (lost, {"state": "running"}),
            (late, {"state": "running"}),
            (never, {"slurm_job": "", "queued_at": 1.0}),
        ):
            entry = entries.read(run.id)
            assert entry is not None
            entries.write(replace(entry, **changed))
    slurm.is_now("106", "COMPLETED")
    follow(runner, lambda: len(entries.all_entries()) == 2)
    late.file("result.json").write_text('{"outcome": "ok"}')  # the file system of the node shows it only now
    follow(runner, lambda: late.id not in states())
    assert (late.result or {})["outcome"] == "ok"
    monkeypatch.setattr(slurm_queue, "RESULT_SECONDS", 0.0)
    follow(runner, lambda: not entries.all_entries())
    results = {run.id: run.result or {} for run in (cancelled, failed, forgotten, lost, never, old)}
    assert [result["outcome"] for result in results.values()] == ["stopped", *["error"] * 5]
    assert [result["error"]["message"] for result in list(results.values())[1:]] == [
        "Slurm job 101 has ended as FAILED before the run began: python: not found",
        "Slurm job 102 is not known to Slurm any more before the run began",
        "Slurm job 103 has ended as NODE_FAIL",
        "it was not submitted to Slurm, as its command was interrupted",
        "Slurm job 105 has ended as TIMEOUT before the run began",
    ]


def test_the_states_of_jobs_are_followed_and_slurm_may_be_down(slurm: FakeSlurm, said: Said) -> None:
    run, _ = queued(said)
    runner = Runner()
    slurm.fails("squeue", "squeue: error: slurm_load_jobs error: Unable to contact slurm controller")
    follow(runner, lambda: why(run.id))
    assert why(run.id).startswith("Slurm does not answer: squeue has failed: slurm_load_jobs error: Unable to contact")
    assert run.state == "waiting"
    slurm.fails("squeue")
    slurm.is_now("100", "PENDING", "JobHeldUser")  # by `scontrol hold`
    follow(runner, lambda: states() == {run.id: "held"})
    slurm.is_now("100", "RUNNING", nodes="node7")
    follow(runner, lambda: why(run.id) == "Slurm starts job 100 on node7")
    with entries.locked():
        entry = entries.read(run.id)
        assert entry is not None
        entries.write(replace(entry, state="running"))
    slurm.is_now("100", "PENDING", "BeginTime")  # requeued
    follow(runner, lambda: states() == {run.id: "waiting"})
    slurm.fails("scancel", "scancel: error: Unable to contact slurm controller")
    assert "scancel has failed: Unable to contact" in said("queue", "rm", run.id, code=WRONG)
    assert run.state == "waiting"
    slurm.fails("scancel", "scancel: error: Kill job error on job id 100: Invalid job id specified")
    assert "is taken out" in said("queue", "rm", run.id)


def test_a_measurement_is_a_job_as_well(slurm: FakeSlurm, said: Said) -> None:
    change = ("--preset", "quickstart", "--set", "steps_per_execution=4")
    proof = proofs.find(said("ab", *change, "--queue").partition("\n")[0])
    assert f"--output={proof.path}/slurm.log" in slurm.submitted("100")
    assert proof.state == "waiting"
    with entries.locked():
        entry = entries.read(proof.id)
        assert entry is not None
        entries.write(replace(entry, state="running"))
    assert "is asked to stop by Slurm" in said("proof", proof.id, "--stop")
    assert slurm.calls("scancel") == ["--batch --signal=URG 100"]


@pytest.mark.parametrize(("outcome", "code"), [("ok", 0), ("stopped", 0), ("oom", 1)])
def test_the_exit_code_of_a_job_is_that_of_its_run(home: Path, monkeypatch: Any, outcome: str, code: int) -> None:
    def ends(entry: entries.Entry, _process: object, _stops: object) -> None:
        entry.folder.file("result.json").write_text(json.dumps({"outcome": outcome}))

    no_runner(monkeypatch)
    monkeypatch.setattr(launch, "begin", lambda *_: "an engine")
    monkeypatch.setattr(slurm_job, "_wait", ends)
    monkeypatch.setattr(slurm_job, "Requests", lambda: SimpleNamespace(is_by_slurm=False))
    run = launch.create_queued(presets.resolve("quickstart", ["visible=none"]))
    entry = entries.add_entry(entries.entry_of(run))
    with entries.locked():
        entries.write(replace(entry, slurm_job="7"))
    assert slurm_job.carry_out(run.id, "8") == 3, "it is another job"
    assert slurm_job.carry_out(run.id, "7") == code
    assert entries.all_entries() == ()


@pytest.mark.usefixtures("stand_in")
def test_the_process_of_a_job_trains_the_run_and_stops_it_before_the_limit(
    slurm: FakeSlurm, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = idle(tmp_path, "{checkpoint: 5, tries: 2}", "long")
    run, _ = queued(said, "--preset", preset, "--set", "visible=none", "--queue")
    first = job_of(slurm, "100")
    until(lambda: run.file("checkpoints").is_dir() and run.state == "running")
    assert states() == {run.id: "running"}
    first.send_signal(signal.SIGUSR1)  # by sbatch --signal=B:USR1@120
    out, _ = first.communicate(timeout=60)
    assert (first.returncode, run.state) == (0, "stopped"), out
    assert states() == {run.id: "running"}, "Slurm may start the job again"
    slurm.is_now("100", "CANCELLED")
    follow(Runner(), lambda: not states())
    assert run.state == "stopped"

    assert said("resume", run.id, "--queue").endswith("submitted to Slurm as job 101, needs the CPU\n")
    assert states() == {run.id: "waiting"}
    second = job_of(slurm, "101", SLURM_JOB_END_TIME=str(int(time.time()) + 15))
    out, _ = second.communicate(timeout=120)
    assert "the time limit of the job comes soon: the run is stopped" in out
    assert (second.returncode, run.state, states()) == (0, "stopped", {}), out
    assert out.splitlines()[-1] == f"{run.id} has ended: stopped"

    gone = job_of(slurm, "101")
    assert gone.communicate(timeout=60)[0] == f"{run.id} is not in the queue as job 101; nothing is started\n"
    assert gone.returncode == 3


def job_of(slurm: FakeSlurm, job: str, **variables: str) -> subprocess.Popen[str]:
    """The job as Slurm starts it on its node: by the shell of a batch script."""
    command = ["/bin/sh", "-c", slurm.submitted(job)[-1].removeprefix("--wrap=")]
    environment = os.environ | {"SLURM_JOB_ID": job} | variables
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
