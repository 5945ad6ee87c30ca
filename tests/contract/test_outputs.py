"""What the commands print about the recorded home: text, Markdown, CSV and JSON, each in a file of golden/outputs/."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import click
import pytest
from rich.console import Console

from tests.contract.conftest import Golden
from tests.doors.engine import runs
from tests.doors.tui import LineView
from tests.doors.tui import tui_cli as cli

RUNS = ("quickstart", "batch", "seed", "own", "fails", "timeout", "mirrored", "oom")  # in the order of record.py
NOW = 1_796_120_000.0
PROOFS = ("ab", "ab-same", "loop", "tune", "rate", "sweep", "scaling")


@pytest.fixture
def there(recorded_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In the recorded home, two days later, at another time than UTC."""
    monkeypatch.setenv("GPUTUI_HOME", str(recorded_home))
    monkeypatch.setenv("TZ", "IST-5:30")
    monkeypatch.setenv("COLUMNS", "120")
    localtime = time.localtime
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(time, "localtime", lambda at=None: localtime(NOW if at is None else at))
    time.tzset()
    yield recorded_home
    monkeypatch.undo()
    time.tzset()


def named(home: Path, folder: str, names: tuple[str, ...]) -> dict[str, str]:
    """The names of record.py for what it has recorded, without the trials of the sweep, which come later."""
    paths = sorted(path.name for path in (home / folder).iterdir())
    return dict(zip(names, paths, strict=False))


COMMANDS = (
    "runs",
    "runs --json",
    "runs --state failed",
    "runs --tag baseline",
    "compare @quickstart @batch @seed",
    "compare @quickstart @batch @seed --json",
    "compare @quickstart @batch @seed --markdown",
    "compare @quickstart @batch --csv",
    "compare @own @timeout @mirrored @oom @fails",
    "logs @fails -n 20",
    "logs @fails -n 0",
    "note @seed",
    "tag @seed",
    "history @quickstart",
    "history @own --jsonl",
    "history @own --jsonl --since 14786-3760",
    *(f"diagnose @{run}" for run in RUNS),
    "diagnose @mirrored --json",
    "proof",
    "proof --json",
    *(f"proof @{proof}{how}" for proof in PROOFS for how in ("", " --details", " --json", " --markdown")),
    "queue",
    "queue --json",
    "presets",
    "options batch_size",
    "options strategy.kind --json",
    "options compile",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_what_a_command_prints(words: str, there: Path, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    names = named(there, "runs", RUNS) | named(there, "proofs", PROOFS)
    arguments = [names[word[1:]] if word.startswith("@") else word for word in words.split()]
    code = cli.run(arguments)
    printed = capsys.readouterr()
    text = f"$ gputui {words}\n{printed.out}" + (f"--- errors\n{printed.err}" if printed.err else "") + f"--- {code}\n"
    if words.split()[0] in ("runs", "proof"):  # what folders take on the disk differs with the file system
        text = re.sub(r'(?<="bytes": )\d+', "SIZE", text)
        result = r"\d replicas|args|learning|it seems|nothing|whether"
        text = re.sub(rf" +\d[\d.]* [KM]iB(?=  Nov| +({result}))", "  SIZE", text)
    golden("outputs/" + re.sub(r"\W+", "-", words).strip("-") + ".txt", text.replace(str(there), "HOME"))


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of each command, also of those within a command."""
    context = click.Context(group)
    for name in group.commands if before else group.list_commands(context):
        command = group.get_command(context, name)
        yield (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))


def test_the_help_of_every_command(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for words in ((), *commands(cli.cli)):
        code = cli.run([*words, "--help"])
        print(f"--- {code}\n")
    golden("outputs/help.txt", capsys.readouterr().out)


def test_the_lines_of_a_run(there: Path, golden: Golden) -> None:
    """What the command that trains prints while it follows a run: of several that have ended in their way."""
    ids, lines = named(there, "runs", RUNS), StringIO()
    for name in ("quickstart", "fails", "mirrored", "oom"):
        run = runs.find(ids[name])
        view = LineView(run, Console(file=lines, width=120))
        for event in runs.follow(run):
            view.show(event)
        lines.write("\n")
    golden("outputs/lines-of-runs.txt", lines.getvalue().replace(str(there), "HOME"))
