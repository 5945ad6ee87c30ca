"""A preset on the command line opens the form: by file and by name, with changes, and what is said where it cannot."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from gputui.engine.files.values import LONGEST_LINE, brief
from gputui.engine.job import this_machine
from gputui.tui import cli
from gputui.tui.app import GputuiApp
from gputui.tui.cli import preset_or_command

from tests.support.cases import all_hold
from tests.support.form_pilot import NO_GPU, form, opened, seen

MINE = "description: of this folder\ninput: {batch_size: 48}\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    Path("mine.yaml").write_text(MINE)
    Path("runs.yaml").write_text(MINE)
    Path("broken.yaml").write_text("input: {batch_size: many}\n")
    Path("seven.yaml").write_text("".join(f"wrong{number}: 1\n" for number in range(7)))


def test_a_word_is_a_command_or_a_preset_or_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    no_screen = "the screen needs a terminal (ssh -t gives one); gputui --preset {} trains without one\n"
    with all_hold() as cases:
        for words, told in (
            ("mine.yaml", no_screen.format("mine.yaml")),
            ("./mine.yaml", no_screen.format("./mine.yaml")),
            ("quickstart --set xla=true", no_screen.format("quickstart")),
            ("quickstrt", "there is no command or preset 'quickstrt'; did you mean the preset quickstart?\n"),
            ("rusn", "there is no command or preset 'rusn'; did you mean the command runs?\n"),
            ("train quickstart", "there is no command 'train': gputui --preset quickstart trains a preset; gputui a"),
            ("run", "there is no command 'run': gputui --preset NAME trains a preset; gputui alone"),
            ("mine", "there is no command or preset 'mine', but there is a file: gputui mine.yaml\n"),
            ("no.yaml", "no.yaml: no such file"),
            ("broken.yaml", "broken.yaml:1: input.batch_size: 'many' does not fit"),
            ("quickstart --set xla=maybe", "--set xla=maybe: compile.xla: 'maybe' does not fit"),
            (
                "--preset quickstart --set strategy.kind=multi_worker",
                "--set strategy.kind=multi_worker: nothing names the machines to train on; ",
            ),
            ("--preset quickstart --set kind=multi_worker", "--set kind=multi_worker: strategy.kind: nothing names"),
            ("--json quickstart", "--json, --detach and --dry-run need no screen"),
            ("--set xla=true runs", "--preset and what belongs to it do not go with the command 'runs'"),
        ):
            with cases.case(words):
                assert cli.run(words.split()) == 2
                assert capsys.readouterr().err.startswith(told)
        with cases.case("several faults"):
            assert cli.run(["seven.yaml"]) == 2
            lines = capsys.readouterr().err.splitlines()
            assert [line.split(":")[1] for line in lines[:5]] == ["1", "2", "3", "4", "5"]
            assert lines[5:] == ["and 2 more; gputui presets check FILE shows all"]
        with cases.case("a name that is both"):
            assert cli.run(["runs"]) == 0
            assert "No runs so far" in capsys.readouterr().out


def test_a_note_is_told_whole(capsys: pytest.CaptureFixture[str]) -> None:
    two = ("strategy.kind=mirrored", "device.logical_devices=2", "device.visible=none", "learning_rate_scaling=linear")
    settings = [word for setting in two for word in ("--set", setting)]
    assert cli.run(["--preset", "quickstart", *settings, "--dry-run"]) == 0
    (note,) = [line for line in capsys.readouterr().err.splitlines() if "learning_rate_scaling" in line]
    assert len(note) > LONGEST_LINE
    assert note.endswith("first step; let it rise in train.warmup_steps; Goyal et al. take the steps of 5 epochs")
    short = brief(note)
    assert len(short) <= LONGEST_LINE
    assert set(short.split()) - {"..."} <= set(note.split()), "words are left out whole"


def test_tab_offers_commands_presets_and_files() -> None:
    asked = ShellComplete(cli.cli, {}, "gputui", "_GPUTUI_COMPLETE")
    for begun, offered in {
        "qu": {"quickstart"}, "in": {"init", "input-heavy"}, "mi": {"mine.yaml"}, "pres": {"presets"}, "ru": {"runs"},
    }.items():  # fmt: skip
        found = asked.get_completions([], begun)
        assert offered <= {item.value for item in found}, begun
    assert [item.type for item in asked.get_completions([], "./mi")] == ["file"]
    assert {item.value for item in asked.get_completions(["mine.yaml", "--set"], "xla=t")} == {"xla=true"}
    assert isinstance(cli.cli, click.Group)


async def test_the_form_opens_on_the_file_with_the_settings_marked() -> None:
    app = GputuiApp(preset_or_command.form_state("mine.yaml", ["batch_size=96", "epochs=2"]))  # which is the default
    async with opened((120, 40), app=app) as pilot:
        state = form(pilot).state
        assert state.path == Path("mine.yaml").absolute()
        assert state.unsaved() == ["input.batch_size"]
        assert state.preset.options.input.batch_size == 96
        assert "1 not saved" in seen(pilot)
        assert "of this folder" in seen(pilot)
