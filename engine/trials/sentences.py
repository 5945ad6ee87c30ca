"""Sentences about a proof, used by all views and the report: changes, verdicts, the present trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import units
from ..files.values import mapping, number
from ..options import OPTIONS
from ..profile import reports
from ..profile.reports import ProfileReport
from . import record, scaling_sentences

_NAMES = [info.name for info in OPTIONS]
OUT_OF_TIME = "the time budget"  # how the reason begins where a loop had no time left
DECIDED = ("kept", "rejected", "failed")


def value(of: Any) -> str:
    """The value as --set and YAML take it."""
    return of if isinstance(of, str) else json.dumps(of)


def changes(changed: Mapping[str, Any]) -> str:
    """`steps_per_execution=16, cache=memory`: the group is left out where the name is unique."""
    return ", ".join(f"{_short(key)}={value(of)}" for key, of in changed.items()) or "nothing"


def settings(changed: Mapping[str, Any]) -> str:
    """The changes as on a command line: `--set compile.steps_per_execution=16 --set ...`."""
    return " ".join(f"--set {key}={value(of)}" for key, of in changed.items())


def _short(key: str) -> str:
    name = key.split(".", 1)[-1]
    return name if _NAMES.count(name) == 1 else key


def verdict(comparison: Mapping[str, Any]) -> str:
    """The result of a comparison in one sentence, with the efficiency where the number of replicas changes."""
    scaled = (
        scaling_sentences.of_comparison(comparison) if comparison.get("decision") not in ("stopped", "running") else ""
    )
    return "; ".join(filter(None, (_verdict(comparison), scaled)))


def _verdict(comparison: Mapping[str, Any]) -> str:
    what = changes(comparison["changes"])
    decision, gain, spread = (comparison.get(name) for name in ("decision", "gain", "spread"))
    several = len(comparison["changes"]) > 1
    many, makes = ("are", "make") if several else ("is", "makes")
    measured = (
        f" (gain {units.change(gain)}, spread of the repeats {units.spread(spread)})" if spread is not None else ""
    )
    if decision == "kept" and gain is not None:
        return f"{what} {many} kept: {units.times(1 + gain)} as fast{measured}"
    if decision in ("faster", "slower") and gain is not None:
        return f"{what} {makes} the training {units.times(1 + gain)} as fast{measured}"
    if decision == "undecided":
        return f"whether {what} {makes} a difference is undecided: {comparison.get('why')}"
    if decision in ("no difference", "rejected"):
        told = f"{many} rejected" if decision == "rejected" else f"{makes} no difference"
        return f"{what} {told}: {comparison.get('why')}"
    if decision == "failed":
        return f"{what} cannot be used: {comparison.get('why')}"
    if decision == "stopped":
        return f"the measurement of {what} is incomplete"
    return f"{what} is being measured"


def speedup(proof: Mapping[str, Any]) -> str:
    """`2.31 times as fast`, by the gains of the pairs."""
    return f"{units.times(proof.get('gain_total'))} as fast"


def by_medians(proof: Mapping[str, Any]) -> float | None:
    """The speed-up as a factor by the medians of both sides; None where they are not both known.

    The medians are over minutes, while the trials of a pair follow each other directly. On a machine whose speed
    changes the two differ, and the gains of the pairs are closer to the truth.
    """
    before, after = (_speed(proof.get(side)) for side in ("before", "after"))
    return after / before if before and after else None


def _speed(side: Any) -> float | None:
    speed = side.get("samples_per_second") if isinstance(side, Mapping) else None
    return speed if isinstance(speed, int | float) else None


def differing_medians(proof: Mapping[str, Any]) -> str:
    """`1.64 times` by the medians, where that differs in words from the gains of the pairs; else nothing."""
    quotient, paired = by_medians(proof), proof.get("gain_total")
    if quotient is None or not isinstance(paired, int | float) or units.times(quotient) == units.times(paired):
        return ""
    return units.times(quotient)


def disturbance(proof: Mapping[str, Any]) -> str:
    """How many trials were disturbed, and by what; nothing where none was."""
    found = trials(proof)
    reasons = [trial["disturbed"] for trial in found if trial.get("disturbed")]
    if not reasons:
        return ""
    worst = max(reasons, key=lambda reason: (reasons.count(reason), reason))
    return f"{_disturbed(len(reasons), len(found))} ({worst}): for reliable figures measure again on a quiet machine"


def _disturbed(count: int, of: int) -> str:
    """`1 of 8 trials was disturbed`."""
    if of == 1:
        return "the only trial was disturbed"
    return f"{count} of {of} trials {'was' if count == 1 else 'were'} disturbed"


def trials(proof: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All trials of a proof.json, each once, in the order of their start."""
    ablation, profiled = (proof.get("ablation") or {}).get("trials") or (), proof.get("profile_trial")
    searched = (trial for trials in record.searched(proof) for trial in trials)
    compared = (trial for comparison in proof.get("comparisons") or () for trial in comparison["trials"])
    found = (*(proof.get("baseline_trials") or ()), *ablation, *([profiled] if profiled else ()), *searched, *compared)
    return list({trial["run"]: trial for trial in found}.values())


