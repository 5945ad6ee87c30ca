"""Turns data that is read by iterating over it into endless batches, of the types and shapes of its first two batches.

As in Keras' fit, an axis that differs between the two may have any size, as the number of samples always may.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from .... import plan
from ....options import Options
from ....options.own_code import Data
from ....plan import batches_per_pass
from ...data.stages import Stage
from ...measure.run_report import RunReport
from .. import counting
from ..dependence import BY_PYTHON, Nature
from ..py_dataset import opened_as
from ..user_code import UserError, contains_none
from .batch_types import LOOKED_AT, as_batch, copied, dtype_of, type_of
from .kinds import ENDLESS, Passes, Repeated
from .positions import Positions

AS_BATCHES = "give each batch as (x, y), (x, y, sample_weight) or x, arrays whose first axis is the samples"


@dataclass(frozen=True)
class Iterated:
    """Data that is read by iterating over it, as a stream of batches.

    `samples` and `batches` are the numbers in a pass, None if they are unknown. `spec` is the type of a batch.
    """

    positions: Positions
    options: Options
    samples: int | None
    batches: int | None
    batch_size: int
    spec: Any
    kind: Data = "batched"
    smaller_last_batch: bool = True  # unknown
    nature: Nature = BY_PYTHON
    begins_anew: bool = True

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        """Return the batches from step `first_step` on. If it lies within an epoch they end with the epoch, so that the
        next batch is that of the next epoch.
        """
        made = self._made(first_step)
        epoch = plan.steps_per_epoch(self.options.train, self.batches or self.options.train.steps_per_epoch or 1)
        done = first_step % epoch
        return made.take(epoch - done) if done else made

    def _made(self, first_step: int) -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(lambda: self.positions.batches(first_step), output_signature=self.spec)

    def of_epoch(self, first_step: int, steps: int) -> tf.data.Dataset:
        return self._made(first_step).take(steps)

    def stages(self) -> tuple[Stage, ...]:
        return ()


def iterated(
    passes: Passes,
    role: str,
    options: Options,
    replicas: int,
    samples: int | None,
    steps: int | None,
    model: keras.Model,
    report: RunReport,
) -> Iterated:
    """Return the batches of `passes` as a stream for all `replicas`. `role` is `train` or `validation`.

    `samples` is the number of samples in a pass and `steps` the number of batches to take, if they are given. Without
    them, and if the object has no length, the batches of a pass are counted. Raises UserError.
    """
    setting = counting.STEPS[role]
    if passes.once and steps is None:
        settable = f"set {setting}" if role == "train" else f"return {setting} next to it"
        raise UserError(
            f"{role} is {passes.name}, which has only one pass of unknown length",
            f"return the function that makes it, so that each pass begins again, or {settable}",
        )
    if passes.once and role == "validation":
        passes = Repeated(passes, steps or 0, setting)
    first = passes.peek(LOOKED_AT)
    if not first:
        raise UserError(f"{role} has no batches", "check where it reads from")
    arrays = [as_batch(batch) for batch in first]
    spec = opened_as(spec_of(arrays, role), model)
    size = _rows(arrays[0])
    as_tensors = functools.partial(_checked, spec=spec, role=role, copies=replicas > 1)
    positions = Positions(passes, role, as_tensors, setting)
    batches = _batches(positions, samples, size, steps, role, report)
    return Iterated(positions, options, samples, batches, size, spec)


def _batches(
    positions: Positions, samples: int | None, size: int, steps: int | None, role: str, report: RunReport
) -> int | None:
    """Return the number of batches in a pass, which are counted if it is needed and unknown."""
    length = positions.passes.batches
    if length is not None and length < ENDLESS:
        return length
    if samples is not None:
        return batches_per_pass(samples, size)
    if steps is not None:
        return None
    if length is not None:
        raise counting.endless(role)
    return counting.counted_in(positions.passes.whole, role, report)


def data_set_of(passes: Passes, batched: bool) -> tf.data.Dataset:
    """Return `passes`, each of which begins again, as a data set of batches, or of single samples if they are not
    `batched`. Raises UserError.
    """
    if passes.once:
        raise UserError(
            f"train is {passes.name}, which has only one pass, and several are needed here",
            "return the function that makes it",
        )
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


def spec_of(batches: list[Any], role: str, batched: bool = True) -> Any:
    """Return the type of these batches, or of samples if they are not `batched`. Raises UserError if they have no type
    in common, or are not batches.
    """
    try:
        return tf.nest.map_structure(lambda *leaves: _leaf_spec(leaves, role, batched), *batches)
    except (TypeError, ValueError):
        raise UserError(f"the first two batches of {role} have different structures", AS_BATCHES) from None


def _leaf_spec(leaves: tuple[Any, ...], role: str, batched: bool) -> Any:
    if any(leaf is None for leaf in leaves):
        raise contains_none(f"a batch of {role}")
    shapes = [tuple(leaf.shape) for leaf in leaves]
    if batched and not shapes[0]:
        raise UserError(f"the elements of {role} are single values, not batches", AS_BATCHES)
    if len({len(shape) for shape in shapes}) > 1:
        raise UserError(
            f"batches of {role} have the shapes {shapes[0]} and {shapes[1]}", "give all the same number of axes"
        )
    try:
        return type_of(leaves, batched)
    except TypeError:
        hint = "convert it to numbers or texts of equal shape"
        raise UserError(f"a batch of {role} contains an array of the type {leaves[0].dtype}", hint) from None


def _rows(batch: Any) -> int:
    first = tf.nest.flatten(batch)[0]
    return int(first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0])


def _checked(value: Any, spec: Any, role: str, copies: bool) -> Any:
    """Return a batch for TensorFlow, after comparing it with the type `spec`.

    `copies`: arrays are copied, because over several replicas TensorFlow may write into those that it is given.
    """
    batch = as_batch(value)
    try:
        tf.nest.assert_same_structure(batch, spec)
        fits = all(_fits(*pair) for pair in zip(_leaves(batch), _leaves(spec), strict=True))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UserError(
            f"a batch of {role} is {_shown(batch)}, and the first ones were {_shown(spec)}",
            "give all batches the same types and shapes; an axis whose size differs must differ between the first two",
        )
    return tf.nest.map_structure(copied, batch) if copies else batch


def _leaves(nest: Any) -> list[Any]:
    return list(tf.nest.flatten(nest))


def _fits(leaf: Any, spec: Any) -> bool:
    return leaf is not None and spec.shape.is_compatible_with(leaf.shape) and dtype_of(leaf) == spec.dtype


def _shown(nest: Any) -> str:
    """Return types and shapes as a short text, such as (float32 (10, 4), int64 (10,))."""

    def shown(leaf: Any) -> str:
        return "None" if leaf is None else f"{dtype_of(leaf).name} {tuple(leaf.shape)}"

    if isinstance(nest, tuple):
        return f"({', '.join(map(_shown, nest))})"
    if isinstance(nest, dict):
        return "{" + ", ".join(f"{key}: {_shown(value)}" for key, value in nest.items()) + "}"
    return shown(nest)
