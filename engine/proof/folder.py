"""The proof folder: create, start, list, find, stop.

`proofs/<id>/` contains `request.json` (written by the process that starts the proof), `proof.json` and `proof.log`
(written by its process), and `trials/` with run folders, which the list of runs does not show.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import runs
from ..files import places
from ..files.places import QUEUE, TRIALS
from ..files.places import proofs_folder as proofs_folder
from ..files.reading import read_object
from ..files.values import completed, moment
from ..files.writing import write_atomically
from ..leases import lease
from ..leases.lease import NotFree
from ..leases.start_devices import Devices
from ..options import Options
from ..presets import PresetError
from ..process.launch import leased
from ..process.spawn import LOCK
from ..runs import Run, liveness
from ..runs.liveness import Liveness
from ..runs.run import PROOF, STARTING_SECONDS, WAITING
from ..system import locks, stop_signals
from ..system.identity import Place, Process
from ..system.locks import PROOF_LOCK
from ..trials import trial
from ..trials.record import UNREAD, Record, of_plain
from .request import ProofError, Request

# The modules of processes for certain kinds of proofs; the other kinds have a common module.
PROCESSES = {
    "tune": "gputui.engine.tune",
    "rate": "gputui.engine.tune",
    "scaling": "gputui.engine.scaling",
    "sweep": "gputui.engine.sweep",
}
ALL_GPUS = ("tune", "scaling")  # kinds that may use every visible GPU


@dataclass(frozen=True)
class Proof:
    """A proof, identified by the path of its folder. Every property reads the folder's files again."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def record(self) -> Record:
        """The content of proof.json.

        The state is `waiting` while the proof is in the queue and has not begun. It is `crashed` if the record says
        `running` and the proof's process has ended. UNREAD if proof.json cannot be read.
        """
        record = read_record(self.path)
        if moment(record.started_t) is None or record.repeats < 0:
            return UNREAD
        if self._is_queued() and not locks.held(self.path / PROOF_LOCK):
            return replace(record, state=WAITING)
        ended = record.state == "running" and not self.liveness(record).engine
        return replace(record, state="crashed") if ended else record

    @property
    def queue_file(self) -> Path:
        """The path of the proof's entry in the queue, which exists while the proof is queued."""
        return self.path.parent.parent / QUEUE / f"{self.id}.json"

    def _is_queued(self) -> bool:
        """Return True if the proof waits in the queue. For a proof that is not queued this costs one call of `stat`."""
        if not os.path.exists(self.queue_file):
            return False
        entry = read_object(self.queue_file).value
        return entry.get("kind") == PROOF and entry.get("state") != "running"

    @property
    def data(self) -> dict[str, Any]:
        """The content of proof.json as `--json` prints it, with the state of `record`. Empty if proof.json cannot be
        read.
        """
        record = self.record
        return {**read_plain(self.path), "state": record.state} if record.is_read else {}

    @property
    def state(self) -> str:
        return self.record.state or "crashed"

    @property
    def request(self) -> Request:
        return Request.read(self.path / "request.json")

    @property
    def trials(self) -> list[Run]:
        """The run folders of the proof's trials, in the order of their start."""
        folder = self.path / TRIALS
        names = sorted(os.listdir(folder), key=trial.place) if folder.is_dir() else []
        return [Run(folder / name) for name in names if not name.startswith(".")]  # complete folders

    def liveness(self, record: Record) -> Liveness:
        """Return which processes of the proof are alive and, if it runs on another machine, the name of that machine.

        `record` is the content of proof.json.
        """
        fields = vars(record)
        held, place, process = locks.held(self.path / PROOF_LOCK), Place.read(fields), Process.read(fields)
        if place is not None and not place.is_here:
            alive = held or (not (place.shares_kernel and held is False) and self._goes_on_elsewhere(record))
            return Liveness(engine=True, host=place.name) if alive else Liveness()
        if held is None:
            age = time.time() - record.started_t
            is_starting = record.state == "running" and 0 <= age < STARTING_SECONDS
            held = process.alive() if process else is_starting
        return Liveness(engine=held, starting=held and process is None)

    def _goes_on_elsewhere(self, record: Record) -> bool:
        """Return True if the proof still runs on another machine.

        It does if proof.json was written a short time ago, or if the newest trial has a heartbeat there.
        """
        written_t = record.started_t + record.seconds
        return abs(time.time() - written_t) < liveness.FRESH_SECONDS or any(
            run.liveness.host for run in self.trials[-1:]
        )


