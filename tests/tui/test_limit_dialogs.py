"""The dialogs of a search and a sweep: what they say of the fields, when they start, what the next one opens with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.presets import PresetError
from gputui.engine.presets.preset import Problem
from gputui.engine.runs import RunError
from gputui.engine.sweep import sweep_request
from gputui.engine.telemetry import chips
from gputui.engine.trials import sweep_sentences
from gputui.tui.form.form_state import FormState
from gputui.tui.form.search_limits import LimitTexts
from gputui.tui.form.sweep_texts import SweepTexts
from gputui.tui.screens import starting
from gputui.tui.screens.limits import LimitDialog
from gputui.tui.screens.proof import sweep_dialog
from gputui.tui.screens.proof.sweep_dialog import SweepDialog
from gputui.tui.screens.starting import Start
from gputui.tui.screens.tune import limits_dialog
from gputui.tui.screens.tune.limits_dialog import TuneDialog
from gputui.tui.widgets.limit_rows import Words
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, Label

from tests.support.answering import Answering
from tests.support.form_pilot import TWO_GPUS
from tests.support.tiny import Tiny, text_of, wait_for


@pytest.fixture
def state() -> FormState:
    return FormState.open(presets.SHIPPED / "quickstart.yaml")


class Starts:
    """What follows Enter in a dialog. `asked` has what was to be measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        self.choice = starting.START
        self.fault: Exception | None = None
        self.launch: Callable[[], Any] = lambda: ("proof", "process")
        monkeypatch.setattr(LimitDialog, "seen_after_seconds", 0.0)
        monkeypatch.setattr(limits_dialog, "search_request", self.request)
        monkeypatch.setattr(limits_dialog, "time_plan", lambda name: name)
        monkeypatch.setattr(limits_dialog, "buys", lambda plan, limits: f"{plan}: {limits.minutes:g}, {limits.only}")
        monkeypatch.setattr(starting, "new_measurement", self.measurement)
        monkeypatch.setattr(starting, "choice_if_busy", self.choose)

    def request(self, preset: Any, path: Any, limits: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        return preset.name, path.name, limits

    def measurement(self, _app: Any, title: str, request: Any) -> Start:
        self.asked.append((title, *request))
        return Start(title, lambda: "", lambda: self.launch(), lambda: "", measures=True)

    async def choose(self, _app: Any, _start: Start) -> str:
        return self.choice


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    return Starts(monkeypatch)


async def opened(pilot: Pilot[None], dialog: LimitDialog) -> list[Any]:
    """Open the dialog; its result."""
    results: list[Any] = []
    pilot.app.push_screen(dialog, results.append)
    await wait_for(pilot, lambda: dialog.query("#said"), 30)
    await pilot.pause()
    return results


def said(dialog: LimitDialog) -> str:
    label = dialog.query_one("#complaint", Label)
    return str(label.content) if label.display else ""


async def test_the_dialog_of_a_search_says_what_its_time_buys_and_starts_it_with_the_fields(
    state: FormState, starts: Starts
) -> None:
    async with Tiny(Screen).run_test(size=(80, 30)) as pilot:
        dialog = TuneDialog(state, LimitTexts(only={"xla", "input"}))
        results = await opened(pilot, dialog)
        buys, minutes = dialog.query_one("#buys", Label), dialog.query_one("#minutes", Input)
        await wait_for(pilot, lambda: str(buys.content) == "quickstart: 10, ['xla', 'input']", 30)
        for text, shown in (
            ("2.5", "quickstart: 2.5, ['xla', 'input']"), ("x", ""), ("", ""), ("7", "quickstart: 7, ['xla', 'input']"),
        ):  # fmt: skip
            minutes.value = text
            await wait_for(pilot, lambda shown=shown: str(buys.content) == shown, 30)  # type: ignore[misc]
        only = dialog.query_one("#only", Words)
        only.focus()
        await pilot.press("space")
        await wait_for(pilot, lambda: str(buys.content) == "quickstart: 7, ['batch_size', 'xla', 'input']", 30)
        dialog.query_one("#largest_batch", Input).value = "many"
        await pilot.press("enter")
        assert said(dialog) == "the largest batch must be a whole number from 1 on, not 'many'"
        assert dialog.focused is dialog.query_one("#largest_batch")
        dialog.query_one("#largest_batch", Input).value = "64"
        for fault in (
            PresetError([Problem("mine.yaml", 3, "", "no such option")]),
            RunError("no GPU"),
            OSError("no disk"),
            ValueError("no batch"),
        ):
            starts.fault = fault
            await pilot.press("enter")
            await wait_for(pilot, lambda fault=fault: said(dialog) == str(fault), 30)  # type: ignore[misc]
        starts.fault, starts.choice = None, starting.CANCEL
        await pilot.press("enter")
        await wait_for(pilot, lambda: said(dialog) == "", 30)
        assert (results, dialog.waits, dialog.is_current) == ([], False, True)
        starts.choice, starts.asked = starting.MEASURE, []
        for name, text in (("memory_gb", "2"), ("leave", "cache, xla"), ("warmup_steps", "5")):
            dialog.query_one(f"#{name}", Input).value = text
        dialog.query_one("#precisions", Words).chosen = {"float32"}
        dialog.query_one("#learning_rate", Words).chosen = {"sqrt"}
        dialog.query_one("#allow_worse_loss", Words).chosen = {"allow"}
        await pilot.press("enter")
        await wait_for(pilot, lambda: results == [("proof", "process")], 30)
        texts = LimitTexts(
            "7", {"batch_size", "xla", "input"}, {"float32"}, largest_batch="64", memory_gb="2", leave="cache, xla",
            learning_rate="sqrt", warmup_steps="5", allow_worse_loss=True,
        )  # fmt: skip
        assert starts.asked == [("the search from quickstart", "quickstart", "quickstart.yaml", texts.limits())]
        assert dialog.texts == texts


async def test_the_dialog_of_a_sweep_says_what_it_costs_and_starts_it_with_all_of_its_fields(
    state: FormState, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def of_opened(preset: Any, path: Any, **parameters: Any) -> Any:
        given.append(parameters)
        return preset.name, path.name

    monkeypatch.setattr(sweep_request, "of_opened", of_opened)
    monkeypatch.setattr(sweep_request, "settings_of", lambda preset, **parameters: parameters)
    monkeypatch.setattr(sweep_sentences, "cost", lambda settings, seconds: f"{settings['seeds']} of {settings['over']}")
    monkeypatch.setattr("gputui.engine.proof.request.refuse", lambda *_: None)
    monkeypatch.setattr("gputui.engine.queue.adding.machine", lambda: None)
    monkeypatch.setattr(sweep_dialog, "PAUSE_SECONDS", 0.0)
    texts = {
        "over0": "learning_rate=1e-3,3e-3", "over2": "batch_size=16,32", "metric": "val_accuracy", "seeds": "2",
        "minutes": "7", "trials": "9", "halving": "3", "finalists": "4", "proof_seeds": "0", "parallel": "5",
    }  # fmt: skip
    async with Tiny(Screen).run_test(size=(80, 40)) as pilot:
        dialog = SweepDialog(state, SweepTexts.first(state.opened))
        results = await opened(pilot, dialog)
        buys = dialog.query_one("#buys", Label)
        dialog.query_one("#over0", Input).value = "learning_rate=1e-3,3e-3"
        await wait_for(pilot, lambda: str(buys.content) == "1 of ['learning_rate=1e-3,3e-3']", 30)
        dialog.query_one("#seeds", Input).value = "x"
        await wait_for(pilot, lambda: str(buys.content) == "", 30)
        for name, text in texts.items():
            dialog.query_one(f"#{name}", Input).value = text
        await wait_for(pilot, lambda: str(buys.content) == "2 of ['learning_rate=1e-3,3e-3', 'batch_size=16,32']", 30)
        dialog.query_one("#sampler", Words).chosen = {"random"}
        await pilot.press("enter")
        await wait_for(pilot, lambda: results == [("proof", "process")], 30)
    assert starts.asked == [("the sweep of quickstart", "quickstart", "quickstart.yaml")]
    assert given == [{
        "metric": "val_accuracy", "halve_from": 3, "seeds": 2, "minutes": 7, "sampler": "random", "most_trials": 9,
        "proof_seeds": 0, "finalists": 4, "parallel": 5, "over": ["learning_rate=1e-3,3e-3", "batch_size=16,32"],
    }]  # fmt: skip


async def test_the_dialog_of_a_sweep_opens_with_the_sampler_of_its_texts(state: FormState) -> None:
    texts = SweepTexts.first(state.opened)
    texts.others["sampler"] = "tpe"
    async with Tiny(Screen).run_test(size=(80, 40)) as pilot:
        dialog = SweepDialog(state, texts)
        await opened(pilot, dialog)
        assert dialog.query_one("#sampler", Words).chosen == {"tpe"}


async def test_while_a_measurement_is_started_nothing_else_is_and_a_failed_start_can_be_tried_again(
    state: FormState, starts: Starts
) -> None:
    goes_on, launched = threading.Event(), list[int]()

    def launch() -> Any:
        launched.append(1)
        goes_on.wait(60)
        if len(launched) == 1:
            raise RunError("no process")
        return "proof", "process"

    starts.launch = launch
    async with Tiny(Screen).run_test(size=(80, 30)) as pilot:
        dialog = TuneDialog(state, LimitTexts())
        results = await opened(pilot, dialog)
        await pilot.press("enter")
        await wait_for(pilot, lambda: launched, 30)
        await pilot.press("enter", "escape", "enter")
        assert (said(dialog), results, len(launched)) == ("checking ...", [], 1)
        goes_on.set()
        await wait_for(pilot, lambda: said(dialog) == "no process", 30)
        await pilot.press("enter")
        await wait_for(pilot, lambda: results == [("proof", "process")], 30)
        dialog = TuneDialog(state, LimitTexts())
        results = await opened(pilot, dialog)
        starts.choice = starting.WAIT
        await pilot.press("enter")
        await wait_for(pilot, lambda: results == [None], 30)
        assert (dialog.waits, len(launched)) == (True, 2)


async def test_the_dialogs_have_a_line_for_each_limit_through_which_up_and_down_go_in_a_circle(
    state: FormState, starts: Starts, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    monkeypatch.setattr(limits_dialog, "buys", lambda plan, limits: "this is what it buys")
    monkeypatch.setattr(sweep_dialog, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(sweep_sentences, "cost", lambda settings, seconds: "this is what it buys")
    written = []
    async with Tiny(Screen).run_test(size=(80, 40)) as pilot:
        for dialog, names in (
            (TuneDialog(state, LimitTexts()), ["minutes", "only", "precisions", "largest_batch", "memory_gb", "leave",
                                               "learning_rate", "warmup_steps", "allow_worse_loss"]),
            (SweepDialog(state, SweepTexts.first(state.opened)), [
                "over0", "over1", "over2", "metric", "seeds", "minutes", "sampler", "trials", "halving", "finalists",
                "proof_seeds", "parallel"]),
        ):  # fmt: skip
            await opened(pilot, dialog)
            await wait_for(pilot, "this is what it buys")
            written.append("\n".join(line.rstrip() for line in text_of(pilot.app).split("\n") if line.strip()))
            found = []
            for _ in range(len(names) + 1):
                found.append(dialog.focused.id if dialog.focused else None)
                await pilot.press("down")
            assert found == [*names, names[0]]
            await pilot.press("up", "up")
            assert dialog.focused is not None
            assert dialog.focused.id == names[-1]
            pilot.app.pop_screen()
    assert "\n".join(written) == snapshot


# ---- what the next dialog opens with --------------------------------------------------------------------


class Leaving(Answering):
    """Changes what a dialog has in its fields, then leaves it with a result."""

    waits = False

    async def push_screen_wait(self, screen: Any) -> Any:  # type: ignore[override]
        if isinstance(screen, TuneDialog):
            screen.texts.minutes = "99"
            screen.texts.only.add("nothing")
        else:
            screen.texts.over[0] = "seed=1,2"
            screen.texts.others["minutes"] = "99"
        screen.waits = self.waits
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("result", "waits", "kept"), [(None, False, False), (None, True, True), (("proof", "process"), False, True)]
)
def test_the_next_dialog_opens_with_what_the_last_one_has_started(
    state: FormState, result: Any, waits: bool, kept: bool
) -> None:
    app = Leaving(result, result, result)
    app.waits = waits
    texts = LimitTexts(minutes="5")
    before = deepcopy(texts)
    found = asyncio.run(limits_dialog.tune(app, state, texts))
    assert texts == before
    assert found == (replace(before, minutes="99", only={*before.only, "nothing"}) if kept else before)
    first = SweepTexts.first(state.opened)
    first.others["seeds"] = "4"
    unchanged = deepcopy(first)
    swept = asyncio.run(sweep_dialog.sweep(app, state, first))
    assert first == unchanged
    assert swept is not None
    assert (swept.others["seeds"], swept.over[0], swept.others["minutes"]) == (
        ("4", "seed=1,2", "99") if kept else ("4", unchanged.over[0], unchanged.others["minutes"])
    )
    none_yet = asyncio.run(sweep_dialog.sweep(app, state, None))
    assert (none_yet is not None) is kept
    assert app.opened == ([("proof", "proof")] * 3 if result else [])
    assert app.engines == (["process"] * 3 if result else [])


def test_the_dialog_of_another_preset_opens_with_its_own_sweep_and_a_wrong_block_is_said(state: FormState) -> None:
    other = replace(state.opened, name="other", sweep={"seeds": 3})
    texts = SweepTexts.first(state.opened)
    texts.others["seeds"] = "7"
    for opened_with, seeds in ((state.opened, "7"), (other, "3")):
        app = Leaving(("proof", "process"))
        state.opened = opened_with
        found = asyncio.run(sweep_dialog.sweep(app, state, texts))
        assert found is not None
        assert (found.others["seeds"], found.of) == (seeds, opened_with)
    app = Leaving()
    state.opened = replace(other, sweep={"seeds": 0})
    assert asyncio.run(sweep_dialog.sweep(app, state, texts)) is texts
    assert app.told == ["other: sweep.seeds: 0 does not fit: give a whole number from 1 to 100 (error)"]


def test_of_two_kinds_of_gpus_the_slower_one_decides_which_precisions_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chips, "cpu_multiplies_bfloat16", lambda: False)
    preset = presets.resolve("quickstart", ["device.visible=all", "strategy.kind=mirrored"])
    h100, other = TWO_GPUS.gpus
    for capability, fast in (((9, 0), ["mixed_float16", "mixed_bfloat16"]), ((7, 5), ["mixed_float16"]), (None, [])):
        here = replace(TWO_GPUS, gpus=(h100, replace(other, compute_capability=capability)))
        assert sorted(limits_dialog.fast_policies(preset, here)) == sorted(fast), capability
