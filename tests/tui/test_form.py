"""The form by its keys: finding, changing and undoing, what is wrong, and what starts a training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from tests.doors.engine import (
    Gpu,
    Machine,
    Preset,
    Run,
    home,
    launch,
    options_json,
    presets,
    run_numbers,
    runs,
    this_machine,
    titles,
)
from tests.doors.tui import Findings, FormState, GputuiApp, starting
from tests.support import recorded, recorded_proof
from tests.support.bursts import answered, burst
from tests.support.form_pilot import (
    NO_GPU,
    SMALL,
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
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)


# ---- errors, warnings and Start ------------------------------------------------------------------


async def the_form_and_presets_check_say_the_same(pilot: Pilot[None], file: Path, told: str) -> None:
    form(pilot).load(FormState.open(file))
    await settled(pilot)
    assert form(pilot).remarks
    for remark in form(pilot).remarks:
        assert str(remark) in told


async def what_only_the_disk_knows_is_checked_again_at_start(
    pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "start", lambda preset: pytest.fail("started"))
    form(pilot).state.set("workload.data", "npz:/no/such/file.npz")
    await pilot.press("r")
    await finished(pilot, "start")
    await pilot.pause()
    assert "there is no file" in form(pilot).refusal
    assert any("there is no file" in remark.text for remark in form(pilot).query_one(Findings).remarks)


async def code_that_is_mended_meanwhile_starts(pilot: Pilot[None], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(starting, "new_run", lambda app, preset: started.append(preset))

    async def not_launched(app: Any, start: Any) -> None:
        pass

    monkeypatch.setattr(starting, "ask_and_launch", not_launched)
    file.write_text("workload: {entry: 'train.py:build'}\n")
    code = file.with_name("train.py")
    code.write_text("")
    form(pilot).load(FormState.open(file))
    await settled(pilot)
    for text, starts in (("def build(): pass", 0), ("def build(context): pass", 1)):
        code.write_text(text)
        await pilot.press("r")
        await finished(pilot, "start")
        assert len(started) == starts, form(pilot).refusal


async def test_what_is_wrong_is_told_and_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.doors.tui import tui_cli as cli

    monkeypatch.chdir(tmp_path)
    file = Path("wrong.yaml")  # a line with a longer place is shortened
    file.write_text("compile: {xla: true}\ntrain: {deterministic: true}\n")
    cli.run(["presets", "check", str(file)])
    checked = capsys.readouterr().err
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, partial(the_form_and_presets_check_say_the_same, file=file, told=checked)),
            (SMALL, partial(what_only_the_disk_knows_is_checked_again_at_start, monkeypatch=monkeypatch)),
            (SMALL, partial(code_that_is_mended_meanwhile_starts, file=tmp_path / "own.yaml", monkeypatch=monkeypatch)),
        )


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


def scrolled(text: Widget, row: int) -> bool:
    return text.scroll_y == row


async def test_undo_and_the_list_of_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("compile: {xla: true}\ntrain: {seed: 3}\n")
    async with opened() as pilot:
        screen = form(pilot)
        texts = screen.state.texts
        for key in ("tab", "f", "F"):
            await pilot.press(key)
            await wait_for(pilot, lambda: told(pilot) == "no errors or warnings")
            pilot.app.clear_notifications()
        screen.put({"input.batch_size": "0", "train.epochs": "0", "train.seed": "x"}, "three wrong ones")
        at = ["input.batch_size", "train.epochs", "train.seed"]
        assert [remark.options[0] for remark in screen.remarks] == at
        for begin, key, to in (
            ("device.visible", "f", 0), (at[0], "f", 1), (at[2], "f", 0), ("device.visible", "F", 2), (at[0], "F", 2),
            (at[2], "F", 1),
        ):  # fmt: skip
            await go(pilot, begin)
            await pilot.press(key)
            assert screen.options.last_key == at[to], (begin, key)
        await pilot.press("tab")
        assert screen.query_one(Findings).has_focus
        await pilot.press("tab")
        assert screen.options.rows[at[1]].has_focus, "back where it was"
        await pilot.press("u")
        await wait_for(pilot, lambda: not screen.state.modified)
        pilot.app.clear_notifications()
        await go(pilot, "strategy.kind")
        text = screen.query_one("#help-scroll")
        await wait_for(pilot, lambda: text.max_scroll_y > 4)
        for key, row in (("right_square_bracket", 4), ("left_square_bracket", 0), ("right_square_bracket", 4)):
            await pilot.press(key)
            await wait_for(pilot, partial(scrolled, text, row))
        await go(pilot, "precision.policy")
        await wait_for(pilot, partial(scrolled, text, 0))  # the help of another option begins at its first line
        await pilot.press("c")
        assert "in the file" in await wait_for(pilot, "all saved  * 8 not"), "no heading is cut"
        pilot.app.set_keymap({"delete": "ctrl+e"})
        await pilot.press("space")
        assert told(pilot) == "that is how it stands in the file; ctrl+e sets it to the default"
        pilot.app.set_keymap({})
        pilot.app.clear_notifications()
        await pilot.press("escape")
        await go(pilot, "input.batch_size")
        await write(pilot, "128")
        await pilot.press("enter")  # all digits of a number are one step of undo
        await go(pilot, "strategy.kind")
        await pilot.press("right")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("128", "one_device")
        await pilot.press("u", "u")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("32", "single")
        await wait_for(pilot, lambda: screen.options.rows["input.batch_size"].has_focus)
        assert not screen.state.modified
        await pilot.press("u")
        await wait_for(pilot, lambda: "nothing to be undone" in told(pilot))
        await pilot.press("ctrl+y", "ctrl+y")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("128", "one_device")
        await pilot.press("U")
        await wait_for(pilot, "2 input.batch_size")
        await pilot.press("2")  # with all that was changed after it
        await wait_for(pilot, lambda: not screen.state.modified)
        await pilot.press("ctrl+y")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("128", "one_device")
        await pilot.press("c")
        shown = await wait_for(pilot, "2 not saved  * 9")
        lines = [line.split() for line in shown.split("\n") if line.startswith(" +")]
        assert lines == [["+", "input.batch_size", "128", "32", "64"],
                         ["+", "strategy.kind", "one_device", "single", "single"]]  # fmt: skip
        for key, count, kind in (("u", 0, "single"), ("ctrl+y", 2, "one_device")):
            await pilot.press(key)
            await wait_for(pilot, f"{count} not saved" if count else "all saved")
            assert texts["strategy.kind"] == kind
        await pilot.press("space")
        await wait_for(pilot, "1 not saved  * 9")
        await pilot.press("space", "d")
        await wait_for(pilot, "2 not saved  * 8")
        assert texts["input.batch_size"] == "64"
        await pilot.press("u", "down", "space")
        shown = await wait_for(pilot, "1 not saved  * 8")
        assert "strategy.kind " in shown, "it stays in its place, though it is the default and that of the file"
        await pilot.press("ctrl+y")
        await wait_for(pilot, lambda: "nothing to be done again" in told(pilot))  # as another change was made instead
        await pilot.press("d")
        assert "1 not saved" in seen(pilot), "it is the default"
        await pilot.press("space", "enter")
        assert texts["input.batch_size"] == "128"
        await wait_for(pilot, lambda: screen.options.rows["strategy.kind"].has_focus)

        screen.load(FormState.open(file))  # also the opening of a preset is undone, with what was not saved
        await settled(pilot)
        await pilot.press("u")
        await settled(pilot)
        assert screen.state.name == "quickstart"
        assert screen.state.texts["input.batch_size"] == "128"
        assert "undone: opening mine; the form now holds quickstart; ctrl+y takes that back" in told(pilot)
        await pilot.press("ctrl+y")
        await settled(pilot)
        assert screen.state.texts["train.seed"] == "3"
        await pilot.press("c")
        assert "mine" in await wait_for(pilot, "all saved  * 2 not")


async def test_a_restart_with_another_batch_size_takes_few_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the live view at most 8 with three digits, typed at once where a screen is open; a hint takes 2."""
    run = recorded.write(home, gpus=0, seconds=20, outcome="oom")
    launched: list[int] = []

    def start(preset: Preset, warm: object) -> tuple[Run, object]:
        launched.append(preset.options.input.batch_size)
        return run, object()

    monkeypatch.setattr(starting, "start", start)
    app = GputuiApp(opens=("live", run))
    async with app.run_test(size=(80, 24)) as pilot:
        for keys, size in (("a \r", 256), ("e /b\r128\x12", 128), ("\x1bOQ /b\r96\x12", 96)):
            await wait_for(pilot, "a puts batch_size=256 into the form")
            first, rest = keys.split(" ")
            assert len(rest) <= 7
            await burst(pilot, first)
            await wait_for(pilot, lambda: app.screen is app.form and app.form.focused)
            await settled(pilot)
            await answered(pilot)
            await burst(pilot, *rest)
            await wait_for(pilot, partial(launched.__contains__, size))


