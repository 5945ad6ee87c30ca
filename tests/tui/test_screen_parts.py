"""What all screens share: readings that rest while a screen is covered, the count in the header, and the help."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from gputui.tui.base import keys
from gputui.tui.screens import base
from gputui.tui.screens.base import FollowingScreen, Header, QueueCount
from gputui.tui.screens.help import HelpPage, HelpScreen, working
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from tests.support.tiny import Tiny, text_of, tiny, wait_for


class Reading(FollowingScreen[int]):
    """Reads once and then waits until it is covered. `seen` has each reading with the mark of an old one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.seen: list[tuple[int | None, bool]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def compose(self) -> ComposeResult:
        yield Static("a screen")

    def readings(self, leaving: threading.Event) -> Iterator[int]:
        self.begun += 1
        self.goes_on.wait(60)
        yield self.begun
        leaving.wait(60)

    def show_latest(self) -> None:
        self.seen.append((self.latest, self.is_stale))


async def test_a_screen_that_was_hidden_for_more_than_a_second_is_old_until_it_has_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=lambda: now[0]))
    screen = Reading()

    def read(number: int) -> Callable[[], bool]:
        return lambda: screen.latest == number

    async with Tiny(lambda: screen).run_test(size=(60, 10)) as pilot:
        await wait_for(pilot, read(1))
        assert (screen.seen, screen.is_stale) == ([(1, False)], False), "it was never hidden"
        for number, (covering, hidden, old) in enumerate(
            ((Screen, 1.0, False), (Screen, 1.1, True), (Screen, 0.5, False), (ModalScreen, 50.0, None)), 2
        ):
            screen.seen.clear()
            screen.goes_on.clear()
            await pilot.app.push_screen(covering())
            now[0] += hidden / 2
            await pilot.app.push_screen(covering())  # it is told twice that it is covered
            now[0] += hidden / 2
            pilot.app.pop_screen()
            pilot.app.pop_screen()
            await pilot.pause()
            if old is None:  # a dialog does not hide it
                assert (screen.begun, screen.seen) == (4, [(4, False)])
                break
            assert screen.seen == [(number - 1, old)], hidden
            screen.goes_on.set()
            await wait_for(pilot, read(number))
            assert screen.seen[1:] == [(number, False)]
            now[0] += 100.0


async def test_new_readings_begin_when_the_former_have_ended_and_the_last_end_with_the_screen() -> None:
    class Covered(Reading):
        """Reads on while another screen lies over it."""

        FOLLOWS_COVERED = True

        def __init__(self) -> None:
            super().__init__()
            self.ended = 0

        def readings(self, leaving: threading.Event) -> Iterator[int]:
            yield from super().readings(leaving)
            self.ended += 1

    screen = Covered()
    async with Tiny(Screen).run_test(size=(60, 10)) as pilot:
        await pilot.app.push_screen(screen)
        await wait_for(pilot, lambda: screen.latest == 1)
        screen.goes_on.clear()
        screen.read_again()
        await wait_for(pilot, lambda: screen.begun == 2)
        screen.read_again()
        await pilot.pause(0.05)
        assert (screen.begun, screen.ended) == (2, 1), "the driver has not answered yet"
        screen.goes_on.set()
        await wait_for(pilot, lambda: screen.latest == 3)
        await pilot.app.push_screen(Screen())
        await pilot.pause(0.05)
        assert (screen.begun, screen.ended) == (3, 2)
        pilot.app.pop_screen()
        pilot.app.pop_screen()
        await wait_for(pilot, lambda: screen.ended == 3, 50)


class Headed(Screen[None]):
    def __init__(self, title: bool) -> None:
        super().__init__()
        self.title_widget = Static("a title", id="title") if title else None

    def compose(self) -> ComposeResult:
        yield Header(self.title_widget)


