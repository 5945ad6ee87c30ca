"""What the tests of the queue's commands share."""

from __future__ import annotations

import pytest

from tests.doors.tui import tui_cli as cli
from tests.support.queued import Said


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command prints on stdout and then on stderr; `code` is its expected exit code."""

    def said(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert cli.run(words) == code
        out, err = capsys.readouterr()
        return str(out + err)

    return said
