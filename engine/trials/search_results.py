"""The results of a search so far, and the sentences and tables about them that all views share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import figures, units
from ..text_table import Bars, Code, Interval, Table
from ..units import MINUTE, NONE, change, count, size, spread
from . import LEAST_REPEATS, STAGES, proof_sentences, significance
from .proof_sentences import changes, to_take
from .record import UNREAD, Candidate, Limits, LossCheck, Memory, Record, Trial, search_of
from .significance import LEAST_GAIN

BATCH = "input.batch_size"
PAIRS = "pairs"  # the stage of a candidate that was measured in pairs with the preset
WITHOUT_INPUT = "*"  # marks a value that was measured without the input
SCALED = ("train.learning_rate", "train.hold_steps", "train.decay_steps", "train.warmup_steps")  # with the batch size
WORDS = {
    "batch_size": "batch size", "precision": "precision", "xla": "XLA", "steps_per_execution": "steps per execution",
    "strategy": "strategy", "threads": "threads", "input": "input", "together": "combination", "wide": "combination",
}  # fmt: skip
_COMBINED = ("together", "wide")  # stages that change options of several others
# Stages that change a single option, and this option.
ONLY_OPTION = {
    "batch_size": BATCH,
    "precision": "precision.policy",
    "xla": "compile.xla",
    "steps_per_execution": "compile.steps_per_execution",
    "strategy": "strategy.kind",
}
_STAGE_OF = {key: stage for stage, key in ONLY_OPTION.items()} | {
    "precision": "precision", "strategy": "strategy", "device": "threads", "input": "input",
}  # fmt: skip


def limits_of(data: Record) -> Limits:
    return search_of(data).limits


def limit_seconds(data: Record) -> float | None:
    """Return the time in seconds that the search may take. None if the proof is no search."""
    return data.search.limits.minutes * MINUTE if data.search else None


# ---- the candidates -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Ranked(Candidate):
    """A row of the leaderboard."""

    number: int  # in the order of the search; -1: the preset, and lower ones: a side that was measured in pairs
    since_start: float | None = None  # of such a side: its gain against the preset (0.05: 5 % faster)

    @property
    def interval(self) -> Interval | None:
        """The gain over the best settings before, with its error; measured in pairs, over the preset."""
        if self.stage != PAIRS:
            return significance.interval(self.gain, self.spread)
        return significance.interval(self.since_start, self.spread, len(self.good))


def ranked(data: Record) -> list[Ranked]:
    """Return the leaderboard: candidates being measured, then the fastest first, those with their input before those
    without, those without a speed last. The preset and each side measured in pairs have a row.
    """
    search, trials = search_of(data), data.baseline_trials
    rows = [Ranked(**vars(candidate), number=number) for number, candidate in enumerate(search.candidates)]
    if search.before_speed is not None and all(candidate.settings for candidate in rows):
        peaks = [trial.peak_memory_bytes for trial in trials if trial.peak_memory_bytes is not None]
        rows.append(Ranked(
            stage="", settings={}, tried={}, reason="the preset as it was", trials=trials,
            samples_per_second=search.before_speed, peak_bytes=max(peaks, default=None), decision="reference",
            number=-1,
        ))  # fmt: skip

    def place(candidate: Candidate) -> tuple[bool, bool, bool, float]:
        speed = candidate.samples_per_second
        return candidate.decision != "running", speed is None, candidate.without_input, -(speed or 0.0)

    return sorted([*rows, *_of_pairs(data)], key=place)


def _of_pairs(data: Record) -> Iterator[Ranked]:
    """A row for each side of each comparison that has a speed: that in the pair of the median gain."""
    sides: tuple[tuple[str, bool], ...] = (("a", False), ("b", True))
    for place, comparison in enumerate(data.comparisons):
        for side, is_changed in sides:
            trials = [trial for trial in comparison.trials if trial.side == side]
            if (speed := comparison.figures(side)["samples_per_second"]) is not None:
                yield Ranked(
                    stage=PAIRS, settings=comparison.changes if is_changed else {}, tried={}, trials=trials,
                    samples_per_second=speed, decision=comparison.decision,
                    reason=f"in pairs: {changes(comparison.changes) if is_changed else 'the preset'}",
                    why=comparison.why if is_changed else "", since_start=comparison.gain if is_changed else None,
                    spread=comparison.spread if is_changed else None, number=-2 - 2 * place - is_changed,
                )  # fmt: skip


def since_start(candidate: Ranked, data: Record) -> float | None:
    """Return the gain against the preset, measured in the same way (0.05: 5 % faster). None if it was not."""
    if candidate.stage == PAIRS:
        return candidate.since_start
    speed, before = candidate.samples_per_second, search_of(data).before_speed
    if candidate.without_input:
        alike = [candidate for candidate in search_of(data).candidates if candidate.without_input]
        speeds = (candidate.samples_per_second for candidate in alike if not candidate.settings)
        before = next(speeds, None)
    return None if speed is None or not before or not candidate.settings else speed / before - 1


def is_best(candidate: Candidate, data: Record) -> bool:
    best = search_of(data).best
    return bool(best) and candidate.settings == best and candidate.decision == "kept"


def chosen(data: Record) -> Mapping[str, Any]:
    """Return the settings that the search has chosen; before the end those in pairs, or the fastest so far."""
    if is_decided(data):
        return to_take(data)
    decided = data.comparisons
    return decided[-1].changes if decided else search_of(data).best


def is_decided(data: Record) -> bool:
    return data.state == "done" or (data.state != "running" and bool(data.comparisons))


def is_chosen(candidate: Candidate, data: Record) -> bool:
    """Return True if the candidate has the chosen settings, without a learning rate scaled with the batch size."""
    settings, taken = candidate.settings, chosen(data)
    beside = [key for key in taken if key not in settings]
    alike = all(key in taken and taken[key] == value for key, value in settings.items())
    stands = candidate.decision == "kept" or candidate.stage == PAIRS
    return bool(settings) and alike and all(key in SCALED for key in beside) and stands


def is_dropped(candidate: Candidate, data: Record) -> bool:
    """Return True if the candidate was kept in the search, but not chosen in the end."""
    whole = is_best(candidate, data) and bool(candidate.tried) and not is_chosen(candidate, data)
    return _is_undone(candidate, data) or (is_decided(data) and whole)


def _is_undone(candidate: Candidate, data: Record) -> bool:
    best, taken, tried = search_of(data).best, chosen(data), candidate.tried
    kept = is_decided(data) and candidate.decision == "kept"
    return kept and any(taken.get(key) != best.get(key) for key in tried)


# ---- what each option brought ---------------------------------------------------------------------


@dataclass(frozen=True)
class Brought:
    """What the options of a stage have gained."""

    stage: str
    state: str  # kept, not chosen (faster in trials, but refused at the end), nothing, trying, to come or not tried
    settings: Mapping[str, Any]  # the kept values
    gain: float | None = None  # 0.05: 5 % faster; of the best candidate if nothing was kept; None: see a combination
    spread: float | None = None
    without_input: bool = False  # measured on one repeated batch

    @property
    def name(self) -> str:
        return WORDS.get(self.stage, self.stage)

    @property
    def interval(self) -> Interval | None:
        """The gain with its standard error. None while the gain is not final."""
        is_final = self.state in ("kept", "not chosen", "nothing")
        return significance.interval(self.gain, self.spread) if is_final else None

    @property
    def figures(self) -> str:
        """The gain and its spread, such as `+148 % ± 4.1 %`. If there is no gain, the state in words."""
        if self.state in ("kept", "not chosen", "nothing") and self.gain is not None:
            beside = f" ± {spread(self.spread)}" if self.spread is not None else ""
            return f"{change(self.gain)}{beside}{WITHOUT_INPUT if self.without_input else ''}"
        return {"nothing": "no gain", "trying": "being tried", "kept": "kept"}.get(self.state, self.state)


def brought(data: Record) -> list[Brought]:
    """Return the gain of each stage that is searched, in order, and then that of kept combinations. A stage without a
    kept trial is `kept` if these have changed its options.
    """
    best, taken, going_on = search_of(data).best, chosen(data), data.state == "running"
    left = {key for key, value in best.items() if is_decided(data) and taken.get(key) != value}
    candidates = [candidate for candidate in search_of(data).candidates if candidate.tried]
    in_common = [each for each in candidates if each.decision == "kept" and each.stage in _COMBINED]
    combined = {key: value for key, value in _merged(in_common).items() if best.get(key) == value}
    stages = [stage for stage in STAGES if stage in limits_of(data).only]
    stages += [stage for stage in _COMBINED if any(candidate.stage == stage for candidate in in_common)]
    options = []
    for stage in stages:
        tried = [candidate for candidate in candidates if candidate.stage == stage]
        kept = [candidate for candidate in tried if candidate.decision == "kept"]
        measured = [candidate for candidate in tried if candidate.decision in ("rejected", "failed")]
        settings = _merged(kept)
        gain, error = together(leading_to(settings, kept) or kept)
        by_others = {key: value for key, value in combined.items()
                     if stage == _STAGE_OF.get(key, _STAGE_OF.get(key.partition(".")[0]))}  # fmt: skip
        if going_on and any(candidate.decision == "running" for candidate in tried):
            option = Brought(stage, "trying", settings, gain, error)
        elif any(best.get(key) == value for key, value in settings.items()):
            option = Brought(stage, "kept", settings, gain, error, kept[0].without_input)
        elif by_others:
            option = Brought(stage, "kept", by_others)
        elif kept:
            option = Brought(stage, "nothing", {})
        elif measured:
            most = max(measured, key=lambda candidate: -math.inf if candidate.gain is None else candidate.gain)
            option = Brought(stage, "nothing", {}, most.gain, most.spread, most.without_input)
        else:
            option = Brought(stage, "to come" if going_on else "not tried", {})
        is_undone = any(_is_undone(candidate, data) for candidate in tried) or left & set(option.settings)
        options.append(replace(option, state="not chosen", settings={}) if is_undone else option)
    return options


def _merged(kept: list[Candidate]) -> dict[str, Any]:
    return {key: value for candidate in kept for key, value in candidate.tried.items()}


def leading_to(final: Mapping[str, Any], kept: Sequence[Candidate]) -> list[Candidate]:
    """Return the kept candidates up to the last that agrees with `final`, of those measured like the first."""
    if not kept:
        return []
    alike = [candidate for candidate in kept if candidate.without_input == kept[0].without_input]
    ends = [
        number
        for number, candidate in enumerate(alike)
        if all(final[key] == value for key, value in candidate.tried.items() if key in final)
    ]
    return alike[: ends[-1] + 1] if ends else []


def together(kept: Sequence[Candidate]) -> tuple[float | None, float | None]:
    """Return the total gain (0.05: 5 % faster) of changes kept one after another, the product of 1 + gain, and its
    standard error, the root of the sum of the squares. None without any.
    """
    gains = [candidate.gain for candidate in kept if candidate.gain is not None]
    spreads = [candidate.spread for candidate in kept if candidate.spread is not None]
    gain = math.prod(1 + gain for gain in gains) - 1 if gains else None
    return gain, math.hypot(*spreads) if spreads else None


# ---- memory ---------------------------------------------------------------------------------------


def memory_of(data: Record) -> Memory:
    """Return the memory of the batches. If none was measured, the result has no points."""
    return search_of(data).memory or Memory(of="")


FAR = 8  # factor; beyond it from the measured batches a prediction is a guess
NEAR = 1.1  # factor; a larger batch within it counts as the batch that was trained
_LIMITS_OF = {
    "allocator": "that TensorFlow may take of a device",
    "process": "that the host has free",
    "address_space": "that ulimit -v allows of address space",
}
_KINDS_OF = {
    "allocator": "of TensorFlow's allocator", "process": "of the process", "address_space": "of the address space",
}  # fmt: skip


def predicted(memory: Memory, batch: float) -> float | None:
    """Return the bytes that this batch size (of one replica) is expected to take. None if it cannot be predicted."""
    base, each = memory.base_bytes, memory.bytes_per_sample
    return None if base is None or each is None else base + each * batch


def largest_error(memory: Memory) -> float | None:
    """Return the largest error of predictions as a share of the measured memory (0.1: 10 %), None without any."""
    errors = (
        abs(point.predicted_bytes - point.peak_bytes) / point.peak_bytes
        for point in memory.points
        if point.peak_bytes and point.predicted_bytes is not None
    )
    return max(errors, default=None)


def prediction(memory: Memory) -> str:
    """Return the memory of a preset and the largest batch that fits: `batch 256 will take 11.3 GiB of ...`."""
    batch, failed, limit, largest = memory.batch_size, memory.too_large, memory.limit_bytes, memory.largest_batch
    if batch is None:
        taken = max((point.peak_bytes for point in memory.points if point.peak_bytes), default=None)
        own = "your code makes its own batches, so that other sizes are not predicted"
        return f"it takes {size(taken)}{_of_limit(memory)}; {own}"
    each = f" on each of {count(memory.replicas)} devices" if memory.replicas > 1 else ""
    what, takes, first = f"batch {count(batch)}{each}", memory.predicted_bytes, memory.first_step_bytes
    fitting = largest_in_words(memory)
    most = f"; {fitting} with a tenth left free" if fitting else ""
    if failed is not None and failed <= batch:
        return f"{what} does not fit: {count(failed)} has run out of memory{most}"
    if takes is None:
        return f"{what} cannot be predicted from one batch size{most}"
    verb, warning = "will take", ""
    if limit is not None and takes > limit:
        would = "will run out of memory: it would take"
        verb = "is above your limit: it takes" if memory.limit_is_asked else would
    elif largest is not None and largest < batch and not memory.at_least:
        verb = "may run out of memory: it will take"
    if limit is not None and first is not None and takes <= limit < first:
        warning = (
            f"; its first step, in which cuDNN tries its algorithms, would take {size(first)}: it may run out of "
            "memory, or take slower ones"
        )
    return f"{what} {verb} {size(takes)}{_of_limit(memory)}{warning}{most}"


def _of_limit(memory: Memory) -> str:
    whose = "that you allow" if memory.limit_is_asked else _LIMITS_OF.get(memory.of, "that there are")
    return "" if memory.limit_bytes is None else f" of the {size(memory.limit_bytes)} {whose}"


def largest_in_words(memory: Memory) -> str:
    """Return the largest batch that should fit into the memory, or that was trained in it. Empty if it is unknown."""
    fits, largest, into = memory.fits, memory.largest_batch, size(memory.limit_bytes)
    if memory.limit_bytes is None or largest is None:
        return ""
    if largest < 1:
        return f"not even batch 1 fits into {into}"
    if largest == memory.most_batch:
        fit = "fits" if fits is not None and fits >= largest else "should fit"
        return f"batch {count(largest)}, the largest that can be tried, {fit} into {into}"
    if fits is not None and largest <= NEAR * fits and not memory.at_least:
        return f"batch {count(fits)} fits into {into}"
    measured = max((point.batch_size for point in memory.points if point.peak_bytes is not None), default=0)
    guess = f" (a guess from batches up to {count(measured)})" if 0 < FAR * measured < largest else ""
    trained = f"; batch {count(fits)} was trained" if fits is not None else ""
    return f"{'at least ' * memory.at_least}batch {count(largest)} should fit into {into}{guess}{trained}"


def kind_of_memory(memory: Memory) -> str:
    return _KINDS_OF.get(memory.of, "")


def memory_in_words(data: Record) -> str:
    """Return the largest batch that should fit, the predicted memory and the error of predictions, as far as known."""
    memory = memory_of(data)
    base, each, facts = memory.base_bytes, memory.bytes_per_sample, [largest_in_words(memory)]
    if memory.limit_bytes is not None and memory.largest_batch is None:
        facts = [f"{size(memory.limit_bytes)} may be taken"]
    if base is not None and each is not None and not memory.at_least:
        facts.append(f"{size(base)} + {size(each)} a sample")
    if (off := largest_error(memory)) is not None:
        facts.append(f"predictions were off by {units.share(off, 1)} at most")
    return "; ".join(filter(None, facts))


# ---- speeds ---------------------------------------------------------------------------------------


def speeds(data: Record) -> tuple[float | None, float | None]:
    """Return the samples per second before and after, without pairs those of single trials; None if refused."""
    before, after = ((side or {}).get("samples_per_second") for side in (data.before, data.after))
    if data.search is None or (data.gain_total is not None and before is not None and after is not None):
        return before, after
    is_refused = is_decided(data) and not to_take(data)
    return data.search.before_speed, None if is_refused else data.search.best_speed


def gain_so_far(data: Record) -> float | None:
    """Return the gain of the best settings by trials (0.05: 5 % faster), not proved by pairs. None without one."""
    search = search_of(data)
    before, best = search.before_speed, search.best_speed
    return None if not before or best is None or best == before else best / before - 1


def in_all(data: Record) -> tuple[float | None, float | None, bool]:
    """Return the gain of the chosen settings, its spread (None: single trials), and whether pairs proved it."""
    proved = [comparison for comparison in data.comparisons if comparison.decision == "kept"]
    if data.gain_total is not None and proved:
        return proved[-1].gain, proved[-1].spread, True
    search, taken = search_of(data), chosen(data)
    if not is_decided(data) or search.best.items() <= taken.items():
        return gain_so_far(data), None, False
    alike = [each for each in search.candidates if is_chosen(each, data) and not each.without_input]
    speeds = [each.samples_per_second for each in alike if each.samples_per_second]
    return (speeds[-1] / search.before_speed - 1 if speeds and search.before_speed else None), None, False


# ---- in words -------------------------------------------------------------------------------------


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
    return changes(tried) if tried else candidate.reason or "the preset as it is"


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
    same = [candidate for candidate in search.candidates if is_best(candidate, data)]
    without_input = bool(same) and all(candidate.without_input for candidate in same)
    before, device = search.before_speed, same[-1].samples_per_second if without_input else None
    if before is not None and ceiling <= (1 + HARMLESS) * before:
        return f"without input no faster ({count(ceiling)})"
    if device is not None and device > ceiling:
        return f"without input {count(ceiling)}, now {count(device)}"
    if best is not None and best > ceiling:
        return ""
    reached = f", {units.share(best / ceiling)} reached" if best is not None and ceiling > 0 else ""
    return f"ceiling without input {count(ceiling)}{reached}"


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
    theirs = f", {count(study.of_others)} of them by other members" if study.of_others else ""
    at_once = f"{count(study.at_once)} trials at once, each on a GPU of its own" if study.at_once > 1 else ""
    text = f"study {study.name} in {study.storage}: {units.counted(study.trials, 'trials')}{theirs}"
    return "; ".join(filter(None, (text, at_once, study.note)))


# ---- what is learnt -------------------------------------------------------------------------------


def trained(check: LossCheck, trial: Trial) -> str:
    """Return the settings with which a trial has trained for the loss."""
    return changes(check.settings) if trial.side == "b" else "the preset as it is"


def loss_check(check: LossCheck) -> str:
    what, a, b = changes(check.settings), check.loss_a, check.loss_b
    if check.decision == "running":
        return f"the loss with {what} is being compared with that of the preset"
    if a is None or b is None:
        return f"the loss with {what} is not judged: {check.why or 'it was not measured'}"
    in_pairs = len({trial.repeat for trial in check.trials}) == 2
    both = " in both pairs of trainings" if in_pairs else ", from one pair, as there was time for no more"
    limit = check.worse_from
    clearly = "" if limit is None else f" (clearly worse is above {units.amount(limit)}{both})"
    whole = "" if check.passes is None else f" ({units.counted(check.passes, 'passes')})"
    after = "" if check.samples is None else f" after {units.counted(check.samples, 'samples')}{whole}"
    losses = f"{units.amount(a)} with the preset, {units.amount(b)} with {what}: {check.decision}{clearly}"
    return f"{check.of} loss{after} {losses}".strip()


def learning(data: Record) -> list[str]:
    """Return a line for each comparison of losses, and lines about their consequences."""
    search, lines = search_of(data), [loss_check(check) for check in search_of(data).losses]
    if search.rate_fixed and search.limits.learning_rate != "keep":
        lines.append(f"the learning rate is not scaled: {search.rate_fixed}")
    return [*lines, *([search.learning] if search.learning else [])]


# ---- the end --------------------------------------------------------------------------------------


def next_steps(data: Record) -> list[str]:
    """Return commands that can follow beside those of the answer, with their effects."""
    name, state, lines = data.id, data.state, []
    if state == "done" and proof_sentences.unproved(data):
        more = f"gputui tune --resume {name} --minutes {more_minutes(data)}"
        lines.append(f"{more} gives it more time, to prove them")
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
    return max(LEAST_MINUTES, math.ceil(1.5 * pairs / MINUTE))


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
            Code(changes(changed)) if changed else title(candidate),
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
            Code(changes(option.settings)) if option.settings else "",
        ]
        for option in brought(data)
    ]
    gain, noise, proved = in_all(data)
    if gain is not None:
        how = "vs. start (pairs)" if proved else "vs. start (single)"
        rows.append(["all together", f"{change(gain)} ", spread(noise), how, changes(chosen(data))])
    bars = [option.interval for option in brought(data)]
    bars += [next((each.interval for each in data.comparisons[::-1] if each.decision == "kept"), None)]
    head = ["option", "vs. before", "spread", "", "settings"]
    return Table(head, rows, right=(1, 2), bars=Bars(bars[: len(rows)], after=2))
