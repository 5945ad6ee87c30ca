"""Divides samples among files, the same for the same data and settings whatever processes write them. Imports nothing,
as these run in the user's interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VALIDATION, TRAIN = "validation", "train"
PARTS = (VALIDATION, TRAIN)  # in this order, as gputui takes the first records for validation
RECORDS, ARRAYS = "tfrecord", "npz"
FORMATS = (RECORDS, ARRAYS)
ARRAY_FILE = "data.npz"
INPUT, LABEL = "image", "label"  # names of the features, which are the defaults of workload.tfrecord_*
DTYPES = ("uint8", "float16", "float32")
SHARD_BYTES = 128 * 2**20  # TensorFlow's guide: 100 MB or more for each file
LEAST_SHARDS, LEAST_SAMPLES = 16, 64  # small data has up to 16 files, each of at least 64 samples
MOST_SHARDS = 10_000  # of the training part: with those for validation, numbers of files have five digits at most
_ENDINGS = {RECORDS: "tfrecord", ARRAYS: "rows"}


@dataclass(frozen=True)
class Shard:
    """One file of samples: `samples` samples of a part, from its sample number `first` (from 0) on.

    `number` counts the files of both parts from 0.
    """

    number: int
    part: str
    first: int
    samples: int

    def file(self, written: str) -> str:
        """Return the name of the file in the format `written`. In sorted order the validation part comes first."""
        return f"{self.number:05}-{self.part}.{_ENDINGS[written]}"


def shards(counts: Mapping[str, int], per_shard: int) -> list[Shard]:
    """Return the files for these numbers of samples by part, with at most `per_shard` samples in each. No file has
    samples of both parts.
    """
    cut = [(part, first) for part in PARTS for first in range(0, counts[part], per_shard)]
    return [
        Shard(number, part, first, min(per_shard, counts[part] - first)) for number, (part, first) in enumerate(cut)
    ]


def samples_per_shard(counts: Mapping[str, int], record_bytes: float, files: int | None) -> int:
    """Return the largest number of samples in a file. `files` is the number of files of the training part if the user
    has set it; `record_bytes` is the mean size of a record.
    """
    training = counts[TRAIN]
    if files is None:
        small = min(LEAST_SHARDS, training // LEAST_SAMPLES)
        files = min(MOST_SHARDS, max(1, small, round(training * record_bytes / SHARD_BYTES)))
    return max(1, -(-training // files))


def limited(counts: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Return the numbers of samples by part if at most `limit` samples are taken. Both parts get smaller alike."""
    total = sum(counts.values())
    if limit is None or limit >= total:
        return dict(counts)
    validation = round(limit * counts[VALIDATION] / total)
    return {VALIDATION: validation, TRAIN: limit - validation}
