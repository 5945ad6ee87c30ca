"""Keys that arrive together: each goes to what the one before opened, or does nothing, never to what lies beneath."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gputui.tui.app import GputuiApp
from gputui.tui.screens.choice import ChoiceScreen
from gputui.tui.screens.form import FormScreen
from gputui.tui.screens.live import LiveScreen
from gputui.tui.screens.presets import PresetsScreen
from gputui.tui.screens.questions import SEEN_AFTER_SECONDS, Ask
from gputui.tui.screens.runs import RunsScreen
from gputui.tui.widgets.log_view import LogLines
from gputui.tui.widgets.option_row import OptionRow
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support import recorded
from tests.support.bursts import DOWN, ENTER, ESCAPE, F4, F6, LEFT, PALETTE, answered, burst, paste
from tests.support.form_pilot import form, go, opened
from tests.support.terminal import Terminal, needs_tmux, terminal
from tests.support.tiny import wait_for

SEEDS = (None, 1)  # at once, and cut at random places
EVERY_COMMAND = "trdaspcyeoxnuS"  # letters that do something on one screen or another


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been done to trainings, instead of doing it."""
    from gputui.engine import runs
    from gputui.engine.process import launch

    done: list[str] = []

    def refuse(what: str) -> Any:
        def act(*given: Any, **named: Any) -> None:
            done.append(what)
            raise OSError(what)

        return act

    monkeypatch.setattr("gputui.tui.screens.starting.start", refuse("start"))
    monkeypatch.setattr(launch, "start", refuse("start"))
    monkeypatch.setattr(runs, "request_stop", refuse("stop"))
    return done


@asynccontextmanager
async def runs_seen(home: Path, count: int = 3) -> AsyncIterator[Pilot[None]]:
    """The table of runs over the form."""
    for number in range(count):
        recorded.write(home, name=f"20260921-1{number}0000-cnn", gpus=0, seconds=20)
    async with opened() as pilot:
        await pilot.press("f4")
        await wait_for(pilot, f"{count} of {count} runs")
        yield pilot


def left(home: Path) -> int:
    return len(list((home / "runs").glob("2026*")))


async def test_a_search_in_the_form(started: list[str]) -> None:
    async with opened() as pilot:
        for seed in SEEDS:
            await burst(pilot, "/train", seed=seed)
            await answered(pilot)
            assert form(pilot).query_one("#search", Input).value == "train"
            await burst(pilot, ENTER, *"reso", seed=seed)
            await answered(pilot)
            assert pilot.app.screen is form(pilot)
            assert not started
            await pilot.press("escape")
            await answered(pilot)


async def test_numbers_on_rows() -> None:
    async with opened() as pilot:
        for seed in SEEDS:
            await go(pilot, "input.batch_size")
            await burst(pilot, "256", seed=seed)
            await answered(pilot)
            assert form(pilot).state.texts["input.batch_size"] == "256"
            await pilot.press("escape")
            await go(pilot, "train.learning_rate")
            await burst(pilot, "1e-3", ENTER, "d", seed=seed)
            await answered(pilot)
            assert form(pilot).state.texts["train.learning_rate"] == "1e-3"
            assert form(pilot).state.texts["input.batch_size"] != "256"
            await burst(pilot, "/batch_size", ENTER, ENTER, "512", DOWN, "4", ESCAPE, seed=seed)
            await answered(pilot)
            assert form(pilot).state.texts["input.batch_size"] == "512"
            await pilot.press("escape", "escape")
            await go(pilot, "input.batch_size")
            await pilot.press("u")
            await answered(pilot)


async def test_a_choice() -> None:
    async with opened() as pilot:
        row = await go(pilot, "workload.model")
        words = row.info.choices
        for seed in SEEDS:
            at = words.index(form(pilot).state.texts[row.key])
            await burst(pilot, ENTER, *"rs", seed=seed)
            await answered(pilot)
            assert isinstance(pilot.app.screen, ChoiceScreen)
            await burst(pilot, ESCAPE, ENTER, DOWN, ENTER, seed=seed)
            await answered(pilot)
            assert form(pilot).state.texts[row.key] == words[at + 1]
            await pilot.press("left")


async def test_dialogs_that_ask_for_text(tmp_path: Path, started: list[str]) -> None:
    async with opened() as pilot:
        for seed in SEEDS:
            await burst(pilot, f"etraining, rare{seed}", ENTER, "r", seed=seed)
            await answered(pilot)
            assert form(pilot).state.description.endswith(f"training, rare{seed}")
            await burst(pilot, f"astart{seed}", ENTER, "r", seed=seed)
            await answered(pilot)
            assert (tmp_path / f"config/gputui/presets/start{seed}.yaml").exists()
            assert not started


async def test_the_palette(started: list[str]) -> None:
    async with opened() as pilot:
        for seed in SEEDS:
            await burst(pilot, PALETTE, "doctor rs", seed=seed)
            await answered(pilot)
            assert isinstance(pilot.app.screen, CommandPalette)
            assert pilot.app.screen.query_one(Input).value == "doctor rs"
            await pilot.press("escape")
            await answered(pilot)
            assert len(pilot.app.screen_stack) == 1
        assert not started


