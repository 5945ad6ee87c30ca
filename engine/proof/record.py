"""proof.json: everything that is known of a proof so far. Replaced as a whole after every change, so viewers follow it.

One writer, the proof's process; readers get plain dicts and take an unknown value as null. Shares are 0 to 1, gains
are relative (0.42: 42 % more samples a second), `gain_total` is a factor (3.4: so many times as fast).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..files.shapes import Fields
from ..files.writing import write_atomically
from ..runs import events
from ..system.identity import Place, Process
from ..system.run_clock import steady

KINDS = ("ab", "loop", "diagnosis")
STATES = ("running", "done", "stopped", "failed")
# Of a comparison in a loop; an `ab` has faster, slower, no difference and undecided instead of the first two.
DECISIONS = ("kept", "rejected", "failed", "running", "stopped")
Verdict = Annotated[Mapping[str, Any], Fields(events.Diagnosis)]
FIGURES = ("samples_per_second", "step_ms", "input_wait", "peak_memory_bytes", "gpu_busy_mean")


@dataclass(kw_only=True)
class Trial:
    """One measured training; `run` is its folder under trials/. A trial that died has its outcome and `error`.

    Speeds are means over all measured steps: a median would hide the stalls that a change brings or takes away.
    """

    side: str
    repeat: int
    run: str
    outcome: str
    samples_per_second: float | None = None
    step_ms: float | None = None
    input_wait: float | None = None
    peak_memory_bytes: int | None = None
    gpu_busy_mean: float | None = None
    loss_at_samples: float | None = None
    seconds: float = 0.0
    error: str | None = None
    disturbed: str = ""  # who else used the trial's devices or cores

    @property
    def good(self) -> bool:
        return self.outcome == "ok"


@dataclass(kw_only=True)
class Learning:
    """The running loss of both sides after the same number of samples; null where it could not be read."""

    note: str
    samples: int | None = None
    loss_a: float | None = None
    loss_b: float | None = None


@dataclass(kw_only=True)
class Comparison:
    """Side a as it was, side b with `changes`."""

    changes: Mapping[str, Any]
    reason: str = ""
    expected_gain: float | None = None
    step: str = ""
    verdict_before: str | None = None
    trials: list[Trial] = field(default_factory=list)
    gain: float | None = None
    spread: float | None = None
    decision: str = "running"
    why: str = ""
    learning: Learning | None = None

    def good(self, side: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.side == side and trial.good]


@dataclass(kw_only=True)
class Ablation:
    """The same training on one batch, prepared once (side b): what of the step vanishes with the input.

    `input_cost` is 1 - time of a step on the cached batch / time of a real step; `input_wait` is what the real trials
    told themselves.
    """

    trials: list[Trial]
    input_cost: float | None = None
    input_wait: float | None = None
    stages: Sequence[events.Stage] = ()
    why: str = ""


@dataclass(kw_only=True)
class Record:
    """A proof; `write` puts it where viewers read it."""

    path: Path
    id: str
    kind: str
    preset_name: str
    repeats: int  # pairs of a comparison; of a diagnosis those of its ablation
    measure_seconds: float
    preset_before: str
    limit_seconds: float | None = None
    state: str = "running"
    pid: int | None = None
    start_ticks: int | None = None
    host: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    started_t: float = field(default_factory=time.time)
    started_mark: float = field(default_factory=steady)  # the same moment by the clock that nobody can set
    seconds: float = 0.0
    budget_seconds: float | None = None
    doing: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    baseline_trials: list[Trial] = field(default_factory=list)  # of a loop without ablation: its first diagnosis
    ablation: Ablation | None = None
    profile_trial: Trial | None = None
    profile: Mapping[str, Any] | None = None  # engine/profile/reports.py, as plain values
    profile_missing: str = ""  # why there is none although one was asked for
    diagnosis: Verdict | None = None  # of the preset as it was
    comparisons: list[Comparison] = field(default_factory=list)
    before: Mapping[str, float | None] | None = None
    after: Mapping[str, float | None] | None = None  # of an `ab` its changed side, of a loop what was kept
    gain_total: float | None = None
    final_verdict: Verdict | None = None
    preset_after: str | None = None
    changes_kept: dict[str, Any] = field(default_factory=dict)
    ended_because: str = ""
    error: str | None = None

    def tell_process(self, process: Process) -> None:
        """Who makes the proof, and where."""
        told = process.as_fields() | (process.place.as_fields() if process.place else {})
        for name, value in told.items():
            setattr(self, name, value)

    @property
    def elapsed(self) -> float:
        return steady() - self.started_mark

    def write(self, doing: str | None = None) -> None:
        """Replace proof.json; `doing` says in words what happens now."""
        if doing is not None:
            self.doing = doing
        self.seconds = self.elapsed
        told = events.plain(asdict(self))
        del told["path"]
        write_atomically(self.path, json.dumps(told, indent=1, default=str, allow_nan=False), durable=False)

    @property
    def trials(self) -> list[Trial]:
        """All trials so far, each once: the first comparison may have taken over a baseline's."""
        ablation = self.ablation.trials if self.ablation else []
        compared = (trial for comparison in self.comparisons for trial in comparison.trials)
        profiled = [self.profile_trial] if self.profile_trial else []
        found = (*self.baseline_trials, *ablation, *profiled, *compared)
        return list({trial.run: trial for trial in found}.values())


def elapsed_of(data: Mapping[str, Any]) -> float:
    """Seconds since the beginning of a proof; where it runs on another machine, by the wall clocks."""
    place, mark = Place.read(data), data.get("started_mark")
    if mark is not None and place is not None and place.shares_kernel:
        return steady() - float(mark)
    return time.time() - float(data["started_t"])


def medians(trials: Sequence[Trial]) -> dict[str, float | None]:
    """Each figure's median over trials that were measured."""
    found: dict[str, float | None] = {}
    for name in FIGURES:
        known = [value for trial in trials if (value := getattr(trial, name)) is not None]
        found[name] = statistics.median(known) if known else None
    return found
