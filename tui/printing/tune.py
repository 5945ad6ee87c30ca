"""Prints a search: a line for each event while it runs, and at the end its tables, memory, losses and next steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...engine import figures
from ...engine.trials import proof_sentences
from ...engine.trials.record import Comparison, Record, search_of
from ...engine.trials.search_record import Candidate, LossCheck
from ...engine.trials.trial import Trial
from ...engine.tune.report import memory_sentences, search_sentences, search_tables
from ...engine.tune.report.search_results import WITHOUT_INPUT, brought, limits_of, memory_of, ranked
from ...engine.units import change, count
from ..drawing import proof_comparisons
from ..drawing import tune as drawing
from .interval_table import show_with_bars
from .plain_tables import say, show_table

ABOUT_INPUT = f"{WITHOUT_INPUT} {search_sentences.ABOUT_INPUT}"
_SPEED = figures.of_run("samples_per_second")


def show_tables(data: Record, was_followed: bool) -> None:
    """Print the candidates, the best first, unless followed, and the gain of each option."""
    candidates = ranked(data)
    if not candidates:
        return
    if not was_followed:
        show_table(search_tables.leaderboard(data))
        if any(candidate.gain is not None for candidate in candidates):
            say(search_sentences.about_gains(candidates))
        if any(map(search_tables.is_marked, candidates)):
            say(ABOUT_INPUT)
        print()
    table, bars = search_tables.options(data, together=True), [drawing.interval(option) for option in brought(data)]
    if len(table.rows) > len(bars):  # the row of all together
        proved = [proof_comparisons.interval(each) for each in data.comparisons if each.decision == "kept"]
        bars.append(proved[-1] if proved else None)
    show_with_bars(table, bars, after=2)
    say(search_sentences.ABOUT_BROUGHT)
    print()


def show_words(data: Record, was_followed: bool) -> None:
    """Print memory, the greatest possible speed and, unless followed, comparisons of the loss."""
    if sentence := memory_sentences.in_words(data):
        say(f"memory: {sentence} ({memory_sentences.kind_of_memory(memory_of(data))})")
    if list(limits_of(data).only) == ["batch_size"] and (sentence := memory_sentences.fitted(data)):
        say(sentence)
    for sentence in (search_sentences.ceiling_in_words(data), search_sentences.study_in_words(data)):
        if sentence:
            say(sentence)
    for line in search_sentences.learnt(data) if was_followed else search_sentences.learning(data):
        say(line)


def show_next(data: Record, saved: bool) -> None:
    """Print what the user can do next with the result. `saved` is True if the best settings were saved to a file."""
    for line in search_sentences.next_steps(data, saved):
        say(line)


# ---- while the search runs --------------------------------------------------------------------------


def news(data: Record) -> Iterator[tuple[str, str]]:
    """Yield a key, by which the caller prints each event only once, and a line."""
    for number, candidate in enumerate(search_of(data).candidates):
        if candidate.decision != "running":
            yield f"candidate {number}", candidate_line(candidate)
            if search_tables.is_marked(candidate):
                yield "without input", ABOUT_INPUT
            if candidate.gain is not None:
                yield "gains", f"({search_sentences.ABOUT_GAINS})"
            if search_sentences.is_weighed(candidate):
                yield "waits", f"({search_sentences.ABOUT_WAITS})"
            yield from disturbances(candidate.trials)
    yield from _losses(data)
    for number, comparison in enumerate(data.comparisons):
        yield from _pairs(number, comparison)
        if comparison.decision != "running":
            yield f"comparison {number}", proof_sentences.verdict(comparison)


def candidate_line(candidate: Candidate) -> str:
    """Return the line of a candidate: what was tried, its speed, its gain and the decision."""
    mark = WITHOUT_INPUT if search_tables.is_marked(candidate) else " "
    speed = candidate.samples_per_second
    speed_text = "" if speed is None else _SPEED.text(speed) + mark
    gain = "" if candidate.gain is None else change(candidate.gain)
    return (
        f"{_head(search_sentences.stage(candidate), search_sentences.title(candidate))} {speed_text:>17} {gain:>8}  "
        f"{search_sentences.outcome(candidate)}".rstrip()
    )


def _head(what: str, title: str) -> str:
    # The widths leave room for speed, gain and `kept` on a terminal of 80 columns.
    return f"{what:<19} {title:<24}"


def disturbances(trials: Iterable[Trial]) -> Iterator[tuple[str, str]]:
    """Yield a line for each disturbed trial, always with the same key: only one is printed, their number follows at the
    end."""
    for trial in trials:
        if trial.disturbed:
            yield "disturbed", f"note: {trial.disturbed}: the figures can be worse than on a quiet machine"


def _losses(data: Record) -> Iterator[tuple[str, str]]:
    for number, check in enumerate(search_of(data).losses):
        for trial in check.trials:
            yield trial.run, f"{_head('loss', _loss_title(check, trial))} {_loss(check, trial)}"
        if check.decision != "running":
            yield f"losses {number}", search_sentences.loss_check(check)


def _loss(check: LossCheck, trial: Trial) -> str:
    if trial.outcome not in ("ok", "timeout"):
        return proof_sentences.outcome(trial)
    return f"trained on {count(check.samples)} samples" if check.samples else trial.outcome


def _loss_title(check: LossCheck, trial: Trial) -> str:
    return proof_sentences.changes(check.settings) if trial.side == "b" else "the preset as it is"


def _pairs(number: int, comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield a key and a line for each measured pair and each failed trial."""
    good = {(trial.side, trial.repeat): trial for trial in comparison.trials if trial.good}
    for trial in comparison.trials:
        if not trial.good:
            yield f"{number} {trial.run}", f"{trial.run}: {proof_sentences.outcome(trial)}"
        a, b = (good.get((side, trial.repeat)) for side in "ab")
        if a and b:
            speeds = f"{_SPEED.text(a.figure(_SPEED.key))} -> {_SPEED.text(b.figure(_SPEED.key))}"
            gain = change(search_sentences.pair_gain(a, b))
            yield f"pair {number} {trial.repeat}", f"{'pair ' + str(trial.repeat):<19} {speeds}  {gain}"


def trials(data: Record) -> Iterator[tuple[str, Trial]]:
    """Yield the title and the trial for all trials of a search except those in pairs. Trials for the loss come last."""
    for candidate in search_of(data).candidates:
        for trial in candidate.trials:
            yield search_sentences.title(candidate), trial
    for check in search_of(data).losses:
        for trial in check.trials:
            yield f"loss: {_loss_title(check, trial)}", trial