async def test_escape_leads_where_one_knows(started: list[str]) -> None:
    """What follows it is meant; what follows a letter that did nothing belongs to that."""
    async with opened() as pilot:
        for seed in SEEDS:
            await burst(pilot, "/batch", ESCAPE, "/cache", seed=seed)
            await answered(pilot)
            assert form(pilot).query_one("#search", Input).value == "cache"
            await burst(pilot, ENTER, *"/rate", ENTER, "a", seed=seed)
            await answered(pilot)
            assert pilot.app.screen is form(pilot)
            assert isinstance(form(pilot).focused, OptionRow)
            await pilot.press("escape")
            await answered(pilot)
        assert not started


async def test_screens(home: Path, started: list[str]) -> None:
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)
    async with opened() as pilot:
        for opens in ("?", "o", F4, F6):
            for seed in SEEDS:
                await burst(pilot, opens, EVERY_COMMAND, seed=seed)
                await answered(pilot)
                assert not started
                assert left(home) == 1
                assert not isinstance(pilot.app.screen, Ask)
                assert len(pilot.app.screen_stack) == 2
                await pilot.press("escape")
                await answered(pilot)


async def test_the_filter_of_the_runs(home: Path) -> None:
    async with runs_seen(home) as pilot:
        for seed in SEEDS:
            await burst(pilot, "/diverge", ENTER, *"dd", seed=seed)
            await answered(pilot)
            screen = pilot.app.screen
            assert isinstance(screen, RunsScreen)
            assert screen.query_one("#filter", Input).value == "diverge"
            await pilot.press("escape")
            await answered(pilot)
        assert left(home) == 3


async def test_a_question_is_not_answered_unread(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ask, "seen_after_seconds", SEEN_AFTER_SECONDS)
    async with runs_seen(home) as pilot:
        for seed in SEEDS:
            await burst(pilot, "d", *"ddk", LEFT, ENTER, seed=seed)
            await answered(pilot)
            assert isinstance(pilot.app.screen, Ask)
            await burst(pilot, ESCAPE, *"dd", seed=seed)
            await answered(pilot)
            assert isinstance(pilot.app.screen, Ask)
            await burst(pilot, ESCAPE, seed=seed)
            await answered(pilot)
            assert isinstance(pilot.app.screen, RunsScreen)
        assert left(home) == 3


async def test_the_log_of_a_run(home: Path, started: list[str]) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)
    async with GputuiApp(watch=run).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "step 80")
        for seed in SEEDS:
            await burst(pilot, "/service rd", seed=seed)
            await answered(pilot)
            assert pilot.app.screen.query_one("#log Input", Input).value == "service rd"
            await burst(pilot, ENTER, *"rds", seed=seed)
            await answered(pilot)
            assert isinstance(pilot.app.screen, LiveScreen)
            assert pilot.app.screen.query_one(LogLines).sought == "service rd"
            await pilot.press("escape")
            await answered(pilot)
            pilot.app.screen.query_one("#log Input", Input).value = ""
        assert not started


async def test_presets_are_not_deleted_by_what_was_typed_for_another_screen(tmp_path: Path) -> None:
    own = tmp_path / "config/gputui/presets"
    own.mkdir(parents=True)
    (own / "aaa.yaml").write_text("extends: quickstart\n")
    async with opened() as pilot:
        await burst(pilot, "o", DOWN, DOWN, *"xd")
        await answered(pilot)
        assert isinstance(pilot.app.screen, PresetsScreen)
        assert (own / "aaa.yaml").exists()


async def test_a_paste_is_never_a_command(home: Path, started: list[str]) -> None:
    async with runs_seen(home) as pilot:
        await paste(pilot, "delete\ndd\r")
        await answered(pilot)
        assert isinstance(pilot.app.screen, RunsScreen)
        await pilot.press("escape")
        await paste(pilot, "train\r")
        await answered(pilot)
        assert isinstance(pilot.app.screen, FormScreen)
        await burst(pilot, "/")
        await paste(pilot, "train")
        await answered(pilot)
        assert form(pilot).query_one("#search", Input).value == "train"
        assert not started
        assert left(home) == 3


def read(window: Terminal, *texts: str) -> None:
    """See it, and react no sooner than a person can."""
    window.shows(*texts)
    time.sleep(0.5)


@needs_tmux
def test_bursts_in_a_real_terminal(home: Path) -> None:
    """What is written arrives in one packet, and sequences in pieces."""
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)
    with terminal(size=(80, 24), GPUTUI_WARM="0") as window:
        read(window, "quickstart", "global batch")
        window.write("/train")
        window.shows("\n train\n", "workload")
        window.type("Escape")
        read(window, "tfrecord_input")
        window.write("/batch_size")
        window.type("Enter")
        window.write("256")
        window.type("Enter")
        window.shows("global batch 256")
        window.send(b"\x1b[2")
        time.sleep(0.3)  # longer than Textual waits for the rest
        window.send(b"4~")
        window.type("F4")
        read(window, "1 of 1 runs")
        window.write("/diverge\r")
        window.shows("diverge", "0 of 1 runs")
        window.type("Escape")
        read(window, "1 of 1 runs")
        window.write("ddd")
        read(window, "Delete", "Keep")
        window.type("Escape", "F2")
        window.shows("global batch 256")
        assert left(home) == 1
        window.type("C-q", "d")
        read(window, "Discard")
        window.type("d")
        window.shows("exit code 0")
