"""Curves as they are drawn and told: extremes survive, nothing is invented, and the cursor tells what was read."""

from __future__ import annotations

import itertools
import math
import time
from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from gputui.engine.runs.parsing import recalled
from gputui.engine.runs.titles import Title
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.base.settings import Charts
from gputui.tui.drawing import charts
from gputui.tui.drawing.live import head, phases
from gputui.tui.drawing.plot import cursor
from gputui.tui.drawing.plot.axes import power_text, x_scale
from gputui.tui.drawing.plot.canvas import curve_rows, draw
from gputui.tui.drawing.plot.colours import in_one_chart, style_of
from gputui.tui.drawing.plot.curves import Curve, Plot, as_drawn
from gputui.tui.drawing.plot.viewport import followed, holding, least_length, zoomed
from gputui.tui.drawing.rows import plain
from gputui.tui.reading import earlier_starts
from gputui.tui.reading.run.reader import RunReader
from gputui.tui.reading.run.series import NOTHING, Line, Pace, Series, along
from gputui.tui.reading.run.snapshot import PhaseTimes, Snapshot
from gputui.tui.reading.run.store import Store
from gputui.tui.wording import comparison

from tests.support import recorded
from tests.support.cases import all_hold

NARROW = ["6,500", "6,250", "6,000", "5,750", "5,500", "5,250", "5,000"]


def line(*values: float, breaks: frozenset[int] = frozenset()) -> Line:
    return Line(array("d", range(len(values))), array("d", values), breaks, values[-1] if values else None)


def drawn(plot: Plot, width: int = 60, height: int = 10) -> list[str]:
    return [plain(row) for row in draw(plot, width, height, RICH)[0]]


def of_run(home: Path, **changes: object) -> Snapshot:
    reader = RunReader(recorded.write(home, **changes))  # type: ignore[arg-type]
    while not reader.ended:
        reader.poll()
    return reader.picture.snapshot


def fed(*events: tuple[float, dict[str, object]]) -> Snapshot:
    store = Store()
    store.feed(recalled({"t": t, **event}) for t, event in events)
    return store.snapshot()


def progress(step: int, **more: object) -> dict[str, object]:
    return {"type": "progress", "step": step, "steps": 100, "epoch": 1, "epochs": 1, "samples_per_second": 10.0} | more


# ---- what is kept and drawn -------------------------------------------------------------------------


def test_a_single_spike_among_many_readings_is_kept_and_drawn() -> None:
    series = Series(capacity=64)
    for x in range(10_000):
        series.add(x, 50.0 if x == 4321 else -3.0 if x == 7000 else 1.0, x)
    kept = series.line()
    assert len(kept) <= 64
    assert (max(kept.high), min(kept.low)) == (50.0, -3.0)
    plot = Plot("loss", "", (Curve("", kept),), x_end=10_000, final=True)
    rows, scale = draw(plot, 60, 10, RICH)
    assert scale.low <= -3
    assert scale.high >= 50
    assert [row for row in rows[1:4] if any(style == "curve1" for _, style in row)]
    whole = Line(array("d", range(10_000)), array("d", [50.0 if x == 4321 else 1.0 for x in range(10_000)]))
    top = draw(Plot("loss", "", (Curve("", whole),), x_end=9_999, final=True), 60, 10, RICH)[0][1:4]
    assert [row for row in top if any(style == "curve1" for _, style in row)]


@pytest.mark.flaky(reruns=2)
def test_six_charts_of_many_points_are_drawn_in_some_milliseconds() -> None:
    values = array("d", [math.sin(x / 7) * (x % 13) for x in range(10_000)])
    plots = [Plot("", "", (Curve("", Line(array("d", range(10_000)), values)),), x_end=1e4, filled=True)] * 6

    def seconds() -> float:
        began = time.process_time()
        for plot in plots:
            draw(replace(plot, curves=(Curve("", replace(plot.curves[0].line, made={})),)), 38, 8, RICH)
        return time.process_time() - began

    assert min(seconds() for _ in range(5)) < 0.06  # 7 ms on an idle machine


