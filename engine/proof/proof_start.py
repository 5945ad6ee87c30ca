"""Starts and resumes proofs, unless other trainings of gputui on their devices would make the figures wrong: on GPUs
those on the same GPU; a training on the CPU uses all cores, which every other needs for its input.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import psutil

from .. import presets, runs
from ..files.places import TRIALS
from ..files.writing import write_atomically
from ..job import this_machine
from ..job.machine_gpus import Machine, training_gpus, visible_gpus
from ..leases import gpu_use
from ..options import Options
from ..presets import PresetError
from ..runs import Run
from ..runs.event_reading import last_of
from ..runs.events import Started
from ..runs.run import WAITING
from ..system import locks
from ..trials import kinds
from ..trials.search_results import nothing_to_measure
from ..units import MINUTE
from .folder import Proof, launch, proofs, start
from .request import ProofError, Request, refuse, sides

WAIT_SECONDS = 1.0
Names = frozenset[str]  # UUIDs of GPUs, or indices without UUIDs; empty for the CPU


def of_options(options: Options, here: Machine) -> Names:
    """Return the names of the GPUs that a training with these options uses. Empty if it trains on the CPU."""
    return frozenset(gpu.key for gpu in training_gpus(options, here))


def of_request(request: Request, here: Machine) -> Names:
    """Return the names of the GPUs of all sides (all visible ones if strategies are searched). Empty for the CPU."""
    gpus = [of_options(side.options, here) for side in sides(request)]
    limits = request.search
    if limits is not None and all(gpus) and "strategy" in limits.only and "strategy.kind" not in limits.leave:
        gpus += [frozenset(gpu.key for gpu in visible_gpus(side.options, here)) for side in sides(request)]
    return frozenset() if not all(gpus) else frozenset().union(*gpus)


def other_training(ours: Collection[str], here: Machine, but: Path | None = None) -> str:
    """Return a training or proof, not the folder `but`, that shares a device with `ours`, in words."""
    active = chain(_of_this_home(here, but), _of_other_homes(here, but))
    # no names of GPUs mean the CPU, which all share
    return next((what for what, theirs in active if not ours or not theirs or set(ours) & theirs), "")


def blocks(request: Request, here: Machine, but: Path | None = None) -> str:
    """Return what prevents measuring now, in words: another training, or no free GPU. The folder `but` is left out."""
    if request.sweep is not None:  # its trials wait in the queue
        return ""
    if request.chooses_gpus:
        return gpu_use.why_not(request.baseline().options, here)
    return other_training(of_request(request, here), here, but)


def in_the_way(options: Options, here: Machine, but: Path | None = None) -> str:
    """Return a training that uses the same GPU (on the CPU: one of this home folder) as these options would, in words.
    Empty if there is none or gputui chooses the GPUs (`free:1`). The folder `but` does not count.
    """
    if options.device.choice:
        return ""  # others are looked at when the GPUs are chosen
    ours = of_options(options, here)
    own = (what for what, theirs in _of_this_home(here, but) if ours & theirs or not (ours or theirs))
    others = (what for what, theirs in _of_other_homes(here, but) if ours & theirs) if ours else iter(())
    return next(own, "") or next(others, "")


class BlockedError(ProofError):
    """The devices of the measurement `request` are in use. The text says by what, and what to do."""

    def __init__(self, request: Request, what: str) -> None:
        if request.chooses_gpus:
            super().__init__(f"{what}\nwait for it (--wait)")
        else:
            because = "figures measured at the same time would be worthless"
            because = "both would take longer" if kinds.kind(request.kind).learns else because
            super().__init__(f"{what}: {because}; wait for it (--wait), or give --anyway")


def wait(request: Request, tell: Callable[[str], None], given_up: Callable[[], bool]) -> None:
    """Wait until nothing blocks the request, or `given_up()`; `tell` gets each new obstacle."""
    here = this_machine.read()
    gpu_use.wait(lambda: blocks(request, here), tell, given_up, WAIT_SECONDS)


def begin(
    request: Request, anyway: bool = False, trains_on: Machine | None = None
) -> tuple[Proof, subprocess.Popen[bytes]]:
    """Check, create and start the proof on `trains_on`. Raises ProofError, unless `anyway` if blocked."""
    here = trains_on or this_machine.read()
    refuse(request, here)
    if not anyway and (what := blocks(request, here)):
        raise BlockedError(request, what)
    return launch(request)


def _of_this_home(here: Machine, but: Path | None) -> Iterator[tuple[str, Names]]:
    for run in runs.all_runs():
        now = run.liveness  # a run on another machine shares no device
        if run.path != but and not now.host and (state := run.state_of(now)) in runs.ACTIVE_STATES:
            yield f"the run {run.name} is {state}", _of_run(run, here)
    for proof in proofs():
        record = proof.record
        if record.kind == "sweep":  # its runs use the devices
            continue
        if proof.path != but and record.state == "running" and not proof.liveness(record).host:
            theirs: Names = frozenset()
            with contextlib.suppress(PresetError, ProofError, OSError):
                theirs = of_request(proof.request, here)
            yield f"the {kinds.kind(record.kind).noun} {proof.id} is running", theirs


def _of_run(run: Run, here: Machine) -> Names:
    # by the latest event `started`, or before it by its options; an unreadable run counts as one on the CPU
    if started := last_of(run.path, Started):
        return frozenset(started.gpus)
    try:
        return of_options(presets.resolve(str(run.file("preset.yaml"))).options, here)
    except (PresetError, OSError):
        return frozenset()


def _of_other_homes(here: Machine, but: Path | None) -> Iterator[tuple[str, Names]]:
    """Trainings of other users, and trials of proofs in other home folders."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "gputui.engine.trainer" not in words or words[-1].startswith("-"):  # a trainer that waits for a run
            continue
        path = Path(words[-1])
        if but is None or but not in path.parents:
            # If only its user can read the folder, the driver reports the GPUs of the process.
            theirs = (
                _of_run(Run(path), here) if os.access(path, os.R_OK | os.X_OK) else this_machine.gpus_of(process.pid)
            )
            what = f"the training {runs.title(Run(path))}"
            if path.parent.name == TRIALS:
                proof = Proof(path.parent.parent)
                what = f"the {kinds.kind(proof.record.kind).noun} {proof.id} of the home {proof.path.parent.parent}"
            yield f"{what} (process {process.pid}) is running", theirs


