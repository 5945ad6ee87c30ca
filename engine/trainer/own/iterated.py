"""Turns data that is read by iterating over it into endless batches: generators, functions, Grain, torch's DataLoader.

As in Keras' fit, an axis that differs between the first two batches may have any size, as the number of samples may.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...plan import batches_per_pass
from ..checkpoint.training_state import host_random_kept
from ..data.batches import ENDLESS, Stream
from ..measure.run_report import RunReport
from . import dataset_facts
from .streams import DIFFERS_AT_FIRST, LOOKED_AT, dtype_of, spec_of
from .user_code import UserError


class Passes:
    """Makes an iterator over the batches of each pass."""

    name: str  # of the object, in messages
    once = False  # there is only one pass, which cannot be begun again
    batches: int | None = None  # in a pass
    exact = False  # the state of an iterator can be saved and restored

    def peek(self, count: int) -> list[Any]:
        """Return up to `count` first batches. The training gets them too."""
        with self.whole() as batches:
            self.state(batches)  # raises UserError for a state that cannot be saved
            return list(itertools.islice(batches, count))

    def whole(self) -> contextlib.AbstractContextManager[Iterator[Any]]:
        """Return a context with the batches of a pass that does not belong to the training."""
        return contextlib.nullcontext(self.begin())

    def begin(self, state: Any = None) -> Iterator[Any]:
        """Begin a pass, in the state that `state` has returned earlier if one is given, and return its iterator."""
        raise NotImplementedError

    def state(self, iterator: Any) -> Any:
        """Return the present state of the iterator as a value for JSON. None if it cannot be saved now."""
        return _written(iterator.get_state()) if _is_stateful(iterator) else None

    def close(self, iterator: Any) -> None:
        """End the processes and threads of an iterator that is not used any longer."""


class Once(Passes):
    """One pass, which continues over the epochs. One with `get_state` and `set_state`, as of Grain, is saved and
    restored.
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


class Anew(Passes):
    """A function that makes an iterator, or an object with `__iter__`: each pass has one, restored as for `Once`."""

    def __init__(self, make: Callable[[], Any], name: str, batches: int | None = None, stateful: bool = False) -> None:
        self.name, self.batches, self.exact = name, batches, stateful
        self._make = make

    @contextlib.contextmanager
    def whole(self) -> Iterator[Iterator[Any]]:
        with host_random_kept():
            iterator = self.begin()
            try:
                yield iterator
            finally:
                self.close(iterator)

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
                self._left = self._passes.begin() if self._left is None else self._left
                if (batch := next(self._left, _END)) is _END:
                    what = f"validation ended after {number} batches: {self.name} has only one pass"
                    raise UserError(what, f"lower {self._setting}, or return the function that makes it")
                self._kept.append(batch)
            yield self._kept[number]


def _is_stateful(iterator: Any) -> bool:
    return callable(getattr(iterator, "get_state", None)) and callable(getattr(iterator, "set_state", None))


def _written(state: Any) -> Any:
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode()}
    try:
        return {"value": json.loads(json.dumps(state))}  # the values as they are now: the iterator may change its own
    except (TypeError, ValueError):
        what = f"get_state of the data returned a {type(state).__name__} that JSON cannot hold"
        raise UserError(what, "return bytes, or numbers, texts, lists and dicts of them") from None


def _read(state: Any) -> Any:
    return base64.b64decode(state["base64"]) if "base64" in state else state["value"]


def named(value: Any) -> str:
    """Return the name of the value's class with its article, such as "an Episodes"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


_ONE_AT_A_TIME = threading.Lock()  # who draws from torch's global random state


def seed_torch(seed: int | None) -> None:
    """Seed torch's global random state, if the user's code has imported torch and has not seeded it."""
    torch = sys.modules.get("torch")
    if seed is not None and torch is not None and torch.initial_seed() == torch.Generator().initial_seed():
        torch.manual_seed(seed)


class TorchPasses(Passes):
    """The passes over a DataLoader of torch, with `same_each_time` each with the random states of the first. A
    checkpoint has the states of the pass's begin. The loader draws from a copy of torch's global random state, as else
    the order would depend on when a validation draws. torch is never imported here: the user's code has done it.
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
        states = self._states()
        iterator = self.begin()
        try:
            yield iterator
        finally:
            self.close(iterator)
            self._restore(states)

    def peek(self, count: int) -> list[Any]:
        # As in Keras' fit, the first pass of the training comes with the next random numbers.
        iterator: Any = self.begin()
        with contextlib.closing(iterator):
            return list(itertools.islice(iterator, count))

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


_NOT_DATA = (str, bytes, dict, list, tuple, set, frozenset, tf.data.Dataset, keras.utils.PyDataset)