def read_plain(path: Path) -> dict[str, Any]:
    """Return the entries of the proof.json in the folder `path`.

    Absent entries have their defaults. Empty if proof.json cannot be read or one of its entries is damaged.
    """
    file = path / "proof.json"
    plain = completed(Record, {**read_object(file).value, "path": file}) or {}
    plain.pop("path", None)
    return plain


def read_record(path: Path) -> Record:
    """Return the record in the proof.json of the folder `path`. UNREAD if it cannot be read."""
    return of_plain(path / "proof.json", read_plain(path))


def create(request: Request, doing: str = "starting") -> Proof:
    """Create and return a proof folder for `request`. Its name, the proof's id, contains the time and the preset's
    name.

    `doing` is the present work in words, for the record. Raises ProofError if no free name is left, and OSError if the
    folder cannot be written.
    """
    folder = proofs_folder()
    places.make(folder, exist_ok=True)
    slug = re.sub(r"[^a-z0-9]+", "-", request.preset_name.lower()).strip("-")[:32].strip("-") or "proof"
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}"
    for number in range(1, 1000):
        path = folder / (stem if number == 1 else f"{stem}-{number}")
        if Proof(path).queue_file.exists() or os.path.lexists(runs.runs_folder() / path.name):
            continue  # the queue names runs and proofs by their ids
        try:
            places.make(path)
        except FileExistsError:
            continue
        try:
            write_atomically(path / "request.json", request.to_json())
            empty_record(path, request).put(doing)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return Proof(path)
    raise ProofError(f"cannot make a proof folder in {folder}")


def empty_record(path: Path, request: Request) -> Record:
    """Return a new record of the proof folder `path` with the entries of `request` and no results."""
    return Record(
        path=path / "proof.json",
        id=path.name,
        kind=request.kind,
        preset_name=request.preset_name,
        repeats=request.ablation_repeats if request.kind == "diagnosis" else request.repeats,
        measure_seconds=request.measure_seconds,
        preset_before=request.preset,
        limit_seconds=request.limit_seconds,
    )


def launch(request: Request) -> tuple[Proof, subprocess.Popen[bytes]]:
    """Create a proof and start its process; return the proof and the process. If ProofError is raised, the proof folder
    is deleted again.
    """
    proof = create(request)
    try:
        return proof, start(proof)
    except ProofError:
        shutil.rmtree(proof.path, ignore_errors=True)
        raise


def start(
    proof: Proof,
    among: Collection[str] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
) -> subprocess.Popen[bytes]:
    """Lease the devices and start the proof's process in a session of its own. The caller need not wait for the
    returned process.

    `among` names the devices that the queue allows. The process gets `environment` and the working directory
    `directory`, by default those of this process. Raises NotFree with `among`, else ProofError, if the devices are
    not free, and locks.Taken if the proof is running. Raises OSError if the lock cannot be opened.
    """
    request = proof.request
    module = PROCESSES.get(request.kind, "gputui.engine.proof")
    log_file, lock_file = proof.path / "proof.log", proof.path / PROOF_LOCK
    with (
        log_file.open("ab") as log,
        locks.take(lock_file) as lock,
        _leased(request, among) as devices,
        stop_signals.held(),
    ):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(proof.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**(os.environ if environment is None else environment)}
            | {LOCK: str(lock.fd)}
            | lease.environment(devices.leases),
            pass_fds=[lock.fd, *(each.lock.fd for each in devices.leases)],
            cwd=directory,
            start_new_session=True,
        )
        devices.hand_over(process.pid, str(proof.path))
        return process


