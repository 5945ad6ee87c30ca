"""The screen of a search for the fastest settings: as it goes on, as it ended, and what can be done with it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.proof import folder, proof_start
from gputui.engine.proof import request as proof_request
from gputui.engine.proof.folder import Proof
from gputui.engine.queue import entries, entry_changes
from gputui.engine.runs import Run
from gputui.engine.telemetry import chips
from gputui.engine.trials import STAGES
from gputui.engine.trials import search_record as shapes
from gputui.tui.app import GputuiApp
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.form.search_limits import LimitTexts, WrongLimit
from gputui.tui.screens.dialogs import SEEN_AFTER_SECONDS
from gputui.tui.screens.proof.proofs import ProofsScreen
from gputui.tui.screens.tune import limits_dialog
from gputui.tui.screens.tune.limits_dialog import TuneDialog
from gputui.tui.screens.tune.screen import TuneScreen
from gputui.tui.widgets.table import Table
from textual.widget import Widget

from tests.support import queued, recorded
from tests.support.bursts import ENTER, ESCAPE, answered, burst
from tests.support.form_pilot import NO_GPU, TWO_GPUS, form, opened
from tests.support.recorded_proof import rewrite
from tests.support.recorded_search import ENDED, KEPT, POLICY, candidate, running, write_search, write_trial
from tests.support.tiny import Tiny, lines_of, text_of, tiny, wait_for

GIB = recorded.GIB
# ---- the screen -----------------------------------------------------------------------------------------


async def test_the_table_stays_where_it_is_while_candidates_and_their_bars_come_in(home: Path) -> None:
    """Also if the scale of the bars, the head of their column, changes."""

    def with_more(count: int) -> dict[str, Any]:
        fields = running()
        fields["search"]["candidates"] += [
            candidate("input", {"input.private_threads": n}, 300.0 - n, -0.1 * (n % 7), run=20 + n, decision="rejected")
            for n in range(1, count)
        ]
        return fields

    proof = write_search(home, **with_more(30))
    async with Tiny(lambda: TuneScreen(proof)).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "private_threads=1")
        table = pilot.app.screen.query_one(Table)
        table.move_cursor(row=20, animate=False)
        await wait_for(pilot, lambda: table.scroll_y > 0)
        table.scroll_to(y=17, animate=False)
        await wait_for(pilot, lambda: table.scroll_y == 17)
        rows, key = table.row_count, table.current_key
        later = with_more(32)
        later["search"]["candidates"][-1]["gain"] = 3.0
        rewrite(proof, ENDED | later)
        await wait_for(pilot, lambda: table.row_count == rows + 2)
        assert "+300 %" in str(table.ordered_columns[5].label), "another scale"
        assert (table.scroll_y, table.current_key) == (17, key)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_search_is_followed_and_its_end_is_seen(home: Path, size: tuple[int, int], snapshot: Any) -> None:
    proof = write_search(home, **running())
    trial = write_trial(proof, "07-b", seconds=40, outcome=None)
    async with Tiny(lambda: TuneScreen(proof)).run_test(size=size, notifications=True) as pilot:
        shown = await wait_for(pilot, "07-b")
        for word in (
            "cnn",
            "the fastest settings, within 10 min",
            " of 10:00, ",
            "XLA: trial 7",
            "without input 655, now 1,490" if size[0] > 100 else "412",
            "measuring",
            "1,490*",
            "(* no input)",
            "vs. start",
            "✗ no memory",
            "~22.6 GiB",
            "batch size",
            "being tried",
            "x Stop",
            "Open run",
            "samples/s",
        ):
            assert word in shown, word
        assert "6:42 of 10:00" not in shown, "the time so far, not the last that was recorded"
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
        for word in (
            "3.57 times as fast with batch_size=256",
            "validation loss after 8,085 samples (5 passes) 0.61",
            "+257 % ±  3.7 %",
            "a Apply",
            "s Save preset",
        ):
            assert word in shown, word
        assert "x Stop" not in shown
        assert "policy=mixed_bfloat16  with batch_size=256" in shown  # the cursor stays on its candidate
        await pilot.pause()
        assert lines_of(pilot.app) == snapshot
        await pilot.resize_terminal(50, 12)
        await wait_for(pilot, "in pairs: the")
        await pilot.resize_terminal(200, 60)
        await wait_for(pilot, "what each option brought")
        await pilot.pause()
        assert lines_of(pilot.app) == snapshot


async def test_a_search_that_has_not_been_read_shows_no_result(home: Path) -> None:
    (home / "proofs" / "x").mkdir(parents=True)
    async with Tiny(lambda: TuneScreen(Proof(home / "proofs" / "x"))).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "reading the search ...", 30)
        parts = [pilot.app.screen.query_one(f"#{name}").display for name in ("pairs", "speed", "loss")]
        assert parts == [False, True, True], "the charts, and not the pairs that decided"


async def test_plain_console_and_no_colour(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    proof = write_search(home)
    async with Tiny(lambda: TuneScreen(proof), PLAIN).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "ok done")
    assert shown.replace("⏎", "").isascii()  # Textual's own sign for Enter
    for word in ("412 -> 1,471", "^ cache=memory", "ok kept", "X rejected", "+257 % +-  3.7 %"):
        assert word in shown, word


async def test_best_settings_go_into_a_file_into_the_form_and_the_report_is_copied(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "cnn.yaml"
    source.write_text("schema_version: 1\n# mine\ninput: {batch_size: 64}  # small\n")
    proof = write_search(home)
    asked = proof_request.of_preset("tune", str(source), ())
    (proof.path / "request.json").write_text(asked.to_json())
    app = GputuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_proof(proof)
        await wait_for(pilot, "Save preset")
        await pilot.press("y")
        assert "batch_size=256" in app.clipboard
        await burst(pilot, "z")
        await wait_for(pilot, "memory by batch size")  # alone
        await burst(pilot, ESCAPE)
        await wait_for(pilot, "Save preset")
        await pilot.press("s")
        await wait_for(pilot, "Save the preset with the best settings")
        await pilot.press("enter")
        await wait_for(pilot, lambda: (tmp_path / "cnn-fast.yaml").exists())
        saved = presets.resolve(str(tmp_path / "cnn-fast.yaml")).options
        assert (saved.input.batch_size, saved.input.cache) == (256, "memory")
        assert "# mine" in (tmp_path / "cnn-fast.yaml").read_text()
        await pilot.press("a")
        await wait_for(pilot, lambda: app.screen is app.form)
        assert app.form.state.path == source
        assert set(app.form.state.unsaved()) == set(KEPT)
        assert app.form.state.preset.options.precision.policy == POLICY["precision.policy"]


async def test_a_stopped_search_goes_on_and_says_why_it_cannot(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on: list[Proof] = []
    monkeypatch.setattr(proof_start, "start", lambda proof: going_on.append(proof))
    monkeypatch.setattr(proof_start, "_of_other_homes", lambda here, but: iter(()))  # of other tests on this machine
    proof = write_search(home, state="stopped", changes_kept={}, gain_total=None, ended_because="a stop was requested")
    other = write_search(home, "20260921-140000-go", **running())
    for one in (proof, other):
        (one.path / "request.json").write_text(proof_request.of_preset("tune", "quickstart", ()).to_json())
    async with Tiny(lambda: TuneScreen(proof)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "R Go on")
        await pilot.press("R")
        await wait_for(pilot, "Measure anyway?")
        await pilot.pause(SEEN_AFTER_SECONDS)
        await pilot.press("c")
        assert not going_on
        await pilot.press("a")  # the fastest until it was stopped
        await wait_for(pilot, lambda: tiny(pilot).opened)
        await wait_for(pilot, "not proved: +256 % in single trials")
        rewrite(other, ENDED)
        await pilot.press("R")
        await wait_for(pilot, lambda: going_on)
        rewrite(proof, ENDED)
        pilot.app.clear_notifications()  # which lie over what is read next
        await wait_for(pilot, lambda: "Go on" not in text_of(pilot.app))
        await wait_for(pilot, "a Apply")
        for key, why in (("R", "every option was tried, and its gain is proved"), ("x", "the search has ended"),
                         ("p", "a search proves its best settings by itself; R gives it more minutes")):  # fmt: skip
            await pilot.press(key)
            await wait_for(pilot, lambda why=why: any(why in one.message for one in pilot.app._notifications))  # type: ignore[misc]
        pilot.app.clear_notifications()
        late = ENDED | {
            "changes_kept": {},
            "gain_total": None,
            "comparisons": [],
            "ended_because": "the time budget of",
        }
        rewrite(proof, late)
        await wait_for(pilot, "R Go on")
        await pilot.press("s")
        await wait_for(pilot, lambda: any("no settings to take" in one.message for one in pilot.app._notifications))
        going_on.clear()
        await pilot.press("R")
        await wait_for(pilot, "How many more minutes?")
        await pilot.pause(SEEN_AFTER_SECONDS)
        await pilot.press("2", "0", "enter")
        await wait_for(pilot, lambda: going_on)
        asked = proof.request.search
        assert asked is not None
        assert asked.minutes == pytest.approx(402 / 60 + 20)
        rewrite(proof, ENDED | {"state": "failed", "error": "no room", "changes_kept": {}})
        pilot.app.clear_notifications()  # the last one lies over the keys, and stays for a minute and a half in a test
        await wait_for(pilot, "no room")
        await wait_for(pilot, "R Go on")


async def test_the_list_of_proofs_tells_a_search_as_such(home: Path) -> None:
    write_search(home)
    going_on = running()
    going_on["search"]["best_speed"] = 1030.0
    write_search(home, "20260921-140000-go", **going_on, preset_name="quick")
    async with Tiny(ProofsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "3.57 times")
        lines = {line.split()[0]: line for line in shown.split("\n") if "measuring" in line or "done" in line}
        assert "search: batch_size=256, policy=mixed_bfloat16, cache=" in lines["cnn"]
        assert "+150 % so far" in lines["quick"]
        assert "search: batch_size=256, policy=mixed_bfloat16" in lines["quick"]
        await pilot.press("down", "enter")
        await wait_for(pilot, lambda: tiny(pilot).opened)


# ---- its start from the form ------------------------------------------------------------------------------


def test_limits_are_taken_from_texts_and_wrong_ones_are_named() -> None:
    assert LimitTexts().limits() == shapes.Limits(leave=[], only=list(STAGES), avoid_precisions=[])
    two = LimitTexts(precisions={"float32", "mixed_float16"}).limits()
    assert (two.precisions, two.avoid_precisions) == (None, ["mixed_bfloat16"])
    texts = LimitTexts(minutes=" 2.5 ", only={"xla", "batch_size"}, precisions={"float32"}, largest_batch="512",
                       memory_gb="1.5", leave="cache, xla", learning_rate="linear", warmup_steps="0")  # fmt: skip
    found = texts.limits()
    assert (found.minutes, found.only, found.precisions) == (2.5, ["batch_size", "xla"], ["float32"])
    assert (found.largest_batch, found.memory_bytes, found.leave) == (512, 1_500_000_000, ["cache", "xla"])
    assert (found.learning_rate, found.warmup_steps) == ("linear", 0)
    wrong = [{"minutes": text} for text in ("", "x", "0", "-1", "nan", "inf", "1e99")]
    wrong += [{"largest_batch": text} for text in ("0", "1.5", "-3", "\u0663", "x")]
    wrong += [{"memory_gb": "0"}, {"warmup_steps": "-1"}, {"only": set()}, {"precisions": set()}]  # type: ignore[dict-item]
    for fields_ in wrong:
        with pytest.raises(WrongLimit) as said:
            replace(LimitTexts(), **fields_).limits()  # type: ignore[arg-type]
        assert [said.value.name] == list(fields_)
    assert replace(LimitTexts(), only={"xla"}, precisions=set()).limits().precisions is None


def test_the_precisions_that_are_allowed_at_first_are_those_of_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    quickstart = presets.resolve("quickstart")
    t4 = replace(TWO_GPUS.gpus[0], name="Tesla T4", compute_capability=(7, 5))
    old = replace(t4, name="GTX 1080", compute_capability=(6, 1))
    both, float16, bfloat16 = {"mixed_float16", "mixed_bfloat16"}, {"mixed_float16"}, {"mixed_bfloat16"}
    for here, cpu_can, fast in ((NO_GPU, False, set()), (NO_GPU, True, bfloat16), (TWO_GPUS, False, both),
                                (replace(NO_GPU, gpus=(t4,)), True, float16),
                                (replace(NO_GPU, gpus=(old,)), True, set())):  # fmt: skip
        monkeypatch.setattr(chips, "cpu_multiplies_bfloat16", lambda cpu_can=cpu_can: cpu_can)
        texts = LimitTexts()
        texts.suit(limits_dialog.fast_policies(quickstart, here))
        assert texts.precisions == {"float32"} | fast, (here, cpu_can)
        assert texts.limits() == LimitTexts().limits(), "what the command line searches when it is told nothing"
    texts = LimitTexts()
    texts.suit(["mixed_bfloat16"])
    texts.precisions.add("mixed_float16")
    assert texts.limits().precisions == ["float32", "mixed_float16", "mixed_bfloat16"], "what is ticked is tried"
    texts.suit(["mixed_float16", "mixed_bfloat16"])
    assert texts.limits() == LimitTexts().limits()
    texts.precisions.discard("mixed_float16")
    texts.suit([])
    assert texts.precisions == {"float32", "mixed_bfloat16"}, "what was chosen stays"


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
    beside = write_search(home, **running())
    (beside.path / "request.json").write_text(proof_request.of_preset("tune", "quickstart", ()).to_json())
    compose = TuneDialog.compose

    def composed_slowly(dialog: TuneDialog) -> Iterator[Widget]:
        """On a machine that takes longer for the dialog than it takes to read it."""
        time.sleep(2 * SEEN_AFTER_SECONDS)
        yield from compose(dialog)

    monkeypatch.setattr(TuneDialog, "compose", composed_slowly)
    async with opened((80, 24)) as pilot:
        form(pilot).put({"input.batch_size": "48"}, "smaller")
        await burst(pilot, "T", ENTER)
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
        await pilot.press(*["backspace"] * 4, "1", "2", "down", "j", "k", "l", "l", "l", "space", "j", "enter")
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
        await pilot.press("T")
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
        await pilot.press("escape", "T")
        shown = await wait_for(pilot, "[ ] XLA")  # what was chosen the last time
        assert "12 " in shown
        await pilot.press("escape")
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
