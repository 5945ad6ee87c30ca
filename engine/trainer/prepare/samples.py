"""The samples that are prepared, as elements that are cheap to skip and a function that loads one, and the request
for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...files.writing import refusal
from ...options import Options, options_json
from ..common.training_errors import TrainerError
from ..data.sources import reason


@dataclass(frozen=True)
class Broken:
    """A sample that cannot be read: its name, and the reason."""

    sample: str
    reason: str


@dataclass
class Samples:
    """All samples of the data."""

    counts: Mapping[str, int]  # by part
    elements: Callable[[str, int], Iterator[Any]]  # of a part, from a number on
    load: Callable[[str, Any], tuple[Any, ...]]  # makes a sample (tensors) of an element of a part
    name: Callable[[Any, str, int], str]  # of an element, by its part and number
    encode: Callable[[tuple[Any, ...]], bytes]  # a sample as it is stored
    decode: Callable[[Any], Any]  # the tensors of a stored one
    facts: Mapping[str, Any]  # about the stored samples, for the manifest
    dataset: Callable[[str], tf.data.Dataset] | None  # as tf.data loads a part in a training; None: Python loads it
    one_process: bool = False  # elements cannot be skipped without the work of making them
    error_of: Callable[[BaseException], TrainerError | None] = lambda _fault: None  # that of the user's code
    _at: tuple[str, int] = ("", 0)
    _iterator: Iterator[Any] = field(default_factory=lambda: iter(()))

    def loaded(self, part: str, first: int, count: int) -> Iterator[tuple[Any, ...] | Broken]:
        """Yield `count` samples of a part from `first` on, and Broken for each that cannot be read. Those that
        follow the last call are read on. Raises tf.errors.OpError if the elements cannot be read, and EndedEarly.
        """
        if self._at != (part, first):
            self._iterator = self.elements(part, first)
        self._at = ("", 0)  # unknown until all were yielded
        for number in range(first, first + count):
            try:
                element = next(self._iterator)
            except StopIteration:
                raise EndedEarly(part, number) from None
            yield self._sample(element, part, number)
        self._at = (part, first + count)

    def fresh(self, part: str) -> Iterator[tuple[Any, ...] | Broken]:
        """Yield the samples of a part from its beginning, read again."""
        for number, element in enumerate(self.elements(part, 0)):
            yield self._sample(element, part, number)

    def _sample(self, element: Any, part: str, number: int) -> tuple[Any, ...] | Broken:
        try:
            return self.load(part, element)
        except (tf.errors.ResourceExhaustedError, tf.errors.CancelledError):
            raise  # this machine is at fault, and not the sample
        except tf.errors.OpError as fault:
            if refusal(fault) is not None:
                raise
            return Broken(self.name(element, part, number), reason(fault))


class EndedEarly(Exception):
    """The data has fewer samples than it had when they were counted."""

    def __init__(self, part: str, number: int) -> None:
        super().__init__(f"the {part} data ended at sample {number}, earlier than when it was counted")


@dataclass(frozen=True)
class Request:
    """The preset's options, the folder to write to, and the settings of the command. None: not given."""

    options: Options
    folder: Path
    format: str
    dtype: str | None
    size: tuple[int, int] | None
    limit: int | None


def read(line: str) -> Request:
    """Return the request in a line of JSON that gputui itself has written."""
    given = json.loads(line)
    size = tuple(given["size"]) if given["size"] else None
    options = options_json.from_json(json.dumps(given["options"]))
    return Request(**given | {"options": options, "folder": Path(given["folder"]), "size": size})
