"""Walks through the screens: each file of golden/walks/ has the keys of its stops, and below each what then differs.

Its first line names the home and the size of the terminal. `> KEYS` presses keys and writes what is in quotation marks,
`$ PATH` looks at a file or a folder. Then follow the rows of the screen that differ, each with its number, and with !
what is said. Who adds a stop writes its line, and lets `pytest --snapshot-update` write what stands below it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.contract.conftest import HERE, Golden
from tests.contract.test_outputs import there as there
from tests.contract.test_screens import LOOKS, LOOKS_AT_REST, shown
from tests.doors.engine import Preset, chips, entries, launch, presets, proof_start, resuming, this_machine
from tests.doors.engine import folder as proof_folder
from tests.doors.tui import GputuiApp, SweepDialog, TuneDialog
from tests.support import queued
from tests.support import recorded as recorded_run
from tests.support.bursts import at_rest
from tests.support.form_pilot import NO_GPU, settled, told, write
from tests.tui.conftest import css_parsed_once as css_parsed_once
from tests.tui.conftest import painted_when_looked_at as painted_when_looked_at

COLOUR, WORDS = re.compile(r"<\w+>"), re.compile(r"\w(?!\w*>)")
LOOKS_WRITTEN = 15  # without a change, before a stop is written
WALKS = sorted(path.stem for path in (HERE / "golden" / "walks").glob("*.txt"))
INPUT = re.compile(r"^(?=[>#$])", re.MULTILINE)
NOT_THE_SAME = {
    r"\d{8}-\d{6}(?=-(one|two|three|quickstart))": "20261201-000000",
    r"<(moderate|heavy)>|<error>(?= *(✗|r\d))": "",
    r" *\d[\d.]* KiB\.? *": " SIZE ",
    r" *\d+:\d\d(:\d\d)? a(go|…) *": " some time ago ",
}
SHORT = {"?": "question_mark", "/": "slash", "<": "less_than_sign", ">": "greater_than_sign", ",": "comma",
         "[": "left_square_bracket", "]": "right_square_bracket"}  # fmt: skip


async def pressed(pilot: Pilot[Any], line: str) -> None:
    """Press the keys of a line, of which `down*3` is three, and write the texts in quotation marks."""
    for text, word in re.findall(r'"([^"]*)"|(\S+)', line[2:]):
        key, _, count = word.partition("*") if len(word) > 1 else (word, "", "")
        if text:
            await write(pilot, text)
        else:
            await pilot.press(*[SHORT.get(key, key)] * int(count or 1))


def nearest(earlier: list[list[str]], rows: list[str]) -> tuple[int, list[str]]:
    """The stop before or, if fewer rows differ, one before it: how long ago, and its rows."""
    return min(enumerate(earlier, 1), key=lambda stop: (len(_differing(stop[1], rows)), stop[0]), default=(1, []))


def differences(ago: int, base: list[str], rows: list[str]) -> str:
    """The rows that differ; alike ones once."""
    text = f"= as {ago} stops ago\n" if ago > 1 else ""
    differing = enumerate(_differing(base, rows))
    for (row, _), alike in groupby(differing, key=lambda each: (rows[each[1]], each[1] - each[0])):
        first, *more = (at for _, at in alike)
        text += f"{f'{first}-{more[-1]}' if more else first:>2} {row}\n"
    return text


def _differing(base: list[str], rows: list[str]) -> list[int]:
    """Without rows of lines and curves alone."""
    return [at for at, row in enumerate(rows) if row not in base[at : at + 1] and (not row or WORDS.search(row))]


def same_everywhere(text: str) -> str:
    """Without what differs between machines: the folder, sizes on the disk, the time that the walk takes."""
    text = text.replace(str(Path.home()), "/tmp/walk_folders")
    for pattern, instead in NOT_THE_SAME.items():
        text = re.sub(pattern, instead, text)
    return text


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's home and present folder, whose path has the same length everywhere."""
    made = Path(tempfile.mkdtemp(prefix="walk_", dir="/tmp"))
    for name, path in (("HOME", made), ("GPUTUI_HOME", made / "gputui"), ("XDG_CONFIG_HOME", made / "config")):
        monkeypatch.setenv(name, str(path))
    monkeypatch.chdir(made)
    yield made
    shutil.rmtree(made)


def recorded(folder: Path, there: Path) -> None:
    shutil.copytree(there, folder / "gputui")


def kept(folder: Path, there: Path) -> None:
    """The recorded home, and a list of runs that was arranged."""
    recorded(folder, there)
    (folder / "config" / "gputui").mkdir(parents=True)
    runs = "runs: {columns: [id, state, no such, loss], sort: loss, descending: false, filter: own}"
    (folder / "config" / "gputui" / "settings.yaml").write_text(f"# mine\n{runs}\nkeys: {{delete: ctrl+e}}\n")


def empty(folder: Path, there: Path) -> None:
    """Nothing has been done so far."""


