"""The log with its field for a search: what is shown, counted and followed, also the second time."""

from __future__ import annotations

import asyncio

from gputui.engine.process.known_failures import RESUMED
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.reading.run.reader import Picture
from gputui.tui.reading.run.snapshot import Epoch, Snapshot
from gputui.tui.widgets.log_view import LogLines, LogPanel, LogTitle
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from tests.support.tiny import Tiny, tiny

NOISE = ("I0000 00:00:1.5  1 a.cc:1] one", "I0000 00:00:1.6  1 a.cc:1] two")
LINES = ("begun", *NOISE, *(f"sample {number}" for number in range(30)), "wide " * 20 + "end")
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


def resumed(*resumes: float) -> Picture:
    """A log of two lines, between which the run was resumed, with an epoch that has ended at 50 s."""
    epoch = Epoch(50.0, 1, 9, 1.5, {})
    return Picture(Snapshot(epochs=(epoch,), resumes=resumes), (RESUMED, "end"), (0.0, 0.0), 2)


def picture(lines: tuple[str, ...], *epochs: int, count: int = 0) -> Picture:
    ended = tuple(Epoch(50.0, number, 9, 1.5, {}) for number in epochs)
    return Picture(Snapshot(epochs=ended), lines, (0.0,) * len(lines), count or len(lines))


def shown(view: LogLines) -> list[str]:
    return [row.text for row in view.rows]


async def test_a_search_ends_where_it_began_and_the_next_one_is_as_new() -> None:
    async with Tiny(Alone, PLAIN).run_test(size=(80, 20)) as pilot:
        panel, view = pilot.app.screen.query_one(LogPanel), pilot.app.screen.query_one(LogLines)
        title, field = panel.query_one(LogTitle), panel.query_one(Input)

        async def state() -> tuple[str, int, bool]:
            await pilot.pause()
            await painted(view)
            return title.right, len(view.rows), view.scroll_offset.y == view.max_scroll_y

        panel.show(picture(LINES, 1, count=5000))
        assert await state() == ("/ filters  W wraps  5,001 lines", 34, True)
        assert shown(view)[:3] == ["begun", FOLDED, "sample 0"]
        assert shown(view)[-1] == "epoch 1/9   1.5 s"
        assert (view.count, view.text().splitlines()) == (35, [*LINES, "epoch 1/9   1.5 s"]), "none is folded in a copy"
        view.focus()
        view.scroll_home(animate=False, immediate=True)
        panel.show(picture((*LINES, "later"), 1, count=5001))
        assert await state() == ("/ filters  W wraps  5,002 lines", 35, False), "the user has scrolled up"
        assert view.scroll_offset.y == 0
        panel.open_search()
        await pilot.press(*"ple 2")
        assert await state() == ("'ple 2': 11 of 11  f F  5,002 lines", 11, True)
        assert shown(view) == [f"sample {number}" for number in (2, *range(20, 30))]
        panel.step(1)
        assert title.right == "'ple 2': 1 of 11  f F  5,002 lines"
        panel.step(-1)
        panel.step(-1)
        assert title.right == "'ple 2': 10 of 11  f F  5,002 lines"
        await pilot.press("enter")
        assert (field.display, view.has_focus, view.sought) == (False, True, "ple 2")
        await pilot.press("enter")  # in context
        assert await state() == ("'ple 2': 11 of 11  f F  5,002 lines", 36, True)
        panel.step(1)
        assert await state() == ("'ple 2': 1 of 11  f F  5,002 lines", 36, False)
        assert shown(view)[1] == NOISE[0], "nothing is folded during a search"
        panel.open_search()
        field.value = "tWo"
        assert await state() == ("'tWo': 1 of 1  f F  5,002 lines", 1, True)
        field.value = "nowhere"
        assert await state() == ("'nowhere': not found  f F  5,002 lines", 0, True)
        assert panel.close_search()
        assert await state() == ("/ filters  W wraps  5,002 lines", 35, True), "the newest line is followed again"
        assert (panel.close_search(), field.display, view.has_focus) == (False, False, True)
        field.value = "begun"
        assert await state() == ("/ filters  W wraps  5,002 lines", 35, True), "the field is closed"
        panel.open_search()
        field.value = ""
        await pilot.press("enter")
        assert await state() == ("/ filters  W wraps  5,002 lines", 35, True)
        panel.open_search()
        await pilot.press(*"begun", "enter")
        assert title.right == "'begun': 1 of 1  f F  5,002 lines"
        await pilot.press("enter")  # in context, where the newest line is not followed
        assert await state() == ("'begun': 1 of 1  f F  5,002 lines", 36, False)
        assert panel.close_search(), "also after Enter"
        assert await state() == ("/ filters  W wraps  5,002 lines", 35, True)