def test_what_is_no_number_interrupts_the_line_and_breaks_nothing() -> None:
    with all_hold() as cases:
        for name, values in {
            "nan": (1.0, 2.0, math.nan, 2.0, 1.0), "infinite": (1.0, math.inf, -math.inf, 2.0), "all lost": (math.nan,),
            "one": (3.0,), "none": (), "equal": (2.0, 2.0, 2.0), "tiny": (1e-300, 2e-300), "large": (1e99, -1e99),
        }.items():  # fmt: skip
            for logarithmic in (False, True):
                for glyphs in (RICH, PLAIN):
                    with cases.case((name, logarithmic)):
                        plot = Plot("loss", "", (Curve("", line(*values)),), x_end=4, logarithmic=logarithmic)
                        rows, scale = draw(plot, 60, 10, glyphs)
                        assert len(rows) <= 10
                        assert math.isfinite(scale.low + scale.high)
                        assert scale.high > scale.low
    gap = drawn(Plot("", "", (Curve("", line(1, 1, math.nan, 1, 1)),), x_end=4, final=True), 47)
    row = next(row for row in gap if "⠉" in row or "⠒" in row or "⠤" in row or "⣀" in row)
    assert "┈┈┈┈┈┈" in row[7:]  # only the grid


@pytest.mark.parametrize(("height", "apart"), [(50, 1), (20, 0)])  # of one row a column draws both ends
@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 0.0), (0.5, 0.5)])
def test_the_columns_of_a_line_touch(values: tuple[float, float], height: int, apart: int) -> None:
    width = 20
    plot = Plot("", "", (Curve("", line(*values)),), x_end=1, final=True)
    rows = [plain(row) for row in curve_rows(plot, width, height, PLAIN)]
    columns = [[row for row in range(height) if rows[row][column] != " "] for column in range(width)]
    if values[0] == values[1]:
        assert columns == [columns[0]] * width
        assert len(columns[0]) == 1
        return
    falling = columns if values[0] > values[1] else columns[::-1]
    assert all(min(after) - max(before) == apart for before, after in pairwise(falling)), rows
    assert all(column == list(range(column[0], column[-1] + 1)) for column in columns)


def test_one_reading_alone_is_seen_and_a_step_back_is_not_joined() -> None:
    assert any("•" in row for row in drawn(Plot("loss", "", (Curve("", line(3.0)),), x_end=4)))
    series = Series()
    for x, step in ((1, 1), (2, 2), (3, 3), (2.5, 2), (4, 3)):  # resumed from an earlier checkpoint; the clock set back
        series.add(x, 1.0, step)
    assert series.line().breaks == {3}


def test_a_logarithmic_axis_has_exact_labels_and_leaves_out_what_has_no_place() -> None:
    plot = as_drawn(Plot("loss", "", (Curve("", line(100, 10, 1, 0, 0.1)),), x_end=4), Charts(logarithmic=True))
    rows = drawn(plot, 60, 15)
    assert rows[0].startswith("loss log ")
    labels = {row.split("┤")[0].strip() for row in rows if "┤" in row}
    assert {"100", "10", "1", "0.1"} <= labels
    for values, expected in (
        ((2.5, 1e-5), ["1", "0.1", "0.01", "0.001", "0.0001", "1e-5"]), ((6258, 5194), NARROW),
        ((7.5, 1.2), ["10", "5", "2", "1"]),
    ):  # fmt: skip
        fitted = replace(plot, curves=(Curve("", line(*values)),))
        found, scale = draw(fitted, 60, 22, RICH)
        assert [row.split("┤")[0].strip() for row in map(plain, found) if "┤" in row] == expected
        assert 10**scale.high <= 2.01 * max(values)
        assert 10**scale.low >= 0.5 * min(values)
    assert not as_drawn(Plot("", "", (Curve("", line(1)),), "share"), Charts(logarithmic=True)).logarithmic
    assert [power_text(value) for value in (1e-5, 0.00316, 31.6, 1e7)] == ["1e-5", "0.0032", "31.6", "10M"]


