"""The commands `gputui tune` and `gputui fit-batch`: start or resume a search, and follow it as a proof."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...engine.proof import folder, proof_start
from ...engine.trials import STAGES
from ...engine.trials.search_record import Limits
from ...engine.tune import tune_request
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


def tune(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a search, or resume one with --resume. Return the exit code.

    `options` are the command's options by name, and `given` are the names of those that are on the command line. Raises
    Refused without a preset, and for options that a resumed search cannot change.
    """
    following = {name: options.pop(name) for name in ("as_json", "anyway", "wait", "output", "queue", "after")}
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


def limits(
    *, only: Sequence[str], leave: Sequence[str], memory_gb: float | None, precisions: Sequence[str], **more: Any
) -> Limits:
    """Return the limits of the search that the options of the command line request.

    `only` are the stages to search, by default all. `leave` are the keys of options that keep their values. `memory_gb`
    is the most memory in GB, None for no limit. `precisions` are those to try, by default those that the search
    chooses. `more` are further fields of Limits.
    """
    return Limits(
        only=list(only) or list(STAGES),
        leave=list(leave),
        memory_bytes=None if memory_gb is None else round(memory_gb * 1e9),
        precisions=list(precisions) or None,
        **more,
    )


def _resume(name: str, minutes: float | None, *, anyway: bool, **more: Any) -> int:
    proof = _latest(minutes is not None) if name == "latest" else folder.find(name)
    start, resumed = lambda: tune_request.resume(proof, anyway, minutes), lambda: tune_request.resumed(proof, minutes)
    return proof_command.go_on(proof, start, resumed, anyway=anyway, **more)


def _latest(any_ended: bool) -> folder.Proof:
    """Return the newest search that has ended before its time, else the newest of all. With `any_ended`, return the
    newest that has ended, which may be complete.

    Raises ProofError if there is none.
    """
    return proof_start.latest_to_resume(
        lambda request: request.kind == "tune" and not (request.search and request.search.dry_run),
        ("running", "waiting") if any_ended else ENDED,
        "there is no search to go on with; gputui tune --preset NAME starts one",
    )
