"""Presets: which value counts, and what a broken one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.engine import places, presets, runs
from tests.doors.engine import presets_PresetError as PresetError
from tests.doors.tui import tui_cli as cli


def problem(place: Path | str, *settings: str) -> str:
    """The one line that tells what is wrong with a preset."""
    with pytest.raises(PresetError) as raised:
        presets.resolve(str(place), settings)
    return str(raised.value).splitlines()[0]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- what a preset means ----------------------------------------------------------------------


def test_a_watched_run_is_no_preset(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.create("watched", "schema_version: 1\ntrain: {epochs: 3}\n")  # as Monitor writes it
    for command in (["--preset", "run:watched", "--dry-run"], ["export", "--preset", "run:watched"]):
        assert cli.run(command) == 2, "no other model is trained in its name"
        assert "'run:watched': is a fit of your own script, which gputui cannot start" in capsys.readouterr().err


# ---- what is said when it is wrong ------------------------------------------------------------


def test_a_users_preset_may_extend_the_shipped_one_of_its_name() -> None:
    places.user_presets_folder().mkdir(parents=True)
    write(places.user_presets_folder() / "xla-bf16.yaml", "extends: xla-bf16\ntrain: {epochs: 77}\n")
    options = presets.resolve("xla-bf16").options
    assert (options.precision.policy, options.train.epochs) == ("mixed_bfloat16", 77)


def test_a_very_long_chain_of_extends_is_refused(tmp_path: Path) -> None:
    for number in range(400):
        write(tmp_path / f"p{number}.yaml", f"extends: p{number + 1}.yaml\n")
    assert ":1: extends: " in problem(tmp_path / "p0.yaml")
