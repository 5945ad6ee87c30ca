"""The request for a measurement of scaling, and what is refused before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import checks, plan, presets
from ..checks.gpu_checks import on_cpu, share_a_gpu
from ..job import this_machine
from ..job.machine_gpus import Machine, visible_gpus
from ..presets import Preset
from ..proof import duration, request
from ..proof.request import ProofError, Request
from ..trials import KEEPS
from ..trials.record import ScalingSettings, Setting
from ..trials.trial_preset import with_changes
from .rounds import copies_settings

REHEARSE = "device.logical_devices=2"


def of_preset(
    name: str,
    settings: Sequence[str],
    replicas: Sequence[int],
    keep: str,
    minutes: float | None,
    copies: Sequence[int] = (),
    **more: Any,
) -> Request:
    """Return the request about a preset by name or path, for `replicas` (empty: 1, 2, 4 ... and all devices) or
    `copies` on one device. `keep` is `per-replica` or `global`, `minutes` the limit. Raises PresetError, ProofError.
    """
    here, preset = this_machine.read(), presets.resolve(name, settings)
    asked = copies_settings(preset, here, copies) if copies else scaling_settings(preset, here, replicas, keep)
    limit = None if minutes is None else 60 * minutes
    made = request.of_preset("scaling", name, settings, scaling=asked, limit_seconds=limit, **more)
    count = duration.sure_trials(made)
    needed = count * duration.of_request(made) / 60
    if minutes is not None and minutes < needed:
        raise ProofError(
            f"{minutes:g} min are too few: {made.repeats} rounds, {count} trials in all, take about {needed:.1f} min "
            f"here; give {int(needed) + 1} minutes or more, or fewer numbers"
        )
    return made


def of_opened(preset: Preset, source: Path | None, keep: str) -> Request:
    """Return the request about an opened preset with unsaved changes. Raises ProofError."""
    asked = scaling_settings(preset, this_machine.read(), (), keep)
    return request.of_opened("scaling", preset, source, scaling=asked)


def scaling_settings(preset: Preset, here: Machine, replicas: Sequence[int], keep: str) -> ScalingSettings:
    """Return the settings for one replica and each of `replicas` (empty: 1, 2, 4 ... and all devices). `keep` is the
    batch size that stays the same: `per-replica` or `global`. Raises ProofError.
    """
    options = preset.options
    if options.strategy.kind not in ("single", "one_device", "mirrored"):
        raise ProofError(
            f"gputui scaling measures the devices of one machine, and the preset has strategy.kind="
            f"{options.strategy.kind}; give --set strategy.kind=mirrored"
        )
    every = range(plan.devices(options, len(visible_gpus(options, here))))
    # positions in the list of visible devices
    pool = list(every if options.strategy.devices == "all" else options.strategy.devices)
    are_known = bool(visible_gpus(options, here)) or on_cpu(options, here)
    if are_known and len(pool) < 2:
        raise ProofError(_one_device(preset, here))
    usual = [*(2**power for power in range(len(pool).bit_length()) if 2**power < len(pool)), len(pool)]
    counts = sorted({1, *(replicas or usual)})
    if are_known and counts[-1] > len(pool):
        raise ProofError(
            f"{counts[-1]} replicas need {counts[-1]} devices, and there are {len(pool)}: name fewer with --replicas, "
            "or give more with device.visible, strategy.devices or device.logical_devices"
        )
    if counts == [1]:
        raise ProofError("one replica alone shows no scaling: name more, such as --replicas 1,2")
    pool = pool if are_known else list(range(counts[-1]))
    whole = plan.global_batch(options, checks.replicas(options, here))
    # on a GPU, compile.xla=auto would compile the step of one replica, but not that of several
    same = {"compile.xla": False} if options.compile.xla == "auto" and not on_cpu(options, here) else {}
    settings = []
    for count in counts:
        changes: dict[str, Any] = {"strategy.kind": "mirrored", "strategy.devices": pool[:count]}
        if count == 1:
            alone = {"strategy.kind": "single", "strategy.devices": "all"}
            changes = alone if pool[0] == 0 else {"strategy.kind": "one_device", "strategy.devices": [pool[0]]}
            changes["strategy.communication"] = "auto"
        changes |= same
        if keep == KEEPS[1]:
            if whole % count:
                raise ProofError(
                    f"a global batch of {whole:,} cannot be shared out among {count} replicas: set input.batch_size to "
                    f"a multiple of {count}, or keep the batch of each replica (--keep per-replica)"
                )
            changes["input.batch_size"] = whole // count
        settings.append(Setting(replicas=count, changes=changes))
    most = with_changes(preset, settings[-1].changes).options
    shared = "replicas share a GPU" if share_a_gpu(most, here) else ""
    if on_cpu(most, here):
        shared = "the logical devices share the cores of one CPU"
    return ScalingSettings(settings=settings, keep=keep, shared=shared)


def _one_device(preset: Preset, here: Machine) -> str:
    gpus = visible_gpus(preset.options, here)
    if not gpus:
        why = here.no_gpu_reason or "no GPU is used"
        return f"there are no two devices to train on ({why}): give --set {REHEARSE} to rehearse on parts of the CPU"
    return (
        f"only GPU {gpus[0].index} takes part, and scaling needs several devices: give --set {REHEARSE} --set "
        "device.visible=none to rehearse on parts of the CPU"
    )
