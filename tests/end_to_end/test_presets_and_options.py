"""What a shell completes, and odd input."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.engine import Run, titles
from tests.doors.tui import INFO, Bash, glyphs, show
from tests.doors.tui import cli_cli as commands
from tests.doors.tui import tui_cli as cli
from tests.support.damage import ran, wrong_in
from tests.support.front_door import gputui
from tests.support.odd_presets import KEYS, MUTATED, VALUES

# ---- completion -------------------------------------------------------------------------------


def test_help_and_completion_import_nothing_heavy() -> None:
    program = (
        "import sys, click\nfrom gputui.tui import cli\nfrom gputui.tui.commands import completion as completing\n"
        "cli.cli.only_declares = True\n"
        "for name in cli.NAMED: cli.cli.get_command(click.Context(cli.cli), name)\n"
        "for ask in (completing.preset, completing.run, completing.proof): ask(None, None, '')\n"
        "heavy = ('pydantic', 'textual', 'rich', 'pynvml', 'psutil', 'ruamel', 'gputui.engine.diagnosis', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- what a shell proposes -----------------------------------------------------------------------


def proposed(*words: str) -> list[str]:
    """The words that are proposed for the last one."""
    return [
        item.value for item in ShellComplete(commands, {}, "gputui", "_X").get_completions(list(words[:-1]), words[-1])
    ]


@pytest.fixture
def three(home: Path) -> list[Run]:
    """Runs of three presets, the newest last; the last two have short names."""
    made = []
    for number, name in enumerate(("cnn", "vit", "cnn")):
        run = Run(home / "runs" / f"2026092{number}-100000-{name}")
        run.path.mkdir(parents=True)
        (run.path / "preset.yaml").write_text("schema_version: 1\n")
        run.file(titles.FILE).write_text(titles.record(name, "/x.yaml", {"train.epochs": (2, 10 + number)}))
        made.append(run)
    (home / "runs" / "no-id").mkdir()
    (home / "runs" / "r.txt").write_text("")
    return made


RUN_COMMANDS = (
    ("logs",), ("watch",), ("stop",), ("resume",), ("history",), ("follow",), ("note",), ("tag",), ("diagnose",),
    ("compare",), ("compare", "--baseline"), ("compare", "--pin"), ("ab", "--after"), ("--after",), ("tune", "--after"),
    ("resume", "--after"),
)  # fmt: skip


def test_runs_are_proposed_newest_first_by_their_beginning_else_by_a_part(three: list[Run]) -> None:
    ids = [run.id for run in reversed(three)]
    for words in RUN_COMMANDS:
        assert proposed(*words, "") == ["latest", *ids], words
    assert proposed("logs", "20260921") == [ids[1]]
    assert proposed("logs", "cnn") == [ids[0], ids[2]]
    assert proposed("logs", "la") == ["latest"]
    assert proposed("logs", "nothing") == []
    assert proposed("runs", "rm", "") == ids
    assert proposed("runs", "rm", ids[1], "") == [ids[0], ids[2]]


@pytest.mark.parametrize(
    ("line", "word", "replies"),
    [  # bash gives the last word after its last = or :
        ("gputui --preset quickstart --set policy=mix", "mix", ["mixed_float16", "mixed_bfloat16"]),
        ("gputui --preset 'my fast.yaml' --set epochs=3 --set xla=", "", ["auto", "true", "false"]),
        ("gputui --set ba", "ba", ["batch_size="]), ("gputui presets ", "", ["check", "list", "schema", "show"]),
    ],
)  # fmt: skip
def test_bash_gets_what_follows_the_equals_sign(
    line: str, word: str, replies: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    monkeypatch.setenv("COMP_WORDS", line)
    proposals = Bash(commands, {}, "gputui", "_X").complete()
    answer = f"compopt() {{ :; }}; answer() {{ printf '%s' {shlex.quote(proposals)}; }}"
    asks = script.replace("$(env ", "$(answer ")  # in place of gputui's own process
    call = f'COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}; _gputui_completion gputui {shlex.quote(word)} ""'
    bash = f'{answer}\n{asks}\n{call}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    assert subprocess.run(["bash", "-c", bash], check=True, capture_output=True, text=True).stdout.split() == replies


# ---- without a terminal --------------------------------------------------------------------------


def test_the_cell_of_a_notebook_gets_no_screen_no_bar_and_no_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell passes for a terminal, where only these variables of IPython's kernel differ."""
    at_a_terminal = SimpleNamespace(isatty=lambda: True)
    standing_in = SimpleNamespace(stdin=at_a_terminal, stdout=at_a_terminal, stderr=at_a_terminal)
    for module in (show, glyphs):
        monkeypatch.setattr(module, "sys", standing_in)
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("GIT_PAGER", "less")
    assert (glyphs.draws_again(False), glyphs.takes_keys()) == (True, True)
    monkeypatch.setenv("GIT_PAGER", "cat")
    assert (glyphs.draws_again(False), glyphs.takes_keys()) == (False, False)
    assert cli.run([]) == 2
    instead = "gputui --preset NAME trains in a cell"
    assert capsys.readouterr().err == f"the cell of a notebook shows no screen, a terminal does; {instead}\n"