def test_smoothing_is_an_exponential_mean_that_says_so_before_the_faint_values() -> None:
    plot = as_drawn(Plot("loss", "", (Curve("train", line(4, 0, 0, 8)),), x_end=3), Charts(smoothing=0.5))
    faint, smooth = plot.curves
    assert faint.faint
    assert list(faint.line.y) == [4, 0, 0, 8]
    assert list(smooth.line.y) == pytest.approx([4, 4 / 3, 4 / 7, (0.5 * 8 + 0.25**2 * 4) / (1 - 0.5**4)])
    assert "loss EMA 0.5" in drawn(plot)[0]
    speed = Plot("throughput", "samples/s", (Curve("", line(5000, 6000, 5670)),))
    small = drawn(as_drawn(speed, Charts(logarithmic=True, smoothing=0.97)), 38)[0]
    assert small.split() == ["throughput", "log", "EMA", "───", "5,670", "samples/s"]
    styles = {style for row in draw(plot, 60, 12, RICH)[0] for _, style in row}
    assert {"faint1", "curve1"} <= styles


def test_the_area_is_filled_only_above_a_zero_and_grid_lines_stand_at_the_labels() -> None:
    full = Plot("", "", (Curve("", line(5, 6, 7)),), "zero", x_end=2, filled=True)
    assert any("⣿⣿⣿" in row for row in drawn(full))
    above = replace(full, bounds="free", final=True, curves=(Curve("", line(500, 503, 506)),))
    assert not any("⣿⣿⣿" in row for row in drawn(above))
    tall = drawn(replace(full, filled=False), 60, 20)
    for row in tall[1:-1]:
        assert ("┈" in row) == ("┤" in row), row
    assert all("┊" in row for row in tall[1:-1])
    assert tall[-1].rstrip().endswith("time")


# ---- axes and zoom ----------------------------------------------------------------------------------


def test_time_begins_with_the_first_step_and_each_axis_is_told(home: Path) -> None:
    now = of_run(home, gpus=2, seconds=60)
    throughput, loss = charts.plots(now)[:2]
    assert throughput.curves[0].line.x[0] == pytest.approx(0.4, abs=0.01)
    assert loss.x_unit == "step"
    assert loss.curves[0].line.x[0] == 10
    busy = next(plot for plot in charts.plots(now) if plot.title == "GPU busy")
    assert busy.curves[0].line.x[0] >= 0
    assert min(busy.curves[0].line.y) > 0.5  # nothing of the start, in which the GPUs did nothing
    at_end = {axis: charts.plots(now, Charts(x_axis=axis))[1].x_end for axis in now.pace.axes()}
    assert at_end == {"time": pytest.approx(47.4), "step": 480, "epoch": pytest.approx(1.6), "samples": 480 * 1024}
    texts = [cursor.place_text(replace(loss, x_unit=axis), end) for axis, end in at_end.items()]
    assert texts == ["47.4 s after training began", "step 480", "epoch 1.60", "491,520 samples"]


