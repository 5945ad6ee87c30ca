"""What the form holds, without a screen: texts and values, errors, marks, what would be lost, the command line."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest

from tests.doors.engine import OPTIONS, presets, runs
from tests.doors.tui import INFO, FormState, to_text, to_value

QUICKSTART = presets.SHIPPED / "quickstart.yaml"


@pytest.fixture
def state() -> FormState:
    return FormState.open(QUICKSTART)


def test_every_default_survives_its_field() -> None:
    lost = {info.key: to_value(info, to_text(info.default)) for info in OPTIONS
            if to_value(info, to_text(info.default)) != info.default}  # fmt: skip
    assert lost == {}


def test_what_is_kept_is_not_at_risk(state: FormState) -> None:
    state.set("train.epochs", "9")
    assert state.at_risk
    state.keep()
    assert state.modified
    assert not state.at_risk
    state.describe("another")
    assert state.at_risk


def test_the_command_gives_the_same_options(state: FormState) -> None:
    state.set("train.epochs", "9")
    state.set("train.seed", "")
    state.set("workload.shape", "[8, 8, 1]")
    state.set("workload.data", "npz:/tmp/it's here.npz")
    words = shlex.split(state.command().replace("\\\n", " "))
    assert words[:3] == ["gputui", "--preset", "quickstart"]
    settings = [word for before, word in itertools.pairwise(words) if before == "--set"]
    assert presets.resolve("quickstart", settings).options == state.preset.options


def test_an_emptied_field_and_the_folder_of_own_code_stand_in_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("train: {seed: 5}\nworkload: {entry: 'train.py:build'}\n")
    state = FormState.open(tmp_path / "mine.yaml")
    state.set("train.seed", "")
    state.set("workload.entry", "other.py:build")
    assert shlex.split(state.command().replace("\\\n", " "))[2:] == [
        str(tmp_path / "mine.yaml"), "--set", "workload.entry=other.py:build", "--set", "train.seed=null",
        "--set", f"workload.folder={tmp_path}",
    ]  # fmt: skip
    shipped = FormState.first()
    shipped.set("workload.entry", "mine.text:build")
    assert shipped.command() == "gputui --preset quickstart \\\n  --set workload.entry=mine.text:build", (
        "it has no folder"
    )


def test_a_runs_record_keeps_the_presets_name() -> None:
    run = runs.create("quickstart", presets.resolve("quickstart").to_yaml())
    state = FormState.open(run.file("preset.yaml"))
    assert state.of_a_run
    assert state.name == "quickstart"
    assert state.command().startswith(f"gputui --preset run:{run.id}")


def test_what_a_form_has_changed_and_what_it_would_lose(state: FormState, tmp_path: Path) -> None:
    assert not state.at_risk
    state.set("train.epochs", "wrong")
    assert (state.is_default("train.epochs"), state.is_unsaved("train.epochs")) == (False, True)
    state.set("train.epochs", str(INFO["train.epochs"].default))
    usual = state.changed()
    assert usual[0] == "train.epochs", "what differs from the file comes first"
    assert "input.batch_size" in usual
    assert len(set(usual)) == len(usual)
    assert set(usual) - {"train.epochs"} == {key for key in INFO if not state.is_default(key)}
    state.set("input.batch_size", "7")
    assert state.changed() == [
        "input.batch_size",
        "train.epochs",
        *(key for key in usual[1:] if key != "input.batch_size"),
    ]
    state.set("input.batch_size", state.text_of_file("input.batch_size"))
    state.set("train.seed", "7")
    options = state.preset.options
    state.set("train.seed", "8")
    assert state.differing(options) == {"train.seed": 7}
    state.become(options)
    assert (state.texts["train.seed"], state.differing(options)) == ("7", {})
    state.describe("mine")
    state.saved_as(_written(state, tmp_path / "saved.yaml"))
    assert (state.modified, state.at_risk, state.unsaved(), state.name) == (False, False, [], "saved")
    assert (state.preset.name, state.preset.file) == ("saved", tmp_path / "saved.yaml"), "a run of it is named so"
    state.describe("other")
    assert (state.modified, state.at_risk) == (True, True)
    state.describe("mine")
    assert (state.modified, state.at_risk) == (False, False)


def test_a_form_whose_file_was_written_elsewhere_is_compared_with_it_and_would_lose_what_differs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("description: one\ntrain: {epochs: 3}\n")
    state = FormState.open(path)
    state.set("train.epochs", "9")
    state.describe("two")
    path.write_text("description: two\ntrain: {epochs: 9}\n")
    state.compare_with_file()
    assert (state.modified, state.at_risk, state.text_of_file("train.epochs")) == (False, False, "9")
    path.write_text("description: one\ntrain: {epochs: 3}\n")  # as taking a save back does
    state.compare_with_file()
    assert (state.unsaved(), state.modified, state.at_risk) == (["train.epochs"], True, True)
    assert (state.texts["train.epochs"], state.description, state.opened_text) == ("9", "two", path.read_text())
    state.set("train.epochs", "3")
    assert state.at_risk, "its description"
    state.describe("one")
    assert not state.at_risk
    path.write_text("train: [")
    state.compare_with_file()
    assert (state.opened.description, state.modified) == ("one", False), "it cannot be read"


def _written(state: FormState, path: Path) -> Path:
    path.write_text(state.preset.to_yaml())
    return path


def test_options_that_a_users_code_decides_are_named(state: FormState) -> None:
    assert (state.own("workload.model"), state.no_effect("workload.model")) == ("", "")
    folder = Path(__file__).parents[1] / "support" / "programs"
    state.put({"workload.entry": "entry.text:build", "workload.folder": f" {folder} ", "train.seed": " "})
    reasons = {key: reason for key in INFO if (reason := state.no_effect(key))}
    assert {INFO[key].about.own for key in reasons} == {"replaced", "unread"}
    assert set(reasons.values()) == {"your code replaces it", "your code reads its data itself"}
    assert {key for key in INFO if state.is_hidden(key)} == {*reasons}
    state.set("input.cast", "device")
    assert not state.is_hidden("input.cast"), "it was changed"
    state.set("input.cast", "host")
    given = shlex.split(state.command().replace("\\\n", " "))
    assert f"workload.folder={folder}" in given
    assert "workload.entry=entry.text:build" in given
