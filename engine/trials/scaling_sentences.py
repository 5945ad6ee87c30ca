"""The results of a measurement of scaling in words and as cells, shared by all views and the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .. import figures, units
from ..units import count, counted, share, spread, times
from . import significance
from .record import Comparison, Point, Record, Trial

GOOD = 0.9  # efficiency below which a sentence says what has grown (gputui's own threshold)
HALF = 0.5
_SPEED, _STEP, _WAIT = (figures.of_run(key) for key in ("samples_per_second", "step_ms", "input_wait"))
HEAD = ("replicas", "global batch", _SPEED.head, "speed-up", "efficiency", "spread", _STEP.head, _WAIT.head)
_ABOUT = (
    "efficiency: samples per second over n times those of one replica in the same round; spread: its standard "
    "deviation over the rounds"
)
_ABOUT_COPIES = (
    "samples per second: of all copies, in the seconds in which all of them trained; speed-up: over those of one copy "
    "in the same round; efficiency: speed-up over the number of copies; spread: its standard deviation over the rounds"
)


def is_of_copies(data: Record) -> bool:
    return data.scaling is not None and data.scaling.is_of_copies


def head(data: Record) -> tuple[str, ...]:
    return ("copies", "batch of each", *HEAD[2:]) if is_of_copies(data) else HEAD


def about(data: Record) -> str:
    return _ABOUT_COPIES if is_of_copies(data) else _ABOUT


def what(point: Point, of_copies: bool) -> str:
    return counted(point.number, "copies") if of_copies else replicas(point.replicas)


def points(data: Record) -> list[Point]:
    """Return the points of a record, by their number of replicas. Empty if it has no measurement of scaling."""
    return data.scaling.points if data.scaling else []


def row(point: Point) -> list[str]:
    return [
        count(point.number), count(point.global_batch_size),
        _SPEED.bare(point.samples_per_second), times(point.speedup).removesuffix(" times"),
        share(point.efficiency), spread(point.spread), _STEP.bare(point.step_ms),
        _WAIT.bare(point.input_wait),
    ]  # fmt: skip


def outcome(point: Point) -> str:
    return point.why if point.decision == "failed" else ""


def replicas(number: int) -> str:
    return counted(number, "replicas")


def kept(data: Record) -> str:
    """Return which batch size is the same for all numbers of replicas (each, or the global one) or copies."""
    if is_of_copies(data):
        return "each copy keeps its batch"
    if _is_strong(data):
        return "the global batch is kept (strong scaling)"
    return "the batch of each replica is kept (weak scaling)"


def _is_strong(data: Record) -> bool:
    return data.scaling is not None and data.scaling.keep == "global"


def conclusion(data: Record) -> str:
    """Return the efficiency of the most replicas, or the number of copies that pays most, or why there is none."""
    measured = [point for point in points(data) if point.efficiency is not None]
    more = [point for point in measured if point.number != 1]
    if not more:
        failed = [point for point in points(data) if outcome(point)]
        return (
            f"{what(failed[-1], is_of_copies(data))} could not be measured: {outcome(failed[-1])}"
            if failed
            else f"stopped before several {head(data)[0]} were measured"
        )
    if is_of_copies(data):
        return _of_copies(data, more)
    most = more[-1]
    beside = "" if most.spread is None else f" (spread {spread(most.spread)})"
    return (
        f"{replicas(most.replicas)} train {times(most.speedup)} as fast as 1: an efficiency of "
        f"{share(most.efficiency)}{beside}; {kept(data)}"
    )


def _of_copies(data: Record, more: Sequence[Point]) -> str:
    """Return the sentence about the number of copies that pays most. `more` are the measured points of several."""
    best = best_copies(data)
    if best is not None:
        on_cpu = bool(data.scaling and data.scaling.shared)
        where = "one CPU" if on_cpu else "one GPU"
        queue = "" if on_cpu else f"; with run.per_gpu={best.number} the queue puts so many runs on a GPU"
        return (
            f"{counted(best.number, 'copies')} at once on {where} train {times(best.speedup)} as many samples per "
            f"second as 1 ({_verdict(data, best)[1]}); each has {share(best.efficiency)} of the speed of one alone"
            f"{queue}"
        )
    text = "; ".join(f"{point.number} train {times(point.speedup)} as many samples per second as 1, "
                     f"{': '.join(_verdict(data, point))}" for point in more)  # fmt: skip
    if any(_verdict(data, point)[0] == "undecided" for point in more):
        return f"it is undecided whether several copies at once pay: {text}"
    return f"several copies at once do not pay: {text}"


def best_copies(data: Record) -> Point | None:
    """Return the copies that train most, beyond chance, than one copy and the best of fewer. None if none does."""
    best = points(data)[0] if points(data) else None
    for point in points(data)[1:]:
        ratios = point.ratios(best) if best is not None else []
        if significance.verdict([ratio - 1 for ratio in ratios])[0] == "faster":
            best = point
    return best if best is not None and best.number > 1 else None


def _verdict(data: Record, point: Point) -> tuple[str, str]:
    return significance.verdict([ratio - 1 for ratio in point.ratios(points(data)[0])])


def in_brief(data: Record) -> str:
    """Return a text for a list: each number of replicas with its efficiency, the largest first, `scaling: 4 at 88 %, 2
    at 96 %`; `copies: 3 at 1.52 times, 2 at 1.40 times`.
    """
    of_copies = is_of_copies(data)
    parts = [f"{count(point.number)} at {times(point.speedup) if of_copies else share(point.efficiency)}"
             for point in reversed(points(data)) if point.number != 1 and point.efficiency is not None]  # fmt: skip
    return f"{'copies' if of_copies else 'scaling'}: {', '.join(parts) or 'nothing measured so far'}"


def remarks(data: Record) -> Iterator[str]:
    """Yield sentences about the meaning of the figures that were measured, and about what limits the scaling."""
    if is_of_copies(data):
        yield from _remarks_on_copies(data)
        return
    if data.scaling and (shared := data.scaling.shared):
        yield f"a rehearsal: {shared}, so that no speed-up can be expected; what it shows is that the strategy works"
    all_points = points(data)
    if not all_points:
        return
    first = all_points[0]
    compiled = {point.xla for point in all_points} - {None}
    if len(compiled) == 2 and first.xla:
        yield (
            "XLA compiles the step of one replica and not that of several (compile.xla: auto): a part of the "
            "difference may be XLA's; give --set compile.xla=false, or true, to compare the same"
        )
    if first.changes.get("compile.xla") is False:
        yield (
            "all were measured without XLA, as compile.xla=auto uses it for one replica only; --set compile.xla=true "
            "measures all with XLA"
        )
    for point in all_points:
        if limited := limit(first, point, strong=_is_strong(data)):
            yield limited
        if point.decision == "failed":
            yield f"{replicas(point.replicas)} could not be measured: {outcome(point)}"


def _remarks_on_copies(data: Record) -> Iterator[str]:
    if data.scaling and data.scaling.shared:
        yield f"{data.scaling.shared}: on a GPU the result may be another"
    best = best_copies(data)
    for point in points(data):
        if point.decision == "failed":
            yield f"{what(point, True)} could not be measured: {outcome(point)}"
        elif best is not None and point.number > best.number and point.efficiency is not None:
            ratios = [ratio - 1 for ratio in point.ratios(best)]
            verdict, why = significance.verdict(ratios)
            yield f"{what(point, True)} instead of {best.number}: {verdict}: {why}"


def trial(row: Trial) -> str:
    """Return `round 2: 1,234 samples/s, step 12.3 ms, input wait 5 %`, or the outcome and error of a failed trial."""
    if row.outcome != "ok":
        return f"round {row.repeat}: {row.outcome}: {row.error}"
    phrases = [
        figure.phrase(value) for figure in figures.shown("trial") if (value := row.figure(figure.key)) is not None
    ]
    return f"round {row.repeat}: {', '.join(phrases)}"


def limit(first: Point, point: Point, strong: bool) -> str:
    """Return the cause of longer steps with the replicas of `point` than with one (`first`). Empty for an efficiency of
    at least GOOD. `strong`: the global batch stays the same.
    """
    reached, many = point.efficiency, point.replicas
    was, now = first.step_ms, point.step_ms
    if reached is None or reached >= GOOD or many == 1 or was is None or now is None:
        return ""
    ideal = was / many if strong else was
    text = f"{replicas(many)}: a step takes {_STEP.text(now)}, {_STEP.text(ideal)} would be {many} times the speed"
    waits = _waiting(first, point, many if strong else 1)
    if waits is None or now <= ideal:
        return text
    part = waits / (now - ideal)
    wait = f"{_WAIT.phrase(point.input_wait)} instead of {_WAIT.text(first.input_wait)}"
    if part >= HALF:
        return f"{text}; most of what was added is waiting for the input ({wait})"
    return (
        f"{text}; little of what was added is waiting for the input ({wait}): the step itself takes longer, by "
        "computing and the exchange of gradients, which a profile tells apart (gputui diagnose --profile)"
    )


def _waiting(first: Point, point: Point, parts: int) -> float | None:
    # in milliseconds, more than with one replica
    was, now = first.input_wait, point.input_wait
    if was is None or now is None or first.step_ms is None or point.step_ms is None:
        return None
    return now * point.step_ms - was * first.step_ms / parts


# ---- the efficiency of a comparison --------------------------------------------------------------


def efficiency(times_as_fast: float, times_as_many: float) -> float:
    """Return the speed-up divided by the factor of the number of replicas: 1 if both grow alike."""
    return times_as_fast / times_as_many


def of_comparison(comparison: Comparison) -> str:
    """Return `2 replicas instead of 1: an efficiency of 92 %`. Empty if the number is the same or not known."""
    a, b = (_replicas(comparison.trials, side) for side in "ab")
    gain = comparison.gain
    if a is None or b is None or a == b or gain is None:
        return ""
    reached = efficiency(1 + gain, b / a)
    return f"{b} replica{'s' if b > 1 else ''} instead of {a}: an efficiency of {units.share(reached)}"


def _replicas(trials: Iterable[Trial], side: str) -> int | None:
    counts = {trial.replicas for trial in trials if trial.side == side and trial.outcome == "ok"}
    return counts.pop() if len(counts) == 1 else None
