"""What the queue does and says, step by step: its runner with played devices, trainings, users and time.

A case has a title and steps. After each step stands what has changed: what began on which devices, and why others wait.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Answer
from tests.doors.engine import (
    EVENTS_FILE,
    EventWriter,
    Gpu,
    GpuProcess,
    Holder,
    Limits,
    Run,
    RunClock,
    Ticket,
    adding,
    entries,
    entry_changes,
    folder,
    jobs,
    locks,
    queue_settings,
    records,
    runs,
    titles,
)
from tests.doors.engine import events_Progress as Progress
from tests.doors.engine import proof_request as request
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_devices_Device as Device
from tests.doors.tui import tui_cli as cli
from tests.support.queued import Trainings, no_runner, waiting

NOW = 1_790_000_000.0
GIB = 1024**3


class Played:
    """A home with a queue. `names` has the ids by the names of the case."""

    def __init__(self, home: Path, printed: Callable[[], str]) -> None:
        self.now, self.names, self.tickets, self.theirs = NOW, dict[str, str](), list[Ticket](), dict[str, int]()
        self.home, self.printed = home, printed
        self.gpus(["2"])
        self.trainings.refused = {}
        self.runner = self.trainings.runner("boot-1")
        self.seen: dict[str, str] = {}
        self.begun = 0

    def gpus(self, names: Sequence[str]) -> None:
        models = names[1:] or ["NVIDIA A100"] * int(names[0])
        gib = [40 if "A100" in model else 15 for model in models]
        made = [Device(Gpu(at, f"GPU-{'abcd'[at]}", models[at].replace("_", " "), None, gib[at] * GIB, 0))
                for at in range(int(names[0]))]  # fmt: skip
        self.trainings = Trainings((*made, Device()))

    def change(self, number: str, **more: Any) -> None:
        devices = self.trainings.seen
        self.trainings.seen = [replace(each, **more) if str(each)[-1] == number else each for each in devices]

    def id(self, name: str) -> str:
        return self.names[name]

    def does(self, words: str) -> list[str]:
        verb, _, rest = words.partition(" ")
        act = getattr(self, f"do_{verb}" if verb != "$" else "command")
        act(*([rest] if verb == "settings" else rest.split()))
        return [*self.printed().splitlines(), *self.changes()]

    def changes(self) -> Iterator[str]:
        """What has begun, and what has another state or reason to wait; not that a new entry waits."""
        named = {id_: name for name, id_ in self.names.items()}
        begun, self.begun = self.trainings.begun[self.begun :], len(self.trainings.begun)
        yield from (f"{named[id_]} begins on {', '.join(devices)}" for id_, devices in begun)
        news, before, self.seen = entries.news(), self.seen, {}
        for entry in entries.all_entries():
            why = news.why.get(entry.run, "") if entry.state != "running" else ""
            words = [entry.state, *([f"try {entry.tries + 1}"] if entry.tries and entry.state == "waiting" else [])]
            words += ["its devices are free"] if entry.run in news.delayed else []
            self.seen[named[entry.run]] = ", ".join(words) + f": {why}" * bool(why)
        for name, now in self.seen.items():
            if now != before.get(name, "waiting") and now != "running":
                yield f"{name} {now}"
        for name in sorted(before.keys() - self.seen.keys()):
            yield f"{name} leaves as {jobs.job_of(self.names[name]).state()}"

    # ---- steps -----------------------------------------------------------------------------------

    def do_gpus(self, *names: str) -> None:
        self.gpus(names)
        self.runner = self.trainings.runner("boot-1")

    def do_add(self, name: str, needs: str = "free:1", *more: str) -> None:
        given: dict[str, Any] = dict(word.partition("=")[::2] for word in more)
        after, preset, anyway = given.pop("after", ""), given.pop("preset", ""), "anyway" in given
        given.pop("anyway", "")
        visible: Any = json.loads(needs) if needs[0] == "[" else needs
        run = waiting(name, visible, **{key: int(value) if value else True for key, value in given.items()})
        if preset:
            run.file(titles.FILE).write_text(titles.record(preset, "", {}))
        self.names[name] = run.id
        entry = replace(entries.entry_of(run, self.id(after) if after else None), anyway=anyway)
        entries.add_entry(entry)
        self.now += 1.0

    def do_measure(self, name: str, minutes: str = "") -> None:
        search = Limits(minutes=float(minutes)) if minutes else None
        changes = [] if search else ["steps_per_execution=4"]
        asked = (
            request.of_preset("tune", "quickstart", [], search=search)
            if search
            else request.of_change("quickstart", changes)
        )
        self.names[name] = adding.queue_proof(asked).run
        for file in folder.find(self.id(name)).path.iterdir():
            os.utime(file, (self.now, self.now))
        self.now += 1.0

    def do_tick(self, times: str = "3") -> None:
        for _ in range(int(times)):
            self.runner.tick()
            self.now += 0.5

    def do_end(self, name: str, outcome: str, kind: str = "", rule: str = "") -> None:
        if rule:  # of run.watch has ended it
            Run(runs.runs_folder() / self.id(name)).file("status.json").write_text(f'{{"ended_by_rule": "{rule}"}}')
        self.trainings.end(self.id(name), None if outcome == "lost" else outcome, kind)  # type: ignore[arg-type]
        for file in Run(runs.runs_folder() / self.id(name)).path.glob("result.json"):
            os.utime(file, (self.now, self.now))
        self.do_tick()

    def do_pass(self, seconds: str) -> None:
        self.now += float(seconds)

    def do_killed(self, boot: str = "boot-1") -> None:
        self.runner = self.trainings.runner(boot)

    def do_place(self, name: str, place: str) -> None:
        entry = entries.read(self.id(name))
        assert entry is not None
        entries.write(replace(entry, place=float(place)))

    def do_refuse(self, name: str, code: str = "") -> None:
        self.trainings.refused = {self.id(name): int(code)} if code else {}

    def do_busy(self, number: str, *by: str) -> None:
        self.change(number, holder=" ".join(by))

    def do_stranger(self, number: str, pid: str = "", user: str = "") -> None:
        users = (GpuProcess(int(pid), user, "python"),) if pid else ()
        self.change(number, strangers=users, holder=f"used by {user}'s python" if pid else "")

    def do_ticket(self, user: str, devices: str, ago: str, kind: str = "") -> None:
        self.tickets.append(Ticket(user, 1, int(devices), self.now - float(ago), kind == CPU))

    def do_no(self, _tickets: str) -> None:
        self.tickets.clear()

    def do_holds(self, user: str, devices: str) -> None:
        self.theirs[user] = int(devices)

    def do_settings(self, text: str) -> None:
        queue_settings.path().parent.mkdir(parents=True, exist_ok=True)
        queue_settings.path().write_text(text.replace(" / ", "\n"))
        self.now += 1.0
        os.utime(queue_settings.path(), (self.now, self.now))

    def do_earlier(self, preset: str, seconds: str, outcome: str = "ok", change: str = "") -> None:
        key, _, value = change.partition("=")
        run = runs.create(preset, "schema: 1\n", titles.record(preset, "", {key: (0, value)} if key else {}))
        run.file("result.json").write_text(json.dumps({"outcome": outcome, "seconds": float(seconds)}))

    def do_left(self, name: str, seconds: str) -> None:
        run = Run(runs.runs_folder() / self.id(name))
        writer = EventWriter(run.file(EVENTS_FILE), run.id, RunClock(self.now, 0.0))
        none: Any = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "loss"))
        writer.emit(
            Progress(epoch=1, epochs=2, step=1, steps=2, metrics={}, eta_seconds=float(seconds), **none), self.now
        )
        writer.close()

    def do_damage(self, name: str) -> None:
        entries.file_of(self.id(name)).write_text("{")

    def do_delete(self, name: str, *files: str) -> None:
        folder = runs.runs_folder() / self.id(name)
        shutil.rmtree(folder)
        if files:
            folder.mkdir()

    def do_starting(self, name: str) -> None:
        """A runner was killed while it started it."""
        entry = entries.read(self.id(name))
        assert entry is not None
        entries.write(replace(entry, state="starting", tries=1, started_at=self.now))

    def do_locked(self, name: str) -> None:
        self.engine = locks.take(Run(runs.runs_folder() / self.id(name)).file(locks.ENGINE_LOCK))

    def do_unlocked(self) -> None:
        self.engine.release()

    def do_begun(self, name: str) -> None:
        file = Run(runs.runs_folder() / self.id(name)).file("status.json")
        file.write_text("{}")
        os.utime(file, (self.now + 1, self.now + 1))

    def do_state(self, *names: str) -> None:
        print(", ".join(f"{name} is {jobs.job_of(self.id(name)).state()}" for name in names))

    def command(self, *words: str) -> None:
        code = cli.run([self.names.get(word, word) for word in words])
        print(f"exit code {code}" * bool(code), end="\n" * bool(code))


@pytest.fixture
def queue(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], Played]:
    made: list[Played] = []

    def printed() -> str:
        out, err = capsys.readouterr()
        return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "log: ", out + err, flags=re.MULTILINE)

    def holders() -> dict[str, Holder]:
        mine = {name: Holder(name, "me") for name in made[0].trainings.taken}
        theirs = ((user, f"{user}{at}") for user, count in made[0].theirs.items() for at in range(count))
        return mine | {name: Holder(name, user) for user, name in theirs}

    def make() -> Played:
        made.clear()
        shutil.rmtree(home, ignore_errors=True)
        queue_settings.path().unlink(missing_ok=True)
        made.append(Played(home, printed))
        return made[0]

    no_runner(monkeypatch)
    localtime = time.localtime
    monkeypatch.setattr(time, "localtime", lambda at=None: localtime(made[0].now if at is None else at))
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr(time, "time", lambda: made[0].now if made else NOW)
    monkeypatch.setattr(time, "monotonic", lambda: (made[0].now if made else NOW) - NOW + 100)
    monkeypatch.setattr(records, "user_name", lambda _number: "me")
    monkeypatch.setattr(records, "holders", holders)
    monkeypatch.setattr(records, "tickets_of_others", lambda: list(made[0].tickets))
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, _numbers: print(f"log: {run.id} is asked to stop"))
    return make


@pytest.mark.usefixtures("not_at_utc")
def test_the_course_of_the_queue(played: Callable[[str, Answer], None], queue: Callable[[], Played]) -> None:
    def answer(lines: Sequence[str]) -> Iterator[str]:
        case = queue()
        for step in "; ".join(lines[1:]).split("; "):
            said = "\n      ".join(case.does(step)) if step[0] == "$" else " | ".join(case.does(step))
            for name, id_ in sorted(case.names.items(), key=lambda each: -len(each[1])):
                short = Run(runs.runs_folder() / id_).name
                said = re.sub(rf"\b{short}\b", name, re.sub(rf"\b{id_}\b", f"ID-{name}", said))
            said = said.replace(str(queue_settings.path()), "queue.yaml").replace(str(entries.queue_folder()), "QUEUE")
            said = re.sub(r"(?<=\S)   +", "  ", said)
            yield from f"[{step}] {said}".splitlines() if said else []
        for name in list(case.trainings.alive):
            case.trainings.end(name, None)

    played("queue.txt", answer)
