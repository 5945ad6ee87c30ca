"""The end of every pipeline, gputui's or the user's: batches are split over replicas, prefetched, and copied to
GPUs. The stage that copies has its iterator on the device, where the state of the pipeline cannot be read. So the
pipeline has an iterator of its own on the host, from which that stage takes its batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...options import Input, Options
from ...telemetry import resource_limits


def finish(
    batches: tf.data.Dataset, options: Options, replicas: int, trains: bool = False, on_demand: bool = False
) -> tf.data.Dataset:
    """Split the batches over the replicas and prefetch them, unless `on_demand`."""
    if replicas > 1:
        batches = split(batches, replicas)
    return within_limits(ahead(one_batch(batches, replicas, options) if trains else batches, options, on_demand))


def none_of(spec: Any) -> tf.data.Dataset:
    """Return a data set of this type without an element."""
    return tf.data.Dataset.from_generator(lambda: iter(()), output_signature=spec)


def end(iterator: Any) -> None:
    """End the pipeline of the iterator, so that it gives up its threads and files. It has no further element."""
    with tf.device("/CPU:0"):
        none = tf.data.experimental.to_variant(none_of(iterator.element_spec))
        tf.raw_ops.MakeIterator(dataset=none, iterator=iterator._iterator_resource)


def within_limits(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Give tf.data the CPU and memory limits of the container, unless others are set. Otherwise it takes those of
    the machine.
    """
    given = batches.options().autotune
    cpus = resource_limits.cpus_limited() and given.cpu_budget is None
    memory = resource_limits.memory_limited() and given.ram_budget is None
    if not cpus and not memory:
        return batches
    settings = tf.data.Options()
    if cpus:
        settings.autotune.cpu_budget = resource_limits.usable_cpus()
    if memory:
        # half: the share that tf.data takes of the machine's memory
        settings.autotune.ram_budget = resource_limits.memory().available // 2
    return batches.with_options(settings)


def one_batch(batches: tf.data.Dataset, replicas: int, options: Options) -> tf.data.Dataset:
    """Return the batches; with input.one_batch the first global batch (one for each replica), without an end."""
    if options.input.one_batch:
        return batches.take(replicas).cache().repeat()
    return batches


def ahead(batches: tf.data.Dataset, options: Options, on_demand: bool = False) -> tf.data.Dataset:
    """Prefetch the batches as the options say, in a fixed order or not, with private or shared threads.
    Those that are made `on_demand` are not prefetched here: what TensorFlow or the user prefetches stays.
    """
    given = options.input
    settings = tf.data.Options()
    # A user's data set may say itself that its order may vary.
    if batches.options().deterministic is not False or options.train.deterministic:
        settings.deterministic = given.deterministic_order
    if given.private_threads != "auto":
        settings.threading.private_threadpool_size = given.private_threads
    # Otherwise TensorFlow turns a sequential pipeline into parallel maps and batches, and adds a prefetch.
    if given.parallel_calls == "off":
        settings.experimental_optimization.map_parallelization = False
    # A fused map and batch keeps the order, and prepares batches in a thread of its own: up to nine were seen.
    if given.parallel_calls == "off" or given.prefetch == "off" or not given.deterministic_order:
        settings.experimental_optimization.map_and_batch_fusion = False
    if on_demand:
        return batches.with_options(settings)
    if given.prefetch == "off":
        settings.experimental_optimization.inject_prefetch = False
        return batches.with_options(settings)
    return batches.prefetch(tf.data.AUTOTUNE if given.prefetch == "auto" else given.prefetch).with_options(settings)


def split(batches: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """Return each global batch as one batch for each replica, with the sizes of TensorFlow's strategies: only the last
    may be smaller. If a replica would get no sample, the sizes are as equal as possible.
    """
    several = isinstance(batches.element_spec, tuple)

    def parts(*tensors: Any) -> tf.data.Dataset:
        batch = tensors if several else tensors[0]
        rows = sample_count(batch)
        samples = tf.cast(rows, tf.int64)
        size = -(-samples // replicas)
        as_equal = size * (replicas - 1) >= samples

        def begin(i: Any) -> Any:
            return tf.where(as_equal, i * samples // replicas, tf.minimum(i * size, samples))

        def part(i: Any) -> Any:
            first, beyond = begin(i), begin(i + 1)
            count = rows // replicas if isinstance(rows, int) and rows % replicas == 0 else beyond - first
            return tf.nest.map_structure(lambda tensor: rows_of(tensor, first, count), batch)

        return tf.data.Dataset.range(replicas).map(part)

    return batches.flat_map(parts)


def sample_count(data: Any) -> Any:
    """Return the number of samples in the batch `data`: an int if the static shape has it, else a scalar tensor."""
    first = next(part for part in tf.nest.flatten(data) if part is not None)
    rows = first.shape[0]
    if rows is not None:
        return int(rows)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    return tf.cast(first.nrows(), tf.int32) if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]


def rows_of(tensor: Any, first: Any, count: Any) -> Any:
    """Return `count` rows of a dense, sparse or ragged tensor, from the row `first` on."""
    if isinstance(tensor, tf.RaggedTensor):
        return tensor[first : first + count]
    sparse = isinstance(tensor, tf.SparseTensor)
    rest = tensor.dense_shape[1:] if sparse else tf.shape(tensor)[1:]
    first, count = (tf.cast(number, rest.dtype) for number in (first, count))
    begin, size = tf.concat([[first], tf.zeros_like(rest)], 0), tf.concat([[count], rest], 0)
    taken = tf.sparse.slice(tensor, begin, size) if sparse else tf.slice(tensor, begin, size)
    taken.set_shape([tf.get_static_value(count), *tensor.shape[1:]])
    return taken


# ---- in the memory of GPUs -----------------------------------------------------------------------


def batches_ahead(input_options: Input, kind: str, spec: Any) -> int:
    """Return the number of batches that wait in the memory of each device of this kind. 0 on a CPU."""
    return input_options.device_batches if kind == "GPU" and fits_devices(spec) else 0


def fits_devices(spec: Any) -> bool:
    """Return True if batches of this type can be copied to a GPU ahead of their step: dense tensors of numbers."""
    parts = tf.nest.flatten(spec)
    return all(isinstance(part, tf.TensorSpec) and _is_numeric(part.dtype) for part in parts)


def first_cast(step: Callable[[Any], Any], scale: float | None) -> Callable[[Any], Any]:
    """Return a function that runs `step` on a batch whose inputs are bytes: it first makes floats of them, multiplied
    by `scale`. None: `step` itself.
    """
    if scale is None:
        return step

    def cast_first(data: Any) -> Any:
        x, *labels = data
        return step((tf.cast(x, tf.float32) * scale, *labels))

    return cast_first


def _is_numeric(kind: tf.DType) -> bool:
    return bool(kind.is_floating or kind.is_integer or kind.is_bool or kind.is_complex)


def through_an_iterator(batches: tf.data.Dataset) -> tuple[tf.data.Dataset, Any]:
    """Return a data set that gives the same batches one by one on demand, and the iterator on the host behind it."""
    with tf.device("/CPU:0"):
        iterator = iter(batches)
        handed_on = tf.data.Dataset.counter().map(lambda _: iterator.get_next())
    # The pipeline behind the iterator is complete; TensorFlow must not add anything here.
    settings = tf.data.Options()
    settings.autotune.enabled = False
    settings.experimental_optimization.inject_prefetch = False
    settings.experimental_optimization.map_parallelization = False
    return handed_on.with_options(settings), iterator
