"""Slurm: the hosts of a job step's tasks and the end of the job, by the variables in srun's manual, "OUTPUT ENVIRONMENT
VARIABLES", and the calls of its programs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..finding import Finding, error, warning
from ..plan import KIND
from ..runs import RunError

LAST_STEP = 0xFFFF_FFF0  # slurm.h: SLURM_MAX_NORMAL_STEP_ID
MOST_NODES = 100_000  # a list that names more is damaged
# Below the ports that Linux gives to outgoing connections (net.ipv4.ip_local_port_range begins at 32768).
FIRST_PORT, JOBS, TASKS_OF_A_JOB = 10_000, 600, 32
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_REPEATED = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")


class SlurmError(Exception):
    """Slurm's variables do not say where the tasks are; the text gives the reason."""


def count(environment: Mapping[str, str], name: str) -> int | None:
    """Return the whole number in the variable `name`; None if it is not set in `environment` or has another value."""
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def in_step(environment: Mapping[str, str]) -> bool:
    """srun has started the process; False in a batch script and in an interactive shell."""
    if environment.get("SLURM_STEP_ID", "").isdigit():
        return step_number(environment) is not None
    return "SLURM_STEP_NUM_TASKS" in environment or (count(environment, "SLURM_PROCID") or 0) > 0


def step_number(environment: Mapping[str, str]) -> int | None:
    """None without a step, and for a batch script or a shell, whose steps have special numbers."""
    text = environment.get("SLURM_STEP_ID", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= LAST_STEP else None


def tasks_in_step(environment: Mapping[str, str]) -> int:
    """The number of tasks that srun has started; 1 if it is not known."""
    return count(environment, "SLURM_STEP_NUM_TASKS") or count(environment, "SLURM_NTASKS") or 1


def hosts_of_tasks(environment: Mapping[str, str]) -> list[str]:
    """The node of each task of the step, in the order of SLURM_PROCID. Raises SlurmError."""
    lists = (environment.get(f"SLURM_{name}", "").strip() for name in ("STEP_NODELIST", "JOB_NODELIST", "NODELIST"))
    nodes = nodes_of(next(filter(None, lists), ""))
    tasks = tasks_in_step(environment)
    text = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts = tasks_of_nodes(text) if text else [tasks // len(nodes)] * len(nodes)
    if len(counts) != len(nodes) or sum(counts) != tasks:
        given = f"{len(nodes)} nodes and {text or 'no SLURM_STEP_TASKS_PER_NODE'}"
        raise SlurmError(f"Slurm's variables do not agree: {tasks} tasks on {given}")
    distribution = environment.get("SLURM_DISTRIBUTION", "block").lower()
    if distribution.startswith("cyclic"):
        turns = range(max(counts))  # the first task of each node, then the second task of each node, and so on
        hosts = [node for turn in turns for node, most in zip(nodes, counts, strict=True) if turn < most]
    elif distribution.startswith(("block", "pack", "nopack")):
        hosts = [node for node, number in zip(nodes, counts, strict=True) for _ in range(number)]
    else:
        raise SlurmError(f"the tasks are placed by --distribution={distribution}, which gputui cannot follow")
    return hosts


def first_port(environment: Mapping[str, str]) -> int:
    """From 10000 to 29168: jobs that run at the same time on a node usually get different ports."""
    job, step = count(environment, "SLURM_JOB_ID") or 0, step_number(environment) or 0
    return FIRST_PORT + TASKS_OF_A_JOB * ((job + 7 * step) % JOBS)


def gpus_are_bound(environment: Mapping[str, str]) -> bool:
    """Slurm shows each task its own GPUs alone, as with --gpus-per-task, --tres-per-task, --gpu-bind and
    --ntasks-per-gpu, and not all GPUs that the job has on the node.
    """
    bind = environment.get("SLURM_GPU_BIND", "").lower()
    if bind:
        return "none" not in bind
    per_task = environment.get("SLURM_TRES_PER_TASK", "")
    return "gpu" in per_task or any(name in environment for name in ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"))


def nodes_of(text: str) -> list[str]:
    """Return the nodes in a list such as `gpu[01-03,7],login1`. Raises SlurmError."""
    nodes: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):  # a comma within brackets does not divide the text
        nodes += itertools.islice(_expanded(part.strip()), MOST_NODES)
        if len(nodes) >= MOST_NODES:
            raise SlurmError(f"the node list {text[:80]!r} names too many nodes")
    if not nodes or not all(nodes):
        raise SlurmError(f"the node list {text[:80]!r} cannot be read")
    return nodes


def tasks_of_nodes(text: str) -> list[int]:
    """Return the numbers of tasks in a list such as `2(x3),1`, here 2, 2, 2, 1. Raises SlurmError."""
    parts = [_REPEATED.fullmatch(part.strip()) for part in text.split(",")]
    if not all(parts):
        raise SlurmError(f"SLURM_STEP_TASKS_PER_NODE={text[:80]!r} cannot be read")
    return [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]


def _expanded(part: str) -> Iterator[str]:
    # rack[1-2]gpu[01-02] -> rack1gpu01, rack1gpu02, rack2gpu01, rack2gpu02; an empty text for what cannot be read.
    before, bracket, rest = part.partition("[")
    if not bracket:
        yield before if "]" not in before else ""
        return
    inside, closed, after = rest.partition("]")
    for number in numbers(inside) if closed else [""]:
        yield from (f"{before}{number}{end}" if number and (end or not after) else "" for end in _expanded(after))


def numbers(inside: str) -> Iterator[str]:
    """01-03,7 -> 01, 02, 03, 7; an empty text for what cannot be read."""
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or int(match[1]) > int(match[2] or match[1]):
            yield ""
            continue
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{len(match[1])}}"


# ---- the end of the job ---------------------------------------------------------------------------


VARIABLE = "SLURM_JOB_END_TIME"
ANSWER_SECONDS = 10.0  # squeue asks a server, which may be busy or down
MARGIN_SECONDS, MARGIN_SHARE = 120.0, 0.1  # for the last checkpoint: the smaller of the two
MARGIN = "2 minutes less, or a tenth less if that is shorter"
UNLIMITED = "UNLIMITED"
_LEFT = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)")


