"""The copy of a user's code in the run folder: which files it has, its limits, and the commit that is recorded."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from gputui.engine import presets
from gputui.engine.process import launch
from gputui.engine.runs import Run, code_copy, code_files
from gputui.engine.system import git_state

from tests.support.needs import require


@pytest.fixture
def mine(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    write(folder, "train.py", "def build(context): ...\n")
    return folder


def write(folder: Path, name: str, text: str = "x = 1\n") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def created(folder: Path, *settings: str) -> Run:
    preset = presets.defaults([f"entry={folder}/train.py:build", *settings])
    return launch.create(launch.settle(preset, folder))


def names(run: Run) -> set[str]:
    copy = run.file("code")
    return {str(Path(top, name).relative_to(copy)) for top, _, files in os.walk(copy) for name in files}


def git(folder: Path, *words: str) -> str:
    require("git")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("mode", ["live", "copy"])
def test_only_python_files_are_copied_and_no_secret(mode: str, mine: Path) -> None:
    write(mine, "parts/deep/helper.py")
    for name in (".env", "secrets.yaml", "data/x.csv", "key.pem", ".hidden/a.py", ".hidden.py", "__pycache__/b.py"):
        write(mine, name, "SECRET")
    write(mine, "env/pyvenv.cfg")
    write(mine, "env/lib/c.py")
    write(mine, "vendor/site-packages/d.py")
    write(mine, "long.py", "x" * (1024**2 + 1))
    run = created(mine, f"run.code={mode}")
    copied = {name for name in names(run) if not run.file(f"code/{name}").is_symlink()}
    assert copied == {"train.py", "parts/deep/helper.py"}
    assert code_copy.read(run).left_out == ""
    written = [path for path in run.path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in written if "SECRET" in path.read_text()]
    links = {str(path.relative_to(run.file("code"))) for path in run.file("code").rglob("*") if path.is_symlink()}
    assert links == ({"data", "secrets.yaml", "key.pem", "long.py"} if mode == "copy" else set())


@pytest.mark.parametrize(("limit", "most"), [("MOST_FILES", 3), ("MOST_BYTES", 50)], ids=["too-many", "too-large"])
def test_more_code_than_allowed_is_not_copied_and_the_reason_is_recorded(
    limit: str, most: int, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(mine, f"more{number}.py", "# twenty characters\n")
    monkeypatch.setattr(code_copy, limit, most)
    run = created(mine, "run.code=copy")
    assert not run.file("code").exists()
    assert code_copy.trained(run, presets.resolve(str(run.file("preset.yaml"))).options) is None
    assert code_copy.read(run).left_out.startswith(f"the Python files in {mine} are not copied: there are more than")
    monkeypatch.setattr(
        code_copy, limit, {"MOST_FILES": 4, "MOST_BYTES": sum(p.stat().st_size for p in mine.iterdir())}[limit]
    )
    assert names(created(mine)) == {"train.py", "more0.py", "more1.py", "more2.py"}, "so many are allowed"


def test_large_folders_of_data_are_linked_and_not_searched(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_copy, "MOST_NAMES_OF_DATA", 5)
    for number in range(6):
        write(mine, f"images/{number}.png")
    write(mine, "parts/helper.py")
    (mine / "empty").mkdir()
    run = created(mine, "run.code=copy")
    assert {"train.py", "parts/helper.py"} == names(run)
    assert {path.name for path in run.file("code").iterdir() if path.is_symlink()} == {"images", "empty"}
    write(mine, "parts/deep/er.py")
    monkeypatch.setattr(code_copy, "MOST_NAMES", 4 + 6 + 2)  # of the folder itself, of images and of parts
    run = created(mine, "run.code=copy")
    assert names(run) == {"train.py", "parts/helper.py"}, "what lies deeper is not searched"
    assert (run.file("code") / "parts/deep").readlink() == mine / "parts/deep"


def test_code_that_lies_next_to_an_environment_or_in_one_is_copied(mine: Path) -> None:
    write(mine, "pyvenv.cfg", "home = /usr/bin\n")
    write(mine, "lib/helper.py")
    write(mine, "conda/conda-meta/history", "")
    write(mine, "conda/lib/other.py")
    run = created(mine, "run.code=copy")
    copy = run.file("code")
    assert {name for name in names(run) if not (copy / name).is_symlink()} == {"train.py", "lib/helper.py"}
    assert {path.name for path in copy.iterdir() if path.is_symlink()} == {"pyvenv.cfg"}, "and no environment in it"


def test_links_lead_to_the_largest_folder_of_which_nothing_is_copied(mine: Path) -> None:
    for name in ("a/b/c/x.csv", "a/b/y.csv", "a/z.csv", "d/e.py", "d/f/g.csv"):
        write(mine, name)
    copy = created(mine, "run.code=copy").file("code")
    links = {str(path.relative_to(copy)): path.readlink() for path in copy.rglob("*") if path.is_symlink()}
    assert links == {"a": mine / "a", "d/f": mine / "d/f"}


def test_runs_that_lie_within_the_folder_of_the_code_are_not_copied(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(mine / "gputui"))
    for _ in range(2):
        run = created(mine, "run.code=copy")
    assert names(run) == {"train.py"}


def test_commit_and_changes_of_python_files_are_recorded_without_other_files(mine: Path) -> None:
    git(mine, "init", "-q", "-b", "topic")
    write(mine, "passwords.txt", "old")
    git(mine, "add", "-A")
    git(mine, "commit", "-q", "-m", "first")
    commit = git(mine, "rev-parse", "HEAD")
    run = created(mine)
    assert code_copy.read(run) == code_copy.Source(str(mine), "", commit, "topic", False)
    assert not run.file("source.diff").exists()

    write(mine, "train.py", "def build(context): return 2\n")
    write(mine, "passwords.txt", "SECRET")
    before = {path: path.stat().st_mtime_ns for path in (mine / ".git").rglob("*")}
    run = created(mine)
    assert code_copy.read(run).short_commit == f"{commit[:7]} with changes"
    assert "+def build(context): return 2" in run.file("source.diff").read_text()
    assert "SECRET" not in run.file("source.diff").read_text()
    assert before == {path: path.stat().st_mtime_ns for path in (mine / ".git").rglob("*")}
    git(mine, "checkout", "-q", "--detach")
    detached = git_state.read(mine)
    assert detached is not None
    assert (detached.commit, detached.branch, detached.dirty) == (commit, None, True)
    empty = mine.parent / "empty"
    empty.mkdir()
    assert git_state.read(empty) is None, "it is no repository"
    git(empty, "init", "-q")
    assert git_state.read(empty) is None, "there is no commit yet"


def test_a_git_that_hangs_or_fails_never_keeps_a_run_from_starting(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_state, "SECONDS", 0.2)
    program = tmp_path / "bin" / "git"
    write(tmp_path, "bin/git", "#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    begun = time.monotonic()
    assert code_copy.read(created(mine)) == code_copy.Source(str(mine))
    assert time.monotonic() - begun < 30
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\nexit 1\n")
    assert names(created(mine)) == {"train.py"}
    lines = (tmp_path / "env").read_text().splitlines()
    assert {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"} <= set(lines), "it asks and locks nothing"
    assert not [line for line in lines if line.startswith("GIT_DIR")], "of a hook in which gputui was started"
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no git
    assert names(created(mine)) == {"train.py"}


def test_a_long_diff_is_cut(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(mine, "init", "-q")
    git(mine, "add", "-A")
    git(mine, "commit", "-q", "-m", "first")
    write(mine, "train.py", "y = 1\n" * 1000)
    monkeypatch.setattr(git_state, "MOST_DIFF_BYTES", 200)
    state = git_state.read(mine)
    assert state is not None
    assert state.diff.endswith(git_state.CUT)
    assert len(state.diff) == 200 + len(git_state.CUT)


def test_a_change_is_told_with_its_lines_and_the_copy_offered_only_if_it_is_the_code_that_was_used(mine: Path) -> None:
    run = created(mine)
    code_files.add(run, mine, [str(mine / "train.py")])
    write(mine, "train.py", "def build(context):\n    return 3\n")
    assert code_files.describe(run) == f"train.py (2 lines) has changed since {run.name} was trained"
    with pytest.raises(code_files.CodeChangedError, match=r"--code=copy$"):
        code_files.check(run)
    code_files.check(run, from_copy=True)
    run.file("code/train.py").write_text("another\n")
    assert code_files.describe(run) == f"train.py has changed since {run.name} was trained"
    with pytest.raises(code_files.CodeChangedError, match=r"--code=new$"):
        code_files.check(run)
    with pytest.raises(code_files.CodeChangedError, match="is not the code that the run has used"):
        code_files.check(run, from_copy=True)
