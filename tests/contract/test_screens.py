"""The screens of the recorded home, word for word, in a small and a large terminal: golden/screens/."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from textual.pilot import Pilot

from tests.contract.conftest import Golden
from tests.contract.test_outputs import PROOFS, RUNS, named
from tests.contract.test_outputs import there as there
from tests.support.form_pilot import LARGE, NO_GPU, SMALL, settled
from tests.tui.test_whole_screens import shown

STILL_SECONDS, PATIENCE_SECONDS = 8.0, 40.0  # on a busy machine; one that is as expected takes none
LISTS = {"runs": ("f4",), "runs-sweep": ("f4", "home", "right"), "proofs": ("f4", "p"), "queue": ("f4", "Q")}


async def arrived(pilot: Pilot[Any], expected: str | None) -> str:
    """The screen's text: as soon as it is what is expected, else once it has not changed for a while."""
    text, since, began = "", time.monotonic(), time.monotonic()
    while text != expected and time.monotonic() < min(since + STILL_SECONDS, began + PATIENCE_SECONDS):
        await asyncio.sleep(0.1)
        if (now := shown(pilot)) != text:
            text, since = now, time.monotonic()
    return text


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
@pytest.mark.parametrize("name", [*LISTS, *RUNS, *PROOFS])
async def test_what_a_screen_shows(
    name: str, size: tuple[int, int], there: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    runs, proofs = named(there, "runs", RUNS), named(there, "proofs", PROOFS)
    async with GputuiApp(presets.resolve("quickstart")).run_test(size=size) as pilot:
        await settled(pilot)
        if name in runs:
            pilot.app.open_run(Run(there / "runs" / runs[name]))  # type: ignore[attr-defined]
        elif name in proofs:
            pilot.app.open_proof(Proof(there / "proofs" / proofs[name]))  # type: ignore[attr-defined]
        for key in LISTS.get(name, ()):
            await pilot.press(key)
        file = f"screens/{name}-{size[0]}x{size[1]}.txt"
        golden(file, await arrived(pilot, golden.expected(file)))
