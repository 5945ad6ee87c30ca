"""The commands `gputui tune` and `gputui fit-batch`: start or resume a search, and follow it as a proof."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...engine.proof import folder, proof_start
from ...engine.trials import STAGES
from ...engine.trials.rate_record import RateSettings
from ...engine.trials.search_record import Limits
from ...engine.tune import tune_request
from ...engine.tune.rate import rate_request
from ..base.errors import Refused
from . import proof as proof_command

ENDED = ("done", "running", "waiting")
RESUMING = {
    "resume",
    "minutes",
    "output",
    "as_json",
    "wait",
    "anyway",
    "queue",
    "after",
}  # options that are allowed together with --resume
OF_TEST = {
    "rate_test", "rates", "ramp_steps", "preset", "settings", "minutes", "repeats", "output", "as_json", "wait",
    "anyway", "queue", "after",
}  # options that are allowed together with --learning-rate-test  # fmt: skip


def tune(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a search, or resume one with --resume. Return the exit code. `options` are the command's options by name,
    and `given` are the names of those that are on the command line. Raises Refused without a preset, and for options
    that a resumed search cannot change."""
    following = {name: options.pop(name) for name in ("as_json", "anyway", "wait", "output", "queue", "after")}
    is_test, ramp = options.pop("rate_test", False), {name: options.pop(name, None) for name in ("rates", "ramp_steps")}
    if is_test:
        return _test_rates(preset, settings, options, given, ramp, following)
    if any(value is not None for value in ramp.values()):
        raise Refused("--rates and --ramp-steps go with --learning-rate-test")
    if options["dry_run"] and following["output"] is not None:
        raise Refused("--dry-run only predicts the memory: there is nothing to save with -o")
    again = options.pop("resume")
    if again is not None:
        if set(given) - RESUMING:
            raise Refused("a resumed search keeps its preset and limits, but for --minutes: leave them out")
        minutes = options["minutes"] if "minutes" in given else None
        return _resume(again, minutes, **following)
    if preset is None:
        raise Refused("name what to tune: gputui tune --preset NAME, or --resume for the latest search")
    repeats, seconds = options.pop("repeats"), options.pop("seconds")
    asked = tune_request.of_preset(preset, settings, limits(**options), repeats=repeats, measure_seconds=seconds)
    return proof_command.run_proof(asked, **following)


def _test_rates(
    preset: str | None,
    settings: Sequence[str],
    options: Mapping[str, Any],
    given: Collection[str],
    ramp: Mapping[str, Any],
    following: dict[str, Any],
) -> int:
    """Start a learning-rate range test. Raises Refused for options of a search."""
    if others := [name for name in given if name not in OF_TEST]:
        raise Refused(f"--{others[0].replace('_', '-')} does not go with --learning-rate-test")
    if preset is None:
        raise Refused("name what to test: gputui tune --preset NAME --learning-rate-test")
    values = {"low": None, "high": None} if ramp["rates"] is None else rates(ramp["rates"])
    values |= {"steps": ramp["ramp_steps"], "minutes": options["minutes"]}
    test = RateSettings(**{name: value for name, value in values.items() if value is not None})
    asked = rate_request.of_preset(preset, settings, test, repeats=options["repeats"])
    return proof_command.run_proof(asked, **following)


def rates(text: str) -> dict[str, Any]:
    """Return the lowest and the highest rate in a text such as `1e-6:10`. Raises Refused for another text."""
    low, _, high = text.partition(":")
    try:
        return {"low": float(low), "high": float(high)}
    except ValueError:
        raise Refused(f"--rates takes two rates such as 1e-6:10, not {text!r}") from None


def limits(
    *, only: Sequence[str], leave: Sequence[str], memory_gb: float | None, precisions: Sequence[str], **more: Any
) -> Limits:
    """Return the requested limits of the search: `only` these stages, and `leave` these options; `memory_gb` in GB."""
    return Limits(
        only=list(only) or list(STAGES),
        leave=list(leave),
        memory_bytes=None if memory_gb is None else round(memory_gb * 1e9),
        precisions=list(precisions) or None,
        **more,
    )


def _resume(name: str, minutes: float | None, *, anyway: bool, **more: Any) -> int:
    proof = _latest(minutes is not None) if name == "latest" else folder.find(name)
    if proof.record.kind == "rate":
        raise Refused(f"{proof.id} is a learning-rate test, which is not resumed: start it again")
    start, resumed = lambda: tune_request.resume(proof, anyway, minutes), lambda: tune_request.resumed(proof, minutes)
    return proof_command.go_on(proof, start, resumed, anyway=anyway, **more)


def _latest(any_ended: bool) -> folder.Proof:
    return proof_start.latest_to_resume(
        lambda request: request.kind == "tune" and not (request.search and request.search.dry_run),
        ("running", "waiting") if any_ended else ENDED,
        "there is no search to go on with; gputui tune --preset NAME starts one",
    )
