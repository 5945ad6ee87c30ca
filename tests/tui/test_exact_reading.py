"""Exact cases of what lists and views read: which runs and columns, in which order and words, up to which limit."""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.figures import LOSS
from gputui.engine.leases.free_gpus import GpuUse
from gputui.engine.queue.entries import Entry as Queued
from gputui.engine.runs import Run
from gputui.engine.runs.run import RunState
from gputui.engine.runs.titles import Notes, Title
from gputui.engine.telemetry.gpu_processes import Branch
from gputui.engine.trials import sweep_sentences
from gputui.engine.trials.record import UNREAD, Record
from gputui.engine.trials.sweep_record import Axis, Sweep, SweepSettings, SweepTrial
from gputui.tui.reading import gpu_leases, last_events, machine, newest_runs, queue, queue_times, run_list
from gputui.tui.reading.queue_places import Queue, Waiting
from gputui.tui.reading.run import closer, log_tail
from gputui.tui.reading.run.closer import Closer
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess, Instance, numbers
from gputui.tui.reading.run.log_tail import LogTail
from gputui.tui.reading.run.series import Line, Pace, along
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.reading.run_columns import COLUMNS, ordered, usual
from gputui.tui.reading.run_list import Entry, queue_first, validation, when_text
from gputui.tui.reading.sweep_rows import SweepEntry, SweepTitle, TrialTitle, in_sweeps

from tests.support.typed import typed

GIB = 1024**3


def entry(name: str, state: RunState = "ok", **more: Any) -> Entry:
    return Entry(Run(Path("/runs") / name), state, **more)


# ---- runs as rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "latest", "done"),
    [("running", {"step": 30, "steps": 120}, 0.25), ("running", {"step": 0, "steps": 120}, 0.0),
     ("running", {"step": 130, "steps": 120}, 1.0), ("running", {"step": 3, "steps": 0}, None),
     ("running", {"steps": 120}, None), ("ok", {"step": 30, "steps": 120}, None)],
)  # fmt: skip
def test_the_share_of_its_steps_that_a_running_run_has_done(state: RunState, latest: Any, done: float | None) -> None:
    assert entry("a", state, latest=latest).done == done


def test_the_names_and_the_state_of_a_run() -> None:
    plain, numbered = entry("id-1", title=Title("fast")), entry("id-2", title=Title("fast", ("xla",)), number=42)
    assert [(each.name, each.named, each.group) for each in (plain, numbered)] == [
        ("id-1", "id-1", ""), ("r42", "r42 fast: xla", ""),
    ]  # fmt: skip
    assert entry("a", "running", host="box").state_word == "running on box"
    assert entry("a", "waiting").state_word == "waiting"
    assert entry("a", "waiting", waiting=Waiting("a", 1)).state_word == "waiting"
    assert entry("a", "waiting", waiting=Waiting("a", 1, held=True)).state_word == "held"
    states: tuple[RunState, ...] = ("ok", "stopped", "error", "oom", "crashed", "running", "waiting")
    resumable = [state for state in states if entry("a", state, has_checkpoint=True).resumable]
    assert resumable == ["stopped", "error", "oom", "crashed"]
    assert not any(entry("a", state).resumable for state in states)


def test_a_filter_finds_names_first_and_descriptions_last() -> None:
    full = entry("id-2", title=Title("fast", ("xla",)), number=42, notes=Notes("my note", ("a", "b")),
                 description="about", state="oom")  # fmt: skip
    assert [(place.text, place.order, place.is_name, place.label) for place in full.places] == [
        ("r42", 0, True, "name"), ("fast: xla", 0, True, "name"), ("#a", 1, True, "tag"), ("#b", 1, True, "tag"),
        ("oom", 1, True, "state"), ("id-2", 1, False, "id"), ("my note", 2, False, "note"),
        ("about", 3, False, "description"),
    ]  # fmt: skip


def test_running_runs_stand_first_then_waiting_ones_in_the_order_of_the_queue() -> None:
    placed = [entry(name, "waiting", waiting=Waiting(name, place)) for name, place in (("c", 3), ("a", 1), ("s", None))]
    rows = [entry("x"), *placed, entry("w", "waiting"), entry("y", "running"), entry("b", "waiting",
            waiting=Waiting("b", 2))]  # fmt: skip
    assert [row.run.id for row in queue_first(rows)] == ["y", "a", "b", "c", "s", "w", "x"]
    assert [row.run.id for row in queue_first(rows, running_first=False)] == ["a", "b", "c", "s", "w", "x", "y"]


