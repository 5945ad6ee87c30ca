"""The application: what it opens and puts into the form, what goes on without it, and what ends with it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from textual import constants
from textual.pilot import Pilot
from textual.screen import Screen

from tests.doors.engine import Liveness, Run, places, presets, resolving
from tests.doors.engine import presets_PresetError as PresetError
from tests.doors.tui import THEMES, Ended, GputuiApp, LiveScreen, watch
from tests.doors.tui import watch as run_watch
from tests.support import recorded
from tests.support.form_pilot import opened, told
from tests.support.recorded_proof import running, write_proof
from tests.support.tiny import text_of, wait_for

# ---- screens --------------------------------------------------------------------------------------------


def test_runs_of_other_machines_and_runs_that_have_ended_are_not_named_as_going_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = {"b": Liveness(engine=True), "c": Liveness(engine=True, host="other"), "d": Liveness(trainer=True)}
    monkeypatch.setattr(Run, "liveness", property(lambda run: alive.get(run.id, Liveness())))
    for name in "abcd":
        recorded.write(home, name=name, gpus=0, seconds=20)
    assert [run.id for run in GputuiApp().going_on()] == ["b"]


def test_only_proofs_that_measure_now_are_named_as_going_on(home: Path) -> None:
    for name, state in (("a", "stopped"), ("b", "done"), ("c", "failed")):
        write_proof(home, f"20260921-13000{name}-x", state=state)
    going_on = write_proof(home, "20260921-140000-x", **running())
    assert GputuiApp().measuring() == [going_on]


# ---- settings and pictures ------------------------------------------------------------------------------


async def test_faults_of_the_settings_are_said_or_counted_and_listed_in_the_palette() -> None:
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    for text, said in (
        ("", ""), ("a: 1\n", "there is no setting a"),
        ("a: 1\nkeys: {x: y}\n", "2 faults in settings.yaml: ctrl+p faults lists them"),
    ):  # fmt: skip
        path.write_text(text)
        async with opened() as pilot:
            commands = [command.title for command in pilot.app.get_system_commands(pilot.app.screen)]
            assert commands.count("Faults in the settings") == bool(said)
            messages = [message for message in told(pilot).splitlines() if "setting" in message]
            assert len(messages) == bool(said)
            assert said in "".join(messages)


@pytest.mark.parametrize(
    ("no_colour", "kept", "colours", "theme", "faults"),
    [
        ("1", "gputui", "truecolor", "monochrome", 0), ("", "", "truecolor", "monochrome", 0),
        (None, "gputui-light", "standard", "gputui-light", 0), (None, "", "truecolor", "gputui", 0),
        (None, "", "256", "gputui", 0), (None, "", "standard", "high-contrast", 0),
        (None, "", None, "high-contrast", 0),
        (None, "no-such", "truecolor", "gputui", 1), (None, "no-such", "standard", "high-contrast", 1),
    ],
)  # fmt: skip
def test_the_theme_of_the_start_suits_the_settings_or_the_colours_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, no_colour: str | None, kept: str, colours: str | None, theme: str, faults: int
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour is not None:
        monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(constants, "COLOR_SYSTEM", colours)
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text(f"theme: '{kept}'\n")
    app = GputuiApp()
    assert app.theme == theme
    known = ", ".join(each.name for each in THEMES)
    assert app.settings.problems == [f"{path}: there is no theme 'no-such'; known: {known}"] * faults


# ---- the terminal ---------------------------------------------------------------------------------------


def test_the_first_preset_is_what_its_file_says() -> None:
    assert json.loads(resolving.FIRST_AS_JSON.read_text()) == resolving.first_as_json(), "make docs writes it"
    assert resolving.first() == presets.resolve(str(resolving.FIRST))


def test_a_first_preset_whose_file_was_changed_is_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "quickstart.yaml"
    shutil.copy(resolving.FIRST, changed)
    changed.write_text(changed.read_text().replace("batch_size: 32", "batch_size: 48"))
    monkeypatch.setattr(resolving, "FIRST", changed)
    assert resolving.first().options.input.batch_size == 48
    changed.write_text("input: {batch_size: many}")
    with pytest.raises(PresetError, match="batch_size"):
        resolving.first()


PLACES = ("Form", "Live ▶1", "Runs", "GPUs", "Doctor")


def top(pilot: Pilot[Any]) -> str:
    """The first line of the screen."""
    return text_of(pilot.app).split("\n")[0]


async def test_the_header_has_the_places_counts_the_running_runs_and_can_be_clicked(home: Path) -> None:
    recorded.write(home, name="first", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    recorded.write(home, name="second", gpus=0, seconds=20)
    async with opened((80, 24)) as pilot:
        first = (await wait_for(pilot, "▌F2 Form▐ F3 Live ▶1  F4 Runs  F5 GPUs  F6 Doctor   quickstart")).split("\n")[0]
        for place in ("GPUs", "Runs", "Live", "Form"):
            await pilot.click(offset=(first.index(place) + 1, 0))
            marked = f"{place} ▶1▐" if place == "Live" else f"{place}▐"
            await wait_for(pilot, marked)
            await wait_for(pilot, lambda: all(name in top(pilot) for name in PLACES))
            first = top(pilot)
        pilot.app.open_compare([Run(home / "runs/first"), Run(home / "runs/second")])  # type: ignore[attr-defined]
        await wait_for(pilot, "F2 Form  F3 Live ▶1 ▌F4 Runs▐ F5 GPUs  F6 Doctor")  # where a comparison belongs


async def test_the_end_of_a_run_is_said_on_whatever_screen_one_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(run_watch, "SHOWN_SECONDS", 90.0)
    going_on = recorded.write(home, name="first", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    over = recorded.write(home / "later", name="first", gpus=0, seconds=20, outcome="oom")
    written: list[str] = []
    app = GputuiApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "▶1")
        app.run_watch._title = watch.TerminalTitle(written.append)
        await wait_for(pilot, lambda: written)
        await pilot.press("f4")
        await wait_for(pilot, "▌F4 Runs▐")
        for name in ("result.json", "status.json"):  # each of them whole, as it is read all the time
            over.file(name).replace(going_on.file(name))
        await wait_for(pilot, "first: out of memory")
        await wait_for(pilot, lambda: "▶" not in text_of(app))
        assert told(pilot).count("out of memory") == 1
        app.open_run(going_on)
        await wait_for(pilot, "✗ out of memory")
        app.clear_notifications()
        app.run_watch._show_end(Ended("first", going_on.id, "oom"))
        assert not app._notifications, "the screen shows it, and nothing lies over its keys"
    assert written == ["\x1b[22;2t\x1b]2;100 % first - gputui\x07", "\x1b]2;\x07\x1b[23;2t"]


async def to(pilot: Pilot[Any], key: str, kind: type[Screen[Any]]) -> Any:
    await pilot.press(key)
    await wait_for(pilot, lambda: type(pilot.app.screen) is kind)
    return pilot.app.screen


async def test_a_hidden_screen_takes_the_theme_and_the_size_when_it_is_shown(home: Path) -> None:
    recorded.write(home, gpus=1, seconds=100)
    async with opened((120, 40)) as pilot:
        live = await to(pilot, "f3", LiveScreen)
        await wait_for(pilot, "throughput")
        await to(pilot, "f2", type(pilot.app.screen_stack[0]))
        before = live.styles.background
        pilot.app.theme = next(theme.name for theme in THEMES if not theme.dark)
        await pilot.resize_terminal(200, 60)
        await to(pilot, "f3", LiveScreen)
        await wait_for(pilot, lambda: live.size == (200, 60))
        await wait_for(pilot, lambda: max(map(len, text_of(pilot.app).rstrip().split("\n"))) == 200)
        assert live.styles.background not in (before, None)
        assert live.styles.background == pilot.app.screen_stack[0].styles.background
