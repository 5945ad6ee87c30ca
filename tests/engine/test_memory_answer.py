"""What run.on_oom does about a training whose memory has run out, and where it can do nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from gputui.engine import presets
from gputui.engine.process import ending, recovery
from gputui.engine.process.recovery import MOST_ANSWERS, Answer, oom_answer, record
from gputui.engine.process.spawn import Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.runs import Run
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import TELEMETRY_FILE, MemoryAnswer, Warn
from gputui.engine.runs.titles import title
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.locks import Lock
from gputui.engine.system.run_clock import RunClock
from gputui.engine.telemetry.sampler import Sampler
from gputui.engine.trainer.session import _first_line

from tests.support.cases import all_hold
from tests.support.small_disk import no_writing

STARTED: dict[str, Any] = {"type": "started", "global_batch_size": 64, "replicas": 2, "inapplicable": {}}
RAN = ("compiling", "training")


def made(folder: Path, *settings: str, phases: tuple[str, ...] = RAN, **started: Any) -> tuple[Run, dict[str, Any]]:
    """A run that has got so far, and its preset."""
    folder.mkdir()
    preset = presets.defaults(["batch_size=32", "on_oom=accumulate", *settings])
    (folder / "preset.yaml").write_text(preset.to_yaml())
    told: list[dict[str, Any]] = [{"type": "phase", "phase": "building"}, STARTED | started]
    told += [{"type": "phase", "phase": phase} for phase in phases]
    told += [{"type": "progress", "step": 7, "steps": 90, "metrics": {}}] if "training" in phases else []
    told += [{"type": "phase", "phase": "ended"}]
    lines = [json.dumps({"t": 1.0 + i, "run": "r", **event}) for i, event in enumerate(told)]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    return Run(folder), yaml.safe_load((folder / "preset.yaml").read_text())


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


def test_parts_are_halved_until_each_is_one_sample_of_a_replicas_batch(tmp_path: Path) -> None:
    run, preset = made(tmp_path / "run")
    seen: list[tuple[int, int]] = []
    while isinstance(found := oom_answer(run, preset, len(seen)), Answer):
        record(run, preset, found)
        seen.append((found.before, found.after))
    assert seen == [(1, 2), (2, 4), (4, 8), (8, 16), (16, 32)]
    assert found == "each sample is a part of its own already"
    assert presets.resolve(str(run.file("preset.yaml"))).options.train.micro_batches == 32
    uneven, preset = made(tmp_path / "uneven", "micro_batches=5", global_batch_size=7, replicas=1)
    assert chosen(oom_answer(uneven, preset, 0)).after == 7


def test_it_says_what_happened_and_where_the_training_goes_on(tmp_path: Path) -> None:
    run, preset = made(tmp_path / "run")
    first = chosen(oom_answer(run, preset, 0)).event
    assert first.message == "out of memory after step 7: the training begins again with each batch of 32 in 2 parts"
    assert isinstance(first, MemoryAnswer)
    assert (first.resumes_at_step, first.ran_out_after_step) == (None, 7)
    checkpoint(run, 5)
    assert "goes on from step 5 with each batch of 32 in 2 parts" in chosen(oom_answer(run, preset, 0)).event.message
    early, preset = made(tmp_path / "early", phases=("compiling",))
    told = chosen(oom_answer(early, preset, 0))
    assert told.event.message.startswith("out of memory in the first steps: ")
    assert "with run.checkpoint set" in told.hint


@pytest.mark.parametrize(
    ("trainers", "words"),
    [
        ([[7]], "after step 7"),
        ([[7, 20]], "after step 20"),
        ([[]], "in the first steps"),
        ([[7, 20], [11]], "after step 11"),
        ([[7, 20], []], "in the first steps"),
        ([[], [3]], "after step 3"),
        ([[7], [9], []], "in the first steps"),
    ],
)
def test_the_step_is_that_of_the_trainer_whose_memory_has_run_out(
    trainers: list[list[int]], words: str, tmp_path: Path
) -> None:
    run, preset = made(tmp_path / "run", phases=("compiling",))
    lines: list[dict[str, Any]] = []
    for steps in trainers:
        lines += [STARTED, {"type": "phase", "phase": "training"}]
        lines += [{"type": "progress", "step": step, "steps": 90, "metrics": {}} for step in steps]
    texts = [json.dumps({"t": 1.0 + i, "run": "r", **event}) for i, event in enumerate(lines)]
    run.file("events.jsonl").write_text("\n".join(texts) + "\n")
    assert chosen(oom_answer(run, preset, 0)).event.message.startswith(f"out of memory {words}: ")


def test_half_the_batch_begins_again_and_keeps_the_checkpoints_of_the_larger_one(tmp_path: Path) -> None:
    run, preset = made(tmp_path / "run", "on_oom=halve", "batch_size=3")
    (run.path / "origin.json").write_text(json.dumps({"preset": "mine", "changes": {
        "run.on_oom": {"from": "stop", "to": "halve"}, "input.batch_size": {"from": 64, "to": 3},
    }}))  # fmt: skip
    checkpoint(run, 5)
    record(run, preset, chosen(oom_answer(run, preset, 0)))
    assert not run.file("checkpoints").exists()
    assert run.file("checkpoints-1/step-0000000005").is_dir()
    assert preset["input"]["batch_size"] == 1
    assert str(title(run)) == "mine: batch_size=1 on_oom=halve"
    assert json.loads((run.path / "origin.json").read_text())["changes"]["input.batch_size"]["from"] == 64
    for file in ("preset.yaml", "options.json"):
        assert yaml.safe_load(run.file(file).read_text())["input"]["batch_size"] == 1, "for the next trainer"
    assert oom_answer(run, preset, 1) == "the batch size is 1 already"


def test_each_halving_keeps_the_checkpoints_of_the_batch_before(tmp_path: Path) -> None:
    run, preset = made(tmp_path / "run", "on_oom=halve", "batch_size=8")
    for number, step in enumerate((5, 9, 12)):
        checkpoint(run, step)
        if number == 2:
            run.file("checkpoints-1").rename(tmp_path / "moved by the user")
        record(run, preset, chosen(oom_answer(run, preset, number)))
    assert preset["input"]["batch_size"] == 1
    kept = sorted(path.relative_to(run.path) for path in run.path.glob("checkpoints*/step-*"))
    steps = ((2, 9), (3, 12))  # the first are elsewhere
    assert [str(path) for path in kept] == [f"checkpoints-{number}/step-{step:010d}" for number, step in steps]


def test_a_disk_that_refuses_the_change_ends_the_run_as_out_of_memory_with_what_it_has(tmp_path: Path) -> None:
    run, _ = made(tmp_path / "run", "on_oom=halve")
    checkpoint(run, 5)
    run.file("result.json").write_text(json.dumps({"outcome": "oom"}))
    kept = run.file("preset.yaml").read_bytes()
    supervisor = supervised(run)
    found = chosen(supervisor._answer())
    with no_writing():
        assert not supervisor._is_recorded(found)
    assert run.file("checkpoints/step-0000000005").is_dir()
    assert run.file("preset.yaml").read_bytes() == kept
    supervisor.events.close()
    told, *_ = read_events(run.path, [TELEMETRY_FILE]).of(Warn)
    assert told.message == f"run.on_oom=halve ends here: {run.file('preset.yaml')} cannot be written: File too large"
    supervisor.asked_because = "timeout"
    assert supervisor._answer() is None, "a run whose time is over does not begin again"


@pytest.mark.parametrize(("kills", "outcome"), [(3, "crashed"), (4, "oom")])
def test_a_killed_trainer_ran_out_of_memory_only_if_the_kernel_has_killed_since_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, outcome: str
) -> None:
    run, _ = made(tmp_path / "run")
    monkeypatch.setattr(ending, "kernel_oom_kills", lambda: 3)
    supervisor = supervised(run)
    supervisor.trainer.returncode = -signal.SIGKILL
    monkeypatch.setattr(ending, "kernel_oom_kills", lambda: kills)
    supervisor._leave_result(Sampler(supervisor.events, os.getpid(), 1))
    supervisor.events.close()
    assert (run.result or {})["outcome"] == outcome


def test_where_smaller_batches_cannot_help_it_says_why(tmp_path: Path) -> None:
    own = {"input.batch_size": "your code has batched the data"}
    damaged, preset = made(tmp_path / "damaged")
    checkpoint(damaged, 5, content="")
    with all_hold() as cases:
        for name, (run, of), before, why in (
            ("nothing started", made(tmp_path / "a", phases=()), 0, "the phase 'building'"),
            ("saving", made(tmp_path / "b", phases=("training", "saving")), 0, "the phase 'saving'"),
            ("too often", made(tmp_path / "c"), MOST_ANSWERS, f"{MOST_ANSWERS} times"),
            ("their batches", made(tmp_path / "d", "on_oom=halve", inapplicable=own), 0, "your code has batched"),
            ("damaged", (damaged, preset), 0, "no intact checkpoint"),
        ):
            with cases.case(name):
                found = oom_answer(run, of, before)
                assert isinstance(found, str)
                assert why in found
    assert isinstance(oom_answer(*made(tmp_path / "e", phases=("training", "evaluating")), 0), Answer)


def test_the_learning_rate_is_quoted_only_where_it_applies(tmp_path: Path) -> None:
    own = {"train.learning_rate": "your code has its own optimizer"}
    theirs = chosen(oom_answer(*made(tmp_path / "theirs", "on_oom=halve", inapplicable=own), 0))
    assert theirs.hint.startswith("the learning rate stays as it is (your code has its own optimizer); a smaller batch")
    assert "train.learning_rate stays 0.001" in chosen(oom_answer(*made(tmp_path / "ours", "on_oom=halve"), 0)).hint


FAILED: dict[str, Any] = {"outcome": "error", "error": {"kind": "xla", "message": "no way", "hint": "update it"}}
COMPILED: dict[str, Any] = {"actual": {"jit_compile": True}}


def test_without_xla_the_training_goes_on_where_auto_has_compiled_it(tmp_path: Path) -> None:
    run, preset = made(tmp_path / "run", **COMPILED)
    found = chosen(recovery.xla_answer(run, preset, FAILED))
    assert found.event.message == "XLA has failed: the training begins again without it"
    assert found.hint == "compile.xla=false begins so: no way; update it"
    checkpoint(run, 5)
    found = chosen(recovery.xla_answer(run, preset, FAILED))
    assert found.event.message == "XLA has failed: the training goes on from step 5 without it"
    record(run, preset, found)
    assert run.file("checkpoints/step-0000000005").is_dir()
    assert presets.resolve(str(run.file("preset.yaml"))).options.compile.xla is False
    assert recovery.xla_answer(run, preset, FAILED) is None, "once"


def test_xla_that_the_options_or_the_users_code_have_asked_for_stays(tmp_path: Path) -> None:
    damaged, preset = made(tmp_path / "damaged", **COMPILED)
    checkpoint(damaged, 5, content="")
    with all_hold() as cases:
        for name, (run, of), result, why in (
            ("true", made(tmp_path / "a", "compile.xla=true", **COMPILED), FAILED, None),
            ("code", made(tmp_path / "b", actual={"jit_compile": False}), FAILED, None),
            ("building", made(tmp_path / "c", phases=(), **COMPILED), FAILED, None),
            ("another", made(tmp_path / "d", **COMPILED), {"outcome": "error", "error": {"kind": "nccl"}}, None),
            ("nothing", made(tmp_path / "e", **COMPILED), {"outcome": "ok", "error": None}, None),
            ("damaged", (damaged, preset), FAILED, "no intact checkpoint"),
        ):
            with cases.case(name):
                found = recovery.xla_answer(run, of, result)
                assert found is None if why is None else isinstance(found, str) and why in found


def test_a_run_that_was_asked_to_stop_does_not_begin_again_without_xla(tmp_path: Path) -> None:
    run, _ = made(tmp_path / "run", **COMPILED)
    run.file("result.json").write_text(json.dumps(FAILED))
    supervisor = supervised(run)
    assert chosen(supervisor._answer()).key == "compile.xla"
    supervisor.stop_requests = 1
    assert supervisor._answer() is None
    supervisor.events.close()


def test_of_several_errors_at_once_the_first_is_told() -> None:
    several = "Graph execution error:\n2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED:  OOM here\n  (1) CANCELLED:  x"
    assert _first_line(several) == "OOM here"
