"""The samples that are prepared, as elements that are cheap to skip and a function that loads one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from ...files.writing import refusal
from ..common.training_errors import TrainerError
from ..data.file_sources import reason


@dataclass(frozen=True)
class Broken:
    """A sample that cannot be read: its name, and the reason."""

    sample: str
    reason: str


@dataclass
class Samples:
    """All samples of the data.

    `counts` are their numbers by part. `elements` returns the elements of a part from a number on, `load` makes a
    sample (a tuple of tensors) of an element of a part, and `name` returns the name of an element by its part and
    number. `encode` returns a sample as it is stored, and `decode` the tensors of a stored one. `facts` describe the
    stored samples for the manifest. `dataset` returns the loaded samples of a part as tf.data loads them in a training,
    None if Python loads them. `one_process`: elements cannot be skipped without the work of making them.
    `error_of` returns the error of the user's code that an exception means, None if it means none.
    """

    counts: Mapping[str, int]
    elements: Callable[[str, int], Iterator[Any]]
    load: Callable[[str, Any], tuple[Any, ...]]
    name: Callable[[Any, str, int], str]
    encode: Callable[[tuple[Any, ...]], bytes]
    decode: Callable[[Any], Any]
    facts: Mapping[str, Any]
    dataset: Callable[[str], tf.data.Dataset] | None
    one_process: bool = False
    error_of: Callable[[BaseException], TrainerError | None] = lambda _fault: None
    _at: tuple[str, int] = ("", 0)
    _iterator: Iterator[Any] = field(default_factory=lambda: iter(()))

    def loaded(self, part: str, first: int, count: int) -> Iterator[tuple[Any, ...] | Broken]:
        """Yield `count` samples of a part from the number `first` on, and Broken for each that cannot be read.

        Samples that follow those of the last call are read on from there. Raises tf.errors.OpError if the elements
        themselves cannot be read, and EndedEarly if there are fewer.
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
