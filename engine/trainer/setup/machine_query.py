"""The GPUs of this machine as NVML reports them, asked once by a process of gputui's own interpreter: a trainer may
run in one without a module for NVML.
"""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
from collections.abc import Sequence
from typing import Any

from ...job.machine_gpus import Machine, answers_from_json
from ...system import child_process
from ...telemetry import chips

_LIBRARY = "libnvidia-ml.so.1"
_MODULE = "job.this_machine"
ANSWER_SECONDS = 20.0  # more than NVML is waited for by the process that is asked


class NoAnswer(Exception):
    """Raised if there is no answer. The text says why."""


def ask(module: str, *words: str, given: str = "") -> Any:
    """The JSON of `python -m gputui.engine.MODULE WORDS`, with `given` as input. Raises NoAnswer."""
    command = [child_process.own_python(), "-P", "-m", f"gputui.engine.{module}", *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS, check=False
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no answer within {ANSWER_SECONDS:g} s") from None
    except OSError as fault:
        raise NoAnswer(f"{command[0]} cannot be run: {fault.strerror}") from None
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"return code {done.returncode}"])[-1]
        raise NoAnswer(last) from None


def read() -> Machine:
    """Return the machine with its GPUs as of the first call, and the environment variables of this one."""
    return Machine.here(**_answers())


def memory_free_bytes(index: int) -> int | None:
    """Return the free bytes of the GPU with this index in NVML now. None if the driver does not report them."""
    try:
        free: int | None = ask(_MODULE, "free", str(index))
    except NoAnswer:
        return None
    return free


def numa_cpus(gpus: Sequence[int]) -> list[frozenset[int]]:
    """Return the CPUs of the NUMA node of each GPU (indexes in NVML). Empty if the driver does not report them."""
    try:
        return [frozenset(cpus) for cpus in ask(_MODULE, "cpus", *map(str, gpus))]
    except NoAnswer:
        return [frozenset()] * len(gpus)


@functools.cache
def _answers() -> dict[str, Any]:
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        reason = f"the NVIDIA driver's {_LIBRARY} is missing"
        return {"no_gpu_reason": reason, "missing": reason if chips.has_device_nodes() else ""}
    try:
        return answers_from_json(ask(_MODULE, "gpus"))
    except NoAnswer as why:
        reason = f"the NVIDIA driver cannot be asked: {why}"
        return {"no_gpu_reason": reason, "missing": reason}
