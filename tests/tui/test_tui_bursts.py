"""Keys that arrive together: each goes to what the one before opened, or does nothing, never to what lies beneath."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.tui.app import GputuiApp
from gputui.tui.screens.dialogs import SEEN_AFTER_SECONDS, Ask, ChoiceScreen
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.presets.screen import PresetsScreen
from gputui.tui.screens.runs.run_table import ColumnsScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.screens.tune.limits_dialog import TuneDialog
from gputui.tui.upstream import typeahead
from gputui.tui.widgets.limit_rows import Words
from gputui.tui.widgets.log_view import LogLines
from gputui.tui.widgets.option_row import OptionRow
from textual._xterm_parser import XTermParser
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support import recorded
from tests.support.bursts import DOWN, END, ENTER, ESCAPE, F4, F6, LEFT, PALETTE, answered, burst, paste
from tests.support.form_pilot import SMALL, each_anew, form, go, opened, told
from tests.support.terminal import Terminal, needs_tmux, terminal
from tests.support.tiny import wait_for

SEEDS = (None, 1)  # at once, and cut at random places
EVERY_COMMAND = "trdaspcyeoxnuSRDMTzvwmlfFIbUEC<>"  # letters that do something on one screen or another


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


async def a_search_in_the_form(pilot: Pilot[None], started: list[str]) -> None:
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


async def numbers_on_rows(pilot: Pilot[None]) -> None:
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


async def a_choice(pilot: Pilot[None]) -> None:
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
        await pilot.press("left", "enter")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ChoiceScreen))
        await answered(pilot)
        await burst(pilot, "t", ENTER, seed=seed)  # a letter goes to the word that begins with it
        await answered(pilot)
        assert form(pilot).state.texts[row.key] == "transformer"
        await pilot.press("u")
        await answered(pilot)


async def wrong_values_are_told_and_started_by_no_key(pilot: Pilot[None], started: list[str]) -> None:
    """What is written in one packet with the key that starts: the value is taken, refused, and corrected."""
    start_key = "\x12"
    state = form(pilot).state
    for seed, key, wrong, said, right in (
        (None, "input.batch_size", "0", "a whole number from 1", "256"),
        (1, "train.learning_rate", "1e", "a number", "1e-3"),
        (2, "device.logical_devices", "-3", "a whole number from 1 to 16", "2"),
    ):
        await go(pilot, key)
        await burst(pilot, wrong, ENTER, start_key, seed=seed)
        await answered(pilot)
        assert said in state.errors[key], key
        assert not started, key
        await go(pilot, key)
        await burst(pilot, right, ENTER, seed=seed)
        await answered(pilot)
        assert not state.errors, key
        assert state.texts[key] == right
        await burst(pilot, wrong, ESCAPE, seed=seed)  # what was there before comes back
        await answered(pilot)
        assert (state.errors, state.texts[key]) == ({}, right), key
    await burst(pilot, start_key)
    await wait_for(pilot, lambda: started == ["start"])


async def test_what_is_written_in_the_form(started: list[str]) -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, partial(a_search_in_the_form, started=started)),
            (SMALL, numbers_on_rows),
            (SMALL, a_choice),
            (SMALL, partial(wrong_values_are_told_and_started_by_no_key, started=started)),
        )


async def dialogs_that_ask_for_text(pilot: Pilot[None], tmp_path: Path, started: list[str]) -> None:
    for seed in SEEDS:
        await burst(pilot, f"etraining, rare{seed}", ENTER, "r", seed=seed)
        await answered(pilot)
        assert form(pilot).state.description.endswith(f"training, rare{seed}")
        await burst(pilot, f"Sstart{seed}", ENTER, "r", seed=seed)
        await answered(pilot)
        assert (tmp_path / f"config/gputui/presets/start{seed}.yaml").exists()
        assert not started


async def the_palette(pilot: Pilot[None], started: list[str]) -> None:
    for seed in SEEDS:
        await burst(pilot, PALETTE, "doctor rs", seed=seed)
        await answered(pilot)
        assert isinstance(pilot.app.screen, CommandPalette)
        assert pilot.app.screen.query_one(Input).value == "doctor rs"
        await pilot.press("escape")
        await answered(pilot)
        assert len(pilot.app.screen_stack) == 1
    assert not started


async def escape_leads_where_one_knows(pilot: Pilot[None], started: list[str]) -> None:
    """What follows it is meant; what follows a letter that did nothing belongs to that."""
    for seed in SEEDS:
        await burst(pilot, "/batch", ESCAPE, "/cache", seed=seed)
        await answered(pilot)
        assert form(pilot).query_one("#search", Input).value == "cache"
        await burst(pilot, ENTER, *"/rate", ENTER, "S", seed=seed)
        await answered(pilot)
        assert pilot.app.screen is form(pilot)
        assert isinstance(form(pilot).focused, OptionRow)
        await pilot.press("escape")
        await answered(pilot)
    assert not started


async def screens(pilot: Pilot[None], home: Path, started: list[str]) -> None:
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)
    for opens in ("?", "o", F4, F6):
        for seed in SEEDS:
            await burst(pilot, opens, EVERY_COMMAND, seed=seed)
            await answered(pilot)
            assert not started
            assert left(home) == 1
            assert not isinstance(pilot.app.screen, Ask)
            assert len(pilot.app.screen_stack) == 2
            for _ in range(2 if opens == "o" else 1):  # out of what was typed into its field, then out of it
                await pilot.press("escape")
                await answered(pilot)
            assert pilot.app.screen is form(pilot)
    await burst(pilot, F4, "C")  # a single letter means the place whose key it follows
    await answered(pilot)
    assert isinstance(pilot.app.screen, ColumnsScreen)


class Impatient(GputuiApp):
    """Its terminal has sent keys before there is a single widget."""

    typed: tuple[str, ...] = ()

    def get_default_screen(self) -> FormScreen:
        driver, parser = self._driver, XTermParser()
        assert driver is not None
        for event in (event for key in self.typed for event in parser.feed(key)):
            driver.process_message(event)
        return self.form


async def test_what_is_written_before_the_form_is_there(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that move and values of rows act as they would later, commands that nobody could have seen do nothing."""
    monkeypatch.setattr(typeahead, "LIMIT_SECONDS", 60.0)  # a busy machine may take long to start
    for typed, focused, value in (
        ((END, *["\x1b[A"] * 3, "6", "4", ENTER), "notify.command", "64"),
        ((END, "/", *"batch", ENTER), "notify.when", ""),
        ((*[DOWN] * 6, "6", "4", ENTER), "input.batch_size", "64"),
        (("/", *"batch", ENTER, "6", "4", ENTER, "r"), "precision.policy", "float32"),
    ):
        app = Impatient()
        app.typed = typed
        async with opened((120, 40), app) as pilot:
            await answered(pilot)
            assert isinstance(app.focused, OptionRow), typed
            assert (app.focused.key, app.form.state.texts[focused]) == (focused, value), typed
            assert not app.form.query_one("#search", Input).display, typed
            assert not started, typed


