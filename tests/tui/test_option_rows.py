"""A row of the form by itself: what it shows, and what it reports of keys, clicks and edits."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from gputui.engine import presets
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.form.form_state import FormState
from gputui.tui.widgets.option_row import OptionRow, ValueInput
from textual import on
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen

from tests.support.tiny import Tiny

BATCH, XLA, POLICY = "input.batch_size", "compile.xla", "precision.policy"
ORDER, AUGMENT, SEED = "input.deterministic_order", "input.augment", "train.seed"
STEPS = "compile.steps_per_execution"
PYTHON, MODEL = "run.python", "workload.model"
KEYS = (BATCH, XLA, POLICY, ORDER, AUGMENT, SEED, STEPS, PYTHON, MODEL)


class Rows(Screen[None]):
    """Rows of some options, which apply what they report."""

    CSS = "OptionRow { height: 1; } ValueInput { height: 1; width: 20; }"

    def __init__(self) -> None:
        super().__init__()
        self.state = FormState.open(presets.SHIPPED / "quickstart.yaml")
        self.changes: list[tuple[str, str, object]] = []
        self.others: list[tuple[Any, ...]] = []

    def compose(self) -> ComposeResult:
        for key in KEYS:
            yield OptionRow(key, self.state)

    def row(self, key: str) -> OptionRow:
        return next(row for row in self.query(OptionRow) if row.key == key)

    @on(OptionRow.Changed)
    def change(self, event: OptionRow.Changed) -> None:
        self.changes.append((event.key, event.text, event.edit))
        self.state.set(event.key, event.text)
        self.row(event.key).show()

    @on(OptionRow.Choose)
    def choose(self, event: OptionRow.Choose) -> None:
        self.others.append(("choose", event.row.key))

    @on(OptionRow.Step)
    def step(self, event: OptionRow.Step) -> None:
        self.others.append(("step", event.row.key, event.by))

    def taken(self) -> list[tuple[str, str]]:
        """The changes since the last call. A field that is opened first reports the text that it has."""
        taken = [(key.partition(".")[2], text) for key, text, _ in self.changes]
        self.changes.clear()
        return [key for key, _ in groupby(taken)]


def rows_of(pilot: Pilot[None]) -> Rows:
    assert isinstance(pilot.app.screen, Rows)
    return pilot.app.screen


async def test_an_edit_that_is_left_restores_the_value_from_before_this_edit() -> None:
    async with Tiny(Rows, PLAIN).run_test(size=(80, 20)) as pilot:
        screen = rows_of(pilot)
        batch = screen.row(BATCH)
        batch.focus()
        await pilot.press("enter", "4", "8", "enter")
        texts = [("batch_size", text) for text in ("32", "4", "48")]
        assert screen.taken() == texts, "the whole value is selected at first"
        assert (batch.has_focus, screen.state.texts[BATCH]) == (True, "48")
        await pilot.press("9")
        (first,) = {edit for *_, edit in screen.changes}
        await pilot.press("6", "escape")
        edits = [edit for *_, edit in screen.changes]
        assert edits == [first] * len(edits), "all changes of an edit belong together"
        assert screen.taken() == [("batch_size", "9"), ("batch_size", "96"), ("batch_size", "48")]
        await pilot.press("1", "enter", "2", "enter")
        assert len({edit for *_, edit in screen.changes}) == 2
        assert screen.taken() == [("batch_size", "1"), ("batch_size", "2")]
        await pilot.press("delete")
        assert screen.changes == [(BATCH, "64", None)], "back to the default"
        await pilot.press("5", "up")
        assert screen.others == [("step", BATCH, -1)]
        screen.row(SEED).focus()
        await pilot.pause()
        assert screen.state.texts[BATCH] == "5", "what was written is taken if the focus moves"


async def test_words_are_switched_in_both_directions_and_only_the_beginning_of_a_number_opens_a_field() -> None:
    async with Tiny(Rows, PLAIN).run_test(size=(80, 20)) as pilot:
        screen = rows_of(pilot)
        policy, order, augment = (screen.row(key) for key in (POLICY, ORDER, AUGMENT))
        policy.focus()
        await pilot.press("left", "right", "enter")
        words = policy.info.fixed_values
        at = words.index(screen.state.texts[POLICY])
        assert screen.taken() == [("policy", words[at - 1]), ("policy", words[at])]
        assert screen.others == [("choose", POLICY)]
        for key, text in (("left", words[-1]), ("right", words[0])):
            screen.state.set(POLICY, "unknown")
            await pilot.press(key)
            assert screen.taken() == [("policy", text)], "from a value that is none of them"
        await pilot.press("5", "full_stop")
        assert (screen.changes, len(policy.children)) == ([], 0), "a choice is not written"
        order.focus()
        before = screen.state.texts[ORDER] == "true"
        await pilot.press("enter", "space", "right", "left")
        assert screen.taken() == [("deterministic_order", str(word).lower()) for word in (not before, before) * 2]
        screen.row(BATCH).focus()
        await pilot.press("x", "left")
        assert screen.changes == []
        for key, text in (("full_stop", "."), ("minus", "-"), ("7", "7")):
            await pilot.press(key, "enter")
            assert screen.taken() == [("batch_size", text)]
        augment.focus()
        await pilot.press("enter")
        field = augment.query_one(ValueInput)
        assert field.suggester is not None
        assert await field.suggester.get_suggestion("fl") == "flip", "one of its examples"
        await pilot.press("escape")
        screen.changes.clear()
        batch = screen.row(BATCH)
        await pilot.click(batch, offset=(batch.value_column - 1, 0))
        assert (len(batch.children), batch.has_focus) == (0, True), "a click on the name"
        await pilot.click(batch, offset=(batch.value_column, 0))
        assert len(batch.children) == 1
        batch.write("100")
        assert len(batch.children) == 1, "it is open"


async def test_only_a_text_that_may_be_long_is_written_below_a_narrow_row() -> None:
    async with Tiny(Rows, PLAIN).run_test(size=(72, 20)) as pilot:
        screen = rows_of(pilot)
        below = {}
        for width in (73, 72):
            await pilot.resize_terminal(width, 20)
            await pilot.pause()
            for key in (PYTHON, AUGMENT, BATCH):
                row = screen.row(key)
                row.focus()
                await pilot.press("enter")
                below[width, key] = row.query_one(ValueInput).has_class("-below")
                await pilot.press("escape")
        assert [place for place, is_below in below.items() if is_below] == [(72, PYTHON)]


async def test_a_row_says_how_its_value_differs_and_what_is_wrong_with_it() -> None:
    async with Tiny(Rows, PLAIN).run_test(size=(80, 20)) as pilot:
        screen = rows_of(pilot)
        batch, steps = screen.row(BATCH), screen.row(STEPS)
        screen.set_focus(None)
        await pilot.pause()

        def drawn(row: OptionRow) -> list[str]:
            return [line.rstrip() for line in row.render().plain.splitlines()]

        def of_batch(text: str) -> list[str]:
            screen.state.set(BATCH, text)
            batch.show()
            return drawn(batch)

        assert drawn(steps) == ["   steps_per_execution   1 step"]
        assert of_batch("32") == [" * batch_size            32 samples             default 64"]
        assert of_batch("48") == [" + batch_size            48 samples             default 64"]
        assert of_batch("64") == [" + batch_size            64 samples"], "the default, but not what the file has"
        assert of_batch("x")[0] == " ! batch_size            x", "no default next to an error"
        assert len(drawn(batch)) == 2
        assert drawn(batch)[1].startswith("   'x' does not fit: give a whole number from 1 to")
        of_batch("48")
        batch.grey("there is none")
        assert drawn(batch) == [" + batch_size            48 samples             no GPU"]
        batch.grey("")
        batch.focus()
        await pilot.pause()
        assert drawn(batch) == [">+ batch_size            48 samples             default 64"]
        order = screen.row(ORDER)
        assert drawn(order) == [
            f"   deterministic_order   {'[x] on' if screen.state.texts[ORDER] == 'true' else '[ ] off'}"
        ]
        order.focus()
        await pilot.press("space")
        assert drawn(order)[0].split()[-2:] == ["default", "on" if order.info.default else "off"]
        model = screen.row(MODEL)
        other = next(word for word in model.info.fixed_values if word != model.info.default)
        for key, text in ((MODEL, other), ("workload.entry", "train.py:build")):
            screen.state.set(key, text)
        assert drawn(model)[0].endswith("  your code"), "no default, as the option does nothing"
        assert drawn(batch) == [" + batch_size            48 samples             or your code  default 64"]
        screen.state.set("workload.entry", "")
        assert drawn(model)[0].endswith(f"  default {model.info.default}")
        await pilot.resize_terminal(50, 20)
        await pilot.pause()
        assert drawn(batch) == [" + batch_size          48 samples       default 64"]
        await pilot.resize_terminal(34, 20)
        await pilot.pause()
        assert drawn(batch) == [" + batch_size          48 samples"], "the help names the default"
