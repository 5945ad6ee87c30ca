"""The form without its widgets: what undo, redo and proposed changes do and say, why it cannot start, its texts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.checks import Finding
from gputui.engine.interpreter import interpreter
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.runs import RunError
from gputui.tui.form.form_state import FormState, Moment
from gputui.tui.form.search_limits import LimitTexts
from gputui.tui.screens import starting, undoing
from gputui.tui.screens.form import screen as form_screen
from gputui.tui.screens.form.changes import TITLES, TextScreen
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.proof import actions, sweep_dialog
from gputui.tui.screens.tune import limits_dialog
from gputui.tui.widgets.option_row import OptionRow
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

    def offer_start(self, values: Mapping[str, Any], what: str) -> None:
        self.did.append(("start", next(iter(values), ""), what))


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
    apply(form, {BATCH: 128, EPOCHS: 10}, "epochs=10")
    assert (texts(form), app.told) == (["128", "10"], []), "only one of them is new"
    form.action_undo()
    form.did.clear()
    apply(form, {BATCH: 128}, "batch_size=128\x1b")
    assert app.told.pop() == "The options have that already: batch_size=128?"
    assert (len(form.history.done), form.did.pop()) == (1, ("start", BATCH, "batch_size=128\x1b"))
    apply(form, {}, "nothing")
    assert form.did.pop() == ("start", "", "nothing")


def test_a_typed_value_is_one_change_and_shows_the_rows_whose_errors_come_and_go(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(OptionRow, "show", lambda row: shown.append(row.key))
    put = FormState.set
    errors: list[dict[str, str]] = [{EPOCHS: "wrong"}, {"train.seed": "wrong"}, {}, {}]

    def set_with_errors(state: FormState, key: str, text: str) -> None:
        put(state, key, text)
        state.errors = errors.pop(0)

    monkeypatch.setattr(FormState, "set", set_with_errors)
    for text, edit, rows in (
        ("1", 7, {BATCH, EPOCHS}), ("12", 7, {BATCH, EPOCHS, "train.seed"}), ("128", 7, {BATCH, "train.seed"}),
        ("16", 8, {BATCH}),
    ):  # fmt: skip
        form._option_changed(OptionRow.Changed(BATCH, text, edit))
        assert (set(shown), form.did.pop()) == (rows, "changed"), text
        shown.clear()
    assert [act.what for act in form.history.done] == [BATCH, BATCH]
    form.action_undo()
    assert form.state.texts[BATCH] == "128"
    form.action_undo()
    assert form.state.texts[BATCH] == "32", "all that was typed into the field"
    monkeypatch.setattr(FormState, "set", lambda state, key, text: None)
    form._option_changed(OptionRow.Changed("workload.entry", "a:b"))
    assert set(shown) == set(form.options.rows), "which decides for each whether it applies"


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
        ("own", {}, "", "mine + not saved  "), ("run", {}, None, "mine of a run  one"),
        ("run", {BATCH: "9"}, None, "mine of a run + 1 not saved  one"), ("none", {}, None, "mine  one"),
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


def test_a_measurement_has_the_values_of_the_form_and_its_next_dialog_what_the_last_one_had(
    starting_form: Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, given = starting_form, list[Any]()
    form.state.set(EPOCHS, "9")
    form.machine = TWO_GPUS

    def fast(preset: Any, here: Any) -> list[str]:
        given.append((preset, here))
        return ["mixed_bfloat16"]

    async def scaling(_app: Any, preset: Any, source: Any) -> None:
        given.append((preset, source))

    async def tune(_app: Any, state: Any, texts: Any) -> Any:
        given.append((state, deepcopy(texts)))
        texts.minutes = "7"
        return texts

    async def sweep(_app: Any, state: Any, texts: Any) -> Any:
        given.append((state, texts))
        return "its texts"

    monkeypatch.setattr(actions, "measure_scaling", scaling)
    monkeypatch.setattr(limits_dialog, "fast_policies", fast)
    monkeypatch.setattr(limits_dialog, "tune", tune)
    monkeypatch.setattr(sweep_dialog, "sweep", sweep)
    for action in ("scaling", "tune", "tune", "sweep", "sweep"):
        form.did.clear()
        asyncio.run(getattr(Form, f"action_{action}").__wrapped__(form))
        assert form.did == ["accepted"], "the value that is being typed counts"
    state, preset = form.state, form.state.preset
    assert preset.options.train.epochs == 9
    both = {"float32", "mixed_bfloat16"}
    first = LimitTexts(precisions=both, suitable=both)
    assert given == [
        (preset, state.path), (preset, TWO_GPUS), (state, first), (preset, TWO_GPUS),
        (state, replace(first, minutes="7")), (state, None), (state, "its texts"),
    ]  # fmt: skip


def test_the_keys_of_remarks_go_from_option_to_option_also_if_one_has_two(form: Form) -> None:
    form._findings = tuple(finding("warning", "slow", key) for key in (BATCH, BATCH, EPOCHS, BATCH))
    for last, by, to in (
        ("device.visible", 1, BATCH), ("device.visible", -1, EPOCHS), (BATCH, 1, EPOCHS), (EPOCHS, 1, BATCH),
        (BATCH, -1, EPOCHS), (EPOCHS, -1, BATCH),
    ):  # fmt: skip
        form.options.last_key = last
        form.action_next_remark(by)
        assert form.did.pop() == to, (last, by)


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


# ---- starting -------------------------------------------------------------------------------------------


class Starting(Form):
    """The form with a start that ends at once. `begun` has what `_start` was to begin."""

    def _accept_open_field(self) -> None:
        self.did.append("accepted")

    def close_introduction(self) -> None:
        self.did.append("closed")

    def _show_remarks(self) -> None:
        self.did.append("remarks")


@pytest.fixture
def starting_form(app: Answering) -> Starting:
    return Starting(FormState.open(presets.SHIPPED / "quickstart.yaml"))


def test_a_start_takes_the_open_field_and_is_refused_with_the_reason(
    starting_form: Starting, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, begun, slow = starting_form, list[Any](), [""]
    monkeypatch.setattr(Starting, "_start", lambda form, state, queued: begun.append((state, queued)))
    monkeypatch.setattr(interpreter, "slow", lambda: slow[0])
    for action, queued in ((form.action_start, False), (form.action_queue, True)):
        action()
        assert (begun.pop(), form.did.pop()) == ((form.state, queued), "accepted")
    slow[0] = "/opt/python\x1b"
    form.action_start()
    assert app.told.pop() == "Not started: /opt/python? has not answered yet"
    form._findings = (finding("warning", "slow", EPOCHS), finding("error", "no GPU", "device.visible"))
    form.did.clear()
    form.action_queue()
    assert (app.told, form.did, begun) == ([f"Not started: {form.refusal} (error)"], ["accepted", EPOCHS], [])


@pytest.mark.parametrize(
    ("made", "queued", "told", "opened"),
    [
        (("run", "engine"), False, [], True), (None, False, [], False), (None, True, ["queued"], False),
        (RunError("no lock"), False, ["the run cannot be started: no lock (error)"], False),
        (OSError("no disk"), True, ["the run cannot be queued: no disk (error)"], False),
    ],
)  # fmt: skip
def test_a_run_that_was_launched_is_opened_and_its_values_are_kept(
    starting_form: Starting, app: Answering, monkeypatch: pytest.MonkeyPatch, made: Any, queued: bool,
    told: list[str], opened: bool,
) -> None:  # fmt: skip
    form, state = starting_form, starting_form.state

    async def launch(_app: Any, start: Any) -> Any:
        assert start == state.preset
        form.state = FormState.open(presets.SHIPPED / "fast.yaml")  # it was opened meanwhile
        form.state.set(EPOCHS, "9")
        if isinstance(made, Exception):
            raise made
        return made

    async def put_in_queue(_app: Any, start: Any) -> None:
        await launch(_app, start)
        app.told.append("queued")

    monkeypatch.setattr(starting, "new_run", lambda _app, preset: preset)
    monkeypatch.setattr(starting, "ask_and_launch", launch)
    monkeypatch.setattr(starting, "put_in_queue", put_in_queue)
    monkeypatch.setattr(form_screen, "os", SimpleNamespace(environ={}))
    state.set(EPOCHS, "9")
    asyncio.run(Form._start.__wrapped__(form, state, queued))  # type: ignore[attr-defined]
    assert app.told == told
    assert (app.opened, app.engines) == ([("run", "run")] if opened else [], ["engine"] if opened else [])
    assert (state.at_risk, form.state.at_risk) == (not opened, True), "only what was started is kept"
    assert form.did == (["closed"] if opened else [])


def test_what_the_last_check_before_a_launch_finds_is_shown(
    starting_form: Starting, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (finding("warning", "slow", EPOCHS), finding("error", "no GPU", "device.visible"))

    async def launch(*_: Any) -> None:
        raise starting.ConflictError(TWO_GPUS, found)

    monkeypatch.setattr(starting, "new_run", lambda _app, preset: preset)
    monkeypatch.setattr(starting, "ask_and_launch", launch)
    form = starting_form
    asyncio.run(Form._start.__wrapped__(form, form.state, False))  # type: ignore[attr-defined]
    assert (form.machine, [remark.message for remark in form.remarks]) == (TWO_GPUS, ["slow", "no GPU"])
    assert (app.told, form.did) == ([f"{form.refusal} (error)"], ["remarks"])


def test_a_running_run_is_named_with_the_key_that_shows_it_and_a_description_can_be_undone(
    form: Form, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    form.offer("r1 cnn\x1b")
    assert app.told == ["A run is running: r1 cnn?; F3 shows it"]
    monkeypatch.setattr(Form, "_show_title", lambda form: form.did.append("title"))
    form.side.read_file = lambda: form.did.append("file")  # type: ignore[method-assign]
    before = form.state.description
    describe = Form.action_describe.__wrapped__  # type: ignore[attr-defined]
    for answer, description in ((None, before), ("another", "another"), ("another", "another")):
        app.answers = [answer]
        asyncio.run(describe(form))
        assert form.state.description == description
    assert [field.text for field in app.fields] == [before, before, "another"]
    assert [act.what for act in form.history.done] == ["the description"]
    assert form.did == ["title", "file"] * 2


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
            assert (area.text, "128" in area.text) == (screen.text(), True), "with what is not saved"
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
