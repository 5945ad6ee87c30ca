"""The results of a measurement of scaling in words, shared by all views and the report."""

from __future__ import annotations

from collections.abc import Iterator

from .. import figures
from ..units import counted, share, spread, times
from . import significance
from .record import Comparison, Point, Record, Scaling

GOOD = 0.9  # efficiency below which a sentence says what has grown (gputui's own threshold)
HALF = 0.5
_STEP, _WAIT = figures.of_run("step_ms"), figures.of_run("input_wait")
_ABOUT = (
    "efficiency: samples per second over n times those of one replica in the same round; spread: its standard "
    "deviation over the rounds"
)
_ABOUT_COPIES = (
    "samples per second: of all copies, in the seconds in which all of them trained; speed-up: over those of one copy "
    "in the same round; efficiency: speed-up over the number of copies; spread: its standard deviation over the rounds"
)


def scaling_of(data: Record) -> Scaling:
    return data.scaling or Scaling(keep="")


def about(data: Record) -> str:
    return _ABOUT_COPIES if scaling_of(data).is_of_copies else _ABOUT


def kept(data: Record) -> str:
    """Return which batch size is the same for all numbers of replicas (each, or the global one) or copies."""
    scaling = scaling_of(data)
    if scaling.is_of_copies:
        return "each copy keeps its batch"
    if scaling.keep == "global":
        return "the global batch is kept (strong scaling)"
    return "the batch of each replica is kept (weak scaling)"


def conclusion(data: Record) -> str:
    """Return the efficiency of the most replicas, or the number of copies that pays most, or why there is none."""
    scaling = scaling_of(data)
    more = [point for point in scaling.points if point.efficiency is not None and point.number != 1]
    if not more:
        failed = [point for point in scaling.points if point.decision == "failed" and point.why]
        if failed:
            return f"{counted(failed[-1].number, scaling.unit)} could not be measured: {failed[-1].why}"
        return f"stopped before several {scaling.unit} were measured"
    if not scaling.is_of_copies:
        most = more[-1]
        beside = "" if most.spread is None else f" (spread {spread(most.spread)})"
        return (
            f"{counted(most.replicas, 'replicas')} train {times(most.speedup)} as fast as 1: an efficiency of "
            f"{share(most.efficiency)}{beside}; {kept(data)}"
        )
    verdicts = [_against(point, scaling.points[0]) for point in more]
    if (best := best_copies(data)) is not None:
        queue = f"; with run.per_gpu={best.number} the queue puts so many runs on a GPU"
        return (
            f"{counted(best.number, 'copies')} at once on one {'CPU' if scaling.shared else 'GPU'} train "
            f"{times(best.speedup)} as many samples per second as 1 ({_against(best, scaling.points[0])[1]}); each has "
            f"{share(best.efficiency)} of the speed of one alone{'' if scaling.shared else queue}"
        )
    text = "; ".join(f"{point.number} train {times(point.speedup)} as many samples per second as 1, "
                     f"{': '.join(verdict)}" for point, verdict in zip(more, verdicts, strict=True))  # fmt: skip
    if any(verdict == "undecided" for verdict, _ in verdicts):
        return f"it is undecided whether several copies at once pay: {text}"
    return f"several copies at once do not pay: {text}"


def best_copies(data: Record) -> Point | None:
    """Return the copies that train most, beyond chance, than one copy and the best of fewer. None if none does."""
    points = scaling_of(data).points
    best = next(iter(points), None)
    for point in points[1:]:
        if best is not None and _against(point, best)[0] == "faster":
            best = point
    return best if best is not None and best.number > 1 else None


def _against(point: Point, other: Point) -> tuple[str, str]:
    return significance.verdict([ratio - 1 for ratio in point.ratios(other)])


def remarks(data: Record) -> Iterator[str]:
    """Yield sentences about the meaning of the figures that were measured, and about what limits the scaling."""
    scaling = scaling_of(data)
    if scaling.shared and scaling.is_of_copies:
        yield f"{scaling.shared}: on a GPU the result may be another"
    elif scaling.shared:
        yield (
            f"a rehearsal: {scaling.shared}, so that no speed-up can be expected; what it shows is that the strategy "
            "works"
        )
    first, best = next(iter(scaling.points), None), best_copies(data)
    compiled = {point.xla for point in scaling.points} - {None}
    if first is not None and not scaling.is_of_copies and len(compiled) == 2 and first.xla:
        yield (
            "XLA compiles the step of one replica and not that of several (compile.xla: auto): a part of the "
            "difference may be XLA's; give --set compile.xla=false, or true, to compare the same"
        )
    if first is not None and first.changes.get("compile.xla") is False:
        yield (
            "all were measured without XLA, as compile.xla=auto uses it for one replica only; --set compile.xla=true "
            "measures all with XLA"
        )
    for point in scaling.points:
        if (
            first is not None
            and not scaling.is_of_copies
            and (limited := limit(first, point, scaling.keep == "global"))
        ):
            yield limited
        if point.decision == "failed":
            yield f"{counted(point.number, scaling.unit)} could not be measured: {point.why}"
        elif scaling.is_of_copies and best and point.number > best.number and point.efficiency is not None:
            yield f"{counted(point.number, 'copies')} instead of {best.number}: {': '.join(_against(point, best))}"


def limit(first: Point, point: Point, strong: bool) -> str:
    """Return the cause of longer steps with the replicas of `point` than with one (`first`). Empty for an efficiency of
    at least GOOD. `strong`: the global batch stays the same.
    """
    reached, many = point.efficiency, point.replicas
    was, now = first.step_ms, point.step_ms
    if reached is None or reached >= GOOD or many == 1 or was is None or now is None:
        return ""
    ideal = was / many if strong else was
    replicas = counted(many, "replicas")
    text = f"{replicas}: a step takes {_STEP.text(now)}, {_STEP.text(ideal)} would be {many} times the speed"
    if first.input_wait is None or point.input_wait is None or now <= ideal:
        return text
    waits = point.input_wait * now - first.input_wait * ideal  # in milliseconds, more than with one replica
    wait = f"{_WAIT.phrase(point.input_wait)} instead of {_WAIT.text(first.input_wait)}"
    if waits / (now - ideal) >= HALF:
        return f"{text}; most of what was added is waiting for the input ({wait})"
    return (
        f"{text}; little of what was added is waiting for the input ({wait}): the step itself takes longer, by "
        "computing and the exchange of gradients, which a profile tells apart (gputui diagnose --profile)"
    )


def of_comparison(comparison: Comparison) -> str:
    """Return `2 replicas instead of 1: an efficiency of 92 %`. Empty if the number is the same or not known."""
    counts = [{trial.replicas for trial in comparison.good(side)} for side in "ab"]
    a, b = (each.pop() if len(each) == 1 else None for each in counts)
    if a is None or b is None or a == b or comparison.gain is None:
        return ""
    return f"{counted(b, 'replicas')} instead of {a}: an efficiency of {share((1 + comparison.gain) / (b / a))}"