@dataclass(frozen=True)
class Left:
    """The seconds until the job ends; None if there is no limit or if it is not known. `problem` is the reason why it
    is not known, else empty.
    """

    seconds: float | None = None
    problem: str = ""

    @property
    def usable_seconds(self) -> float | None:
        """Without the time for the last checkpoint: 120 s, or a tenth if that is less."""
        if self.seconds is None:
            return None
        left = max(0.0, self.seconds)
        return left - min(MARGIN_SECONDS, MARGIN_SHARE * left)


def job_of(environment: Mapping[str, str]) -> str:
    """Return the id of the Slurm job in the environment variables; empty if they are not those of a job."""
    return environment.get("SLURM_JOB_ID", "").strip()


def left_by_variables(environment: Mapping[str, str]) -> Left | None:
    """By SLURM_JOB_END_TIME; None outside of a job, or if it is not set."""
    text = environment.get(VARIABLE, "").strip()
    if not job_of(environment) or not (text.isascii() and text.isdigit()) or int(text) == 0:
        return None
    return Left(int(text) - time.time())


def time_left(environment: Mapping[str, str]) -> Left:
    """From the environment or else from squeue, which may take 10 s. Outside of a job there is no limit."""
    job = job_of(environment)
    if not job:
        return Left()
    if left := left_by_variables(environment):
        return left
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Left(problem=f"squeue did not answer within {ANSWER_SECONDS:g} s")
    except (OSError, ValueError) as fault:
        return Left(problem=f"squeue cannot be run: {getattr(fault, 'strerror', None) or fault}")
    text = done.stdout.strip()
    if text == UNLIMITED:
        return Left()
    if match := _LEFT.fullmatch(text):
        days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
        return Left(((days * 24 + hours) * 60 + minutes) * 60.0 + seconds)
    why = (done.stderr.strip() or text or f"it ended with {done.returncode}").splitlines()[0]
    return Left(problem=f"squeue does not report it: {why}")


