"""What an engine leaves of a run at its end, and which run a resume takes: files and texts, without a trainer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import writing
from gputui.engine.leases import free_gpus
from gputui.engine.notify import of_runs
from gputui.engine.process import launch, live_diagnosis, resuming, supervisor
from gputui.engine.process.ending import NOTHING_SAVED, Evidence, classify, out_of_memory, with_hint
from gputui.engine.process.known_failures import RESUME
from gputui.engine.process.live_diagnosis import LiveDiagnosis
from gputui.engine.process.spawn import Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.runs import Run, RunError, checkpoint_files, results
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import (
    TELEMETRY_FILE,
    Diagnosis,
    Event,
    Fault,
    Finished,
    MemoryAnswer,
    Progress,
    Warn,
    XlaAnswer,
)
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.runs.results import Report
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system import descendants
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.identity import Place, Process
from gputui.engine.system.locks import Lock
from gputui.engine.system.run_clock import RunClock
from gputui.engine.telemetry.resource_limits import Ceilings

SAMPLER: Any = SimpleNamespace(trainer_memory_share=0.1, driver_errors=lambda _seconds, _gpus: [])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Supervisor]:
    """An engine whose trainer has ended with the return code 1."""
    (tmp_path / "preset.yaml").write_text(presets.defaults([]).to_yaml())
    reader, lifeline = os.pipe()
    process: Any = SimpleNamespace(pid=os.getpid(), returncode=1)
    trainer = Trainer(process, lifeline, -1, TrainerHeartbeat())
    made = Supervisor(Run(tmp_path), trainer, Lock(-1, works=False), RunClock.launched())
    yield made
    made.events.close()
    os.close(reader)
    os.close(lifeline)


def told(engine: Supervisor) -> list[tuple[Any, ...]]:
    engine.events.drain(1.0)
    words: list[tuple[Any, ...]] = []
    for event in read_events(engine.run.path, [TELEMETRY_FILE]).events:
        if isinstance(event, Warn):
            words.append((event.kind, event.message, event.hint))
        elif isinstance(event, Fault):
            words.append(("fault", event.kind, event.message))
        elif isinstance(event, Finished):
            words.append(("finished", event.outcome))
    return words


def left(engine: Supervisor, report: Report, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(results, "take", lambda _pipe: report)
    engine._leave_result(SAMPLER)
    return told(engine)


MISSING = "the last 3 events of the training are missing: they could not be written to disk when it ended"


def test_a_result_that_the_trainer_could_not_write_is_written_for_it(
    engine: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '{"t":1.0,"type":"phase","run":"x","phase":"ended","detail":""}'
    words = left(engine, Report({"outcome": "ok", "steps": 7}, [line], 3), monkeypatch)
    assert engine.run.result == {"outcome": "ok", "steps": 7}
    assert words == [("disk", MISSING, "")]
    assert engine.run.file("events.jsonl").read_text() == line + "\n"


def test_a_result_of_the_trainer_is_not_changed(engine: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.run.file("result.json").write_text('{"outcome": "stopped", "steps": 5}')
    assert left(engine, Report({"outcome": "ok", "steps": 7}), monkeypatch) == []
    assert left(engine, Report(), monkeypatch) == []
    assert engine.run.result == {"outcome": "stopped", "steps": 5}
    engine.held = True
    ((kind, message, _),) = left(engine, Report(), monkeypatch)
    why = "the kernel cannot interrupt its call of the driver"
    assert (kind, message) == ("held", f"the trainer (pid {os.getpid()}) was killed but does not end: {why}")


def test_events_that_the_disk_keeps_refusing_are_counted_and_the_end_is_told_elsewhere(
    engine: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "append", lambda *_: 2)
    words = left(engine, Report({"outcome": "ok"}, ["{}", "{}"], 1), monkeypatch)
    assert words == [("disk", MISSING, ""), ("finished", "ok")]


def test_without_a_result_the_end_is_told_from_the_return_code(
    engine: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = left(engine, Report(), monkeypatch)
    message = "the trainer ended with return code 1 and no result"
    assert words == [("fault", "crash", message), ("finished", "crashed")]
    result = engine.run.result
    assert result is not None
    assert (result["outcome"], result["trainer_returncode"]) == ("crashed", 1)
    assert result["error"] == {"kind": "crash", "message": message, "hint": "see the end of engine.log"}


def test_a_full_disk_is_named_before_the_crash(
    engine: Supervisor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(writing, "try_writing", lambda _folder: "no room at /data")
    monkeypatch.setattr(results, "write", lambda *_: OSError(28, "No space left on device"))
    words = left(engine, Report(), monkeypatch)
    assert words[0] == ("fault", "crash", "no room at /data; the trainer ended with return code 1 and no result")
    assert capsys.readouterr().err == ("gputui: the result could not be written: [Errno 28] No space left on device\n")


def test_a_result_that_stays_unreadable_is_not_replaced(engine: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.run.file("result.json").mkdir()
    now = [50.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time, sleep=sleep)
    monkeypatch.setattr(results, "time", clock)
    monkeypatch.setattr(supervisor, "time", clock)
    words = left(engine, Report(), monkeypatch)
    message = "result.json cannot be read: is a folder, not a file; it stays as it is"
    assert words == [("disk", message, "")]
    assert now[0] == 50.0 + 120.0, "for two minutes"


def test_the_status_names_both_processes_their_place_and_the_requests(engine: Supervisor) -> None:
    engine.stop_requests, engine.asked_by_person = 2, 1
    before = time.time()
    engine._write_status()
    status = dict(engine.run.status)
    assert before <= status.pop("heartbeat") <= time.time()
    here = Process.of(os.getpid())
    assert status == {
        "phase": "starting", "stop_requests": 2, "asked_by_person": 1,
        **Place.here().as_fields(), **here.as_fields("engine"), **here.as_fields("trainer"),
    }  # fmt: skip
    engine.ended_by = "SIGUSR1"
    engine._write_status()
    assert engine.run.status["ended_by"] == "SIGUSR1"


# ---- how an end is worded ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "more", "hint"),
    [
        (64, {}, "try input.batch_size=32, precision.policy=mixed_bfloat16 or a smaller workload.width; "
         "run.on_oom=accumulate goes on with the same batch in parts"),
        (64, {"device_batches": 2, "on_oom": "halve"}, "try input.batch_size=32, input.prefetch_to_device=off, "
         "precision.policy=mixed_bfloat16 or a smaller workload.width"),
        (1, {"own": True}, "try precision.policy=mixed_bfloat16"),
    ],
)  # fmt: skip
def test_memory_that_ran_out_is_answered_with_what_needs_less(batch: int, more: dict[str, Any], hint: str) -> None:
    end = out_of_memory(batch, "too large", **more)
    assert (end.message, end.hint) == (f"out of memory at batch size {batch}: too large", hint)
    evaluation = out_of_memory(batch, "too large", doing="evaluating", **more)
    assert evaluation.message == f"out of memory in the evaluation at batch size {batch}: too large"


@pytest.mark.parametrize(
    ("seen", "kind", "message", "hint"),
    [
        ({"stopped_because": "stop"}, "killed", "ended by force, as it did not respond to the request to stop", ""),
        ({"stopped_because": "timeout", "limit": "run.max_minutes=2"}, "timeout", "ended after run.max_minutes=2",
         "raise run.max_minutes"),
        ({"stopped_because": "timeout", "limit": "run.max_minutes=auto"}, "timeout",
         "ended before the time limit of the job was reached (run.max_minutes=auto)",
         "with run.checkpoint on, gputui resume continues it"),
        ({"returncode": -15}, "killed", "stopped by signal SIGTERM", ""),
        ({"returncode": -9}, "killed", "the trainer was killed from outside (SIGKILL)", RESUME),
        ({"returncode": -11, "phase": "importing"}, "crash",
         "the trainer ended with signal SIGSEGV while TensorFlow was being imported",
         "gputui doctor --deep imports it too; installing TensorFlow again may help; see the end of engine.log"),
        ({"returncode": 1, "phase": "importing"}, "crash", "the trainer ended with return code 1 and no result",
         "see the end of engine.log"),
        ({"returncode": -9, "kernel_oom_kills": 1, "phase": "configuring"}, "out_of_memory",
         "out of memory while TensorFlow was opening devices, before any data was loaded: the kernel killed the "
         "trainer because host memory ran out",
         "TensorFlow alone needs about 1 GiB: give the container or job more memory, or end other processes"),
        ({"returncode": -9, "kernel_oom_kills": 1, "phase": "starting",
          "ceilings": Ceilings(memory_bytes=512 * 1024**2)}, "out_of_memory",
         "out of memory while TensorFlow was starting, before any data was loaded: the kernel killed the trainer "
         "because host memory ran out", "there are 512 MiB in all, and TensorFlow alone needs about 1 GiB: give the "
         "container or job more memory, or end other processes"),
    ],
)  # fmt: skip
def test_an_end_has_one_message_and_one_hint(seen: dict[str, Any], kind: str, message: str, hint: str) -> None:
    known: dict[str, Any] = {"returncode": 0, "log_tail": (), "batch_size": 8} | seen
    end = classify(Evidence(**known))
    assert (end.kind, end.message, end.hint) == (kind, message, hint)
    assert with_hint(end, is_saved=True) == end
    assert with_hint(end, is_saved=False).hint == (NOTHING_SAVED if hint == RESUME else hint)


@pytest.mark.parametrize(
    ("processes", "space", "kind", "message"),
    [
        (None, None, "process_limit", "no more processes and threads can be started"),
        (99, None, "process_limit", "no more processes and threads can be started: the limit is 99"),
        (99, 4_000_000_000, "process_limit", "no more processes and threads can be started: the limit is 99"),
        (99, 3_999_999_999, "address_space",
         "out of memory: the address space is limited to 3.7 GiB (ulimit -v); no thread can be started"),
        (None, 4_000_000_000, "address_space",
         "out of memory: the address space is limited to 3.7 GiB (ulimit -v); no thread can be started"),
    ],
)  # fmt: skip
def test_a_thread_that_cannot_be_started_has_no_room_or_no_number(
    processes: int | None, space: int | None, kind: str, message: str
) -> None:
    limits = Ceilings(processes=processes, address_space_bytes=space)
    end = classify(Evidence(1, ("RuntimeError: can't start new thread",), 8, phase="training", ceilings=limits))
    assert (end.outcome, end.kind, end.message) == ("error" if kind == "process_limit" else "oom", kind, message)


# ---- the whole work of an engine -----------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_an_engine_warns_of_a_disk_without_locks_and_of_a_stuck_gpu_and_ends_its_status(
    engine: Supervisor, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    did: list[str] = []

    def part(name: str) -> Any:
        def made(*_: object) -> Any:
            return SimpleNamespace(start=lambda: did.append(f"{name} starts"), stop=lambda: did.append(f"{name} stops"))

        return made

    monkeypatch.setattr(supervisor, "LiveDiagnosis", part("diagnosis"))
    monkeypatch.setattr(supervisor, "Workers", part("workers"))
    monkeypatch.setattr(descendants, "adopt_orphans", lambda: did.append("adopts"))
    monkeypatch.setattr(engine, "_take_signals", lambda: did.append("takes signals"))
    monkeypatch.setattr(engine, "_attend", lambda: did.append("attends"))
    monkeypatch.setattr(engine, "_answer", lambda: None)
    monkeypatch.setattr(free_gpus, "give_back", lambda _leases: ["GPU 1 is stuck: why"])
    monkeypatch.setattr(of_runs, "send", lambda run, _emit: did.append(f"sends {run.status['phase']}"))
    engine.held = held
    assert engine.supervise() == 0
    assert did == [
        "takes signals", "adopts", "diagnosis starts", "workers starts", "attends", "workers stops", "diagnosis stops",
        "sends ended",
    ]  # fmt: skip
    assert [(kind, message) for kind, message, _ in read_warnings(engine)] == [
        (
            "no_locks",
            "the file system of the run folder has no locks: only its processes show whether the run is alive",
        ),
        ("stuck_gpu", "GPU 1 is stuck: why"),
    ]
    status = engine.run.status
    assert (status["phase"], "engine_pid" in status, "trainer_pid" in status) == ("ended", True, not held)


def read_warnings(engine: Supervisor) -> list[tuple[str, str, str]]:
    warnings = read_events(engine.run.path, [TELEMETRY_FILE]).of(Warn)
    return [(event.kind, event.message, event.hint) for event in warnings]


def test_a_run_that_cannot_be_started_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    preset = presets.resolve("quickstart")
    with pytest.raises(OSError, match="temporarily unavailable"):
        launch.start_with(refuses, preset)
    with monkeypatch.context() as patched:
        patched.setattr(launch, "spawn", refuses)
        with pytest.raises(OSError, match="temporarily unavailable"):
            launch.start(preset)
    with monkeypatch.context() as patched:
        patched.setattr("gputui.engine.runs.code_copy.make", refuses)
        with pytest.raises(OSError, match="temporarily unavailable"):
            launch.create(launch.settle(preset, Path.cwd()))
    assert runs.all_runs() == []
    assert not [path for path in runs.runs_folder().iterdir() if path.is_dir()]


# ---- which run is resumed ------------------------------------------------------------------------


def ended(outcome: str = "stopped", checkpoint: str = "epoch") -> Run:
    preset = presets.resolve("quickstart", [f"run.checkpoint={checkpoint}"])
    run = launch.create(launch.settle(preset, Path.cwd()))
    run.file("result.json").write_text(json.dumps({"outcome": outcome}))
    return run


def test_a_run_without_a_checkpoint_is_not_resumed_and_the_reason_counts_the_others() -> None:
    with pytest.raises(RunError, match="there are no runs"):
        resuming.latest()
    first, second = ended(checkpoint="off"), ended("ok")
    off = f"{first.name} has no checkpoint to resume from; set run.checkpoint for the next run"
    done = f"{second.name} cannot be resumed: it has completed"
    assert (resuming.why_not(first), resuming.why_not(second)) == (off, done)
    with pytest.raises(RunError) as refusal:
        resuming.latest()
    assert str(refusal.value) == f"there is no run to resume: {done}; nor can any of the 1 before it"
    third = ended()
    early = f"{third.name} has no checkpoint to resume from: it ended before its first one"
    with pytest.raises(RunError) as refusal:
        resuming.latest()
    assert str(refusal.value) == f"there is no run to resume: {early}; nor can any of the 2 before it"
    for run in (first, second):
        run.file("preset.yaml").unlink()
    with pytest.raises(RunError) as refusal:
        resuming.latest()
    assert str(refusal.value) == f"there is no run to resume: {early}"


@pytest.mark.parametrize(
    ("checkpoint", "index", "resumes"), [("epoch", 1, True), ("off", 1, False), ("epoch", 0, False)]
)
def test_a_worker_whose_chief_cannot_be_read_is_resumed_if_its_options_save_checkpoints(
    checkpoint: str, index: int, resumes: bool
) -> None:
    """The chief has them: only the trainer can check them."""
    run = ended(checkpoint=checkpoint)
    run.file("cluster.json").write_text(Cluster(("a:1", "b:1"), index, "").as_file())
    assert (resuming.why_not(run) == "") is resumes


@pytest.mark.parametrize("outcome", ["stopped", "crashed", "timeout", "oom", "error", "ok"])
def test_every_outcome_but_a_completed_one_can_be_resumed(outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(outcome)
    monkeypatch.setattr(checkpoint_files, "whole_step", lambda _folder: 5)
    assert bool(resuming.why_not(run)) is (outcome == "ok")


def test_a_run_with_the_same_name_and_options_is_taken_whatever_its_code_and_an_unset_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preset = presets.resolve("quickstart", ["epochs=3"])
    run = launch.create(launch.settle(preset, Path.cwd()))
    run.file("result.json").write_text('{"outcome": "ok"}')
    waits: list[str] = []
    assert resuming.of_preset(preset, waits.append) == run, "its seed was chosen"
    assert resuming.of_preset(presets.resolve("quickstart", ["epochs=3", "run.code=copy"]), waits.append) == run
    for other in (["epochs=4"], ["epochs=3", "train.seed=12345678"]):
        assert resuming.of_preset(presets.resolve("quickstart", other), waits.append) is None, other
    newer = launch.create(launch.settle(preset, Path.cwd()))
    newer.file("result.json").write_text('{"outcome": "ok"}')
    assert resuming.of_preset(preset, waits.append) == newer
    newer.file("preset.yaml").write_text("broken: [")
    assert resuming.of_preset(preset, waits.append) == run
    assert (waits, len(runs.all_runs())) == ([], 2)


def test_a_run_whose_options_the_engine_has_changed_is_the_one_that_was_asked_for(home: Path) -> None:
    preset = presets.resolve("quickstart", ["epochs=3", "batch_size=64", "compile.xla=auto"])
    run = launch.create(launch.settle(preset, Path.cwd()))
    run.file("result.json").write_text('{"outcome": "oom"}')
    kept = presets.resolve(str(run.file("preset.yaml")))
    clock = RunClock.launched()
    writer = EventWriter(run.file(TELEMETRY_FILE), run.id, clock)
    for number, (before, after) in enumerate(((64, 32), (32, 16)), 1):
        writer.emit(MemoryAnswer(
            answer="halve", number=number, option="input.batch_size", before=before, after=after,
            ran_out_after_step=7, resumes_at_step=None, message="",
        ))  # fmt: skip
    writer.emit(XlaAnswer(
        option="compile.xla", before="auto", after=False, resumes_at_step=None, error="", message=""
    ))  # fmt: skip
    writer.close()
    options = replace(
        kept.options, input=replace(kept.options.input, batch_size=16), compile=replace(kept.options.compile, xla=False)
    )
    run.file("preset.yaml").write_text(replace(kept, options=options).to_yaml())
    assert resuming.of_preset(preset, lambda _text: None) == run
    other = presets.resolve("quickstart", ["epochs=3", "batch_size=16"])
    assert resuming.of_preset(other, lambda _text: None) is None, "that was not asked for"


def test_why_a_run_that_goes_on_or_waits_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    run, states = ended(), list[str]()
    monkeypatch.setattr(Run, "state", property(lambda _: states[-1]))
    for state in ("starting", "running", "stopping"):
        states.append(state)
        assert resuming.why_not(run) == f"{run.name} is {state}"
    states.append("waiting")
    waits = "it waits in the queue; gputui queue rm"
    assert resuming.why_not(run) == f"{run.name} cannot be resumed: {waits} {run.name} takes it out"


# ---- the diagnosis while a run goes on -----------------------------------------------------------


class Waits:
    """The event that ends a thread: its waits act and pass no time."""

    def __init__(self, *acts: Callable[[], None]) -> None:
        self._acts = list(acts)

    def wait(self, seconds: float) -> bool:
        assert seconds == live_diagnosis.INTERVAL_SECONDS
        if not self._acts:
            return True
        self._acts.pop(0)()
        return False


def test_a_diagnosis_is_made_of_what_has_happened_since_the_launch_and_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "preset.yaml").write_text(presets.defaults([]).to_yaml())
    run, told, made = Run(tmp_path), list[Event](), list[int]()
    writer = EventWriter(run.file("events.jsonl"), "r", RunClock(5.0, RunClock.launched().mark))

    def diagnose(_measurements: object) -> Diagnosis:
        made.append(len(made) + 1)
        if len(made) == 5:
            raise ValueError("broken")
        return Diagnosis(verdict="healthy", sentence=str(len(made)), confidence=0.5, steps=9)

    progress = Progress(
        epoch=1, epochs=1, step=1, steps=9, samples_per_second=3.0, step_ms_p50=1.0, step_ms_p95=None, input_wait=0.0,
        loss=None, metrics={}, eta_seconds=None,
    )  # fmt: skip

    def happens(t: float) -> Callable[[], None]:
        return partial(writer.emit, progress, t)

    monkeypatch.setattr(live_diagnosis, "diagnose", diagnose)
    monkeypatch.setattr("gputui.engine.process.live_diagnosis.time.monotonic", lambda: 1.0)
    thread = LiveDiagnosis(run, told.append, RunClock(100.0, 0.0))

    def nothing() -> None: ...

    thread._done = Waits(  # type: ignore[assignment]
        nothing, happens(50.0), happens(101.0), nothing, happens(102.0), happens(103.0)
    )
    thread.run()
    assert [event.sentence for event in told if isinstance(event, Diagnosis)] == ["1", "4"], "too soon but at the end"
    assert made == [1, 2, 3, 4], "not for what was before the launch, and not without news"
    thread._done = Waits(happens(104.0), nothing)  # type: ignore[assignment]
    thread.run()
    assert "ValueError: broken" in capsys.readouterr().err
    assert len(told) == 2, "the run goes on"
    writer.close()
