"""The cluster of a training on several machines: how it is read, what is refused first, and Slurm's answers."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Cluster,
    ClusterError,
    SlurmJob,
    run_cluster,
    runs,
    slurm,
    start_worker,
)
from tests.doors.tui import tui_cli as cli
from tests.support.cluster import free_ports

WORKERS = ["--preset", "quickstart", "--set", "strategy.kind=multi_worker"]


COMMANDS = (
    (("--cluster", "a:1,b:1"), "--cluster needs --worker N"),
    (("--worker", "1"), "--worker needs --cluster"),
    (("--cluster", "a:1,b:1", "--worker", "2"), "there is no worker 2 among 2, counted from 0; give --worker a number"),
    (("--cluster", "a,b:1", "--worker", "0"), "'a' is not an address"),
    (("--cluster", "a:1;b:1", "--worker", "0"), "separate the addresses by one comma each"),
)


def test_the_command_line_names_a_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TF_CONFIG", "")  # so that it is taken back what the command sets
    for words, why in COMMANDS:
        assert cli.run([*WORKERS, *words]) == 2
        assert why in capsys.readouterr().err, words
    assert cli.run(["quickstart", "--cluster", "a:1,b:1", "--worker", "0"]) == 2
    assert "need no screen: gputui --preset quickstart --cluster" in capsys.readouterr().err
    assert cli.run([*WORKERS, "--cluster", "localhost:1, 127.0.0.1:2", "--worker", "1", "--dry-run"]) == 0
    assert "this is worker 1 of 2, at 127.0.0.1:2 (--cluster)" in capsys.readouterr().err
    assert cli.run(["--preset", "quickstart", "--dry-run"]) == 2, "the cluster would train copies"
    told = capsys.readouterr().err
    assert "--cluster names 2 workers, and each would train a copy of its own" in told
    assert "set strategy.kind=multi_worker, or leave out --cluster" in told


def test_several_machines_and_what_does_not_go_with_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", "")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert cli.run(WORKERS) == 2
    told = capsys.readouterr().err
    assert "batch script or shell, which runs once (job 7)\nstart one task on each node: srun" in told
    monkeypatch.delenv("SLURM_JOB_ID")
    assert cli.run(WORKERS) == 2
    told = capsys.readouterr().err
    assert all(way in told for way in ("on each by srun", "TF_CONFIG", "--cluster HOST1:PORT,HOST2:PORT --worker N"))
    change = ("--set", "strategy.kind=multi_worker")
    for words in (
        ("ab", "--preset", "quickstart", *change),
        ("diagnose", "--preset", "quickstart", *change),
        ("tune", "--preset", "quickstart", *change),
        ("fit-batch", "--preset", "quickstart", *change),
    ):
        assert cli.run(words) == 2, words
        assert "its trials would have to be started on all machines" in capsys.readouterr().err, words
    start_worker.use_command_line("localhost:1,localhost:2", 0)
    assert cli.run([*WORKERS, "--set", "run.on_oom=halve"]) == 2
    assert "one worker whose memory has run out cannot go on alone" in capsys.readouterr().err
    assert runs.all_runs() == []


def test_a_port_in_use_and_an_unknown_host_are_refused_before_anything_starts() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("", port)):
        for source, change in {
            "--cluster": "in --cluster, on every machine",
            "TF_CONFIG": "another port in TF_CONFIG",
            "Slurm job 7": f"GPUTUI_PORT={port + 100}",
        }.items():
            with pytest.raises(ClusterError) as refusal:
                start_worker.test_reach(Cluster((f"localhost:{port}", "localhost:1"), 0, source))
            told = str(refusal.value)
            assert f"worker 0 (localhost:{port}) cannot use its port {port}: another program" in told
            assert change in told
    there = Cluster((f"localhost:{port}", "no-such-host.invalid:1"), 0, "--cluster")
    remark = start_worker.test_reach(there)
    assert remark.startswith("the host no-such-host.invalid is not known on this machine: the run waits until it is; ")
    assert start_worker.test_reach(Cluster(there.workers, 0, "TF_CONFIG")) == "", "a pod may get its name later"
    with pytest.raises(ClusterError, match=rf"worker 0 \(localhost:{port}\) and worker 1 \(127\.0\.0\.1:{port}\) are"):
        start_worker.test_reach(Cluster((f"localhost:{port}", f"127.0.0.1:{port}"), 0, "--cluster"))
    assert start_worker.test_reach(Cluster((f"localhost:{port}", "localhost:1"), 0, "--cluster")) == ""
    elsewhere = start_worker.test_reach(Cluster((f"192.0.2.7:{port}", "localhost:1"), 0, "--cluster"))
    assert "192.0.2.7 is none of the addresses of" in elsewhere


def test_a_run_keeps_its_cluster_and_is_resumed_in_one_of_the_same_form(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", "")
    kept = Cluster(("a:1", "b:1"), 1, "--cluster")
    run = runs.create("big", "", cluster=kept)
    assert run.id.endswith("-big-worker1")
    assert runs.title(run) == "big: worker 1 of 2"
    assert not runs.create("big", "", cluster=Cluster(kept.workers, 0, "")).id.endswith("worker0")
    assert run_cluster.of_run(run) == start_worker.cluster_to_resume(run) == kept
    start_worker.use_command_line("c:1,d:1", 1)
    found = start_worker.cluster_to_resume(run)
    assert found is not None
    assert found.workers == ("c:1", "d:1"), "other machines may go on with it"
    start_worker.use_command_line("c:1,d:1", 0)
    with pytest.raises(ClusterError, match="is the run of worker 1, and this is worker 0; resume its own run"):
        start_worker.cluster_to_resume(run)
    start_worker.use_command_line("c:1,d:1,e:1", 1)
    with pytest.raises(ClusterError, match="was started with 2 workers, and the cluster has 3 now; resume it with 2"):
        start_worker.cluster_to_resume(run)
    run.file(run_cluster.FILE).write_text('{"workers": ["a:1"], "index": 5}')
    assert run_cluster.of_run(run) is None


# ---- Slurm's answers -----------------------------------------------------------------------------


class Programs:
    """What Slurm's programs print: the text by the program, or an error."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.calls = answers, list[list[str]]()

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append(command)
        answer = self.answers.get(command[0], FileNotFoundError())
        if isinstance(answer, Exception):
            raise answer
        code, text = answer if isinstance(answer, tuple) else (0, answer)
        return subprocess.CompletedProcess(command, code, "" if code else text, text if code else "")


