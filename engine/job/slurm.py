"""Finds the hosts of a Slurm job step's tasks and the end of the job, from Slurm's variables.

The variables and their forms are those of srun's manual, "OUTPUT ENVIRONMENT VARIABLES". Only `asked` asks Slurm.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    """Return True if srun has started the process with these environment variables; False in a batch script and in an
    interactive shell.
    """
    if environment.get("SLURM_STEP_ID", "").isdigit():
        return step_number(environment) is not None
    return "SLURM_STEP_NUM_TASKS" in environment or (count(environment, "SLURM_PROCID") or 0) > 0


def step_number(environment: Mapping[str, str]) -> int | None:
    """Return the number of the job step, from Slurm's variables in `environment`.

    None if there is no step, and for a batch script or an interactive shell, whose steps have special numbers.
    """
    text = environment.get("SLURM_STEP_ID", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= LAST_STEP else None


def tasks_in_step(environment: Mapping[str, str]) -> int:
    """Return the number of tasks that srun has started, from Slurm's variables in `environment`; 1 if it is not
    known.
    """
    return count(environment, "SLURM_STEP_NUM_TASKS") or count(environment, "SLURM_NTASKS") or 1


def hosts_of_tasks(environment: Mapping[str, str]) -> list[str]:
    """Return the node of each task of the step, in the order of SLURM_PROCID, from Slurm's variables in `environment`.

    Raises SlurmError.
    """
    nodes = nodes_of(_first(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    tasks = tasks_in_step(environment)
    text = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts = tasks_of_nodes(text) if text else _equal_parts(tasks, len(nodes))
    if len(counts) != len(nodes) or sum(counts) != tasks:
        given = f"{len(nodes)} nodes and {text or 'no SLURM_STEP_TASKS_PER_NODE'}"
        raise SlurmError(f"Slurm's variables do not agree: {tasks} tasks on {given}")
    distribution = environment.get("SLURM_DISTRIBUTION", "block").lower()
    if distribution.startswith("cyclic"):
        hosts = list(_in_turn(nodes, counts))
    elif distribution.startswith(("block", "pack", "nopack")):
        hosts = [node for node, number in zip(nodes, counts, strict=True) for _ in range(number)]
    else:
        raise SlurmError(f"the tasks are placed by --distribution={distribution}, which gputui cannot follow")
    return hosts


def first_port(environment: Mapping[str, str]) -> int:
    """Return the first port for the step's workers, from 10000 to 29168.

    Jobs that run at the same time on a node usually get different ports.
    """
    job, step = count(environment, "SLURM_JOB_ID") or 0, step_number(environment) or 0
    return FIRST_PORT + TASKS_OF_A_JOB * ((job + 7 * step) % JOBS)


def gpus_are_bound(environment: Mapping[str, str]) -> bool:
    """Return True if Slurm shows each task only its own GPUs.

    The options --gpus-per-task, --tres-per-task, --gpu-bind and --ntasks-per-gpu have this effect. Otherwise each task
    on a node is shown all GPUs that the job has there.
    """
    bind = environment.get("SLURM_GPU_BIND", "").lower()
    if bind:
        return "none" not in bind
    per_task = environment.get("SLURM_TRES_PER_TASK", "")
    return "gpu" in per_task or any(name in environment for name in ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"))


def nodes_of(text: str) -> list[str]:
    """Return the nodes in a list such as `gpu[01-03,7],login1`. Raises SlurmError."""
    nodes: list[str] = []
    for part in _outside_brackets(text):
        nodes += itertools.islice(_expanded(part), MOST_NODES)
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


def _first(environment: Mapping[str, str], *names: str) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")


def _equal_parts(tasks: int, nodes: int) -> list[int]:
    """Return the same number of tasks for each node; empty if they cannot be divided equally."""
    return [tasks // nodes] * nodes if tasks % nodes == 0 else []


def _in_turn(nodes: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """Yield the node of each task: the first task of each node, then the second task of each node, and so on.

    `counts` has the number of tasks of each of the `nodes`.
    """
    for number in range(max(counts)):
        yield from (node for node, most in zip(nodes, counts, strict=True) if number < most)


def _outside_brackets(text: str) -> Iterator[str]:
    """Yield the parts into which the commas divide the text; a comma within brackets does not divide it."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


def _expanded(part: str) -> Iterator[str]:
    """Yield the names in a part with brackets: `rack[1-2]gpu[01-02]` -> rack1gpu01, rack1gpu02, rack2gpu01, rack2gpu02.

    A name that cannot be read is yielded as an empty text.
    """
    before, bracket, rest = part.partition("[")
    if not bracket:
        yield before if "]" not in before else ""
        return
    inside, closed, after = rest.partition("]")
    for number in _numbers(inside) if closed else [""]:
        yield from (f"{before}{number}{end}" if number and (end or not after) else "" for end in _expanded(after))


def _numbers(inside: str) -> Iterator[str]:
    """Yield the numbers in brackets with their leading zeros: `01-03,7` -> 01, 02, 03, 7.

    A part that cannot be read gives an empty text.
    """
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
    """The seconds until the job ends; None if there is no limit or if it is not known.

    `problem` is the reason why it is not known, else empty.
    """

    seconds: float | None = None
    problem: str = ""

    @property
    def usable_seconds(self) -> float | None:
        """The seconds until the job ends, less the time for the last checkpoint: 120 s, or a tenth if that is less.

        None if `seconds` is None.
        """
        if self.seconds is None:
            return None
        left = max(0.0, self.seconds)
        return left - min(MARGIN_SECONDS, MARGIN_SHARE * left)


def job_of(environment: Mapping[str, str]) -> str:
    """Return the id of the Slurm job in the environment variables; empty if they are not those of a job."""
    return environment.get("SLURM_JOB_ID", "").strip()


def left_by_variables(environment: Mapping[str, str]) -> Left | None:
    """Return the time that is left to the job according to SLURM_JOB_END_TIME; None outside of a job or if the variable
    is not set.
    """
    text = environment.get(VARIABLE, "").strip()
    if not job_of(environment) or not (text.isascii() and text.isdigit()) or int(text) == 0:
        return None
    return Left(int(text) - time.time())


def time_left(environment: Mapping[str, str]) -> Left:
    """Return the time that is left, from the environment or else from squeue, which may take up to 10 s.

    Outside of a job there is no limit.
    """
    job = job_of(environment)
    if not job:
        return Left()
    return left_by_variables(environment) or _of_squeue(job)


def _of_squeue(job: str) -> Left:
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
