"""The side of the form: the last runs with an option, the gains that proofs have measured, and the preset's file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.files import run_numbers
from gputui.engine.files.places import home, user_presets_folder
from gputui.engine.job import this_machine
from gputui.engine.options import options_json
from gputui.engine.runs import titles
from gputui.tui.base.settings import Settings
from gputui.tui.form.file_text import NEW, OLD, SAME, file_text
from gputui.tui.form.form_state import FormState
from textual.pilot import Pilot

from tests.support import recorded, recorded_proof
from tests.support.form_pilot import NO_GPU, form, go, opened, seen, settled, told, write
from tests.support.tiny import wait_for

SAVED = "quickstart.yaml  as saved"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)


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


async def test_the_presets_file_follows_each_change() -> None:
    async with opened((200, 60)) as pilot:
        await wait_for(pilot, SAVED + ", without precision.policy")
        await go(pilot, "input.batch_size")
        await wait_for(pilot, "> input: {batch_size: 32,")
        await write(pilot, "128")
        await pilot.press("enter")
        await wait_for(pilot, ">+input: {batch_size: 128,")
        assert "-input: {batch_size: 32," in seen(pilot)
        assert "quickstart.yaml  1 changed line" in seen(pilot)
        await pilot.press("u")
        await wait_for(pilot, SAVED)
        await pilot.press("Y")
        await wait_for(pilot, lambda: "quickstart.yaml" not in seen(pilot))
        assert form(pilot).options.rows["input.batch_size"].has_focus
        settings = form(pilot).app.settings
        form(pilot).app.settings.flush()
        assert (settings.form.file_view, Settings(settings.path).form.file_view) == (False, False)
        await pilot.press("right", "Y")
        await wait_for(pilot, SAVED)
        room = "the file has room from 172 columns and 30 rows on; y shows the preset as YAML"
        for size in ((171, 40), (172, 29)):
            await pilot.resize_terminal(*size)
            pilot.app.clear_notifications()
            await pilot.press("Y")
            await wait_for(pilot, lambda: told(pilot) == room)
            assert settings.form.file_view
        await pilot.resize_terminal(172, 30)
        await wait_for(pilot, SAVED)
        await settled(pilot)


def test_the_text_of_a_file_has_a_place_for_each_option_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema_version: 1\ntrain:\n  epochs: 2  # few\n  seed: 1\n")
    state = FormState.open(path)
    state.put({"train.epochs": "3", "train.seed": "4", "compile.xla": "true"})
    text = file_text(state.preset, path, state.opened_text)
    assert text.lines == (
        (SAME, "schema_version: 1"),
        (SAME, "train:"),
        (OLD, "  epochs: 2  # few"),
        (NEW, "  epochs: 3  # few"),
        (OLD, "  seed: 1"),
        (NEW, "  seed: 4"),
        (NEW, "compile:"),
        (NEW, "  xla: true"),
    )
    assert text.places == {"train.epochs": 3, "train.seed": 5, "compile.xla": 7}
    assert text.changes == 4
    assert path.read_text() == state.opened_text, "nothing is written"
    assert str(path) in file_text(state.preset, path, "train: [").problem
    written = file_text(FormState.open(path).preset, path, state.opened_text)
    assert (written.changes, {mark for mark, _ in written.lines}, written.problem) == (0, {SAME}, "")
    path.write_text("train:\n  epochs: 2\n")
    fewer = FormState.open(path)
    fewer.reset("train.epochs")
    text = file_text(fewer.preset, None, None)  # a new file
    assert text.places == {}
    own = user_presets_folder() / f"{fewer.name}.yaml"
    assert str(own) in file_text(fewer.preset, None, "train: [").problem, "the place of a new file"
    assert (text.changes, {mark for mark, _ in text.lines}) == (len(text.lines), {NEW})
