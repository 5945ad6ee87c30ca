"""Puts runs and measurements in the queue: makes the folder of a new one, or takes an ended one to resume it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from ..files.writing import write_atomically
from ..finding import error
from ..job import slurm, this_machine
from ..job.machine_gpus import Machine
from ..leases import gpu_use
from ..options import Options
from ..plan import KIND, MULTI_WORKER
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

ON_SEVERAL_MACHINES = error(
    KIND,
    "a training on several machines cannot wait in the queue of one of them",
    "start it on every machine: gputui --preset P --cluster HOST1:PORT,HOST2:PORT --worker N",
)


def queue_preset(preset: Preset, after: str | None = None, anyway: bool = False) -> Entry:
    """Make the run folder of a checked preset and queue the run; after RunError no folder is left. `after` is the id of
    a run or measurement that has to end first, and `anyway` that of an entry.
    """
    refuse_here(f"gputui --preset {preset.file or preset.name}")
    if preset.options.strategy.kind == MULTI_WORKER:
        raise RunError(ON_SEVERAL_MACHINES.text)
    run = launch.create_queued(preset)
    try:
        return _put(replace(entries.entry_of(run, after), anyway=anyway))
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def queue_trial(run: Run, anyway: bool = False) -> Entry:
    """At its sweep's place if that was queued, in a group of its own: its sweep counts the failures."""
    refuse_here("gputui sweep ...")
    sweep = entries.read(part_of_sweep.read(run).sweep)
    entry = replace(entries.entry_of(run, code="copy"), group=run.id, anyway=anyway)
    return _put(entry, None if sweep is None else sweep.place)


def queue_resume(run: Run, after: str | None = None, code: str = "") -> Entry:
    """If the run's code has changed, `code` is `new` or `copy` (that in the folder). Raises RunError."""
    refuse_here(f"gputui resume {run.name}")
    if run_cluster.of_run(run) is not None:
        raise RunError(f"{run.name} trains on several machines, and cannot wait in the queue of one of them")
    if reason := resuming.why_not(run):
        raise RunError(reason)
    if code != "new":
        code_files.check(run, code == "copy")
    return _put(entries.entry_of(run, after, code))


def queue_proof(request: Request, after: str | None = None, anyway: bool = False) -> Entry:
    """Make the folder of a measurement and queue it; after RunError no folder is left."""
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
    """Queue an ended measurement, which is resumed with the checked `request`. Raises RunError."""
    refuse_here(request.command)
    entry = replace(_entry_of(request), run=proof.id, after=after, anyway=anyway)
    with folder.reserved(proof, "queued"):
        if request != proof.request:
            write_atomically(proof.path / "request.json", request.to_json())
    return _put(entry)


def machine() -> Machine:
    """The machine with which queued runs are checked: this one or, if Slurm chooses it, one with unknown GPUs."""
    return Machine.here(missing="Slurm chooses the node") if slurm_queue.is_used() else this_machine.read()


def _put(entry: Entry, place: float | None = None) -> Entry:
    return slurm_queue.submit(entry) if slurm_queue.is_used() else entries.add_entry(entry, place)


def takes_one_gpu(options: Options) -> bool:
    return options.device.visible == "all" and options.strategy.kind in ("single", "one_device")


def _entry_of(request: Request) -> Entry:
    """Return the entry without id, place and time. A sweep needs the devices of one trial, others those of all."""
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
    need = gpu_use.memory_need(options)
    return replace(entry, bytes=need.bytes, prediction=need.prediction)


def refuse_here(command: str) -> None:
    """RunError in a Slurm job, with which the runner would end; `command` is to be queued with Slurm."""
    if job := slurm.job_of(os.environ):
        raise RunError(
            f"--queue is not for Slurm job {job}: the queue's runner would end with the job\n"
            f"let Slurm queue it: sbatch --gpus=1 --wrap={command!r}"
        )
