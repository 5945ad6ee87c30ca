"""The entries of the queue: how they are put there, changed and started, and the settings of the queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    BEGUN,
    Cluster,
    DeviceReader,
    Durations,
    Entry,
    Finding,
    Gpu,
    Machine,
    Preset,
    Run,
    RunError,
    Runner,
    adding,
    checks,
    entries,
    gpu_use,
    launch,
    locks,
    presets,
    proof_start,
    queue_settings,
    resuming,
    runner,
    runs,
    this_machine,
    titles,
)
from tests.doors.engine import proof_request as request
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_start as start
from tests.support.queued import add, no_runner, waiting


def write(*made: Entry) -> None:
    with entries.locked():
        for entry in made:
            entries.write(entry)


def test_a_new_entry_is_the_last_and_a_second_one_of_the_same_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    before = time.time()
    write(Entry("a", 7.0), Entry("b", 3.0, state="running"))
    with entries.locked():
        made = entries.append(Entry("c", 0.0))
    assert replace(made, devices=[], among=[]) == entries.read("c")
    assert made.place == 8.0
    assert before <= made.queued_at <= time.time()
    with entries.locked(), pytest.raises(RunError, match=r"^c is in the queue already$"):
        entries.append(Entry("c", 0.0))
    assert entries.read("c") == replace(made, devices=[], among=[])


def test_a_command_waits_while_another_one_changes_the_queue() -> None:
    entries.queue_folder().mkdir(parents=True)
    other = locks.take(entries.queue_folder() / entries.LOCK)
    threading.Timer(1.5, other.release).start()
    write(Entry("a", 1.0))
    assert entries.read("a")


def test_a_choice_is_kept_to_the_gpus_that_the_environment_of_the_command_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_runner(monkeypatch)
    shown = Machine((Gpu(1, "GPU-b", "NVIDIA A100", (8, 0), 40 * 1024**3, multiprocessors=108),), "", 8, 1024**3)
    monkeypatch.setattr(this_machine, "read", lambda: shown)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert entries.add_entry(entries.entry_of(waiting())).among == ()
    both = replace(shown, gpus=(replace(shown.gpus[0], index=0, uuid="GPU-a", multiprocessors=2), *shown.gpus))
    with monkeypatch.context() as patched:
        patched.setattr(this_machine, "read", lambda: both)
        assert entries.add_entry(entries.entry_of(waiting())).among == ("GPU-b",), (
            "TensorFlow leaves a GPU with two multiprocessors alone"
        )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [entries.add_entry(entries.entry_of(waiting(visible=given))).among for given in ("free:1", [0])] == [
        ("GPU-b",),
        (),
    ]
    assert entries.add_entry(entries.entry_of(waiting(visible="all"))).needs == "1"
    monkeypatch.setattr(this_machine, "read", lambda: replace(shown, gpus=()))
    assert entries.add_entry(entries.entry_of(waiting(visible="all"))).needs == "cpu"


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def change(name: str, **fields: object) -> Entry:
    entry = entries.read(name)
    assert entry is not None
    with entries.locked():
        entries.write(replace(entry, **fields))  # type: ignore[arg-type]
    return entry


def test_what_cannot_be_queued_leaves_no_folder_and_changes_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    preset, asked = presets.resolve("quickstart"), request.of_change("quickstart", ["steps_per_execution=4"])
    joined = runs.create("w", "schema: 1\n", cluster=Cluster(("a:1", "b:1"), 0, "TF_CONFIG"))
    ended = waiting()

    def fails(*_: object) -> None:
        raise RunError("no locks")

    with monkeypatch.context() as patched:
        patched.setattr(entries, "append", fails)
        fresh: tuple[Callable[[], Entry], ...] = (
            lambda: adding.queue_preset(preset), lambda: adding.queue_proof(asked), lambda: adding.queue_trial(ended)
        )  # fmt: skip
        for queue in fresh:
            with pytest.raises(RunError, match="no locks"):
                queue()
    with pytest.raises(RunError, match="has measured"):
        adding.queue_preset(presets.resolve("quickstart", ["visible=fits:1"]))
    with pytest.raises(RunError) as refusal:
        adding.queue_resume(joined)
    assert str(refusal.value) == (
        f"{joined.name} trains on several machines, and cannot wait in the queue of one of them"
    )
    with monkeypatch.context() as patched:
        patched.setattr(resuming, "why_not", lambda _run: "it is done")
        with pytest.raises(RunError, match="it is done"):
            adding.queue_resume(ended)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    proposed: tuple[tuple[Callable[[], Entry], str], ...] = (
        (lambda: adding.queue_preset(preset), f"gputui --preset {preset.file}"),
        (lambda: adding.queue_trial(ended), "gputui sweep ..."),
        (lambda: adding.queue_resume(ended), f"gputui resume {ended.name}"),
        (lambda: adding.queue_proof(asked), asked.command),
    )
    for queue, command in proposed:
        with pytest.raises(RunError) as refusal:
            queue()
        assert str(refusal.value) == (
            "--queue is not for Slurm job 17: the queue's runner would end with the job\n"
            f"let Slurm queue it: sbatch --gpus=1 --wrap={command!r}"
        )
    assert [run.id for run in runs.all_runs()] == [ended.id, joined.id]
    assert not entries.all_entries()
    assert not list((home / "proofs").glob("2*"))


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        ("device.visible", False), ("train.learning_rate", False), ("train.epochs", True), ("run.per_gpu", True),
    ],
)  # fmt: skip
def test_a_run_takes_as_long_as_those_with_the_same_options_that_matter(key: str, counts: bool) -> None:
    def made(preset: str, value: int, seconds: float | None = None, outcome: str = "ok") -> Run:
        run = waiting()
        run.file(titles.FILE).write_text(titles.record(preset, "", {key: (0, value), "train.epochs": (1, 9)}))
        if seconds is not None:
            run.file("result.json").write_text(json.dumps({"outcome": outcome, "seconds": seconds}))
        return run

    earlier = [
        made("a", 1, 10.0), made("a", 2, 30.0), made("b", 1, 500.0), made("a", 1, 700.0, "stopped"), made("a", 1)
    ]  # fmt: skip
    expected = Durations(earlier)
    wanted = 10.0 if counts and key != "train.epochs" else 20.0
    assert expected.expected_seconds(made("a", 1)) == wanted
    assert expected.expected_seconds(made("c", 1)) is None
    assert Durations([]).expected_seconds(made("a", 1)) is None


def test_a_run_is_launched_in_the_environment_and_folder_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[list[str], dict[str, Any]]] = []

    def popen(command: list[str], **how: Any) -> str:
        made.append((command, how))
        return "a process"

    run, other = waiting("one"), waiting("two")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "7")
    add(run)
    monkeypatch.chdir("/")
    monkeypatch.setenv("MINE", "8")
    monkeypatch.setattr(runner.subprocess, "Popen", popen)  # type: ignore[attr-defined]
    assert runner.launch(Entry(run.id, 1.0, started_at=0.1), ["GPU-a", "GPU-b"]) == "a process"
    assert runner.launch(Entry(other.id, 1.0, started_at=5.0), []) == "a process"
    how = {
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True, "start_new_session": True
    }  # fmt: skip
    (command, first), (bare, second) = made
    words = [sys.executable, "-P", "-m", "gputui.engine.queue.start"]
    assert (command, bare) == ([*words, run.id, "0.1", "GPU-a", "GPU-b"], [*words, other.id, "5.0"])
    assert (first.pop("env")["MINE"], second.pop("env")["MINE"]) == ("7", "8"), "of the second nothing is kept"
    assert (first, second) == (how | {"cwd": str(tmp_path)}, how | {"cwd": "/"})


def test_the_runner_looks_at_gpus_only_while_a_run_waits_and_as_long_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reader(DeviceReader):
        looks, closed = 0, 0

        def __call__(self) -> tuple[entries.Device, ...]:
            self.looks += 1
            return (entries.Device(),)

        def close(self) -> None:
            self.closed += 1

    file = queue_settings.path()
    file.parent.mkdir(parents=True)
    file.write_text("idle_seconds: 7\n")
    reader, launched = Reader(), list[str]()
    run = waiting(visible="none")

    def launch(entry: Entry, _among: Sequence[str]) -> Any:
        launched.append(entry.run)
        return SimpleNamespace(poll=lambda: None)

    work = Runner(reader, launch)
    assert (work.tick(), reader.looks, reader.closed, reader.idle_seconds) == (False, 0, 1, None)
    add(run)
    assert (work.tick(), reader.looks, reader.closed, reader.idle_seconds) == (True, 1, 1, 7.0)
    assert launched == [run.id]
    file.write_text("idle_seconds: 9\n")
    os.utime(file, (5.0, 5.0))
    add(waiting(visible="none"))
    assert (work.tick(), reader.looks, reader.idle_seconds) == (True, 2, 9.0)
    assert launched == [run.id], "its device is taken while it is started"


def test_the_code_that_a_queued_run_trains_is_checked_in_its_copy(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str | None] = []

    def check(preset: Preset, _machine: object) -> list[Finding]:
        checked.append(preset.options.workload.entry)
        return []

    monkeypatch.setattr(launch, "begin", lambda *_: None)
    monkeypatch.setattr(checks, "of_preset", check)
    monkeypatch.setattr(proof_start, "in_the_way", lambda *_: "")
    monkeypatch.setattr(gpu_use, "in_use", lambda *_: "")
    (tmp_path / "train.py").write_text("x = 1\n")
    run = launch.create_queued(presets.defaults(["visible=none", f"entry={tmp_path}/train.py:build"]), tmp_path)
    change(entries.add_entry(entries.entry_of(run)).run, state="starting", started_at=1.0, code="new")
    (tmp_path / "train.py").unlink()
    assert start.main([run.id, "1.0", CPU]) == BEGUN
    assert checked == [f"{run.file('code')}/train.py:build"]
