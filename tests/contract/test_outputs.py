"""What the commands print about the recorded home: text, Markdown, CSV and JSON, each in a file of golden/outputs/."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gputui.tui import cli

from tests.contract.conftest import Golden

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
    "note @seed",
    "tag @seed",
    "history @quickstart",
    "history @own --jsonl",
    *(f"diagnose @{run}" for run in RUNS),
    "diagnose @mirrored --json",
    "proof",
    "proof --json",
    *(f"proof @{proof}{how}" for proof in PROOFS for how in ("", " --json", " --markdown")),
    "queue",
    "queue --json",
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
