"""Saving presets: comments and order stay, only what changed is written, what is written means what was meant."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.presets import Preset, paths, saving
from gputui.engine.presets.saving import SaveError

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
    "workload.shape": [[32, 32, 3], [7], [8, 8]],
    "workload.samples": [None, 77],
    "workload.args": [{}, {"lr": 0.1, "on": "yes", "no": [1, "2", None], "d": {"e": True, "f": "~", "g": "1e3"}}],
    "workload.entry": [None, "train.py:build", "/tmp/it's #1/a.py:f"],
    "device.visible": ["all", "none", [0, 1]],
    "compile.xla": ["auto", True, False],
    "input.cache": ["off", "memory", "/tmp/x y", "on"],
    "input.prefetch": ["off", "auto", 3],
    "train.learning_rate": [0.001, 1e-05, 2.0],
    "train.seed": [None, 0, 5],
    "run.hang_seconds": ["off", 300.0, 12.5],
    "run.profile": ["off", "5-9"],
}


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


def test_what_the_base_gives_is_written_only_when_changed(file: Path) -> None:
    saving.save(changed(presets.resolve(str(file)), {"input.shuffle": 5}), file)
    text = file.read_text()
    assert "shuffle: 5" in text
    assert "cosine" not in text
    assert "extends: quickstart" in text


def test_back_to_the_default_stays_in_the_file(file: Path) -> None:
    preset = changed(presets.resolve(str(file)), {"train.seed": None, "train.schedule": "constant"})
    saving.save(preset, file)
    assert presets.resolve(str(file)).options == preset.options
    assert "seed: null" in file.read_text()


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


def test_the_description_is_written_in_its_place_or_at_the_head(file: Path) -> None:
    saving.save(changed(presets.resolve(str(file)), {}, "yours"), file)
    assert file.read_text() == LAID_OUT.replace('"mine"', '"yours"')
    file.write_text("schema_version: 1\ntrain: {epochs: 3}\n")
    saving.save(changed(presets.resolve(str(file)), {}, "a: new"), file)
    assert file.read_text().splitlines()[1].startswith("description: ")
    assert presets.resolve(str(file)).description == "a: new"


def test_line_ends_stay(file: Path) -> None:
    file.write_bytes(LAID_OUT.replace("\n", "\r\n").encode())
    saving.save(changed(presets.resolve(str(file)), {"train.epochs": 9}), file)
    assert file.read_bytes().count(b"\r\n") == file.read_bytes().count(b"\n") > 5


def test_a_group_without_options_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text("input:\ntrain: {}\n")
    preset = changed(presets.resolve(str(path)), {"input.batch_size": 2, "train.epochs": 5}, "told")
    saving.save(preset, path)
    assert presets.resolve(str(path)).options == preset.options
    assert presets.resolve(str(path)).description == "told"


def test_shipped_presets_are_refused() -> None:
    path = presets.SHIPPED / "quickstart.yaml"
    with pytest.raises(SaveError, match="ships with gputui"):
        saving.save(presets.resolve("quickstart"), path)
    with pytest.raises(SaveError, match="ships with gputui"):
        saving.delete(path)
    with pytest.raises(SaveError, match="ships with gputui"):
        saving.place("quickstart")


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


def test_a_preset_that_could_not_be_brought_back_whole_can_be_later_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("train: {epochs: 3}\n" * 1000)
    path.chmod(0o664)
    whole, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    deleted = saving.delete(path)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as on a full disk, after a part was written
    try:
        with pytest.raises(SaveError, match=r"mine\.yaml cannot be restored: File too large"):
            deleted.bring_back()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert not path.exists()
    deleted.bring_back()
    assert path.read_bytes() == whole
    assert path.stat().st_mode & 0o777 == 0o664, "whatever the umask"


def test_saving_through_a_link_changes_the_file_that_it_leads_to(file: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "mine.yaml"
    link.symlink_to(file)
    saving.save(changed(presets.resolve(str(link)), {"train.epochs": 9}), link)
    assert link.readlink() == file
    assert file.read_text() == LAID_OUT.replace("epochs: 3", "epochs: 9")
    shipped = tmp_path / "links" / "shipped.yaml"
    shipped.symlink_to(presets.SHIPPED / "quickstart.yaml")
    with pytest.raises(SaveError, match="ships with gputui"):
        saving.save(presets.resolve("quickstart"), shipped)


def test_a_file_changed_by_another_is_not_overwritten(file: Path) -> None:
    preset = changed(presets.resolve(str(file)), {"train.epochs": 9})
    file.write_text(LAID_OUT + "compile: {xla: true}\n")
    with pytest.raises(SaveError, match="changed since it was opened"):
        saving.save(preset, file, LAID_OUT)
    assert "xla: true" in file.read_text()


def test_a_new_preset_is_laid_out_like_its_source(file: Path, tmp_path: Path) -> None:
    target = saving.place("copy")
    assert target == presets.user_folder() / "copy.yaml"
    preset = changed(presets.resolve(str(file)), {"train.epochs": 9})
    saving.save_as(preset, target, file)
    assert "# drawn once" in target.read_text()
    assert presets.resolve("copy").options == preset.options
    with pytest.raises(SaveError, match="exists"):
        saving.save_as(preset, target, file)


def test_a_base_beside_the_source_is_still_found_elsewhere(file: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text("extends: mine.yaml  # near\ntrain: {epochs: 8}\n")
    target = tmp_path / "far" / "child.yaml"
    saving.save_as(presets.resolve(str(child)), target, child)
    assert presets.resolve(str(target)).options == presets.resolve(str(child)).options
    assert "# near" in target.read_text()


def test_a_base_in_the_home_folder_is_still_found_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "base.yaml").write_text("train: {epochs: 8}\n")
    child, target = tmp_path / "near" / "child.yaml", tmp_path / "far" / "child.yaml"
    child.parent.mkdir()
    child.write_text("extends: ~/base.yaml\n")
    saving.save_as(presets.resolve(str(child)), target, child)
    assert presets.resolve(str(target)).options.train.epochs == 8


def test_a_new_preset_without_source_holds_what_differs() -> None:
    target = saving.place("fresh")
    preset = presets.defaults(["epochs=9"])
    saving.save_as(preset, target)
    assert target.read_text() == "schema_version: 1\ntrain: {epochs: 9}\n"


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "-x", "x" * 65, "a.txt ä"])
def test_names_that_are_no_names(name: str) -> None:
    with pytest.raises(SaveError, match=r"^give a name of letters, digits, - and _, or a path that ends in \.yaml$"):
        saving.place(name)


def test_a_name_is_a_file_among_the_users_presets_and_a_path_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    own = presets.user_folder()
    for given, path in (
        ("mine", own / "mine.yaml"), (" mine ", own / "mine.yaml"), ("x" * 64, own / f"{'x' * 64}.yaml"),
        ("a.b-c_9", own / "a.b-c_9.yaml"), ("mine.yml", own / "mine.yml"), ("a b.yaml", own / "a b.yaml"),
        ("./mine.yaml", Path("mine.yaml")), ("~/x/a b.yml", Path("/home/ann/x/a b.yml")),
        ("/x/quickstart.yaml", Path("/x/quickstart.yaml")),
    ):  # fmt: skip
        assert saving.place(given) == path
    for given in ("quickstart", "quickstart.yaml", str(own / "quickstart.yml")):
        with pytest.raises(SaveError, match=r"^quickstart ships with gputui; choose another name$"):
            saving.place(given)


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


def test_how_a_file_has_changed_since_it_was_opened(file: Path, tmp_path: Path) -> None:
    assert saving.changed_since(file, LAID_OUT) == saving.changed_since(file, None) == ""
    assert saving.changed_since(file, LAID_OUT + "#") == "was changed since it was opened"
    assert saving.changed_since(tmp_path / "gone.yaml", None) == "is no longer there"
    (tmp_path / "link.yaml").symlink_to("gone.yaml")
    with pytest.raises(SaveError, match=r"link\.yaml cannot be read"):
        saving.changed_since(tmp_path / "link.yaml", LAID_OUT)
    assert saving.content_of(file) == LAID_OUT
    assert saving.content_of(tmp_path / "gone.yaml") is None
    file.write_bytes(b"\xef\xbb\xbf" + LAID_OUT.encode())
    assert saving.changed_since(file, LAID_OUT) == "", "a mark of the byte order is no change"
    file.write_bytes(b"\xff")
    assert saving.content_of(file) is None


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_preset_that_was_written_over_is_brought_back_unless_it_was_changed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    replaced = saving.Replaced(link, LAID_OUT, "new\n")
    file.write_text("newer\n")
    with pytest.raises(SaveError) as fault:
        replaced.bring_back()
    assert str(fault.value) == f"{link} was changed since it was saved, and keeps that change"
    file.write_text("new\n")
    with monkeypatch.context() as patch:
        patch.setattr(saving, "write_atomically", full)
        with pytest.raises(SaveError) as fault:
            replaced.bring_back()
    assert str(fault.value) == f"{link} cannot be written: No space left on device"
    replaced.bring_back()
    assert file.read_text() == LAID_OUT
    assert link.readlink() == file


def test_new_values_are_laid_out_as_the_rest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for text, values, words, written in (
        ("train: {epochs: 3}\n", {"input.batch_size": 2}, None, "train: {epochs: 3}\ninput: {batch_size: 2}\n"),
        ("train:\n  epochs: 3\n", {"input.batch_size": 2}, None, "train:\n  epochs: 3\ninput:\n  batch_size: 2\n"),
        ("train: {epochs: 3}\n", {}, "new", "description: new\ntrain: {epochs: 3}\n"),
        ("schema_version: 1\ntrain: {epochs: 3}\n", {}, "new",
         "schema_version: 1\ndescription: new\ntrain: {epochs: 3}\n"),
        ("train: {epochs: 3}\n", {}, "", "train: {epochs: 3}\n"),
    ):  # fmt: skip
        path.write_text(text)
        saving.save(changed(presets.resolve(str(path)), values, words), path)
        assert path.read_text() == written


def test_a_folder_that_cannot_be_written(file: Path) -> None:
    preset = presets.resolve(str(file))
    with pytest.raises(SaveError):
        saving.save_as(preset, Path("/proc/no/such.yaml"), file)


def test_a_copy_names_no_schema_that_is_not_beside_it(tmp_path: Path) -> None:
    shipped = presets.find("quickstart")
    for name, remains in (("alone", False), ("beside", True)):
        copy = tmp_path / name / "mine.yaml"
        copy.parent.mkdir()
        if remains:
            (copy.parent / "schema.json").write_text("{}")
        saving.save_as(presets.resolve("quickstart"), copy, shipped)
        assert ("$schema=" in copy.read_text()) is remains
        assert "Start here" in copy.read_text()


def test_a_base_is_found_elsewhere_by_its_path_and_a_name_stays_a_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number, (base, written) in enumerate((
        ("base.yml", f'"{tmp_path}/a/base.yml"  # why'), ("base.yaml", f'"{tmp_path}/a/base.yaml"  # why'),
        ("./base.yml", f'"{tmp_path}/a/base.yml"  # why'), ("quickstart", "quickstart  # why"),
        (f"{tmp_path}/a/base.yml", f'"{tmp_path}/a/base.yml"  # why'),
    )):  # fmt: skip
        for name in ("base.yml", "base.yaml"):
            (tmp_path / "a" / name).write_text("train: {epochs: 9}\n")
        source = tmp_path / "a" / "mine.yaml"
        source.write_text(f"extends: {base}  # why\ninput: {{batch_size: 8}}\n")
        saving.save_as(presets.resolve(str(source)), tmp_path / f"{number}.yaml", source)
        text = f"extends: {written}\ninput: {{batch_size: 8}}\n"
        assert (tmp_path / f"{number}.yaml").read_text() == text, base
        saving.save_as(presets.resolve(str(source)), tmp_path / "a" / f"{number}.yaml", source)
        assert (tmp_path / "a" / f"{number}.yaml").read_text() == source.read_text(), "in the same folder it is found"


def test_a_schema_in_the_web_stays_the_schema_of_a_copy(tmp_path: Path) -> None:
    source = tmp_path / "mine.yaml"
    for place, stays in (("https://example.org/schema.json", True), ("schema.json", False), ("/no/schema.json", False)):
        line = f"# yaml-language-server: $schema={place}\n"
        source.write_text(f"{line}train: {{epochs: 9}}\n")
        copy = tmp_path / "b" / f"{len(place)}.yaml"
        saving.save_as(presets.resolve(str(source)), copy, source)
        assert copy.read_text() == (line if stays else "") + "train: {epochs: 9}\n"


def test_an_entry_that_was_typed_here_is_found_from_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    typed = presets.assemble("mine", {"workload.entry": "train.py:build"})
    saving.save_as(typed, tmp_path / "there" / "a.yaml")
    read = presets.resolve(str(tmp_path / "there" / "a.yaml")).options.workload
    assert (read.entry, read.folder) == (f"{here}/train.py:build", str(here))
    saving.save_as(typed, here / "a.yaml")
    assert (here / "a.yaml").read_text() == "schema_version: 1\nworkload: {entry: train.py:build}\n"


def test_nothing_is_saved_or_deleted_among_the_shipped_presets_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "quickstart.yaml").write_text("train: {epochs: 2}\n")
    (tmp_path / "other").symlink_to(shipped)
    with monkeypatch.context() as patched:
        patched.setattr(saving, "SHIPPED", shipped)
        with pytest.raises(SaveError, match=r"^quickstart ships with gputui and cannot be deleted$"):
            saving.delete(tmp_path / "other" / "quickstart.yaml")
    assert (shipped / "quickstart.yaml").exists()
    (tmp_path / "link").symlink_to(presets.SHIPPED)
    before = sorted(presets.SHIPPED.iterdir())
    with pytest.raises(SaveError, match=r"^that folder holds the presets that ship with gputui; choose another one$"):
        saving.save_as(presets.defaults(), tmp_path / "link" / "new.yaml")
    assert sorted(presets.SHIPPED.iterdir()) == before
