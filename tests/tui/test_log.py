"""The log of a run: its folded noise, its epochs, the search, the filter and the wrapped lines."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from tests.doors.engine import Epoch
from tests.doors.tui import (
    PLAIN,
    LiveScreen,
    LogLines,
    LogPanel,
    Picture,
    Snapshot,
)
from tests.support import recorded
from tests.support.tiny import Tiny, wait_for

NOISE = "".join(f"I0000 00:00:{recorded.BEGAN + second:.6f}    5303 port.cc:1] {second} says\n" for second in (1, 2, 3))


async def test_a_click_unfolds_the_noise_and_the_settings_keep_how_lines_are_shown(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=80, log=f"{NOISE}end\n" + "own\n" * 40)
    app = Tiny(lambda: LiveScreen(run))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("l", "g")
        await wait_for(pilot, "▸ 3 lines of TensorFlow's start-up; space shows them")
        await pilot.click(LogLines, offset=(4, 0))
        await wait_for(pilot, "2 says")
        await pilot.press("W", "space", "end")
        view = app.screen.query_one(LogLines)
        await wait_for(pilot, lambda: app.settings.log.fold and view.scroll_offset.y > 0)
        await pilot.click(LogLines, offset=(4, 0))
        await pilot.pause()
        assert app.settings.log.fold, "the folded row is above the first one that is shown"
    app.settings.flush()
    assert "wrap: true" in app.settings.path.read_text()


NOISE_LOG_VIEW = ("I0000 00:00:1.5  1 a.cc:1] one", "I0000 00:00:1.6  1 a.cc:1] two")
LINES_LOG_VIEW = ("begun", *NOISE_LOG_VIEW, *(f"sample {number}" for number in range(30)), "wide " * 20 + "end")
FOLDED = "[+] 2 lines of TensorFlow; space shows them"


class Alone(Screen[None]):
    """Only a log."""

    CSS = "LogPanel { height: 12; }"

    def compose(self) -> ComposeResult:
        yield LogPanel()


async def painted(view: LogLines) -> None:
    """Wait until the view has done what it does after it was painted, and was then painted again."""
    for _ in range(3):
        done = asyncio.Event()
        view.refresh()
        view.call_after_refresh(done.set)
        await done.wait()


def picture(lines: tuple[str, ...], *epochs: int, count: int = 0) -> Picture:
    ended = tuple(Epoch(50.0, number, 9, 1.5, {}) for number in epochs)
    return Picture(Snapshot(epochs=ended), lines, (0.0,) * len(lines), count or len(lines))


def shown(view: LogLines) -> list[str]:
    return [row.text for row in view.rows]


async def test_a_search_ends_where_it_began_and_the_next_one_is_as_new() -> None:
    async with Tiny(Alone, PLAIN).run_test(size=(80, 20)) as pilot:
        panel, view = pilot.app.screen.query_one(LogPanel), pilot.app.screen.query_one(LogLines)
        field = panel.query_one(Input)

        async def state() -> tuple[str, int, bool]:
            await pilot.pause()
            await painted(view)
            return panel.right, len(view.rows), view.scroll_offset.y == view.max_scroll_y

        panel.show(picture(LINES_LOG_VIEW, 1, count=5000))
        assert await state() == ("/ filters  m only errors  W wraps  5,001 lines", 34, True)
        assert shown(view)[:3] == ["begun", FOLDED, "sample 0"]
        assert shown(view)[-1] == "epoch 1/9   1.5 s"
        assert (view.count, view.text().splitlines()) == (35, [*LINES_LOG_VIEW, "epoch 1/9   1.5 s"]), (
            "none is folded in a copy"
        )
        view.focus()
        view.scroll_home(animate=False, immediate=True)
        panel.show(picture((*LINES_LOG_VIEW, "later"), 1, count=5001))
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, False), "it was scrolled"
        assert view.scroll_offset.y == 0
        panel.open_search()
        await pilot.press(*"ple 2")
        assert await state() == ("'ple 2': 11 of 11  f F  5,002 lines", 11, True)
        assert shown(view) == [f"sample {number}" for number in (2, *range(20, 30))]
        panel.step(1)
        assert panel.right == "'ple 2': 1 of 11  f F  5,002 lines"
        panel.step(-1)
        panel.step(-1)
        assert panel.right == "'ple 2': 10 of 11  f F  5,002 lines"
        await pilot.press("enter")
        assert (field.display, view.has_focus, view.sought) == (False, True, "ple 2")
        await pilot.press("enter")  # in context
        assert await state() == ("'ple 2': 11 of 11  f F  5,002 lines", 36, True)
        panel.step(1)
        assert await state() == ("'ple 2': 1 of 11  f F  5,002 lines", 36, False)
        assert shown(view)[1] == NOISE_LOG_VIEW[0], "nothing is folded during a search"
        panel.open_search()
        field.value = "tWo"
        assert await state() == ("'tWo': 1 of 1  f F  5,002 lines", 1, True)
        field.value = "nowhere"
        assert await state() == ("'nowhere': not found  f F  5,002 lines", 0, True)
        assert panel.close_search()
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True), (
            "the newest line is followed again"
        )
        assert (panel.close_search(), field.display, view.has_focus) == (False, False, True)
        field.value = "begun"
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True), "the field is closed"
        panel.open_search()
        field.value = ""
        await pilot.press("enter")
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True)
        panel.open_search()
        await pilot.press(*"begun", "enter")
        assert panel.right == "'begun': 1 of 1  f F  5,002 lines"
        await pilot.press("enter")  # in context, where the newest line is not followed
        assert await state() == ("'begun': 1 of 1  f F  5,002 lines", 36, False)
        assert panel.close_search(), "also after Enter"
        assert await state() == ("/ filters  m only errors  W wraps  5,002 lines", 35, True)
