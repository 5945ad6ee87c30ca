"""Where gputui keeps its files, by the variables of the user's environment, and the numbers of its runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.files import places, run_numbers
from gputui.engine.interpreter import interpreter


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


def test_a_scratch_folder_is_private_and_removed(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(user))
    monkeypatch.setenv("GPUTUI_SCRATCH", "")
    places.make_scratch()
    folder = Path(os.environ["GPUTUI_SCRATCH"])
    assert (folder.parent, folder.stat().st_mode & 0o777, folder.name[:7]) == (user, 0o700, "gputui-")
    (folder / "x").touch()
    places.remove_scratch()
    assert not folder.exists()
    monkeypatch.setenv("TMPDIR", str(user / "nowhere"))
    places.make_scratch()
    assert "GPUTUI_SCRATCH" not in os.environ


def test_an_interpreter_is_named_by_its_file_its_environment_or_on_the_path(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = user / "bin"
    programs.mkdir()
    (programs / "python9").touch(0o755)
    (user / "work/venv/bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(programs))
    for text, file in (
        ("python9", programs / "python9"), ("./python9", user / "work/python9"),
        ("venv", user / "work/venv/bin/python"),
        ("~/work/venv", user / "work/venv/bin/python"), ("../x/./y", user / "x/y"), ("/a/b", Path("/a/b")),
        ("no-such", user / "work/no-such"),
    ):  # fmt: skip
        assert interpreter.file_of(text) == str(file), text
    assert interpreter.file_of("y", str(user / "x")) == str(user / "x/y")
    assert interpreter.from_environment() is None
    monkeypatch.setenv("GPUTUI_PYTHON", " venv ")
    assert interpreter.chosen(None) == str(user / "work/venv/bin/python")
    assert interpreter.chosen("/given") == "/given"


def test_a_short_name_means_the_line_of_the_run_also_after_it_was_renamed_or_deleted(home: Path) -> None:
    first, second, third = (runs.create(name, "schema: 1\n") for name in "abc")
    folder = first.path.parent
    numbers = {run.id: f"r{number}" for number, run in enumerate((first, second, third), 1)}
    assert run_numbers.short_names(folder) == numbers
    assert [run_numbers.named(name, folder) for name in ("r1", "R2", "r4", "r0", "r01", "r", "1")] == [
        first.path, second.path, None, None, None, None, None
    ]  # fmt: skip
    first.file("events.jsonl").write_text(f'{{"t": 1.0, "type": "phase", "run": "{first.id}"}}\n')
    renamed = folder / "renamed"
    first.path.rename(renamed)
    assert (run_numbers.number_of(renamed), run_numbers.named("r1", folder)) == (1, renamed)
    second.file("preset.yaml").unlink()
    second.path.rmdir()
    assert (run_numbers.named("r2", folder), run_numbers.first_name_of("r2", folder)) == (None, second.id)
    assert run_numbers.first_name_of("r9", folder) == ""
    older = folder / "20200101-000000-old"
    older.mkdir()
    copied = folder / "copy"
    copied.mkdir()
    (copied / "events.jsonl").write_text(f'{{"run": "{third.id}"}}\n')
    assert [run_numbers.number_of(path) for path in (older, copied, third.path)] == [None, None, 3]


def test_the_next_number_is_larger_than_all_that_there_are(tmp_path: Path) -> None:
    assert places.next_number(tmp_path / "nowhere", "a-") == 1
    for name in ("a-1", "a-3", "a-x", "a-", "a-10.json", "b-7.json", "a-²", "a-4.json.part"):
        (tmp_path / name).touch()
    assert (places.next_number(tmp_path, "a-"), places.next_number(tmp_path, "a-", ".json")) == (4, 11)
    assert places.next_number(tmp_path, "b-", ".json") == 8
