"""The results of a sweep in words and as tables, shared by all views and the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .. import units
from ..text_table import Table
from ..units import amount, counted, share
from . import sweep_record
from .change_texts import changes as changed
from .change_texts import short, value
from .sweep_record import (
    DONE,
    DROPPED,
    FAILED,
    IN_FLIGHT,
    LEFT_OUT,
    PROOF,
    RISK,
    RUNNING,
    SEARCH,
    STOPPED,
    WAITING,
    Axis,
    Rival,
    Sweep,
    SweepSettings,
    SweepTrial,
)

ABOUT = (
    "the metric is that after the last epoch; the best setting and its rivals were trained again with seeds that the "
    f"search has not used, the same for all; ± is the {units.share(1 - RISK)} interval of the mean difference "
    "(Student's t, for all rivals together by Bonferroni)"
)


def name(trial: SweepTrial) -> str:
    return f"{changed(trial.changes)} seed={trial.seed}"


def plan(settings: SweepSettings) -> str:
    count = _count(settings)
    seeds = f" with {settings.seeds} seeds" if settings.seeds > 1 else ""
    proof = (
        f", then the best {settings.finalists} with {settings.proof_seeds} fresh seeds" if settings.proof_seeds else ""
    )
    return (
        f"{count} settings{seeds}, at most {settings.parallel} at once{proof}; at most {settings.minutes:g} min; "
        "Ctrl-C ends it, gputui sweep --resume goes on with it"
    )


def cost(settings: SweepSettings, seconds: float | None) -> str:
    """Return how many trainings of `seconds` (None: unknown) a sweep needs, and about how long they take."""
    count = _count(settings)
    search, proof = count * settings.seeds, min(count, settings.finalists) * settings.proof_seeds
    seeds = f" with {settings.seeds} seeds" if settings.seeds > 1 else ""
    later = f", then {proof} for the proof" if proof else ""
    once = f"; {settings.parallel} at once" if settings.parallel > 1 else ""
    text = f"{counted(count, 'settings')}{seeds}: {counted(search, 'trainings')}{later}{once}; "
    if seconds is None:
        return f"{text}how long is not known, as no run here had these options"
    whole = sum(math.ceil(part / settings.parallel) for part in (search, proof)) * seconds
    most = "at most " if settings.rungs else "about "
    more = f", more than {settings.minutes:g} min" if whole > 60 * settings.minutes else ""
    return f"{text}{most}{units.estimate(whole)}{more}"


def _count(settings: SweepSettings) -> int:
    return settings.most_trials or math.prod(len(axis.values) for axis in settings.axes)


def doing(sweep: Sweep, part: str, problem: str = "", waits_for: str = "") -> str:
    """Return how many trials have ended, train or wait, with a `problem` of the study, or what a trial `waits_for`."""
    trials = [trial for trial in sweep.trials if trial.part == part]
    flying = [trial for trial in trials if trial.state in IN_FLIGHT]
    ended = sum(trial.ended_t is not None for trial in trials)
    training = sum(trial.state == RUNNING for trial in flying)
    waiting = sum(trial.state == WAITING for trial in flying)
    what = "search" if part == SEARCH else "proof on fresh seeds"
    elsewhere = sum(bool(trial.on) for trial in flying)
    more = f" ({elsewhere} of them on other machines)" if elsewhere else ""
    why = problem or ("" if training else waits_for)
    more += f"; waiting: {why}" if why else ""
    return (
        f"{what}: {ended} of {counted(len(trials), 'trials')} ended, {training} training, {waiting} in the queue{more}"
    )


def no_result(sweep: Sweep) -> str:
    errors = [trial.error for trial in sweep.trials if trial.state == FAILED]
    why = f"; the last one: {errors[-1]}" if errors else ""
    if not why and any(trial.state in (LEFT_OUT, DROPPED, STOPPED) for trial in sweep.trials):
        expected = [trial.whole_seconds for trial in sweep.trials if trial.whole_seconds is not None]
        each = f", which takes about {units.estimate(min(expected))}" if expected else ""
        return (
            f"the {sweep.settings.minutes:g} min ended before a trial had trained to its end{each}; give more --minutes"
        )
    return f"no trial has trained to its end with a finite {sweep.settings.metric}{why}"


def result(sweep: Sweep | None) -> str:
    nothing = _nothing(sweep) if sweep else ""
    if sweep and nothing and len(sweep.without_effect) == len(sweep.settings.axes):
        return nothing
    return "; ".join(filter(None, (nothing, _result(sweep))))


def _result(sweep: Sweep | None) -> str:
    if sweep is None or sweep.best is None:
        ended = 0 if sweep is None else sum(trial.state == DONE for trial in sweep.trials)
        return f"stopped before the search had ended ({counted(ended, 'trials')} complete)"
    if sweep.winner is None:
        return f"stopped before the proof had ended; {_leader(sweep)} in the search, which is no proof"
    decided = [rival for rival in sweep.rivals if rival.half_width is not None]
    if not decided:
        reason = "it was not trained on fresh seeds" if not sweep.rivals else sweep.rivals[0].why
        return f"{_leader(sweep)} in the search, which is no proof: {reason}"
    return "; ".join(rival_sentence(sweep, rival) for rival in sweep.rivals)


def _nothing(sweep: Sweep) -> str:
    if not (keys := sweep.without_effect):
        return ""
    changes = "change" if len(keys) > 1 else "changes"
    return f"{' and '.join(map(short, keys))} {changes} nothing: all values gave the same figures, digit for digit"


def _leader(sweep: Sweep) -> str:
    best, metric = changed(sweep.best or {}), sweep.settings.metric
    if sweep.compared == 1:
        return f"{best} is the only setting with a {metric}"
    means = [mean for _, mean in sweep_record.ranked(sweep.trials, sweep.settings.higher)]
    equal = means.count(means[0]) if means else 1
    if equal > 1:
        return f"{best} is one of {equal} settings with the same {metric}, the best of {sweep.compared}"
    return f"{best} is the best of {sweep.compared}"


def rival_sentence(sweep: Sweep, rival: Rival) -> str:
    best, other, seeds = changed(sweep.best or {}), changed(rival.changes), len(rival.differences)
    if rival.mean is None or rival.half_width is None:
        return f"{other} is not compared: {rival.why}"
    by = difference(sweep, rival)
    if rival.decision == "better":
        return f"{best} beats {other} by {by} ({seeds} seeds)"
    if rival.decision == "worse":
        return f"{other} beats {best}, the best of the search, by {by} ({seeds} seeds)"
    return f"{best} cannot be told apart from {other}: better by {by} ({seeds} seeds)"


def difference(sweep: Sweep, rival: Rival) -> str:
    """Return the mean difference with its interval, as a share of the loser's metric: `0.8 ± 0.3 % val_loss`."""
    mean, half, metric = rival.mean or 0.0, rival.half_width or 0.0, sweep.settings.metric
    mean = -mean if rival.decision == "worse" else mean
    loser = rival.mean_of_rival or 0.0
    if rival.decision == "worse":  # the best of the search has lost
        loser += (rival.mean or 0.0) if sweep.settings.higher else -(rival.mean or 0.0)
    if not loser:
        return f"{amount(mean)} ± {amount(half)} {metric}"
    mean, half = mean / abs(loser), half / abs(loser)
    digits = 1 if half >= 0.001 else 2
    return f"{share(mean, digits).removesuffix(' %')} ± {share(half, digits)} {metric}"


