"""The diagnosis: what limits the speed in one sentence, its confidence, its evidence, and its remedies in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

from .. import figures
from ..options import own_code
from ..plan import LEAST_STEPS
from ..runs import Run
from ..runs.event_reading import RunEvents
from ..runs.events import Diagnosis, Evidence, Remedy, Step
from ..units import counted, seconds
from . import stragglers
from .collector import read
from .measurements import COMPUTES, Measurements, stage_ms
from .remedies import SINGLE_SAMPLES_CODE, in_the_data
from .rules import LIMIT, LOST_TIME, SUPPORTING, VERDICTS, Symptom, device_works, symptoms

LEAST_SECONDS = 0.5  # of a run that has ended: a delay of 20 ms is then 4 %, so only deciding thresholds count
ENOUGH_SECONDS = 2.0  # of measured steps: below it small shares may be chance
SURE_SECONDS = 10.0  # from here on more time adds no confidence
AGREES = 0.10  # ablation and input wait measure the same thing in two ways
# The order of trying is that of TensorFlow's guide to GPU performance. For a GPU that has too little to do XLA comes
# early: it makes few kernels of many small ones, and changes nothing that is learnt.
ORDER: tuple[Step, ...] = ("input", "device", "precision", "xla", "gpus")
UNDERFILLED_ORDER: tuple[Step, ...] = ("input", "xla", "device", "precision", "gpus")
IN_A_PRESET = Remedy(
    "input", {}, "as a preset, gputui measures all parts of a step and tries changes; gputui init writes one to fill in"
)


def label(verdict: str) -> str:
    return VERDICTS[verdict].label if verdict in VERDICTS else verdict


def of_run(run: Run, events: RunEvents | None = None) -> Diagnosis:
    """Return the diagnosis of a run, running or finished. `events` are the run's events if they were already read."""
    return diagnose(read(run, events))


def diagnose(measured: Measurements) -> Diagnosis:
    """Return the diagnosis from the measurements up to now. Its verdict is `undecided` if too little was measured."""
    least = ENOUGH_SECONDS if measured.outcome is None else LEAST_SECONDS
    if measured.outcome is not None and not measured.steps:
        too_little = "the run ended before its first step was measured"
    elif measured.step_ms is None or measured.steps < LEAST_STEPS or measured.seconds < least:
        so_far = " so far" if measured.outcome is None else ""
        rounded_down = math.floor(measured.seconds * 10) / 10  # 0.49 s do not read as the 0.5 s that are needed
        too_little = (
            f"{counted(measured.steps, 'steps')} in {seconds(rounded_down)} measured{so_far}; "
            f"a verdict needs {LEAST_STEPS} steps and {least:g} s"
        )
    elif measured.input_wait is None and measured.ablation is None and measured.option("train.deterministic"):
        too_little = "train.deterministic hides where the time goes; diagnose without it"
    else:
        too_little = ""
    if too_little:
        return Diagnosis(
            verdict="undecided",
            sentence=f"{label('undecided')}: {too_little}",
            confidence=0.0,
            remedies=[asdict(IN_A_PRESET)] if measured.of_script and measured.outcome is not None else [],
            steps=measured.steps,
            learning=measured.learning.what,
            learning_remedy=measured.learning.remedy,
        )
    every = symptoms(measured)
    loses = any(symptom.rule.rank == LOST_TIME and not symptom.strong for symptom in every)
    sure = every
    # small shares may be chance if too little was measured, or other programs use the CPU: then only strong ones count,
    # and beside a faint loss of time none of rank LIMIT
    if measured.seconds < ENOUGH_SECONDS or measured.crowded:
        sure = [symptom for symptom in every if symptom.strong and not (loses and symptom.rule.rank == LIMIT)]
    decisive = sorted(sure, key=lambda symptom: symptom.order)
    well = not loses and (measured.compute_share or 0.0) >= COMPUTES and device_works(measured)
    verdicts = list(dict.fromkeys(symptom.rule.verdict for symptom in decisive if symptom.rule.rank != SUPPORTING))
    verdict = verdicts[0] if verdicts else "healthy" if well else "undecided"
    mine = [symptom for symptom in decisive if symptom.rule.verdict == verdict]
    return Diagnosis(
        verdict=verdict,
        sentence=_sentence(verdict, measured, mine),
        confidence=_confidence(measured, verdict, mine),
        evidence=[asdict(row) for row in evidence(measured, verdict, mine)],
        others=[other for other in verdicts if other != verdict],
        remedies=[asdict(remedy) for remedy in remedies(measured, verdicts or [verdict])],
        steps=measured.steps,
        learning=measured.learning.what,
        learning_remedy=measured.learning.remedy,
    )


