"""Where files are looked for, and by which names presets and runs are found."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.doors.engine import GROUPS, Options, own_code, places, presets, saving, validated
from tests.doors.engine import proof_request as request
from tests.doors.tui import FormState
from tests.doors.tui import tui_cli as cli

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


def test_every_command_finds_them_from_elsewhere(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "asked", lambda preset: own_code.Form("arrays"))  # it calls build
    for name in ("data.yaml", "code.yaml"):
        assert cli.run(["presets", "check", str(project / name)]) == 0
    workload = launched(capsys, "--preset", "../project/code.yaml").workload
    assert (workload.entry, workload.folder) == (f"{project}/train.py:build", str(project))
    assert cli.run(["export", "--preset", str(project / "code.yaml")]) == 0
    assert f'os.chdir("{project}")' in capsys.readouterr().out
    asked = request.of_change(str(project / "data.yaml"), ["cache=other"])
    assert asked.baseline().options == resolved(project / "data.yaml")
    assert asked.changes == {"input.cache": f"{Path.cwd()}/other"}


# ---- the form ---------------------------------------------------------------------------------


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


def test_a_whole_id_is_that_run_although_others_contain_it(home: Path) -> None:
    for name in ("20260920-100000-cnn", "20260920-100000-cnn-2"):
        (home / "runs" / name).mkdir(parents=True)
        assert presets.paths.find(f"run:{name}") == home / "runs" / name / "preset.yaml"
    assert presets.paths.find("run:20260920-100000-cnn") == home / "runs" / "20260920-100000-cnn" / "preset.yaml"


# ---- Where gputui keeps its files, by the variables of the user's environment, and the numbers of


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home folder of a user without any of the variables, who is in another folder."""
    for name in ("GPUTUI_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "KERAS_HOME", "GPUTUI_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "user"
    (folder / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder / "work")
    return folder


def test_folders_are_those_of_the_user_or_of_the_variables(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def now() -> list[str]:
        found = (places.home(), places.config_folder(), places.keras_folder(), places.settings_file())
        return [os.path.relpath(path, user) for path in found]

    config = ".config/gputui"
    assert now() == [".local/state/gputui", config, ".keras/datasets", f"{config}/settings.yaml"]
    for name, value, at, place in (
        ("GPUTUI_HOME", "~/mine", 0, "mine"), ("GPUTUI_HOME", "here", 0, "work/here"),
        ("XDG_STATE_HOME", " ~/state ", 0, "state/gputui"), ("XDG_CONFIG_HOME", "~/conf", 1, "conf/gputui"),
        ("KERAS_HOME", f"{user}/k", 2, "k/datasets"), ("XDG_STATE_HOME", " ", 0, ".local/state/gputui"),
    ):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert now()[at] == place, (name, value)
    assert (places.runs_folder(), places.proofs_folder(), places.user_presets_folder()) == (
        places.home() / "runs", places.home() / "proofs", places.config_folder() / "presets"
    )  # fmt: skip


def test_a_user_without_a_home_folder_names_one(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(
        OSError, match="this user has no home folder; set GPUTUI_HOME to a folder for runs and settings"
    ):
        places.home()
    monkeypatch.setenv("GPUTUI_HOME", str(user / "x"))
    assert (places.home(), places.config_folder()) == (user / "x", user / "x/config")


def test_the_users_presets_replace_shipped_ones_of_the_same_name(user: Path) -> None:
    shipped = places.named_presets()
    folder = places.user_presets_folder()
    folder.mkdir(parents=True)
    for name in ("quickstart.yaml", "mine.yaml", ".hidden.yaml", "notes.txt"):
        (folder / name).touch()
    named = places.named_presets()
    assert (named["quickstart"], named["mine"]) == (folder / "quickstart.yaml", folder / "mine.yaml")
    assert named.keys() - shipped.keys() == {"mine"}
    assert shipped["quickstart"] == places.SHIPPED_PRESETS / "quickstart.yaml"
