"""A search for the fastest settings as words, rows and pictures, without a screen."""

from __future__ import annotations

import copy
import itertools
from dataclasses import fields
from typing import Any

import pytest
from gputui.engine.trials import search_record as shapes
from gputui.engine.trials.record import Record
from gputui.engine.trials.search_record import Candidate, Memory
from gputui.engine.tune.report import memory_sentences, search_results
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing import tune, tune_leaderboard, tune_memory
from gputui.tui.drawing import tune as drawing
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.rows import length, plain

from tests.support import recorded, recorded_search
from tests.support.recorded_search import BATCH, ENDED, KEPT, POLICY, running
from tests.support.typed import as_read, typed

GIB = recorded.GIB
ODD: list[dict[str, Any]] = [
    {}, {"kind": "tune", "state": "running"}, {"search": {"candidates": [None, 7, {}], "limits": 3, "memory": "x"}},
    {"search": {"candidates": [{"stage": 3, "settings": "x", "trials": [None], "gain": "much"}], "best": 7,
                "limits": {"minutes": "x", "only": 3, "leave": [None]},
                "before_speed": 0, "best_speed": 1, "ceiling": 0,
                "memory": {"points": [None, {"batch_size": "x"}, {"batch_size": 4}], "largest_batch": -1}}},
]  # fmt: skip


def test_candidates_stand_in_the_order_of_what_matters() -> None:
    names = [tune_leaderboard.settings(one) for one in search_results.ranked(typed(Record, ENDED))]
    assert names[0] == "in pairs: batch_size=256, policy=mixed_bfloat16, cache=memory"
    assert names[1] == "cache=memory  with batch_size=256, policy=mixed_bfloat16"
    assert set(names[2:4]) == {"the preset", "in pairs: the preset"}
    assert "preset, no input" in names
    assert names[-1] == "batch_size=1024"  # without a speed
    once_more, left_out = (recorded_search.candidate("input", {}, speed, None) for speed in (412.0, None))
    assert tune_leaderboard.settings(typed(Candidate, once_more)) == "preset, once more"
    assert tune_leaderboard.outcome(typed(Candidate, left_out), typed(Record, ENDED), RICH) == ("  left out", "label")
    going_on = ENDED | running()
    first, second, third, *_ = search_results.ranked(typed(Record, going_on))
    assert first.decision == "running"
    assert second.settings == {}  # measured with its input
    assert third.samples_per_second == 1490.0
    assert search_results.is_best(third, typed(Record, going_on))
    assert not search_results.is_best(second, typed(Record, going_on))


def test_what_each_option_brought() -> None:
    found = {one.stage: one for one in search_results.brought(typed(Record, ENDED))}
    assert list(found) == ["batch_size", "steps_per_execution", "precision", "xla", "input", "threads"]  # as limited
    assert found["batch_size"].gain == pytest.approx(1.7 * 1.72 - 1)
    assert found["batch_size"].spread == pytest.approx(0.05)
    assert found["batch_size"].settings == BATCH
    assert found["batch_size"].figures == "+192 % ± 5.0 %*"
    assert (found["xla"].state, found["xla"].gain, found["xla"].settings) == ("nothing", -0.067, {})
    assert found["threads"].figures == "not tried"
    instead = copy.deepcopy(ENDED)  # XLA with the precision as it was
    instead["search"]["best"] = BATCH | {"input.cache": "memory", "compile.xla": True}
    assert {one.stage: one.figures for one in search_results.brought(typed(Record, instead | {"state": "running"}))}[
        "precision"
    ] == "no gain"
    again = copy.deepcopy(ENDED)  # the best settings measured anew, now with their input, are no option of it
    again["search"]["candidates"][-2:] = [recorded_search.candidate("input", {}, 660.0, None, settings=BATCH | POLICY)]
    assert (
        next(one.figures for one in search_results.brought(typed(Record, again)) if one.stage == "input") == "not tried"
    )
    combined = copy.deepcopy(ENDED)  # then one with a larger batch and threads, of which none was tried so
    more = {"input.batch_size": 512, "device.intra_op_threads": 4}
    combined["search"]["best"] = combined["changes_kept"] = KEPT | more
    combined["search"]["candidates"].append(recorded_search.candidate("wide", KEPT | more, 1600.0, 0.09))
    found = {one.stage: one for one in search_results.brought(typed(Record, combined))}
    assert (found["batch_size"].figures, found["batch_size"].settings) == ("kept", {"input.batch_size": 512})
    assert (found["threads"].figures, found["threads"].settings) == ("kept", {"device.intra_op_threads": 4})
    assert (found["wide"].name, found["wide"].figures) == ("combination", "+9.0 % ± 2.1 %")
    assert found["precision"].figures == "+24.0 % ± 2.1 %*"
    now = {one.stage: one.figures for one in search_results.brought(typed(Record, ENDED | running()))}
    assert now == {
        "batch_size": "+192 % ± 5.0 %*",
        "precision": "+24.0 % ± 2.1 %*",
        "xla": "being tried",
        "steps_per_execution": "to come",
        "threads": "to come",
        "input": "to come",
    }


