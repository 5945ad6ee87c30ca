"""Prints the progress of a proof: plain lines, or on a terminal one live line with a row above it for each ended trial.

It follows proof.json; the tables at the end are in proof.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from ...engine.figures import Figure, shown
from ...engine.proof import sentences
from ...engine.proof.record import elapsed_of
from ...engine.text import seconds
from ..base.errors import clean


class ProofLines:
    """Tells what is new in a proof each time it is shown."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self._told: set[str] = set()
        self._doing = ""

    def show(self, data: Mapping[str, Any]) -> None:
        for title, trial in trials(data):
            if trial["run"] not in self._told:
                self._told.add(trial["run"])
                self.line(trial_line(title, trial))
        if data.get("diagnosis") and data["kind"] == "loop" and "diagnosis" not in self._told:
            self._told.add("diagnosis")
            self.line(data["diagnosis"]["sentence"])
        for number, comparison in enumerate(data["comparisons"]):
            key = f"comparison {number}"
            if comparison["decision"] != "running" and data["kind"] == "loop" and key not in self._told:
                self._told.add(key)
                self.line(sentences.verdict(comparison))
        if data["doing"] != self._doing and data["state"] == "running":
            self._doing = data["doing"]
            self.doing(data)

    def line(self, text: str) -> None:
        self.out.print(Text(clean(text)), soft_wrap=True)

    def doing(self, data: Mapping[str, Any]) -> None:
        self.line(f"{data['doing']} ...{left(data)}")

    def close(self) -> None:
        pass


class LiveProof(ProofLines):
    """On a terminal: what happens now, and how long it may still take, in one line that stays in place."""

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self._status = out.status("")
        self._status.start()

    def show(self, data: Mapping[str, Any]) -> None:
        super().show(data)
        self.doing(data)

    def doing(self, data: Mapping[str, Any]) -> None:
        gone = elapsed_of(data)
        self._status.update(Text(clean(f"{data['doing']}  {seconds(gone)}{left(data)}"), overflow="ellipsis"))

    def close(self) -> None:
        self._status.stop()


def trials(data: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """All trials with what each of them was, in the order of their start; each once."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for trial in data.get("baseline_trials") or ():
        found[trial["run"]] = ("as it is", trial)
    for trial in (data.get("ablation") or {}).get("trials") or ():
        found[trial["run"]] = ("one repeated batch" if trial["side"] == "b" else "as it is", trial)
    if profiled := data.get("profile_trial"):
        found[profiled["run"]] = ("profiled", profiled)
    for comparison in data["comparisons"]:
        what = sentences.changes(comparison["changes"])
        for trial in comparison["trials"]:
            found.setdefault(trial["run"], (f"{'with' if trial['side'] == 'b' else 'without'} {what}", trial))
    return list(found.values())


def trial_line(title: str, trial: Mapping[str, Any]) -> str:
    """One ended trial in one line."""
    head = f"{trial['run']:<6}{title:<30}"
    if trial["outcome"] != "ok":
        return f"{head} {trial['outcome']}: {trial['error']}"
    known = [figure for figure in shown("trial") if trial.get(figure.key) is not None]
    parts = [
        *(_phrase(figure, trial[figure.key]) for figure in known),
        f"disturbed: {trial['disturbed']}" if trial.get("disturbed") else "",
    ]
    return f"{head} {'  '.join(filter(None, parts))}"


def _phrase(figure: Figure, value: float) -> str:
    """The first, a value without a name, is aligned with those of the other trials."""
    return figure.phrase(value).rjust(0 if figure.name else figure.width + 1 + len(figure.unit))


def left(data: Mapping[str, Any]) -> str:
    """`, about 48 s left`, where that can be said."""
    budget = data.get("budget_seconds")
    if budget is None:
        return ""
    remaining = max(0.0, budget - elapsed_of(data))
    return f", about {seconds(remaining)} left"
