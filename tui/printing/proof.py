"""Prints the tables of a proof: its trials, its comparisons, before and after, and the sentence with the result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from ...engine.figures import Figure, shown
from ...engine.text_table import Table
from ...engine.trials import (
    proof_sentences,
    rate_sentences,
    scaling_sentences,
    sweep_groups,
    sweep_sentences,
    trial_tables,
)
from ...engine.trials.rate_record import RateTest
from ...engine.trials.record import Record, elapsed_of
from ...engine.trials.sweep_record import PROOF, SEARCH, Sweep
from ...engine.trials.trial import Trial
from ...engine.units import amount, seconds, share, size
from ..base.errors import clean
from ..drawing import interval_bar, proof_comparisons
from ..drawing import sweep as drawing
from . import diagnosis, tune
from .diagnosis import show, show_stages
from .interval_table import show_with_bars
from .plain_tables import broken, say, show_table


def show_list(proofs: Sequence[Record], sizes: Mapping[str, int]) -> None:
    """Print all proofs, one row per proof. `sizes` has the size of each proof's folder in bytes, by id."""
    rows = [
        [
            proof.id,
            proof.kind,
            proof.state,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(proof.started_t)),
            seconds(proof.seconds),
            size(sizes.get(proof.id)),
            proof_sentences.conclusion(proof) if proof.state != "running" else proof.doing,
        ]
        for proof in proofs
    ]
    show_table(Table(["proof", "kind", "state", "started", "time", "size", "result"], rows))


def show_trials(data: Record) -> None:
    table = (
        trial_tables.trials(trials(data), head="") if data.sweep is None else sweep_sentences.trials_table(data.sweep)
    )
    if table.rows:
        show_table(table)
        print()


def show_result(data: Record, was_followed: bool = False) -> None:
    """Print a proof's tables, then sentences, last the conclusion (a search's came first). With `was_followed`, what
    its lines have said is left out."""
    if data.kind == "diagnosis" and data.diagnosis:
        show(data.diagnosis)
        print()
    if data.ablation and data.ablation.stages:
        show_stages(data.ablation.stages)
        print()
    if data.profile_trial:
        print("\n".join(_profile(data)), end="\n\n")
    if data.kind in ("loop", "ab") and data.comparisons:
        bars = [proof_comparisons.interval(comparison) for comparison in data.comparisons]
        show_with_bars(trial_tables.comparisons(data.comparisons), bars, after=2)
        print()
    if data.kind == "tune":
        tune.show_tables(data, was_followed)
    if data.kind == "scaling":
        _show_scaling(data)
    if data.rate is not None:
        _show_rate(data.rate)
    if data.sweep is not None:
        _show_sweep(data.sweep)
    if data.kind not in ("diagnosis", "scaling") and data.before:
        show_table(_before_and_after(data))
        print()
    if data.kind == "tune":
        tune.show_words(data, was_followed)
    for comparison in data.comparisons:
        if comparison.learning:
            say(proof_sentences.learned(comparison.learning))
    if data.kind != "tune":
        show_answer(data)


def show_answer(data: Record) -> None:
    """Print the conclusion, after the sentences that limit it or, of a search, first."""
    if proof_sentences.only_predicts(data):
        say(proof_sentences.conclusion(data))
        return
    ended = f"ended because: {data.ended_because}" if data.ended_because and data.state != "running" else ""
    answer = f"running: {data.doing}" if data.state == "running" else proof_sentences.result(data)
    limits = [line for line in (proof_sentences.disturbance(data), ended) if line]
    for line in (answer, *limits) if data.kind == "tune" else (*limits, answer):
        say(line)
    for remedy in data.advice if data.state != "running" else ():
        say(f"advice: {remedy['reason']}")
    diagnosis.show_code(data.advice if data.state != "running" else ())


def _show_scaling(data: Record) -> None:
    """One row for each number of replicas, and what limits the scaling."""
    table = trial_tables.scaling(data)
    if table.rows:
        bars = [interval_bar.around(point.efficiency, point.spread) for point in scaling_sentences.points(data)]
        show_with_bars(table, bars, scaling_sentences.HEAD.index("spread"), zero=1.0, label=share)
        say(scaling_sentences.about(data))
        print()
    for line in scaling_sentences.remarks(data):
        say(line)


def _show_rate(test: RateTest) -> None:
    # Its chart is drawn before.
    if text := rate_sentences.suggestion(test):
        say(f"{text} ({rate_sentences.SOURCE})")
    if rows := rate_sentences.trial_rows(test):
        show_table(Table(list(rate_sentences.HEAD), rows))
        print()


