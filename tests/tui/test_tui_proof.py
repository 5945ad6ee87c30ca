"""The screen of a proof and the list of all: as it is made, as it ended, and what can be done with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run
from gputui.engine.system.identity import Process
from gputui.tui.app import GputuiApp
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing import comparisons
from gputui.tui.drawing import proof as drawing
from gputui.tui.drawing.rows import length, plain
from gputui.tui.form.state import FormState
from gputui.tui.screens.proof import ProofScreen
from gputui.tui.screens.proofs import ProofsScreen
from gputui.tui.screens.runs import RunsScreen
from textual.pilot import Pilot

from tests.support import recorded, recorded_proof
from tests.support.recorded_proof import PROOF, rewrite, running, write_proof
from tests.support.tiny import Tiny, still, text_of, tiny, wait_for

SIZES = [(80, 24), (120, 40)]


def at(seconds: float) -> Any:
    return lambda: recorded.BEGAN + seconds


# ---- words and bars -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 78, 118, 198])
@pytest.mark.parametrize("glyphs", [RICH, PLAIN])
def test_head_and_trials_fit(width: int, glyphs: Any) -> None:
    rows = drawing.head(PROOF, recorded.BEGAN, width, glyphs)
    rows += [row for one in PROOF["comparisons"] for row in comparisons.detail(one, width, 12, glyphs)]
    assert all(length(row) <= width for row in rows)
    text = "\n".join(plain(row) for row in rows)
    for word in ("input-heavy", "samples/s", "3.70 times as fast", "step 155 ms, now 41.7 ms", "oom: out of memory"):
        assert word in text, word
    assert ("412 -> 1,533" in text) == (glyphs is PLAIN)
    assert glyphs is RICH or text.isascii()


def test_gain_and_spread_as_text_and_bar() -> None:
    kept, slower, failed, _ = PROOF["comparisons"]
    assert comparisons.measured(kept, RICH) == "+257 % ±  3.7 %"
    assert comparisons.measured(slower, PLAIN) == "-9.8 % +-  5.1 %"
    assert comparisons.measured(failed, RICH) == "-"
    assert [comparisons.most(one) for one in (kept, slower)] == ["+290 %", "-"]
    low, high = comparisons.reach([kept, slower, failed])
    assert low == pytest.approx(-0.149)
    assert high == pytest.approx(2.607)
    bars = [comparisons.whisker(one, low, high, 21, RICH) for one in (kept, slower, failed)]
    assert {len(bar) for bar in bars} == {21}
    assert bars[0].endswith("├┤") or bars[0].endswith("┃")
    assert bars[0].count("━") > 10
    assert bars[1].rstrip() in ("├┤", "┃━", "├┤━")
    assert bars[2].strip() == ""
    wide = comparisons.whisker({"gain": 0.5, "spread": 0.4}, 0.0, 1.0, 21, PLAIN)
    assert wide.strip().endswith("[" + "-" * 15 + "]")


def test_a_pair_is_measured_against_its_own_baseline() -> None:
    rows = [plain(row) for row in comparisons.detail(PROOF["comparisons"][0], 118, 12, RICH)]
    assert "+257 %" in next(row for row in rows if row.startswith(" 1 with "))
    assert "+263 %" in next(row for row in rows if row.startswith(" 2 with "))
    assert not any("%  " in row.split("without")[1][:20] for row in rows if "without" in row and row.startswith(" "))


@pytest.mark.parametrize("odd", [
    {}, {"state": "running"}, {"kind": "loop", "state": "done"}, {"before": 7, "comparisons": [None, {}]},
    {"comparisons": [{"trials": [None, {"side": 3}], "gain": "much", "changes": "x", "learning": 3}], "state": "x"},
])
def test_what_is_not_as_expected_is_no_obstacle(odd: dict[str, Any]) -> None:
    assert drawing.head(odd, 0.0, 78, RICH)
    for one in comparisons.compared(odd):
        assert comparisons.detail(one, 78, 9, RICH)
        assert comparisons.decision(one, RICH)


# ---- the screen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_a_proof_that_is_done(home: Path, size: tuple[int, int]) -> None:
    proof = write_proof(home)
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=size, notifications=True) as pilot:
        shown = await wait_for(pilot, "✓ done")
        for word in (
            "input-heavy", "one change after another", "3.70 times as fast", "cache=memory", "+290 %",
            "+257 % ±  3.7 %", "✓ kept", "✗ rejected", "✗ failed", "learning:", "0.61", "0.72", "1,533",
            "Improved preset", "Healthy:",
        ):
            assert word in shown, word
        assert "Stop" not in shown
        assert ("gain and spread" in shown) == (size[0] > 100)
        assert shown.count("with ") >= 3
        await pilot.press("up")
        shown = await wait_for(pilot, "oom: out of memory at batch size 256")
        assert "\x1b" not in shown


@pytest.mark.parametrize("size", SIZES)
async def test_a_proof_is_followed_while_it_is_made(home: Path, size: tuple[int, int]) -> None:
    proof = write_proof(home, **running(comparisons=[], before=None, after=None, doing="measuring the baseline"))
    async with Tiny(lambda: ProofScreen(proof, clock=at(100))).run_test(size=size, notifications=True) as pilot:
        shown = await wait_for(pilot, "measuring the baseline")
        for word in ("no speed has been measured so far", "nothing has been compared", "1:40 elapsed, about", "Stop"):
            assert word in shown, word
        rewrite(proof, proof.data | running())
        shown = await wait_for(pilot, "repeat 2 of 3: without xla=true")
        assert "joins operations" in shown  # the newest is picked
        assert "… measuring" in shown
        third = PROOF["comparisons"][1]
        rewrite(proof, proof.data | running(comparisons=[PROOF["comparisons"][0], third]))
        await wait_for(pilot, "✗ rejected")
        rewrite(proof, PROOF)
        await wait_for(pilot, "✓ done")
        await pilot.resize_terminal(60, 12)
        await pilot.resize_terminal(*size)
        await wait_for(pilot, "✓ done")


async def test_a_proof_whose_process_is_gone_or_failed_says_so(home: Path) -> None:
    gone = write_proof(home, "20260921-140000-gone", **running(pid=2**22 + 1, start_ticks=1))
    failed = write_proof(home, "20260921-150000-failed", state="failed", error="[red]no\x1b baseline", comparisons=[])
    for proof, said in ((gone, "the proof's process has crashed"), (failed, "the proof failed: [red]no? baseline")):
        async with Tiny(partial(ProofScreen, proof)).run_test(size=(80, 24), notifications=True) as pilot:
            await wait_for(pilot, said)


async def test_an_empty_folder_is_no_obstacle(home: Path) -> None:
    (home / "proofs" / "x").mkdir(parents=True)
    async with Tiny(lambda: ProofScreen(Proof(home / "proofs" / "x"))).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "reading the proof")
        await pilot.press("enter", "s", "o", "m")
        assert not tiny(pilot).opened


async def test_plain_console_and_no_colour(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    proof = write_proof(home)
    async with Tiny(lambda: ProofScreen(proof), PLAIN).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "ok done")
    assert shown.replace("⏎", "").isascii()  # Textual's own sign for Enter
    for word in ("412 -> 1,533", "ok kept", "X rejected", "+257 % +-  3.7 %"):
        assert word in shown, word


@pytest.fixture
def prover(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the proof's, and ends when it is asked to."""
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint(flush=True)\n"
    words = ["-m", "gputui.engine.proof", str(home / "proofs" / PROOF["id"])]  # by which it is known as this proof's
    process = subprocess.Popen([sys.executable, "-c", f"{code}time.sleep(60)", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_s_stops_it_after_a_question(home: Path, prover: subprocess.Popen[bytes]) -> None:
    proof = write_proof(home, **running(**Process.of(prover.pid).as_fields()))
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "s Stop")
        await pilot.press("s")
        await wait_for(pilot, "Stop the proof?")
        await pilot.press("g")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ProofScreen))
        assert prover.poll() is None
        await pilot.press("s")
        await wait_for(pilot, "Stop the proof?")
        await pilot.press("s")
        await wait_for(pilot, lambda: prover.poll() == 7)
        await wait_for(pilot, "✗ crashed")


