"""The kinds of objects that are read by iterating over them: how a pass begins, and how it is resumed."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..user_code import UserError

ENDLESS = 2**62  # a length from which on data has no end, as Grain gives it


class Passes:
    """Makes an iterator over the batches of each pass.

    `name` is the name of the object in messages. `once`: there is only one pass, which cannot be begun again. `batches`
    is the number in a pass, None if it is unknown. `exact`: the state of an iterator can be saved and restored.
    """

    name: str
    once = False
    batches: int | None = None
    exact = False

    def peek(self, count: int) -> list[Any]:
        """Return up to `count` first batches. The training gets them too."""
        with self.whole() as batches:
            return list(itertools.islice(batches, count))

    def whole(self) -> contextlib.AbstractContextManager[Iterator[Any]]:
        """Return a context with the batches of a pass that does not belong to the training."""
        return contextlib.nullcontext(self.begin())

    def begin(self, state: Any = None) -> Iterator[Any]:
        """Begin a pass, in the state that `state` has returned earlier if one is given, and return its iterator."""
        raise NotImplementedError

    def state(self, iterator: Any) -> Any:  # noqa: ARG002
        """Return the present state of the iterator as a value for JSON. None if it cannot be saved now."""
        return None

    def close(self, iterator: Any) -> None:
        """End the processes and threads of an iterator that is not used any longer."""


class Once(Passes):
    """A generator, or another iterator: one pass, which continues over the epochs.

    If it has the methods `get_state` and `set_state`, as Grain's iterators have, its state is saved and restored.
    """

    once = True

    def __init__(self, data: Any) -> None:
        self.name, self._data, self.exact = named(data), data, _is_stateful(data)
        self._begun = False

    def peek(self, count: int) -> list[Any]:
        state = self.state(self._data)
        first = list(itertools.islice(self._data, count))
        if self.exact:
            self._data.set_state(_read(state))
        else:
            self._data = itertools.chain(first, self._data)
        return first

    def begin(self, state: Any = None) -> Iterator[Any]:
        if state is not None:
            self._data.set_state(_read(state))
        elif self._begun:
            raise UserError(f"{self.name} cannot be begun again", "return the function that makes it")
        self._begun = True
        return iter(self._data)

    def state(self, iterator: Any) -> Any:
        return _written(iterator.get_state()) if self.exact else None


class Anew(Passes):
    """A function that makes an iterator, or an object with `__iter__`: each pass has a new iterator.

    If the iterator has the methods `get_state` and `set_state`, as Grain's have, its state is saved and restored.
    """

    def __init__(self, make: Callable[[], Any], name: str, batches: int | None = None, stateful: bool = False) -> None:
        self.name, self.batches, self.exact = name, batches, stateful
        self._make = make

    def peek(self, count: int) -> list[Any]:
        with self.whole() as batches:
            self.state(batches)  # raises UserError for a state that cannot be saved
            return list(itertools.islice(batches, count))

    @contextlib.contextmanager
    def whole(self) -> Iterator[Iterator[Any]]:
        """As for Passes. The global random states of Python and NumPy are restored afterwards."""
        states = random.getstate(), np.random.get_state()
        iterator = self.begin()
        try:
            yield iterator
        finally:
            self.close(iterator)
            random.setstate(states[0])
            np.random.set_state(states[1])

    def begin(self, state: Any = None) -> Iterator[Any]:
        made = self._make()
        if not hasattr(made, "__iter__") and not hasattr(made, "__next__"):
            raise UserError(f"{self.name} returned {named(made)}, not an iterator", "yield the batches, each as (x, y)")
        iterator = iter(made)
        if _is_stateful(iterator):
            self.exact = True
            if state is not None:
                iterator.set_state(_read(state))
        return iterator

    def state(self, iterator: Any) -> Any:
        return _written(iterator.get_state()) if _is_stateful(iterator) else None

    def close(self, iterator: Any) -> None:
        if callable(close := getattr(iterator, "close", None)):
            close()


class Repeated(Passes):
    """The first `count` batches of data that has only one pass, `passes`, kept in memory: the same in each pass."""

    exact = True

    def __init__(self, passes: Passes, count: int, setting: str) -> None:
        self.name, self.batches = passes.name, count
        self._passes, self._setting = passes, setting
        self._kept: list[Any] = []
        self._left: Iterator[Any] | None = None

    def begin(self, state: Any = None) -> Iterator[Any]:
        assert state is None
        for number in range(self.batches or 0):
            if number == len(self._kept):
                self._kept.append(self._drawn())
            yield self._kept[number]

    def _drawn(self) -> Any:
        self._left = self._passes.begin() if self._left is None else self._left
        try:
            return next(self._left)
        except StopIteration:
            raise UserError(
                f"validation ended after {len(self._kept)} batches: {self.name} has only one pass",
                f"lower {self._setting}, or return the function that makes it",
            ) from None


def _is_stateful(iterator: Any) -> bool:
    return callable(getattr(iterator, "get_state", None)) and callable(getattr(iterator, "set_state", None))


def _written(state: Any) -> Any:
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode()}
    try:
        return {"value": json.loads(json.dumps(state))}  # the values as they are now: the iterator may change its own
    except (TypeError, ValueError):
        raise UserError(
            f"get_state of the data returned a {type(state).__name__} that JSON cannot hold",
            "return bytes, or numbers, texts, lists and dicts of them",
        ) from None


def _read(state: Any) -> Any:
    return base64.b64decode(state["base64"]) if "base64" in state else state["value"]


def named(value: Any) -> str:
    """Return the name of the value's class with its article, such as "an Episodes"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
