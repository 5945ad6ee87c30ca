"""The phases and the endings of a run as text."""

from __future__ import annotations

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


def compiling(detail: str) -> str:
    """What the phase `compiling` does, by its detail."""
    what = {"evaluation": "the evaluation", "smaller batch": "for a smaller last batch"}.get(detail, "the first step")
    return f"compiling {what}"
