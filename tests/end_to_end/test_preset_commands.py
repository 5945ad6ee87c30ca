"""What the commands about presets and options print, to the letter."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.interpreter import interpreter
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.options import OPTIONS
from gputui.tui import cli

Printed = pytest.CaptureFixture[str]


def printed(capsys: Printed, *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it prints on stdout and on stderr."""
    capsys.readouterr()
    code = cli.run(words)
    return code, *capsys.readouterr()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, on a machine without a GPU."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(this_machine, "read", lambda: Machine((), "no NVIDIA driver", 8, 2**34))
    return folder


def test_presets_are_listed_with_their_owner_and_what_is_wrong_with_them(here: Path, capsys: Printed) -> None:
    own = presets.user_folder()
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("description: 'it is\n\n  mine'\ntrain: {epochs: 2}\n")
    (own / "broken.yaml").write_text("train: {epochs: many}\n")
    (here / "near.yaml").write_text("train: {epochs: 2}\n")
    (here / "other.yaml").write_text("services: {a: 1}\n")
    (here / "odd.yml").write_text("- a\n")
    code, out, err = printed(capsys, "presets")
    rows = [re.split(r"  +", line.rstrip()) for line in out.splitlines()]
    named = {row[0]: row[1:] for row in rows}
    assert (code, err) == (0, "")
    assert named["mine"] == ["yours", "it is mine"]
    assert named["broken"][0] == "yours"
    assert named["broken"][1].startswith(f"cannot be used: {own}/broken.yaml:1: train.epochs: 'many' does not fit")
    assert named["./near.yaml"] == ["in this folder"]
    assert named["quickstart"] == [presets.resolve("quickstart").description]
    shipped = {path.stem for path in presets.SHIPPED.glob("*.yaml")}
    assert set(named) == {*shipped, "mine", "broken", "./near.yaml"}
    assert printed(capsys, "presets", "list") == (code, out, err)
    listed = {row["name"]: row for row in map(json.loads, printed(capsys, "presets", "list", "--json")[1].splitlines())}
    assert set(listed) == set(named)
    assert (listed["mine"]["owner"], listed["quickstart"]["owner"], listed["mine"]["error"]) == (
        "yours",
        "gputui",
        None,
    )
    assert listed["broken"]["error"] in listed["broken"]["description"]


def test_checked_presets_are_good_or_have_their_problems_with_the_place(here: Path, capsys: Printed) -> None:
    (here / "good.yaml").write_text("train: {epochs: 2}\n")
    (here / "noted.yaml").write_text("device: {memory_limit_mb: 64}\ntrain:\n  steps_per_epoch: 5\n")
    (here / "wrong.yaml").write_text("train:\n  optimizer: adam\n  momentum: 0.9\n")
    (here / "broken.yaml").write_text("train: {epochs: many}\n")
    code, out, err = printed(capsys, "presets", "check", "good.yaml", "noted.yaml", "./broken.yaml", "wrong.yaml")
    assert (code, out) == (2, "good.yaml: good\nnoted.yaml: good, 1 remark(s)\n")
    does_nothing = "device.memory_limit_mb: does nothing without a GPU; training continues without it"
    takes_none = "train.momentum, train.optimizer: adam takes no momentum; set train.optimizer to sgd or rmsprop, or"
    assert err.splitlines() == [
        f"noted.yaml:1: note: {does_nothing}",
        "broken.yaml:1: train.epochs: 'many' does not fit: give a whole number from 1 to 1,000,000",
        f"wrong.yaml:3: error: {takes_none} train.momentum=0",
    ]
    assert printed(capsys, "presets", "check", "good.yaml") == (0, "good.yaml: good\n", "")
    assert printed(capsys, "presets", "check", "wrong.yaml", "good.yaml")[:2] == (2, "good.yaml: good\n")


