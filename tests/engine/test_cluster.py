"""The cluster of a training on several machines, read from played environments, and what is refused before a launch."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from gputui.engine import checks, presets, runs
from gputui.engine.diagnosis import collector, diagnose, stragglers
from gputui.engine.doctor import host_findings
from gputui.engine.job import cluster, several_tasks, slurm, start_worker, this_machine, worker_readings
from gputui.engine.job.cluster import ClusterError
from gputui.engine.runs import run_cluster
from gputui.engine.runs.events import GpuReadings, GradientExchange, Phase, Progress, Started, WorkerReadings
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system.run_clock import RunClock
from gputui.tui import cli
from gputui.tui.base.glyphs import RICH
from gputui.tui.commands.diagnose import how_to_try
from gputui.tui.drawing.live import head
from gputui.tui.drawing.rows import plain
from gputui.tui.printing.run_progress import LineView
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.wording import run as in_words
from rich.console import Console

from tests.support.cluster import free_ports
from tests.support.environments import script
from tests.support.front_door import documented

WORKERS = ["--preset", "quickstart", "--set", "strategy.kind=multi_worker"]


def step(task: int, tasks: int, nodes: str, per_node: str, **more: str) -> dict[str, str]:
    """The variables of a task that srun has started."""
    return {
        "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(task), "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": per_node, **more,
    }  # fmt: skip


def tf_config(kind: str = "worker", index: object = 0, **members: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": members, "task": {"type": kind, "index": index}})}


def test_node_lists_are_expanded_as_slurm_does() -> None:
    for text, nodes in {
        "localhost": ["localhost"],
        "gpu[01-03,7],login1": ["gpu01", "gpu02", "gpu03", "gpu7", "login1"],
        "n[9-11].site": ["n9.site", "n10.site", "n11.site"],
        "rack[1-2]gpu[01-02]": ["rack1gpu01", "rack1gpu02", "rack2gpu01", "rack2gpu02"],
        "a-1,b[001]": ["a-1", "b001"],
    }.items():
        assert slurm.nodes_of(text) == nodes, text
    for text in ("", "gpu[01-", "gpu]3", "gpu[3-1]", "gpu[a]", "a,,b", "gpu[0-999999999]"):
        with pytest.raises(slurm.SlurmError):
            slurm.nodes_of(text)


PORT = 10_000 + 32 * (4711 % 600)
SOUND: list[tuple[dict[str, str], tuple[str, ...], int]] = [
    (step(2, 3, "gpu[01-02]", "2,1"), (f"gpu01:{PORT}", f"gpu01:{PORT + 1}", f"gpu02:{PORT}"), 2),
    (step(1, 2, "localhost", "2", SLURM_LOCALID="1"), (f"localhost:{PORT}", f"localhost:{PORT + 1}"), 1),
    (step(1, 4, "a,b", "2(x2)", SLURM_DISTRIBUTION="cyclic", SLURMD_NODENAME="b"),
     (f"a:{PORT}", f"b:{PORT}", f"a:{PORT + 1}", f"b:{PORT + 1}"), 1),
    (step(2, 3, "a,b", "2,1", SLURM_DISTRIBUTION="cyclic", SLURMD_NODENAME="a"),
     (f"a:{PORT}", f"b:{PORT}", f"a:{PORT + 1}"), 2),
    (step(0, 2, "a,b", "1(x2)", GPUTUI_PORT="2222"), ("a:2222", "b:2222"), 0),
    ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_NODELIST": "a,b", "SLURM_JOB_ID": "4711"},
     (f"a:{PORT}", f"b:{PORT}"), 1),
    (tf_config("worker", 1, worker=["a:1", "b:1"]), ("a:1", "b:1"), 1),
    (tf_config("worker", "0", chief=["c:1"], worker=["a:1", "b:1"], evaluator=["e:1"]), ("c:1", "a:1", "b:1"), 1),
    (tf_config("chief", 0, worker={"0": "a:1", "1": "b:1"}, chief={"0": "c:1"}), ("c:1", "a:1", "b:1"), 0),
    (tf_config("master", 0, master=["c:1"], worker=["[::1]:2"]), ("c:1", "[::1]:2"), 0),
    (tf_config("worker", 0, worker=["a:1"]) | step(1, 2, "x,y", "1(x2)"), ("a:1",), 0),  # which names it outright
]  # fmt: skip


def test_steps_that_run_side_by_side_have_ports_of_their_own() -> None:
    ports = set()
    for number_of_job, number in itertools.product(range(7, 10), range(6)):
        found = cluster.read(step(0, 2, "a", "2", SLURM_JOB_ID=str(number_of_job), SLURM_STEP_ID=str(number)))
        assert found is not None
        ports |= {int(worker.rpartition(":")[2]) for worker in found.workers}
    assert len(ports) == 3 * 6 * 2


@pytest.mark.parametrize(
    ("distribution", "hosts"),
    [
        ("block", "aabb"),
        ("cyclic", "abab"),
        ("cyclic:block", "abab"),
        ("Cyclic,Pack", "abab"),
        ("block:cyclic", "aabb"),
    ],
)
def test_tasks_are_placed_as_the_distribution_says(distribution: str, hosts: str) -> None:
    found = cluster.read(step(hosts.index("a"), 4, "a,b", "2(x2)", SLURM_DISTRIBUTION=distribution))
    assert found is not None
    assert "".join(worker[0] for worker in found.workers) == hosts


def test_the_cluster_is_read_from_what_launchers_set() -> None:
    for environment, addresses, index in SOUND:
        found = cluster.read(environment)
        assert found is not None, environment
        assert (found.workers, found.index) == (addresses, index), environment
        assert cluster.of_tf_config(found.as_tf_config()).workers == addresses, "as its trainer reads it"
    shell = step(0, 1, "a", "1") | {"SLURM_STEP_ID": "4294967290", "SLURM_JOB_NUM_NODES": "2"}
    for environment in ({}, {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, shell):
        assert cluster.read(environment) is None, "no task of a cluster"


REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({"TF_CONFIG": '{"cluster": '}, "not JSON (Expecting value at character", "correct it, or unset it"),
    ({"TF_CONFIG": "[" * 100_000}, "not JSON", "unset it"),
    ({"TF_CONFIG": "[1]"}, "must be an object", "unset it"),
    ({"TF_CONFIG": '{"cluster": 7}'}, "names no cluster", "unset it"),
    ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "which of its tasks", "give task type and index"),
    (tf_config("worker", "one", worker=["a:1"]), "which of its tasks", "give task type and index"),
    (tf_config("worker", 2, worker=["a:1", "b:1"]), "worker 2, but it names 2, counted from 0", "correct the index"),
    (tf_config("evaluator", 0, worker=["a:1"], evaluator=["e:1"]), "is the evaluator", "leave the evaluator out"),
    (tf_config("worker", 0, worker=["a:1"], ps=["p:1"]), "no parameter servers", "remove them"),
    (tf_config("worker", 0, worker=["a:1", "a:1"]), "a:1 is listed twice", "give each worker its own"),
    (tf_config("worker", 0, worker=["a", "b:1"]), "'a' is not an address", "give host:port"),
    (tf_config("worker", 0, worker=["a:70000", "b:1"]), "'a:70000' is not an address", "give host:port"),
    (tf_config("worker", 0, worker={"0": "a:1", "2": "b:1"}), "name every worker", "not only 0, 2"),
    (tf_config("worker", 0, worker="a:1"), "as a list of addresses", "host:port"),
    (step(3, 2, "a,b", "1(x2)"), "there is no worker 3 among 2", "start gputui with srun"),
    (step(0, 3, "a,b", "1(x2)"), "do not agree: 3 tasks on 2 nodes", "--cluster"),
    (step(0, 2, "a[", "1(x2)"), "the node list 'a[' cannot be read", "--cluster"),
    (step(0, 2, "a,b", "some"), "SLURM_STEP_TASKS_PER_NODE='some'", "--cluster"),
    (step(0, 2, "a,b", "1(x2)", SLURM_DISTRIBUTION="plane=2"), "--distribution=plane=2", "--cluster"),
    (step(0, 2, "a,b", "1(x2)", SLURMD_NODENAME="b"), "runs task 0 on b", "srun --distribution=block"),
    (step(1, 2, "a", "2", SLURM_LOCALID="0"), "task 1 with SLURM_LOCALID=0", "srun --distribution=block"),
    (step(0, 2, "a,b", "1(x2)", SLURM_HET_SIZE="2"), "a heterogeneous Slurm job", "--cluster"),
    (step(0, 2, "a,b", "1(x2)", GPUTUI_PORT="x"), "GPUTUI_PORT=x is no port", "such as 12000"),
]


def test_a_cluster_that_cannot_be_used_is_told_in_a_line_that_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for environment, why, change in REFUSED:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            assert cli.run([*WORKERS, "--dry-run"]) == 2, environment
        told = capsys.readouterr().err
        assert why in told, environment
        assert change in told, environment
        assert told.count("\n") == 1, environment
        assert ": ;" not in told, environment
        assert len(told) < 230, environment


COMMANDS = (
    (("--cluster", "a:1,b:1"), "--cluster needs --worker N"),
    (("--worker", "1"), "--worker needs --cluster"),
    (("--cluster", "a:1,b:1", "--worker", "2"), "there is no worker 2 among 2, counted from 0; give --worker a number"),
    (("--cluster", "a,b:1", "--worker", "0"), "'a' is not an address"),
    (("--cluster", "a:1,a:1", "--worker", "0"), "a:1 is listed twice"),
    (("--cluster", "a:1;b:1", "--worker", "0"), "separate the addresses by one comma each"),
    (("--cluster", "a:1 b:1", "--worker", "0"), "separate the addresses by one comma each"),
    (("--cluster", "a:1,b:1,", "--worker", "0"), "separate the addresses by one comma each"),
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
    assert "batch script or shell, which runs once (job 7); start one task on each node: srun" in told
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


def test_the_manifest_for_kubernetes_names_the_pods_as_kubernetes_does(tmp_path: Path) -> None:
    """A pod of an Indexed Job is called JOB-INDEX.SUBDOMAIN, and the headless service of that name makes it known."""
    service, training = yaml.safe_load_all(documented("clusters.md", "## Kubernetes")[0])
    job, pod = training["spec"], training["spec"]["template"]["spec"]
    assert (service["spec"]["clusterIP"], service["metadata"]["name"]) == ("None", pod["subdomain"])
    assert service["spec"]["selector"] == {"job-name": training["metadata"]["name"]}
    assert job["completions"] == job["parallelism"]
    (container,) = pod["containers"]
    script(tmp_path / "gputui", 'echo "$TF_CONFIG"; echo "$@"')
    names = [f"{training['metadata']['name']}-{index}.{pod['subdomain']}" for index in range(job["completions"])]
    for index in range(job["completions"]):
        variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": str(index)}
        done = subprocess.run(container["command"], env=variables, capture_output=True, text=True, check=True)
        config, words = done.stdout.splitlines()
        found = cluster.read({"TF_CONFIG": config})
        assert found is not None
        assert ([run_cluster.host_of(one) for one in found.workers], found.index) == (names, index)
        assert words == "--preset /data/big.yaml --resume-if-any"


def test_a_screen_sends_to_the_command_and_not_to_the_machines() -> None:
    preset = presets.resolve("quickstart", ["strategy.kind=multi_worker"])
    (found, *others) = checks.on_screen(preset, this_machine.read())
    assert "is started by its command, not from a screen" in str(found)
    assert not any("nothing names the machines" in str(other) for other in others)


def test_a_worker_says_whom_it_waits_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(runs.create("big", ""), Console())
    for _ in range(2):
        view.show(Phase(phase="configuring", detail="waiting for worker 1 (b:1)"))
    assert capsys.readouterr().out == "waiting for worker 1 (b:1) ...\n"
    devices = ["/device:GPU:0"] * 4
    started = {"worker": 1, "workers": [{}, {}], "replicas": 8, "devices": devices, "global_batch_size": 64}
    facts = plain(head.rows(head.RunName("big", "r", ""), "", Snapshot(started=started), 100, RICH)[2])
    assert "4 GPUs, worker 1 of 2, 8 replicas on all, batch 64" in facts


def test_gpus_of_a_host_are_shared_out_unless_each_worker_has_its_own() -> None:
    both, four = step(1, 2, "a", "2"), ["0", "1", "2", "3"]
    here, apart = cluster.read(both), cluster.read(step(1, 2, "a,b", "1(x2)"))
    assert here is not None
    assert apart is not None
    assert start_worker.share_gpus(both, here, four) == "2,3"
    assert start_worker.share_gpus(both, here, ["GPU-a", "GPU-b", "GPU-c"]) == "GPU-b", "each the same number"
    assert start_worker.share_gpus(both, apart, four) is None
    assert start_worker.share_gpus(both, here, []) is None
    for not_bound in ({"SLURM_GPU_BIND": "none"}, {"SLURM_GPU_BIND": "verbose,none", "SLURM_GPUS_PER_TASK": "1"}):
        assert start_worker.share_gpus(both | not_bound, here, four) == "2,3", not_bound
    for bound in ({"SLURM_GPUS_PER_TASK": "1"}, {"SLURM_GPU_BIND": "single:1"}, {"SLURM_TRES_PER_TASK": "gres/gpu:1"}):
        assert start_worker.share_gpus(both | bound, here, four) is None, bound
    assert start_worker.share_gpus({"CUDA_VISIBLE_DEVICES": "1"}, here, ["1"]) is None, "the user has shared them out"
    with pytest.raises(ClusterError, match="2 workers run on a, which has 1 GPU"):
        start_worker.share_gpus(both, here, ["0"])


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


def test_the_doctor_tells_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, level, words in (
        (tf_config(worker=["a:1", "b:1"]), "note", "this is worker 0 of 2, at a:1 (TF_CONFIG)"),
        ({"TF_CONFIG": "{"}, "warning", "TF_CONFIG is not JSON"),
        ({"TF_CONFIG": ""}, "", ""),
    ):
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        found = [one for one in host_findings.findings() if one.about == "cluster"]
        assert [one.level for one in found] == ([level] if level else []), told
        assert all(words in one.what and one.remedy for one in found), found


def test_copies_are_refused_with_the_strategy_that_trains_one_model_on_all() -> None:
    for environment in (step(0, 2, "a,b", "1(x2)"), tf_config(worker=["a:1", "b:1"])):
        (remark,) = several_tasks.read(environment)
        assert remark.level == "error"
        assert "set strategy.kind=multi_worker" in remark.change


def member(folder: Path, index: int) -> dict[str, object]:
    return {"index": index, "address": f"h{index}:1", "host": f"h{index}", "run": folder.name, "folder": str(folder),
            "replicas": 2, "gpus": [f"GPU-{index}"]}  # fmt: skip


def progress(wait: float) -> Progress:
    return Progress(epoch=1, epochs=1, step=1, steps=9, samples_per_second=4000.0, step_ms_p50=10.0, step_ms_p95=None,
                    input_wait=wait, loss=None, metrics={}, eta_seconds=None)  # fmt: skip


def test_the_chief_shows_all_workers_whose_folders_it_can_read(home: Path) -> None:
    addresses = ("h0:1", "h1:1", "h2:1")
    chief, other = (runs.create("big", "", cluster=Cluster(addresses, index, "Slurm")) for index in (0, 1))
    told = [member(chief.path, 0), member(other.path, 1), member(Path("/not/shared/elsewhere"), 2)]
    followed = [worker_readings.Worker(one, 6) for one in told]
    for run, wait in ((chief, 0.02), (other, 0.4)):
        EventWriter(run.file("events.jsonl"), run.id, RunClock.launched()).emit(progress(wait))
        gpus = [{"uuid": f"GPU-{index}", "busy": 0.5 + index / 10} for index in range(2)]
        EventWriter(run.file("telemetry.jsonl"), run.id, RunClock.launched()).emit(GpuReadings(gpus=gpus))
    for one in followed:
        one.update()
    figures = [one.figures() for one in followed]
    assert [one.get("samples_per_second") for one in figures] == [pytest.approx(4000 / 3)] * 2 + [None]
    assert [one.get("gpus_busy") for one in figures] == [[0.5], [0.6], None]
    assert worker_readings.slowest(figures) == 1
    assert worker_readings.slowest(figures[:1]) is None
    assert worker_readings.slowest([figures[0], figures[1] | {"input_wait": 0.05}]) is None
    measured = stragglers.worker_figures([WorkerReadings(workers=figures, slowest=1)])
    assert measured == {"worker_gap": pytest.approx(0.38), "slow_worker": "worker 1 (h1:1)", "slow_worker_wait": 0.4}
    assert stragglers.worker_figures([WorkerReadings(workers=figures[:1])]) == {}, "of the others nothing is known"
    EventWriter(chief.file("telemetry.jsonl"), chief.id, RunClock.launched()).emit(WorkerReadings(workers=figures))
    verdict = diagnose(replace(collector.read(chief), steps=500, seconds=9.0, step_ms=10.0, input_wait=0.02))
    assert verdict.sentence == (
        "Slow worker: one waits 38 % of its steps longer for input than the others: worker 1 (h1:1)"
    )
    assert "waits 40 % of its steps for its input" in str(verdict.evidence)
    assert "compare the machine of worker 1 (h1:1)" in str(verdict.remedies)
    shown = list(in_words.worker_lines({"workers": figures, "slowest": 1}))
    assert shown[1].startswith("worker 1 (h1:1): 1,333 samples/s")
    assert "input wait 40 %" in shown[1]
    assert "busy 60 %" in shown[1]
    assert shown[2] == "worker 2 (h2:1): its run folder cannot be read from the chief's machine"
    assert "wait for worker 1" in shown[3]


def test_a_long_exchange_between_the_workers_is_found_with_what_would_shorten_it(home: Path) -> None:
    """Written events of a worker's run: the exchange takes 12 ms of 40, then 0.4."""
    members = [{"index": index, "address": f"{host}:1", "host": host} for index, host in enumerate(("gpu01", "gpu02"))]
    options = {"strategy.kind": "multi_worker", "input.batch_size": 32, "train.micro_batches": 1}
    found = []
    for ms in (12.0, 0.4):
        run = runs.create("big", "", cluster=Cluster(("gpu01:1", "gpu02:1"), 1, "Slurm"))
        writer = EventWriter(run.file("events.jsonl"), run.id, RunClock.launched())
        writer.emit(
            Started(pid=1, versions={}, devices=["CPU:0"], options={}, actual={}, replicas=2, global_batch_size=64,
                    steps_per_epoch=500, epochs=9, steps=4500, train_samples=32_000, validation_samples=0, worker=1,
                    workers=members)
        )  # fmt: skip
        writer.emit(GradientExchange(ms=ms, bytes=6_291_456, step=10))
        writer.emit(replace(progress(0.0), step_ms_p50=40.0, python_share=0.01))
        found.append(diagnose(replace(collector.read(run), options=options, steps=500, seconds=9.0)))
    long, short = found
    said = "exchanging gradients between workers takes 30 % of a step, timed alone"
    assert long.sentence == f"Communication-bound: {said}"
    texts = [row["text"] for row in long.evidence]
    assert "6.0 MiB of gradients pass between the workers on gpu01, gpu02 in 12 ms" in texts
    batch, network = [remedy for remedy in long.remedies if remedy["step"] == "gpus"]
    assert batch["changes"] == {"input.batch_size": 64}
    assert "pass between gpu01 and gpu02 at 500 MiB/s" in network["reason"]
    assert "start all workers with one of them" in how_to_try(run), "--apply measures on one machine"
    assert "communication_bound" not in (short.verdict, *short.others)