def test_jobs_are_read_from_squeue_and_ended_ones_from_the_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "7|PENDING|Resources|2026-11-26T18:00:00|(null)\n8|RUNNING|None|N/A|node1\n9|RUNNING|None|N/A|node2\nbad\n"
    programs = Programs(squeue=listed, sacct="5|CANCELLED by 1000\n6|TIMEOUT\n5.batch|FAILED\n")
    monkeypatch.setattr(subprocess, "run", programs)
    assert slurm.jobs(["7", "8", "5", "6", "4"]) == {
        "7": SlurmJob("PENDING", "Resources", "2026-11-26T18:00:00"), "8": SlurmJob("RUNNING", nodes="node1"),
        "5": SlurmJob("CANCELLED"), "6": SlurmJob("TIMEOUT"), "4": SlurmJob("GONE"),
    }  # fmt: skip
    assert [call[0] for call in programs.calls] == ["squeue", "sacct"]
    assert f"--user={os.geteuid()}" in programs.calls[0]
    assert "--jobs=5,6,4" in programs.calls[1]
    assert slurm.jobs(["8"]) == {"8": SlurmJob("RUNNING", nodes="node1")}
    assert len(programs.calls) == 3, "the accounts are not asked for nothing"
    del programs.answers["sacct"]
    assert slurm.jobs(["5"]) == {"5": SlurmJob("GONE")}
