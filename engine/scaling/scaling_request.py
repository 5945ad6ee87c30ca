"""The request for a measurement of scaling, and what is refused before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import checks, plan, presets
from ..checks import visible_gpus
from ..checks.gpu_checks import on_cpu, share_a_gpu
from ..job import this_machine
from ..job.machine_gpus import Machine
from ..presets import Preset
from ..proof import duration, proof_start, request
from ..proof.folder import Proof
from ..proof.request import ProofError, Request
from ..trials import KEEPS
from ..trials.record import ScalingSettings, Setting
from ..trials.trial_preset import with_changes
from .copies import copies_settings

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
    pool = _pool(preset, here)
    are_known = bool(visible_gpus(options, here)) or on_cpu(options, here)
    if are_known and len(pool) < 2:
        raise ProofError(_one_device(preset, here))
    counts = sorted({1, *(replicas or _usual(len(pool)))})
    if are_known and counts[-1] > len(pool):
        raise ProofError(
            f"{counts[-1]} replicas need {counts[-1]} devices, and there are {len(pool)}: name fewer with --replicas, "
            "or give more with device.visible, strategy.devices or device.logical_devices"
        )
    if counts == [1]:
        raise ProofError("one replica alone shows no scaling: name more, such as --replicas 1,2")
    pool = pool if are_known else list(range(counts[-1]))
    batches = _batches(preset, here, counts, keep)
    # on a GPU, compile.xla=auto would compile the step of one replica, but not that of several
    automatic = preset.options.compile.xla == "auto" and not on_cpu(preset.options, here)
    same = {"compile.xla": False} if automatic else {}
    settings = [Setting(replicas=count, changes=_strategy(pool, count) | same | batch)
             for count, batch in zip(counts, batches, strict=True)]  # fmt: skip
    return ScalingSettings(
        settings=settings, keep=keep, shared=_shared(with_changes(preset, settings[-1].changes), here)
    )


def _pool(preset: Preset, here: Machine) -> list[int]:
    # positions in the list of visible devices
    options = preset.options
    if options.strategy.devices != "all":
        return list(options.strategy.devices)
    return list(range(plan.devices(options, len(visible_gpus(options, here)))))


def _one_device(preset: Preset, here: Machine) -> str:
    gpus = visible_gpus(preset.options, here)
    if not gpus:
        why = here.no_gpu_reason or "no GPU is used"
        return f"there are no two devices to train on ({why}): give --set {REHEARSE} to rehearse on parts of the CPU"
    return (
        f"only GPU {gpus[0].index} takes part, and scaling needs several devices: give --set {REHEARSE} --set "
        "device.visible=none to rehearse on parts of the CPU"
    )


def _usual(devices: int) -> list[int]:
    return [*(2**power for power in range(devices.bit_length()) if 2**power < devices), devices]


def _strategy(pool: Sequence[int], count: int) -> dict[str, Any]:
    if count > 1:
        return {"strategy.kind": "mirrored", "strategy.devices": list(pool[:count])}
    if pool[0] == 0:
        return {"strategy.kind": "single", "strategy.devices": "all", "strategy.communication": "auto"}
    return {"strategy.kind": "one_device", "strategy.devices": [pool[0]], "strategy.communication": "auto"}


def _batches(preset: Preset, here: Machine, counts: Sequence[int], keep: str) -> Iterator[dict[str, Any]]:
    """Raises ProofError if the global batch is kept and cannot be divided."""
    whole = plan.global_batch(preset.options, checks.replicas(preset.options, here))
    for count in counts:
        if keep == KEEPS[1] and whole % count:
            raise ProofError(
                f"a global batch of {whole:,} cannot be shared out among {count} replicas: set input.batch_size to a "
                f"multiple of {count}, or keep the batch of each replica (--keep per-replica)"
            )
        yield {"input.batch_size": whole // count} if keep == KEEPS[1] else {}


def _shared(most: Preset, here: Machine) -> str:
    if on_cpu(most.options, here):
        return "the logical devices share the cores of one CPU"
    return "replicas share a GPU" if share_a_gpu(most.options, here) else ""


def resumed(proof: Proof) -> Request:
    """Return the request of a resumed measurement. Raises ProofError."""
    proof_start.refuse_to_resume(proof, "scaling", "a measurement of scaling", "gputui scaling")
    return proof.request
