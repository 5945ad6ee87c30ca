"""`python -P -m gputui.engine.queue.start ID STARTED_AT DEVICE...`: launches one queued run or measurement, for the
runner. If it cannot, it prints the reason in one line. Exit codes: 0 the run has begun; 75 its devices are not free
now; 3 it cannot be started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from .. import checks, presets
from ..files.reading import why
from ..finding import errors
from ..job import start_worker, this_machine
from ..job.cluster import ClusterError
from ..job.machine_gpus import Machine
from ..leases import gpu_use, records
from ..leases.gpu_use import NotMeasuredError
from ..leases.records import NotFree
from ..presets import PresetError
from ..process import launch, resuming
from ..proof import folder, proof_start
from ..proof import request as requests
from ..proof.folder import Proof
from ..runs import RunError, code_copy, code_files
from ..runs.checkpoint_files import steps_in
from ..runs.run import PROOF
from ..system import locks
from . import entries
from .entries import Entry
from .runner import BEGUN, NOT_FREE, REFUSED


class NotNowError(RunError):
    """The devices are not free now; the text says who uses them."""


def start(name: str, started_at: float, among: Sequence[str]) -> None:
    """Launch `name` on devices chosen from `among`, which are free. Raises NotNowError or NotFree if they are not, or
    if another process has the entry; RunError, PresetError, ClusterError or OSError if it cannot be started.
    """
    entry = _still(name, started_at)
    here, path = refuse(entry), entry.job.path
    if entry.kind == PROOF:
        request, busy = Proof(path).request, ""
        if not (request.chooses_gpus or request.sweep is not None or entry.anyway):
            busy = gpu_use.why_not(request.baseline().options, here) or proof_start.blocks(request, here, path)
    else:
        options, busy = presets.resolve(str(path / "preset.yaml")).options, ""
        if options.device.choice is None and not (entry.anyway and gpu_use.names_of(options, here) == [records.CPU]):
            busy = gpu_use.why_not(options, here) or proof_start.in_the_way(options, here, path)
    if busy:
        raise NotNowError(busy)
    with entries.locked():  # a process that reads the entry later sees the lock of the engine
        entry = _still(name, started_at)
        launch_job(entry, among)
        entries.write(replace(entry, state="running", devices=tuple(among), code=""))


def launch_job(entry: Entry, among: Sequence[str] | None) -> subprocess.Popen[bytes]:
    """Start a measurement, or the engine of a run, from its last checkpoint if there is one. `among` are the names of
    the devices to choose from; None in a Slurm job, which has GPUs of its own. Raises the errors of `start`.
    """
    if entry.anyway and among is not None and list(among) == [records.CPU]:
        among = None
    if entry.kind == PROOF:
        try:
            return folder.start(Proof(entry.job.path), among)
        except locks.Taken:
            raise NotNowError(f"{entry.run} is running, or another gputui is using it") from None
    run, new = entry.folder, entry.code == "new"
    if not steps_in(run.file("checkpoints")):
        return launch.begin(run, presets.resolve(str(run.file("preset.yaml"))), among)
    return resuming.resume(run, new, from_copy=not new and code_files.can_use_copy(run), among=among, from_queue=True)


def _still(name: str, started_at: float) -> Entry:
    entry = entries.read(name)
    if entry is None or entry.state != "starting" or entry.started_at != started_at:
        raise NotNowError("it was taken out of the queue, or another runner starts it")
    return entry


def refuse(entry: Entry) -> Machine:
    """This machine. RunError if the options conflict with it as it is now."""
    if entry.kind == PROOF:
        here = this_machine.read()
        requests.refuse(Proof(entry.job.path).request, here)
        return here
    preset = presets.resolve(str(entry.folder.file("preset.yaml")))
    here, joined = start_worker.machine_for(preset.options.strategy.kind, preset.options.device.visible)
    trained = replace(preset, options=code_copy.as_trained(entry.folder, preset.options))
    for conflict in errors([*checks.of_preset(trained, here), *joined]):
        raise RunError(str(conflict))
    return here


def main(words: Sequence[str]) -> int:
    """`words` are ID STARTED_AT DEVICE...; returns the exit code."""
    name, started_at, *among = words
    try:
        start(name, float(started_at), among)
    except NotMeasuredError as fault:  # waiting would not change it
        print(str(fault).partition("\n")[0])
        return REFUSED
    except (NotNowError, NotFree) as reason:
        print(reason)
        return NOT_FREE
    except (RunError, PresetError, ClusterError) as fault:
        print(str(fault).partition("\n")[0])
        return REFUSED
    except OSError as fault:
        print(f"{why(fault)}: {fault.filename}" if fault.filename else why(fault))
        return REFUSED
    return BEGUN


if __name__ == "__main__":
    os.environ.pop("GPUTUI_LOCK", None)
    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the runner was killed meanwhile; Python would write a traceback into the next one's log
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