SUBMIT_SECONDS = 60.0  # sbatch itself tries again for a while if the controller does not answer
# squeue's manual, "JOB STATE CODES": the job waits (again), or it has ended for good. In all other states it runs.
WAITS = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
CANCELLED, GONE = "CANCELLED", "GONE"  # GONE is gputui's word: Slurm does not know the job any more
ENDED = ("BOOT_FAIL", CANCELLED, "COMPLETED", "DEADLINE", "FAILED", GONE, "LAUNCH_FAILED", "NODE_FAIL",
         "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT")  # fmt: skip
_SEPARATOR = "|"
_UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True)
class SlurmJob:
    """A job as Slurm shows it: its state, the reason why it waits, its expected start, and its nodes. `starts` is a
    local time such as `2026-11-26T18:00:00`. Texts are empty if Slurm does not say them.
    """

    state: str
    reason: str = ""
    starts: str = ""
    nodes: str = ""


def submit(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Submit a job with these arguments of sbatch, and return its id. Raises RunError."""
    answer = _answer(["sbatch", "--parsable", *arguments], SUBMIT_SECONDS, environment).strip()
    job = answer.partition(";")[0]  # the name of the cluster may follow
    if not job.isdigit():
        raise RunError(f"sbatch does not print the number of a job, but {answer[:80]!r}; see `sbatch` in queue.yaml")
    return job


def jobs(ids: Collection[str]) -> dict[str, SlurmJob]:
    """The state of these jobs, by id: squeue shows those that have not ended, or within the last minutes; the others
    are looked up in Slurm's accounts, and are GONE if these do not have them. Raises RunError.
    """
    form = _SEPARATOR.join(("%i", "%T", "%r", "%S", "%N"))
    command = ["squeue", "--noheader", "--states=all", f"--user={os.geteuid()}", f"--format={form}"]
    seen: dict[str, SlurmJob] = {}
    for line in _answer(command).splitlines():
        number, *fields = (each.strip() for each in line.split(_SEPARATOR))
        if number in ids and len(fields) == 4:
            seen[number] = SlurmJob(*("" if field in ("N/A", "None", "(null)") else field for field in fields))
    if missing := [number for number in ids if number not in seen]:
        seen |= dict.fromkeys(missing, SlurmJob(GONE))
        command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(missing)}"]
        with contextlib.suppress(RunError):  # there is no sacct, or Slurm keeps no accounts
            for line in _answer([*command, "--format=JobIDRaw,State"]).splitlines():
                number, _, state = line.partition(_SEPARATOR)
                if number in missing and (word := re.match(r"[A-Z_]+", state)):  # `CANCELLED by 1000`
                    seen[number] = SlurmJob(word[0])
    return seen


def control(job: str, verb: str) -> None:
    """Make Slurm `hold` a waiting job, so that it is not started, or `release` it. Raises RunError."""
    _answer(["scontrol", verb, job])


def cancel(job: str) -> None:
    """Cancel a job. Nothing is done if it has ended."""
    try:
        _answer(["scancel", job])
    except RunError as fault:
        if _UNKNOWN_JOB not in str(fault):
            raise


def signal_batch(job: str, name: str) -> None:
    """Send the signal `name`, such as URG, to the process of a job's batch script alone. Raises RunError."""
    _answer(["scancel", "--batch", f"--signal={name}", job])


def _answer(
    command: Sequence[str], seconds: float = ANSWER_SECONDS, environment: Mapping[str, str] | None = None
) -> str:
    """What a program of Slurm prints within `seconds`. Raises RunError."""
    program = command[0]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SACCT_"))}
    kept.pop("SLURM_TIME_FORMAT", None)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=kept if environment is None else environment,
        )
    except FileNotFoundError:
        raise RunError(
            f"{program} is not on PATH, and the queue is Slurm's, as queue.yaml says\n"
            "go to a machine of the cluster, or set `engine: local` there"
        ) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{program} did not answer within {seconds:g} s; `scontrol ping` shows if Slurm works") from None
    except OSError as fault:
        raise RunError(f"{program} cannot be run: {fault.strerror or fault}") from None
    if done.returncode:
        printed = (done.stderr or done.stdout).splitlines()
        lines = [re.sub(r"^\w+: (error|fatal): ", "", line).strip() for line in printed if line.strip()]
        reason = "; ".join(list(dict.fromkeys(lines))[-2:]) or f"it ended with {done.returncode}"
        raise RunError(f"{program} has failed: {reason}")
    return done.stdout


