"""Prints the progress of a proof: plain lines, or on a terminal one live line with a row above it for each ended trial.

It follows proof.json; the tables at the end are in proof.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ...engine.figures import Figure, shown
from ...engine.trials import scaling_sentences, sentences
from ...engine.trials.record import Record, elapsed_of
from ...engine.trials.trial import Trial
from ...engine.units import seconds
from ..base.errors import clean
from . import tune
from .console import broken


class ProofLines:
    """Prints the new lines of a proof each time it is shown."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self._told: set[str] = set()
        self._doing = ""

    def show(self, data: Record) -> None:
        search = data.kind == "tune"
        for key, text in tune.news(data) if search else _news(data):
            if key not in self._told:
                self._told.add(key)
                self.line(text)
        if data.doing != self._doing and data.state == "running":
            self._doing = data.doing
            if not search:  # its candidates follow each other in seconds
                self.doing(data)

    def line(self, text: str) -> None:
        self.out.print(Text(self.laid_out(clean(text))), soft_wrap=True)

    def laid_out(self, text: str) -> str:
        return text

    def doing(self, data: Record) -> None:
        self.line(f"{data.doing} ...{left(data)}")

    def close(self) -> None:
        pass


class LiveProof(ProofLines):
    """For a terminal: also shows the present activity and the time left, in one line that stays in place."""

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self._status = out.status("")
        self._status.start()

    def show(self, data: Record) -> None:
        super().show(data)
        self.doing(data)

    def laid_out(self, text: str) -> str:
        return broken(text, self.out.width)

    def doing(self, data: Record) -> None:
        gone = elapsed_of(data)
        self._status.update(Text(clean(f"{data.doing}  {seconds(gone)}{left(data)}"), overflow="ellipsis"))

    def close(self) -> None:
        self._status.stop()


def _news(data: Record) -> Iterator[tuple[str, str]]:
    """Yield a key and a line for each event of the proof so far; the key lets the caller print each line only once."""
    for title, trial in trials(data):
        yield trial.run, trial_line(title, trial)
    if data.kind != "loop":
        return
    if data.diagnosis:
        yield "diagnosis", data.diagnosis["sentence"]
    for number, comparison in enumerate(data.comparisons):
        if comparison.decision != "running":
            yield f"comparison {number}", sentences.verdict(comparison)


def trials(data: Record) -> list[tuple[str, Trial]]:
    """All trials with their titles, in the order of their start, each once."""
    titled: dict[str, tuple[str, Trial]] = {}
    for trial in data.baseline_trials:
        titled[trial.run] = ("as it is", trial)
    for trial in data.ablation.trials if data.ablation else ():
        titled[trial.run] = ("one repeated batch" if trial.side == "b" else "as it is", trial)
    if profiled := data.profile_trial:
        titled[profiled.run] = ("profiled", profiled)
    for title, trial in tune.trials(data):
        titled[trial.run] = (title, trial)
    for point in scaling_sentences.points(data):
        for trial in point.trials:
            titled[trial.run] = (scaling_sentences.replicas(point.replicas), trial)
    for comparison in data.comparisons:
        what = sentences.changes(comparison.changes)
        for trial in comparison.trials:
            titled.setdefault(trial.run, (f"{'with' if trial.side == 'b' else 'without'} {what}", trial))
    return [titled[run] for run in sorted(titled)] if data.kind == "scaling" else list(titled.values())


def trial_line(title: str, trial: Trial) -> str:
    """The line of an ended trial: its run, its title, and its figures or its error."""
    head = f"{trial.run:<6}{title:<30}"
    if not trial.good:
        return f"{head} {trial.outcome}: {trial.error}"
    columns = [figure for figure in shown("trial") if trial.figure(figure.key) is not None]
    parts = [
        *(_phrase(figure, trial.figure(figure.key)) for figure in columns),
        f"disturbed: {trial.disturbed}" if trial.disturbed else "",
    ]
    return f"{head} {'  '.join(filter(None, parts))}"


def _phrase(figure: Figure, value: float) -> str:
    """The figure with its value as text. The figure without a name is aligned to the right, so that the lines of trials
    align.
    """
    return figure.phrase(value).rjust(0 if figure.name else figure.width + 1 + len(figure.unit))


def left(data: Record) -> str:
    """The time left as text, such as `, about 48 s left`; empty if no budget of time is known."""
    budget = data.budget_seconds
    if budget is None:
        return ""
    gone = elapsed_of(data)
    remaining, most = max(0.0, budget - gone), data.budget_most_seconds
    if most is not None:
        return f", about {seconds(remaining)} to {seconds(max(0.0, most - gone))} left"
    return f", {'at most' if data.kind == 'tune' else 'about'} {seconds(remaining)} left"
