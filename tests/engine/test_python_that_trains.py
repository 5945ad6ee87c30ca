"""All that is said of the Python that trains: with and without remarks, of a start and of a run that is resumed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from gputui.engine import checks
from gputui.engine.checks import Finding
from gputui.engine.interpreter import installed, installed_query, interpreter, supported_versions
from gputui.engine.interpreter.interpreter import Interpreter

from tests.support.environments import VERSIONS, script, stand_in

KEY = ("run.python",)
OLD, NEW = {"tensorflow": "2.17.1", "pip": "25.0"}, {"tensorflow": "2.99.0", "keras": "3.99.0"}
TENSORFLOW = supported_versions.TENSORFLOW


def too_new(python: str, name: str, version: str, tested: str) -> Finding:
    what = f"{python}: {name} {version} is newer than gputui has been tested with ({tested})"
    return Finding("warning", KEY, what, f"it may work; if not, install {name} {tested.rpartition(' ')[2]}")


def trains(python: str, tensorflow: str, keras: str, why: str = "the preset or --set names it") -> Finding:
    return Finding("note", KEY, f"trains in {python}: TensorFlow {tensorflow}, Keras {keras}, Python 3.12.1", why)


CASES: dict[str, tuple[dict[str, str], Callable[[str], list[Finding]]]] = {
    "as tested": ({}, lambda python: [trains(python, "2.20.0", "3.12.0")]),
    "both newer": (NEW, lambda python: [
        too_new(python, "TensorFlow", "2.99.0", "2.18 to 2.21"), too_new(python, "Keras", "3.99.0", "3.10 to 3.15"),
        trains(python, "2.99.0", "3.99.0"),
    ]),
    "one too old, one newer": (OLD | {"keras": "3.99.0"}, lambda python: [
        Finding("error", KEY, f"{python}: TensorFlow 2.17.1 is too old: gputui trains with TensorFlow 2.18 to 2.21",
                f"{python} -m pip install '{TENSORFLOW}'"),
        too_new(python, "Keras", "3.99.0", "3.10 to 3.15"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_python_is_named_after_the_remarks_on_its_packages_unless_it_cannot_train(name: str, tmp_path: Path) -> None:
    packages, expected = CASES[name]
    python = str(stand_in(tmp_path / "python", packages=VERSIONS | packages))
    assert checks.of_packages(python) == expected(python)


def test_who_has_named_the_python_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, gone = str(stand_in(tmp_path / "python")), str(tmp_path / "gone")
    missing = f"{gone} does not exist"
    monkeypatch.setenv("GPUTUI_PYTHON", gone)
    assert checks.of_packages(python) == [trains(python, "2.20.0", "3.12.0")]
    assert [(each.level, each.options, each.message) for each in checks.of_packages(gone)] == [("error", KEY, missing)]
    assert [each.message for each in checks.of_packages(None)] == [f"{missing} (GPUTUI_PYTHON)"]
    monkeypatch.setenv("GPUTUI_PYTHON", python)
    assert checks.of_packages(None) == [trains(python, "2.20.0", "3.12.0", "GPUTUI_PYTHON names it")]
    monkeypatch.setenv("GPUTUI_PYTHON", sys.executable)
    assert checks.of_packages(None) == [], "it is gputui's own"


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
        assert [(each.level, each.options, each.message) for each in checks.of_packages(None)] == expected
    assert checks.of_packages(sys.executable) == []


def test_the_remedies_for_a_run_that_is_resumed_name_its_own_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changes(python: str) -> list[tuple[str, str]]:
        return [(each.level, each.change) for each in checks.of_resumed(python, "/runs/a/preset.yaml")]

    newer = str(stand_in(tmp_path / "newer", packages=VERSIONS | {"keras": "3.99.0"}))
    may_work = ("warning", "it may work; if not, install Keras 3.15")
    assert changes(newer) == [may_work, ("note", "the run's preset names it")]
    older = str(stand_in(tmp_path / "older", packages=VERSIONS | OLD))
    assert changes(older) == [("error", "change run.python in /runs/a/preset.yaml")]
    nothing = Interpreter(sys.executable, (3, 12, 1), {}, {}, ())
    monkeypatch.setattr(interpreter, "require", lambda python: nothing)
    install = nothing.install(TENSORFLOW)
    ways = "set run.python in /runs/a/preset.yaml to the Python of an environment that has it"
    assert changes(sys.executable) == [("error", f"{ways}, or {install}")]
    (own,) = checks.of_packages(None)
    assert own.change == f"set run.python (or GPUTUI_PYTHON) to the Python of an environment that has it, or {install}"


def test_how_another_tensorflow_was_built_is_read_from_its_files(tmp_path: Path) -> None:
    names = '["sm_60", "sm_89", "compute_90", "other"]'
    build = 'collections.OrderedDict([("cuda_version", "12.5.1"), ("is_cuda_build", True), ("{}", {})])'
    whole = f"import collections\nbuild_info = {build.format('cuda_compute_capabilities', names)}\n"
    for number, (text, info, targets, newest) in enumerate((
        (whole, {"cuda_version": "12.5.1", "is_cuda_build": True,
                 "cuda_compute_capabilities": ["sm_60", "sm_89", "compute_90", "other"]}, [(6, 0), (8, 9)], (9, 0)),
        (whole.replace("compute_90", "sm_120"), None, [(6, 0), (8, 9), (12, 0)], (12, 0)),
        ("build_info = collections.OrderedDict([(a, b)])\n", {}, [], None),
        ("build_info = collections.OrderedDict([('a' 1)])\n", {}, [], None), ("build_info = {}\n", {}, [], None),
        (None, {}, [], None),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        python = str(stand_in(folder / "python", packages=VERSIONS | {"pip": "25.0"}))
        file = folder / "tensorflow" / "python" / "platform" / "build_info.py"
        file.parent.mkdir(parents=True)
        if text is not None:
            file.write_text(text)
        with installed.of(python):
            assert info is None or installed.build_info() == info
            assert (installed.capabilities(), installed.newest_target()) == (targets, newest)
            assert installed.cuda_version() == ((12, 5) if newest else None)
            assert installed.site("tensorflow/python") == folder / "tensorflow" / "python"
            assert installed.site("tensorflow/other") is None
            assert installed.install("numpy") == f"{python} -m pip install 'numpy'"
    with installed.of(str(tmp_path / "gone")):
        assert (installed.build_info(), installed.has_tensorflow(), installed.site("tensorflow")) == ({}, False, None)
        assert (installed.tensorflow_version(), installed.keras_version(), installed.cudnn()) == (None, None, None)
    assert (installed.install("keras"), installed.install("a>=1")) == ("pip install keras", "pip install 'a>=1'")


def test_pip_is_named_alone_where_the_shell_finds_that_of_gputuis_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_, other = tmp_path / "bin", tmp_path / "other"
    for folder in (bin_, other):
        script(folder / "pip", "true")
    monkeypatch.setattr(sys, "executable", str(bin_ / "python"))
    own = Interpreter(sys.executable, (3, 12, 1), {"keras-nightly": "3"}, {}, ())
    elsewhere = replace(own, python="/b/my env/bin/python")
    with_pip = {"pip": "25"}
    for path, packages, of_own in (
        (f"{bin_}:{other}", {}, "pip install"), (f"{other}:{bin_}", {}, f"uv pip install --python {sys.executable}"),
        (f"{other}:{bin_}", with_pip, f"{sys.executable} -m pip install"), (str(bin_), with_pip, "pip install"),
    ):  # fmt: skip
        monkeypatch.setenv("PATH", path)
        assert replace(own, packages=packages).install("numpy") == f"{of_own} 'numpy'", path
    for packages, command in ((with_pip, "'/b/my env/bin/python' -m pip install"),
                              ({}, "uv pip install --python '/b/my env/bin/python'")):  # fmt: skip
        assert replace(elsewhere, packages=packages).install("numpy") == f"{command} 'numpy'"
    monkeypatch.setenv("PATH", str(bin_))
    assert own.install("keras>=3.10") == "pip uninstall -y keras-nightly && pip install 'keras>=3.10'"
    assert own.install("numpy") == "pip install 'numpy'"


def test_a_python_that_does_not_answer_in_time_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = script(tmp_path / "python", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    told: list[str] = []
    monkeypatch.setattr(installed_query, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(installed_query, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(interpreter, "notice", told.append)
    (finding,) = checks.of_packages(str(python))
    assert (finding.level, finding.message) == ("error", f"{python} does not answer within 0.5 s")
    assert told == [str(python)]
    pid = tmp_path / "pid"
    assert not pid.exists() or not pid.read_text().strip() or not psutil.pid_exists(int(pid.read_text()))
    assert interpreter.slow() is None


@pytest.mark.parametrize(
    ("version", "trains"),
    [("3.10.19", False), ("3.11.0", True), ("3.13.99", True), ("3.14.0", False), ("4.11.0", False), ("2.12.0", False)],
)
def test_the_first_and_the_last_python_that_trains(version: str, trains: bool, tmp_path: Path) -> None:
    python = str(stand_in(tmp_path / "python", version))
    found = checks.of_packages(python)
    what = f"{python} is Python {version}, and gputui trains in Python 3.11 to 3.13"
    change = "name another interpreter, or make an environment with one of these"
    assert trains or found == [Finding("error", KEY, what, change)]
    assert [each.level for each in found] == ["note" if trains else "error"]


def test_gputuis_own_python_needs_no_packages_to_be_described(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Interpreter(sys.executable, (3, 12, 1), {}, {}, ())
    monkeypatch.setattr(interpreter, "own", lambda: own)
    assert interpreter.require(sys.executable) == own


def test_a_python_keeps_the_name_by_which_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs, here = tmp_path / "programs", tmp_path / "tool"
    script(programs / "tool", "true")
    script(programs / "python3.12", "true")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(programs / "python3.12")
    monkeypatch.setenv("PATH", str(programs))
    assert interpreter.file_of("env") == str(tmp_path / "env/bin/python"), "and not that to which the link leads"
    assert interpreter.file_of("env/bin/../bin/python") == str(tmp_path / "env/bin/python")
    assert interpreter.file_of("bin/python", "env") == str(tmp_path / "env/bin/python")
    assert interpreter.file_of("python3.12") == str(programs / "python3.12")
    assert interpreter.file_of("tool") == str(programs / "tool")
    here.touch()
    assert interpreter.file_of("tool") == str(here), "what is in this folder comes first"
    assert interpreter.file_of("gone") == str(tmp_path / "gone")
    for blank in ("", "  "):
        monkeypatch.setenv("GPUTUI_PYTHON", blank)
        assert (interpreter.from_environment(), interpreter.chosen(None)) == (None, sys.executable)
    monkeypatch.setenv("GPUTUI_PYTHON", " env ")
    assert interpreter.from_environment() == str(tmp_path / "env/bin/python")


ANSWER = '{"version": [3, 12, 1], "packages": {}, "places": {}, "path": ["/a"]}'
NO_PYTHON = "it does not answer as a Python does"


LOADER, GLIBC = "python: error while loading shared libraries: x.so", "python: version GLIBC_2.38 not found"


@pytest.mark.parametrize(
    ("printed", "logged", "why"),
    [
        (ANSWER.replace("12, 1]", "12, true]"), "", NO_PYTHON), (ANSWER.replace("12, 1]", "12]"), "", NO_PYTHON),
        (ANSWER.replace('"/a"', "7"), "", NO_PYTHON), (ANSWER.replace('"places": {}, ', ""), "", NO_PYTHON),
        (ANSWER.replace('"packages": {}', '"packages": {"a": 1}'), "", NO_PYTHON), ("", "one\ntwo", NO_PYTHON),
        ("", "  one\t2  \n\n", "one 2"), ("", "x" * 150, "x" * 120),
        ("", "ImportError: first\nValueError: second\nlast", "ValueError: second"),
        ("", "a.b.OwnException: mine\nin it\n", "a.b.OwnException: mine"), ("", f"{GLIBC}\ntwo", GLIBC),
        ("", "one\nFatal Python error: init\ntwo", "Fatal Python error: init"), ("", f"one\n{LOADER}\n", LOADER),
    ],
)  # fmt: skip
def test_why_a_program_is_no_usable_python_is_its_last_telling_line(
    printed: str, logged: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text(f"{installed_query.MARK}{printed}\n" if printed else "")
    (tmp_path / "err").write_text(logged)
    python = script(tmp_path / "python", f"cat {tmp_path}/out; cat {tmp_path}/err >&2")
    assert [each.message for each in checks.of_packages(str(python))] == [f"{python} is not a usable Python: {why}"]


def test_the_answer_of_a_python_is_the_last_that_it_prints_whatever_stands_around_it(tmp_path: Path) -> None:
    mark = installed_query.MARK
    (tmp_path / "out").write_text(
        f"hello {mark}nothing\n{mark}{ANSWER.replace('12', '13')}\n{mark}{ANSWER} and more\nbye\n"
    )
    python = script(tmp_path / "python", f"cat {tmp_path}/out")
    found = interpreter.examine(str(python))
    assert (found.version, found.search_path, found.place) == ((3, 12, 1), ("/a",), None)
