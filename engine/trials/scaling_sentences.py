"""What a measurement of scaling has found, in words and as a table, shared by all views and the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import figures, units
from ..files.values import mapping, whole
from ..units import NONE, count, counted, share, spread, times

Told = Mapping[str, Any]
GOOD = 0.9  # of n times the speed: below this it is told what grew (gputui's own threshold)
HALF = 0.5
_SPEED, _STEP, _WAIT = (figures.of_run(key) for key in ("samples_per_second", "step_ms", "input_wait"))
HEAD = ("replicas", "global batch", _SPEED.head, "speed-up", "efficiency", "spread", _STEP.head, _WAIT.head)
ABOUT = (
    "efficiency: samples per second over n times those of one replica in the same round; spread: its standard "
    "deviation over the rounds"
)


def points(data: Told) -> list[Told]:
    """Those of a proof.json, by their number of replicas."""
    found = mapping(data.get("scaling")).get("points")
    return [mapping(one) for one in found] if isinstance(found, list) else []


def row(point: Told) -> list[str]:
    """The cells below HEAD."""
    return [
        count(point.get("replicas")), count(point.get("global_batch_size")),
        _SPEED.bare(point.get("samples_per_second")), times(point.get("speedup")).removesuffix(" times"),
        share(point.get("efficiency")), spread(point.get("spread")), _STEP.bare(point.get("step_ms")),
        _WAIT.bare(point.get("input_wait")),
    ]  # fmt: skip


def outcome(point: Told) -> str:
    """What became of it, where that is more than its figures."""
    return str(point.get("why") or "") if point.get("decision") == "failed" else ""


def replicas(number: Any) -> str:
    return counted(number, "replicas")


def kept(data: Told) -> str:
    """Which batch size is the same for all."""
    if mapping(data.get("scaling")).get("keep") == "global":
        return "the global batch is kept (strong scaling)"
    return "the batch of each replica is kept (weak scaling)"


def conclusion(data: Told) -> str:
    """The efficiency of the most replicas that were measured."""
    found = [one for one in points(data) if one.get("efficiency") is not None]
    more = [one for one in found if one.get("replicas") != 1]
    if not more:
        failed = [one for one in points(data) if outcome(one)]
        return (
            f"{replicas(failed[-1].get('replicas'))} could not be measured: {outcome(failed[-1])}"
            if failed
            else "stopped before several replicas were measured"
        )
    most = more[-1]
    beside = "" if most.get("spread") is None else f" (spread {spread(most['spread'])})"
    return (
        f"{replicas(most.get('replicas'))} train {times(most.get('speedup'))} as fast as 1: an efficiency of "
        f"{share(most['efficiency'])}{beside}; {kept(data)}"
    )


def in_brief(data: Told) -> str:
    """`scaling: 4 at 88 %, 2 at 96 %`: replicas and their efficiency, the most first, for a list."""
    found = [f"{count(one.get('replicas'))} at {share(one['efficiency'])}" for one in reversed(points(data))
             if one.get("replicas") != 1 and one.get("efficiency") is not None]  # fmt: skip
    return f"scaling: {', '.join(found) or 'nothing measured so far'}"


def remarks(data: Told) -> Iterator[str]:
    """What the figures mean and what limits the scaling, as far as it was measured; a sentence each."""
    if shared := mapping(data.get("scaling")).get("shared"):
        yield f"a rehearsal: {shared}, so that no speed-up can be expected; what it shows is that the strategy works"
    found = points(data)
    first = found[0] if found else {}
    compiled = {one.get("xla") for one in found} - {None}
    if len(compiled) == 2 and first.get("xla"):
        yield (
            "XLA compiles the step of one replica and not that of several (compile.xla: auto): a part of the "
            "difference may be XLA's; give --set compile.xla=false, or true, to compare the same"
        )
    if mapping(first.get("changes")).get("compile.xla") is False:
        yield (
            "all were measured without XLA, as compile.xla=auto uses it for one replica only; --set compile.xla=true "
            "measures all with XLA"
        )
    for one in found:
        if said := limit(first, one, strong=mapping(data.get("scaling")).get("keep") == "global"):
            yield said
        if one.get("decision") == "failed":
            yield f"{replicas(one.get('replicas'))} could not be measured: {outcome(one)}"


def trial(one: Told) -> str:
    """`round 2: 1,234 samples/s, step 12.3 ms, input wait 5 %`, or how it ended."""
    if one.get("outcome") != "ok":
        return f"round {one.get('repeat')}: {one.get('outcome')}: {one.get('error')}"
    known = [figure.phrase(one.get(figure.key)) for figure in figures.shown("trial") if one.get(figure.key) is not None]
    return f"round {one.get('repeat')}: {', '.join(known)}"


def limit(first: Told, point: Told, strong: bool) -> str:
    """What grew with the replicas where the efficiency is below GOOD; nothing where that was not measured."""
    reached, many = point.get("efficiency"), point.get("replicas")
    was, now = first.get("step_ms"), point.get("step_ms")
    if reached is None or reached >= GOOD or many in (1, None) or was is None or now is None:
        return ""
    ideal = was / many if strong else was
    told = f"{replicas(many)}: a step takes {_STEP.text(now)}, {_STEP.text(ideal)} would be {many} times the speed"
    waits = _waiting(first, point, many if strong else 1)
    if waits is None or now <= ideal:
        return told
    part = waits / (now - ideal)
    wait = f"{_WAIT.phrase(point.get('input_wait'))} instead of {_WAIT.text(first.get('input_wait'))}"
    if part >= HALF:
        return f"{told}; most of what was added is waiting for the input ({wait})"
    return (
        f"{told}; little of what was added is waiting for the input ({wait}): the step itself takes longer, by "
        "computing and the exchange of gradients, which a profile tells apart (gputui diagnose --profile)"
    )


def _waiting(first: Told, point: Told, parts: int) -> float | None:
    """Milliseconds of a step that are waited for the input beyond those of one replica."""
    was, now = first.get("input_wait"), point.get("input_wait")
    if was is None or now is None:
        return None
    return float(now * point["step_ms"] - was * first["step_ms"] / parts)


def table(data: Told) -> Sequence[Sequence[str]]:
    """The head and a row for each number of replicas, with what became of it where one has failed."""
    found = points(data)
    if not any(map(outcome, found)):
        return [HEAD, *map(row, found)]
    return [[*HEAD, "outcome"], *([*row(one), outcome(one) or NONE] for one in found)]


# ---- the efficiency of a comparison --------------------------------------------------------------


def efficiency(times_as_fast: float, times_as_many: float) -> float:
    """1 where the speed grows as the replicas do."""
    return times_as_fast / times_as_many


def of_comparison(comparison: Mapping[str, Any]) -> str:
    """`2 replicas instead of 1: an efficiency of 92 %`; nothing where the replicas are as many, or not known."""
    a, b = (_replicas(comparison.get("trials") or (), side) for side in "ab")
    gain = comparison.get("gain")
    if a is None or b is None or a == b or gain is None:
        return ""
    found = efficiency(1 + gain, b / a)
    return f"{b} replica{'s' if b > 1 else ''} instead of {a}: an efficiency of {units.share(found)}"


def _replicas(trials: Iterable[Mapping[str, Any]], side: str) -> int | None:
    """Those of a side, where all its good trials had as many."""
    found = {whole(one.get("replicas")) for one in trials if one.get("side") == side and one.get("outcome") == "ok"}
    return found.pop() if len(found) == 1 else None
