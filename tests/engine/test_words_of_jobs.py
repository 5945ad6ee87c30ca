"""What is said of a job with several tasks, of its cluster and of its GPUs: whole remarks, and where each is from."""

from __future__ import annotations

import json
import socket

import pytest
from gputui.engine.job import allocation, cluster, several_tasks, slurm, start_worker
from gputui.engine.job.allocation import Allocation
from gputui.engine.job.cluster import ClusterError
from gputui.engine.job.several_tasks import Remark
from gputui.engine.job.visible_devices import Device
from gputui.engine.runs.run_cluster import Cluster

COPIES = "and each would train a copy of its own"
ALONE = "without strategy.kind=multi_worker gputui trains in one process on one machine"
OF_SRUN = "set strategy.kind=multi_worker, or start one task: srun --ntasks=1 gputui ..."
ASK = "ask for --nodes=1 --ntasks=1 and the GPUs that it is to use"
UNSET = "unset it: env -u TF_CONFIG gputui ..."
BATCH = {"SLURM_STEP_ID": str(0xFFFF_FFFB)}


def config(**members: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": members, "task": {"type": "worker", "index": 0}})}


@pytest.mark.parametrize(
    ("environment", "remarks"),
    [
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "8", "SLURM_PROCID": "2"},
         [Remark("error", f"this is task 2 of the 4 that srun started, {COPIES}", OF_SRUN)]),
        ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"},
         [Remark("error", f"this is task 0 of the 8 that srun started, {COPIES}", OF_SRUN)]),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"},
         [Remark("error", f"this is task 1 of the 2 that srun started, {COPIES}", OF_SRUN)]),
        (BATCH | {"SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"},
         [Remark("warning", f"the Slurm job has 4 tasks; {ALONE}, this one", ASK)]),
        (BATCH | {"SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "2"},
         [Remark("warning", f"the Slurm job has 2 nodes; {ALONE}, this one", ASK)]),
        (BATCH | {"SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}, []),
        ({"MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_RANK": "0"},
         [Remark("error", f"this is process 0 of the 2 that mpirun started (MV2_COMM_WORLD_SIZE), {COPIES}",
                 "start gputui without mpirun")]),
        ({"PMI_SIZE": "1", "PMI_RANK": "0", "WORLD_SIZE": "3", "RANK": "2"},
         [Remark("error", f"this is process 2 of the 3 that torchrun started (WORLD_SIZE), {COPIES}",
                 "start gputui without torchrun")]),
        (config(worker=["a:1", "b:1"]),
         [Remark("error", f"TF_CONFIG names a cluster of 2 tasks, {COPIES}",
                 f"set strategy.kind=multi_worker, or for one task {UNSET}")]),
        (config(chief="c:1", worker={"0": "a:1", "1": "b:1"}, evaluator=["e:1"]),
         [Remark("error", f"TF_CONFIG names a cluster of 3 tasks, {COPIES}",
                 f"set strategy.kind=multi_worker, or for one task {UNSET}")]),
        (config(worker=["a:1"], evaluator=["e:1", "f:1"]),
         [Remark("warning", f"TF_CONFIG names a cluster of one task, and is ignored: {ALONE}", UNSET)]),
        ({"TF_CONFIG": Cluster(("a:1", "b:1"), 0, "--cluster").as_tf_config()},
         [Remark("error", f"--cluster names 2 workers, {COPIES}",
                 "set strategy.kind=multi_worker, or leave out --cluster")]),
        ({"TF_CONFIG": " [] "},
         [Remark("warning", "TF_CONFIG does not contain a readable cluster, and is ignored", UNSET)]),
        ({"TF_CONFIG": "  "}, []),
        ({"WORLD_SIZE": "2", "RANK": "0"} | config(worker=["a:1"]),
         [Remark("error", f"this is process 0 of the 2 that torchrun started (WORLD_SIZE), {COPIES}",
                 "start gputui without torchrun"),
          Remark("warning", f"TF_CONFIG names a cluster of one task, and is ignored: {ALONE}", UNSET)]),
    ],
)  # fmt: skip
def test_all_that_is_said_of_a_job_with_several_tasks(environment: dict[str, str], remarks: list[Remark]) -> None:
    assert several_tasks.read(environment) == tuple(remarks)


def test_a_detached_run_is_told_which_part_of_its_job_ends_it() -> None:
    for environment, what in (
        ({"SLURM_JOB_ID": "7"}, "the Slurm job 7"), ({"SLURM_JOB_ID": "7"} | BATCH, "the Slurm job 7"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "the Slurm job step 7.0"),
    ):  # fmt: skip
        assert several_tasks.when_detached(environment) == Remark(
            "warning",
            f"the run dies with {what}: when its first process ends, Slurm kills everything that it has started",
            "keep gputui running until the end, without --detach; set run.checkpoint to be able to resume",
        )
    assert several_tasks.when_detached({"SLURM_STEP_ID": "0"}) is None


# ---- the cluster ---------------------------------------------------------------------------------


STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "a,b", "SLURM_PROCID": "1"}