async def test_a_click_folds_only_on_the_row_that_stands_for_others_and_wrapped_lines_begin_at_the_left() -> None:
    async with Tiny(Alone, PLAIN).run_test(size=(50, 20)) as pilot:
        panel, view = pilot.app.screen.query_one(LogPanel), pilot.app.screen.query_one(LogLines)
        settings = tiny(pilot).settings
        panel.show(picture((*LINES[:3], LINES[-1])))
        await pilot.pause()
        assert panel.query_one(LogTitle).right == "4 lines", "no keys on a narrow terminal"
        for y, fold in ((0, True), (1, False), (1, False), (9, False)):
            await pilot.click(view, offset=(3, y))
            assert settings.log.fold is fold, y
        assert shown(view) == ["begun", *NOISE, LINES[-1]]
        view.scroll_to(x=9, animate=False, immediate=True)
        assert view.scroll_offset.x == 9
        view.action_wrap()
        await pilot.pause()
        assert (view.scroll_offset.x, len(view.rows), settings.log.wrap) == (0, 6, True)
        view.action_wrap()
        assert (len(view.rows), settings.log.wrap) == (4, False)
        panel.show_edge(True)
        await pilot.pause()
        assert (panel.has_class("-plain"), panel.query_one(LogTitle).display) == (True, False)
        assert (str(panel.border_title), str(panel.border_subtitle)) == ("log", "4 lines")
        panel.show_edge(False)
        assert not panel.has_class("-plain")


async def test_the_time_of_a_resume_moves_its_line_among_the_epochs() -> None:
    async with Tiny(Alone, PLAIN).run_test(size=(60, 20)) as pilot:
        panel, view = pilot.app.screen.query_one(LogPanel), pilot.app.screen.query_one(LogLines)
        now = resumed()
        panel.show(now)
        assert shown(view) == ["epoch 1/9   1.5 s", RESUMED, "end"], "the time of the resume is not known yet"
        view.show(now.log, now.log_arrived, now.snapshot.epochs, (40.0,))
        assert shown(view) == [RESUMED, "end", "epoch 1/9   1.5 s"]
        epochs = now.snapshot.epochs
        view.show(("a", "b"), (10.0, 60.0), epochs)
        assert shown(view) == ["a", "epoch 1/9   1.5 s", "b"], "each at its time"
        view.show(("a", "b", "c"), (10.0, 60.0, 70.0))
        assert shown(view) == ["a", "epoch 1/9   1.5 s", "b", "c"], "the epochs stay"
        view.show(("a", "b", "c"), (10.0, 60.0, 70.0), ())
        assert shown(view) == ["a", "b", "c"]
        view.show(("end",), (), epochs)
        assert view.check_action("context", ()) is False, "there is no search"
        view.seek("end")
        assert view.check_action("context", ()) is True
        view.show(("Begin, begin", "a", "İ begin", "beginning"), (), ())
        view.seek("BEGIN")
        await pilot.pause()
        marked = [
            [part.text for part in view.render_line(y) if part.style and part.style.reverse]
            for y in range(len(view.rows))
        ]
        assert shown(view) == ["Begin, begin", "İ begin", "beginning"]
        assert marked == [["Begin", "begin"], [], ["begin"]], "none where small letters have other places"
