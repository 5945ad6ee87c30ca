"""Saving presets: comments and order stay, only what changed is written, what is written means what was meant."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Preset, SaveError, paths, presets, saving

LAID_OUT = """\
# my preset
schema_version: 1
extends: quickstart   # the base
description: "mine"
input: {batch_size: 128, cache: off}  # flow
train:
    epochs: 3   # three

    # drawn once
    seed: 11
"""
VALUES: dict[str, list[Any]] = {
    "workload.data": ["digits", "synthetic", "npz:/tmp/it's #1: here.npz", "tfrecord:*.rec"],
    "workload.tfrecord_input": ["image", "yes", "null", "1e3", "- x", "#", "[a]", "~", "off", "ünï"],
    "workload.shape": [[32, 32, 3], [7], [8, 8]], "workload.samples": [None, 77],
    "workload.args": [{}, {"lr": 0.1, "on": "yes", "no": [1, "2", None], "d": {"e": True, "f": "~", "g": "1e3"}}],
    "workload.entry": [None, "train.py:build", "/tmp/it's #1/a.py:f"], "device.visible": ["all", "none", [0, 1]],
    "compile.xla": ["auto", True, False], "input.cache": ["off", "memory", "/tmp/x y", "on"],
    "input.prefetch": ["off", "auto", 3], "train.learning_rate": [0.001, 1e-05, 2.0], "train.seed": [None, 0, 5],
    "run.hang_seconds": ["off", 300.0, 12.5], "run.profile": ["off", "5-9"],
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(LAID_OUT)
    return path


def changed(preset: Preset, values: dict[str, Any], description: str | None = None) -> Preset:
    present = {f"{g}.{n}": v for g, group in asdict(preset.options).items() for n, v in group.items()}
    return presets.assemble(preset.name, present | values, preset.description if description is None else description)


def test_nothing_changed_writes_the_same_text(file: Path) -> None:
    saving.save(presets.resolve(str(file)), file)
    assert file.read_text() == LAID_OUT


def test_only_the_changed_lines_change(file: Path) -> None:
    preset = changed(presets.resolve(str(file)), {"train.epochs": 4, "train.optimizer": "sgd", "compile.xla": True})
    saving.save(preset, file)
    expected = LAID_OUT.replace("epochs: 3 ", "epochs: 4 ").replace(
        "    seed: 11\n", "    seed: 11\n    optimizer: sgd\ncompile:\n    xla: true\n"
    )
    assert [line.split() for line in file.read_text().splitlines()] == [line.split() for line in expected.splitlines()]
    assert presets.resolve(str(file)).options == preset.options


def test_any_change_survives(file: Path) -> None:
    dice = random.Random(1)
    for _ in range(60):
        picked = dice.sample(sorted(VALUES), 4)
        before = presets.resolve(str(file))
        preset = changed(before, {key: dice.choice(VALUES[key]) for key in picked}, dice.choice(["mine", "a: #b", ""]))
        saving.save(preset, file)
        read = presets.resolve(str(file))
        placed = paths.absolute(preset.options, {"workload.entry": ""})  # a typed entry runs in the current folder
        assert (read.options, read.description) == (placed, preset.description)
    for comment in ("# my preset", "# the base", "# flow", "# three", "# drawn once"):
        assert comment in file.read_text()


def test_another_folder_of_own_code_is_written(file: Path) -> None:
    file.write_text(LAID_OUT + "workload: {folder: /elsewhere}\n")
    saving.save(changed(presets.resolve(str(file)), {"workload.folder": str(file.parent)}), file)
    assert presets.resolve(str(file)).options.workload.folder == str(file.parent)


def test_a_deleted_preset_is_brought_back_and_overwrites_nothing(tmp_path: Path) -> None:
    path, link = tmp_path / "mine.yaml", tmp_path / "link.yaml"
    path.write_bytes(b"\xef\xbb\xbf# mine\r\ntrain: {epochs: 3}\r\n")
    link.symlink_to(path)
    whole = path.read_bytes()
    saving.delete(link).bring_back()
    assert link.readlink() == path
    lost = tmp_path / "lost.yaml"
    lost.symlink_to("nowhere.yaml")
    saving.delete(lost).bring_back()
    assert str(lost.readlink()) == "nowhere.yaml", "a link that leads nowhere can be deleted as well"
    deleted = saving.delete(path)
    assert not path.exists()
    path.write_text("new")
    with pytest.raises(SaveError, match="another file of this name"):
        deleted.bring_back()
    path.unlink()
    path.symlink_to(tmp_path / "nowhere.yaml")
    with pytest.raises(SaveError, match="another file of this name"):
        deleted.bring_back()
    path.unlink()
    deleted.bring_back()
    assert path.read_bytes() == whole
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(SaveError, match=r"folder\.yaml exists$"):
        saving.save_as(presets.resolve(str(path)), tmp_path / "folder.yaml")


def test_a_base_beside_the_source_is_still_found_elsewhere(file: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    line = "# yaml-language-server: $schema=schema.json\n"
    child.write_text(line + "extends: mine.yaml  # near\ntrain: {epochs: 8}\n")
    (tmp_path / "schema.json").touch()
    target = tmp_path / "far" / "child.yaml"
    saving.save_as(presets.resolve(str(child)), target, child)
    assert presets.resolve(str(target)).options == presets.resolve(str(child)).options
    assert target.read_text().endswith("# near\ntrain: {epochs: 8}\n")
    assert line not in target.read_text(), "no schema is there"
    saving.save_as(presets.resolve(str(child)), beside := tmp_path / "beside.yaml", child)
    assert beside.read_text() == child.read_text()


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "-x", "x" * 65, "a.txt ä"])
def test_names_that_are_no_names(name: str) -> None:
    with pytest.raises(SaveError, match=r"^give a name of letters, digits, - and _, or a path that ends in \.yaml$"):
        saving.place(name)


def test_what_is_not_saved_is_said_with_the_reason(file: Path, tmp_path: Path) -> None:
    preset, shipped = presets.resolve(str(file)), presets.SHIPPED
    folder = tmp_path / "a-file" / "inner"
    (tmp_path / "a-file").touch()
    (tmp_path / "no-preset.yaml").write_text("train: {epochs: many}\n")
    (tmp_path / "latin.yaml").write_bytes(b"# caf\xe9\n")
    for act, words in (
        (lambda: saving.save(preset, shipped / "fast.yaml"),
         "fast ships with gputui and cannot be overwritten; save it under another name"),
        (lambda: saving.save(preset, file, LAID_OUT + "#"),
         f"{file} was changed since it was opened; open it again, or save under another name"),
        (lambda: saving.save_as(preset, file), f"{file} exists"),
        (lambda: saving.save_as(preset, shipped / "new.yaml"),
         "that folder holds the presets that ship with gputui; choose another one"),
        (lambda: saving.save_as(preset, folder / "x.yaml"), f"{folder} cannot be created: Not a directory"),
        (lambda: saving.save(preset, tmp_path / "gone.yaml"),
         f"{tmp_path}/gone.yaml cannot be read: [Errno 2] No such file or directory: '{tmp_path}/gone.yaml'"),
        (lambda: saving.delete(shipped / "fast.yaml"), "fast ships with gputui and cannot be deleted"),
        (lambda: saving.delete(tmp_path / "gone.yaml"),
         f"{tmp_path}/gone.yaml cannot be deleted: No such file or directory"),
    ):  # fmt: skip
        with pytest.raises(SaveError) as fault:
            act()
        assert str(fault.value) == words
    with pytest.raises(SaveError, match=r"no-preset.yaml:1: train.epochs: 'many' does not fit"):
        saving.save(preset, tmp_path / "no-preset.yaml")
    with pytest.raises(SaveError, match=r"latin.yaml cannot be read: 'utf-8' codec"):
        saving.save(preset, tmp_path / "latin.yaml")
    assert file.read_text() == LAID_OUT
