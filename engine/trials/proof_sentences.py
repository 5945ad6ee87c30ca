"""Sentences about a proof, used by all views and the report: changes, verdicts, the present trial."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import figures, units
from ..files import typed
from ..profile import reports
from ..profile.reports import ProfileReport
from ..units import counted, share, times
from . import LEAST_REPEATS, significance, sweep_record
from .change_texts import changes as changes
from .change_texts import settings as settings
from .change_texts import value as value
from .kinds import kind
from .record import KEY, Ablation, Comparison, Learning, Point, RateTest, Record, Scaling, Trial, search_of
from .significance import WORSE

OUT_OF_TIME = "the time budget"  # the beginning of `ended_because` if there was no time left
NOT_PROVED = "not proved"
DECIDED = ("kept", "rejected", "failed")


def verdict(comparison: Comparison) -> str:
    """Return the result of a comparison in one sentence. If the number of replicas changes, the efficiency is added."""
    return "".join(_verdict(comparison)) + _efficiency(comparison)


def _verdict(comparison: Comparison) -> tuple[str, str]:
    """Return the decision, and the rest of the sentence."""
    what = changes(comparison.changes)
    decision, gain, spread = comparison.decision, comparison.gain, comparison.spread
    several = len(comparison.changes) > 1
    many, makes = ("are", "make") if several else ("is", "makes")
    measured = (
        f" (gain {units.change(gain)}, spread of the repeats {units.spread(spread)})" if spread is not None else ""
    )
    if decision == "kept" and gain is not None:
        return f"{what} {many} kept: {times(1 + gain)} as fast", measured
    if decision in ("faster", "slower") and gain is not None:
        return f"{what} {makes} the training {times(1 + gain)} as fast", measured
    if decision == "undecided":
        return f"whether {what} {makes} a difference is undecided", f": {comparison.why}"
    if decision in ("no difference", "rejected"):
        text = f"{many} rejected" if decision == "rejected" else f"{makes} no difference"
        return f"{what} {text}", f": {comparison.why}"
    if decision == "failed":
        return f"{what} cannot be used", f": {comparison.why}"
    if decision == "stopped":
        return f"the measurement of {what} is incomplete", ""
    return f"{what} is being measured", ""


def gain_in_words(comparison: Comparison) -> str:
    """Return the gain of a comparison with what its pairs leave possible; without a gain, why there is none."""
    gain, interval, pairs = comparison.gain, comparison.interval, len(comparison.pairs)
    if gain is None or interval is None or not pairs:
        return comparison.why
    measured = counted(pairs, "pairs")
    if comparison.spread is None:
        return f"{units.change(gain)} by {measured}"
    text = f"{units.change(gain)}, between {units.change(interval.low)} and {units.change(interval.high)} by {measured}"
    if interval.contains(0) and comparison.decision in ("undecided", "rejected") and comparison.spread:
        remedy = significance.remedy(gain, comparison.spread, pairs) if pairs >= LEAST_REPEATS else "too few pairs"
        text += f": may be chance; {remedy}"
    return text + _efficiency(comparison)


def speedup(proof: Record) -> str:
    """Return the total gain as a factor: `2.31 times as fast`."""
    return f"{times(proof.gain_total)} as fast"


def disturbance(proof: Record) -> str:
    """Return how many trials were disturbed, and by what most often. Empty if none was."""
    rows = proof.trials
    reasons = [trial.disturbed for trial in rows if trial.disturbed]
    if not reasons:
        return ""
    worst = max(reasons, key=lambda reason: (reasons.count(reason), reason))
    of = "the only trial" if len(rows) == 1 else f"{len(reasons)} of {len(rows)} trials"
    return f"{of}: measure again on a quiet machine; {worst}"


def _disturbed(count: int, of: int) -> str:
    if of == 1:
        return "the only trial was disturbed"
    return f"{count} of {of} trials {'was' if count == 1 else 'were'} disturbed"


def conclusion(proof: Record) -> str:
    rows = proof.trials
    disturbed = sum(bool(trial.disturbed) for trial in rows)
    beside = f"; {_disturbed(disturbed, len(rows))} by other programs" if disturbed else ""
    return result(proof) + beside


def result(proof: Record) -> str:
    """Return the result of the whole proof in one sentence, without the disturbed trials."""
    return "; ".join(filter(None, (headline(proof), learns(proof))))


def headline(proof: Record) -> str:
    """Return what is to be changed by the result of the whole proof, or that nothing is, without its figures."""
    what = kind(proof.kind).noun
    if proof.state == "waiting":
        return f"the {what} waits in the queue; gputui queue shows why"
    if proof.state == "failed":
        return f"the {what} failed: {proof.error}"
    if proof.state == "crashed":
        return f"the {what}'s process has crashed; its results so far are shown"
    if proof.kind == "tune":
        return _search(proof)
    if proof.kind == "scaling":
        return _scaling(proof)
    if proof.kind == "rate":
        return _rate(proof.rate) if proof.rate else "stopped before there was a suggestion"
    if proof.kind == "sweep":
        return sweep_record.result(proof.sweep)
    if proof.kind == "ab" and proof.comparisons:
        return _verdict(proof.comparisons[0])[0]
    if proof.kind == "diagnosis":
        return input_cost(proof.ablation)
    return proof.answer or _loop(proof)


def _loop(proof: Record) -> str:
    if kept := proof.changes_kept:
        return f"{speedup(proof)} with {changes(kept)}"
    tried = sum(comparison.decision in DECIDED for comparison in proof.comparisons)
    if not tried:
        return _nothing_tried(proof)
    so_far = "stopped: so far " if proof.state == "stopped" else ""
    return f"{so_far}nothing was proved to make it faster ({counted(tried, 'changes')} tried)"


def learns(proof: Record) -> str:
    """Return how what is kept learns: worse, or not known. Empty if no worse, or if nothing learnt changes."""
    checks = [check for check in search_of(proof).losses if check.settings == proof.changes_kept]
    if checks and checks[-1].decision == "worse":
        return "it learns clearly worse, which was allowed"
    if checks and checks[-1].decision in ("not judged", "failed"):
        return f"whether it learns as well is not judged: {checks[-1].why}"
    if checks:
        return ""
    clauses = []
    for comparison in proof.comparisons:
        learning, what = comparison.learning, changes(comparison.changes)
        if learning is None or comparison.decision not in ("kept", "faster"):
            continue
        a, b = learning.loss_a, learning.loss_b
        if a is None or b is None or not math.isfinite(b - a):
            clauses.append(f"whether it learns as well with {what} is not known")
        elif a and b - a > WORSE * abs(a):
            higher, after = share((b - a) / abs(a)), counted(learning.samples, "samples")
            clauses.append(f"the loss with {what} is {higher} higher after {after}")
    return "; ".join(clauses)


def unproved(proof: Record) -> Mapping[str, Any]:
    """Return the best settings of a search that ended without a proof of their gain (interrupted: the fastest until
    then). Empty if a comparison refused them, if changes were kept, while it runs, and for other proofs.
    """
    search = search_of(proof)
    if proof.kind != "tune" or proof.state == "running" or proof.changes_kept:
        return {}
    if proof.state == "done":
        return search.unproved
    made, losses = proof.comparisons, search.losses
    refused = any(comparison.decision in ("rejected", "failed") for comparison in made)
    refused = refused or any(check.decision in ("worse", "failed") for check in losses)
    return {} if refused else search.best


def to_take(proof: Record) -> Mapping[str, Any]:
    """Return the changes that can be saved or put into the form: the kept ones, or else the unproved settings."""
    return proof.changes_kept or unproved(proof)


def not_proved(proof: Record) -> str:
    """Return what is known of unproved settings: `not proved: +719 % in single trials; in 2 pairs +745 %`."""
    search, settings = search_of(proof), unproved(proof)
    before, best = search.before_speed, search.best_speed
    facts = []
    if before and best and dict(settings) == search.best:
        facts.append(f"{units.change(best / before - 1)} in single trials")
    pairs = next((comparison for comparison in proof.comparisons if comparison.changes == settings), None)
    if pairs is not None and pairs.gain is not None:
        measured = sum(trial.side == "b" and trial.outcome == "ok" for trial in pairs.trials)
        spread = f", spread {units.spread(pairs.spread)}" if pairs.spread is not None else ""
        facts.append(f"in {counted(measured, 'pairs')} {units.change(pairs.gain)}{spread}")
    if search.learning:
        facts.append(search.learning)
    return ": ".join(filter(None, (NOT_PROVED, "; ".join(facts))))


def only_predicts(proof: Record) -> bool:
    """Return True if the search only predicts memory (`--dry-run`)."""
    return search_of(proof).limits.dry_run


def _search(proof: Record) -> str:
    if only_predicts(proof):
        return proof.ended_because or _nothing_tried(proof)
    if proof.changes_kept and proof.gain_total is not None:
        return f"{speedup(proof)} with {changes(proof.changes_kept)}"
    if proof.changes_kept:
        return f"the preset runs out of memory, and trains with {changes(proof.changes_kept)}"
    tried = sum(bool(candidate.tried) for candidate in search_of(proof).candidates if candidate.trials)
    if not tried:
        return _nothing_tried(proof)
    if settings := unproved(proof):
        stopped = "stopped: " if proof.state == "stopped" else ""
        return f"{stopped}it seems faster with {changes(settings)}, which is {NOT_PROVED}"
    if proof.state == "stopped":
        return f"stopped before anything was proved ({counted(tried, 'changes')} tried)"
    if proof.comparisons:
        return "nothing was proved to be faster than the preset as it is"
    if learns_worse(proof):
        return f"what is faster than the preset learns clearly worse ({counted(tried, 'changes')} tried)"
    return f"nothing is faster than the preset as it is ({counted(tried, 'changes')} tried)"


def learns_worse(proof: Record) -> bool:
    return not proof.changes_kept and any(check.decision == "worse" for check in search_of(proof).losses)


def _nothing_tried(proof: Record) -> str:
    if proof.state == "stopped":
        return "stopped before the measurement of any change was complete"
    if proof.ended_because.startswith(OUT_OF_TIME):
        return "the time budget allowed no change to be measured"
    if (proof.final_verdict or {}).get("verdict") == "undecided":
        return (
            "what limits the speed is undecided, so no change was tried; gputui tune tries changes without a diagnosis"
        )
    if proof.advice:
        return "no option was found that could make it faster; the advice says what to change in your code or data"
    return "nothing was found to make it faster (no change to try)"


def input_cost(ablation: Ablation | None) -> str:
    """Return the cost of the input by trials without it, and the measured input wait; or why it is unknown."""
    if ablation is None or ablation.input_cost is None:
        why = ablation.why if ablation else ""
        return f"the cost of the input is unknown: {why or 'not measured'}"
    cost, wait = ablation.input_cost, ablation.input_wait
    measured = "is unknown" if wait is None else f"is {share(wait)}"
    return (
        f"the input costs {share(cost)} of a step's time (measured by leaving it out); "
        f"the training itself measured input_wait, which {measured}"
    )


def code_of(remedies: Iterable[Mapping[str, Any]]) -> list[str]:
    return [line for code in dict.fromkeys(tuple(remedy.get("code") or ()) for remedy in remedies) for line in code]


def others(diagnosis: Mapping[str, Any]) -> str:
    """Return the further verdicts of a diagnosis, after the first, in words. Return an empty text if there are none."""
    verdicts = diagnosis.get("others")
    return ", ".join(str(word).replace("_", " ") for word in verdicts) if isinstance(verdicts, list) else ""


def outcome(trial: Trial) -> str:
    if trial.error:
        return f"{trial.outcome}: {trial.error}"
    return f"{trial.outcome}, disturbed" if trial.disturbed else str(trial.outcome)


def learned(learning: Learning) -> str:
    a, b = learning.loss_a, learning.loss_b
    if a is None or b is None:
        return f"note: {learning.note}; the losses are not known"
    losses = f"{units.amount(a)} without, {units.amount(b)} with"
    return f"note: {learning.note}; loss after {units.count(learning.samples)} samples: {losses}"


def losses_in_words(learning: Learning) -> str:
    """Return `no worse: loss 0.72, 0.95 without, after 17,256 samples`, or that the losses are not known."""
    a, b = learning.loss_a, learning.loss_b
    if a is None or b is None or not math.isfinite(b - a):
        return f"not known: {learning.note}"
    word = "worse" if b - a > WORSE * abs(a) else "no worse"
    after = counted(learning.samples, "samples")
    return f"{word}: loss {units.amount(b)}, {units.amount(a)} without, after {after}"


def profile_of(proof: Record) -> ProfileReport | None:
    """Return the profile in a record. Return None if there is none or if it does not have the present form."""
    with contextlib.suppress(typed.Damaged):
        return typed.convert(proof.profile, ProfileReport) if proof.profile else None
    return None


def profile_in_brief(proof: Record) -> list[str]:
    report = profile_of(proof)
    if report is not None:
        return reports.in_brief(report)
    going_on = proof.state == "running" and not proof.profile_missing
    return ["it is being read" if going_on else f"no profile: {proof.profile_missing or 'it was not read'}"]


# ---- scaling --------------------------------------------------------------------------------------


GOOD = 0.9  # efficiency below which a sentence says what has grown (gputui's own threshold)
HALF = 0.5
_STEP, _WAIT = figures.of_run("step_ms"), figures.of_run("input_wait")
_ABOUT = (
    "efficiency: samples per second over n times those of one replica in the same round; spread: its standard "
    "deviation over the rounds"
)
_ABOUT_COPIES = (
    "samples per second: of all copies, in the seconds in which all of them trained; speed-up: over those of one copy "
    "in the same round; efficiency: speed-up over the number of copies; spread: its standard deviation over the rounds"
)


def scaling_of(data: Record) -> Scaling:
    return data.scaling or Scaling(keep="")


def scaling_about(data: Record) -> str:
    return _ABOUT_COPIES if scaling_of(data).is_of_copies else _ABOUT


def scaling_kept(data: Record) -> str:
    """Return which batch size is the same for all numbers of replicas (each, or the global one) or copies."""
    scaling = scaling_of(data)
    if scaling.is_of_copies:
        return "each copy keeps its batch"
    if scaling.keep == "global":
        return "the global batch is kept (strong scaling)"
    return "the batch of each replica is kept (weak scaling)"


def _scaling(data: Record) -> str:
    """Return the efficiency of the most replicas, or the number of copies that pays most, or why there is none."""
    scaling = scaling_of(data)
    failed = [point for point in scaling.points if point.decision == "failed" and point.why]
    more = [point for point in scaling.points[1:] if point.efficiency is not None and point not in failed]
    if not more:
        if failed:
            return _failed(failed[-1], scaling)
        return f"stopped before several {scaling.unit} were measured"
    if not scaling.is_of_copies:
        most = more[-1]
        beside = "" if most.spread is None else f" (spread {units.spread(most.spread)})"
        return (
            f"{counted(most.replicas, 'replicas')} train {times(most.speedup)} as fast as 1: an efficiency of "
            f"{share(most.efficiency)}{beside}; {scaling_kept(data)}"
        )
    verdicts = [_against(point, scaling.points[0]) for point in more]
    if (best := best_copies(data)) is not None:
        queue = f"; with run.per_gpu={best.number} the queue puts so many runs on a GPU"
        return (
            f"{counted(best.number, 'copies')} at once on one {'CPU' if scaling.shared else 'GPU'} train "
            f"{times(best.speedup)} as many samples per second as 1 ({_against(best, scaling.points[0])[1]}); each has "
            f"{share(best.efficiency)} of the speed of one alone{'' if scaling.shared else queue}"
        )
    text = "; ".join(f"{point.number} train {times(point.speedup)} as many samples per second as 1, "
                     f"{': '.join(verdict)}" for point, verdict in zip(more, verdicts, strict=True))  # fmt: skip
    if any(verdict == "undecided" for verdict, _ in verdicts):
        return f"it is undecided whether several copies at once pay: {text}"
    return f"several copies at once do not pay: {text}"


def _failed(point: Point, scaling: Scaling) -> str:
    many = counted(point.number, scaling.unit)
    if point.efficiency is None:
        return f"{many} could not be measured: {point.why}"
    rounds = counted(sum(trial.good for trial in point.trials), "rounds")
    return f"{many} trained {times(point.speedup)} as fast as 1 in {rounds}, and then failed: {point.why}"


def best_copies(data: Record) -> Point | None:
    """Return the copies that train most, beyond chance, than one copy and the best of fewer. None if none does."""
    points = scaling_of(data).points
    best = next(iter(points), None)
    for point in points[1:]:
        if best is not None and point.decision != "failed" and _against(point, best)[0] == "faster":
            best = point
    return best if best is not None and best.number > 1 else None


def _against(point: Point, other: Point) -> tuple[str, str]:
    return significance.verdict([ratio - 1 for ratio in point.ratios(other)])


def scaling_remarks(data: Record) -> Iterator[str]:
    """Yield sentences about the meaning of the figures that were measured, and about what limits the scaling."""
    scaling = scaling_of(data)
    if scaling.shared and scaling.is_of_copies:
        yield f"{scaling.shared}: on a GPU the result may be another"
    elif scaling.shared:
        yield (
            f"a rehearsal: {scaling.shared}, so that no speed-up can be expected; what it shows is that the strategy "
            "works"
        )
    first, best = next(iter(scaling.points), None), best_copies(data)
    compiled = {point.xla for point in scaling.points} - {None}
    if first is not None and not scaling.is_of_copies and len(compiled) == 2 and first.xla:
        yield (
            "XLA compiles the step of one replica and not that of several (compile.xla: auto): a part of the "
            "difference may be XLA's; set compile.xla=false, or true, to compare the same"
        )
    if first is not None and first.changes.get("compile.xla") is False:
        yield (
            "all were measured without XLA, as compile.xla=auto uses it for one replica only; compile.xla=true "
            "measures all with XLA"
        )
    for point in scaling.points:
        if (
            first is not None
            and not scaling.is_of_copies
            and (limited := _limit(first, point, scaling.keep == "global"))
        ):
            yield limited
        if point.decision == "failed":
            yield _failed(point, scaling)
        elif scaling.is_of_copies and best and point.number > best.number and point.efficiency is not None:
            yield f"{counted(point.number, 'copies')} instead of {best.number}: {': '.join(_against(point, best))}"


def _limit(first: Point, point: Point, strong: bool) -> str:
    """Return the cause of longer steps than with one replica, if any; `strong`: the global batch stays."""
    reached, many = point.efficiency, point.replicas
    was, now = first.step_ms, point.step_ms
    if reached is None or reached >= GOOD or many == 1 or was is None or now is None:
        return ""
    ideal = was / many if strong else was
    replicas = counted(many, "replicas")
    text = f"{replicas}: a step takes {_STEP.text(now)}, {_STEP.text(ideal)} would be {many} times the speed"
    if first.input_wait is None or point.input_wait is None or now <= ideal:
        return text
    waits = point.input_wait * now - first.input_wait * ideal  # in milliseconds, more than with one replica
    wait = f"{_WAIT.phrase(point.input_wait)} instead of {_WAIT.text(first.input_wait)}"
    if waits / (now - ideal) >= HALF:
        return f"{text}; most of what was added is waiting for the input ({wait})"
    return (
        f"{text}; little of what was added is waiting for the input ({wait}): the step itself takes longer, by "
        "computing and the exchange of gradients, which a profile tells apart (gputui diagnose --profile)"
    )


def _efficiency(comparison: Comparison) -> str:
    """Return `; 2 replicas instead of 1: an efficiency of 92 %`. Empty if the number is the same or not known."""
    if comparison.decision in ("stopped", "running"):
        return ""
    counts = [{trial.replicas for trial in comparison.good(side)} for side in "ab"]
    a, b = (each.pop() if len(each) == 1 else None for each in counts)
    if a is None or b is None or a == b or comparison.gain is None:
        return ""
    return f"; {counted(b, 'replicas')} instead of {a}: an efficiency of {share((1 + comparison.gain) / (b / a))}"


# ---- a range test of learning rates ---------------------------------------------------------------


RATE_SOURCE = "range test: Smith, arXiv:1506.01186"


def rate_inapplicable(why: str) -> str:
    """Return why the rate of a user's own training cannot be tested, and the remedy."""
    return (
        f"{KEY} has no effect: {why}; let `build` return no optimizer and an uncompiled model, or test the rate in "
        "your own script"
    )