def test_zoom_keeps_the_place_and_goes_on_with_a_run() -> None:
    window = zoomed(None, (0, 100), 75, 0.5)
    assert window == (37.5, 87.5)
    assert zoomed(window, (0, 100), 60, 4) is None
    assert zoomed((0, 10), (0, 100), 0, 0.5) == (0, 5)
    assert zoomed((20, 40), (0, 100), 90, 0.5) == (80, 90), "a cursor beside the visible part comes into it"
    assert zoomed((20, 40), (0, 100), 10, 0.5) == (10, 20)
    assert zoomed((80, 100), (0, 100), 90, 2) == (60, 100)
    least = least_length([line(*range(101)), NOTHING])
    assert least == 4  # points are 1 apart
    assert zoomed((0, 6), (0, 100), 0, 0.5, least) == (0, 4)
    assert zoomed((0, 4), (0, 100), 0, 0.5, least) == (0, 4)
    assert zoomed((0, 2), (0, 100), 0, 2, least) == (0, 4)
    assert holding((10, 20), (0, 100), 25) == (15, 25)
    assert holding((10, 20), (0, 100), 4) == (4, 14)
    assert followed((80, 100), 100, 110) == (90, 110)
    assert followed((20, 40), 100, 110) == (20, 40)
    part = Plot("", "", (Curve("", line(*range(101))),), x_unit="step", x_end=100, final=True, window=(20.0, 40.0))
    assert x_scale(part, 60).ticks[0] == 20
    assert "30" in drawn(part)[-1]


# ---- what the cursor tells --------------------------------------------------------------------------


def test_the_cursor_tells_every_line_with_its_unit_and_nothing_in_a_gap() -> None:
    merged = replace(line(10, 20, 30), low=array("d", [10, 15, 30]), high=array("d", [10, 25, 30]), each=2)
    broken = line(1, 1, 1, 1, breaks=frozenset({2}))
    curves = (Curve("p50", merged), Curve("p95", broken), Curve("val", line(7, 8), marked=True))
    plot = Plot("step time", "ms", curves, x_end=3)

    def told(x: float) -> str:
        return "   ".join(plain(row) for row in cursor.rows(plot, x, 0.1, 200, PLAIN))

    assert told(1) == "1.0 s after training began   * p50 20 ms (15 ms to 25 ms)   o p95 1 ms   + val 8 ms"
    assert [told(x).split("   ")[2] for x in (1.5, 1.99, 2)] == ["o p95 -", "o p95 -", "o p95 1 ms"]
    assert told(3).split("   ")[1:] == ["* p50 30 ms (at 2.0 s)", "o p95 1 ms", "+ val 8 ms (at 1.0 s)"]
    close = "   ".join(plain(row) for row in cursor.rows(plot, 1.2345, 0.002, 200, PLAIN))
    assert close.startswith("1.234 s after training began   * p50 20 ms (15 ms to 25 ms, at 1.000 s)")
    share = Plot("input wait", "of the step", (Curve("", line(0.123, 0.2)),), "share")
    assert "input wait 12.3 %" in plain(cursor.rows(share, 0, 1, 80, RICH)[0])
    assert cursor.has_values(plot)
    assert not cursor.has_values(Plot("loss", "", (Curve("", line()),)))
    assert cursor.table(plot).splitlines()[:2] == ["seconds\tp50 (ms)\tp95 (ms)\tval (ms)", "0\t10\t1\t7"]
    assert cursor.table(share).splitlines() == ["seconds\tinput wait (%)", "0\t12.3", "1\t20"]


# ---- what is read of a run --------------------------------------------------------------------------


def test_the_loss_is_that_of_the_steps_and_keras_mean_is_called_so() -> None:
    events: list[tuple[float, dict[str, object]]] = [(0.0, {"type": "phase", "phase": "training"})]
    events += [(float(n), progress(n, loss=5.0, window_loss=5.0 - n)) for n in range(1, 4)]
    events += [(3.5, progress(3, loss=4.0, window_loss=None)), (3.6, {"type": "epoch", "epoch": 1, "step": 3,
                "metrics": {"loss": 4.0, "val_loss": 4.5}})]  # fmt: skip
    now = fed(*events)
    plot = charts.plots(now)[1]
    assert [curve.label for curve in plot.curves] == ["train", "epoch mean", "val"]
    assert list(plot.curves[0].line.y) == [4.0, 3.0, 2.0]  # and nothing of the event without steps
    assert list(plot.curves[1].line.y) == [4.0]
    lost = charts.plots(fed(*events, (5.0, progress(4, loss=None, window_loss=None))))[1]
    assert "not finite since step 4" in drawn(lost)[0]
    older = charts.plots(fed((1.0, progress(1, loss=5.0)), (2.0, progress(2, loss=4.0))))[1]
    assert [(curve.label, list(curve.line.y)) for curve in older.curves] == [("epoch mean", [5.0, 4.0])]


