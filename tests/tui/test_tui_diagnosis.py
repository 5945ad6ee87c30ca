"""The diagnosis of a run on its screen, and the way from there to a proof."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.proof import folder, proof_start
from gputui.engine.queue import entries
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.base.base_app import BaseApp
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing.diagnosis import rows
from gputui.tui.drawing.rows import length, plain
from gputui.tui.screens.dialogs import Ask
from gputui.tui.screens.live.diagnosis import DiagnosisScreen
from gputui.tui.screens.live.screen import LiveScreen
from textual.pilot import Pilot

from tests.support import queued, recorded
from tests.support.form_pilot import settled, told
from tests.support.judged import PARALLEL
from tests.support.recorded_proof import DIAGNOSIS, HEALTHY, STAGES
from tests.support.tiny import Tiny, lines_of, text_of, tiny, wait_for

SIZES = [(80, 24), (120, 40)]


def at(seconds: float) -> Any:
    return lambda: recorded.BEGAN + seconds


def diagnosed(home: Path, **changes: Any) -> Run:
    fields: dict[str, Any] = {"gpus": 1, "seconds": 40, "name": "20260921-100000-mine"}
    return recorded.write(home, **fields | {"diagnosis": DIAGNOSIS, "input_stages": STAGES} | changes)


def text(told: dict[str, Any], stages: dict[str, Any], width: int = 78, glyphs: Any = RICH) -> str:
    return "\n".join(plain(row) for row in rows(told, stages, width, glyphs))


# ---- the page ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 78, 118, 198])
@pytest.mark.parametrize("glyphs", [RICH, PLAIN])
def test_every_part_fits_and_is_told(width: int, glyphs: Any) -> None:
    assert all(length(row) <= width for row in rows(DIAGNOSIS, STAGES, width, glyphs))
    shown = " ".join(text(DIAGNOSIS, STAGES, width, glyphs).split())
    for word in (
        "Input-bound: steps wait 62 % of their time",
        "sure, from 812 measured steps",
        "python overhead",
        "input wait",
        "62 %",
        "20 %",
        "XProf",
        "1.7 cores",
        "20.6 ms",
        "cache=memory",
        "at most 2.60 times as fast",
        "1 to 3 put one into the form",
        "changes what is learnt",
        "gain unknown until measured",
        "look after ?[31mthe disk[/red]",
        "4 % full",
    ):
        assert word in shown, word
    assert glyphs is RICH or shown.isascii()


def bars(stages: dict[str, Any], step_ms: float | None = None, width: int = 78) -> dict[str, str]:
    shown = [plain(row) for row in rows(DIAGNOSIS, stages, width, RICH, step_ms)]
    begin = next(at for at, line in enumerate(shown) if line.startswith("input stages"))
    return {line.split()[0]: line for line in shown[begin + 1 :]}  # the last part


def test_the_slowest_stage_is_marked_and_has_the_longest_bar() -> None:
    lines = bars(STAGES)
    assert "! slowest" in lines["prepare"]
    assert "2 at a time" in lines["prepare"]
    assert "slowest" not in lines["batch"] + lines["read"]
    assert lines["prepare"].count("━") > 5 * lines["batch"].count("━") > lines["read"].count("━")
    assert lines["augment"].split() == ["augment", "-"]


def test_calls_at_once_share_the_work_of_a_stage_and_the_step_is_drawn_beside_it() -> None:
    lines = bars({"stages": PARALLEL}, step_ms=20.0, width=118)
    cells = {name: line.count("━") for name, line in lines.items()}
    assert list(lines) == ["load", "prepare", "step"]
    assert cells["step"] == pytest.approx(2 * cells["load"], abs=1) == pytest.approx(4 * cells["prepare"], abs=2)
    assert "10.0 ms ! slowest" in lines["load"]
    assert "8 at a time: 40.0 ms of work" in lines["prepare"]
    assert "longer" in bars({"stages": PARALLEL}, step_ms=4.0)


def test_a_healthy_run_has_no_empty_headings() -> None:
    shown = text(HEALTHY, {})
    assert "✓ Healthy" in shown
    assert "likely" in shown
    assert "remedies" not in shown
    assert "input stages" not in shown
    assert "gputui tune" not in shown


def test_what_is_undecided_says_what_to_do_next() -> None:
    assert "gputui tune (T in the form) tries changes" in text({"verdict": "undecided", "remedies": []}, {})


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"verdict": "astrology"},
        {"evidence": [None, {}, {"value": "x", "unit": [1]}], "others": [7]},
        {"remedies": ["x", {"changes": [1], "expected_gain": "much"}], "confidence": "high", "steps": None},
    ],
)
def test_what_is_not_as_expected_is_no_obstacle(odd: dict[str, Any]) -> None:
    assert text(odd, {"stages": [None, {"name": 3}], "buffer_fill": "full"})


# ---- the screen -------------------------------------------------------------------------------------


async def test_w_in_the_live_view_shows_it_all(home: Path, snapshot: Any) -> None:
    run = diagnosed(home)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await wait_for(pilot, "✓ done")
            await pilot.press("w")
            shown = await wait_for(pilot, "sure, from 812 measured steps")
            for word in ("diagnosis", run.id, "Prove", "cache=memory", "parallel_calls=auto", "1 to 3 put one into"):
                assert word in shown, f"{word}, without scrolling"
            await pilot.pause()
            assert lines_of(pilot.app) == snapshot
            await pilot.press("end")
            shown = await wait_for(pilot, "slowest")
            assert "input wait" in shown
            await pilot.press("w")
            await wait_for(pilot, "throughput")


async def test_it_is_renewed_while_the_run_goes_on(home: Path) -> None:
    run = diagnosed(home, outcome=None, engine_pid=os.getpid(), diagnosis=None, input_stages=None)
    async with Tiny(lambda: LiveScreen(run, clock=at(40))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "training")
        await pilot.press("w")
        await wait_for(pilot, "measuring what limits the speed")
        with run.file("events.jsonl").open("a") as stream:
            stream.write(json.dumps(STAGES | {"t": recorded.BEGAN + 41, "type": "input_stages"}) + "\n")
        await wait_for(pilot, "ParallelMapV2" if pilot.app.size.width > 100 else "slowest")
        with run.file("telemetry.jsonl").open("a") as stream:
            stream.write(json.dumps(DIAGNOSIS | {"t": recorded.BEGAN + 42, "type": "diagnosis"}) + "\n")
        assert "slowest" in await wait_for(pilot, "! Input-bound")


async def test_before_training_there_is_nothing_to_judge(home: Path) -> None:
    run = diagnosed(home, outcome=None, engine_pid=os.getpid(), seconds=12, diagnosis=None)
    lines = [line for line in run.file("events.jsonl").read_text().splitlines() if '"training"' not in line]
    run.file("events.jsonl").write_text("\n".join(lines) + "\n")
    async with Tiny(lambda: LiveScreen(run, clock=at(11))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "compiling")
        await pilot.press("w")
        await wait_for(pilot, "training has not begun")


async def test_a_run_that_left_no_diagnosis_is_judged_from_its_folder(home: Path) -> None:
    run = diagnosed(home, seconds=90, diagnosis=None)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("w")
        shown = await wait_for(pilot, "measured steps")
        assert "evidence" in shown
        assert "training has not begun" not in shown


# ---- into the form ------------------------------------------------------------------------------------


async def test_a_remedy_is_started_with_two_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number puts it into the form of the run, marked as not saved; Enter starts it."""
    run = diagnosed(home, settings=("input.parallel_calls=off",))
    launched: list[Any] = []

    def start(preset: Any, warm: object) -> tuple[Run, object]:
        launched.append(preset)
        return run, object()

    monkeypatch.setattr("gputui.tui.screens.starting.start", start)
    app = GputuiApp(watch=run)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("w")
        await wait_for(pilot, "1 Apply")
        await pilot.press("7")
        await wait_for(pilot, lambda: "there is no remedy 7, only 1 to 3" in told(pilot))
        app.clear_notifications()  # which lie over what is read next
        await pilot.press("1")
        await wait_for(pilot, lambda: app.screen is app.form and app.form.query("#start:focus"))
        assert app.form.state.texts["input.cache"] == "memory"
        assert app.form.state.unsaved() == ["input.cache"]
        shown = await wait_for(pilot, " + cache  ")
        assert "mine of a run + 1 not saved" in shown
        assert "enter starts it with cache=memory" in shown
        assert "input.cache  calls Dataset.cache" in shown  # the help is that of what was changed
        await pilot.press("enter")
        await wait_for(pilot, lambda: launched)
        assert launched[0].options.input.cache == "memory"
        assert launched[0].name == "mine"
        # A second remedy comes on top of the first, and each is one step of undo.
        await wait_for(pilot, lambda: not isinstance(app.screen, DiagnosisScreen))
        host: BaseApp = app
        host.apply(run, {"input.parallel_calls": "auto", "no.such": 3}, "parallel_calls=auto")
        await wait_for(pilot, lambda: app.form.state.unsaved() == ["input.parallel_calls", "input.cache"])
        await wait_for(pilot, "enter starts it with parallel_calls=auto")
        await pilot.press("u")
        await settled(pilot)
        assert app.form.state.unsaved() == ["input.cache"]
        assert app.form.options.rows["input.parallel_calls"].has_focus
        assert "enter starts it" not in text_of(app)
        await pilot.press("u")
        await settled(pilot)
        assert app.form.state.name == "quickstart"


