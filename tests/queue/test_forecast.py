"""The expected starts of waiting runs, from the time left of those before: no files, no devices."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.queue.forecast import Begun, Expected, start_times

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
    "on an idle device it keeps no shared one from the next": (
        (run("one", per_gpu=2), run("whole", usable="a")),
        (Begun("x", frozenset("a"), 30, per_gpu=2),),
        {"one": 0, "whole": 30},
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
    "a device that is free now": ((run("one"), run("two")), (begun("x", "a", 30),), {"one": 0, "two": 30}),
    "a later run never takes what an earlier one waits for": (
        (run("pair", count=2), run("single", usable="b"), run("last", usable="a")),
        (begun("x", "a", 30),),
        {"pair": 30, "single": 130, "last": 130},
    ),
    "a run that needs other devices does not wait": (
        (run("one", usable="a"), run("two", usable="b")),
        (begun("x", "a", 30), begun("y", "b", 5)),
        {"one": 30, "two": 5},
    ),
    "from a run of unknown duration on nothing is known": (
        (run("one", None), run("two"), run("three", usable="a")),
        (begun("x", "a", 30),begun("y", "b", 900)),
        {"one": 30, "two": None, "three": None},
    ),
    "on other devices the starts are still known": (
        (run("one", usable="a"), run("two", usable="b")),
        (begun("x", "a", None), begun("y", "b", 5)),
        {"one": None, "two": 5},
    ),
    "a start that may come sooner than it seems is not known, nor is any after it": (
        (run("one"), run("two", usable="b"), run("three", usable="c")),
        (begun("x", "a", None), begun("y", "b", 5), begun("z", "c", 7)),
        {"one": None, "two": None, "three": 7},
    ),
    "what starts now does so whatever is not known": ((run("one"),), (begun("x", "a", None),), {"one": 0}),
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
    "a run that has ended is waited for by nobody": ((run("one", after="gone"),), (), {"one": 0}),
    "more devices than there are": ((run("one", count=3), run("two")), (), {"one": None, "two": 0}),
    "nothing is known of what waits for a run whose start is not known": (
        (run("one", usable="a", is_delayed=True), run("two", after="one", usable="b")),
        (begun("x", "c", 30),),
        {"one": None, "two": None},
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
