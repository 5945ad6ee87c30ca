"""The Python that trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.doors.engine import (
    Interpreter,
    Run,
    checks,
    installed,
    interpreter,
    launch,
    presets,
    python_of,
)
from tests.support.front_door import until

VERSIONS = {"tensorflow": "2.20.0", "keras": "3.12.0", "numpy": "2.3.0"}


def stand_in(path: Path, version: str = "3.12.1", packages: dict[str, str] = VERSIONS) -> Path:
    """A program that answers as a Python with these packages would."""
    told = {
        "version": [int(part) for part in version.split(".")],
        "packages": packages,
        "places": dict.fromkeys(packages, str(path.parent)),
        "search_path": [str(path.parent)],
    }
    # the last word is that of a program that prints something when it ends
    return script(path, f"echo '{interpreter.MARK}{json.dumps(told)}'; echo bye")


def script(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def says(path: Path, answer: str) -> Path:
    """An interpreter with this answer to what is installed."""
    path.with_suffix(".answer").write_text(f"{interpreter.MARK}{answer}\n")
    return script(path, f"cat {path.with_suffix('.answer')}")


def test_an_interpreter_that_cannot_train_is_refused_in_one_line(tmp_path: Path) -> None:
    plain = tmp_path / "plain" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(plain.parents[1])], check=True)
    locked = script(tmp_path / "locked", "echo")
    locked.chmod(0o644)
    (tmp_path / "folder").mkdir()
    old = VERSIONS | {"tensorflow": "2.15.1", "keras": "2.15.0"}
    cases: list[tuple[Path, str, str]] = [
        (tmp_path / "none", "error", "none does not exist; give the path of a Python"),
        (tmp_path / "folder", "error", "folder has no bin/python"),
        (locked, "error", "locked cannot be executed"),
        (script(tmp_path / "fails", "echo broken >&2; exit 1"), "error", "fails is not a usable Python: broken"),
        (script(tmp_path / "endless", "exec yes"), "error", "endless is not a usable Python: it prints without end"),
        (says(tmp_path / "deep", "[" * 50_000), "error", "deep is not a usable Python: it does not answer"),
        (Path("/bin/ls"), "error", "/bin/ls is not a usable Python: it does not answer as a Python does; "),
        (plain, "error", f"has no TensorFlow; uv pip install --python {plain} 'tensorflow[and-cuda]>="),
        (stand_in(tmp_path / "c", packages=old), "error", "c: TensorFlow 2.15.1 is too old"),
        (stand_in(tmp_path / "d", packages=VERSIONS | {"tensorflow": "2.99.0"}), "warning", "d: TensorFlow 2.99.0 is"),
        (stand_in(tmp_path / "e", packages={"tensorflow": "2.20.0"}), "error", "e has no Keras; "),
        (stand_in(tmp_path / "f"), "note", "/f: TensorFlow 2.20.0, Keras 3.12.0, Python 3.12.1; the preset or"),
    ]
    for path, level, words in cases:
        finding, *_ = checks.of_packages(interpreter.file_of(str(path)))
        assert (finding.level, finding.options) == (level, ("run.python",)), (path, finding)
        assert words in str(finding), finding
        assert "\n" not in str(finding)


def test_an_interpreter_is_asked_again_when_its_packages_have_changed(tmp_path: Path) -> None:
    python = stand_in(tmp_path / "bin" / "python")
    with installed.of(str(python)):
        assert installed.tensorflow_version() == "2.20.0"
    state = os.stat(python)
    stand_in(python, packages=VERSIONS | {"tensorflow": "2.21.0"})
    os.utime(python, ns=(state.st_atime_ns, state.st_mtime_ns))
    os.utime(python.parent, ns=(1, 1))  # as where pip has installed something
    with installed.of(str(python)):
        assert installed.tensorflow_version() == "2.21.0"
    assert installed.intended().python == sys.executable


def test_nobody_waits_for_an_answer_that_was_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = script(tmp_path / "python", f"echo >> {tmp_path}/asked; exec sleep 600")
    told: list[str] = []
    monkeypatch.setattr(interpreter, "ANSWER_SECONDS", 3600.0)
    monkeypatch.setattr(interpreter, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(interpreter, "notice", told.append)
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(interpreter.examine, str(python)) for _ in range(2)]
        until(lambda: len(told) == 2 and (tmp_path / "asked").exists())
        interpreter.give_up()
        for one in waiting:
            with pytest.raises(interpreter.NotWaitedFor):
                one.result(60)
    with pytest.raises(interpreter.NotWaitedFor):  # whoever comes while the application ends
        interpreter.examine(str(python))
    assert (tmp_path / "asked").read_text() == "\n"
    stand_in(python)
    interpreter.ask_with(told.append)
    assert interpreter.examine(str(python)).keras == "3.12.0"


def test_a_run_is_resumed_in_another_python_by_a_change_of_its_own_preset(tmp_path: Path) -> None:
    (gone,) = checks.of_resumed(str(tmp_path / "gone"), "/runs/one/preset.yaml")
    assert str(gone).endswith("gone does not exist; change run.python in /runs/one/preset.yaml")
    python = stand_in(tmp_path / "env" / "bin" / "python")
    (tmp_path / "preset.yaml").write_text(f"run: {{python: {python.parents[1]}}}\n")
    assert python_of(Run(tmp_path)) == str(python), "as people name an environment"


def test_the_variable_is_for_runs_whose_preset_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python = str(stand_in(tmp_path / "env" / "bin" / "python"))
    monkeypatch.setenv("GPUTUI_PYTHON", "env")
    assert interpreter.chosen(None) == python
    assert interpreter.chosen("/other/python") == "/other/python"
    for settings, wanted in (([], python), (["run.python=/other/python"], "/other/python")):
        preset = presets.defaults(settings)
        assert preset.options.run.python == (wanted if settings else None)
        assert launch.settle(preset, tmp_path).options.run.python == wanted
    (note,) = checks.of_packages(None)
    assert str(note).endswith("; GPUTUI_PYTHON names it")
    monkeypatch.setenv("PATH", os.path.dirname(python), prepend=os.pathsep)
    monkeypatch.setenv("GPUTUI_PYTHON", "python")
    assert interpreter.chosen(None) == python


# ---- All that is said of the Python that trains --------------------------------------------------


def test_of_gputuis_own_python_only_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUTUI_PYTHON", raising=False)
    found = {"tensorflow": "2.99.0", "keras": "3.12.0"}
    for packages, expected in (
        ({}, [("error", (), "TensorFlow is not installed")]),
        (found, [("warning", (), "TensorFlow 2.99.0 is newer than gputui has been tested with (2.18 to 2.21)")]),
        (VERSIONS, []),
    ):
        own = Interpreter(sys.executable, (3, 12, 1), packages, packages, ())
        monkeypatch.setattr(interpreter, "require", lambda python, own=own: own)
        assert [(each.level, each.options, each.what) for each in checks.of_packages(None)] == expected
    assert checks.of_packages(sys.executable) == []


def test_a_python_that_does_not_answer_in_time_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = script(tmp_path / "python", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    told: list[str] = []
    monkeypatch.setattr(interpreter, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(interpreter, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(interpreter, "notice", told.append)
    (finding,) = checks.of_packages(str(python))
    assert (finding.level, finding.what) == ("error", f"{python} does not answer within 0.5 s")
    assert told == [str(python)]
    pid = tmp_path / "pid"
    assert not pid.exists() or not pid.read_text().strip() or not psutil.pid_exists(int(pid.read_text()))
    assert interpreter.slow() is None
