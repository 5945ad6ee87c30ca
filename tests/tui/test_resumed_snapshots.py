"""What a viewer knows of a run that is resumed: nothing of the sitting before is taken for the present."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from gputui.engine.files.values import EMPTY
from gputui.engine.runs.parsing import recalled
from gputui.tui.reading.run.gpu_reading import by_physical_gpu
from gputui.tui.reading.run.series import Line, Pace, along
from gputui.tui.reading.run.snapshot import BestEpoch, Message, Snapshot
from gputui.tui.reading.run.store import MAX_EPOCHS, Store


def phase(t: float, name: str, detail: str = "") -> dict[str, Any]:
    return {"t": t, "type": "phase", "phase": name, "detail": detail}


def progress(t: float, step: float | None, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "progress", "step": step, "steps": 90, "samples_per_second": 9.0} | more


def gpu(t: float, joules: float | None, watts: float = 36.0) -> dict[str, Any]:
    reading = {"index": 0, "uuid": "GPU-a", "busy": 0.5, "energy_j": joules, "power_w": watts}
    return {"t": t, "type": "gpu", "gpus": [reading]}


FIRST = (
    phase(0.0, "importing"), phase(3.0, "compiling"), phase(5.0, "training"), gpu(5.0, 0.0),
    progress(6.0, 10, loss=2.0), gpu(7.0, 7200.0), {"t": 7.0, "type": "input_stages", "stages": []},
    {"t": 7.1, "type": "best", "option": "run.keep_best", "figure": "loss", "epoch": 3, "step": 10},
    {"t": 7.2, "type": "diagnosis", "verdict": "input_bound", "confidence": 0.9},
    {"t": 7.3, "type": "warning", "kind": "x", "message": "slow"},
    {"t": 7.4, "type": "error", "kind": "oom", "message": "m"}, phase(8.0, "ended"),
    {"t": 8.1, "type": "finished", "outcome": "error", "summary": {"outcome": "error", "epochs": 1}},
)  # fmt: skip
AGAIN = (phase(100.0, "starting"), phase(101.0, "importing"))
TRAINS = (phase(104.0, "training"), gpu(104.0, 72_000.0), progress(105.0, 8, loss=1.5), gpu(106.0, 73_800.0))


def test_the_end_of_a_sitting_is_forgotten_when_the_next_one_begins() -> None:
    store = Store()
    store.feed(map(recalled, FIRST))
    over = store.snapshot(50.0)
    assert (over.outcome, over.error, over.elapsed) == ("error", Message("oom", "m"), 8.0)
    assert (over.summary, over.first_step_seconds) == ({"outcome": "error", "epochs": 1}, 2.0)
    assert [(span.phase, span.seconds) for span in over.start if span.seconds] == [
        ("importing", 3.0), ("compiling", 2.0),
    ]  # fmt: skip
    assert {name: span.seconds for name, span in over.rest.items()} == {"training": 3.0}
    assert over.gpus[0].energy_wh == 2.0
    store.feed(map(recalled, AGAIN))
    now = store.snapshot(102.5)
    assert (now.outcome, now.error, now.summary, now.input_stages) == (None, None, EMPTY, EMPTY)
    assert (now.phase, now.phase_seconds, now.elapsed) == ("importing", 1.5, 10.5)
    assert [now.diagnosis[key] for key in ("verdict", "confidence", "before_resume")] == ["input_bound", 0.9, True]
    assert (now.warnings, now.joins, now.resumes) == ((Message("x", "slow"),), (), (100.0,))
    assert [(span.phase, span.seconds) for span in now.start] == [("starting", 1.0), ("importing", 1.5)]
    store.feed(map(recalled, TRAINS))
    now = store.snapshot(106.0)
    assert now.joins == ((13.0, 8.0),)
    speed = now.line("samples_per_second")
    assert (list(speed.x), list(speed.steps), speed.breaks) == ([6.0, 13.0], [10.0, 8.0], frozenset({1}))
    assert now.line("gpu0").breaks == {2, 3}, "time and steps begin anew"
    assert now.gpus[0].energy_wh == 2.5, "nothing is known of the pause"
    assert {name: span.seconds for name, span in now.rest.items()} == {"training": 3.0}, "the end is no phase"
    store.feed(map(recalled, (progress(107.0, 9), progress(108.0, 12))))
    assert store.snapshot().joins == ((13.0, 8.0),), "one for each resume"
    assert (now.begun, now.unix_time(6.0), now.unix_time(8.0), now.unix_time(13.0)) == (0.0, 6.0, 100.0, 105.0)


def test_a_run_that_never_trained_has_no_join_and_a_started_event_ends_what_was_before() -> None:
    store = Store()
    early = (phase(0.0, "importing"), phase(2.0, "ended"), phase(50.0, "starting"), phase(51.0, "training"))
    store.feed(map(recalled, (*early, progress(52.0, 1))))
    now = store.snapshot()
    assert (now.joins, now.resumes, now.pace.begin) == ((), (50.0,), 3.0)
    store.feed([recalled({"t": 53.0, "type": "error", "kind": "x", "message": "m"})])
    store.feed([recalled({"t": 54.0, "type": "started", "devices": ["/device:CPU:0"], "steps_per_epoch": 5})])
    assert store.snapshot().error is None


def test_steps_begin_at_zero_and_best_epochs_and_old_epochs_are_replaced() -> None:
    def epoch(t: float, number: int, loss: float) -> dict[str, Any]:
        return {
            "t": t,
            "type": "epoch",
            "epoch": number,
            "step": 10 * number,
            "metrics": {"loss": loss},
            "seconds": 1.0,
        }

    def best(t: float, number: int) -> dict[str, Any]:
        return {"t": t, "type": "best", "option": "o", "figure": "loss", "epoch": number, "step": 10 * number}

    store = Store()
    store.feed(map(recalled, (
        phase(0.0, "training"), progress(1.0, 7), progress(2.0, 0), progress(3.0, None), epoch(4.0, 1, 3.0),
        epoch(5.0, 2, 2.0), epoch(6.0, 3, 1.0), best(6.1, 3), best(7.0, 3), epoch(8.0, 2, 1.5), best(8.5, 2),
    )))  # fmt: skip
    now = store.snapshot()
    assert list(now.line("samples_per_second").steps) == [7.0, 0.0, 0.0]
    assert [(each.number, each.metrics["loss"]) for each in now.epochs] == [(1, 3.0), (2, 1.5)]
    assert now.best == {"o": BestEpoch(2, "loss", (8.5, 20.0))}, "a resumed run may find an earlier one"
    store.feed(recalled(epoch(10.0 + n, n, 1.0)) for n in range(3, MAX_EPOCHS + 4))
    epochs = store.snapshot().epochs
    assert (len(epochs), epochs[0].number, epochs[-1].number) == (MAX_EPOCHS, 4, MAX_EPOCHS + 3)


def test_a_run_without_a_result_says_so_only_if_it_has_crashed() -> None:
    def error(outcome: str, **summary: Any) -> str:
        store = Store()
        store.feed([recalled({"t": 1.0, "type": "finished", "outcome": outcome, "summary": summary})])
        message = store.snapshot().error
        return message.message if message else ""

    assert error("crashed") == "the run ended without a result: its engine is gone"
    assert [error(outcome) for outcome in ("error", "oom", "stopped", "ok")] == [""] * 4
    assert error("error", error={"message": "no data"}) == "no data"


def test_energy_is_that_of_the_counter_or_else_an_estimate_only_if_the_driver_counts() -> None:
    def energy(*events: dict[str, Any]) -> float | None:
        store = Store()
        store.feed(map(recalled, events))
        return store.snapshot().gpus[0].energy_wh

    assert energy(gpu(0.0, 0.0)) is None, "one reading makes no sum"
    assert energy(gpu(0.0, 0.0), gpu(10.0, 3600.0)) == 1.0
    assert energy(gpu(0.0, None), gpu(10.0, None)) is None


def test_parts_of_one_gpu_are_summed_and_a_break_at_the_first_point_of_the_training_is_none() -> None:
    started = {"options": {"device": {"logical_devices": 2, "visible": [3, 1]}}}
    readings: Any = {1: {"uuid": "GPU-b"}, 3: {"uuid": "GPU-d"}}
    devices = {f"GPU:{n}": {"current_bytes": 10**n} for n in range(4)} | {"CPU:0": {"current_bytes": 7}}
    assert by_physical_gpu(devices, started, readings) == {
        "GPU:3": {"current_bytes": 11}, "GPU:1": {"current_bytes": 1100}, "CPU:0": {"current_bytes": 7},
    }  # fmt: skip
    places = array("d", [1.0, 2.0, 3.0, 4.0])
    line = Line(places, places, frozenset({2, 3}), steps=places)
    cut = along(line, "time", Pace(3.0))
    assert (list(cut.x), list(cut.y), cut.breaks) == ([0.0, 1.0], [3.0, 4.0], frozenset({1}))
    assert Snapshot().unix_time(3.0) == pytest.approx(3.0)