def ran(number: int, changes: Mapping[str, Any], speed: float, outcome: str = "ok", preset: str = "quickstart") -> None:
    """Write a run of a shipped preset that has ended; those with a higher number are newer."""
    settings = tuple(f"{key}={value}" for key, value in changes.items())
    run = recorded.write(
        home(), name=f"2026092{number}-100000-{preset}", gpus=0, seconds=72, samples_per_second=speed,
        outcome=outcome, settings=settings,
    )  # fmt: skip
    options = presets.resolve(preset, settings).options
    with run_numbers.file_of(run.path).open("a") as lines:
        lines.write(f"{run.id}\n")
    run.file(options_json.FILE).write_text(options_json.to_json(options))
    run.file(titles.FILE).write_text(titles.record(preset, "", {}))
    os.utime(run.file("preset.yaml"), (recorded.BEGAN + 86_400 * number,) * 2)


def table(pilot: Pilot[None], name: str) -> list[list[str]]:
    """Return the words of the lines below the heading of the last runs with the option of this name."""
    lines = [line.rpartition("│")[2].split() for line in seen(pilot).split("\n")]
    at = next((number for number, line in enumerate(lines) if line[:4] == [name, "in", "the", "last"]), len(lines))
    below = lines[at + 1 :]
    return below[: below.index([])] if [] in below else below


