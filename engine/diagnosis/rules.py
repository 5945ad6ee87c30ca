"""Decides from measured figures what limits the speed, with the evidence and what to do about it.

The rules are one table: each line names a figure, the threshold from which it counts, the threshold from which it
decides, and the source. XProf stands for the analysis of TensorFlow's profiler, SageMaker for the rules of SageMaker
Debugger, Kineto for PyTorch's profiler plugin, DCGM for the guide to NVIDIA's Data Center GPU Manager, TF guide for
TensorFlow's guides to GPU and data performance; gputui marks thresholds that were chosen here. Measuring is in
collector.py, the remedies are in remedies.py.

All rules but two judge a run while it trains: `ablation` needs `gputui diagnose --preset` or a proof, which measure
without the input; `communication` needs a profile (--profile there).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from .. import figures
from ..figures import Figure
from ..plan import LEAST_STEPS
from ..runs import Run
from ..runs.events import Diagnosis, Verdict
from ..runs.reading import RunEvents
from ..text import seconds
from .collector import read
from .measurements import (
    CORES_BUSY,
    DISK_WAITED,
    ENOUGH_SECONDS,
    GPU_WORKS,
    SM_FEW,
    Measurements,
    stage_ms,
)
from .remedies import MUCH_PYTHON, for_computing, remedies

FAULT, LOST_TIME, UNUSED, LIMIT, BESIDE = range(5)
LEAST_SECONDS = 0.5  # of a run that has ended: a delay of 20 ms is then 4 %, so that only deciding thresholds count
ENOUGH_WINDOWS = 200  # SageMaker requires more than 10 slow steps, which are 5 % of this many readings
LONG_PAUSE_SECONDS = 10.0  # a pause that counts even if it happened only once
SURE_SECONDS = 10.0
AGREES = 0.10  # ablation and input wait measure the same thing in two ways
HOST_VIEWED = ("python_overhead", "compute_bound", "healthy")  # by host times if the utilization is unknown
COPIES_ALL_THE_TIME = 0.90  # share of the step: with copies ahead of the steps the longer of both decides
COMPUTES = 0.80  # share of the step: the rest is too small to limit the speed


@dataclass(frozen=True)
class Rule:
    """`measurement`, a field of Measurements, counts from `notable` and decides from `strong` on, or below them if
    `below`.

    `rank` orders verdicts: faults, then lost time, then unused devices, then limits; among lost time the largest comes
    first. A supporting rule (BESIDE) finds nothing alone: it explains, and adds confidence to, another finding.
    """

    verdict: Verdict
    measurement: str
    notable: float
    strong: float
    text: str
    source: str
    rank: int
    below: bool = False
    when: Callable[[Measurements], bool] = lambda s: True

    @property
    def figure(self) -> Figure:
        return figures.measurement(self.measurement)

    def value(self, measured: Measurements) -> float | None:
        value = getattr(measured, self.measurement)
        return None if value is None or not self.when(measured) else float(value)

    def passes(self, value: float, threshold: float) -> bool:
        return value < threshold if self.below else value >= threshold


def _gpu_waits(s: Measurements) -> bool:
    """Whether the GPU is ever idle: one that never is loses nothing while the host runs Python.

    Where the utilization is unknown, the GPU may hide Python's time, so only a large share counts.
    """
    if s.unseen:
        return (s.python_share or 0.0) >= MUCH_PYTHON
    return not s.on_gpu or not s.gpu_full


def _copying_shows(s: Measurements) -> bool:
    """Whether steps are longer by the copies: where nothing is copied ahead, or where copying takes all of the time."""
    return not s.device_batches or (s.transfer or 0.0) >= COPIES_ALL_THE_TIME


def _pauses_repeat(s: Measurements) -> bool:
    """Whether there was more than one pause, as a single short evaluation may have been slow by chance."""
    return s.pauses_counted > 1 or (s.pauses or 0.0) * s.seconds >= LONG_PAUSE_SECONDS


def _slow_by_itself(s: Measurements) -> bool:
    """Enough readings for slow steps to be more than chance, no input that they wait for, and no other programs on the
    cores.
    """
    return s.windows >= ENOUGH_WINDOWS and (s.input_wait or 0) < 0.05 and not s.crowded


def _gpu_works(s: Measurements) -> bool:
    return not s.on_gpu or s.gpu_works


RULES: tuple[Rule, ...] = (
    #    verdict, figure, thresholds to count and to decide, sentence, source, rank
    # Traces of the function that runs the steps, with all that it calls; not what XLA compiles for another shape.
    Rule("retracing", "traces", 5, 5, "TensorFlow has traced the step {value} times (usual: 1 or 2)",
         "TF guide (retracing), gputui", FAULT),
    Rule("throttled", "throttled", 0.10, 0.20, "the GPU slows itself down in {value} of the readings",
         "SageMaker (outliers), gputui", FAULT),
    Rule("memory_growing", "memory_growth", 0.05, 0.05, "its memory has grown by {value} of what it may take",
         "SageMaker (mean of 10 readings + 5 points)", FAULT),
    Rule("memory_growing", "host_memory_growth", 0.05, 0.05, "its memory has grown by {value} of the machine's",
         "SageMaker (mean of 10 readings + 5 points)", FAULT),
    Rule("input_bound", "input_wait", 0.05, 0.20, "steps wait {value} of their time for input",
         "XProf (5 and 20 % of the step)", LOST_TIME),
    # Measured only by `gputui diagnose --preset` and by proofs.
    Rule("input_bound", "ablation", 0.05, 0.20, "a step takes {value} less time when its input is ready",
         "TF guide (synthetic input), XProf", LOST_TIME),
    Rule("input_bound", "io_wait", DISK_WAITED, 0.50, "the CPU is idle {value} of the time because of the disk",
         "SageMaker (I/O wait 50 %), gputui", BESIDE, when=lambda s: s.reads_from_disk),
    Rule("input_bound", "cpu", CORES_BUSY, CORES_BUSY, "all CPU cores are busy ({value})",
         "SageMaker (CPU >= 90 %)", BESIDE),
    # XProf counts copies to the device as input.
    Rule("transfer_bound", "transfer", 0.05, 0.20, "copying a batch to the GPU takes {value} of a step's time",
         "XProf (input and its copies: 5 and 20 %), gputui", LOST_TIME, when=_copying_shows),
    Rule("python_overhead", "python_share", 0.03, MUCH_PYTHON, "Python between the steps takes {value} of the time",
         "XProf (rest of the step: 3 and 15 %)", LOST_TIME, when=_gpu_waits),
    # Needs a profile.
    Rule("communication_bound", "communication", 0.03, 0.15, "the exchange of gradients takes {value} of the step",
         "XProf (collectives: 3 and 15 %)", LOST_TIME),
    Rule("stalls", "pauses", 0.15, 0.30, "evaluation and checkpoints take {value} of the time",
         "gputui", LOST_TIME, when=_pauses_repeat),
    Rule("imbalance", "busy_gap", 0.20, 0.50, "the most and the least busy GPU differ by {value} of the time",
         "SageMaker (0.5), gputui", UNUSED, when=lambda s: s.gpus > 1),
    Rule("underfilled", "busy_mean", GPU_WORKS, 0.50, "the GPU is busy {value} of the time",
         "SageMaker (70 %), Kineto (50 %)", UNUSED, below=True, when=lambda s: s.on_gpu),
    # Kernels too small for the chip: some kernel always runs, on few of the multiprocessors.
    Rule("underfilled", "sm_active", SM_FEW, SM_FEW, "the GPU's multiprocessors have work only {value} of the time",
         "DCGM (SM activity below 50 %), gputui", UNUSED, below=True, when=lambda s: s.kernels_run),
    Rule("stalls", "busy_p5", 0.10, 0.10, "the GPU is busy, but at times only {value}",
         "SageMaker (p95 >= 70 %, p5 < 10 %)", UNUSED, below=True, when=lambda s: (s.busy_p95 or 0) >= 0.7),
    Rule("stalls", "uneven", 3, 6, "one step in 20 takes {value} as long as usual, or longer",
         "SageMaker (outliers), gputui", UNUSED, when=_slow_by_itself),
    Rule("memory_limit", "memory_peak", 0.90, 0.97, "tensors took up to {value} of the memory that TensorFlow may take",
         "Kineto (90 %)", LIMIT),
    Rule("compute_bound", "compute_share", COMPUTES, COMPUTES, "TensorFlow's graph takes {value} of the step",
         "TF guide (97 % of synthetic), gputui", LIMIT, when=lambda s: _gpu_works(s) and bool(for_computing(s))),
)
VERDICT_LABELS: Mapping[Verdict, str] = {
    "input_bound": "Input-bound",
    "transfer_bound": "Transfer-bound",
    "python_overhead": "Python overhead",
    "communication_bound": "Communication-bound",
    "stalls": "Stalls",
    "throttled": "Throttled",
    "retracing": "Retracing",
    "memory_growing": "Memory grows",
    "memory_limit": "Memory is at the limit",
    "imbalance": "GPUs are not equally busy",
    "underfilled": "GPU underused",
    "compute_bound": "Compute-bound",
    "healthy": "Healthy",
    "undecided": "Undecided",
}


@dataclass(frozen=True)
class Found:
    """A rule that applies, with its figure."""

    rule: Rule
    value: float

    @property
    def strong(self) -> bool:
        return self.rule.passes(self.value, self.rule.strong)

    @property
    def order(self) -> tuple[bool, bool, int, float]:
        lost = self.value if self.rule.rank == LOST_TIME else 0.0
        return (self.rule.rank == BESIDE, not self.strong, self.rule.rank, -lost)


def of_run(run: Run, found: RunEvents | None = None) -> Diagnosis:
    """The diagnosis of a run folder, running or finished; `found` holds its events where they were already read."""
    return diagnose(read(run, found))


def diagnose(measured: Measurements) -> Diagnosis:
    """The verdict on the present figures, `undecided` where there are too few."""
    too_little = _too_little(measured)
    if too_little:
        return Diagnosis(verdict="undecided", sentence=f"Undecided: {too_little}", confidence=0.0, steps=measured.steps)
    all_found = _findings(measured)
    found = sorted(_sure(all_found) if measured.doubtful else all_found, key=lambda finding: finding.order)
    well = _computes(measured) and not any(map(_faint_loss, all_found))
    verdicts = list(dict.fromkeys(finding.rule.verdict for finding in found if finding.rule.rank != BESIDE))
    verdict: Verdict = verdicts[0] if verdicts else "healthy" if well else "undecided"
    mine = [finding for finding in found if finding.rule.verdict == verdict]
    return Diagnosis(
        verdict=verdict,
        sentence=_sentence(verdict, measured, mine),
        confidence=_confidence(measured, verdict, mine),
        evidence=_all_evidence(measured, verdict, mine),
        others=[other for other in verdicts if other != verdict],
        remedies=[asdict(remedy) for remedy in remedies(measured, verdicts or [verdict])],
        steps=measured.steps,
    )


def _too_little(s: Measurements) -> str:
    least = ENOUGH_SECONDS if s.outcome is None else LEAST_SECONDS
    if s.step_ms is None or s.steps < LEAST_STEPS or s.seconds < least:
        so_far = " so far" if s.outcome is None else ""
        return (f"{s.steps} steps in {seconds(s.seconds)} measured{so_far}; "
                f"a verdict needs {LEAST_STEPS} steps and {least:g} s")
    if s.input_wait is None and s.ablation is None and s.option("train.deterministic"):
        return "train.deterministic hides where the time goes; diagnose without it"
    return ""


def _findings(measured: Measurements) -> list[Found]:
    found = []
    for rule in RULES:
        value = rule.value(measured)
        if value is not None and rule.passes(value, rule.notable):
            found.append(Found(rule, value))
    return found


def _sure(found: Sequence[Found]) -> list[Found]:
    """The findings that decide, where others may be chance. Where time may be lost, computing is not the limit."""
    lost = any(_faint_loss(finding) for finding in found)
    return [finding for finding in found if finding.strong and not (lost and finding.rule.rank == LIMIT)]


def _faint_loss(finding: Found) -> bool:
    return finding.rule.rank == LOST_TIME and not finding.strong


def _computes(s: Measurements) -> bool:
    """Whether computing is nearly all of the step, and the device does it."""
    return s.compute_share is not None and s.compute_share >= COMPUTES and _gpu_works(s)


def _all_evidence(s: Measurements, verdict: Verdict, found: Sequence[Found]) -> list[dict[str, object]]:
    """The figures of the findings, then those that explain them; each once, unless only the host is measured."""
    shown = {finding.rule.measurement for finding in found}
    beside = [row for row in _beside(s, verdict) if row["signal"] not in shown or s.unseen]
    return [*map(_evidence, found), *beside]


def _evidence(finding: Found) -> dict[str, object]:
    rule = finding.rule
    return {
        "signal": rule.measurement,
        "value": round(finding.value, 4),
        "unit": rule.figure.unit,
        "threshold": rule.strong if finding.strong else rule.notable,
        "text": rule.text.format(value=rule.figure.text(finding.value)),
        "source": rule.source,
    }


# ---- supporting evidence ----------------------------------------------------------------------


def _beside(s: Measurements, verdict: Verdict) -> list[dict[str, object]]:
    """Figures without a threshold of their own that explain the verdict."""
    rows: list[dict[str, object]] = []
    if s.crowded:
        rows += _row("others_cpu", s.others_cpu, "other programs use {} of the CPU's cores")
    if verdict == "input_bound":
        rows += _about_input(s)
    if verdict == "healthy":
        rows += _row("compute_share", s.compute_share, "TensorFlow's graph takes {} of the step")
    if s.unseen and verdict in HOST_VIEWED:
        rows += _row("compute_share", s.compute_share, "measured on the host alone: the driver reports no utilization "
                     "of this GPU, so the graph's {} of the step may include idle time")
    if verdict in ("compute_bound", "healthy", "underfilled", "python_overhead"):
        rows += _row("sm_active", s.sm_active, "the GPU's multiprocessors work {} of the time")
        rows += _row("tensor_active", s.tensor_active, "its tensor cores work {} of the time")
        rows += _row("mfu", s.mfu, "{} of the chip's peak is reached")
    return rows


def _about_input(s: Measurements) -> list[dict[str, object]]:
    stage = s.slowest_stage
    rows = []
    if stage is not None:
        calls = f" with {stage['parallelism']} calls at a time" if (stage.get("parallelism") or 1) > 1 else ""
        text = f"its slowest stage is {stage['name']}: {{}} per batch{calls}"
        rows += _row("stage", stage_ms(stage), text)
    rows += _row("buffer_fill", s.buffer_fill, "the prefetch buffer is {} full")
    rows += _row("trainer_cores", s.trainer_cores, f"the training uses {{}} of {s.cpus or 1} CPUs")
    if s.disk_waited_for:
        rows += _row("disk_reads", s.read_bytes_per_second, "the training reads {} from the disk")
    elif (s.io_wait or 0) >= 0.05:
        rows += _row("io_wait", s.io_wait, "CPUs wait {} of the time for the disk")
    return rows


def _row(name: str, value: float | None, text: str) -> list[dict[str, object]]:
    if value is None:
        return []
    figure = figures.measurement(name)
    known = {"signal": name, "value": round(value, 4), "unit": figure.unit, "threshold": None}
    return [known | {"text": text.format(figure.text(value)), "source": "measured"}]


# ---- in words ---------------------------------------------------------------------------------


def _sentence(verdict: Verdict, s: Measurements, found: Sequence[Found]) -> str:
    """One line of at most 100 characters."""
    words = VERDICT_LABELS[verdict]
    if verdict == "healthy":
        graph = figures.measurement("compute_share").text(s.compute_share or 0)
        return f"{words}: TensorFlow's graph takes {graph} of the step; gputui has no further option to try"
    if not found:
        return f"{words}: no single cause stands out{_why_doubtful(s)}"
    whole = f"{words}: {found[0].rule.text.format(value=found[0].rule.figure.text(found[0].value))}"
    endings = _where(s) if verdict == "input_bound" else []
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
