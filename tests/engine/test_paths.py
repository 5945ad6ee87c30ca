"""From where relative paths count: where written, the preset's own folder; where typed, the current one."""

from __future__ import annotations

import glob
from pathlib import Path

import numpy as np
import pytest
import yaml
from gputui.engine import checks, presets
from gputui.engine.export import form
from gputui.engine.files import run_numbers
from gputui.engine.job import this_machine
from gputui.engine.options import GROUPS, Options
from gputui.engine.options.validation import validated
from gputui.engine.presets import saving
from gputui.engine.proof import request
from gputui.tui import cli
from gputui.tui.form.form_state import FormState

CODE = "def build(context):\n    ...\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with presets, code and data; the current folder is another one."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text(CODE)
    (folder / "sub" / "other.py").write_text(CODE)
    np.savez(folder / "a.npz", x=np.zeros(3), y=np.zeros(3))
    (folder / "data.yaml").write_text("workload: {data: 'npz:a.npz'}\ninput: {cache: kept}\n")
    (folder / "code.yaml").write_text("workload: {entry: 'train.py:build'}\n")
    (folder / "sub" / "below.yaml").write_text("extends: ../data.yaml\ninput: {cache: mine}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return folder


def resolved(name: str | Path, *settings: str) -> Options:
    return presets.resolve(str(name), settings).options


def errors(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert cli.run(words) == 2
    return capsys.readouterr().err


def launched(capsys: pytest.CaptureFixture[str], *words: str) -> Options:
    """What would be trained."""
    capsys.readouterr()
    assert cli.run([*words, "--dry-run"]) == 0
    return validated({key: value for key, value in yaml.safe_load(capsys.readouterr().out).items() if key in GROUPS})


def test_what_is_written_counts_from_its_file_and_what_is_typed_from_the_current_folder(project: Path) -> None:
    here = Path.cwd()
    for name in (project / "data.yaml", "../project/data.yaml"):
        assert resolved(name).workload.data == f"npz:{project}/a.npz"
        assert resolved(name, "cache=typed").input.cache == f"{here}/typed"
    below = resolved(project / "sub" / "below.yaml")
    assert below.workload.data == f"npz:{project}/a.npz"  # written in the file that is extended
    assert below.input.cache == f"{project}/sub/mine"
    assert resolved("quickstart", "data=tfrecord:d/*.rec").workload.data == f"tfrecord:{here}/d/*.rec"
    assert resolved("quickstart", "data=images:~/x").workload.data == f"images:{Path.home()}/x"


def test_a_pattern_finds_its_files_in_a_folder_whose_name_looks_like_one(project: Path) -> None:
    odd = project / "runs [old]"
    odd.mkdir()
    (odd / "a.rec").touch()
    (odd / "data.yaml").write_text("workload: {data: 'tfrecord:*.rec'}\n")
    options = resolved(odd / "data.yaml")
    assert glob.glob(options.workload.data.removeprefix("tfrecord:")) == [str(odd / "a.rec")]
    assert presets.paths.relative("workload.data", options, str(odd)) == "tfrecord:*.rec"


def test_an_entry_runs_in_the_folder_of_its_file_or_in_the_one_that_is_given(project: Path) -> None:
    code = project / "code.yaml"
    for settings, entry, folder in [
        ((), f"{project}/train.py:build", f"{project}"),
        ((f"folder={project}/sub",), f"{project}/sub/train.py:build", f"{project}/sub"),
        (("entry=../project/sub/other.py:build",), f"{project}/sub/other.py:build", None),
        (("entry=other.py:build", "folder=../project/sub"), f"{project}/sub/other.py:build", f"{project}/sub"),
    ]:
        workload = resolved(code, *settings).workload
        assert (workload.entry, workload.folder) == (entry, folder), settings
    (project / "given.yaml").write_text("workload: {entry: 'other.py:build', folder: sub}\n")
    (project / "sub" / "child.yaml").write_text("extends: ../given.yaml\n")
    for name in ("given.yaml", "sub/child.yaml"):
        workload = resolved(project / name).workload
        assert (workload.entry, workload.folder) == (f"{project}/sub/other.py:build", f"{project}/sub")


def test_every_command_finds_them_from_elsewhere(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form, "asked", lambda preset: None)  # it calls build
    for name in ("data.yaml", "code.yaml"):
        assert cli.run(["presets", "check", str(project / name)]) == 0
    workload = launched(capsys, "--preset", "../project/code.yaml").workload
    assert (workload.entry, workload.folder) == (f"{project}/train.py:build", str(project))
    assert cli.run(["export", "--preset", str(project / "code.yaml")]) == 0
    assert f'os.chdir("{project}")' in capsys.readouterr().out
    asked = request.of_change(str(project / "data.yaml"), ["cache=other"])
    assert asked.baseline().options == resolved(project / "data.yaml")
    assert asked.changes == {"input.cache": f"{Path.cwd()}/other"}


@pytest.mark.parametrize(
    ("preset", "file", "typed"),
    [
        ("workload: {data: 'npz:b.npz'}", "b.npz", "workload.data=npz:b.npz"),
        ("workload: {data: 'tfrecord:*.rec'}", "a.rec", "workload.data=tfrecord:*.rec"),
        ("workload: {entry: 'mine.py:build'}", "mine.py", "workload.entry=mine.py:build"),
        ("workload: {entry: 'package.mine:build'}", "package/mine.py", "workload.entry=package.mine:build"),
        ("workload: {entry: 'mine.py:build', folder: code}", "code/mine.py", "workload.folder=code"),
    ],
)
def test_a_path_that_is_right_from_the_current_folder_only_is_told_with_the_remedy(
    preset: str, file: str, typed: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = presets.user_folder() / "general.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(preset + "\n")
    assert "--set" not in errors(capsys, "--preset", "general")
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(CODE)
    if file == "b.npz":
        np.savez(file, x=np.zeros(3), y=np.zeros(3))
    for words in (("--preset", "general"), ("presets", "check", "general")):
        told = errors(capsys, *words)
        assert told.endswith(typed.partition("=")[2] + "\n")  # a long one is cut, or has a second
        assert told.count("\n") <= 2
    found = checks.of_preset(presets.resolve("general"), this_machine.read())
    change = f"paths are relative to general.yaml; for the current folder give --set {typed}"
    assert [finding.change for finding in found if finding.level == "error"] == [change]
    assert launched(capsys, "--preset", "general", "--set", typed)


@pytest.mark.parametrize(
    ("preset", "file"),
    [
        ("workload: {data: 'npz:some.npz'}", "some.npz"),
        ("workload: {data: 'images:some'}", "some/a.png"),
        ("workload: {data: 'tfrecord:s*.rec'}", "some.rec"),
        ("workload: {entry: 'some.py:build'}", "some.py"),
        ("workload: {entry: 'some.thing:build'}", "some/thing.py"),
    ],
)
def test_the_current_folder_is_proposed_only_if_the_path_is_there_and_not_at_the_preset(
    preset: str, file: str, project: Path
) -> None:
    here, there = Path(file), project / file
    (project / "general.yaml").write_text(preset + "\n")
    for at, proposed in (((), False), ((here,), True), ((there,), False), ((here, there), False)):
        for path in (here, there):
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            if not any(path.parent.iterdir()) and path.parent.name == "some":
                path.parent.rmdir()
        for path in at:
            path.parent.mkdir(exist_ok=True)
            path.write_text(CODE)
        found = checks.of_preset(presets.resolve(str(project / "general.yaml")), this_machine.read())
        assert any("for the current folder give --set" in finding.change for finding in found) is proposed, at


def test_a_module_of_the_current_folder_is_not_proposed_if_the_preset_has_one_of_this_name(project: Path) -> None:
    for folder in (project, Path.cwd()):
        (folder / "both.py").write_text(CODE)
    (project / "general.yaml").write_text("workload: {entry: 'both:other'}\n")
    (found,) = checks.of_preset(presets.resolve(str(project / "general.yaml")), this_machine.read())
    assert (found.message, found.change) == (
        f"{project}/both.py has no function other (it has build)", "write def other(context): ...",
    )  # fmt: skip


def test_a_resolved_preset_means_the_same_wherever_it_is_written(project: Path) -> None:
    for name in ("data.yaml", "code.yaml", "sub/below.yaml"):
        preset = presets.resolve(str(project / name))
        copy = Path.cwd() / "copy.yaml"
        copy.write_text(preset.to_yaml())
        assert resolved(copy) == preset.options


# ---- the form ---------------------------------------------------------------------------------


def test_the_form_shows_what_would_be_typed_here_and_means_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = FormState.open(project / "code.yaml")
    assert far.texts["workload.entry"] == "train.py:build"  # beside the folder that stands below it
    assert far.texts["workload.folder"] == str(project)
    far.set("train.epochs", "9")
    assert far.unsaved() == ["train.epochs"]
    assert far.preset.options.workload == resolved(project / "code.yaml").workload
    far.set("workload.entry", "sub/other.py:build")
    assert far.preset.options.workload.entry == f"{project}/sub/other.py:build"
    words = [word for word in far.command().replace("\\\n", "").split() if "=" in word]
    assert resolved(project / "code.yaml", *words) == far.preset.options

    monkeypatch.chdir(project)
    near = FormState.open(project / "data.yaml")
    assert (near.texts["workload.data"], near.texts["input.cache"]) == ("npz:a.npz", "kept")
    near.set("workload.data", "npz:sub/b.npz")
    assert near.preset.options.workload.data == f"npz:{project}/sub/b.npz"


def test_what_is_saved_means_the_same_and_stays_short_beside_its_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = project / "data.yaml"
    changed = presets.resolve(str(data), [f"data=npz:{project}/sub/b.npz", "cache=here"])
    saving.save(changed, data)
    wanted = f"workload: {{data: 'npz:sub/b.npz'}} input: {{cache: {Path.cwd()}/here}}"
    assert " ".join(data.read_text().split()) == wanted, "a long path may stand in a line of its own"
    assert resolved(data) == changed.options

    monkeypatch.chdir(project)
    form = FormState.open(presets.SHIPPED / "quickstart.yaml")
    for key in ("workload.data", "workload.entry"):
        form.set(key, {"workload.data": "digits", "workload.entry": "train.py:build"}[key])
    own = presets.user_folder() / "mine.yaml"
    saving.save_as(form.preset, own, form.path)
    assert (resolved(own).workload.entry, resolved(own).workload.folder) == (f"{project}/train.py:build", str(project))
    saving.save_as(form.preset, project / "mine.yaml", form.path)
    assert "entry: train.py:build" in (project / "mine.yaml").read_text()
    assert "folder" not in (project / "mine.yaml").read_text()


# ---- names of presets and of runs -----------------------------------------------------------------

LISTS = "; gputui presets lists the presets that have a name"


def refused(name: str, beside: Path | None = None) -> str:
    with pytest.raises(presets.PresetError) as fault:
        presets.paths.find(name, beside)
    return str(fault.value)


def test_a_run_is_named_by_its_short_name_its_id_or_a_part_that_no_other_has(home: Path) -> None:
    folders = home / "runs"
    for number, name in enumerate(("cnn", "cnn-2", "vit", "big-cnn", "old")):
        (folders / f"2026092{number}-100000-{name}").mkdir(parents=True)
    (folders / ".20260920-hidden").mkdir()
    ids = sorted(path.name for path in folders.iterdir() if path.name[0] != ".")
    for given, found in (
        ("run:vit", ids[2]), (f"run:{ids[0]}", ids[0]), ("run:20260921", ids[1]), ("run:big-cnn", ids[3]),
    ):  # fmt: skip
        assert presets.paths.find(given) == folders / found / "preset.yaml"
    several = ", ".join((ids[0], ids[1], ids[3]))
    assert refused("run:cnn") == f"'run:cnn': 3 runs have that in their ids ({several} ...); give more of the id"
    first = ", ".join(ids[:3])
    assert refused("run:2026") == f"'run:2026': 5 runs have that in their ids ({first} ...); give more of the id"
    none = "there is no such run; gputui runs lists them"
    assert refused("run:nobody") == f"'run:nobody': {none}"
    assert refused("run:") == f"'run:': {none}"
    assert refused("run:hidden") == f"'run:hidden': {none}"
    run_numbers.file_of(folders / ids[0]).write_text("".join(f"{name}\n" for name in ids))
    assert presets.paths.find("run:r3") == folders / ids[2] / "preset.yaml"
    (folders / ids[1]).rmdir()
    assert refused("run:r2") == f"'run:r2': the run {ids[1]} has been deleted; gputui runs lists the others"


def test_two_points_behind_a_link_stay_as_the_system_follows_them(project: Path) -> None:
    here = Path.cwd()
    (project / "deep" / "deeper").mkdir(parents=True)
    (here / "link").symlink_to(project / "deep" / "deeper")
    (here / "plain").mkdir()
    for typed, whole in (
        ("link/../a.npz", f"{here}/link/../a.npz"), ("plain/../a.npz", f"{here}/a.npz"),
        ("../a.npz", f"{here.parent}/a.npz"), ("./a//b/a.npz", f"{here}/a/b/a.npz"),
        (f"{project}/../a.npz", f"{project.parent}/a.npz"),
    ):  # fmt: skip
        assert resolved("quickstart", f"data=npz:{typed}").workload.data == f"npz:{whole}"


def test_a_whole_id_is_that_run_although_others_contain_it(home: Path) -> None:
    for name in ("20260920-100000-cnn", "20260920-100000-cnn-2"):
        (home / "runs" / name).mkdir(parents=True)
        assert presets.paths.find(f"run:{name}") == home / "runs" / name / "preset.yaml"
    assert presets.paths.find("run:20260920-100000-cnn") == home / "runs" / "20260920-100000-cnn" / "preset.yaml"


def test_the_presets_of_a_folder_are_those_that_have_no_name_and_a_name_may_mean_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = presets.user_folder()
    own.mkdir(parents=True)
    for name in ("mine.yaml", "quick.yaml"):
        (own / name).write_text("train: {epochs: 2}\n")
    for folder in (own, presets.SHIPPED):
        monkeypatch.chdir(folder)
        assert presets.in_current_folder() == [], "all of them are found by name"
        assert [presets.paths.twin(name) for name in ("mine", "quick", "quickstart", "fast")] == [""] * 4
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "link.yaml").symlink_to(own / "mine.yaml")
    (here / "mine.yml").symlink_to(own / "mine.yaml")
    (here / "fast.yml").write_text("train: {epochs: 2}\n")
    (here / "quick.yml").write_text("run: {keep: 3}\n")
    (here / "quickstart.yaml").write_text("services: {web: 1}\n")
    (here / "other.yaml").mkdir()
    assert presets.in_current_folder() == [here / "fast.yml", here / "quick.yml"]
    for name, words in (
        ("fast", "fast is the shipped preset; the file in this folder is another preset: give ./fast.yml for it"),
        ("quick", f"quick is {own}/quick.yaml; the file in this folder is another preset: give ./quick.yml for it"),
        ("mine", ""), ("quickstart", ""), ("link", ""), ("./fast.yml", ""), ("nothing", ""),
    ):  # fmt: skip
        assert presets.paths.twin(name) == words
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert presets.in_current_folder() == []


def test_a_preset_that_is_not_there_is_answered_with_what_may_be_meant(project: Path) -> None:
    own = presets.user_folder() / "night.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("train: {epochs: 2}\n")
    known = f"(known: {', '.join(presets.named_presets())})"
    shipped = "; the preset {} ships with gputui and is given by name: {} {}"
    (Path.cwd() / "here.yml").write_text("train: {epochs: 2}\n")
    for name, words in (
        ("nothing-like-it", f"'nothing-like-it': no preset of this name {known}"),
        ("quickstat", f"'quickstat': no preset of this name, did you mean quickstart? {known}"),
        ("here", "'here': no preset of this name, but there is a file: gputui --preset here.yml"),
        ("quickstart.yaml",
         f"quickstart.yaml: no such file{shipped.format('quickstart', 'gputui --preset', 'quickstart')}"),
        ("night.yml", "night.yml: no such file; the preset night is among your own and is given by name: "
                      "gputui --preset night"),
        ("hera.yml", "hera.yml: no such file, did you mean here.yml?"),
        ("qqq/zzz.yaml", f"qqq/zzz.yaml: no such file{LISTS}"),
        ("./", ".: is a folder, not a preset file"),
    ):  # fmt: skip
        assert refused(name) == words
    base = refused("fast.yaml", project)
    assert base == f"{project}/fast.yaml: no such file{shipped.format('fast', 'extends:', 'fast')}"
    assert presets.paths.find("data.yaml", project) == project / "data.yaml"
    assert presets.paths.find(str(project / "data.yaml"), Path("/nowhere")) == project / "data.yaml"


def test_paths_are_shown_relative_to_a_folder_only_if_they_are_within_it(project: Path) -> None:
    here = Path.cwd()
    for place, shown in (
        (f"{here}/a", "a"), (str(here), "."), (f"{here}x/a", f"{here}x/a"), ("a/b", "a/b"), ("/", "/"),
    ):  # fmt: skip
        assert presets.paths.near(place) == shown
    options = resolved("quickstart", f"data=tfrecord:{project}/a/*.rec", f"cache={project}/c", f"python={project}/p")
    for key, folder, value in (
        ("workload.data", str(project), "tfrecord:a/*.rec"), ("workload.data", f"{project}/b", None),
        ("input.cache", str(project), "c"), ("input.cache", f"{project}/c", "."), ("train.epochs", "", 20),
        ("run.python", "", None),
    ):  # fmt: skip
        group, name = key.split(".")
        whole = getattr(getattr(options, group), name)
        found = presets.paths.relative(key, options, folder)
        assert found == (whole if value is None or key == "train.epochs" else value), (key, folder)
