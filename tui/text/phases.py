"""The phases and the endings of a run as text.

Deferred imports: the first paint needs no runs.
"""

from __future__ import annotations

from ...engine import figures

DOING = {
    "starting": "starting the engine",
    "importing": "importing TensorFlow",
    "configuring": "opening the devices",
    "building": "building",
    "training": "training",
    "evaluating": "evaluating",
    "saving": "saving",
    "ended": "ending",
}
ENDED = {
    "ok": "done",
    "oom": "out of memory",
    "error": "failed",
    "stopped": "stopped",
    "timeout": "ended by its time limit",
    "crashed": "crashed",
}
ENDLESS = 900_000_000  # a trial has about this many steps or more, as it ends by its time (engine/trials/bench.py)
ASKED_FOR = ("stopped", "timeout")  # ends that are no failure


def is_early(outcome: str | None, step: float | None, steps: float | None) -> bool:
    """Whether a callback has ended a training before its last step (model.stop_training)."""
    return outcome == "ok" and step is not None and steps is not None and step < steps < ENDLESS


def compiling(detail: str) -> str:
    """What the phase `compiling` does, by its detail."""
    what = {"evaluation": "the evaluation", "smaller batch": "for a smaller last batch"}.get(detail, "the first step")
    return f"compiling {what}"


_BRIEF = {
    "starting": "engine",
    "importing": "TensorFlow",
    "configuring": "devices",
    "building": "building",
    "compiling": figures.of_run("first_step_seconds").label,
    "training": "training",
    "evaluating": "evaluation",
    "saving": "saving",
}


def brief(phase: str, detail: str = "") -> str:
    """The phase in a word or two, before its seconds."""
    from ...engine.runs.events import LATER_COMPILING, waits_for_others

    if phase == "compiling" and detail in LATER_COMPILING:
        return compiling(detail)
    if waits_for_others(phase, detail):
        return "other workers"
    return _BRIEF.get(phase, phase)


def doing(phase: str, detail: str) -> str:
    """What is done in the phase, with its object where that is known."""
    from ...engine.runs.events import waits_for_others

    if phase == "compiling":
        return compiling(detail)
    if waits_for_others(phase, detail):
        return detail
    said = DOING.get(phase, phase)
    return f"{said} {detail}" if phase in ("building", "saving") and detail else said
