"""The run folder: create, list, follow, status, stop.

Separates what a run is on disk from the processes that make it. Each file has one writer (preset.yaml
the launcher; events.jsonl the trainer; telemetry.jsonl and status.json the engine; result.json the trainer, or
the engine when the trainer could not). Everything a viewer knows of a run it reads here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..files import private
from ..files.reading import open_regular, why
from ..files.shapes import Form, form_of
from ..files.values import NO_NAME, nameable
from ..files.writing import sync, write_atomically
from ..system import locks, signalling
from ..system.identity import Process
from ..system.locks import ENGINE_LOCK, Lock
from . import life, outage
from .events import OUTCOMES, Summary, Warn, parse_line
from .life import Life
from .outage import Silence
from .reading import EVENT_FILES, Damage, Object, in_time, read_object
from .reading import Tail as Tail

STARTING_SECONDS = 15.0  # where no lock can say that a run starts
LAST_BYTES = 16384
GOES_ON = ("running", "starting", "stopping")
_STATUS = Form({
    "phase": str, "host": str, "boot_id": str, "pid_namespace": str,
    "engine_pid": int, "engine_start_ticks": int, "trainer_pid": int, "trainer_start_ticks": int,
})


class RunError(Exception):
    """A run that cannot be found or used; the text says what to do."""


def home() -> Path:
    """$GPUTUI_HOME, or the user's state folder."""
    given = os.environ.get("GPUTUI_HOME")
    if given:
        return Path(given).expanduser().absolute()  # engine and trainer may have another current folder
    import platformdirs  # 25 ms that neither engine nor trainer need

    return platformdirs.user_state_path("gputui")


def runs_folder() -> Path:
    return home() / "runs"


