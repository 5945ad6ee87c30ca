"""The screen of a proof and the list of all: as it is made, as it ended, and what can be done with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.proof import folder, proof_start
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.request import Request
from gputui.engine.runs import Run
from gputui.engine.scaling import scaling_request
from gputui.engine.system.identity import Process
from gputui.engine.trials import scaling_sentences, significance
from gputui.engine.trials.record import Comparison, Point, Record
from gputui.engine.trials.trial import Trial
from gputui.tui.app import GputuiApp
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing import proof as drawing
from gputui.tui.drawing import proof_comparisons
from gputui.tui.drawing.rows import length, plain
from gputui.tui.form.form_state import FormState
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.proof import proofs
from gputui.tui.screens.proof.proofs import ProofsScreen
from gputui.tui.screens.proof.scaling import ScalingScreen
from gputui.tui.screens.proof.screen import ProofScreen
from gputui.tui.screens.runs.screen import RunsScreen

from tests.support import recorded, recorded_proof
from tests.support.form_pilot import SIZES
from tests.support.recorded_proof import PROOF, rewrite, running, write_proof
from tests.support.tiny import Tiny, lines_of, text_of, tiny, wait_for
from tests.support.typed import as_read, typed


def at(seconds: float) -> Any:
    return lambda: recorded.BEGAN + seconds


# ---- words and bars -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 78, 118, 198])
@pytest.mark.parametrize("glyphs", [RICH, PLAIN])
def test_head_and_trials_fit(width: int, glyphs: Any) -> None:
    rows = drawing.head(typed(Record, PROOF), recorded.BEGAN, width, glyphs)
    rows += [
        row for one in typed(Record, PROOF).comparisons for row in proof_comparisons.detail(one, width, 12, glyphs)
    ]
    assert all(length(row) <= width for row in rows)
    text = "\n".join(plain(row) for row in rows)
    for word in ("input-heavy", "samples/s", "3.70 times as fast", "step 155 ms, now 41.7 ms", "oom: out of memory"):
        assert word in text, word
    assert ("412 -> 1,533" in text) == (glyphs is PLAIN)
    assert glyphs is RICH or text.isascii()


def test_gain_and_spread_as_text() -> None:
    kept, slower, failed, _ = typed(Record, PROOF).comparisons
    assert proof_comparisons.measured(kept, RICH) == "+257 % ±  3.7 %"
    assert proof_comparisons.measured(slower, PLAIN) == "-9.8 % +-  2.1 %"
    assert proof_comparisons.measured(failed, RICH) == "-"
    assert [proof_comparisons.most(one) for one in (kept, slower)] == ["+290 %", "-"]
    tried = recorded_proof.trials(("a", 10.0), ("b", 12.0), ("a", None), outcome="oom")
    disturbed = {"decision": "kept", "trials": [tried[0] | {"disturbed": "other programs used the CPU"}, *tried[1:]]}
    pieces = [piece for row in proof_comparisons.detail(typed(Comparison, disturbed), 100, 12, RICH) for piece in row]
    ends = [(text.split()[0], style) for text, style in pieces if text.startswith(("  ok", "  oom"))]
    assert ends == [("ok,", "warn"), ("ok", "good"), ("oom:", "bad")]
    reason = "the run 20261123-120000-mine is running, other programs used 84 % of the CPU's cores"
    narrow = recorded_proof.trials(("a", 10.0), ("b", 12.0), ("b", 14.0), ("a", 11.0))
    told = {"decision": "kept", "gain": 0.2, "trials": [narrow[0] | {"disturbed": reason}, *narrow[1:]]}
    text = "\n".join(plain(row) for row in proof_comparisons.detail(typed(Comparison, told), 80, 12, RICH))
    assert f"disturbed, 1 of 4 trials: {reason}" in " ".join(text.split()), "none of it is cut"
    two = [narrow[0] | {"disturbed": reason}, narrow[1] | {"disturbed": reason.replace("84", "9")}]
    (said,) = proof_comparisons.disturbances(typed(Comparison, {"trials": two}).trials)
    medians = [line.split()[:3] for line in text.splitlines() if line.startswith("med.")]
    assert said == f"disturbed, 2 of 2 trials, such as: {reason}"
    assert medians == [["med.", "without", "10"], ["med.", "with", "12"]], "the figures of the head"


def test_a_bar_crosses_zero_where_the_pairs_do_not_decide() -> None:
    """By the rule of the verdict, which counts the pairs."""
    for gains in ((1.0, 1.06, 1.12), (1.02, 1.03, 1.04), (0.97, 1.02) * 3, (1.02, 1.09) * 3, (0.9, 0.91, 0.92)):
        speeds = [(side, 100.0 * (gain if side == "b" else 1)) for gain in gains for side in "ab"]
        median, spread = significance.gain_and_spread([gain - 1 for gain in gains])
        one = typed(Comparison, {"trials": recorded_proof.trials(*speeds), "gain": median, "spread": spread})
        interval, (word, _) = proof_comparisons.interval(one), significance.verdict([gain - 1 for gain in gains])
        assert interval is not None
        assert interval.contains(0.0) == (word == "undecided"), (gains, word, interval)
    odd = typed(Comparison, {"gain": 0.1, "spread": 1e300})
    assert proof_comparisons.interval(odd) is not None
    assert proof_comparisons.interval(typed(Comparison, {"gain": None})) is None


def test_a_pair_is_measured_against_its_own_baseline() -> None:
    rows = [plain(row) for row in proof_comparisons.detail(typed(Record, PROOF).comparisons[0], 118, 12, RICH)]
    assert "+257 %" in next(row for row in rows if row.startswith(" 1 with "))
    assert "+263 %" in next(row for row in rows if row.startswith(" 2 with "))
    assert not any("%  " in row.split("without")[1][:20] for row in rows if "without" in row and row.startswith(" "))


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"state": "running"},
        {"kind": "loop", "state": "done"},
        {"before": 7, "comparisons": [None, {}]},
        {"comparisons": [{"trials": [None, {"side": 3}], "gain": "much", "changes": "x", "learning": 3}], "state": "x"},
    ],
)
def test_what_is_not_as_expected_is_no_obstacle(odd: dict[str, Any]) -> None:
    for record in (as_read(odd), as_read(PROOF | odd)):
        assert drawing.head(record, 0.0, 78, RICH)
        for one in proof_comparisons.compared(record):
            assert proof_comparisons.detail(one, 78, 9, RICH)
            assert proof_comparisons.decision(one, RICH)


# ---- the screen -----------------------------------------------------------------------------------------


async def test_a_proof_that_is_done(home: Path, snapshot: Any) -> None:
    proof = write_proof(home)
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            shown = await wait_for(pilot, "✓ done")
            for word in (
                "input-heavy",
                "one change after another",
                "3.70 times as fast",
                "cache=memory",
                "+290 %",
                "+257 % ±  3.7 %",
                "✓ kept",
                "✗ rejected",
                "✗ failed",
                "learning:",
                "0.61",
                "0.72",
                "Improved preset",
                "Healthy:",
            ):
                assert word in shown, word
            assert "Stop" not in shown
            assert re.search(r"measured +0 .*\+\d00 % +decision", shown), "the scale of the bars"
            assert re.search(r"\+257 % ±  3\.7 % +│ .*•.* ✓ kept", shown)
            assert re.search(r" - +│ +.* ✗ failed", shown), "no bar without a gain, but the line at zero"
            assert shown.count("with ") >= 3
            await pilot.pause()
            assert lines_of(pilot.app) == snapshot
            await pilot.press("up")
            shown = await wait_for(pilot, "oom: out of memory at batch size 256")
            await pilot.pause()
            assert lines_of(pilot.app) == snapshot
            assert "\x1b" not in shown
            await pilot.press("down")


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


async def test_a_proof_that_is_gone_has_failed_is_empty_or_kept_nothing_says_so(home: Path) -> None:
    gone = write_proof(home, "20260921-140000-gone", **running(pid=2**22 + 1, start_ticks=1))
    failed = write_proof(home, "20260921-150000-failed", state="failed", error="[red]no\x1b baseline", comparisons=[])
    nothing = write_proof(home, "20260921-160000-x", preset_after=None, changes_kept={}, gain_total=None)
    (home / "proofs" / "x").mkdir(parents=True)
    async with Tiny(lambda: ProofScreen(gone)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "the proof's process has crashed")
        await pilot.app.push_screen(ProofScreen(failed))
        await wait_for(pilot, "the proof failed: [red]no? baseline")
        await pilot.app.push_screen(ProofScreen(Proof(home / "proofs" / "x")))
        await wait_for(pilot, "reading the proof")
        await pilot.press("enter", "x", "o", "s", "y")
        assert not tiny(pilot).opened
        await pilot.app.push_screen(ProofScreen(nothing))
        shown = await wait_for(pilot, "nothing was proved to make it faster")
        assert "Improved preset" not in shown
        await pilot.press("o")
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
    process = subprocess.Popen([sys.executable, "-c", f"{code}time.sleep(600)", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_x_stops_it_after_a_question(home: Path, prover: subprocess.Popen[bytes]) -> None:
    proof = write_proof(home, **running(**Process.of(prover.pid).as_fields()))
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "x Stop")
        await pilot.press("x")
        await wait_for(pilot, "Stop the proof?")
        await pilot.press("g")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ProofScreen))
        assert prover.poll() is None
        await pilot.press("x")
        await wait_for(pilot, "Stop the proof?")
        await pilot.press("s")
        await wait_for(pilot, lambda: prover.poll() == 7)
        await wait_for(pilot, "✗ crashed")


async def test_trial_and_preset_are_opened_and_the_report_is_saved_and_never_overwritten_unasked(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    proof = write_proof(home)
    (proof.path / "trials" / "06-b").mkdir(parents=True)
    file = tmp_path / f"proof-{proof.id}.md"
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("enter")
        await wait_for(pilot, "no run of this row is here")
        tiny(pilot).withdraw()  # it covers the footer
        await pilot.press("home")
        await pilot.press("up", "up", "up", "enter")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert tiny(pilot).opened.pop() == ("run", Run(proof.path / "trials" / "06-b"))
        await wait_for(pilot, "Improved preset")
        await pilot.press("o")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        ((kind, path),) = tiny(pilot).opened
        assert kind == "form"
        state = FormState.open(path)
        assert state.name == "input-heavy"
        assert state.record == "of a proof"
        assert state.preset.options.input.cache == "memory"
        assert state.preset.options.compile.steps_per_execution == 16
        await wait_for(pilot, "Save report")
        await pilot.press("y")
        assert "cache=memory" in pilot.app.clipboard
        await pilot.press("S")
        await wait_for(pilot, "Save the report")
        await pilot.press("enter")
        await wait_for(pilot, lambda: file.exists())
        await wait_for(pilot, "Saved")
        assert "cache=memory" in file.read_text()
        file.write_text("mine")
        await pilot.press("S")
        await wait_for(pilot, "Save the report")
        await pilot.press("enter")
        await wait_for(pilot, "exists.")
        await pilot.press("c")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ProofScreen))
        assert file.read_text() == "mine"
        await pilot.press("S")
        await wait_for(pilot, "Save the report")
        await pilot.press("home", *"no/such/", "enter")
        await wait_for(pilot, "cannot be written")


# ---- the list ---------------------------------------------------------------------------------------------


async def test_all_proofs_in_a_table(home: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> None:
    monkeypatch.setattr(proofs, "when_text", lambda then: "Sep 21")
    monkeypatch.setattr(proofs, "size", lambda count: "9.9 KiB")
    first = write_proof(home)
    write_proof(home, "20260921-140000-go", **running(), preset_name="quick[red]\x1b")
    odd = write_proof(home, "20260921-150000-odd")
    (odd.path / "proof.json").write_text("{half")
    unsure = PROOF["comparisons"][0] | {"decision": "undecided", "gain": 1.93, "spread": 1.65, "why": "may be chance"}
    write_proof(home, "20260921-120000-unsure", kind="ab", comparisons=[unsure], gain_total=None, changes_kept={})
    async with Tiny(ProofsScreen).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            shown = await wait_for(pilot, "3.70 times")
            for word in ("input-heavy", "✓ done", "… measuring", "quick[red]?", "✗ crashed", "cache=memory"):
                assert word in shown, word
            assert "undecided" in shown
            assert "193 %" not in shown
            if size[0] > 100:
                await wait_for(pilot, lambda: text_of(pilot.app).count("9.9 KiB") == 4)
            await pilot.pause()
            assert lines_of(pilot.app) == snapshot
        rewrite(Proof(home / "proofs" / "20260921-140000-go"), PROOF)
        await wait_for(pilot, lambda: "measuring" not in text_of(pilot.app))
        await pilot.press("down", "down", "enter")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert tiny(pilot).opened[0][0] == "proof"
        assert tiny(pilot).opened[0][1].path.parent == first.path.parent


async def test_proofs_have_a_size_and_are_deleted_and_brought_back(home: Path) -> None:
    first, second = write_proof(home, "20260921-100000-one"), write_proof(home, "20260921-110000-two")
    (second.path / "trials").mkdir()
    (second.path / "trials" / "01").write_bytes(b"x" * 300_000)
    os.utime(first.path / "request.json", (recorded.BEGAN, recorded.BEGAN))
    async with Tiny(ProofsScreen).run_test(size=(100, 24), notifications=True) as pilot:
        await wait_for(pilot, "KiB")
        await pilot.press("d")
        shown = await wait_for(pilot, "Delete this proof")
        assert second.id in shown
        await pilot.press("d")
        await wait_for(pilot, "deleted 1 proof; u brings it back; quitting frees 3")
        assert [proof.id for proof in folder.proofs()] == [first.id]
        await pilot.press("u")
        await wait_for(pilot, "1 proof was restored")
        assert [proof.id for proof in folder.proofs()] == [second.id, first.id]
        await pilot.press("d")
        await wait_for(pilot, "Delete this proof")
        await pilot.press("d")
        await wait_for(pilot, lambda: folder.proofs() == [second])  # the cursor has stayed on the first
    assert [path.name for path in (home / "proofs").iterdir()] == [second.id], "quitting removes it"


async def test_no_proofs_so_far(home: Path) -> None:
    async with Tiny(ProofsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        shown = await wait_for(pilot, "no proofs so far")
        ways = "no proofs so far: T in the form starts a search, p in a diagnosis a proof"
        assert shown.split("\n")[-2].strip() == ways
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
        assert shown.lstrip().startswith("F2 Form  F3 Live ▌F4 Runs▐")
        await pilot.press("p")
        await wait_for(pilot, "3.70 times")
        await pilot.press("enter")
        await wait_for(pilot, "Improved preset")
        await pilot.press("o")
        await wait_for(pilot, "input-heavy of a proof")
        assert app.screen is app.form
        await pilot.press("f5")
        await wait_for(pilot, "GPUs")
        await pilot.press("f1")
        await wait_for(pilot, "who has the GPU")
        await pilot.press("end")
        await wait_for(pilot, "Everywhere")
        await pilot.press("escape")
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert {"Proofs", "GPUs  (F5)"} <= set(names)


def point(replicas: int, speed: float, efficiency: float, first: int) -> dict[str, Any]:
    trials = recorded_proof.trials(*[(str(replicas), speed)] * 3, first=first)
    return {
        "replicas": replicas, "changes": {}, "trials": trials, "global_batch_size": 64 * replicas, "why": "",
        "samples_per_second": speed, "step_ms": 64_000 * replicas / speed, "input_wait": 0.12, "xla": False,
        "speedup": efficiency * replicas, "efficiency": efficiency, "spread": 0.011, "decision": "measured",
    }  # fmt: skip


async def test_a_measurement_of_scaling_is_listed_and_opened(home: Path, snapshot: Any) -> None:
    points = [point(1, 1000.0, 1.0, 1), point(2, 1840.0, 0.92, 4), point(4, 2400.0, 0.6, 7)]
    scaling = {"keep": "per-replica", "shared": "", "rounds": 3, "points": points}
    proof = write_proof(home, kind="scaling", scaling=scaling, comparisons=[], gain_total=2.4, changes_kept={},
                        preset_after=None, final_verdict=None, ended_because="", diagnosis=None)  # fmt: skip
    (proof.path / "trials" / "09-4").mkdir(parents=True)
    app = GputuiApp()
    async with app.run_test(size=SIZES[0]) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.press("f4")
            await wait_for(pilot, "no runs so far")
            await pilot.press("p")
            await wait_for(pilot, "scaling: 4 at 60 %")
            await pilot.press("enter")
            await wait_for(pilot, lambda: isinstance(app.screen, ScalingScreen))
            await wait_for(pilot, "how well it scales, 3 rounds")
            shown = await wait_for(pilot, "4 replicas train 2.40 times as fast as 1")
            for word in ("efficiency", "92 %", "256", "would be 4 times", "round 2: "):
                assert word in shown, word
            assert ("step ms  input wait" in shown) == (size[0] > 100)
            whole = " ".join(shown.split())
            assert scaling_sentences.limit(typed(Point, points[0]), typed(Point, points[2]), strong=False) in whole, (
                "none of it is cut"
            )
            assert re.search(r"\n +2 .* 1\.1 % .*•.*│ ", shown), "bars, also at 80 columns"
            if size[0] > 100:
                assert re.search(r"60 % +80 % +100 %", shown), "the scale of the bars"
                for trial in points[2]["trials"]:
                    assert scaling_sentences.trial(typed(Trial, trial)) in " ".join(shown.split())
            for key in ("home", "end"):
                await pilot.press(key)
                await pilot.pause()
                assert lines_of(app) == snapshot
            await pilot.press("enter")
            await wait_for(pilot, lambda: not isinstance(app.screen, ScalingScreen))
            await pilot.press("f2")


async def test_a_measurement_of_scaling_goes_on_and_is_started_again_and_from_the_form(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_on: list[Proof] = []
    started: list[Request] = []
    monkeypatch.setattr(proof_start, "start", lambda proof: gone_on.append(proof))
    monkeypatch.setattr(folder, "start", lambda proof: started.append(proof.request))
    monkeypatch.setattr(proof_start, "other_training", lambda *known: "")  # other tests on this machine
    settings = ("device.visible=none", "logical_devices=2", "strategy.kind=mirrored", "learning_rate=0.02")
    preset = presets.resolve("quickstart", settings)
    scaling = {"keep": "global", "shared": "", "rounds": 1, "points": [point(1, 1000.0, 1.0, 1)]}
    proof = write_proof(home, kind="scaling", scaling=scaling, comparisons=[], state="stopped", diagnosis=None)
    (proof.path / "request.json").write_text(scaling_request.of_opened(preset, None, "global").to_json())
    app = GputuiApp()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        app.form.state.change({"device.visible": "none", "device.logical_devices": 2, "train.learning_rate": 0.02})
        app.open_proof(proof)
        await wait_for(pilot, "R Go on")
        await pilot.press("R")
        await wait_for(pilot, lambda: gone_on)
        await pilot.press("r")
        await wait_for(pilot, "with 1, 2 replicas in turn")
        await pilot.press("m")
        await wait_for(pilot, lambda: started)
        assert started[0] == proof.request
        await pilot.press("f2")
        await wait_for(pilot, lambda: isinstance(app.screen, FormScreen))
        (command,) = [one for one in app.form.commands() if one.title == "Measure scaling"]
        command.callback()
        await wait_for(pilot, "Weak scaling keeps the batch")
        await pilot.press("s")
        await wait_for(pilot, "with 1, 2 replicas in turn")
        await pilot.press("m")
        await wait_for(pilot, lambda: len(started) == 2)
        assert started[1].scaling is not None
        assert started[1].scaling.keep == "global"
        assert "learning_rate: 0.02" in started[1].preset


def test_nothing_is_imported_beside_a_proof(home: Path) -> None:
    """The application holds back its waiting engine, whose import would fall into the figures."""
    write_proof(home, **running())
    app = GputuiApp()
    assert not app.going_on()
    assert app.measuring()
    for number in range(51):  # newer ones, which wait in the queue
        waits = write_proof(home, name=f"20991231-0000{number:02}-ab-waits", state="waiting")
        waits.queue_file.parent.mkdir(exist_ok=True)
        waits.queue_file.write_text("{}")
    assert [proof.state for proof in app.measuring()] == ["running"]
