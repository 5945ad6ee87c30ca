"""The runner of the queue with stand-ins for devices and trainings: order, failures, kills, hours, and shared GPUs."""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from tests.doors.engine import (
    NOT_FREE,
    REFUSED,
    Entry,
    Gpu,
    GpuProcess,
    Run,
    RunError,
    entries,
    entry_changes,
    events,
    locks,
    queue_devices,
    queue_settings,
    runner,
    runs,
)
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_devices_Device as Device
from tests.doors.engine import queue_start as start
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
    why = entries.news().why
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


def test_a_busy_gpu_delays_only_those_that_need_it() -> None:
    trainings = Trainings((replace(GPUS[0], holder="bob's python since 14:02"), GPUS[1]))
    busy, free, absent = waiting(visible=[0]), waiting(visible=[1]), waiting(visible="free:3")
    add(absent, busy, free)
    runner = trainings.runner()
    runner.tick()
    assert trainings.alive == [free.id]
    why = entries.news().why
    assert why[busy.id] == "needs GPU 0; GPU 0: bob's python since 14:02"
    assert why[absent.id] == "needs 3 GPUs, which this machine does not have"


def test_three_quick_failures_in_a_row_hold_the_rest_of_the_group_until_they_are_released() -> None:
    trainings = Trainings((Device(),))
    before, made, other = [waiting("broken") for _ in range(3)], [waiting("broken") for _ in range(5)], waiting("fine")
    add(*before, *made, other)
    well = {before[2].id, other.id}
    runner = trainings.runner()
    for _ in range(30):
        runner.tick()
        if trainings.alive:
            name = trainings.alive[0]
            trainings.end(name, "ok" if name in well else "error", "" if name in well else "data")
            runner = trainings.runner()  # a new one knows of the failures before
    assert [name for name, _ in trainings.begun] == [run.id for run in (*before, *made[:3], other)]
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
    assert entries.news().failures == {"broken": 1}


def test_a_run_whose_gpu_was_lost_goes_to_the_front_as_often_as_it_may() -> None:
    trainings = Trainings((Device(),))
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
    users = (GpuProcess(77, "bob", "python"),) if stranger else ()
    taken, free = Device(Gpu(0, "GPU-a"), "bob's python", strangers=users), Device(Gpu(1, "GPU-b"))
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
    why = entries.news().why[run.id]
    assert why.endswith("; it ran out of memory before, as GPU 0 is used by bob's python"), why
    trainings.end(other.id)
    trainings.seen = (taken, free)
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [run.id]
    trainings.seen = (taken, replace(free, strangers=users))
    trainings.end(run.id, "oom", "oom")
    for _ in range(3):
        runner.tick()
    assert run.id not in states(), "it returns once"
    assert run.state == "oom"


@pytest.mark.parametrize("phase", ["before the engine", "with the engine", "after the run"])
def test_a_runner_killed_while_it_starts_a_run_loses_nothing_and_starts_nothing_twice(phase: str) -> None:
    trainings, run = Trainings((Device(),)), waiting()
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
    for forbidden in (lambda: runs.request_stop(run), lambda: entries.add_entry(entries.entry_of(run))):
        with pytest.raises(RunError, match="queue"):
            forbidden()
    with pytest.raises(RunError, match="waits in the queue"), runs.reserved(run, "delete"):
        pass
    for gone in (run, damaged):
        entry_changes.remove(gone.id)
        assert Run(gone.path).state == "stopped"
    assert not entries.all_entries()


@pytest.mark.parametrize("outcome", [None, "ok", "crashed"])
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