NOT_YET = Diagnosis(verdict="undecided", sentence="No verdict yet", confidence=0.0, steps=0)
FIRST_TO_STAND, OTHER_TO_STAND = 3, 15  # readings, each of 2 s: five verdicts need more than two minutes


class SteadyVerdict:
    """Shows the first verdict after FIRST_TO_STAND readings in a row that have it, another one after OTHER_TO_STAND."""

    def __init__(self) -> None:
        self._shown: Diagnosis | None = None
        self._other, self._stood = "", 0

    def after(self, now: Diagnosis) -> Diagnosis:
        """Return the diagnosis to show after the reading `now`, always with what it says of learning."""
        self._stood = self._stood + 1 if now.verdict == self._other else 1
        self._other = now.verdict
        if self._shown is None and now.verdict == "undecided":
            return now
        least = FIRST_TO_STAND if self._shown is None else OTHER_TO_STAND
        if (self._shown is None or now.verdict != self._shown.verdict) and self._stood < least:
            return replace(self._shown or NOT_YET, learning=now.learning, learning_remedy=now.learning_remedy)
        self._shown = now
        return now


def remedies(measured: Measurements, verdicts: Sequence[str]) -> list[Remedy]:
    """Return the remedies for the verdicts, in the order in which to try them, each change once."""
    chosen: list[Remedy] = []
    for verdict in map(VERDICTS.__getitem__, verdicts):
        for made in verdict.remedies(measured):
            remedy = Remedy(verdict.step, {}, made) if isinstance(made, str) else made
            if remedy.changes not in [earlier.changes for earlier in chosen if earlier.changes]:
                chosen.append(remedy)
    if verdicts[:1] == ["input_bound"] and not any(remedy.step == "input" for remedy in chosen):
        chosen.append(in_the_data(measured))
    chosen = [_within_reach(remedy, measured) for remedy in chosen]
    if measured.of_script and verdicts[:1] == ["undecided"]:
        chosen.append(IN_A_PRESET)
    order = UNDERFILLED_ORDER if verdicts[:1] == ["underfilled"] else ORDER
    return sorted(chosen, key=lambda remedy: (order.index(remedy.step), not remedy.changes))


def _within_reach(remedy: Remedy, s: Measurements) -> Remedy:
    # advice on the user's code if the option has no effect on it
    key, why = next(((key, s.inapplicable[key]) for key in remedy.changes if key in s.inapplicable), ("", ""))
    if not why:
        return remedy
    code = SINGLE_SAMPLES_CODE if remedy.step == "input" and why == own_code.BATCHED and not s.in_script else ()
    stale = why.startswith(own_code.STALE)
    settings = f"; {own_code.remedy(key, why)} with {key}={remedy.changes[key]}" if stale else ""
    return Remedy(remedy.step, {}, f"in your code ({why}): {remedy.reason}{settings}", code=code)


def _sentence(verdict: str, s: Measurements, mine: Sequence[Symptom]) -> str:
    """A further detail is added only if the line then has at most 100 characters."""
    words = label(verdict)
    if verdict == "healthy":
        graph = figures.measurement("compute_share").text(s.compute_share or 0)
        return f"{words}: TensorFlow's graph takes {graph} of the step; gputui has no further option to try"
    if not mine and s.of_script:
        waits = figures.measurement("input_wait")
        wait = "is not known" if s.input_wait is None else f"is {waits.text(s.input_wait)} of the step"
        return f"{words}: the wait for input {wait}, and Monitor measures no other part of a step"
    if not mine:
        crowded = " while other programs use the CPU" if s.crowded else ""
        doubt = " in so short a run" if s.seconds < ENOUGH_SECONDS else crowded
        return f"{words}: no single cause stands out{doubt}"
    whole = f"{words}: {mine[0].rule.text.format(value=mine[0].rule.figure.text(mine[0].value))}"
    longest_first = [whole + ending for ending in VERDICTS[verdict].endings(s)]
    return next((text for text in longest_first if len(text) <= 100), whole)


