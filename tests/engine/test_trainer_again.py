"""The engine's watch over a trainer, another one in its place, what is cleaned up, and all that is known of its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.files import places
from gputui.engine.leases import free_gpus
from gputui.engine.notify import of_runs
from gputui.engine.process import ending, recovery, supervisor
from gputui.engine.process.ending import Evidence
from gputui.engine.process.known_failures import MEMORY, RESUMED, XLA
from gputui.engine.process.recovery import Answer
from gputui.engine.process.spawn import Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.runs import Run, results
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import TELEMETRY_FILE, Event, MemoryAnswer, Started, Warn, XlaAnswer
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system import descendants, stop_signals
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.locks import Lock
from gputui.engine.system.run_clock import RunClock
from gputui.engine.telemetry.resource_limits import Ceilings

HALVED = Answer(
    "input.batch_size", 8, 4,
    MemoryAnswer(
        answer="halve", number=1, option="input.batch_size", before=8, after=4, ran_out_after_step=7,
        resumes_at_step=None, message="the training begins again",
    ),
    "a smaller batch often needs a lower one",
)  # fmt: skip
WITHOUT_XLA = Answer(
    "compile.xla", "auto", False,
    XlaAnswer(option="compile.xla", before="auto", after=False, resumes_at_step=5, error="no", message="it goes on"),
    "compile.xla=false begins so", XLA,
)  # fmt: skip


def piped() -> tuple[Trainer, list[int]]:
    """A trainer that has ended, and the ends of its pipes: the engine's two, then its own."""
    (reader, lifeline), (report, writer) = os.pipe(), os.pipe()
    process: Any = SimpleNamespace(pid=os.getpid(), returncode=1, poll=lambda: 1)
    return Trainer(process, lifeline, report, TrainerHeartbeat()), [lifeline, report, reader, writer]


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class Engine:
    """The engine of a run whose trainers a test decides; `did` has what it did, in order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
        self.did: list[str] = []
        (folder / "preset.yaml").write_text(presets.defaults([*settings]).to_yaml())
        self.first, self.pipes = piped()
        self.launched = RunClock(date=4_000_000_000.0, mark=RunClock.launched().mark)
        self.engine = Supervisor(Run(folder), self.first, Lock(-1), self.launched)

        def part(*_: object) -> Any:
            return SimpleNamespace(start=lambda: None, stop=lambda: None)

        for name in ("LiveDiagnosis", "Workers"):
            monkeypatch.setattr(supervisor, name, part)
        monkeypatch.setattr(descendants, "adopt_orphans", lambda: None)
        monkeypatch.setattr(self.engine, "_take_signals", lambda: None)
        monkeypatch.setattr(free_gpus, "give_back", lambda _leases: [])
        monkeypatch.setattr(of_runs, "send", lambda *_: None)
        monkeypatch.setattr(places, "make_scratch", lambda: self.did.append("makes a folder"))

    def told(self) -> list[Event]:
        self.engine.events.drain(1.0)
        return list(read_events(self.engine.run.path, [TELEMETRY_FILE]).events)

    def close(self) -> None:
        self.engine.events.close()
        for descriptor in filter(is_open, {*self.pipes}):
            os.close(descriptor)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    item = Engine(tmp_path, monkeypatch, "on_oom=halve")
    yield item
    item.close()


def test_another_trainer_begins_with_each_change_and_the_earlier_one_leaves_nothing_open(
    made: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, answers = made.engine, iter([HALVED, WITHOUT_XLA, None])
    started: list[tuple[str, RunClock, bool]] = []
    kept_open: list[list[bool]] = []
    kills = iter([3, 9])

    def start_trainer(folder: str, clock: RunClock) -> Trainer:
        kept_open.append([is_open(descriptor) for descriptor in made.pipes[-4:]])
        trainer, pipes = piped()
        started.append((folder, clock, engine.run.file("result.json").exists()))
        made.did.append("starts a trainer")
        made.pipes += pipes
        return trainer

    def attend() -> None:
        engine.run.file("result.json").write_text(f'"{len(started)}"')
        engine.phase = "training"
        made.did.append("attends")

    monkeypatch.setattr(supervisor, "start_trainer", start_trainer)
    monkeypatch.setattr(ending, "kernel_oom_kills", lambda: next(kills))
    monkeypatch.setattr(recovery, "record", lambda _run, _preset, chosen: made.did.append(f"records {chosen.key}"))
    monkeypatch.setattr(engine, "_attend", attend)
    monkeypatch.setattr(engine, "_answer", lambda: next(answers))
    phases: list[str] = []
    write_status = engine._write_status

    def noted() -> None:
        phases.append(engine.phase)
        write_status()

    monkeypatch.setattr(engine, "_write_status", noted)
    assert engine.supervise() == 0
    again = ["makes a folder", "starts a trainer", "attends"]
    assert made.did == ["attends", "records input.batch_size", *again, "records compile.xla", *again]
    assert [(folder, had_result) for folder, _, had_result in started] == [(str(engine.run.path), False)] * 2
    dates = [made.launched.date, *(clock.date for _, clock, _ in started)]
    assert dates == sorted(dates), "by the clock of the launch, though that of the system shows another time"
    assert (engine.launched, engine.clock) == (made.launched, started[1][1])
    assert (engine.memory_answers, engine.oom_kills, phases) == (1, 9, ["starting"] * 3 + ["ended"]), (
        "one was about memory"
    )
    assert [engine.run.file(f"result-{number}.json").read_text() for number in (1, 2)] == ['"0"', '"1"']
    assert kept_open == [[False, False, True, True]] * 2, "of an earlier trainer only its own ends"
    assert (engine.lifeline, engine.report) == tuple(made.pipes[8:10])
    assert capsys.readouterr().out == f"{RESUMED}\n" * 2
    events = read_events(engine.run.path, [TELEMETRY_FILE]).events
    assert [event.type for event in events] == ["memory_answer", "warning", "xla_answer", "warning"]
    warnings = [event for event in events if isinstance(event, Warn)]
    assert [(each.kind, each.message, each.hint, each.option) for each in warnings] == [
        (chosen.kind, chosen.event.message, chosen.hint, chosen.key) for chosen in (HALVED, WITHOUT_XLA)
    ]
    assert (events[0].t >= made.launched.date, warnings[0].kind) == (True, MEMORY)


def test_a_change_that_cannot_be_written_ends_the_run(made: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(28, "No space left on device", "/home/x/preset.yaml")

    monkeypatch.setattr(recovery, "record", refuses)
    monkeypatch.setattr(made.engine, "_attend", lambda: made.did.append("attends"))
    monkeypatch.setattr(made.engine, "_answer", lambda: WITHOUT_XLA)
    assert made.engine.supervise() == 0
    assert (made.did, made.engine.memory_answers) == (["attends"], 0)
    (warning,) = read_events(made.engine.run.path, [TELEMETRY_FILE]).events
    assert isinstance(warning, Warn)
    assert (warning.kind, warning.option, warning.message) == (
        XLA, "compile.xla",
        "compile.xla=auto ends here: /home/x/preset.yaml cannot be written: No space left on device",
    )  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_the_readings_end_with_the_trainer_and_what_it_has_left_is_ended(
    made: Engine, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    engine, asked = made.engine, list[Any]()

    class Sampler:
        def __init__(self, *given: object, **named: object) -> None:
            asked.append((given[1:], named))

        def start(self) -> None:
            made.did.append("reads")

        def stop(self) -> None:
            made.did.append("stops")

    def watch() -> None:
        made.did.append("watches")
        if fails:
            raise ValueError("broken")

    def find() -> list[str]:
        made.did.append("finds")
        return ["GPU 1"]

    def end_descendants(spared: int, apart: list[int]) -> list[str]:
        asked.append((spared, apart))
        return ["loader (pid 7)"]

    monkeypatch.setattr(supervisor, "Sampler", Sampler)
    monkeypatch.setattr(engine, "_watch", watch)
    monkeypatch.setattr(engine, "_find_lost_gpus", find)
    monkeypatch.setattr(engine, "_leave_result", lambda _sampler: made.did.append("leaves"))
    monkeypatch.setattr(places, "remove_scratch", lambda: made.did.append("removes"))
    monkeypatch.setattr(descendants, "end_descendants", end_descendants)
    monkeypatch.setattr(engine, "followers", SimpleNamespace(pids=[11, 12]))
    engine.run_options |= {"sample_seconds": 0.5, "pcie": True}
    if fails:
        with pytest.raises(ValueError, match="broken"):
            engine._attend()
        assert made.did == ["reads", "watches", "stops"]
        return
    engine._attend()
    assert made.did == ["reads", "watches", "finds", "stops", "leaves", "removes"], "the GPUs are read until then"
    assert asked == [((os.getpid(), 0.5), {"pcie": True, "network": False}), (os.getpid(), [11, 12])]
    assert engine.lost_gpus == ["GPU 1"]
    (warning,) = made.told()
    assert isinstance(warning, Warn)
    assert (warning.kind, warning.hint) == ("left_behind", descendants.HINT)
    assert warning.message == ("1 process that was started in this run outlived it and had to be ended: loader (pid 7)")
    engine.run.file("cluster.json").write_text(Cluster(("a:1", "b:1"), 1, "Slurm").as_file())
    engine._attend()
    assert asked[2] == ((os.getpid(), 0.5), {"pcie": True, "network": True}), "if several machines train"


def test_the_evidence_of_an_end_is_whole(made: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made.engine
    asked: list[tuple[float, Any]] = []

    def driver_errors(seconds: float, gpus: Any) -> list[str]:
        asked.append((seconds, gpus))
        return ["NVRM: Xid"]

    sampler: Any = SimpleNamespace(trainer_memory_share=0.25, driver_errors=driver_errors)
    monkeypatch.setattr(ending, "kernel_oom_kills", lambda: engine.oom_kills + 2)
    monkeypatch.setattr(supervisor.resource_limits, "ceilings", lambda: Ceilings(processes=9))  # type: ignore[attr-defined]
    engine.run.file("engine.log").write_text("".join(f"line {number}\n" for number in range(2001)))
    engine.__dict__["_started"] = Started(
        pid=1, versions={}, devices=[], options={}, actual={"device_batches": 3}, replicas=2, global_batch_size=1,
        steps_per_epoch=1, epochs=1, steps=1, train_samples=1, validation_samples=0, gpus=["GPU-a", "GPU-b"],
    )  # fmt: skip
    engine.asked_because, engine.limit_reached, engine.lost_gpus, engine.phase = "hang", "no step", ["GPU 1"], "saving"
    engine.preset["input"]["batch_size"] = 48
    whole = Evidence(
        returncode=1, log_tail=tuple(f"line {number}" for number in range(1, 2001)), batch_size=48,
        stopped_because="hang", limit="no step", kernel_oom_kills=2, memory_share=0.25, phase="saving",
        ceilings=Ceilings(processes=9), gpus=2, device_batches=3, lost_gpus=["GPU 1"], driver_errors=["NVRM: Xid"],
        on_oom="halve",
    )  # fmt: skip
    found = engine._evidence(sampler)
    assert vars(found) | {"log_tail": tuple(found.log_tail)} == vars(whole)
    assert asked == [(60.0, ["GPU-a", "GPU-b"])]
    engine.held, engine.preset["workload"]["entry"] = True, "train.py:build"
    engine.trainer.returncode = None
    held = engine._evidence(sampler)
    assert (held.returncode, held.held_pid, held.own) == (0, os.getpid(), True)


def test_while_a_trainer_runs_its_status_and_followers_are_looked_at_each_second(
    made: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, now, did = made.engine, [100.0], list[tuple[float, str]]()
    ticks: list[Iterator[int]] = [iter(range(1, 26))]
    waits = iter([[], [Warn(kind="follow", message="mlflow waits")], []])
    activity: Any = SimpleNamespace(phase="importing", update=lambda: None, last_phase=lambda: "saving")

    def note(what: str) -> None:
        did.append((now[0] - 100.0, what))

    def wait(seconds: float) -> int:
        assert seconds == 0.1
        now[0] += 0.125  # a multiple of which is exact
        number = next(ticks[0], None)
        if number is None:
            engine.trainer.returncode = 0
            return 0
        if number == 5:
            activity.phase = "training"
        if number == 8:
            engine._on_signal(15, None)
        raise subprocess.TimeoutExpired("trainer", seconds)

    process: Any = SimpleNamespace(pid=os.getpid(), returncode=None, poll=lambda: process.returncode, wait=wait)
    engine.trainer = process
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: 5.0)
    monkeypatch.setattr(supervisor, "time", clock)
    monkeypatch.setattr(supervisor, "Activity", lambda run, pid, beat: (run, pid, beat) and activity)
    monkeypatch.setattr(engine, "_enforce", lambda _activity: None)
    monkeypatch.setattr(descendants, "collect_dead", lambda pid: made.did.append(f"collects {pid == os.getpid()}"))
    monkeypatch.setattr(engine, "followers", SimpleNamespace(check=lambda: next(waits, []), pids=[]))
    write_status = engine._write_status

    def noted() -> None:
        note(f"{engine.phase} {engine.stop_requests}")
        write_status()

    monkeypatch.setattr(engine, "_write_status", noted)
    engine._watch()
    assert did == [
        (0.0, "importing 0"), (0.625, "training 0"), (1.0, "training 1"), (2.0, "training 1"), (3.0, "training 1")
    ], "at once after a change, else each second"  # fmt: skip
    assert made.did == ["collects True"] * 26
    assert (engine.phase, engine.held) == ("saving", False)
    assert engine.run.status["heartbeat"] == 5.0
    told = [event for event in made.told() if isinstance(event, Warn)]
    assert [(event.kind, event.message, event.hint) for event in told] == [("follow", "mlflow waits", "")]
    process.returncode, engine.killed_at, ticks[0] = None, now[0] - 29.95, iter(range(30, 99))
    engine._watch()
    assert (engine.held, now[0] - 100.0) == (True, 3.375), "30 s after it was killed the kernel holds it"


@pytest.mark.parametrize(("name", "more"), [(None, {}), ("SIGUSR1", {signal.SIGUSR1: "_on_stop_signal"})])
def test_an_engine_takes_the_signals_that_ask_it_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, more: dict[int, str]
) -> None:
    taken: dict[int, str] = {}
    item = Engine(tmp_path, monkeypatch, *([f"stop_signal={name}"] if name else []))
    monkeypatch.undo()
    monkeypatch.setattr(signal, "signal", lambda number, handler: taken.update({number: handler.__name__}))
    monkeypatch.setattr(stop_signals, "let_through", lambda: taken.update({0: "let through"}))
    item.engine._take_signals()
    by_any, by_person = "_on_signal", "_on_person"
    signals = {signal.SIGTERM: by_any, signal.SIGINT: by_any, signal.SIGURG: by_person}
    assert list(taken.items()) == [*signals.items(), *more.items(), (0, "let through")]
    item.close()


def test_each_warning_of_an_engine_says_what_to_do_and_about_which_option(
    made: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, pid = made.engine, os.getpid()
    monkeypatch.setattr(results, "take", lambda _pipe: results.Report())
    monkeypatch.setattr(results, "append", lambda *_: 2)
    monkeypatch.setattr(free_gpus, "give_back", lambda _leases: ["GPU 1: 5.0 GiB are still in use"])
    monkeypatch.setattr(engine, "_attend", lambda: None)
    monkeypatch.setattr(engine, "lock", Lock(-1, works=False))
    engine.followers = SimpleNamespace(  # type: ignore[assignment]
        start=lambda: [Warn(kind="follow", message="refused", hint="see", option="run.follow")], pids=[]
    )
    engine.run.file("result.json").write_text('{"outcome": "oom"}')
    monkeypatch.setattr(recovery, "oom_answer", lambda *_: "it is too small")
    engine.ended_by = "SIGUSR1"
    engine._warn_stop_signal()
    engine._warn_suspended(SimpleNamespace(suspended_seconds=99.0))  # type: ignore[arg-type]
    engine.held = True
    engine._leave_result(SimpleNamespace())  # type: ignore[arg-type]
    engine.held = False
    assert engine.supervise() == 0
    told = [event for event in made.told() if isinstance(event, Warn)]
    assert [(each.kind, each.message, each.hint, each.option) for each in told] == [
        ("stop_signal", "SIGUSR1 has arrived, which run.stop_signal names: the run ends", "", "run.stop_signal"),
        ("suspended", "the training is suspended: its process was stopped by SIGSTOP or by a debugger",
         f"continue it with kill -CONT {pid}; a suspended training does not count as a hang", ""),
        ("disk", "the last 2 events of the training are missing: they could not be written to disk when it ended", "",
         ""),
        ("held", f"the trainer (pid {pid}) was killed but does not end: the kernel cannot interrupt its call of the "
         "driver", "usually a GPU does not respond: reset it as root (nvidia-smi --gpu-reset) or reboot; until then it "
         "stays in use. A network disk that does not respond has the same effect", ""),
        ("no_locks", "the file system of the run folder has no locks: only its processes show whether the run is alive",
         "do not resume it elsewhere while it runs; better set GPUTUI_HOME to a folder on a local disk", ""),
        ("follow", "refused", "see", "run.follow"),
        ("out_of_memory", "run.on_oom=halve ends here: it is too small", "", "run.on_oom"),
        ("stuck_gpu", "GPU 1: 5.0 GiB are still in use",
         "nvidia-smi shows which process holds it; until it ends gputui starts nothing there", ""),
    ]  # fmt: skip
