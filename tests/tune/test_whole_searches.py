"""The whole course of searches with planted trials: what each trial trains and why, and all that the record then says.

`__snapshots__` holds the courses. A trial takes ten seconds of a clock that only the trials move.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.options import Options
from gputui.engine.proof import request
from gputui.engine.proof.request import Request
from gputui.engine.runs.events import plain
from gputui.engine.telemetry import resource_limits
from gputui.engine.trials import record as records
from gputui.engine.trials.comparing import BaselineFailed
from gputui.engine.trials.search_record import Limits
from gputui.engine.trials.trial import Trial
from gputui.engine.tune import tune_request

from tests.support.courses import Clock, rounded
from tests.support.proving import Figures, Planted, searching_in_time

MIB = 2**20
# Options that each trial sets by itself, and that are told in other words or never.
BY_ITSELF = ("run.", "notify.", "train.seed", "train.epochs", "train.steps_per_epoch")


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the record, on a host with a gigabyte of free memory."""
    made = Clock()
    monkeypatch.setattr(records, "steady", made)
    monkeypatch.setattr(resource_limits, "memory", lambda: SimpleNamespace(available=1000 * MIB))
    monkeypatch.setattr(resource_limits, "ceilings", lambda: SimpleNamespace(address_space_bytes=None))
    return made


def asked(*settings: str, **limits: Any) -> Request:
    """A search from quickstart with batches of 32 of 1000 samples."""
    given = ("batch_size=32", "train.seed=1", "xla=false", *settings)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(Limits(**limits)))


def line(values: dict[str, Any], *left_out: str) -> str:
    """The values in a line, without those that are empty; trials by their names and outcomes."""
    trials = [f"{each['run']} {each['outcome']}{'!' if each['disturbed'] else ''}" for each in values.get("trials", ())]
    shown = {key: value for key, value in values.items() if key not in (*left_out, "trials")}
    return json.dumps(
        rounded(plain(shown) | ({"trials": ", ".join(trials)} if trials else {}), empty=(None, "", [], {}, False))
    )


def short(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in changes.items()) or "nothing"


def flat(options: Options) -> dict[str, Any]:
    return {f"{group}.{name}": value for group, of in asdict(options).items() for name, value in of.items()}


def course(
    path: Path, clock: Clock, wanted: Request, figures: Figures, known: Iterable[Trial] = ()
) -> tuple[list[str], list[Trial]]:
    """The course of a search in lines, and its trials."""
    before = flat(wanted.baseline().options)
    told: list[str] = []

    def watched(options: Options, count: int) -> Planted:
        written, search = json.loads(searcher.record.path.read_text()), searcher.search
        changes = {key: value for key, value in flat(options).items()
                   if before[key] != value and not key.startswith(BY_ITSELF)}  # fmt: skip
        train, measured = options.train, options.run.measure_seconds
        length = f"{measured} s" if measured else f"{train.epochs} x {train.steps_per_epoch} steps, seed {train.seed}"
        told.append(
            f"{count + 1:02} at {clock.now:g} s, {searcher.trials.reserved_seconds:.0f} s kept back, at most "
            f"{60 * (options.run.max_minutes or 0):.0f} s: {written['doing']} ({written['search']['stage']}; best "
            f"{short(search.best)} at {search.best_speed or 0:.0f}): {short(changes)}; {length}"
        )
        return figures(options, count)

    searcher, bench = searching_in_time(path, wanted, watched, lambda _count: 10.0, known)
    searcher.record.started_mark = 0.0

    def pass_by(seconds: float) -> None:
        clock.now += seconds

    bench.passes = pass_by
    try:
        searcher.run()
    except BaselineFailed as fault:
        told.append(f"FAILED: {fault}")
    searcher.record.write("ended")
    return [*told, *_of_record(json.loads(searcher.record.path.read_text()))], searcher.record.all_trials


def _of_record(written: dict[str, Any]) -> Iterator[str]:
    search = written["search"]
    for name in ("candidates", "losses"):
        yield from (f"{name}: {line(each)}" for each in search[name])
    yield f"search: {line(search, 'candidates', 'losses', 'limits', 'memory')}"
    yield f"memory: {line(search['memory'] or {}, 'points')}"
    yield from (f"point: {line(each)}" for each in (search["memory"] or {}).get("points", ()))
    yield from (f"compared: {line(each)}" for each in written["comparisons"])
    kept = ("before", "after", "gain_total", "changes_kept", "ended_because", "budget_seconds", "seconds", "versions")
    yield f"record: {line({name: written[name] for name in kept})}"
    before, after = ((written[name] or "").splitlines() for name in ("preset_before", "preset_after"))
    yield f"new in the preset: {'; '.join(text.strip() for text in after if text not in before)}"


def on_a_cpu(options: Options, before: int) -> Planted:
    """Faster with batches up to 64 and with 4 steps together, and slower with XLA; every seventh trial is unlucky."""
    batch, together = options.input.batch_size, options.compile.steps_per_execution
    speed = 1000 * {8: 0.6, 16: 0.7, 24: 0.75, 32: 0.8, 40: 0.88, 48: 0.93, 64: 1.0}.get(batch, 1.01)
    speed *= (1.2 if together >= 4 else 1.0) * (0.9 if options.compile.xla is True else 1.0)
    speed *= 0.97 if before % 7 == 3 else 1.0
    return Planted(samples_per_second=speed, peak_memory_bytes=(10 + batch) * MIB, loss=2.0)


