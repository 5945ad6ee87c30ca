"""Starts proofs and goes on with them, unless other gputui trainings on their devices would make the figures wrong.

Trainings on GPUs conflict only if they use the same GPU. A training on the CPU uses all cores, which every other
training needs for its input, so that it conflicts with all of them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import psutil

from .. import presets, runs
from ..checks import training_gpus, visible_gpus
from ..files.writing import write_atomically
from ..job import this_machine
from ..job.machine import Gpu, Machine
from ..options import Options
from ..presets import PresetError
from ..runs import Run
from ..runs.events import EVENTS_FILE, Started
from ..runs.reading import read_events
from ..system import locks
from ..trials.record import Record
from .folder import Proof, launch, proofs, start
from .request import ProofError, Request, refuse, sides

WAIT_SECONDS = 1.0
TRIALS = "trials"  # the folder of a proof that holds its trials
Names = frozenset[str]  # of GPUs, by UUID if there is one; none: the CPU


def of_options(options: Options, here: Machine) -> Names:
    """The GPUs that a training with these options uses."""
    return frozenset(map(_name, training_gpus(options, here)))


def of_request(request: Request, here: Machine) -> Names:
    """Those of all sides that may be measured, and no GPU if one of them is the CPU's."""
    gpus = [of_options(side.options, here) for side in sides(request)]
    limits = request.search
    if limits is not None and all(gpus) and "strategy" in limits.only and "strategy.kind" not in limits.leave:
        gpus += [frozenset(map(_name, visible_gpus(side.options, here))) for side in sides(request)]
    return frozenset() if not all(gpus) else frozenset().union(*gpus)


def overlap(ours: Collection[str], theirs: Collection[str]) -> bool:
    """Whether two trainings share a device."""
    return not ours or not theirs or bool(set(ours) & set(theirs))


def beside(ours: Collection[str], here: Machine, but: Path | None = None) -> str:
    """The first of gputui's trainings and proofs that shares a device, in words; `but` is one's own folder."""
    busy = (what for what, theirs in _active(here, but) if overlap(ours, theirs))
    return next(busy, "")


def in_the_way(options: Options, here: Machine, but: Path | None = None) -> str:
    """What trains on the same GPUs as a training with these options would, or like it on the CPU, in words.

    Of trainings of other homes only those count that use the same GPU.
    """
    ours = of_options(options, here)
    own = (what for what, theirs in _of_this_home(here, but) if ours & theirs or not (ours or theirs))
    others = (what for what, theirs in _of_other_homes(here, but) if ours & theirs) if ours else iter(())
    return next(own, "") or next(others, "")


def wait(request: Request, tell: Callable[[str], None], given_up: Callable[[], bool]) -> None:
    """Until nothing else trains on the devices; `tell` is told of each that does."""
    here, message = this_machine.read(), ""
    while not given_up() and (what := beside(of_request(request, here), here)):
        if what != message:
            tell(f"waiting: {what}")
            message = what
        time.sleep(WAIT_SECONDS)


def begin(request: Request, anyway: bool = False) -> tuple[Proof, subprocess.Popen[bytes]]:
    """Refuse what cannot be measured, and devices that are in use unless `anyway`; else create and start."""
    here = this_machine.read()
    refuse(request, here)
    if not anyway and (what := beside(of_request(request, here), here)):
        raise ProofError(f"{what}: figures taken beside it would be worthless; wait for it (--wait), or give --anyway")
    return launch(request)


def _active(here: Machine, but: Path | None) -> Iterator[tuple[str, Names]]:
    yield from _of_this_home(here, but)
    yield from _of_other_homes(here, but)


def _of_this_home(here: Machine, but: Path | None) -> Iterator[tuple[str, Names]]:
    for run in runs.all_runs():
        now = run.liveness  # one of another machine shares nothing
        if run.path != but and not now.host and (state := run.state_of(now)) in runs.GOES_ON:
            yield f"the run {run.id} is {state}", _of_run(run, here)
    for proof in proofs():
        record = proof.record
        if proof.path != but and record.state == "running" and not proof.liveness(record).host:
            yield f"the {_kind(record)} {proof.id} is running", _of_proof(proof, here)