def test_first_files_are_written_once_and_what_comes_next_is_said(here: Path, capsys: Printed) -> None:
    said = (
        "\nnext:\n    {}gputui --preset preset.yaml      train it as it is\n"
        "    gputui preset.yaml               open the form on it, to change options\n"
        "then put your own model and data into train.py: gputui guide says what build may return,\n"
        "and gputui options lists what a preset can set\n"
    )
    assert printed(capsys, "init") == (0, "wrote preset.yaml\nwrote train.py\n" + said.format(""), "")
    assert printed(capsys, "init", "a b/c") == (
        0, "wrote a b/c/preset.yaml\nwrote a b/c/train.py\n" + said.format("cd 'a b/c'\n    "), "",
    )  # fmt: skip
    phases = printed(capsys, "init", "phases", "--example", "two-phases")[1]
    assert phases == (
        "wrote phases/two-phases.yaml\nwrote phases/two_phases.py\nwrote phases/two-phases-unfrozen.yaml\n\nnext:\n"
        "    cd phases\n    gputui --preset two-phases.yaml           train it as it is\n"
        "    gputui --preset two-phases-unfrozen.yaml  then this\n"
        "    gputui two-phases.yaml                    open the form on it, to change options\n"
        "then put your own model and data into two_phases.py: gputui guide says what build may return,\n"
        "and gputui options lists what a preset can set\n"
    )
    exists = "{} exists, and is not overwritten; name another folder: gputui init DIR\n"
    assert printed(capsys, "init") == (2, "", exists.format("preset.yaml"))
    assert printed(capsys, "init", "train.py") == (2, "", exists.format("train.py"))
    (here / "preset.yaml").unlink()
    (here / "train.py").write_text("print('mine')\n")
    assert "def build(context):" in printed(capsys, "init")[1]
    assert ((here / "preset.yaml").exists(), (here / "train.py").read_text()) == (True, "print('mine')\n")
    (here / "preset.yaml").unlink()
    (here / "train.py").unlink()
    (here / "train.py").symlink_to("nowhere.py")
    assert printed(capsys, "init") == (2, "", exists.format("train.py"))
    assert not (here / "preset.yaml").exists(), "nothing is written"
    assert presets.resolve("a b/c/preset.yaml").options.workload.args == {"units": 64}


def test_the_first_preset_has_few_settings_and_proposes_others_that_can_be_uncommented(here: Path) -> None:
    assert cli.run(["init"]) == 0
    first = presets.resolve("preset.yaml")
    settings = {
        "workload.entry": f"{here}/train.py:build", "workload.folder": str(here), "workload.args": {"units": 64},
        "input.batch_size": 32, "input.cache": "memory", "input.shuffle": 2000, "train.epochs": 5,
        "train.optimizer": "adam", "train.learning_rate": 0.003, "train.seed": 1, "run.checkpoint": "epoch",
    }  # fmt: skip
    defaults = {info.key: info.default for info in OPTIONS}
    assert first.changed() == {key: value for key, value in settings.items() if value != defaults[key]}
    assert (first.description, first.name) == ("My training", here.name)
    text = (here / "preset.yaml").read_text()
    (here / "preset.yaml").write_text(re.sub(r"(?m)^# (precision|compile|strategy):", r"\1:", text))
    more = {
        "precision.policy": "mixed_bfloat16", "compile.xla": True, "compile.steps_per_execution": 10,
        "strategy.kind": "mirrored",
    }  # fmt: skip
    assert presets.resolve("preset.yaml").changed() == first.changed() | more


