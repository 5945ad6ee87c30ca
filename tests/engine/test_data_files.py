"""Faults of data sets that are recognized by their files, word for word."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from gputui.engine import checks, presets
from gputui.engine.checks import file_rules
from gputui.engine.checks.file_rules import dataset_faults

from tests.support.checked import NONE
from tests.support.training import options

CLASSES = "give a folder with one folder of images for each class"
SAVEZ = "write it with numpy.savez(path, x=..., y=...)"


def npz(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(f"{name}.npy", b"")
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_npz_must_have_inputs_and_labels_and_its_first_eight_arrays_are_named(tmp_path: Path) -> None:
    for names in (("x", "y"), ("x_train", "y_train"), ("x", "y_train", "other"), ("x_train", "y")):
        assert list(dataset_faults("npz", str(npz(tmp_path / "a.npz", *names)))) == []
    lacks = [("error", f"a.npz has no array '{name}' or '{name}_train' (it has: {{}})", SAVEZ) for name in "xy"]

    def told(*names: str) -> list[tuple[str, str, str]]:
        return list(dataset_faults("npz", str(npz(tmp_path / "a.npz", *names))))

    assert told() == [(level, text.format("none"), change) for level, text, change in lacks]
    assert told("y") == [("error", lacks[0][1].format("y"), SAVEZ)]
    eight, nine = [f"a{number}" for number in range(8)], [f"a{number}" for number in range(9)]
    assert told(*eight)[0][1] == lacks[0][1].format(", ".join(eight))
    assert told(*nine) == [(level, text.format(", ".join(eight)), change) for level, text, change in lacks]
    (tmp_path / "b.npz").write_text("no archive")
    assert list(dataset_faults("npz", "b.npz")) == [("error", "b.npz is not a .npz file", SAVEZ)]
    assert list(dataset_faults("npz", "c.npz")) == [
        ("error", "there is no file c.npz", "give the path of a .npz file")
    ]  # fmt: skip


def test_images_need_two_folders_and_each_of_the_first_hundred_an_image(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    assert list(dataset_faults("images", "images")) == [("error", "there is no folder images", CLASSES)]
    folder.mkdir()

    def told() -> list[tuple[str, str, str]]:
        return list(dataset_faults("images", str(folder)))

    needed = "class {}; at least 2 are needed"
    assert told() == [("error", f"images has 0 {needed.format('folders')}", CLASSES)]
    (folder / "a").mkdir()
    (folder / ".hidden").mkdir()
    assert told() == [("error", f"images has 1 {needed.format('folder')}", CLASSES)]
    (folder / "b").mkdir()
    (folder / "a" / "1.JPEG").touch()
    (folder / "b" / "note.txt").touch()
    no_image = "images/b contains no images (.jpg, .jpeg, .png, .bmp, .gif)"
    assert told() == [("error", no_image, "fill or remove it")]
    (folder / "b" / "1.gif").touch()
    assert told() == []
    for number in range(99):
        (folder / f"c{number:02}").mkdir()
        (folder / f"c{number:02}" / "1.bmp").touch()
    assert told() == []
    (folder / "c97" / "1.bmp").unlink()  # of a, b, c00 ... it is the 100th
    assert told() == [("error", no_image.replace("/b", "/c97"), "fill or remove it")]
    (folder / "c97" / "1.bmp").touch()
    (folder / "c98" / "1.bmp").unlink()
    assert told() == [], "it is the 101st, and is not looked into"


def test_records_are_in_some_file_that_is_not_empty(tmp_path: Path) -> None:
    pattern = "*.rec"
    change = "give a path or pattern such as data/*.tfrecord"
    assert list(dataset_faults("tfrecord", pattern)) == [("error", "no file matches *.rec", change)]
    for name in ("a.rec", "b.rec"):
        (tmp_path / name).touch()
    empty = ("error", "the files that match *.rec are empty", "write records into them")
    assert list(dataset_faults("tfrecord", pattern)) == [empty]
    for name in ("a.rec", "b.rec"):
        (tmp_path / name).write_text("x")
        assert list(dataset_faults("tfrecord", pattern)) == []
        (tmp_path / name).write_text("")


def test_a_file_that_cannot_be_read_is_an_error_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    npz(tmp_path / "a.npz", "x", "y")

    def refused(_place: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(file_rules, "arrays_of_npz", refused)
    assert list(dataset_faults("npz", "a.npz")) == [
        ("error", "a.npz cannot be read: Permission denied", "check its owner and permissions")
    ]  # fmt: skip
    assert list(dataset_faults("synthetic", "")) == list(dataset_faults("", "x")) == []


def test_a_download_is_a_warning_with_the_folder_where_the_files_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert list(dataset_faults("mnist", "")) == [(
        "warning",
        f"mnist is not in {tmp_path}/datasets: Keras will download it at the start, which needs a network connection",
        "run once with a network connection, or copy the files there",
    )]  # fmt: skip


def test_the_test_part_of_an_npz_needs_both_arrays(tmp_path: Path) -> None:
    for names, words in (
        (("x", "y"), "a.npz has no array x_test and no array y_test"),
        (("x", "y", "x_test"), "a.npz has no array y_test"),
        (("x", "y", "y_test"), "a.npz has no array x_test"), (("x", "y", "x_test", "y_test"), ""),
    ):  # fmt: skip
        given = options(f"data=npz:{npz(tmp_path / 'a.npz', *names)}", "validation=test")
        told = [(found.level, found.message, found.change) for found in file_rules.validation(given, NONE)]
        assert told == ([("error", words, "add it, or set train.validation=split")] if words else [])


@pytest.mark.parametrize(
    ("cache", "level", "words"),
    [
        ("there", "", ""), ("new", "", ""), ("a.txt/b", "error", "a.txt/b cannot be a folder: Not a directory"),
        ("a.txt", "error", "a.txt is a file"), ("x" * 300, "error", "cannot be a folder: File name too long"),
        ("of", "warning", "of is taken as a folder, which will be made"),
    ],
)  # fmt: skip
def test_a_cache_is_a_folder_that_is_there_or_will_be_made(cache: str, level: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "a.txt").touch()
    found = list(file_rules.data_and_cache(options("data=synthetic", f"cache={cache}"), NONE))
    assert [each.level for each in found] == ([level] if level else [])
    assert all(words in each.message and each.options == ("input.cache",) for each in found)
    if cache == "of":
        (tmp_path / "of").mkdir()
        assert list(file_rules.data_and_cache(options("data=synthetic", "cache=of"), NONE)) == []


def test_findings_of_a_preset_come_in_their_order_and_those_of_a_screen_refuse_several_machines() -> None:
    preset = presets.defaults(["strategy.kind=multi_worker", "epochs=200", "on_oom=halve"])
    levels = ["error", "warning", "note"]
    found = checks.of_preset(preset, NONE)
    assert [each.level for each in found[:-1]] == sorted((each.level for each in found[:-1]), key=levels.index)
    assert found[-1].message == "200 epochs, no checkpoint: a run that ends early cannot be resumed"
    on_screen = checks.on_screen(preset, NONE)
    assert [(each.level, each.message) for each in on_screen if each.options == ("strategy.kind",)] == [
        ("error", "a training on several machines is started by its command, not from a screen")
    ]  # fmt: skip
    assert [each for each in found if each.options != ("strategy.kind",)] == on_screen[1:]
    assert ("run.on_oom", "strategy.kind") in {each.options for each in on_screen}, "what is wrong besides stays"
    single = presets.defaults(["epochs=200"])
    assert checks.on_screen(single, NONE) == checks.of_preset(single, NONE)
    assert str(found[-1]) == (
        "run.checkpoint: 200 epochs, no checkpoint: a run that ends early cannot be resumed; "
        "run.checkpoint=epoch writes one after each epoch"
    )


@pytest.mark.parametrize(("length", "is_whole"), [(200, True), (201, False)])
def test_a_line_of_more_than_200_characters_has_its_remedy_on_a_second_line(length: int, is_whole: bool) -> None:
    finding = checks.Finding("error", ("a.b",), "m" * (length - len("x: a.b: ; do it")), "do it")
    line = f"x: {finding}"
    assert len(line) == length
    assert finding.whole(line) == (line if is_whole else line.replace("; do it", "\ndo it"))
    assert str(checks.Finding("error", (), "m", "c")) == "m; c"
