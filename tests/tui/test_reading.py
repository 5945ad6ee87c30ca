"""What is read and worked out for the screens: the charts, forecasts, times that are left, and rows of searches."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Record, search_results
from tests.doors.tui import (
    PLAIN,
    RICH,
    draw,
    drawing_proof,
    earlier_starts,
    length,
    plain,
)
from tests.doors.tui import tune as drawing
from tests.support import recorded
from tests.support.recorded_proof import ENDED, as_read, searching, typed


def test_an_estimate_rests_on_earlier_starts_of_the_same_kind_and_says_so(home: Path) -> None:
    for number in range(2):
        recorded.write(home, name=f"20260921-1{number}0000-cnn", gpus=1, seconds=20)
    recorded.write(home, name="20260921-130000-cnn", gpus=1, seconds=20, settings=("compile.xla=true",))
    recorded.write(home, name="20260921-140000-mlp", gpus=1, seconds=20)
    run = recorded.write(home, name="20260921-150000-cnn", gpus=1, seconds=20)
    found = earlier_starts.of(run)
    assert found.runs == 2  # not the one that compiles differently, nor another preset
    assert found.phases["importing"].median == pytest.approx(6.1, abs=0.01)


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