@dataclass(frozen=True)
class Run:
    """A run folder; every property reads the disk anew."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def status(self) -> Mapping[str, Any]:
        return self._status().value

    @property
    def result(self) -> Mapping[str, Any] | None:
        return self._result().value or None

    @property
    def damage(self) -> list[str]:
        """What of its status and result cannot be used, a sentence each."""
        return [found.damage for found in (self._status(), self._result()) if found.damage]

    def _status(self) -> Object:
        return read_object(self.file("status.json"), _STATUS)

    def _result(self) -> Object:
        """A result without an outcome is none."""
        found = read_object(self.file("result.json"), form_of(Summary))
        if found.value and found.value.get("outcome") not in OUTCOMES:
            return Object({}, found.damage or "result.json is damaged, left out")
        return found

    def process(self, role: str) -> Process | None:
        """The `engine` or `trainer` of the run, if it has been started."""
        return Process.read(self.status, role)

    @property
    def life(self) -> Life:
        """What of the run lives, and where."""
        return life.look(self.path, self.status)

    def alive(self, role: str) -> bool:
        return bool(getattr(self.life, role))

    @property
    def state(self) -> str:
        """An outcome, or `running`, `starting`, `stopping` (the engine is gone, the trainer ends itself)."""
        return self.state_of(self.life)

    def state_of(self, now: Life) -> str:
        """The state, where it is known what of the run lives."""
        if now.engine:
            return "starting" if now.starting else "running"
        if now.trainer:
            return "stopping"
        result = self.result
        if result is not None:
            return str(result.get("outcome"))
        # Where there is a lock, and nobody holds it, nothing starts.
        known = bool(self.status) or locks.held(self.file(ENGINE_LOCK)) is not None
        return "starting" if not known and 0 <= time.time() - self._created() < STARTING_SECONDS else "crashed"

    def _created(self) -> float:
        try:
            return self.file("preset.yaml").stat().st_mtime
        except OSError:
            return 0.0

    def last_date(self) -> float:
        """The Unix time of its newest event; 0 where there is none."""
        found = [event["t"] for name in EVENT_FILES for event in self._last_events(name)]
        return max(map(float, found), default=0.0)

    def _last_events(self, name: str) -> list[dict[str, Any]]:
        try:
            with open_regular(self.file(name)) as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - LAST_BYTES))
                lines = stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [event for line in lines if (event := parse_line(line)) is not None]

    def log_tail(self, lines: int = 20) -> list[str]:
        """The last lines of engine.log, at most 64 kB of them."""
        try:
            with open_regular(self.file("engine.log")) as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(0, stream.tell() - 65536))
                return stream.read().decode("utf-8", "replace").splitlines()[-lines:]
        except OSError:
            return []


def create(name: str, preset_yaml: str) -> Run:
    """A new run folder holding its preset; the id tells when and what."""
    folder = runs_folder()
    private.make(folder, exist_ok=True)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "run"
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}"
    for number in range(1, 1000):
        try:
            return create_at(folder / (stem if number == 1 else f"{stem}-{number}"), preset_yaml)
        except FileExistsError:
            continue
    raise RunError(f"cannot make a run folder in {folder}")


def create_at(path: Path, preset_yaml: str) -> Run:
    """A run folder with its preset, or none; raises OSError, FileExistsError where there is something already.

    It is this user's alone.
    """
    if not nameable(str(path)):
        raise RunError(f"{path.parent} {NO_NAME}: TensorFlow cannot write there; set GPUTUI_HOME to another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = None
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        write_atomically(draft / "preset.yaml", preset_yaml)
        os.rename(draft, path)
    except OSError as fault:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        taken = fault.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        raise OSError(errno.EEXIST if taken else fault.errno, fault.strerror, str(path)) from None
    sync(path.parent)
    return Run(path)


@dataclass(frozen=True)
class Survey:
    """All runs, the latest first, and why each other folder among them cannot be looked into, by its name."""

    runs: list[Run]
    closed: Mapping[str, str]

    def __str__(self) -> str:
        """The folders that are left out, in one line; nothing where there are none."""
        if not self.closed:
            return ""
        name, reason = next(iter(self.closed.items()))
        more = f" and {len(self.closed) - 1} more" if len(self.closed) > 1 else ""
        return f"left out, as gputui cannot look into it: {runs_folder() / name} ({reason}){more}"


def survey() -> Survey:
    """All that lies in the folder of runs; a folder that is closed to this user hides no other."""
    private.tighten(runs_folder())
    try:
        found = [Run(path) for path in runs_folder().iterdir() if not path.name.startswith(".")]  # those are being made
    except (FileNotFoundError, NotADirectoryError):
        return Survey([], {})
    except OSError as fault:
        return Survey([], {".": why(fault)})
    open_ones, closed = [], {}
    for run in found:
        try:
            created = run.file("preset.yaml").lstat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            closed[run.id] = why(fault)
        else:
            open_ones.append((created, run.id, run))
    return Survey([run for *_, run in sorted(open_ones, key=lambda one: one[:2], reverse=True)], closed)


def all_runs() -> list[Run]:
    """All runs that can be looked into, the latest first."""
    return survey().runs


def find(text: str) -> Run:
    """A run by id, by an unambiguous part of it, or `latest`; raises RunError."""
    found = survey()
    runs = found.runs
    if text in found.closed:
        raise RunError(f"{runs_folder() / text} cannot be looked into: {found.closed[text]}")
    if not runs:
        raise RunError(f"there are no runs in {runs_folder()}; start one with gputui --preset quickstart")
    if not text:
        raise RunError("name a run, or latest; gputui runs lists them")
    if text == "latest":
        return runs[0]
    exact = [run for run in runs if run.id == text]
    matching = exact or [run for run in runs if text in run.id]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise RunError(f"no run called {text!r}; gputui runs lists them")
    raise RunError(f"{text!r} fits {len(matching)} runs ({', '.join(r.id for r in matching[:3])} ...); give more of it")


def request_stop(run: Run) -> None:
    """Ask a run to stop gracefully (a second time: at once); raises RunError when it does not run here."""
    now = run.life
    refuse_elsewhere(run, now, "stop")
    for role in ("engine", "trainer"):
        process = run.process(role)
        if getattr(now, role) and process is not None and not now.starting:
            signal_process(run, role, process)
            return
    raise RunError(f"{run.id} is not running (it is {run.state_of(now)})")


def signal_process(run: Run, role: str, process: Process, number: int = signal.SIGTERM) -> None:
    """Send a signal to the engine or trainer of a run, once verified to be that; raises RunError."""
    holds = run.file(ENGINE_LOCK if role == "engine" else "events.jsonl")
    try:
        signalling.send(
            process, number, run.file("status.json"), lambda found: found.has_open(holds) or found.serves(run.path)
        )
    except signalling.NotVerified as fault:
        raise RunError(f"{run.id}: {fault}: no signal is sent") from None


def refuse_elsewhere(run: Run, now: Life, verb: str) -> None:
    """Raises RunError for a run that lives on another machine, where alone something can be done with it."""
    if now.host:
        raise RunError(f"{run.id} is running on {now.host}; {verb} it there: gputui {verb} {run.id}")


@contextlib.contextmanager
def reserved(run: Run, verb: str) -> Iterator[Lock]:
    """The lock of a run that does not live, so that nobody else begins anything with it; raises RunError."""
    now = life.look_closely(run.path, lambda: run.status)
    refuse_elsewhere(run, now, verb)
    if (state := run.state_of(now)) in GOES_ON:
        raise RunError(f"{run.id} cannot be {verb}d: it is {state}; stop it before {verb[:-1]}ing it")
    try:
        lock = locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"{run.id} cannot be {verb}d: it is running, or another gputui is at it") from None
    except OSError as fault:
        raise RunError(f"{run.id} cannot be locked: {fault.strerror or fault}: {fault.filename}") from None
    with lock:
        if run.life.trainer:
            raise RunError(f"{run.id} cannot be {verb}d: its trainer has not ended yet")
        yield lock


def delete(run: Run) -> None:
    """Remove a run's folder and all that is in it; raises RunError for one that goes on."""
    hidden = run.path.with_name(f".{run.id}.deleted-{os.getpid()}")
    try:
        with reserved(run, "delete"):
            run.path.rename(hidden)  # a file that is open cannot be deleted on every network file system
        shutil.rmtree(hidden)
    except OSError as fault:
        with contextlib.suppress(OSError):
            hidden.rename(run.path)
        raise RunError(f"{run.id} cannot be deleted: {fault.strerror or fault}: {fault.filename}") from None


