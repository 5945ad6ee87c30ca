"""The proof folder: create, start, list, find, stop. `proofs/<id>/` has `request.json`, `proof.json` and `proof.log`
(of the proof's process), and `trials/` with run folders, which the list of runs does not show.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import runs
from ..files import places, typed
from ..files.places import QUEUE, TRIALS
from ..files.places import proofs_folder as proofs_folder
from ..files.values import LATEST_T
from ..files.writing import write_atomically
from ..leases.gpu_use import Devices, lease_devices
from ..leases.records import NotFree
from ..options import Options
from ..presets import PresetError
from ..process.spawn import LOCK
from ..runs import Run, events
from ..runs.run import FRESH_SECONDS, PROOF, STARTING_SECONDS, WAITING, Liveness, Queued
from ..system import child_process, locks, stop_signals
from ..system.identity import Place, Process
from ..system.locks import PROOF_LOCK
from ..trials.kinds import MAKERS, kind
from ..trials.record import UNREAD, Record
from ..trials.record import place as number_of
from .request import ProofError, Request


@dataclass(frozen=True)
class Proof:
    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def record(self) -> Record:
        """The content of proof.json or UNREAD; `waiting` in the queue, `crashed` if its process is gone."""
        record = read_record(self.path)
        if not 0 <= record.started_t <= LATEST_T or record.repeats < 0:
            return UNREAD
        if os.path.exists(self.queue_file):  # one call of `stat` for a proof that is not queued
            entry = typed.read_usable(self.queue_file, Queued)
            waits = entry.kind == PROOF and entry.state != "running"
            if waits and not locks.held(self.path / PROOF_LOCK):
                return replace(record, state=WAITING)
        ended = record.state == "running" and not self.liveness(record).engine
        return replace(record, state="crashed") if ended else record

    @property
    def queue_file(self) -> Path:
        return self.path.parent.parent / QUEUE / f"{self.id}.json"

    @property
    def data(self) -> dict[str, Any]:
        """The content of proof.json as `--json` prints it, with the state of `record`. Empty if it cannot be read."""
        record = self.record
        if not record.is_read:
            return {}
        content = events.plain(asdict(record))
        return {name: value for name, value in content.items() if name != "path"}

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
        names = sorted(os.listdir(folder), key=number_of) if folder.is_dir() else []
        return [Run(folder / name) for name in names if not name.startswith(".")]  # complete folders

    def liveness(self, record: Record) -> Liveness:
        """Return which processes of the proof are alive, and the name of another machine that it runs on."""
        fields = vars(record)
        held, place, process = locks.held(self.path / PROOF_LOCK), Place.read(fields), Process.read(fields)
        if place is not None and not place.is_here:
            is_fresh = abs(time.time() - record.started_t - record.seconds) < FRESH_SECONDS
            is_gone = place.shares_kernel and held is False
            alive = held or (not is_gone and (is_fresh or any(run.liveness.host for run in self.trials[-1:])))
            return Liveness(engine=True, host=place.name) if alive else Liveness()
        if held is None:
            age = time.time() - record.started_t
            is_starting = record.state == "running" and 0 <= age < STARTING_SECONDS
            held = process.alive() if process else is_starting
        return Liveness(engine=held, starting=held and process is None)


def read_record(path: Path) -> Record:
    """Return the record in the proof.json of the folder `path`. UNREAD if it cannot be read."""
    file = path / "proof.json"
    return typed.read(file, Record, path=file).value or UNREAD


def create(request: Request, doing: str = "starting") -> Proof:
    """Create a proof folder, whose name is the proof's id. Raises ProofError if no name is free, and OSError."""
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
    """Create a proof and start its process. The folder is deleted again if ProofError is raised."""
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
    """Lease the devices (`among` names those that the queue allows), and start the proof's process in a session of its
    own. Raises NotFree with `among`, else ProofError, if they are not free, locks.Taken if the proof runs, and OSError.
    """
    request = proof.request
    with locks.take(proof.path / PROOF_LOCK) as lock, _leased(request, among) as devices:
        of_process = {LOCK: str(lock.fd)} | devices.environment
        process = child_process.start_session(
            proof.path / "proof.log",
            "gputui.engine.proof",
            str(proof.path),
            env={**(os.environ if environment is None else environment)} | of_process,
            pass_fds=[lock.fd, *devices.fds],
            cwd=directory,
        )
        devices.hand_over(process.pid, str(proof.path))
        return process


def _leased(request: Request, among: Collection[str] | None) -> Devices:
    options = None
    if request.sweep is None:  # the queue leases the devices of its trials
        with contextlib.suppress(PresetError):  # the proof's process reports it
            options = request.baseline().options
    if options is None:
        return Devices(Options(), ())
    try:
        every = kind(request.kind).uses_all_gpus
        return lease_devices(options, request.preset_name, among=among, all_visible=every)
    except NotFree as fault:
        if among is not None:
            raise
        raise ProofError(str(fault)) from None


def proofs() -> list[Proof]:
    begun: dict[Proof, float] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in proofs_folder().iterdir():
            if not path.name.startswith("."):  # not if deleted
                with contextlib.suppress(OSError):  # a folder that is not a proof
                    begun[Proof(path)] = (path / "request.json").lstat().st_mtime
    return sorted(begun, key=lambda proof: (begun[proof], proof.id), reverse=True)


def find(text: str) -> Proof:
    """Return the proof of an id, a part that no other id has, or `latest`. Raises ProofError."""
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
    """Hold the lock of a proof that is to be `done` (`queued`), so that nobody starts it. Raises ProofError."""
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
    """Ask a proof to stop after its present trial, by a person's signals or that of a scheduler; a second one of a
    person ends it at once. Raises ProofError if it does not run here or cannot be verified.
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