async def test_what_is_opened_over_the_form(tmp_path: Path, started: list[str], home: Path) -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, partial(dialogs_that_ask_for_text, tmp_path=tmp_path, started=started)),
            (SMALL, partial(the_palette, started=started)),
            (SMALL, partial(escape_leads_where_one_knows, started=started)),
            (SMALL, partial(screens, home=home, started=started)),
        )


async def the_filter_of_the_runs(pilot: Pilot[None], home: Path) -> None:
    for seed in SEEDS:
        await burst(pilot, "/diverge", ENTER, *"dd", seed=seed)
        await answered(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        assert screen.query_one("#filter", Input).value == "diverge"
        await pilot.press("escape")
        await answered(pilot)
    assert left(home) == 3


async def a_question_is_not_answered_unread(pilot: Pilot[None], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ask, "seen_after_seconds", SEEN_AFTER_SECONDS)
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
        await burst(pilot, "o", DOWN, DOWN, *"dS")
        await answered(pilot)
        assert isinstance(pilot.app.screen, PresetsScreen)
        assert (own / "aaa.yaml").exists()


async def a_paste_is_never_a_command(pilot: Pilot[None], home: Path, started: list[str]) -> None:
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


async def test_keys_in_the_table_of_runs(home: Path, started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with runs_seen(home) as pilot:
        await the_filter_of_the_runs(pilot, home)
        with monkeypatch.context() as patched:
            await a_question_is_not_answered_unread(pilot, home, patched)
        await a_paste_is_never_a_command(pilot, home, started)


def read(window: Terminal, *texts: str) -> None:
    """See it, and react no sooner than a person can, when nothing more comes."""
    window.shows(*texts)
    window.still()


@needs_tmux
def test_bursts_in_a_real_terminal(home: Path) -> None:
    """What is written arrives in one packet, and sequences in pieces."""
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)
    with terminal(size=(80, 24), GPUTUI_WARM="0") as window:
        read(window, "quickstart", "global batch")
        window.write("/train")
        window.shows("\n train\n", "train.epochs")
        window.type("Escape")
        read(window, "In what number formats")
        window.write("/batch_size")
        window.type("Enter")
        window.write("256")
        window.type("Enter")
        window.shows("global batch 256")
        window.send(b"\x1b[2", b"4~", pause=0.3)  # longer than Textual waits for the rest
        window.type("F4")
        read(window, "1 of 1 run")
        window.write("/diverge\r")
        window.shows("diverge", "0 of 1 run")
        window.type("Escape")
        read(window, "1 of 1 run")
        window.write("ddd")
        read(window, "Delete", "Keep")
        window.type("Escape", "F2")
        window.shows("global batch 256")
        assert left(home) == 1
        window.type("C-q", "d")
        read(window, "Discard")
        window.type("d")
        window.shows("exit code 0")


async def test_a_question_is_answered_by_the_first_key_after_it_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no key has opened it, but work in the background."""
    monkeypatch.setattr(Ask, "seen_after_seconds", SEEN_AFTER_SECONDS)
    answers: list[str | None] = []
    async with opened() as pilot:
        pilot.app.push_screen(Ask("Wait?", ("Wait for it", "Measure anyway", "Cancel")), answers.append)
        await wait_for(pilot, "Measure anyway")
        await pilot.pause(SEEN_AFTER_SECONDS)
        await burst(pilot, "m")
        await answered(pilot)
        assert answers == ["Measure anyway"]


async def test_keys_that_could_not_be_used_are_named_and_let_nothing_else_act(
    started: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The key of the palette is dropped, as what went on before it took too long: the word for it saves nothing."""
    async with opened() as pilot:
        with monkeypatch.context() as short:
            short.setattr(typeahead, "LIMIT_SECONDS", 0.3)
            short.setattr(typeahead, "PAUSE_SECONDS", 60.0)  # as the burst may come late
            form(pilot).call_later(asyncio.sleep, 1.0)
            await burst(pilot, DOWN, PALETTE)
            await wait_for(pilot, lambda: "was not used" in told(pilot))
            await burst(pilot, *"scaling", ENTER)
            await wait_for(pilot, lambda: "were not used" in told(pilot))
        await answered(pilot)
        assert pilot.app.screen is form(pilot)
        assert told(pilot) == '8 keys were not used ("scaling enter") - press again'
        assert not started
        assert not (tmp_path / "config/gputui/presets").exists()
        await pilot.press("ctrl+p")  # again
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))


