"""The screens of the recorded home, word for word, in a small and a large terminal: golden/screens/."""

from __future__ import annotations

import asyncio
import os
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot

from tests.contract.conftest import Golden
from tests.contract.test_outputs import PROOFS, RUNS, named
from tests.contract.test_outputs import there as there
from tests.doors.engine import Proof, Run, chips, presets, previews, this_machine
from tests.doors.tui import GputuiApp, LiveScreen
from tests.support import recorded
from tests.support.cases import all_hold
from tests.support.form_pilot import LARGE, NO_GPU, SMALL, anew, opened, settled

LOOKS_AT_REST, LOOKS = 200, 600  # each 0.1 s after the one before; a screen that is as expected takes none
JUDGING = ("warning", "success", "error", "moderate", "heavy")
KIB = re.compile(r"\d+\.\d(?= KiB)")  # what the disk needs for a folder
LISTS = {"runs": ("f4",)}
WAYS = {  # what leads from the screen that a way begins with to each of its others, one after the other
    "form": {
        "form": "down down", "form-help": "?", "form-palette": "escape ctrl+p", "form-tune": "escape T s",
    },
    "runs": {"runs": "f4", "runs-compare": "down " * 7 + "space down space c"},
    "quickstart": {
        "run-log": "l", "run-diagnosis": "l w", "run-charts": "escape z", "run-chart": "enter",
        "run-details": "escape i",
    },
    "running": {"running": "", "running-gpus": "v", "running-previews": "escape Z", "running-preview": "down"},
}  # fmt: skip
SIZED = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])


def shown(pilot: Pilot[Any]) -> str:
    """The screen as text: a piece in a colour that judges has its name before it."""
    variables = pilot.app.theme_variables
    meaning = {Color.parse(variables[kind + name]).hex: name for name in JUDGING for kind in ("", "text-")
               if kind + name in variables}  # fmt: skip
    meaning[Color.parse(str(pilot.app.current_theme.error)).hex] = "error"  # which may differ by one from the variable

    def of(style: Style | None) -> str:
        return meaning.get(style.color.get_truecolor().hex.upper(), "") if style and style.color else ""

    lines = []
    for strip in pilot.app.screen._compositor.render_strips():
        alike = groupby(strip, key=lambda segment: of(segment.style))
        pieces = ((name, "".join(segment.text for segment in segments)) for name, segments in alike)
        lines.append("".join(f"<{name}>{text}" if name and text.strip() else text for name, text in pieces).rstrip())
    return KIB.sub("1.0", "\n".join(lines)).strip("\n") + "\n"


async def arrived(pilot: Pilot[Any], expected: str | None) -> str:
    """The screen's text: as soon as it is what is expected, else once it has not changed for a while."""
    text, unchanged = "", 0
    for _ in range(LOOKS):  # counted, as a clock goes on while a machine is suspended
        if text == expected or unchanged == LOOKS_AT_REST:
            break
        await asyncio.sleep(0.1)
        now = shown(pilot)
        unchanged = unchanged + 1 if now == text else 0
        text = now
    return text


@SIZED
async def test_what_a_screen_shows(
    size: tuple[int, int], there: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    runs, proofs = named(there, "runs", RUNS), named(there, "proofs", PROOFS)
    app = GputuiApp(presets.resolve("quickstart"))
    async with opened(size, app) as pilot:
        with all_hold() as cases:
            for name in (*LISTS, *RUNS, *PROOFS):
                with cases.case(name):
                    await anew(pilot, size)
                    if name in runs:
                        app.open_run(Run(there / "runs" / runs[name]))
                    elif name in proofs:
                        app.open_proof(Proof(there / "proofs" / proofs[name]))
                    for key in LISTS.get(name, ()):
                        await pilot.press(key)
                    file = f"screens/{name}-{size[0]}x{size[1]}.txt"
                    golden(file, await arrived(pilot, golden.expected(file)))


@SIZED
@pytest.mark.parametrize("way", WAYS)
async def test_what_keys_lead_to(
    way: str, size: tuple[int, int], there: Path, tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    monkeypatch.setattr(chips, "cpu_multiplies_bfloat16", lambda: True)  # which precisions a search tries
    async with GputuiApp(presets.resolve("quickstart")).run_test(size=size) as pilot:
        await settled(pilot)
        if way in RUNS:
            pilot.app.open_run(Run(there / "runs" / named(there, "runs", RUNS)[way]))  # type: ignore[attr-defined]
        elif way in PROOFS:
            pilot.app.open_proof(Proof(there / "proofs" / named(there, "proofs", PROOFS)[way]))  # type: ignore[attr-defined]
        elif way == "running":
            run = recorded.write(
                tmp_path, gpus=8, seconds=100, outcome=None, engine_pid=os.getpid(), mfu=0.41,
                diagnosis=recorded.DIAGNOSIS, input_stages=recorded.STAGES,
                warnings=(("input", "the shuffle buffer holds 2 % of the samples"),),
            )  # fmt: skip
            rgb = b"".join(bytes((8 * x, 16 * y, 128)) for y in range(16) for x in range(32))
            tiles = previews.as_png(previews.Bitmap(32, 16, rgb))
            previews.write(run.path, 1, {"faces.png": tiles})
            counts = b'{"counts": [[8, 2], [0, 0]], "classes": ["cat", "dog"]}'
            previews.write(run.path, 2, {"faces.png": tiles, "mistakes.json": counts})
            await pilot.app.push_screen(LiveScreen(run, clock=lambda: recorded.BEGAN + 100))
        await pilot.pause(0.5)
        for name, keys in WAYS[way].items():
            for key in keys.split():
                await pilot.press({"?": "question_mark", "/": "slash"}.get(key, key))
            file = f"screens/{name}-{size[0]}x{size[1]}.txt"
            golden(file, await arrived(pilot, golden.expected(file)))
