"""The settings of the queue, in `queue.yaml` of the user's configuration. A value that cannot be used is left out and
reported in `Settings.faults`.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files.places import config_folder
from ..files.reading import why, written_at

FILE = "queue.yaml"
LOCAL, SLURM = "local", "slurm"
_HOURS = re.compile(r"(\d{1,2})\s*-\s*(\d{1,2})")
_GPU = re.compile(r"\d+|(GPU|MIG)-\S+")


@dataclass(frozen=True)
class Settings:
    """None is no limit. GPUs are given by number or UUID."""

    gpus: tuple[str, ...] = ()  # are taken first, in this order
    never: tuple[str, ...] = ()
    most: int | None = None  # devices that queued runs may have at once
    hours: tuple[int, int] | None = None  # the first and the end hour of starts, such as (20, 8) for the night
    idle_seconds: float | None = None  # how long a GPU must have been idle; None: the machine's default, 20 s
    engine: str = LOCAL  # or SLURM: who starts the runs
    sbatch: tuple[str, ...] = ()  # arguments for each job
    faults: tuple[str, ...] = ()  # a line for each value that is left out, or has no effect
    engine_faults: tuple[str, ...] = ()  # those with which it is not certain who is to start the runs

    def is_time(self, hour: int | None = None) -> bool:
        """Return True if runs may be started now or at `hour` (0 to 23, local time)."""
        if self.hours is None:
            return True
        first, end = self.hours
        now = time.localtime().tm_hour if hour is None else hour
        return first <= now < end if first < end else now >= first or now < end

    def opens_in(self, moment: float) -> float:
        """Return for how many seconds from `moment` (Unix time) on no run may be started."""
        then = time.localtime(moment)
        if self.hours is None or self.is_time(then.tm_hour):
            return 0.0
        return (self.hours[0] - then.tm_hour) % 24 * 3600.0 - then.tm_min * 60 - then.tm_sec


def path() -> Path:
    return config_folder() / FILE


def stamp() -> float:
    """The Unix time at which the file was written; 0 without a file."""
    return written_at(path())


def read() -> Settings:
    """The defaults if there is no file. An unreadable file is reported in `faults`."""
    if not stamp():
        return Settings()
    from ..files import located_yaml  # only if there is a file

    try:
        content = located_yaml.read_settings(path())
    except OSError as fault:
        return _unreadable(f"{path()}: {why(fault)}")
    except located_yaml.YamlFault as fault:
        return _unreadable(f"{path()}:{fault.line}: {fault}")
    values: dict[str, Any] = {}
    faults: list[str] = []
    of_engine: list[str] = []
    for name, located in content.items():
        if name not in _READERS:
            faults.append(f"{path()}:{located.line}: {name} is no setting; there are {', '.join(_READERS)}")
        elif (usable := _READERS[name][0](located.value)) is None:
            faults.append(f"{path()}:{located.line}: {name} takes {_READERS[name][1]}, not {located.value!r}")
            of_engine += faults[-1:] if name in _OF_SLURM else []
        else:
            values[name] = usable
    is_slurm = values.get("engine") == SLURM
    if idle := [name for name in values if name != "engine" and (name in _OF_SLURM) != is_slurm]:
        reason = "Slurm chooses GPUs and times itself" if is_slurm else f"it is for engine: {SLURM}"
        where = f"no effect with engine: {values.get('engine', LOCAL)}"
        faults.append(f"{path()}: {', '.join(idle)}: {where}; {reason}")
    return Settings(**values, faults=tuple(faults), engine_faults=tuple(of_engine))


def _unreadable(fault: str) -> Settings:
    return Settings(faults=(fault,), engine_faults=(fault,))


def _names(value: Any) -> tuple[str, ...] | None:
    listed = value if isinstance(value, list) else [value]
    return tuple(map(str, listed)) if all(_GPU.fullmatch(str(each)) for each in listed) else None


def _hours(value: Any) -> tuple[int, int] | None:
    match = _HOURS.fullmatch(value.strip()) if isinstance(value, str) else None
    first, end = (int(match[1]), int(match[2])) if match else (24, 24)
    return (first, end % 24) if first <= 23 and end <= 24 and first != end else None


def _arguments(value: Any) -> tuple[str, ...] | None:
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) and each.startswith("-") and not _is_refused(each) for each in listed):
        return None
    try:
        return tuple(word for each in listed for word in shlex.split(each))
    except ValueError:  # a quotation mark is not closed
        return None


def _is_refused(argument: str) -> bool:
    name = argument.partition("=")[0].partition(" ")[0]
    short = name[:2] if not name.startswith("--") else ""
    return name in ("--array", "--help", "--test-only", "--usage", "--version", "--wait", "--wrap") or short in (
        "-a", "-h", "-V", "-W",
    )  # fmt: skip


_OF_SLURM = ("engine", "sbatch")
_READERS: Mapping[str, tuple[Any, str]] = {
    "gpus": (_names, "a list of numbers or UUIDs of GPUs"),
    "never": (_names, "a list of numbers or UUIDs of GPUs"),
    "most": (lambda value: value if type(value) is int and value >= 1 else None, "a number from 1"),
    "hours": (_hours, 'two hours of the day such as "20-8"'),
    "idle_seconds": (
        lambda value: float(value) if type(value) in (int, float) and 0 <= value <= 86_400 else None,
        "a number of seconds",
    ),
    "engine": (lambda value: value if value in (LOCAL, SLURM) else None, f"{LOCAL} or {SLURM}"),
    "sbatch": (_arguments, 'a list of arguments of sbatch such as ["--partition=gpu", "--time=8:00:00"]'),
}
