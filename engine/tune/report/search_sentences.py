"""The sentences about a search, shared by all views: candidates, memory, losses, and commands that can follow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from ... import figures, units
from ...proof.improved_preset import BATCH
from ...text_table import Table
from ...trials import LEAST_REPEATS, RESUMABLE, proof_sentences
from ...trials.record import UNREAD, Candidate, LossCheck, Record, StudyState, Trial, search_of
from ...trials.significance import LEAST_GAIN, gain
from ...trials.trial_tables import settings
from ...units import NONE, amount, change, count, size, spread
from .search_results import (
    PAIRS,
    WITHOUT_INPUT,
    WORDS,
    brought,
    chosen,
    in_all,
    is_best,
    is_dropped,
    limits_of,
    memory_of,
    ranked,
    since_start,
)

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


def pair_gain(a: Trial, b: Trial) -> float | None:
    """Return the gain of trial `b` over `a` (0.05: b is 5 % faster). None if one has no speed."""
    before, after = a.samples_per_second, b.samples_per_second
    return gain(before, after) if before and after is not None else None


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
    return "; ".join(_study(study)) if study else ""


def _study(study: StudyState) -> Iterator[str]:
    theirs = f", {units.count(study.of_others)} of them by other members" if study.of_others else ""
    yield f"study {study.name} in {study.storage}: {units.counted(study.trials, 'trials')}{theirs}"
    if study.at_once > 1:
        yield f"{units.count(study.at_once)} trials at once, each on a GPU of its own"
    if study.note:
        yield study.note


def left_in_words(elapsed: float | None, limit: float | None) -> str:
    """Return `3:20 of 10:00, 6:40 left` from seconds, without a limit the elapsed time; empty if unknown."""
    if elapsed is None or limit is None:
        return "" if elapsed is None else units.clock(elapsed)
    return f"{units.clock(elapsed)} of {units.clock(limit)}, {units.clock(max(0.0, limit - elapsed))} left"


# ---- what is learnt -------------------------------------------------------------------------------


def loss_check(check: LossCheck) -> str:
    what = proof_sentences.changes(check.settings)
    if check.decision == "running":
        return f"the loss with {what} is being compared with that of the preset"
    a, b = check.loss_a, check.loss_b
    if a is None or b is None:
        return f"the loss with {what} is not judged: {check.why or 'it was not measured'}"
    return f"{_losses(check, a, b)} with {what}: {check.decision}{_limit(check)}"


def _losses(check: LossCheck, a: float, b: float) -> str:
    return f"{which_loss(check)} {units.amount(a)} with the preset, {units.amount(b)}"


def which_loss(check: LossCheck) -> str:
    """Return the kind of loss and the number of samples: `validation loss after 8,085 samples (5 passes)`."""
    of, samples, passes = check.of, check.samples, check.passes
    whole = "" if passes is None else f" ({units.counted(passes, 'passes')})"
    return f"{of} loss".strip() + ("" if samples is None else f" after {units.counted(samples, 'samples')}{whole}")


def _limit(check: LossCheck) -> str:
    limit, pairs = check.worse_from, {trial.repeat for trial in check.trials}
    both = " in both pairs of trainings" if len(pairs) == 2 else ", from one pair, as there was time for no more"
    return "" if limit is None else f" (clearly worse is above {units.amount(limit)}{both})"


def learning(data: Record) -> list[str]:
    """Return a line for each comparison of losses, and lines about their consequences."""
    return [*(loss_check(check) for check in search_of(data).losses), *learnt(data)]


def learnt(data: Record) -> list[str]:
    """Return lines about what follows from the comparisons of losses."""
    lines = []
    if (fixed := search_of(data).rate_fixed) and limits_of(data).learning_rate != "keep":
        lines.append(f"the learning rate is not scaled: {fixed}")
    consequence = search_of(data).learning
    return [*lines, consequence] if consequence else lines


# ---- the end --------------------------------------------------------------------------------------


def next_steps(data: Record, saved: bool = False) -> list[str]:
    """Return commands that can follow, with their effects. `saved`: the fastest preset has already been saved."""
    return list(_next_steps(data, saved))


def _next_steps(data: Record, saved: bool) -> Iterator[str]:
    name, state = data.id, data.state
    if state in RESUMABLE:
        yield f"gputui tune --resume {name} goes on with it"
    if state == "done" and proof_sentences.unproved(data):
        yield f"gputui tune --resume {name} --minutes {more_minutes(data)} gives it more time, to prove them"
    if proof_sentences.to_take(data) and not saved:
        mark = ", marked as not proved" if proof_sentences.unproved(data) else ""
        yield f"gputui proof {name} -o fastest.yaml saves the fastest preset{mark}"
    if state != "running" and data.comparisons:
        yield f"gputui proof {name} --markdown > report.md writes the report"
    yield from _learns_worse(data)
    if state == "done" and data.ended_because.startswith(proof_sentences.OUT_OF_TIME):
        again = f"gputui tune --resume {name} --minutes N tries the rest in N more minutes"
        yield f"not everything was tried: {again}"


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


def _learns_worse(data: Record) -> Iterator[str]:
    worse = [check for check in search_of(data).losses if check.decision == "worse"]
    if not worse:
        return
    scaled = limits_of(data).learning_rate != "keep"
    if not scaled and any(BATCH in check.settings for check in worse):
        fixed = search_of(data).rate_fixed
        yield (
            f"a lower loss may need another learning rate, which only your code can set: {fixed}"
            if fixed
            else "the same command with --learning-rate linear (sqrt for adam) and --warmup-steps N scales the "
            "learning rate with the batch size, which often mends the loss"
        )
    if not limits_of(data).allow_worse_loss:
        yield "with --allow-worse-loss the fastest settings are chosen although they learn worse"


_SPEED = figures.of_run("samples_per_second")


def leaderboard(data: Record, in_report: bool = False) -> Table:
    """Return a table of the candidates, the best first; the report names trials, and not the predictions."""
    rows = [
        [
            str(place),
            settings({} if candidate.stage == PAIRS else candidate.settings) or title(candidate),
            _speed(candidate),
            change(since_start(candidate, data)),
            change(candidate.gain),
            spread(candidate.spread),
            size(candidate.peak_bytes) if in_report else memory(candidate),
            outcome(candidate, data) or "measured",
            *([", ".join(trial.run for trial in candidate.trials) or NONE] if in_report else []),
        ]
        for place, candidate in enumerate(ranked(data), 1)
    ]
    head = ["", "settings", _SPEED.head, "vs. start", "vs. before", "spread", "memory", "outcome"]
    return Table([*head, "trials"] if in_report else head, rows, right=(0, 2, 3, 4, 5, 6))


def is_marked(candidate: Candidate) -> bool:
    """Return True if the candidate has a speed that was measured without the input."""
    return candidate.without_input and candidate.samples_per_second is not None


def _speed(candidate: Candidate) -> str:
    speed = candidate.samples_per_second
    return NONE if speed is None else _SPEED.bare(speed) + (WITHOUT_INPUT if is_marked(candidate) else " ")


def memory(candidate: Candidate) -> str:
    """Return the measured memory as text. If it was not measured, the predicted memory after a "~"."""
    peak, predicted = candidate.peak_bytes, candidate.predicted_bytes
    return f"~{size(predicted)}" if peak is None and predicted is not None else size(peak)


def options(data: Record, together: bool = False) -> Table:
    """Return a table of the gain of each stage of the search, with `together` also of all of them together."""
    rows = [
        [
            option.name,
            NONE if option.gain is None else change(option.gain) + (WITHOUT_INPUT if option.without_input else " "),
            spread(option.spread),
            option.state,
            settings(option.settings),
        ]
        for option in brought(data)
    ]
    gain, noise, proved = in_all(data)
    if together and gain is not None:
        how = "vs. start, in pairs" if proved else "vs. start, in single trials"
        rows.append(["all together", f"{change(gain)} ", spread(noise), how, proof_sentences.changes(chosen(data))])
    return Table(["option", "vs. before", "spread", "", "settings"], rows, right=(1, 2))


def batches(data: Record) -> Table:
    """Return a table of the predicted and the measured memory of each batch size that was trained."""
    rows = [
        [
            count(point.batch_size),
            size(point.predicted_bytes),
            "out of memory" if point.peak_bytes is None else size(point.peak_bytes),
        ]
        for point in memory_of(data).points
    ]
    return Table(["batch size", "predicted", "measured"], rows)


def losses(data: Record) -> Table:
    """Return a table of the losses with and without the settings: a row for each comparison of them."""
    rows = [
        [
            settings(check.settings),
            which_loss(check),
            amount(check.loss_a),
            amount(check.loss_b),
            amount(check.worse_from),
            check.decision,
        ]
        for check in search_of(data).losses
    ]
    return Table(["settings", "which", "the preset", "with them", "clearly worse above", ""], rows)
