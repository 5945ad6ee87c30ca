"""What a snapshot tells of odd times and orders of events, of GPUs that train together, and of earlier starts."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.files import writing
from gputui.engine.proof import folder
from gputui.engine.runs import Run
from gputui.engine.runs.liveness import Liveness
from gputui.engine.runs.parsing import recalled
from gputui.engine.system.identity import Process
from gputui.engine.trials.record import UNREAD, Record
from gputui.engine.units import seconds
from gputui.tui.reading import earlier_starts, machine, preset_files, run_list
from gputui.tui.reading.earlier_starts import EarlierStarts, Usual, start_of, usual
from gputui.tui.reading.proofs import ProofList
from gputui.tui.reading.run.log_tail import EpochTail
from gputui.tui.reading.run.series import CAPACITY, Pace, Series, along
from gputui.tui.reading.run.store import MAX_MESSAGES, Store

from tests.support import recorded
from tests.support.typed import typed

STOPPED = {"type": "finished", "outcome": "stopped", "summary": {"outcome": "stopped"}}


def phase(t: float, name: str, detail: str = "") -> dict[str, Any]:
    return {"t": t, "type": "phase", "phase": name, "detail": detail}


def progress(t: float, step: int | None, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "progress", "step": step, **more}


def fed(*events: dict[str, Any]) -> Store:
    store = Store()
    store.feed(map(recalled, events))
    return store


def test_time_goes_on_while_a_run_does_and_never_back() -> None:
    assert fed().snapshot(50.0).elapsed == 0.0
    going = fed(phase(10.0, "importing"), phase(20.0, "training"), progress(30.0, 1), progress(29.0, 1))
    assert going.snapshot().elapsed == 20.0
    assert going.snapshot(35.0).elapsed == 25.0
    assert going.snapshot(12.0).elapsed == 20.0, "a clock that is behind the events"
    assert (going.snapshot(35.0).phase, going.snapshot(35.0).phase_seconds) == ("training", 15.0)
    over = fed(phase(10.0, "importing"), phase(20.0, "training"), progress(30.0, 1), {"t": 32.0, **STOPPED})
    assert over.snapshot(99.0).elapsed == 20.0, "it has ended"
    ended = fed(phase(10.0, "importing"), phase(25.0, "ended"), {"t": 40.0, "type": "host", "cpu": 0.5})
    assert (ended.snapshot().elapsed, ended.snapshot(99.0).elapsed) == (15.0, 15.0), "what comes later is no time of it"
    assert ended.snapshot(20.0).phase_seconds == 0.0
    late = fed(phase(10.0, "importing"), phase(7.0, "starting"), phase(12.0, "training"))
    assert late.snapshot().elapsed == 5.0, "it had begun earlier than the first event tells"
    usual = fed(phase(10.0, "importing"), phase(11.0, "starting"), phase(12.0, "training"))
    assert usual.snapshot().elapsed == 2.0


def test_a_run_that_is_resumed_twice_has_the_time_of_its_sittings() -> None:
    store = fed(
        phase(0.0, "importing"), phase(5.0, "training"), progress(8.0, 3), phase(10.0, "ended"), {"t": 10.1, **STOPPED},
        phase(100.0, "importing"), phase(104.0, "training"), progress(106.0, 5), {"t": 110.0, **STOPPED},
        {"t": 1000.0, "type": "host", "cpu": 0.5}, phase(1000.0, "importing"), phase(1002.0, "training"),
        progress(1003.0, 8),
    )  # fmt: skip
    now = store.snapshot()
    assert now.elapsed == 19.0
    assert now.resumes == (100.0, 1000.0)
    assert now.joins == ((16.0, 5.0), (19.0, 8.0))
    assert now.outcome is None
    assert now.pace.begin == 5.0, "the charts begin with the first step of the first sitting"


def test_what_places_steps_on_the_axes() -> None:
    notes = {"t": 1.0, "type": "started", "steps_per_epoch": 50, "global_batch_size": 32, "epochs": 3}
    epoch = {"t": 9.0, "type": "epoch", "epoch": 2, "step": 90, "metrics": {"loss": 1.0}, "seconds": 4.0}
    begun = phase(0.0, "training")
    assert fed(begun, notes, epoch).snapshot().pace == Pace(0.0, 50.0, 32.0)
    assert fed(begun, epoch).snapshot().pace == Pace(0.0, 45.0, None), "as the epochs show"
    assert fed(begun).snapshot().pace == Pace(0.0, None, None)
    first, second = (item.number for item in fed(notes, {**epoch, "epoch": 1}, epoch).snapshot().epochs)
    assert (first, second) == (1, 2)
    again = fed(notes, {**epoch, "epoch": 1}, epoch, {**epoch, "epoch": 1, "seconds": 7.0}).snapshot()
    assert [(item.number, item.epochs, item.seconds) for item in again.epochs] == [(1, 3, 7.0)], (
        "a resumed run repeats it"
    )


def test_the_loss_of_the_last_steps_takes_the_place_of_the_mean() -> None:
    means = [progress(10.0 + i, i, loss=9.0) for i in range(3)]
    windows = [progress(20.0 + i, 10 + i, loss=9.0, window_loss=2.0 + i) for i in range(2)]
    store = fed(*means)
    assert list(store.snapshot().line("loss").y) == [9.0] * 3
    store.feed(map(recalled, windows))
    assert list(store.snapshot().line("loss").y) == [2.0, 3.0], "means are another figure"
    store.feed([recalled(progress(30.0, 20, loss=9.0))])
    assert list(store.snapshot().line("loss").y) == [2.0, 3.0]
    assert store.snapshot().line("loss").last == 3.0
    store.feed([recalled(progress(31.0, None, window_loss=7.0)), recalled(progress(32.0, 21))])
    assert list(store.snapshot().line("loss").y) == [2.0, 3.0], "of no step"
    assert store.snapshot().line("loss").last is None, "neither is told"


def test_metrics_are_named_once_and_those_of_the_validation_have_their_own_lines() -> None:
    epoch = {"t": 3.0, "type": "epoch", "epoch": 1, "step": 5, "seconds": 1.0,
             "metrics": {"loss": 1.0, "accuracy": 0.5, "val_loss": 2.0, "val_accuracy": 0.4}}  # fmt: skip
    now = fed(phase(0.0, "training"), progress(1.0, 3, metrics={"accuracy": 0.3}), epoch).snapshot()
    assert now.metrics == ("accuracy",)
    lines = {name: list(line.y) for name, line in now.lines.items()}
    assert (lines["accuracy"], lines["val_accuracy"], lines["val_loss"]) == ([0.3], [0.4], [2.0])
    assert (lines["epoch loss"], lines["epoch accuracy"]) == ([1.0], [0.5])
    assert list(now.line("val_loss").steps) == [5.0]


def test_gpus_that_train_together_have_a_mean_and_extremes() -> None:
    def reading(t: float, *busy: float | None) -> dict[str, Any]:
        gpus = [{"index": 7 - i, "uuid": f"GPU-{i}", "busy": share, "name": "H100" if t < 2 else None}
                for i, share in enumerate(busy)]  # fmt: skip
        return {"t": t, "type": "gpu", "gpus": gpus, "interval_seconds": 2.5}

    started = {"t": 0.5, "type": "started", "gpus": ["GPU-0", "GPU-1"]}
    now = fed(phase(0.0, "training"), started, reading(1.0, 0.2, 0.6, 1.0), reading(2.0, None, 0.5, 1.0)).snapshot()
    assert [list(now.line(f"gpus {name}").y) for name in ("mean", "lowest", "highest")] == [
        pytest.approx([0.4, 0.5]), [0.2, 0.5], [0.6, 0.5],
    ]  # fmt: skip
    assert [(gpu.index, gpu.training, gpu.name) for gpu in now.gpus] == [
        (5, False, "H100"), (6, True, "H100"), (7, True, "H100"),
    ]  # fmt: skip
    assert now.gpu_seconds == 2.5
    unknown = fed(reading(1.0, 0.2, 0.6, 0.7)).snapshot()
    assert list(unknown.line("gpus mean").y) == [pytest.approx(0.5)], "until it is known which train, all count"
    item = fed({**started, "gpus": ["GPU-0"]}, reading(1.0, 0.2, 0.6)).snapshot()
    assert not len(item.line("gpus mean")), "one needs no mean"
    gone = {"t": 3.0, "type": "gpu", "gpus": [], "missing": "no driver"}
    assert fed(gone).snapshot().no_gpu_reason == "no driver"
    assert fed(gone, reading(4.0, 0.5)).snapshot().no_gpu_reason is None
    assert fed(gone, {**gone, "missing": None}).snapshot().no_gpu_reason == "no driver", "nothing else is known"


def test_a_result_keeps_what_the_events_knew() -> None:
    fault = {"t": 4.0, "type": "error", "kind": "data", "message": "no file", "hint": "look"}
    begun = (phase(0.0, "compiling"), phase(3.0, "training"))
    done = {"t": 5.0, "type": "finished", "outcome": "error", "summary": {}}
    now = fed(*begun, fault, done).snapshot()
    assert now.error is not None
    assert (now.error.message, now.error.hint, now.first_step_seconds) == ("no file", "look", 3.0)
    notes = fed(
        *begun, fault, {**done, "summary": {"error": {"message": "other"}, "first_step_seconds": 2.0}}
    ).snapshot()
    assert notes.error is not None
    assert (notes.error.message, notes.first_step_seconds) == ("other", 2.0)
    crashed = fed(*begun, {**done, "outcome": "crashed"}).snapshot()
    assert crashed.error is not None
    assert "its engine is gone" in crashed.error.message
    assert fed(*begun, {**done, "outcome": "stopped"}).snapshot().error is None
    assert fed(*begun, {**done, "outcome": None, "summary": {"outcome": "oom"}}).snapshot().outcome == "oom"
    again = fed(*begun, fault, done, {"t": 6.0, "type": "started"}).snapshot()
    assert (again.outcome, again.error, dict(again.summary)) == (None, None, {})


def test_warnings_are_kept_once_and_only_the_newest() -> None:
    notes = [
        {"t": float(i), "type": "warning", "kind": "x", "message": f"m{i // 2}"} for i in range(2 * MAX_MESSAGES + 4)
    ]
    warnings = fed(*notes).snapshot().warnings
    assert len(warnings) == MAX_MESSAGES
    assert (warnings[0].message, warnings[-1].message) == ("m2", f"m{MAX_MESSAGES + 1}")
    told = fed(*notes, {**notes[9], "hint": "more to do about it"}).snapshot().warnings
    assert [(each.message, each.hint) for each in (told[-2], told[-1])] == [
        (f"m{MAX_MESSAGES + 1}", ""), ("m4", "more to do about it"),
    ]  # fmt: skip
    assert [each.message for each in told].count("m4") == 1


# ---- lines --------------------------------------------------------------------------------------


def test_a_full_series_halves_its_points_and_keeps_means_extremes_steps_and_breaks() -> None:
    series = Series(capacity=4)
    for i, y in enumerate((1.0, 3.0, 5.0)):
        series.add(float(i), y, 10.0 * i)
    series.gap()
    series.add(3.0, 9.0, 30.0)
    line = series.line()
    assert (list(line.x), list(line.y), list(line.steps), line.each) == ([0.0, 2.0], [2.0, 7.0], [0.0, 20.0], 2)
    assert (list(line.low), list(line.high)) == ([1.0, 5.0], [3.0, 9.0])
    assert line.breaks == {2}, "before what comes after the merged points"
    series.add(4.0, 1.0, 40.0)
    assert list(series.line().y) == [2.0, 7.0, 1.0]
    series.add(5.0, 4.0, 50.0)
    assert list(series.line().y) == [2.0, 7.0, 2.5], "a point is the mean of its readings"
    series.add(6.0, 6.0, 60.0)
    series.gap()
    series.add(7.0, 8.0, 70.0)
    assert list(series.line().y)[-2:] == [6.0, 8.0], "nothing is merged across a gap"
    assert series.line().breaks == {2, 4}
    assert Series()._capacity == CAPACITY
    peaks = Series(peaks=True, capacity=2)
    for i, y in enumerate((1.0, 3.0, 2.0, 5.0, 4.0)):
        peaks.add(float(i), y)
    assert max(peaks.line().y) == 5.0


def test_a_line_ends_where_readings_have_no_value_and_breaks_where_time_or_step_go_back() -> None:
    series = Series()
    series.add(0.0, None)
    assert series.line().lost is None, "there was nothing to lose"
    series.add(1.0, 1.0, 5.0)
    series.add(2.0, None, 6.0)
    series.add(3.0, None, 7.0)
    assert series.line().lost == (2.0, 6.0), "the first reading without a value"
    series.add(4.0, 2.0, 8.0)
    assert (series.line().lost, list(series.line().breaks)) == (None, [1])
    series.add(5.0, 2.0, 7.0)
    series.add(4.5, 2.0, 8.0)
    series.add(4.5, 2.0, 8.0)
    assert series.line().breaks == {1, 2, 3}
    assert len(series.line()) == 5


def test_a_line_on_other_axes() -> None:
    series = Series()
    for i in range(4):
        if i == 2:
            series.gap()
        series.add(10.0 + i, float(i), 100.0 * i)
    series.add(15.0, None, 500.0)
    pace = Pace(11.0, 200.0, 8.0)
    time, step, epoch, samples = (along(series.line(), axis, pace) for axis in ("time", "step", "epoch", "samples"))
    assert (list(time.x), list(time.y), time.lost) == ([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], (4.0, 500.0))
    assert time.breaks == {1}
    assert (list(step.x), step.lost) == ([0.0, 100.0, 200.0, 300.0], (500.0, 500.0))
    assert list(epoch.x) == [0.0, 0.5, 1.0, 1.5]
    assert (list(samples.x), list(samples.breaks)) == ([0.0, 800.0, 1600.0, 2400.0], [2])
    assert along(series.line(), "epoch", pace) is epoch, "made once"
    assert pace.axes() == ("time", "step", "epoch", "samples")
    assert Pace(0.0, None, 8.0).axes() == ("time", "step", "samples")


# ---- earlier starts -----------------------------------------------------------------------------


def test_what_is_left_of_a_start_by_earlier_ones() -> None:
    starts = [{"importing": 4.0, "compiling": 10.0}, {"importing": 6.0, "compiling": 10.5}, {"importing": 30.0}]
    result = usual(starts)
    assert result.runs == 3
    assert (result.phases["importing"], result.phases["compiling"]) == (
        Usual(6.0, 4.0, 30.0),
        Usual(10.0, 0.0, 10.5),
    )
    assert [str(item) for item in (Usual(6.0, 4.0, 30.0), Usual(6.0, 5.0, 8.5), Usual(6.0, 5.0, 8.6))] == [
        f"{seconds(4.0)} to {seconds(30.0)}", seconds(6.0),
        f"{seconds(5.0)} to {seconds(8.6)}",
    ]  # fmt: skip
    assert result.left({}, "importing") == 16.0
    assert result.left({"importing": 2.0}, "importing") == 14.0
    assert result.left({"importing": 7.0}, "importing") == 33.0, "longer than usual, it may take as long as the longest"
    assert result.left({"importing": 31.0}, "importing") == 10.0
    assert result.left({"importing": 5.0, "compiling": 11.0}, "compiling") == 0.0
    assert result.left({"importing": 5.0}, "another") == 10.0
    assert usual([]) == EarlierStarts()


def test_the_first_start_of_a_run_phase_by_phase(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert start_of(run) == {}
    lines = [
        phase(10.0, "importing"),
        phase(14.0, "building"),
        phase(15.0, "building", "data"),
        phase(18.0, "compiling"),
    ]
    run.file("events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert start_of(run) == {}, "its training did not begin"
    lines += [phase(20.0, "training"), phase(40.0, "evaluating"), phase(50.0, "training")]
    run.file("events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert start_of(run) == {"starting": 0.0, "importing": 4.0, "building": 4.0, "compiling": 2.0}


def test_starts_of_other_models_and_on_other_machines_do_not_count(home: Path) -> None:
    def written(number: int, options: str, host: str = "") -> Run:
        run = Run(home / "runs" / f"20260921-10000{number}-cnn")
        run.path.mkdir(parents=True)
        run.file("preset.yaml").write_text(options)
        phases = (phase(1.0, "importing"), phase(3.0, "training"))
        run.file("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in phases))
        if host:
            run.file("status.json").write_text(json.dumps({"host": host}))
        return run

    run = written(0, "workload: {model: cnn}\n")
    elsewhere = written(1, "workload: {model: cnn}\ntrain: {epochs: 9}\n", "elsewhere")
    written(2, "workload: {model: mlp}\n")
    assert earlier_starts.of(run).runs == 0
    elsewhere.file("status.json").unlink()
    assert earlier_starts.of(run).runs == 1, "without a status it may have been here; another length is no other start"


# ---- lists --------------------------------------------------------------------------------------


def test_the_epochs_of_a_log_are_read_as_they_come(tmp_path: Path) -> None:
    run = Run(tmp_path)
    tail = EpochTail(run)
    assert tail.read().epochs == ()
    epoch = {"t": 2.0, "type": "epoch", "epoch": 1, "step": 5, "metrics": {"loss": 1.0}, "seconds": 1.0}
    whole = [phase(1.0, "training"), epoch, progress(2.5, 6, loss=1.0)]
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in whole)
    run.file("events.jsonl").write_text(lines + '{"t":3.0,"type":"epoch"')
    assert [item.number for item in tail.read().epochs] == [1]
    assert not len(tail.read().line("loss")), "there are too many of them"
    with run.file("events.jsonl").open("a") as stream:
        stream.write(',"epoch":2,"step":9,"metrics":{},"seconds":1.0}\n')
    assert [item.number for item in tail.read().epochs] == [1, 2]


def test_proofs_are_read_again_when_their_file_has_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def record(proof: folder.Proof) -> Record:
        reads.append(proof.id)
        content = json.loads((proof.path / "proof.json").read_text())
        return typed(Record, content) if content else UNREAD

    monkeypatch.setattr(folder.Proof, "record", property(record))
    path = home / "proofs" / "one"
    path.mkdir(parents=True)
    (path / "request.json").write_text("{}")

    def put(t: int, **content: str) -> None:
        (path / "proof.json").write_text(json.dumps(content))
        os.utime(path / "proof.json", (t, t))

    monkeypatch.setattr(folder, "proofs", lambda: [folder.Proof(path)])
    put(1, state="running")
    listed = ProofList()
    (entry,) = listed.read()
    assert (entry.is_active, entry.state, entry.size) == (True, "running", None)
    assert entry.when == (path / "request.json").stat().st_mtime
    listed.read()
    assert len(reads) == 2, "one that goes on is always read"
    put(2, state="ended")
    listed.read()
    listed.read()
    assert len(reads) == 3
    assert listed.measure(), "it was not measured yet"
    (entry,) = listed.read()
    assert entry.size == writing.used_bytes(path)
    assert not listed.measure(), "nothing has changed"
    put(3)
    (entry,) = listed.read()
    assert (entry.state, entry.size) == ("crashed", writing.used_bytes(path)), (
        "its last size until it is measured again"
    )
    assert len(reads) == 4
    queued = folder.Proof(path).queue_file
    queued.parent.mkdir(parents=True, exist_ok=True)
    queued.write_text("{}")
    listed.read()
    listed.read()
    assert len(reads) == 5, "it is in the queue now"
    other = home / "proofs" / "two"
    other.mkdir()
    (other / "proof.json").write_text("{}")
    monkeypatch.setattr(folder, "proofs", lambda: [folder.Proof(path), folder.Proof(other)])
    listed.read()
    assert listed.measure(), "the size of the first is as before, but the second is to be measured"
    assert listed.measure()


def test_runs_that_go_on_and_those_that_have_ended_meanwhile(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, name="b", engine_pid=os.getpid())
    recorded.write(home, gpus=0, seconds=20, name="a")
    watch = run_list.RunningRuns()
    now = watch.read()
    assert [item.id for item in now.running] == ["b"]
    assert now.done == 1.0
    assert now.ended == ()
    status = json.loads(run.file("status.json").read_text()) | Process.of(2**22 + 1).as_fields("engine")
    run.file("status.json").write_text(json.dumps(status | {"phase": "ended"}))
    run.file("result.json").write_text('{"outcome": "ok"}')
    now = watch.read()
    assert (now.running, [(item.id, item.state) for item in now.ended]) == ((), [("b", "ok")])
    assert watch.read().ended == (), "told once"


def test_recent_files_are_absolute_once_each_and_bounded(home: Path) -> None:
    home.mkdir()
    assert preset_files.recent() == []
    for path in (Path("/a/1.yaml"), Path("/a/2.yaml"), Path("/a/1.yaml")):
        preset_files.note(path).join()
    assert preset_files.recent() == [Path("/a/1.yaml"), Path("/a/2.yaml")]
    odd = ["relative.yaml", 5, "/a/\x1b.yaml", "/" + "x" * 5000, "/b", "/b", *(f"/c/{i}" for i in range(40))]
    preset_files.file().write_text(json.dumps(odd))
    assert preset_files.recent() == [Path("/b"), *(Path(f"/c/{i}") for i in range(preset_files.MOST - 1))]
    preset_files.file().write_text('{"a": 1}')
    assert preset_files.recent() == []
    assert preset_files.answer(lambda: 1 / 0, 5.0) is None
    assert preset_files.answer(lambda: 5, 5.0) == 5


def test_the_preset_files_of_a_folder_are_bounded_and_presets_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preset_files, "MOST_FILES", 4)
    texts = {
        "b.yaml": "train: {epochs: 3}\ndescription: ' two\n  words '\n", "a.yml": "other: 1\n", "c.txt": "train: {}\n",
        "d.yaml": "train: [\n", "e.yaml": "other: [\n", "f.yaml": "train: {}\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in ("m", "z", "a", "k", ".hidden"):
        (tmp_path / name).mkdir()
    result = preset_files.in_folder(tmp_path, "path")
    assert [file.name for file in result.files] == ["b.yaml", "d.yaml", "a/", "k/", "m/", "z/", "a.yml", "e.yaml"]
    assert result.note == "1 more YAML files: type a path to one"
    assert [(file.text, bool(file.fault), file.other) for file in result.files[:2]] == [
        ("two words", False, ""), ("", True, ""),
    ]  # fmt: skip
    assert {file.other for file in result.files[-2:]} == {"not a preset"}
    assert [file.name for file in preset_files.in_folder(tmp_path, "here").files] == [
        "b.yaml", "d.yaml", "a.yml", "e.yaml",
    ]  # fmt: skip
    mine = preset_files.read_entry(tmp_path / "e.yaml", "yours")
    assert (bool(mine.fault), mine.name) == (True, "e"), "what lies among one's presets is meant as one"
    assert preset_files.read_entry(tmp_path / "a.yml", "recent").other == ""
    monkeypatch.setattr(preset_files, "MOST_ENTRIES", len(texts) + 4)
    assert preset_files.in_folder(tmp_path, "path").note.startswith("more than 10 entries")
    monkeypatch.setattr(preset_files, "MOST_ENTRIES", len(texts) + 5)
    monkeypatch.setattr(preset_files, "MOST_FILES", 5)
    assert preset_files.in_folder(tmp_path, "path").note == ""
    assert "cannot be read" in preset_files.in_folder(tmp_path / "nowhere", "here").note


def test_a_path_is_completed_and_told_from_words(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["train.yaml", "trial.yaml", "other.yaml"]
    for text, whole in (("a/t", "a/tr"), ("a/tra", "a/train.yaml"), ("a/x", "a/x"), ("t", "tr"), ("", "")):
        assert preset_files.completed(text, names) == whole
    assert [preset_files.is_path(text) for text in ("a/b", "~", "~u", ".", "..", "a b", ".a")] == [
        True, True, True, True, True, False, False,
    ]  # fmt: skip
    monkeypatch.setenv("HOME", "/home/me")
    assert preset_files.split("/a/b") == (Path("/a"), "b")
    assert preset_files.split("~/x/y") == (Path("/home/me/x"), "y")
    assert preset_files.split("b") == (Path.cwd(), "b")
    assert preset_files.split("~") == (Path.cwd(), "~")


def test_traffic_is_read_where_no_training_could_be_delayed_by_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, int | None]] = []

    class Reader:
        stuck_seconds = 3.0

        def __init__(self, tell: Any, seconds: float, *, pcie: bool, own_pid: int | None, processes: bool) -> None:
            assert processes
            asked.append((pcie, own_pid))

        def start(self) -> None:
            asked.append((False, -1))

        def stop(self) -> None:
            asked.append((False, -2))

    monkeypatch.setattr("gputui.engine.telemetry.sampler.GpuReader", Reader)
    monkeypatch.setattr(machine, "TAKE_SECONDS", 0.0)
    run = recorded.write(home, gpus=0, seconds=13, outcome=None)
    for trainer in (None, os.getpid()):
        liveness = Liveness(trainer=trainer is not None)
        process = Process.of(trainer) if trainer else None
        monkeypatch.setattr(Run, "liveness", liveness)
        monkeypatch.setattr(Run, "process", lambda *_, process=process: process)
        asked.clear()
        leaving, view = threading.Event(), machine.MachineReader()
        following = view.follow(leaving)
        assert next(following).host["memory_total_bytes"] > 0
        leaving.set()
        assert list(following) == []
        assert asked == [(trainer is None, trainer), (False, -1), (False, -2)]
        assert (view.run, view.stuck_seconds) == (run if trainer else None, 3.0)
