"""From event files to a snapshot: nothing is invented, nothing grows without bound, nothing stops a reader."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from gputui.engine.compare.baseline import line_up
from gputui.engine.compare.comparison import compare
from gputui.engine.files import reading
from gputui.engine.files.reading import open_regular
from gputui.engine.runs import Run, Tail
from gputui.engine.runs.events import Progress, fields_of
from gputui.engine.runs.parsing import EventWriter, recalled
from gputui.tui.base.glyphs import RICH
from gputui.tui.drawing.live import head
from gputui.tui.drawing.rows import plain
from gputui.tui.reading.run import reader as feeding
from gputui.tui.reading.run.gpu_reading import by_physical_gpu
from gputui.tui.reading.run.log_tail import LogTail
from gputui.tui.reading.run.reader import MergedTail, RunReader
from gputui.tui.reading.run.series import Series
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.reading.run.store import Store
from gputui.tui.reading.run_list import entry_of
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.live.view import NOTHING_READ

from tests.support import recorded


def opened(run: Run) -> Snapshot:
    feed = RunReader(run)
    while not feed.ended:
        feed.poll()
    return feed.picture.snapshot


def fed(*events: Mapping[str, object]) -> Snapshot:
    store = Store()
    store.feed(recalled({"t": 100.0 + number, **event}) for number, event in enumerate(events))
    return store.snapshot()


def test_series_keeps_its_bound_and_the_mean() -> None:
    series = Series(capacity=64)
    for x in range(10_000):
        series.add(x, 5.0 + (x % 2))
    line = series.line()
    assert len(line) <= 64
    assert line.each >= 10_000 // 64
    assert list(line.x) == sorted(line.x)
    assert all(5.4 < y < 5.6 for y in line.y[:-1])
    assert line.last == 6.0


def test_series_of_peaks_keeps_the_peak() -> None:
    series = Series(peaks=True, capacity=64)
    for x in range(5000):
        series.add(x, 900.0 if x == 1234 else 10.0)
    assert max(series.line().y) == 900.0


def test_series_is_broken_where_there_was_no_reading() -> None:
    series = Series(capacity=16)
    for x in range(6):
        series.add(x, None if x == 3 else 1.0)
    assert series.line().breaks == {3}
    for x in range(6, 40):
        series.add(x, 1.0)
    line = series.line()
    assert len(line.breaks) == 1
    at = next(iter(line.breaks))
    assert line.x[at - 1] < 3 < line.x[at]


def test_series_line_is_the_same_object_until_it_grows() -> None:
    series = Series()
    series.add(1, 1.0)
    first = series.line()
    assert series.line() is first
    series.add(2, 2.0)
    assert series.line() is not first


def test_a_recorded_run_is_read_whole(home: Path) -> None:
    now = opened(recorded.write(home, gpus=2, seconds=60))
    assert now.outcome == "ok"
    assert now.first_step_seconds == pytest.approx(4.0)
    assert now.metrics == ("accuracy",)
    assert now.elapsed == pytest.approx(60, abs=1)
    assert [gpu.index for gpu in now.gpus] == [0, 1]
    assert now.gpus[0].tf_peak_bytes == pytest.approx(57.9 * recorded.GIB, rel=1e-6)
    assert len(now.line("loss")) == 48
    assert len(now.line("val_loss")) == 1
    assert now.line("gpu0").y[-1] > 0.5


def test_unknown_types_and_absent_fields_are_no_obstacle() -> None:
    now = fed(
        {"type": "astrology", "sign": "leo"},
        *({"type": kind} for kind in ("started", "phase", "progress", "gpu", "host", "allocator", "epoch")),
        {"type": "warning"},
        {"type": "error"},
        {"type": "progress", "step": "many", "metrics": [1], "loss": None},
        {"type": "gpu", "gpus": [None, {"busy": "full"}]},
        {"type": "finished"},
    )
    assert now.outcome == "crashed"
    assert now.gpus[1].busy is None
    assert not len(now.line("loss"))


def test_unknown_is_never_zero() -> None:
    now = fed({"type": "gpu", "gpus": [{"index": 0, "busy": None, "memory_used_bytes": None, "power_w": None}]})
    gpu = now.gpus[0]
    assert (gpu.busy, gpu.memory_used_bytes, gpu.power_w, gpu.throttle) == (None, None, None, None)
    assert not len(gpu.history)


def test_all_that_is_told_of_a_gpu_is_read(home: Path) -> None:
    gpus = opened(recorded.write(home, gpus=4, seconds=40)).gpus
    assert (gpus[1].memory_clock_mhz, gpus[1].pstate, gpus[1].nvlink_links, gpus[1].mig_off) == (2619, 0, 18, True)
    assert gpus[1].sm_active
    assert gpus[3].ecc_uncorrected == 2
    assert gpus[0].why("memory_reserved_bytes") == "not offered"
    assert gpus[0].why("fan") == "not asked"
    own, other = gpus[1].processes or ()
    assert (own.pid, own.own, other.name, other.own) == (5303, True, "Xorg", False)
    assert gpus[1].ours


def test_odd_readings_are_no_obstacle() -> None:
    odd = {"index": 0, "processes": [None, {"pid": "x", "own": "yes"}], "mig": [3], "ecc_errors": 7, "nvlink": [1]}
    gpu = fed({"type": "gpu", "gpus": [odd | {"reasons": "no", "throttle": "hot"}]}).gpus[0]
    assert [(process.pid, process.own) for process in gpu.processes or ()] == [(0, None), (0, None)]
    assert (gpu.ecc_corrected, gpu.nvlink_links, gpu.throttle) == (None, None, None)
    assert gpu.mig is not None
    assert gpu.mig[0].memory_total_bytes is None


def test_the_newest_diagnosis_stands_and_a_resumed_run_begins_anew() -> None:
    told: list[Mapping[str, object]] = [
        {"type": "diagnosis", "verdict": "undecided"},
        {"type": "input_stages", "stages": [{"name": "read"}]},
        {"type": "diagnosis", "verdict": "healthy"},
    ]
    now = fed(*told)
    assert now.diagnosis["verdict"] == "healthy"
    assert now.input_stages["stages"] == [{"name": "read"}]
    again = fed({"type": "phase", "phase": "training"}, *told, {"type": "phase", "phase": "importing"})
    assert again.diagnosis["verdict"] == "healthy", "until there are enough steps"
    assert not again.input_stages
    resumed = {"type": "phase", "phase": "training"}, *told, {"type": "phase", "phase": "importing"}
    few = fed(*resumed, {"type": "diagnosis", "verdict": "undecided", "confidence": 0.0})
    assert few.diagnosis["verdict"] == "healthy"
    sure = replace(few, diagnosis={**few.diagnosis, "confidence": 0.9})
    assert "(before it was resumed)" in plain(head.verdict_rows(sure, 80, RICH)[0])
    later = fed(
        *resumed, {"type": "diagnosis", "verdict": "input_bound"}, {"type": "diagnosis", "verdict": "undecided"}
    )
    assert later.diagnosis["verdict"] == "undecided"


def test_a_lost_gpu_keeps_its_name_and_says_why(home: Path) -> None:
    now = opened(recorded.write(home, gpus=3, seconds=60, lost_gpu=1))
    lost = now.gpus[1]
    assert lost.missing == recorded.LOST
    assert lost.name == "NVIDIA H100 80GB HBM3"
    assert lost.busy is None
    assert len(lost.history) < len(now.gpus[0].history)


def test_no_gpu_says_why(home: Path) -> None:
    now = opened(recorded.write(home, gpus=0, seconds=30))
    assert now.no_gpu_reason == recorded.NO_DRIVER
    assert now.gpus == ()
    assert now.tf_host["peak_bytes"] == 3 * recorded.GIB


def test_a_resumed_run_goes_on_without_the_pause() -> None:
    store = Store()
    store.feed(
        [
            recalled({"t": 0.0, "type": "phase", "phase": "importing"}),
            recalled({"t": 5.0, "type": "phase", "phase": "training"}),
            recalled({"t": 9.0, "type": "progress", "step": 5, "loss": 1.0, "samples_per_second": 10.0}),
            recalled({"t": 10.0, "type": "finished", "outcome": "stopped", "summary": {"outcome": "stopped"}}),
            recalled({"t": 90_000.0, "type": "phase", "phase": "importing"}),
            recalled({"t": 90_004.0, "type": "progress", "step": 3, "loss": 2.0, "samples_per_second": 11.0}),
        ]
    )
    now = store.snapshot()
    assert now.outcome is None
    assert now.elapsed == pytest.approx(13.0)
    assert now.line("samples_per_second").breaks == {1}
    store.feed(
        [
            recalled({"t": 90_005.0, "type": "phase", "phase": "ended"}),
            recalled({"t": 90_005.4, "type": "host", "cpu": 0.5}),
            recalled({"t": 90_100.0, "type": "host", "cpu": 0.5}),
        ]
    )  # the next engine's, before its trainer says so
    assert store.snapshot(90_101.0).elapsed == pytest.approx(14.0)
    store.feed([recalled({"t": 90_099.0, "type": "phase", "phase": "starting"})])
    assert store.snapshot(90_101.0).elapsed == pytest.approx(16.0)


def test_a_crashed_run_is_told_plainly(home: Path) -> None:
    now = opened(recorded.write(home, gpus=1, seconds=30, outcome=None))
    assert now.outcome == "crashed"
    assert now.error is not None
    assert "without a result" in now.error.message


def test_allocator_figures_find_their_gpu() -> None:
    devices = {"GPU:0": {"current_bytes": 1, "peak_bytes": 2}, "GPU:1": {"current_bytes": 10, "peak_bytes": 20}}
    cards: dict[int, Mapping[str, object]] = {index: {"uuid": f"GPU-{9 - index}"} for index in range(4)}
    chosen = {"options": {"device": {"visible": [3, 1]}}}
    assert by_physical_gpu(devices, chosen, cards) == {"GPU:3": devices["GPU:0"], "GPU:1": devices["GPU:1"]}
    in_order = {"gpus": ["GPU-6", "GPU-7"], "options": {"device": {"visible": ["GPU-6", "GPU-7"]}}}
    assert by_physical_gpu(devices, in_order, cards) == {"GPU:3": devices["GPU:0"], "GPU:2": devices["GPU:1"]}
    # What the scheduler has chosen is in no option, and a UUID may be unknown to the driver.
    scheduled = {"gpus": ["3", "GPU-8"], "options": {"device": {"visible": "all"}}}
    assert by_physical_gpu(devices, scheduled, cards) == {"GPU:3": devices["GPU:0"], "GPU:1": devices["GPU:1"]}
    # TensorFlow opens GPUs in its own order, whichever the strategy names first.
    named = {
        "gpus": ["GPU-6", "GPU-8"],
        "gpu_devices": [{"device": "/device:GPU:1", "uuid": "GPU-6"}, {"device": "/device:GPU:0", "uuid": "GPU-8"}],
    }
    assert by_physical_gpu(devices, named, cards) == {"GPU:1": devices["GPU:0"], "GPU:3": devices["GPU:1"]}
    halves = {"options": {"device": {"visible": "all", "logical_devices": 2}}}
    assert by_physical_gpu(devices, halves, cards) == {"GPU:0": {"current_bytes": 11, "peak_bytes": 22}}


def test_devices_that_are_no_gpus_keep_their_names() -> None:
    devices = {"CPU:0": {"current_bytes": 1}, "GPU:3": {"current_bytes": 2}, "GPU:x": {}, "GPU:2": {"current_bytes": 4}}
    halves = {"options": {"device": {"visible": [5, 1], "logical_devices": 2}}}
    cards: dict[int, Mapping[str, object]] = {1: {"uuid": "GPU-b"}, 5: {"uuid": "GPU-a"}}
    assert by_physical_gpu(devices, halves, cards) == {
        "CPU:0": {"current_bytes": 1}, "GPU:1": {"current_bytes": 6}, "GPU:x": {}}  # fmt: skip


@pytest.mark.usefixtures("not_at_utc")
def test_processes_of_the_run_come_first_then_those_with_the_most_memory() -> None:
    processes = [{"pid": pid, "own": own, "memory_used_bytes": used} for pid, own, used in (
        (9, False, 5), (7, False, None), (8, None, 30), (5, True, 1), (3, True, 2), (2, False, 5))]  # fmt: skip
    now = fed({"type": "started", "gpus": ["PCI-7"]}, {"type": "gpu", "gpus": [
        {"index": 0, "uuid": "GPU-a", "pci_bus_id": "PCI-7", "processes": processes, "missing": "lost",
         "lost_since": 1_700_000_000.0},
        {"index": 1, "pci_bus_id": "PCI-8", "uuid": None, "processes": [{}], "missing": "lost"}]})  # fmt: skip
    first, second = now.gpus
    assert [process.pid for process in first.processes or ()] == [3, 5, 8, 2, 9, 7]
    assert [(process.pid, process.own) for process in second.processes or ()] == [(0, None)]
    assert (first.training, second.training) == (True, False)
    assert (first.missing, second.missing) == ("lost since 03:43:20", "lost")


def test_tensorflows_memory_stands_on_the_card_that_trains() -> None:
    readings = [{"index": index, "uuid": f"GPU-{index}", "busy": 0.5} for index in range(4)]
    now = fed(
        {"type": "started", "gpus": ["GPU-3"], "options": {"device": {"visible": "all"}}},
        {"type": "gpu", "gpus": readings},
        {"type": "allocator", "devices": {"GPU:0": {"current_bytes": 1, "peak_bytes": 2}}},
    )
    assert [gpu.tf_peak_bytes for gpu in now.gpus] == [None, None, None, 2]
    assert [gpu.training for gpu in now.gpus] == [False, False, False, True]


def test_of_several_gpus_the_mean_and_the_extremes_are_kept() -> None:
    busy = [{"index": index, "uuid": f"GPU-{index}", "busy": share} for index, share in enumerate((0.5, 0.9, 0.1))]
    now = fed({"type": "gpu", "gpus": busy})
    found = [now.line(f"gpus {which}").last for which in ("mean", "lowest", "highest")]
    assert found == pytest.approx([0.5, 0.1, 0.9])


def test_gpus_beside_those_that_train_are_not_in_the_mean() -> None:
    readings = [{"index": index, "pci_bus_id": f"0{index}", "busy": 0.9 if index < 2 else 0.0} for index in range(4)]
    before, now = fed({"type": "gpu", "gpus": readings}), fed(
        {"type": "started", "gpus": ["00", "01"]}, {"type": "gpu", "gpus": readings}
    )  # fmt: skip
    assert before.line("gpus mean").last == pytest.approx(0.45)
    assert now.line("gpus mean").last == now.line("gpus lowest").last == pytest.approx(0.9)
    assert [gpu.training for gpu in now.gpus] == [True, True, False, False]


def test_mig_is_off_or_without_instances_or_not_known() -> None:
    readings = [{"mig": None}, {"mig": []}, {"reasons": {"mig": "unsupported"}}]
    gpus = fed({"type": "gpu", "gpus": readings}).gpus
    assert [(gpu.mig, gpu.mig_off) for gpu in gpus] == [(None, True), ((), False), (None, False)]


def test_the_two_files_are_merged_by_time_and_a_half_line_waits(tmp_path: Path) -> None:
    run = Run(tmp_path)
    line = json.dumps({"t": 3.0, "type": "host"})
    run.file("events.jsonl").write_text('{"t":1.0,"type":"a"}\n{"t":4.0,"type":"b"}\nnonsense\n{"t":null,"type":"x"}\n')
    run.file("telemetry.jsonl").write_text('{"t":2.0,"type":"c"}\n' + line[:8])
    tail = MergedTail(run)
    assert [event.t for event in tail.read()] == [1.0, 2.0, 4.0]
    assert tail.read() == []
    with run.file("telemetry.jsonl").open("a") as stream:
        stream.write(line[8:] + "\n")
    assert [event.t for event in tail.read()] == [3.0]


@pytest.mark.parametrize(
    ("before", "after"),
    [("}", "} more"), ('"step":7', '"step":true'), ('"step":7', f'"step":{2**63}'), ('"step":7', '"step":7.5'),
     ('"loss":0.5', '"loss":"0.5"'), ('"epochs":9,', '"epochs":"9",'), ('"type":"progress",', ""), ("{", "[{")],
)  # fmt: skip
def test_a_line_that_is_not_as_declared_is_left_out_and_told(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "events.jsonl"
    unknown = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "eta_seconds"))
    writer = EventWriter(path, "r")
    writer.emit(Progress(epoch=1, epochs=9, step=7, steps=90, loss=0.5, metrics={"accuracy": 0.25}, **unknown))
    writer.close()
    whole = path.read_text().strip()
    for line in (whole, whole.replace('"mfu":null,', "")):  # all fields in their order, or not
        damaged = after.join(line.rsplit(before, 1))
        assert damaged != line
        path.write_text(f"{whole}\n{damaged}\n{line}\n")
        tail = Tail(path)
        assert [fields_of(event)["step"] for event in tail.read()] == [7, 7], damaged
        assert str(tail.damage) == f"line 2 of {path.name} is damaged, left out"


def test_a_file_whose_handle_is_stale_is_opened_again_and_no_event_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.file("events.jsonl").write_text("".join(f'{{"t":{t}.0,"type":"a"}}\n' for t in range(6)))
    run.file("telemetry.jsonl").write_text('{"t":2.5,"type":"c"}\n')
    tail, bulk, kept = Tail(run.file("events.jsonl")), MergedTail(run), open_regular
    with monkeypatch.context() as patch:
        patch.setattr(reading, "open_regular", lambda path: Stale(kept(path)))
        assert tail.read() == []
        first = [event.t for event in bulk.read()]
        for damage in (tail.damages[0], bulk.damages[0]):
            assert str(damage) == "events.jsonl cannot be read: Stale file handle"
    assert [event.t for event in tail.read()] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert sorted(first + [event.t for event in bulk.read()]) == [0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0]
    assert not any(map(str, (*tail.damages, *bulk.damages)))


class Stale(io.BytesIO):
    """A file of a network disk whose server is started again: a few lines come through by lines, and no block."""

    def __init__(self, file: BinaryIO) -> None:
        with file:
            super().__init__(file.read())

    def read(self, *most: Any) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def __next__(self) -> bytes:
        return super().__next__() if self.tell() < 60 else self.read()


def test_a_long_run_is_read_in_bounded_pieces_and_thinned(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded.write(home, gpus=4, seconds=600)
    monkeypatch.setattr(feeding, "PARSED_BYTES", 100_000)
    monkeypatch.setattr(feeding, "FRESH_BYTES", 2_000)
    monkeypatch.setattr(feeding, "EVENTS_A_READ", 100)
    tail, read = MergedTail(run), []
    while events := tail.read():
        assert len(events) <= 100
        read += events
    kinds = [event.type for event in read]
    assert kinds.count("gpu") < 300
    assert kinds.count("epoch") == 19
    assert read == sorted(read, key=lambda event: event.t)
    now = opened(run)
    assert now.outcome == "ok"
    assert now.progress["step"] == 5880


def test_replay_keeps_the_recorded_pace(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=40)
    clock = 5000.0
    feed = RunReader(run, 2.0, lambda: clock)
    feed.poll()
    assert feed.picture.snapshot.phase == "importing"
    clock += 5
    feed.poll()
    assert feed.picture.snapshot.phase == "compiling"
    assert feed.picture.snapshot.phase_seconds == pytest.approx(2.4, abs=0.3)
    clock += 5
    feed.poll()
    assert feed.picture.snapshot.elapsed == pytest.approx(19.6, abs=0.5)
    assert feed.picture.snapshot.outcome is None
    clock += 30
    feed.poll()
    assert feed.ended
    assert feed.picture.snapshot.outcome == "ok"


def test_log_is_shown_as_it_is_and_steers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(b"\x1b[31mred\x1b[0m [red]not markup[/red]\nstep 1\rstep 2\r\n\tend\xff\nhalf")
    tail = LogTail(path)
    tail.poll()
    assert tail.lines[0] == "?[31mred?[0m [red]not markup[/red]"
    assert tail.lines[1] == "step 2"
    assert tail.lines[2].startswith("        end")
    assert tail.count == 3
    before = tail.lines
    tail.poll()
    assert tail.lines is before
    with path.open("ab") as stream:
        stream.write(b" line\n")
    tail.poll()
    assert tail.lines[-1] == "half line"


def test_a_feed_goes_on_when_the_run_does(home: Path) -> None:
    import os

    run = recorded.write(home, gpus=1, seconds=30, outcome=None, engine_pid=os.getpid())
    feed = RunReader(run)
    assert not feed.poll()
    assert not feed.ended
    with run.file("events.jsonl").open("a") as stream:
        stream.write(json.dumps({"t": recorded.BEGAN + 31, "type": "progress", "step": 999}) + "\n")
    feed.poll()
    assert feed.picture.snapshot.progress["step"] == 999
    assert math.isfinite(feed.picture.snapshot.elapsed)
    with run.file("events.jsonl").open("a") as stream:
        stream.write(json.dumps({"t": recorded.BEGAN + 32, "type": "phase", "phase": "ended"}) + "\n")
    run.file("result.json").write_text('{"outcome": "stopped"}')
    feed.poll()
    assert feed.picture.snapshot.phase == "ended"
    run.file("result.json").rename(run.file("result-1.json"))  # by the engine that goes on with the run
    feed.poll()
    assert feed.picture.snapshot.phase == "starting"


def test_a_run_that_was_resumed_and_ended_again_between_two_looks_is_read_on(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=30, outcome="stopped")
    feed = RunReader(run)
    while not feed.ended:
        feed.poll()
    assert feed.picture.snapshot.outcome == "stopped"
    with run.file("events.jsonl").open("a") as stream:
        for event in ({"type": "progress", "step": 999}, {"type": "finished", "outcome": "ok", "summary": {}}):
            stream.write(json.dumps({"t": recorded.BEGAN + 100} | event) + "\n")
    run.file("result.json").write_text('{"outcome": "ok"}')
    for _ in range(3):
        feed.poll()
    assert feed.ended
    assert feed.picture.snapshot.progress["step"] == 999
    assert feed.picture.snapshot.outcome == "ok"


def test_time_and_goodput_of_a_resumed_run_are_those_of_all_its_sittings_in_every_view(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=30)
    last = json.loads(run.file("result.json").read_text()) | {"seconds": 30.0, "goodput": 0.9}
    run.file("result.json").write_text(json.dumps(last))
    run.file("result-1.json").write_text('{"outcome": "stopped", "seconds": 10, "goodput": 0.5}')
    run.file("result-2.json").write_text("damaged")
    now, listed = opened(run), entry_of(run).figures
    table = {row.key: row.values[0] for row in compare(line_up([run, run])).figures}
    assert now.elapsed == now.summary["seconds"] == listed["seconds"] == table["seconds"] == 40
    assert now.summary["goodput"] == listed["goodput"] == table["goodput"] == pytest.approx(0.8)


def test_a_view_that_still_reads_shows_no_state_of_the_past(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a run was resumed: the end of its first part is held back, so that a full reading gives one less."""
    run = recorded.write(home, gpus=1, seconds=60, outcome=None, engine_pid=os.getpid())
    events = run.file("events.jsonl").read_text().splitlines()
    stopped = json.dumps({"t": json.loads(events[9])["t"], "type": "finished", "outcome": "stopped", "summary": {}})
    run.file("events.jsonl").write_text("\n".join([*events[:10], stopped, *events[10:]]) + "\n")
    monkeypatch.setattr(feeding, "EVENTS_A_READ", 30)
    reader, leaving = RunReader(run), threading.Event()
    assert reader.poll()
    assert reader.picture.reading
    given = LiveScreen(run).readings(leaving)
    first = next(given)
    leaving.set()
    reports = [event for event in map(json.loads, events) if event["type"] == "progress"]
    assert first.snapshot.progress["step"] == reports[-1]["step"]
    drawn = head.rows(head.RunName("a", "b", ""), "", NOTHING_READ.snapshot, 80, RICH)
    assert "catching up" in plain(drawn[0])