def test_the_best_epochs_are_marked_in_the_charts_of_figures() -> None:
    best = {"type": "best", "option": "train.early_stop", "figure": "val_loss", "epoch": 2, "step": 4, "value": 1.0}
    now = fed(
        (0.0, {"type": "started", "steps_per_epoch": 2}), (1.0, progress(1, loss=5.0)),
        (2.0, best | {"epoch": 1, "step": 2}), (4.0, best),
        (6.0, progress(6, loss=4.0)), (9.0, best), (9.5, progress(8, loss=3.0)),
    )  # fmt: skip
    assert now.best["train.early_stop"].moment == (4.0, 4.0)  # the later event is of a resume
    speed, loss = charts.plots(now)[:2]
    assert (speed.best, loss.best) == ((3.0,), (4.0,))  # training began at 1.0
    for glyphs in (RICH, PLAIN):
        rows = draw(loss, 60, 8, glyphs)[0]
        assert any(glyphs.best in text and style == "good" for row in rows for text, style in row)
    assert "best epoch 2" in plain(draw(loss, 60, 8, RICH)[0][0])


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


def test_times_of_phases_after_the_first_step_add_up() -> None:
    times = PhaseTimes()
    for t, phase, detail in (
        (0.0, "starting", ""), (1.0, "compiling", ""), (3.0, "training", ""), (10.0, "evaluating", ""),
        (11.0, "compiling", "evaluation"), (13.0, "evaluating", ""), (14.0, "training", ""),
        (20.0, "saving", "checkpoint"), (21.0, "training", ""), (30.0, "saving", "model.keras"), (34.0, "ended", ""),
    ):  # fmt: skip
        times.begin(t, phase, detail)
        assert times.compiles_first_step == (t == 1.0)
    assert [(span.phase, span.seconds) for span in times.of_start(99.0)] == [("starting", 1.0), ("compiling", 2.0)]
    assert {name: (span.detail, span.seconds, span.count) for name, span in times.of_rest().items()} == {
        "training": ("", 7.0 + 6.0 + 9.0, 3), "evaluating": ("", 2.0, 2), "saving": ("", 5.0, 2),
        "compilingevaluation": ("evaluation", 2.0, 1)}  # fmt: skip
    times.begin(100.0, "starting", "")
    assert [(span.phase, span.seconds) for span in times.of_start(103.0)] == [("starting", 3.0)]
    times.begin(104.0, "starting", "")  # the engine and the trainer both tell it
    assert [span.seconds for span in times.of_start(106.0)] == [6.0]
    assert times.of_rest()["saving"].seconds == 5.0


def test_a_line_on_each_axis_keeps_its_gaps_and_what_was_lost() -> None:
    steps = array("d", [0.0, 10.0, 20.0, 30.0])
    read = replace(line(4.0, 3.0, 2.0, 1.0, breaks=frozenset({1, 3})), steps=steps, lost=(5.0, 40.0))
    pace = Pace(begin=1.0, steps_per_epoch=20.0, samples_per_step=8.0)
    for axis, x, lost in (
        ("step", [0, 10, 20, 30], 40),
        ("epoch", [0, 0.5, 1, 1.5], 2),
        ("samples", [0, 80, 160, 240], 320),
    ):
        found = along(read, axis, pace)
        assert (list(found.x), list(found.y), found.lost) == (x, [4, 3, 2, 1], (lost, 40.0))
        assert found.breaks == {1, 3}
    found = along(read, "time", pace)
    assert (list(found.x), list(found.y), list(found.steps)) == ([0, 1, 2], [3, 2, 1], [10, 20, 30])
    assert found.lost == (4.0, 40.0)
    assert found.breaks == {2}
    assert Pace(steps_per_epoch=20.0).axes() == ("time", "step", "epoch")
    assert Pace(samples_per_step=8.0).axes() == ("time", "step", "samples")


