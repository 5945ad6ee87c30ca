"""What is done with an entry: moved, held, released, taken out and put back, with each text and each refusal."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from gputui.engine import runs
from gputui.engine.queue import entries, entry_changes, jobs, start, user_service
from gputui.engine.queue.entries import Entry
from gputui.engine.runs import Run, RunError
from gputui.engine.system import locks

from tests.support.queued import add, no_runner, states, waiting


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def three() -> list[str]:
    made = [waiting(f"p{number}") for number in range(3)]
    add(*made)
    return [run.id for run in made]


def order() -> list[str]:
    return [entry.run for entry in entries.all_entries()]


def change(name: str, **fields: object) -> Entry:
    entry = entries.read(name)
    assert entry is not None
    with entries.locked():
        entries.write(replace(entry, **fields))  # type: ignore[arg-type]
    return entry


def test_an_entry_moves_by_one_place_and_not_beyond_the_ends() -> None:
    a, b, c = three()
    for name, where, after in (
        (a, "up", [a, b, c]), (c, "down", [a, b, c]), (c, "up", [a, c, b]), (a, "down", [c, a, b]),
        (b, "top", [b, c, a]), (b, "top", [b, c, a]),
    ):  # fmt: skip
        entry_changes.move(name, where)  # type: ignore[arg-type]
        assert order() == after, (name, where)
    assert len({entry.place for entry in entries.all_entries()}) == 3


@pytest.mark.parametrize(("where", "after"), [("up", "acb"), ("down", "acb")])
def test_an_entry_with_the_place_of_another_moves_past_it(where: str, after: str) -> None:
    """Two that were added at the same moment by two processes."""
    names = dict(zip("abc", three(), strict=True))
    for name in ("b", "c"):
        change(names[name], place=2.0)
    moved = "c" if where == "up" else "b"
    entry_changes.move(names[moved], where)  # type: ignore[arg-type]
    assert order() == [names[name] for name in after]


def test_the_places_before_a_move_are_restored_for_those_that_still_wait() -> None:
    a, b, c = three()
    before = entry_changes.places()
    assert before == {a: 1.0, b: 2.0, c: 3.0}
    entry_changes.move(c, "top")
    change(b, state="running", place=9.0)
    new = waiting("new")
    add(new)
    entry_changes.restore_places(before)
    assert {entry.run: entry.place for entry in entries.all_entries()} == {a: 1.0, b: 9.0, c: 3.0, new.id: 10.0}


def test_an_entry_that_has_begun_is_neither_moved_held_nor_taken_out() -> None:
    a, *_ = three()
    change(a, state="running")
    name = Run(runs.runs_folder() / a).name
    for act in (lambda: entry_changes.move(a, "up"), lambda: entry_changes.hold(a), lambda: entry_changes.remove(a)):
        with pytest.raises(RunError, match=f"^{name} has begun; gputui stop {name} stops it$"):
            act()
    for act in (lambda: entry_changes.hold("gone"), lambda: entry_changes.release("gone"),
                lambda: entry_changes.remove("gone")):  # fmt: skip
        with pytest.raises(RunError, match=r"^gone is not in the queue; gputui queue lists what is$"):
            act()


def test_a_release_lets_an_entry_wait_and_forgets_the_failures_of_its_group_alone() -> None:
    a, b, _ = three()
    entry_changes.hold(a)
    entry_changes.hold(b, "by hand")
    held = {entry.run: (entry.state, entry.hold_reason) for entry in entries.all_entries()}
    assert (held[a], held[b]) == (("held", "held by you"), ("held", "by hand"))
    with entries.locked():
        entries.write_news({"pid": 7, "failures": {"p0": 2, "p1": 1}})
    released = entry_changes.release(a)
    assert (released.state, released.hold_reason) == ("waiting", "")
    assert entries.news() == {"pid": 7, "failures": {"p1": 1}}
    assert entry_changes.release(a) == released, "it waits already"
    change(a, state="running")
    assert entry_changes.release(a).state == "running"


def test_an_entry_that_was_taken_out_is_put_back_as_it_was_unless_it_is_there_again() -> None:
    a, b, c = three()
    environment = entries.environment_file(b).read_bytes()
    entry_changes.hold(b)
    removed = entry_changes.remove(b)
    assert removed is not None
    assert (removed.entry.state, removed.environment, removed.was_closed, removed.telemetry_bytes) == (
        "held", environment, True, None
    )  # fmt: skip
    assert order() == [a, c]
    removed.put_back()
    assert (order(), states()[b]) == ([a, b, c], "held")
    kept = entries.environment_file(b)
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (environment, 0o600)
    with pytest.raises(RunError, match=f"^{b} waits again, or has begun$"):
        removed.put_back()
    removed = entry_changes.remove(b)
    assert removed is not None
    run = Run(runs.runs_folder() / b)
    with locks.take(run.file(locks.ENGINE_LOCK)), pytest.raises(RunError, match="waits again, or has begun"):
        removed.put_back()
    run.file("preset.yaml").unlink()
    with pytest.raises(RunError, match=f"^{b} was deleted meanwhile$"):
        removed.put_back()


def test_a_damaged_entry_and_one_whose_folder_is_gone_are_taken_out_for_good() -> None:
    a, b, _ = three()
    entries.file_of(a).write_text("{")
    assert entry_changes.remove(a) is None
    Run(runs.runs_folder() / b).file("preset.yaml").unlink()
    assert entry_changes.remove(b) is None
    assert len(order()) == 1
    assert not list(entries.queue_folder().glob(f".{a}*"))


def test_a_run_that_is_being_started_is_waited_for_at_most_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    a, *_ = three()
    change(a, state="starting")
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 105 and ends:
            change(a, state="running")

    monkeypatch.setattr(entry_changes, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    ends = False
    entry_changes.wait_for_start(a)
    assert now[0] == pytest.approx(120.0, abs=0.11)
    ends, now[0] = True, 100.0
    entry_changes.wait_for_start(a)
    assert now[0] == pytest.approx(105.0, abs=0.21)


def test_a_run_is_asked_once_to_give_way_and_stopped_for_good_by_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, _ = three()
    asked: list[tuple[str, Sequence[int]]] = []
    monkeypatch.setattr(entry_changes, "request_stop", lambda run, numbers: asked.append((run.id, tuple(numbers))))
    entry_changes.ask_to_yield(a)
    entry_changes.ask_to_yield("gone")
    assert asked == [], "it does not run"
    change(a, state="running")
    for _ in range(2):
        entry_changes.ask_to_yield(a)
    assert asked == [(a, (signal.SIGTERM,))]
    assert [entry.yields for entry in entries.all_entries()] == [True, False, False]
    entry_changes.end_for_good(a)
    assert [entry.yields for entry in entries.all_entries()] == [False, False, False]

    def refuses(*_: object) -> None:
        raise RunError("its engine has not written who it is")

    monkeypatch.setattr(entry_changes, "request_stop", refuses)
    change(b, state="running")
    entry_changes.ask_to_yield(b)
    assert [entry.yields for entry in entries.all_entries()] == [False, False, False], "it is asked again later"


def test_the_lock_of_the_queue_is_waited_for_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "LOCK_SECONDS", 0.0)
    with entries.locked(), pytest.raises(RunError) as refusal, entries.locked():
        pass
    assert str(refusal.value) == "the queue is in use by another gputui, which does not end; try again"


def test_a_measurement_has_the_time_left_of_its_budget() -> None:
    job = jobs.ProofJob(Path(runs.runs_folder().parent / "proofs/x"))
    job.path.mkdir(parents=True)
    for record, left in (
        ({"budget_seconds": 600, "started_t": time.time() - 100}, 500.0),
        ({"budget_seconds": 60, "started_t": time.time() - 100}, 0.0),
        ({"budget_seconds": 60}, None),
        ({"started_t": time.time()}, None),
    ):
        (job.path / "proof.json").write_text(json.dumps(record))
        assert job.seconds_left() == (None if left is None else pytest.approx(left, abs=60))


def test_a_job_has_begun_if_it_is_locked_or_has_written_since_its_start() -> None:
    run = waiting()
    job = jobs.job_of(run.id)
    assert not job.has_begun(1.0)
    run.file("status.json").write_text("{}")
    written = run.file("status.json").stat().st_mtime
    assert [job.has_begun(at) for at in (written - 1, written, written + 1)] == [True, True, False]
    with locks.take(run.file(locks.ENGINE_LOCK)):
        assert job.has_begun(written + 1)


def test_a_fault_of_the_disk_refuses_a_start_with_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for fault, line in (
        (OSError(28, "No space left on device", "/data/x"), "No space left on device: /data/x\n"),
        (OSError(5, "Input/output error"), "Input/output error\n"),
    ):

        def fails(*_: object, fault: OSError = fault) -> None:
            raise fault

        monkeypatch.setattr(start, "start", fails)
        assert start.main(["run", "1.0"]) == 3
        assert capsys.readouterr().out == line


def test_systemd_is_asked_with_its_own_words_and_what_fails_is_left_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    program, log = tmp_path / "systemctl", tmp_path / "log"
    by_hand = "systemctl --user daemon-reload && systemctl --user enable gputui-queue.service"
    assert not user_service.remove(), "there is none"
    for script, answer in (("exit 0", ""), ("exit 1", by_hand)):
        program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{script}\n')
        program.chmod(0o755)
        assert user_service.install() == answer
    assert user_service.remove()
    assert log.read_text().splitlines() == [
        "--user daemon-reload", "--user enable gputui-queue.service", "--user daemon-reload",
        "--user disable gputui-queue.service", "--user daemon-reload",
    ]  # fmt: skip
    assert not user_service.path().exists()
    monkeypatch.setenv("GPUTUI_HOME", '/a "b" 100% $c\\d')
    assert 'Environment="GPUTUI_HOME=/a \\"b\\" 100%% $c\\\\d"\n' in user_service.text()