def test_workers_of_a_chief_in_the_list_have_no_row() -> None:
    rows = [entry("chief", workers=("w1", "w2")), entry("w1"), entry("w3"), entry("w2")]
    assert [row.run.id for row in run_list.folded(rows)] == ["chief", "w3"]
    assert [row.run.id for row in run_list.folded(rows[1:])] == ["w1", "w3", "w2"], "without their chief"


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [({"loss": 1.0, "val_loss": 0.5, "val_accuracy": 0.9, "val_auc": 0.8}, ("val_accuracy", 0.9)),
     ({"val_loss": 0.5, "accuracy": 0.9}, ("val_loss", 0.5)),
     ({"val_accuracy": None, "val_loss": 0.5}, ("val_loss", 0.5)),
     ({"val_accuracy": "nan", "val_auc": 0.8}, ("val_auc", 0.8)), ({"loss": 1.0}, ("", None)), ({}, ("", None))],
)  # fmt: skip
def test_the_validation_of_a_row_is_its_first_metric_else_its_loss(metrics: Any, shown: Any) -> None:
    assert validation(metrics) == shown


@pytest.mark.usefixtures("not_at_utc")
def test_the_time_of_today_the_day_of_this_year_else_the_year() -> None:
    def at(year: int, month: int, day: int) -> float:
        return datetime(year, month, day, 12, 30).timestamp()

    today = at(2026, 9, 21)
    assert [when_text(at(*day), today) for day in ((2026, 9, 21), (2026, 9, 20), (2026, 8, 21), (2025, 9, 21))] == [
        " 12:30", "Sep 20", "Aug 21", "  2025",
    ]  # fmt: skip
    morning = datetime(2026, 9, 21, 1).timestamp()  # of the day before in universal time
    assert [when_text(morning, now) for now in (morning, today)] == [" 01:00"] * 2