def test_many_gpus_are_drawn_as_their_mean_and_extremes(home: Path) -> None:
    few, many = of_run(home, gpus=2, seconds=30, name="few"), of_run(home, gpus=8, seconds=30, name="many")
    titles = ["GPU busy", "GPU memory", "GPU power", "GPU temperature"]
    assert (
        [plot.title for plot in charts.of_gpus_used(few)]
        == [plot.title for plot in charts.of_gpus_used(many)]
        == titles
    )
    assert [curve.label for curve in charts.of_gpus_used(few)[0].curves] == ["GPU 0", "GPU 1"]
    memory = charts.of_gpus_used(many)[1]
    assert [curve.label for curve in memory.curves] == ["mean", "lowest", "highest"]
    assert memory.unit == "GiB"
    assert memory.curves[0].line.last == pytest.approx(61.4)
    of_machine = [plot.title for plot in charts.of_machine(many, 3, Charts())]  # the one under the cursor first
    assert of_machine[0] == "GPU 3 busy"
    assert "GPU busy" in of_machine


def test_compared_runs_have_a_name_each_and_only_the_axes_that_all_know(home: Path) -> None:
    one, two = of_run(home, gpus=0, seconds=40, name="one"), of_run(home, gpus=2, seconds=60, name="two")
    runs = [charts.Named("batch_size=64", "64", 5, one), charts.Named("xla", "xla", 0, two)]
    plots = charts.compared_plots(runs, Charts())
    titles = [plot.title for plot in plots]
    assert titles[:3] == ["loss", "throughput", "val loss"]
    assert titles[-1] == "GPU busy"  # one of them has no GPU
    assert "batch_size=64 last" in drawn(plots[0], 80)[0]
    told = replace(runs[0], figures={"metrics.loss": 7.98e-05})  # of the result, as the table beside it shows it
    assert "• batch_size=64 7.98e-05 " in drawn(charts.compared_plots([told, runs[1]], Charts())[0], 80)[0]
    assert "xla" in drawn(plots[-1], 80)[0]
    legend = [style for _, style in draw(plots[0], 80, 10, RICH)[0][0] if style.startswith("curve")]
    assert legend == ["curve6", "curve1"], "the colours of the runs, and not of their places"
    assert charts.hardly_seen(plots[0]) == ""
    long = replace(plots[0].curves[1], line=Line(array("d", (1, 9991)), array("d", (2, 1))))
    unequal = replace(plots[0], x_end=9991, curves=(plots[0].curves[0], long))
    said = "batch_size=64 is hardly seen: it ends at step 280, the axis at step 9,991"
    assert charts.hardly_seen(unequal) == said
    unknown = replace(one, pace=replace(one.pace, steps_per_epoch=None))
    assert charts.axes([runs[1], replace(runs[0], now=unknown)]) == ["time", "step", "samples"]


