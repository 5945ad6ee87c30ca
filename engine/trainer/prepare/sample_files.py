"""Writes files of samples, completely or not at all, and joins them into one .npz file, in the order of a training."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...files.writing import sync
from ...prepare import manifest
from ...prepare.manifest import ARRAY_FILE, TRAIN, VALIDATION, Shard, hash_of
from .preset_data import as_row
from .samples import Broken, Samples

DRAFT = ".{name}.{pid}.part"  # hidden, so that no pattern of a reader matches it


def write(samples: Samples, shard: Shard, folder: Path, written: str, at: Callable[[int], None]) -> dict[str, Any]:
    """Write the file of a shard in the format `written`, and return its entry in the manifest. `at` gets the number
    of samples read until now. Raises OSError or tf.errors.OpError, and then leaves nothing.
    """
    name = shard.file(written)
    draft = folder / DRAFT.format(name=name, pid=os.getpid())
    broken: list[Broken] = []
    try:
        good = _good(samples.loaded(shard.part, shard.first, shard.samples), broken, at)
        count = _records(samples, good, draft) if written == manifest.RECORDS else _rows(good, draft)
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
    # the inputs one after the other, then the labels as int64
    labels: list[int] = []
    with draft.open("wb") as stream:
        for sample in good:
            row, label = as_row(sample)
            stream.write(row)
            labels.append(label)
        stream.write(np.array(labels, "int64").tobytes())
    return len(labels)


class _Rows:
    """The inputs and labels of one part, from its files, which stay on the disk, with their numbers of samples."""

    def __init__(self, folder: Path, files: Sequence[tuple[str, int]], row_bytes: int) -> None:
        files = [(name, count) for name, count in files if count]
        self._ends = np.cumsum([count for _, count in files])
        self._inputs = [
            np.memmap(folder / name, "uint8", "r", shape=(count, row_bytes)) if row_bytes else None
            for name, count in files
        ]
        labels = [np.fromfile(folder / name, "int64", offset=count * row_bytes) for name, count in files]
        self.labels = np.concatenate(labels) if labels else np.zeros(0, "int64")

    def __len__(self) -> int:
        return len(self.labels)

    def input(self, number: int) -> bytes:
        at = int(np.searchsorted(self._ends, number, side="right"))
        first = int(self._ends[at - 1]) if at else 0
        inputs = self._inputs[at]
        return b"" if inputs is None else inputs[number - first].tobytes()


def join(given: Mapping[str, Any], folder: Path, seed: int) -> dict[str, Any]:
    """The array file's entry in the manifest. A training draws the order by its seed: with `seed` it gets the order of
    the files, and the batches of the original data. Raises OSError.
    """
    dtype, shape = np.dtype(given["dtype"]), tuple(given["shape"])
    row_bytes = dtype.itemsize * int(np.prod(shape))
    parts = {
        part: _Rows(
            folder, [(each["file"], each["samples"]) for each in given["files"] if each["part"] == part], row_bytes
        )
        for part in (TRAIN, VALIDATION)
    }
    draft = folder / DRAFT.format(name=ARRAY_FILE, pid=os.getpid())
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
            sequences = {"": (TRAIN, VALIDATION)} if not given["test"] else {"_train": (TRAIN,), "_test": (VALIDATION,)}
            for name, of in sequences.items():
                places = [(parts[part], number) for part in of for number in range(len(parts[part]))]
                if TRAIN in of:  # the test part is not drawn
                    places = [places[place] for place in _order(len(places), seed)]
                labels = np.array([rows.labels[number] for rows, number in places], "int64")
                inputs = (rows.input(number) for rows, number in places)
                _write(file, f"x{name}", dtype, (len(places), *shape), inputs)
                _write(file, f"y{name}", labels.dtype, labels.shape, [labels.tobytes()])
        sync(draft)
        facts = {"file": ARRAY_FILE, "bytes": draft.stat().st_size, "sha256": hash_of(draft)}
        draft.rename(folder / ARRAY_FILE)
        sync(folder)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return facts


def _order(samples: int, seed: int) -> Sequence[int]:
    drawn: list[int] = np.argsort(np.random.default_rng(seed).permutation(samples)).tolist()
    return drawn


def _write(
    file: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], rows: Iterator[bytes] | list[bytes]
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:  # without a date: always the same
        np.lib.format.write_array_header_1_0(stream, header)
        for row in rows:
            stream.write(row)
