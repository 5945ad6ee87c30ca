"""What follows when XLA fails to compile a training that `compile.xla: auto` has it compile: it goes on without XLA.

As where memory runs out (out_of_memory.py), the engine starts another trainer in the same run folder, with the option
changed. That happens once, as the option is then false. Where the option was true, the run ends with the failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..files.values import mapping, text
from ..runs import Run, checkpoint_files
from ..runs.events import EVENTS_FILE, Started, XlaAnswer
from ..runs.reading import read_events
from .known_failures import XLA
from .out_of_memory import CHECKPOINTS, HELPS_IN, Answer, last_phase

KEY = "compile.xla"


def answer(run: Run, preset: Mapping[str, Any], result: Mapping[str, Any]) -> Answer | str | None:
    """The answer to a failure of XLA; None for any other end, and a text where the training cannot go on."""
    error = mapping(result.get("error"))
    if error.get("kind") != XLA or mapping(preset.get("compile")).get("xla") != "auto":
        return None
    found = read_events(run.path, [EVENTS_FILE])
    started = found.last(Started)
    if started is None or started.actual.get("jit_compile") is not True or last_phase(found) not in HELPS_IN:
        return None  # XLA has compiled something else, in the user's code
    try:
        checkpoint = checkpoint_files.whole_step(run.file(CHECKPOINTS))
    except checkpoint_files.Damage as damage:
        return f"there is no intact checkpoint to go on from ({damage})"
    goes_on = "begins again" if checkpoint is None else f"goes on from step {checkpoint}"
    why, remedy = text(error.get("message")) or "", text(error.get("hint"))
    message = f"XLA has failed: the training {goes_on} without it"
    event = XlaAnswer(option=KEY, before="auto", after=False, resumes_at_step=checkpoint, error=why, message=message)
    return Answer(KEY, "auto", False, event, f"{KEY}=false begins so{f': {why}; {remedy}' if remedy else ''}", XLA)
