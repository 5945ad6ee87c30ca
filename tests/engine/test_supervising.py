"""What an engine decides about its trainer, what it does when memory runs out, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    MOST_ANSWERS,
    TELEMETRY_FILE,
    Answer,
    Devices,
    ForkServer,
    Lock,
    Options,
    Run,
    RunClock,
    RunError,
    Supervisor,
    Trainer,
    TrainerHeartbeat,
    Warn,
    code_copy,
    descendants,
    launch,
    locks,
    oom_answer,
    options_json,
    places,
    presets,
    read_events,
    resuming,
    runs,
    sending,
    stop_signals,
    supervisor,
)
from tests.doors.engine import recovery_record as record
from tests.support.cases import all_hold
from tests.support.small_disk import no_writing


class Process:
    """Stands for a trainer that runs until it is killed."""

    def __init__(self) -> None:
        self.pid, self.killed, self.waits = os.getpid(), 0, list[float]()
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


# ---- an engine that fails -----------------------------------------------------------------------


def test_an_engine_that_fails_stops_its_trainer_and_keeps_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, did = list[int](), list[str]()
    monkeypatch.setattr(descendants, "end_descendants", lambda spared: ended.append(spared))
    monkeypatch.setattr(places, "remove_scratch", lambda: did.append("removes"))
    monkeypatch.setattr(sending, "after_run", lambda run, _: did.append(f"tells of {run.state}"))
    monkeypatch.setattr(stop_signals, "GRACE_SECONDS", 0.25)
    run = Run(tmp_path)
    run.file("result.json").write_text(json.dumps({"outcome": "ok", "steps": 70}))
    process, (reader, lifeline) = Process(), os.pipe()
    trainer = Trainer(process, lifeline, -1, TrainerHeartbeat())  # type: ignore[arg-type]
    assert supervisor.leave(str(tmp_path), trainer, ValueError("broken")) == 1
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
    assert supervisor.leave(str(tmp_path), replace(trainer, lifeline=-1), BlockingIOError()) == 1
    assert process.killed == 0, "it has ended"
    assert (run.result or {})["error"]["kind"] == "process_limit"
    run.file("result.json").unlink()
    supervisor.leave(str(tmp_path), None, ValueError("x" * 300))
    assert (ended[-1], (run.result or {})["error"]["message"]) == (0, f"the engine failed: ValueError: {'x' * 228}")
    run.file("result.json").unlink()
    run.file("result.json").mkdir()
    supervisor.leave(str(tmp_path), None, ValueError())
    assert run.file("result.json").is_dir(), "what cannot be read is left"


def test_a_run_has_one_engine_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    with locks.take(tmp_path / locks.ENGINE_LOCK):
        command = [sys.executable, "-P", "-m", "gputui.engine", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{tmp_path} has an engine already\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([locks.ENGINE_LOCK, "result.json"])


# ---- What an engine leaves of a run at its end, and which run a resume takes ---------------------


# ---- the whole work of an engine -----------------------------------------------------------------


def test_a_run_that_cannot_be_started_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    preset = presets.resolve("quickstart")
    forks = ForkServer(runs.runs_folder())
    with monkeypatch.context() as patched:
        patched.setattr(launch, "python_of", refuses)
        with pytest.raises(OSError, match="temporarily unavailable"):
            forks.start(preset, runs.runs_folder() / "trial", Path.cwd())
    released: list[bool] = []
    leased: Any = SimpleNamespace(release=lambda: released.append(True))
    with monkeypatch.context() as patched:
        patched.setattr(launch, "lease_devices", lambda *_, **__: Devices(preset.options, (leased,)))
        patched.setattr(launch, "spawn", refuses)
        with pytest.raises(OSError, match="temporarily unavailable"):
            launch.start(preset)
    with monkeypatch.context() as patched:
        patched.setattr(code_copy, "make", refuses)
        with pytest.raises(OSError, match="temporarily unavailable"):
            launch.create(launch.settle(preset, Path.cwd()))
    assert runs.all_runs() == []
    assert not [path for path in runs.runs_folder().iterdir() if path.is_dir()]
    assert released == [True]


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
    with newer.file(TELEMETRY_FILE).open("a") as stream:  # it began with 32
        for number, before in ((1, 32), (2, 16)):
            halves = {"answer": "halve", "number": number, "option": "input.batch_size", "message": "no memory"}
            halves |= {"before": before, "after": before // 2, "ran_out_after_step": None, "resumes_at_step": None}
            stream.write(json.dumps({"t": 1.0, "run": newer.id, "type": "memory_answer"} | halves) + "\n")
    halved = replace(preset, options=preset.options.with_values({"input.batch_size": 8}))
    newer.file("preset.yaml").write_text(halved.to_yaml())
    assert resuming.of_preset(preset, waits.append) == newer
    newer.file("preset.yaml").write_text("broken: [")
    assert resuming.of_preset(preset, waits.append) == run
    assert (waits, len(runs.all_runs())) == ([], 2)


# ---- What run.on_oom does about a training whose memory has run out, and where it can do nothing -


STARTED: dict[str, Any] = {"type": "started", "global_batch_size": 64, "replicas": 2, "inapplicable": {}}
RAN = ("compiling", "training")


def made_of_answer(folder: Path, *settings: str, phases: tuple[str, ...] = RAN, **started: Any) -> tuple[Run, Options]:
    """A run that has got so far, and its options."""
    folder.mkdir()
    preset = presets.defaults(["batch_size=32", "on_oom=accumulate", *settings])
    (folder / "preset.yaml").write_text(preset.to_yaml())
    (folder / options_json.FILE).write_text(options_json.to_json(preset.options))
    told: list[dict[str, Any]] = [{"type": "phase", "phase": "building"}, STARTED | started]
    told += [{"type": "phase", "phase": phase} for phase in phases]
    told += [{"type": "progress", "step": 7, "steps": 90, "metrics": {}}] if "training" in phases else []
    told += [{"type": "phase", "phase": "ended"}]
    lines = [json.dumps({"t": 1.0 + i, "run": "r", **event}) for i, event in enumerate(told)]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    return Run(folder), preset.options


def checkpoint(run: Run, step: int, content: str = "x") -> None:
    path = run.file("checkpoints") / f"step-{step:010d}"
    path.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (path / name).write_text(content)


def supervised(run: Run) -> Supervisor:
    """The engine of a trainer that has ended."""
    with subprocess.Popen(["true"]) as process:
        trainer = Trainer(process, -1, -1, TrainerHeartbeat())
        return Supervisor(run, trainer, Lock(-1, works=False), RunClock.launched())


def chosen(found: Answer | str | None) -> Answer:
    assert isinstance(found, Answer), found
    return found


def test_a_training_that_goes_on_with_another_option_keeps_the_gpus_of_its_start(tmp_path: Path) -> None:
    run, options = made_of_answer(tmp_path / "run", "visible=free:1")
    leased = replace(options, device=replace(options.device, visible=["GPU-1"]))
    changed = record(run, leased, chosen(oom_answer(run, leased, 0)))
    assert options_json.read(run.path) == changed
    assert (changed.device.visible, changed.train.micro_batches) == (["GPU-1"], 2)
    assert presets.resolve(str(run.file("preset.yaml"))).options.device.visible == "free:1"


def test_a_disk_that_refuses_the_change_ends_the_run_as_out_of_memory_with_what_it_has(tmp_path: Path) -> None:
    run, _ = made_of_answer(tmp_path / "run", "on_oom=halve")
    checkpoint(run, 5)
    run.file("result.json").write_text(json.dumps({"outcome": "oom"}))
    kept = run.file("preset.yaml").read_bytes()
    supervisor = supervised(run)
    with no_writing():
        assert not supervisor._starts_again()
    assert run.file("checkpoints/step-0000000005").is_dir()
    assert run.file("preset.yaml").read_bytes() == kept
    supervisor.events.close()
    told, *_ = read_events(run.path, [TELEMETRY_FILE]).of(Warn)
    assert told.message == f"run.on_oom=halve ends here: {run.file('preset.yaml')} cannot be written: File too large"
    supervisor.asked_because = "timeout"
    assert not supervisor._starts_again(), "a run whose time is over does not begin again"


def test_where_smaller_batches_cannot_help_it_says_why(tmp_path: Path) -> None:
    own = {"input.batch_size": "your code has batched the data"}
    damaged, options = made_of_answer(tmp_path / "damaged")
    checkpoint(damaged, 5, content="")
    with all_hold() as cases:
        for name, (run, of), before, why in (
            ("nothing started", made_of_answer(tmp_path / "a", phases=()), 0, "the phase 'building'"),
            ("saving", made_of_answer(tmp_path / "b", phases=("training", "saving")), 0, "the phase 'saving'"),
            ("too often", made_of_answer(tmp_path / "c"), MOST_ANSWERS, f"{MOST_ANSWERS} times"),
            (
                "their batches",
                made_of_answer(tmp_path / "d", "on_oom=halve", inapplicable=own),
                0,
                "your code has batched",
            ),
            ("damaged", (damaged, options), 0, "no intact checkpoint"),
        ):
            with cases.case(name):
                found = oom_answer(run, of, before)
                assert isinstance(found, str)
                assert why in found
    assert isinstance(oom_answer(*made_of_answer(tmp_path / "e", phases=("training", "evaluating")), 0), Answer)
