"""This worker's share of the data, where several machines train together.

All workers have the same order of samples, which the seed draws. Of each global batch every worker takes its own rows,
so that together they train the very batches that one machine would: each sample once in a pass. Rows are taken before
samples are read or decoded, wherever they are still numbers, names or records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Share:
    """The part of worker `index` of `workers`, all of which have as many replicas."""

    workers: int
    index: int

    def size(self, global_batch: int) -> int:
        """Rows of a whole batch that are this worker's."""
        return global_batch // self.workers

    def bounds(self, rows: Any) -> tuple[Any, Any]:
        """The first of its rows, and the one beyond the last, in a batch of so many."""
        return self.index * rows // self.workers, (self.index + 1) * rows // self.workers

    def rows(self, batch: Any) -> Any:
        """Its rows of a batch."""
        first, beyond = self.bounds(tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0])
        return tf.nest.map_structure(lambda tensor: tensor[first:beyond], batch)

    def batches(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Its rows of all batches."""
        several = isinstance(batches.element_spec, tuple)
        return batches.map(lambda *batch: self.rows(batch if several else batch[0]))

    def elements(self, one_pass: tf.data.Dataset) -> tf.data.Dataset:
        """Its elements of a pass, every `workers`-th: a global batch is a multiple of the workers, so that each of its
        batches has the elements of one global batch.
        """
        return one_pass.shard(self.workers, self.index)


BY_ELEMENT = (
    "by element: of each global batch every worker takes its own rows, before they are loaded; together the workers "
    "train each sample once in a pass"
)
BY_ROW = "by element: every worker loads each global batch and takes its own rows of it"
