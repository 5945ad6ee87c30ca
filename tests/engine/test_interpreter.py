"""Which Python trains, what is said of one that cannot, and how people name it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from gputui import engine
from gputui.engine import checks, presets
from gputui.engine.doctor import libraries
from gputui.engine.interpreter import installed, installed_query, interpreter
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.presets import saving
from gputui.engine.process import launch
from gputui.engine.runs import Run, titles
from gputui.engine.runs.launched_with import python_of
from gputui.tui.base.errors import Refused
from gputui.tui.commands.doctor import show_doctor
from gputui.tui.commands.presets import export_preset

from tests.support.environments import VERSIONS, script, stand_in
from tests.support.front_door import until


def says(path: Path, answer: str) -> Path:
    """An interpreter with this answer to what is installed."""
    path.with_suffix(".answer").write_text(f"{installed_query.MARK}{answer}\n")
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
        (
            script(tmp_path / "echo", "echo hello"),
            "error",
            "echo is not a usable Python: it does not answer as a Python",
        ),
        (script(tmp_path / "fails", "echo broken >&2; exit 1"), "error", "fails is not a usable Python: broken"),
        (script(tmp_path / "endless", "exec yes"), "error", "endless is not a usable Python: it prints without end"),
        (
            script(tmp_path / "screams", "exec yes >&2"),
            "error",
            "screams is not a usable Python: it prints without end",
        ),
        (
            says(tmp_path / "less", '{"version": [3, 12, 1]}'),
            "error",
            "less is not a usable Python: it does not answer",
        ),
        (
            says(tmp_path / "other", '{"version": "3", "packages": 7, "places": {}, "path": []}'),
            "error",
            "other is not",
        ),
        (says(tmp_path / "list", "[[1, 2]]"), "error", "list is not a usable Python: it does not answer"),
        (says(tmp_path / "deep", "[" * 50_000), "error", "deep is not a usable Python: it does not answer"),
        (Path("/bin/ls"), "error", "/bin/ls is not a usable Python: it does not answer as a Python does; "),
        (plain, "error", f"has no TensorFlow; uv pip install --python {plain} 'tensorflow[and-cuda]>="),
        (stand_in(tmp_path / "a", "3.9.5"), "error", "a is Python 3.9.5, and gputui trains in Python 3.11 to 3.13"),
        (stand_in(tmp_path / "b", "3.14.0"), "error", "b is Python 3.14.0"),
        (stand_in(tmp_path / "c", packages=old), "error", "c: TensorFlow 2.15.1 is too old"),
        (stand_in(tmp_path / "d", packages=VERSIONS | {"tensorflow": "2.99.0"}), "warning", "d: TensorFlow 2.99.0 is"),
        (stand_in(tmp_path / "e", packages={"tensorflow": "2.20.0"}), "error", "e has no Keras; "),
        (
            stand_in(tmp_path / "g", packages={"tensorflow": "2.20.0", "keras": "3.12.0", "pip": "25"}),
            "error",
            f"g has no NumPy; {tmp_path}/g -m pip install 'numpy'",
        ),
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


def test_one_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    python = script(tmp_path / "python", f"echo asked >> {tmp_path}/asked; exit 1")

    def asked() -> int:
        checks.check(presets.defaults([f"run.python={python}"]).options, Machine((), "", 1, 0))
        return (tmp_path / "asked").read_text().count("asked")

    assert [asked(), asked()] == [1, 1]
    interpreter.forget_failures()
    assert asked() == 2
    os.utime(python, ns=(1, 1))
    assert asked() == 3


def test_packages_whose_files_would_be_overwritten_are_removed_first(tmp_path: Path) -> None:
    """pip puts tensorflow's files over those of tensorflow-cpu, and the module can then not be imported."""
    cpu, nightly = {"tensorflow-cpu": "2.17.1"}, {"tf-nightly": "2.17.0.dev1", "keras-nightly": "3.6.0.dev1"}
    both = {"tensorflow": "2.20.0", "intel-tensorflow": "2.18.0"}
    for name, packages, gone in (
        ("cpu", cpu | {"keras": "3.12.0"}, "tensorflow-cpu"),
        ("nightly", nightly | {"keras": "3.12.0"}, "tf-nightly keras keras-nightly"),
        ("both", both | {"keras": "3.12.0"}, "tensorflow intel-tensorflow"),
        ("usual", {"tensorflow": "2.17.1", "keras": "3.12.0"}, ""),
    ):
        python = stand_in(tmp_path / name, packages=packages | {"numpy": "2.3.0", "pip": "25.0"})
        remove = f"{python} -m pip uninstall -y {gone} && " if gone else ""
        install = f"{remove}{python} -m pip install 'tensorflow[and-cuda]>=2.18,<2.22'"
        with installed.of(str(python)):
            assert installed.with_cuda() == install
            findings = list(libraries.tensorflow(has_driver=False))
        together = [finding for finding in findings if "are installed together" in finding.what]
        assert [finding.remedy for finding in together] == ([install] if name == "both" else [])
        refused = [finding.change for finding in checks.of_packages(str(python)) if finding.level == "error"]
        assert all(change == install or " 'keras" in change for change in refused), refused
        assert (install in refused) is (name != "both")
    with_uv = stand_in(tmp_path / "uv", packages=cpu)
    with installed.of(str(with_uv)):
        assert installed.with_cuda().startswith(
            f"uv pip uninstall --python {with_uv} tensorflow-cpu && uv pip install "
        )
        assert installed.intended().install("numpy") == f"uv pip install --python {with_uv} 'numpy'"


