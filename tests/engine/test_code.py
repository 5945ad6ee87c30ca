"""The user's own code: its copy, its changes, and the function that is named."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.doors.engine import (
    Ending,
    EntryFault,
    Run,
    code_copy,
    code_files,
    ending,
    examine,
    launch,
    presets,
    resuming,
)
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
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
def test_only_python_files_are_copied_and_no_secret(mode: str, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(mine / "gputui"))  # in the folder of the code, with an earlier run
    write(mine, "gputui/runs/20260101-120000-earlier/code/train.py")
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
    assert code_copy.git_state(mine)[0] == {"commit": commit, "branch": None, "dirty": True}
    empty = mine.parent / "empty"
    empty.mkdir()
    assert code_copy.git_state(empty) == ({}, b""), "it is no repository"
    git(empty, "init", "-q")
    assert code_copy.git_state(empty) == ({}, b""), "there is no commit yet"


def test_a_git_that_hangs_or_fails_never_keeps_a_run_from_starting(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_copy, "GIT_SECONDS", 0.2)
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


# ---- A run is resumed with the code that it was trained with, or with other code if its user says


TRAIN, HELPER = "x = 1\n", "y = 1\n"


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Run:
    """A stopped run with a checkpoint, which was trained with two files."""
    folder = tmp_path / "mine"
    (folder / "parts").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "parts" / "helper.py").write_text(HELPER)
    run = recorded.write(home, name="20260921-120000-mine", gpus=0, seconds=30, outcome="stopped")
    run.file("checkpoints/step-0000000100").mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        run.file(f"checkpoints/step-0000000100/{name}").write_text("x")
    code_files.add(run, folder, [str(folder / "train.py")])
    code_files.add(run, folder, [str(folder / "train.py"), str(folder / "parts" / "helper.py")])
    return run


def file_of(run: Run, name: str) -> Path:
    return Path(code_files.read(run).folder) / name


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs for which an engine would have been started."""
    runs: list[str] = []

    def spawn(run: Run, *more: object) -> None:
        runs.append(run.id)
        raise OSError(11, "no engine here")

    monkeypatch.setattr(launch, "spawn", spawn)
    return runs


def test_code_that_was_edited_is_refused_until_it_is_accepted(
    run: Run, resumed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file_of(run, "train.py").write_text("x = 2\n")
    file_of(run, "parts/helper.py").unlink()
    capsys.readouterr()
    for words in (("resume", run.id), ("resume", "--latest")):
        assert cli.run(words) == 2
        said = capsys.readouterr().err.splitlines()
        assert said == [
            f"train.py, parts/helper.py (missing) have changed since {run.name} was trained",
            f"undo that, or go on with the new code: gputui resume {run.name} --code=new",
        ]
    assert resumed == []
    assert not resuming.why_not(run), "a job that is queued again must not begin anew without a word"
    assert code_files.read(run).changes == []

    cli.run(("resume", run.id, "--code=new"))
    assert resumed == [run.id]
    assert code_files.changed(run) == []
    assert code_files.record_step(run, 100) == ["train.py", "parts/helper.py"]
    assert code_files.record_step(run, 100) == [], "it is said once"
    told = ending.summary_of(run, Ending("crashed", "crash", "", ""), None, 1.0)
    assert told.code_changes == [{"step": 100, "files": ["train.py", "parts/helper.py"]}]

    file_of(run, "train.py").write_text("x = 3\n")
    cli.run(("resume", run.id, "--code=new"))
    assert code_files.record_step(run, 250) == ["train.py"]
    assert code_files.read(run).changes == [
        {"step": 100, "files": ["train.py", "parts/helper.py"]}, {"step": 250, "files": ["train.py"]},
    ]  # fmt: skip


def test_a_job_that_is_queued_again_with_edited_code_is_refused(
    run: Run, resumed: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "of_preset", lambda preset, on_wait: run)
    file_of(run, "train.py").write_text("x = 2\n")
    capsys.readouterr()
    again = ("--preset", "quickstart", "--resume-if-any")
    assert cli.run(again) == 2
    said = capsys.readouterr().err
    assert said.startswith("train.py has changed since")
    assert "is resumed" not in said
    assert resumed == []
    cli.run((*again, "--code=new"))
    assert resumed == [run.id]


def test_a_trainer_that_would_go_on_with_other_code_ends(run: Run) -> None:
    """Files may change between the launch and the trainer, and before another trainer follows."""
    code_files.begin(run)
    file_of(run, "train.py").write_text("x = 2\n")
    with pytest.raises(code_files.CodeChangedError, match=r"train\.py has changed since"):
        code_files.begin(run)
    run.file("checkpoints").rename(run.file("checkpoints-1"))
    code_files.begin(run)  # it begins from its first step
    assert code_files.changed(run) == []
    assert [Path(path).name for path in json.loads(run.file(code_files.FILE).read_text())["files"]] == ["helper.py"]


# ---- What is said of a user's code before anything is launched -----------------------------------


DEFINED = {
    "def build(context): ...": "", "def build(*all): ...": "", "def build(context, *, name=1): ...": "",
    "class build: ...": "", "(a, build) = 1, 2": "", "build: int = 3": "", "from x import y as build": "",
    "from x import *": "", "if x:\n    pass\nelse:\n    def build(c): ...": "", "with x:\n    def build(c): ...": "",
    "def build(): ...": "train.py:1: build must accept one argument, the context",
    "x = 1\ndef build(a, b): ...": "train.py:2: build must accept one argument, the context",
    "def build(a, /, b): ...": "train.py:1: build must accept one argument, the context",
    "def build(a, *, b): ...": "train.py:1: build must accept one argument, the context",
    "def build(**named): ...": "train.py:1: build must accept one argument, the context",
    "async def build(context): ...": "train.py:1: build is async", "": "train.py has no function build (it has none)",
    "def f():\n    def build(c): ...": "train.py has no function build (it has f)",
    "class Build: ...\nx = 1\nasync def g(): ...\ndef a(): ...\ndef b(): ...":
        "train.py has no function build (it has a, b)",
    "import x.build": "train.py has no function build (it has none)",
    "def build(c:\n  pass": "train.py:1: '(' was never closed: def build(c:",
    "x = 1\n  y = " + "2" * 200: "train.py:2: unexpected indent: y = " + "2" * 116,
}  # fmt: skip


@pytest.mark.parametrize("code", DEFINED)
def test_a_function_that_takes_the_context_must_be_defined(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(code + "\n")
    message = DEFINED[code]
    if not message:
        examine("train.py:build", tmp_path)
        return
    with pytest.raises(EntryFault) as fault:
        examine("train.py:build", tmp_path)
    assert fault.value.message == str(fault.value) == message
    change = "correct the line" if "never closed" in message or "indent" in message else "write def build(context): ..."
    assert fault.value.change == change
