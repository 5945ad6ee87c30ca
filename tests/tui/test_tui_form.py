"""The form and the screens around it, driven by Textual's pilot at 80x24 and 120x40. Nothing here trains."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks, presets, runs
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.options import OPTIONS
from gputui.engine.process import launch
from gputui.tui.app import GputuiApp
from gputui.tui.form.form_state import INFO, FormState
from gputui.tui.screens.dialogs import ChoiceScreen
from gputui.tui.widgets.findings import Findings
from gputui.tui.widgets.option_help import help_text
from gputui.tui.widgets.option_row import OptionRow
from gputui.tui.widgets.start_bar import BESIDE, BRIEFEST, outlook
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static
from textual.worker import WorkerState

from tests.support.environments import VERSIONS, stand_in
from tests.support.form_pilot import (
    LARGE,
    NO_GPU,
    SIZES,
    SMALL,
    TWO_GPUS,
    anew,
    calm,
    each_anew,
    finished,
    form,
    go,
    opened,
    seen,
    settled,
    told,
    write,
)
from tests.support.tiny import wait_for


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], None]:
    """The machine that the form sees; one without a GPU if not said otherwise."""

    def be(what: Machine) -> None:
        monkeypatch.setattr(this_machine, "read", lambda: what)

    monkeypatch.delenv("NO_COLOR", raising=False)
    be(NO_GPU)
    return be


# ---- looking -------------------------------------------------------------------------------------


async def the_form_shows_options_help_and_start(pilot: Pilot[None]) -> None:
    for size in SIZES:
        await pilot.resize_terminal(*size)
        await settled(pilot)
        text = seen(pilot)
        for part in (
            "quickstart",
            "precision",
            "calls keras.mixed_precision",
            "Start",
            "global batch 32",
            *("policy", "xla", "steps_per_execution", "batch_size"),  # what most people change first
        ):
            assert part in text, (part, size)
        assert "4 CPU cores (no GPU: no NVIDIA driver" in text


async def any_size_while_it_runs(pilot: Pilot[None]) -> None:
    for width, height in ((200, 60), (30, 8), (1, 1), (40, 10), (1, 1), (80, 24)):
        await pilot.resize_terminal(width, height)
        await pilot.pause()
        seen(pilot)
        if width in (40, 80, 200):
            for row in (OPTIONS[-1].key, OPTIONS[0].key):
                await go(pilot, row)
                assert form(pilot).options.rows[row].has_focus, (width, height)


@pytest.mark.parametrize("width", [40, 78])
def test_every_option_has_its_help(width: int) -> None:
    state = FormState.open(presets.SHIPPED / "quickstart.yaml")
    for key, info in INFO.items():
        lines = str(help_text(key, state, "", (), width)).split("\n")
        assert max(map(len, lines)) <= width
        assert all(line[:9].strip() == "" or line[8] == " " for line in lines[1:]), "names in a column of their own"
        text = "".join("".join(line[at:] for at, line in zip([0, *[9] * len(lines)], lines, strict=False)).split())
        for part in (key, info.about.call, info.about.help, info.about.helps, info.about.hurts):
            assert "".join(part.split()) in text


async def the_help_follows_the_focus(pilot: Pilot[None]) -> None:
    for key in ("train.seed", "input.prefetch"):
        await go(pilot, key)
        assert key in str(form(pilot).query_one("#help", Static).content)


async def marks_are_signs_and_not_only_colours(pilot: Pilot[None]) -> None:
    row = await go(pilot, "input.batch_size")
    assert "* batch_size" in seen(pilot)
    await pilot.pause()
    focused = row.styles.background
    await write(pilot, "77")  # the row that is written on is marked like the one with the focus
    plain = form(pilot).options.rows["input.shuffle"].styles.background
    await wait_for(pilot, lambda: row.styles.background == focused != plain)
    await pilot.press("enter", "down")
    await wait_for(pilot, lambda: row.styles.background == plain)
    await pilot.press("up")
    assert ">+ batch_size" in seen(pilot).replace(">+", ">+ ").replace("  ", " ")
    assert "default  64 samples; in quickstart: 32" in seen(pilot)


async def gpu_options_are_greyed_with_the_reason(pilot: Pilot[None]) -> None:
    row = await go(pilot, "device.memory_growth")
    assert row.locked == NO_GPU.no_gpu_reason
    assert "no GPU" in str(row.render())
    assert "does nothing here" in str(form(pilot).query_one("#help", Static).content)


async def test_the_form_is_looked_at() -> None:
    """Its parts in any size, the help that follows the focus, marks, and what does nothing here."""
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, the_form_shows_options_help_and_start),
            ((40, 10), any_size_while_it_runs),
            (SMALL, the_help_follows_the_focus),
            (LARGE, marks_are_signs_and_not_only_colours),
            (LARGE, gpu_options_are_greyed_with_the_reason),
        )


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
    assert "global batch 20 (of your code)  on" in outlook(mirrored, TWO_GPUS, own_batch=20)
    parts = presets.resolve("quickstart", ["strategy.kind=mirrored", "logical_devices=3"]).options
    assert checks.replicas(parts, NO_GPU) == 3
    silent = replace(NO_GPU, missing="there is no NVML")  # CUDA may show GPUs nevertheless
    assert "on the GPUs that CUDA finds; no details: there is no NVML" in outlook(mirrored, silent)
    brief = [outlook(mirrored, machine, BRIEFEST) for machine in (NO_GPU, silent, TWO_GPUS)]
    assert all(len(said) <= 80 - BESIDE for said in brief), brief  # on a terminal of 80 columns none is cut
    assert brief[0].endswith("CPU cores (no GPU)")


# ---- changing ------------------------------------------------------------------------------------


async def a_number_is_written_over(pilot: Pilot[None]) -> None:
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


async def escape_takes_back_what_was_written(pilot: Pilot[None]) -> None:
    await go(pilot, "workload.data")
    await pilot.press("enter")
    await write(pilot, "mnist")
    await pilot.press("escape")
    await pilot.pause()
    assert form(pilot).state.texts["workload.data"] == "digits"
    assert not form(pilot).options.rows["workload.data"].children


async def arrows_end_the_writing_and_move_on(pilot: Pilot[None]) -> None:
    await go(pilot, "workload.data")
    await pilot.press("enter")
    await write(pilot, "mnist")
    await pilot.press("down")
    await pilot.pause()
    assert form(pilot).state.texts["workload.data"] == "mnist"
    assert form(pilot).options.rows["workload.shape"].has_focus
    assert not form(pilot).options.rows["workload.data"].children


async def letters_are_commands_only_while_nothing_is_written(pilot: Pilot[None]) -> None:
    await go(pilot, "workload.data")
    await pilot.press("enter")
    await write(pilot, "npz:/o/r/s.npz")
    assert form(pilot).state.texts["workload.data"] == "npz:/o/r/s.npz"
    assert pilot.app.screen is form(pilot)


async def a_long_text_is_seen_while_it_is_written(pilot: Pilot[None]) -> None:
    """Beside its name there are 16 cells for it; what is wrong with it stands above it."""
    flags = "--xla_gpu_autotune_level=2 --xla_dump_to=/tmp/dump --wrong"
    row = await go(pilot, "compile.xla_flags")
    assert row.size.width - row.value_column < 20
    await pilot.press("enter")
    await write(pilot, flags)
    shown = seen(pilot).split("\n")
    at = next(number for number, line in enumerate(shown) if flags in line)
    assert "xla_flags" in shown[at - 2]
    assert "'--xla" in shown[at - 1]
    await pilot.press(*["backspace"] * len(" --wrong"))
    flags = flags.removesuffix(" --wrong")
    shown = seen(pilot).split("\n")
    at = next(number for number, line in enumerate(shown) if flags in line)
    assert "xla_flags" in shown[at - 1]
    await pilot.press("enter")
    await pilot.pause()
    assert form(pilot).state.texts["compile.xla_flags"] == flags
    assert flags not in seen(pilot)


async def switches_and_words(pilot: Pilot[None]) -> None:
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


async def a_choice_opens_as_a_list(pilot: Pilot[None]) -> None:
    await go(pilot, "strategy.kind")
    await pilot.press("enter")
    await pilot.pause()
    assert isinstance(pilot.app.screen, ChoiceScreen)
    assert "single" in seen(pilot)
    assert "default" in seen(pilot)
    await pilot.press("down", "enter")
    await pilot.pause()
    assert form(pilot).state.texts["strategy.kind"] == "one_device"


async def the_mouse_changes_too(pilot: Pilot[None]) -> None:
    await pilot.click("#row-input-batch_size", offset=(30, 0))
    await pilot.pause()
    assert form(pilot).options.rows["input.batch_size"].children
    await pilot.press("escape")
    await go(pilot, "precision.policy")
    await pilot.click("#row-precision-tf32", offset=(27, 0))
    assert form(pilot).state.texts["precision.tf32"] == "false"
    await pilot.click("#row-precision-tf32", offset=(5, 0))
    assert form(pilot).state.texts["precision.tf32"] == "false"


@pytest.mark.timeout(600)  # nine forms
async def test_values_are_changed_by_keys_and_by_the_mouse() -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, a_number_is_written_over),
            (SMALL, escape_takes_back_what_was_written),
            (SMALL, arrows_end_the_writing_and_move_on),
            (SMALL, letters_are_commands_only_while_nothing_is_written),
            (SMALL, a_long_text_is_seen_while_it_is_written),
            (SMALL, switches_and_words),
            *((size, a_choice_opens_as_a_list) for size in SIZES),
            (LARGE, the_mouse_changes_too),
        )


# ---- errors, warnings and Start ------------------------------------------------------------------


async def a_wrong_value_is_told_below_and_start_is_greyed(pilot: Pilot[None]) -> None:
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


async def conflicts_are_listed_and_lead_to_their_option(pilot: Pilot[None]) -> None:
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
    (error,) = (remark for remark in form(pilot).remarks if remark.level == "error")
    told = str(form(pilot).query_one("#help", Static).render())
    assert " ".join(error.text.split()[:4]) in " ".join(told.split()), "also in its help"
    await pilot.press("f")
    await pilot.pause()
    assert form(pilot).focused is not None


async def the_form_and_presets_check_say_the_same(pilot: Pilot[None], file: Path, told: str) -> None:
    form(pilot).load(FormState.open(file))
    await settled(pilot)
    assert form(pilot).remarks
    for remark in form(pilot).remarks:
        assert str(remark) in told


async def start_is_refused_with_the_reason(pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "start", lambda preset: pytest.fail("started"))
    await go(pilot, "workload.data")
    await pilot.press("enter")
    await write(pilot, "nonsense")
    await pilot.press("enter", "home", "r")
    await pilot.pause()
    assert form(pilot).options.rows["workload.data"].has_focus
    assert pilot.app.screen is form(pilot)


async def what_only_the_disk_knows_is_checked_again_at_start(
    pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "start", lambda preset: pytest.fail("started"))
    form(pilot).state.set("workload.data", "npz:/no/such/file.npz")
    await pilot.press("r")
    await finished(pilot, "start")
    await pilot.pause()
    assert "there is no file" in form(pilot).refusal


async def test_what_is_wrong_is_told_and_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gputui.tui.commands import presets as presets_command

    monkeypatch.chdir(tmp_path)
    file = Path("wrong.yaml")  # a line with a longer place is shortened
    file.write_text("compile: {xla: true}\ntrain: {deterministic: true}\n")
    presets_command.check_presets([str(file)])
    checked = capsys.readouterr().err
    async with opened() as pilot:
        await each_anew(
            pilot,
            *((size, a_wrong_value_is_told_below_and_start_is_greyed) for size in SIZES),
            (SMALL, conflicts_are_listed_and_lead_to_their_option),
            (SMALL, partial(the_form_and_presets_check_say_the_same, file=file, told=checked)),
            (SMALL, partial(start_is_refused_with_the_reason, monkeypatch=monkeypatch)),
            (SMALL, partial(what_only_the_disk_knows_is_checked_again_at_start, monkeypatch=monkeypatch)),
        )


async def test_the_python_that_trains_is_told_in_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "environments" / "of-somebody-whose-folders-have-long-names"
    told = {"vision": VERSIONS, "older": VERSIONS | {"tensorflow": "2.17.1", "pip": "25.0"}}
    for name, versions in told.items():
        stand_in(folder / name / "bin" / "python", packages=versions)
    monkeypatch.setenv("GPUTUI_PYTHON", str(folder / "vision"))
    async with opened() as pilot:
        assert "run.python trains in .../vision: TensorFlow 2.20.0, Keras 3.12.0, Pyt" in seen(pilot)
        monkeypatch.setenv("GPUTUI_PYTHON", str(folder / "older"))
        await anew(pilot)
        text = seen(pilot)
        assert "cannot start  run.python: .../older: TensorFlow 2.17.1 is too old" in text
        command = f"{folder}/older/bin/python -m pip install 'tensorflow[and-cuda]>=2.18,<2.22'"
        assert command.replace(" ", "") in "".join(text.split()), "what is to be typed is whole"


async def test_start_launches_the_form_and_opens_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    shown: list[Any] = []

    def start(preset: Any) -> Any:
        started.append(preset)
        return runs.create("quickstart", presets.resolve("quickstart").to_yaml()), object()

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
        assert shown == runs.all_runs()
        assert not form(pilot).state.at_risk


async def test_a_run_folder_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path / "file"))
    async with opened() as pilot:
        await pilot.press("r")
        await finished(pilot, "start")
        await calm(pilot)
        assert "the run cannot be started" in told(pilot)


async def test_what_was_checked_is_not_shown_on_a_form_that_is_being_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told while the form's findings are still there, but the innermost widgets, such as its help, are not."""
    check, asked, answers = checks.on_screen, threading.Event(), threading.Event()

    def checked_late(*arguments: Any) -> Any:
        asked.set()
        assert answers.wait(60)
        return check(*arguments)

    async def told_before_it_goes(findings: Findings) -> None:
        screen = form(pilot)
        until = time.monotonic() + 60
        while screen.query("#help") and time.monotonic() < until:
            await asyncio.sleep(0.005)
        assert findings in screen.query(Findings)
        answers.set()
        while not workers[0].is_finished and time.monotonic() < until:
            await asyncio.sleep(0.005)
        left.append((bool(screen.query("#help")), workers[0].state, screen.checked is screen.state.preset))

    left: list[tuple[bool, WorkerState, bool]] = []
    async with opened() as pilot:
        monkeypatch.setattr(checks, "on_screen", checked_late)
        monkeypatch.setattr(Findings, "on_unmount", told_before_it_goes, raising=False)
        form(pilot).put({"train.epochs": "7"}, "epochs=7")
        await wait_for(pilot, asked.is_set)
        workers = [worker for worker in pilot.app.workers if worker.group == "checks"]
    assert left == [(False, WorkerState.SUCCESS, False)]
