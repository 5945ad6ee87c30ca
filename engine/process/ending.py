"""How a run ended if the trainer left no result: the outcome by return code, log and counters, and the summary.
`classify` is a pure function of the evidence, so that every kind of ending can be tested without making it happen.
"""

from __future__ import annotations

import math
import resource
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..runs import Run, checkpoint_files, code_files, events, results
from ..runs.event_reading import RunEvents, read_events
from ..runs.events import Allocator, MemoryAnswer, Outcome, Progress, Started, Summary, XlaAnswer, fields_of
from ..system import proc
from ..system.child_process import NOT_RUN, NOT_STARTED
from ..telemetry.gpu_totals import GpuTotals
from ..telemetry.resource_limits import Ceilings, ceilings
from ..units import size
from . import known_failures
from .known_failures import MEMORY, THREADS, KnownFailure

# Phases in which the memory use does not depend on the batch size.
_DOING = {"starting": "starting", "importing": "being imported", "configuring": "opening devices"}
# Measured: TensorFlow 2.21 trains a tiny model on a CPU with 2.5 GB of address space, and dies in 2.0 GB.
ADDRESS_SPACE_NEEDED_BYTES = 4_000_000_000
LOG_LINES = 2000  # an error may be followed by a stack, and by the allocator's list of its memory
QUOTED_LETTERS = 200  # letters of a log line that a message quotes
_OURS = "gputui: "  # before what gputui itself writes into the log
SEE_LOG = "see the end of engine.log"
LIMIT_OF_JOB = "run.max_minutes=auto"
_SAY_SPACE = "lift it with ulimit -v unlimited; TensorFlow reserves much more address space than it uses"
_SMALLER = "read the data in parts (a tf.data.Dataset or a generator) or as uint8 or float32, or build a smaller model"
_SAY_PROCESSES = "raise it (ulimit -u, or the pids limit of the container or job), or end other processes of yours"


SEVERAL_GPUS = (
    "with several GPUs the cause is often NCCL: try NCCL_P2P_DISABLE=1, disable the IOMMU, or give the container more "
    "/dev/shm (--shm-size=1g); NCCL_DEBUG=INFO writes details into the log; the end of engine.log has all stacks"
)
ONE_DEVICE = (
    "the end of engine.log has the stack of each thread, and dmesg shows a failed GPU (Xid); if steps "
    "just take long, raise run.hang_seconds"
)
NOTHING_SAVED = "no checkpoint was saved to continue from: run.checkpoint saves them, such as run.checkpoint=epoch"
HELD_HINT = (
    "usually a GPU does not respond: reset it as root (nvidia-smi --gpu-reset) or reboot; until then it stays in use. "
    "A network disk that does not respond has the same effect"
)


def held(pid: int) -> str:
    """The message about a trainer (`pid`) that was killed and does not end."""
    return f"the trainer (pid {pid}) was killed but does not end: the kernel cannot interrupt its call of the driver"


@dataclass(frozen=True)
class Evidence:
    """The facts about a trainer that has failed or ended without a result, from which `classify` finds the cause."""

    returncode: int
    log_tail: Sequence[str]
    batch_size: int
    stopped_because: str = ""  # "stop", "timeout" or "hang": why the engine ended the trainer; empty if it did not
    limit: str = ""  # the option and value of that limit; for a hang, what did not happen
    kernel_oom_kills: int = 0
    memory_share: float | None = None  # the trainer's share of the host's memory at the last reading
    phase: str = ""  # the last phase in the trainer's events
    ceilings: Ceilings = field(default_factory=Ceilings)
    gpus: int = 0  # the number of GPUs that train
    device_batches: int = 0  # batches copied ahead into the memory of each GPU
    lost_gpus: Sequence[str] = ()  # names of the GPUs that the driver has lost
    driver_errors: Sequence[str] = ()  # lines of the driver's log about these GPUs, from shortly before
    held_pid: int | None = None  # the trainer's pid, if it does not end although it was killed
    on_oom: str = "stop"  # run.on_oom
    recomputes: bool = False  # compile.recompute
    own: bool = False  # True if the model comes from a user's own code
    is_command: bool = False  # True for a command that has ended by itself, or as it was asked to


