"""When the time limit of the Slurm job ends that this process belongs to: from its environment, or from squeue.

Newer versions of Slurm set SLURM_JOB_END_TIME (22.05 does not); without it, `squeue` tells the time that is left.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "SLURM_JOB_END_TIME"
ANSWER_SECONDS = 10.0  # squeue asks a server, which may be busy or down
MARGIN_SECONDS, MARGIN_SHARE = 120.0, 0.1  # for the last checkpoint: the smaller of the two
MARGIN = "2 minutes less, or a tenth less where that is shorter"
UNLIMITED = "UNLIMITED"
_LEFT = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)")


@dataclass(frozen=True)
class Left:
    """The seconds until the job ends; None if there is no limit or it is not known.

    `problem` gives the reason why it is not known.
    """

    seconds: float | None = None
    problem: str = ""

    @property
    def usable_seconds(self) -> float | None:
        """The seconds until the job ends, without the time that is reserved for the last checkpoint; None as for
        `seconds`.
        """
        if self.seconds is None:
            return None
        left = max(0.0, self.seconds)
        return left - min(MARGIN_SECONDS, MARGIN_SHARE * left)


def job_of(environment: Mapping[str, str]) -> str:
    """Return the id of the Slurm job; empty if this process belongs to none."""
    return environment.get("SLURM_JOB_ID", "").strip()


def told(environment: Mapping[str, str]) -> Left | None:
    """Return the time that is left according to the environment alone; None if the environment does not have it."""
    text = environment.get(VARIABLE, "").strip()
    if not job_of(environment) or not (text.isascii() and text.isdigit()) or int(text) == 0:
        return None
    return Left(int(text) - time.time())


def asked(environment: Mapping[str, str]) -> Left:
    """Return the time that is left, from the environment or else from squeue, which may take seconds.

    Outside of a job there is no limit.
    """
    job = job_of(environment)
    if not job:
        return Left()
    return told(environment) or _of_squeue(job)


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
