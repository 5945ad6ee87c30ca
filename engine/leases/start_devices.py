"""The devices of a start, leased for the run's engine: GPUs that gputui chooses, or devices that the options name; and
the GPU memory that a run needs, as earlier ones with the same settings or other batch sizes have measured it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from .. import plan, runs
from ..files.places import TRIALS, proofs_folder
from ..files.values import plain
from ..job import this_machine
from ..job.machine_gpus import (
    CONTEXT_BYTES,
    Machine,
    TooSmall,
    candidates,
    part_of_each,
    training_gpus,
    visible_gpus,
)  # fmt: skip
from ..options import Options, options_json
from ..options.gpu_choice import GpuChoice
from ..runs import Run, RunError
from ..runs.launched_with import option_groups
from ..units import size
from . import free_gpus, lease
from .free_gpus import LOOK_SECONDS, GpuUse
from .lease import CPU, Lease, NotFree

WAIT_SECONDS = 5.0  # between two attempts of a start that waits


@dataclass(frozen=True)
class Devices:
    """The leased devices of a start. An exception in their context releases them; else the engine must get them."""

    options: Options  # for the trainer: the chosen GPUs replace `free:N`
    leases: Sequence[Lease]

    def hand_over(self, pid: int, run: str) -> None:
        """Leave the leases to the process `pid`, which has inherited them, for the run in the folder `run`."""
        for each in self.leases:
            each.write(str(each.fields.get("what", "")), run, pid)
            each.lock.release()  # the other process has inherited it

    def __enter__(self) -> Devices:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.release()

    def release(self) -> None:
        for each in self.leases:
            each.release()


def wish_of(options: Options, machine: Machine) -> Wish | None:
    """None if the options name their devices. NotMeasuredError if it is not known how much memory `fits:N` needs."""
    choice = options.device.choice
    return Wish.of(choice, machine, memory_need(options) if choice.shared else None) if choice else None


def names_of(options: Options, machine: Machine, all_visible: bool = False) -> list[str]:
    """The keys of the GPUs that train, or of all visible ones, or CPU without one."""
    gpus = visible_gpus(options, machine) if all_visible else training_gpus(options, machine)
    return [gpu.key for gpu in gpus] or [CPU]


def lease_devices(
    options: Options,
    what: str,
    tell: Callable[[str], None] = lambda _text: None,
    *,
    among: Collection[str] | None = None,
    all_visible: bool = False,
) -> Devices:
    """Choose and lease the devices of a start. Devices that the options name are used even if others have leased them,
    but by a queued run (`among` which the queue has watched). NotFree if too few are free, RunError if its part of a
    GPU is too small.
    """
    machine = this_machine.read()
    if (wish := wish_of(options, machine)) is None:
        used = {gpu.key: gpu.memory_used_bytes for gpu in (*machine.gpus, *machine.parts)}
        names, taken = names_of(options, machine, all_visible), list[Lease]()
        if among is not None:
            return Devices(options, lease.take(names, what, used))
        for name in names:
            with contextlib.suppress(NotFree, OSError):
                taken += lease.take([name], what, used)
        return Devices(options, taken)
    if among is not None:
        wish = replace(wish, names=tuple(name for name in wish.names if name in among), per_gpu=options.run.per_gpu)
    if wish.prediction:
        tell(f"needs {MemoryNeed(wish.needs_bytes, wish.prediction)}")
    gpus, leases = choose(wish, what, tell, idle_known=among is not None)
    keys = {gpu.key for gpu in gpus}
    chosen: list[int | str] = [part.key for part in machine.parts if part.key in keys]
    placed = replace(options, device=replace(options.device, visible=chosen))
    try:
        part = part_of_each(placed, machine, wish.per_gpu)
    except TooSmall as fault:
        for each in leases:
            each.release()
        raise RunError(f"{fault}: set run.per_gpu to less than {wish.per_gpu}") from None
    return Devices(replace(placed, device=replace(placed.device, **part)), leases)


def in_use(options: Options, machine: Machine) -> str:
    """Who uses the GPUs that the options name, in one line; empty for the CPU and a choice, or without NVML."""
    names = names_of(options, machine)
    if options.device.choice or names == [CPU]:
        return ""
    try:
        gpus: Sequence[GpuUse] = free_gpus.read()
    except NotFree:
        return ""
    reasons = (f"GPU {gpu.number}: {why}" for gpu in gpus if gpu.key in names and (why := gpu.why_not_free()))
    return "; ".join(reasons)


def wait(options: Options, tell: Callable[[str], None], given_up: Callable[[], bool]) -> None:
    """Wait until a start would find its devices, or until `given_up()`. `tell` gets each new reason to wait. NotFree if
    the GPUs or the memory needed cannot be determined.
    """
    last = ""
    while not given_up() and (reason := why_not(options, this_machine.read())):
        if reason != last:
            tell(f"waiting: {reason}")
            last = reason
        until = time.monotonic() + WAIT_SECONDS
        while not given_up() and time.monotonic() < until:
            time.sleep(0.1)


def why_not(options: Options, machine: Machine) -> str:
    """Which devices a start lacks now, and who has them; empty if it could start. Raises NotFree as `wait`."""
    wish = wish_of(options, machine)
    if wish is not None:
        return wish.missing(free_gpus.read())
    if names_of(options, machine) == [CPU]:
        who = lease.holder(CPU)
        return f"the CPU is used by {who}" if who is not None else ""
    return in_use(options, machine)


# ---- choosing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """The GPUs that a start needs."""

    choice: GpuChoice  # the value of device.visible
    needs_bytes: int  # of memory on each GPU for `fits:N`, else 0
    names: tuple[str, ...]  # UUIDs or indices of the GPUs among which to choose
    prediction: str = ""  # from what `needs_bytes` is predicted; empty if it was measured
    per_gpu: int = 1  # runs among which a queued run shares its GPU

    @classmethod
    def of(cls, choice: GpuChoice, machine: Machine, need: MemoryNeed | None = None) -> Wish:
        names = tuple(gpu.key for gpu in candidates(choice, machine))
        return cls(choice, 0, names) if need is None else cls(choice, need.bytes, names, need.prediction)

    def why_not(self, gpu: GpuUse) -> str:
        """Return the reason why the start cannot use the GPU now; empty if it can."""
        return gpu.why_not_fitting(self.needs_bytes) if self.choice.shared else gpu.why_not_sharing(self.per_gpu)

    def fitting(self, gpus: Sequence[GpuUse]) -> list[GpuUse]:
        """The GPUs that the start could use now; for `fits:N` those with the least free memory first."""
        able = [gpu for gpu in gpus if gpu.key in self.names and not self.why_not(gpu)]
        return sorted(able, key=lambda gpu: gpu.free_bytes) if self.choice.shared else able

    def missing(self, gpus: Sequence[GpuUse]) -> str:
        """Return in one line which GPUs are missing and who has them; empty if enough GPUs can be used now."""
        able = self.fitting(gpus)
        if len(able) >= self.choice.count:
            return ""
        asked = (gpu for gpu in gpus if gpu.key in self.names)
        reasons = [f"GPU {gpu.number}: {why}" for gpu in asked if (why := self.why_not(gpu))]
        needs = f" with {size(self.needs_bytes)} free" if self.choice.shared else ""
        needs += f" ({self.prediction})" if self.prediction else ""
        what = f"needs {self.choice.kind}{needs}"
        return f"{what}, and {len(able)} can be had: {'; '.join(reasons)}" if able else f"{what}; {'; '.join(reasons)}"


def choose(
    wish: Wish,
    what: str,
    tell: Callable[[str], None] = lambda _text: None,
    idle_known: bool = False,
) -> tuple[list[GpuUse], list[Lease]]:
    """Watch the GPUs for idle_seconds (unless `idle_known`, or for `fits:N`), then read, choose and lease them under
    one lock, so that two starts never get the same GPU. NotFree if too few. `what` is for other users.
    """
    idle = set(wish.names)

    def able() -> list[GpuUse]:
        """Those that can be used now, and could at each look before. NotFree if they are too few."""
        gpus = free_gpus.read()
        usable = [gpu for gpu in wish.fitting(gpus) if gpu.key in idle]
        if len(usable) < wish.choice.count:
            before = f"needs {wish.choice.kind}; GPUs that are free now were in use a moment ago"
            raise NotFree(wish.missing(gpus) or before)
        idle.intersection_update(gpu.key for gpu in usable)
        return usable

    if not (wish.choice.shared or idle_known):
        seconds = free_gpus.idle_seconds()
        until, gpus = time.monotonic() + seconds, able()
        if seconds:
            which, stays = ", ".join(gpu.number for gpu in gpus), "stays" if len(gpus) == 1 else "stay"
            tell(f"looking for {seconds:.0f} s whether GPU {which} {stays} idle")
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            able()
    with lease.choosing():
        chosen = able()[: wish.choice.count]
        used = {gpu.key: gpu.memory_used_bytes for gpu in chosen}
        return chosen, lease.take(used, what, used, wish.per_gpu)


# ---- the memory that a run needs ----------------------------------------------------------------

MARGIN = 1.1  # memory differs from run to run, and cuDNN may choose other algorithms
MOST_RUNS = 500  # runs that are read, the newest first; and as many trials
BATCH = "input.batch_size"  # of one replica
# Settings that do not change what a step takes of a GPU's memory. A trial has its own values of those of `train`.
_OTHER = ("device.visible", "train.epochs", "train.steps_per_epoch", "train.decay_steps", "train.seed",
          "train.learning_rate", "strategy.devices")  # fmt: skip
_WITH_PEAK = ("ok", "stopped", "timeout")  # outcomes: a run that has ended early may have needed more later
NOT_MEASURED = (
    "fits: no run with these settings has measured yet how much GPU memory they need\n"
    "gputui fit-batch --dry-run --set device.visible=free:1, with the same --preset and --set, measures it by two "
    "short trials"
)


class NotMeasuredError(NotFree):
    """The memory that a run needs is not known, as neither earlier runs nor trials have measured enough of it."""


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a run needs on each GPU."""

    bytes: int
    prediction: str = ""  # from what they are predicted, in words; empty if they were measured

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{size(self.bytes)} on each GPU", self.prediction)))


