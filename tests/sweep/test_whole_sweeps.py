"""The whole course of sweeps with simulated trainings: what is trained when, and all that the record then says.

`__snapshots__` holds the courses. An epoch takes a minute of a clock that only the trainings move.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.proof import folder
from gputui.engine.proof.request import Request
from gputui.engine.sweep import proposals, sweep_loop, swept_values
from gputui.engine.sweep.sweep_loop import SweepLoop
from gputui.engine.sweep.trainings import Look
from gputui.engine.trials import record as records
from gputui.engine.trials.change_texts import changes as in_words
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.record import Record
from gputui.engine.trials.sweep_record import SweepTrial
from gputui.engine.trials.trial_runner import Stop

from tests.support.courses import Clock, rounded
from tests.support.swept import Timed, request_of

RATES = "learning_rate=1e-3,2e-3,3e-3"
FOUR = "learning_rate=1e-3,2e-3,3e-3,4e-3"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the record and of the sweep."""
    made = Clock()
    monkeypatch.setattr(records, "steady", made.monotonic)
    monkeypatch.setattr(sweep_loop, "time", made)
    return made


def loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
    """Higher rates are better, and later epochs; the noise belongs to the rate and the seed."""
    rate: float = changes["train.learning_rate"]
    return 1 - 100 * rate + 0.5 / epoch + random.Random(f"{rate} {seed}").gauss(0, 0.03)


def accuracy(changes: Mapping[str, Any], seed: int, epoch: int) -> float | None:
    """The highest rate diverges."""
    return None if changes["train.learning_rate"] > 0.035 else 1 - loss(changes, seed, epoch)


def diverging(changes: Mapping[str, Any], seed: int, epoch: int) -> float | None:
    """The highest rate diverges."""
    return None if changes["train.learning_rate"] > 0.035 else loss(changes, seed, epoch)


class Told(Timed):
    """Trainings that tell what they are asked. `failing` has the cause of a failure by the last digits of a run."""

    def __init__(self, clock: Clock, metric: Any = loss, epochs: int = 1, devices: int = 1, **failing: str) -> None:
        super().__init__(metric, epochs, devices=devices)
        self.clock, self.lines, self.causes, self.doing = clock, list[str](), failing, ""

    def start(self, trial: SweepTrial) -> None:
        until = f", pauses after epoch {trial.until}" if trial.until else ""
        self.lines.append(f"{self.clock.now / 60:g} min: {trial.run[-3:]} starts with {_of(trial)}{until}")
        super().start(trial)

    def stop(self, trial: SweepTrial) -> bool:
        self.lines.append(f"{self.clock.now / 60:g} min: {trial.run[-3:]} is asked to stop")
        return super().stop(trial)

    def let_go(self, trial: SweepTrial) -> None:
        self.lines.append(f"{self.clock.now / 60:g} min: {trial.run[-3:]} is let go")

    def look(self, trial: SweepTrial) -> Look:
        look, cause = super().look(trial), self.causes.get(f"r{trial.run[-3:]}")
        if cause is None or look.state not in ("done", "stopped") or not look.epochs:
            return look
        return Look("failed", look.epochs, look.seconds, f"it has {cause}", cause)

    def pass_time(self, record: Record) -> None:
        if record.doing != self.doing:
            budget = "?" if record.budget_seconds is None else f"{record.budget_seconds / 60:.1f}"
            self.lines.append(f"{self.clock.now / 60:g} min of {budget}: {record.doing}")
            self.doing = record.doing
        begun = record.started_mark
        super().pass_time(record)
        self.clock.now += begun - record.started_mark
        record.started_mark = begun


def _of(trial: SweepTrial) -> str:
    return f"{in_words(trial.changes)} seed={trial.seed}"


def sweep_in(path: Path, request: Request, trainings: Told, stop: Stop | None = None) -> None:
    """Carry out the sweep from where its record in the folder is, and add to the lines what the record then says."""
    path = path / "s"
    path.mkdir(exist_ok=True)
    before = folder.read_record(path)
    record = folder.empty_record(path, request)
    record.started_mark = 0.0
    if before.is_read:
        record.sweep = before.sweep
    try:
        SweepLoop(request, record, trainings, stop or Stop(), lambda: trainings.pass_time(record)).run()
    except (Stopped, BaselineFailed) as fault:
        trainings.lines.append(f"{type(fault).__name__}: {fault}")
    record.put("ended")
    trainings.lines += _of_record(json.loads(record.path.read_text()))


