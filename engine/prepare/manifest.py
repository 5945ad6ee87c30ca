"""The manifest of prepared data: what it was made of and how, its files with hashes, broken samples. Only complete
files are listed, so that a killed preparation goes on with the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..files import typed
from ..files.reading import read_object
from ..files.values import to_json
from ..files.writing import write_atomically

# Samples are divided alike for the same data and settings, whatever processes write them.
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
    """A file of `samples` samples of a part, from its number `first` on; `number` counts all files from 0."""

    number: int
    part: str
    first: int
    samples: int

    def file(self, written: str) -> str:
        """Return the name of the file; in sorted order the validation part comes first."""
        return f"{self.number:05}-{self.part}.{_ENDINGS[written]}"


def shards(counts: Mapping[str, int], per_shard: int) -> list[Shard]:
    """Return the files for these numbers of samples, each of one part, with at most `per_shard` samples."""
    cut = [(part, first) for part in PARTS for first in range(0, counts[part], per_shard)]
    return [
        Shard(number, part, first, min(per_shard, counts[part] - first)) for number, (part, first) in enumerate(cut)
    ]


def samples_per_shard(counts: Mapping[str, int], record_bytes: float, files: int | None) -> int:
    """Return the most samples in a file, of records of `record_bytes`; the user may set `files`."""
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


FILE = "manifest.json"
VERSION = 1
_BLOCK = 2**20


class ManifestError(Exception):
    """The folder cannot be used. The text is one or two lines that say what to do."""


@dataclass(frozen=True)
class Broken:
    """A sample that could not be read, and was left out: its file or its number, and the reason."""

    sample: str
    reason: str


@dataclass(frozen=True)
class Written:
    """A complete file and what it holds; `samples` counts the good ones."""

    number: int
    part: str
    file: str
    samples: int
    bytes: int
    sha256: str
    broken: list[Broken] = field(default_factory=list)


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json. `settings` decide the content; `data` describes the samples, with a `stamp` that
    changes with the original. `written` are the complete ones of `files`, in order; `output` is the array file, if any.
    """

    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    samples_per_shard: int
    files: int
    written: list[Written] = field(default_factory=list)
    output: Mapping[str, Any] | None = None
    complete: bool = False
    version: int = VERSION

    @property
    def format(self) -> str:
        return str(self.settings["format"])

    @property
    def counts(self) -> dict[str, int]:
        return {part: int(self.data[part]) for part in PARTS}

    @property
    def shards(self) -> list[Shard]:
        return shards(self.counts, self.samples_per_shard)

    @property
    def missing(self) -> list[Shard]:
        there = {each.number for each in self.written}
        return [shard for shard in self.shards if shard.number not in there]

    @property
    def broken(self) -> list[Broken]:
        return [each for written in self.written for each in written.broken]

    def good(self, part: str) -> int:
        return sum(each.samples for each in self.written if each.part == part)

    @property
    def samples(self) -> int:
        return sum(self.good(part) for part in PARTS)

    @property
    def bytes(self) -> int:
        return int(self.output["bytes"]) if self.output else sum(each.bytes for each in self.written)

    def write(self, folder: Path) -> None:
        content = {"version": self.version} | asdict(self)
        content["samples"] = {part: self.good(part) for part in PARTS} | {"broken": len(self.broken)}
        write_atomically(folder / FILE, to_json(content, indent=1) + "\n")


def read(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if it has none. Raises ManifestError if it is damaged."""
    path = folder / FILE
    plain = read_object(path)
    if plain.damage or (plain.value and plain.value.get("version") != VERSION):
        raise ManifestError(f"{path} is not a manifest that this version can read; name another folder, or remove it")
    content = typed.read(path, Manifest)
    if content.damage:
        raise ManifestError(f"{path} {content.damage}; remove the folder to begin again")
    return content.value


def checked(manifest: Manifest, folder: Path, whole: bool) -> Manifest:
    """Return the manifest without files that are missing, of another size or, with `whole`, of another hash."""
    if manifest.output is not None:  # the files of samples were joined into it
        path = folder / str(manifest.output["file"])
        if _is_good(path, int(manifest.output["bytes"]), str(manifest.output["sha256"]), whole):
            return manifest
        return replace(manifest, written=[], output=None, complete=False)
    kept = [each for each in manifest.written if _is_good(folder / each.file, each.bytes, each.sha256, whole)]
    return replace(manifest, written=kept, complete=manifest.complete and len(kept) == len(manifest.written))


def _is_good(path: Path, size: int, sha256: str, whole: bool) -> bool:
    try:
        return path.stat().st_size == size and (not whole or hash_of(path) == sha256)
    except OSError:
        return False


def hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
