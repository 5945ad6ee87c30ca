"""What is said and done about a run by what lies in its folder: its state, and stop, resume and rm by the command.

Each line names what a folder has; everything else is as of a run that has a checkpoint and was started a day ago.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from tests.contract.conftest import Answer
from tests.doors.engine import (
    ENGINE_LOCK,
    EVENTS_FILE,
    TELEMETRY_FILE,
    Cluster,
    Lock,
    Process,
    Run,
    launch,
    located_yaml,
    locks,
    presets,
    run_cluster,
    runs,
    stop_signals,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import run as run_module
from tests.doors.tui import tui_cli as cli
from tests.support.queued import no_runner

NOW = 1_790_000_000.0
DAY = 86_400.0
HERE = Place("box", "boot-1", "pid:[1]")
PLACES = {
    "here": HERE,
    "restarted": replace(HERE, boot_id="boot-0"),
    "container": replace(HERE, pid_namespace="pid:[2]"),
    "elsewhere": Place("node-b", "boot-7", "pid:[1]"),
}


def whole(is_worker: bool) -> None:
    """A run that has a checkpoint."""
    preset = presets.resolve("quickstart", ["run.checkpoint=epoch", "epochs=3", "visible=none"])
    joins = Cluster(("a:1", "b:1"), 1, "--cluster") if is_worker else None
    run = launch.create(launch.settle(preset, Path("/")), joins=joins)
    saved = run.file("checkpoints/step-0000000100")
    saved.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00002", "state.data-00001-of-00002"):
        (saved / name).write_text("x")
    run.file(ENGINE_LOCK).touch()


class Folder:
    """The folder of a run, as the words of a case say."""

    def __init__(self, run: Run, words: Sequence[str]) -> None:
        self.run, self.created, self.held, self.files = run, NOW - DAY, list[Lock](), list[IO[str]]()
        self.locks, self.beats = True, False
        for word in words:
            self.has(*word.partition("=")[::2])
        os.utime(self.run.file("preset.yaml"), (self.created, self.created))
        run_module._seen.clear()

    def has(self, what: str, value: str) -> None:
        run = self.run
        if what == "age":
            self.created = NOW - float(value)
        elif what == "locks":
            self.locks = False
        elif what == "beats":
            self.beats = True
        elif what == "lock":
            run.file(ENGINE_LOCK).unlink()
            if value == "held":
                self.held.append(locks.take(run.file(ENGINE_LOCK)))
            elif value == "folder":
                run.file(ENGINE_LOCK).mkdir()
        elif what == "status":
            place, *more = value.split(",")
            status: dict[str, Any] = {"phase": "training", "heartbeat": NOW - 5}
            status |= PLACES[place].as_fields() if place in PLACES else {}
            for each in more:
                name, _, fact = each.partition(":")
                if name in ("engine", "trainer"):
                    alive = Process(os.getpid(), Process.of(os.getpid()).start_ticks + (fact == "other"), None)
                    process = Process(2**22 + 7, 9, None) if fact == "dead" else alive
                    status |= process.as_fields(name)
                else:
                    status[name] = NOW - float(fact) if name == "heartbeat" else fact
            run.file("status.json").write_text(json.dumps(status))
        elif what == "opens":  # this process has the file open, as one that is at work has
            self.files.append(run.file(value).open("a"))
        elif what == "result":
            run.file("result.json").write_text(json.dumps({"outcome": value, "steps": 7}))
        elif what in ("end", "told"):  # by the trainer, by the engine
            outcome, _, ago = value.partition(",")
            line = {"t": NOW - float(ago), "type": "finished", "run": run.id, "outcome": outcome}
            with run.file(EVENTS_FILE if what == "end" else TELEMETRY_FILE).open("a") as stream:
                stream.write(json.dumps(line | {"summary": {"outcome": outcome, "steps": 5}}) + "\n")
        elif what == "more":
            with run.file(EVENTS_FILE).open("a") as stream:
                stream.write(f'{{"t":{NOW - float(value)},"type":"phase","run":"x","phase":"starting","detail":""}}\n')
        elif what == "text":
            name, _, text = value.partition(",")
            run.file(name).write_text(text)
        elif what == "folder":
            run.file(value).unlink(missing_ok=True)
            run.file(value).mkdir()
        elif what == "without":
            shutil.rmtree(run.file(value)) if run.file(value).is_dir() else run.file(value).unlink()
        elif what == "queue":
            run.queue_file.parent.mkdir(exist_ok=True)
            state, _, kind = value.partition(",")
            entry = {"run": run.id, "place": 1.0, "state": state, "kind": kind or "run"}
            run.queue_file.write_text(json.dumps(entry))
        else:
            assert what == "worker"

    def close(self) -> None:
        for stream in self.files:
            stream.close()
        for lock in self.held:
            lock.release()


@pytest.fixture
def played_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Sequence[str]], Folder]]:
    made: list[Folder] = []
    slept = [0.0]

    def send(process: Process, numbers: Sequence[int], named_by: Path, is_at_work: Callable[[Process], bool]) -> None:
        assert (process.pid, named_by.name) == (os.getpid(), "status.json")
        if not is_at_work(process):
            raise stop_signals.NotVerified("this process does not belong to it")
        print(f"gets {' and '.join(signal.Signals(number).name for number in numbers)}")

    def spawn(run: Run, lock: Lock, clock: Any, devices: Any, joins: Any = None) -> Any:
        assert lock.works is not (locks.held(run.file(ENGINE_LOCK)) is None)
        devices.release()
        files = (path.name for path in sorted(run.path.glob("*.json")) if path.name.startswith(("status", "result")))
        print(f"engine on {', '.join(files)}, phase {run.status.get('phase')}, after {NOW - clock.date:.0f} s")
        return SimpleNamespace(pid=1, poll=lambda: None)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if made[0].beats:
            status = dict(made[0].run.status)
            made[0].run.file("status.json").write_text(
                json.dumps(status | {"heartbeat": status["heartbeat"] + seconds})
            )

    def flock(descriptor: int, how: int, lock: Callable[[int, int], None] = fcntl.flock) -> None:
        if made and not made[0].locks:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        lock(descriptor, how)

    def make(words: Sequence[str]) -> Folder:
        if made:
            made.pop().close()
        shutil.rmtree(home, ignore_errors=True)
        template = home.with_name(f"template-{'worker' in words}")
        if template.exists():
            shutil.copytree(template, home)
        else:
            whole("worker" in words)
            shutil.copytree(home, template)
        made.append(Folder(runs.all_runs()[0], words))
        return made[0]

    monkeypatch.setattr(located_yaml, "parse", functools.cache(located_yaml.parse))
    monkeypatch.setattr(Place, "here", lambda: HERE)
    monkeypatch.setattr(stop_signals, "send", send)
    monkeypatch.setattr(launch, "spawn", spawn)
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(fcntl, "flock", flock)
    no_runner(monkeypatch)
    yield make
    if made:
        made.pop().close()


def test_what_is_said_and_done_by_what_lies_in_the_folder_of_a_run(
    played: Callable[[str, Answer], None],
    played_folder: Callable[[Sequence[str]], Folder],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def content(folder: Path) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def command(case: Folder, *words: str) -> str:
        before = content(case.run.path)
        code = cli.run(words)
        assert code == 0 or case.beats or content(case.run.path) == before, "what is refused changes nothing"
        out, err = capsys.readouterr()
        text = " / ".join((out + err).splitlines()).replace(str(case.run.path), "RUN").replace(case.run.id, "ID")
        return f"{words[0]} {code}: {re.sub(r': [0-9.]+ KiB are free', '', text)}"

    def said(facts: Sequence[str]) -> Iterator[str]:
        run = played_folder(facts).run
        assert cli.run(("runs", "--json")) == 0
        row, now = json.loads(capsys.readouterr().out), run.liveness
        assert (row["state"], row["host"] or "") == (run_module.STATE_LABELS.get(run.state, run.state), now.host)
        alive = [name for name in ("engine", "trainer", "starting") if getattr(now, name)]
        about = [f"alive {name}" for name in alive] + ["not saved"] * (not run_cluster.is_saved(run)) + run.damage
        about += [f"result {dict(run.result)}"] if run.result else []
        yield ", ".join([run.state + f" on {now.host}" * bool(now.host), *about])
        for words in (("stop", "latest"), ("resume", "latest", "--detach"), ("runs", "rm", "r1", "--yes")):
            yield command(played_folder(facts), *words)

    def answer(words: Sequence[str]) -> Iterator[str]:
        """What all the folders of a case have in common; of the others each its own."""
        first, *others = ([*said(shlex.split(line))] for line in words)
        yield from first
        for line, other in zip(words[1:], others, strict=True):
            yield from ["", f"{line}:", *other] if other != first else []

    played("folders.txt", answer)
