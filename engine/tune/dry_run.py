"""Predicts the memory of a preset without searching (`--dry-run`): a line through two probes of a few steps each. On a
GPU both are smaller than the preset's batch, as TensorFlow counts its tensors exactly. The peak of a process differs by
chance, so that on the CPU the second is as large as memory, samples and time surely allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ..job.machine_gpus import Machine
from ..proof import duration
from ..proof.request import Request, conflict
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, Started
from ..trials.comparing import BaselineFailed
from ..trials.record import Candidate, Limits, Record, Search, Trial
from ..trials.trial_preset import PROBE_SECONDS
from ..trials.trial_runner import TrialRunner
from . import memory_model
from .memory_model import MemoryModel
from .report import memory_sentences
from .screening import Screening
from .search_space import BATCH, Space, value_of
from .search_trials import OutOfTime, Trials
from .stages import STEPS_OF_A_PROBE, rounded

SMALLER = 4  # the first probe has the preset's batch divided by this; if it fails, divided by this again
LARGER = 32  # the batch of the second probe on a CPU is at most so many times that of the first
SHARE = 0.5  # of the memory that may be taken: the second probe is sure to take no more
SECONDS = 15.0  # for the steps of the second probe


class Prediction:
    """Predicts the memory for one request by probes on `bench`; `earlier` are probes to resume with."""

    def __init__(
        self, request: Request, record: Record, bench: TrialRunner, machine: Machine, earlier: Iterable[Trial] = ()
    ) -> None:
        self._record, self._machine = record, machine
        self._limits = request.search or Limits()
        self._search = record.search = Search(limits=self._limits, stage="batch_size")
        self._preset = request.baseline()
        trials = Trials(bench, earlier, lambda: record.elapsed, 60 * self._limits.minutes, duration.of_request(request))
        self._screening = Screening(
            trials, self._search, self._preset, lambda doing: record.write(doing or None),
            lambda preset: conflict(preset, request, machine), PROBE_SECONDS,
        )  # fmt: skip

    def run(self) -> None:
        """Measure the probes and predict. Raises Stopped, and BaselineFailed if a probe fails or there is no time."""
        try:
            size = int(value_of(self._preset, BATCH))
            small = max(1, size // SMALLER)
            candidate = self._probe(small)
            failed = [small] if self._ran_out(candidate) else []
            if failed and small > 1:
                small = max(1, small // SMALLER)
                candidate = self._probe(small)
                failed += [small] if self._ran_out(candidate) else []
            if not candidate.good:
                raise BaselineFailed(f"even batch size {small} cannot be trained: {candidate.why}")
            started = self._started(candidate)
            model = self._model(started, candidate, small, failed)
            follows = BATCH not in started.inapplicable
            if follows and not failed:
                follows = self._second(model, Space(self._limits, self._machine, started), candidate, small, size)
            memory = model.state()
            if follows:
                memory = replace(
                    memory, batch_size=size, predicted_bytes=model.predict(size),
                    first_step_bytes=model.predict_first_step(size), replicas=started.replicas,
                )  # fmt: skip
            self._search.memory = memory
            self._record.ended_because = memory_sentences.prediction(memory)
        except OutOfTime:
            minutes = f"{self._limits.minutes:g} min"
            raise BaselineFailed(f"{minutes} do not allow the trials of a prediction: give more --minutes") from None

    def _probe(self, batch: int, predicted: int | None = None) -> Candidate:
        return self._screening.probe("batch_size", {BATCH: batch}, "a few steps, for their memory", predicted)

    def _ran_out(self, candidate: Candidate) -> bool:
        return any(trial.outcome == "oom" for trial in candidate.trials)

    def _started(self, candidate: Candidate) -> Started:
        run = self._screening.trials.run_of(candidate.good[-1])
        started = read_events(run.path, [EVENTS_FILE]).last(Started)
        if started is None:
            raise BaselineFailed(f"{run.name} has no record of its start")
        return started

    def _model(self, started: Started, candidate: Candidate, small: int, failed: list[int]) -> MemoryModel:
        model = memory_model.model_of(started, self._preset.options, candidate.good[-1], self._limits.memory_bytes)
        model.most_batch = Space(self._limits, self._machine, started).most_samples(self._preset)
        self._screening.peak_figure = memory_model.FIGURES[model.of]
        for batch in failed:
            model.add(batch, None)
        candidate.peak_bytes = model.peak(candidate.trials)
        model.add(small, candidate.peak_bytes, candidate.trials)
        return model

    def _second(self, model: MemoryModel, space: Space, first: Candidate, small: int, size: int) -> bool:
        # False if the option of the batch size has no effect, as the user's code makes the batches
        batch = max(2, size // 2) if model.of == "allocator" else self._larger(model, space, first, small)
        candidate = self._probe(batch)
        if candidate.peak_bytes is not None or self._ran_out(candidate):
            model.add(batch, candidate.peak_bytes, candidate.trials)
        return not candidate.good or BATCH not in self._started(candidate).inapplicable

    def _larger(self, model: MemoryModel, space: Space, first: Candidate, small: int) -> int:
        peak, most = first.peak_bytes or 1, model.may_take
        speed = (first.good[-1].samples_per_second or math.inf) / space.replicas(self._preset)
        bounds = [
            LARGER * small,
            space.most_samples(self._preset),
            int(min(speed * SECONDS / STEPS_OF_A_PROBE, LARGER * small)),
            LARGER * small if most is None else int(small * SHARE * most / peak),
        ]
        if min(bounds) >= 2 * small:
            return rounded(min(bounds))
        fits = most is None or 2 * peak <= most
        return 2 * small if fits and bounds[1] >= 2 * small else max(1, small // 2)
