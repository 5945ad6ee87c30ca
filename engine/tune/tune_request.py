"""The request for a search, and what is refused before anything is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import checks, options
from ..job import this_machine
from ..options import BY_KEY, OPTIONS
from ..options.catalogue import did_you_mean
from ..presets import Preset
from ..proof import duration, proof_start, request
from ..proof.folder import Proof
from ..proof.request import ProofError, Request
from ..runs import launched_with
from ..trials import LEAST_REPEATS, SCREENING_SECONDS, STAGES, TRIAL_SECONDS, rate_sentences
from ..trials.record import KEY, Limits, RateSettings
from ..trials.search_results import ONLY_OPTION
from .time_plan import TimePlan
from .wide import storage
from .wide.study import Study


def of_preset(preset: Preset, limits: Limits, **more: Any) -> Request:
    """Return a request for a search, also from a preset with unsaved changes. Raises ProofError."""
    asked = refuse(request.of_opened("tune", preset, search=checked(limits), **more))
    return joined(asked) if limits.study else asked


def joined(asked: Request) -> Request:
    """Return the request, without an ordered search if its study has trials. Raises StudyError and ProofError."""
    storage.require("wide searches need")
    trials = Study.of(asked, this_machine.read(), Path.cwd()).finished_trials()
    return replace(asked, search=replace(asked.search or Limits(), wide="instead")) if trials else asked


def checked(limits: Limits) -> Limits:
    """Return the limits with full keys of options (`input.batch_size`). Raises ProofError."""
    for stage in limits.only:
        if stage not in STAGES:
            near = did_you_mean(stage, STAGES)
            raise ProofError(f"{stage!r} cannot be searched{near}; there are {', '.join(STAGES)}")
    policies = BY_KEY["precision.policy"].choices
    for policy in limits.precisions or ():
        if policy not in policies:
            raise ProofError(f"there is no precision {policy!r}; there are {', '.join(policies)}")
    if limits.warmup_steps is not None and limits.learning_rate == "keep":
        raise ProofError("warm-up steps belong to a scaled learning rate: choose linear or sqrt as well")
    leave = [_key(key) for key in limits.leave]
    if not [stage for stage in limits.only if ONLY_OPTION.get(stage) not in leave]:
        raise ProofError(f"nothing is left to search: {', '.join(limits.only)} is both searched and left out")
    if limits.wide is None and (limits.study or limits.study_name):
        raise ProofError("a study belongs to a wide search: give --wide as well")
    if limits.wide:
        storage.require("wide searches need")
    # as any folder can use it
    return replace(limits, leave=leave, study=storage.located(limits.study) if limits.study else None)


def _key(text: str) -> str:
    """Raises ProofError if `text` is no option and no stage with a single option."""
    try:
        return ONLY_OPTION.get(text) or options.resolve_key(text, OPTIONS)
    except KeyError as fault:
        if text in STAGES:
            raise ProofError(
                f"--leave takes single options; {text} is left out by naming the others with --only"
            ) from None
        raise ProofError(f"--leave {text}: {fault.args[0]}") from None


LEAST_TRIALS = 2  # the preset, and one change


def plan_of(
    limits: Limits, preset_name: str, repeats: int = LEAST_REPEATS, measure_seconds: float = TRIAL_SECONDS
) -> TimePlan:
    """Return the plan, with times of trials from earlier measurements or runs of this preset here, or else assumed."""
    times = duration.trial_times(preset_name)
    plan = TimePlan.of(limits, times.seconds(SCREENING_SECONDS), measure_seconds, repeats)
    return replace(plan, pair_trial=max(plan.trial, times.seconds(measure_seconds)), source=times.source)


def refuse(asked: Request) -> Request:
    """Return the request. Raises ProofError if its limits exclude the preset, with which the search begins, or its
    minutes two trials.
    """
    limits, built = asked.search or Limits(), asked.baseline().options
    if limits.largest_batch is not None:
        each, replicas = built.input.batch_size, max(1, checks.replicas(built, this_machine.read()))
        if each * replicas > limits.largest_batch:
            parts = f" ({each:,} on each of {replicas} devices)" if replicas > 1 else ""
            raise ProofError(
                f"the preset's batch of {each * replicas:,}{parts} is above the largest that is allowed, "
                f"{limits.largest_batch:,}; begin with a smaller one "
                f"(batch_size={max(1, limits.largest_batch // replicas)}), or raise the limit"
            )
    plan = plan_of(limits, asked.preset_name, asked.repeats, asked.measure_seconds)
    needed = LEAST_TRIALS * plan.trial
    if plan.limit < needed and not limits.dry_run:
        raise ProofError(
            f"{limits.minutes:g} min are too few: a trial of the preset and one of a change take about "
            f"{needed / 60:.1f} min here; give more minutes ({plan.longer_in_words()})"
        )
    return asked


def resumed(proof: Proof, minutes: float | None = None) -> Request:
    """Return the request of a resumed search, with `minutes` more if given. Raises ProofError."""
    asked = proof_start.resumed(proof, "tune", minutes)
    if asked.search is not None and asked.search.wide:
        storage.require("wide searches need")
        Study.of(asked, this_machine.read(), proof.path).finished_trials()
    return asked


# ---- the learning-rate range test -----------------------------------------------------------------


LEAST_STEPS, LEAST_FACTOR = 50, 100.0
LIMITS = (1e-12, 1000.0)  # of a rate; the second is that of the option


def range_test(preset: Preset, test: RateSettings, **more: Any) -> Request:
    """Return the request for a range test. Raises ProofError."""
    if not LIMITS[0] <= test.low <= test.high / LEAST_FACTOR or test.high > LIMITS[1]:
        raise ProofError(
            f"--rates {test.low:g}:{test.high:g}: give two rates between {LIMITS[0]:g} and {LIMITS[1]:g}, the second "
            f"at least {LEAST_FACTOR:g} times the first, such as 1e-6:10"
        )
    if test.steps < LEAST_STEPS:
        raise ProofError(f"--ramp-steps {test.steps}: a ramp needs at least {LEAST_STEPS} steps")
    earlier = launched_with.of_same_code(preset.options)
    if earlier is not None and (why := earlier.inapplicable.get(KEY)):
        raise ProofError(f"{preset.name}: {rate_sentences.inapplicable(why)}")
    return request.of_opened("rate", preset, rate=test, limit_seconds=60 * test.minutes, **more)
