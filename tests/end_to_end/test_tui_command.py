"""The commands beside the screens: no terminal, replay speeds, the schema of presets, exported scripts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from gputui.engine import presets, runs
from gputui.tui import cli, show
from gputui.tui.base import terminal
from gputui.tui.form.form_state import INFO


@pytest.mark.parametrize("words", [[], ["watch"]])
def test_without_a_terminal_there_is_one_clear_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.create("some", presets.resolve("quickstart").to_yaml())
    instead = f"gputui logs {run.name} prints the log" if words else "gputui --preset NAME trains"
    assert cli.run(words) == 2
    assert capsys.readouterr().err == f"the screen needs a terminal (ssh -t gives one); {instead} without one\n"


@pytest.mark.parametrize("name", ["dumb", "unknown", "Dumb"])
def test_a_terminal_that_cannot_be_drawn_on_is_refused_by_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_a_terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(show, "sys", SimpleNamespace(stdin=at_a_terminal, stdout=at_a_terminal, stderr=at_a_terminal))
    monkeypatch.setenv("TERM", name)
    assert cli.run([]) == 2
    assert capsys.readouterr().err == (
        f"the screen cannot be drawn with TERM={name}; export TERM=xterm-256color, if this terminal supports it; "
        "gputui --preset NAME trains without a screen\n"
    )


def test_the_cell_of_a_notebook_gets_no_screen_no_bar_and_no_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell passes for a terminal, where only these variables of IPython's kernel differ."""
    at_a_terminal = SimpleNamespace(isatty=lambda: True)
    standing_in = SimpleNamespace(stdin=at_a_terminal, stdout=at_a_terminal, stderr=at_a_terminal)
    for module in (show, terminal):
        monkeypatch.setattr(module, "sys", standing_in)
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("GIT_PAGER", "less")
    assert (terminal.draws_again(False), terminal.takes_keys()) == (True, True)
    monkeypatch.setenv("GIT_PAGER", "cat")
    assert (terminal.draws_again(False), terminal.takes_keys()) == (False, False)
    assert cli.run([]) == 2
    instead = "gputui --preset NAME trains in a cell"
    assert capsys.readouterr().err == f"the cell of a notebook shows no screen, a terminal does; {instead}\n"


@pytest.mark.parametrize("speed", ["fast", "0", "nan", "inf"])
def test_a_replay_speed_is_a_number(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs.create("some", presets.resolve("quickstart").to_yaml())
    assert cli.run(["watch", f"--replay={speed}"]) == 2
    assert "--replay takes a number" in capsys.readouterr().err


def test_the_schema_knows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["presets", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    for info in INFO.values():
        reference = schema["properties"][info.group]["anyOf"][0]["$ref"].rsplit("/", 1)[1]
        assert info.about.help in schema["$defs"][reference]["properties"][info.name]["description"]
        assert schema["$defs"][reference]["additionalProperties"] is False


def test_export_writes_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["export", "--preset", "quickstart", "--set", "epochs=9"]) == 0
    printed = capsys.readouterr().out
    assert "EPOCHS = 9  # train.epochs" in printed
    file = tmp_path / "train.py"
    assert cli.run(["export", "--preset", "quickstart", "--set", "epochs=9", "-o", str(file)]) == 0
    assert file.read_text() == printed
    assert cli.run(["export", "--preset", "no-such"]) == 2
