"""Calls Slurm's programs for the queue: submits, lists, holds, releases, stops and cancels jobs.

The forms of what they print are those of Slurm's manual pages. Every function raises RunError, in a text that says what
to do, if the program is missing, refuses, or does not answer in time.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..runs import RunError
from .slurm import ANSWER_SECONDS

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
    """A job as Slurm shows it: its state, the reason why it waits, its expected start, and its nodes.

    `starts` is a local time such as `2026-11-26T18:00:00`. Texts are empty if Slurm does not say them.
    """

    state: str
    reason: str = ""
    starts: str = ""
    nodes: str = ""


def submit(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Submit a job with these arguments of sbatch and from this environment. Return the id of the job.

    Raises RunError.
    """
    answer = _answer(["sbatch", "--parsable", *arguments], SUBMIT_SECONDS, environment).strip()
    job = answer.partition(";")[0]  # the name of the cluster may follow
    if not job.isdigit():
        raise RunError(f"sbatch does not print the number of a job, but {answer[:80]!r}; see `sbatch` in queue.yaml")
    return job


def jobs(ids: Collection[str]) -> dict[str, SlurmJob]:
    """Return the state of the jobs `ids` of this user in Slurm, by their ids.

    One call of squeue shows all jobs that have not ended, and those that ended within the last minutes. For the others
    sacct is called once, if Slurm keeps accounts; a job that is not in them has the state GONE. Raises RunError.
    """
    form = _SEPARATOR.join(("%i", "%T", "%r", "%S", "%N"))
    command = ["squeue", "--noheader", "--states=all", f"--user={os.geteuid()}", f"--format={form}"]
    seen: dict[str, SlurmJob] = {}
    for line in _answer(command).splitlines():
        number, *fields = (each.strip() for each in line.split(_SEPARATOR))
        if number in ids and len(fields) == 4:
            seen[number] = SlurmJob(*("" if field in ("N/A", "None", "(null)") else field for field in fields))
    missing = [number for number in ids if number not in seen]
    return seen | (_in_accounts(missing) if missing else {})


def _in_accounts(ids: Sequence[str]) -> dict[str, SlurmJob]:
    in_accounts = dict.fromkeys(ids, SlurmJob(GONE))
    command = [
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        f"--jobs={','.join(ids)}",
        "--format=JobIDRaw,State",
    ]
    try:
        lines = _answer(command).splitlines()
    except RunError:  # there is no sacct, or Slurm keeps no accounts
        return in_accounts
    for line in lines:
        number, _, state = line.partition(_SEPARATOR)
        if number in in_accounts and (word := re.match(r"[A-Z_]+", state)):  # `CANCELLED by 1000`
            in_accounts[number] = SlurmJob(word[0])
    return in_accounts


def hold(job: str) -> None:
    """Make Slurm hold the waiting job with the id `job`, so that it is not started. Raises RunError."""
    _answer(["scontrol", "hold", job])


def release(job: str) -> None:
    """Make Slurm release the held job with the id `job`, so that it can be started. Raises RunError."""
    _answer(["scontrol", "release", job])


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
    """Run a program of Slurm (`command`) for at most `seconds`, and return the text that it prints.

    `environment` is by default that of this process, without the variables that change what squeue and sacct print.
    Raises RunError.
    """
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
        raise RunError(f"{program} has failed: {_reason(done.stderr or done.stdout, done.returncode)}")
    return done.stdout


def _reason(text: str, code: int) -> str:
    lines = [re.sub(r"^\w+: (error|fatal): ", "", line).strip() for line in text.splitlines() if line.strip()]
    return "; ".join(list(dict.fromkeys(lines))[-2:]) or f"it ended with {code}"
