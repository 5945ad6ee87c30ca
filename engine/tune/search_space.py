"""Which options a search tries, with which values, on this machine and within the user's limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..diagnosis.measurements import ROOM_FOR_CACHE
from ..job import machine_gpus
from ..job.machine_gpus import Machine
from ..presets import Preset
from ..runs.events import Started
from ..telemetry import resource_limits
from ..telemetry.chips import fast_policies
from ..trials.record import Limits
from ..trials.trial_preset import OWN, with_changes

Settings = Mapping[str, Any]
BATCH = "input.batch_size"
POLICY = "precision.policy"
XLA = "compile.xla"
TOGETHER = "compile.steps_per_execution"
LEAST_STEPS_PER_PASS = 10  # with fewer updates in a pass the training is a different one
STEPS_TOGETHER = (4, 16, 64)  # gputui's mlp on a CPU: 622 us a step at 1, 228 us at 50
MOST_BATCH = 10_000_000  # the largest value of the option
# Proposed by TensorFlow's guide to input performance; a single one of these options often has no effect.
TUNED_INPUT = {"input.parallel_calls": "auto", "input.prefetch": "auto", "input.prefetch_to_device": "auto"}
MIRRORED = {"strategy.kind": "mirrored", "strategy.devices": "all"}
CACHED = {"input.cache": "memory"}


@dataclass(frozen=True)
class Space:
    """The settings that a search tries on this machine."""

    limits: Limits
    machine: Machine
    started: Started  # how the training was built in the baseline's trial

    @property
    def on_gpu(self) -> bool:
        return self.started.compute_capability is not None

    def allows(self, settings: Settings) -> bool:
        """Return True if the user allows these options, each has an effect, and no trial sets it itself."""
        fixed = {*self.limits.leave, *OWN, *self.started.inapplicable}
        return not fixed & set(settings)

    def of(self, stage: str, preset: Preset) -> list[Settings]:
        """Return the settings that a stage tries as changes of `preset`. Settings that change nothing are left out."""
        changes = (
            {key: value for key, value in settings.items() if preset.options.value(key) != value}
            for settings in self._tried(stage, preset)
            if self.allows(settings)
        )
        return [settings for settings in changes if settings]

    def most_batch(self, preset: Preset) -> int:
        """Return the user's limit for the batch of a replica, or that with LEAST_STEPS_PER_PASS steps in a pass."""
        samples = self.started.train_samples
        most = max(1, samples // LEAST_STEPS_PER_PASS) if samples else MOST_BATCH
        return max(1, (self.limits.largest_batch or most) // self.replicas(preset))

    def most_samples(self, preset: Preset) -> int:
        """Return the largest batch of one replica for which there are samples, or the user's limit if there is one."""
        most = self.limits.largest_batch or self.started.train_samples or MOST_BATCH
        return max(1, most // self.replicas(preset))

    def replicas(self, preset: Preset) -> int:
        return max(1, checks.replicas(preset.options, self.machine))

    def _tried(self, stage: str, preset: Preset) -> Iterator[Settings]:
        gpus, batch = machine_gpus.training_gpus(preset.options, self.machine), preset.options.value(BATCH)
        samples, cpus = self.started.train_samples, self.machine.cpus
        if stage == "precision":
            capability = (self.started.compute_capability or (0, 0)) if gpus else None
            for policy in self.limits.precisions or fast_policies(capability, bool(self.started.cpu_bfloat16)):
                if policy not in self.limits.avoid_precisions:
                    yield {POLICY: policy}
        elif stage == "xla":  # the opposite of how the baseline was built
            now = preset.options.value(XLA)
            yield {XLA: not (bool(self.started.actual.get("jit_compile")) if now == "auto" else now)}
        elif stage == "steps_per_execution":  # at most a pass, or an epoch if that is shorter
            most = preset.options.train.steps_per_epoch or STEPS_TOGETHER[-1]
            if samples:
                most = min(most, max(1, samples // (batch * self.replicas(preset))))
            for count in sorted({min(count, most) for count in STEPS_TOGETHER}):
                yield {TOGETHER: count}
        elif stage == "strategy":
            if len(machine_gpus.visible_gpus(preset.options, self.machine)) > 1:
                fitting = min(batch, self.most_batch(with_changes(preset, MIRRORED)))
                yield MIRRORED if fitting == batch else MIRRORED | {BATCH: fitting}
        elif stage == "threads":  # on a GPU private threads launch its kernels, on the CPU its cores are divided
            if gpus:
                yield {"device.gpu_thread_mode": "gpu_private"}
            elif cpus > 1:
                yield {"device.inter_op_threads": 1, "device.intra_op_threads": cpus}
                yield {"device.inter_op_threads": cpus, "device.intra_op_threads": 1}
        elif stage == "input":
            # The recommended ones come first together: with several faults, a single remedy changes little.
            tuned = {key: value for key, value in TUNED_INPUT.items() if self.allows({key: value})}
            fits = samples and self.started.sample_bytes and (
                samples * self.started.sample_bytes <= ROOM_FOR_CACHE * resource_limits.memory().available
            )  # fmt: skip
            cached = CACHED if preset.options.value("input.cache") == "off" and fits else {}
            if cached and self.allows(cached):
                yield tuned | cached
            yield tuned
            yield from ({key: value} for key, value in (tuned | cached).items())
            if preset.options.workload.source[0] == "tfrecord":
                yield {"input.parallel_reads": "auto"}
            yield {"input.parallel_calls": cpus}
            yield {"input.private_threads": cpus}
            if gpus:
                yield {"input.cast": "device"}
