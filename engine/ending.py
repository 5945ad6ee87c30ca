"""How a run ended, where the trainer could not say it itself: return code, log and counters -> outcome.

A pure function over evidence, so that every ending can be told apart without making it happen.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What TensorFlow, XLA, CUDA, the C++ runtime and Python write when memory runs out.
_MEMORY_WORDS = re.compile(
    r"OOM when allocating|Out of memory|out of memory|ResourceExhausted|RESOURCE_EXHAUSTED|std::bad_alloc"
    r"|CUDA_ERROR_OUT_OF_MEMORY|MemoryError|failed to allocate|Cannot allocate memory"
)


@dataclass(frozen=True)
class Evidence:
    """What the engine knows when the trainer is gone without a result."""

    returncode: int
    log_tail: Sequence[str]
    batch_size: int
    stopped_because: str = ""  # "", "stop", "timeout" or "hang": what the engine itself asked for
    limit: str = ""  # the option and value that asked for it
    kernel_oom_kills: int = 0
    memory_share: float | None = None  # the trainer's resident bytes of all memory, at the last reading


@dataclass(frozen=True)
class Ending:
    outcome: str
    kind: str
    message: str
    hint: str = ""


def classify(seen: Evidence) -> Ending:
    """Outcome, message and hint; the last resort is `crashed` with the return code."""
    if seen.stopped_because == "stop":
        return Ending("stopped", "killed", "stopped at once; it did not answer the request to stop gracefully")
    if seen.stopped_because == "timeout":
        return Ending("timeout", "timeout", f"ended after {seen.limit}", "raise run.max_minutes")
    if seen.stopped_because == "hang":
        return Ending(
            "timeout",
            "hang",
            f"no progress and no CPU time for {seen.limit}: the training hung",
            "see the end of engine.log; a strategy waiting for a device or worker hangs like this",
        )
    number = _signal(seen.returncode)
    memory = any(_MEMORY_WORDS.search(line) for line in seen.log_tail)
    if number == signal.SIGKILL:
        return _killed(seen)
    if number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS) and (memory or (seen.memory_share or 0) > 0.8):
        return out_of_memory(seen.batch_size, f"the trainer ended with {_name(seen.returncode)}")
    if memory and seen.returncode:
        return out_of_memory(seen.batch_size, f"the trainer ended with {_name(seen.returncode)}")
    return Ending(
        "crashed",
        "crash",
        f"the trainer ended with {_name(seen.returncode)} and no result",
        "see the end of engine.log",
    )


def out_of_memory(batch_size: int, detail: str) -> Ending:
    """The one wording for memory that ran out, in whatever form."""
    smaller = max(1, batch_size // 2)
    return Ending(
        "oom",
        "out_of_memory",
        f"out of memory at batch size {batch_size}: {detail}",
        f"try input.batch_size={smaller}, precision.policy=mixed_bfloat16 or a smaller workload.width",
    )


def _killed(seen: Evidence) -> Ending:
    if seen.kernel_oom_kills > 0:
        return out_of_memory(seen.batch_size, "the kernel killed the trainer because host memory ran out")
    return Ending("crashed", "killed", "the trainer was killed from outside (SIGKILL)", "gputui resume goes on")


def _signal(returncode: int) -> int:
    """-11 from a direct child, 139 through a shell: both are SIGSEGV."""
    if returncode < 0:
        return -returncode
    return returncode - 128 if 128 < returncode < 160 else 0


def _name(returncode: int) -> str:
    number = _signal(returncode)
    try:
        return f"signal {signal.Signals(number).name}" if number else f"return code {returncode}"
    except ValueError:
        return f"return code {returncode}"


def kernel_oom_kills() -> int:
    """How often the kernel's memory killer has struck, in this control group and on this machine."""
    return _counter(Path("/sys/fs/cgroup/memory.events")) + _counter(Path("/proc/vmstat"))


def _counter(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
