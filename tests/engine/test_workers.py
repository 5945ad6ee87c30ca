"""Workers of a training on several machines: their figures, their GPUs, their ports, and Slurm's answers about jobs."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.job import allocation, slurm_programs, start_worker, this_machine
from gputui.engine.job.cluster import ClusterError
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.job.slurm_programs import SlurmJob
from gputui.engine.job.start_worker import share_gpus
from gputui.engine.job.worker_readings import Worker, slowest
from gputui.engine.runs import Run, RunError, run_cluster
from gputui.engine.runs.events import EVENTS_FILE, TELEMETRY_FILE, GpuReadings, Progress, Started
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.runs.run_cluster import Cluster

BOTH = Cluster(("a:1", "a:2"), 1, "TF_CONFIG")


def machine(count: int, visible: str | None = None, cluster: Cluster | None = BOTH) -> Machine:
    gpus = tuple(Gpu(index, f"GPU-{index}", "A100", (8, 0), 40 << 30) for index in range(count))
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return Machine(
        gpus, "", 8, 64 << 30, visible_devices=visible, allocation=allocation.read(environment, count), cluster=cluster
    )


# ---- GPUs and ports ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "shown", "part"),
    [(0, ["0", "1", "2", "3"], "0,1"), (1, ["0", "1", "2", "3"], "2,3"), (1, ["0", "1", "2"], "1"),
     (1, ["5", "7"], "7"), (0, [], None)],
)  # fmt: skip
def test_the_gpus_of_a_host_are_divided_among_its_workers(index: int, shown: list[str], part: str | None) -> None:
    assert share_gpus({}, replace(BOTH, index=index), shown) == part
    assert share_gpus({}, Cluster(("a:1", "b:1"), 0, ""), shown) is None, "it is alone on its host"
    assert share_gpus({}, Cluster(("z:1", "a:1", "a:2"), index + 1, ""), shown) == part, "each host has all of its GPUs"


def test_a_worker_takes_its_part_of_the_gpus_that_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Machine] = {"": machine(4)}
    monkeypatch.setattr(this_machine, "read", lambda: seen[""])
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.setenv(name, "")  # what is set below then ends with the test
        monkeypatch.delenv(name)
    for kind, visible in (("mirrored", "all"), ("multi_worker", [0]), ("multi_worker", "none")):
        assert start_worker.machine_for(kind, visible) == (seen[""], []), (kind, visible)
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
    here, (remark,) = start_worker.machine_for("multi_worker", "all")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], here.cluster) == ("2,3", BOTH)
    assert str(remark).startswith("of the 4 GPUs this worker takes 2,3, as 2 workers share this host")
    assert "set CUDA_VISIBLE_DEVICES for each worker to share them out in another way" in str(remark)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    seen[""] = machine(8, "5, 6,7")
    start_worker.machine_for("multi_worker", "all")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    seen[""] = machine(1)
    with pytest.raises(ClusterError) as refusal:
        start_worker.machine_for("multi_worker", "all")
    assert str(refusal.value) == (
        "2 workers run on a, which has 1 GPU for them, and each needs its own; start at most 1 there, or use "
        "device.visible=none"
    )
    seen[""] = machine(4, cluster=None)
    assert start_worker.machine_for("multi_worker", "all") == (seen[""], [])


@pytest.mark.parametrize(
    ("source", "number", "text"),
    [
        ("--cluster", errno.EADDRINUSE, "worker 1 (a:2) cannot use its port 2: another program on this machine uses "
         "it, perhaps an earlier worker; end that one, or give it another port in --cluster, on every machine"),
        ("TF_CONFIG", errno.EACCES, "worker 1 (a:2) cannot use its port 2 (Permission denied); give it another port "
         "in TF_CONFIG"),
        ("Slurm job 7", errno.EACCES, "worker 1 (a:2) cannot use its port 2 (Permission denied); set GPUTUI_PORT=102 "
         "for all tasks of the job"),
    ],
)  # fmt: skip
def test_a_port_that_cannot_be_used_is_told_with_where_to_change_it(
    monkeypatch: pytest.MonkeyPatch, source: str, number: int, text: str
) -> None:
    class Socket:
        def __enter__(self) -> Socket:
            return self

        def __exit__(self, *_: object) -> None: ...

        def setsockopt(self, *_: object) -> None: ...

        def bind(self, _address: object) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "socket", lambda *_: Socket())
    with pytest.raises(ClusterError) as refusal:
        start_worker.test_reach(replace(BOTH, source=source))
    assert str(refusal.value) == text


def test_a_cluster_that_looks_wrong_from_this_machine_is_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.1", "::1": "::1"}
    bound: list[Any] = []
    refused: dict[Any, int] = {("10.0.0.1", 3): errno.EADDRNOTAVAIL}

    class Socket:
        def __init__(self, family: int, *_: object) -> None:
            self.family = family

        def __enter__(self) -> Socket:
            return self

        def __exit__(self, *_: object) -> None: ...

        def setsockopt(self, *given: object) -> None:
            bound.append(given)

        def bind(self, address: Any) -> None:
            bound.append((self.family, address))
            if number := refused.get(address):
                raise OSError(number, "refused")

    def getaddrinfo(host: str, port: int | None, type: int) -> list[Any]:
        if host not in here:
            raise OSError(-2, "Name or service not known")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return [(family, type, 6, "", (here[host], port or 0))]

    def remarks(workers: tuple[str, ...], index: int, source: str = "--cluster", kind: str = "multi_worker") -> Any:
        cluster = Cluster(workers, index, source)
        return [(each.level, each.message, each.change) for each in start_worker.test_cluster(
            kind, replace(machine(1), cluster=cluster)
        )]  # fmt: skip

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    assert remarks(("a:1", "b:1"), 0) == []
    again = (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    assert bound == [again, (socket.AF_INET, ("", 1)), again, (socket.AF_INET, ("10.0.0.1", 1))]
    bound.clear()
    assert remarks(("[::1]:1", "b:1"), 0, "TF_CONFIG") == []
    assert bound == [again, (socket.AF_INET6, ("", 1))], "of TF_CONFIG only this worker's port is tested"
    waits = "the run waits until it is; if the name is wrong, stop the run, and give the right name or an address"
    assert remarks(("a:1", "x:1", "y:1"), 0) == [("warning", "the host x is not known on this machine", waits)]
    assert remarks(("a:1", "x:1"), 0, "TF_CONFIG") == []
    assert remarks(("a:3", "b:1"), 0) == [
        ("warning", "a is none of the addresses of box", "check that --worker 0 is this machine")
    ]
    refused["10.0.0.1", 3] = errno.EACCES
    assert remarks(("a:3", "b:1"), 0) == [], "another fault says nothing of the address"
    assert remarks(("a:1", "x:1"), 0, kind="mirrored") == []
    assert start_worker.test_cluster("multi_worker", replace(machine(1), cluster=None)) == []
    with pytest.raises(ClusterError) as refusal:
        remarks(("b:2", "a:1", "c:1"), 0)
    assert str(refusal.value) == (
        "--cluster: worker 1 (a:1) and worker 2 (c:1) are one address, so that both cannot listen there; give each "
        "worker its own port"
    )

    class Late:
        def __init__(self, _call: object) -> None: ...

        def result(self, seconds: float) -> bool:
            assert seconds == 10.0
            raise TimeoutError

    monkeypatch.setattr(start_worker, "BackgroundCall", Late)
    assert remarks(("a:1", "x:1"), 0) == [], "its name server does not answer"


def test_a_cluster_is_named_and_its_hosts_are_known() -> None:
    cluster = Cluster(("a:1", "[::1]:2", "a:3"), 2, "Slurm job 7")
    assert (str(cluster), cluster.named(1), cluster.on_this_host, cluster.is_chief) == (
        "worker 2 of 3, at a:3 (Slurm job 7)", "worker 1 ([::1]:2)", (0, 2), False
    )  # fmt: skip
    assert (run_cluster.host_of("[::1]:2"), run_cluster.port_of("[::1]:2")) == ("::1", 2)
    assert json.loads(cluster.as_tf_config())["task"] == {"type": "worker", "index": 2}


# ---- figures -------------------------------------------------------------------------------------


def progress(speed: float | None = 400.0, wait: float | None = 0.1) -> Progress:
    return Progress(
        epoch=1, epochs=2, step=3, steps=9, samples_per_second=speed, step_ms_p50=5.0, step_ms_p95=None,
        input_wait=wait, loss=None, metrics={}, eta_seconds=None,
    )  # fmt: skip


def test_a_worker_has_its_part_of_the_samples_and_its_own_gpus(home: Any) -> None:
    run = runs.create("big", "", cluster=Cluster(("a:1", "b:1"), 1, ""))
    member = {"index": 1, "address": "b:1", "run": run.id, "folder": str(run.path), "replicas": 3, "gpus": ["GPU-b"]}
    worker, alone = Worker(member, 4), Worker(member | {"folder": "/nowhere"}, 4)
    about = {"index": 1, "address": "b:1"}
    assert worker.figures() == about | {"missing": "it has no figures yet"}
    assert alone.figures() == about | {"missing": "its run folder cannot be read from the chief's machine"}
    EventWriter(run.file(EVENTS_FILE), run.id).emit(progress())
    gpus = [{"uuid": "GPU-a", "busy": 0.9}, {"uuid": "GPU-b", "busy": 0.4}]
    EventWriter(run.file(TELEMETRY_FILE), run.id).emit(GpuReadings(gpus=gpus))
    worker.update()
    figures = {"samples_per_second": 300.0, "step_ms_p50": 5.0, "input_wait": 0.1, "gpus_busy": [0.4]}
    assert worker.figures() == about | figures
    EventWriter(run.file(EVENTS_FILE), run.id).emit(progress(speed=None))
    worker.update()
    assert worker.figures()["samples_per_second"] is None
    unknown = Worker({key: value for key, value in member.items() if key != "replicas"}, 0)
    EventWriter(run.file(EVENTS_FILE), run.id).emit(progress())
    unknown.update()
    assert unknown.figures()["samples_per_second"] is None


@pytest.mark.parametrize(
    ("waits", "index"),
    [
        ([0.25, 0.125, 0.125], 0), ([0.22, 0.125, 0.125], None), ([0.5, 0.125, 0.25], 0), ([0.125, 0.25], 1),
        ([0.3, 0.3, 0.0, 0.0], 0), ([0.3, 0.3], None), ([0.5], None), ([0.5, None], None), ([], None),
        ([None, 0.1, 0.4], 2),
    ],
)  # fmt: skip
def test_the_slowest_worker_waits_a_tenth_longer_than_the_others(waits: list[float | None], index: int | None) -> None:
    assert slowest([{"index": at, "input_wait": wait} for at, wait in enumerate(waits)]) == index


def test_the_workers_are_those_of_the_last_start_in_the_beginning_of_the_events(run: Run) -> None:
    assert run_cluster.members(run) == ()
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    for number in (1, 2):
        members = [
            {
                "index": at,
                "address": "a:1",
                "host": "a",
                "run": f"{number}-{at}",
                "folder": "/x",
                "replicas": 1,
                "gpus": [],
            }
            for at in range(2)
        ]
        writer.emit(
            Started(
                pid=1, versions={}, devices=[], options={}, actual={}, replicas=2, global_batch_size=1,
                steps_per_epoch=1, epochs=1, steps=1, train_samples=1, validation_samples=0, workers=members,
            )
        )  # fmt: skip
    assert [member["run"] for member in run_cluster.members(run)] == ["2-0", "2-1"]


@pytest.fixture
def run(home: Any) -> Run:
    return runs.create("one", "schema: 1\n")


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
    assert slurm_programs.jobs(["7", "8", "5", "6", "4"]) == {
        "7": SlurmJob("PENDING", "Resources", "2026-11-26T18:00:00"), "8": SlurmJob("RUNNING", nodes="node1"),
        "5": SlurmJob("CANCELLED"), "6": SlurmJob("TIMEOUT"), "4": SlurmJob("GONE"),
    }  # fmt: skip
    assert [call[0] for call in programs.calls] == ["squeue", "sacct"]
    assert f"--user={os.geteuid()}" in programs.calls[0]
    assert "--jobs=5,6,4" in programs.calls[1]
    assert slurm_programs.jobs(["8"]) == {"8": SlurmJob("RUNNING", nodes="node1")}
    assert len(programs.calls) == 3, "the accounts are not asked for nothing"
    del programs.answers["sacct"]
    assert slurm_programs.jobs(["5"]) == {"5": SlurmJob("GONE")}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (FileNotFoundError(), "squeue is not on PATH, and the queue is Slurm's, as queue.yaml says\ngo to a machine of "
         "the cluster, or set `engine: local` there"),
        (subprocess.TimeoutExpired("squeue", 10.0), "squeue did not answer within 10 s; `scontrol ping` shows if Slurm "
         "works"),
        (PermissionError(13, "Permission denied"), "squeue cannot be run: Permission denied"),
        ((1, "squeue: error: first\nsqueue: error: second\nsqueue: error: second\nsqueue: fatal: third\n"),
         "squeue has failed: second; third"),
        ((3, " \n"), "squeue has failed: it ended with 3"),
    ],
)  # fmt: skip
def test_a_program_of_slurm_that_fails_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, answer: Any, text: str
) -> None:
    monkeypatch.setattr(subprocess, "run", Programs(squeue=answer))
    with pytest.raises(RunError) as refusal:
        slurm_programs.jobs(["7"])
    assert str(refusal.value) == text


def test_a_job_is_submitted_held_released_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(sbatch="100;cluster\n", scontrol="", scancel="")
    monkeypatch.setattr(subprocess, "run", programs)
    assert slurm_programs.submit(["--gpus=1"], {}) == "100"
    slurm_programs.hold("100")
    slurm_programs.release("100")
    slurm_programs.signal_batch("100", "URG")
    slurm_programs.cancel("100")
    assert programs.calls == [
        ["sbatch", "--parsable", "--gpus=1"], ["scontrol", "hold", "100"], ["scontrol", "release", "100"],
        ["scancel", "--batch", "--signal=URG", "100"], ["scancel", "100"],
    ]  # fmt: skip
    programs.answers["scancel"] = (1, "scancel: error: Kill job error on job id 100: Invalid job id specified")
    slurm_programs.cancel("100")
    programs.answers["scancel"] = (1, "scancel: error: Access/permission denied")
    with pytest.raises(RunError, match=r"^scancel has failed: Access/permission denied$"):
        slurm_programs.cancel("100")
    programs.answers["sbatch"] = "Submitted batch job 100"
    with pytest.raises(RunError) as refusal:
        slurm_programs.submit([], {})
    assert str(refusal.value) == (
        "sbatch does not print the number of a job, but 'Submitted batch job 100'; see `sbatch` in queue.yaml"
    )
