"""About when waiting runs start, from the time left of those before them and from earlier runs."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.doors.engine import (
    EVENTS_FILE,
    Begun,
    EventWriter,
    Expected,
    Run,
    events,
    gpu_use,
    queue_devices,
    records,
    runs,
    start_times,
)
from tests.doors.tui import tui_cli as cli
from tests.support.queued import Trainings, add, no_runner, waiting

BOTH = ("a", "b")


def begun(run: str, devices: str, left: float | None, is_queued: bool = True) -> Begun:
    return Begun(run, frozenset(devices), left, is_queued)


def run(name: str, seconds: float | None = 100.0, usable: Any = BOTH, count: int = 1, **more: Any) -> Expected:
    return Expected(name, tuple(usable), count, lambda: seconds, **more)


CASES: dict[str, tuple[tuple[Expected, ...], tuple[Begun, ...], dict[str, float | None]]] = {
    "two share a device, and one for itself waits for both, also if others would share it": (
        (run("one", usable="a", per_gpu=2), run("whole", usable="a"), run("two", usable="a", per_gpu=2),
         run("other", usable="a", per_gpu=3)),
        (Begun("x", frozenset("a"), 30, per_gpu=2),),
        {"one": 0, "whole": 100, "two": 200, "other": 300},
    ),
    "an idle device is taken before a shared one, and a shared one counts once": (
        (run("one", per_gpu=2), run("two", per_gpu=2), run("three", per_gpu=2)),
        (Begun("x", frozenset("a"), 30, per_gpu=2),),
        {"one": 0, "two": 0, "three": 0},
    ),
    "runs that are delayed may take each of their devices at any moment": (
        (run("one", usable="a", is_delayed=True), run("two", usable="b", is_delayed=True), run("three", usable="a"),
         run("four", usable="c")),
        (begun("x", "a", 30), begun("y", "c", 40)),
        {"one": None, "two": None, "three": None, "four": 40},
    ),
    "one after the other, on the device that is free first": (
        (run("one"), run("two"), run("three")),
        (begun("x", "a", 30), begun("y", "b", 50)),
        {"one": 30, "two": 50, "three": 130},
    ),
    "a later run never takes what an earlier one waits for": (
        (run("pair", count=2), run("single", usable="b"), run("last", usable="a")),
        (begun("x", "a", 30),),
        {"pair": 30, "single": 130, "last": 130},
    ),
    "from a run of unknown duration on nothing is known": (
        (run("one", None), run("two"), run("three", usable="a")),
        (begun("x", "a", 30),begun("y", "b", 900)),
        {"one": 30, "two": None, "three": None},
    ),
    "a start that may come sooner than it seems is not known, nor is any after it": (
        (run("one"), run("two", usable="b"), run("three", usable="c")),
        (begun("x", "a", None), begun("y", "b", 5), begun("z", "c", 7)),
        {"one": None, "two": None, "three": 7},
    ),
    "a held run is passed over, with what waits for it": (
        (run("one", is_held=True), run("two", after="one"), run("three", usable="a")),
        (begun("x", "a", 30),),
        {"one": None, "two": None, "three": 30},
    ),
    "a run waits for the end of another one, wherever that stands": (
        (run("two", after="one", usable="b"), run("one", 60, usable="a"), run("three", after="x", usable="c")),
        (begun("x", "a", 30),),
        {"two": 90, "one": 30, "three": 30},
    ),
    "the end of the other one is not known": (
        (run("two", after="one"), run("one", None, usable="a"), run("three", usable="b"), run("four", usable="b")),
        (begun("x", "ab", 30),),
        {"two": None, "one": 30, "three": 30, "four": None},
    ),
    "it waits for another user's turn": (
        (run("one", usable="a", is_delayed=True), run("two", usable="a"), run("three", usable="b")),
        (),
        {"one": None, "two": None, "three": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_starts_are_expected_as_the_runner_would_start(name: str) -> None:
    waiting, going_on, expected = CASES[name]
    assert start_times(waiting, going_on) == expected


def test_the_most_at_once_counts_the_devices_of_the_queue_only() -> None:
    waiting = [run("one"), run("two")]
    assert start_times(waiting, [begun("x", "c", 40)], most=1) == {"one": 40, "two": 140}
    assert start_times(waiting, [begun("x", "c", 40, is_queued=False)], most=1) == {"one": 0, "two": 100}
    assert start_times(waiting, [begun("x", "c", None)], most=1) == {"one": None, "two": None}


def test_no_run_is_expected_to_start_outside_of_the_hours() -> None:
    def opens_in(seconds: float) -> float:
        return 50.0 - seconds if seconds < 50 else 500.0 - seconds if 120 <= seconds < 500 else 0.0

    waiting = [run("one", usable="a"), run("two", usable="a"), run("three", usable="a")]
    assert start_times(waiting, [begun("x", "a", 10)], opens_in=opens_in) == {"one": 50, "two": 500, "three": 600}
    assert start_times(waiting, [begun("x", "a", None)], opens_in=opens_in) == dict.fromkeys(("one", "two", "three"))


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def progress(run: Run, left: float) -> None:
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    none = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "loss"))
    writer.emit(events.Progress(epoch=1, epochs=2, step=1, steps=2, metrics={}, eta_seconds=left, **none))
    writer.close()


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, float | None]]:
    capsys.readouterr()
    assert cli.run(("queue", "--json")) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    return {row["run"]: (row["when"], row["starts_in_seconds"]) for row in rows if row["place"]}


def test_a_run_that_was_not_queued_counts_if_it_is_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run of another user, and of another program, nobody knows when it ends."""
    alone = runs.create("alone", "schema: 1\n")
    progress(alone, 25.0)
    made = waiting("fast", visible=[0])
    add(made)
    me, other = records.user_name(os.geteuid()), "somebody else"
    for user, expected in ((me, 25), (other, None)):
        use = gpu_use.GpuUse(0, "GPU-a", "T4", holder=records.Holder("GPU-a", user, run=str(alone.path)))
        reader = queue_devices.DeviceReader()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(gpu_use.GpuWatch, "read", lambda _watch, use=use: [use])
            seen = reader()
        Trainings(seen).runner().tick()
        assert shown(capsys)[made.id][1] == expected