def test_a_cluster_says_where_it_was_read() -> None:
    for environment, found in (
        (STEP | {"SLURM_JOB_ID": "7"}, Cluster(("a:10224", "b:10224"), 1, "Slurm job 7")),
        (STEP | {"SLURM_JOB_ID": "607"}, Cluster(("a:10224", "b:10224"), 1, "Slurm job 607")),
        (STEP | {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}, Cluster(("a:10672", "b:10672"), 1, "Slurm job 7")),
        (STEP, Cluster(("a:10000", "b:10000"), 1, "Slurm")),
        (STEP | {"GPUTUI_PORT": " 12 "}, None),
        (STEP | {"GPUTUI_PORT": "65535"}, Cluster(("a:65535", "b:65535"), 1, "Slurm")),
        (config(worker=["a:1", " b:2 "]), Cluster(("a:1", "b:2"), 0, "TF_CONFIG")),
        (config(worker=["b:1"], master=["m:1"], chief=["c:1"]), Cluster(("c:1", "m:1", "b:1"), 2, "TF_CONFIG")),
        ({"TF_CONFIG": Cluster(("a:1", "b:1"), 1, "x").as_tf_config()}, Cluster(("a:1", "b:1"), 1, "x")),
        ({}, None),
    ):  # fmt: skip
        assert cluster.read_or_reason(environment)[0] == found, environment
    assert cluster.read_or_reason({}) == (None, "")
    assert cluster.of_command_line("a:1, b:2", 1) == Cluster(("a:1", "b:2"), 1, "--cluster")
    assert cluster.read_or_reason(STEP | {"GPUTUI_PORT": "65536"}) == (
        None, "GPUTUI_PORT=65536 is no port; give the first of the workers' ports, such as 12000"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "bound"),
    [
        ({}, False), ({"SLURM_GPU_BIND": "closest"}, True), ({"SLURM_GPU_BIND": "None"}, False),
        ({"SLURM_GPU_BIND": "verbose,none", "SLURM_GPUS_PER_TASK": "1"}, False), ({"SLURM_GPUS_PER_TASK": "1"}, True),
        ({"SLURM_NTASKS_PER_GPU": "1"}, True), ({"SLURM_TRES_PER_TASK": "gres/gpu:1"}, True),
        ({"SLURM_TRES_PER_TASK": "cpu=1"}, False), ({"SLURM_GPUS_PER_NODE": "4"}, False),
    ],
)  # fmt: skip
def test_slurm_shows_each_task_its_own_gpus_or_all(environment: dict[str, str], bound: bool) -> None:
    assert slurm.gpus_are_bound(environment) is bound


def test_the_connections_of_an_ended_run_hold_no_port_but_a_program_that_listens_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        workers = Cluster((f"127.0.0.1:{port}", "127.0.0.1:1"), 0, "TF_CONFIG")
        with pytest.raises(ClusterError, match="another program on this machine uses it"):
            start_worker.test_reach(workers)
        theirs = socket.create_connection(("127.0.0.1", port))
        ours, _ = listening.accept()
        ours.close()  # the side that closes first keeps its port for a minute
        assert theirs.recv(1) == b""
        theirs.close()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    assert start_worker.test_reach(workers) == ""


# ---- the GPUs ------------------------------------------------------------------------------------


DEVICES = (Device(0, "GPU-aa"), Device(1, "GPU-ab", ("MIG-c", "MIG-d")), Device(2, "GPU-b"))


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        ((), []),
        (("0",), ["0", "GPU-aa"]),
        (("1",), ["1", "GPU-ab", "MIG-c", "MIG-d"]),
        (("GPU-b", "GPU-aa"), ["0", "2", "GPU-aa", "GPU-b"]),
        (("MIG-d",), ["MIG-d"]),
        (("MIG-c",), ["1", "GPU-ab", "MIG-c"]),
    ],
)
def test_a_job_may_use_what_it_is_allocated_by_whatever_name(names: tuple[str, ...], allowed: list[str]) -> None:
    given = Allocation("SLURM_JOB_GPUS", names)
    every = ["0", "1", "2", "GPU-aa", "GPU-ab", "GPU-b", "MIG-c", "MIG-d"]
    assert [name for name in every if given.allows(name, DEVICES)] == allowed
    assert given.allows("GPU-a", DEVICES) is bool(names), "which names none or several"


def test_an_allocation_is_named_with_its_variable() -> None:
    for environment, gpus, text in (
        ({"CUDA_VISIBLE_DEVICES": " 0, 2"}, 0, "this job is allocated GPU 0,2 (CUDA_VISIBLE_DEVICES)"),
        ({"CUDA_VISIBLE_DEVICES": "-1", "SLURM_JOB_GPUS": "1"}, 4,
         "this job is allocated no GPU (CUDA_VISIBLE_DEVICES)"),
        ({"SLURM_STEP_GPUS": "1-2"}, 4, "this job is allocated GPU 1,2 (SLURM_STEP_GPUS)"),
        ({"SLURM_STEP_GPUS": "x", "SLURM_JOB_GPUS": "3"}, 4, "this job is allocated GPU 3 (SLURM_JOB_GPUS)"),
        ({"SLURM_JOB_GPUS": "4"}, 4, "None"), ({"SLURM_JOB_GPUS": "0-3"}, 4, "None"),
    ):  # fmt: skip
        assert str(allocation.read(environment, gpus)) == text
