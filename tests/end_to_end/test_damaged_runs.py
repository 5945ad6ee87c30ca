"""Whatever lies in a run folder, each command answers clearly, and the other runs are still there."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Entry, Run, entries, located_yaml, read_events
from tests.doors.engine import event_reading_Tail as Tail
from tests.doors.tui import LiveScreen, RunsScreen
from tests.support.damage import BAD, COMMANDS, DEEP_VALUE, FILES, GOOD, home_of_two, judged, kinds, ran, violations
from tests.support.queued import no_runner
from tests.support.recorded_proof import write_proof
from tests.support.tiny import Tiny, wait_for

KINDS = kinds()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of_two(tmp_path_factory.mktemp("damaged") / "template")


@pytest.fixture
def presets_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the presets is parsed once for all commands: a quarter of their time; each reads the file."""
    monkeypatch.setattr(located_yaml, "parse", functools.cache(located_yaml.parse))


@pytest.fixture
def bad(template: Path, home: Path) -> Run:
    """A run that may be damaged, beside a whole one."""
    home_of_two(home)
    return Run(home / "runs" / BAD)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.usefixtures("presets_read_once")
def test_no_damage_is_a_riddle(template: Path, tmp_path: Path, file: str) -> None:
    """Every kind of damage to every file meets the screens; each command meets each kind of damage in one file.

    All of them, and other places in the files, are in benchmarks/faults.py.
    """
    found = {}
    for at, kind in enumerate(KINDS):
        some = COMMANDS[(at + FILES.index(file)) % len(FILES) :: len(FILES)]
        if wrong := violations(template, tmp_path / "two", file, kind, commands=some):
            found[kind.name] = wrong
    assert not found


def test_a_damaged_proof_is_told_and_hides_no_other(home: Path, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    bad, good = write_proof(home, "20260101-000000-bad"), write_proof(home, "20260102-000000-good")
    whole = shutil.copytree(bad.path, tmp_path / "whole")
    for kind in KINDS:
        shutil.rmtree(bad.path)
        shutil.copytree(whole, bad.path)
        kind.damage(bad.path / "proof.json")
        commands = ((), ("--json",), (bad.id,), (bad.id, "--markdown"), (bad.id, "--json"), (bad.id, "--stop"))
        wrong = [what for given in commands for what in judged(("proof", *given))]
        if good.id not in ran(("proof",))[1]:
            wrong.append("the whole proof is not listed")
        found |= {kind.name: wrong} if wrong else {}
    assert not found


def test_a_damaged_entry_of_the_queue_is_told_and_hides_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        shutil.rmtree(home, ignore_errors=True)
        with entries.locked():
            for place, name in enumerate((BAD, GOOD), 1):
                entries.write(Entry(name, float(place), devices=["0"]))
        kind.damage(entries.file_of(BAD))
        wrong = [what for given in ((), ("--json",)) for what in judged(("queue", *given))]
        _, out, err = ran(("queue",))
        whole = [entry.run for entry in entries.all_entries()]
        if GOOD not in whole or (BAD not in whole and entries.file_of(BAD).exists() and "removes it" not in err):
            wrong.append(f"listed {whole}: {out}{err}")
        found |= {kind.name: wrong} if wrong else {}
    assert not found


def test_damaged_lines_are_counted_and_named_once(bad: Run) -> None:
    path = bad.file("events.jsonl")
    lines = path.read_text().splitlines()
    lines[11] = lines[11][:-5]
    later = next(at for at, line in enumerate(lines) if at > 11 and '"progress"' in line)
    lines[later] = json.dumps(json.loads(lines[later]) | {"step": "9" * 30})
    path.write_text("\n".join(lines) + "\n")
    for command in (("history", BAD), ("diagnose", BAD)):
        code, _, err = ran(command)
        assert code == 0
        assert err == f"{BAD}: line 12 of events.jsonl and 1 more are damaged, left out\n"
    assert len(read_events(bad.path).events) == len(lines) - 2 + len(Tail(bad.file("telemetry.jsonl")).read())


def test_history_of_what_cannot_be_read_says_so(bad: Run) -> None:
    bad.file("events.jsonl").unlink()
    bad.file("events.jsonl").mkdir()
    code, _, err = ran(("history", BAD))
    assert code == 2
    assert "events.jsonl cannot be read: is a folder, not a file" in err
    assert "before its first step" not in err


def test_a_run_folder_that_cannot_be_entered_hides_no_other(bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of another user's folder, also to a test that runs as root."""
    _close(bad.path, monkeypatch)
    _assert_left_out()


def _close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lstat = os.lstat

    def closed(path: Any, **words: Any) -> os.stat_result:
        if Path(path).parent == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path, **words)

    monkeypatch.setattr(os, "lstat", closed)


async def test_the_screen_of_runs_says_what_is_left_out(bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table, and the live view of the damaged run: each at a size at which all of it is drawn."""
    kind = next(kind for kind in KINDS if DEEP_VALUE[:30] in kind.name and kind.name.startswith("value"))
    for file in FILES[1:4]:
        kind.damage(bad.file(file), 3)
    bad.file("result.json").write_text('{"outcome": "ok", "seconds": "long"}')
    other = bad.path.with_name("20260103-000000-closed")
    shutil.copytree(bad.path, other)
    _close(other, monkeypatch)
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "2 of 2 runs, 1 not readable")
        assert "whole" in shown
        await pilot.press("G", "end", "down")
        await wait_for(pilot, "result.json is damaged, seconds left out")
    async with Tiny(lambda: LiveScreen(bad)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "done")


def _assert_left_out() -> None:
    code, out, err = ran(("runs",))
    assert code == 0
    assert GOOD in out
    assert BAD not in out
    assert err.count("\n") == 1
    assert BAD in err
    assert "Permission denied" in err
    code, _, err = ran(("diagnose", BAD))
    assert code == 2
    assert "Permission denied" in err