def _confidence(s: Measurements, verdict: str, mine: Sequence[Symptom]) -> float:
    """Grows with the measured time, the distance from the threshold, and a further measurement that supports it."""
    time = min(1.0, s.seconds / SURE_SECONDS) if s.outcome is None else min(1.0, s.steps / 200)
    distance = 0.5
    if mine:  # 0 at `notable`, 1 at twice `strong` (half of it with `below`)
        rule, most = mine[0].rule, 1.0 if mine[0].rule.figure.unit == "share" else math.inf
        apart = (rule.strong / 2 if rule.below else min(2 * rule.strong, most)) - rule.notable
        distance = min(1.0, max(0.0, (mine[0].value - rule.notable) / apart)) if apart else 1.0
    value = 0.9 * (0.5 + 0.5 * time) * (0.6 + 0.4 * distance) * (0.5 if s.unseen and verdict in HOST_VIEWED else 1.0)
    if s.ablation is not None and s.input_wait is not None:
        value = min(0.99, value / 0.9) if abs(s.ablation - s.input_wait) <= AGREES else value / 2
    elif any(symptom.rule.rank == SUPPORTING for symptom in mine):
        value = min(0.99, value / 0.9)
    return round(min(value, 0.3) if verdict == "undecided" else value, 2)


# ---- evidence -------------------------------------------------------------------------------------


HOST_VIEWED = ("python_overhead", "compute_bound", "healthy")  # by host times if the utilization is unknown


def evidence(s: Measurements, verdict: str, mine: Sequence[Symptom]) -> list[Evidence]:
    """Return rows of evidence, first of the symptoms, then of figures that explain the verdict, each figure once."""
    rows = []
    for symptom in mine:
        rule, value, figure = symptom.rule, symptom.value, symptom.rule.figure
        text, threshold = rule.text.format(value=figure.text(value)), rule.strong if symptom.strong else rule.notable
        rows.append(Evidence(rule.measurement, round(value, 4), figure.unit, threshold, text, rule.source))
    shown = {row.signal for row in rows}
    return rows + [row for row in _explaining(s, verdict) if row.signal not in shown or s.unseen]


def _explaining(s: Measurements, verdict: str) -> list[Evidence]:
    """Rows of figures that have no threshold of their own."""
    rows: list[Evidence] = []
    if s.crowded:
        rows += _row("others_cpu", s.others_cpu, "other programs use {} of the CPU's cores")
    if verdict == "input_bound":
        if (stage := s.slowest_stage) is not None:
            calls = f" with {stage['parallelism']} calls at a time" if (stage.get("parallelism") or 1) > 1 else ""
            rows += _row("stage", stage_ms(stage), f"its slowest stage is {stage['name']}: {{}} per batch{calls}")
        rows += _row("buffer_fill", s.buffer_fill, "the prefetch buffer is {} full")
        rows += _row("trainer_cores", s.trainer_cores, f"the training uses {{}} of {s.cpus or 1} CPUs")
        if s.disk_waited_for:
            rows += _row("disk_reads", s.read_bytes_per_second, "the training reads {} from the disk")
        elif (s.io_wait or 0) >= 0.05:
            rows += _row("io_wait", s.io_wait, "CPUs wait {} of the time for the disk")
    if verdict in ("imbalance", "throttled") and s.slow_gpu is not None:
        causes = _braced("".join(f"; {cause}" for cause in s.slow_gpu_causes))
        text = f"the others wait for GPU {s.slow_gpu}, which is busy {{}} of the time{causes}"
        rows += _row("slow_gpu_busy", s.slow_gpu_busy, text)
    if verdict == "slow_worker":
        text = f"the others wait for {_braced(s.slow_worker)}, which waits {{}} of its steps for its input"
        rows += _row("slow_worker_wait", s.slow_worker_wait, text)
    if verdict == "communication_bound" and s.exchanged:
        text = f"{s.exchanged} pass between the workers on {_braced(', '.join(s.hosts))} in {{}}"
        rows += _row("exchange_ms", s.exchange_ms, text)
    if verdict == "healthy":
        rows += _row("compute_share", s.compute_share, "TensorFlow's graph takes {} of the step")
    if s.unseen and verdict in HOST_VIEWED:
        rows += _row(
            "compute_share",
            s.compute_share,
            "measured on the host alone: the driver reports no utilization "
            "of this GPU, so the graph's {} of the step may include idle time",
        )
    if verdict in ("low_clocks", "bandwidth_bound", "compute_bound", "healthy") and (
        clock := stragglers.clock_evidence(s)
    ):
        rows += _row("sm_clock_mhz", s.sm_clock_mhz, clock)
    if verdict in ("bandwidth_bound", "compute_bound", "healthy", "underfilled", "python_overhead"):
        rows += _row("sm_active", s.sm_active, "the GPU's multiprocessors work {} of the time")
        rows += _row("tensor_active", s.tensor_active, "its tensor cores work {} of the time")
        rows += _row("mfu", s.mfu, "{} of the chip's peak is reached")
    return rows


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _row(name: str, value: float | None, text: str) -> list[Evidence]:
    if value is None:
        return []
    figure = figures.measurement(name)
    return [Evidence(name, round(value, 4), figure.unit, None, text.format(figure.text(value)), "measured")]
