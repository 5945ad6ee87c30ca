"""The processes of the queue: what the runner starts and with what, its work until the queue is empty, its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import checks, presets
from gputui.engine.checks import Finding
from gputui.engine.files.places import proofs_folder
from gputui.engine.job import start_worker
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.job.several_tasks import Remark
from gputui.engine.leases import lease, start_devices
from gputui.engine.presets import Preset
from gputui.engine.process import launch
from gputui.engine.proof import folder, proof_start, request
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.request import ProofError
from gputui.engine.queue import (
    adding,
    empty_notice,
    entries,
    free_devices,
    interrupted_sweeps,
    queue_settings,
    runner,
    slurm_job,
    start,
)
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.free_devices import CPU, DeviceReader
from gputui.engine.queue.runner import BEGUN, NOT_FREE, REFUSED, Runner
from gputui.engine.runs import ASKED_BY_PERSON, Run, RunError
from gputui.engine.system import locks

from tests.support.queued import add, no_runner, waiting


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


# ---- what the runner starts ----------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (None, "the sweep s1 goes on after a restart of the machine"),
        (locks.Taken(), ""),
        (ProofError("no GPU is free"), "the sweep s1 does not go on: no GPU is free"),
        (OSError(13, "Permission denied", "/x"), "the sweep s1 does not go on: [Errno 13] Permission denied: '/x'"),
    ],
)
def test_a_sweep_that_a_restart_has_ended_goes_on_where_its_runs_were_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Any, words: str
) -> None:
    run, other = waiting("one"), waiting("two")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "7")
    add(run)
    found = {proofs_folder() / "s1": run.id, proofs_folder() / "s2": other.id}
    monkeypatch.setattr(interrupted_sweeps, "interrupted", lambda listed: found if listed else {})
    asked: list[tuple[str, str | None, str | None]] = []

    def begin(proof: Proof, *, environment: dict[str, str], directory: str) -> None:
        asked.append((proof.id, environment.get("MINE"), directory))
        if fault is not None and proof.id == "s1":
            raise fault

    monkeypatch.setattr(folder, "start", begin)
    begun = interrupted_sweeps.go_on(entries.all_entries())
    assert begun == [path for path in found if fault is None or path.name == "s2"]
    assert asked == [("s1", "7", str(tmp_path)), ("s2", "7", "/")]
    lines = [line[len("2026-01-01 00:00:00 ") :] for line in capsys.readouterr().out.splitlines()]
    assert lines == [*([words] if words else []), "the sweep s2 goes on after a restart of the machine"]


# ---- the work of the runner ----------------------------------------------------------------------


def test_the_runner_works_until_the_queue_is_empty_and_tells_its_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    did: list[str] = []
    listed: list[list[str]] = [[], ["one"], ["one"], []]  # the first before the sweeps go on
    answers: list[Any] = [True, OSError("the disk is full"), RunError("it is locked"), False, False, False]

    class Stub:
        ended = ("a job",)

        def tick(self) -> bool:
            did.append("ticks")
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return bool(answer)

        def close(self) -> None:
            did.append("takes its ticket back")

    def go_on(_listed: Any) -> None:
        did.append("sweeps go on")
        raise OSError("proofs cannot be read")

    lock = SimpleNamespace(release=lambda: did.append("releases"))
    asked: list[int | None] = []

    def take(descriptor: int | None) -> Any:
        asked.append(descriptor)
        return lock if len(asked) > 1 else None

    monkeypatch.setattr(entries, "take_runner_lock", take)
    monkeypatch.setattr(entries, "listing", lambda: SimpleNamespace(entries=listed.pop(0)))
    monkeypatch.setattr(runner, "Runner", Stub)
    monkeypatch.setattr(interrupted_sweeps, "go_on", go_on)
    monkeypatch.setattr(empty_notice, "send", lambda ended: did.append(f"sends {ended}"))
    clock = SimpleNamespace(strftime=lambda _: "now", sleep=lambda seconds: did.append(f"{seconds} s"))
    monkeypatch.setattr(runner, "time", clock)
    assert (runner.carry_out(7), did) == (0, []), "another process is the runner"
    assert runner.carry_out(None) == 0
    assert asked == [7, None]
    assert did == [
        "sweeps go on", "ticks", "0.5 s", "ticks", "30.0 s", "0.5 s", "ticks", "30.0 s", "0.5 s", "ticks", "0.5 s",
        "ticks", "0.5 s", "ticks", "takes its ticket back", "releases", "sends ('a job',)",
    ], "an entry that has come meanwhile keeps it"  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "now proofs cannot be read", "now the disk is full", "now it is locked"
    ]  # fmt: skip


def test_the_runner_looks_at_gpus_only_while_a_run_waits_and_as_long_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reader(DeviceReader):
        looks, closed = 0, 0

        def __call__(self) -> tuple[free_devices.Device, ...]:
            self.looks += 1
            return (free_devices.Device(CPU),)

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


# ---- measurements --------------------------------------------------------------------------------


@pytest.fixture
def measurement(monkeypatch: pytest.MonkeyPatch) -> Proof:
    """A queued measurement that is to be started now."""
    entry = adding.queue_proof(request.of_change("quickstart", ["steps_per_execution=4"]))
    with entries.locked():
        entries.write(replace(entry, state="starting", started_at=1.0, slurm_job="7"))
    monkeypatch.setattr(proof_start, "blocks", lambda *_: "")
    monkeypatch.setattr(start_devices, "why_not", lambda *_: "")
    return folder.find(entry.run)


def now(proof: Proof) -> tuple[str, tuple[str, ...]]:
    entry = entries.read(proof.id)
    assert entry is not None
    return entry.state, tuple(entry.devices)


@pytest.mark.parametrize(
    ("busy", "blocked", "fault", "code", "words"),
    [
        ("", "", None, BEGUN, ""),
        ("GPU 0: used by ann", "a measurement", None, NOT_FREE, "GPU 0: used by ann\n"),
        ("", "a measurement is under way", None, NOT_FREE, "a measurement is under way\n"),
        ("", "", locks.Taken(), NOT_FREE, "{} is running, or another gputui is using it\n"),
        ("", "", OSError(28, "No space left on device", "/x/proof.log"), REFUSED,
         "No space left on device: /x/proof.log\n"),
        ("", "", OSError(11, "Resource temporarily unavailable"), REFUSED, "Resource temporarily unavailable\n"),
        ("", "", RunError("no folder\nmake one"), REFUSED, "no folder\n"),
    ],
)  # fmt: skip
def test_a_queued_measurement_begins_on_the_devices_of_its_entry_or_says_why_not(
    measurement: Proof, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], busy: str, blocked: str,
    fault: Exception | None, code: int, words: str,
) -> None:  # fmt: skip
    begun: list[tuple[str, Sequence[str]]] = []

    def begin(proof: Proof, among: Sequence[str]) -> None:
        if fault is not None:
            raise fault
        begun.append((proof.id, among))

    monkeypatch.setattr(folder, "start", begin)
    monkeypatch.setattr(start_devices, "why_not", lambda *_: busy)
    monkeypatch.setattr(proof_start, "blocks", lambda *_: blocked)
    assert start.main([measurement.id, "2.0", CPU]) == NOT_FREE, "that is another start"
    assert capsys.readouterr().out == "it was taken out of the queue, or another runner starts it\n"
    assert start.main([measurement.id, "1.0", CPU]) == code
    assert capsys.readouterr().out == words.format(measurement.id)
    assert begun == ([(measurement.id, [CPU])] if code == BEGUN else [])
    assert now(measurement) == (("running", (CPU,)) if code == BEGUN else ("starting", ()))


def test_in_a_job_of_slurm_a_measurement_has_the_devices_of_the_job_and_is_asked_to_stop_itself(
    measurement: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def begin(proof: Proof, among: object) -> str:
        asked.append((proof.id, among))
        return "a process"

    monkeypatch.setattr(folder, "start", begin)
    monkeypatch.setattr(folder, "request_stop", lambda proof, numbers: asked.append((proof.id, numbers)))
    monkeypatch.setattr(slurm_job, "_wait", lambda entry, process, _: slurm_job._is_asked(entry, ASKED_BY_PERSON))
    monkeypatch.setattr(slurm_job, "Requests", lambda: SimpleNamespace(is_by_slurm=False))
    with entries.locked():
        entries.write(replace(entries.all_entries()[0], state="waiting"))
    slurm_job.carry_out(measurement.id, "7")
    assert asked == [(measurement.id, None), (measurement.id, ASKED_BY_PERSON)]
    assert entries.all_entries() == ()


def test_a_job_of_slurm_whose_measurement_runs_already_starts_nothing(
    measurement: Proof, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def taken(*_: object) -> None:
        raise locks.Taken

    monkeypatch.setattr(folder, "start", taken)
    monkeypatch.setattr(slurm_job, "Requests", lambda: SimpleNamespace(is_by_slurm=False))
    assert slurm_job.carry_out(measurement.id, "7") == REFUSED
    words = f"{measurement.id} is running, or another gputui is using it"
    assert (capsys.readouterr().out, measurement.record.error) == (f"{words}\n", words)
    assert entries.all_entries() == ()


# ---- a run in a job of Slurm ---------------------------------------------------------------------


def test_a_run_in_a_job_of_slurm_is_launched_with_all_devices_of_the_job_unless_its_options_conflict(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Any] = []

    def begin(run: Run, preset: Preset, among: object) -> str:
        begun.append((run.id, preset.options.train.epochs, among))
        return "an engine"

    def ends(entry: Entry, process: object, _stops: object) -> None:
        begun.append((entry.state, process))
        entry.folder.file("result.json").write_text('{"outcome": "stopped"}')

    def found(preset: Preset, _machine: object) -> list[Finding]:
        levels = ("warning",) if preset.options.train.epochs == 7 else ("warning", "error", "error")
        return [Finding(level, ("train.epochs",), f"{level} {place}", "set it") for place, level in enumerate(levels)]

    monkeypatch.setattr(launch, "begin", begin)
    monkeypatch.setattr(checks, "of_preset", found)
    monkeypatch.setattr(slurm_job, "_wait", ends)
    monkeypatch.setattr(slurm_job, "Requests", lambda: SimpleNamespace(is_by_slurm=False))
    made = [launch.create_queued(presets.resolve("quickstart", ["visible=none", f"epochs={n}"])) for n in (7, 8)]
    for run, code in zip(made, (0, REFUSED), strict=True):
        entry = entries.add(run)
        with entries.locked():
            entries.write(replace(entry, slurm_job="", code="new"))
        assert slurm_job.carry_out(run.id, "7") == code
        assert entries.all_entries() == ()
    assert begun == [(made[0].id, 7, None), ("running", "an engine")]
    words = str(Finding("error", ("train.epochs",), "error 1", "set it"))
    assert capsys.readouterr().out.splitlines() == [
        f"{made[0].id} trains in job 7 on {os.uname().nodename}", f"{made[0].id} has ended: stopped", words
    ]  # fmt: skip
    result = made[1].result
    assert result is not None
    assert (result["outcome"], result["error"]) == ("error", {"kind": "queue", "message": words, "hint": ""})


# ---- a run of the queue --------------------------------------------------------------------------


class Starting:
    """A queued run whose entry is `starting`, with what its start asks and does; its engine is not started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, preset: Preset, folder: Path | None = None) -> None:
        self.run = launch.create_queued(preset, folder)
        self.begun: list[tuple[str, object, bool | None]] = []
        self.checked: list[str | None] = []
        self.act: Callable[[], None] = lambda: None
        entry = entries.add(self.run)
        with entries.locked():
            entries.write(replace(entry, state="starting", started_at=1.0, code="new"))
        monkeypatch.setattr(launch, "begin", self.begin)
        monkeypatch.setattr(checks, "of_preset", self.check)
        monkeypatch.setattr(proof_start, "in_the_way", lambda *_: "")
        monkeypatch.setattr(start_devices, "in_use", lambda *_: "")

    def begin(self, run: Run, _preset: Preset, among: object) -> None:
        self.begun.append((run.id, among, locks.held(entries.queue_folder() / entries.LOCK)))

    def check(self, preset: Preset, _machine: object) -> list[Finding]:
        self.checked.append(preset.options.workload.entry)
        self.act()
        return []

    def main(self, *among: str) -> int:
        return start.main([self.run.id, "1.0", *among])

    @property
    def entry(self) -> Entry:
        entry = entries.read(self.run.id)
        assert entry is not None
        return replace(entry, devices=tuple(entry.devices))


