"""The entries of the queue as files: what each has, their order, the kept environment, and the start of the runner."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.files.places import proofs_folder
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.leases import memory_needs
from gputui.engine.queue import entries, entry_changes, jobs
from gputui.engine.queue.durations import Durations
from gputui.engine.queue.entries import Entry, ListingReader
from gputui.engine.runs import Run, RunError, runs_folder, titles
from gputui.engine.runs.event_reading import read_events
from gputui.engine.system import locks

from tests.support.queued import GPUS, Trainings, add, no_runner, waiting


def write(*made: Entry) -> None:
    with entries.locked():
        for entry in made:
            entries.write(entry)


# ---- what an entry has ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "of_run", "fields"),
    [
        ("free:1", {}, {"needs": "free:1"}),
        ("none", {"tries": 3, "give_way": True}, {"needs": "cpu", "most_tries": 3, "gives_way": True}),
        ("free:2", {"per_gpu": 2, "give_way": "yes"},
         {"needs": "free:2", "per_gpu": 2, "prediction": "not measured: gputui scaling --copies 1,2"}),
        ([0, "GPU-b"], {"per_gpu": 2, "tries": "x"}, {"needs": "0,GPU-b"}),
        (None, {"tries": 0}, {"needs": "all"}),
        ("fits:1", {"per_gpu": 2}, {"needs": "fits:1", "bytes": 77, "prediction": "guessed"}),
    ],
)  # fmt: skip
def test_an_entry_has_what_the_options_of_its_run_say(
    visible: Any, of_run: dict[str, Any], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_needs, "of_run", lambda _run: memory_needs.MemoryNeed(77, "guessed"))
    run = waiting("fast", visible, **of_run)
    run.file(titles.FILE).write_text(titles.record("best", "/best.yaml", {}))
    expected = Entry(run.id, 0.0, group="best", after="other", code="new", **fields)
    assert entries.entry_of(run, "other", "new") == expected


def test_entries_come_by_place_then_by_time_then_by_name_whatever_their_files_are_called() -> None:
    made = [
        Entry("b", 2.0, queued_at=5.0), Entry("a", 3.0, queued_at=1.0), Entry("d", 2.0, queued_at=4.0),
        Entry("e", -1.5, queued_at=9.0), Entry("c", 2.0, queued_at=5.0),
    ]  # fmt: skip
    write(*made)
    assert [entry.run for entry in entries.all_entries()] == ["e", "d", "b", "c", "a"]
    for name in (".x.json", "x.txt", "x.json.7"):
        (entries.queue_folder() / name).write_text("{}")
    for name, content in (("y", {"place": 1.0, "state": "gone"}), ("z", {"state": "waiting"})):
        entries.file_of(name).write_text(json.dumps(content))
    listed = entries.listing()
    assert len(listed.entries) == 5
    assert listed.damage == tuple(
        f"{entries.file_of(name)} is damaged; gputui queue rm {name} removes it" for name in ("y", "z")
    )


def test_an_entry_that_leaves_while_the_queue_is_read_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    write(Entry("a", 1.0))
    entries.file_of("b").write_text("{")
    entries.file_of("c").write_text('{"place": 2.0, "state": "new word"}')
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [*listed(path), "gone.json", ".hidden.json", "queue.lock"])
    found = entries.listing()
    assert [entry.run for entry in found.entries] == ["a"]
    assert found.damage == tuple(
        f"{entries.file_of(name)} is damaged; gputui queue rm {name} removes it" for name in "bc"
    )  # fmt: skip


def test_an_entry_is_read_as_it_was_written() -> None:
    whole = Entry(
        "a", 2.5, "held", "proof", "tune", 3.0, 4.0, 5.0, "boot", 2, 3, "group", "b", "fits:1", 77, "guessed",
        ["GPU-a"], True, True, "copy", "bob's python", 2, "held by you", "7", ["GPU-b"],
    )  # fmt: skip
    write(whole)
    assert entries.read("a") == whole
    assert (whole.is_of_slurm, replace(whole, slurm_job="").is_of_slurm, Entry("a", 1.0).is_of_slurm) == (
        True, True, False
    )  # fmt: skip
    assert [entry.waits_since for entry in (whole, replace(whole, returned_at=None))] == [4.0, 3.0]


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


def test_the_entries_are_read_again_only_after_their_folder_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ListingReader()
    assert (reader.read(), reader.listing.entries) == (True, ())
    assert not reader.read(), "there is no folder"
    write(Entry("a", 1.0))
    folder = entries.queue_folder()
    os.utime(folder, (5_000.0, 5_000.0))
    now = [5_000.05]
    monkeypatch.setattr(entries, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    assert [reader.read(), reader.read()] == [True, True], "it may change again at the same moment"
    now[0] = 5_000.2
    assert [reader.read(), reader.read()] == [True, False]
    assert [entry.run for entry in reader.listing.entries] == ["a"]
    write(Entry("b", 2.0))
    assert reader.read()
    assert [entry.run for entry in reader.listing.entries] == ["a", "b"]


def test_an_entry_of_the_same_moment_is_noticed_after_a_reading_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where the process gets no core for a second between two of its calls."""
    now, listing, folder = [5_000.05], entries.listing, entries.queue_folder()
    write(Entry("a", 1.0))
    os.utime(folder, (5_000.0, 5_000.0))

    def slowly() -> entries.Listing:
        read = listing()
        write(Entry("b", 2.0))
        os.utime(folder, (5_000.0, 5_000.0))
        now[0] = 5_001.0
        return read

    monkeypatch.setattr(entries, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    reader = ListingReader()
    with monkeypatch.context() as busy:
        busy.setattr(entries, "listing", slowly)
        assert reader.read()
    assert reader.read()
    assert [entry.run for entry in reader.listing.entries] == ["a", "b"]


# ---- the environment -----------------------------------------------------------------------------


def test_a_choice_is_kept_to_the_gpus_that_the_environment_of_the_command_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_runner(monkeypatch)
    shown = Machine((Gpu(1, "GPU-b", "NVIDIA A100", (8, 0), 40 * 1024**3, multiprocessors=108),), "", 8, 1024**3)
    monkeypatch.setattr(this_machine, "read", lambda: shown)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert entries.add(waiting()).among == ()
    both = replace(shown, gpus=(replace(shown.gpus[0], index=0, uuid="GPU-a", multiprocessors=2), *shown.gpus))
    with monkeypatch.context() as patched:
        patched.setattr(this_machine, "read", lambda: both)
        assert entries.add(waiting()).among == ("GPU-b",), "TensorFlow leaves a GPU with two multiprocessors alone"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [entries.add(waiting(visible=given)).among for given in ("free:1", [0])] == [("GPU-b",), ()]
    assert entries.add(waiting(visible="all")).needs == "1"
    monkeypatch.setattr(this_machine, "read", lambda: replace(shown, gpus=()))
    assert entries.add(waiting(visible="all")).needs == "cpu"


def test_a_queued_run_gets_the_environment_of_its_command_without_that_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    kept = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "GPUTUI_HOME": os.environ["GPUTUI_HOME"]}
    left_out = ("_", "COLUMNS", "LINES", "OLDPWD", "SHLVL", "TERM", "GPUTUI_LOCK", "GPUTUI_FORKED", "GPUTUI_SCRATCH",
                "GPUTUI_LAUNCHED", "GPUTUI_LEASED")  # fmt: skip
    monkeypatch.chdir(tmp_path)
    run = waiting()
    with monkeypatch.context() as patched:
        for name in list(os.environ):
            patched.delenv(name)
        for name, value in (kept | dict.fromkeys(left_out, "x")).items():
            patched.setenv(name, value)
        assert entries.environment_to_keep() == kept
        entries.add(run)
    file = entries.environment_file(run.id)
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == kept | {"PWD": str(tmp_path)}
    home = os.environ["GPUTUI_HOME"]
    assert entries.environment_of(run.id) == (kept | {"PWD": str(tmp_path)}, str(tmp_path))
    file.write_text(json.dumps({"A": "b", "C": 3, "PWD": f"{tmp_path}/gone", "GPUTUI_HOME": "/before"}))
    assert entries.environment_of(run.id) == ({"A": "b", "PWD": f"{tmp_path}/gone", "GPUTUI_HOME": home}, None)
    file.unlink()
    assert entries.environment_of(run.id) == (dict(os.environ), None)