def conclusion(proof: Mapping[str, Any]) -> str:
    """One sentence of what the whole proof came to."""
    found = trials(proof)
    disturbed = sum(bool(trial.get("disturbed")) for trial in found)
    beside = f"; {_disturbed(disturbed, len(found))} by other programs" if disturbed else ""
    return result(proof) + beside


def result(proof: Mapping[str, Any]) -> str:
    """The conclusion without how many trials were disturbed."""
    what = "search" if proof["kind"] == "tune" else "proof"
    if proof["state"] == "failed":
        return f"the {what} failed: {proof.get('error')}"
    if proof["state"] == "crashed":
        return f"the {what}'s process has crashed; its results so far are shown"
    if proof["kind"] == "tune":
        return _search(proof)
    if proof["kind"] == "scaling":
        return scaling_sentences.conclusion(proof)
    if proof["kind"] == "ab" and proof["comparisons"]:
        return verdict(proof["comparisons"][0])
    if proof["kind"] == "diagnosis":
        return input_cost(proof.get("ablation") or {})
    return _loop(proof)


def _loop(proof: Mapping[str, Any]) -> str:
    kept = proof.get("changes_kept") or {}
    if kept:
        return f"{speedup(proof)} with {changes(kept)}"
    tried = sum(one.get("decision") in DECIDED for one in proof["comparisons"])
    return _nothing_found(proof, tried) if tried else _nothing_tried(proof)