# ---- to a proof ---------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be started."""
    found: list[Any] = []

    def start(proof: Any) -> str:
        found.append(proof)
        return "process"

    monkeypatch.setattr(folder, "start", start)
    monkeypatch.setattr(proof_start, "other_training", lambda ours, here, but: "")
    return found


async def asked(pilot: Pilot[None], key: str = "p") -> str:
    """The diagnosis is open; press `key` and read the question."""
    await pilot.press(key)
    await wait_for(pilot, lambda: isinstance(pilot.app.screen, Ask))
    return await wait_for(pilot, "Cancel")


async def test_p_asks_with_the_time_it_takes_and_starts_the_proof(home: Path, started: list[Any]) -> None:
    run = diagnosed(home)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=SIZES[0], notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("w")
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await wait_for(pilot, "Prove")
            shown = " ".join((await asked(pilot)).replace("│", " ").split())
            assert "3 changes to try" in shown
            assert "3 pairs of trials of 5 s" in shown
            assert "Each change takes about" in shown
            assert " min" in shown
            await pilot.press("c")
            await wait_for(pilot, lambda: isinstance(pilot.app.screen, DiagnosisScreen))
            assert not started
        await asked(pilot)
        await pilot.press("p")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert tiny(pilot).opened == [("proof", started[0])]
        assert tiny(pilot).engines == ["process"]
    request = started[0].request
    assert (request.kind, request.preset_name, request.run) == ("loop", "mine", run.id)
    assert folder.find("latest") == started[0]