async def test_the_last_runs_with_an_option_and_its_gains_stand_next_to_the_help() -> None:
    ran(1, {}, 4_000.0)
    ran(2, {"input.batch_size": 128}, 8_000.0)
    ran(3, {"input.batch_size": 512, "compile.xla": "true"}, 900.0, outcome="oom")
    ran(4, {"input.batch_size": 128}, 9_800.0)
    ran(5, {"input.batch_size": 256}, 1.0, preset="fast")
    recorded_proof.write_proof(home())
    recorded_proof.write_proof(home(), "20260901-130000-quickstart", preset_name="quickstart")
    async with opened((200, 60)) as pilot:
        await go(pilot, "input.batch_size")
        await wait_for(pilot, lambda: len(table(pilot, "batch_size")) == 4)
        head, *rows = table(pilot, "batch_size")
        assert head == ["value", "samples/s", "val_accuracy", "when", "run", "differs"]
        assert [row[:2] for row in rows] == [["128", "9,800"], ["512", "900"], [">32", "4,000"]], "the newest of each"
        assert (rows[1][2], rows[1][-2:]) == ("oom", ["r3", "xla"])
        assert 0 < float(rows[0][2]) < 1
        await go(pilot, "compile.xla")
        await wait_for(pilot, "measured xla=true -9.8 % here on")
        assert "input-heavy: rejected" in seen(pilot)
        gains = [word for word in seen(pilot).split() if word in ("quickstart:", "input-heavy:")]
        assert gains == ["quickstart:", "input-heavy:"], "first the older one of this preset"
        await go(pilot, "compile.steps_per_execution")
        await wait_for(pilot, "no run here has changed it: 4 runs with 1")
        assert "proved   steps_per_execution=16 +3.7 % here on" in seen(pilot)
        await pilot.press("4")  # a value that no run has: the runs with the former one
        await wait_for(pilot, lambda: [row[0] for row in table(pilot, "steps_per_execution")[1:2]] == ["1"])
        await pilot.press("escape")
        rate = form(pilot).state.texts["train.learning_rate"]
        form(pilot).put({"train.learning_rate": f"{float(rate):e}"}, "the same value, written in another way")
        await go(pilot, "train.learning_rate")
        await wait_for(pilot, f"no run here has changed it: 4 runs with {float(rate):e}")
        form(pilot).load(FormState.open(presets.SHIPPED / "resnet50-224.yaml"))
        await wait_for(pilot, "none has ended here yet")
        await pilot.resize_terminal(160, 40)
        await wait_for(pilot, "learning_rate  in the last runs of resnet50-224")
        await pilot.resize_terminal(120, 40)
        await wait_for(pilot, lambda: "in the last runs" not in seen(pilot))
        form(pilot).load(FormState.first())
        for numbers in ("r4 9,800", "r3 oom 900", "r2 8,000"):
            await wait_for(pilot, f"{numbers} val_accuracy ")
        await go(pilot, "train.deterministic")
        await pilot.press("right")
        await settled(pilot)
        assert form(pilot).options.rows["train.deterministic"]._aside() == "default off", "where there is room for it"


