"""The whole course of measurements of scaling with planted trials, and all that the record then says.

`__snapshots__` holds the courses. A trial takes ten seconds of a clock that only the trials move.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks, presets
from gputui.engine.options import Options
from gputui.engine.proof import folder, request
from gputui.engine.proof.request import Request
from gputui.engine.scaling import scaling_request
from gputui.engine.scaling.rounds import Rounds
from gputui.engine.trials import proof_sentences, scaling_sentences, trial_tables
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.trial import Trial

from tests.support.courses import Clock, rounded
from tests.support.courses import clock as clock
from tests.support.proving import HERE, Figures, Planted, PlantedBench


def asked(*settings: str, counts: Sequence[int] = (1, 2, 4), keep: str = "per-replica", **more: Any) -> Request:
    preset = presets.defaults(["device.logical_devices=4", "batch_size=64", "train.seed=1", *settings])
    scaling = scaling_request.scaling_settings(preset, HERE, counts, keep)
    return request.of_opened("scaling", preset, None, scaling=scaling, **more)


def replicas(options: Options) -> int:
    return checks.replicas(options, HERE)


def course(
    path: Path, clock: Clock, wanted: Request, figures: Figures, known: Sequence[Trial] = (), stop_at: int = 99
) -> tuple[list[str], list[Trial]]:
    """The course of a measurement in lines, and its trials."""
    told: list[str] = []

    def watched(options: Options, count: int) -> Planted:
        written = json.loads(record.path.read_text())
        train = f"{options.strategy.kind} {options.strategy.devices}, batch {options.input.batch_size}"
        told.append(
            f"{count + 1:02} at {clock.now:g} s of {written['budget_seconds']:g}: {written['doing']}: "
            f"{replicas(options)}: {train}, xla {options.compile.xla}; {written['scaling']['rounds']} rounds"
        )
        if count + 1 == stop_at:
            bench.stop.ask()
        return figures(options, count)

    path.mkdir(exist_ok=True)
    record, bench = folder.empty_record(path, wanted), PlantedBench(path / "trials", watched)
    record.started_mark = 0.0
    bench.passes = lambda seconds: setattr(clock, "now", clock.now + seconds)
    record.state = "done"
    try:
        Rounds(wanted, record, bench, known).measure()
    except Stopped:
        record.state = "stopped"
    except BaselineFailed as fault:
        record.state, record.error = "failed", str(fault)
    record.write("ended")
    written = json.loads(record.path.read_text())
    for point in written["scaling"]["points"]:
        rows = ", ".join(f"{row['run']} {row['repeat']} {row['outcome']} {row['key']}" for row in point.pop("trials"))
        told.append(f"point: {json.dumps(rounded(point))} {rows}")
    names = ("before", "after", "gain_total", "ended_because", "budget_seconds", "versions", "changes_kept")
    told.append(f"record: {json.dumps(rounded({name: written[name] for name in names}))}")
    told += [f"said: {text}" for text in (proof_sentences.result(record), scaling_sentences.in_brief(record),
                                          *scaling_sentences.remarks(record))]  # fmt: skip
    return [*told, trial_tables.scaling(record).markdown()], record.all_trials


def grows(options: Options, before: int) -> Planted:
    """Each replica more helps less; the machine gets slower from round to round, and the waits longer."""
    number = replicas(options)
    speed = {1: 1000.0, 2: 1900.0, 4: 2600.0}[number] * (1 - 0.05 * (before // 3)) * (1 + 0.01 * (before % 4))
    return Planted(speed, input_wait=0.1 * number)


def fails(options: Options, before: int) -> Planted:
    """Four replicas run out of memory, and the second trial with two is lost."""
    planted = grows(options, before)
    planted.outcome = "oom" if replicas(options) == 4 else "crashed" if before == 4 else "ok"
    return planted


def never(options: Options, before: int) -> Planted:
    return Planted(outcome="crashed" if replicas(options) == 1 else "ok")


COURSES: dict[str, tuple[Callable[[], Request], Figures]] = {
    "replicas": (asked, grows),
    "the global batch": (lambda: asked("strategy.kind=mirrored", "batch_size=32", keep="global", repeats=4), grows),
    "without time": (lambda: asked(limit_seconds=70.0), grows),
    "one that fails": (asked, fails),
    "one replica fails": (asked, never),
}


@pytest.mark.parametrize("kind", COURSES)
def test_the_whole_course_of_a_measurement_of_scaling(tmp_path: Path, clock: Clock, kind: str, snapshot: Any) -> None:
    wanted, figures = COURSES[kind]
    assert "\n".join(course(tmp_path / "p", clock, wanted(), figures)[0]) == snapshot


def test_a_measurement_that_was_stopped_goes_on(tmp_path: Path, clock: Clock, snapshot: Any) -> None:
    first, trials = course(tmp_path / "p", clock, asked(), fails, stop_at=5)
    again, _ = course(tmp_path / "p", clock, asked(), grows, trials)
    assert "\n".join([*first, "---- resumed", *again]) == snapshot
