"""The screen of a diagnosis over a made-up live view: what stands there in each state, and its numbered keys."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.tui.drawing.live import head
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.screens.live import diagnosis
from gputui.tui.screens.live.diagnosis import DiagnosisScreen
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.reactive import var
from textual.screen import Screen

from tests.support.form_pilot import told
from tests.support.recorded_proof import DIAGNOSIS, HEALTHY, STAGES
from tests.support.tiny import Tiny, lines_of, wait_for

RUN = Run(Path("/runs/20260921-100000-cnn"))


class Live(Screen[None]):
    """The live view, as far as the diagnosis knows it."""

    latest: var[int] = var(0, always_update=True)
    now = Snapshot(phase="compiling")
    run_folder, kept_as = RUN, RUN.id

    def compose(self) -> ComposeResult:
        yield from ()


async def shown(pilot: Pilot[None], live: Live, now: Snapshot) -> list[str]:
    live.now = now
    live.latest += 1
    await pilot.pause()
    return [line.strip() for line in lines_of(pilot.app).split("\n")[:-1] if line.strip()]


def remedies(count: int) -> dict[str, Any]:
    changes = [{"changes": {"train.epochs": number + 1}, "reason": f"why {number}"} for number in range(count)]
    return DIAGNOSIS | {"remedies": [{"advice": "look after the disk"}, *changes]}


async def test_what_stands_there_before_a_verdict_and_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Run] = []

    def of_run(run: Run) -> Any:
        made.append(run)
        return SimpleNamespace(**HEALTHY)

    monkeypatch.setattr("gputui.engine.diagnosis.of_run", of_run)
    monkeypatch.setattr(diagnosis, "asdict", vars)
    live = Live()
    async with Tiny(lambda: live).run_test(size=(160, 30), notifications=True) as pilot:
        await wait_for(pilot, lambda: pilot.app.screen is live)
        screen = DiagnosisScreen(live)  # type: ignore[arg-type]
        await pilot.app.push_screen(screen)
        trains: dict[str, Any] = {
            "phase": "training",
            "started": {"step": 0},
            "progress": {"step": 5, "step_ms_p50": 10.0},
        }
        for now, text, goes_on in (
            (Snapshot(phase="compiling"), diagnosis.NOT_BEGUN, True),
            (Snapshot(**trains), head.MEASURING, True),
            (Snapshot(**trains, diagnosis=HEALTHY), "✓ " + HEALTHY["sentence"], True),
            (Snapshot(**trains, diagnosis=HEALTHY, outcome="ok"), "✓ " + HEALTHY["sentence"], False),
        ):
            title, first, *_ = await shown(pilot, live, now)
            assert "diagnosis  20260921-100000-cnn" in title
            assert title.endswith("updated while the run goes on") is goes_on
            assert first == text
            assert made == []
        needed = len("diagnosis  20260921-100000-cnn") + 2 + len("updated while the run goes on")
        beside = pilot.app.size.width - screen.query_one("#title").content_size.width
        for width, fits in ((needed + beside, True), (needed + beside - 1, False), (160, True)):
            await pilot.resize_terminal(width, 30)
            title, *_ = await shown(pilot, live, Snapshot(**trains, diagnosis=HEALTHY))
            assert title.endswith("updated while the run goes on") is fits, width
        await shown(pilot, live, Snapshot(**trains, outcome="ok"))
        await wait_for(pilot, lambda: made == [RUN])
        await wait_for(pilot, HEALTHY["sentence"][:40])
        await shown(pilot, live, Snapshot(**trains, outcome="ok", elapsed=1.0))
        assert made == [RUN], "it is made once"


async def test_the_step_next_to_the_input_stages_is_the_present_one_or_that_of_the_whole_run() -> None:
    live = Live()
    whole = {"step_ms": {"p50": 25.0}}
    async with Tiny(lambda: live).run_test(size=(100, 40)) as pilot:
        await wait_for(pilot, lambda: pilot.app.screen is live)
        await pilot.app.push_screen(DiagnosisScreen(live))  # type: ignore[arg-type]
        progress = {"step": 5, "step_ms_p50": 12.5}
        for outcome, diagnosed, step in ((None, {}, "12.5 ms"), (None, HEALTHY, "12.5 ms"), ("ok", HEALTHY, "25.0 ms")):
            now = Snapshot(
                phase="training", progress=progress, summary=whole, outcome=outcome, diagnosis=diagnosed,
                input_stages=STAGES, started={"step": 0},
            )  # fmt: skip
            lines = await shown(pilot, live, now)
            (row,) = [line for line in lines if line.startswith("step ")]
            assert row.endswith(step)


async def test_the_number_of_a_remedy_puts_its_changes_into_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[Any] = []

    async def put_into_form(_app: Any, run: Run, changes: Any) -> None:
        put.append((run, dict(changes)))

    monkeypatch.setattr(diagnosis, "put_into_form", put_into_form)
    live = Live()
    async with Tiny(lambda: live).run_test(size=(100, 40), notifications=True) as pilot:
        await wait_for(pilot, lambda: pilot.app.screen is live)
        screen = DiagnosisScreen(live)  # type: ignore[arg-type]
        await pilot.app.push_screen(screen)
        await wait_for(pilot, "diagnosis")
        for count, pressed, said in (
            (0, 1, "there is no remedy that changes options"), (1, 2, "there is no remedy 2, only 1"),
            (3, 4, "there is no remedy 4, only 1 to 3"), (3, 3, ""), (8, 9, "there is no remedy 9, only 1 to 8"),
            (12, 9, ""),
        ):  # fmt: skip
            now = Snapshot(phase="training", started={"step": 0}, progress={"step": 5}, diagnosis=remedies(count))
            await shown(pilot, live, now)
            assert list(screen.keys_without_use) == ([] if count else ["prove", "remedy"])
            await pilot.press(str(pressed))
            await wait_for(pilot, lambda: put or told(pilot))
            assert (told(pilot), put) == (said, [] if said else [(RUN, {"train.epochs": pressed})])
            put.clear()
            pilot.app.clear_notifications()
        await pilot.press("w")
        assert pilot.app.screen is live
    assert [diagnosis._no_such(10, count) for count in (9, 10, 12)] == ["there is no remedy 10, only 1 to 9"] * 3
