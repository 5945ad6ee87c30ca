"""The visible part of an axis and its cursor, one change after another: moved, zoomed, selected, cleared."""

from __future__ import annotations

from array import array
from dataclasses import replace

from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.viewport import Viewport, zoomed
from gputui.tui.reading.run.series import Line

State = tuple[tuple[float, float] | None, float | None, bool]


def plot(end: float, unit: str = "step", final: bool = True) -> Plot:
    places = array("d", range(int(end) + 1))
    return Plot("loss", "", (Curve("", Line(places, places)),), x_unit=unit, x_end=end, final=final)


def seen(view: Viewport) -> State:
    window = view.window and (round(view.window[0], 6), round(view.window[1], 6))
    return window, view.cursor, view.hovers


def test_a_part_at_the_end_moves_with_the_end_and_a_selected_one_stays() -> None:
    view = Viewport()
    view.suit([plot(100.0)])
    assert (view.axis, view.whole, view.last, view.closer) == ("step", (0.0, 100.0), 100.0, 1.0)
    view.zoom(0.5)
    assert (seen(view), view.closer) == (((50.0, 100.0), None, False), 2.0)
    view.suit([plot(120.0)])
    assert seen(view)[0] == (70.0, 120.0)
    view.zoom(0.8, 70.0)
    assert seen(view)[0] == (70.0, 110.0)
    view.suit([plot(140.0)])
    assert seen(view)[0] == (70.0, 110.0), "it did not reach to the end"
    view.zoom(0.5)
    view.select(140.0, 100.0)
    assert seen(view)[0] == (100.0, 140.0)
    view.suit([plot(160.0)])
    assert seen(view)[0] == (100.0, 140.0), "a selected part stays"
    view.select(-50.0, 500.0)
    assert seen(view)[0] == (0.0, 160.0)
    view.select(100.0, 160.0)
    view.place(120.0)
    view.suit([plot(100.0)])
    assert seen(view) == (None, None, False), "a run that was read again ends before the part"
    view.select(20.0, 60.0)
    view.hover(30.0)
    view.suit([plot(100.0, "epoch")])
    assert (seen(view), view.axis) == ((None, None, False), "epoch")
    view.suit([plot(100.0, "step", final=False)])
    assert view.whole == (0.0, 100.0)
    view.suit([replace(plot(100.0), x_end=80.0)])
    assert (view.whole, view.last) == ((0.0, 80.0), 80.0), "points beyond the axis do not count"
    view.suit([replace(plot(101.0, "step", final=False), window=(3.0, 4.0))])
    assert view.whole == (0.0, 120.0), "the window of a chart is no end"


def test_the_cursor_follows_the_mouse_until_it_is_placed() -> None:
    view = Viewport()
    view.suit([plot(100.0)])
    assert not view.hover(None)
    assert (view.hover(30.0), view.hover(30.0), seen(view)) == (True, False, (None, 30.0, True))
    assert (view.hover(None), seen(view)) == (True, (None, None, False))
    view.hover(40.0)
    view.place(45.0)
    assert (view.hover(None), seen(view)) == (False, (None, 45.0, False)), "a placed one stays"
    view.hover(50.0)
    assert (view.hover(None), seen(view)) == (True, (None, None, False))
    view.hover(60.0)
    view.dragged = (10.0, 20.0)
    view.all()
    assert seen(view) == (None, None, False)
    assert vars(view)["dragged"] is None
    assert not view.hover(None), "there is no cursor to remove"
    view.move(-1, 51)
    assert seen(view) == (None, 100.0, False), "the newest point"
    view.move(-2, 51)
    assert seen(view) == (None, 96.0, False)
    view.move(9, 51)
    assert seen(view)[1] == 100.0
    view.all()
    view.select(20.0, 60.0)
    view.move(1, 41)
    assert seen(view) == ((20.0, 60.0), 40.0, False), "the newest point is not visible"
    view.place(70.0)
    assert seen(view) == ((30.0, 70.0), 70.0, False)
    view.zoom(0.5)
    assert seen(view)[0] == (50.0, 70.0), "around the cursor"
    view.zoom(2.0, 50.0)
    assert seen(view)[0] == (50.0, 90.0), "around the given place"


def test_a_zoom_never_makes_a_part_longer_that_is_shorter_than_its_points_need() -> None:
    assert zoomed((10.0, 12.0), (0.0, 100.0), 11.0, 0.5, 40.0) == (10.0, 12.0)
    assert zoomed((10.0, 60.0), (0.0, 100.0), 10.0, 0.5, 40.0) == (10.0, 50.0)
    assert zoomed(None, (0.0, 100.0), 0.0, 0.9991) is None
    assert zoomed(None, (0.0, 100.0), 500.0, 0.5) == (50.0, 100.0)
    assert zoomed((0.0, 1.0), (0.0, 100.0), 0.0, 1e-9) == (0.0, 0.01)