def test_files_of_a_run_that_are_not_there_were_written_at_0(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    os.utime(tmp_path / "result.json", (7.0, 9.0))
    assert [run_list.changed(Run(tmp_path), name) for name in ("result.json", "status.json")] == [9.0, 0.0]


# ---- columns -----------------------------------------------------------------------------------------


def test_rows_without_a_value_come_last_in_both_directions() -> None:
    rows = [entry(name, figures={"samples_per_second": speed}) for name, speed in (
        ("a", 2.0), ("none", None), ("b", 0.0), ("c", 3.0))]  # fmt: skip
    assert [row.run.id for row in ordered(rows, "samples/s", True)] == ["c", "a", "b", "none"]
    assert [row.run.id for row in ordered(rows, "samples/s", False)] == ["b", "a", "c", "none"]
    noted = [entry("a", notes=Notes("b")), entry("none"), entry("c", notes=Notes("A")),
             entry("d", notes=Notes("C"))]  # fmt: skip
    assert [row.run.id for row in ordered(noted, "note", False)] == ["c", "a", "d", "none"]
    titled = [entry("b", title=Title("X")), entry("a", title=Title("x")), entry("c", title=Title("W"))]
    assert [row.run.id for row in ordered(titled, "run", False)] == ["c", "a", "b"]


def test_the_texts_of_the_columns() -> None:
    full = entry("id-2", "running", title=Title("fast", ("xla",)), number=42, notes=Notes("a\n note", ("a", "b")),
                 description="of  a\tpreset", size=3 * GIB, latest={"step": 1, "steps": 3},
                 figures={"eta_seconds": 90.0, "metrics.loss": 0.123456, "samples_per_second": 9876.54,
                          "step_ms.p50": 12.34, "input_wait": 0.075, "peak_memory_bytes": 2.5 * GIB},
                 validation=("val_mean_absolute_error", 0.98765))  # fmt: skip
    shown = {name: COLUMNS[name].show(full) for name in COLUMNS}
    assert {name: text for name, text in shown.items() if text not in ("-", "") and name != "when"} == {
        "name": "r42", "run": "r42 fast: xla", "id": "id-2", "state": "running", "done": "33 %", "left": "1:30",
        "loss": "0.123", "samples/s": "9,877", "step ms": "12.3", "wait": "8 %", "memory": "2.5 GiB",
        "validation": "mean abs 0.988", "size": "3.0 GiB", "tags": "#a #b", "note": "a note",
        "description": "of a preset",
    }  # fmt: skip
    bare = entry("id-1", title=Title("fast"))
    names = ("name", "run", "done", "left", "validation", "size", "note")
    assert {name: COLUMNS[name].show(bare) for name in names} == {
        "name": "", "run": "fast", "done": "", "left": "", "validation": "", "size": "", "note": ""}  # fmt: skip
    assert COLUMNS["validation"].show(replace(bare, figures={LOSS.key: 1.0})) == "-", "none was evaluated"
    wide = [
        COLUMNS["samples/s"].show(replace(bare, figures={"samples_per_second": speed})) for speed in (1.234e5, 1.234e8)
    ]
    assert wide == ["123,400", "1.23e+08"], "no digit is cut off"
    assert [(COLUMNS[name].head, COLUMNS[name].width) for name in ("loss", "memory", "host", "validation")] == [
        ("train loss", 10), ("tensors", 8), ("host mem", 8), ("validation", 14),
    ]  # fmt: skip


def test_the_width_alone_decides_which_columns_are_shown() -> None:
    bare = entry("a")
    full = entry("b", "running", validation=("val_loss", 1.0), notes=Notes("x", ("t",)), description="d",
                 figures={"samples_per_second": 1.0, "gpu_busy_mean": 0.5, "peak_process_bytes": 1.0})  # fmt: skip
    assert usual([bare], 78) == usual([bare, bare], 78) == ["run", "state", "done", "samples/s", "validation", "when"]
    for width in range(20, 400, 7):
        own = {"tags", "note", "description"}
        with_words, without = usual([full], width), usual([bare], width)
        assert [name for name in with_words if name not in own][: len(without)] == without or width > 140
        assert sum(COLUMNS[name].width + 1 for name in without) <= width


# ---- sweeps among the runs -----------------------------------------------------------------------------

AXES = (Axis(key="train.learning_rate"), Axis(key="input.batch_size"))


def record(state: str = "done", proved: float | None = None, seeds: tuple[int, ...] = (1, 2), **more: Any) -> Record:
    trials = [SweepTrial(run=f"s-{n}", changes={"train.learning_rate": rate, "input.batch_size": 32}, seed=seed,
                         state="done", value=value, ended_t=ended)
              for n, (rate, seed, value, ended) in enumerate(
                  zip((0.1, 0.2), seeds, (0.5, 0.25), (5.0, None), strict=True), 1)]  # fmt: skip
    sweep = Sweep(settings=SweepSettings(axes=AXES, metric="val_loss"), trials=trials, proved=proved)
    return replace(typed(Record, {"state": state, "preset_name": "cnn", "doing": "trial 2"} | more), sweep=sweep)


SWEPT = record().sweep
assert SWEPT is not None


def test_a_sweep_is_one_row_at_the_place_of_its_newest_trial() -> None:
    trials = [entry("s-2", "running", sweep="sw", when=9.0, size=5, notes=Notes("", ("a", "d", "b"))),
              entry("s-1", "ok", sweep="sw", when=11.0, size=3, notes=Notes("", ("b", "c", "a")))]  # fmt: skip
    rows = [entry("x"), trials[0], entry("y"), trials[1], entry("z")]
    names = ["x", "sw", "y", "z"]
    assert [row.run.id for row in in_sweeps(rows, {})] == names
    asked: list[tuple[str, int]] = []

    def is_open(*sweep: Any) -> bool:
        asked.append(sweep)
        return True

    opened = in_sweeps(rows, {"sw": record()}, is_open)
    assert [row.run.id for row in opened] == ["x", "sw", "s-2", "s-1", "y", "z"]
    assert asked == [("sw", 2)]
    assert [row.title.whole for row in opened[2:4]] == [
        "learning_rate=0.2 batch_size=32 seed=2", "learning_rate=0.1 batch_size=32 seed=1",
    ]  # fmt: skip
    alike = in_sweeps(rows, {"sw": record(seeds=(1, 1))}, lambda *_: True)
    assert alike[2].title.whole == "learning_rate=0.2 batch_size=32", "all have one seed"
    row = opened[1]
    assert isinstance(row, SweepEntry)
    assert (row.when, row.size, row.notes, row.is_open, row.group) == (11.0, 8, Notes("", ("a", "b")), True, "sweep")
    assert row.title.whole == "sweep 1 of 2, best 0.25, cnn, over learning_rate, batch_size"
    assert (row.state, row.done, row.validation) == ("ok", None, ("val_loss", 0.25))
    assert [run.id for run in row.best_first] == ["s-2", "s-1"]
    described = [in_sweeps(rows, {"sw": record(state, id="sw")})[1].description
                 for state in ("running", "done")]  # fmt: skip
    assert described == ["trial 2", sweep_sentences.result(SWEPT)], "what it did last is over"
    assert not in_sweeps(rows, {})[1].is_open


@pytest.mark.parametrize(
    ("state", "shown", "done"),
    [("running", "running", 0.5), ("waiting", "waiting", None), ("done", "ok", None), ("failed", "error", None),
     ("stopped", "stopped", None), ("crashed", "crashed", None), ("", "running", 0.5)],
)  # fmt: skip
def test_the_state_of_a_sweep(state: str, shown: str, done: float | None) -> None:
    trials = [entry("s-1", "running", sweep="sw"), entry("s-2", sweep="sw")]
    (row,) = in_sweeps(trials, {"sw": record(state)})
    assert (row.state, row.done) == (shown, done)
    (over,) = in_sweeps(trials[1:], {"sw": record("")})
    assert over.state == "ok"


def test_a_sweep_without_a_record_has_what_its_trials_say() -> None:
    states: tuple[RunState, ...] = ("running", "waiting", "oom")
    trials = [entry(f"s-{n}", state, sweep="20261126-120000-cnn") for n, state in enumerate(states, 1)]
    (row,) = in_sweeps(trials, {})
    assert isinstance(row, SweepEntry)
    assert (row.title.whole, row.size, row.validation, row.description) == ("sweep 1 of 3, cnn", None, ("", None), "")
    assert row.record is UNREAD
    assert [run.id for run in row.best_first] == ["s-1", "s-2", "s-3"]
    (proved,) = in_sweeps(trials, {"20261126-120000-cnn": record("running", proved=0.3)})
    assert (proved.description, proved.validation) == ("trial 2", ("val_loss", 0.3))


def test_the_title_of_a_sweep_loses_its_last_parts_and_that_of_a_trial_its_names() -> None:
    sweep = SweepTitle("cnn", ("sweep 1 of 2", "best 0.25", "cnn"))
    assert [sweep.within(width) for width in (28, 27, 23, 22, 3)] == [
        "sweep 1 of 2, best 0.25, cnn", "sweep 1 of 2, best 0.25", "sweep 1 of 2, best 0.25", "sweep 1 of 2",
        "sweep 1 of 2",
    ]  # fmt: skip
    trial = TrialTitle("cnn", ("rate=0.1", "batch_size=32", "seed=1"))
    assert [trial.within(width) for width in (29, 28, 10, 9, 7, 6, 2)] == [
        "rate=0.1 batch_size=32 seed=1", "0.1, 32, 1", "0.1, 32, 1", "0.1, 32", "0.1, 32", "0.1", "0.1",
    ]  # fmt: skip


# ---- GPUs and who uses them ----------------------------------------------------------------------------


def test_numbers_of_gpus_in_short() -> None:
    for listed, text in (([0, 1, 2, 3, 7], "0-3,7"), ([4, 1, 0], "0,1,4"), ([2, 0, 1], "0-2"), ([5], "5"), ([], ""),
                         ([0, 2, 4], "0,2,4"), ([1, 2, 5, 6, 7], "1,2,5-7")):  # fmt: skip
        assert numbers(listed) == text


def test_the_leases_of_all_gpus_in_one_line() -> None:
    gpus = [Gpu(0, lease="free"), Gpu(1, lease="run r1"), Gpu(2, lease="free"), Gpu(3, lease="free", missing="lost"),
            Gpu(4), Gpu(5, lease="free")]  # fmt: skip
    assert gpu_leases.overview(gpus) == "GPU 0,2,5: free; GPU 1: run r1"


def test_the_idle_time_of_a_process_is_the_longest_that_is_known(home: Path) -> None:
    class Notes:
        def of(self, uses: list[GpuUse]) -> list[GpuUse]:
            return [replace(use, users=use.users and tuple(replace(user, idle_seconds=60.0) for user in use.users))
                    for use in uses]  # fmt: skip

    processes = (GpuProcess(5, idle_seconds=10.0), GpuProcess(6, idle_seconds=90.0), GpuProcess(7))
    parts = (Instance(5 * GIB, 10 * GIB, "MIG-a", ()), Instance(0, 10 * GIB, "MIG-b", None))
    gpus = (Gpu(0, busy=0.0, memory_used_bytes=0, memory_total_bytes=8 * GIB, processes=()),
            Gpu(1, processes=processes), Gpu(2, mig=parts))  # fmt: skip
    free, used, divided = gpu_leases.with_leases(gpus, Notes())  # type: ignore[arg-type]
    assert (free.lease, free.processes) == ("free", ())
    assert [process.idle_seconds for process in used.processes or ()] == [60.0, 90.0, None]
    assert divided.lease.startswith("2:0 ")
    assert "; 2:1 " in divided.lease


def test_the_processes_on_gpus_as_a_tree_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(pid: int, use: float | None = None, idle: float | None = None, used: float | None = None,
                at_least: bool = True, **more: Any) -> GpuProcess:  # fmt: skip
        return GpuProcess(pid, use=use, idle_seconds=idle, memory_used_bytes=used, idle_at_least=at_least, **more)

    gpus = [
        Gpu(0, processes=(process(10, 0.5, 3.0, 2.0 * GIB, command="before"),
                          process(30, 0.1, 0.0, None, hidden="of another user"))),
        Gpu(2, processes=(process(10, 0.25, 1.0, 1.0 * GIB, False), process(11, 0.0, 5.0, GIB),
                          process(12, None, 4.0, GIB, name="python"))),
        Gpu(1, processes=(process(10, 0.75, 1.0, None), process(11, None, None, None))),
        Gpu(3, missing="lost"), Gpu(4, reasons={"processes": "unsupported"}), Gpu(5, missing="lost"),
    ]  # fmt: skip
    branches = [Branch(10, "ann", "train.py", 3.0, True), Branch(11, "ann", "", None, True, (True,), 2),
                Branch(13, "bob", "idle.py", 7.0, False)]  # fmt: skip
    asked: list[int] = []

    def trees(pids: list[int]) -> list[Branch]:
        asked.extend(pids)
        return branches

    monkeypatch.setattr(machine, "trees", trees)
    users = machine.read(gpus)
    assert asked == [10, 11, 12], "a hidden process has no place in the tree"
    assert [(line.key, line.text, line.edges, line.gpus, line.memory_bytes, line.count, line.alike)
            for line in users.lines] == [
        ("user ann", "ann", (), (0, 1, 2), 4 * GIB, 2, 1),
        ("process 10", "train.py", (), (0, 2, 1), 3 * GIB, 0, 1),
        ("process 11", "2 x not visible", (True,), (2, 1), GIB, 0, 2),
        ("user bob", "bob", (), (), None, 0, 1), ("process 13", "idle.py", (), (), None, 0, 1),
        ("user not visible", "not visible", (), (0, 2), GIB, 2, 1),
        ("process 12", "python", (), (2,), GIB, 0, 1), ("process 30", "of another user", (), (0,), None, 0, 1),
    ]  # fmt: skip
    by_pid = {line.process.pid: line.process for line in users.lines if line.process}
    assert [(by_pid[pid].use, by_pid[pid].idle_seconds, by_pid[pid].idle_at_least) for pid in (10, 11, 12)] == [
        (0.75, 1.0, False), (None, None, True), (None, None, True),
    ], "the greatest use and the shortest idle time, if all GPUs report them"  # fmt: skip
    assert [(by_pid[pid].command, by_pid[pid].started) for pid in (10, 11, 13)] == [
        ("train.py", 3.0), (None, None), ("idle.py", 7.0),
    ]  # fmt: skip
    assert users.unknown == "GPU 3,5: lost; GPU 4: not offered"


# ---- the queue -------------------------------------------------------------------------------------------


def test_when_a_run_starts_in_words() -> None:
    assert [queue_times.when_text(seconds) for seconds in (None, 0.0, 0.9, 1.0, 250.0, 4000.0)] == [
        "", "soon", "soon", "in about 0:01", "in about 4:10", "in about 1:06:40",
    ]  # fmt: skip


def test_the_header_counts_those_that_train_and_wait_and_says_when_the_next_starts() -> None:
    waits = {"a": Waiting("a", 1), "b": Waiting("b", 2, when="in about 4:10"), "c": Waiting("c", 3, when="soon")}
    assert Queue(waits, 1).words(2) == (
        "2 train, 3 wait, next in about 4:10", "2 train, 3 wait, next 4:10", "2 train, 3 wait", "3 wait",
    )  # fmt: skip
    assert Queue(waits, 1).words(0)[-2:] == ("1 train, 3 wait", "3 wait"), "it has just begun"
    assert Queue({"a": Waiting("a", 1)}).words(0) == ("0 train, 1 wait", "1 wait")


def test_why_an_entry_waits() -> None:
    held = Queued("a", 1.0, "held", hold_reason="held by you")
    waits, of_slurm = Queued("b", 2.0), Queued("c", 3.0, slurm_job="77")
    news = {"a": "no", "b": "needs a GPU"}
    assert [queue.why_of(each, news) for each in (held, waits, of_slurm)] == [
        "held by you", "needs a GPU", "waits in Slurm as job 77",
    ]  # fmt: skip
    assert queue.why_of(waits, {}) == "the runner has not looked at it yet"
    assert queue.why_of(of_slurm, {"c": "Priority"}) == "Priority"
    begun = Queued("d", 4.0, "running")
    assert queue.why_of(begun, news) == ""
    assert queue.why_of(replace(begun, yields=True), news) == "gives way, and returns to the queue"


def test_places_count_those_that_wait_for_a_device_of_this_machine() -> None:
    listed = [Queued("run", 0.0, "running"), Queued("s", 1.0, slurm_job=""), Queued("h", 2.0, "held"),
              Queued("w", 3.0), Queued("b", 4.0, "starting"), Queued("z", 5.0)]  # fmt: skip
    assert queue.places_of(listed) == {"h": 1, "w": 2, "z": 3}


# ---- a run's files ---------------------------------------------------------------------------------------


def test_the_last_event_of_a_kind_is_searched_near_the_end_of_the_file(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert last_events.last_progress(run) == {}
    filler = json.dumps({"t": 3.0, "type": "host", "cpu": None, "note": "x" * 979}, separators=(",", ":")) + "\n"

    def write(lines: int) -> None:
        steps = [f'{{"t":{step}.0,"type":"progress","step":{step}}}\n' for step in (1, 2)]
        run.file("events.jsonl").write_text("".join(steps) + filler * lines)

    assert len(filler) == 1024
    write(15)
    assert last_events.last_progress(run)["step"] == 2
    write(16)
    assert last_events.last_progress(run) == {}, "farther than 16 KiB from the end"
    assert last_events.last_event(run, "epoch") == {}


def test_the_50_newest_runs_that_have_begun() -> None:
    runs = [Run(Path(f"/runs/{number}")) for number in range(70)]
    newest = newest_runs.newest_runs(lambda run: run.id in ("3", "20"), runs)
    assert [run.id for run in newest] == [str(number) for number in range(52) if number not in (3, 20)]


def test_the_log_begins_with_its_last_bytes_and_keeps_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "LOG_BYTES", 12)
    monkeypatch.setattr(log_tail, "time", type("Clock", (), {"time": staticmethod(lambda: 50.0)}))
    path = tmp_path / "engine.log"
    tail = LogTail(path)
    tail.poll()
    assert (tail.lines, tail.arrived, tail.count) == ((), (), 0)
    path.write_text("aaa\nbbb\nccc\nddd\n")
    tail.poll()
    assert (tail.lines, tail.arrived, tail.count) == (("bbb", "ccc", "ddd"), (0.0, 0.0, 0.0), 3)
    with path.open("a") as stream:
        stream.write("eee\nf")
    tail.poll()
    assert (tail.lines[-1], tail.arrived[-2:], tail.count) == ("eee", (0.0, 50.0), 4)
    with path.open("ab") as odd:
        odd.write(b"\xff\n")
    tail.poll()
    assert tail.lines[-1] == "f\ufffd", "a byte that is no text is seen"


def test_of_a_log_2000_lines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text("".join(f"{number}\n" for number in range(2005)))
    tail = LogTail(path)
    tail.poll()
    assert (len(tail.lines), tail.lines[0], len(tail.arrived), tail.count) == (2000, "5", 2000, 2005)


def test_a_moment_of_a_resumed_run_as_a_time_of_the_day() -> None:
    now = Snapshot(begun=1000.0, pauses=((10.0, 50.0), (20.0, 90.0)))
    assert [now.unix_time(seconds) for seconds in (0.0, 9.0, 10.0, 19.0, 20.0, 30.0)] == [
        1000.0, 1009.0, 1060.0, 1069.0, 1110.0, 1120.0,
    ]  # fmt: skip


def test_a_run_whose_training_has_not_begun_has_its_times_from_its_beginning() -> None:
    assert Pace() == Pace(0.0, None, None) == Snapshot().pace
    assert Pace().place("time", 7.0, 3.0) == 7.0


def over(*x: float, each: int = 1, y: float = 1.0) -> Line:
    return Line(array("d", x), array("d", [y] * len(x)), last=y, each=each, steps=array("d", [10 * at for at in x]))


def test_on_an_axis_of_time_a_line_begins_with_the_training() -> None:
    line = replace(
        over(1, 5, 9, 10), breaks=frozenset({1, 2}), low=array("d", [1, 2, 3, 4]), high=array("d", [5, 6, 7, 8])
    )
    for begin, x, kept in ((0.0, [1, 5, 9, 10], slice(0, 4)), (5.0, [0, 4, 5], slice(1, 4)), (11.0, [], slice(4, 4))):
        part = along(line, "time", Pace(begin))
        assert (list(part.x), list(part.low), list(part.high)) == (x, list(line.low[kept]), list(line.high[kept]))
        assert (list(part.y), list(part.steps)) == (list(line.y[kept]), list(line.steps[kept]))
    assert along(line, "time", Pace(5.0)).breaks == {1}
    assert list(along(line, "epoch", Pace(5.0, 20.0)).x) == [0.5, 2.5, 4.5, 5.0]


def test_the_part_of_an_axis_in_seconds_with_a_point_on_each_side() -> None:
    now = Snapshot(elapsed=9.0, lines={"samples_per_second": over(2, 4, 6, 8)}, pace=Pace(1.0, 20.0))
    for axis, window, span in (
        ("time", (0.5, 3.0), (1.5, 4.0)), ("step", (40.0, 60.0), (2.0, 8.0)), ("step", (41.0, 60.0), (4.0, 8.0)),
        ("step", (45.0, 55.0), (4.0, 8.0)), ("step", (20.0, 20.0), (2.0, 4.0)), ("step", (90.0, 99.0), (6.0, 8.0)),
        ("epoch", (2.0, 3.0), (2.0, 8.0)),
    ):  # fmt: skip
        assert closer.seconds_of(now, axis, window) == span, (axis, window)
    assert closer.seconds_of(replace(now, lines={}), "step", (1.0, 2.0)) == (0.0, 9.0)


def test_closer_lines_are_those_with_more_points_in_the_part() -> None:
    now = Snapshot(begun=100.0, lines={"a": over(1, 5, 9, y=7.0), "b": over(1, 5, 9), "c": over(2, 3)})
    near = Closer((100.0, 110.0), {"a": over(4, 5, 6, y=2.0), "b": over(5, 20), "c": over(2, 3)})
    lines = near.of(now, "time", (4.0, 6.0))
    assert {name: (list(line.x), line.last) for name, line in lines.items()} == {"a": ([4, 5, 6], 7.0)}
    assert list(near.of(now, "time", (0.0, 10.0))) == [], "all points of the run are in it"
    assert near.of(now, "time", None) == {}
    assert near.of(now, "time", (4.0, 10.5)) == {}, "not all of it was read"
    assert near.of(now, "time", (-0.5, 6.0)) == {}
    assert Closer((0.0, 999.0)).of(now, "time", (4.0, 6.0)) == {}
