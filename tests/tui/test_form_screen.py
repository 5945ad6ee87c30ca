"""The form without its widgets: what undo, redo and proposed changes do and say, why it cannot start, its texts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.checks import Finding
from gputui.engine.job.machine_gpus import Machine
from gputui.tui.form.form_state import FormState, Moment
from gputui.tui.screens import undoing
from gputui.tui.screens.form.changes import TITLES, TextScreen
from gputui.tui.screens.form.screen import FormScreen
from textual.widgets import Static, TextArea

from tests.support.answering import Answering
from tests.support.form_pilot import NO_GPU, TWO_GPUS
from tests.support.tiny import Tiny, wait_for

BATCH, EPOCHS = "input.batch_size", "train.epochs"


class Form(FormScreen):
    """The form, which is not run. `did` has what it would show."""

    def __init__(self, state: FormState) -> None:
        super().__init__(state)
        self.did: list[Any] = []

    def _hold(self, state: FormState) -> None:
        self.state = state

    def _changed(self) -> None:
        self.did.append("changed")

    def go_to(self, key: str) -> None:
        self.did.append(key)

    def offer_start(self, key: str, what: str) -> None:
        self.did.append(("start", key, what))


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering()
    monkeypatch.setattr(Form, "app", made, raising=False)
    return made


@pytest.fixture
def form(app: Answering) -> Form:
    return Form(FormState.open(presets.SHIPPED / "quickstart.yaml"))


def apply(form: Form, values: dict[str, Any], what: str) -> None:
    form.apply(form.state, values, what)


def texts(form: Form) -> list[str]:
    return [form.state.texts[BATCH], form.state.texts[EPOCHS]]


# ---- undo and redo --------------------------------------------------------------------------------------


def test_a_change_is_undone_and_done_again_and_its_option_gets_the_cursor(form: Form, app: Answering) -> None:
    for action, word in ((form.action_undo, "undone"), (form.action_redo, "done again")):
        action()
        assert app.told.pop() == f"nothing to be {word}"
    apply(form, {BATCH: 128}, "batch_size=128")
    apply(form, {EPOCHS: 9}, "epochs=9")
    form.did.clear()
    for action, found, key in (
        (form.action_undo, ["128", "6"], EPOCHS), (form.action_undo, ["32", "6"], BATCH),
        (form.action_redo, ["128", "6"], BATCH), (form.action_redo, ["128", "9"], EPOCHS),
    ):  # fmt: skip
        action()
        assert (texts(form), form.did.pop()) == (found, key)
    assert (app.told, form.did) == ([], [])


def test_a_change_of_several_options_or_of_the_description_is_named(form: Form, app: Answering) -> None:
    apply(form, {BATCH: 128, EPOCHS: 9}, "a remedy\x1b")
    form.did.clear()
    form.action_undo()
    assert (texts(form), app.told.pop(), form.did) == (["32", "6"], "Undone: a remedy?", [BATCH])
    form.action_redo()
    assert (texts(form), app.told.pop()) == (["128", "9"], "Done again: a remedy?")
    before = form.state.description
    form.did.clear()
    moment = Moment.of(form.state)
    form.state.describe("mine")
    form.history.record(moment, form.state, "the description")
    form.action_undo()
    assert (form.state.description, app.told.pop(), form.did) == (before, "Undone: the description", [])


def test_the_opening_of_another_preset_is_undone_with_a_message_and_no_option_gets_the_cursor(
    form: Form, app: Answering
) -> None:
    first = form.state
    first.set(BATCH, "96")
    form.load(FormState.open(presets.SHIPPED / "fast.yaml"))
    form.action_undo()
    assert (form.state, form.state.texts[BATCH], form.did) == (first, "96", [])
    assert app.told.pop() == (
        "Another preset: undone: opening fast; the form now holds quickstart; ctrl+y takes that back (warning)"
    )
    form.action_redo()
    assert app.told.pop() == (
        "Another preset: done again: opening fast; the form now holds fast; u takes that back (warning)"
    )


def test_a_change_of_the_list_is_undone_with_all_after_it(
    form: Form, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[Any] = []
    answers = [None, 1]

    async def choose(_app: Any, acts: list[Any]) -> int | None:
        offered.append(acts)
        return answers.pop(0)

    monkeypatch.setattr(undoing, "choose", choose)
    undo_list = Form.action_undo_list.__wrapped__  # type: ignore[attr-defined]
    asyncio.run(undo_list(form))
    assert (app.told.pop(), offered) == ("nothing to be undone", [])
    for number in (1, 2, 3):
        apply(form, {EPOCHS: 10 + number}, f"epochs={10 + number}")
    for epochs in ("13", "11"):
        asyncio.run(undo_list(form))
        assert form.state.texts[EPOCHS] == epochs
        assert offered.pop() == [("epochs=13", 0.0), ("epochs=12", 0.0), ("epochs=11", 0.0)]
    assert [act.what for act in form.history.done] == ["epochs=11"]
    form.action_redo()
    assert form.state.texts[EPOCHS] == "13"


def test_proposed_values_are_one_change_and_offer_the_start(form: Form, app: Answering) -> None:
    apply(form, {BATCH: 128, EPOCHS: 9}, "batch_size=128, epochs=9")
    assert (texts(form), form.did.pop(), app.told) == (
        ["128", "9"], ("start", BATCH, "batch_size=128, epochs=9"), [],
    )  # fmt: skip
    apply(form, {BATCH: 128}, "batch_size=128\x1b")
    assert app.told.pop() == "The options have that already: batch_size=128?"
    assert (len(form.history.done), form.did.pop()) == (1, ("start", BATCH, "batch_size=128\x1b"))
    apply(form, {}, "nothing")
    assert form.did.pop() == ("start", "", "nothing")


def test_the_palette_offers_undo_and_redo_only_if_there_is_something(form: Form) -> None:
    offered = {action: form.offers(action) for action in ("undo", "undo_list", "redo", "start")}
    assert offered == {"undo": False, "undo_list": False, "redo": False, "start": True}
    apply(form, {BATCH: 128}, "x")
    assert [form.offers(action) for action in ("undo", "undo_list", "redo")] == [True, True, False]
    form.action_undo()
    assert [form.offers(action) for action in ("undo", "undo_list", "redo")] == [False, False, True]


def test_a_digit_begins_a_value_and_opens_no_screen(form: Form) -> None:
    for key, character, consumed in (("1", "1", True), ("r", "r", False), ("f2", None, False), ("slash", "/", False)):
        assert form.check_consume_key(key, character) is consumed


@pytest.mark.parametrize(
    ("file", "changes", "description", "title"),
    [
        ("shipped", {}, None, "quickstart shipped  {}"),
        ("shipped", {BATCH: "9"}, None, "quickstart + 1 not saved  {}"),
        ("shipped", {BATCH: "9", EPOCHS: "x"}, "two\x1b", "quickstart + 2 not saved  two?"),
        ("shipped", {}, "two", "quickstart + not saved  two"), ("own", {}, None, "mine  one"),
        ("own", {}, "", "mine + not saved  "), ("run", {}, None, "mine from a run  one"),
        ("run", {BATCH: "9"}, None, "mine + 1 not saved  one"), ("none", {}, None, "mine  one"),
    ],
)  # fmt: skip
def test_the_title_names_the_preset_its_origin_or_how_much_is_not_saved(
    home: Path, form: Form, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, changes: dict[str, str],
    description: str | None, title: str,
) -> None:  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text("description: one\n")
    if file == "run":
        path = runs.create("mine", path.read_text()).file("preset.yaml")
    state = form.state if file == "shipped" else FormState.open(path)
    if file == "none":
        state = FormState(None, replace(state.opened, file=None))
    titles: list[Any] = []
    monkeypatch.setattr(Form, "query_one", lambda *_: SimpleNamespace(update=titles.append))
    form.state = state
    original = state.description
    state.put(changes, description)
    form._show_title()
    assert titles[0].plain == title.format(original)


# ---- why it cannot start --------------------------------------------------------------------------------


def finding(level: Any, message: str, *options: str) -> Finding:
    return Finding(level, options, message, "")


def test_the_reason_why_it_cannot_start_is_the_first_error_with_the_number_of_the_others(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "there is no file /data/somewhere/far/away/train.npz"
    form._findings = (finding("warning", "slow", BATCH), finding("error", long, "workload.data", BATCH))
    assert [remark.level for remark in form.remarks] == ["warning", "error"]
    assert form.refusal == form.refusals[0]
    assert form.refusals[1:] == [
        f"workload.data, {BATCH}: {long}", f"workload.data, {BATCH}: there is no file .../train.npz",
    ]  # fmt: skip
    form.state.set(EPOCHS, "0")
    form.state.set(BATCH, "x")
    assert [remark.keys[0] for remark in form.remarks] == [BATCH, EPOCHS, BATCH, "workload.data"]
    assert all(text.startswith(f"{BATCH}: ") and text.endswith(" (and 2 more)") for text in form.refusals[1:])
    form.state.reset(EPOCHS)
    form.state.reset(BATCH)
    form._findings = form._findings[:1]
    assert (form.refusal, form.refusals) == ("", [])


@pytest.mark.parametrize("action", ["tune", "sweep", "scaling"])
def test_nothing_is_measured_while_the_form_has_errors(form: Form, app: Answering, action: str) -> None:
    form._findings = (finding("warning", "slow", EPOCHS), finding("error", "no GPU", "device.visible"))
    form.set_reactive(FormScreen.focused, None)
    asyncio.run(getattr(Form, f"action_{action}").__wrapped__(form))
    assert app.told == [f"Not started: {form.refusal} (error)"]
    assert form.did == [EPOCHS], "the first option with a remark"


@pytest.mark.parametrize(
    ("machine", "settings", "reason"),
    [
        (None, (), ""), (NO_GPU, (), "no NVIDIA driver on this machine"), (TWO_GPUS, (), ""),
        (TWO_GPUS, ("device.visible=none",), "device.visible is none"),
        (replace(NO_GPU, missing="no permission", no_gpu_reason=""), (), ""),
    ],
)  # fmt: skip
def test_why_a_training_uses_no_gpu(
    form: Form, machine: Machine | None, settings: tuple[str, ...], reason: str
) -> None:
    for setting in settings:
        key, _, text = setting.partition("=")
        form.state.set(key, text)
    form.machine = machine
    assert form.no_gpu_reason == reason


# ---- its texts ------------------------------------------------------------------------------------------


async def test_the_texts_of_the_form_are_turned_and_copied_whole_or_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("train: {epochs: 3}\n")
    state = FormState.open(path)
    state.set(BATCH, "128")
    screen = TextScreen(state, "command")
    async with Tiny(lambda: screen).run_test(size=(100, 30), notifications=True) as pilot:
        await wait_for(pilot, lambda: screen.query(TextArea) and screen.query_one(TextArea).text)
        copied: list[str] = []

        def copy(app: Tiny, text: str, what: str) -> None:
            app.copy_to_clipboard(text)
            copied.append(what)

        monkeypatch.setattr(Tiny, "copy", copy)
        area, title = screen.query_one(TextArea), screen.query_one("#title", Static)
        command = f"gputui --preset {path} \\\n  --set {BATCH}=128\n"
        for key, what, begin in (
            ("", "command", command), ("right_square_bracket", "python", ""),
            ("right_square_bracket", "yaml", "schema"), ("left_square_bracket", "python", ""),
            ("left_square_bracket", "command", command),
        ):  # fmt: skip
            await pilot.press(*([key] if key else []))
            assert str(title.content) == TITLES[what]
            assert area.text == screen.text()
            assert area.text.startswith(begin)
        await pilot.press("y")
        assert (pilot.app.clipboard, copied) == (command, ["2 lines"])
        area.selection = type(area.selection)((0, 0), (0, 6))
        await pilot.press("enter")
        assert (pilot.app.clipboard, copied) == ("gputui", ["2 lines", "the selection"])
        state.set(EPOCHS, "0")
        state.set("train.seed", "x")
        await pilot.press("right_square_bracket", "left_square_bracket")
        assert str(title.content) == f"{TITLES['command']}  2 invalid field(s) replaced by the values of the file"