class Follower:
    """A run's events of both files, merged by time; `finished` is held back until nothing follows it.

    A resumed run has several `finished`; only one that nobody is alive to follow up ends the following.
    """

    def __init__(self, run: Run, from_now: bool = False) -> None:
        self._run = run
        self._tails = [Tail(run.file(name), from_now) for name in EVENT_FILES]
        self._damage_told: set[Damage] = set()
        self._silence = Silence(run.path)
        self._finished: dict[str, Any] | None = None
        self.ended = False

    def poll(self) -> list[dict[str, Any]]:
        """The events since the last poll; sets `ended` with the last of them."""
        alive = self._run.alive("engine") or self._run.alive("trainer")
        fresh = in_time(event for tail in self._tails for event in tail.read())
        news = self._new_damage()
        for event in fresh:
            if event["type"] == "finished":
                self._finished = event
            else:
                if event["type"] == "started":
                    self._finished = None
                news.append(event)
        if alive and (silent := self._silence.look(bool(fresh))):
            news.append(self._warning("disk", silent))
        if not alive and not fresh and self._run.state != "starting":
            self.ended = True
            news.append(self._finished or self._lost())
        return news

    def _new_damage(self) -> list[dict[str, Any]]:
        """A warning for each file that is found not to be whole, once."""
        found = [damage for tail in self._tails for damage in tail.damages if damage not in self._damage_told]
        found = [damage for damage in found if str(damage)]
        self._damage_told.update(found)
        return [self._warning("damaged_file", str(damage)) for damage in found]

    def _warning(self, kind: str, message: str) -> dict[str, Any]:
        """What the viewer itself has to say."""
        head = {"t": time.time(), "type": Warn.type, "run": self._run.id}
        return head | asdict(Warn(kind=kind, message=message))

    def _lost(self) -> dict[str, Any]:
        told = self._run.result
        summary = told or {"outcome": "crashed", "error": outage.lost(self._run.path, self._run.log_tail())}
        head = {"t": time.time(), "type": "finished", "run": self._run.id}
        return head | {"outcome": summary.get("outcome"), "summary": summary}


def follow(run: Run, interval_seconds: float = 0.1) -> Iterator[dict[str, Any]]:
    """All events of a run, past and coming, until it has ended."""
    follower = Follower(run)
    while not follower.ended:
        yield from follower.poll()
        if not follower.ended:
            time.sleep(interval_seconds)
