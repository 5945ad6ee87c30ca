"""The command `gputui scaling`: start or resume a measurement of scaling, and follow it as a proof."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...engine.proof import folder, proof_start
from ...engine.scaling import scaling_request
from ..base.errors import Refused
from . import proof as proof_command

MOST_REPLICAS, MOST_COPIES = 1024, 16
ENDED = ("done", "running", "waiting")
# Options that are allowed together with --resume.
RESUMING = {"resume", "json", "markdown", "wait", "anyway", "queue", "after"}


def scaling(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a measurement of scaling, or resume one with --resume. Return the exit code. `options` are the command's
    options by name, and `given` are the names of those that are on the command line. Raises Refused without a preset,
    and for options that a resumed measurement cannot change."""
    again = options.pop("resume")
    form = options.pop("form")
    following = {name: options.pop(name) for name in ("anyway", "wait", "queue", "after")}
    following |= {"as_json": form == "json", "report": form == "markdown"}
    if again is not None:
        if set(given) - RESUMING:
            raise Refused("a resumed measurement keeps its preset and replicas: leave them out with --resume")
        return _resume(again, **following)
    if preset is None:
        raise Refused("name what to measure: gputui scaling --preset NAME, or --resume for the latest measurement")
    seconds, output = options.pop("seconds"), options.pop("output")
    replicas, copies = (counts(options.pop(name), name) for name in ("replicas", "copies"))
    if copies and {"replicas", "keep"} & set(given):
        raise Refused("--copies trains several copies of one training on one device: leave out --replicas and --keep")
    if output is not None and not copies:
        raise Refused("-o saves the preset with the number of runs on a GPU that pays: it needs --copies")
    asked = scaling_request.of_preset(preset, settings, replicas, measure_seconds=seconds, copies=copies, **options)
    if output is not None and asked.scaling is not None and asked.scaling.shared:
        raise Refused("-o saves the number of runs on a GPU that pays, and this preset trains on the CPU: leave it out")
    return proof_command.run_proof(asked, output=output, **following)


def counts(text: str | None, name: str = "replicas") -> list[int]:
    """Return the numbers in a text such as `1,2,4`, the value of the option `name`: of replicas or copies. The list is
    empty without a text. Raises Refused for other texts, and for numbers outside 1 to 1024 (copies: 16)."""
    try:
        numbers = [int(word) for word in text.split(",")] if text else []
    except ValueError:
        numbers = [0]
    most = MOST_COPIES if name == "copies" else MOST_REPLICAS
    if any(count < 1 or count > most for count in numbers):
        raise Refused(f"--{name} takes numbers of {name} from 1 to {most}, such as 1,2,4, not {text!r}")
    return numbers


def _resume(name: str, *, anyway: bool, **more: Any) -> int:
    proof = _latest() if name == "latest" else folder.find(name)
    start, resumed = lambda: scaling_request.resume(proof, anyway), lambda: scaling_request.resumed(proof)
    return proof_command.go_on(proof, start, resumed, anyway=anyway, output=None, **more)


def _latest() -> folder.Proof:
    return proof_start.latest_to_resume(
        lambda request: request.kind == "scaling",
        ENDED,
        "there is no measurement of scaling to go on with; gputui scaling --preset NAME starts one",
    )
