"""Cases that reading meets seldom: pauses of a replay, waits for others, runs after other runs, files that are gone."""

from __future__ import annotations

import json
import os
import subprocess
from array import array
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.proof import folder
from gputui.engine.queue import entries, free_devices
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.free_devices import Device
from gputui.engine.runs import Run, events
from gputui.engine.runs.parsing import dated, recalled
from gputui.engine.trials.record import Record
from gputui.engine.trials.sweep_record import SweepTrial
from gputui.tui.base import base_app
from gputui.tui.drawing.plot.curves import smoothed
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.printing import prepare, proof, run_progress
from gputui.tui.reading import earlier_starts, preset_files, queue_times, sweep_records, trial_curves
from gputui.tui.reading.run import closer
from gputui.tui.reading.run.gpu_reading import GpuProcess, Instance
from gputui.tui.reading.run.reader import RunReader
from gputui.tui.reading.run.series import Line
from gputui.tui.reading.run.store import Store
from gputui.tui.reading.run_list import Entry as Listed
from gputui.tui.reading.run_list import RunList
from gputui.tui.reading.sweep_rows import in_sweeps
from rich.console import Console

from tests.support import recorded
from tests.support.typed import typed


def write(run: Run, *lines: dict[str, Any], name: str = "events.jsonl") -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    run.file(name).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


# ---- a run -------------------------------------------------------------------------------------------------


def test_a_replay_shortens_a_pause_of_more_than_half_a_minute(tmp_path: Path) -> None:
    run, clock = Run(tmp_path), [500.0]
    phases = [{"type": "phase", "phase": phase, "detail": ""} for phase in ("importing", "training", "saving", "ended")]
    times = (0.0, 30.0, 60.5, 70.0)  # the second pause is longer than 30 s
    write(run, *({"t": 1000.0 + t} | phase for t, phase in zip(times, phases, strict=True)))
    reader = RunReader(run, 1.0, lambda: clock[0])

    def at(seconds: float) -> str:
        clock[0] = 500.0 + seconds
        reader.poll()
        return reader.picture.snapshot.phase

    assert [at(seconds) for seconds in (0.0, 29.0, 30.0, 31.0, 38.0, 40.0)] == [
        "importing", "importing", "training", "saving", "saving", "ended",
    ]  # fmt: skip


def test_at_twice_the_pace_a_pause_may_last_twice_as_long(tmp_path: Path) -> None:
    run, clock = Run(tmp_path), [500.0]
    phases = [{"type": "phase", "phase": phase, "detail": ""} for phase in ("importing", "training")]
    write(run, *({"t": 1000.0 + t} | phase for t, phase in zip((0.0, 59.0), phases, strict=True)))
    reader = RunReader(run, 2.0, lambda: clock[0])
    reader.poll()
    clock[0] += 29.0
    reader.poll()
    assert reader.picture.snapshot.phase == "importing"
    clock[0] += 1.0
    reader.poll()
    assert reader.picture.snapshot.phase == "training"


def test_the_newest_event_of_the_workers_is_kept() -> None:
    store = Store()
    store.feed(recalled({"t": 1.0 + n, "type": "workers", "workers": [], "slowest": n}) for n in (0, 1))
    assert store.snapshot().workers["slowest"] == 1


def test_a_wait_for_other_workers_is_no_part_of_a_start(tmp_path: Path) -> None:
    run = Run(tmp_path)
    phases = ((0.0, "importing", ""), (4.0, "configuring", "waiting for worker 1 (b:1)"), (60.0, "configuring", ""),
              (61.0, "compiling", ""), (64.0, "training", ""))  # fmt: skip
    write(run, *({"t": t, "type": "phase", "phase": phase, "detail": detail} for t, phase, detail in phases))
    assert earlier_starts.start_of(run) == {"starting": 0.0, "importing": 4.0, "configuring": 1.0, "compiling": 3.0}


def test_a_smoothed_line_begins_anew_after_a_break_and_passes_over_what_is_no_number() -> None:
    line = Line(array("d", range(5)), array("d", [4.0, 0.0, 8.0, float("inf"), 0.0]), frozenset({2}))
    assert list(smoothed(line, 0.5).y) == pytest.approx([4.0, 4 / 3, 8.0, 8.0, 8 / 3])
    merged = Line(array("d", range(2)), array("d", [4.0, 0.0]), each=2)
    assert list(smoothed(merged, 0.5).y) == pytest.approx([4.0, 4 * 0.25 * 0.75 / (1 - 0.0625)])


def test_a_cursor_that_was_placed_stays_when_the_mouse_leaves() -> None:
    view = Viewport()
    view.whole = (0.0, 100.0)
    assert [view.hover(place) for place in (None, 5.0, 5.0, None)] == [False, True, False, True]
    view.place(7.0)
    assert (view.hover(None), view.cursor) == (False, 7.0)
    view.place(700.0)
    assert view.cursor == 100.0


