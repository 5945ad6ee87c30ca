"""The manifest of a folder of prepared data: what it was made of and how, its files with their hashes, broken samples.

A file is listed only when it is complete on the disk, so that a preparation that was killed goes on with the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..files import values
from ..files.reading import read_object
from ..files.values import to_json
from ..files.writing import write_atomically
from . import layout

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
    """A complete file: its name, its part and number among all files, and what it holds. `samples` counts the good
    samples.
    """

    number: int
    part: str
    file: str
    samples: int
    bytes: int
    sha256: str
    broken: list[Broken] = field(default_factory=list)


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    `settings` are the preset's options and the command's options that decide the content; `data` describes the samples,
    and `stamp` in it changes with the original data. `written` are the complete files in the order of their numbers.
    `output` is the array file if there is one, and `files` the number of all files of samples.
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
        """The planned numbers of samples by part, with broken ones."""
        return {part: int(self.data[part]) for part in layout.PARTS}

    @property
    def shards(self) -> list[layout.Shard]:
        return layout.shards(self.counts, self.samples_per_shard)

    @property
    def missing(self) -> list[layout.Shard]:
        """The files that are not yet written."""
        there = {each.number for each in self.written}
        return [shard for shard in self.shards if shard.number not in there]

    @property
    def broken(self) -> list[Broken]:
        return [each for written in self.written for each in written.broken]

    def good(self, part: str) -> int:
        """Return the number of good samples of a part in the files that are written."""
        return sum(each.samples for each in self.written if each.part == part)

    @property
    def samples(self) -> int:
        return sum(self.good(part) for part in layout.PARTS)

    @property
    def bytes(self) -> int:
        return int(self.output["bytes"]) if self.output else sum(each.bytes for each in self.written)

    def with_file(self, written: Written) -> Manifest:
        return replace(self, written=sorted([*self.written, written], key=lambda each: each.number))

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder. Raises OSError."""
        content = {"version": self.version} | asdict(self)
        content["samples"] = {part: self.good(part) for part in layout.PARTS} | {"broken": len(self.broken)}
        write_atomically(folder / FILE, to_json(content, indent=1) + "\n")


def read(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if it has none. Raises ManifestError if it is damaged."""
    path = folder / FILE
    content = read_object(path)
    if content.damage or (content.value and content.value.get("version") != VERSION):
        raise ManifestError(f"{path} is not a manifest that this version can read; name another folder, or remove it")
    if not content.value:
        return None
    filled = values.completed(Manifest, content.value)
    if filled is None:
        raise ManifestError(f"{path} is damaged; remove the folder to begin again")
    written = [
        Written(
            **{**_declared(Written, each), "broken": [Broken(**_declared(Broken, sample)) for sample in each["broken"]]}
        )
        for each in filled["written"]
    ]
    return Manifest(**{**_declared(Manifest, filled), "written": written})


def _declared(kind: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name in kind.__dataclass_fields__}


def checked(manifest: Manifest, folder: Path, whole: bool) -> Manifest:
    """Return the manifest without the files that are missing or have another size; with `whole`, also without those
    whose hash differs.
    """
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
    """Return the SHA-256 of a file's content. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
