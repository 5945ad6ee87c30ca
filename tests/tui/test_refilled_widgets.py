"""Widgets that are filled again: what stays, what is forgotten, and that a change of colours alone is seen, too."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from tests.doors.engine import presets
from tests.doors.tui import INFO, PLAIN, FormState, OptionRow, OptionsView
from tests.support.tiny import Tiny

# ---- the start bar -----------------------------------------------------------------------------------------------


class Options(Screen[None]):
    CSS = "OptionsView { height: 1fr; overflow-y: auto; } OptionRow { height: 1; }"

    def compose(self) -> ComposeResult:
        yield OptionsView(FormState.open(presets.SHIPPED / "quickstart.yaml"))


async def test_the_options_of_another_preset_are_folded_found_and_greyed_as_new() -> None:
    async with Tiny(Options, PLAIN).run_test(size=(70, 20)) as pilot:
        view = pilot.app.screen.query_one(OptionsView)
        used, unused = (FormState.open(presets.SHIPPED / "quickstart.yaml") for _ in range(2))
        key = "run.keep_best_count"
        heading = view.headings["run"]
        used.set(key, "3")

        def shown() -> tuple[bool, bool]:
            return heading.folded, view.rows[key] in view.shown

        for state in (used, unused, used):
            view.load(state)
            assert shown() == (True, False)
            assert all(row.state is state for row in view.rows.values())
            changed = {name for name, heading in view.headings.items() if "changed" in heading.render().plain}
            folded = (info for info in INFO.values() if not info.about.essential)
            assert changed == {info.group for info in folded if not state.is_default(info.key)}
        view.load(unused)
        view.reveal(key)
        assert shown() == (False, True)
        view.rows[key].focus()
        await pilot.pause()
        assert view.last is view.rows[key]
        heading.action_fold(True)
        await pilot.pause()
        assert (shown(), view.current) == ((True, False), view.shown[0]), "the option with the focus is hidden"
        view.action_edge(-1)
        await pilot.pause()
        assert (view.last, view.scroll_offset.y > 0) == (view.shown[-1], True)
        view.narrow("batch size")
        await pilot.pause()
        assert (view.shown[0], view.scroll_offset.y) == (view.rows["input.batch_size"], 0)
        hits = {row.key for row in view.rows.values() if row.hit is not None}
        assert hits == {row.key for row in view.shown if isinstance(row, OptionRow)}
        view.narrow("seed")
        again = {row.key for row in view.rows.values() if row.hit is not None}
        assert "input.batch_size" not in again
        assert again == {row.key for row in view.shown if isinstance(row, OptionRow)}
        view.narrow("xyzzy")
        assert (view.shown, view.query_one("#no-match").display) == ([], True)
        view.narrow(" ")
        assert (len(view.shown) > 20, view.query_one("#no-match").display) == (True, False)
        assert not any(row.hit for row in view.rows.values())
        view.grey("there is none")
        assert {key for key, row in view.rows.items() if row.locked} == {
            info.key for info in INFO.values() if info.about.gpu_only
        }
        view.grey("")
        assert not any(row.locked for row in view.rows.values())
