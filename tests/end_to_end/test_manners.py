"""What a person expects of any command line: hints that fit, lists that are whole, nothing written over."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine import presets
from gputui.tui import cli

from tests.support import recorded

LONG = "20260101-000000-a-preset-with-a-long-name-indeed"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    capsys.readouterr()
    code = cli.run(words)
    out, err = capsys.readouterr()
    return code, out, err


# ---- a preset that is not there ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("fast.yaml", "no such file; the preset fast ships with gputui and is given by name: gputui --preset fast\n"),
        ("./no/folder/fast.yml", "the preset fast ships"),
        ("fats.yaml", "the preset fast ships"),
        ("mine.yaml", "the preset mine is among your own and is given by name: gputui --preset mine\n"),
        ("here.yml", "did you mean here.yaml?"),
        ("here", "but there is a file: gputui --preset here.yaml\n"),
        ("qqqq/zzzz.yaml", "gputui presets lists"),
    ],
)
def test_a_preset_that_is_not_there_is_told_with_what_is(
    name: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    presets.user_folder().mkdir(parents=True)
    (presets.user_folder() / "mine.yaml").write_text("train: {epochs: 9}\n")
    Path("here.yaml").write_text("train: {epochs: 9}\n")
    for words in (("--preset", name), ("presets", "show", name), ("ab", "--preset", name, "--set", "xla=true")):
        code, out, err = told(capsys, *words)
        assert (code, out) == (2, "")
        assert part in err
        assert err.count("\n") == 1


def test_a_base_that_is_not_there_is_told_with_the_line_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("extends: fast.yaml\n")
    assert "is given by name: extends: fast\n" in told(capsys, "--preset", str(tmp_path / "mine.yaml"))[2]


# ---- lists in a pipe --------------------------------------------------------------------------


def test_lists_in_a_pipe_are_whole_and_have_one_line_for_each(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (LONG, LONG + "-2"):
        recorded.write(home, name=name)
    presets.user_folder().mkdir(parents=True)
    description = "word " * 60
    (presets.user_folder() / "wordy.yaml").write_text(f'description: "{description}\\nend"\n')
    (presets.user_folder() / ".#wordy.yaml").symlink_to("somebody@host.1234:5")
    for colours in ("", "1"):  # rich takes FORCE_COLOR for a terminal of 80 columns
        monkeypatch.setenv("FORCE_COLOR", colours)
        _, out, _ = told(capsys, "runs")
        head, *rows = out.splitlines()
        assert len(rows) == 2
        assert all(LONG in row and "done" in row and "…" not in row for row in rows)
        assert "wait" in head
        _, out, _ = told(capsys, "presets")
        wordy = [line for line in out.splitlines() if line.startswith("wordy")]
        assert wordy[0].endswith(f"{description}end")
        assert len(out.splitlines()) == len(presets.named_presets())
        assert ".#" not in out, "with which an editor locks a file"
        _, out, _ = told(capsys, "compare", LONG, LONG + "-2")
        assert f"{LONG}-2" in out.splitlines()[0]


# ---- what is there already --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("history", LONG), "out.csv"),
        (("history", LONG, "--jsonl"), "out.jsonl"),
        (("history", LONG, "--tensorboard"), "folder"),
        (("export", "--preset", "quickstart"), "out.py"),
        (("diagnose", "--preset", "quickstart", "--apply"), "out.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_no_output_is_written_over_a_file_that_is_there(
    words: tuple[str, ...], name: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write(home, name=LONG)
    there = tmp_path / name
    kept = there / "kept" if name == "folder" else there
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("kept")
    code, out, err = told(capsys, *words, "-o", str(there))
    kind = "folder" if name == "folder" else "file"
    assert err == f"{there} exists, and is not overwritten; name another {kind}, or remove it first\n"
    assert (code, out) == (2, "")
    assert kept.read_text() == "kept"


# ---- data that is not there -------------------------------------------------------------------


@pytest.mark.parametrize("data", ["npz:no.npz", "images:no", "tfrecord:no/*.rec"])
def test_data_that_is_not_there_is_told_before_anything_is_started(
    data: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(f"workload:\n  data: '{data}'\n")
    code, _, err = told(capsys, "presets", "check", str(preset))
    assert code == 2
    assert f"error: workload.data: {'no file matches' if 'rec' in data else 'there is no '}" in err
    for words in (("--preset", str(preset)), ("ab", "--preset", str(preset), "--set", "xla=true")):
        code, out, err = told(capsys, *words)
        assert (code, out) == (2, "")
        assert "workload.data: " in err
    assert not home.exists()
