"""Judges the rules of run.watch by the events of a run: each acts once, at the first event at which it holds."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..options.watch_rules import ENDS, KEY, OF_GPUS, SUMS, WatchRule
from ..runs import events
from ..runs.events import WatchAnswer
from ..runs.run_state import RunState
from ..telemetry.gpu_totals import GpuTotals
from ..units import HOUR, amount, seconds, share, size

CONSEQUENCES = {
    "notify": "a notice is sent",
    "warn": "",
    "stop": "the run stops",
    "give_way": "the run stops with a checkpoint and, if it is of the queue, waits there again",
    "pause": "the run stops with a checkpoint; if it is of the queue, it is held there",
}

BLIND_SECONDS = 60.0  # of training; figures of GPUs without a value until then will have none


class Watch:
    """The rules of a run, and what they need of its events, which `fold` takes in the order of time. Those before
    `since` (Unix time) are of earlier launches: no rule acts at them. `disk` is shutil.disk_usage of the run folder.
    """

    def __init__(self, rules: Sequence[WatchRule], since: float, disk: Callable[[], Any]) -> None:
        self._rules, self._since, self._disk = list(rules), since, disk
        self._values: dict[WatchRule, deque[tuple[float, float]]] = {rule: deque() for rule in rules}
        self._state, self._totals = RunState(), GpuTotals()
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
            case events.Started() if not event.gpus:
                yield from self._cannot(t, set(OF_GPUS), "the training runs on no GPU")
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
                if (since := self._state.trains_since) is not None and self._state.moment(t) > since + BLIND_SECONDS:
                    yield from self._cannot(t, set(OF_GPUS) - self._read, "there are no readings of it")
            case events.Progress():
                loss = event.loss if event.window_loss is None else event.window_loss
                yield from self._judge(t, "loss", loss, by="progress")
                for name in [name for name in event.metrics if name != "loss"]:
                    yield from self._judge(t, name, event.metrics[name], by="progress")
            case events.EpochEnd():
                for name, value in event.metrics.items():
                    yield from self._judge(t, name, value, by="epoch")
                named = {rule.figure for rule in self._rules if rule.of_training} - event.metrics.keys()
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
        for rule in [rule for rule in self._rules if rule.figure == figure]:
            is_of_epochs = bool(rule.epochs) or figure.startswith("val_")
            if value is None or (by and (by == "epoch") != is_of_epochs):
                continue
            self._read.add(figure)
            judged = value / whole if rule.is_share and whole else value
            if figure == "cost":
                kwh = (self._totals.energy_wh or 0.0) / 1000
                judged = rule.price * (self._state.moment(t) / HOUR if rule.per == "hour" else kwh)
            why = self._holds(rule, t, judged)
            held_back = self._ends and rule.action in ENDS
            if why and not held_back and t >= self._since and (self._state.has_trained or figure in SUMS):
                self._rules.remove(rule)
                self._ends = self._ends or rule.action in ENDS
                message = "; ".join(filter(None, (f"{rule.text}: {why}", CONSEQUENCES[rule.action])))
                yield WatchAnswer(
                    rule=rule.text, action=rule.action, figure=figure, value=judged,
                    step=int(self._state.step) or None, message=message,
                )  # fmt: skip

    def _holds(self, rule: WatchRule, t: float, value: float) -> str:
        """Keep the value for the rule. Return in words what it has reached; empty if the rule does not hold."""
        kept, now = self._values[rule], f"{rule.figure} is {_text(rule, value)}"
        if rule.test.startswith("no "):
            return self._no_better(rule, value)
        if rule.median_of:
            before = [each for _, each in kept]
            kept.append((t, value))
            if len(before) < rule.median_of:
                return ""
            kept.popleft()
            middle = statistics.median(before)
            return f"{now}, and the median of {len(before)} values {amount(middle)}" * _is_beyond(
                rule, value, rule.bound * middle
            )
        if not (rule.seconds or rule.epochs):
            return now * _is_beyond(rule, value, rule.bound)
        if not self._state.has_trained:
            return ""
        kept.append((t, value))
        while (len(kept) > rule.epochs) if rule.epochs else (len(kept) > 1 and kept[1][0] <= t - rule.seconds):
            kept.popleft()
        is_whole = len(kept) == rule.epochs if rule.epochs else kept[0][0] <= t - rule.seconds
        mean = statistics.fmean(each for _, each in kept)
        over = f"{rule.epochs} epochs" if rule.epochs else seconds(rule.seconds)
        return f"{rule.figure} was {_text(rule, mean)} over {over}" * (is_whole and _is_beyond(rule, mean, rule.bound))

    def _no_better(self, rule: WatchRule, value: float) -> str:
        sign = -1 if rule.test == "no higher" else 1
        values = [(each.number, at) for each in self._state.epochs if (at := each.metrics.get(rule.figure)) is not None]
        best = min(values, key=lambda each: sign * each[1])  # of equal ones the first
        last = values[-1][0]
        if last - best[0] < rule.epochs:
            return ""
        return f"{rule.figure} is {amount(value)} in epoch {last}, and was {amount(best[1])} in epoch {best[0]}"


def _is_beyond(rule: WatchRule, value: float, bound: float) -> bool:
    return value < bound if rule.test == "<" else value > bound


def _text(rule: WatchRule, value: float) -> str:
    if rule.is_share:
        return share(value)
    if rule.figure in ("disk", "host_memory"):
        return size(value)
    return f"{amount(value)} Wh" if rule.figure == "energy" else amount(value)
