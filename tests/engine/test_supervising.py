"""What the engine decides about a trainer, without one: when to ask, kill, wait and warn, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.job import worker_readings
from gputui.engine.job.worker_readings import Workers
from gputui.engine.process import engine_failure, live_diagnosis, spawn, supervisor
from gputui.engine.process.ending import Evidence, classify, kernel_oom_kills
from gputui.engine.process.live_diagnosis import LiveDiagnosis
from gputui.engine.process.spawn import Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.runs import Run
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import (
    TELEMETRY_FILE,
    Diagnosis,
    Event,
    GpuReadings,
    Progress,
    Started,
    Warn,
    WorkerReadings,
)
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system import locks, stop_signals
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.locks import Lock
from gputui.engine.system.run_clock import RunClock

STARTED = Started(
    pid=1, versions={}, devices=[], options={}, actual={"device_batches": 3}, replicas=2, global_batch_size=1,
    steps_per_epoch=1, epochs=1, steps=1, train_samples=1, validation_samples=0, gpus=["GPU-a", "GPU-b"],
)  # fmt: skip


class Process:
    """Stands for a trainer that runs until it is killed."""

    def __init__(self) -> None:
        self.pid, self.killed, self.signals, self.waits = os.getpid(), 0, list[int](), list[float]()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        self.waits.append(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("trainer", timeout)
        return self.returncode

    def kill(self) -> None:
        self.killed += 1

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


class Watched:
    """The engine of such a trainer, on a clock of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
        self.now = 1000.0
        (folder / "preset.yaml").write_text(presets.defaults(["hang_seconds=50", *settings]).to_yaml())
        reader, lifeline = os.pipe()
        self._reader = open(reader, "rb", buffering=0)  # noqa: SIM115 - closed with the test
        os.set_blocking(reader, False)
        self.process = Process()
        trainer = Trainer(self.process, lifeline, -1, TrainerHeartbeat())  # type: ignore[arg-type]
        self.engine = Supervisor(Run(folder), trainer, Lock(-1, works=False), RunClock.launched())
        self.tail: Any = SimpleNamespace(suspended_seconds=0.0, hangs="", hang=lambda _: self.tail.hangs)
        monkeypatch.setattr(
            supervisor, "time", SimpleNamespace(monotonic=lambda: self.now, time=time.time, sleep=self.pass_)
        )

    def pass_(self, seconds: float) -> None:
        self.now += seconds

    def look(self, seconds: float = 0.0) -> str:
        """So much time passes; returns what the trainer is told then."""
        self.now += seconds
        self.engine._enforce(self.tail)
        return (self._reader.read() or b"").decode()

    def told(self) -> list[str]:
        self.engine.events.drain(1.0)
        return [event.message for event in read_events(self.engine.run.path, [TELEMETRY_FILE]).of(Warn)]

    def close(self) -> None:
        self.engine.events.close()
        self._reader.close()
        os.close(self.engine.lifeline)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Watched] = []

    def make(*settings: str) -> Watched:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Watched(folder, monkeypatch, *settings))
        return made[-1]

    yield make
    for item in made:
        item.close()


def test_a_trainer_that_is_asked_to_stop_has_half_a_minute(watched: Any) -> None:
    item = watched()
    assert item.look() == ""
    item.engine._on_signal(signal.SIGTERM, None)
    item.engine._on_signal(signal.SIGTERM, None)
    assert item.look() == "stop\n"
    assert item.look(29) == "", "asked once"
    assert item.process.killed == 0
    item.look(2)
    assert item.process.killed == 1
    item.look(60)
    assert item.process.killed == 1
    assert (item.engine.asked_because, item.told()) == ("stop", [])


def test_a_person_who_asks_again_means_at_once(watched: Any) -> None:
    item = watched()
    item.engine._on_signal(signal.SIGTERM, None)
    item.engine._on_person(signal.SIGURG, None)
    assert (item.engine.stop_requests, item.engine.asked_by_person) == (1, 1)
    assert item.look() == "stop\n"
    assert item.process.killed == 0
    item.engine._on_person(signal.SIGURG, None)
    assert (item.engine.stop_requests, item.engine.asked_by_person) == (2, 2)
    item.engine._on_signal(signal.SIGTERM, None)
    assert item.engine.stop_requests == 2, "a signal of a scheduler takes nothing back"
    item.look()
    assert item.process.killed == 1


