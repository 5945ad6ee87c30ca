"""Decides from measured figures what limits the speed: the verdict, in one sentence, and how sure it is.

The figures come from collector.py, the rules are in rules.py, the evidence is told in evidence.py, and remedies.py says
what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from .. import figures
from ..plan import LEAST_STEPS
from ..runs import Run
from ..runs.events import Diagnosis, Verdict
from ..runs.reading import RunEvents
from ..units import counted, seconds
from . import clocks
from .collector import read
from .evidence import HOST_VIEWED, evidence
from .measurements import ENOUGH_SECONDS, Measurements
from .remedies import remedies
from .rules import BESIDE, COMPUTES, LIMIT, VERDICT_LABELS, Found, device_works, findings

LEAST_SECONDS = 0.5  # of a run that has ended: a delay of 20 ms is then 4 %, so that only deciding thresholds count
SURE_SECONDS = 10.0
AGREES = 0.10  # ablation and input wait measure the same thing in two ways


def of_run(run: Run, found: RunEvents | None = None) -> Diagnosis:
    """The diagnosis of a run folder, running or finished; `found` holds its events where they were already read."""
    return diagnose(read(run, found))


def diagnose(measured: Measurements) -> Diagnosis:
    """The verdict on the present figures, `undecided` where there are too few."""
    too_little = _too_little(measured)
    if too_little:
        return Diagnosis(
            verdict="undecided",
            sentence=f"{VERDICT_LABELS['undecided']}: {too_little}",
            confidence=0.0,
            steps=measured.steps,
        )
    all_found = findings(measured)
    found = sorted(_sure(all_found) if measured.doubtful else all_found, key=lambda finding: finding.order)
    well = _computes(measured) and not any(finding.is_faint_loss for finding in all_found)
    verdicts = list(dict.fromkeys(finding.rule.verdict for finding in found if finding.rule.rank != BESIDE))
    verdict: Verdict = verdicts[0] if verdicts else "healthy" if well else "undecided"
    mine = [finding for finding in found if finding.rule.verdict == verdict]
    return Diagnosis(
        verdict=verdict,
        sentence=_sentence(verdict, measured, mine),
        confidence=_confidence(measured, verdict, mine),
        evidence=evidence(measured, verdict, mine),
        others=[other for other in verdicts if other != verdict],
        remedies=[asdict(remedy) for remedy in remedies(measured, verdicts or [verdict])],
        steps=measured.steps,
    )


def _too_little(s: Measurements) -> str:
    least = ENOUGH_SECONDS if s.outcome is None else LEAST_SECONDS
    if s.outcome is not None and not s.steps:
        return "the run ended before its first step was measured"
    if s.step_ms is None or s.steps < LEAST_STEPS or s.seconds < least:
        so_far = " so far" if s.outcome is None else ""
        return (
            f"{counted(s.steps, 'steps')} in {seconds(s.seconds)} measured{so_far}; "
            f"a verdict needs {LEAST_STEPS} steps and {least:g} s"
        )
    if s.input_wait is None and s.ablation is None and s.option("train.deterministic"):
        return "train.deterministic hides where the time goes; diagnose without it"
    return ""


def _sure(found: Sequence[Found]) -> list[Found]:
    """The findings that decide, where others may be chance. Where time may be lost, computing is not the limit."""
    lost = any(finding.is_faint_loss for finding in found)
    return [finding for finding in found if finding.strong and not (lost and finding.rule.rank == LIMIT)]


def _computes(s: Measurements) -> bool:
    """Whether computing is nearly all of the step, and the device does it."""
    return s.compute_share is not None and s.compute_share >= COMPUTES and device_works(s)


def _sentence(verdict: Verdict, s: Measurements, found: Sequence[Found]) -> str:
    """One line of at most 100 characters."""
    words = VERDICT_LABELS[verdict]
    if verdict == "healthy":
        graph = figures.measurement("compute_share").text(s.compute_share or 0)
        return f"{words}: TensorFlow's graph takes {graph} of the step; gputui has no further option to try"
    if not found:
        return f"{words}: no single cause stands out{_why_doubtful(s)}"
    whole = f"{words}: {found[0].rule.text.format(value=found[0].rule.figure.text(found[0].value))}"
    ending = _ENDINGS.get(verdict)
    endings = ending(s) if ending else []
    return next((whole + ending for ending in endings if len(whole + ending) <= 100), whole)


def _why_doubtful(s: Measurements) -> str:
    if s.seconds < ENOUGH_SECONDS:
        return " in so short a run"
    return " while other programs use the CPU" if s.crowded else ""


def _where(s: Measurements) -> list[str]:
    """The part of the input that is slow: the disk, or a stage by name. From the longest wording to the shortest."""
    if s.disk_waited_for:
        return [", and it waits for the disk"]
    stage = f", mostly in {s.slowest_stage['name']}" if s.slowest_stage else ""
    if s.crowded:
        return [f"{stage}; other programs also use the CPU", stage]
    return [f"{stage}; all CPU cores are busy", stage] if s.cores_busy else [stage]


def _which(s: Measurements) -> list[str]:
    """The slow worker, with its address where there is room."""
    return [f": {s.slow_worker}", f": {s.slow_worker.partition(' (')[0]}"]


def _held_by(s: Measurements) -> list[str]:
    """What holds the clock down, where that is known."""
    return [f" ({why})"] if (why := clocks.cause(s)) else []


_ENDINGS: Mapping[str, Callable[[Measurements], list[str]]] = {
    "input_bound": _where,
    "slow_worker": _which,
    "low_clocks": _held_by,
}


def _confidence(s: Measurements, verdict: Verdict, found: Sequence[Found]) -> float:
    """Grows with the time measured and with the distance from the threshold; supporting figures add to it."""
    time = min(1.0, s.seconds / SURE_SECONDS) if s.outcome is None else min(1.0, s.steps / 200)
    distance = _distance(found[0]) if found else 0.5
    value = 0.9 * (0.5 + 0.5 * time) * (0.6 + 0.4 * distance) * (0.5 if s.unseen and verdict in HOST_VIEWED else 1.0)
    if s.ablation is not None and s.input_wait is not None:
        value = min(0.99, value / 0.9) if abs(s.ablation - s.input_wait) <= AGREES else value / 2
    elif any(finding.rule.rank == BESIDE for finding in found):
        value = min(0.99, value / 0.9)
    return round(min(value, 0.3) if verdict == "undecided" else value, 2)


def _distance(finding: Found) -> float:
    """0 at the threshold that counts, 1 at twice (or half) the one that decides."""
    rule, value = finding.rule, finding.value
    most = 1.0 if rule.figure.unit == "share" else math.inf
    far = rule.strong / 2 if rule.below else min(2 * rule.strong, most)
    return min(1.0, max(0.0, (value - rule.notable) / (far - rule.notable))) if far != rule.notable else 1.0
