"""What an engine does about its trainer: the trainer is played, and no time passes but that of the case.

A case has a title, options, and the course of each trainer: at which second what happens. A trainer that is asked to
stop has a result a second later, unless it is `deaf`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.conftest import Answer
from tests.doors.engine import (
    EVENTS_FILE,
    TELEMETRY_FILE,
    Activity,
    Ceilings,
    EpochEnd,
    EventWriter,
    Gpu,
    Lock,
    Phase,
    Report,
    Run,
    RunClock,
    Started,
    Summary,
    Supervisor,
    Trainer,
    TrainerHeartbeat,
    Warn,
    descendants,
    ending,
    events,
    file_of,
    follow_start,
    locks,
    options_json,
    places,
    presets,
    read_events,
    resource_limits,
    results,
    runs,
    supervisor,
    titles,
)
from tests.doors.engine import events_Progress as Progress
from tests.doors.engine import place_Place as Place

NOW = 1_790_000_000.0
PHASES = ("importing", "configuring", "building", "compiling", "training", "evaluating", "saving", "ended")


class Course:
    """The engine of a case with its trainers, one after the other; `told` has what happens between them."""

    def __init__(self, folder: Path, settings: Sequence[str], courses: Sequence[str]) -> None:
        preset = presets.resolve("quickstart", settings)
        more = {options_json.FILE: options_json.to_json(preset.options)}
        self.run = runs.create_at(folder, preset.to_yaml(), titles.record("quickstart", "", {}), more)
        os.utime(self.run.file("preset.yaml"), (NOW, NOW))
        self.told, self.handlers, self.courses = list[str](), dict[int, Callable[..., None]](), list(courses)
        self.now, self.oom_kills, self.share, self.xids, self.left = 0.0, 3, 0.1, list[str](), list[str]()
        self.follower: Any = None
        self.pipes, self.report = list[int](), -1  # those ends that the engine does not have
        self.engine: Supervisor

    def tell(self, words: str) -> None:
        self.told.append(f"{self.now:.1f} {words}")

    def trainer(self, *_: object) -> Trainer:
        """The next one, which begins now."""
        reader, lifeline = os.pipe()
        report, self.report = os.pipe()
        self.pipes += [reader, self.report]
        self.process = Played(self, reader, self.courses.pop(0))
        self.writer = EventWriter(self.run.file("events.jsonl"), self.run.id, RunClock(NOW, 0.0))
        self.heartbeat = TrainerHeartbeat()
        return Trainer(self.process, lifeline, report, self.heartbeat)  # type: ignore[arg-type]

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.process.goes_on(seconds)

    def supervise(self) -> None:
        clock = RunClock.launched()
        self.engine = Supervisor(self.run, self.trainer(), Lock(-1), clock)
        assert self.engine.supervise() == 0
        if self.follower is not None:
            self.follower.lock.release()
        for pipe in (*self.pipes, self.engine.lifeline, self.engine.report):
            os.close(pipe)


class Played:
    """Stands for the process of a trainer."""

    def __init__(self, of: Course, lifeline: int, course: str) -> None:
        self.of, self.pid = of, os.getpid()
        self.returncode: int | None = None
        self.cpu_seconds, self.cores, self.children, self.suspended, self.deaf, self.held = 0.0, 1.0, 0.0, *[False] * 3
        self.lifeline, self.began = lifeline, of.now
        os.set_blocking(lifeline, False)
        steps = (each.split(maxsplit=2) for each in course.split(";"))
        self.steps = [(float(at), verb, " ".join(rest)) for at, verb, *rest in steps]

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, seconds: float) -> int:
        if self.returncode is None:
            self.of.sleep(seconds)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired("trainer", seconds)
        return code

    def send_signal(self, number: int) -> None:
        self.of.tell(f"gets {signal.Signals(number).name}")

    def kill(self) -> None:
        self.of.tell("killed")
        self.returncode = self.returncode if self.held else -signal.SIGKILL

    def goes_on(self, seconds: float) -> None:
        self.cpu_seconds += self.cores * seconds
        with contextlib.suppress(BlockingIOError):
            asked = os.read(self.lifeline, 64).decode().strip()
            self.of.tell(f"asked: {asked}")
            if not self.deaf:
                later, outcome = self.of.now - self.began + 1.0, "stopped" if asked == "stop" else asked
                self.steps[:0] = [(later, "result", outcome), (later, "exit", "0")]
        while self.steps and self.steps[0][0] <= self.of.now - self.began + 1e-6:
            _, verb, rest = self.steps.pop(0)
            self.does(verb, rest)

    def does(self, verb: str, rest: str) -> None:
        of, run, emit = self.of, self.of.run, self.of.writer.emit
        if verb in PHASES:
            emit(Phase(phase=verb, detail=rest))  # type: ignore[arg-type]
        elif verb in ("TERM", "INT", "URG", "USR1", "USR2"):
            number = signal.Signals[f"SIG{verb}"]
            if number in of.handlers:
                of.handlers[number](number, None)
            else:
                of.tell(f"{verb} is not heard")
        elif verb == "person":
            self.does("TERM", "")
            self.does("URG", "")
        elif verb in ("suspended", "deaf", "held"):
            setattr(self, verb, rest != "off")
        elif verb in ("cores", "children"):
            setattr(self, verb, float(rest))
        elif verb == "sleeps":  # the machine itself
            of.now += float(rest)
        elif verb == "exit":
            self.returncode = int(rest)
            of.tell(f"ends with {rest}")
        elif verb == "log":
            with run.file("engine.log").open("a") as stream:
                stream.write(f"{rest}\n")
        elif verb == "result":
            outcome, _, kind = rest.partition(" ")
            error = {"error": {"kind": kind, "message": f"{kind} it was", "hint": f"about {kind}"}} if kind else {}
            run.file("result.json").write_text(json.dumps({"outcome": outcome, "steps": 9} | error))
        elif verb == "damaged":
            run.file(rest).write_text("{")
        elif verb == "folder":
            run.file(rest).mkdir()
        elif verb in ("gone", "back"):
            hidden = run.file("hidden.jsonl")
            of.writer.close()
            run.file("events.jsonl").rename(hidden) if verb == "gone" else hidden.rename(run.file("events.jsonl"))
        elif verb == "report":
            outcome, lines, lost = rest.split()
            line = '{"t":1790000009.0,"type":"phase","run":"x","phase":"ended","detail":""}'
            result = None if outcome == "none" else {"outcome": outcome, "steps": 8}
            results.hand_over(Report(result, [line] * int(lines), int(lost)), of.report)
        elif verb == "started":
            given = dict(word.split("=") for word in rest.split())
            gpus = [f"GPU-{number}" for number in range(int(given.pop("gpus", 0)))]
            off = {"input.batch_size": "your code has batched the data"} if given.pop("own", "") else {}
            actual: Any = {"jit_compile": given.pop("jit", "") == "yes", "device_batches": int(given.pop("ahead", 0))}
            counts: Any = dict.fromkeys(("steps_per_epoch", "steps", "train_samples", "validation_samples"), 10)
            emit(Started(
                pid=1, versions={}, devices=[], options={}, actual=actual, inapplicable=off, gpus=gpus, epochs=3,
                **{"replicas": max(1, len(gpus)), "global_batch_size": 32} | counts
                | {name: int(value) for name, value in given.items()},
            ))  # fmt: skip
        elif verb == "step":
            step = int(rest)
            emit(Progress(
                epoch=1 + step // 10, epochs=3, step=step, steps=30, samples_per_second=10.0 * step, step_ms_p50=4.0,
                step_ms_p95=5.0, input_wait=step / 100, loss=1 / step, metrics={"accuracy": 0.5}, eta_seconds=1.0,
            ))  # fmt: skip
        elif verb == "epoch":
            emit(EpochEnd(epoch=int(rest), step=10 * int(rest), metrics={"val_loss": 1 / int(rest)}, seconds=3.0))
        elif verb == "beat":
            of.heartbeat.beat()
        elif verb == "user":
            (of.heartbeat.__enter__ if rest == "on" else of.heartbeat.__exit__)()
        elif verb == "checkpoint":
            step_text, _, damaged = rest.partition(" ")
            path = run.file(f"checkpoints/step-{int(step_text):010d}")
            path.mkdir(parents=True)
            for name in ("state.index", "state.data-00000-of-00001"):
                (path / name).write_text("" if damaged else "x")
        elif verb == "kernel":
            of.oom_kills += 1
        elif verb == "memory":
            of.share = float(rest)
        elif verb == "xid":
            of.xids.append(f"NVRM: Xid (GPU 0): {rest}")
        elif verb == "leaves":
            of.left = [rest]
        elif verb == "reading":
            seen = [Gpu(at, f"GPU-{at}", lost_since=5.0 if str(at) in rest.split() else None) for at in range(2)]
            of.engine.events.emit(events.GpuReadings(gpus=seen))
        elif verb == "follower":
            self.follower(*rest.partition(" ")[::2])
        else:
            raise AssertionError(verb)

    def follower(self, state: str, problem: str) -> None:
        file = file_of(self.of.run.path, "tensorboard")
        if state == "ends":
            self.of.follower.returncode = 1
            self.of.follower.lock.release()
        elif state == "damaged":
            file.write_text("{")
        else:
            place: Any = {"state": state, "problem": problem, "since": NOW + self.of.now}
            file.write_text(json.dumps(asdict(Place(key="k", **place))))


class Nothing:
    """Stands for threads of the engine, whose work other tests judge."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def start(self) -> None: ...

    def stop(self, _seconds: float = 0.0) -> None: ...


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Course]]:
    made: list[Course] = []

    class Sampler(Nothing):
        trainer_memory_share = property(lambda _: made[-1].share)

        def driver_errors(self, seconds: float, gpus: Sequence[str]) -> list[str]:
            return made[-1].xids if gpus else []

    class Children(Nothing):
        def cores(self) -> float:
            return float(made[-1].process.children)

    def begins_follower(folder: Path, target: str) -> Any:
        made[-1].tell(f"follower for {target}")
        (folder / "follow").mkdir(exist_ok=True)
        lock = locks.take(file_of(folder, target, "lock"))
        made[-1].follower = follower = SimpleNamespace(pid=7, returncode=None, lock=lock)
        follower.poll = lambda: follower.returncode
        return follower

    def ends_others(spared: int, apart: Sequence[int]) -> list[str]:
        assert spared == os.getpid()
        if apart:
            made[-1].tell("its follower goes on")
        return made[-1].left

    def make(settings: Sequence[str], courses: Sequence[str]) -> Course:
        made.append(Course(tmp_path / f"r{len(made)}", settings, courses))
        return made[-1]

    def handles(number: int, handler: Callable[..., None]) -> None:
        made[-1].handlers[number] = handler

    for name, answer in (
        ("time", lambda: NOW + made[-1].now), ("monotonic", lambda: made[-1].now),
        ("clock_gettime", lambda _: made[-1].now), ("sleep", lambda seconds: made[-1].sleep(seconds)),
    ):  # fmt: skip
        monkeypatch.setattr(time, name, answer)
    monkeypatch.setattr(signal, "signal", handles)
    monkeypatch.setattr(Activity, "_state", lambda _: (made[-1].process.suspended, made[-1].process.cpu_seconds))
    monkeypatch.setattr("gputui.engine.process.time_limits.Children", Children)
    monkeypatch.setattr(supervisor, "Activity", lambda run, pid, beat: Activity(run, pid, beat, lambda: made[-1].now))
    monkeypatch.setattr(supervisor, "Sampler", Sampler)
    monkeypatch.setattr(supervisor, "LiveDiagnosis", Nothing)
    monkeypatch.setattr(supervisor, "Workers", Nothing)
    monkeypatch.setattr(supervisor, "start_trainer", lambda *given: made[-1].trainer(*given))
    monkeypatch.setattr(follow_start, "start", begins_follower)
    monkeypatch.setattr(ending, "kernel_oom_kills", lambda: made[-1].oom_kills)
    monkeypatch.setattr(resource_limits, "ceilings", Ceilings)
    monkeypatch.setattr(places, "make_scratch", lambda: None)
    monkeypatch.setattr(places, "remove_scratch", lambda: None)
    monkeypatch.setattr(descendants, "adopt_orphans", lambda: None)
    monkeypatch.setattr(descendants, "collect_dead", lambda _pid: None)
    monkeypatch.setattr(descendants, "end_descendants", ends_others)
    yield make
    monkeypatch.undo()