def test_the_schema_knows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["presets", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    for info in INFO.values():
        reference = schema["properties"][info.group]["anyOf"][0]["$ref"].rsplit("/", 1)[1]
        assert info.about.help in schema["$defs"][reference]["properties"][info.name]["description"]
        assert schema["$defs"][reference]["additionalProperties"] is False


# ---- what may be handed over by mistake ----------------------------------------------------------


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(200_000_000)


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


SOURCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "200 MB": (_sparse, "is larger than 1.0 MiB"),
    "a sum of 200,000 terms": (_text("x = " + "+".join(["1"] * 200_000)), "nested too deep"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 10), "odd.py"),
    "control text": (_text("def build(context:\n\x1b[2J\n"), "odd.py:2: invalid non-printable character"),
    "a named pipe": (os.mkfifo, "is no file"),
    "a folder": (Path.mkdir, "is a folder"),
    "a link to /dev/zero": (lambda path: path.symlink_to("/dev/zero"), "is no file"),
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


_ANSWER = re.compile(r"(?P<place>.+?\.yaml)(:(?P<line>\d+))?: (?P<rest>.+)", re.DOTALL)
_KEY = re.compile(r"[\w<>.?'-]+")
_NO_KEY = re.compile(
    r"not valid YAML|the file |character #|nested deeper|aliases|a name must|must be a mapping|tags|cannot be"
)


def names_its_place(line: str, path: Path) -> bool:
    """Whether a line about a preset names the file and, where there can be one, the line and the key."""
    found = _ANSWER.match(line)
    if found is None or found["place"] != str(path):
        return False
    if found["line"] is None:
        return "cannot be read" in line
    rest = re.sub("^(error|warning|note): ", "", found["rest"])
    key, colon, _ = rest.partition(":")
    is_unknown = re.search(r".: unknown (key|option)", rest)  # whatever it looks like
    return bool(is_unknown or _NO_KEY.match(rest) or (colon and all(_KEY.match(part) for part in key.split(", "))))


@given(content=MUTATED)
def test_mutated_presets_are_answered_clearly(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mutated.yaml"
    path.write_bytes(content)
    code, out, err = ran(("presets", "check", str(path)))
    assert list(wrong_in(code, out, err)) == []
    assert names_its_place(err.splitlines()[0], path) if code else f"{path}: good" in out, (out, err)


@given(KEYS | st.sampled_from(["batch_size", "no.such", "", "a b"]), st.sampled_from(["=", "=", "", " = "]), VALUES)
def test_odd_settings_are_answered_clearly(name: str, equals: str, value: str) -> None:
    setting = (name + equals + value).replace("\0", "")
    code, out, err = ran(("--preset", "quickstart", "--dry-run", "--set", setting))
    assert list(wrong_in(code, out, err)) == []
    assert code == 0 or "--set" in err or "quickstart" in err or err.startswith("Error"), err


@pytest.mark.parametrize("odd", [b"caf\xe9"], ids=["latin-1"])
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