async def test_a_key_that_the_application_reads_late_is_not_for_what_has_opened_meanwhile(home: Path) -> None:
    async with runs_seen(home, 2) as pilot:
        typed_at = time.monotonic()
        await pilot.press("escape")
        pilot.app.push_screen(RunsScreen())
        await wait_for(pilot, "2 of 2 runs")
        driver = pilot.app._driver
        assert driver is not None
        for event in XTermParser().feed("d"):
            event.time = typed_at
            driver.process_message(event)
        await answered(pilot)
        assert isinstance(pilot.app.screen, RunsScreen)
        await wait_for(pilot, lambda: "the key d was not used" in told(pilot))


async def test_a_key_that_is_held_down_acts_again_soon_after_it_had_no_effect() -> None:
    async with opened() as pilot:
        driver, place = pilot.app._driver, form(pilot).focused
        assert driver is not None
        for number in range(16):
            (event,) = XTermParser().feed(DOWN)
            event.time += number * 0.05  # as a terminal repeats it
            if number == 0:
                pilot.app.typeahead.refuse(event)  # type: ignore[attr-defined]
            else:
                driver.process_message(event)
        await answered(pilot)
        assert form(pilot).focused is not place
        assert "keys were not used" in told(pilot)


async def test_a_value_that_was_started_is_not_taken_back(started: list[str]) -> None:
    async with opened() as pilot:
        await go(pilot, "input.batch_size")
        await burst(pilot, "128", "\x12")
        await wait_for(pilot, lambda: started == ["start"])
        await pilot.press("escape")
        await answered(pilot)
        assert form(pilot).state.texts["input.batch_size"] == "128"


async def test_what_is_typed_over_the_boxes_of_the_search_starts_and_switches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only Enter starts; ticks that were changed before Escape are not those of the next search."""
    begun: list[Any] = []
    monkeypatch.setattr("gputui.tui.screens.tune.limits_dialog.search_request", lambda *given: begun.append(given))
    async with opened((120, 40)) as pilot:
        await pilot.press("T")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, TuneDialog))
        dialog = pilot.app.screen
        await pilot.pause(SEEN_AFTER_SECONDS)
        await pilot.press("down")
        boxes = dialog.query_one("#only", Words)
        before = set(boxes.chosen)
        await burst(pilot, *"cache xla r and batch", seed=1)
        await answered(pilot)
        assert (pilot.app.screen, boxes.chosen, begun) == (dialog, before, [])
        assert "were not used" in told(pilot)
        await pilot.press("space")
        assert boxes.chosen != before
        await pilot.press("escape", "T")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, TuneDialog))
        assert pilot.app.screen is not dialog
        assert pilot.app.screen.query_one("#only", Words).chosen == before


@pytest.mark.slow
def test_keys_on_a_machine_that_is_slow_by_chance() -> None:
    """A few of what benchmarks/busy.py does by the hundreds."""
    program = Path(__file__).parents[2] / "benchmarks/busy.py"
    words = [sys.executable, str(program), "--starts", "1", "--bursts", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