def test_a_script_is_written_with_the_command_that_runs_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    words = ("export", "--preset", "quickstart", "--set", "data=synthetic")
    python = interpreter.chosen(None)
    for found, shown in ((None, python), (f"{Path(python).parent}/python", "python"), ("/usr/bin/python", python)):
        monkeypatch.setattr(shutil, "which", lambda name, found=found: found)
        assert printed(capsys, *words, "-o", "a b.py") == (0, f"a b.py written; {shown} 'a b.py' runs it\n", "")
        text = (here / "a b.py").read_text()
        (here / "a b.py").unlink()
    assert printed(capsys, *words) == (0, text, "")
    given = (*words[:-1], "cache=/tmp/kept")
    warning = "the script names {} of this machine; -o FOLDER/ exports a folder that runs elsewhere\n"
    assert printed(capsys, *given, "--set", "data=synthetic")[2] == warning.format("/tmp/kept")
    to_file = printed(capsys, *given, "--set", "data=synthetic", "-o", "c.py")
    assert to_file[2] == warning.format("/tmp/kept"), "also of a file"
    (here / "there").mkdir()
    for target in ("there", "new/"):
        assert printed(capsys, *words, "-o", target)[:2] == (
            0, f"{target.rstrip('/')} written; its README.md says how to train with it elsewhere\n",
        )  # fmt: skip
    assert printed(capsys, *words[:-1], "data=npz:no.npz", "-o", "data/") == (
        0, "data written; its README.md says how to train with it elsewhere\n",
        f"{here}/no.npz is not copied, as it is missing or large; put it at data/data/no.npz\n",
    )  # fmt: skip
    code, out, err = printed(capsys, "export", "--preset", "quickstart", "--set", "entry=no.py:build")
    assert (code, out) == (2, "")
    assert err == (
        f"workload.entry: {here}/no.py does not exist; name a file with your code, such as train.py\n"
    )  # fmt: skip


# ---- options --------------------------------------------------------------------------------------


def test_an_option_is_explained(capsys: Printed, monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> None:
    texts = []
    for name in ("batch_size", "strategy.kind", "tf32", "notify.command", "xla"):
        code, out, err = printed(capsys, "options", name)
        assert (code, err) == (0, "")
        texts.append(out)
    for width in (60, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr("rich.console.Console.is_terminal", property(lambda _: True))
        out = re.sub(r"\x1b\[[\d;]*m", "", printed(capsys, "options", "xla")[1])
        assert max(map(len, out.splitlines())) <= min(width, 100)
        texts.append(f"in {width} columns\n{out}")
        out = re.sub(r"\x1b\[[\d;]*m", "", printed(capsys, "options", "compile")[1])
        assert max(map(len, out.splitlines())) <= width
        texts.append(out)
    assert "\n".join(texts) == snapshot


def test_the_help_of_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Printed, snapshot: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = printed(capsys, "--help")
    assert (code, err) == (0, "")
    assert out == snapshot
    monkeypatch.setenv("COLUMNS", "50")
    narrow = printed(capsys, "--help")[1].partition("\nRuns:\n")[2]
    assert "  diagnose   Say what limits the speed; with...\n" in narrow
    assert "  fit-batch  Find the fastest batch size,...\n" in narrow
    for words in (("-h",), ("runs", "--help"), ("runs", "-h")):
        assert printed(capsys, *words)[::2] == (0, "")


def test_an_option_as_json_has_all_parts_of_its_declaration(capsys: Printed) -> None:
    rows = [json.loads(line) for line in printed(capsys, "options", "--json")[1].splitlines()]
    for info, row in zip(OPTIONS, rows, strict=True):
        about = info.about
        assert row == {
            "key": info.key, "default": info.default, "takes": info.accepts, "words": list(info.fixed_values),
            "unit": about.unit or None, "help": about.help, "helps": about.helps or None,
            "hurts": about.hurts or None, "call": about.call or None, "gpu_only": about.gpu_only,
            "own_code": row["own_code"], "other_names": row["other_names"], "not_offered": dict(about.not_offered),
        }  # fmt: skip
    by_key = {row["key"]: row for row in rows}
    assert by_key["input.batch_size"]["other_names"][:2] == ["bs", "batch"]
    assert by_key["train.learning_rate"]["own_code"].startswith("to a model that your code has not compiled")
    assert by_key["input.batch_size"]["unit"] == "samples"


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("batch_size", ["input.batch_size"]), (" input.batch_size ", ["input.batch_size"]),
        ("precision", [info.key for info in OPTIONS if info.group == "precision"]),
        ("precision.", [info.key for info in OPTIONS if info.group == "precision"]),
        ("", [info.key for info in OPTIONS]),
        ("clip", ["train.global_clip_norm", "train.clip_norm", "train.clip_value"]),
    ],
)  # fmt: skip
def test_words_lead_to_the_option_then_the_group_then_other_names(words: str, keys: list[str], capsys: Printed) -> None:
    out = printed(capsys, "options", words, "--json")[1]
    assert [json.loads(line)["key"] for line in out.splitlines()] == keys