async def test_a_run_that_goes_on_has_to_end_first(
    home: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = diagnosed(home, outcome=None, engine_pid=os.getpid())
    stopped: list[Run] = []
    monkeypatch.setattr("gputui.engine.runs.request_stop", stopped.append)
    async with Tiny(lambda: LiveScreen(run, clock=at(40))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "! Input-bound")
        await pilot.press("w")
        await wait_for(pilot, "Prove")
        for key, count in (("k", 0), ("s", 1)):
            await pilot.press("p")
            await wait_for(pilot, "it has to end first")
            await pilot.press(key)
            await wait_for(pilot, lambda: isinstance(pilot.app.screen, DiagnosisScreen))
            await pilot.pause(0.1)
            assert len(stopped) == count
        await wait_for(pilot, "stopping after this step")
    assert not started


async def test_a_proof_beside_another_training_waits_or_measures_anyway(
    home: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an engine that imports TensorFlow beside its trials."""
    busy = ["the run [red]x\x1b is running"]
    monkeypatch.setattr(proof_start, "other_training", lambda ours, here, but: busy[0])
    queued.no_runner(monkeypatch)
    closed: list[str] = []
    run = diagnosed(home)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(120, 40), notifications=True) as pilot:
        app = tiny(pilot)
        app.warm = SimpleNamespace(close=lambda: closed.append("warm"))  # type: ignore[assignment]
        await wait_for(pilot, "✓ done")
        await pilot.press("w")
        await wait_for(pilot, "Prove")
        for key in ("c", "w", "m"):
            await asked(pilot)
            await pilot.press("p")
            shown = await wait_for(pilot, "Measure anyway?")
            assert "The run [red]x? is running on the same devices" in " ".join(shown.replace("│", " ").split())
            assert not started
            await pilot.press(key)
            await wait_for(pilot, lambda: isinstance(app.screen, DiagnosisScreen))
            if key == "w":
                await wait_for(pilot, lambda: [entry.what for entry in entries.all_entries()] == ["loop"])
                assert folder.proofs()[0].state == "waiting"
            assert len(entries.all_entries()) == (key != "c"), key
        await wait_for(pilot, lambda: len(started) == 1)
        await wait_for(pilot, lambda: app.opened == [("proof", started[0])])
        assert (closed, app.warm) == (["warm"], None)


async def test_what_speaks_against_a_proof_is_said(home: Path, started: list[Any]) -> None:
    runs = {
        "there is nothing to prove": diagnosed(home, name="healthy", diagnosis=HEALTHY),
        "cannot be proved: ": diagnosed(home, name="broken"),
        "fit of your own script": diagnosed(home, name="script"),
    }
    runs["cannot be proved: "].file("preset.yaml").write_text("schema_version: 1\nworkload: {modle: [red]}\n")
    script = "schema_version: 1\ncompile: {xla: false}\ntrain: {epochs: 3}\n"
    runs["fit of your own script"].file("preset.yaml").write_text(script)
    first = runs["there is nothing to prove"]
    async with Tiny(lambda: LiveScreen(first)).run_test(size=(120, 40), notifications=True) as pilot:
        for said, run in runs.items():
            if run != first:
                await pilot.app.push_screen(LiveScreen(run))
            await wait_for(pilot, run.id)
            await wait_for(pilot, "✓ done")
            await pilot.press("w")
            last = (await wait_for(pilot, f"diagnosis  {run.id}")).rstrip("\n").split("\n")[-1]
            assert ("p Prove" in last) == ("1 Apply" in last) == (run != first), "without a remedy nothing is offered"
            await pilot.press("p")
            await wait_for(pilot, lambda said=said: said in _all_that_is_said(pilot))  # type: ignore[misc]
            assert "\x1b" not in text_of(pilot.app)
            pilot.app.clear_notifications()
    assert not started


def _all_that_is_said(pilot: Pilot[None]) -> str:
    return f"{text_of(pilot.app)}\n{told(pilot)}"
