"""Words on the command line, failed commands, and their exit codes."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from tests.doors.engine import this_machine
from tests.doors.tui import Acts, errors
from tests.doors.tui import tui_cli as cli
from tests.support.form_pilot import NO_GPU

MINE = "description: of this folder\ninput: {batch_size: 48}\n"


@pytest.fixture
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    Path("mine.yaml").write_text(MINE)


@pytest.mark.usefixtures("_in_a_folder")
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


Printed = pytest.CaptureFixture[str]


# ---- errors ----------------------------------------------------------------------------------------------


def disk(number: int, name: str | None = None) -> OSError:
    return OSError(number, "told by the system", name) if name else OSError(number, "told by the system")


def test_a_current_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert errors.guarded(lambda: errors.report(disk(errno.ENOENT))) == 2
    assert capsys.readouterr().err == "told by the system: the current folder has been deleted; change to another one\n"


def test_messages_that_cannot_be_written_do_not_replace_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full, open(tmp_path / "other", "w") as other:
        monkeypatch.setattr(sys, "stderr", full)
        assert errors.guarded(lambda: errors.report(errors.Refused("no"))) == 2
        assert os.path.samestat(os.fstat(full.fileno()), os.stat(os.devnull))  # what is kept goes nowhere at the end
        monkeypatch.setattr(sys, "stderr", other)
        assert errors.guarded(lambda: errors.report(errors.Refused("no"))) == 2
    assert (tmp_path / "other").read_text() == "no\n"


def test_a_command_that_is_interrupted_or_refused_has_its_exit_code(capsys: Printed) -> None:
    def ends(fault: BaseException) -> int:
        def command() -> int:
            raise fault

        return errors.guarded(command)

    assert [ends(fault) for fault in (KeyboardInterrupt(), errors.Refused("no"), KeyError("x"))] == [130, 2, 1]
    assert capsys.readouterr().err.splitlines()[:2] == ["no", "unexpected KeyError: 'x'"]


# ---- taking back -------------------------------------------------------------------------------------------


def test_an_act_leaves_the_list_if_all_of_it_could_be_taken_back() -> None:
    acts, reasons = Acts("nothing"), ["one is in use"]
    acts.add("deleted a", lambda: None, key="a")
    acts.add("deleted b", lambda: reasons, "b is back")
    second, first = acts.newest_first
    assert (first.message, second.message, first.key) == ("taken back: deleted a", "b is back", "a")
    assert acts.take_back(second) == ["one is in use"]
    assert acts.newest_first == [second, first]
    acts.postpone(second)
    assert acts.newest_first == [first, second]
    reasons.clear()
    assert list(acts.take_back(second)) == []
    assert list(acts.take_back(second)) == [], "it has gone, and can be asked again"
    acts.postpone(second)
    assert acts.newest_first == [first]
