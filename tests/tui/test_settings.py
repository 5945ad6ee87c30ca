"""The settings of the screens: what the file may say, what is kept in it, and what the application makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.engine import places
from tests.doors.tui import INFO, Settings, SettingsRows, declared
from tests.support.form_pilot import opened, settled, told
from tests.support.tiny import wait_for

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


def test_a_value_that_cannot_be_used_is_named_in_one_line_and_its_default_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)  # a line that names a long path leaves out a part of what it says
    wrong = {
        "theme: [a]": ":1: theme must be text, not ",
        "runs: {descending: perhaps}": ":1: runs.descending must be true or false, not 'perhaps'; true is used",
        "runs: {columns: loss}": ":1: runs.columns must be a list of names, not 'loss'; [] is used",
        "runs: {columns: [id, 5]}": ":1: runs.columns must be a list of names, not [id, 5]; [] is used",
        "charts:\n  x_axis: miles": ":2: charts.x_axis must be one of auto, step, epoch, time, samples, not 'miles'",
        "charts: {smoothing: 1}": ":1: charts.smoothing must be a number from 0 to 0.99, not 1.0; 0.0 is used",
        "charts: {smoothing: yes}": ":1: charts.smoothing must be a number from 0 to 0.99, not true; 0.0 is used",
        "keys: stop": ":1: keys must be a mapping",
        "keys: {stop: }": ":1: keys must be a mapping of verbs to keys, not ",
        "runs: 5": ":1: there is no setting runs; known: runs.columns",
        "log: {colour: red}": ":1: there is no setting log.colour; known: log.wrap, log.fold",
        "log: {wrap: {a: 1}}": ":1: log.wrap must be",
        "log: {wrap: !x 1}": ":1: log.wrap: cannot read the value '1'; the defaults are used",
        "runs:\n  sort: a\n  sort: b": ":3: runs.sort: is given twice; keep one of them; the defaults are used",
        "a: [": ": not valid YAML",
        "- a": "must be a mapping",
        "a: &b 1\nc: *b": "aliases (*name) are not allowed here",
        "#" * 200_000: "so it holds no settings",
        "log:\n  wrap: true\x01": "is not allowed in YAML",
    }
    for text, said in wrong.items():
        settings = Settings(given(text, Path("settings.yaml")))
        assert len(settings.problems) == 1, text
        assert said in settings.problems[0], text
        assert settings.problems[0].startswith("settings.yaml:")
        assert "\n" not in settings.problems[0]
        assert (settings.theme, settings.runs, settings.log, settings.keys) == (
            "", Settings(Path("/none")).runs, Settings(Path("/none")).log, {})  # fmt: skip


def test_a_file_that_cannot_be_understood_is_not_overwritten(tmp_path: Path) -> None:
    path = given("theme: [\n", tmp_path / ("a-long-name-" * 12) / "settings.yaml")
    settings = Settings(path)
    settings.change("log.wrap", True)
    settings.flush()
    assert path.read_text() == "theme: [\n"
    assert settings.log.wrap
    assert settings.problems[-1].startswith(f"{path}:2: log.wrap lasts until gputui ends: not "), "a path is never cut"
    assert settings.problems[-1].endswith("found '<stream end>'")


async def test_the_settings_are_changed_in_a_list_and_a_token_is_not_shown() -> None:
    path = given("notify: {url: https://me:pass@ntfy.example/secret-topic}  # mine\n")

    async def at(key: str, *pressed: str) -> None:
        rows = pilot.app.screen.query_one(SettingsRows)
        rows.highlighted = [name for name, _ in declared()].index(key)
        await pilot.press(*pressed)
        await settled(pilot)

    async with opened((120, 40)) as pilot:
        await pilot.press("comma")
        shown = await wait_for(pilot, "charts.smoothing")
        assert "ntfy.example" in shown
        assert "pass" not in shown
        assert "secret-topic" not in shown
        assert "the queue: queue.yaml next to it; time between readings: run.sample_seconds" in shown
        assert "run.sample_seconds" in INFO
        await at("charts.fill", "enter", "enter", "u")
        await at("charts.x_axis", "enter", "enter")
        await at("charts.smoothing", "enter")
        await pilot.press(*["backspace"] * 3, *"2", "enter")
        await wait_for(pilot, "must be a number from 0 to 0.99, not 2.0")
        await pilot.press("backspace", *"0.5", "enter")
        await wait_for(pilot, "* charts.smoothing     0.5")
        await at("notify.url", "enter")
        await pilot.press(*["backspace"] * 50, *"ntfy.example/x", "enter")
        await wait_for(pilot, "must begin with https:// or http:// or $, not 'ntfy.example/x'")
        await pilot.press("escape")
        await at("log.fold", "enter", "d")
        await at("runs.sort", "enter")
        assert "< in the list of runs (F4) changes it" in told(pilot)
        await at("theme", "enter")
        pilot.app.settings.flush()  # type: ignore[attr-defined]
        theme = pilot.app.theme
        await pilot.press("escape")
        await wait_for(pilot, "Start")
    text = path.read_text()
    assert text.startswith("notify: {url: https://me:pass@ntfy.example/secret-topic}  # mine\n")
    kept = Settings()
    assert (kept.charts.fill, kept.charts.x_axis, kept.charts.smoothing) == (False, "epoch", 0.5)
    assert (kept.log.fold, kept.theme) == (True, theme)