async def test_what_suits_the_gpu_is_one_change_with_its_reasons() -> None:
    async with opened() as pilot:
        screen = form(pilot)
        for key in ("precision.tf32", "compile.xla"):
            screen.state.set(key, "false")
        before = dict(screen.state.texts)
        for name, capability, policy, tf32, reason in (
            ("NVIDIA H100", (9, 0), "mixed_bfloat16", "true", "compute capability 9.0 has tensor cores for bfloat16"),
            ("Tesla T4", (7, 5), "mixed_float16", "false", "compute capability 7.5 has no TF32: without effect"),
            ("NVIDIA GeForce GTX 1660", (7, 5), "float32", "false", "precision.policy  stays float32"),
        ):
            screen.machine = Machine((Gpu(0, "GPU-1", name, capability, 16 * 1024**3),), "", 16, 64 * 1024**3)
            screen.action_suit()
            assert reason in await wait_for(pilot, "compile.xla  false -> auto")
            await pilot.pause(0.4)
            await pilot.press("t")
            after = before | {"precision.policy": policy, "precision.tf32": tf32, "compile.xla": "auto"}
            await wait_for(pilot, partial(screen.state.texts.items().__eq__, after.items()))
            await pilot.press("u")
            await wait_for(pilot, lambda: screen.state.texts == before)
        screen.machine = NO_GPU
        screen.action_suit()
        await wait_for(pilot, lambda: "no NVIDIA driver on this machine" in told(pilot))


async def test_forty_columns_and_ten_rows_are_usable() -> None:
    async with opened((40, 10)) as pilot:
        shown = seen(pilot).split("\n")
        assert sum(row[3:].startswith(("model ", "own code ")) for row in shown) == 2, "more than one option"
        assert shown[7].startswith(" workload.model  the model that is tra"), "the help in one line"
        await pilot.press("question_mark")
        await wait_for(pilot, "enter, space")
        rows = [row.strip(" │╭╮╰╯─") for row in seen(pilot).split("\n")]
        at = next(number for number, row in enumerate(rows) if "change: switch" in row)
        assert rows[at + 1].startswith("choose or write"), "no line is divided anew"
        await pilot.press("escape", "T", "s")
        assert "esc leaves" in await wait_for(pilot, "enter starts it")
