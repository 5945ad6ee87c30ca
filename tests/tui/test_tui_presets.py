"""Presets in the screens: the list, saving, duplicating, deleting, and the questions before something is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine import presets
from gputui.engine.presets import saving
from gputui.engine.telemetry import machine
from gputui.tui.app import GputuiApp
from gputui.tui.form.state import FormState
from gputui.tui.screens.presets import PresetsScreen
from gputui.tui.screens.questions import Ask, AskText
from textual.widgets import OptionList

from tests.support.form_pilot import NO_GPU, SIZES, calm, form, go, opened, seen, told, write


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read", lambda: NO_GPU)


# ---- presets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_presets_are_listed_with_what_they_change(size: tuple[int, int]) -> None:
    own = saving.place("mine")
    saving.save_as(presets.defaults(["epochs=7"]), own)
    saving.place("bad").write_text("train: {epochs: none at all}\n")
    async with opened(size) as pilot:
        await pilot.press("o")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, PresetsScreen)
        text = seen(pilot)
        assert "quickstart" in text
        assert "yours" in text
        assert "input.batch_size" in text
        screen.query_one(OptionList).highlighted = [path.stem for path, _ in screen.found].index("bad")
        await pilot.pause()
        assert "does not fit" in seen(pilot)
        screen.query_one(OptionList).highlighted = [path.stem for path, _ in screen.found].index("mine")
        await pilot.press("enter")
        await pilot.pause()
        assert form(pilot).state.path == own
        assert form(pilot).state.preset.options.train.epochs == 7
        assert pilot.app.screen is form(pilot)


async def test_presets_of_the_current_folder_are_listed_and_opened_with_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("preset.yaml", "workload: {data: 'npz:a.npz'}"), ("compose.yaml", "services: {a: 1}"),
                       ("broken.yaml", "a: [")):
        Path(name).write_text(text + "\n")
    async with opened() as pilot:
        await pilot.press("o")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, PresetsScreen)
        assert [path.name for path, _ in screen.found if path.parent == tmp_path] == ["preset.yaml"]
        assert screen.found[-1][0] == tmp_path / "preset.yaml"
        screen.query_one(OptionList).highlighted = len(screen.found) - 1
        await pilot.press("enter")
        await calm(pilot)
        assert form(pilot).state.path == tmp_path / "preset.yaml"
        assert form(pilot).state.texts["workload.data"] == "npz:a.npz"


async def test_duplicate_and_delete() -> None:
    async with opened() as pilot:
        await pilot.press("o")
        await calm(pilot)
        await pilot.press("x")
        await calm(pilot)
        assert presets.resolve("quickstart")
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(pilot.app.screen, AskText)
        await pilot.press("enter")
        await calm(pilot)
        own = presets.user_folder() / "quickstart-copy.yaml"
        assert own.read_text() == (presets.SHIPPED / "quickstart.yaml").read_text()
        await pilot.press("x")
        await pilot.pause()
        assert isinstance(pilot.app.screen, Ask)
        await pilot.press("c")
        await calm(pilot)
        assert own.exists()
        await pilot.press("x")
        await pilot.pause()
        await pilot.press("d")
        await calm(pilot)
        assert not own.exists()


async def test_save_over_an_own_preset_keeps_its_comments() -> None:
    own = saving.place("mine")
    own.parent.mkdir(parents=True)
    own.write_text("# mine\ntrain:\n  epochs: 3  # few\n")
    async with opened() as pilot:
        form(pilot).load(FormState.open(own))
        await go(pilot, "train.epochs")
        await write(pilot, "5")
        await pilot.press("enter", "s")
        await calm(pilot)
        assert own.read_text() == "# mine\ntrain:\n  epochs: 5  # few\n"
        assert not form(pilot).state.modified
        assert "not saved" not in seen(pilot)


async def test_saving_a_shipped_preset_asks_for_a_name() -> None:
    async with opened() as pilot:
        await go(pilot, "train.epochs")
        await write(pilot, "5")
        await pilot.press("enter", "s")
        await pilot.pause()
        assert isinstance(pilot.app.screen, AskText)
        await write(pilot, "fast")
        await pilot.press("enter")
        await pilot.pause()
        assert "ships with gputui" in seen(pilot)
        await write(pilot, "er")
        await pilot.press("enter")
        await calm(pilot)
        assert presets.resolve("faster").options.train.epochs == 5
        assert form(pilot).state.name == "faster"


async def test_a_wrong_form_is_not_saved() -> None:
    async with opened() as pilot:
        await go(pilot, "train.epochs")
        await write(pilot, "0")
        await pilot.press("enter", "a")
        await calm(pilot)
        assert pilot.app.screen is form(pilot)


async def test_an_existing_file_is_not_overwritten_unasked() -> None:
    own = saving.place("mine")
    saving.save_as(presets.defaults(["epochs=7"]), own)
    before = own.read_text()
    async with opened() as pilot:
        await pilot.press("a")
        await pilot.pause()
        await write(pilot, "mine")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, Ask)
        await pilot.press("escape")
        await calm(pilot)
        assert own.read_text() == before


# ---- nothing is lost silently --------------------------------------------------------------------


async def test_leaving_with_unsaved_changes_asks() -> None:
    async with opened() as pilot:
        await go(pilot, "compile.xla")
        await pilot.press("right", "ctrl+q")
        await pilot.pause()
        assert isinstance(pilot.app.screen, Ask)
        assert "1 changed option not saved" in seen(pilot)
        await pilot.press("c")
        await calm(pilot)
        assert pilot.app.is_running
        await pilot.press("ctrl+q")
        await pilot.pause()
        await pilot.press("d")
        await calm(pilot)
    assert pilot.app.return_code == 0


async def test_leaving_without_changes_asks_nothing() -> None:
    async with opened() as pilot:
        await pilot.press("ctrl+q")
        await calm(pilot)
        assert not isinstance(pilot.app.screen, Ask)


async def test_another_preset_over_unsaved_changes_asks() -> None:
    async with opened() as pilot:
        await go(pilot, "compile.xla")
        await pilot.press("right")
        app = pilot.app
        assert isinstance(app, GputuiApp)
        app.open_form(presets.SHIPPED / "fast.yaml")
        await pilot.pause()
        assert isinstance(app.screen, Ask)
        await pilot.press("escape")
        await calm(pilot)
        assert form(pilot).state.name == "quickstart"
        app.open_form(presets.SHIPPED / "fast.yaml")
        await pilot.pause()
        await pilot.press("d")
        await calm(pilot)
        assert form(pilot).state.name == "fast"


async def test_a_preset_that_is_gone_is_said() -> None:
    async with opened() as pilot:
        assert isinstance(pilot.app, GputuiApp)
        pilot.app.open_form(Path("/no/such.yaml"))
        await calm(pilot)
        assert "no such file" in told(pilot)
