"""What is wrong with the GPUs that CUDA_VISIBLE_DEVICES chooses: names that fit no GPU, and an order that may mislead.

A name that fits no GPU hides all that follow, without a word from CUDA or TensorFlow. An index means the GPU in this
place of the PCI bus to gputui and nvidia-smi, but by CUDA's own order the fastest GPU is the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from .gpus import Fault, Gpu, device_of, shown_of, used_by_tensorflow
from .visible import VARIABLE, find, hides_all, is_index, stops_at

ORDER, PCI = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
CPU = f"{VARIABLE}='' or device.visible=none trains on the CPU"
NO_INSTANCE = "MIG is on without an instance: TensorFlow cannot use it"
NEW_INSTANCE = "as root: nvidia-smi mig -cgi 0 -C creates one of the whole GPU, nvidia-smi -mig 0 switches MIG off"
_MOST_NAMED = 4


def faults(value: str | None, gpus: Sequence[Gpu]) -> Iterator[Fault]:
    """Those of this value of the variable, None where it is not set, on a machine with these GPUs."""
    if not gpus or hides_all(value):
        return
    if value is not None and (name := stops_at(value, [device_of(gpu) for gpu in gpus])):
        yield _unknown(value, name, gpus)
    yield from _order(value, gpus)


def _unknown(value: str, name: str, gpus: Sequence[Gpu]) -> Fault:
    shown = shown_of(gpus, value)
    known = find(name, [device_of(gpu) for gpu in gpus])
    empty = [gpu for gpu in gpus if gpu.mig and not gpu.instances and name in (str(gpu.index), gpu.uuid)]
    if empty:
        return Fault("warning" if shown else "error", "GPU", f"GPU {empty[0].index}: {NO_INSTANCE}", NEW_INSTANCE)
    why = f"{name} fits no single GPU" if known is None else f"{name} is of another kind, or names a GPU twice"
    if shown:
        what = f"{VARIABLE}={value} shows {', '.join(map(str, shown))} alone: {why}, and CUDA stops there"
        return Fault("warning", "GPU", what, f"this machine has {_names(gpus, name)}")
    return Fault(
        "error", "GPU", f"{VARIABLE}={value} shows no GPU: {why}", f"this machine has {_names(gpus, name)}; {CPU}"
    )


def _names(gpus: Sequence[Gpu], like: str) -> str:
    """What there is, by names of the same kind as this one."""
    if like.startswith("MIG-"):
        names = [instance.uuid for gpu in gpus for instance in gpu.instances]
    elif like.startswith("GPU-"):
        names = [f"{gpu.uuid} ({gpu.name})" for gpu in gpus if gpu.uuid]
    else:
        names = [f"{gpu.index} ({gpu.name})" for gpu in gpus]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (", ".join(names[:_MOST_NAMED]) or "no MIG instance") + more


def _order(value: str | None, gpus: Sequence[Gpu]) -> Iterator[Fault]:
    """GPUs of different models, of which an index means another one by CUDA's own order."""
    by_index = value is None or is_index(value.split(",")[0].strip())
    asked = gpus if value is not None else used_by_tensorflow(shown_of(gpus, None))
    if os.environ.get(ORDER) == PCI or not by_index or len({gpu.name for gpu in asked if gpu.name}) < 2:
        return
    shown = ", ".join(map(str, shown_of(gpus, value) if value is not None else asked))
    if not shown:
        return
    what = f"{VARIABLE}={value} means {shown}" if value is not None else f"GPUs of different models: {shown}"
    what += ", in the order of the PCI bus; by CUDA's own order, the fastest first, numbers may mean others"
    yield Fault("warning", ORDER, what, f"set {ORDER}={PCI}, so that all programs count alike, or name GPUs by UUID")