# For each launcher: the variables with the number of its processes and with the number of this one.
_LAUNCHERS = (
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("mpirun", "PMI_SIZE", "PMI_RANK"),
    ("torchrun", "WORLD_SIZE", "RANK"),
)
COPIES = "and each would train a copy of its own"
ALONE = "without strategy.kind=multi_worker gputui trains in one process on one machine"
TOGETHER = f"set {KIND}=multi_worker"


def read(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """About a job with several tasks: an error if copies would be trained, a warning if resources stay unused."""
    started = [*_slurm(environment), *_launched(environment)]  # srun also sets MPI's variables
    return (*started[:1], *_tf_config(environment))


def when_detached(environment: Mapping[str, str]) -> Finding | None:
    """The warning that a detached run ends with its Slurm job or step; None outside of a job."""
    job, step = environment.get("SLURM_JOB_ID", ""), step_number(environment)
    if not job:
        return None
    what = f"the Slurm job step {job}.{step}" if step is not None else f"the Slurm job {job}"
    message = f"the run dies with {what}: when its first process ends, Slurm kills everything that it has started"
    change = "keep gputui running until the end, without --detach; set run.checkpoint to be able to resume"
    return Finding("warning", "job", message, change)


def _slurm(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a remark if a Slurm job has several tasks: an error if srun has started them, else a warning."""
    tasks, is_step = tasks_in_step(environment), in_step(environment)
    position, nodes = count(environment, "SLURM_PROCID") or 0, count(environment, "SLURM_JOB_NUM_NODES") or 1
    if is_step and tasks > 1:
        message = f"this is task {position} of the {tasks} that srun started, {COPIES}"
        yield error(KIND, message, f"{TOGETHER}, or start one task: srun --ntasks=1 gputui ...")
    elif not is_step and (tasks > 1 or nodes > 1):
        given = f"{tasks} tasks" if tasks > 1 else f"{nodes} nodes"
        message = f"the Slurm job has {given}; {ALONE}, this one"
        yield warning(KIND, message, "ask for --nodes=1 --ntasks=1 and the GPUs that it is to use")


def _launched(environment: Mapping[str, str]) -> Iterator[Finding]:
    for launcher, size, rank in _LAUNCHERS:
        number = count(environment, size)
        if rank in environment and number is not None and number > 1:
            message = f"this is process {environment[rank]} of the {number} that {launcher} started ({size}), {COPIES}"
            yield error(KIND, message, f"start gputui without {launcher}")


def _tf_config(environment: Mapping[str, str]) -> Iterator[Finding]:
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return
    unset = "unset it: env -u TF_CONFIG gputui ..."
    members = None  # the tasks that train
    with contextlib.suppress(ValueError, RecursionError):
        config: Any = json.loads(text)
        listed = config.get("cluster") if isinstance(config, dict) else None
        if isinstance(listed, dict) and listed:
            tasks = [each for kind, each in listed.items() if kind != "evaluator"]
            members = sum(len(each) if isinstance(each, list | dict) else 1 for each in tasks)
    if members is None:
        yield warning(KIND, "TF_CONFIG does not contain a readable cluster, and is ignored", unset)
    elif members > 1 and '"--cluster"' in text:
        yield error(KIND, f"--cluster names {members} workers, {COPIES}", f"{TOGETHER}, or leave out --cluster")
    elif members > 1:
        message = f"TF_CONFIG names a cluster of {members} tasks, {COPIES}"
        yield error(KIND, message, f"{TOGETHER}, or for one task {unset}")
    else:
        yield warning(KIND, f"TF_CONFIG names a cluster of one task, and is ignored: {ALONE}", unset)