def test_compared_runs_have_names_of_whole_words_that_differ() -> None:
    same = [Title("quickstart")] * 2
    for ids, times in (
        (("20261121-140507-a", "20261121-140607-a"), ["14:05", "14:06"]),
        (("20261121-140507-a", "20261121-140512-a"), ["14:05:07", "14:05:12"]),
        (("20261121-140507-a", "20261122-140507-a"), ["Nov 21 14:05", "Nov 22 14:05"]),
        (("20261121-140507-a", "20261121-140507-a-2"), ["14:05:07", "14:05:07-2"]),
        (("20261121-140507-a-224", "20261121-140507-a-224-2"), ["14:05:07", "14:05:07-2"]),
        (("20261121-140507-a-2", "20261121-140507-a-3"), ["14:05:07-2", "14:05:07-3"]),
        (("one", "20261121-140507-a"), ["one", "14:05"]),
    ):
        assert comparison.moments_of(ids) == times
        assert comparison.distinct_names(same, times) == [f"quickstart {time}" for time in times]
    titles = [Title("fast", ("xla", "batch_size=256", "seed=1")), Title("fast", ("batch_size=256", "seed=3"))]
    names = comparison.distinct_names(titles, ("14:05", "14:06"))
    assert comparison.in_brief(names, titles, ("14:05", "14:06"), 17) == ["xla ..", "batch_size=256 .."]
    assert comparison.in_brief(names, titles, ("14:05", "14:06"), 9) == ["xla ..", "bat..=256"]
    assert comparison.in_brief(names, titles, ("14:05", "14:06"), 14) == ["xla ..", "batch_si..=256"]
    short = ("r41", "r42")
    names = comparison.distinct_names(titles, ("14:05", "14:06"), short)
    assert names == ["r41 xla batch_size=256 seed=1", "r42 batch_size=256 seed=3"]
    assert comparison.in_brief(names, titles, ("", ""), 16, short) == ["r41 xla ..", "r42 batch_..=256"]
    assert comparison.in_brief(names, titles, ("", ""), 8, short) == ["r41 xl..", "r42"]
    names = comparison.distinct_names(same, ("Nov 21 14:05", "Nov 22 14:05"))
    assert comparison.in_brief(names, same, ("Nov 21 14:05", "Nov 22 14:05"), 16) == ["Nov 21 14:05", "Nov 22 14:05"]
    mixed, moments = [Title("quickstart"), Title("input-heavy"), Title("quickstart")], ("15:33:51", "15:34", "15:33:52")
    brief = comparison.in_brief(comparison.distinct_names(mixed, moments), mixed, moments, 16)
    assert brief == ["quick.. 15:33:51", "input-heavy", "quick.. 15:33:52"], "a time never stands alone beside a name"
    three = ("r1", "r2", "r3")
    brief = comparison.in_brief(comparison.distinct_names(mixed, moments, three), mixed, moments, 16, three)
    assert brief == ["r1 quickstart", "r2 input-heavy", "r3 quickstart"]
    shared = ("epochs=60", "seed=1")
    titles = comparison.distinct([Title("fast", shared), Title("fast", (*shared, "batch_size=128"))])
    assert comparison.distinct_names(titles, ("14:05", "14:06")) == ["fast", "batch_size=128"]
    assert comparison.distinct([Title("fast", shared)] * 2) == [Title("fast", shared)] * 2


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


def test_a_run_keeps_its_colour_unless_an_earlier_run_of_the_chart_has_it() -> None:
    assert in_one_chart([1, 4, 9, 2, None, 10]) == [0, 3, 2, 1, 4, 5]
    assert style_of(12) == style_of(4) == "curve4"
    assert sorted(in_one_chart([3] * 8)) == list(range(8))
    assert in_one_chart([8] * 9)[8] == 7, "a ninth run has the colour of another"


def test_compared_runs_that_lie_on_one_another_have_a_mark_each_without_colours() -> None:
    """In the curves and in the legend, for lines and for the few points of validation."""
    for glyphs, few in itertools.product((RICH, PLAIN), (False, True)):
        values = range(5) if few else range(200)
        curves = tuple(
            Curve(f"r{at}", line(*(value + at * few for value in values)), marked=few, colour=3 - at) for at in range(4)
        )
        rows, _ = draw(Plot("loss", "", curves, x_end=float(values[-1])), 110, 20, glyphs)
        title, *body = map(plain, rows)
        for at, mark in enumerate(glyphs.points[:4]):
            assert f" {mark} r{at} " in title
            assert sum(row[10:].count(mark) for row in body[:-1]) > 2, (mark, few)
