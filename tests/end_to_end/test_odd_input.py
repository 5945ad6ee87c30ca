"""What may be handed over by mistake: odd source files, numbers that YAML reads otherwise, odd names, long values."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gputui.engine import presets
from gputui.engine.files import located_yaml, places, reading
from gputui.engine.presets import PresetError
from gputui.tui.base.errors import WRONG, report

from tests.support.damaged_runs import ran
from tests.support.front_door import gputui
from tests.support.mutated_presets import violations


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(200_000_000)


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


SOURCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "200 MB": (_sparse, "is larger than 1.0 MiB"),
    "a sum of 200,000 terms": (_text("x = " + "+".join(["1"] * 200_000)), "nested too deep"),
    "100,000 signs": (_text("x = " + "-" * 100_000 + "1"), "nested too deep"),
    "100,000 attributes": (_text("x = a" + ".b" * 100_000), "nested too deep"),
    "200,000 brackets": (_text("x = " + "(" * 200_000), "too many nested parentheses"),
    "lists in lists": (_text("x = " + "[" * 150 + "]" * 150), "has no function build"),
    "3,000 elifs": (_text("if a: pass\n" + "elif a: pass\n" * 3000), "nested too deep"),
    "one long line": (_text("x = '" + "y" * 900_000), "unterminated string"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 10), "odd.py"),
    "control text": (_text("def build(context:\n\x1b[2J\n"), "odd.py:2: invalid non-printable character"),
    "an odd coding": (_text("# coding: rot13\nqrs ohvyq(pbagrkg): cnff\n"), "is not a text encoding"),
    "a named pipe": (os.mkfifo, "is no file"),
    "a folder": (Path.mkdir, "is a folder"),
    "a link to /dev/zero": (lambda path: path.symlink_to("/dev/zero"), "is no file"),
    "a link to itself": (lambda path: path.symlink_to(path), "does not exist"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_an_odd_source_file_is_told_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, told = SOURCES[name]
    make(Path("odd.py"))
    preset = "mine.yaml"
    Path(preset).write_text("# mine\nworkload:\n  entry: odd.py:build\n")
    code, _, err = ran(("presets", "check", str(preset)))
    assert code == 2
    assert told in err
    assert err.startswith(f"{preset}:3: error: workload.entry: ")
    assert err.count("\n") == 1
    assert len(err) <= 201
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("010", "write 10 or 8"),
        ("-017", "write -17 or -15"),
        ("1:30", "write 90"),
        ("1:00:00", "write 3600"),
        ("0b101", "write 5"),
    ],
)
def test_numbers_that_yaml_reads_otherwise_are_refused(text: str, told: str, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(f"input:\n  batch_size: {text}\n")
    with pytest.raises(PresetError, match=told) as refused:
        presets.resolve(str(preset))
    assert str(refused.value).startswith(f"{preset}:2: input.batch_size: {text} is a number ")
    with pytest.raises(PresetError, match=told) as typed:
        presets.resolve("quickstart", [f"batch_size={text}"])
    assert str(typed.value).startswith(f"--set batch_size={text}: input.batch_size: ")


def test_a_trap_within_a_list_has_its_place_and_a_text_in_quotes_is_one(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("workload:\n  data: synthetic\n  shape: [28,\n    010]\n")
    with pytest.raises(PresetError, match=r"mine.yaml:4: workload.shape: 010 is a number octal"):
        presets.resolve(str(preset))
    preset.write_text('input: {batch_size: 100}\nworkload: {tfrecord_input: "010"}\n')
    assert presets.resolve(str(preset)).options.workload.tfrecord_input == "010"


@pytest.mark.parametrize("text", ["10", "0", "0.5", "1e3", "1_000", "0x10", "010.5", "08", "1:90", "v1:30"])
def test_other_numbers_and_words_are_none(text: str) -> None:
    assert not located_yaml.trap(text)


def test_a_saved_text_that_looks_like_a_trap_stands_in_quotes() -> None:
    assert not located_yaml.stays_text("010")
    assert located_yaml.stays_text("image")


LONG = [
    "input.cache=" + "a" * 3000,
    "input.cache=/" + "b" * 3000,
    "workload.data=npz:" + "x" * 5000,
    "batch_size=" + "9" * 4000,
    "workload.entry=" + "d/" * 2000 + "a.py:build",
    "y" * 3000 + "=1",
    "z" * 3000,
]


@pytest.mark.parametrize("setting", LONG, ids=lambda setting: f"{setting[:20]}{len(setting)}")
def test_a_long_value_makes_no_long_line(setting: str) -> None:
    code, _, err = ran(("--preset", "quickstart", "--dry-run", "--set", setting))
    assert code == 2
    assert max(map(len, err.splitlines())) <= 200
    assert "please report it" not in err
    assert err.startswith("--set ")


def test_mutated_presets_are_answered_clearly(tmp_path: Path) -> None:
    """The first of the ten thousand that benchmarks/faults.py takes."""
    found = {seed: wrong for seed in range(300) if (wrong := violations(seed, tmp_path))}
    assert not found


@pytest.mark.parametrize("odd", [b"caf\xe9", b"a\nb", b"\x1b[2J"], ids=["latin-1", "newline", "escape"])
@pytest.mark.parametrize("what", ["home", "folder"])
def test_a_folder_whose_name_is_no_text_is_refused_at_once(what: str, odd: bytes, tmp_path: Path) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + odd))
    place.mkdir()
    (place / "train.py").write_text("def build(context): ...\n")
    home = place if what == "home" else tmp_path / "home"
    given = ["--preset", "quickstart"] if what == "home" else ["--preset", "preset.yaml"]
    (place / "preset.yaml").write_text("workload: {entry: train.py:build}\n")
    done = gputui(*given, cwd=place, env=os.environ | {"GPUTUI_HOME": os.fsdecode(os.fsencode(home))})
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "please report" not in done.stderr
    assert "another" in done.stderr
    assert not list(home.glob("runs/*"))


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path))
    assert places.config_folder() == tmp_path / "config"
    assert ran(("presets",))[0] == 0
    monkeypatch.delenv("GPUTUI_HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    for words in ("runs", "presets", "proof"):
        said = "this user has no home folder; set GPUTUI_HOME to a folder for runs and settings\n"
        assert ran((words,)) == (2, "", said), words


def test_a_file_that_has_nothing_to_read_yet_is_an_error() -> None:
    """As /proc/kmsg, which says of itself that it is a regular file."""
    for most in (None, 7):
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with io.BufferedReader(reading._NeverWaiting(reader)) as stream, pytest.raises(OSError, match="wait for ever"):
            stream.read(most)
        os.close(writer)


def test_a_limit_on_processes_is_told_before_anything_was_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(BlockingIOError(11, "Resource temporarily unavailable")) == WRONG
    assert "no more processes and threads can be started" in capsys.readouterr().err


@pytest.mark.parametrize("full", [False, True])
def test_output_that_is_lost_at_the_end_does_not_hide_a_failure(full: bool) -> None:
    command = "lambda: print('x') or int(sys.argv[1])"
    code = f"import sys; from gputui.tui.base.errors import guarded; sys.exit(guarded({command}))"
    for failed, expected in ((3, 3), (0, 74 if full else 0)):
        reader, writer = (-1, os.open("/dev/full", os.O_WRONLY)) if full else os.pipe()
        if not full:
            os.close(reader)
        done = subprocess.run(
            [sys.executable, "-c", code, str(failed)], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(writer)
        assert done.returncode == expected, done.stderr
        assert ("standard output cannot be written" in done.stderr) == full
