"""Exact cases of the arithmetic behind the screens: how rows are shared out, which scales are chosen, what is heavy."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing import host, tune
from gputui.tui.drawing.interval_bar import Interval, bar, head, scale_of
from gputui.tui.drawing.live.layout import Demand, Layout, share_out
from gputui.tui.drawing.plot.scales import Scale, log_scale, round_scale, round_step, share_scale, soon
from gputui.tui.drawing.rows import differences, plain


def drawn(scale: Scale) -> tuple[float, float, list[float]]:
    return round(scale.low, 4), round(scale.high, 4), [round(tick, 4) for tick in scale.ticks]


# width, height, GPUs: head, messages, summary; charts, their columns and rows; GPUs, columns and height of their cards;
# host, log
SHARED_OUT = (
    (60, 14, 0, (3, 3, 1), (7, 1, 1), (0, 1, 1), (0, 0)),
    (60, 14, 1, (3, 3, 1), (5, 1, 1), (2, 1, 2), (0, 0)),
    (60, 14, 8, (3, 3, 0), (6, 1, 1), (2, 1, 1), (0, 0)),
    (80, 24, 0, (3, 3, 2), (10, 2, 1), (0, 1, 1), (2, 4)),
    (80, 24, 1, (3, 3, 2), (9, 2, 1), (6, 1, 6), (1, 0)),
    (80, 24, 8, (3, 3, 2), (11, 2, 1), (4, 2, 1), (1, 0)),
    (120, 40, 0, (3, 3, 4), (20, 3, 2), (0, 1, 1), (2, 8)),
    (120, 40, 1, (3, 3, 4), (14, 3, 2), (8, 1, 6), (1, 7)),
    (120, 40, 8, (3, 3, 4), (12, 3, 1), (11, 3, 3), (1, 6)),
    (200, 60, 0, (3, 3, 4), (36, 3, 2), (0, 1, 1), (2, 12)),
    (200, 60, 1, (3, 3, 4), (30, 3, 2), (8, 1, 6), (1, 11)),
    (200, 60, 8, (3, 3, 4), (22, 3, 2), (20, 3, 6), (1, 7)),
)


def test_the_rows_of_a_screen_are_shared_out() -> None:
    for width, height, gpus, around, charts, devices, below in SHARED_OUT:
        outcome = share_out(width, height, Demand(charts=6, gpus=gpus, messages=3, summary=4, error=2))
        assert (outcome.head, outcome.messages, outcome.summary) == around, (width, height, gpus)
        assert (outcome.charts, outcome.chart_columns, outcome.chart_rows) == charts, (width, height, gpus)
        assert (outcome.devices, outcome.cards.columns, outcome.cards.tall) == devices, (width, height, gpus)
        assert (outcome.host, outcome.log) == below, (width, height, gpus)
        assert outcome.edges is (height >= 40)
    tall = share_out(80, 150, Demand(charts=1, gpus=0, messages=0, summary=0))
    assert (tall.charts, tall.chart_rows, tall.log) == (30, 1, 115), "a chart does not grow without end"
    small = share_out(80, 12, Demand(charts=6, gpus=1, messages=9, summary=4, head=4, error=9))
    assert astuple(small) == (3, 5, 0, 0, 2, 1, 2, (1, 2, False, 0), 0, 0, False), "the error is seen as far as it fits"


def test_one_part_of_the_screen_takes_all_rows() -> None:
    def zoomed(part: str, gpus: int = 8) -> Layout:
        return share_out(120, 40, Demand(charts=6, gpus=gpus, messages=3, summary=4), part)

    for part in ("charts", "log", "messages"):
        outcome = zoomed(part)
        taken = {name: getattr(outcome, name) for name in ("messages", "summary", "charts", "devices", "host", "log")}
        assert {name: rows for name, rows in taken.items() if rows} == {part: 37}
    of_gpus = zoomed("gpus")
    assert (of_gpus.devices, of_gpus.host, of_gpus.cards) == (36, 1, (2, 6, False, 10))
    assert (of_gpus.chart_columns, of_gpus.chart_rows) == (2, 3)
    none = zoomed("gpus", gpus=0)
    assert (none.devices, none.host) == (0, 37)


def test_labels_stand_at_round_numbers() -> None:
    for low, high, tall, expected in (
        (0, 97, 11, (0.0, 100.0, [0.0, 50.0, 100.0])),
        (3, 3, 9, (2.7, 3.5, [2.7, 2.8, 2.9, 3.0, 3.1, 3.2, 3.3, 3.4, 3.5])),
        (0, 0, 9, (0.0, 1.0, [0.0, 0.5, 1.0])),
        (-4.2, 7.9, 12, (-5.0, 13.3333, [-5.0, 0.0, 5.0, 10.0])),
        (0.01, 0.013, 5, (0.01, 0.014, [0.01, 0.012, 0.014])),
        (1, 2, 2, (1.0, 2.0, [1.0, 2.0])),
        (0, 2.1, 2, (0.0, 3.0, [0.0, 3.0])),
        (0, 1000, 8, (0.0, 1166.6667, [0.0, 500.0, 1000.0])),
    ):
        assert drawn(round_scale(low, high, tall)) == expected
    for low, high, tall, expected in (
        (-3.0, 1.0, 11, (-3.0, 1.0, [-3.0, -2.0, -1.0, 0.0, 1.0])),
        (0.0, 0.3, 9, (0.0, 0.301, [0.0, 0.1761, 0.301])),
        (0.1, 0.1, 9, (0.0414, 0.1761, [0.0414, 0.0792, 0.1139, 0.1461, 0.1761])),
        (-2.0, 2.5, 30, (-2.0, 2.699, [-2.0, -1.0, 0.0, 1.0, 2.0])),
        (-8.0, 8.0, 9, (-8.0, 8.0, [-8.0, -4.0, 0.0, 4.0, 8.0])),
        (-308.0, 308.0, 9, (-308.0, 308.0, [-248.0, -124.0, 0.0, 124.0, 248.0])),
    ):
        assert drawn(log_scale(low, high, tall)) == expected
    assert [drawn(share_scale(tall))[1:] for tall in (2, 3, 6, 8, 20)] == [
        (1.0, [0.0, 1.0]), (1.0, [0.0, 0.5, 1.0]), (1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (1.0, [0.0, 1.0]),
        (1.0556, [0.0, 0.5, 1.0]),
    ]  # fmt: skip
    assert [round_step(least) for least in (0.3, 1, 1.1, 2.2, 2.6, 7, 99)] == [0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 100.0]
    assert Scale(0.0, 10.0, 4.0, first=1.0).ticks == [1.0, 5.0, 9.0]


def test_an_axis_stays_while_the_values_fit_and_fill_it() -> None:
    scale = Scale(0.0, 100.0, 25.0)
    for low, high, holds in (
        (0, 100, True), (0, 25, True), (0, 24.9, False), (-1, 50, False), (50, 101, False), (50, 50, True),
        (101, 101, False),
    ):  # fmt: skip
        assert scale.holds(low, high) is holds, (low, high)
    assert [soon(seconds) for seconds in (0, 3, 17, 40, 41, 100, 1000, 5000, 90_000)] == [
        5, 5, 18, 40, 45, 100, 1080, 5400, 93_600,
    ]  # fmt: skip
    assert [Scale(0, 1, 1, logarithmic=True).value(place) for place in (0.0, 2.0)] == [1.0, 100.0]
    assert Scale(0, 1, 1, logarithmic=True).value(400.0) == pytest.approx(1e308)


def test_a_load_is_moderate_or_heavy_from_its_threshold_on() -> None:
    assert [host.busy(share) for share in (None, 0.0, 0.09, 0.1, 0.74, 0.75)] == [
        "value", "light", "light", "moderate", "moderate", "heavy",
    ]  # fmt: skip
    assert [host.memory(used, 100.0) for used in (9.0, 10.0, 79.0, 80.0)] == [
        "light",
        "moderate",
        "moderate",
        "heavy",
    ]
    assert [host.power(watts, 100.0) for watts in (9.0, 75.0)] == ["light", "heavy"]
    assert [host.temperature(celsius) for celsius in (64.0, 65.0, 82.0, 83.0)] == [
        "light", "moderate", "moderate", "heavy",
    ]  # fmt: skip
    assert {
        host.memory(None, 9.0),
        host.memory(9.0, None),
        host.memory(9.0, 0.0),
        host.power(9.0, 0.0),
    } == {"value"}


def test_changes_of_a_row_with_at_most_four_equal_cells_between_them_are_sent_together() -> None:
    old, new = [("aaa123bbb45ccccc6", "")], [("aaaxyzbbbxxcccccx", "")]
    assert differences(old, new) == [(3, 8), (16, 1)]
    assert differences([("aaa1bbbb2", "")], [("aaaxbbbbx", "")]) == [(3, 6)]


def test_the_rows_of_a_search_are_shared_out() -> None:
    for size, layout in (
        ((78, 22, 4, 12), (4, 13, 2, 3, 0, 0, False)), ((95, 30, 5, 12), (5, 9, 3, 0, 13, 2, False)),
        ((118, 40, 5, 12), (5, 13, 3, 0, 19, 2, True)), ((198, 30, 7, 12), (7, 8, 3, 0, 12, 4, True)),
        ((198, 90, 7, 12), (7, 54, 5, 0, 24, 2, True)), ((60, 9, 7, 12), (5, 4, 0, 0, 0, 0, False)),
    ):  # fmt: skip
        assert astuple(tune.share_out(*size)) == layout, size


def test_a_bar_needs_five_cells_and_its_head_six() -> None:
    interval = Interval(0.05, 0.0, 0.1)
    scale = scale_of([interval])
    assert [plain(bar(interval, scale, width, PLAIN)).strip() == "" for width in (4, 5)] == [True, False]
    assert [head(scale, width) == "" for width in (5, 6)] == [True, False]