def test_before_the_first_reading_a_list_has_no_runs() -> None:
    known = RunList()
    assert (known.total, known.closed, dict(known.sweeps), known.measure()) == (0, 0, {}, False)


def test_a_part_of_a_long_past_is_read_once_and_one_at_the_end_as_long_as_it_is_seen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded.write(home, gpus=0, seconds=60, outcome=None, engine_pid=os.getpid())
    reader = RunReader(run)
    while reader.poll():
        pass
    now = reader.picture.snapshot
    assert list(closer.read(run, now, "time", (0.0, 5.0), lambda: True)) == [], "all of its readings are there"
    monkeypatch.setattr(closer, "PARSED_BYTES", 0)
    (part,) = closer.read(run, now, "time", (0.0, 5.0), lambda: True)
    begin = now.pace.begin + now.begun
    assert part.span == (begin - 5.0, begin + 10.0)
    looks = iter((True, True, True, False))
    assert len(list(closer.read(run, now, "time", (30.0, now.elapsed - now.pace.begin), lambda: next(looks)))) == 3


def test_a_reader_has_the_log(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, name="20260921-100000-cnn")
    run.file("engine.log").write_text("one\n")
    reader = RunReader(run)
    while reader.poll():
        pass
    assert (reader.picture.log, reader.picture.log_arrived, reader.picture.log_count) == (("one",), (0.0,), 1)
    with run.file("engine.log").open("a") as log:
        log.write("two\n")
    reader = RunReader(run)
    reader.poll()
    assert (reader.picture.log, reader.picture.log_count) == (("one", "two"), 2)


@pytest.mark.parametrize(
    ("outcome", "trains", "seen"), [("ok", False, "ok"), (None, False, "crashed"), (None, True, None)]
)
def test_the_end_of_a_run_is_read_at_once_as_it_is_no_state_of_the_past(
    home: Path, outcome: Any, trains: bool, seen: str | None
) -> None:
    pid = os.getpid() if trains else None
    reader = RunReader(recorded.write(home, gpus=0, seconds=20, outcome=outcome, engine_pid=pid))
    while reader.poll():
        assert reader.picture.reading
    assert (reader.picture.snapshot.outcome, reader.picture.reading) == (seen, False)


def test_a_run_that_has_ended_stays_so_without_its_result(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=20, outcome="ok")
    run.file("result.json").unlink()
    reader = RunReader(run)
    for _ in range(3):
        reader.poll()
    assert (reader.picture.snapshot.phase, reader.picture.snapshot.outcome) == ("ended", "ok")


def test_a_process_is_named_by_its_command_or_else_by_its_program() -> None:
    names = (("python", "train.py -x"), ("python", None), (None, "train.py -x"), (None, None))
    assert [GpuProcess(5, name, command=command).program for name, command in names] == [
        "train.py -x", "python", "train.py -x", None,
    ]  # fmt: skip


def test_what_a_reading_says_of_the_memory_of_a_gpu() -> None:
    def read(**more: Any) -> tuple[bool, bool, bool]:
        store = Store()
        store.feed([recalled({"t": 1.0, "type": "gpu", "gpus": [{"index": 0, "uuid": "GPU-a"} | more]})])
        (gpu,) = store.snapshot().gpus
        return gpu.counts_reserved, gpu.shared_with_host, gpu.mig_off

    assert read() == (False, False, False)
    assert read(memory_used_counts_reserved=True) == (True, False, False)
    assert read(shared_with_host=True, mig=None) == (False, True, True)
    assert read(mig=[]) == (False, False, False)
    parts = [{"memory_used_bytes": 1, "memory_total_bytes": 2, "uuid": "MIG-a", "processes": [{"pid": 5}]}]
    store = Store()
    store.feed([recalled({"t": 1.0, "type": "gpu", "gpus": [{"index": 0, "uuid": "GPU-a", "mig": parts}]})])
    assert store.snapshot().gpus[0].mig == (Instance(1, 2, "MIG-a", (GpuProcess(5),)),)


# ---- sweeps ------------------------------------------------------------------------------------------------


def test_the_record_of_a_sweep_is_read_again_if_its_file_changes_or_it_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    state = {"value": "running"}

    def record(proof: Any) -> Record:
        reads.append(proof.id)
        return typed(Record, {"state": state["value"]})

    monkeypatch.setattr(folder.Proof, "record", property(record))
    records = sweep_records.SweepRecords()
    assert records.read(["gone"])["gone"].state == "running"
    records.read(["gone"])
    assert reads == ["gone", "gone"]
    state["value"] = "done"
    records.read(["gone"])
    records.read(["gone"])
    assert len(reads) == 3, "it has ended"
    path = home / "proofs" / "gone" / "proof.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert set(records.read(["gone", "other"])) == {"gone", "other"}
    assert reads[3:] == ["gone", "other"]


