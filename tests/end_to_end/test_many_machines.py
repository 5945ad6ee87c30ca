"""Training on several machines as docs/clusters.md tells it: its commands, with two workers on this machine."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.doors.engine import Cluster, Run, installed, run_cluster, runs
from tests.doors.trainer import Meeting
from tests.support.cluster import free_ports
from tests.support.front_door import documented, happened, last_losses, opened, step, until
from tests.support.idle import idle

DOCUMENT = "clusters.md"


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running", "forked_trainers")]


def commands(title: str) -> list[list[str]]:
    """The words behind `gputui` in each block that is one command."""
    lines = [block.strip() for block in documented(DOCUMENT, title) if block.count("\n") == 1]
    return [shlex.split(line.removeprefix("srun "))[1:] for line in lines]


def finish(*workers: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    """The exit code and the output of each."""
    told = [worker.communicate(timeout=300) for worker in workers]
    return [(worker.returncode, *texts) for worker, texts in zip(workers, told, strict=True)]


def run_of_worker(index: int) -> Run | None:
    return next((run for run in runs.all_runs() if (found := run_cluster.of_run(run)) and found.index == index), None)


@pytest.mark.nightly
def test_workers_on_plain_hosts_stop_together_and_go_on_under_slurm(home: Path, tmp_path: Path) -> None:
    idle(tmp_path)  # its code: steps that take time and hardly any of the CPU, and fewer epochs of them
    hold = tmp_path / "hold"
    hold.touch()
    told = documented(DOCUMENT, "## One model on several machines")[0]
    assert "epochs: 40" in told
    short = told.replace("epochs: 40", "epochs: 8")
    (tmp_path / "big.yaml").write_text(f"{short}workload: {{entry: 'idle_code.py:build'}}\n")
    first, second = free_ports(2)
    here = {"host1:12000": f"localhost:{first}", "host2:12001": f"127.0.0.1:{second}"}
    plain = [[re.sub("|".join(here), lambda found: here[found[0]], word) for word in words]
             for words in commands("## Plain hosts")]  # fmt: skip
    assert [words[-1] for words in plain] == ["0", "1"]
    workers = [opened(*words, cwd=tmp_path) for words in plain]
    until(lambda: (chief := run_of_worker(0)) and step(chief) > 1, 300)
    chief = run_of_worker(0)
    processes = [process for role in ("engine", "trainer") if chief and (process := chief.process(role))]
    for pid in [workers[0].pid, *(process.pid for process in processes)] * 2:  # as a scheduler ends one of the tasks
        os.kill(pid, signal.SIGTERM)
    until(lambda: (chief := run_of_worker(0)) and chief.status.get("stop_requests"))
    hold.unlink()
    for code, out, err in finish(*workers):
        assert code == 130, out + err
    chief, other = run_of_worker(0), run_of_worker(1)
    assert chief is not None
    assert other is not None
    assert other.id.endswith("-big-worker1")
    assert [runs.title(run) for run in (chief, other)] == ["big: 2 workers", "big: worker 1 of 2"]
    assert [(run.result or {})["outcome"] for run in (chief, other)] == ["stopped", "stopped"]
    assert run_cluster.chief_of(other) == chief
    assert not other.file("checkpoints").exists(), "they are the chief's"
    asked = [[event["message"] for event in happened(run, "warning") if event["kind"] == "peer_stopped"]
             for run in (chief, other)]  # fmt: skip
    assert [len(messages) for messages in asked] == [0, 1]
    assert asked[1][0].startswith("worker 0 (localhost:")
    stopped_at = (chief.result or {})["steps"]
    assert stopped_at == (other.result or {})["steps"]

    (script,) = documented(DOCUMENT, "## Several nodes under Slurm")
    *slurm, _, limit = shlex.split(script.splitlines()[-1].removeprefix("srun "))[1:]
    assert limit == "run.max_minutes=auto", "which the runs were not started with"
    as_srun = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2",
               "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2"}  # fmt: skip
    tasks = [opened(*slurm, cwd=tmp_path, env=os.environ | as_srun | {"SLURM_PROCID": str(n), "SLURM_LOCALID": str(n)})
             for n in range(2)]  # fmt: skip
    ends = finish(*tasks)
    assert re.search(r"^worker 1 \(localhost:\d+\): [\d,.]+ samples/s  .*input wait", ends[0][1], re.MULTILINE), ends[0]
    assert not re.search(r"^worker \d+ \(", ends[1][1], re.MULTILINE), "the chief alone shows all"
    assert re.search(r"2 replicas on 2 workers, this one worker 1;", ends[1][1]), ends[1]
    told = happened(chief, "workers")[-1]["workers"]
    assert [one["index"] for one in told] == [0, 1]
    assert all(one["samples_per_second"] > 0 for one in told)
    for run, (code, out, err) in zip((chief, other), ends, strict=True):
        assert code == 0, out + err
        assert f"{run.name} is resumed" in err
        assert (run.result or {})["outcome"] == "ok"
        assert happened(run, "started")[-1]["resumed_at_step"] == stopped_at
        kept = run_cluster.of_run(run)
        assert kept is not None
        assert kept.source == f"Slurm job {os.getpid()}"
    assert last_losses(chief)["loss"] == last_losses(other)["loss"]
    assert len(runs.all_runs()) == 2, "each has gone on with its own"
    (again,) = finish(opened(*slurm, cwd=tmp_path, env=os.environ | as_srun | {"SLURM_PROCID": "1"}))
    assert again[0] == 0
    assert f"{other.name} has completed: nothing is trained" in again[2]


def test_a_worker_that_ends_while_tensorflow_connects_the_workers_is_named(home: Path) -> None:
    """The other worker is this process: it meets the chief, and never starts TensorFlow."""
    ports = free_ports(2)
    workers = tuple(f"localhost:{port}" for port in ports)
    chief = opened("--preset", "quickstart", "--set", "strategy.kind=multi_worker", "--cluster", ",".join(workers),
                   "--worker", "0")  # fmt: skip
    hello = {"host": "here", "run": "none", "folder": "/", "tensorflow": installed.tensorflow_version()}
    meeting = Meeting(Cluster(workers, 1, "a test"), hello)

    def chief_runs() -> None:
        assert chief.poll() is None, chief.communicate()

    meeting.hold(lambda what: None, chief_runs)
    until(lambda: (run := run_of_worker(0)) and any("connecting" in told["detail"] for told in happened(run, "phase")))
    meeting.connections.close()
    ((code, out, err),) = finish(chief)
    assert code == 1, out + err
    assert f"worker 1 ({workers[1]}) has ended while the workers were connected" in out + err
    run = run_of_worker(0)
    assert run is not None
    assert (run.result or {})["error"]["kind"] == "peer_lost"
    assert "left_behind" not in [told["kind"] for told in happened(run, "warning")]
