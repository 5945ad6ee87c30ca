"""Joins files of samples into one .npz file, in the order in which gputui's own data reads arrays."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files.writing import sync
from ...prepare.manifest import ARRAY_FILE, TRAIN, VALIDATION, hash_of
from .shard_file import DRAFT


class _Rows:
    """The inputs and labels of one part, from its files, which stay on the disk. `files` has each name with its number
    of samples.
    """

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
    """Write the array file from the files in `given`, and return its entry in the manifest.

    A training draws the order of the arrays by its seed (data/source.py). They are written so that with `seed` this
    gives the order of the files: the same batches as with the original data. Raises OSError.
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