def memory_need(options: Options) -> MemoryNeed:
    """The peak of an earlier run or trial with the same settings, or the prediction from two other batch sizes, plus 10
    % and 768 MiB. The newest 500 runs and 500 trials are read. NotMeasuredError if they have measured too little.
    """
    values, peaks = step_settings(asdict(options)), dict[int, int]()
    batch = options.input.batch_size
    trials = (Run(path) for proof in _newest(proofs_folder()) for path in _newest(proof / TRIALS))
    for run in chain(runs.all_runs()[:MOST_RUNS], islice(trials, MOST_RUNS)):
        earlier = step_settings(option_groups(run))
        of_run = earlier.get(BATCH)
        if not isinstance(of_run, int) or of_run in peaks:
            continue
        if all(earlier.get(key, value) == value for key, value in values.items() if key != BATCH):
            result = run.result or {}
            peak = result.get("peak_memory_bytes") if result.get("outcome") in _WITH_PEAK else None
            if peak and of_run == batch:
                return MemoryNeed(_with_margin(peak))
            if peak:
                peaks[of_run] = peak
    line = plan.through(list(peaks.items()))
    if line is None:
        raise NotMeasuredError(NOT_MEASURED)
    *most, last = map(str, sorted(peaks))
    return MemoryNeed(_with_margin(line.at(batch)), f"predicted from batch sizes {', '.join(most)} and {last}")


def memory_need_of(run: Run) -> MemoryNeed:
    """As `memory_need`, by the run's own options."""
    return memory_need(options_json.from_json(run.file(options_json.FILE).read_text(encoding="utf-8")))


def _with_margin(peak_bytes: float) -> int:
    return round(max(0.0, peak_bytes) * MARGIN) + CONTEXT_BYTES


def _newest(folder: Path) -> list[Path]:
    # The paths with the greatest names (a date or a number) first.
    try:
        return [folder / name for name in sorted(os.listdir(folder), reverse=True) if not name.startswith(".")]
    except OSError:
        return []


def step_settings(groups: Mapping[str, Any]) -> dict[str, object]:
    """Return the values, by `group.name`, of the options in `groups` that change what a step takes of a GPU."""
    return {
        f"{group}.{name}": value
        for group, settings in plain(groups).items()
        if group != "run" and isinstance(settings, Mapping)
        for name, value in settings.items()
        if f"{group}.{name}" not in _OTHER
    }
