"""Prepares data: starts processes, gives each the next file, keeps the manifest, resumes after an interruption. One
worker first measures a sample, which shows the room that is needed and how many processes pay.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..files import writing
from ..interpreter import interpreter
from ..system import child_process, locks
from ..telemetry import resource_limits
from ..units import counted, size
from . import manifest as manifests
from . import request as requests
from .manifest import ARRAY_FILE, ARRAYS, PARTS, Manifest, Written, samples_per_shard, shards
from .request import PrepareError, Request

LOG, LOCK = "prepare.log", ".prepare.lock"
SAMPLE = 64  # samples that are measured first
AGAIN = "the same command goes on"


@dataclass(frozen=True)
class Progress:
    """How far the preparation is, in samples, files and broken samples."""

    samples: int
    all_samples: int
    files: int
    all_files: int
    broken: int


Listener = Callable[[Progress], None]


def prepare(request: Request, say: Callable[[str], None], listen: Listener) -> Manifest:
    """Prepare the data or go on with it, and return the complete manifest. `say` gets lines, `listen` the progress.
    Raises PrepareError, ManifestError, ExistsError, SaveError or OSError; an unused folder is removed.
    """
    folder, made = request.folder, False
    try:
        # What a killed process has left before its first manifest is taken over.
        left = {folder / LOCK, folder / LOG, *_drafts(folder)} if folder.is_dir() else None
        if not (folder / manifests.FILE).exists() and (left is None or set(folder.iterdir()) - left):
            writing.refuse_existing(folder)
            folder.mkdir(parents=True)
            made = True
        with locks.take(folder / LOCK):
            return _Preparation(request, say, listen).run()
    except locks.Taken:
        what = f"{folder} is being prepared by another process; wait for it, or name another folder"
        raise PrepareError(what) from None
    except BaseException as fault:
        if made and not (folder / manifests.FILE).exists() and not (isinstance(fault, PrepareError) and fault.began):
            with contextlib.suppress(OSError):
                for name in (LOCK, LOG):
                    (folder / name).unlink(missing_ok=True)
                folder.rmdir()
        if isinstance(fault, OSError) and (number := writing.refusal(fault)) is not None:
            full = f"{writing.describe(number, folder)}\n{writing.remedy(number)}, then {AGAIN}"
            raise PrepareError(full, began=True) from None
        raise


def estimate(request: Request) -> Estimate:
    """Return what a sample says about preparing. Nothing is left on the disk. Raises PrepareError or OSError."""
    above = next(folder for folder in (request.folder, *request.folder.parents) if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=".gputui-prepare-", dir=above) as folder:
        measuring = _Preparation(replace(request, folder=Path(folder)), lambda _line: None, lambda _progress: None)
        return measuring.estimated()


def _drafts(folder: Path) -> list[Path]:
    names = (manifests.FILE, requests.READER, requests.PRESET)
    return [draft for name in names for draft in writing.drafts(folder / name)]


def _remove_drafts(folder: Path) -> None:
    for path in (*folder.glob(".*.part"), *_drafts(folder)):
        path.unlink(missing_ok=True)


class _Preparation:
    def __init__(self, request: Request, say: Callable[[str], None], listen: Listener) -> None:
        self.request, self.folder, self._say, self._listen = request, request.folder, say, listen
        self._workers: list[Worker] = []
        self._python = interpreter.chosen(request.preset.options.run.python)
        self._at: dict[Worker, int] = {}  # samples of the present file that were read

    def run(self) -> Manifest:
        before = manifests.read(self.folder)
        if before is not None:
            if differences := self.request.differences(before):
                raise PrepareError(
                    f"{self.folder} was begun with other settings: {'; '.join(differences[:3])}\n"
                    "give the same ones to go on, or name another folder"
                )
            if before.complete:
                self._say(f"all was complete; the hashes of {size(before.bytes)} are checked")
            before = manifests.checked(before, self.folder, whole=before.complete)
            if before.complete:
                return before
        _remove_drafts(self.folder)
        (self.folder / LOG).unlink(missing_ok=True)
        try:
            self._say("TensorFlow starts, and the data is opened")
            manifest, estimate = self._opened(before)
            if before is not None:
                done = len(manifest.written)
                self._say(f"goes on: {done} of {counted(manifest.files, 'files')} are complete")
            if manifest.data.get("shuffle_left_out"):
                self._say("the shuffle of your data is left out: shuffle the prepared samples in the training")
            manifest.write(self.folder)
            for _ in range(estimate.workers - len(self._workers)):
                self._workers.append(Worker(self._python, self.request.for_worker(), self.folder / LOG))
            manifest = self._write_files(manifest)
            if not manifest.samples:
                what = "none of the samples can be read; the manifest names them with the reasons"
                raise PrepareError(what, began=True)
            if manifest.format == ARRAYS:  # the files of samples become one file of arrays
                if manifest.output is None:
                    self._say(f"joins {counted(len(manifest.written), 'files')} into {ARRAY_FILE}")
                    given = {name: manifest.data[name] for name in ("shape", "dtype", "test")}
                    files = [
                        {"file": each.file, "part": each.part, "samples": each.samples} for each in manifest.written
                    ]
                    joined = self._answer(self._workers[0], {"join": given | {"files": files}})
                    manifest = replace(manifest, output=joined["output"])
                    manifest.write(self.folder)
                for each in manifest.written:
                    (self.folder / each.file).unlink(missing_ok=True)
            requests.write(manifest, self.request)
            manifest = replace(manifest, complete=True)
            manifest.write(self.folder)
            (self.folder / LOG).unlink(missing_ok=True)
            return manifest
        finally:
            self._end_workers()
            _remove_drafts(self.folder)

    def estimated(self) -> Estimate:
        try:
            opened = self._started()
            measured = self._answer(self._workers[0], {"measure": SAMPLE, "reads": True})["measured"]
            samples = sum(int(opened["facts"][part]) for part in PARTS)
            return estimate_from(measured, samples, self.request, bool(opened["one_process"]), self.folder)
        finally:
            self._end_workers()

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.end()

    def _opened(self, before: Manifest | None) -> tuple[Manifest, Estimate]:
        opened = self._started()
        facts, measured = opened["facts"], self._answer(self._workers[0], {"measure": SAMPLE})["measured"]
        if before is None:
            counts = {part: int(facts[part]) for part in PARTS}
            per_shard = samples_per_shard(counts, measured["bytes"], self.request.shards)
            before = Manifest(self.request.settings(), facts, per_shard, len(shards(counts, per_shard)))
        elif before.data["stamp"] != facts["stamp"] or before.counts != {part: facts[part] for part in PARTS}:
            raise PrepareError(
                f"the data have changed since {self.folder} was begun, or come in another order\n"
                "remove the folder, or name another one"
            )
        left = sum(shard.samples for shard in before.missing)
        estimate = estimate_from(measured, left, self.request, bool(opened["one_process"]), self.folder)
        if estimate.bytes > estimate.free_bytes:
            raise PrepareError(
                f"{counted(left, 'samples')} take about {size(estimate.bytes)} in {self.folder}, and "
                f"{size(estimate.free_bytes)} are free there\nfree some space, name a folder on another disk, or lower "
                "--size, --dtype or --limit"
            )
        return before, estimate

    def _started(self) -> dict[str, Any]:
        worker = Worker(self._python, self.request.for_worker(), self.folder / LOG)
        self._workers.append(worker)
        return self._answer(worker)

    def _answer(self, worker: Worker, command: dict[str, Any] | None = None) -> dict[str, Any]:
        if command is not None:
            worker.send(command)
        try:
            return _good(worker.answer())
        except WorkerEnded as fault:
            raise PrepareError(f"{fault}\n{self.folder / LOG} has its whole output", began=True) from None

    def _write_files(self, manifest: Manifest) -> Manifest:
        missing = manifest.missing[::-1]
        busy = 0

        def give(worker: Worker) -> int:
            self._at[worker] = 0
            if missing:
                worker.send({"shard": asdict(missing.pop())})
                return 1
            return 0

        busy += give(self._workers[0])
        try:
            for worker, answer in answered(self._workers) if busy else ():
                _good(answer)
                if "at" in answer:
                    self._at[worker] = int(answer["at"])
                elif "facts" in answer:
                    if answer["facts"]["stamp"] != manifest.data["stamp"]:
                        raise PrepareError(
                            "the data change while they are prepared; run the command again when nothing changes them"
                        )
                    busy += give(worker)
                else:
                    broken = [manifests.Broken(**each) for each in answer["written"]["broken"]]
                    files = [*manifest.written, Written(**answer["written"] | {"broken": broken})]
                    manifest = replace(manifest, written=sorted(files, key=lambda each: each.number))
                    manifest.write(self.folder)
                    busy += give(worker) - 1
                read = sum(each.samples + len(each.broken) for each in manifest.written) + sum(self._at.values())
                everything, done = sum(manifest.counts.values()), len(manifest.written)
                self._listen(Progress(min(read, everything), everything, done, manifest.files, len(manifest.broken)))
                if not busy:
                    break
        except WorkerEnded as fault:
            raise PrepareError(f"{fault}\n{AGAIN}; {self.folder / LOG} has its whole output", began=True) from None
        return manifest


def _good(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise PrepareError("\n".join(filter(None, (answer["error"], answer["hint"]))))
    if "disk" in answer:
        raise PrepareError(f"{answer['disk']}\n{answer['remedy']}, then {AGAIN}", began=True)
    return answer


MODULE = "gputui.engine.trainer.prepare"
_BLOCK = 65536


class WorkerEnded(Exception):
    """A process has ended without an answer. The text says how, with the last line of its log."""


class Worker:
    """A process that reads and writes samples (trainer/prepare/), with JSON answers. It ends with this one, killed by
    Linux's kernel, elsewhere by the end of its input.
    """

    def __init__(self, python: str, request: Mapping[str, Any], log: Path) -> None:
        """Start the process, and send it the request. Raises OSError if it cannot be started."""
        self.log = log
        with log.open("ab") as stream:
            self.process = child_process.start(
                interpreter.command(python, MODULE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=interpreter.environment(python),
                start_new_session=True,  # Ctrl-C is for the command alone
                bufsize=0,
            )
        self._rest = b""
        self.send(request)

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is noticed when it is read
            self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the answers that have come; waits until there is something to read. Raises WorkerEnded."""
        block = os.read(self.fileno(), _BLOCK)
        if not block:
            code = self.process.wait()
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with return code {code}"
            with contextlib.suppress(OSError):
                lines = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
                if code >= 0 and lines:
                    how += f": {lines[-1][:160]}"
            raise WorkerEnded(f"a process that prepares the data {how}")
        *whole, self._rest = (self._rest + block).split(b"\n")
        yield from map(json.loads, whole)

    def answer(self) -> dict[str, Any]:
        while True:
            for answer in self.answers():
                return answer

    def end(self) -> None:
        """End the process at once, and wait for its end. What it was writing is lost."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def answered(workers: Sequence[Worker]) -> Iterator[tuple[Worker, dict[str, Any]]]:
    """Yield the answers of the workers as they come, for ever. Raises WorkerEnded if one ends."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.fileno(), selectors.EVENT_READ, worker)
        while True:
            for key, _ in selector.select():
                for answer in key.data.answers():
                    yield key.data, answer


