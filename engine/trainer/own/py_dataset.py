"""Turns a user's PyDataset into endless batches, in an order drawn here, loaded and notified of passes as Keras' fit
does. No batch is loaded twice, and none in parallel unless the PyDataset allows it: loading is code with state of its
own.
"""

from __future__ import annotations

import base64
import contextlib
import random
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...options import Options
from ...options.own_code import Data
from ..checkpoint.callback_state import Arrays, NotPackable, pieces, read
from ..checkpoint.object_graph import GENERATORS
from ..checkpoint.training_state import generator_state, set_generator_state
from ..data.batches import Stream
from .dataset_facts import BY_PYTHON
from .streams import DIFFERS_AT_FIRST, LOOKED_AT, as_array, as_tuples, spec_of
from .user_code import UserError

MOST_BYTES = 64 * 1024**2  # of an array that is compared with what it was
SAME_LENGTH = "let __len__ return the same number in all epochs, or keep a fit of your own and watch it with Monitor"


class Indexed(Stream):
    """A PyDataset as a stream: its batches by number, in an order that input.shuffle draws again for each pass; for a
    script in that of Keras' fit, by Python's `random`. It is notified once of each pass, even if several streams reach
    it.
    """

    kind: Data = "pydataset"
    nature = BY_PYTHON
    ends_with_begun_epoch = True
    batches: int

    def __init__(
        self, data: keras.utils.PyDataset, options: Options, samples: int | None = None, evaluates: bool = False
    ) -> None:
        """The shapes follow from the first batches. Raises UserError."""
        self.data, self.options, self.samples = data, options, samples
        if not (batches := data.num_batches):
            raise UserError(
                "the PyDataset has no batches, or no end", "its __len__ must return the number of batches in a pass"
            )
        self.batches = int(batches)
        first = [_batch(data[i]) for i in range(min(LOOKED_AT, self.batches))]
        arrays = tf.nest.map_structure(lambda leaf: None if leaf is None else as_array(leaf), first)
        self.spec = spec_of(arrays, "the PyDataset")
        self.batch_size = int(as_array(tf.nest.flatten(first[0])[0]).shape[0])
        # Unless passes are loaded ahead of the training, `epoch_trained` ends one, instead of the load of its last
        # batch, and what the PyDataset keeps is that of the step.
        self._ahead, calls = options.input.across_epochs is True, options.input.parallel_calls
        self.workers = 1 if data.use_multiprocessing else max(1, int(data.workers))  # threads that may load at once
        self._at_once = min(calls if isinstance(calls, int) else {"off": 1, "auto": self.workers}[calls], self.workers)
        self._pass = 0 if evaluates else None  # of an evaluation, each of which has an iterator of its own
        self._lock = threading.RLock()
        self._begun, self._ended = 0, -1  # Keras' fit calls on_epoch_end once more, before the first pass
        self._left = 0  # batches of this pass
        shuffles = options.input.shuffle != "off" and not evaluates
        self._by_python, self._by_option = shuffles and options.workload.is_script, shuffles
        self._order = self._drawn()  # of this pass, in a script drawn before its model has variables
        self._made = {name: _mark(value) for name, value in vars(data).items()}  # what __init__ has left

    # ---- batches ----------------------------------------------------------------------------------

    def evaluation_begins(self, before: int) -> None:
        self._pass = before

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        first_pass, skipped = divmod(first_step, self.batches)
        flat = tf.nest.flatten(self.spec)
        types, shapes = [spec.dtype for spec in flat], [spec.shape for spec in flat]
        in_order = self.options.input.deterministic_order
        parallel = {} if self._at_once == 1 else {"num_parallel_calls": self._at_once, "deterministic": in_order}

        def batch(number: Any) -> Any:
            loaded = tf.py_function(lambda i: self.load(int(i), shapes), [number], types)
            shaped = [tf.ensure_shape(tensor, shape) for tensor, shape in zip(loaded, shapes, strict=True)]
            return tf.nest.pack_sequence_as(self.spec, shaped)

        def one_pass(number: Any) -> tf.data.Dataset:
            seen = tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0)
            begun = tf.py_function(lambda *at: self.begin(*map(int, at)), [number, seen], tf.int64)
            order = tf.data.Dataset.from_tensor_slices(tf.ensure_shape(begun, (self.batches,)))
            if self._by_option and not self._by_python:
                order = order.shuffle(self.batches, seed=tf.constant(self.options.train.seed, tf.int64) + number)
            return order.skip(seen).map(batch, **parallel)

        return tf.data.Dataset.range(first_pass, 2**62).flat_map(one_pass)

    def _drawn(self) -> list[int]:
        order = list(range(self.batches))
        if self._by_python:
            random.shuffle(order)
        return order

    def begin(self, number: int, skipped: int) -> np.ndarray:
        """Notify the PyDataset of pass `number` (from 0) and earlier ones. Return the numbers of its batches."""
        with self._lock:
            while self._begun <= (number if self._pass is None else self._pass):
                self._end()
                if self._pass is not None and self._begun:  # Keras' evaluate begins with a call of it
                    self.data.on_epoch_end()
                self.data.on_epoch_begin()
                if self._begun:
                    self._order = self._drawn()
                self._begun += 1
            if (batches := self.data.num_batches) != self.batches:
                what = f"the PyDataset has {batches} batches in epoch {number + 1}, and {self.batches} at first"
                self.fault = self.fault or UserError(f"{what}: epochs of a run have equally many steps", SAME_LENGTH)
                raise ValueError(what)
            self._left = self.batches - skipped
            return np.asarray(self._order)

    def load(self, number: int, shapes: Sequence[tf.TensorShape] = ()) -> list[np.ndarray]:
        """Return the arrays of a batch. If they do not have these `shapes`, ValueError is raised, and is the fault."""
        with self._lock if self._at_once == 1 else contextlib.nullcontext():
            batch = [as_array(array) for array in tf.nest.flatten(_batch(self.data[number]))]
        for array, shape in zip(batch, shapes, strict=False):
            if not shape.is_compatible_with(array.shape):
                what = f"batch {number} of the PyDataset has an array of shape {array.shape}, the first ones {shape}"
                self.fault = self.fault or UserError(what, DIFFERS_AT_FIRST)
                raise ValueError(what)
        with self._lock:
            self._left -= 1
            if self._left == 0 and (self._ahead or self._pass is not None):
                self._end()
        return batch

    def _end(self) -> None:
        if self._ended < self._begun:
            self._ended += 1
            self.data.on_epoch_end()

    def epoch_trained(self) -> None:
        with self._lock:
            if not self._left and not self._ahead:
                self._end()

    # ---- checkpoints ------------------------------------------------------------------------------

    def place(self, step: int) -> dict[str, Any] | None:  # noqa: ARG002 - its attributes are those of the step
        """Return the attributes of the PyDataset that changed since it was made, for JSON. None if they cannot be
        saved, or are not those of the present step, as passes are loaded ahead: then they are begun again.
        """
        arrays = Arrays()
        with self._lock:
            changed = {name: value for name, value in vars(self.data).items() if self._made.get(name) != _mark(value)}
            draws = {name: generator_state(value) for name, value in changed.items() if isinstance(value, GENERATORS)}
            try:
                packed = {name: arrays.pack(value, name) for name, value in changed.items() if name not in draws}
            except NotPackable:
                return None
            kept = base64.b64encode(b"".join(pieces([packed], arrays))).decode()
            passes = {"passes": [self._begun, self._ended], "order": self._order if self._by_python else None}
            return None if self._ahead else {**passes, "draws": draws, "kept": kept}

    def go_to(self, place: dict[str, Any]) -> None:
        (packed,), arrays = read(base64.b64decode(place["kept"]))
        vars(self.data).update({name: arrays.unpack(value) for name, value in packed.items()})
        for name, drawn in place["draws"].items():
            set_generator_state(vars(self.data)[name], drawn)
        self._begun, self._ended = place["passes"]
        self._order = place.get("order") or self._order


def _mark(value: Any) -> Any:
    """Return a value that differs if `value` has changed, for arrays of up to MOST_BYTES by what is in them."""
    if isinstance(value, np.ndarray) and value.nbytes <= MOST_BYTES and value.dtype.kind != "O":
        return value.shape, value.dtype.str, zlib.crc32(np.ascontiguousarray(value).tobytes())
    if isinstance(value, list | tuple):
        return type(value), [_mark(item) for item in value]
    if isinstance(value, dict):
        return {repr(key): _mark(item) for key, item in value.items()}
    if isinstance(value, GENERATORS):
        return generator_state(value)
    return value if isinstance(value, str | int | float | bool | None) else id(value)


def _batch(batch: Any) -> Any:
    nest = as_tuples(batch)
    return nest if isinstance(nest, tuple | dict) else (nest,)