def test_nobody_waits_for_an_answer_that_was_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = script(tmp_path / "python", f"echo >> {tmp_path}/asked; exec sleep 600")
    told: list[str] = []
    monkeypatch.setattr(installed_query, "ANSWER_SECONDS", 3600.0)
    monkeypatch.setattr(installed_query, "NOTICE_SECONDS", 0.01)
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


def test_one_that_was_just_asked_ends_when_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = script(
        tmp_path / "python", f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 30"
    )
    monkeypatch.setattr(installed_query, "NOTICE_SECONDS", 3600.0)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(interpreter.examine, str(python))
        until((tmp_path / "pid").exists)
        interpreter.give_up()
        with pytest.raises(interpreter.NotWaitedFor):
            waiting.result(60)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_how_people_name_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, python = tmp_path / "project", stand_in(tmp_path / "project" / "env" / "bin" / "python")
    file = project / "preset.yaml"
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("env", "env/bin/python", "~/project/env", str(python), "./env/"):
        file.write_text(f"run: {{python: {text}}}\n")
        preset = presets.resolve(str(file))
        assert preset.options.run.python == str(python), text
    saving.save(preset, file)
    assert file.read_text() == "run: {python: ./env/}\n"
    monkeypatch.chdir(project)
    assert presets.defaults(["run.python=env"]).options.run.python == str(python)


def test_what_to_do_is_never_cut(tmp_path: Path) -> None:
    python = stand_in(tmp_path / ("long" * 20) / "python", packages=VERSIONS | {"tensorflow": "2.17.1"})
    (finding,) = checks.of_packages(str(python))
    message, change = finding.whole(f"quickstart: {finding}").split("\n")
    assert (change, message.startswith("quickstart: run.python: /")) == (finding.change, True)
    assert finding.whole("short") == "short"


def test_the_doctor_claims_nothing_of_a_tensorflow_whose_files_tell_nothing(tmp_path: Path) -> None:
    with installed.of(str(stand_in(tmp_path / "python"))):
        (finding,) = libraries.tensorflow(has_driver=True)
        assert (finding.level, "built with CUDA is not known" in finding.what) == ("note", True), finding
    with installed.of(str(stand_in(tmp_path / "old", packages=VERSIONS | {"keras": "3.6.0", "pip": "25.0"}))):
        finding, *_ = libraries.tensorflow(has_driver=True)
        assert finding.remedy == f"{tmp_path}/old -m pip install 'keras>=3.10'"
    with pytest.raises(Refused, match="--python needs the path"):
        show_doctor(False, False, " ")


def test_a_tensorflow_that_cannot_be_imported_is_told_with_its_python(tmp_path: Path) -> None:
    """In a process of its own, as only the trainer imports this module."""
    program = """if True:
        import sys
        from pathlib import Path
        from gputui.engine.trainer.session import _failed
        for fault in (ImportError("no symbol"), ValueError("own")):
            print(_failed(fault, "importing", 1, Path(sys.argv[1]))[1])
    """
    command = [sys.executable, "-P", "-c", program, str(tmp_path)]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert f"TensorFlow cannot be imported in {sys.executable}: ImportError: no symbol" in first
    assert "cannot be imported" not in second


