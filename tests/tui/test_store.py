"""What is read of a run: the events of all its sittings as figures and lines, whatever a file holds."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from tests.doors.engine import EventWriter, Run, compare, fields_of, line_up, open_regular, parsing, reading
from tests.doors.engine import events_Progress as Progress
from tests.doors.engine import runs_Tail as Tail
from tests.doors.tui import (
    CAPACITY,
    NOTHING_READ,
    RICH,
    CompareScreen,
    LiveScreen,
    MergedTail,
    RunReader,
    Series,
    Snapshot,
    Store,
    entry_of,
    head,
    plain,
)
from tests.doors.tui import reader as feeding
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.tiny import Tiny, text_of, wait_for


def opened(run: Run) -> Snapshot:
    feed = RunReader(run)
    while not feed.ended:
        feed.poll()
    return feed.picture.snapshot


def fed(*events: Mapping[str, object]) -> Snapshot:
    store = Store()
    lines = (json.dumps({"t": 100.0 + number, "run": "r", **event}) for number, event in enumerate(events))
    store.feed(event for line in lines if (event := parsing.parse_line(line.encode())) is not None)
    return store.snapshot()


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
    lost = recorded.write(home, name="20260921-110000-cnn", gpus=0, seconds=60, outcome=None)
    judged = ("val_accuracy", opened(lost).epochs[-1].metrics["val_accuracy"])
    assert entry_of(lost).validation == judged
    # As a stop in the evaluation and `validation_freq` leave an epoch; its line comes last in the file.
    last = json.dumps({"t": opened(lost).epochs[-1].t + 1, "run": "r", "type": "epoch", "epoch": 2, "step": 49,
                       "seconds": 1.0, "metrics": {"accuracy": 0.9, "loss": 0.5}})  # fmt: skip
    with lost.file("events.jsonl").open("a") as file:
        file.write(f"{last}\n")
    assert entry_of(lost).validation == judged
    drawn = head.rows(head.RunName("a", "b", ""), "", opened(lost), 80, RICH)
    assert f"val accuracy {judged[1]:.3g}" in "".join(map(plain, drawn))
    assert now.line("gpu0").y[-1] > 0.5


def test_unknown_types_and_absent_fields_are_no_obstacle() -> None:
    now = fed(
        {"type": "astrology", "sign": "leo"},
        *({"type": kind} for kind in ("started", "phase", "progress", "gpu", "host", "allocator", "epoch")),
        {"type": "warning"},
        {"type": "error"},
        {"type": "progress", "step": "many", "metrics": [1], "loss": None},
        {"type": "gpu", "gpus": [{"index": 1}]},
        {"type": "finished"},
    )
    assert now.outcome == "crashed"
    assert now.gpus[0].busy is None
    assert not len(now.line("loss"))


def step(now: Snapshot) -> int:
    assert now.progress is not None
    return now.progress.step


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
    assert step(now) == 5880


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


def test_a_feed_goes_on_when_the_run_does(home: Path) -> None:
    import os

    run = recorded.write(home, gpus=1, seconds=30, outcome=None, engine_pid=os.getpid())
    feed = RunReader(run)
    assert not feed.poll()
    assert not feed.ended
    with run.file("events.jsonl").open("a") as stream:
        stream.write(json.dumps({"t": recorded.BEGAN + 31, "type": "progress", "step": 999}) + "\n")
    feed.poll()
    assert step(feed.picture.snapshot) == 999
    assert math.isfinite(feed.picture.snapshot.elapsed)
    with run.file("events.jsonl").open("a") as stream:
        stream.write(json.dumps({"t": recorded.BEGAN + 32, "type": "phase", "phase": "ended"}) + "\n")
    run.file("result.json").write_text('{"outcome": "stopped"}')
    feed.poll()
    assert feed.picture.snapshot.phase == "ended"
    run.file("result.json").rename(run.file("result-1.json"))  # by the engine that goes on with the run
    feed.poll()
    assert feed.picture.snapshot.phase == "starting"


def test_time_and_goodput_of_a_resumed_run_are_those_of_all_its_sittings_in_every_view(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=30)
    last = json.loads(run.file("result.json").read_text()) | {"seconds": 30.0, "goodput": 0.9}
    run.file("result.json").write_text(json.dumps(last))
    run.file("result-1.json").write_text('{"outcome": "stopped", "seconds": 10, "goodput": 0.5}')
    run.file("result-2.json").write_text("damaged")
    now, listed = opened(run), entry_of(run).figures
    table = {row.key: row.values[0] for row in compare(line_up([run, run])).figures}
    assert now.summary is not None
    assert now.elapsed == now.summary.seconds == listed["seconds"] == table["seconds"] == 40
    assert now.summary.goodput == listed["goodput"] == table["goodput"] == pytest.approx(0.8)


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
    assert step(first.snapshot) == reports[-1]["step"]
    drawn = head.rows(head.RunName("a", "b", ""), "", NOTHING_READ.snapshot, 80, RICH)
    assert "catching up" in plain(drawn[0])


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


# ---- earlier starts -----------------------------------------------------------------------------


def run_with(home: Path, loss: float, epochs: int, name: str, outcome: str = "stopped") -> Run:
    """Its last progress says something else than its result, as in every run that was interrupted."""
    run = recorded.write(home, name=name, gpus=0, seconds=50, outcome=outcome)
    best = {"option": "train.early_stop", "figure": "val_loss", "epoch": epochs - 2, "step": 1, "value": 0.5}
    result = json.loads(run.file("result.json").read_text()) | {"metrics": {"loss": loss}, "epochs": epochs}
    result |= {"ended_by": "early_stop", "best": [best]} if epochs else {}
    run.file("result.json").write_text(json.dumps(result))
    lines = run.file("events.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    last["summary"] = result
    run.file("events.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    return run


EARLY = "stopped early after epoch 5: val_loss has not improved for 2 epochs; best 0.5 in epoch 3"


def _shows(pilot: Pilot[None], text: str) -> bool:
    """Whether the screen has the text, whatever the width of its blanks."""
    return text in " ".join(text_of(pilot.app).split())


async def test_every_screen_and_list_shows_the_same_loss(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(home, 0.123456, 5, "20260921-100000-one")
    other = run_with(home, 0.654321, 0, "20260921-110000-two")
    screens: list[tuple[Callable[[], Screen[None]], tuple[str, ...]]] = [
        (partial(CompareScreen, [run, other]), ("0.123", "0.654")),
        (partial(LiveScreen, run), ("mean 0.123", "loss 0.123", EARLY)),
        (partial(LiveScreen, other), ("mean 0.654", "loss so far 0.654")),
    ]
    for screen, texts in screens:
        async with Tiny(screen).run_test(size=(120, 40)) as pilot:
            for text in texts:
                await wait_for(pilot, partial(_shows, pilot, text))
    assert cli.run(["runs", "--json"]) == 0
    listed = capsys.readouterr().out
    assert "0.123456" in listed
    assert "0.654321" in listed
