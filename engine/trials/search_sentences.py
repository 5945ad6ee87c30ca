"""The sentences about a search, shared by all views: candidates, memory, losses, and commands that can follow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from .. import figures, units
from ..text_table import Bars, Code, Table
from ..units import NONE, change, count, size, spread
from . import LEAST_REPEATS, RESUMABLE, proof_sentences
from .record import UNREAD, Candidate, Limits, LossCheck, Record, Trial, search_of
from .search_results import (
    BATCH,
    PAIRS,
    WITHOUT_INPUT,
    WORDS,
    brought,
    chosen,
    in_all,
    is_best,
    is_dropped,
    limits_of,
    ranked,
    since_start,
)
from .significance import LEAST_GAIN

LEAST_MINUTES, LONG_TRIAL = 2, 15.0  # the fewest minutes to propose; seconds of a trial if none was measured
HARMLESS = 0.05  # relative; with a smaller gain without the input, the input does not hold the training back
ABOUT_INPUT = "measured on one repeated batch: the input would hide what the device gains"
ABOUT_GAINS = "the gain of a candidate is against the best settings before it, and not against the start"
ABOUT_COLUMNS = "vs. start is against the preset, vs. before against the best settings when it was measured"
ABOUT_BROUGHT = (
    "what each option brought is against the settings before it, so that their product is not the whole gain"
)
ABOUT_WAITS = "a gain by its waits follows from the shares of the time in which the training waits"
_STAGES = WORDS | {"baseline": "baseline", "ceiling": "no input"}


def about_gains(candidates: Sequence[Candidate]) -> str:
    """Return an explanation of the columns of gains, for readers who see such a table for the first time."""
    return f"{ABOUT_COLUMNS}; {ABOUT_WAITS}" if any(map(is_weighed, candidates)) else ABOUT_COLUMNS


def is_weighed(candidate: Candidate) -> bool:
    """Return True if the gain by waits of a candidate counts and is larger than its gain: it is shown as well."""
    by_waits, weighed = candidate.gain_by_waits, candidate.gain
    return by_waits is not None and weighed is not None and by_waits > max(weighed, LEAST_GAIN)


# ---- one candidate --------------------------------------------------------------------------------


def stage(candidate: Candidate) -> str:
    named = candidate.stage
    return _STAGES.get(named, named.replace("_", " "))


def title(candidate: Candidate) -> str:
    """Return the changes that a candidate has tried. For a measurement of the best settings, its reason in words."""
    tried = candidate.tried
    return proof_sentences.changes(tried) if tried else candidate.reason or "the preset as it is"


def outcome(candidate: Candidate, data: Record = UNREAD) -> str:
    """Return `kept`, or why not; empty for mere measurements. `data` is UNREAD to leave out the decision."""
    decision, why = candidate.decision, candidate.why
    if candidate.stage == PAIRS:
        return ("proved" if decision == "kept" else decision) if candidate.settings else ""
    if is_dropped(candidate, data):
        return unproven(data)
    if not candidate.tried:
        return "" if decision == "kept" else why
    if decision == "kept":
        return "kept"
    reason = why.partition(": ")[2] if candidate.gain is not None else why  # the gain is shown in its own column
    return f"{decision}: {reason}" if reason else decision


# ---- the ceiling -----------------------------------------------------------------------


def ceiling_in_words(data: Record) -> str:
    """Return the speed without any input, and the share of it that is reached (or the speed of the best settings if
    measured without input only). Empty if unknown, or if the best settings are faster.
    """
    search = search_of(data)
    ceiling, best = search.ceiling, search.best_speed
    if ceiling is None:
        return ""
    before, device = search.before_speed, _without_input(data)
    if before is not None and ceiling <= (1 + HARMLESS) * before:
        return f"without input no faster ({units.count(ceiling)})"
    if device is not None and device > ceiling:
        return f"without input {units.count(ceiling)}, now {units.count(device)}"
    if best is not None and best > ceiling:
        return ""
    reached = f", {units.share(best / ceiling)} reached" if best is not None and ceiling > 0 else ""
    return f"ceiling without input {units.count(ceiling)}{reached}"


def _without_input(data: Record) -> float | None:
    same = [candidate for candidate in search_of(data).candidates if is_best(candidate, data)]
    with_input = any(not candidate.without_input for candidate in same)
    return None if with_input or not same else same[-1].samples_per_second


def unproven(data: Record) -> str:
    """Return the outcome of the best settings if nothing was kept: `not chosen` or `not proven in pairs`."""
    decided, losses = data.comparisons, search_of(data).losses
    refused = decided and decided[-1].decision in ("rejected", "failed")
    worse = any(check.decision == "worse" for check in losses) and not limits_of(data).allow_worse_loss
    return "not chosen" if refused or worse else "not proven in pairs"


def study_in_words(data: Record) -> str:
    """Return the state of the Optuna study of a wide search. Empty if there is none."""
    study = search_of(data).study
    if study is None:
        return ""
    theirs = f", {units.count(study.of_others)} of them by other members" if study.of_others else ""
    at_once = f"{units.count(study.at_once)} trials at once, each on a GPU of its own" if study.at_once > 1 else ""
    text = f"study {study.name} in {study.storage}: {units.counted(study.trials, 'trials')}{theirs}"
    return "; ".join(filter(None, (text, at_once, study.note)))


# ---- what is learnt -------------------------------------------------------------------------------


def trained(check: LossCheck, trial: Trial) -> str:
    """Return the settings with which a trial has trained for the loss."""
    return proof_sentences.changes(check.settings) if trial.side == "b" else "the preset as it is"


def loss_check(check: LossCheck) -> str:
    what, a, b = proof_sentences.changes(check.settings), check.loss_a, check.loss_b
    if check.decision == "running":
        return f"the loss with {what} is being compared with that of the preset"
    if a is None or b is None:
        return f"the loss with {what} is not judged: {check.why or 'it was not measured'}"
    in_pairs = len({trial.repeat for trial in check.trials}) == 2
    both = " in both pairs of trainings" if in_pairs else ", from one pair, as there was time for no more"
    limit = check.worse_from
    clearly = "" if limit is None else f" (clearly worse is above {units.amount(limit)}{both})"
    losses = f"{which_loss(check)} {units.amount(a)} with the preset, {units.amount(b)}"
    return f"{losses} with {what}: {check.decision}{clearly}"


def which_loss(check: LossCheck) -> str:
    """Return the kind of loss and the number of samples: `validation loss after 8,085 samples (5 passes)`."""
    of, samples, passes = check.of, check.samples, check.passes
    whole = "" if passes is None else f" ({units.counted(passes, 'passes')})"
    return f"{of} loss".strip() + ("" if samples is None else f" after {units.counted(samples, 'samples')}{whole}")


def learning(data: Record) -> list[str]:
    """Return a line for each comparison of losses, and lines about their consequences."""
    search, lines = search_of(data), [loss_check(check) for check in search_of(data).losses]
    if search.rate_fixed and search.limits.learning_rate != "keep":
        lines.append(f"the learning rate is not scaled: {search.rate_fixed}")
    return [*lines, *([search.learning] if search.learning else [])]


# ---- the end --------------------------------------------------------------------------------------


def next_steps(data: Record, saved: bool = False) -> list[str]:
    """Return commands that can follow, with their effects. `saved`: the fastest preset has already been saved."""
    name, state, lines = data.id, data.state, []
    if state in RESUMABLE:
        lines.append(f"gputui tune --resume {name} goes on with it")
    if state == "done" and proof_sentences.unproved(data):
        more = f"gputui tune --resume {name} --minutes {more_minutes(data)}"
        lines.append(f"{more} gives it more time, to prove them")
    if proof_sentences.to_take(data) and not saved:
        mark = ", marked as not proved" if proof_sentences.unproved(data) else ""
        lines.append(f"gputui proof {name} -o fastest.yaml saves the fastest preset{mark}")
    if state != "running" and data.comparisons:
        lines.append(f"gputui proof {name} --markdown > report.md writes the report")
    worse = [check for check in search_of(data).losses if check.decision == "worse"]
    if limits_of(data).learning_rate == "keep" and any(BATCH in check.settings for check in worse):
        fixed = search_of(data).rate_fixed
        lines.append(
            f"a lower loss may need another learning rate, which only your code can set: {fixed}"
            if fixed
            else "the same command with --learning-rate linear (sqrt for adam) and --warmup-steps N scales the "
            "learning rate with the batch size, which often mends the loss"
        )
    if worse and not limits_of(data).allow_worse_loss:
        lines.append("with --allow-worse-loss the fastest settings are chosen although they learn worse")
    if state == "done" and data.ended_because.startswith(proof_sentences.OUT_OF_TIME):
        again = f"gputui tune --resume {name} --minutes N tries the rest in N more minutes"
        lines.append(f"not everything was tried: {again}")
    return lines


def nothing_to_measure(data: Record) -> str:
    """Return why more minutes would change nothing for a search that has ended. Empty if they may change something."""
    search = search_of(data)
    if limits_of(data).dry_run:
        return "it has only predicted the memory; gputui tune --preset NAME searches"
    if data.state != "done" or search.unproved or limits_of(data).wide:
        return ""
    if data.ended_because.startswith(proof_sentences.OUT_OF_TIME):
        return ""
    nothing = (
        "what is faster learns worse" if proof_sentences.learns_worse(data) else "nothing is faster than the preset"
    )
    proved = "its gain is proved" if data.changes_kept else nothing
    return f"every option was tried, and {proved}: there is nothing to measure with more minutes"


def more_minutes(data: Record) -> int:
    """Return the minutes that are enough to measure the pairs of an ended search: 1.5 times their expected time."""
    trials = [trial.seconds for trial in data.trials if trial.seconds]
    pairs = 2 * (data.repeats or LEAST_REPEATS) * statistics.median(trials or [LONG_TRIAL])
    return max(LEAST_MINUTES, math.ceil(1.5 * pairs / units.MINUTE))


_SPEED = figures.of_run("samples_per_second")


def limits_in_words(limits: Limits) -> str:
    """Return the limits of a search; of one that only predicts, that of its memory (empty for none)."""
    of_memory = "" if limits.memory_bytes is None else f"memory at most {size(limits.memory_bytes)}"
    if limits.dry_run:
        return of_memory
    return "; ".join(filter(None, (
        f"{limits.minutes:g} minutes",
        f"searched: {', '.join(limits.only)}",
        f"left as they are: {', '.join(limits.leave)}" if limits.leave else "",
        "" if limits.largest_batch is None else f"global batch at most {count(limits.largest_batch)}",
        of_memory,
        f"precision: {', '.join(limits.precisions)}" if limits.precisions else "",
        f"precision: not {', '.join(limits.avoid_precisions)}" if limits.avoid_precisions else "",
        f"learning rate: {limits.learning_rate}",
    )))  # fmt: skip


def leaderboard(data: Record) -> Table:
    rows = []
    for place, candidate in enumerate(ranked(data), 1):
        changed = {} if candidate.stage == PAIRS else candidate.settings
        speed = candidate.samples_per_second
        mark = WITHOUT_INPUT if is_marked(candidate) else " "
        rows.append([
            str(place),
            Code(proof_sentences.changes(changed)) if changed else title(candidate),
            NONE if speed is None else _SPEED.bare(speed) + mark,
            change(since_start(candidate, data)),
            change(candidate.gain),
            spread(candidate.spread),
            memory(candidate),
            outcome(candidate, data) or "measured",
            ", ".join(trial.run for trial in candidate.trials) or NONE,
        ])  # fmt: skip
    head = ["", "settings", _SPEED.head, "vs. start", "vs. before", "spread", "memory", "outcome", "trials"]
    bars = Bars([candidate.interval for candidate in ranked(data)], after=5)
    return Table(head, rows, right=(0, 2, 3, 4, 5, 6), spare=(4, 6, 5, 8), bars=bars)


def is_marked(candidate: Candidate) -> bool:
    """Return True if the candidate has a speed that was measured without the input."""
    return candidate.without_input and candidate.samples_per_second is not None


def memory(candidate: Candidate) -> str:
    """Return the measured memory as text. If it was not measured, the predicted memory after a "~"."""
    peak, predicted = candidate.peak_bytes, candidate.predicted_bytes
    return f"~{size(predicted)}" if peak is None and predicted is not None else size(peak)


def options(data: Record) -> Table:
    """Return a table of the gain of each stage of the search, then of all of them together."""
    rows = [
        [
            option.name,
            NONE if option.gain is None else change(option.gain) + (WITHOUT_INPUT if option.without_input else " "),
            spread(option.spread),
            option.state,
            Code(proof_sentences.changes(option.settings)) if option.settings else "",
        ]
        for option in brought(data)
    ]
    gain, noise, proved = in_all(data)
    if gain is not None:
        how = "vs. start, in pairs" if proved else "vs. start, in single trials"
        rows.append(["all together", f"{change(gain)} ", spread(noise), how, proof_sentences.changes(chosen(data))])
    bars = [option.interval for option in brought(data)]
    bars += [next((each.interval for each in data.comparisons[::-1] if each.decision == "kept"), None)]
    head = ["option", "vs. before", "spread", "", "settings"]
    return Table(head, rows, right=(1, 2), bars=Bars(bars[: len(rows)], after=2))