def test_the_last_number_of_a_step_is_no_special_one() -> None:
    numbers = ("0", str(slurm.LAST_STEP), str(slurm.LAST_STEP + 1), "4294967294", "x", "-1", "٣")
    assert [slurm.step_number({"SLURM_STEP_ID": text}) for text in numbers] == [0, slurm.LAST_STEP, *[None] * 5]
    assert not slurm.in_step({"SLURM_STEP_ID": "4294967294", "SLURM_PROCID": "1"})  # a batch script
    assert [slurm.in_step({"SLURM_PROCID": text}) for text in ("0", "1")] == [False, True]


def test_a_step_on_some_nodes_of_its_job_has_these_nodes() -> None:
    job = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_NODELIST": "n[1-4]", "SLURM_STEP_NUM_TASKS": "2"}
    assert slurm.hosts_of_tasks(job | {"SLURM_STEP_NODELIST": "n[2-3]"}) == ["n2", "n3"]
    assert slurm.hosts_of_tasks(job | {"SLURM_NODELIST": "n5", "SLURM_STEP_NUM_TASKS": "4"}) == ["n1", "n2", "n3", "n4"]


def test_what_does_not_agree_is_told_with_its_figures() -> None:
    for text, said in (("2", "4 tasks on 2 nodes and 2"), ("", "3 tasks on 2 nodes and no SLURM_STEP_TASKS_PER_NODE")):
        told = {"SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_NUM_TASKS": said[0], "SLURM_STEP_TASKS_PER_NODE": text}
        with pytest.raises(slurm.SlurmError, match=said):
            slurm.hosts_of_tasks(told)
    with pytest.raises(cluster.ClusterError, match="from 0 to 1"):
        cluster.of_command_line("a:1,b:2", 2)
    assert cluster.of_command_line("a:1,b:2", 1).index == 1
