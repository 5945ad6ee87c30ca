"""The proof itself: diagnosis, its first remedy, a comparison, keep or reject, and again.

Separates the order of things from how one comparison is measured (comparing.py). One change at a time; what is kept
becomes the baseline of all that follows, and its own trials are diagnosed anew; what was rejected is not tried again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from .. import signals
from ..diagnosis import diagnose
from ..machine import Machine
from ..presets import Preset, PresetError
from ..runs import Tail
from . import ablation, estimate, learning, pairs, profiling
from .comparing import BaselineFailed, Comparing, Stopped
from .picking import Picking, flat
from .record import Comparison, Record, Trial, medians
from .request import Request, conflict
from .trial import Bench, with_changes


class Prover:
    """Carries out one request on a bench, and keeps the record true after every step."""

    def __init__(self, request: Request, record: Record, bench: Bench, machine: Machine) -> None:
        self.request, self.record, self.bench, self.machine = request, record, bench, machine
        self.best = request.baseline()
        self.diagnosis: Mapping[str, Any] = {}
        self._picking = Picking()
        self._fresh: Trial | None = None  # a trial of `best` that nothing has been compared with yet
        self._planned = estimate.sure_trials(request)

    def prove(self) -> None:
        """All of it; raises Stopped and BaselineFailed."""
        self.record.write("measuring how it is now")
        if self.request.kind == "ab":
            self._change()
            return
        self._begin()
        if self.request.kind == "loop":
            self._remedies()

    # ---- a change that was asked for --------------------------------------------------------------

    def _change(self) -> None:
        comparison = Comparison(changes=self.request.changes, reason="asked for")
        decision = self._compare(comparison, with_changes(self.best, self.request.changes))
        if decision:
            comparison.decision, comparison.why = decision
        if comparison.decision == "faster":
            self._keep(comparison)
        elif comparison.good("b"):
            self.record.after = medians(comparison.good("b"))

    # ---- how it is now ----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Measure the baseline, with the ablation where it was asked for, and diagnose it."""
        trial = self._ablation() if self.request.ablation_repeats else self._baseline()
        communication = profiling.measure(self.bench, self.best, trial, self.record) if self.request.profile else None
        input_cost = self.record.ablation.input_cost if self.record.ablation else None
        self.diagnosis = self._diagnosed(trial, input_cost, communication)
        self.record.diagnosis = self.diagnosis
        self.record.before = self.record.after = medians([trial])
        self.record.write()

    def _ablation(self) -> Trial:
        return ablation.measure(self.bench, self.best, self.request.ablation_repeats, self.record, self._tell)

    def _baseline(self) -> Trial:
        """One good trial of the settings as they are; the first comparison takes it for its first."""
        for _ in range(2):
            trial = self.bench.measure(self.best, "a", 1)
            self.record.baseline_trials.append(trial)
            self._tell("")
            if self.bench.stop.count:
                raise Stopped
            if trial.good:
                self._fresh = trial
                return trial
        raise BaselineFailed(f"the training could not be measured, twice; the last was {trial.outcome}: {trial.error}")

    def _diagnosed(
        self, trial: Trial, input_cost: float | None = None, communication: float | None = None
    ) -> dict[str, Any]:
        """The verdict on a trial, as if it had been the real run: its own epoch has no end."""
        known = signals.read(self.bench.run_of(trial))
        told = replace(known, options=flat(self.best), ablation=input_cost, communication=communication)
        found = asdict(diagnose(told))
        self.record.final_verdict = {name: found[name] for name in ("verdict", "sentence")}
        return found

    # ---- the loop ---------------------------------------------------------------------------------

    def _remedies(self) -> None:
        while untried := self._picking.untried(self.diagnosis, self.best):
            ready = 1 if self._fresh else 0
            self._planned = len(self.record.trials) + 2 * self.request.repeats * len(untried) - ready
            if not self._time_left():
                minutes = (self.request.limit_seconds or 0) / 60
                self.record.ended_because = f"the time budget of {minutes:g} min does not allow another comparison"
                return
            self._picking.tried(untried[0])
            self._try(untried[0])
        self.record.ended_because = "no remedy is left"

    def _time_left(self) -> bool:
        limit = self.request.limit_seconds
        needed = estimate.remaining_seconds(self.record, 2 * self.request.repeats)
        return limit is None or time.time() - self.record.started_t + needed <= limit

    def _try(self, remedy: Mapping[str, Any]) -> None:
        comparison = Comparison(
            changes=remedy["changes"],
            reason=remedy["reason"],
            expected_gain=remedy.get("expected_gain"),
            step=remedy.get("step") or "",
            verdict_before=self.diagnosis["verdict"],
        )
        try:
            changed = with_changes(self.best, remedy["changes"])
            why = conflict(changed, self.request, self.machine)
        except PresetError as fault:
            why = fault.problems[0].message
        if why:
            comparison.decision, comparison.why = "failed", why
            self.record.comparisons.append(comparison)
            return
        decision = self._compare(comparison, changed, bool(remedy.get("changes_learning")))
        if decision:
            comparison.decision, comparison.why = ("kept" if decision[0] == "faster" else "rejected"), decision[1]
        if comparison.decision == "kept":
            self._keep(comparison)
            self.best = changed
            self.diagnosis = self._diagnosed(ablation.middle(comparison.good("b")))
        self.record.write()

    # ---- shared -----------------------------------------------------------------------------------

    def _compare(
        self, comparison: Comparison, changed: Preset, changes_learning: bool = False
    ) -> tuple[str, str] | None:
        """Measure; `faster` and so on with why, or None for a comparison that has failed and says so."""
        self.record.comparisons.append(comparison)
        comparing = Comparing(
            self.bench, comparison, self.best, changed, self.request.repeats, self._tell, first_a=self._fresh
        )
        self._fresh = None
        try:
            gains = comparing.measure()
        finally:
            self._note_learning(comparison, changed, changes_learning)
            if comparison.good("a") and not any(one.trials for one in self.record.comparisons[:-1]):
                self.record.before = self.record.after = medians(comparison.good("a"))
        return None if comparison.decision == "failed" else pairs.verdict(gains)

    def _note_learning(self, comparison: Comparison, changed: Preset, says_so: bool) -> None:
        said = learning.note(comparison.changes, changed.options, says_so)
        good = comparison.good("a") + comparison.good("b")
        if said and comparison.good("a") and comparison.good("b"):
            comparison.learning = learning.compare(said, good, self.bench.folder)

    def _keep(self, comparison: Comparison) -> None:
        """The change is part of the result; gains multiply, each measured in turn with its own baseline."""
        record = self.record
        record.changes_kept |= dict(comparison.changes)
        record.after = medians(comparison.good("b"))
        record.gain_total = (record.gain_total or 1.0) * (1 + (comparison.gain or 0.0))
        record.preset_after = with_changes(self.request.baseline(), record.changes_kept).to_yaml()

    def _tell(self, doing: str) -> None:
        """After every trial and before the next: what is known, what happens now, how long it may take."""
        if not doing:
            self._versions()
        left = estimate.remaining_seconds(self.record, max(0, self._planned - len(self.record.trials)))
        self.record.budget_seconds = time.time() - self.record.started_t + left
        self.record.write(doing or None)

    def _versions(self) -> None:
        """Once, from a trial's own account."""
        if not self.record.versions:
            told = Tail(self.bench.run_of(self.record.trials[-1]).file("events.jsonl")).read()
            started = next((event for event in told if event["type"] == "started"), {})
            self.record.versions = started.get("versions", {})
