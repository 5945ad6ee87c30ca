"""The options of the form in columns, by the width of the screen, and how the focus moves among them."""

from __future__ import annotations

from typing import Any

from gputui.engine import presets
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.form.form_state import FormState
from gputui.tui.widgets.headings import GroupHeading
from gputui.tui.widgets.options_view import COLUMN_WIDTH, NARROW_COLUMN_WIDTH, SHORT_GROUPS, OptionsView
from textual import on
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen

from tests.support.tiny import Tiny


class Options(Screen[None]):
    CSS = "OptionsView { height: 1fr; overflow-y: auto; } OptionRow { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[OptionsView.Moved] = []

    def compose(self) -> ComposeResult:
        yield OptionsView(FormState.open(presets.SHIPPED / "quickstart.yaml"))

    @on(OptionsView.Moved)
    def keep(self, message: OptionsView.Moved) -> None:
        self.moved.append(message)


def groups(columns: list[list[Any]]) -> list[str]:
    return [line.group for column in columns for line in column if isinstance(line, GroupHeading)]


async def test_groups_stand_side_by_side_if_there_is_room_and_are_reached_one_after_the_other() -> None:
    async with Tiny(Options, PLAIN).run_test(size=(70, 30)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Options)
        view, moved = screen.query_one(OptionsView), screen.moved
        lines = [line for line in view.children if line.display and line.id != "no-match"]
        every = list(view.headings)

        def bands(width: int) -> list[list[list[Any]]]:
            return view.bands_of(lines, Size(width, 30))

        assert bands(2 * NARROW_COLUMN_WIDTH - 1) == [[lines]], "one column"
        beside, rest = bands(2 * NARROW_COLUMN_WIDTH)
        assert (len(beside), len(rest)) == (2, 1)
        assert groups(beside) == [group for group in every if group in SHORT_GROUPS]
        assert groups(rest) == [group for group in every if group not in SHORT_GROUPS]
        assert [len(band) for band in bands(2 * COLUMN_WIDTH - 1)] == [2, 1]
        for width, room, count in (
            (2 * COLUMN_WIDTH, 999, 2), (3 * NARROW_COLUMN_WIDTH - 1, 1, 2), (3 * NARROW_COLUMN_WIDTH, 1, 3),
            (3 * NARROW_COLUMN_WIDTH, 999, 2),
        ):  # fmt: skip
            view.room = room
            (columns,) = bands(width)
            assert len(columns) == count, (width, room)
            assert groups(columns) == every
            assert sum(map(len, columns)) == len(lines)
            assert max(map(len, columns)) < 1.4 * len(lines) / count, "none is much higher than the others"
        view.narrow("batch size")
        ((column,),) = view.bands_of([line for line in view.children if line.display], Size(200, 30))
        assert column == view.shown, "hits, the best first"
        view.narrow("")

        async def after(action: str, *given: int) -> tuple[str, int]:
            getattr(view, f"action_{action}")(*given)
            await pilot.pause()
            assert view.last.has_focus
            return view.last.group, view.shown.index(view.last)

        last = len(view.shown) - 1
        assert await after("edge", 0) == (every[0], 0)
        assert await after("step", -1) == (every[0], 0), "the first is the end"
        assert await after("step", 1) == (every[0], 1)
        firsts = [next(at for at, stop in enumerate(view.shown) if stop.group == group) for group in every]
        assert await after("section", -1) == (every[0], 0)
        assert [await after("section", 1) for _ in every[1:]] == list(zip(every[1:], firsts[1:], strict=True))
        assert await after("section", 1) == (every[-1], firsts[-1]), "the last section is the end"
        assert await after("edge", -1) == (every[-1], last)
        assert await after("step", 1) == (every[-1], last)
        assert await after("step", -3) == (every[-1], last - 3)
        assert await after("section", -1) == (every[-2], firsts[-2])
        key = "input.batch_size"
        view.point_at(key)
        await pilot.pause()
        assert (view.last_row.key, view.last.has_focus, view.current) == (key, False, view.rows[key])
        moved.clear()
        view.focus_last()
        await pilot.pause()
        assert (view.rows[key].has_focus, moved) == (True, []), "it was shown already"
        view.action_step(1)
        await pilot.pause()
        assert (view.last_row, len(moved)) == (view.last, 1), "its help is to be shown"
        view.rows[key].focus()
        await pilot.pause()
        view.narrow("seed")
        assert view.current == view.shown[0], "the one with the focus is hidden"
        view.focus_last()
        await pilot.pause()
        assert view.shown[0].has_focus
        assert await after("step", 1) == (view.shown[1].group, 1)
        view.narrow("nothing of this kind")
        view.action_edge(0)
        view.action_step(1)
        view.action_section(1)
        heading = view.headings["input"]

        def changed(text: str) -> int:
            view.state.set(key, text)
            text = heading.render().plain.partition("  ")[2]
            return int(text.partition(" ")[0]) if "changed" in text else 0

        view.narrow("")
        await pilot.pause()
        assert not view.state.is_default(key), "the preset has another value"
        counts = [changed(text) for text in ("48", "64", "32")]
        assert counts == [counts[1] + 1, counts[1], counts[1] + 1], "that differ from the default, not from the file"
