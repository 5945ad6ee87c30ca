"""Counts the elements of a data set whose length TensorFlow does not know, once, before the training begins.

A data set without an end cannot be counted. TensorFlow knows most of these; for the others there is a time limit.
"""

from __future__ import annotations

import time

import tensorflow as tf

from ..measure.run_report import RunReport
from .user_code import UserError

MOST_SECONDS = 120.0
LOOK_EVERY = 256  # elements between two checks of the time
STEPS = {"train": "train.steps_per_epoch", "validation": "validation_steps"}
SAMPLES = {"train": "samples", "validation": "validation_samples"}


def counted(data: tf.data.Dataset, role: str, report: RunReport, most_seconds: float = MOST_SECONDS) -> int:
    """The number of elements in one pass; raises UserError where there is no end."""
    settable = f"set {STEPS[role]}" if role == "train" else f"return {STEPS[role]} beside it"
    if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise UserError(f"{role} has no end", f"{settable}, the number of batches to take")
    report.phase("building", f"counting {role}")
    deadline = time.monotonic() + most_seconds
    number = 0
    for number, _ in enumerate(data.map(lambda *_: tf.constant(0, tf.int8)), start=1):
        if number % LOOK_EVERY == 0 and time.monotonic() > deadline:
            raise UserError(
                f"{role} has more than {number:,} elements, or no end: they were counted for {most_seconds:g} s",
                f"return {SAMPLES[role]} beside it, or {settable}",
            )
    report.phase("building", "data")
    return number
