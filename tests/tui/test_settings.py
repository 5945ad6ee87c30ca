"""The settings of the screens: what the file may say, what is kept in it, and what the application makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.engine import places
from tests.doors.tui import Settings

MINE = """\
# mine
theme: high-contrast   # for the projector
runs:
    sort: loss  # lowest first
    descending: no
keys: {stop: ctrl+x, gpus: 7}
"""


def given(text: str, path: Path | None = None) -> Path:
    path = path or places.settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_the_file_says_is_used_and_a_change_leaves_everything_else_as_it_was() -> None:
    path = given(MINE)
    settings = Settings()
    assert settings.problems == []
    assert (settings.theme, settings.runs.sort, settings.runs.descending) == ("high-contrast", "loss", False)
    assert settings.keys == {"stop": "ctrl+x", "gpus": "7"}
    settings.change("runs.columns", ("id", "loss"))
    settings.change("runs.sort", "when")
    settings.change("charts.smoothing", 0.5)
    settings.flush()
    expected = MINE.replace("sort: loss ", "sort: when ").replace("no\n", "no\n    columns: [id, loss]\n")
    assert path.read_text() == expected + "charts:\n    smoothing: 0.5\n"
    again = Settings()
    assert (again.runs, again.charts) == (settings.runs, settings.charts)
    with pytest.raises(ValueError, match=r"0\.99, not 2"):
        settings.change("charts.smoothing", 2.0)


def test_a_file_that_cannot_be_understood_is_not_overwritten(tmp_path: Path) -> None:
    path = given("theme: [\n", tmp_path / ("a-long-name-" * 12) / "settings.yaml")
    settings = Settings(path)
    settings.change("log.wrap", True)
    settings.flush()
    assert path.read_text() == "theme: [\n"
    assert settings.log.wrap
    assert settings.problems[-1].startswith(f"{path}:2: log.wrap lasts until gputui ends: not "), "a path is never cut"
    assert settings.problems[-1].endswith("found '<stream end>'")
