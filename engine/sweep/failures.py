"""Which failures of trials end a sweep: several in a row with one cause. A setting that is bad by itself ends none."""

from __future__ import annotations

from collections.abc import Iterable

from ..trials.sweep_record import FAILED, SweepTrial
from .trainings import NOT_FINITE, OUT_OF_MEMORY, TIMEOUT

SAME_FAILURES = 3  # in a row, with one cause, hold the sweep
OF_THE_SETTING = (NOT_FINITE, OUT_OF_MEMORY, TIMEOUT)  # causes that another setting may not have


def why_to_hold(trials: Iterable[SweepTrial], since_t: float) -> str:
    """Return why no further trial is started: the latest that ended since the Unix time `since_t` failed with one
    cause. A divergence never holds the sweep; memory and time limits only if no trial has ended otherwise.
    """
    ended = sorted((trial for trial in trials if trial.ended_t is not None), key=lambda trial: trial.ended_t or 0.0)
    latest = [trial for trial in ended if (trial.ended_t or 0.0) >= since_t and not trial.failures][-SAME_FAILURES:]
    causes = {_cause(trial) for trial in latest}
    if len(latest) < SAME_FAILURES or len(causes) != 1 or any(trial.state != FAILED for trial in latest):
        return ""
    cause = latest[-1].cause
    if cause == NOT_FINITE or (cause in OF_THE_SETTING and any(trial.cause != cause for trial in ended)):
        return ""
    return f"{SAME_FAILURES} trials in a row failed with one cause: {latest[-1].error}"


def _cause(trial: SweepTrial) -> tuple[str, str]:
    return trial.cause, "" if trial.cause in OF_THE_SETTING else trial.error.replace(trial.run, "")