def test_a_runner_is_started_for_entries_alone_and_not_within_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, Any]]] = []

    def popen(command: list[str], **more: Any) -> Any:
        assert locks.held(entries.queue_folder() / entries.RUNNER_LOCK), "it inherits the lock"
        started.append((command, more))
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(entries.subprocess, "Popen", popen)  # type: ignore[attr-defined]
    before = list(entries._runners)
    entries.ensure_runner()
    write(Entry("a", 1.0))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    entries.ensure_runner()
    monkeypatch.delenv("SLURM_JOB_ID")
    with locks.take(entries.queue_folder() / entries.RUNNER_LOCK):
        entries.ensure_runner()
    assert started == []
    folder = Path(os.environ["GPUTUI_HOME"])
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("GPUTUI_HOME", folder.name)  # relative to a folder that the runner does not have
    entries.ensure_runner()
    ((command, more),) = started
    (lock,) = more["pass_fds"]
    assert command == [sys.executable, "-P", "-m", "gputui.engine.queue", str(lock)]
    assert (more["cwd"], more["start_new_session"], more["env"]["GPUTUI_HOME"]) == (
        "/", True, str(folder)
    )  # fmt: skip
    assert more["stdout"].name == more["stderr"].name == str(entries.queue_folder() / entries.LOG)
    entries._runners[:] = before


