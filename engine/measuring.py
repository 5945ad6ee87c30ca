"""When a run with `run.measure_seconds` has measured enough.

Shared by the trainer, which ends such a run, and by proofs, which say how long it takes. Where steps are so slow that
too few of them fall into the seconds asked for, it goes on: nothing can be judged by a handful of steps.
"""

from __future__ import annotations

LEAST_STEPS = 20  # what a diagnosis takes at least (diagnosis.ENOUGH_STEPS)
MOST_TIMES = 12  # the seconds asked for: then it ends, however few its steps


def enough(seconds: float, steps: int, asked: float) -> bool:
    """Whether what has been measured will do."""
    return seconds >= asked and (steps >= LEAST_STEPS or seconds >= MOST_TIMES * asked)


def expected_seconds(asked: float, step_seconds: float) -> float:
    """How long will be measured at that time of a step."""
    return max(asked, min(MOST_TIMES * asked, LEAST_STEPS * step_seconds))


def seconds_to_ask(step_seconds: float) -> int:
    """The whole seconds with which steps of that length are surely enough, with some room."""
    return int(1.5 * LEAST_STEPS * step_seconds / MOST_TIMES) + 1