def rate_losses(test: RateTest) -> str:
    """Return the losses of the pairs in words: the mean losses, the median difference, and its spread."""
    median, spread = significance.gain_and_spread(test.gains)
    both = f"{test.of} loss {units.amount(test.loss_b)} instead of {units.amount(test.loss_a)}"
    if median is None or spread is None:
        return both
    count, lower = len(test.gains), sum(gain > 0 for gain in test.gains)
    change = units.change(_change(median))
    words = f"{both} on average, lower in {lower} of {count} pairs, median {change} (spread {units.spread(spread)})"
    if test.decision != "undecided":
        return words
    gain = significance.detectable_gain(spread, count)
    least = abs(_change(gain)) if median > 0 else gain
    more = significance.pairs_needed(median, spread)
    further = f"; --repeats {more} would tell" if more - count <= significance.MOST_MORE_PAIRS else ""
    return f"{words}; only more than {units.spread(least)} is beyond chance{further}"


def _change(gain: float) -> float:
    # 0.25 is a loss 20 % lower
    return 1 / (1 + gain) - 1


def suggestion(test: RateTest) -> str:
    return "" if test.suggested is None else f"suggested: learning_rate={test.suggested:g}: {test.reason}"


def _rate(test: RateTest) -> str:
    if test.decision == "no suggestion":
        return "the range test suggests no learning rate"
    if test.suggested is None:
        return "stopped before there was a suggestion" if test.decision == "running" else test.why
    rates = f"learning_rate={test.suggested:g}"
    against = f"the preset's {test.before:g}"
    words = {
        "better": f"{rates} learns better than {against}",
        "worse": f"{rates} was suggested, and learns worse than {against}",
        "no difference": f"{rates} learns as well as {against}",
        "undecided": f"{rates} and {against} cannot be told apart",
        "close": f"the suggestion {rates} confirms {against}",
        "not judged": f"{rates} is suggested, and not proved to learn better than {against}",
    }
    return words.get(test.decision, f"{rates} is suggested, and its comparison with {against} is incomplete")


def rate_titled(test: RateTest) -> list[tuple[str, Trial]]:
    rows = [("the ramp", trial) for trial in test.ramp]
    for trial in test.trials:
        rate = test.before if trial.side == "a" else test.suggested or test.before
        seed = "" if test.seed is None else f", seed {test.seed + trial.repeat - 1}"
        rows.append((f"rate {rate:g}{seed}", trial))
    return rows