def is_end(event: events.Event) -> bool:
    return isinstance(event, Phase) and event.phase == "ended"


def said(run: Run) -> Iterator[str]:
    """The engine's events, the result and the status at the end."""
    told = read_events(run.path, [TELEMETRY_FILE])
    for event in told.events:
        if isinstance(event, Warn | events.Fault):
            about = (event.message, event.hint, getattr(event, "option", ""))
            yield f"{event.type} {event.kind}: {'; '.join(filter(None, about))}"
        elif isinstance(event, events.OptionChanged):
            yield f"{event.type}: {event.option} from {event.before} to {event.after} at step {event.resumes_at_step}"
    result, usual = run.result or {"outcome": "none"}, asdict(Summary(outcome="ok"))
    finished, figures = told.last(events.Finished), []
    for key, value in result.items():
        if value not in ((), [], None, usual.get(key)) and key not in ("outcome", "peak_process_bytes", "error"):
            figures.append(f"{key} {round(value, 3) if isinstance(value, float) else value}")
    if finished:
        assert finished.summary == result
        assert finished.outcome == result["outcome"]
    status = {name: run.status.get(name) for name in ("stop_requests", "asked_by_person", "ended_by")}
    assert run.status["phase"] == "ended"
    figures += [f"{name} {value}" for name, value in status.items() if value]
    figures += sorted(path.name for path in run.path.glob("*-[0-9]*"))
    assert presets.resolve(str(run.file("preset.yaml"))).options == options_json.read(run.path)
    figures += [f"titled {title}"] if ":" in (title := titles.title_of(run).whole) else []
    figures += (
        [f"ended {times} times"] if (times := sum(map(is_end, read_events(run.path, [EVENTS_FILE]).events))) else []
    )
    yield f"result {result['outcome']}{' by the engine' * bool(finished)}: {', '.join(figures)}"


def test_the_course_of_an_engine(played: Callable[[str, Answer], None], course: Callable[..., Course]) -> None:
    def answer(words: Sequence[str]) -> Iterator[str]:
        settings = re.search(r" \((.+=.+)\)$", words[0])
        case = course(shlex.split(settings[1]) if settings else [], words[1:])
        case.supervise()
        yield "; ".join(case.told)
        for line in said(case.run):
            text = line.replace(str(case.run.path), "RUN").replace(case.run.id, "RUN")
            yield re.sub(rf"\b(pid|CONT) {os.getpid()}\b", r"\1 PID", text)

    played("engines.txt", answer)
