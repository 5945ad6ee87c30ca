"""The request and the results of a sweep, and the sentences and tables about them that all views share."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import units
from ..compare import comparison
from ..text_table import Interval, Table, around
from ..units import amount, counted, share
from . import SAMPLERS
from .change_texts import changes as changed
from .change_texts import short, value

SEARCH, PROOF = "search", "proof"  # the parts of a sweep
# The states of a trial. `paused` has ended a rung of the halving and may go on; `dropped` was paused and will not.
PLANNED, WAITING, RUNNING, PAUSED = "planned", "waiting", "running", "paused"
LEAST_FREE = 4  # degrees of freedom within the levels of an option, to estimate its part of the differences
DONE, FAILED, STOPPED, DROPPED, LEFT_OUT = "done", "failed", "stopped", "dropped", "not trained"
IN_FLIGHT = (WAITING, RUNNING)
# That at least one interval of a sweep does not contain the truth. With 5 %, in half of all batches of 100 sweeps of
# equal settings more than 5 would claim a difference.
RISK = 0.03


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A swept option with its `values`, or the range from `low` to `high`."""

    key: str  # `group.name`, or `workload.args.NAME` of own code
    values: Sequence[Any] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False  # divided by equal factors
    whole: bool = False  # only whole numbers


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a sweep is to do."""

    axes: Sequence[Axis]
    metric: str
    higher: bool = False
    minutes: float = 60.0
    seeds: int = 1
    proof_seeds: int = 5
    finalists: int = 2  # train again with `proof_seeds` fresh seeds
    sampler: str = SAMPLERS[0]
    most_trials: int | None = None
    parallel: int = 1
    ahead: int = 1  # trials that wait in the queue besides the `parallel` ones
    rungs: Sequence[int] = ()  # epochs after which one of `factor` goes on
    factor: int = 3
    one_gpu_each: bool = False  # trials that name no GPU get a free one
    study: str | None = None
    study_name: str | None = None
    member: str = ""
    anyway: bool = False  # CPU trainings outside of the queue are not waited for


@dataclass(kw_only=True)
class SweepTrial:
    """One training, which is a run."""

    run: str  # its id
    changes: Mapping[str, Any]
    seed: int
    part: str = SEARCH
    state: str = PLANNED
    value: float | None = None  # the metric at the end
    rungs: list[float | None] = field(default_factory=list)  # the metric after rungs
    until: int | None = None  # the epoch of its next pause
    seconds: float | None = None
    whole_seconds: float | None = None  # expected until it has ended
    ended_t: float | None = None  # Unix time
    error: str = ""
    cause: str = ""
    crashes: int = 0  # repeated launches
    failures: int = 0  # before a resume
    on: str = ""  # another member's machine
    digest: str = ""  # a hash of all figures
    test: Mapping[str, float | None] = field(default_factory=dict)  # metrics of the test data, which choose nothing


@dataclass(kw_only=True)
class Rival:
    """The comparison of the best setting with another on fresh seeds."""

    changes: Mapping[str, Any]
    differences: list[float] = field(default_factory=list)  # how much better the best setting is, for each seed
    mean: float | None = None
    half_width: float | None = None  # half of the confidence interval of the mean
    mean_of_rival: float | None = None
    decision: str = "undecided"  # `better`, `worse` or `undecided`
    why: str = ""


@dataclass(kw_only=True)
class Sweep:
    """The trials and the result of a sweep."""

    settings: SweepSettings
    trials: list[SweepTrial] = field(default_factory=list)
    best: dict[str, Any] | None = None
    winner: dict[str, Any] | None = None
    searched: float | None = None  # the mean metric of `best` in the search
    proved: float | None = None  # the same on fresh seeds
    rivals: list[Rival] = field(default_factory=list)
    finalists: list[dict[str, Any]] = field(default_factory=list)  # of the search, the best one first
    compared: int = 0  # settings among which `best` was chosen
    seconds_saved: float | None = None  # by the halving, of one device
    # Options whose values all gave the same figures, digit for digit.
    without_effect: list[str] = field(default_factory=list)


def key_of(changes: Mapping[str, Any]) -> str:
    return json.dumps(changes, sort_keys=True, default=str)


def groups(trials: Iterable[SweepTrial], part: str = SEARCH) -> dict[str, list[SweepTrial]]:
    by_setting: dict[str, list[SweepTrial]] = {}
    for trial in trials:
        if trial.part == part:
            by_setting.setdefault(key_of(trial.changes), []).append(trial)
    return by_setting


def in_order(trials: Iterable[SweepTrial], higher: bool, part: str = SEARCH) -> list[list[SweepTrial]]:
    """Return the trials of a part by setting, the best first, then those that ended early, then without a metric."""

    def badness(group: list[SweepTrial]) -> tuple[int, float]:
        metrics = [last for trial in group if (last := last_value(trial)) is not None]
        if not metrics:
            return 2, 0.0
        mean = statistics.fmean(values(group) or metrics)
        return int(not values(group)), -mean if higher else mean

    return sorted(groups(trials, part).values(), key=badness)


def last_value(trial: SweepTrial) -> float | None:
    """Return the metric after the last epoch or, if the trial has ended early, after its last rung."""
    return trial.value if trial.value is not None else next(iter(trial.rungs[-1:]), None)


def values(trials: Iterable[SweepTrial]) -> list[float]:
    return [trial.value for trial in trials if trial.state == DONE and trial.value is not None]


def mean_and_spread(trials: Iterable[SweepTrial]) -> tuple[float | None, float | None]:
    """Return the mean metric of the completed trials and its standard deviation, None if unknown."""
    return comparison.mean_and_spread(values(trials))


def interval(group: Sequence[SweepTrial]) -> Interval | None:
    return around(*mean_and_spread(group))


def reference(groups: Sequence[Sequence[SweepTrial]]) -> float:
    """Return the mean metric at which bars have their line: that of the preset, if it is a setting, else the best."""
    own = [group for group in groups if not group[0].changes]
    means = (mean.value for group in (*own, *groups) if (mean := interval(group)) is not None)
    return next(means, 0.0)


def without_effect(trials: Iterable[SweepTrial], keys: Iterable[str]) -> list[str]:
    """Return the swept options that have changed no figure of any epoch between trials that differ in them alone."""
    inert = []
    complete = [trial for trial in trials if trial.digest]
    for key in keys:
        alike: dict[object, list[SweepTrial]] = {}
        for trial in complete:
            others = {name: value for name, value in trial.changes.items() if name != key}
            alike.setdefault((trial.seed, key_of(others)), []).append(trial)
        several = [group for group in alike.values() if len({key_of(trial.changes) for trial in group}) > 1]
        if several and all(len({trial.digest for trial in group}) == 1 for group in several):
            inert.append(key)
    return inert


def ranked(trials: Iterable[SweepTrial], higher: bool) -> list[tuple[dict[str, Any], float]]:
    """Return the completed settings without a failed trial, with their mean metrics, the best first."""
    means = []
    for group in groups(trials).values():
        metrics = values(group)
        if metrics and not any(trial.state == FAILED for trial in group):
            means.append((dict(group[0].changes), statistics.fmean(metrics)))
    return sorted(means, key=lambda each: -each[1] if higher else each[1])


# ---- in words and as tables -----------------------------------------------------------------------


ABOUT = (
    "the metric is that after the last epoch; the best setting and its rivals were trained again with seeds that the "
    f"search has not used, the same for all; ± is the {units.share(1 - RISK)} interval of the mean difference "
    "(Student's t, for all rivals together by Bonferroni)"
)


def name(trial: SweepTrial) -> str:
    return f"{changed(trial.changes)} seed={trial.seed}"


def plan(settings: SweepSettings) -> str:
    most = f"at most {settings.minutes:g} min; Ctrl-C ends it, gputui sweep --resume goes on with it"
    return f"{_trainings(settings)[0]}; {most}"


def cost(settings: SweepSettings, seconds: float | None) -> str:
    """Return how many trainings of `seconds` (None: unknown) a sweep needs, and about how long they take."""
    text, counts = _trainings(settings)
    if seconds is None:
        return f"{text}; how long is not known, as no run here had these options"
    whole = sum(math.ceil(part / settings.parallel) for part in counts) * seconds
    most = "at most " if settings.rungs else "about "
    more = f", more than {settings.minutes:g} min" if whole > 60 * settings.minutes else ""
    return f"{text}; {most}{units.estimate(whole)}{more}"


def _trainings(settings: SweepSettings) -> tuple[str, tuple[int, int]]:
    # in words, and how many are of the search and of the proof
    count = settings.most_trials or math.prod(len(axis.values) for axis in settings.axes)
    search, proof = count * settings.seeds, min(count, settings.finalists) * settings.proof_seeds
    seeds = f" with {settings.seeds} seeds" if settings.seeds > 1 else ""
    later = f", then {proof} for the proof" if proof else ""
    once = f"; {settings.parallel} at once" if settings.parallel > 1 else ""
    return f"{counted(count, 'settings')}{seeds}: {counted(search, 'trainings')}{later}{once}", (search, proof)


def doing(sweep: Sweep, part: str, problem: str = "", waits_for: str = "") -> str:
    """Return how many trials have ended, train or wait, with a `problem` of the study, or what a trial `waits_for`."""
    trials = [trial for trial in sweep.trials if trial.part == part]
    flying = [trial for trial in trials if trial.state in IN_FLIGHT]
    ended = sum(trial.ended_t is not None and trial.state not in IN_FLIGHT for trial in trials)
    training, waiting = (sum(trial.state == state for trial in flying) for state in (RUNNING, WAITING))
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
    nothing, keys = "", sweep.without_effect if sweep else ()
    if keys:
        changes = "change" if len(keys) > 1 else "changes"
        same = "all values gave the same figures, digit for digit"
        nothing = f"{' and '.join(map(short, keys))} {changes} nothing: {same}"
    if sweep and nothing and len(keys) == len(sweep.settings.axes):
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
        reason += "" if sweep.winner == sweep.best else f", so that {changed(sweep.winner)} is taken"
        return f"{_leader(sweep)} in the search, which is no proof: {reason}"
    return "; ".join(rival_sentence(sweep, rival) for rival in sweep.rivals)


def _leader(sweep: Sweep) -> str:
    best, metric = changed(sweep.best or {}), sweep.settings.metric
    if sweep.compared == 1:
        return f"{best} is the only setting with a {metric}"
    means = [mean for _, mean in ranked(sweep.trials, sweep.settings.higher)]
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


def tested(sweep: Sweep) -> str:
    """Return the test figures of the setting that is taken, means over its fresh seeds or else its trials."""
    if sweep.winner is None:
        return ""
    of = [groups(sweep.trials, part).get(key_of(sweep.winner), []) for part in (PROOF, SEARCH)]
    trials = [trial for trial in of[0] or of[1] if trial.test]
    names = dict.fromkeys(name for trial in trials for name in trial.test)
    means = {
        name: comparison.mean_and_spread([each for trial in trials if (each := trial.test.get(name)) is not None])
        for name in names
    }
    texts = [f"{name} {amount(mean)}{f' (spread {amount(spread)})' if spread else ''}"
             for name, (mean, spread) in means.items()]  # fmt: skip
    return f"on the test data {changed(sweep.winner)} has {', '.join(texts)}" if texts else ""


def mattered(sweep: Sweep) -> str:
    """Return how much of the metric's variance in the search each option explains: epsilon squared (Kelley 1935), in
    the mean 0 for an option without effect. A range counts in thirds. Empty with too few trainings, or if a halving
    has chosen which of them end.
    """
    if any(trial.state == DROPPED for trial in sweep.trials):
        return ""
    done = [(trial.changes, trial.value) for trial in sweep.trials
            if trial.part == SEARCH and trial.state == DONE and trial.value is not None]  # fmt: skip
    explained: dict[str, float] = {}
    mean = statistics.fmean(metric for _, metric in done) if done else 0.0
    total = sum((metric - mean) ** 2 for _, metric in done)
    for axis in sweep.settings.axes if total else ():
        by_level: dict[object, list[float]] = {}
        for changes, metric in done:
            by_level.setdefault(_level(axis, changes.get(axis.key)), []).append(metric)
        free, others = len(by_level) - 1, len(done) - len(by_level)
        if free > 0 and others >= LEAST_FREE:
            between = sum(len(level) * (statistics.fmean(level) - mean) ** 2 for level in by_level.values())
            explained[short(axis.key)] = max(0.0, (between - free * (total - between) / others) / total)
    if not explained:
        return ""
    listed = ", ".join(f"{name} {share(part)}" for name, part in sorted(explained.items(), key=lambda each: -each[1]))
    return f"of the differences in {sweep.settings.metric}: {listed} (estimated from {counted(len(done), 'trainings')})"


def _level(axis: Axis, value: Any) -> object:
    if axis.values or axis.low is None or axis.high is None:
        return str(value)
    low, high, at = (math.log(each) if axis.log else each for each in (axis.low, axis.high, value))
    return min(2, int(3 * (at - low) / (high - low)))


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


def mean_or_state(group: Sequence[SweepTrial]) -> tuple[str, str]:
    """Return the mean metric and its spread; without a complete training that of the last rung, with the state."""
    if values(group):
        mean, spread = mean_and_spread(group)
        return amount(mean), amount(spread)
    last, state = last_value(group[0]), group[0].state
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
         amount(last_value(trial)), units.seconds(trial.seconds)]
        for trial in sweep.trials
    ]  # fmt: skip
    return Table(["run", "part", "setting", "seed", "outcome", sweep.settings.metric, "time"], rows, right=(3, 5, 6))


def outcome(trial: SweepTrial) -> str:
    """Return the state of a trial, with its error if it has failed, or the rung after which it has ended."""
    where = f" on {trial.on}" if trial.on else ""
    return f"{trial.state}{where}: {trial.error}" if trial.error else f"{trial.state}{where}"


def trial_line(sweep: Sweep, trial: SweepTrial) -> str:
    last = last_value(trial)
    figure = f"{sweep.settings.metric} {amount(last)}" if last is not None else ""
    part = "proof  " if trial.part == PROOF else ""
    return "  ".join(filter(None, (f"{trial.run}  {part}{name(trial)}", outcome(trial), figure)))


def news(sweep: Sweep) -> Iterator[tuple[str, str]]:
    """Yield a key and a line for each end of a trial so far; one that has paused and gone on ends again."""
    for trial in sweep.trials:
        if trial.ended_t is not None:
            yield f"{trial.run} {trial.ended_t}", trial_line(sweep, trial)


def swept(settings: SweepSettings) -> str:
    texts = []
    for axis in settings.axes:
        ends = "" if axis.values else f"{axis.low:g} to {axis.high:g}{' by equal factors' if axis.log else ''}"
        texts.append(f"{short(axis.key)}: {ends or ', '.join(map(value, axis.values))}")
    return "; ".join(texts)
