"""Charts of a run exactly: which there are, their axes, notes and curves, as they are now and as they were before."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from gputui.tui.base.glyphs import PLAIN, RICH, Glyphs
from gputui.tui.base.settings import Charts
from gputui.tui.drawing import charts
from gputui.tui.drawing.live import chart_foot, head
from gputui.tui.drawing.plot import cursor
from gputui.tui.drawing.plot.axes import x_scale, y_scale
from gputui.tui.drawing.plot.canvas import draw, title
from gputui.tui.drawing.plot.curves import Curve, Plot, as_drawn, smoothed
from gputui.tui.drawing.plot.scales import Scale
from gputui.tui.drawing.plot.strokes import drawable, strokes
from gputui.tui.drawing.rows import plain
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess
from gputui.tui.reading.run.series import Line, Pace
from gputui.tui.reading.run.snapshot import BestEpoch, Message, Snapshot, Spell
from gputui.tui.reading.run.store import BEFORE_RESUME


def line(*values: float, apart: float = 1.0, begin: float = 0.0, **more: Any) -> Line:
    """Readings every `apart` seconds from `begin` on; ten steps are done between two of them."""
    places = array("d", [begin + apart * number for number in range(len(values))])
    steps = array("d", [10.0 * number for number in range(len(values))])
    return Line(places, array("d", values), last=values[-1] if values else None, steps=steps, **more)


LINES = {
    "samples_per_second": line(100.0, 200.0, 300.0, begin=5.0), "loss": line(3.0, 2.0, 1.0, begin=5.0),
    "epoch loss": line(2.5, begin=7.0), "val_loss": line(2.0, begin=7.0), "step_ms_p50": line(10.0, 11.0, begin=5.0),
    "step_ms_p95": line(20.0, 21.0, begin=5.0), "input_wait": line(0.25, 0.5, begin=5.0),
    "accuracy": line(0.5, 0.75, begin=5.0), "mae": line(0.1, 0.2, begin=5.0),
    **{f"gpu{n}{key}": line(0.5, 0.75, begin=1.0) for n in (0, 1) for key in ("", " power")},
}  # fmt: skip
NOW = Snapshot(
    lines=LINES, metrics=("accuracy", "mae"), gpus=(Gpu(0), Gpu(1, training=True)), elapsed=20.0, windowed=True,
    pace=Pace(5.0, 20.0, 8.0), progress={"step": 20, "steps": 40, "mfu": 0.41, "loss": 1.5, "metrics": {"mae": 0.2}},
)  # fmt: skip


def shown(plots: Iterable[Plot]) -> list[tuple[Any, ...]]:
    return [(plot.key, plot.unit, plot.bounds, plot.x_unit, plot.x_end, plot.note, " ".join(curve.label for curve
            in plot.curves)) for plot in plots]  # fmt: skip


def test_the_charts_of_a_run_in_their_order_with_their_axes_and_notes() -> None:
    on_time = ("zero", "time", 2.0)
    assert shown(charts.plots(NOW)) == [
        ("throughput", "samples/s", *on_time, "MFU  41 %", ""),
        ("loss", "", "free", "step", 20.0, "so far", "train epoch mean val"),
        ("step time", "ms", "zero", "time", 1.0, "", "p50 p95"),
        ("input wait", "of the step", "share", "time", 1.0, "", ""),
        ("accuracy", "", "free", "step", 10.0, "", "epoch mean"),
        ("GPU 1 busy", "", "share", "time", 1.0, "", "GPU 1"), ("GPU 1 power", "W", "zero", "time", 1.0, "", "GPU 1"),
        ("mae", "", "free", "step", 10.0, "so far", "epoch mean"),
    ]  # fmt: skip
    held = replace(NOW, gpus=(Gpu(0, processes=(GpuProcess(1, own=True),)), Gpu(1, training=True)))
    assert [plot.key for plot in charts.plots(held)][5] == "GPU 1 busy", "a process alone is no training"
    unknown = replace(NOW, gpus=(Gpu(0), Gpu(1)))
    assert [plot.key for plot in charts.plots(unknown)][5:7] == ["GPU busy", "GPU power"], "those of all"
    over = replace(NOW, outcome="ok", summary={"mfu": 0.5, "epochs": 1, "metrics": {"loss": 1.25}})
    first, loss, *_ = charts.plots(over)
    assert (first.note, loss.note, loss.curves[1].value, loss.final) == ("MFU  50 %", "", 1.25, True)
    assert charts.plots(replace(over, summary={}))[0].note == ""
    by_samples = charts.plots(NOW, Charts(x_axis="samples"))
    assert {plot.x_unit for plot in by_samples} == {"samples"}
    assert by_samples[1].x_end == 160.0
    no_epochs = charts.plots(replace(NOW, pace=Pace(5.0)), Charts(x_axis="epoch"))
    assert [plot.x_unit for plot in no_epochs[:2]] == ["time", "step"], "an axis that the run does not have"


def test_a_chart_is_final_at_its_last_step_or_at_the_end_of_the_run() -> None:
    def final(now: Snapshot, axis: str = "auto") -> list[bool]:
        return [plot.final for plot in charts.plots(now, Charts(x_axis=axis))[:2]]

    at_end = replace(NOW, progress={**NOW.progress, "steps": 20})
    assert [final(NOW), final(at_end), final(at_end, "step"), final(replace(NOW, outcome="stopped"))] == [
        [False, False], [False, True], [True, True], [True, True],
    ]  # fmt: skip
    assert final(replace(NOW, progress={}), "step") == [False, False]


def test_all_charts_on_one_axis_with_the_phases_that_can_be_seen_and_with_closer_lines() -> None:
    spells = (Spell("evaluating", 6.0, 6.1, 10.0), Spell("saving", 6.5, 7.0, 15.0))
    now = replace(NOW, spells=spells, joins=((6.0, 10.0),), best={"a": BestEpoch(1, "loss", (7.0, 20.0))})
    whole = charts.on_one_axis(now, Charts())
    assert {(plot.x_unit, plot.x_end, plot.joins, plot.best) for plot in whole} == {("time", 2.0, (1.0,), (2.0,))}
    assert {plot.spells for plot in whole} == {((1.5, 2.0, "s"),)}, "a hundredth of the time"
    close = charts.on_one_axis(now, Charts(), (0.5, 1.5))
    assert [[spell[2] for spell in plot.spells] for plot in close] == [["e", "s"]] * len(close)
    assert {plot.window for plot in close} == {(0.5, 1.5)}
    bests = {"a": BestEpoch(9, "loss", (7.0, 20.0)), "b": BestEpoch(3, "loss", (6.0, 10.0))}
    bests["c"] = BestEpoch(9, "mae", (7.0, 20.0))
    assert charts.plots(replace(now, best=bests))[1].how == ("best epoch 3, 9",)
    steps = charts.on_one_axis(now, Charts(x_axis="step"))
    assert {(plot.x_unit, plot.x_end, plot.spells) for plot in steps} == {("step", 20.0, ((15.0, 15.0, "s"),))}
    more = line(1.0, 2.0, 3.0, 4.0, begin=5.0, apart=0.5)
    speed = charts.on_one_axis(now, Charts(), (0.5, 1.5), {"samples_per_second": more})[0]
    assert list(speed.curves[0].line.y) == [1.0, 2.0, 3.0, 4.0]
    assert charts.on_one_axis(Snapshot(), Charts())[0].x_end == 0.0


def test_a_run_without_a_line_is_named_in_a_comparison_without_a_value() -> None:
    one = charts.Named("one", "o", 0, NOW)
    two = charts.Named("two", "t", 1, replace(NOW, lines={"loss": LINES["loss"]}, gpus=()))
    speed = next(plot for plot in charts.compared_plots([one, two], Charts(fill=True)) if plot.key == "throughput")
    assert [(curve.label, curve.short, len(curve.line)) for curve in speed.curves] == [
        ("one last", "o last", 3), ("two", "t", 0),
    ]  # fmt: skip
    assert (speed.filled, speed.final) == (False, False)
    compared = charts.compared_plots([one, two], Charts())
    assert {plot.key for plot in compared if all(curve.marked for curve in plot.curves)} == {"val loss"}
    names = [plot.key for plot in compared]
    assert names == ["loss", "throughput", "val loss", "accuracy", "mae", "step time p50", "input wait"]


def test_the_first_eight_runs_are_compared_by_every_figure_that_one_of_them_has() -> None:
    runs = [charts.Named(f"r{n}", f"{n}", n, replace(NOW, lines={"loss": LINES["loss"]}, metrics=())) for n in range(9)]
    runs[1] = replace(
        runs[1], now=replace(runs[1].now, lines={"val_mae": LINES["mae"]}, metrics=("mae",), windowed=False)
    )
    runs[8] = replace(runs[8], now=NOW)
    plots = charts.compared_plots(runs, Charts())
    assert [plot.key for plot in plots] == ["loss", "val mae"], "those of the ninth are not among them"
    assert [[curve.short.removesuffix(" last") for curve in plot.curves] for plot in plots] == [[*"01234567"]] * 2
    assert [curve.label for curve in plots[0].curves][:3] == ["r0 last", "r1", "r2 last"]
    again = replace(LINES["loss"], steps=array("d", [0.0, 30.0, 20.0]), made={})  # resumed before its newest step
    runs[2] = replace(runs[2], now=replace(runs[2].now, lines={"loss": again}))
    assert charts.compared_plots(runs, Charts())[0].x_end == 30.0


# ---- how they are drawn -----------------------------------------------------------------------------------------


LOSS = Plot("loss", "", (Curve("", line(10.0, 100.0, 1000.0)),), x_unit="step", x_end=20.0)


def test_a_scale_stays_only_for_values_of_its_kind() -> None:
    linear, logarithmic = y_scale(LOSS, 9, None), y_scale(replace(LOSS, logarithmic=True), 9, None)
    assert y_scale(LOSS, 9, linear) is linear
    assert y_scale(replace(LOSS, logarithmic=True), 9, logarithmic) is logarithmic
    wide = Scale(0.0, 3.0, 1.0)
    small = replace(LOSS, curves=(Curve("", line(1.0, 2.9)),))
    assert y_scale(small, 9, wide) is wide
    assert y_scale(replace(small, logarithmic=True), 9, wide).logarithmic
    assert not y_scale(small, 9, replace(wide, logarithmic=True)).logarithmic
    assert y_scale(replace(small, bounds="share"), 6, wide).high == 1.0


def test_a_chart_keeps_the_scale_before_and_marks_the_best_epoch_over_a_resume() -> None:
    _, before = draw(LOSS, 40, 8, PLAIN)
    lower = replace(LOSS, curves=(Curve("", line(10.0, 100.0, 260.0)),))
    assert draw(lower, 40, 8, PLAIN, before)[1] is before
    assert draw(lower, 40, 8, PLAIN)[1].high < before.high, "its own would be another"
    marked = replace(LOSS, curves=(Curve("", line(10.0, 10.0, 10.0)),), joins=(5.0, 10.0), best=(10.0,))
    pieces = [[style for _, style in row if style in ("good", "warn")] for row in draw(marked, 40, 8, PLAIN)[0][1:4]]
    assert pieces == [["warn", "good"]] * 3


def test_a_selected_part_ends_exactly_where_it_was_selected() -> None:
    time = replace(LOSS, x_unit="time", x_end=97.0)
    assert [x_scale(replace(time, window=window), 60).high for window in (None, (3.0, 41.0))] == [100.0, 41.0]
    assert [x_scale(replace(LOSS, x_end=97.0, window=window), 60).high for window in (None, (3.0, 41.0))] == [100.0, 41]


def test_what_was_changed_of_the_values_is_said_only_of_what_was_changed() -> None:
    marked = replace(LOSS, curves=(Curve("val", LOSS.curves[0].line, marked=True),), how=("best epoch 3",))
    assert as_drawn(marked, Charts(smoothing=0.5)).how == ("best epoch 3",)
    assert as_drawn(marked, Charts(logarithmic=True)).how == ("best epoch 3", "log")
    busy = as_drawn(replace(LOSS, bounds="share"), Charts(logarithmic=True, smoothing=0.25))
    assert (busy.how, busy.logarithmic, len(busy.curves)) == (("EMA 0.25",), False, 2)
    short = replace(LOSS, curves=(Curve("", line(1.0, 2.0)),))
    assert as_drawn(short, Charts(smoothing=0.5)).how == (), "two points are not smoothed"
    lost = replace(LOSS, curves=(Curve("", line(1.0, lost=(3.0, 1234.0))), Curve("val", line(1.0, lost=(1.0, 1.0)))))
    assert as_drawn(lost, Charts()).alarm == "not finite since step 1,234"
    assert as_drawn(replace(lost, curves=lost.curves[::-1]), Charts()).alarm == "not finite since step 1"
    assert as_drawn(replace(lost, bounds="zero"), Charts()).alarm == ""


def test_a_point_of_several_readings_counts_as_these_in_a_smoothed_line() -> None:
    assert list(smoothed(line(1.0, 0.0), 0.5).y) == pytest.approx([1.0, 1 / 3])
    assert list(smoothed(line(1.0, 0.0, each=2), 0.5).y) == pytest.approx([1.0, 0.2])
    extremes: Any = {"low": array("d", [0.5, 0.0]), "high": array("d", [1.5, 0.5])}
    made = smoothed(line(1.0, 0.0, **extremes), 0.5)
    assert (len(made.low), len(made.high)) == (0, 0), "extremes of the readings are none of their mean"


def test_a_logarithm_needs_all_readings_of_a_point_to_be_above_zero() -> None:
    extremes: Any = {"low": array("d", [0.0, 1.0]), "high": array("d", [100.0, 10.0])}
    made = drawable(line(10.0, 1.0, **extremes), logarithmic=True)
    assert (list(made.x), list(made.y), list(made.low), list(made.high)) == ([1.0], [0.0], [0.0], [1.0])
    kept = line(10.0, math.nan, 1.0)
    assert (list(drawable(kept).y), drawable(kept).breaks) == ([10.0, 1.0], frozenset({1}))


def picture(plot: Plot, height: int, glyphs: Glyphs = PLAIN) -> str:
    return "\n".join(plain(row).rstrip() for row in draw(plot, 27, height, glyphs)[0])


def test_the_area_lies_below_the_smoothed_line_and_letters_stand_where_no_curve_is(snapshot: Any) -> None:
    spiky = replace(LOSS, bounds="zero", curves=(Curve("", line(*([4.0, 0.0, 0.0, 0.0] * 5))),), x_end=20.0)
    falling = replace(LOSS, curves=(Curve("", line(9.0, 1.0, 1.0)),), x_end=2.0)
    pictures = [
        picture(as_drawn(spiky, Charts(smoothing=0.9)), 9), picture(as_drawn(spiky, Charts(fill=False)), 9),
        picture(as_drawn(replace(spiky, bounds="free"), Charts(logarithmic=True)), 6),
        *(picture(replace(falling, spells=((begin, end, "e"),)), 7) for begin, end in ((0.0, 0.2), (1.0, 2.0), (0, 2))),
    ]  # fmt: skip
    assert "\n----\n".join(pictures) == snapshot
    spells = ((0.8, 0.9, "e"), (1.0, 1.1, "e"), (1.5, 1.6, "e"))
    thinned = picture(replace(falling, spells=(spells[0], spells[2])), 7)
    assert picture(replace(falling, spells=spells), 7) == thinned, "the second stands too near to the first"


def test_curves_beside_their_scale_and_with_many_readings_in_a_column(snapshot: Any) -> None:
    share = replace(
        LOSS, bounds="share", curves=(Curve("", line(0.5, 1.5, 0.5, -0.5, 0.5, 0.5, apart=5.0)),), x_end=25.0
    )
    extremes: Any = {"low": array("d", [1.0, 1.0, 0.0, 3.0]), "high": array("d", [1.0, 3.0, 4.0, 5.0])}
    band = replace(
        LOSS, bounds="zero", curves=(Curve("", line(1.0, 2.0, 3.0, 4.0, apart=8.0, **extremes)),), x_end=24.0
    )
    waves = [5.0 + 4.0 * math.sin(number / 9) * (number % 5) / 5 for number in range(300)]
    assert [y_scale(replace(band, bounds=bounds), 9, None).low for bounds in ("zero", "free")] == [0.0, 0.0]
    higher = replace(band.curves[0].line, low=array("d", [1.0, -2.0, 0.0, 3.0]), high=array("d", [1.0, 3.0, 4.0, 9.0]))
    scale = y_scale(replace(band, bounds="free", curves=(Curve("", higher),)), 9, None)
    assert (scale.low <= -2.0, scale.high >= 9.0) == (True, True), "all readings are in the picture"
    dense = replace(LOSS, curves=(Curve("", line(*waves, apart=0.1)),), x_end=30.0, final=True)
    cut = replace(dense, window=(7.25, 11.5))
    ends = replace(LOSS, curves=(Curve("", line(0.0, 9.0, 0.0, apart=12.0)),), x_end=24.0, final=True)
    pictures = [picture(plot, height, glyphs) for plot in (share, band, dense, cut, ends) for glyphs in (PLAIN, RICH)
                for height in (4, 9)]  # fmt: skip
    assert "\n----\n".join(pictures) == snapshot


def test_a_line_is_cut_where_it_crosses_the_ends_of_the_axis() -> None:
    points = line(0.0, 10.0, 20.0, 40.0, apart=5.0)

    def cut(low: float, high: float, of: Line = points) -> list[list[tuple[float, float, float]]]:
        return [[stop[:3] for stop in part] for part in strokes(of, Scale(low, high, 1.0), 50)]

    assert cut(2.5, 12.5) == [[(2.5, 5.0, 5.0), (5.0, 10.0, 10.0), (10.0, 20.0, 20.0), (12.5, 30.0, 30.0)]]
    assert cut(5.0, 10.0) == [[(5.0, 10.0, 10.0), (10.0, 20.0, 20.0)]]
    assert cut(6.0, 9.0) == [[(6.0, 12.0, 12.0), (9.0, 18.0, 18.0)]], "between two points"
    assert cut(-5.0, 2.5) == [[(0.0, 0.0, 0.0), (2.5, 5.0, 5.0)]]
    assert cut(16.0, 20.0) == []
    broken = replace(points, breaks=frozenset({2}), made={})
    assert cut(2.5, 12.5, broken) == [
        [(2.5, 5.0, 5.0), (5.0, 10.0, 10.0)], [(10.0, 20.0, 20.0), (12.5, 30.0, 30.0)],
    ]  # fmt: skip
    assert cut(6.0, 9.0, broken) == [], "nothing is drawn in a gap"
    assert Pace(0.0, 0.0, 0.0).axes() == ("time", "step")


def test_titles_lose_first_what_matters_least(snapshot: Any) -> None:
    curves = (Curve("train", line(1.0, 0.5), lesser=True), Curve("epoch mean", line(0.75), short="mean"),
              Curve("val", line(0.625)))  # fmt: skip
    plot = replace(LOSS, curves=curves, how=("best epoch 3", "log"), note="so far", unit="nats", alarm="no number")
    assert "\n".join(plain(title(plot, width, PLAIN)) for width in range(100, 10, -3)) == snapshot
    single = replace(plot, curves=curves[:1], alarm="", how=())
    assert [plain(title(single, width, PLAIN)) for width in (40, 30, 20, 12)] == [
        "loss ----------------   0.5 nats  so far", "loss ------   0.5 nats  so far", "loss ----   0.5 nats",
        "loss --- 0.5",
    ]  # fmt: skip


# ---- the cursor --------------------------------------------------------------------------------------------------


def test_the_copied_table_has_only_the_visible_part_and_the_legend_of_a_cursor_no_note() -> None:
    both = replace(LOSS, curves=(Curve("train", line(0.5, 0.25, 0.125)), Curve("val", line(0.75), marked=True)),
                   note="so far", bounds="share", x_unit="time")  # fmt: skip
    assert cursor.table(both).splitlines() == ["seconds\ttrain (%)\tval (%)", "0\t50\t75", "1\t25\t", "2\t12.5\t"]
    part = replace(both, window=(0.5, 1.5), bounds="free", x_unit="epoch", unit="nats")
    assert cursor.table(part).splitlines() == ["epoch\ttrain (nats)\tval (nats)", "1\t0.25\t"]
    seen = cursor.seen_at(both, 1.2)
    assert (seen.note, [curve.value for curve in seen.curves]) == ("", [0.25, 0.75])
    faint = as_drawn(replace(both, curves=both.curves[:1]), Charts(smoothing=0.5))
    (row,) = cursor.rows(faint, 2.0, 1.0, 90, PLAIN)
    assert plain(row) == "2.0 s after training began   * train 12.5 % (smoothed 21.4 %)"
    assert cursor.table(faint).splitlines()[3] == "2\t12.5"
    merged = line(1.0, 3.0, low=array("d", [0.5, 2.0]), high=array("d", [1.5, 4.0]))
    watts = replace(LOSS, curves=(Curve("", merged),), unit="W")
    texts = [cursor.rows(watts, place, near, 90, PLAIN) for place, near in ((1.0, 2.0), (1.4, 0.1), (1.5, 0.5))]
    assert [plain(row) for (row,) in texts] == [
        "step 1   * loss 3 W (2 W to 4 W)",
        "step 1   * loss 3 W (2 W to 4 W, at step 1)",
        "step 2   * loss 3 W (2 W to 4 W)",
    ]


def test_the_point_of_a_line_that_a_place_belongs_to() -> None:
    broken = line(1.0, 2.0, 3.0, 4.0, apart=2.0, breaks=frozenset({2}))

    def at(x: float, anywhere: bool = False, of: Line = broken) -> float | None:
        point = cursor.point_at(of, x, anywhere)
        return None if point is None else point.x

    assert [at(x) for x in (0.0, 0.9, 1.0, 1.1, 2.0, 4.0, 4.9, 5.0, 5.1)] == [
        0.0,
        0.0,
        0.0,
        2.0,
        2.0,
        4.0,
        4.0,
        4.0,
        6.0,
    ]
    assert [at(x) for x in (2.1, 3.0, 3.9)] == [None] * 3, "a gap"
    assert [at(x, True) for x in (2.1, 3.0, 3.9, -99.0, 99.0)] == [2.0, 2.0, 4.0, 0.0, 6.0]
    ends = [at(x) for x in (-3.1, -3.0, 9.0, 9.1)]
    assert ends == [None, 0.0, 6.0, None], "up to one and a half times the distance of two points beyond"
    assert [at(x, of=line(5.0)) for x in (0.0, 0.1, -0.1)] == [0.0, None, None]
    assert at(0.0, True, line()) is None


def test_a_place_in_words_has_as_many_digits_as_cells_differ_by() -> None:
    texts = {}
    for unit, places in (
        ("time", (0.0, 9.87654, 100.0)),
        ("epoch", (2.5,)),
        ("step", (1234.5,)),
        ("samples", (1.0, 2e4)),
    ):
        plot = replace(LOSS, x_unit=unit)
        texts[unit] = [[cursor.place_text(plot, place, near).removesuffix(" after training began") for near in
                        (5.0, 0.1, 0.05, 0.001)] for place in places]  # fmt: skip
    assert texts == {
        "time": [["0.0 s", "0.0 s", "0.00 s", "0.000 s"], ["9.9 s", "9.9 s", "9.88 s", "9.877 s"],
                 ["1:40", "1:40", "100.00 s", "100.000 s"]],
        "epoch": [["epoch 2.50", "epoch 2.50", "epoch 2.50", "epoch 2.500"]], "step": [["step 1,234"] * 4],
        "samples": [["1 sample"] * 4, ["20,000 samples"] * 4],
    }  # fmt: skip


def test_a_place_in_all_units_that_the_run_has() -> None:
    early = replace(NOW, lines=LINES | {"samples_per_second": line(100.0, 200.0, 300.0, 400.0, begin=4.0)})
    time, step = (replace(LOSS, x_unit=unit) for unit in ("time", "step"))
    assert chart_foot.places(early, time, 1.2) == ["1.2 s after training began", "step 20", "epoch 1.00"]
    assert chart_foot.places(early, step, 20.0) == ["step 20", "1.0 s after training began", "epoch 1.00"]
    assert chart_foot.places(replace(early, pace=Pace(5.0)), time, 1.2) == ["1.2 s after training began", "step 20"]


# ---- the head ----------------------------------------------------------------------------------------------------


def test_a_message_names_its_option_unless_it_begins_with_it_and_an_old_verdict_is_said_to_be_old() -> None:
    def first(message: str) -> str:
        now = Snapshot(warnings=(Message("x", message, "", "input.cache"),))
        return plain(head.message_rows(now, 60, 4, PLAIN)[0])

    assert first("input.cache does nothing") == "! input.cache does nothing"
    assert first("does nothing with input.cache") == "! input.cache: does nothing with input.cache"
    verdict = {"verdict": "input_bound", "confidence": 0.9, BEFORE_RESUME: True}
    assert head.confidence(verdict) == "before it was resumed"
    assert head.confidence(verdict | {"verdict": "undecided"}) == ""
