"""The form and the screens around it, driven by Textual's pilot at 80x24 and 120x40. Nothing here trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks, presets, runs
from gputui.engine.options import OPTIONS
from gputui.engine.process import launch
from gputui.engine.telemetry import machine
from gputui.engine.telemetry.machine import Machine
from gputui.tui.app import GputuiApp
from gputui.tui.form.state import INFO, FormState
from gputui.tui.screens.choice import ChoiceScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.screens.text import TextScreen
from gputui.tui.widgets.findings import Findings
from gputui.tui.widgets.option_help import help_text
from gputui.tui.widgets.option_row import OptionRow
from gputui.tui.widgets.start_bar import outlook
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static, TextArea

from tests.support.form_pilot import (
    NO_GPU,
    SIZES,
    TWO_GPUS,
    calm,
    finished,
    form,
    go,
    opened,
    seen,
    settled,
    told,
    write,
)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], None]:
    """The machine that the form sees; one without a GPU if not said otherwise."""

    def be(what: Machine) -> None:
        monkeypatch.setattr(machine, "read", lambda: what)

    monkeypatch.delenv("NO_COLOR", raising=False)
    be(NO_GPU)
    return be


# ---- looking -------------------------------------------------------------------------------------


async def test_the_form_shows_options_help_and_start() -> None:
    async with opened() as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await settled(pilot)
            text = seen(pilot)
            for part in ("quickstart", "workload", "model", "cnn", "calls keras.Model", "Start", "global batch 32"):
                assert part in text, size
            assert "4 CPU cores (no GPU: no NVIDIA driver" in text


async def test_any_size_while_it_runs() -> None:
    async with opened((40, 10)) as pilot:
        for width, height in ((200, 60), (30, 8), (120, 40), (1, 1), (40, 10), (1, 1), (80, 24), (1, 1), (200, 60)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            if width in (40, 80, 200):
                for row in (OPTIONS[-1].key, OPTIONS[0].key):
                    await go(pilot, row)
                    assert form(pilot).options.rows[row].has_focus, (width, height)


@pytest.mark.parametrize("width", [40, 78])
def test_every_option_has_its_help(width: int) -> None:
    state = FormState.open(presets.SHIPPED / "quickstart.yaml")
    for key, info in INFO.items():
        lines = str(help_text(key, state, "", (), width)).split("\n")
        assert max(map(len, lines)) <= max(width, len(info.about.call) + 6)
        text = " ".join(" ".join(lines).split())
        for part in (key, info.about.call, info.about.help, info.about.helps, info.about.hurts, "default"):
            assert part in text


async def test_the_help_follows_the_focus() -> None:
    async with opened() as pilot:
        for key in ("train.seed", "input.prefetch"):
            await go(pilot, key)
            assert key in str(form(pilot).query_one("#help", Static).content)


async def test_marks_are_signs_and_not_only_colours() -> None:
    async with opened((120, 40)) as pilot:
        await go(pilot, "input.batch_size")
        assert "* batch_size" in seen(pilot)
        await write(pilot, "77")
        await pilot.press("enter")
        assert ">+ batch_size" in seen(pilot).replace(">+", ">+ ").replace("  ", " ")
        assert "default 64" in seen(pilot)


async def test_gpu_options_are_greyed_with_the_reason() -> None:
    async with opened((120, 40)) as pilot:
        row = await go(pilot, "device.memory_growth")
        assert row.locked == NO_GPU.no_gpu_reason
        assert "no GPU" in str(row.render())
        assert "does nothing here" in str(form(pilot).query_one("#help", Static).content)


async def test_gpu_options_are_alive_beside_a_gpu(here: Callable[[Machine], None]) -> None:
    here(TWO_GPUS)
    async with opened((120, 40)) as pilot:
        row = await go(pilot, "device.memory_growth")
        assert row.locked == ""
        assert "2 x NVIDIA H100" in seen(pilot)
        await go(pilot, "device.visible")
        await pilot.press("right", "right")
        await settled(pilot)
        assert form(pilot).state.texts["device.visible"] == "all"
        await pilot.press("right")
        await settled(pilot)
        assert row.locked == "device.visible is none"


def test_the_global_batch_counts_replicas() -> None:
    mirrored = presets.resolve("quickstart", ["strategy.kind=mirrored"]).options
    assert checks.replicas(mirrored, TWO_GPUS) == 2
    assert "global batch 64 = 32 x 2 replicas" in outlook(mirrored, TWO_GPUS)
    parts = presets.resolve("quickstart", ["strategy.kind=mirrored", "logical_devices=3"]).options
    assert checks.replicas(parts, NO_GPU) == 3
    silent = replace(NO_GPU, missing="there is no NVML")  # CUDA may show GPUs nevertheless
    assert "on the GPUs that CUDA finds; no details: there is no NVML" in outlook(mirrored, silent)


# ---- changing ------------------------------------------------------------------------------------


async def test_a_number_is_written_over() -> None:
    async with opened() as pilot:
        await go(pilot, "input.batch_size")
        await write(pilot, "128")
        assert form(pilot).query_one(Input).id == "search"
        assert form(pilot).state.preset.options.input.batch_size == 128
        await pilot.press("enter")
        assert isinstance(pilot.app.focused, OptionRow)
        await pilot.press("u")
        assert form(pilot).state.texts["input.batch_size"] == "32"
        await pilot.press("d")
        assert form(pilot).state.texts["input.batch_size"] == "64"


async def test_escape_takes_back_what_was_written() -> None:
    async with opened() as pilot:
        await go(pilot, "workload.data")
        await pilot.press("enter")
        await write(pilot, "mnist")
        await pilot.press("escape")
        await pilot.pause()
        assert form(pilot).state.texts["workload.data"] == "digits"
        assert not form(pilot).options.rows["workload.data"].children


async def test_arrows_end_the_writing_and_move_on() -> None:
    async with opened() as pilot:
        await go(pilot, "workload.data")
        await pilot.press("enter")
        await write(pilot, "mnist")
        await pilot.press("down")
        await pilot.pause()
        assert form(pilot).state.texts["workload.data"] == "mnist"
        assert form(pilot).options.rows["workload.shape"].has_focus
        assert not form(pilot).options.rows["workload.data"].children


async def test_letters_are_commands_only_while_nothing_is_written() -> None:
    async with opened() as pilot:
        await go(pilot, "workload.data")
        await pilot.press("enter")
        await write(pilot, "npz:/o/r/s.npz")
        assert form(pilot).state.texts["workload.data"] == "npz:/o/r/s.npz"
        assert pilot.app.screen is form(pilot)


async def test_switches_and_words() -> None:
    async with opened() as pilot:
        await go(pilot, "compile.xla")
        await pilot.press("right")
        assert form(pilot).state.preset.options.compile.xla is True
        await go(pilot, "train.optimizer")
        await pilot.press("right")
        assert form(pilot).state.texts["train.optimizer"] == "adamw"
        await pilot.press("left", "left")
        assert form(pilot).state.texts["train.optimizer"] == "rmsprop"
        await go(pilot, "input.prefetch")
        await pilot.press("left")
        assert form(pilot).state.texts["input.prefetch"] == "off"


@pytest.mark.parametrize("size", SIZES)
async def test_a_choice_opens_as_a_list(size: tuple[int, int]) -> None:
    async with opened(size) as pilot:
        await go(pilot, "strategy.kind")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, ChoiceScreen)
        assert "single" in seen(pilot)
        assert "default" in seen(pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert form(pilot).state.texts["strategy.kind"] == "one_device"


async def test_the_mouse_changes_too() -> None:
    async with opened((120, 40)) as pilot:
        await pilot.click("#row-workload-width", offset=(30, 0))
        await pilot.pause()
        assert form(pilot).options.rows["workload.width"].children
        await pilot.press("escape")
        await pilot.click("#row-precision-tf32", offset=(27, 0))
        assert form(pilot).state.texts["precision.tf32"] == "false"
        await pilot.click("#row-precision-tf32", offset=(5, 0))
        assert form(pilot).state.texts["precision.tf32"] == "false"


# ---- errors, warnings and Start ------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_a_wrong_value_is_told_below_and_start_is_greyed(size: tuple[int, int]) -> None:
    async with opened(size) as pilot:
        await go(pilot, "input.batch_size")
        await write(pilot, "0")
        await pilot.pause()
        assert form(pilot).options.rows["input.batch_size"].size.height == 2
        assert "0 does not fit: give a whole number from 1" in seen(pilot)
        assert form(pilot).query_one("#start", Button).disabled
        assert "cannot start  input.batch_size" in seen(pilot)
        await pilot.press("backspace", "9", "enter")
        await pilot.pause()
        assert form(pilot).options.rows["input.batch_size"].size.height == 1
        assert not form(pilot).query_one("#start", Button).disabled


async def test_conflicts_are_listed_and_lead_to_their_option() -> None:
    async with opened() as pilot:
        for key in ("train.deterministic", "compile.xla"):
            await go(pilot, key)
            await pilot.press("right")
        await settled(pilot)
        levels = [remark.level for remark in form(pilot).query_one(Findings).remarks]
        assert levels == sorted(levels, key=("error", "warning", "note").index)
        assert levels[0] == "error"
        assert "cannot start" in seen(pilot)
        await go(pilot, "workload.model")
        await pilot.press("tab")
        assert form(pilot).query_one(Findings).has_focus
        await pilot.press("enter")
        await pilot.pause()
        assert form(pilot).options.rows["compile.xla"].has_focus
        await pilot.press("n")
        await pilot.pause()
        assert form(pilot).focused is not None


async def test_the_form_and_presets_check_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gputui.tui.commands import runs_and_presets

    monkeypatch.chdir(tmp_path)
    file = Path("wrong.yaml")  # a line with a longer place is shortened
    file.write_text("compile: {xla: true}\ntrain: {deterministic: true}\n")
    runs_and_presets.check_presets([str(file)])
    told = capsys.readouterr().err
    async with opened() as pilot:
        form(pilot).load(FormState.open(file))
        await settled(pilot)
        for remark in form(pilot).remarks:
            assert str(remark) in told


async def test_start_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "start", lambda preset: pytest.fail("started"))
    async with opened() as pilot:
        await go(pilot, "workload.data")
        await pilot.press("enter")
        await write(pilot, "nonsense")
        await pilot.press("enter", "home", "r")
        await pilot.pause()
        assert form(pilot).options.rows["workload.data"].has_focus
        assert pilot.app.screen is form(pilot)


async def test_what_only_the_disk_knows_is_checked_again_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "start", lambda preset: pytest.fail("started"))
    async with opened() as pilot:
        form(pilot).state.set("workload.data", "npz:/no/such/file.npz")
        await pilot.press("r")
        await finished(pilot, "start")
        await pilot.pause()
        assert "there is no file" in form(pilot).refusal


async def test_start_launches_the_form_and_opens_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.create("quickstart", presets.resolve("quickstart").to_yaml())
    started: list[Any] = []
    shown: list[Any] = []

    def start(preset: Any) -> Any:
        started.append(preset)
        return run, object()

    monkeypatch.setattr(launch, "start", start)
    monkeypatch.setattr(GputuiApp, "open_run", lambda self, run: shown.append(run))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    async with opened() as pilot:
        await go(pilot, "train.epochs")
        await write(pilot, "9")
        await pilot.press("enter", "r")
        await finished(pilot, "start")
        await pilot.pause()
        assert [preset.options.train.epochs for preset in started] == [9]
        assert "the run dies with the Slurm job step 12.0" in told(pilot)
        assert shown == [run]
        assert not form(pilot).state.at_risk


async def test_a_run_folder_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path / "file"))
    async with opened() as pilot:
        await pilot.press("r")
        await finished(pilot, "start")
        await calm(pilot)
        assert "the run cannot be started" in told(pilot)


# ---- searching and moving ------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_search_narrows_and_escape_shows_all(size: tuple[int, int]) -> None:
    async with opened(size) as pilot:
        await pilot.press("slash")
        await write(pilot, "jit_compile")
        await pilot.pause()
        shown = [row.key for row in list(form(pilot).options.rows.values()) if row.display]
        assert shown == ["compile.xla"]
        assert [h.id for h in form(pilot).query(".heading") if h.display] == ["heading-compile"]
        await pilot.press("enter")
        await pilot.pause()
        assert form(pilot).options.rows["compile.xla"].has_focus
        await pilot.press("escape")
        await pilot.pause()
        assert all(row.display for row in list(form(pilot).options.rows.values()))
        assert not form(pilot).query_one("#search").display


async def test_nothing_found_can_be_left() -> None:
    async with opened() as pilot:
        await pilot.press("slash")
        await write(pilot, "zzz")
        await pilot.press("enter", "down", "escape")
        await pilot.pause()
        assert all(row.display for row in list(form(pilot).options.rows.values()))
        assert isinstance(pilot.app.focused, OptionRow)


async def test_moving_through_the_form() -> None:
    async with opened() as pilot:
        await pilot.press("down", "j")
        assert form(pilot).options.rows["workload.data"].has_focus
        await pilot.press("pagedown")
        assert form(pilot).options.rows["device.visible"].has_focus
        await pilot.press("end")
        assert form(pilot).options.rows[OPTIONS[-1].key].has_focus
        await pilot.press("down", "home", "up")
        assert form(pilot).options.rows["workload.model"].has_focus


# ---- texts, help, foreign text -------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_yaml_command_and_code_are_one_key_away(size: tuple[int, int]) -> None:
    async with opened(size) as pilot:
        await go(pilot, "compile.xla")
        await pilot.press("right")
        for key, part in (("y", "schema_version: 1"), ("c", "--set compile.xla=true"), ("p", "import tensorflow")):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(pilot.app.screen, TextScreen)
            assert part in pilot.app.screen.query_one(TextArea).text
        await pilot.press("enter")
        assert "jit_compile=True" in pilot.app.clipboard
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.screen is form(pilot)


async def test_help_opens_and_closes() -> None:
    async with opened() as pilot:
        for key, size in (("question_mark", (80, 24)), ("f1", (80, 24)), ("question_mark", (120, 40))):
            await pilot.resize_terminal(*size)
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(pilot.app.screen, HelpScreen)
            assert "differs from the default" in seen(pilot)
            await pilot.press(key)
            await pilot.pause()
            assert not isinstance(pilot.app.screen, HelpScreen)


async def test_foreign_text_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "odd.yaml"
    file.write_text('description: "[red]not red[/] \\e[31m [/nothing]"\nworkload: {data: "npz:[b]/x[/b].npz"}\n')
    async with opened((120, 40)) as pilot:
        form(pilot).load(FormState.open(file))
        await settled(pilot)
        text = seen(pilot)
        assert "[red]not red[/] ?[31m [/nothing]" in text
        assert "npz:[b]/x[/b].npz" in text
        assert "there is no file [b]/x[/b].npz" in text
        await pilot.press("y")
        await pilot.pause()
        await pilot.press("escape", "r")
        await calm(pilot)


async def test_a_run_going_on_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.create("busy", presets.resolve("quickstart").to_yaml())
    async with opened() as pilot:
        await calm(pilot)
        assert run.id in told(pilot)
        assert "F3 shows it" in told(pilot)


async def test_the_form_behind_a_watched_run_is_built_when_it_is_looked_at() -> None:
    run = runs.create("seen", presets.resolve("quickstart").to_yaml())
    async with opened(app=GputuiApp(watch=run)) as pilot:
        assert pilot.app.screen is not form(pilot)
        assert not form(pilot).query(OptionRow)
        await pilot.press("f2")
        await settled(pilot)
        assert pilot.app.screen is form(pilot)
        assert len(form(pilot).query(OptionRow)) > 50
        assert form(pilot).focused is next(iter(form(pilot).options.rows.values()))


async def test_all_keys_of_the_footer_fit_at_80_columns() -> None:
    async with opened(size=(80, 24)) as pilot:
        await settled(pilot)
        last = seen(pilot).rstrip("\n").split("\n")[-1]
        assert last.rstrip().endswith("F4 Runs"), last
        assert all(word in last for word in ("r Start", "/ Search", "o Open", "s Save", "? Help", "F3 Live")), last


# ---- pictures ------------------------------------------------------------------------------------

Compare = Callable[..., bool]


def themed(name: str) -> GputuiApp:
    """The theme does not depend on the terminal that the tests run in."""
    app = GputuiApp()
    app.theme = name
    return app


def test_picture_of_the_form_at_80x24(snap_compare: Compare) -> None:
    assert snap_compare(themed("gputui"), terminal_size=(80, 24), run_before=settled)


def test_picture_of_errors_and_warnings_at_120x40(snap_compare: Compare) -> None:
    async def change(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await go(pilot, "compile.xla")
        await pilot.press("right")
        await go(pilot, "input.batch_size")
        await write(pilot, "0")
        await pilot.press("enter")
        await settled(pilot)

    assert snap_compare(themed("gputui"), terminal_size=(120, 40), run_before=change)


def test_picture_of_the_form_at_200x60(snap_compare: Compare) -> None:
    assert snap_compare(themed("high-contrast"), terminal_size=(200, 60), run_before=settled)
