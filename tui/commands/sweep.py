"""The command `gputui sweep`: start or resume a sweep, and follow it as a proof."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...engine.proof import folder, proof_start
from ...engine.queue import adding
from ...engine.sweep import preset_block, sweep_request
from ...engine.trials import SAMPLERS
from ..base.errors import Refused
from . import proof as proof_command

GRID = SAMPLERS[0]
ENDED = ("done", "running", "waiting")
# Options that are allowed together with --resume.
RESUMING = {"resume", "minutes", "json", "markdown", "output", "queue", "after"}


def sweep(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a sweep, or resume one with --resume. Return the exit code. `options` are the command's options by name,
    and `given` are the names of those that are on the command line. Raises Refused without a preset, and for options
    that a resumed sweep cannot change."""
    again, form = options.pop("resume"), options.pop("form")
    following = {
        "as_json": form == "json", "report": form == "markdown", "anyway": options["anyway"],
    } | {name: options.pop(name) for name in ("output", "queue", "after")}  # fmt: skip
    if again is not None:
        if set(given) - RESUMING:
            raise Refused("a resumed sweep keeps its preset and settings, but for --minutes: leave them out")
        minutes = options["minutes"] if "minutes" in given else None
        proof = _latest(minutes is not None) if again == "latest" else folder.find(again)
        start, resumed = lambda: sweep_request.resume(proof, minutes), lambda: sweep_request.resumed(proof, minutes)
        return proof_command.go_on(proof, start, resumed, wait=False, **following)
    if preset is None:
        raise Refused("name what to sweep: gputui sweep --preset NAME --over KEY=VALUES, or --resume for the latest")
    block = preset_block.parameters(preset)
    if options["sampler"] == GRID and "sampler" in given:
        block.pop("most_trials", None)  # of the block's sampler
    options |= {name: value for name, value in block.items() if name not in given}
    asked = sweep_request.of_preset(preset, settings, **options)
    return proof_command.run_proof(asked, trains_on=adding.machine(), **following)


def _latest(any_ended: bool) -> folder.Proof:
    return proof_start.latest_to_resume(
        lambda request: request.kind == "sweep",
        ("running", "waiting") if any_ended else ENDED,
        "there is no sweep to go on with; gputui sweep --preset NAME --over KEY=VALUES starts one",
    )
