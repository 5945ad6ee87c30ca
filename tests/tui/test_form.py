"""The form by its keys: finding, changing and undoing, what is wrong, and what starts a training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

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
    anew,
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


async def test_what_is_wrong_is_told_and_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as pilot:
        await what_only_the_disk_knows_is_checked_again_at_start(pilot, monkeypatch)
        await anew(pilot, SMALL)
        await code_that_is_mended_meanwhile_starts(pilot, tmp_path / "own.yaml", monkeypatch)


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
