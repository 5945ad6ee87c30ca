"""Passes over a DataLoader of torch, whose order and augmentation follow from the random states at the begin of a pass.

A checkpoint has these states, so that a resumed run begins the pass again and leaves out the batches that it has had.
torch is never imported here: the user's code has imported it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .kinds import Passes

_END = object()
_ONE_AT_A_TIME = threading.Lock()  # who draws from torch's global random state


def seed_torch(seed: int | None) -> None:
    """Seed torch's global random state, if the user's code has imported torch and has not seeded it."""
    torch = sys.modules.get("torch")
    if seed is not None and torch is not None and torch.initial_seed() == torch.Generator().initial_seed():
        torch.manual_seed(seed)


class TorchPasses(Passes):
    """The passes over `loader`. With `same_each_time` each pass begins with the random states of the first.

    The loader draws from a copy of torch's global random state, which belongs to it alone. Otherwise the order of the
    training would depend on when a validation happens to draw.
    """

    name = "a torch DataLoader"
    exact = True

    def __init__(self, loader: Any, same_each_time: bool = False) -> None:
        self._loader, self._torch = loader, sys.modules["torch"]
        self._same_each_time = same_each_time
        self._global: Any = self._torch.get_rng_state()
        self._generators = _generators(loader, self._torch)
        self._first: list[str] | None = None
        self._begun: list[str] | None = None  # the states at the begin of this pass, until its first batch is drawn
        with contextlib.suppress(TypeError):
            self.batches = len(loader)

    @contextlib.contextmanager
    def whole(self) -> Iterator[Iterator[Any]]:
        """As for Passes. The random states are restored afterwards."""
        states = self._states()
        iterator = self.begin()
        try:
            yield iterator
        finally:
            self.close(iterator)
            self._restore(states)

    def peek(self, count: int) -> list[Any]:
        """As for Passes. As in Keras' fit, the first pass of the training comes with the next random numbers."""
        iterator = self.begin()
        try:
            return list(itertools.islice(iterator, count))
        finally:
            self.close(iterator)

    def begin(self, state: Any = None) -> Iterator[Any]:
        if state is not None:
            self._restore(state)
        elif self._same_each_time and self._first is not None:
            self._restore(self._first)
        begun = self._states()
        self._first = self._first or begun
        # Processes that are forked by a thread of TensorFlow's end with code 1, as Python does not know that thread.
        thread = ThreadPoolExecutor(1) if self._loader.num_workers else None
        with self._own_numbers():
            iterator = _call(thread, iter, self._loader)
        self._begun = begun
        return self._drawn(iterator, thread)

    def _drawn(self, iterator: Iterator[Any], thread: ThreadPoolExecutor | None) -> Iterator[Any]:
        with thread or contextlib.nullcontext():
            while True:
                self._begun = None
                with self._own_numbers():
                    batch = _call(thread, next, iterator, _END)
                if batch is _END:
                    return
                yield batch

    def state(self, iterator: Any) -> Any:  # noqa: ARG002
        return self._begun

    def close(self, iterator: Any) -> None:
        iterator.close()  # drops torch's iterator, which ends its processes

    @contextlib.contextmanager
    def _own_numbers(self) -> Iterator[None]:
        """A context in which torch's global random state is the one of this loader."""
        with _ONE_AT_A_TIME:
            others = self._torch.get_rng_state()
            self._torch.set_rng_state(self._global)
            try:
                yield
            finally:
                self._global = self._torch.get_rng_state()
                self._torch.set_rng_state(others)

    def _states(self) -> list[str]:
        states = [self._global, *(generator.get_state() for generator in self._generators)]
        return [base64.b64encode(state.numpy().tobytes()).decode() for state in states]

    def _restore(self, states: list[str]) -> None:
        values = [self._torch.frombuffer(bytearray(base64.b64decode(text)), dtype=self._torch.uint8) for text in states]
        self._global = values[0]
        for generator, value in zip(self._generators, values[1:], strict=True):
            generator.set_state(value)


def _call(thread: ThreadPoolExecutor | None, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments) if thread is None else thread.submit(function, *arguments).result()


def _generators(loader: Any, torch: Any) -> list[Any]:
    holders = [loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]
    generators = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in generators if isinstance(each, torch.Generator)}.values())
