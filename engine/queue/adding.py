"""Puts runs and measurements in the queue: makes the folder of a new one, or takes an ended one to resume it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from ..files.writing import write_atomically
from ..job import slurm as slurm
from ..job import this_machine
from ..job.machine_gpus import Machine
from ..leases import memory_needs
from ..options import Options
from ..plan import MULTI_WORKER
from ..presets import Preset
from ..process import launch, resuming
from ..proof import folder
from ..proof import request as requests
from ..proof.folder import Proof
from ..proof.request import Request
from ..runs import Run, RunError, code_files, part_of_sweep, run_cluster
from ..runs.run import PROOF
from . import entries, slurm_queue
from .entries import Entry

ON_SEVERAL_MACHINES = (
    "a training on several machines cannot wait in the queue of one of them; "
    "start it on every machine: gputui --preset P --cluster HOST1:PORT,HOST2:PORT --worker N"
)


def queue_preset(preset: Preset, after: str | None = None, anyway: bool = False) -> Entry:
    """Make the run folder of a preset, which the caller has checked, and put the run in the queue. Return its entry.

    `after` is the id of a run or measurement that has to end first, and `anyway` that of an entry. Raises RunError if
    the run cannot be queued; then no folder is left.
    """
    refuse_here(f"gputui --preset {preset.file or preset.name}")
    if preset.options.strategy.kind == MULTI_WORKER:
        raise RunError(ON_SEVERAL_MACHINES)
    run = launch.create_queued(preset)
    try:
        return _put(replace(entries.entry_of(run, after), anyway=anyway))
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def queue_trial(run: Run, anyway: bool = False) -> Entry:
    """Put the run of a trial, whose folder exists, in the queue, from which it begins or is resumed. Return its entry.

    If its sweep was queued, it has the sweep's place. It is alone in its group: its sweep counts the failures itself.
    `anyway` is that of an entry. Raises RunError if it cannot be queued.
    """
    refuse_here("gputui sweep ...")
    sweep = entries.read(part_of_sweep.sweep_of(run))
    entry = replace(entries.entry_of(run, code="copy"), group=run.id, anyway=anyway)
    return _put(entry, None if sweep is None else sweep.place)


def queue_resume(run: Run, after: str | None = None, code: str = "") -> Entry:
    """Put a run that has ended in the queue, from which it is resumed. Return its entry.

    `after` is the id of a run or measurement that has to end first. If the run's code has changed, `code` is `new` (use
    the changed code) or `copy` (use the copy in the run folder). Raises RunError if the run cannot be resumed or
    queued.
    """
    refuse_here(f"gputui resume {run.name}")
    if run_cluster.of_run(run) is not None:
        raise RunError(f"{run.name} trains on several machines, and cannot wait in the queue of one of them")
    if reason := resuming.why_not(run):
        raise RunError(reason)
    if code != "new":
        code_files.check(run, code == "copy")
    return _put(entries.entry_of(run, after, code))


def queue_proof(request: Request, after: str | None = None, anyway: bool = False) -> Entry:
    """Make the folder of a measurement, and put the measurement in the queue. Return its entry.

    `after` is the id of a run or measurement that has to end first, and `anyway` that of an entry. Raises RunError if
    it cannot be measured or queued here; then no folder is left.
    """
    refuse_here(request.command)
    requests.refuse(request, machine())
    entry = _entry_of(request)
    proof = folder.create(request, doing="waiting in the queue")
    try:
        return _put(replace(entry, run=proof.id, after=after, anyway=anyway))
    except BaseException:
        shutil.rmtree(proof.path, ignore_errors=True)
        raise


def queue_resumed_proof(proof: Proof, request: Request, after: str | None = None, anyway: bool = False) -> Entry:
    """Put a measurement that has ended in the queue, from which it is resumed with `request`. Return its entry.

    The caller has checked `request`. `after` is the id of a run or measurement that has to end first, and `anyway` that
    of an entry. Raises RunError if it cannot be queued.
    """
    refuse_here(request.command)
    entry = replace(_entry_of(request), run=proof.id, after=after, anyway=anyway)
    with folder.reserved(proof, "queued"):
        if request != proof.request:
            write_atomically(proof.path / "request.json", request.to_json())
    return _put(entry)


def machine() -> Machine:
    """Return the machine with which queued runs are checked: this machine or, if Slurm chooses it, one with unknown
    GPUs.

    Raises RunError if queue.yaml cannot be read.
    """
    return slurm_queue.unknown_machine() if slurm_queue.is_used() else this_machine.read()


def _put(entry: Entry, place: float | None = None) -> Entry:
    """Put an entry in the queue of this machine, at `place` or at its end or, if queue.yaml says so, in Slurm's. Return
    the entry with its place and time.

    Raises RunError if queue.yaml cannot be read, or if the entry cannot be put in the queue.
    """
    return slurm_queue.submit(entry) if slurm_queue.is_used() else entries.add_entry(entry, place)


def takes_one_gpu(options: Options) -> bool:
    """Return True if a training with these options uses one GPU and does not name it."""
    return options.device.visible == "all" and options.strategy.kind in ("single", "one_device")


def _entry_of(request: Request) -> Entry:
    """Return the entry of a measurement, still without id, place and time. It needs the devices of all trials, or those
    of one trial if it is a sweep.

    Raises NotFree if the memory that a trial needs is not known, and RunError for a sweep in Slurm's queue.
    """
    options = request.baseline().options
    visible = "all" if "device.visible" in request.changes else options.device.visible
    if request.sweep is not None:
        if slurm_queue.is_used():
            raise RunError("Slurm's queue takes the trials of a sweep one by one: leave out --queue")
        visible = "free:1" if request.sweep.one_gpu_each and takes_one_gpu(options) else visible
    needs = entries.needs_of(visible)
    entry = Entry("", 0.0, kind=PROOF, what=request.kind, group=request.preset_name, needs=needs)
    if not needs.startswith("fits:"):
        return entry
    need = memory_needs.of_options(options)
    return replace(entry, bytes=need.bytes, prediction=need.prediction)


def refuse_here(command: str) -> None:
    """Raise RunError inside a Slurm job, because the queue's runner would end with the job. Otherwise do nothing.

    `command` is the command that the message proposes, which queues with Slurm.
    """
    if job := slurm.job_of(os.environ):
        raise RunError(
            f"--queue is not for Slurm job {job}: the queue's runner would end with the job\n"
            f"let Slurm queue it: sbatch --gpus=1 --wrap={command!r}"
        )
