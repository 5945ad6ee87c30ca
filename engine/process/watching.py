"""Judges the rules of run.watch by the events of a run: each acts once, at the first event at which it holds."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..options.watch_rules import ENDS, KEY, OF_BYTES, OF_GPUS, SUMS, UNITS, WatchRule
from ..runs import events
from ..runs.events import WatchAnswer
from ..runs.run_state import RunState
from ..telemetry.gpu_totals import GpuTotals
from ..units import HOUR, amount, seconds, with_unit

CONSEQUENCES = {
    "notify": "; a notice is sent",
    "warn": "",
    "stop": "; the run stops",
    "give_way": "; the run stops with a checkpoint and, if it is of the queue, waits there again",
    "pause": "; the run stops with a checkpoint; if it is of the queue, it is held there",
}
BLIND_AFTER = 20  # readings of the host while it trains; figures of GPUs without a value until then will have none


class Watch:
    """The rules of a run, and what they need of its events, which `fold` takes in the order of time. Those before
    `since` (Unix time) are of earlier launches: no rule acts at them. `disk` is shutil.disk_usage of the run folder.
    """

    def __init__(self, rules: Sequence[WatchRule], since: float, disk: Callable[[], Any]) -> None:
        self._rules, self._since, self._disk = list(rules), since, disk
        self._values: dict[WatchRule, deque[tuple[float, float]]] = {rule: deque() for rule in rules}
        self._state, self._totals, self._host_readings = RunState(), GpuTotals(), 0
        self._ends = False  # a rule has ended this launch, and others that would end it wait for the next one
        self._read: set[str] = set()  # figures that have had a value
        self._warned: set[WatchRule] = set()  # that cannot act, as a warning has said

    def fold(self, event: events.Event) -> Iterator[WatchAnswer | events.Warn]:
        """Take an event, and yield what rules do at it."""
        t, resumes = event.t, len(self._state.resumes)
        self._state.fold(event)
        if len(self._state.resumes) > resumes:
            self._ends = False
            self._totals.pause()
            self._values = {rule: deque() for rule in self._rules}
        match event:
            case WatchAnswer():
                self._rules = [rule for rule in self._rules if rule.text != event.rule]
                self._ends = self._ends or event.action in ENDS
            case events.GpuReadings() if self._state.started is not None:
                mine = [gpu for gpu in event.gpus if gpu.uuid in self._state.started.gpus]
                for gpu in mine:
                    self._totals.take(t, gpu)
                busy = [gpu.busy for gpu in mine if gpu.busy is not None]
                yield from self._judge(t, "gpu_busy", statistics.fmean(busy) if busy else None)
                yield from self._judge(t, "throttled", float(any(gpu.throttle for gpu in mine)) if mine else None)
                yield from self._judge(t, "energy", self._totals.energy_wh)
            case events.HostReading():
                yield from self._judge(t, "host_memory", event.memory_used_bytes, event.memory_total_bytes)
                if t >= self._since and any(rule.figure == "disk" for rule in self._rules):
                    usage = self._disk()
                    yield from self._judge(t, "disk", usage.free, usage.total)
                yield from self._judge(t, "cost", 1.0)
                self._host_readings += self._state.has_trained
                if self._host_readings == BLIND_AFTER:
                    yield from self._cannot(t, set(OF_GPUS) - self._read, "there are no readings of the GPUs for it")
            case events.Progress():
                loss = event.loss if event.window_loss is None else event.window_loss
                for name, value in ({"loss": loss} | dict(event.metrics) | {"loss": loss}).items():
                    yield from self._judge(t, name, value, by="progress")
            case events.EpochEnd():
                for name, value in event.metrics.items():
                    yield from self._judge(t, name, value, by="epoch")
                named = {rule.figure for rule in self._rules} - {*UNITS, *event.metrics}
                evaluated = any(name.startswith("val_") for name in event.metrics)
                lacking = {name for name in named if evaluated or not name.startswith("val_")}
                why = f"the training has only the figures {', '.join(event.metrics)}"
                yield from self._cannot(t, lacking, why)

    def _cannot(self, t: float, figures: set[str], why: str) -> Iterator[events.Warn]:
        for rule in self._rules:
            if ("energy" if rule.per == "kwh" else rule.figure) in figures and rule not in self._warned:
                self._warned.add(rule)
                if t >= self._since:
                    yield events.Warn(kind="no_watch", message=f"{rule.text}: it cannot act, as {why}", option=KEY)

    def _judge(
        self, t: float, figure: str, value: float | None, whole: int | None = None, by: str = ""
    ) -> Iterator[WatchAnswer]:
        """`whole` is what a share is of, and `by` the kind of the event of a figure of the training."""
        if value is None or not (self._state.has_trained or figure in SUMS):
            return
        self._read.add(figure)
        for rule in [rule for rule in self._rules if rule.figure == figure]:
            if by and (by == "epoch") != (rule.epochs > 0 or figure.startswith("val_")):
                continue
            judged = value / whole if rule.is_share and whole else value
            if figure == "cost":
                kwh = (self._totals.energy_wh or 0.0) / 1000
                judged = rule.price * (self._state.moment(t) / HOUR if rule.per == "hour" else kwh)
            why = self._holds(rule, t, judged)
            if why and t >= self._since and not (self._ends and rule.action in ENDS):
                self._rules.remove(rule)
                self._ends = self._ends or rule.action in ENDS
                message = f"{rule.text}: {figure} {why}{CONSEQUENCES[rule.action]}"
                yield WatchAnswer(
                    rule=rule.text, action=rule.action, figure=figure, value=judged,
                    step=int(self._state.step) or None, message=message,
                )  # fmt: skip

    def _holds(self, rule: WatchRule, t: float, value: float) -> str:
        """Keep the value for the rule. Return in words what it has reached; empty if the rule does not hold."""
        kept, bound, what = self._values[rule], rule.bound, f"is {_text(rule, value)}"
        if rule.test.startswith("no "):
            sign = -1 if rule.test == "no higher" else 1
            epochs = [(each, of) for each in self._state.epochs if (of := each.metrics.get(rule.figure)) is not None]
            (best, best_value), (last, _) = min(epochs, key=lambda each: sign * each[1]), epochs[-1]
            is_due = last.number - best.number >= rule.epochs
            return f"{what} in epoch {last.number}, and was {amount(best_value)} in epoch {best.number}" * is_due
        kept.append((t, value))
        if rule.median_of:
            *before, _ = (each for _, each in kept)
            if len(before) < rule.median_of:
                return ""
            kept.popleft()
            bound *= statistics.median(before)
            what += f", and {amount(rule.bound)} x the median of {len(before)} values is {amount(bound)}"
        elif rule.seconds or rule.epochs:
            while (len(kept) > rule.epochs) if rule.epochs else (len(kept) > 1 and kept[1][0] <= t - rule.seconds):
                kept.popleft()
            if len(kept) < rule.epochs or kept[0][0] > t - rule.seconds:
                return ""
            value = statistics.fmean(each for _, each in kept)
            what = f"was {_text(rule, value)} over {f'{rule.epochs} epochs' if rule.epochs else seconds(rule.seconds)}"
        else:
            kept.clear()
        return what * (value < bound if rule.test == "<" else value > bound)


def _text(rule: WatchRule, value: float) -> str:
    unit = "share" if rule.is_share else "bytes" if rule.figure in OF_BYTES else "Wh" if rule.figure == "energy" else ""
    return with_unit(value, unit)