@pytest.mark.parametrize(("title", "beside"), [(False, 0), (True, 20)])
async def test_the_header_has_the_longest_words_about_the_queue_for_which_there_is_room(
    title: bool, beside: int
) -> None:
    words = ("2 train, 3 wait, next in about 4:10", "3 wait", "")

    class Showing(Tiny):
        def action_show(self, name: str) -> None:
            self.opened.append(("place", name))

    async with Showing(lambda: Headed(title)).run_test(size=(200, 10)) as pilot:
        await wait_for(pilot, lambda: pilot.app.screen.query(QueueCount))
        shown = pilot.app.screen.query_one(QueueCount)
        assert not shown.display
        pilot.app.queue_words = words[:2]  # type: ignore[attr-defined]
        narrow = " Form  Live  Runs  GPUs  Doctor "
        places = narrow if title else " F2 Form  F3 Live  F4 Runs  F5 GPUs  F6 Doctor "
        await pilot.resize_terminal(80, 10)
        await wait_for(pilot, places)
        tabs, least = len(places), len(narrow)
        for width, count, text in (
            (tabs + beside + 2 + len(words[0]), 0, words[0]), (tabs + beside + 1 + len(words[0]), 0, words[1]),
            (tabs + beside + 2 + len(words[0]), 12, words[1]), (least + beside + 2 + len(words[1]), 0, words[1]),
            (least + beside + 1 + len(words[1]), 0, ""),
        ):  # fmt: skip
            await pilot.resize_terminal(width, 10)
            pilot.app.running_count = count  # type: ignore[attr-defined]
            await wait_for(pilot, lambda text=text: (str(shown.content), shown.display) == (text, bool(text)))  # type: ignore[misc]
        await pilot.resize_terminal(200, 10)
        pilot.app.queue_words = words[1:2]  # type: ignore[attr-defined]
        await wait_for(pilot, lambda: shown.display)
        await pilot.click(QueueCount)
        assert tiny(pilot).opened == [("place", "runs")]
        pilot.app.queue_words = ()  # type: ignore[attr-defined]
        await wait_for(pilot, lambda: not shown.display)


class WithKeys(Screen[None]):
    HELP_SECTIONS = (("Marks", (("*", "differs from the default of the option"), ("a long name of a mark", "x"))),)
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("start", meaning="start the training"),
        keys.bind("first", "edge", meaning="the first row of the table of all runs that there are"),
        *keys.back("app.quit"),
    ]

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return character == "g"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "start" or self.starts

    starts = True


async def test_the_help_has_the_keys_that_work_now_and_is_wrapped_to_the_terminal() -> None:
    async with Tiny(WithKeys).run_test(size=(80, 40)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, WithKeys))
        screen: Any = pilot.app.screen
        assert working(screen)["Here"] == [("r, ctrl+r", "start the training")]
        assert working(screen)["Moving"] == [("home", "the first row of the table of all runs that there are")]
        screen.starts = False
        screen.refresh_bindings()
        assert "Here" not in working(screen)
        screen.starts = True
        pilot.app.push_screen(HelpScreen(screen))
        await wait_for(pilot, "start the training")
        text = pilot.app.screen.query_one(Static)
        for width, lines in (
            (80, ["Here", "r, ctrl+r      start the training", "", "Marks",
                  "*              differs from the default of the option", "a long name of a mark x", "", "Moving",
                  "home           the first row of the table of all runs that there are"]),
            (50, ["Here", "r, ctrl+r    start the training", "", "Marks", "*            differs from the default of",
                  "             the option", "a long name of a mark x", "", "Moving",
                  "home         the first row of the table", "             of all runs that there are"]),
            (36, ["Here", "r, ctrl+r start the", "          training", "", "Marks", "*        differs from the",
                  "         default of the", "         option", "a long name of a mark", "    x", "", "Moving",
                  "home     the first row of", "         the table of all",
                  "         runs that there", "         are"]),
        ):  # fmt: skip
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            assert str(text.visual).split("\n")[: len(lines)] == lines, width
        assert "quit" in text_of(pilot.app)
        await pilot.resize_terminal(80, 14)
        await pilot.pause()
        page = pilot.app.screen.query_one(HelpPage)
        assert page.max_scroll_y > 0
        for key, row in (("right_square_bracket", 1), ("left_square_bracket", -1), ("right_square_bracket", 1)):
            before = page.scroll_y
            await pilot.press(key)
            moved = min(page.max_scroll_y, max(0, before + row * (page.size.height - 2)))
            assert page.scroll_y == moved, "two lines stay"