# ---- second times --------------------------------------------------------------------------------


def test_a_run_whose_engine_was_lost_comes_before_all_that_wait_though_others_were_moved_to_the_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_runner(monkeypatch)
    first, second, third, last = (waiting(f"p{at}", tries=2) for at in range(4))
    add(first, second, third, last)
    trainings = Trainings(GPUS)
    runner = trainings.runner()
    for _ in range(2):
        runner.tick()
    entry_changes.move(last.id, "top")
    places = {entry.run: entry.place for entry in entries.all_entries()}
    assert places[last.id] == places[third.id] - 1, "before those that wait, and not before those that have begun"
    trainings.end(second.id, None)
    runner.tick()
    assert [entry.run for entry in entries.all_entries()] == [second.id, first.id, last.id, third.id]
    for _ in range(2):
        runner.tick()
    assert [name for name, _ in trainings.begun] == [first.id, second.id, second.id]
    trainings.end(second.id, None)
    for _ in range(3):
        runner.tick()
    assert [name for name, _ in trainings.begun][3:] == [last.id], "it has had its two tries"
    assert second.id not in [entry.run for entry in entries.all_entries()]


@pytest.mark.parametrize("outcome", ["ok", "stopped", "oom"])
def test_a_run_that_was_queued_to_be_resumed_is_put_back_with_its_result(
    outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    run = waiting()
    result = json.dumps({"outcome": outcome, "steps": 7})
    run.file("result.json").write_text(result)
    run.file("telemetry.jsonl").write_text('{"t":1.0,"type":"host","run":"x"}\n')
    add(run)
    for _ in range(2):
        removed = entry_changes.remove(run.id)
        assert removed is not None
        assert (removed.was_closed, run.state) == (False, outcome)
        removed.put_back()
        assert (run.file("result.json").read_text(), run.state) == (result, "waiting")
    assert run.file("telemetry.jsonl").read_text().count("\n") == 1


def test_a_run_that_gave_way_waits_since_then(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    run, trainings = waiting(give_way=True), Trainings(GPUS[:1])
    add(run)
    runner = trainings.runner()
    runner.tick()
    (entry,) = entries.all_entries()
    write(replace(entry, yields=True, tries=1, queued_at=5.0))
    before = time.time()
    trainings.end(run.id, "stopped")
    trainings.seen = (replace(GPUS[0], holder="bob's python"),)
    for _ in range(2):
        runner.tick()
    (after,) = entries.all_entries()
    assert (after.state, after.devices, after.yields, after.tries, after.queued_at) == ("waiting", [], False, 0, 5.0)
    assert before <= after.waits_since <= time.time()


# ---- the folders of entries ----------------------------------------------------------------------


def test_a_run_that_the_queue_ends_has_one_result_with_its_reason() -> None:
    run = waiting()
    job = jobs.job_of(run.id)
    job.close("stopped")
    assert (run.result or {})["outcome"] == "stopped"
    assert (run.result or {})["error"] is None
    error = {"kind": "queue", "message": "no", "hint": "do"}
    job.close("error", error)
    assert [(run.result or {})[name] for name in ("outcome", "error")] == ["error", error]
    job.close("stopped")
    assert (run.result or {})["outcome"] == "error", "it has a result"
    assert [event.type for event in read_events(run.path).events] == ["finished", "error", "finished"]
    end = job.end_of()
    assert (end.state, end.kind, end.message, end.has_result) == ("error", "queue", "no", True)
    assert end.at == run.file("result.json").stat().st_mtime
    other = waiting("other")
    lost = jobs.job_of(other.id).end_of()
    assert (lost.state, lost.kind, lost.message, lost.has_result) == ("starting", "", "starting", False)
    os.utime(other.file("preset.yaml"), (5.0, 5.0))
    other.file(locks.ENGINE_LOCK).touch()
    lost = jobs.job_of(other.id).end_of()
    assert (lost.state, lost.message, lost.has_result) == ("crashed", "crashed", False)
    other.file("result.json").write_text('{"outcome": "ok"}')
    assert jobs.job_of(other.id).end_of().message == "done"


def test_a_measurement_that_the_queue_ends_keeps_its_record_and_says_why() -> None:
    job = jobs.job_of("20260101-000000-x", "proof")
    assert (job.exists(), job.path) == (False, proofs_folder() / "20260101-000000-x")
    job.path.mkdir(parents=True)
    (job.path / "request.json").write_text("{}")
    record, file = {"state": "running", "doing": "waiting", "seconds": 3}, job.path / "proof.json"
    for outcome, error, after in (
        ("stopped", None, {"state": "stopped", "ended_because": "it was taken out of the queue"}),
        ("error", {"kind": "queue", "message": "no", "hint": ""}, {"state": "failed", "error": "no"}),
    ):
        file.write_text(json.dumps(record))
        job.close(outcome, error)  # type: ignore[arg-type]
        assert json.loads(file.read_text()) == record | {"doing": "ended"} | after
        assert job.end_of().state == after["state"]
        assert job.end_of().message == after.get("error", after["state"])
        job.close("stopped")
        assert json.loads(file.read_text()) == record | {"doing": "ended"} | after, "it has ended before"
    file.write_text(json.dumps(record))
    end = job.end_of()
    assert (end.state, end.message, end.has_result, end.at) == ("crashed", "crashed", False, file.stat().st_mtime)
    assert isinstance(jobs.job_of("20260101-000000-x"), jobs.ProofJob), "there is no run of this name"
    run = Run(runs_folder() / "20260101-000000-x")
    run.path.mkdir(parents=True)
    run.file("preset.yaml").touch()
    assert isinstance(jobs.job_of("20260101-000000-x"), jobs.RunJob)


def test_of_earlier_runs_the_newest_nine_count_each_with_all_its_launches() -> None:
    made = []
    for number, seconds in enumerate((1, 2, 3, 4, 50, 60, 70, 80, 90, 1000, 1000, 1000), 1):
        run = waiting(f"fast{number}")
        run.file(titles.FILE).write_text(titles.record("fast", "", {"train.seed": (None, number)}))
        run.file("result.json").write_text(json.dumps({"outcome": "ok", "seconds": seconds}))
        made.append(run)
    made[0].file("result-1.json").write_text(json.dumps({"outcome": "stopped", "seconds": 69}))
    assert Durations(made).expected_seconds(made[-1]) == 60.0, "70, 2, 3, 4, 50, 60, 70, 80, 90"
    assert Durations(made[:2]).expected_seconds(made[-1]) == 36.0
