"""Sentences about a proof, used by all views and the report: changes, verdicts, the present trial."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from .. import units
from ..files import typed
from ..profile import reports
from ..profile.reports import ProfileReport
from . import rate_sentences, scaling_sentences, sweep_record
from .change_texts import changes as changes
from .change_texts import settings as settings
from .change_texts import value as value
from .kinds import kind
from .record import Ablation, Comparison, Learning, Record, Trial, search_of
from .significance import WORSE

OUT_OF_TIME = "the time budget"  # the beginning of `ended_because` if there was no time left
DECIDED = ("kept", "rejected", "failed")


def verdict(comparison: Comparison) -> str:
    """Return the result of a comparison in one sentence. If the number of replicas changes, the efficiency is added."""
    scaled = scaling_sentences.of_comparison(comparison) if comparison.decision not in ("stopped", "running") else ""
    return "; ".join(filter(None, (_verdict(comparison), scaled)))


def _verdict(comparison: Comparison) -> str:
    what = changes(comparison.changes)
    decision, gain, spread = comparison.decision, comparison.gain, comparison.spread
    several = len(comparison.changes) > 1
    many, makes = ("are", "make") if several else ("is", "makes")
    measured = (
        f" (gain {units.change(gain)}, spread of the repeats {units.spread(spread)})" if spread is not None else ""
    )
    if decision == "kept" and gain is not None:
        return f"{what} {many} kept: {units.times(1 + gain)} as fast{measured}"
    if decision in ("faster", "slower") and gain is not None:
        return f"{what} {makes} the training {units.times(1 + gain)} as fast{measured}"
    if decision == "undecided":
        return f"whether {what} {makes} a difference is undecided: {comparison.why}"
    if decision in ("no difference", "rejected"):
        text = f"{many} rejected" if decision == "rejected" else f"{makes} no difference"
        return f"{what} {text}: {comparison.why}"
    if decision == "failed":
        return f"{what} cannot be used: {comparison.why}"
    if decision == "stopped":
        return f"the measurement of {what} is incomplete"
    return f"{what} is being measured"


def speedup(proof: Record) -> str:
    """Return the total gain as a factor: `2.31 times as fast`."""
    return f"{units.times(proof.gain_total)} as fast"


def disturbance(proof: Record) -> str:
    """Return how many trials were disturbed, and the most frequent disturbance. Empty if none was."""
    rows = proof.trials
    reasons = [trial.disturbed for trial in rows if trial.disturbed]
    if not reasons:
        return ""
    worst = max(reasons, key=lambda reason: (reasons.count(reason), reason))
    return f"{_disturbed(len(reasons), len(rows))} ({worst}): for reliable figures measure again on a quiet machine"


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
        return scaling_sentences.conclusion(proof)
    if proof.kind == "rate":
        return rate_sentences.result(proof.rate) if proof.rate else "stopped before there was a suggestion"
    if proof.kind == "sweep":
        return sweep_record.result(proof.sweep)
    if proof.kind == "ab" and proof.comparisons:
        return "; ".join(filter(None, (verdict(proof.comparisons[0]), learns(proof))))
    if proof.kind == "diagnosis":
        return input_cost(proof.ablation)
    return proof.answer or _loop(proof)


def _loop(proof: Record) -> str:
    kept = proof.changes_kept
    if kept:
        return "; ".join(filter(None, (f"{speedup(proof)} with {changes(kept)}", learns(proof))))
    tried = sum(comparison.decision in DECIDED for comparison in proof.comparisons)
    so_far = "stopped: so far " if proof.state == "stopped" else ""
    return f"{so_far}nothing was proved to make it faster ({_tried(tried)})" if tried else _nothing_tried(proof)


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
            higher, after = units.share((b - a) / abs(a)), units.counted(learning.samples, "samples")
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
        facts.append(f"in {units.counted(measured, 'pairs')} {units.change(pairs.gain)}{spread}")
    if search.learning:
        facts.append(search.learning)
    return ": ".join(filter(None, ("not proved", "; ".join(facts))))


def only_predicts(proof: Record) -> bool:
    """Return True if the search only predicts memory (`--dry-run`)."""
    return search_of(proof).limits.dry_run


def _search(proof: Record) -> str:
    if only_predicts(proof):
        return proof.ended_because or _nothing_tried(proof)
    kept = [comparison for comparison in proof.comparisons if comparison.decision == "kept"]
    if proof.changes_kept and kept:
        gain, spread = kept[-1].gain, kept[-1].spread
        text = (
            f"{speedup(proof)} with {changes(proof.changes_kept)} "
            f"(gain {units.change(gain)}, spread of the pairs {units.spread(spread)})"
        )
        return "; ".join(filter(None, (text, learns(proof))))
    if proof.changes_kept:
        return f"the preset runs out of memory, and trains with {changes(proof.changes_kept)}"
    tried = sum(bool(candidate.tried) for candidate in search_of(proof).candidates if candidate.trials)
    if not tried:
        return _nothing_tried(proof)
    if settings := unproved(proof):
        stopped = "stopped: " if proof.state == "stopped" else ""
        return f"{stopped}it seems faster with {changes(settings)}, which is {not_proved(proof)}"
    if proof.state == "stopped":
        return f"stopped before anything was proved ({_tried(tried)})"
    if compared := proof.comparisons:
        return f"nothing was proved to be faster than the preset as it is: {verdict(compared[-1])}"
    if learns_worse(proof):
        return f"what is faster than the preset learns clearly worse ({_tried(tried)})"
    return f"nothing is faster than the preset as it is ({_tried(tried)})"


def learns_worse(proof: Record) -> bool:
    return not proof.changes_kept and any(check.decision == "worse" for check in search_of(proof).losses)


def _tried(count: int) -> str:
    return f"{count} {'change' if count == 1 else 'changes'} tried"


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
    measured = "is unknown" if wait is None else f"is {units.share(wait)}"
    return (
        f"the input costs {units.share(cost)} of a step's time (measured by leaving it out); "
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