@dataclass(frozen=True)
class Ending:
    """How a run ended; an empty hint is none. Without a kind it is no failure."""

    outcome: Outcome
    kind: str
    message: str
    hint: str = ""


def classify(seen: Evidence) -> Ending:
    """The outcome, with message and hint; without a known cause `crashed`, with the return code or the signal."""
    if seen.held_pid is not None:
        outcome: Outcome = "stopped" if seen.stopped_because == "stop" else "timeout"
        because = f"{seen.limit}; " if seen.limit else ""
        return Ending(outcome, "held", f"{because}{held(seen.held_pid)}", HELD_HINT)
    if seen.is_command and seen.stopped_because != "timeout":
        return _of_command(seen)
    if seen.stopped_because == "stop":
        return Ending("stopped", "killed", "ended by force, as it did not respond to the request to stop")
    if seen.stopped_because == "timeout":
        if seen.limit == LIMIT_OF_JOB:
            return before_the_job()
        return Ending("timeout", "timeout", f"ended after {seen.limit}", "raise run.max_minutes")
    if seen.stopped_because == "hang":
        hint = SEVERAL_GPUS if seen.gpus > 1 else ONE_DEVICE
        return Ending("timeout", "hang", f"the training hung: {seen.limit}", hint)
    number = _signal(seen.returncode)
    how = f"the trainer ended with {_name(seen.returncode)}"
    if number in (signal.SIGTERM, signal.SIGINT):
        return Ending("stopped", "killed", f"stopped by {_name(seen.returncode)}")
    if number == signal.SIGKILL:
        if lost := known_failures.lost_peer(seen.log_tail):
            message = f"{lost} has ended while the workers were connected: the training cannot begin without it"
            return Ending("error", "peer_lost", message, known_failures.LOST_PEER_HINT)
        if seen.kernel_oom_kills > 0:
            return _memory(seen, "the kernel killed the trainer because host memory ran out")
        return Ending("crashed", "killed", "the trainer was killed from outside (SIGKILL)", known_failures.RESUME)
    if seen.lost_gpus:
        names = ", ".join(seen.lost_gpus)
        return Ending("crashed", "gpu_lost", f"the driver has lost {names}: {how}", known_failures.LOST_HINT)
    failure = known_failures.in_log(seen.log_tail) if seen.returncode else None
    if seen.returncode and (failure is None or failure.kind.vague):
        failure = known_failures.in_log(seen.driver_errors) or failure
    if (failure is None or failure.kind.vague) and number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        if (seen.memory_share or 0) > 0.8:
            return _memory(seen, how)
        if (seen.ceilings.address_space_bytes or math.inf) < ADDRESS_SPACE_NEEDED_BYTES:
            return _space(seen, how)
    if failure:
        return _of_failure(failure, seen, f"{failure.line[:QUOTED_LETTERS]}; {how}")
    if seen.phase == "importing" and number:
        hint = "gputui doctor --deep imports it too; installing TensorFlow again may help; see the end of engine.log"
        return Ending("crashed", "crash", f"{how} while TensorFlow was being imported", hint)
    return Ending("crashed", "crash", f"{how} and no result", SEE_LOG)


def _of_command(seen: Evidence) -> Ending:
    """Of a command of the user (process/command.py), which leaves no result."""
    last = next((line.strip() for line in reversed(seen.log_tail) if line.strip()), "")
    if seen.stopped_because or not seen.returncode:
        return Ending("stopped" if seen.stopped_because else "ok", "", "")
    if seen.returncode == NOT_STARTED and last.startswith(NOT_RUN):
        what = f"the command {last.removeprefix(_OURS)}"
        return Ending("error", "not_started", what, "correct it, and queue it again")
    number = _signal(seen.returncode)
    if number == signal.SIGKILL and seen.kernel_oom_kills > 0:
        hint = "give the container or job more memory, or end other processes"
        return Ending("oom", "out_of_memory", "the kernel killed the command because host memory ran out", hint)
    how = f"was ended by {_name(seen.returncode)}" if number else f"ended with exit code {seen.returncode}"
    end = f": {last[:QUOTED_LETTERS]}" if last else ""
    return Ending("crashed" if number else "error", "exit_code", f"the command {how}{end}", SEE_LOG)


