"""A run is resumed with the code that it was trained with, or with other code if its user says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine.process import ending, launch, resuming
from gputui.engine.process.ending import Ending
from gputui.engine.runs import Run, code_files
from gputui.tui import cli

from tests.support import recorded

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


def test_a_resume_that_fails_before_its_engine_starts_accepts_no_code(
    run: Run, resumed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *more: object, **how: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    file_of(run, "train.py").write_text("x = 2\n")
    monkeypatch.setattr(resuming, "write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        resuming.resume(run, new_code=True)
    with pytest.raises(code_files.CodeChangedError):
        resuming.resume(run)
    assert resumed == []
    assert code_files.read(run).changes == []


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


def test_files_that_are_the_same_again_are_no_change(run: Run, resumed: list[str]) -> None:
    file_of(run, "train.py").unlink()
    file_of(run, "train.py").write_text(TRAIN)
    cli.run(("resume", run.id))
    assert resumed == [run.id]
    assert code_files.read(run).changes == []


@pytest.mark.parametrize(
    "text", [None, "{", "[]", '{"files": {"/x.py": 1}}', '{"files": 3, "changes": [{"step": "x"}]}']
)
def test_a_run_without_a_usable_record_is_resumed(text: str | None, run: Run, resumed: list[str]) -> None:
    file_of(run, "train.py").write_text("x = 2\n")
    run.file(code_files.FILE).unlink()
    if text is not None:
        run.file(code_files.FILE).write_text(text)
    cli.run(("resume", run.id))
    assert resumed == [run.id]
    assert code_files.record_step(run, 100) == []


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


@pytest.mark.parametrize(
    "words", [("--code=new",), ("--preset", "quickstart", "--code=new"), ("quickstart", "--code=new")]
)
def test_the_answer_without_a_run_to_resume_is_refused(words: tuple[str, ...], home: Path) -> None:
    assert cli.run(words) == 2


def test_a_run_that_goes_on_with_its_copy_trains_the_copy(
    run: Run, resumed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_files, "check", lambda *_: None)
    for from_copy, code in ((False, "live"), (True, "copy")):
        with pytest.raises(OSError, match="no engine here"):
            resuming.resume(run, from_copy=from_copy)
        assert json.loads(run.file("options.json").read_text())["run"]["code"] == code
        assert f"code: {code}" in run.file("preset.yaml").read_text()
    assert resumed == [run.id] * 2