def passes_of(data: Any, role: str = "train") -> Passes | None:
    """Return the passes over `data` for `role`, such as `train`, by the names of its classes, as Keras does it.
    None if it is not read by iterating over it: arrays, dicts, data sets, models.
    """
    if isinstance(data, _NOT_DATA) or hasattr(data, "shape") or hasattr(data, "__array__"):
        return None
    if is_torch(data):
        return TorchPasses(data, same_each_time=role != "train")
    if _is_of(data, ("MapDataset", "IterDataset", "DataLoader"), "grain"):
        return Anew(lambda: iter(data), f"a Grain {type(data).__name__}", _length(data), stateful=True)
    if hasattr(data, "__next__"):
        return Once(data)
    if hasattr(data, "__iter__"):
        return Anew(lambda: iter(data), named(data), _length(data))
    return Anew(data, f"the function {getattr(data, '__name__', type(data).__name__)}") if callable(data) else None


def is_torch(data: Any) -> bool:
    return _is_of(data, ("DataLoader",), "torch")


def _is_of(data: Any, names: tuple[str, ...], package: str) -> bool:
    return any(kind.__name__ in names and kind.__module__.partition(".")[0] == package for kind in type(data).__mro__)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, AttributeError, NotImplementedError, OverflowError):
        return None


_END = object()
_PATIENCE_SECONDS = 5.0  # for a batch that is being drawn when the training ends
_MOST_KEPT = 1024  # states; beyond that, every second one is dropped


class Positions(Stream):
    """Draws the batches of `passes`, pass after pass, and knows which batch of which pass comes next. A resumed
    training goes on from the saved state of the iterator, or else draws the batches of the pass again up to there.
    """

    nature = dataset_facts.BY_PYTHON
    ends_with_begun_epoch = True

    def __init__(self, passes: Passes, role: str, as_tensors: Callable[[Any], Any], steps: str) -> None:
        self.passes = passes
        self._role, self._as_tensors, self._steps = role, as_tensors, steps
        self._reading, self._keeping = threading.Lock(), threading.Lock()
        self._iterator: Any = None
        self._closed = False
        self._drawn = 0  # batches up to now
        self._of_pass = 0  # batches of the present pass
        # Batches drawn -> what is needed to continue there. A pass without a state can only be begun.
        self._kept: dict[int, dict[str, Any]] = {}

    def batches_from(self, first: int) -> Iterator[Any]:
        """Yield batches from number `first` on. TensorFlow hands on only the text of a ValueError: see `fault`."""
        try:
            with self._reading:
                if self._iterator is None or self._drawn > first:
                    with self._keeping:
                        before = max((each for each in self._kept if each <= first), default=0)
                        kept = self._kept.get(before, {"of_pass": 0, "state": None})
                    self._begin(kept["state"])
                    self._drawn, self._of_pass = before, kept["of_pass"]
                    self._keep()
                while self._drawn < first:
                    self._next()
            while True:
                with self._reading:
                    if self._closed:
                        return
                    batch = self._next()
                yield batch
        except UserError as fault:
            self.fault = fault
            raise ValueError(str(fault)) from fault

    def place(self, step: int) -> dict[str, Any] | None:
        with self._keeping:
            before = [number for number in self._kept if number <= step]
            if not before:
                return None
            number = max(before)
            self._kept = {each: kept for each, kept in self._kept.items() if each >= number}
            return {"batches": number, **self._kept[number]}

    def go_to(self, place: dict[str, Any]) -> None:
        kept = dict(place)
        self._kept = {int(kept.pop("batches")): kept}

    def close(self) -> None:
        if not self._reading.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            self._closed = True
            if self._iterator is not None:
                self.passes.close(self._iterator)
        finally:
            self._reading.release()

    def _begin(self, state: Any = None) -> None:
        if self._iterator is not None:
            self.passes.close(self._iterator)
        self._iterator, self._of_pass = self.passes.begin(state), 0

    def _next(self) -> Any:
        while (batch := next(self._iterator, _END)) is _END:
            if self.passes.once:
                raise UserError(
                    f"{self._role} ended after {self._drawn} batches, and more are needed: {self.passes.name} has only "
                    "one pass",
                    f"let it yield without an end, return the function that makes it, or lower {self._steps}",
                )
            if not self._of_pass:
                raise UserError(f"a pass over {self._role} has no batches", "check where it reads from")
            self._begin()
            self._keep()
        tensors = self._as_tensors(batch)
        self._drawn += 1
        self._of_pass += 1
        self._keep()
        return tensors

    def _keep(self) -> None:
        state = self.passes.state(self._iterator)
        if state is None and (self._of_pass or self.passes.once):
            return
        with self._keeping:
            self._kept[self._drawn] = {"of_pass": self._of_pass, "state": state}
            if len(self._kept) > _MOST_KEPT:
                self._kept = dict(list(self._kept.items())[-1::-2][::-1])


