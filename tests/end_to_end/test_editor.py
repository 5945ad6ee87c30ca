"""The form's file in an editor, in a real terminal: what it changes, breaks, leaves as it is, and how it fails."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal import needs_tmux, terminal

pytestmark = [needs_tmux, pytest.mark.usefixtures("nothing_left_running")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, so that the lines of a dialog that name it break at the same words everywhere."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_a_file_is_edited_and_read_again(folder: Path) -> None:
    preset, steps, editor = folder / "mine.yaml", folder / "steps", folder / "editor"
    preset.write_text("# mine\ninput: {batch_size: 48}\n")
    editor.write_text(f'#!/bin/sh\necho "EDITING $1"\nexec sh {steps} "$1"\n')
    editor.chmod(0o755)

    def does(script: str) -> None:
        steps.write_text(script)

    with terminal(str(preset), VISUAL=str(editor), GPUTUI_WARM="0") as window:
        window.shows("mine", "batch_size", "48")
        does("sed -i s/48/96/ $1")
        window.type("E")
        window.has_said("is read again")
        window.shows("96")
        does("sed -i s/96/many/ $1")
        window.type("E")
        window.shows("mine.yaml:2: input.batch_size: 'many'", "input: {batch_size: many}", "Back")
        does("read line; sed -i s/many/128/ $1")  # waits as a person does, and Ctrl-C is the editor's own
        window.still()
        window.type("e")
        window.shows("EDITING")
        window.type("Enter")
        window.has_said("is read again")
        window.shows("128")
        does("exit 3")
        window.type("E")
        window.shows("ended with exit code 3")
        does("true")
        while "window of its own" not in window.screen:  # an editor that is back at once, which may take longer here
            window.type("E")
            with contextlib.suppress(AssertionError):
                window.shows("window of its own", seconds=15)
        does("trap : INT; while ! test -e $1.go; do sleep 0.1; done; sed -i s/128/160/ $1")
        window.type("E")
        window.shows("EDITING")
        window.type("C-c")
        (folder / "mine.yaml.go").touch()
        window.shows("160")
        window.type("C-q")
        window.shows("exit code 0")