def _of_run(run: Run, here: Machine) -> Names:
    """As it has told; before that, by its options. Of a run that cannot be read nothing is known: as if on the CPU."""
    if started := read_events(run.path, [EVENTS_FILE]).of(Started):
        return frozenset(started[0].gpus)
    try:
        return of_options(presets.resolve(str(run.file("preset.yaml"))).options, here)
    except (PresetError, OSError):
        return frozenset()


def _of_proof(proof: Proof, here: Machine) -> Names:
    try:
        return of_request(proof.request, here)
    except (PresetError, ProofError, OSError):
        return frozenset()


def _of_other_homes(here: Machine, but: Path | None) -> Iterator[tuple[str, Names]]:
    """Trainings that no list of this home has: those of other users, and trials of other homes' proofs."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "gputui.engine.trainer" not in words or words[-1].startswith("-"):  # it waits for a run, as with --warm
            continue
        path = Path(words[-1])
        if but is None or but not in path.parents:
            # Of another user, whose folders only they can read, the driver tells the GPUs.
            theirs = (
                _of_run(Run(path), here) if os.access(path, os.R_OK | os.X_OK) else this_machine.gpus_of(process.pid)
            )
            yield f"{_found_at(path)} (process {process.pid}) is running", theirs


def _found_at(path: Path) -> str:
    """A training by its folder; a trial by the search or proof that it belongs to, with the home that lists it."""
    if path.parent.name != TRIALS:
        return f"the training {runs.title(Run(path))}"
    proof = Proof(path.parent.parent)
    return f"the {_kind(proof.record)} {proof.id} of the home {proof.path.parent.parent}"


def _kind(record: Record) -> str:
    return "search" if record.kind == "tune" else "proof"


def _name(gpu: Gpu) -> str:
    return gpu.uuid or str(gpu.index)


# ---- going on with what has ended before its time ------------------------------------------------


def latest_to_resume(is_meant: Callable[[Request], bool], passed_over: Collection[str], nothing: str) -> Proof:
    """The newest proof of these requests whose state is not passed over; without one the newest of all of them, which
    says why it cannot go on. Raises ProofError with the text `nothing` if there is none.
    """
    newest = None
    for proof in proofs():
        with contextlib.suppress(ProofError, PresetError):  # one that cannot be read is none
            if not is_meant(proof.request):
                continue
            if proof.state not in passed_over:
                return proof
            newest = newest or proof
    if newest is None:
        raise ProofError(nothing)
    return newest


def refuse_to_resume(
    proof: Proof, kind: str, what: str, command: str, with_more: str = "", has_more: bool = False
) -> None:
    """Raises ProofError for a proof that is not of this kind, goes on, has ended, or cannot be read.

    One that has ended goes on if it has got more time (`has_more`); `with_more` says how it gets that.
    """
    asked, record = proof.request, proof.record
    if asked.kind != kind:
        raise ProofError(f"{proof.id} is not {what}; only what {command} has started can be resumed")
    if record.state == "running":
        raise ProofError(f"{proof.id} is running; gputui proof {proof.id} shows it")
    if record.state == "done" and not has_more:
        because = f" ({record.ended_because})" if record.ended_because else ""
        raise ProofError(f"{proof.id} has ended{because}; {with_more or f'gputui proof {proof.id} shows it'}")
    if not record.is_read:
        raise ProofError(
            f"{proof.path / 'proof.json'} is damaged (it lacks the fields of a proof), so that nothing is known of its "
            f"trials; start anew with {command} --preset NAME"
        )


def start_again(proof: Proof, anyway: bool = False, changed: Request | None = None) -> subprocess.Popen[bytes]:
    """Its process; raises ProofError if something else trains on its devices, unless `anyway`.

    `changed` takes the place of its request.
    """
    here = this_machine.read()
    if not anyway and (what := beside(of_request(proof.request, here), here, proof.path)):
        raise ProofError(f"{what}: figures taken beside it would be worthless; wait for it (--wait), or give --anyway")
    if changed is not None:
        write_atomically(proof.path / "request.json", changed.to_json())
    try:
        return start(proof)
    except locks.Taken:
        raise ProofError(f"{proof.id} is running; gputui proof {proof.id} shows it") from None