def _show_sweep(sweep: Sweep) -> None:
    """The settings of the search and of the proof with their values, and what the selection has cost."""
    for part, head in ((SEARCH, "in the search"), (PROOF, "on fresh seeds")):
        table = sweep_sentences.groups_table(sweep, part)
        if table.rows:
            say(f"{head}:")
            groups = sweep_groups.in_order(sweep.trials, sweep.settings.higher, part)
            bars = [drawing.interval(group) for group in groups]
            show_with_bars(table, bars, after=2, zero=drawing.reference(groups), label=amount)
            print()
    for text in filter(None, (sweep_sentences.saved(sweep), sweep_sentences.luck(sweep))):
        say(text)


def _profile(data: Record) -> list[str]:
    report = proof_sentences.profile_of(data)
    return (
        diagnosis.lines(report)
        if report is not None
        else [clean(line) for line in proof_sentences.profile_in_brief(data)]
    )


def _before_and_after(data: Record) -> Table:
    # The second column is missing if a loop or a search has kept no change.
    table = trial_tables.before_and_after(data, ("without", "with") if data.kind == "ab" else ("before", "after"))
    if data.kind in ("loop", "tune") and not data.after:
        return Table(["median", "as it is"], [row[:2] for row in table.rows], right=[1])
    return table


# ---- while it is measured -------------------------------------------------------------------------


class ProofLines:
    """Prints the new lines of a proof at each call of `show`."""

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
    """Prints the new lines of a proof on a terminal, and shows its present activity and the time left in the last line,
    which is written again each time."""

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
    """Yield a key, by which the caller prints each event only once, and its line."""
    for title, trial in trials(data):
        yield trial.run, trial_line(title, trial)
        yield from tune.disturbances([trial])
    if data.sweep is not None:
        yield from sweep_sentences.news(data.sweep)
    if data.kind != "loop":
        return
    if data.diagnosis:
        yield "diagnosis", data.diagnosis["sentence"]
    for number, comparison in enumerate(data.comparisons):
        if comparison.decision != "running":
            yield f"comparison {number}", proof_sentences.verdict(comparison)


def trials(data: Record) -> list[tuple[str, Trial]]:
    """Return all trials with their titles, each once, in the order of their start."""
    titled: dict[str, tuple[str, Trial]] = {}
    for trial in data.baseline_trials:
        titled[trial.run] = ("as it is", trial)
    for trial in data.ablation.trials if data.ablation else ():
        titled[trial.run] = ("one repeated batch" if trial.side == "b" else "as it is", trial)
    if profiled := data.profile_trial:
        titled[profiled.run] = ("profiled", profiled)
    for title, trial in tune.trials(data):
        titled[trial.run] = (title, trial)
    for title, trial in rate_sentences.titled(data.rate) if data.rate else ():
        titled[trial.run] = (title, trial)
    for point in scaling_sentences.points(data):
        for trial in point.trials:
            titled[trial.run] = (scaling_sentences.what(point, scaling_sentences.is_of_copies(data)), trial)
    for comparison in data.comparisons:
        what = proof_sentences.changes(comparison.changes)
        for trial in comparison.trials:
            titled.setdefault(trial.run, (f"{'with' if trial.side == 'b' else 'without'} {what}", trial))
    return [titled[run] for run in sorted(titled)] if data.kind == "scaling" else list(titled.values())


def trial_line(title: str, trial: Trial) -> str:
    """Return the line of an ended trial: its run, its title, and its figures or, if it has failed, its outcome and its
    error."""
    head = f"{trial.run:<6}{title:<30}"
    if not trial.good:
        return f"{head} {trial.outcome}: {trial.error}"
    columns = [figure for figure in shown("trial") if trial.figure(figure.key) is not None]
    parts = [
        *(_phrase(figure, trial.figure(figure.key)) for figure in columns),
        "disturbed" if trial.disturbed else "",
    ]
    return f"{head} {'  '.join(filter(None, parts))}"


def _phrase(figure: Figure, value: float) -> str:
    # In a constant width, so that the lines of trials align.
    return figure.phrase(value).rjust(0 if figure.name else figure.width + 1 + len(figure.unit))


def left(data: Record) -> str:
    """Return the time left as text, such as `, about 48 s left`. Empty if the proof has no time limit."""
    budget = data.budget_seconds
    if budget is None:
        return ""
    gone = elapsed_of(data)
    remaining, most = max(0.0, budget - gone), data.budget_most_seconds
    if most is not None:
        return f", about {seconds(remaining)} to {seconds(max(0.0, most - gone))} left"
    return f", {'at most' if data.kind == 'tune' else 'about'} {seconds(remaining)} left"