class Iterated(Positions):
    """Data that is read by iterating over it, as a stream of batches for all `replicas`. `steps` is the number of
    batches to take, if it is given. If a pass has no known length, and that is needed, its batches are counted.
    """

    def __init__(
        self,
        passes: Passes,
        role: str,
        replicas: int,
        samples: int | None,
        steps: int | None,
        report: RunReport,
    ) -> None:
        """Raises UserError."""
        setting = dataset_facts.STEPS[role]
        if passes.once and steps is None:
            of_length = "" if role == "test" else f", or {dataset_facts.settable(role)}"
            raise UserError(
                f"{role} is {passes.name}, which has only one pass of unknown length",
                f"return the function that makes it, so that each pass begins again{of_length}",
            )
        if passes.once and role == "validation":
            passes = Repeated(passes, steps or 0, setting)
        if not (arrays := [as_batch(batch) for batch in passes.peek(LOOKED_AT)]):
            raise UserError(f"{role} has no batches", "check where it reads from")
        spec = spec_of(arrays, role)
        super().__init__(passes, role, functools.partial(_checked, spec=spec, role=role, copies=replicas > 1), setting)
        self.samples, self.spec = samples, spec
        of_first = tf.nest.flatten(arrays[0])[0]
        self.batch_size = int(of_first.nrows() if isinstance(of_first, tf.RaggedTensor) else of_first.shape[0])
        self.batches = passes.batches
        if self.batches is None or self.batches >= ENDLESS:
            if samples is not None:
                self.batches = batches_per_pass(samples, self.batch_size)
            elif steps is not None:
                self.batches = None
            elif self.batches is not None:
                raise dataset_facts.endless(role)
            else:
                with passes.whole() as whole:
                    self.batches = dataset_facts.count(whole, role, report, look_every=1)

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        batches = functools.partial(self.batches_from, first_step)
        return tf.data.Dataset.from_generator(batches, output_signature=self.spec)


def data_set_of(passes: Passes, batched: bool) -> tf.data.Dataset:
    """A data set of batches, or of samples if not `batched`. Raises UserError."""
    if passes.once:
        what = f"train is {passes.name}, which has only one pass, and several are needed here"
        raise UserError(what, "return the function that makes it")
    first = [as_batch(element) for element in passes.peek(LOOKED_AT)]
    if not first:
        raise UserError("train has no samples", "check where it reads from")

    def one_pass() -> Iterator[Any]:
        iterator = passes.begin()
        try:
            yield from map(as_batch, iterator)
        finally:
            passes.close(iterator)

    data = tf.data.Dataset.from_generator(one_pass, output_signature=spec_of(first, "train", batched))
    has_length = passes.batches is not None and passes.batches < ENDLESS
    return data.apply(tf.data.experimental.assert_cardinality(passes.batches)) if has_length else data


# ---- batches -------------------------------------------------------------------------------------


def _checked(value: Any, spec: Any, role: str, copies: bool) -> Any:
    # Over several replicas TensorFlow may write into arrays that it is given: then they are copied.
    batch = as_batch(value)
    try:
        tf.nest.assert_same_structure(batch, spec)
        pairs = zip(tf.nest.flatten(batch), tf.nest.flatten(spec), strict=True)
        fits = all(
            leaf is not None and spec.shape.is_compatible_with(leaf.shape) and dtype_of(leaf) == spec.dtype
            for leaf, spec in pairs
        )
    except (TypeError, ValueError):
        fits = False
    if not fits:
        what = f"a batch of {role} is {_shown(batch)}, and the first ones were {_shown(spec)}"
        raise UserError(what, f"give all the same types and shapes; {DIFFERS_AT_FIRST}")
    return tf.nest.map_structure(copied, batch) if copies else batch


def _shown(nest: Any) -> str:
    if isinstance(nest, tuple):
        return f"({', '.join(map(_shown, nest))})"
    if isinstance(nest, dict):
        return "{" + ", ".join(f"{key}: {_shown(value)}" for key, value in nest.items()) + "}"
    return "None" if nest is None else f"{dtype_of(nest).name} {tuple(nest.shape)}"


TENSORS = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)


def as_batch(value: Any) -> Any:
    """Nested tuples and dicts of arrays: no lists, no None at the end, no tensors of other libraries."""
    if isinstance(value, dict):
        return {key: as_batch(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        items = tuple(as_batch(item) for item in value)
        while items and items[-1] is None:
            items = items[:-1]
        return items
    if value is None or isinstance(value, (np.ndarray, *TENSORS)):
        return value
    if hasattr(value, "tocoo"):  # a sparse matrix of SciPy
        matrix = value.tocoo()
        indices = np.stack([matrix.row, matrix.col], axis=1).astype("int64")
        return tf.sparse.reorder(tf.SparseTensor(indices, matrix.data, matrix.shape))
    return np.asarray(value.cpu() if hasattr(value, "cpu") else value)


def copied(leaf: Any) -> Any:
    """Return a copy of an array. Over several replicas TensorFlow may write into arrays that it is given."""
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