async def test_o_opens_the_improved_preset_in_the_form(home: Path) -> None:
    proof = write_proof(home)
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Improved preset")
        await pilot.press("o")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        ((kind, path),) = tiny(pilot).opened
    assert kind == "form"
    state = FormState.open(path)
    assert state.name == "input-heavy"
    assert state.record == "as a proof improved it"
    assert state.preset.options.input.cache == "memory"
    assert state.preset.options.compile.steps_per_execution == 16


async def test_nothing_kept_is_nothing_to_open(home: Path) -> None:
    proof = write_proof(home, preset_after=None, changes_kept={}, gain_total=None)
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        shown = await wait_for(pilot, "nothing was found to make it faster")
        assert "Improved preset" not in shown
        await pilot.press("o")
        assert not tiny(pilot).opened


async def test_m_saves_the_report_and_asks_before_it_overwrites(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    proof = write_proof(home)
    file = tmp_path / f"proof-{proof.id}.md"
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Markdown")
        await pilot.press("m")
        await wait_for(pilot, "Save the report")
        await pilot.press("enter")
        await wait_for(pilot, lambda: file.exists())
        await wait_for(pilot, "Saved")
        assert "cache=memory" in file.read_text()
        file.write_text("mine")
        await pilot.press("m")
        await wait_for(pilot, "Save the report")
        await pilot.press("enter")
        await wait_for(pilot, "exists.")
        await pilot.press("c")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ProofScreen))
        assert file.read_text() == "mine"
        await pilot.press("m")
        await wait_for(pilot, "Save the report")
        await pilot.press("home", *"no/such/", "enter")
        await wait_for(pilot, "cannot be written")