def project(folder: Path, there: Path) -> None:
    """The present folder has presets, one with errors and other files."""
    files = {
        "mine.yaml": "# my own\ndescription: batches of 48\ninput: {batch_size: 48}  # as in the paper\n",
        "second.yaml": "description: a second one\ntrain: {epochs: 9, seed: 5}\nworkload: {model: mlp}\n",
        "sweeps/large.yaml": "input: {batch_size: 512}\n", "sweeps/larger.yaml": "input: {batch_size: 1024}\n",
        "sweeps/deep/x.yaml": "input: {batch_size: 1}\n", "wrong.yaml": "input:\n  batch_size: many\n  cahe: memory\n",
        "gputui/recent.json": json.dumps([str(folder / "mine.yaml")]),  # stands in this folder, and only there
        "broken.yaml": "train: [\n", "compose.yaml": "services: {a: 1}\n", "train.py": "print(1)\n",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def waiting(folder: Path, there: Path) -> None:
    """Three runs wait, older ones: one has ended, one goes on, one was stopped after a checkpoint."""
    ended = recorded_run.write(folder / "gputui", name="20260921-100000-cnn", gpus=0, seconds=40)
    result = json.loads(ended.file("result.json").read_text())
    ended.file("result.json").write_text(json.dumps(result | {"learning": "the loss has become nan"}))
    going_on: dict[str, Any] = {"outcome": None, "engine_pid": os.getpid(), "settings": ("run.checkpoint=off",)}
    recorded_run.write(folder / "gputui", name="20260921-140000-mlp", gpus=0, seconds=40, **going_on)
    made = [queued.waiting(name) for name in ("one", "two", "three")]
    queued.add(*made)
    for run in made:
        os.utime(run.file("preset.yaml"), (recorded_run.BEGAN,) * 2)
    entries.write_news(entries.News(why={made[0].id: "needs a GPU; GPU 0: used by bob's python since 14:02"}, gpus=1))


HOMES: dict[str, Callable[[Path, Path], None]] = {
    "recorded": recorded, "kept": kept, "empty": empty, "project": project, "queued": waiting,
}  # fmt: skip


def not_started(what: Any, *given: Any, **_: Any) -> None:
    """In place of what starts a process: the screen shows what would have been started, as the reason why it is not."""
    if isinstance(what, Preset):
        values = [f"{key}={what.options.value(key)}" for key in what.changed()]
        raise OSError(f"here nothing is trained, not {what.name} with {' '.join(values)}")
    raise OSError(f"here nothing is measured and resumed, not {what.id} {given}")


@pytest.mark.parametrize("walk", WALKS)
async def test_a_walk(walk: str, there: Path, folder: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    monkeypatch.setattr(chips, "cpu_multiplies_bfloat16", lambda: True)
    queued.no_runner(monkeypatch)
    for module, start in ((launch, "start"), (resuming, "resume"), (proof_folder, "start"), (proof_start, "start")):
        monkeypatch.setattr(module, start, not_started)
    for dialog in (TuneDialog, SweepDialog):
        monkeypatch.setattr(dialog, "seen_after_seconds", 0.0)
    name = f"walks/{walk}.txt"
    _, head, *stops = INPUT.split((HERE / "golden" / name).read_text(encoding="utf-8"))
    home, width, _, height = re.findall(r"[a-z]+|\d+", head)[:4]
    HOMES[home](folder, there)
    played, earlier = [head], list[list[str]]()
    async with GputuiApp(presets.resolve("quickstart")).run_test(size=(int(width), int(height))) as pilot:
        await settled(pilot)
        pilot.app.clear_notifications()  # about a run that goes on
        for stop in stops:
            line, _, expected = stop.partition("\n")
            if not line.startswith("#"):
                looked_at = line[2:] if line.startswith("$") else ""
                if not looked_at:
                    await pressed(pilot, line)
                if golden.updates:
                    await settled(pilot)
                text, rows = await arrived(pilot, earlier, looked_at, None if golden.updates else expected)
                pilot.app.clear_notifications()
                earlier.insert(0, rows)
                assert golden.updates or text == expected, line
                stop = f"{line}\n{text}"
            played.append(stop)
    golden(name, "".join(played))


def content(path: str) -> str:
    """The lines of a file, or the names in a folder; nothing for an empty path."""
    file = Path(path)
    lines = sorted(os.listdir(file)) if file.is_dir() else file.read_text().splitlines() if file.is_file() else ["none"]
    return "".join(f"  {line}\n" for line in lines) if path else ""


async def arrived(
    pilot: Pilot[Any], earlier: list[list[str]], looked_at: str, expected: str | None
) -> tuple[str, list[str]]:
    """What differs and is said, and all rows: as soon as it is what is expected, else once nothing changes."""
    text, rows, unchanged = "", list[str](), 0
    for _ in range(LOOKS):
        await at_rest(pilot)  # to paint is what takes time
        rows = same_everywhere(shown(pilot)).rstrip("\n").split("\n")
        rows[-1] = COLOUR.sub("", rows[-1])  # of the keys
        said = same_everywhere(told(pilot)).split("\n")
        ago, base = nearest(earlier, rows)
        now = differences(ago, base, rows) + "".join(f"! {line}\n" for line in said if line) + content(looked_at)
        unchanged, text = unchanged + 1 if now == text else 0, now
        # A chart without its axis, which is not among the differing rows, may still have to be drawn.
        undrawn = (WORDS.search(was) and not WORDS.search(row) for was, row in zip(base, rows, strict=False))
        is_drawn = unchanged >= 3 or not any(undrawn)
        if (text == expected and is_drawn) or unchanged == (LOOKS_AT_REST if expected is not None else LOOKS_WRITTEN):
            break
        await asyncio.sleep(0.1)
    return text, rows