def _of_record(written: dict[str, Any]) -> Iterator[str]:
    sweep = written["sweep"]
    for trial in sweep["trials"]:
        known = {name: value for name, value in trial.items() if value not in (None, "", 0, [])}
        yield f"trial: {json.dumps(rounded(known, 10, ()))}"
    known = {name: value for name, value in sweep.items() if name not in ("trials", "settings")}
    yield f"sweep: {json.dumps(rounded(known, 10, ()))}"
    kept = {name: written[name] for name in ("changes_kept", "ended_because", "budget_seconds", "seconds", "doing")}
    yield f"record: {json.dumps(rounded(kept, 10, ()))}"
    before, after = ((written[name] or "").splitlines() for name in ("preset_before", "preset_after"))
    yield f"rate in the preset: {[text for text in after if 'learning_rate:' in text and text not in before]}"


def drawn(count: int, sampler: str = "random", **more: Any) -> Request:
    made = request_of([RATES], sampler=sampler, most_trials=count, **more)
    assert made.sweep is not None
    axes = [swept_values.axis("learning_rate=1e-3..1e-1", in_grid=False)]
    return replace(made, sweep=replace(made.sweep, axes=axes))


def of_accuracy(request: Request) -> Request:
    assert request.sweep is not None
    return replace(request, sweep=replace(request.sweep, higher=True))


NINE = "learning_rate=" + ",".join(f"{number}e-3" for number in range(1, 10))
COURSES: dict[str, tuple[Callable[[], Request], Callable[[Clock], Told]]] = {
    "grid": (lambda: request_of([RATES], seeds=2, proof_seeds=3), Told),
    "two at once": (lambda: request_of([FOUR], proof_seeds=3, parallel=2, ahead=1, finalists=3),
                    lambda clock: Told(clock, devices=2)),
    "halving": (lambda: request_of([NINE], 9, rungs=[1, 3], proof_seeds=3, minutes=500.0),
                lambda clock: Told(clock, epochs=9)),
    "random": (lambda: of_accuracy(drawn(6, seeds=2, proof_seeds=3)), lambda clock: Told(clock, accuracy)),
    "proposed": (lambda: of_accuracy(drawn(12, "tpe", proof_seeds=0)), lambda clock: Told(clock, accuracy)),
    "proposed for a loss": (lambda: drawn(12, "tpe", seeds=2, proof_seeds=0), lambda clock: Told(clock, diverging)),
    "failing": (lambda: request_of([FOUR], proof_seeds=3),
                lambda clock: Told(clock, r001="oom", r003="crashed", r006="timeout")),
    "failures in a row": (lambda: request_of([FOUR]), lambda clock: Told(clock, r001="x", r002="x", r003="x")),
    "short": (lambda: request_of([FOUR], epochs=4, proof_seeds=3, minutes=14.5), lambda clock: Told(clock, epochs=4)),
    "no time": (lambda: request_of([FOUR], epochs=9, minutes=5.0), lambda clock: Told(clock, epochs=9)),
}  # fmt: skip


@pytest.mark.parametrize("kind", COURSES)
def test_the_whole_course_of_a_sweep(
    tmp_path: Path, clock: Clock, kind: str, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, trainings = COURSES[kind]
    told = trainings(clock)

    def proposed(axes: Any, seed: int, number: int, results: Any, higher: bool) -> dict[str, Any]:
        known = ", ".join(f"{in_words(changes)}: {metric:.4g}" for changes, metric in results)
        told.lines.append(f"{seed=}, {number=}, {higher=}, after {known}")
        return {"train.learning_rate": 0.0123 if number < 1000 else round(0.02 + number / 1e6, 6)}  # one twice

    monkeypatch.setattr(proposals, "proposed", proposed)
    sweep_in(tmp_path, request(), told)
    assert "\n".join(told.lines) == snapshot


def test_a_sweep_that_was_stopped_and_then_gets_more_minutes(tmp_path: Path, clock: Clock, snapshot: Any) -> None:
    """A trial of an epoch is trained anew, as the preset keeps no checkpoint."""
    stop = Stop()

    class Stopping(Told):
        def pass_time(self, record: Record) -> None:
            super().pass_time(record)
            if self.clock.now == 120.0:
                stop.ask()

    told = Stopping(clock, epochs=1, r002="oom")
    sweep_in(tmp_path, request_of([FOUR], proof_seeds=3, minutes=9.0), told, stop)
    for words, minutes in (("resumed", 9.0), ("more minutes", 30.0)):
        told.lines.append(f"---- {words}")
        sweep_in(tmp_path, request_of([FOUR], proof_seeds=3, minutes=minutes), told)
        told.causes.clear()
    assert "\n".join(told.lines) == snapshot
    assert asdict(folder.read_record(tmp_path / "s"))["sweep"]["settings"]["minutes"] == 30.0