# ---- resuming a proof that has ended early -------------------------------------------------------


def resumed(proof: Proof, kind: str, minutes: float | None = None) -> Request:
    """Return the request of a resumed measurement, with `minutes` more if given. Raises ProofError if the proof has
    another kind, runs, has ended (unless more minutes may change something), or cannot be read.
    """
    record, asked, declared = proof.record, proof.request, kinds.KINDS[kind]
    if asked.kind != kind:
        alone = f"gputui {kind} --resume goes on with {declared.full_noun} alone"
        raise ProofError(f"{proof.id} is {kinds.kind(asked.kind).full_noun}, and {alone}")
    if record.state == "running":
        raise ProofError(f"{proof.id} is running; gputui proof {proof.id} shows it")
    if record.state == WAITING:
        raise ProofError(f"{proof.id} waits in the queue; gputui queue shows why")
    if record.state == "done" and minutes is None:
        because = f" ({record.ended_because})" if record.ended_because else ""
        raise ProofError(f"{proof.id} has ended{because}; {declared.ended.format(proof.id)}")
    if not record.is_read:
        raise ProofError(
            f"{proof.path / 'proof.json'} is damaged (it lacks the fields of a proof), so that nothing is known of its "
            f"trials; start anew with gputui {kind} --preset NAME"
        )
    if minutes is not None and asked.sweep is not None:
        sweep = replace(asked.sweep, minutes=asked.sweep.minutes + minutes)
        return replace(asked, sweep=sweep, limit_seconds=60 * sweep.minutes)
    if minutes is not None and asked.search is not None:
        if why := nothing_to_measure(record):
            raise ProofError(f"{proof.id}: {why}")
        return replace(asked, search=replace(asked.search, minutes=round(record.seconds / MINUTE + minutes, 1)))
    return asked


def start_again(proof: Proof, asked: Request, anyway: bool = False) -> subprocess.Popen[bytes]:
    """Start a proof's process with the request of a resume. Raises ProofError, unless `anyway` if blocked."""
    here = this_machine.read()
    if not anyway and (what := blocks(proof.request, here, proof.path)):
        raise BlockedError(proof.request, what)
    if asked != proof.request:
        write_atomically(proof.path / "request.json", asked.to_json())
    try:
        return start(proof)
    except locks.Taken:
        raise ProofError(f"{proof.id} is running; gputui proof {proof.id} shows it") from None
