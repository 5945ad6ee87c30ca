"""The screen of a search for the fastest settings: as it goes on, as it ended, and what can be done with it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widget import Widget

from tests.doors.engine import STAGES, Proof, Run, entries, entry_changes, folder, presets, proof_start, this_machine
from tests.doors.engine import proof_request as proof_request
from tests.doors.tui import SEEN_AFTER_SECONDS, TuneDialog, TuneScreen
from tests.support import queued, recorded
from tests.support.bursts import ENTER, answered, burst
from tests.support.form_pilot import NO_GPU, form, opened
from tests.support.recorded_proof import ENDED, rewrite, searching, write_search
from tests.support.tiny import Tiny, tiny, wait_for

# ---- the screen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_search_is_followed_and_its_end_is_seen(home: Path, size: tuple[int, int]) -> None:
    proof = write_search(home, **searching())
    (proof.path / "trials").mkdir()
    run = recorded.write(proof.path / "made", name="07-b", gpus=0, seconds=40, outcome=None)
    trial = run.path.rename(proof.path / "trials" / "07-b")
    async with Tiny(lambda: TuneScreen(proof)).run_test(size=size, notifications=True) as pilot:
        shown = await wait_for(pilot, "07-b")
        for word in (" elapsed, at most 10:00 in total", "XLA: trial 7", "measuring", "(* no input)", "~22.6 GiB"):
            assert word in shown or size[0] < 100, word
        assert "6:42 elapsed" not in shown, "the time so far, not the last that was recorded"
        assert ("predicted" in shown) == ("throughput" in shown) == (size[0] > 100)  # the charts
        assert "should fit into 14.6 GiB" in shown or size[0] > 100
        assert "Apply" not in shown
        await pilot.press("enter")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert tiny(pilot).opened.pop() == ("run", Run(trial))  # the one that is measured
        await burst(pilot, "G", "k", "j", "g", "j", "j")
        await answered(pilot)
        await wait_for(pilot, "policy=mixed_bfloat16  with batch_size=256")
        rewrite(proof, ENDED)
        shown = await wait_for(pilot, "✓ done")
        assert "3.57 times as fast with batch_size=256" in shown
        assert "x Stop" not in shown
        assert "policy=mixed_bfloat16  with batch_size=256" in shown  # the cursor stays on its candidate
        await pilot.resize_terminal(50, 12)
        await wait_for(pilot, "in pa")
        await pilot.resize_terminal(200, 60)
        await wait_for(pilot, "what each option brought")


@pytest.mark.parametrize(("state", "seconds"), [("running", 0.5), ("done", 3.0)])
def test_a_search_is_read_twice_a_second_and_after_its_end_every_three_seconds(
    home: Path, state: str, seconds: float
) -> None:
    proof = write_search(home, **(searching() if state == "running" else {}))
    waits: list[float] = []
    leaving: Any = SimpleNamespace(wait=waits.append, is_set=lambda: len(waits) == 2)
    assert len(list(TuneScreen(proof).readings(leaving))) == 2
    assert waits == [seconds] * 2


# ---- its start from the form ------------------------------------------------------------------------------


async def test_a_search_of_what_the_form_holds_is_started_from_its_dialog(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Proof] = []
    go_on = threading.Event()

    def start(proof: Proof) -> subprocess.Popen[bytes]:
        """Without its process, which would train."""
        started.append(proof)
        go_on.wait(60)
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()  # one that is dropped while it runs is a warning in a later test
        return ended

    queued.no_runner(monkeypatch)
    monkeypatch.setattr(folder, "start", start)
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    monkeypatch.setattr(proof_start, "_of_other_homes", lambda here, but: iter(()))  # of other tests on this machine
    beside = write_search(home, **searching())
    (beside.path / "request.json").write_text(proof_request.of_preset("tune", "quickstart", ()).to_json())
    compose = TuneDialog.compose

    def composed_slowly(dialog: TuneDialog) -> Iterator[Widget]:
        """On a machine that takes longer for the dialog than it takes to read it."""
        time.sleep(2 * SEEN_AFTER_SECONDS)
        yield from compose(dialog)

    monkeypatch.setattr(TuneDialog, "compose", composed_slowly)
    async with opened((80, 24)) as pilot:
        form(pilot).put({"input.batch_size": "48"}, "smaller")
        await burst(pilot, "T", "s", ENTER)
        shown = await wait_for(pilot, "enter starts it")
        assert "[x] float32" in shown
        assert "[ ] mixed_float16" in shown, "slower on a CPU"
        await answered(pilot)
        assert isinstance(pilot.app.screen, TuneDialog)
        assert not started  # nobody can have read the dialog yet
        monkeypatch.setattr(TuneDialog, "seen_after_seconds", 0.0)  # from here on it is read at once
        shown = await wait_for(pilot, "10 minutes: all changes (about 15) and the proof")
        assert "assumed: quickstart has not been trained here lately" in " ".join(shown.replace("│", " ").split())
        await pilot.press("down", "space", "right", "right", "space", "right", "right", "space")
        await wait_for(
            pilot, "10 minutes: all changes (about 8) and the proof"
        )  # without the options whose losses are compared
        await pilot.press("space", "left", "left", "space", "left", "left", "space", "up")
        await wait_for(pilot, "10 minutes: all changes (about 15) and the proof")
        await burst(pilot, "x", ENTER)
        await wait_for(pilot, "the time must be a number above 0, not 'x'")
        await burst(pilot, "\x7f", "0.01", ENTER)
        shown = await wait_for(pilot, "are too few")
        assert "0.01 minutes: about 0 changes, no proof" in shown
        await burst(pilot, *["\x7f"] * 4, "2")
        await wait_for(pilot, "2 minutes: about 7 changes and 2 pairs of trials")
        await pilot.press("backspace", "1", "2", "down", "j", "k", "l", "l", "l", "space", "j", "enter")
        await wait_for(pilot, "Measure anyway")
        await pilot.press("c")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, TuneDialog))
        assert not started
        await pilot.press("enter")
        await wait_for(pilot, "Wait for it")
        await pilot.press("w")
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
        (waits,) = entries.all_entries()
        assert (waits.kind, waits.what, folder.find(waits.run).state) == ("proof", "tune", "waiting")
        entry_changes.remove(waits.run)
        assert not started
        await pilot.press("T", "s")
        await wait_for(pilot, "enter starts it")
        await pilot.press("enter")
        await wait_for(pilot, "Measure anyway?")
        await pilot.press("m")
        await wait_for(pilot, lambda: started)
        await pilot.press("enter", "escape", "enter")  # keys that come while it is being started
        go_on.set()
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, TuneScreen))
        assert len(started) == 1
        asked = started[0].request
        assert asked.search is not None
        assert asked.search.minutes == 12
        assert set(STAGES) - set(asked.search.only) == {"xla"}
        assert asked.baseline().options.input.batch_size == 48
        assert asked.source == str(presets.find("quickstart").resolve())
        await pilot.press("escape", "T", "s")
        shown = await wait_for(pilot, "[ ] XLA")  # what was chosen the last time
        assert "12 " in shown
        row = next(number for number, line in enumerate(shown.split("\n")) if "[ ] XLA" in line)
        await pilot.click(offset=(shown.split("\n")[row].index("[ ] XLA") + 1, row))
        await wait_for(pilot, "[x] XLA  [x] strategy  [x] input  [x] threads")  # no other word of the line
        await pilot.press("escape")
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
