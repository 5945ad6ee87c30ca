"""The devices of a start, leased for the run's engine: GPUs that gputui chooses, or devices that the options name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..job import this_machine
from ..job.machine_gpus import Machine, TooSmall, part_of_each, training_gpus, visible_gpus
from ..options import Options
from ..runs import RunError
from . import free_gpus, lease, memory_needs
from .free_gpus import GpuUse, Wish
from .lease import CPU, Lease, NotFree
from .memory_needs import MemoryNeed

WAIT_SECONDS = 5.0  # between two attempts of a start that waits


@dataclass(frozen=True)
class Devices:
    """The leased devices of a start. `options` are those for the trainer, in which the chosen GPUs replace `free:N`."""

    options: Options
    leases: Sequence[Lease]

    def hand_over(self, pid: int, run: str) -> None:
        """Leave the leases to the process `pid`, which has inherited them, for the run in the folder `run`."""
        for each in self.leases:
            each.write(str(each.fields.get("what", "")), run, pid)
            each.leave()

    def release(self) -> None:
        for each in self.leases:
            each.release()


def wish_of(options: Options, machine: Machine) -> Wish | None:
    """Return which GPUs a start with these options has to choose; None if the options name their devices themselves.
    Raises NotMeasuredError if the run shares GPUs (`fits:N`) and it is not known how much memory it needs.
    """
    choice = options.device.choice
    if choice is None:
        return None
    return Wish.of(choice, machine, memory_needs.of_options(options) if choice.shared else None)


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
    """Choose and lease the devices of a start. NotFree if too few are free, or if a queued run (`among` which the queue
    has watched) names one that is leased; a run that is not queued uses those that it names anyway. RunError: see
    per_gpu.
    """
    machine = this_machine.read()
    if (wish := wish_of(options, machine)) is None:
        used = {gpu.key: gpu.memory_used_bytes for gpu in (*machine.gpus, *machine.parts)}
        names = names_of(options, machine, all_visible)
        take = _those_not_leased if among is None else lease.take
        return Devices(options, list(take(names, what, used)))
    if among is not None:
        wish = replace(wish, names=tuple(name for name in wish.names if name in among), per_gpu=options.run.per_gpu)
    if wish.prediction:
        tell(f"needs {MemoryNeed(wish.needs_bytes, wish.prediction)}")
    gpus, leases = free_gpus.choose(wish, what, tell, idle_known=among is not None)
    keys = {gpu.key for gpu in gpus}
    chosen: list[int | str] = [part.key for part in machine.parts if part.key in keys]
    placed = replace(options, device=replace(options.device, visible=chosen))
    try:
        return Devices(_part_of_gpu(placed, machine, wish.per_gpu), leases)
    except RunError:
        for each in leases:
            each.release()
        raise


def _part_of_gpu(options: Options, machine: Machine, per_gpu: int) -> Options:
    try:
        part = part_of_each(options, machine, per_gpu)
    except TooSmall as fault:
        raise RunError(f"{fault}: set run.per_gpu to less than {per_gpu}") from None
    return replace(options, device=replace(options.device, **part))


def _those_not_leased(names: Sequence[str], what: str, used: Mapping[str, int | None]) -> Iterator[Lease]:
    for name in names:
        with contextlib.suppress(NotFree, OSError):
            yield from lease.take([name], what, used)


def in_use(options: Options, machine: Machine) -> str:
    """Return in one line who uses the GPUs that the options name. Empty if nobody does, if the options name no GPUs
    (the CPU, or a choice such as `free:2`), or if NVML cannot be read.
    """
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
    """Return in one line which devices a start with these options lacks now, and who has them; empty if it could start.
    Raises NotFree if the GPUs to choose from, or the memory that the run needs, cannot be determined.
    """
    wish = wish_of(options, machine)
    if wish is not None:
        return wish.missing(free_gpus.read())
    names = names_of(options, machine)
    if names == [CPU]:
        who = lease.holder(CPU)
        return f"the CPU is used by {who}" if who is not None else ""
    return in_use(options, machine)