def with_hint(end: Ending, is_saved: bool) -> Ending:
    """Unless a checkpoint `is_saved`, the proposal to resume the run is replaced by the option that saves some."""
    return end if is_saved else replace(end, hint=end.hint.replace(known_failures.RESUME, NOTHING_SAVED))


def before_the_job() -> Ending:
    """Shortly before the time limit of its Slurm job."""
    message = f"ended before the time limit of the job was reached ({LIMIT_OF_JOB})"
    return Ending("timeout", "timeout", message, "with run.checkpoint on, gputui resume continues it")


def named_by(text: str, seen: Evidence, how: str) -> Ending | None:
    """By the text of an exception, or of a failure with many causes by the log; `how` the trainer ended."""
    failure = known_failures.in_exception(text)
    if failure and failure.kind.vague:
        logged = known_failures.in_log(seen.log_tail)
        failure = logged if logged and not logged.kind.vague else failure
    return _of_failure(failure, seen, how) if failure else None


def _of_failure(failure: KnownFailure, seen: Evidence, how: str) -> Ending:
    kind = failure.kind
    if kind.name == THREADS:
        processes, space = seen.ceilings.processes, seen.ceilings.address_space_bytes
        if space is not None and (processes is None or space < ADDRESS_SPACE_NEEDED_BYTES):
            return _space(seen, "no thread can be started")
        limit = f": the limit is {processes}" if processes is not None else ""
        return Ending("error", "process_limit", f"no more processes and threads can be started{limit}", _SAY_PROCESSES)
    if kind.name == MEMORY and not kind.hint:
        space = seen.ceilings.address_space_bytes
        if space is not None and (space < ADDRESS_SPACE_NEEDED_BYTES or "failed to map segment" in failure.line):
            return _space(seen, how)
        return _memory(seen, how, seen.device_batches)
    message = f"{failure.message}: {how}" if kind.quoted else failure.message
    return Ending(kind.outcome, kind.name, message, failure.hint)


def of_fault(fault: BaseException) -> Ending | None:
    """The ending for an exception in a process that is not a trainer; None if it is not a known failure."""
    what = f"{type(fault).__name__}: {fault}"
    # A process that cannot be started raises BlockingIOError; the cause is the same as for a thread.
    text = "can't start new thread" if isinstance(fault, BlockingIOError) else what
    return named_by(text, Evidence(1, (), 1, phase="starting", ceilings=ceilings()), what)


def _out_of_memory(seen: Evidence, detail: str, device_batches: int) -> Ending:
    """`detail` says what ran out. `device_batches` wait in the memory of each GPU."""
    if seen.own and seen.phase == "building":
        return Ending("oom", "out_of_memory", f"out of memory while your code built model and data: {detail}", _SMALLER)
    batch_size, evaluates = seen.batch_size, seen.phase == "evaluating"
    smaller_model = "" if seen.own else " or a smaller workload.width"
    where = "out of memory in the evaluation at batch size" if evaluates else "out of memory at batch size"
    smaller = f"input.batch_size={batch_size // 2}, " if batch_size > 1 else ""
    fewer = "input.prefetch_to_device=off, " if device_batches else ""
    fewer += "" if seen.recomputes or evaluates else "compile.recompute=true, "
    divides = batch_size > 1 and seen.on_oom == "stop"
    parts = "; run.on_oom=accumulate goes on with the same batch in parts" if divides else ""
    return Ending(
        "oom",
        "out_of_memory",
        f"{where} {batch_size}: {detail}",
        f"try {smaller}{fewer}precision.policy=mixed_bfloat16{smaller_model}{parts}",
    )


def _memory(seen: Evidence, how: str, device_batches: int = 0) -> Ending:
    if seen.phase in _DOING:
        memory = seen.ceilings.memory_bytes
        there = f"there are {size(memory)} in all, and " if memory else ""
        return Ending(
            "oom",
            "out_of_memory",
            f"out of memory while TensorFlow was {_DOING[seen.phase]}, before any data was loaded: {how}",
            f"{there}TensorFlow alone needs about 1 GiB: give the container or job more memory, or end other processes",
        )
    end = _out_of_memory(seen, how, device_batches)
    space = seen.ceilings.address_space_bytes
    return replace(end, hint=f"{end.hint}; the address space is also limited: {_ulimit(space)}") if space else end