def test_a_signal_of_the_scheduler_that_the_options_name_is_told(watched: Any) -> None:
    item = watched("stop_signal=SIGUSR2")
    item.engine._on_stop_signal(signal.SIGUSR2, None)
    item.engine._on_stop_signal(signal.SIGUSR2, None)
    assert (item.look(), item.engine.stop_requests, item.engine.ended_by) == ("stop\n", 1, "SIGUSR2")
    assert item.told() == ["SIGUSR2 has arrived, which run.stop_signal names: the run ends"]
    other = watched("stop_signal=SIGUSR2")
    other.engine._on_signal(signal.SIGTERM, None)
    other.engine._on_stop_signal(signal.SIGUSR2, None)
    assert other.engine.ended_by == "", "it had been asked before"


def test_a_time_limit_asks_once_and_a_stop_comes_first(watched: Any) -> None:
    item = watched()
    item.engine.time_limit = SimpleNamespace(is_over=True, is_of_job=False, option="run.max_minutes=2")
    assert (item.look(), item.look()) == ("timeout\n", "")
    assert (item.engine.limit_reached, item.engine.ended_by) == ("run.max_minutes=2", "")
    job = watched()
    job.engine.time_limit = SimpleNamespace(is_over=True, is_of_job=True, option="run.max_minutes=auto")
    assert (job.look(), job.engine.ended_by) == ("timeout\n", "run.max_minutes=auto")
    stopped = watched()
    stopped.engine.time_limit = item.engine.time_limit
    stopped.engine._on_signal(signal.SIGTERM, None)
    assert (stopped.look(), stopped.engine.limit_reached) == ("stop\n", "")


def test_a_hung_trainer_writes_its_stacks_and_is_killed_once(watched: Any) -> None:
    item = watched()
    item.tail.hangs = "no step was completed"
    item.look()
    item.look()
    assert (item.process.signals, item.process.killed) == ([spawn.DUMP_STACKS], 1)
    assert (item.engine.asked_because, item.engine.limit_reached) == ("hang", "no step was completed")
    off = watched("hang_seconds=off")
    off.tail.hangs = "no step was completed"
    off.look()
    assert off.process.killed == 0
    asked = watched()
    asked.engine._on_signal(signal.SIGTERM, None)
    asked.look()
    asked.tail.hangs = "no step was completed"
    asked.look()
    assert (asked.process.killed, asked.engine.asked_because, asked.engine.limit_reached) == (1, "stop", "")


def test_a_suspended_training_is_told_once(watched: Any) -> None:
    item = watched()
    item.tail.suspended_seconds = 5.0
    item.look()
    assert item.told() == []
    item.tail.suspended_seconds = 5.1
    item.look()
    item.look()
    assert item.told() == ["the training is suspended: its process was stopped by SIGSTOP or by a debugger"]
    killed = watched()
    killed.engine.killed_at, killed.tail.suspended_seconds = killed.now, 9.0
    killed.look()
    assert killed.told() == []


