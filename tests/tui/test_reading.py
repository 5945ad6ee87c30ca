"""What is read and worked out for the screens: the charts, forecasts, times that are left, and rows of searches."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Record, recalled, search_results
from tests.doors.tui import (
    PLAIN,
    RICH,
    Snapshot,
    Store,
    charts,
    draw,
    drawing_proof,
    earlier_starts,
    head,
    length,
    phases,
    plain,
)
from tests.doors.tui import tune as drawing
from tests.support import recorded
from tests.support.recorded_proof import ENDED, as_read, searching, typed

# ---- bars on a terminal ------------------------------------------------------------------------------------------


def fed(*events: tuple[float, dict[str, object]]) -> Snapshot:
    store = Store()
    store.feed(recalled({"t": t, **event}) for t, event in events)
    return store.snapshot()


def progress(step: int, **more: object) -> dict[str, object]:
    return {"type": "progress", "step": step, "steps": 100, "epoch": 1, "epochs": 1, "samples_per_second": 10.0} | more


# ---- what is read of a run --------------------------------------------------------------------------


def test_a_resumed_run_has_a_join_and_the_phases_of_its_new_start() -> None:
    now = fed(
        (0.0, {"type": "phase", "phase": "importing"}), (5.0, {"type": "phase", "phase": "training"}),
        (6.0, progress(5)), (10.0, {"type": "finished", "outcome": "stopped", "summary": {"outcome": "stopped"}}),
        (900.0, {"type": "phase", "phase": "importing"}), (902.0, {"type": "phase", "phase": "training"}),
        (903.0, progress(4)),
    )  # fmt: skip
    assert [(span.phase, span.seconds) for span in now.start] == [("importing", 2.0)]
    plot = charts.plots(now)[0]
    assert list(plot.joins) == pytest.approx([4.0])  # the pause is no time of the run
    assert plot.curves[0].line.breaks == {1}
    assert any(style == "warn" for row in draw(plot, 60, 8, RICH)[0] for _, style in row)
    assert "start-up 2.0 s  TensorFlow 2.0 s" in plain(phases.phase_line(now, 80))
    now = fed(
        (0.0, {"type": "phase", "phase": "starting"}), (0.1, {"type": "phase", "phase": "starting"}),
        (0.3, {"type": "phase", "phase": "compiling"}), (1.4, {"type": "phase", "phase": "training"}),
        (2.0, {"type": "phase", "phase": "compiling", "detail": "evaluation"}),
        (2.2, {"type": "phase", "phase": "training"}), (3.0, progress(5)),
    )  # fmt: skip
    assert [(span.phase, round(span.seconds, 3)) for span in now.start] == [("starting", 0.3), ("compiling", 1.1)]
    said = plain(phases.phase_line(now, 80))
    assert "first step 1.1 s" in said
    assert "compiling the evaluation 0.2 s" in said
    assert said.count("first step") == 1


def test_an_estimate_rests_on_earlier_starts_of_the_same_kind_and_says_so(home: Path) -> None:
    for number in range(2):
        recorded.write(home, name=f"20260921-1{number}0000-cnn", gpus=1, seconds=20)
    recorded.write(home, name="20260921-130000-cnn", gpus=1, seconds=20, settings=("compile.xla=true",))
    recorded.write(home, name="20260921-140000-mlp", gpus=1, seconds=20)
    run = recorded.write(home, name="20260921-150000-cnn", gpus=1, seconds=20)
    found = earlier_starts.of(run)
    assert found.runs == 2  # not the one that compiles differently, nor another preset
    assert found.phases["importing"].median == pytest.approx(6.1, abs=0.01)
    unread = Snapshot(phase=phases.READING)
    assert phases.rows(unread, found, 120, 20, RICH) == []
    (first, *_) = head.rows(head.RunName("cnn", run.id, ""), "", unread, 80, RICH)
    assert plain(first).rstrip().endswith("catching up")
    now = fed(
        (0.0, {"type": "phase", "phase": "importing"}), (1.0, {"type": "phase", "phase": "compiling", "detail": "XLA"}),
        (2.0, {"type": "host"}),
    )  # fmt: skip
    text = "\n".join(plain(row) for row in phases.rows(now, found, 120, 20, RICH))
    assert "importing TensorFlow" in text
    assert "compiling the first step              1.0 s" in text
    assert "before: 4.0 s" in text
    assert "a few seconds to the first step: an estimate from 2 earlier starts of this preset on this machine" in text
    usual, spent = (
        earlier_starts.usual([{"importing": 0.9}, {"importing": 11.9}, {"importing": 1.0}]),
        {"importing": 4.9},
    )
    assert usual.left(spent, "importing") == pytest.approx(7.0), "it has taken longer before"
    assert usual.left({"importing": 12.0}, "importing") == 0
    waits = fed(
        (0.0, {"type": "phase", "phase": "configuring", "detail": ""}),
        (1.0, {"type": "phase", "phase": "configuring", "detail": "waiting for worker 1 (b:1)"}),
        (90.0, {"type": "host"}),
    )  # fmt: skip
    lines = [plain(row) for row in phases.rows(waits, found, 120, 20, RICH)]
    (waiting,) = (line for line in lines if "waiting for worker 1 (b:1)" in line)
    assert "before" not in waiting, "how long others take is no matter of this run's"
    assert "estimate" not in "".join(lines)
    assert "waiting for other workers" in plain(head.rows(head.RunName("big", run.id, ""), "", waits, 120, RICH)[0])
    alone = "\n".join(plain(row) for row in phases.rows(now, earlier_starts.NONE, 100, 20, RICH))
    assert "estimate" not in alone
    assert "before" not in alone


ODD: list[dict[str, Any]] = [
    {}, {"kind": "tune", "state": "running"}, {"search": {"candidates": [None, 7, {}], "limits": 3, "memory": "x"}},
    {"search": {"candidates": [{"stage": 3, "settings": "x", "trials": [None], "gain": "much"}], "best": 7,
                "limits": {"minutes": "x", "only": 3, "leave": [None]},
                "before_speed": 0, "best_speed": 1, "ceiling": 0,
                "memory": {"points": [None, {"batch_size": "x"}, {"batch_size": 4}], "largest_batch": -1}}},
]  # fmt: skip


@pytest.mark.parametrize("glyphs", [RICH, PLAIN])
def test_rows_fit_and_odd_records_are_no_obstacle(glyphs: Any) -> None:
    records = [typed(Record, one) for one in (ENDED, ENDED | searching())]
    records += [as_read(one) for odd in ODD for one in (odd, ENDED | odd)]
    for data, width, low in itertools.product(records, (60, 78, 118, 198), (True, False)):
        rows = drawing_proof.head(data, width, glyphs, low)
        rows += drawing.options(data, width, 9, glyphs) + drawing.pairs(data, width, 9, glyphs)
        rows += [line(data, width, glyphs) for line in (drawing.options_line, drawing.memory_line, drawing.pairs_line)]
        draw(drawing.plot(data), width, 12, glyphs)
        for one in search_results.ranked(data):
            rows += drawing.detail(one, width, 9, glyphs)
        for row in rows:
            assert length(row) <= width, (width, plain(row))
            assert "\x1b" not in plain(row)
            assert glyphs is RICH or plain(row).isascii(), plain(row)
