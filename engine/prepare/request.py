"""What `gputui prepare` was asked for, and the settings that decide the content of the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..options import Options
from ..presets import Preset
from .manifest import ARRAYS, RECORDS, Manifest


class PrepareError(Exception):
    """The data cannot be prepared. The text is one or two lines that say what to do. `began`: files were written, or
    would have been, so that this is a failure and not a refusal.
    """

    def __init__(self, text: str, began: bool = False) -> None:
        super().__init__(text)
        self.began = began


SEED = 0  # draws the order of the samples if the preset has no train.seed
# Options of `workload` that decide what is stored.
_OF_DATA = (
    "data", "shape", "classes", "samples", "tfrecord_input", "tfrecord_label", "tfrecord_encoding", "entry", "args",
    "folder",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """The preset whose data is prepared, the folder to write to, and the settings of the command. None: not given."""

    preset: Preset
    folder: Path
    format: str = RECORDS
    dtype: str | None = None
    size: tuple[int, int] | None = None
    limit: int | None = None
    shards: int | None = None
    workers: int | None = None

    @property
    def options(self) -> Options:
        given = self.preset.options
        seed = SEED if given.train.seed is None else given.train.seed
        return replace(given, train=replace(given.train, seed=seed))

    def settings(self) -> dict[str, Any]:
        options = self.options
        workload = {f"workload.{name}": getattr(options.workload, name) for name in _OF_DATA}
        train = {f"train.{name}": getattr(options.train, name) for name in ("seed", "validation", "validation_split")}
        reads = {"input.parallel_reads": options.input.parallel_reads}
        command = {"dtype": self.dtype, "size": list(self.size) if self.size else None, "limit": self.limit}
        return workload | train | reads | {"format": self.format, "shards": self.shards} | command

    def for_worker(self) -> dict[str, Any]:
        """Return the request that a worker's first line holds (trainer/prepare/request.py)."""
        given = {name: value for name, value in self.settings().items() if name in ("format", "dtype", "size", "limit")}
        return given | {"options": asdict(self.options), "folder": str(self.folder)}

    def differences(self, manifest: Manifest) -> list[str]:
        """Return the settings that differ from those of an earlier start, as `NAME VALUE, not VALUE`."""
        given = self.settings()
        return [
            f"{name} is {_text(given[name])}, and was {_text(value)}"
            for name, value in manifest.settings.items()
            if name in given and given[name] != value
        ]


def _text(value: Any) -> str:
    return "not given" if value is None else str(value)


def of(preset: Preset, folder: Path, given: Mapping[str, Any]) -> Request:
    """Return the request for a preset; `given` are the command's options. Raises PrepareError if they do not go."""
    if preset.options.workload.entry is not None:
        for name, value in (("size", given["size"]), ("dtype", given["dtype"])):
            if value is not None:
                raise PrepareError(f"--{name} is for gputui's own data; your code decides what a sample is: its `map`")
        if given["format"] == ARRAYS:
            raise PrepareError(f"--format {ARRAYS} is for gputui's own data; leave it out with your own code")
    return Request(preset, folder, **given)