def test_lost_gpus_of_a_crashed_trainer_are_its_own_in_a_reading_after_the_crash(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = [
        [GpuReadings(gpus=[{"index": 0, "uuid": "GPU-a", "lost_since": 5.0}])],
        [],
        [GpuReadings(gpus=[{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b", "lost_since": 6.0},
                           {"index": 2, "uuid": "GPU-c", "lost_since": 6.0}])],
    ]  # fmt: skip
    answer, asked = iter([*readings, readings[0]]), list[dict[str, Any]]()

    def tail(*_: Any, **how: Any) -> SimpleNamespace:
        asked.append(how)
        return SimpleNamespace(read=lambda: next(answer, []))

    monkeypatch.setattr(supervisor, "Tail", tail)
    item = watched()
    item.engine.__dict__["_started"] = STARTED
    item.process.returncode = 0
    assert item.engine._find_lost_gpus() == [], "it has ended by itself"
    item.process.returncode = -signal.SIGABRT
    item.engine.asked_because = "stop"
    assert item.engine._find_lost_gpus() == [], "it was ended"
    item.engine.asked_because = ""
    assert (asked, item.now) == ([], 1000.0)
    assert item.engine._find_lost_gpus() == ["GPU 1"], "in the second reading, as the first may be from before"
    assert asked == [{"from_now": True}]
    assert item.now == pytest.approx(1000.3), "no longer than that"
    assert item.engine._device_batches == 3
    item.engine._take(item.engine.started_trainer, RunClock.launched())
    assert "_started" not in item.engine.__dict__, "another trainer tells of itself"
    item.engine.__dict__["_started"] = None
    assert (item.engine._find_lost_gpus(), item.engine._device_batches) == ([], 0)
    assert item.now == pytest.approx(1000.3), "nothing is waited for on a CPU"


def test_memory_that_has_run_out_is_answered_as_the_options_say(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(kind: str, answer: str) -> str:
        asked.append(kind)
        return answer

    monkeypatch.setattr(
        "gputui.engine.process.recovery.oom_answer", lambda run, preset, number: noted("memory", f"no ({number})")
    )
    monkeypatch.setattr("gputui.engine.process.recovery.xla_answer", lambda *_: noted("xla", "never"))
    item, stays = watched("on_oom=halve"), watched()
    for engine in (item.engine, stays.engine):
        assert engine._answer() is None
        engine.run.file("result.json").write_text('{"outcome": "oom"}')
        engine.memory_answers = 2
        assert engine._answer() is None
    assert (asked, item.told(), stays.told()) == (["memory"], ["run.on_oom=halve ends here: no (2)"], [])
    item.engine.run.file("result.json").write_text('{"outcome": "error"}')
    item.engine._answer()
    assert asked == ["memory", "xla"]
    assert item.told()[-1] == "compile.xla=auto ends here: never"
    for name, value in (("held", True), ("stop_requests", 1), ("asked_because", "stop")):
        setattr(item.engine, name, value)
        assert item.engine._answer() is None
        setattr(item.engine, name, type(value)())
    assert asked == ["memory", "xla"]


def test_the_patience_with_a_disk_ends(watched: Any) -> None:
    item = watched()
    item.engine.gives_up_at = item.now + 3
    assert item.engine._patience == 3.0
    item.now += 5
    assert item.engine._patience == 0.0
    assert [supervisor._is_over(since, 2.0) for since in (None, item.now, item.now - 3)] == [False, False, True]


# ---- an engine that fails -----------------------------------------------------------------------


def test_an_engine_that_fails_stops_its_trainer_and_keeps_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, did = list[int](), list[str]()
    monkeypatch.setattr("gputui.engine.system.descendants.end_descendants", lambda spared: ended.append(spared))
    monkeypatch.setattr("gputui.engine.files.places.remove_scratch", lambda: did.append("removes"))
    monkeypatch.setattr("gputui.engine.notify.of_runs.send", lambda run, _: did.append(f"tells of {run.state}"))
    monkeypatch.setattr(stop_signals, "GRACE_SECONDS", 0.25)
    run = Run(tmp_path)
    run.file("result.json").write_text(json.dumps({"outcome": "ok", "steps": 70}))
    process, (reader, lifeline) = Process(), os.pipe()
    trainer = Trainer(process, lifeline, -1, TrainerHeartbeat())  # type: ignore[arg-type]
    assert engine_failure.leave(str(tmp_path), trainer, ValueError("broken")) == 1
    os.close(lifeline)
    with open(reader, "rb") as stream:
        assert stream.read() == b"stop\n"
    assert (process.waits[:1], process.killed, ended) == ([0.25], 1, [os.getpid()])
    result = run.result
    assert result is not None
    assert (result["outcome"], result["steps"], result["error"]["kind"]) == ("error", 70, "engine")
    error = {"kind": "engine", "message": "the engine failed: ValueError: broken", "hint": "see the end of engine.log"}
    assert (result["error"], did) == (error, ["removes", "tells of error"])
    fault, finished = map(vars, read_events(tmp_path).events)
    assert {key: fault[key] for key in error} == error
    assert (finished["outcome"], finished["summary"]["steps"], finished["summary"]["error"]) == ("error", 70, error)
    assert [event.type for event in read_events(tmp_path).events] == ["error", "finished"]
    process.returncode, process.killed = 0, 0
    assert engine_failure.leave(str(tmp_path), replace(trainer, lifeline=-1), BlockingIOError()) == 1
    assert process.killed == 0, "it has ended"
    assert (run.result or {})["error"]["kind"] == "process_limit"
    run.file("result.json").unlink()
    engine_failure.leave(str(tmp_path), None, ValueError("x" * 300))
    assert (ended[-1], (run.result or {})["error"]["message"]) == (0, f"the engine failed: ValueError: {'x' * 228}")
    run.file("result.json").unlink()
    run.file("result.json").mkdir()
    engine_failure.leave(str(tmp_path), None, ValueError())
    assert run.file("result.json").is_dir(), "what cannot be read is left"


def test_a_run_has_one_engine_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    with locks.take(tmp_path / locks.ENGINE_LOCK):
        command = [sys.executable, "-P", "-m", "gputui.engine", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{tmp_path} has an engine already\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([locks.ENGINE_LOCK, "result.json"])


def test_a_result_is_put_aside_beside_the_earlier_ones(tmp_path: Path) -> None:
    spawn.put_result_aside(tmp_path)
    for number in (1, 2):
        (tmp_path / "result.json").write_text(str(number))
        spawn.put_result_aside(tmp_path)
    assert [(tmp_path / f"result-{number}.json").read_text() for number in (1, 2)] == ["1", "2"]
    assert not (tmp_path / "result.json").exists()
    (tmp_path / "result-1.json").unlink()
    (tmp_path / "result.json").write_text("3")
    spawn.put_result_aside(tmp_path)
    assert [(tmp_path / f"result-{number}.json").read_text() for number in (2, 3)] == ["2", "3"], "none is replaced"


def test_the_python_of_a_run_is_that_of_its_options(tmp_path: Path) -> None:
    for text, python in (('{"run": {"python": "/p"}}', "/p"), ('{"run": {"python": null}}', sys.executable)):
        (tmp_path / "options.json").write_text(text)
        assert spawn.python_of(str(tmp_path)) == python
    for text in ("{", '{"run": {}}', "[]"):
        (tmp_path / "options.json").write_text(text)
        with pytest.raises(OSError, match="is damaged"):
            spawn.python_of(str(tmp_path))
    clock = RunClock.launched()
    read, folder = spawn.read_address(spawn.addressed(clock, "/a folder/b"))
    assert (folder, read.as_text()) == ("/a folder/b", clock.as_text())


def test_kills_of_the_kernel_are_counted_in_the_group_and_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/sys/fs/cgroup/memory.events": "low 9\noom 7\noom_kill 2\noom_group_kill 5\n",
        "/proc/vmstat": "x 1\noom_kill 3\n",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])
    assert kernel_oom_kills() == 5


def test_a_return_code_of_a_shell_is_a_signal(tmp_path: Path) -> None:
    for code, words in ((-11, "signal SIGSEGV"), (139, "signal SIGSEGV"), (128, "return code 128"),
                        (160, "return code 160"), (1, "return code 1"), (-99, "return code -99")):  # fmt: skip
        assert words in classify(Evidence(code, (), 8, phase="training")).message, code
    held = Evidence(0, (), 8, held_pid=5, stopped_because="hang", limit="no step")
    assert (classify(held).outcome, classify(held).message[:16]) == ("timeout", "no step; the tra")
    assert classify(replace(held, stopped_because="stop", limit="")).outcome == "stopped"


# ---- threads of the engine ----------------------------------------------------------------------


def diagnosis(verdict: str, confidence: float) -> Diagnosis:
    return Diagnosis(verdict=verdict, sentence="", confidence=confidence, steps=9)


def test_a_diagnosis_is_told_when_it_says_something_new_and_later_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, notes = [100.0], list[Event]()
    monkeypatch.setattr("gputui.engine.process.live_diagnosis.time.monotonic", lambda: now[0])
    run = Run(tmp_path)
    run.file("preset.yaml").write_text(presets.defaults([]).to_yaml())
    watching = LiveDiagnosis(run, notes.append, RunClock.launched())

    def is_told(verdict: str, confidence: float, seconds: float = 0.0) -> bool:
        now[0] += seconds
        answer = diagnosis(verdict, confidence)
        if is_news := watching._is_news(answer):
            watching._last, watching._reported_at = answer, now[0]
        return is_news

    assert not is_told("undecided", 0.0)
    assert is_told("healthy", 0.5)
    assert not is_told("healthy", 0.6)
    assert is_told("healthy", 0.65), "it has become surer"
    assert not is_told("healthy", 0.5, 3.9)
    for seconds in (4, 8, 16, 32, 60, 60):
        assert not is_told("healthy", 0.5, seconds - 0.2 if seconds > 4 else 0.0), seconds
        assert is_told("healthy", 0.5, 0.3), seconds
    assert is_told("input_bound", 0.1), "another verdict"
    assert is_told("input_bound", 0.1, 4.1), "and begins anew"
    monkeypatch.setattr(watching, "_collector", SimpleNamespace(
        feed=lambda _: None, newest_t=time.time() + 5, measurements=lambda: None))  # fmt: skip
    monkeypatch.setattr(live_diagnosis, "diagnose", lambda _: diagnosis("healthy", 0.9))
    watching._update(final=True)
    assert notes == [], "nothing has happened since"


def test_the_chief_tells_the_figures_of_the_workers_when_more_is_known_and_at_the_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_readings, "LOOK_SECONDS", 0.002)
    made = [runs.create("big", "", cluster=Cluster(("h0:1", "h1:1"), index, "Slurm")) for index in (0, 1)]
    members = [{"index": index, "address": f"h{index}:1", "run": run.id, "folder": str(run.path), "replicas": 1 + index,
                "gpus": []} for index, run in enumerate(made)]  # fmt: skip
    notes: list[WorkerReadings] = []
    threads = [Workers(run, notes.append) for run in made]  # type: ignore[arg-type]
    threads[1].run()  # it is not the chief's
    threads[0].start()
    clock = RunClock.launched()
    EventWriter(made[0].file("events.jsonl"), made[0].id, clock).emit(replace(STARTED, workers=members))
    progress = Progress(epoch=1, epochs=1, step=1, steps=9, samples_per_second=300.0, step_ms_p50=10.0,
                        step_ms_p95=None, input_wait=0.0, loss=None, metrics={}, eta_seconds=None)  # fmt: skip
    until = time.monotonic() + 30
    while not notes and time.monotonic() < until:
        time.sleep(0.002)
    assert ["missing" in item for item in notes[0].workers] == [True, True]
    EventWriter(made[1].file("events.jsonl"), made[1].id, clock).emit(progress)
    while len(notes) < 2 and time.monotonic() < until:
        time.sleep(0.002)
    assert notes[1].workers[1]["samples_per_second"] == 200.0, "two of the three replicas are its own"
    threads[0].stop()
    assert len(notes) == 3, "the last figures"


def test_the_slowest_worker_waits_a_tenth_longer_than_the_others_do() -> None:
    def waiting(*waits: float | None) -> int | None:
        return worker_readings.slowest([{"index": i, "input_wait": wait} for i, wait in enumerate(waits)])

    assert waiting(0.3, 0.0, 0.1) == 0
    assert waiting(0.05, 0.0, 0.16) == 2
    assert waiting(0.1, 0.0, 0.1) is None
    assert waiting(0.9, None, None) is None
    assert waiting(0.0, 0.25, 0.2, 0.2) is None, "the others' median counts"