def test_a_queued_run_begins_under_the_lock_of_the_queue_and_its_code_is_taken_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = Starting(monkeypatch, presets.resolve("quickstart", ["visible=none"]))
    assert item.main("GPU-a", "GPU-b") == BEGUN
    assert item.begun == [(item.run.id, ["GPU-a", "GPU-b"], True)]
    assert (item.entry.state, item.entry.devices, item.entry.code) == ("running", ("GPU-a", "GPU-b"), "")


def test_the_code_that_a_queued_run_trains_is_checked_in_its_copy(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    own = presets.defaults(["visible=none", f"entry={tmp_path}/train.py:build"])
    item = Starting(monkeypatch, own, tmp_path)
    (tmp_path / "train.py").unlink()
    assert item.main(CPU) == BEGUN
    assert item.checked == [f"{item.run.file('code')}/train.py:build"]


def test_a_queued_run_that_was_taken_over_while_it_was_checked_is_not_started(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    item = Starting(monkeypatch, presets.resolve("quickstart", ["visible=none"]))

    def another_runner() -> None:
        with entries.locked():
            entries.write(replace(item.entry, started_at=2.0))

    item.act = another_runner
    assert item.main(CPU) == NOT_FREE
    assert capsys.readouterr().out == "it was taken out of the queue, or another runner starts it\n"
    assert (item.begun, item.entry.state) == ([], "starting")


def test_what_keeps_a_queued_run_from_its_devices_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    item = Starting(monkeypatch, presets.resolve("quickstart", ["visible=[0]"]))
    machine = Machine((Gpu(0, "GPU-a", "A100", (8, 0), 40 * 1024**3),), "", 8, 64 * 1024**3)
    remarks: list[Remark] = []
    monkeypatch.setattr(start_worker, "machine_for", lambda *_: (machine, remarks))
    (mine,) = lease.take([CPU], "letters")
    assert (item.main("GPU-a"), len(item.begun)) == (BEGUN, 1), "it does not need the CPU"
    on_cpu = Starting(monkeypatch, presets.resolve("quickstart", ["visible=none"]))
    assert on_cpu.main(CPU) == NOT_FREE
    assert capsys.readouterr().out.startswith("the CPU is used by ")
    mine.release()
    for name, words in (("in_use", "GPU 0: used by ann"), ("in_the_way", "a measurement is under way")):
        with monkeypatch.context() as patched:
            patched.setattr(start_devices if name == "in_use" else proof_start, name, lambda *_, words=words: words)
            assert on_cpu.main(CPU) == NOT_FREE
            assert capsys.readouterr().out == f"{words}\n"
    remarks.append(Remark("error", "the workers share no GPU", "start fewer"))
    assert (on_cpu.main(CPU), on_cpu.begun) == (REFUSED, [])
    assert "the workers share no GPU" in capsys.readouterr().out
    remarks[:] = [Remark("warning", "some", "x")]
    assert on_cpu.main(CPU) == BEGUN
