"""Predicts the memory of a preset without searching (`--dry-run`): a line through two probes of a few steps each. On a
GPU both are smaller than the preset's batch, as TensorFlow counts its tensors exactly. The peak of a process differs by
chance, so that on the CPU the second is as large as memory, samples and time surely allow.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..proof.measurement import Measurement, OutOfTime
from ..trials import memory_sentences
from ..trials.comparing import BaselineFailed
from ..trials.record import Candidate, Limits, Search
from ..trials.trial_preset import PROBE_SECONDS, value_of
from .memory_model import model_of
from .screening import Screening
from .search_space import BATCH, Space
from .stages import STEPS_OF_A_PROBE, ran_out, rounded

SMALLER = 4  # the first probe has the preset's batch divided by this; if it fails, divided by this again
LARGER = 32  # the batch of the second probe on a CPU is at most so many times that of the first
SHARE = 0.5  # of the memory that may be taken: the second probe is sure to take no more
SECONDS = 15.0  # for the steps of the second probe


def measure(measurement: Measurement) -> None:
    """Measure the probes and predict. Raises Stopped, and BaselineFailed if a probe fails or there is no time."""
    record, limits = measurement.record, measurement.request.search or Limits()
    search = record.search = Search(limits=limits, stage="batch_size")
    measurement.end_after(limits.minutes)
    screening = Screening(measurement, lambda doing: record.write(doing or None), PROBE_SECONDS)
    try:
        _predict(measurement, screening, limits)
    except OutOfTime:
        minutes = f"{limits.minutes:g} min"
        raise BaselineFailed(f"{minutes} do not allow the trials of a prediction: give more --minutes") from None
    assert search.memory is not None
    record.ended_because = memory_sentences.prediction(search.memory)


def _predict(measurement: Measurement, screening: Screening, limits: Limits) -> None:
    preset, size = measurement.preset, int(value_of(measurement.preset, BATCH))
    failed: list[int] = []
    for small in dict.fromkeys(max(1, size // divided) for divided in (SMALLER, SMALLER**2)):
        candidate = _probe(screening, small)
        if not ran_out(candidate):
            break
        failed.append(small)
    if not candidate.good:
        raise BaselineFailed(f"even batch size {small} cannot be trained: {candidate.why}")
    trial = candidate.good[-1]
    started = measurement.started(trial)
    memory = screening.memory = model_of(started, preset.options, trial, limits.memory_bytes)
    space = screening.space = Space(limits, measurement.machine, started)
    memory.most_batch = space.most_samples(preset)
    for batch in failed:
        memory.add(batch, None)
    candidate.peak_bytes = memory.peak(candidate.trials)
    memory.add(small, candidate.peak_bytes, candidate.trials)
    follows = BATCH not in started.inapplicable
    if follows and not failed:
        second = _second(screening, candidate, small, size)
        # the option of the batch size has no effect if the user's code makes the batches
        follows = not second.good or BATCH not in measurement.started(second.good[-1]).inapplicable
    state = screening.search.memory = memory.state()
    if follows:
        screening.search.memory = replace(
            state, batch_size=size, predicted_bytes=memory.predict(size),
            first_step_bytes=memory.predict_first_step(size), replicas=started.replicas,
        )  # fmt: skip


def _probe(screening: Screening, batch: int) -> Candidate:
    return screening.probe("batch_size", {BATCH: batch}, "a few steps, for their memory")


def _second(screening: Screening, first: Candidate, small: int, size: int) -> Candidate:
    memory = screening.memory
    batch = max(2, size // 2) if memory.of == "allocator" else _larger(screening, first, small)
    candidate = _probe(screening, batch)
    if candidate.peak_bytes is not None or ran_out(candidate):
        memory.add(batch, candidate.peak_bytes, candidate.trials)
    return candidate


def _larger(screening: Screening, first: Candidate, small: int) -> int:
    space, most, peak = screening.space, screening.memory.may_take, first.peak_bytes or 1
    speed = (first.good[-1].samples_per_second or math.inf) / space.replicas(screening.baseline)
    samples = space.most_samples(screening.baseline)
    affordable = int(min(speed * SECONDS / STEPS_OF_A_PROBE, LARGER * small))
    batch = min(LARGER * small, samples, affordable, *([] if most is None else [int(small * SHARE * most / peak)]))
    if batch >= 2 * small:
        return rounded(batch)
    fits = most is None or 2 * peak <= most
    return 2 * small if fits and samples >= 2 * small else max(1, small // 2)