def test_a_run_is_resumed_in_another_python_by_a_change_of_its_own_preset(tmp_path: Path) -> None:
    (gone,) = checks.of_resumed(str(tmp_path / "gone"), "/runs/one/preset.yaml")
    assert str(gone).endswith("gone does not exist; change run.python in /runs/one/preset.yaml")
    python = stand_in(tmp_path / "env" / "bin" / "python")
    (tmp_path / "preset.yaml").write_text(f"run: {{python: {python.parents[1]}}}\n")
    assert python_of(Run(tmp_path)) == str(python), "as people name an environment"


def test_an_exported_script_is_run_by_the_python_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUTUI_PYTHON", "/envs/vision/bin/python")
    export_preset("quickstart", [], str(tmp_path / "e.py"))
    assert capsys.readouterr().out.endswith(f"; /envs/vision/bin/python {tmp_path}/e.py runs it\n")
    assert "gputui trains it in /envs/vision/bin/python." in (tmp_path / "e.py").read_text()
    monkeypatch.delenv("GPUTUI_PYTHON")
    for path, name in ((os.path.dirname(sys.executable), "python"), ("/nowhere", sys.executable)):
        monkeypatch.setenv("PATH", path)
        export_preset("quickstart", [], str(tmp_path / f"{path.count('/')}.py"))
        assert f"; {name} {tmp_path}" in capsys.readouterr().out
    assert "trains it in" not in (tmp_path / "1.py").read_text()


def test_a_title_names_the_environment() -> None:
    names = {"/envs/vision/bin/python": "vision", "/envs/a/bin/python3.12": "a", "/usr/bin/python3": "python3"}
    for python, name in names.items():
        title = titles.recorded({"changes": {"run.python": {"from": None, "to": python}}}, "quickstart")
        assert str(title) == f"quickstart: python={name}"


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


@pytest.mark.parametrize(
    ("path", "searched"),
    [("/usr/bin:/bin", "/envs/a/bin:/usr/bin:/bin"), ("", "/envs/a/bin"), ("/bin:/envs/a/bin", "/bin:/envs/a/bin")],
)
def test_programs_of_another_interpreter_are_found_first_unless_path_has_them(
    path: str, searched: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path)
    assert interpreter.environment("/envs/a/bin/python")["PATH"] == searched
    assert interpreter.environment(sys.executable)["PATH"] == path


def test_a_module_runs_in_another_interpreter_with_nothing_else_of_gputuis_environment(tmp_path: Path) -> None:
    plain = tmp_path / "plain" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(plain.parents[1])], check=True)
    (tmp_path / "gputui").mkdir()  # of the current folder, which must not come first
    (tmp_path / "json.py").write_text("raise ImportError")
    program = "from gputui.engine.system import child_process as m; import sys; print(m.own_python(), m.__file__)"
    command = interpreter.command(str(plain), "gputui.engine.units")
    found = interpreter.environment(str(plain))
    assert subprocess.run(command, cwd=tmp_path, env=found, check=False).returncode == 0
    script = Path(command[1])
    told = subprocess.run(
        [str(plain), "-c", f"import sys; sys.path[0] = {str(script.parent)!r}; {program}"],
        cwd=tmp_path, env=found, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert told[0] == sys.executable
    assert [path.name for path in script.parent.iterdir() if path.is_dir() and path.name != "__pycache__"] == ["gputui"]


@pytest.mark.parametrize("is_on_path", [True, False])
def test_a_module_runs_with_its_words_in_an_interpreter_that_has_no_gputui(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_path: bool
) -> None:
    """PYTHONSAFEPATH keeps the folder of the started file off the path."""
    bootstrap = Path(engine.__file__).parent / "bootstrap"
    (tmp_path / "told.py").write_text(
        "import json, sys\n"
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'said')!r}).write_text(json.dumps([__name__, sys.argv[1:], sys.path]))\n"
    )
    before = [str(bootstrap)] * is_on_path + [str(tmp_path), *sys.path]
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.setattr(sys, "argv", ["run_module.py", "-m", "told", "-m", "one two"])
    runpy.run_path(str(bootstrap / "run_module.py"), run_name="not started")
    assert not (tmp_path / "said").exists()
    runpy.run_path(str(bootstrap / "run_module.py"), run_name="__main__")
    name, words, path = json.loads((tmp_path / "said").read_text())
    assert (name, words) == ("__main__", ["-m", "one two"])
    assert path == (before if is_on_path else [str(bootstrap), *before])
    package = runpy.run_path(str(bootstrap / "gputui/__init__.py"))
    assert package["__path__"] == [str(Path(engine.__file__).parents[1])], "so that it is found from there"