def _space(seen: Evidence, how: str) -> Ending:
    limit = _ulimit(seen.ceilings.address_space_bytes)
    return Ending("oom", "address_space", f"out of memory: the address space is limited to {limit}; {how}", _SAY_SPACE)


def _ulimit(limit: int | None) -> str:
    return f"{size(limit or 0)} (ulimit -v)"


def _signal(returncode: int) -> int:
    """-11 (a direct child) and 139 (through a shell) both mean SIGSEGV; 0: no signal."""
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
    """Return those of this control group and of this machine: only the difference of two calls is of use."""
    lines = "\n".join(map(proc.text, ("/sys/fs/cgroup/memory.events", "/proc/vmstat"))).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


# ---- the summary of a run whose trainer left none -----------------------------------------------


def summary_of(
    run: Run, end: Ending, returncode: int | None, seconds: float, of_command: Collection[int | str] = ()
) -> Summary:
    """Return the summary by the last figures in the events. The shares are means over the steps, as a single reading
    may be of one step. `returncode` is None if the trainer has not ended, `of_command` are the GPUs of a command.
    """
    written = read_events(run.path)
    progress, started, reached = written.last(Progress), written.last(Started), results.reached(written)
    p50, p95 = (progress.step_ms_p50, progress.step_ms_p95) if progress else (None, None)
    totals = GpuTotals()  # from start to end, as it has no steps
    for event in written.of(events.GpuReadings) if of_command else ():
        for gpu in event.gpus:
            if gpu.key in of_command or gpu.index in of_command:
                totals.take(event.t, gpu)
    energy = f"gpu_energy{'' if totals.counts_energy else '_estimated'}_wh"
    of_gpus: dict[str, Any] = totals.figures() | {energy: totals.energy_wh}
    return Summary(
        **of_gpus,
        outcome=end.outcome,
        trainer_returncode=returncode,
        samples_per_second=progress.samples_per_second if progress else None,
        measured_steps=None,
        step_ms={"p50": p50, "p95": p95} if p50 is not None and p95 is not None else None,
        global_batch_size=started.global_batch_size if started else None,
        input_wait=_mean(written, lambda reading: reading.input_wait),
        python_share=_mean(written, lambda reading: reading.python_share),
        traces=progress.traces if progress else None,
        peak_memory_bytes=_allocated(written, first_step=False) or _allocated(written, first_step=True),
        first_step_memory_bytes=_allocated(written, first_step=True),
        # Of the largest child: correct as this process itself is small.
        peak_process_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 or None,
        epochs=reached.epochs,
        steps=max(reached.steps, *checkpoint_files.steps_in(run.file("checkpoints")), 0),
        metrics=reached.metrics,
        best=list(results.best_epochs(written).values()),
        seconds=seconds,
        error={"kind": end.kind, "message": end.message, "hint": end.hint} if end.kind else None,
        memory_answers=[fields_of(event) for event in written.of(MemoryAnswer)],
        xla_answer=fields_of(answer) if (answer := written.last(XlaAnswer)) else None,
        watch=[fields_of(event) for event in written.of(events.WatchAnswer)],
        code_changes=code_files.read(run).changes,
        not_restored=results.not_restored(written),
    )


def _mean(written: RunEvents, share: Callable[[Progress], float | None]) -> float | None:
    """Return the mean over the steps of the last launch that has progress; None without a reading."""
    total, steps, before, is_begun = 0.0, 0, 0, True
    for event in written.events:
        if isinstance(event, Started):
            before, is_begun = event.resumed_at_step or 0, True
        elif isinstance(event, Progress):
            if is_begun:
                total, steps, is_begun = 0.0, 0, False
            if (value := share(event)) is not None:
                total, steps = total + value * (event.step - before), steps + event.step - before
            before = event.step
    return total / steps if steps else None


def _allocated(written: RunEvents, first_step: bool) -> int | None:
    """The highest peak of TensorFlow's allocator over all devices, in bytes."""
    readings = [event for event in written.of(Allocator) if event.first_step is first_step]
    peaks = [of.get("peak_bytes", 0) for event in readings for of in event.devices.values()]
    return max(peaks, default=0) or None
