"""proof.json: everything known of a proof so far, replaced as a whole after every change so that viewers can follow it.

Only the proof's process writes it. Readers get plain dicts and treat an unknown value as null. Shares are 0 to 1, gains
are relative (0.42: 42 % more samples per second), `gain_total` is a factor (3.4 times as fast).
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..files.shapes import Fields
from ..files.values import mapping
from ..files.writing import write_atomically
from ..runs import events
from ..runs.events import Stage
from ..system.identity import Place, Process
from ..system.run_clock import steady
from .scaling_record import Scaling
from .search_record import Search
from .trial import FIGURES, Trial, place

KINDS = ("ab", "loop", "diagnosis", "tune", "scaling")
STATES = ("running", "done", "stopped", "failed")
# Decisions of a loop; an `ab` has faster, slower, no difference and undecided instead of the first two.
DECISIONS = ("kept", "rejected", "failed", "running", "stopped")
MACHINE = {
    "system": str, "processor": str | None, "cpus": int | None, "memory_bytes": int | None, "gpus": list[str],
    "no_gpu_reason": str | None, "gputui": str,
}  # fmt: skip
Verdict = Annotated[Mapping[str, Any], Fields(events.Diagnosis)]


@dataclass(kw_only=True)
class Learning:
    """The running loss of both sides after the same number of samples; null where it could not be read."""

    note: str
    samples: int | None = None
    loss_a: float | None = None
    loss_b: float | None = None


@dataclass(kw_only=True)
class Comparison:
    """Side a is the baseline, side b has `changes`."""

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
    """The same training on one repeated batch (side b): the share of the step that the input costs.

    `input_cost` is 1 - time of a step on the repeated batch / time of a real step; `input_wait` is what the real trials
    measured themselves.
    """

    trials: list[Trial]
    input_cost: float | None = None
    input_wait: float | None = None
    stages: Sequence[Stage] = ()
    why: str = ""


@dataclass(kw_only=True)
class Record:
    """A proof; `write` puts it where viewers read it."""

    path: Path
    id: str
    kind: str
    preset_name: str
    repeats: int  # pairs of a comparison, or of a diagnosis' ablation
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
    started_mark: float = field(default_factory=steady)  # the same moment on the steady clock
    seconds: float = 0.0
    budget_seconds: float | None = None  # the least that it takes in all
    budget_most_seconds: float | None = None  # the most, where that is more
    doing: str = ""
    machine: Annotated[Mapping[str, Any], Fields(MACHINE)] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    baseline_trials: list[Trial] = field(default_factory=list)  # in a loop without ablation: its first diagnosis
    ablation: Ablation | None = None
    profile_trial: Trial | None = None
    profile: Mapping[str, Any] | None = None  # engine/profile/reports.py, as plain values
    profile_missing: str = ""  # why there is none although one was requested
    diagnosis: Verdict | None = None  # of the original preset
    comparisons: list[Comparison] = field(default_factory=list)
    before: Mapping[str, float | None] | None = None
    after: Mapping[str, float | None] | None = None  # the changed side of an `ab`, the changes that a loop has kept
    gain_total: float | None = None
    final_verdict: Verdict | None = None
    preset_after: str | None = None
    changes_kept: dict[str, Any] = field(default_factory=dict)
    search: Search | None = None  # of a `tune`
    scaling: Scaling | None = None  # of a `scaling`
    earlier: list[Trial] = field(default_factory=list)  # trials of earlier sittings, until this one has ended
    ended_because: str = ""
    error: str | None = None

    def tell_process(self, process: Process) -> None:
        """Record which process makes the proof, and where."""
        told = process.as_fields() | (process.place.as_fields() if process.place else {})
        for name, value in told.items():
            setattr(self, name, value)

    @property
    def elapsed(self) -> float:
        return steady() - self.started_mark

    def write(self, doing: str | None = None) -> None:
        """The same as `put`; where the disk refuses it now, the next change writes everything."""
        with contextlib.suppress(OSError):
            self.put(doing)

    def put(self, doing: str | None = None) -> None:
        """Replace proof.json; `doing` says in words what happens now. Raises OSError."""
        if doing is not None:
            self.doing = doing
        self.seconds = self.elapsed
        told = events.plain(asdict(self))
        del told["path"]
        write_atomically(self.path, json.dumps(told, indent=1, default=str, allow_nan=False), durable=False)

    @property
    def trials(self) -> list[Trial]:
        """All trials so far, each once: the first comparison may have taken over one of the baseline."""
        ablation = self.ablation.trials if self.ablation else []
        compared = (trial for comparison in self.comparisons for trial in comparison.trials)
        profiled = [self.profile_trial] if self.profile_trial else []
        searched = (trial for trials in self.search.trials for trial in trials) if self.search else ()
        scaled = self.scaling.trials if self.scaling else ()
        found = (*self.baseline_trials, *ablation, *profiled, *searched, *scaled, *compared)
        return list({trial.run: trial for trial in found}.values())


def elapsed_of(data: Mapping[str, Any]) -> float:
    """Seconds since the start of a proof; by the wall clocks where it runs on another machine."""
    place, mark = Place.read(data), data.get("started_mark")
    if mark is not None and place is not None and place.shares_kernel:
        return steady() - float(mark)
    return time.time() - float(data["started_t"])


def medians(trials: Sequence[Trial]) -> dict[str, float | None]:
    """The median of each figure over the successful trials."""
    found: dict[str, float | None] = {}
    for name in FIGURES:
        known = [value for trial in trials if (value := getattr(trial, name)) is not None]
        found[name] = statistics.median(known) if known else None
    return found


def searched(data: Mapping[str, Any]) -> list[Sequence[Mapping[str, Any]]]:
    """The rows of the trials of a search or of a scaling, by what they were measured for."""
    search, scaled = mapping(data.get("search")), mapping(data.get("scaling"))
    groups = (*_list(search.get("candidates")), *_list(search.get("losses")), *_list(scaled.get("points")))
    found = [mapping(one).get("trials") for one in groups]
    return [_list(trials) for trials in found]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def earlier_trials(data: Mapping[str, Any]) -> list[Trial]:
    """All trials of a proof.json; raises ValueError where a row is damaged."""
    try:
        return [Trial(**{name: row[name] for name in Trial.__dataclass_fields__ if name in row}) for row in rows(data)]
    except (LookupError, TypeError, AttributeError) as fault:
        raise ValueError(f"the row of a trial is damaged: {fault!r}") from None


def rows(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows of all trials in a proof.json, in the order of their start, each once."""
    groups = (
        data["baseline_trials"],
        (data.get("ablation") or {}).get("trials") or (),
        [row for row in (data.get("profile_trial"),) if row],
        *searched(data),
        _list(data.get("earlier")),
        *(comparison["trials"] for comparison in data["comparisons"]),
    )
    found = {row["run"]: row for group in groups for row in group}
    return [found[run] for run in sorted(found, key=place)]
