"""The runner of the queue with stand-ins for GPUs and trainings: order, failures, kills, restarts of the machine."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace

import pytest
from gputui.engine import runs
from gputui.engine.leases.free_gpus import GpuUser
from gputui.engine.queue import entries, entry_changes, start
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.queue.runner import NOT_FREE, REFUSED
from gputui.engine.runs import Run, RunError, events
from gputui.engine.system import locks

from tests.support.queued import GPUS, Trainings, add, entry_file, no_runner, states, waiting


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def test_fifty_runs_go_through_two_gpus_in_order_whatever_happens_meanwhile() -> None:
    """Failures, kills of the runner and a restart of the machine: nothing is lost, and nothing runs twice."""
    trainings, made = Trainings(), [waiting(f"p{number % 9}", tries=2) for number in range(50)]
    add(*made)
    runner, ended = trainings.runner("boot-1"), 0
    lost: list[str] = []
    for _ in range(400):
        is_active = runner.tick()
        if ended in (7, 21) or (ended == 30 and lost):
            runner = trainings.runner("boot-2" if ended == 30 else "boot-1")
        if ended == 30 and not lost:  # everything ends with the machine, and has no result
            lost = trainings.alive
            for name in lost:
                trainings.end(name, None)
            ended += 1
        elif trainings.alive and len(trainings.alive) == min(2, len(states())):
            trainings.end(trainings.alive[0], "error" if ended % 10 == 3 else "ok")
            ended += 1
        if not is_active:
            break
    assert not states()
    assert not trainings.alive
    names = [run.id for run in made]
    starts = [name for name, _ in trainings.begun]
    assert len(lost) == 2
    assert sorted(starts) == sorted([*names, *lost])
    assert list(dict.fromkeys(starts)) == names
    assert {run.state for run in made} == {"ok", "error"}


def test_a_later_run_never_takes_what_an_earlier_one_waits_for() -> None:
    trainings = Trainings()
    first, pair, single = waiting(visible="free:1"), waiting(visible="free:2"), waiting(visible="free:1")
    held, other = waiting(), waiting(visible=[1])
    add(first, pair, single, held, other)
    entry_changes.hold(held.id)
    runner = trainings.runner()
    for _ in range(4):
        runner.tick()
    assert trainings.alive == [first.id], "the second GPU is kept for the pair"
    why = entries.news()["why"]
    assert why[pair.id] == f"needs 2 GPUs; GPU 0: {first.name} trains on it"
    assert why[held.id] == "held by you"
    trainings.end(first.id)
    for _ in range(4):
        runner.tick()
    assert trainings.alive == [pair.id]
    trainings.end(pair.id)
    for _ in range(4):
        runner.tick()
    assert trainings.begun[2:] == [(single.id, ("GPU-a",)), (other.id, ("GPU-b",))]


def test_entries_that_cannot_be_followed_or_started_do_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    trainings, begun, damaged, last = Trainings(), waiting(), waiting(), waiting()
    add(begun, damaged, last)
    long = "x" * 300  # no file can have such a name
    entries.write(replace(entries.all_entries()[0], state="starting", started_at=1.0))
    begun.file("preset.yaml").unlink()
    begun.file("preset.yaml").symlink_to(long)
    entries.write(replace(entries.all_entries()[1], after=long))
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [last.id]
    assert "File name too long" in entries.news()["why"][damaged.id]
    assert capsys.readouterr().out.count(f"{damaged.id}: OSError: [Errno 36] File name too long") == 1


def test_a_busy_gpu_delays_only_those_that_need_it() -> None:
    trainings = Trainings((replace(GPUS[0], holder="bob's python since 14:02"), GPUS[1]))
    busy, free, absent = waiting(visible=[0]), waiting(visible=[1]), waiting(visible="free:3")
    add(absent, busy, free)
    runner = trainings.runner()
    runner.tick()
    assert trainings.alive == [free.id]
    why = entries.news()["why"]
    assert why[busy.id] == "needs GPU 0; GPU 0: bob's python since 14:02"
    assert why[absent.id] == "needs 3 GPUs, which this machine does not have"


def test_a_run_starts_after_another_one_has_ended_and_moved_runs_keep_their_new_order() -> None:
    trainings = Trainings((Device(CPU),))
    first, second, third, last = (waiting(f"p{number}") for number in range(4))
    add(first, second, third)
    add(last, after=second)
    entry_changes.move(last.id, "top")
    entry_changes.move(third.id, "up")
    assert [entry.run for entry in entries.all_entries()] == [last.id, first.id, third.id, second.id]
    runner = trainings.runner()
    while runner.tick():
        if trainings.alive:
            trainings.end(trainings.alive[0])
    assert [name for name, _ in trainings.begun] == [first.id, third.id, second.id, last.id]


def test_three_quick_failures_hold_the_rest_of_the_group_until_they_are_released() -> None:
    trainings = Trainings((Device(CPU),))
    made, other = [waiting("broken") for _ in range(5)], waiting("fine")
    add(*made, other)
    runner = trainings.runner()
    for _ in range(20):
        runner.tick()
        if trainings.alive:
            name = trainings.alive[0]
            trainings.end(name, "ok" if name == other.id else "error", "" if name == other.id else "data")
            runner = trainings.runner()  # a new one knows of the failures before
    assert [name for name, _ in trainings.begun] == [*(run.id for run in made[:3]), other.id]
    assert states() == {made[3].id: "held", made[4].id: "held"}
    (entry, _) = entries.all_entries()
    assert entry.hold_reason.startswith("3 runs of broken failed within a minute of their start: data in ")
    runner = trainings.runner()  # it does not count those before the release either
    for run in made[3:]:
        entry_changes.release(run.id)
    runner.tick()
    assert trainings.alive == [made[3].id]
    trainings.end(made[3].id, "error", "data")
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [made[4].id]
    assert entries.failures() == {"broken": 1}


def test_failures_with_a_success_between_them_hold_nothing() -> None:
    trainings, made = Trainings((Device(CPU),)), [waiting("flaky") for _ in range(6)]
    add(*made)
    runner = trainings.runner()
    outcomes = dict(zip((run.id for run in made), ("error", "error", "ok", "error", "error", "ok"), strict=True))
    while runner.tick():
        assert "held" not in states().values()
        if trainings.alive:
            name = trainings.alive[0]
            failed = outcomes[name] == "error"
            trainings.end(name, "error" if failed else "ok", "data" if failed else "")
    assert [name for name, _ in trainings.begun] == [run.id for run in made]


def test_a_run_whose_gpu_was_lost_goes_to_the_front_as_often_as_it_may() -> None:
    trainings = Trainings((Device(CPU),))
    again, once, last = waiting(tries=2), waiting(), waiting()
    add(again, once, last)
    runner = trainings.runner()
    for _ in range(20):
        runner.tick()
        if trainings.alive:
            name = trainings.alive[0]
            trainings.end(name, "ok" if name == last.id else "crashed", "" if name == last.id else "gpu_lost")
    assert [name for name, _ in trainings.begun] == [again.id, again.id, once.id, last.id]
    assert again.state == once.state == "crashed"


@pytest.mark.parametrize("stranger", [True, False])
def test_a_run_out_of_memory_returns_once_if_a_stranger_is_on_its_gpu(
    stranger: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    trainings, run, other = Trainings(), waiting(), waiting()
    add(run, other)
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    users = (GpuUser(77, "bob", "python"),) if stranger else ()
    taken, free = Device("GPU-a", 0, "bob's python", users=users), Device("GPU-b", 1)
    trainings.seen = (taken, replace(free, holder="used by eve"))
    trainings.end(run.id, "oom", "oom")
    for _ in range(3):
        runner.tick()
    log = [line[20:] for line in capsys.readouterr().out.splitlines()]
    if not stranger:
        assert (run.id in states(), log) == (False, [])
        return
    assert states()[run.id] == "waiting"
    assert log == [f"{run.id} ran out of memory and waits again: GPU 0 is used by bob's python"]
    why = entries.news()["why"][run.id]
    assert why.endswith("; it ran out of memory before, as GPU 0 is used by bob's python"), why
    trainings.end(other.id)
    trainings.seen = (taken, free)
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [run.id]
    trainings.seen = (taken, replace(free, users=users))
    trainings.end(run.id, "oom", "oom")
    for _ in range(3):
        runner.tick()
    assert run.id not in states(), "it returns once"
    assert run.state == "oom"


@pytest.mark.parametrize("phase", ["before the engine", "with the engine", "after the run"])
def test_a_runner_killed_while_it_starts_a_run_loses_nothing_and_starts_nothing_twice(phase: str) -> None:
    trainings, run = Trainings((Device(CPU),)), waiting()
    add(run)
    (entry,) = entries.all_entries()
    starting = replace(entry, state="starting", tries=1, started_at=time.time() - 1)
    lock = None
    with entries.locked():
        entries.write(starting)
    if phase == "with the engine":
        lock = locks.take(run.file(locks.ENGINE_LOCK))
    elif phase == "after the run":
        run.file("status.json").write_text("{}")
        run.file("result.json").write_text(json.dumps({"outcome": "ok"}))
    assert run.state == "starting"
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    if phase == "before the engine":
        assert [name for name, _ in trainings.begun] == [run.id]
    else:
        assert not trainings.begun
    assert states() == ({} if phase == "after the run" else {run.id: "running"})
    if lock:
        lock.release()


def test_a_process_of_a_killed_runner_starts_nothing_after_another_one_has_taken_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = waiting()
    add(run)
    (entry,) = entries.all_entries()
    with entries.locked():
        entries.write(replace(entry, state="starting", started_at=2.0))
    assert start.main([run.id, "1.0", CPU]) == NOT_FREE
    assert capsys.readouterr().out == "it was taken out of the queue, or another runner starts it\n"
    assert states() == {run.id: "starting"}
    assert not run.file("engine.log").exists()


def test_a_start_that_is_refused_ends_the_run_and_one_that_is_not_free_waits() -> None:
    trainings, refused, busy = Trainings(), waiting("a"), waiting("b")
    trainings.refused = {refused.id: REFUSED, busy.id: NOT_FREE}
    add(refused, busy)
    runner = trainings.runner()
    for _ in range(4):
        runner.tick()
    assert (refused.state, busy.state) == ("error", "waiting")
    assert states() == {busy.id: "waiting"}
    assert entries.all_entries()[0].tries == 0
    assert (refused.result or {})["error"]["message"] == "the run could not be started"


def test_a_waiting_run_is_waiting_everywhere_and_what_would_disturb_it_is_refused() -> None:
    run, damaged = waiting("a"), waiting("b")
    add(run, damaged)
    entry_file(damaged).write_text("{")
    assert run.state == damaged.state == "waiting"
    assert not run.is_active
    assert [line.partition(" is damaged")[0] for line in entries.listing().damage] == [str(entry_file(damaged))]
    for forbidden in (lambda: runs.request_stop(run), lambda: entries.add(run)):
        with pytest.raises(RunError, match="queue"):
            forbidden()
    with pytest.raises(RunError, match="waits in the queue"), runs.reserved(run, "delete"):
        pass
    for gone in (run, damaged):
        entry_changes.remove(gone.id)
        assert Run(gone.path).state == "stopped"
    assert not entries.all_entries()


@pytest.mark.parametrize("outcome", [None, "ok", "stopped", "timeout", "crashed", "oom", "error"])
def test_a_run_taken_out_of_the_queue_keeps_the_result_that_it_has(outcome: str | None) -> None:
    run = waiting()
    result = run.file("result.json")
    if outcome is not None:  # it was queued to be resumed
        result.write_text(json.dumps(asdict(events.Summary(outcome=outcome, steps=7))))  # type: ignore[arg-type]
    before = result.read_text() if outcome else ""
    add(run)
    entry_changes.remove(run.id)
    assert not states()
    assert run.state == outcome or (outcome is None and run.state == "stopped")
    assert result.read_text() == before or outcome is None


def test_a_process_that_was_killed_while_it_wrote_an_entry_leaves_no_file() -> None:
    run, other = waiting(), waiting()
    add(run, other)
    drafts = [entries.queue_folder() / f".{name}.json.4711" for name in (run.id, other.id)]
    for draft in drafts:
        draft.write_text("{")
    with entries.locked():
        entries.discard(run.id)
    assert [draft.exists() for draft in drafts] == [False, True]