def test_memory_as_a_line_with_its_points_and_the_limit() -> None:
    assert memory_sentences.largest_error(typed(Memory, recorded_search.MEMORY)) == pytest.approx(0.1 / 3.1, rel=1e-3)
    said = "batch 658 should fit into 14.6 GiB; 256 MiB + 22.3 MiB a sample; predictions were off by 3.2 % at most"
    assert memory_sentences.in_words(typed(Record, ENDED)) == said
    plot = tune_memory.plot(typed(Record, ENDED))
    line, limit, measured, lost = plot.curves
    assert plot.unit == "GiB"
    assert list(limit.line.y) == pytest.approx([14.6, 14.6])
    assert list(measured.line.x) == [64, 128, 256]
    assert list(lost.line.x) == [1024]
    assert line.line.y[-1] == pytest.approx(0.25 + 0.0218 * plot.x_end)
    assert line.value == pytest.approx(0.25 + 0.0218 * 256)  # beside the last that was measured
    for glyphs in (RICH, PLAIN):
        rows = [plain(row) for row in draw(plot, 60, 12, glyphs)[0]]
        assert glyphs is PLAIN or sum(row.count(glyphs.point) for row in rows[1:]) == 4, rows
        assert rows[-1].split() == ["0", "250", "500", "750", "batch"]
    small = copy.deepcopy(ENDED)
    small["search"]["memory"] |= {"limit_bytes": None, "points": [{"batch_size": 8, "peak_bytes": GIB // 4}]}
    assert tune_memory.plot(typed(Record, small)).unit == "MiB"
    far = copy.deepcopy(ENDED)
    far["search"]["memory"]["largest_batch"] = 500_000  # the limit is out of reach
    far["search"]["memory"]["points"].pop()
    plot = tune_memory.plot(typed(Record, far))
    assert [curve.label for curve in plot.curves] == ["predicted", "measured"]
    assert plot.x_end == pytest.approx(2 * 256 * 1.08)


def test_what_was_not_proven_is_told_as_such() -> None:
    refused = ENDED["comparisons"][0] | {"decision": "rejected", "why": "the loss is worse"}
    for comparisons, said in (([refused], "not chosen"), ([], "not proven in pairs")):
        data = ENDED | {"gain_total": None, "changes_kept": {}, "comparisons": comparisons}
        head = "\n".join(plain(row) for row in drawing.head(typed(Record, data), 400.0, 118, RICH))
        assert f"+256 % in single trials, {said}" in head, head
        assert "so far, not yet" not in head
        assert "→" not in head
        low = plain(drawing.head(typed(Record, data), 400.0, 118, RICH, low=True)[1])
        assert low.startswith("412 samples/s  +256 %"), low
        brought = "\n".join(plain(row) for row in drawing.options(typed(Record, data), 118, 9, RICH))
        assert "+192 % ± 5.0 %" in brought
        assert brought.count(said) == 3, brought  # the batch size, the precision and the input
        assert (
            "measured in pairs" in plain(drawing.pairs(typed(Record, ENDED | data), 118, 9, RICH)[0]) or not comparisons
        )
        widths = tune_leaderboard.widths(118)
        cells = [
            dict(zip(widths, tune_leaderboard.cells(one, typed(Record, data), widths, RICH), strict=True))
            for one in search_results.ranked(typed(Record, data))
        ]
        outcomes = [row["outcome"].text for row in cells]
        assert not any(row["settings"].text.startswith(RICH.up) for row in cells)
        assert not any("kept" in outcome for outcome in outcomes)
        assert sum(" ".join(said.split()[:2]) in outcome for outcome in outcomes) == 4
    long = refused | {"why": " ".join(["the trials differ too much"] * 10)}
    for height, ends in ((6, "…"), (16, "much")):  # cut with a mark, and not beside empty rows
        lines = [
            plain(row).rstrip()
            for row in drawing.pairs(typed(Record, ENDED | {"comparisons": [long]}), 78, height, RICH)
        ]
        trials = next(at for at, line in enumerate(lines) if line.startswith("trial "))
        assert trials > 2
        assert lines[trials - 1].endswith(ends), (height, lines)
    instead = ENDED["comparisons"][0] | {"changes": {"input.batch_size": 40}}
    data = ENDED | {"changes_kept": instead["changes"], "comparisons": [instead]}
    assert {one.stage for one in search_results.brought(typed(Record, data)) if one.state == "not chosen"} == {
        "batch_size", "precision", "input"}  # fmt: skip
    going_on = ENDED | running() | {"comparisons": [instead | {"decision": "running", "trials": []}]}
    assert "batch_size=40 against the preset" in plain(drawing.pairs_line(typed(Record, going_on), 118, RICH))
    assert not any(
        search_results.is_chosen(one, typed(Record, going_on)) for one in search_results.ranked(typed(Record, going_on))
    )


@pytest.mark.parametrize("glyphs", [RICH, PLAIN])
def test_rows_fit_and_odd_records_are_no_obstacle(glyphs: Any) -> None:
    records = [typed(Record, one) for one in (ENDED, ENDED | running())]
    records += [as_read(one) for odd in ODD for one in (odd, ENDED | odd)]
    for data, width, low in itertools.product(records, (60, 78, 118, 198), (True, False)):
        rows = drawing.head(data, 30.0, width, glyphs, low)
        rows += drawing.options(data, width, 9, glyphs) + drawing.pairs(data, width, 9, glyphs)
        rows += [line(data, width, glyphs) for line in (drawing.options_line, drawing.memory_line, drawing.pairs_line)]
        draw(tune_memory.plot(data), width, 12, glyphs)
        for one in search_results.ranked(data):
            rows += tune_leaderboard.detail(one, width, 9, glyphs)
            for whole in (52, 70, width):
                columns = tune_leaderboard.widths(whole)
                assert sum(columns.values()) <= whole, whole
                for cell, room in zip(
                    tune_leaderboard.cells(one, data, columns, glyphs), columns.values(), strict=True
                ):
                    assert len(cell.text) <= room, (whole, cell)
        for row in rows:
            assert length(row) <= width, (width, plain(row))
            assert "\x1b" not in plain(row)
            assert glyphs is RICH or plain(row).isascii(), plain(row)


def test_a_small_terminal_keeps_the_head_and_the_candidates() -> None:
    for width, height, head in itertools.product((58, 78, 118, 198), range(8, 60), (4, 5, 7)):
        found = tune.share_out(width, height, head, 12)
        where = f"{width} x {height}"
        parts = found.head, found.table, found.detail, found.lines, found.charts
        assert sum(parts) == height, where
        assert found.table >= 4, where
        assert bool(found.lines) != bool(found.charts) or height < 20, where
        assert not found.charts or found.charts * found.chart_columns >= 4 * 5, where
    assert tune.share_out(78, 22, 4, 12).lines == 3


def test_the_data_by_hand_are_those_of_the_engine() -> None:
    for kind, data in (
        (shapes.Search, ENDED["search"]),
        (shapes.Candidate, ENDED["search"]["candidates"][0]),
        (shapes.Limits, ENDED["search"]["limits"]),
        (shapes.Memory, recorded_search.MEMORY),
        (shapes.MemoryPoint, recorded_search.MEMORY["points"][0]),
        (shapes.LossCheck, ENDED["search"]["losses"][0]),
    ):
        assert set(data) <= {field.name for field in fields(kind)}, kind  # what is left out has its default
