"""The charts of measurements point by point: the memory of a search over its batch sizes, and a ramp of the rate."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.trials.record import Record
from gputui.tui.drawing import rate, tune_memory
from gputui.tui.drawing.plot.curves import Plot

from tests.support.recorded_search import ENDED
from tests.support.typed import typed
from tests.tui.test_drawn_parts import rate_test

GIB = 1024**3
Points = list[tuple[float, float]]


def drawn(plot: Plot) -> dict[str, tuple[Points, float | None, str]]:
    """Each curve: its points, the value in the legend, and what marks it."""
    return {
        curve.label: (
            [(round(x, 4), round(y, 4)) for x, y in zip(curve.line.x, curve.line.y, strict=True)],
            None if curve.value is None else round(curve.value, 4),
            " ".join([name for name in ("lesser", "marked", "faint") if getattr(curve, name)] + [curve.short]).strip(),
        )
        for curve in plot.curves
    }


def memory(*points: tuple[int, float | None, float | None], **fields: Any) -> Plot:
    """The chart of a memory whose prediction is 1 GiB, and 1 GiB for each 100 samples. Points have their GiB."""
    data = copy.deepcopy(ENDED)
    made = [{"batch_size": batch, "peak_bytes": None if peak is None else int(peak * GIB),
             "predicted_bytes": None if predicted is None else int(predicted * GIB)}
            for batch, peak, predicted in points]  # fmt: skip
    line = {"base_bytes": 1.0 * GIB, "bytes_per_sample": GIB / 100}
    data["search"]["memory"] = {"of": "allocator", "points": made} | line | fields
    return tune_memory.plot(typed(Record, data))


def test_the_memory_of_a_search_in_the_order_of_measuring() -> None:
    limit = {"limit_bytes": 9 * GIB, "largest_batch": 800}
    points = ((200, 3.0, None), (900, None, 8.0), (100, 2.0, None), (950, None, None), (0, 1.0, None))
    plot = memory(*points, **limit)
    assert (plot.x_unit, plot.unit, plot.x_end, plot.final, plot.bounds) == ("batch", "GiB", 1026.0, True, "zero")
    assert drawn(plot) == {
        "predicted": ([(0, 1), (1026, 11.26)], 2.0, ""),
        "limit": ([(0, 9), (1026, 9)], None, "lesser"),
        "measured": ([(200, 3), (100, 2)], None, ""),
        "out of memory": ([(900, 8), (950, 10.5)], None, "out"),
    }  # fmt: skip
    assert [sorted(curve.line.breaks) for curve in plot.curves] == [[], [], [0, 1], [0, 1]], "single points"
    unknown = memory(*points, **limit, base_bytes=None)
    assert drawn(unknown)["predicted"] == ([], None, "")
    assert drawn(unknown)["out of memory"][0] == [(900, 8), (950, 9)], "at the limit"
    nothing = memory((64, None, None), base_bytes=None)
    assert drawn(nothing) == {"predicted": ([], None, ""), "measured": ([], None, ""), "out of memory": (
        [(64, 0)], None, "out")}  # fmt: skip
    assert memory().curves == ()


@pytest.mark.parametrize(("largest", "end", "has_limit"), [(400, 432, True), (3200, 3456, True), (3201, 864, False)])
def test_a_limit_far_above_all_batches_is_left_out(largest: int, end: float, has_limit: bool) -> None:
    plot = memory((400, 5.0, None), limit_bytes=50 * GIB, largest_batch=largest)
    assert plot.x_end == pytest.approx(end)
    assert ("limit" in drawn(plot)) is has_limit


def test_memory_is_in_gib_from_one_on() -> None:
    few = {"base_bytes": 0.0, "bytes_per_sample": GIB / 1000}
    assert [memory((8, peak, None), **few).unit for peak in (1 - 2**-30, 1.0)] == ["MiB", "GiB"]
    assert memory((8, 0.25, None), limit_bytes=2 * GIB, largest_batch=8, **few).unit == "GiB"
    assert drawn(memory((8, 0.25, None), **few))["measured"][0] == [(8, 256)]


def test_a_ramp_of_the_rate_point_by_point() -> None:
    test = rate_test()
    short = replace(test, rates=[1e-4, 1e-3, 1e-2, 1e-1], losses=[2.0, None, 9.0, 5.0], smoothed=[2.0, 1.0, 1.5],
                    suggested=2e-3)  # fmt: skip
    plot = rate.plot(short)
    assert drawn(plot) == {
        "loss": ([(-4, 2), (-3, 2.3), (-2, 2.3)], None, "faint"),
        "lowest": ([(-4, 2), (-3, 1), (-2, 1.5)], 1.0, ""),
        "suggested rate": ([(-2.699, 1)], 0.002, "marked"),
    }  # fmt: skip
    assert (plot.window, plot.x_end, plot.final) == ((-4.0, -2.0), -2.0, True)
    one = rate.plot(replace(short, smoothed=[2.0]))
    assert (one.window, one.x_end, drawn(one)["suggested rate"][0]) == (None, -4.0, [(-2.699, 2.0)])
    none = rate.plot(replace(short, smoothed=[]))
    assert (none.curves, none.window, none.x_end) == ((), None, 1.0)
