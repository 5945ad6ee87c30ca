"""The list of the form's changes over a form without widgets: its rows with their marks, and what its keys put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gputui.engine import presets
from gputui.tui.form.form_state import FormState, History, Moment
from gputui.tui.screens.form.changes import NOTHING, ChangesScreen
from textual.widgets import DataTable, Static

from tests.support.form_pilot import told
from tests.support.tiny import Tiny, wait_for

BATCH, EPOCHS, SEED = "input.batch_size", "train.epochs", "train.seed"


class Form:
    """The form, as far as the list knows it."""

    def __init__(self, state: FormState) -> None:
        self.state, self.history = state, History()
        self.did: list[Any] = []

    def put(self, texts: Mapping[str, str], what: str) -> None:
        before = Moment.of(self.state)
        self.state.put(texts)
        self.history.record(before, self.state, what)
        self.did.append((dict(texts), what))

    def action_undo(self) -> None:
        self._go_back(self.history.undo(self.state))

    def action_redo(self) -> None:
        self._go_back(self.history.redo(self.state))

    def _go_back(self, act: Any) -> None:
        if act is not None:
            self.state.put(act.before.texts)

    def go_to(self, key: str) -> None:
        self.did.append(key)


async def test_what_differs_from_the_file_and_the_defaults_is_listed_and_each_change_taken_back_and_made_again() -> (
    None
):
    form = Form(FormState(None, presets.defaults([])))
    screen = ChangesScreen(cast("Any", form))
    async with Tiny(lambda: screen).run_test(size=(100, 20), notifications=True) as pilot:
        await wait_for(pilot, NOTHING)
        table, nothing, title = (
            screen.query_one(DataTable),
            screen.query_one("#nothing"),
            screen.query_one("#title", Static),
        )

        def rows() -> list[list[str]]:
            return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]

        def heading() -> str:
            return " ".join(str(title.content).split())

        name = form.state.name
        assert (table.display, nothing.display, heading()) == (False, True, f"{name} + 0 not saved * 0 not the default")
        form.put({BATCH: "128", EPOCHS: "none", SEED: "3\x1b"}, "three")
        form.did.clear()
        screen.theme_changed()
        assert (table.display, nothing.display, heading()) == (True, False, f"{name} + 3 not saved * 3 not the default")
        changed = [["+", BATCH, "128", "64", "64"], ["!", EPOCHS, "none", "2", "2"],
                   ["!", SEED, "3?", "not given", "not given"]]  # fmt: skip
        assert rows() == changed
        await pilot.press("space")
        as_saved = ["", BATCH, "64", "64", "64"]
        assert (rows(), form.did.pop()) == ([as_saved, *changed[1:]], ({BATCH: "64"}, BATCH)), "it stays in its place"
        for text in ("128", "64", "128"):
            await pilot.press("space")
            assert form.did.pop() == ({BATCH: text}, BATCH), "to and fro"
        await pilot.press("down", "d")
        assert (form.did.pop(), rows()[1]) == (({EPOCHS: "2"}, EPOCHS), ["", EPOCHS, "2", "2", "2"])
        await pilot.press("space")
        assert told(pilot) == "that is how it stands in the file; d sets it to the default"
        for key, text in (("u", "none"), ("ctrl+y", "2"), ("u", "none")):
            await pilot.press(key)
            assert (form.state.texts[EPOCHS], rows()[1][2]) == (text, text)
        form.put({BATCH: "64", EPOCHS: "2", SEED: ""}, "none")
        screen.theme_changed()
        assert (len(rows()), table.display, nothing.display) == (3, True, False), "what was taken back is still listed"
        form.did.clear()
        await pilot.press("end", "enter")
        await wait_for(pilot, lambda: pilot.app.screen is not screen)
        assert form.did == [SEED]


async def test_values_of_the_file_that_are_not_the_default_follow_those_that_are_not_saved() -> None:
    form = Form(FormState(None, presets.defaults(["train.epochs=9", "input.batch_size=32"])))
    form.state.opened = form.state.preset
    form.state.set(SEED, "7")
    screen = ChangesScreen(cast("Any", form))
    async with Tiny(lambda: screen).run_test(size=(100, 20), notifications=True) as pilot:
        await wait_for(pilot, "1 not saved  * 3 not the default")
        table = screen.query_one(DataTable)
        assert [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)] == [
            ["+", SEED, "7", "not given", "not given"], ["*", BATCH, "32", "32", "64"], ["*", EPOCHS, "9", "9", "2"],
        ]  # fmt: skip
        await pilot.press("down", "d", "space")
        assert [texts for texts, _ in form.did] == [{BATCH: "64"}, {BATCH: "32"}], "the default, then the file's again"
