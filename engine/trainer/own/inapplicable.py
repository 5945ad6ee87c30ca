"""Options that do nothing to a user's own training, each with the reason: none is silently ignored."""

from __future__ import annotations

from collections.abc import Mapping

from ...options import OPTIONS, OptionInfo, Options
from ...options.own import Handed, obstacle
from ..data.on_device import fits_devices
from .py_dataset import Indexed, workers
from .returned import Returned
from .streams import Samples, Stream, prefetches

BATCH_SIZE = "input.batch_size"
NOTHING_ASKED = {"train.validation_split": 0.0}  # values besides the default that need nothing to be done


def reasons(handed: Handed, follows_batch_size: bool) -> dict[str, str]:
    """By option; code that batches its data by its context has followed input.batch_size."""
    found = {info.key: obstacle(info.about.own, handed) for info in OPTIONS}
    followed = {BATCH_SIZE} if follows_batch_size else set()
    return {key: why for key, why in found.items() if why and key not in followed}


def not_applied(options: Options, inapplicable: Mapping[str, str]) -> list[dict[str, str]]:
    """Those of them that are not at their default."""
    return [
        {"option": info.key, "why": inapplicable[info.key]}
        for info in OPTIONS
        if info.key in inapplicable and _asks(options, info)
    ]


def handed(found: Returned, options: Options, stream: Stream, own_optimizer: bool) -> Handed:
    """What decides which options apply."""
    return Handed(
        data=stream.kind,
        own_optimizer=own_optimizer,
        images=isinstance(stream, Samples) and stream.images,
        validation=found.validation is not None,
        workers=workers(stream.data) if isinstance(stream, Indexed) else 1,
        hosted=not fits_devices(stream.spec),
        prefetches=options.input.prefetch == "off" and prefetches(found.train),
    )


def _asks(options: Options, info: OptionInfo) -> bool:
    value = getattr(getattr(options, info.group), info.name)
    return value not in (info.default, NOTHING_ASKED.get(info.key, info.default))
