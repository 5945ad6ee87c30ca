"""Writes one file of samples, completely or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...files.writing import sync
from ...prepare.manifest import RECORDS, Shard, hash_of
from .preset_data import as_row
from .samples import Broken, Samples

DRAFT = ".{name}.{pid}.part"  # hidden, so that no pattern of a reader matches it


def write(samples: Samples, shard: Shard, folder: Path, written: str, at: Callable[[int], None]) -> dict[str, Any]:
    """Write the file of a shard in the format `written`, and return its entry in the manifest.

    `at` is called with the number of samples that were read until now. The file has its name only when its content is
    on the disk. Raises OSError or tf.errors.OpError, and then leaves nothing.
    """
    name = shard.file(written)
    draft = folder / DRAFT.format(name=name, pid=os.getpid())
    broken: list[Broken] = []
    try:
        good = _good(samples.loaded(shard.part, shard.first, shard.samples), broken, at)
        count = _records(samples, good, draft) if written == RECORDS else _rows(good, draft)
        sync(draft)
        facts = {"bytes": draft.stat().st_size, "sha256": hash_of(draft)}
        draft.rename(folder / name)
        sync(folder)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    entry = {"number": shard.number, "part": shard.part, "file": name, "samples": count, **facts}
    return entry | {"broken": [asdict(each) for each in broken]}


def _good(
    loaded: Iterator[tuple[Any, ...] | Broken], broken: list[Broken], at: Callable[[int], None]
) -> Iterator[tuple[Any, ...]]:
    for number, sample in enumerate(loaded, 1):
        if isinstance(sample, Broken):
            broken.append(sample)
        else:
            yield sample
        at(number)


def _records(samples: Samples, good: Iterator[tuple[Any, ...]], draft: Path) -> int:
    count = 0
    with tf.io.TFRecordWriter(str(draft)) as writer:
        for sample in good:
            writer.write(samples.encode(sample))
            count += 1
    return count


def _rows(good: Iterator[tuple[Any, ...]], draft: Path) -> int:
    """Write the inputs one after the other, then the labels as int64. Return their number."""
    labels: list[int] = []
    with draft.open("wb") as stream:
        for sample in good:
            row, label = as_row(sample)
            stream.write(row)
            labels.append(label)
        stream.write(np.array(labels, "int64").tobytes())
    return len(labels)