class Clock:
    """The time of the runner."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def time(self) -> float:
        return time.time() + self.passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    no_runner(monkeypatch)
    made = Clock()
    stand_in = SimpleNamespace(monotonic=made.monotonic, time=made.time, strftime=time.strftime, sleep=time.sleep)
    monkeypatch.setattr(runner, "time", stand_in)
    return made


def test_a_start_that_found_its_devices_busy_is_tried_again_after_2_4_8_16_30_and_30_seconds(clock: Clock) -> None:
    run = waiting(visible=[0])
    trainings = Trainings(GPUS, refused={run.id: NOT_FREE})
    add(run)
    carried, tried, reports = trainings.runner(), list[float](), list[object]()
    while len(tried) < 7:
        before = states()[run.id]
        carried.tick()
        if (before, states()[run.id]) == ("waiting", "starting"):
            tried.append(clock.passed)
        elif tried and states()[run.id] == "waiting":
            reports.append((entries.news().why, entries.news().delayed, entries.all_entries()[0].tries))
        clock.passed += 0.5
    assert [round(after - before) for before, after in itertools.pairwise(tried)] == [2, 4, 8, 16, 30, 30]
    late = ({run.id: "its start was interrupted; it is tried again"}, [run.id], 0)
    assert len(reports) > 50
    assert reports == [late] * len(reports), "such a start is no try"


def test_no_run_starts_outside_of_the_hours_and_the_reason_names_them(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = [(20, 8)]
    monkeypatch.setattr(queue_settings, "stamp", lambda: float(len(hours)))
    monkeypatch.setattr(queue_settings, "read", lambda: queue_settings.Settings(hours=hours[-1]))
    monkeypatch.setattr(queue_settings.Settings, "is_time", lambda self, hour=None: self.hours == (1, 2))
    run, trainings = waiting(), Trainings()
    add(run)
    carried = trainings.runner()
    carried.tick()
    assert entries.news().why == {run.id: f"{queue_settings.path()} starts runs from 20:00 to 8:00"}
    hours.append((1, 2))
    carried.tick()
    assert trainings.alive == [run.id]


NOT_MEASURED = "not measured: gputui scaling --copies 1,2"


def shares(per_gpu: int = 2) -> Run:
    return waiting(visible="free:1", per_gpu=per_gpu)


def devices_of(trainings: Trainings) -> list[str]:
    return [devices[0] for _, devices in trainings.begun]


def test_runs_share_gpus_up_to_their_number_and_a_run_for_itself_gets_a_whole_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No run begins on the GPU for which a run waits, so that it becomes free although others would share it."""
    no_runner(monkeypatch)
    trainings, four = Trainings(), [shares() for _ in range(4)]
    alone, fifth, sixth = waiting(visible="free:1"), shares(), shares()
    add(*four, alone, fifth, sixth)
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert devices_of(trainings) == ["GPU-a", "GPU-b", "GPU-a", "GPU-b"], "an idle GPU comes first"
    why = entries.news().why
    a, b, c, d = (run.name for run in four)
    of_a, of_b = f"GPU 0: {a} and {c} train on it (2 of 2 runs)", f"GPU 1: {b} and {d} train on it (2 of 2 runs)"
    assert why[alone.id] == f"needs a GPU; {of_a}; {of_b}"
    assert why[fifth.id] == f"needs 1 of 2 places on a GPU ({NOT_MEASURED}); GPU 0 is kept for a run before it; {of_b}"
    trainings.end(four[0].id)
    for _ in range(3):
        runner.tick()
    assert fifth.id not in trainings.alive, "the run before it waits for that GPU"
    trainings.end(four[1].id)
    for _ in range(3):
        runner.tick()
    assert trainings.begun[4:] == [(fifth.id, ("GPU-b",))], "only one GPU is kept"
    trainings.end(four[2].id)
    for _ in range(3):
        runner.tick()
    assert trainings.begun[5:] == [(alone.id, ("GPU-a",))]
    assert len(trainings.alive) == 3
    trainings.end(alone.id)
    for _ in range(3):
        runner.tick()
    assert trainings.begun[6:] == [(sixth.id, ("GPU-a",))]


GIB = 1024**3
A = Device(Gpu(0, "GPU-a", "NVIDIA A100", None, 40 * GIB, 10 * GIB))
B = Device(Gpu(1, "GPU-b", "Tesla T4", None, 15 * GIB))
X = Device(Gpu(2, "M-x", "NVIDIA A100", None, 20 * GIB, instance=0))
Y = Device(Gpu(2, "M-y", "NVIDIA A100", None, 20 * GIB, instance=1))
HOST = Device()


def entry(needs: str, run: str = "run", **more: object) -> Entry:
    return Entry(run, 1.0, needs=needs, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needs", "devices", "usable"),
    [
        ("cpu", (A, B, HOST), [HOST]), ("all", (HOST,), [HOST]), ("all", (A, B, HOST), [A, B]),
        ("free:2", (A, B, X, Y, HOST), [A, B]), ("free:1@T4", (A, B, X, HOST), [B]),
        ("free:1@20GB", (A, B, X, HOST), [A, X]), ("GPU-b,0", (A, B, X, HOST), [A, B]), ("2", (A, X, Y, HOST), [X]),
    ],
)  # fmt: skip
def test_an_entry_could_use_the_devices_that_its_options_allow(
    needs: str, devices: tuple[Device, ...], usable: list[Device]
) -> None:
    assert queue_devices.usable(entry(needs), devices) == usable


def test_the_settings_choose_gpus_and_their_number() -> None:
    file = queue_settings.path()
    file.parent.mkdir(parents=True)
    file.write_text("gpus: [1, 0]\nmost: 1\n")
    trainings, made = Trainings(), [waiting(f"p{number}") for number in range(2)]
    add(*made)
    runner = trainings.runner()
    runner.tick()
    assert trainings.begun == [(made[0].id, ("GPU-b",))]
    assert entries.news().why[made[1].id] == f"needs a GPU; {file} allows 1 at once"
    file.write_text("never: [0, GPU-b]\n")
    os.utime(file, (1, 1))
    trainings.end(made[0].id)
    runner.tick()
    assert entries.news().why[made[1].id] == f"needs a GPU; {file} leaves too few to the queue"