@contextlib.contextmanager
def _leased(request: Request, among: Collection[str] | None) -> Iterator[Devices]:
    try:
        options = request.baseline().options
    except PresetError:  # the proof's process reports it
        yield Devices(Options(), ())
        return
    if request.sweep is not None:  # the queue leases the devices of its trials
        yield Devices(Options(), ())
        return
    try:
        every = request.kind in ALL_GPUS
        with leased(options, request.preset_name, among=among, all_visible=every) as devices:
            yield devices
    except NotFree as fault:
        if among is not None:
            raise
        raise ProofError(str(fault)) from None


def proofs() -> list[Proof]:
    """Return all proofs, the newest first."""
    try:
        folders = [Proof(path) for path in proofs_folder().iterdir() if not path.name.startswith(".")]  # not if deleted
    except FileNotFoundError:
        return []
    begun = {proof.id: begun_t for proof in folders if (begun_t := _begun_t(proof)) is not None}
    listed = [proof for proof in folders if proof.id in begun]
    return sorted(listed, key=lambda proof: (begun[proof.id], proof.id), reverse=True)


def _begun_t(proof: Proof) -> float | None:
    """Return the start time of a proof in seconds since 1970, by its request.json.

    None for a folder that is not a proof or that cannot be read.
    """
    try:
        return (proof.path / "request.json").lstat().st_mtime
    except OSError:
        return None


MAKERS = "gputui ab, diagnose --apply, tune, fit-batch, scaling and sweep make them"


def find(text: str) -> Proof:
    """Return the proof that `text` names: its id, a part of the id that no other proof has, or `latest`.

    Raises ProofError if no proof or several proofs match.
    """
    listed = proofs()
    if not listed:
        raise ProofError(f"there are no proofs in {proofs_folder()}; {MAKERS}")
    if text == "latest":
        return listed[0]
    matching = [proof for proof in listed if proof.id == text] or [proof for proof in listed if text in proof.id]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ProofError(f"no proof called {text!r}; gputui proof lists them")
    some = ", ".join(proof.id for proof in matching[:3])
    raise ProofError(f"{text!r} matches {len(matching)} proofs ({some} ...); give more of the id")


@contextlib.contextmanager
def reserved(proof: Proof, done: str = "deleted") -> Iterator[None]:
    """Hold the lock of a proof that is not running, so that no process can start or resume it during the context.

    `done` says for the messages what is to be done with it, such as `queued`. Raises ProofError if the proof is running
    or its lock cannot be taken.
    """
    if proof.state == WAITING:
        raise ProofError(f"{proof.id} cannot be {done}: it waits in the queue; gputui queue rm {proof.id} takes it out")
    if (now := proof.liveness(proof.record)).engine:
        where = f" on {now.host}" if now.host else ""
        raise ProofError(f"{proof.id} cannot be {done}: it is running{where}; gputui proof {proof.id} --stop stops it")
    try:
        lock = locks.take(proof.path / PROOF_LOCK)
    except locks.Taken:
        raise ProofError(f"{proof.id} cannot be {done}: another gputui is using it") from None
    except OSError as fault:
        raise ProofError(f"{proof.id} cannot be locked: {fault.strerror or fault}") from None
    with lock:
        yield


def request_stop(proof: Proof, numbers: Sequence[int] = runs.ASKED_BY_PERSON) -> None:
    """Ask a running proof to stop after its present trial.

    `numbers` are the signals that are sent: the signals of a person, or the signal that a scheduler has sent. A second
    request by a person ends the proof at once. Raises ProofError if the proof is not running, runs on another machine,
    or its process cannot be verified.
    """
    record = proof.record
    now, process = proof.liveness(record), Process.read(vars(record))
    if record.state == WAITING:
        raise ProofError(f"{proof.id} waits in the queue; gputui queue rm {proof.id} takes it out")
    if now.host:
        raise ProofError(f"{proof.id} is running on {now.host}; stop it there: gputui proof {proof.id} --stop")
    if not now.engine or process is None:
        raise ProofError(f"{proof.id} is not running (it is {record.state or 'crashed'})")
    try:
        stop_signals.send(
            process,
            numbers,
            proof.path / "proof.json",
            lambda process: process.has_open(proof.path / PROOF_LOCK) or process.serves(proof.path),
        )
    except stop_signals.NotVerified as fault:
        raise ProofError(f"{proof.id}: {fault}: no signal is sent") from None