SECONDS_FOR_A_WORKER = 20.0  # of work for each process: TensorFlow's start takes about 5 s of a CPU
LEAST_SAVED = 0.2  # of the time to read and decode: repeated measurements differ by a tenth
ROOM = 1.02  # times the expected size, for the manifest and the file system's own blocks


@dataclass(frozen=True)
class Estimate:
    """The estimate for `left` samples, from `sample` measured ones. `load_seconds` is the time to read and decode one
    for the first time; CPU times for one in memory are `prepare_seconds`, and in tf.data `again_seconds` (decoding) and
    `read_seconds` (prepared). With `workers` processes all take `seconds`.
    """

    sample: int
    broken: int
    load_seconds: float
    prepare_seconds: float | None
    again_seconds: float | None
    read_seconds: float | None
    workers: int
    seconds: float
    left: int
    bytes: float
    free_bytes: int

    @property
    def passes(self) -> int | None:
        """The passes after which the saved CPU time is that of preparing, None if unknown or below LEAST_SAVED."""
        if self.again_seconds is None or self.read_seconds is None or self.prepare_seconds is None:
            return None
        saved = self.again_seconds - self.read_seconds
        return math.ceil(self.prepare_seconds / saved) if saved > LEAST_SAVED * self.again_seconds else None


def estimate_from(
    measured: Mapping[str, Any], left: int, request: Request, one_process: bool, folder: Path
) -> Estimate:
    """Return the estimate from what a worker has measured; `one_process`: several cannot read the data."""
    seconds = left * measured["load_seconds"]  # of one process
    cpus = resource_limits.usable_cpus()
    workers = request.workers or min(cpus, max(1, int(seconds / SECONDS_FOR_A_WORKER)))
    workers = 1 if one_process else workers
    return Estimate(
        measured["samples"],
        measured["broken"],
        measured["load_seconds"],
        measured.get("prepare_seconds"),
        measured.get("again_seconds"),
        measured.get("read_seconds"),
        workers,
        seconds / min(workers, cpus),
        left,
        ROOM * left * measured["bytes"] * (2 if request.format == ARRAYS else 1),
        shutil.disk_usage(folder).free,
    )
