"""Every screen whole, word for word, with the colours that judge, in a small and a large terminal.

`__snapshots__` holds what is expected; `pytest --snapshot-update` writes it anew.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Machine
from gputui.tui.app import GputuiApp
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot

from docs import every_screen
from tests.support.form_pilot import LARGE, NO_GPU, SMALL, TWO_GPUS, settled
from tests.support.recorded import BEGAN

EXPECTED = Path(__file__).parent / "__snapshots__"
JUDGING = ("warning", "success", "error", "moderate", "heavy")
# What tells of this machine: its processes, memory, packages, or the folder of the test. tests/tui has others for them.
OF_THIS_MACHINE = {"gpus", "processes", "doctor", "presets", "save", "settings"}
KIB = re.compile(r"\d+\.\d(?= KiB)")  # what the disk needs for a folder
PATIENCE_SECONDS, LAST_CHANGE_SECONDS = 30.0, 8.0
STILL_SECONDS = 0.4
RULE = "=" * 20


def shown(pilot: Pilot[Any]) -> str:
    """The screen as text: a piece in a colour that judges has its name before it."""
    variables = pilot.app.theme_variables
    meaning = {Color.parse(variables[kind + name]).hex: name for name in JUDGING for kind in ("", "text-")
               if kind + name in variables}  # fmt: skip

    def of(style: Style | None) -> str:
        return meaning.get(style.color.get_truecolor().hex.upper(), "") if style and style.color else ""

    lines = []
    for strip in pilot.app.screen._compositor.render_strips():
        alike = groupby(strip, key=lambda segment: of(segment.style))
        pieces = ((name, "".join(segment.text for segment in segments)) for name, segments in alike)
        lines.append("".join(f"<{name}>{text}" if name and text.strip() else text for name, text in pieces).rstrip())
    return KIB.sub("1.0", "\n".join(lines)).strip("\n") + "\n"


async def arrive(pilot: Pilot[Any], expected: str) -> str:
    """What the screen shows: as soon as it is what is expected, else if it has not changed for a while."""
    began = since = time.monotonic()
    text = shown(pilot)
    while (
        expected and text != expected and time.monotonic() < min(since + LAST_CHANGE_SECONDS, began + PATIENCE_SECONDS)
    ):
        await asyncio.sleep(0.05)
        if (now := shown(pilot)) != text:
            text, since = now, time.monotonic()
    return text


def of(size: tuple[int, int]) -> Path:
    return EXPECTED / f"whole_screens_{size[0]}x{size[1]}.txt"


def kept_screens(size: tuple[int, int]) -> dict[str, str]:
    """The expected texts of a size by the names of the screens."""
    text = of(size).read_text(encoding="utf-8") if of(size).exists() else ""
    return dict(re.findall(rf"^{RULE} (.*)\n((?:(?!{RULE} ).*\n)*)", text, re.MULTILINE))


def until_still(pause: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Textual's pause: a long one takes until nothing changes any more, a short one no time."""

    async def still(pilot: Pilot[Any], delay: float | None = None) -> None:
        await pause(pilot)
        before, since = "", time.monotonic()
        while (delay or 0) >= 1 and time.monotonic() - since < STILL_SECONDS:
            await asyncio.sleep(0.1)
            if (now := shown(pilot)) != before:
                before, since = now, time.monotonic()

    return still


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Runs, proofs and searches, in a home that the screens only read."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTUI_HOME", str(home))
        made = every_screen.recorded_home(home)
    for path in (home / "proofs").glob("*/*"):
        os.utime(path, (BEGAN, BEGAN))
    return made | {"home": home}


@pytest.fixture
def there_and_then(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In that home, while its last run goes on, in universal time."""
    with monkeypatch.context() as patch:
        patch.setenv("GPUTUI_HOME", str(made["home"]))
        patch.setenv("TZ", "UTC")
        time.tzset()
        patch.setattr(time, "time", lambda: made["now"])
        patch.setattr(Pilot, "pause", until_still(Pilot.pause))
        yield
    time.tzset()


NAMES = [name for name in every_screen.screens(defaultdict(lambda: [None] * 3)) if name not in OF_THIS_MACHINE]


@pytest.mark.usefixtures("there_and_then")
@pytest.mark.parametrize(("size", "machine"), [(SMALL, NO_GPU), (LARGE, TWO_GPUS)], ids=["80x24", "120x40"])
@pytest.mark.parametrize("name", NAMES)
async def test_what_a_screen_shows(
    name: str, size: tuple[int, int], machine: Machine, made: dict[str, Any], home: Path,
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    monkeypatch.setattr(this_machine, "read", lambda: machine)
    if name == "first-visit":
        monkeypatch.setenv("GPUTUI_HOME", str(home))
    kept, updated = kept_screens(size), request.config.getoption("update_snapshots")
    async with GputuiApp(presets.resolve("quickstart")).run_test(size=size) as pilot:
        await settled(pilot)
        await every_screen.screens(made)[name](pilot)
        await pilot.pause(1.0 if updated else None)
        text = await arrive(pilot, "" if updated else kept[name])
    if updated:
        every = {name: kept.get(name, "") for name in NAMES} | {name: text}
        of(size).write_text("".join(f"{RULE} {title}\n{screen}" for title, screen in every.items()), encoding="utf-8")
    else:
        assert text == kept[name]
