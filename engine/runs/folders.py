"""Creates the folder of a run (completely or not at all), lists all runs, and finds a run by its short name or id."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..files import places, run_numbers
from ..files.places import runs_folder
from ..files.reading import why, written_at
from ..files.values import NO_NAME, harmless, nameable, plain
from ..files.writing import sync, write_atomically
from ..system import locks
from . import other_logs, run_cluster, titles
from .events import EVENTS_FILE
from .parsing import EventWriter
from .run import Run, RunError
from .run_cluster import FILE, Cluster

NAMED = 3  # runs in the message about an ambiguous name


def create(
    name: str,
    preset_yaml: str,
    origin: str = "",
    more: Mapping[str, str] | None = None,
    cluster: Cluster | None = None,
    path: Path | None = None,
) -> Run:
    """Create a run folder: its id has the time and `name`, in a `cluster` also the worker's number, unless `path` is
    the folder. `origin` is the text of origin.json, `more` those of others. Raises RunError and OSError.
    """
    folder = runs_folder()
    places.make(folder, exist_ok=True)
    if path is not None:
        run = create_at(path, preset_yaml, origin, more)
        _give_number(path)
        return run
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "run"
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}"
    if cluster is not None:
        more = {**(more or {}), FILE: cluster.as_file()}
        stem += "" if cluster.is_chief else f"-worker{cluster.index}"
    for number in range(1, 1000):
        path = folder / (stem if number == 1 else f"{stem}-{number}")
        if Run(path).queue_file.exists():  # a queued measurement has this id
            continue
        try:
            run = create_at(path, preset_yaml, origin, more)
        except FileExistsError:
            continue
        _give_number(path)
        return run
    raise RunError(f"cannot create a run folder in {folder}")


def create_at(path: Path, preset_yaml: str, origin: str = "", more: Mapping[str, str] | None = None) -> Run:
    """Only this user can read it. FileExistsError, RunError (a path TensorFlow cannot write to) or OSError."""
    if not nameable(str(path)):
        raise RunError(f"{path.parent} {NO_NAME}: TensorFlow cannot write there; set GPUTUI_HOME to another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = None
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        texts = {"preset.yaml": preset_yaml, **(more or {}), **({titles.FILE: origin} if origin else {})}
        for name, text in texts.items():
            write_atomically(draft / name, text)
        os.rename(draft, path)
    except OSError as fault:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        taken = fault.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        raise OSError(errno.EEXIST if taken else fault.errno, fault.strerror, str(path)) from None
    sync(path.parent)
    return Run(path)


def _give_number(path: Path) -> None:
    """None if the disk is full, or if another process holds the lock for a second."""
    with contextlib.suppress(OSError, locks.Taken), locks.take(run_numbers.file_of(path)) as lock:
        end = os.lseek(lock.fd, 0, os.SEEK_END)
        is_cut = end and os.pread(lock.fd, 1, end - 1) != b"\n"  # by a process that was killed
        line = b"\n" * bool(is_cut) + os.fsencode(path.name) + b"\n"
        written = 0
        try:
            written = os.write(lock.fd, line)
            os.fdatasync(lock.fd)
        finally:
            if written < len(line):
                os.ftruncate(lock.fd, end)


@dataclass(frozen=True)
class Survey:
    """All runs that can be read, the newest first. `closed` has the reason why a folder cannot be read, by the folder's
    name.
    """

    runs: list[Run]
    closed: Mapping[str, str]

    def __str__(self) -> str:
        if not self.closed:
            return ""
        name, reason = next(iter(self.closed.items()))
        more = f" and {len(self.closed) - 1} more" if len(self.closed) > 1 else ""
        return f"left out, as gputui cannot read it: {runs_folder() / name} ({reason}){more}"


def survey() -> Survey:
    """All runs in the folder of runs; folders that this user cannot read are in `closed`."""
    places.tighten(runs_folder())
    readable, closed = [], {}
    try:
        with os.scandir(runs_folder()) as entries:
            # A folder is hidden while it is created, and in the trash.
            folders = [entry.path for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return Survey([], {})
    except OSError as fault:
        return Survey([], {".": why(fault)})
    for folder in folders:  # plain texts, as there may be thousands of runs
        try:
            created = os.lstat(f"{folder}/preset.yaml").st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            closed[os.path.basename(folder)] = why(fault)
        else:
            readable.append((created, folder))
    return Survey([Run(Path(folder)) for _, folder in sorted(readable, reverse=True)], closed)


def all_runs() -> list[Run]:
    """Return all runs that can be read, the newest first."""
    return survey().runs


def find(text: str) -> Run:
    """The run whose short name (`r42`), name or id is `text`, whose id contains it, or else whose preset it is; for
    `latest` the newest, of several machines the chief's. RunError if none or several match.
    """
    if other_logs.is_path(text):
        return opened(Path(text))
    if (folder := run_numbers.named(text, runs_folder())) is not None:
        if text != folder.name and (runs_folder() / text).is_dir():
            raise RunError(f"{text} is the short name of {folder.name}, and another run's folder: rename that folder")
        return Run(folder)
    if deleted := run_numbers.first_name_of(text, runs_folder()):  # another run's id may contain `text`
        raise RunError(f"{text} ({deleted}) has been deleted; gputui runs lists the others")
    all_folders = survey()
    runs = all_folders.runs
    if text in all_folders.closed:
        raise RunError(f"{runs_folder() / text} cannot be read: {all_folders.closed[text]}")
    if not runs:
        none = f"there are no runs in {runs_folder()}; start one with gputui --preset quickstart"
        raise RunError(str(all_folders) or none)
    if not text:
        raise RunError("name a run, or latest; gputui runs lists them")
    if text == "latest":
        return run_cluster.local_chief(runs[0]) or runs[0]
    exact = [run for run in runs if run.id == text]
    matching = exact or [run for run in runs if text in run.id]
    if len(matching) != 1:
        matching = [run for run in runs if titles.title_of(run).preset == text] or matching
    if len(matching) == 1:
        return matching[0]
    if not matching:
        of_log = f", and ./{text} names a log" if Path(text).exists() else ""
        raise RunError(f"no run called {text!r}; gputui runs lists them{of_log}")
    named = ", ".join(run.id for run in matching[:NAMED]) + (" ..." if len(matching) > NAMED else "")
    raise RunError(f"{text!r} matches {len(matching)} runs ({named}); give more of the id")


def opened(path: Path) -> Run:
    """Return the run of a log of TensorBoard or CSVLogger, which is read anew if it has changed. Raises RunError."""
    log = other_logs.read(path)
    began, written = log.dated[0][0], max(file.stat().st_mtime for file in log.files)
    name, place = harmless(log.place.stem), hashlib.sha256(os.fsencode(log.place)).hexdigest()[:8]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "log"
    earlier = next(iter(runs_folder().glob(f"*-{place}")), None) if runs_folder().is_dir() else None
    run = Run(earlier or runs_folder() / f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(began))}-{slug}-{place}")
    if earlier is None:
        places.make(runs_folder(), exist_ok=True)
        about = f"schema_version: 1\ndescription: {json.dumps(f'Read from {harmless(str(log.place))}')}\n"
        create_at(run.path, about, titles.Origin(name).as_file())
        os.utime(run.file("preset.yaml"), (began, began))
        _give_number(run.path)
    elif written == written_at(run.file(EVENTS_FILE)):
        return run
    draft = run.file(f".{EVENTS_FILE}")
    draft.unlink(missing_ok=True)
    writer = EventWriter(draft, run.id)
    for t, event in log.dated:
        writer.emit(event, t)
    writer.close()
    write_atomically(run.file("result.json"), json.dumps(plain(log.summary), indent=1))
    os.utime(draft, (written, written))
    os.replace(draft, run.file(EVENTS_FILE))
    return run