def luck(sweep: Sweep) -> str:
    """Return what the selection has cost the estimate: the best of many is lucky. Empty without a proof."""
    if sweep.searched is None or sweep.proved is None:
        return ""
    metric, lucky = sweep.settings.metric, f"the best of {sweep.compared} is lucky"
    fewer = sweep.searched < sweep.proved if not sweep.settings.higher else sweep.searched > sweep.proved
    why = f": {lucky}" if fewer and sweep.compared > 1 else ""
    both = f"in the search {amount(sweep.searched)}, on fresh seeds {amount(sweep.proved)}"
    return f"{metric} of the best setting: {both}{why}"


def saved(sweep: Sweep) -> str:
    """Return the rule of the halving and the time that it has saved. Empty without halving."""
    settings = sweep.settings
    if not settings.rungs:
        return ""
    ends = ", ".join(map(str, settings.rungs))
    text = f"halving: after epoch {ends} the best 1 of {settings.factor} goes on, the others end"
    if sweep.seconds_saved is not None:
        text += f"; about {units.seconds(sweep.seconds_saved)} of training saved against the whole grid"
    return text


def mean_and_spread(group: Sequence[SweepTrial]) -> tuple[str, str]:
    """Return the mean metric of the trials of a setting and its standard deviation over seeds, a dash if unknown."""
    mean, spread = (amount(figure) for figure in sweep_record.mean_and_spread(group))
    return mean, spread


def mean_or_state(group: Sequence[SweepTrial]) -> tuple[str, str]:
    """Return the mean metric and its spread; without a complete training that of the last rung, with the state."""
    if sweep_record.values(group):
        return mean_and_spread(group)
    last, state = sweep_record.last_value(group[0]), group[0].state
    return state if last is None else f"{amount(last)} {state}", amount(None)


def seed(trial: SweepTrial) -> str:
    """Return the metric of a trial, or its state if it has not trained to its end."""
    if trial.state == DONE:
        return amount(trial.value)
    if trial.rungs and trial.rungs[-1] is not None:
        return f"{amount(trial.rungs[-1])} ({trial.state})"
    return trial.state


def trials_table(sweep: Sweep) -> Table:
    rows = [
        [trial.run, trial.part, changed(trial.changes), str(trial.seed), outcome(trial),
         amount(sweep_record.last_value(trial)), units.seconds(trial.seconds)]
        for trial in sweep.trials
    ]  # fmt: skip
    return Table(["run", "part", "setting", "seed", "outcome", sweep.settings.metric, "time"], rows, right=(3, 5, 6))


def outcome(trial: SweepTrial) -> str:
    """Return the state of a trial, with its error if it has failed, or the rung after which it has ended."""
    where = f" on {trial.on}" if trial.on else ""
    return f"{trial.state}{where}: {trial.error}" if trial.error else f"{trial.state}{where}"


def trial_line(sweep: Sweep, trial: SweepTrial) -> str:
    last = sweep_record.last_value(trial)
    figure = f"{sweep.settings.metric} {amount(last)}" if last is not None else ""
    part = "proof  " if trial.part == PROOF else ""
    return "  ".join(filter(None, (f"{trial.run}  {part}{name(trial)}", outcome(trial), figure)))


def news(sweep: Sweep) -> Iterator[tuple[str, str]]:
    """Yield a key and a line for each end of a trial so far; one that has paused and gone on ends again."""
    for trial in sweep.trials:
        if trial.ended_t is not None:
            yield f"{trial.run} {trial.ended_t}", trial_line(sweep, trial)


def swept(settings: SweepSettings) -> str:
    return "; ".join(f"{short(axis.key)}: {_values(axis)}" for axis in settings.axes)


def _values(axis: Axis) -> str:
    if axis.values:
        return ", ".join(map(value, axis.values))
    return f"{axis.low:g} to {axis.high:g}{' by equal factors' if axis.log else ''}"
