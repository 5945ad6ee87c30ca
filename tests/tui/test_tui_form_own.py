"""The form of a preset that names a user's own code: what that code decides is marked, and the help says when."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gputui.engine.job import this_machine
from gputui.engine.options.own_code import OWN_CODE_LABELS
from gputui.tui.form.form_state import FormState
from textual.pilot import Pilot
from textual.widgets import Static

from tests.support.form_pilot import LARGE, NO_GPU, SIZES, SMALL, each_anew, form, go, opened, seen, settled, write


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)


@pytest.fixture
def own_preset(tmp_path: Path) -> Path:
    """A preset of a user's own code."""
    (tmp_path / "train.py").write_text("def build(context): ...\n")
    file = tmp_path / "own.yaml"
    file.write_text(f"workload: {{entry: '{tmp_path}/train.py:build'}}\ninput: {{batch_size: 32}}\n")
    return file


async def rows_say_what_a_users_code_decides(pilot: Pilot[None], own_preset: Path) -> None:
    assert "your code" not in seen(pilot)
    form(pilot).load(FormState.open(own_preset))
    await settled(pilot)
    for key, words in (
        ("workload.model", "your code"),
        ("input.batch_size", "32  or your code"),
        ("train.learning_rate", "or your code"),
    ):
        row = await go(pilot, key)
        await settled(pilot)
        assert str(row.render()).rstrip().endswith(words)
        (line,) = [line for line in seen(pilot).split("\n") if f" {row.info.name} " in line and ">" in line]
        assert words in line
    for key in ("workload.entry", "compile.xla", "input.prefetch", "train.seed"):
        assert "your code" not in str((await go(pilot, key)).render())[40:]


async def the_help_says_what_applies_to_a_users_code(pilot: Pilot[None], own_preset: Path) -> None:
    def told() -> str:
        return " ".join(str(form(pilot).query_one("#help", Static).content).split())

    await go(pilot, "input.batch_size")
    assert "applies" not in told()
    form(pilot).load(FormState.open(own_preset))
    await settled(pilot)
    assert f"applies {OWN_CODE_LABELS['pipeline']}" in told()
    await go(pilot, "workload.model")
    assert f"applies {OWN_CODE_LABELS['replaced']}" in told()
    assert "applies never: your code" in " ".join(seen(pilot).split())
    await go(pilot, "compile.xla")
    assert "applies always" in told()


async def an_entry_that_is_written_marks_the_rows_at_once(pilot: Pilot[None]) -> None:
    rows = form(pilot).options.rows
    await go(pilot, "workload.entry")
    await pilot.press("enter")
    await write(pilot, "train.py:build")
    await pilot.press("enter")
    await settled(pilot)
    assert str(rows["workload.model"].render()).endswith("your code")
    await pilot.press("d")
    await settled(pilot)
    assert "your code" not in str(rows["workload.model"].render())


async def test_the_form_tells_what_a_users_code_decides(own_preset: Path) -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            *((size, partial(rows_say_what_a_users_code_decides, own_preset=own_preset)) for size in SIZES),
            (SMALL, partial(the_help_says_what_applies_to_a_users_code, own_preset=own_preset)),
            (LARGE, an_entry_that_is_written_marks_the_rows_at_once),
        )