def slow_input(options: Options, before: int) -> Planted:
    """The input gives 500 samples a second, until they are cached."""
    at_most = 10_000.0 if options.input.one_batch or options.input.cache == "memory" else 500.0
    planted = on_a_cpu(options, before)
    speed = planted.samples_per_second
    planted.samples_per_second, planted.input_wait = min(at_most, speed), max(0.0, 1 - at_most / speed)
    return planted


def hidden(options: Options, before: int) -> Planted:
    """The input gives 700 samples a second until they are cached, which hides what the device gains."""
    planted = slow_input(options, before)
    if planted.samples_per_second == 500.0:
        planted.samples_per_second, planted.input_wait = 700.0, 0.125
    return planted


def learning(options: Options, before: int) -> Planted:
    """Batches above 40 learn worse."""
    planted = on_a_cpu(options, before)
    planted.loss = 2.0 if options.input.batch_size <= 40 else 2.3
    return planted


def much_memory(options: Options, before: int) -> Planted:
    """The host has 1000 MiB, and 900 of them are planned."""
    batch = options.input.batch_size
    taken = 200 + 5 * batch
    speed = 500.0 + 10 * batch
    return Planted(speed, outcome="oom" if taken > 1000 else "ok", peak_memory_bytes=taken * MIB, error="no room")


def precisions(options: Options, before: int) -> Planted:
    """XLA alone is faster than the mixed precision, with which it is slow; Python takes a millisecond a step."""
    device = {("float32", False): 2.0, ("float32", True): 1.2, ("mixed_bfloat16", False): 1.6,
              ("mixed_bfloat16", True): 1.9}[options.precision.policy, options.compile.xla is True]  # fmt: skip
    step_ms = max(device, 1.0 / options.compile.steps_per_execution)
    return Planted(32_000 / step_ms, loss=2.0, python_share=0.1)


def failing(options: Options, before: int) -> Planted:
    """The first trial crashes, XLA ends with an error, and so do larger batches in the pairs."""
    planted = on_a_cpu(options, before)
    if before in (0, 5):
        planted.outcome = "crashed"
    elif options.compile.xla is True:
        planted.outcome, planted.error = "error", "XLA does not know it"
    elif options.input.batch_size > 32 and options.run.measure_seconds == 5.0:
        planted.outcome, planted.error = "oom", "no room"
    return planted


PIPELINE = ("input.parallel_calls=off", "input.prefetch=off", "input.cache=off")
COURSES: dict[str, tuple[Callable[[], Request], Figures]] = {
    "plain": (lambda: asked(minutes=10.0), on_a_cpu),
    "input": (lambda: asked(*PIPELINE, minutes=20.0, only=["batch_size", "steps_per_execution", "xla", "input"]),
              slow_input),
    "hidden by the input": (lambda: asked(*PIPELINE, minutes=20.0, only=["batch_size", "xla", "threads", "input"]),
                            hidden),
    "held back by the input": (lambda: asked(*PIPELINE, minutes=20.0, only=["batch_size", "xla"]), hidden),
    "losses": (lambda: asked("schedule=cosine", minutes=30.0, only=["batch_size", "steps_per_execution"],
                             learning_rate="linear", warmup_steps=9), learning),
    "allowed": (lambda: asked(minutes=30.0, only=["batch_size"], allow_worse_loss=True), learning),
    "memory": (lambda: asked(minutes=30.0, only=["batch_size"]), much_memory),
    "smaller": (lambda: asked("batch_size=256", minutes=30.0, only=["batch_size", "xla"]), much_memory),
    "precisions": (lambda: asked(minutes=20.0, only=["steps_per_execution", "precision", "xla"],
                                 precisions=["mixed_bfloat16"]), precisions),
    "failing": (lambda: asked(minutes=20.0, only=["batch_size", "xla"]), failing),
    "too short": (lambda: asked(minutes=0.1), on_a_cpu),
}  # fmt: skip


@pytest.mark.parametrize("kind", COURSES)
def test_the_whole_course_of_a_search(tmp_path: Path, clock: Clock, kind: str, snapshot: Any) -> None:
    wanted, figures = COURSES[kind]
    lines, _ = course(tmp_path / "p", clock, wanted(), figures)
    assert "\n".join(lines) == snapshot


def test_a_search_whose_time_is_over_goes_on_with_more(tmp_path: Path, clock: Clock, snapshot: Any) -> None:
    first, trials = course(tmp_path / "p", clock, asked(minutes=1.5, only=["batch_size", "xla"]), on_a_cpu)
    (tmp_path / "p" / "trials").rename(tmp_path / "trials")
    (tmp_path / "q").mkdir()
    (tmp_path / "trials").rename(tmp_path / "q" / "trials")
    again, _ = course(tmp_path / "q", clock, asked(minutes=9.0, only=["batch_size", "xla"]), on_a_cpu, trials)
    assert "\n".join([*first, "---- more minutes", *again]) == snapshot
