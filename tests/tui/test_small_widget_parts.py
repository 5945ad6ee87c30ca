"""Small parts of widgets: clicks on key hints, marks of what was found, and readings in the background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.overlay import overlaid
from gputui.tui.drawing.plot.scales import Scale
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.drawing.rows import plain
from gputui.tui.reading.run.series import NOTHING
from gputui.tui.upstream.thread_imports import in_background
from gputui.tui.widgets.key_hints import KeyHint, hints_text
from gputui.tui.widgets.search_marks import mark_cell, with_marks
from gputui.tui.word_search import place, search
from rich.text import Text
from textual.content import Content


def test_a_click_on_a_hint_is_its_key_also_if_two_keys_have_one_effect() -> None:
    line = hints_text([KeyHint("enter", "accepts"), KeyHint("up", ""), KeyHint("escape", "leaves")])
    clicks = [(line.plain[span.start : span.end], span.style) for span in line.spans]
    assert clicks == [
        ("enter accepts", "@click=app.simulate_key('enter')"), ("up", "@click=app.simulate_key('up')"),
        ("esc leaves", "@click=app.simulate_key('escape')"),
    ]  # fmt: skip
    assert hints_text([]).plain == ""


def test_all_words_that_were_found_are_marked_in_a_line_and_in_a_cell() -> None:
    (hit,) = search("am re", ["x"], lambda _: [place("amp_rest"), place("ab")])
    text = "amp_rest am"
    places = {(0, 2), (4, 6), (9, 11)}
    line, coloured, bare = with_marks(Content(text), hit), Text(text), Text(text)
    mark_cell(coloured, hit, "red")
    mark_cell(bare, hit, "")
    assert {(span.start, span.end) for span in line.spans} == places
    for cell, style in ((coloured, "bold underline red"), (bare, "bold underline")):
        assert {(span.start, span.end, span.style) for span in cell.spans} == {(*at, style) for at in places}


def test_the_cursor_stands_beside_a_curve_and_not_on_it() -> None:
    view, rows = Viewport(), [[(" " * 7, "label"), ("  ", ""), ("##", "curve1"), ("    ", "")]]
    plot = Plot("loss", "", (Curve("", NOTHING),), x_end=7.0)
    drawn = []
    for view.cursor in (0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 8.0):
        (row,) = overlaid(rows, plot, Scale(0.0, 7.0, 1.0), view, 15, False, PLAIN)
        drawn.append(plain(row)[7:])
    assert drawn == ["| ##    ", " |##    ", "  ##    ", "  ##    ", "  ##|   ", "  ##   |", "  ##    "]


async def taken(owner: Any, reading: Callable[[], Any], take: Callable[[Any], None]) -> None:
    """Wait until the thread of the reading has ended, and what it has handed over was done."""
    before = set(threading.enumerate())
    in_background(owner, reading, take)
    for thread in set(threading.enumerate()) - before:
        await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)


async def test_a_reading_in_the_background_is_taken_in_the_thread_that_asked() -> None:
    faults: list[Exception] = []
    owner = SimpleNamespace(is_attached=True, app=SimpleNamespace(_handle_exception=faults.append))
    done: list[tuple[int, bool]] = []
    here = threading.get_ident()

    def read() -> bool:
        return threading.get_ident() != here

    def take(elsewhere: bool) -> None:
        done.append((threading.get_ident(), elsewhere))

    await taken(owner, read, take)
    assert (done, faults) == ([(here, True)], [])
    await taken(owner, lambda: 1 / 0, take)
    assert [type(fault) for fault in faults] == [ZeroDivisionError]
    await taken(owner, read, lambda _: [].pop())
    assert [type(fault) for fault in faults] == [ZeroDivisionError, IndexError]
    owner.is_attached = False
    await taken(owner, read, take)
    await taken(owner, lambda: 1 / 0, take)
    assert (len(done), len(faults)) == (1, 2), "the widget is gone"


def test_a_reading_that_ends_after_the_application_is_dropped() -> None:
    begun, left = threading.Event(), threading.Event()
    faults: list[Any] = []

    def read() -> None:
        begun.set()
        left.wait(60)

    async def leave() -> set[threading.Thread]:
        before = set(threading.enumerate())
        owner: Any = SimpleNamespace(is_attached=True)
        in_background(owner, read, faults.append)
        await asyncio.to_thread(begun.wait, 60)
        return {thread for thread in set(threading.enumerate()) - before if thread.daemon}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", faults.append)
        threads = asyncio.run(leave())
        left.set()
        for thread in threads:
            thread.join(60)
    assert faults == []
