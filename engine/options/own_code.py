"""Decides which options apply to a user's own training (workload.entry), and describes it for the documents. The
declaration of an option (`own`) names a condition, which the objects that the user's code returns meet or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Own = Literal[
    "applies", "across", "cached", "prefetch", "device", "pipeline", "order", "workers", "arrays", "images",
    "uncompiled", "unread", "replaced",
]  # fmt: skip
Data = Literal["arrays", "mapped", "batched", "pydataset"]

# What applies to a command (workload.command); a notice does as well.
OF_COMMAND = (
    "workload.command", "workload.folder", "device.visible", "run.tries", "run.max_minutes", "run.stop_signal",
    "run.sample_seconds", "run.pcie",
)  # fmt: skip
UNREAD = "your code reads its data itself"
BATCHED = "your code has batched the data"
SCRIPT = "the script runs its own fit"
OWN_BATCHES = "a PyDataset makes its own batches"
STALE = "a cache would keep samples that may depend on the training"
ONE_ITERATOR = "one iterator reads the data of all epochs"
OWN_CODE_LABELS: dict[str, str] = {
    "applies": "always",
    "across": "to data that can be made for one epoch: not with a cache, nor to a tf.data.Dataset of which an "
    "epoch is no whole pass, which is read in one go as in Keras' fit",
    "cached": "to arrays, and to a tf.data.Dataset with `map`, if no sample may depend on the training",
    "prefetch": "to data that cannot depend on the training; a prefetch of your own in a tf.data.Dataset stays",
    "device": "to dense tensors of numbers",
    "pipeline": "to arrays, and to a tf.data.Dataset with `map`; else your code has batched the data",
    "order": "to a tf.data.Dataset with `map`; of arrays, and of a PyDataset's batches, any number shuffles all",
    "workers": "to arrays, and to a tf.data.Dataset with `map`; to a PyDataset up to its `workers`",
    "arrays": "to arrays that are returned without validation data",
    "images": "to arrays, and to a tf.data.Dataset with `map`, whose x is one float32 image batch in 0 to 1",
    "uncompiled": "to a model that your code has not compiled, and for which it gives no optimizer",
    "unread": f"never: {UNREAD}",
    "replaced": "never: your code replaces it; next to workload.entry a value other than the default is refused",
}


@dataclass(frozen=True)
class Handed:
    """Facts about the objects that a user's code has returned, which decide whether an option applies."""

    data: Data
    own_optimizer: bool
    images: bool
    validation: bool
    workers: int = 1  # threads that may load batches of a PyDataset at once
    prefetches: bool = False  # a Dataset has a prefetch although none is set
    hosted: bool = False  # part of a batch cannot be copied to a GPU ahead of its step
    held_back: str = ""
    begins_anew: bool = True
    follows: str = ""


def remedy(key: str, why: str) -> str:
    """The change of the user's code with which the option applies; `why` is the reason that `obstacle` has returned."""
    if why.startswith(STALE):
        return "if they do not depend on it, set input.across_epochs=true"
    followed = "use context.global_batch_size in your code" if key == "input.batch_size" else ""
    single = "return single samples with `map`" if why == BATCHED else ""
    return ", or ".join(filter(None, (followed, single))) if why in (BATCHED, OWN_BATCHES) else ""


def obstacle(own: str, handed: Handed) -> str:
    """Return why an option with the condition `own` does not apply; empty if it does, and for `replaced`, which is not
    decided here.
    """
    ours = handed.data in ("arrays", "mapped")
    batched = OWN_BATCHES if handed.data == "pydataset" else BATCHED
    if own in ("pipeline", "cached") and not ours:
        return batched
    if own == "cached" and handed.follows:
        return f"{STALE}: {handed.follows}"
    if own in ("order", "workers") and handed.data == "batched":
        return batched
    if own == "workers" and handed.data == "pydataset" and handed.workers == 1:
        return "the PyDataset loads one batch at a time; give it workers if threads may load several at once"
    if own == "across" and not handed.begins_anew:
        return ONE_ITERATOR
    if own == "prefetch" and handed.held_back:
        return f"batches are made when Keras' fit would make them: {handed.held_back}"
    if own == "prefetch" and handed.prefetches:
        return "your Dataset has a prefetch of its own, which stays"
    if own == "device" and handed.hosted:
        return "text, ragged and sparse tensors cannot be copied to a GPU in advance"
    if own == "images" and not (ours and handed.images):
        return batched if not ours else "x is not one batch of float32 images"
    if own == "arrays" and handed.validation:
        return "your code hands over its validation data"
    if own == "arrays" and handed.data != "arrays":
        return "only arrays are split"
    if own == "unread":
        return UNREAD
    if own == "uncompiled" and handed.own_optimizer:
        return "your code has chosen the optimizer"
    return ""