def test_the_row_of_a_sweep_has_the_time_of_its_newest_trial_and_the_size_of_all() -> None:
    trials = [Listed(Run(Path(f"/runs/{n}")), "ok", when=when, size=size, sweep="sw")
              for n, (when, size) in enumerate(((5.0, 10), (9.0, None), (7.0, 30)))]  # fmt: skip
    (row,) = in_sweeps(trials, {})
    assert (row.when, row.size) == (9.0, 40)
    (row,) = in_sweeps(trials[1:2], {})
    assert (row.when, row.size) == (9.0, None), "not measured yet"


def test_the_curves_of_trials_are_read_if_their_files_have_grown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [10.0]
    monkeypatch.setattr(trial_curves, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    curves, run = trial_curves.TrialCurves("val_loss"), Run(home / "runs" / "s-1")
    training = SweepTrial(run="s-1", changes={}, seed=1, state="running")
    curves.read([training])
    assert curves.lines == {}

    def epoch(number: int, value: float | None) -> dict[str, Any]:
        fields = {"epoch": number, "step": number, "metrics": {"loss": 9.0, "val_loss": value}, "seconds": 1.0}
        return {"t": float(number), "type": "epoch", **fields}

    def points() -> dict[str, list[tuple[float, float]]]:
        return {name: list(zip(line.x, line.y, strict=True)) for name, line in curves.lines.items()}

    write(run, epoch(2, 0.5), epoch(1, 0.75), epoch(3, None))
    curves.read([training])
    before = curves.lines
    assert points() == {"s-1": [(1.0, 0.75), (2.0, 0.5)]}
    assert before["s-1"].last == 0.5
    write(run, epoch(1, 0.75), epoch(2, 0.5), epoch(3, 0.375))
    clock[0] += 2.9
    curves.read([training])
    assert curves.lines is before, "one that trains is read every 3 s"
    clock[0] = 13.0
    curves.read([training])
    assert points() == {"s-1": [(1.0, 0.75), (2.0, 0.5), (3.0, 0.375)]}
    done = SweepTrial(run="s-1", changes={}, seed=1, state="done")
    again = curves.lines
    curves.read([done])
    assert curves.lines is again, "the file has not grown"
    write(run, epoch(1, 0.125))
    curves.read([done])
    assert points() == {"s-1": [(1.0, 0.125)]}


# ---- presets and the queue ------------------------------------------------------------------------------------


def test_a_folder_with_the_name_of_a_preset_is_no_preset_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    entry = preset_files.read_entry(tmp_path / "a.yaml", "here")
    assert (entry.other, entry.fault, entry.text) == ("is a folder, not a file", "", "")


def test_a_start_is_forecast_by_the_runs_that_use_the_devices(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []

    def start_times(waiting: Any, uses: Any, most: Any, opens_in: Any) -> dict[str, float | None]:
        begun[:] = [(each.run, set(each.devices), each.seconds_left, each.is_queued) for each in uses]
        return {each.run: 7.0 for each in waiting}

    monkeypatch.setattr(queue_times, "start_times", start_times)
    monkeypatch.setattr(queue_times, "state_if_not_ended", lambda run: "" if run == "over" else "running")
    for name, left in (("queued", 60.0), ("mine", 30.0), ("first", 90.0)):
        progress = {"t": 1.0, "type": "progress", "step": 1, "eta_seconds": left}
        write(run := Run(home / "runs" / name), progress)
        run.file("preset.yaml").write_text("schema: 1")
    devices = [
        Device("GPU-a", 0, "run queued", run=str(home / "runs" / "queued")),
        Device("GPU-b", 1, "run mine", run=str(home / "runs" / "mine")), Device("GPU-c", 2, "bob's python"),
        Device("GPU-d", 3),
    ]  # fmt: skip
    monkeypatch.setattr(free_devices, "from_news", lambda news: devices if news else [])
    listed = [Entry("queued", 0.0, "running", devices=("GPU-a", "GPU-x")), Entry("w1", 1.0, after="first"),
              Entry("w2", 2.0, "held", after="over"), Entry("w3", 3.0, after="queued"),
              Entry("slurm", 4.0, slurm_job="7")]  # fmt: skip
    news = {"devices": ["known"]}
    starts = queue_times.starts_in(listed, news)
    assert starts == {"w1": 7.0, "w2": 7.0, "w3": 7.0, "slurm": None}
    assert begun == [
        ("queued", {"GPU-a", "GPU-x"}, 60.0, True), ("mine", {"GPU-b"}, 30.0, False), ("GPU-c", {"GPU-c"}, None, False),
        ("first", set(), 90.0, False),
    ]  # fmt: skip
    unknown = dict.fromkeys(("w1", "w2", "w3", "slurm"))
    assert queue_times.starts_in(listed, {}) == unknown, "the devices have not been looked at"
    monkeypatch.setattr(entries, "is_paused", lambda: True)
    assert queue_times.starts_in(listed, news) == unknown


def test_tmux_that_does_not_take_a_text_leaves_it_to_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_command: Any, **_more: Any) -> None:
        raise FileNotFoundError("tmux")

    monkeypatch.setattr(subprocess, "run", gone)
    in_file = f"if the terminal does not take it (OSC 52), it is in {home}/copied.txt"
    assert base_app.keep("text", {"TMUX": "x"}) == in_file
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    assert base_app.keep("text", {"TMUX": "x"}) == in_file
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    assert base_app.keep("text", {"TMUX": "x"}) == "tmux has it as well: its prefix, then ] pastes it"


# ---- bars on a terminal ------------------------------------------------------------------------------------------


class Task:
    """What a bar shows at last."""

    def __init__(self) -> None:
        self.shown: dict[str, Any] = {}
        self.calls: list[str] = []
        self.console = Console(file=StringIO())

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def add_task(self, *_: Any, **fields: Any) -> int:
        self.shown |= fields
        return 5

    def update(self, task: int, **fields: Any) -> None:
        assert task == 5
        self.shown |= fields


def test_the_bar_of_a_run_shows_its_epoch_and_what_it_does(tmp_path: Path) -> None:
    view, bar = run_progress.BarView(Run(tmp_path), Console(file=StringIO())), Task()
    vars(view)["_bar"] = bar
    view.close()
    assert bar.calls == [], "it was not begun"
    view.show(dated(events.Phase(phase="importing"), 1.0))
    assert bar.shown == {"total": None, "figures": "", "description": "importing TensorFlow"}
    fields: dict[str, Any] = {
        "epoch": 2, "epochs": 3, "steps": 90, "samples_per_second": 1234.5, "step_ms_p50": 12.5, "step_ms_p95": 20.0,
        "input_wait": 0.25, "loss": 0.5, "metrics": {}, "eta_seconds": 90.0,
    }  # fmt: skip
    view.show(dated(events.Progress(step=7, **fields), 2.0))
    figures = "1,234 samples/s  step 12.5 ms  input wait 25 %  loss 0.5 so far  time left 1:30"
    assert bar.shown == {"total": 90, "figures": figures, "description": "epoch 2/3", "completed": 7}
    view.show(dated(events.Phase(phase="saving", detail="checkpoint"), 3.0))
    assert (bar.shown["description"], bar.shown["figures"]) == ("saving", figures)
    view.show(dated(events.Phase(phase="training"), 3.0))
    assert bar.shown["description"] == "saving"
    view.close()
    view.close()
    assert bar.calls == ["start", "stop"]


def test_the_bar_of_a_preparation_shows_how_many_samples_are_there() -> None:
    bar = Task()
    view = prepare.BarView(bar)  # type: ignore[arg-type]
    assert bar.shown == {"total": None, "figures": ""}
    view.show(SimpleNamespace(samples=3, all_samples=9, files=1, all_files=2, broken=0))  # type: ignore[arg-type]
    assert bar.shown == {"total": 9, "completed": 3, "figures": "3 of 9 samples, 1 of 2 files"}


def test_the_time_that_is_left_of_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "elapsed_of", lambda data: 40.0)

    def left(**fields: Any) -> str:
        return proof.left(SimpleNamespace(**{"budget_most_seconds": None, "kind": "ab"} | fields))  # type: ignore[arg-type]

    assert [left(budget_seconds=None), left(budget_seconds=100.0), left(budget_seconds=30.0),
            left(budget_seconds=100.0, kind="tune"), left(budget_seconds=70.0, budget_most_seconds=130.0)] == [
        "", ", about 1:00 left", ", about 0.0 s left", ", at most 1:00 left", ", about 30.0 s to 1:30 left",
    ]  # fmt: skip


def test_the_trials_of_a_proof_have_titles_by_their_side() -> None:
    def trial(run: str, side: str) -> dict[str, Any]:
        return {"run": run, "side": side}

    compared = {"changes": {"input.cache": "memory"}, "trials": [trial("05", "a"), trial("06", "b")]}
    fields = {"kind": "loop", "baseline_trials": [trial("01", "a")], "profile_trial": trial("04", "a"),
              "ablation": {"trials": [trial("02", "a"), trial("03", "b")]}, "comparisons": [compared]}  # fmt: skip
    data = typed(Record, fields)
    assert [(each.run, title) for title, each in proof.trials(data)] == [
        ("01", "as it is"), ("02", "as it is"), ("03", "one repeated batch"), ("04", "profiled"),
        ("05", "without cache=memory"), ("06", "with cache=memory"),
    ]  # fmt: skip
