"""The end of every pipeline: global batches are split over the replicas and prepared ahead, as the options say.

Separates what applies to any batches, a user's own among them, from how batches are made (pipeline.py).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...options import Options


def finish(batches: tf.data.Dataset, options: Options, replicas: int, one_batch: bool = False) -> tf.data.Dataset:
    """Split over the replicas, the first alone again and again with `one_batch`, prepared ahead."""
    if replicas > 1:
        batches = _split(batches, replicas)
    if one_batch:
        batches = batches.take(replicas).cache().repeat()
    wanted = options.input
    settings = tf.data.Options()
    if batches.options().deterministic is not False or options.train.deterministic:
        settings.deterministic = wanted.deterministic_order  # else a user's data set says that its order may differ
    if wanted.private_threads != "auto":
        settings.threading.private_threadpool_size = wanted.private_threads
    # Left alone, TensorFlow rewrites what is off to a parallel map, a batch filled ahead and a prefetch.
    rewrites = settings.experimental_optimization
    if wanted.parallel_calls == "off":
        rewrites.map_parallelization = False
    if not wanted.deterministic_order:
        rewrites.map_and_batch_fusion = False  # it would keep the order
    if wanted.prefetch == "off":
        rewrites.map_and_batch_fusion = False
        rewrites.inject_prefetch = False
    else:
        batches = batches.prefetch(autotuned(wanted.prefetch))
    return batches.with_options(settings)


def _split(batches: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """Each global batch as one batch for each replica, sizes as equal as can be."""
    several = isinstance(batches.element_spec, tuple)

    def parts(*tensors: Any) -> tf.data.Dataset:
        batch = tensors if several else tensors[0]
        samples = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]

        def part(i: Any) -> Any:
            first, beyond = i * samples // replicas, (i + 1) * samples // replicas
            return tf.nest.map_structure(lambda tensor: tensor[first:beyond], batch)

        return tf.data.Dataset.range(replicas).map(part)

    return batches.flat_map(parts)


def autotuned(wanted: int | str) -> int:
    """auto or a number -> what tf.data takes."""
    return tf.data.AUTOTUNE if wanted == "auto" else int(wanted)