async def test_enter_opens_the_latest_trial(home: Path) -> None:
    proof = write_proof(home)
    (proof.path / "trials" / "06-b").mkdir(parents=True)
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("enter")  # its folder is not there
        await pilot.press("home")
        await pilot.press("up", "up", "up", "enter")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert tiny(pilot).opened == [("run", Run(proof.path / "trials" / "06-b"))]


# ---- the list ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_all_proofs_in_a_table(home: Path, size: tuple[int, int]) -> None:
    first = write_proof(home)
    write_proof(home, "20260921-140000-go", **running(), preset_name="quick[red]\x1b")
    odd = write_proof(home, "20260921-150000-odd")
    (odd.path / "proof.json").write_text("{half")
    unsure = PROOF["comparisons"][0] | {"decision": "undecided", "gain": 1.93, "spread": 1.65, "why": "may be chance"}
    write_proof(home, "20260921-120000-unsure", kind="ab", comparisons=[unsure], gain_total=None, changes_kept={})
    async with Tiny(ProofsScreen).run_test(size=size, notifications=True) as pilot:
        shown = await wait_for(pilot, "3.70 times")
        for word in ("input-heavy", "✓ done", "… measuring", "quick[red]?", "✗ crashed", "cache=memory"):
            assert word in shown, word
        assert "undecided" in shown
        assert "193 %" not in shown
        rewrite(Proof(home / "proofs" / "20260921-140000-go"), PROOF)
        await wait_for(pilot, lambda: "measuring" not in text_of(pilot.app))
        await pilot.press("down", "down", "enter")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert tiny(pilot).opened[0][0] == "proof"
        assert tiny(pilot).opened[0][1].path.parent == first.path.parent


async def test_no_proofs_so_far(home: Path) -> None:
    async with Tiny(ProofsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "no proofs so far")
        await pilot.press("enter", "down")
        assert not tiny(pilot).opened


async def test_the_runs_lead_to_the_proofs(home: Path) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Proofs")
        await pilot.press("p")
        assert tiny(pilot).opened == [("proofs", None)]


async def test_the_way_through_the_application(home: Path) -> None:
    write_proof(home)
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f4")
        shown = await wait_for(pilot, "no runs so far")
        assert shown.rstrip().split("\n")[-1].rstrip().endswith("F2 Form")
        await pilot.press("p")
        await wait_for(pilot, "3.70 times")
        await pilot.press("enter")
        await wait_for(pilot, "Improved preset")
        await pilot.press("o")
        await wait_for(pilot, "as a proof improved it")
        assert app.screen is app.form
        await pilot.press("f5")
        await wait_for(pilot, "GPUs")
        await pilot.press("f1")
        await wait_for(pilot, "Everywhere")
        await pilot.press("escape")
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert {"Proofs", "GPUs"} <= set(names)


def test_nothing_is_imported_beside_a_proof(home: Path) -> None:
    """The application holds back its waiting engine, whose import would fall into the figures."""
    write_proof(home, **running())
    app = GputuiApp()
    assert not app.going_on()
    assert app.measuring()


def test_picture_of_a_proof(home: Path, snap_compare: Any) -> None:
    async def ready(pilot: Pilot[None]) -> None:
        await still(pilot, "✓ done")

    proof = write_proof(home)
    assert snap_compare(Tiny(lambda: ProofScreen(proof)), terminal_size=(80, 24), run_before=ready)


def test_the_data_by_hand_are_those_of_the_engine() -> None:
    """What the tests show has the fields that a real proof.json has."""
    from dataclasses import fields

    from gputui.engine.proof import record

    for kind, data in ((record.Record, PROOF), (record.Comparison, PROOF["comparisons"][0]),
                       (record.Trial, PROOF["comparisons"][0]["trials"][0])):
        known = {field.name for field in fields(kind)} - {"path"}
        assert set(data) == known, kind
    assert json.loads(json.dumps(recorded_proof.PROOF))
