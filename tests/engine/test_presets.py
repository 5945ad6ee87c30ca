"""Presets: which value counts, and what a broken one is told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.engine import YamlFault, located_yaml, places, presets, runs
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


def test_own_code_takes_the_place_of_a_bases_model_and_data(tmp_path: Path) -> None:
    base, child = tmp_path / "base.yaml", tmp_path / "child.yaml"
    base.write_text("workload: {model: mlp, data: synthetic, samples: 80}\ntrain: {epochs: 9}\n")
    child.write_text("extends: base.yaml\nworkload: {entry: 'train.py:build'}\n")
    unchanged = presets.defaults().options.workload
    for preset in (presets.resolve(str(child)), presets.resolve(str(base), ["entry=train.py:build"])):
        workload = preset.options.workload
        assert (workload.model, workload.data, workload.samples) == (unchanged.model, unchanged.data, None)
        assert preset.options.train.epochs == 9
        assert set(preset.origins) == {"workload.entry", "train.epochs"}
    child.write_text("extends: base.yaml\nworkload: {entry: 'train.py:build', samples: 7}\n")
    assert presets.resolve(str(child)).options.workload.samples == 7, "what the file itself says is refused later"
    for preset in (presets.resolve(str(base), ["entry=null"]), presets.resolve(str(child), ["entry=null"])):
        assert preset.options.workload.entry is None
    assert presets.resolve(str(base), ["entry=null"]).options.workload.model == "mlp"
    base.write_text("workload: {entry: null, model: mlp}\n")
    child.write_text("extends: base.yaml\nworkload: {entry: null}\n")
    assert [presets.resolve(str(path)).options.workload.model for path in (base, child)] == ["mlp", "mlp"]


def test_a_run_is_named_by_its_id_and_its_options_are_taken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.create("my-own", presets.resolve("quickstart", ["epochs=7"]).to_yaml())
    for given in (f"run:{run.id}", "run:my-own"):
        found = presets.resolve(given, ["batch_size=9"])
        assert (found.name, found.options.train.epochs, found.options.input.batch_size) == ("my-own", 7, 9)
    for given, why in (("run:nobody", "there is no such run"), ("run:", "there is no such run")):
        assert cli.run(["--preset", given, "--dry-run"]) == 2
        assert why in capsys.readouterr().err
    for command in (["--preset", "run:latest", "--dry-run"], ["presets", "show", "run:latest"]):
        assert cli.run(command) == 0
        assert "epochs: 7" in capsys.readouterr().out
    assert cli.run(["presets", "check", "run:latest"]) == 0
    assert capsys.readouterr().out == f"run:{run.id}: good\n"
    runs.create("watched", "schema_version: 1\ntrain: {epochs: 3}\n")  # as Monitor writes it
    for command in (["--preset", "run:watched", "--dry-run"], ["export", "--preset", "run:watched"]):
        assert cli.run(command) == 2, "no other model is trained in its name"
        assert "'run:watched': is a fit of your own script, which gputui cannot start" in capsys.readouterr().err
    runs.create("my-own", presets.resolve("quickstart").to_yaml())
    assert cli.run(["--preset", "run:my-own", "--dry-run"]) == 2
    assert "2 runs have that in their ids" in capsys.readouterr().err


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


# ---- The parser of YAML in C, and the one in Python for what it refuses --------------------------


def _read_or_refused(text: str, kind: Any) -> Any:
    """What the parser reads; for YAML that is no preset the words, the line and the key with which it is refused."""
    try:
        return located_yaml._parse(text, kind)
    except YamlFault as fault:
        return fault.message, fault.line, fault.key


def test_both_parsers_read_the_same() -> None:
    """Presets that are damaged at random places, where the parser in C would be used."""
    texts = [path.read_text() for path in sorted(presets.SHIPPED.glob("*.yaml"))]
    drawn = random.Random(1)
    accepted = 0
    for _ in range(150):
        letters = list(drawn.choice(texts))
        letters[drawn.randrange(len(letters))] = drawn.choice("\n :-[]{},'\"#|>%@0e.")
        text = "".join(letters)
        try:
            fast = _read_or_refused(text, located_yaml._loaders()[0])
        except yaml.YAMLError:
            continue  # read again by the other
        assert fast == _read_or_refused(text, located_yaml._loaders()[1]), text
        accepted += 1
    assert accepted > 40