def unproved(proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """The best settings of a search that has ended without a proof of them; empty where they were refused.

    Of a search that was interrupted these are the fastest settings until then.
    """
    search = mapping(proof.get("search"))
    if proof.get("kind") != "tune" or proof.get("state") == "running" or proof.get("changes_kept"):
        return {}
    if proof.get("state") == "done":
        return mapping(search.get("unproved"))
    made, losses = proof.get("comparisons") or (), search.get("losses") or ()
    refused = any(one.get("decision") in ("rejected", "failed") for one in made)
    refused = refused or any(one.get("decision") in ("worse", "failed") for one in losses)
    return {} if refused else mapping(search.get("best"))


def to_take(proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """The changes that can be saved or put into the form: those that were kept, else those that are not proved."""
    return mapping(proof.get("changes_kept")) or unproved(proof)


def not_proved(proof: Mapping[str, Any]) -> str:
    """What is known of settings that are not proved: `not proved: +719 % in single trials; in 2 pairs +745 %, ...`."""
    search, settings = mapping(proof.get("search")), unproved(proof)
    before, best = number(search.get("before_speed")), number(search.get("best_speed"))
    known = []
    if before and best and dict(settings) == search.get("best"):
        known.append(f"{units.change(best / before - 1)} in single trials")
    pairs: Mapping[str, Any] = next(
        (one for one in proof.get("comparisons") or () if one.get("changes") == settings), {}
    )
    if pairs.get("gain") is not None:
        measured = sum(trial["side"] == "b" and trial["outcome"] == "ok" for trial in pairs["trials"])
        spread = f", spread {units.spread(pairs['spread'])}" if pairs.get("spread") is not None else ""
        known.append(f"in {units.counted(measured, 'pairs')} {units.change(pairs['gain'])}{spread}")
    if search.get("learning"):
        known.append(str(search["learning"]))
    return ": ".join(filter(None, ("not proved", "; ".join(known))))


def only_predicts(proof: Mapping[str, Any]) -> bool:
    """Whether it is no search but a prediction of memory (`--dry-run`)."""
    return bool(((proof.get("search") or {}).get("limits") or {}).get("dry_run"))


def _search(proof: Mapping[str, Any]) -> str:
    """The proven gain of the best settings; without one, what the search was able to say."""
    if only_predicts(proof):
        return str(proof.get("ended_because") or _nothing_tried(proof))
    kept = [one for one in proof.get("comparisons") or () if one.get("decision") == "kept"]
    if proof.get("changes_kept") and kept:
        gain, spread = kept[-1].get("gain"), kept[-1].get("spread")
        return (
            f"{speedup(proof)} with {changes(proof['changes_kept'])} "
            f"(gain {units.change(gain)}, spread of the pairs {units.spread(spread)})"
        )
    if proof.get("changes_kept"):
        return f"the preset runs out of memory, and trains with {changes(proof['changes_kept'])}"
    tried = sum(bool(one["tried"]) for one in (proof.get("search") or {}).get("candidates") or () if one["trials"])
    if not tried:
        return _nothing_tried(proof)
    if settings := unproved(proof):
        stopped = "stopped: " if proof["state"] == "stopped" else ""
        return f"{stopped}it seems faster with {changes(settings)}, which is {not_proved(proof)}"
    if proof["state"] == "stopped":
        return f"stopped before anything was proved ({_tried(tried)})"
    if compared := proof.get("comparisons"):
        return f"nothing was proved to be faster than the preset as it is: {verdict(compared[-1])}"
    return f"nothing is faster than the preset as it is ({_tried(tried)})"


def _tried(count: int) -> str:
    return f"{count} {'change' if count == 1 else 'changes'} tried"


def _nothing_found(proof: Mapping[str, Any], tried: int) -> str:
    so_far = "stopped: so far " if proof["state"] == "stopped" else ""
    return f"{so_far}nothing was found to make it faster ({_tried(tried)})"


def _nothing_tried(proof: Mapping[str, Any]) -> str:
    if proof["state"] == "stopped":
        return "stopped before the measurement of any change was complete"
    if str(proof.get("ended_because") or "").startswith(OUT_OF_TIME):
        return "the time budget allowed no change to be measured"
    if (proof.get("final_verdict") or {}).get("verdict") == "undecided":
        return (
            "what holds the training back is undecided, so no change was tried; "
            "gputui tune tries changes without a diagnosis"
        )
    return "nothing was found to make it faster (no change to try)"


def input_cost(ablation: Mapping[str, Any]) -> str:
    """The cost of the input by ablation, beside the input wait that the training itself measured."""
    cost, wait = ablation.get("input_cost"), ablation.get("input_wait")
    if cost is None:
        return f"the cost of the input is unknown: {ablation.get('why') or 'not measured'}"
    told = "is unknown" if wait is None else f"is {units.share(wait)}"
    return (
        f"the input costs {units.share(cost)} of a step's time (measured by leaving it out); "
        f"the training itself measured input_wait, which {told}"
    )


def others(diagnosis: Mapping[str, Any]) -> str:
    """The verdicts beside the first, as words."""
    found = diagnosis.get("others")
    return ", ".join(str(word).replace("_", " ") for word in found) if isinstance(found, list) else ""


def outcome(trial: Mapping[str, Any]) -> str:
    """How it ended, with what; of a good one, what disturbed it."""
    more = trial.get("error") or trial.get("disturbed")
    return f"{trial['outcome']}: {more}" if more else str(trial["outcome"])


def learned(learning: Mapping[str, Any]) -> str:
    """One line: what changes in learning, and the losses of both sides."""
    a, b = learning.get("loss_a"), learning.get("loss_b")
    if a is None or b is None:
        return f"Note: {learning['note']}; the losses are not known."
    losses = f"{units.amount(a)} without, {units.amount(b)} with"
    return f"Note: {learning['note']}; loss after {units.count(learning['samples'])} samples: {losses}."


def profile_of(proof: Mapping[str, Any]) -> ProfileReport | None:
    """The profile of a proof.json; None where there is none, or none of today's form."""
    try:
        return reports.from_plain(proof["profile"]) if proof.get("profile") else None
    except (LookupError, TypeError, ValueError):
        return None


def profile_in_brief(proof: Mapping[str, Any]) -> list[str]:
    """What the profile says, in a few lines; or why it says nothing."""
    known = profile_of(proof)
    if known is not None:
        return reports.in_brief(known)
    going_on = proof.get("state") == "running" and not proof.get("profile_missing")
    return ["it is being read" if going_on else f"no profile: {proof.get('profile_missing') or 'it was not read'}"]
