"""What an exported script depends on of a user's training."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..data.batches import ENDLESS
from ..data.batching import is_small
from ..data.finishing import fits_devices
from ..data.pipeline import Samples
from .building import Own
from .iterated import TENSORS, passes_of
from .streams import LOOKED_AT, as_fitted


def of(own: Own) -> dict[str, Any]:
    """Return the fields of Form in engine/export/own_code.py."""
    returned, pipeline = own.returned, own.pipeline
    single = pipeline.train.kind in ("arrays", "mapped")

    def is_counted(data: Any) -> bool:
        if isinstance(data, tf.data.Dataset):
            return int(data.cardinality()) >= 0
        passes = passes_of(data)
        return passes is not None and passes.batches is not None and passes.batches < ENDLESS

    try:
        own.model.to_json()
        whole = True
    except Exception:  # noqa: BLE001 - the user's code: a class of its own may have no get_config
        whole = False
    data = ("model", "train", "validation", "test", "fit")
    given = {name: value for name, value in {**vars(returned), **vars(returned.fit)}.items() if name not in data}
    is_split = returned.validation is None and pipeline.held_out is not None
    streams = {"train": pipeline.train, "validation": pipeline.held_out, "test": pipeline.test}
    arrays = {
        name: stream for name, stream in streams.items() if isinstance(stream, Samples) and stream.kind == "arrays"
    }
    return {
        "train": pipeline.train.kind,
        "validation": pipeline.held_out.kind if pipeline.held_out is not None else "",
        "test": pipeline.test.kind if pipeline.test is not None else "",
        "iterated": {name: text for name in streams if (text := _opened(own, name, streams[name]))},
        "batches": pipeline.train.batches,
        "samples": pipeline.train.samples,
        "validation_samples": pipeline.validation_samples,
        "test_samples": pipeline.test.samples if pipeline.test is not None else None,
        "plain": all(_is_plain(getattr(returned, name)) for name in arrays if name != "validation" or not is_split),
        "small": all(is_small(each.part.elements.element_spec, each.batch_size) for each in arrays.values()),
        "is_split": is_split,
        "given": [key for key, value in given.items() if value and (key, value) != ("validation_freq", 1)],
        "compiled": own.own_compile,
        "built": own.own_build,
        "builds": _builds(own),
        "several": isinstance(pipeline.spec, tuple),
        "dense": fits_devices(pipeline.spec),
        "whole": whole,
        "images": isinstance(pipeline.train, Samples) and pipeline.train.images,
        "begins_anew": single and pipeline.apart and bool(pipeline.follows),
        "cached": not pipeline.follows,
        "counted": is_counted(returned.train),
        "counted_validation": is_counted(returned.validation),
        "counted_test": is_counted(returned.test),
    }


def _opened(own: Own, name: str, stream: Any) -> str:
    """Return the expression that opens data which is read by iterating over it as a Dataset. Empty for other data."""
    data = getattr(own.returned, name)
    if (passes := passes_of(data)) is None:
        return ""
    spec = stream.part.elements.element_spec if isinstance(stream, Samples) else stream.spec
    begin = name if not hasattr(data, "__iter__") else f"{name}.__iter__"
    if passes.once and name == "validation":
        begin, first = f'first_again({name}, made["validation_steps"])', stream.passes.peek(LOOKED_AT)
    elif passes.once:
        # The first batches are drawn here, as in the run.
        begin = f"itertools.chain(list(itertools.islice({name}, {LOOKED_AT})), {name}).__iter__"
        first = stream.passes.peek(LOOKED_AT)
    else:
        first = passes.peek(LOOKED_AT)
    if own.pipeline.replicas > 1:  # TensorFlow may write into the arrays of a batch
        begin = f"lambda begin={begin}: (tf.nest.map_structure(copied, as_batch(batch)) for batch in begin())"
    elif not all(map(_is_ready, first)):
        begin = f"lambda begin={begin}: map(as_batch, begin())"
    made = f"tf.data.Dataset.from_generator(\n    {begin},\n    output_signature={_signature(spec)},\n)"
    if passes.once or passes.batches is None or passes.batches >= ENDLESS:
        return made
    return f"{made}.apply(tf.data.experimental.assert_cardinality(len({name})))"


def _builds(own: Own) -> bool:
    """Return True if Keras can make the model's variables before its first step, by its call."""
    spec = own.pipeline.spec
    x = spec[0] if isinstance(spec, tuple) else spec
    try:
        own.model(tf.nest.map_structure(lambda part: keras.KerasTensor(part.shape, part.dtype.name), x))
    except Exception as fault:  # noqa: BLE001 - the user's code
        print(f"{type(own.model).__name__} gets its variables in the first step: {fault}")
        return False
    return True


def _is_ready(batch: Any) -> bool:
    """Return True if TensorFlow takes the batch as it is: arrays and tensors in tuples and dicts."""
    if isinstance(batch, dict):
        return all(map(_is_ready, batch.values()))
    if isinstance(batch, tuple):
        return all(map(_is_ready, batch))
    return isinstance(batch, (np.ndarray, *TENSORS))


def _signature(spec: Any) -> str:
    """Return the type of an element as the expression that makes it."""
    if isinstance(spec, dict):
        return "{" + ", ".join(f"{key!r}: {_signature(part)}" for key, part in spec.items()) + "}"
    if isinstance(spec, tuple):
        return "(" + ", ".join(map(_signature, spec)) + (",)" if len(spec) == 1 else ")")
    shape = None if spec.shape.rank is None else spec.shape.as_list()
    ragged = f", {spec.ragged_rank}, tf.{spec.row_splits_dtype.name}" if isinstance(spec, tf.RaggedTensorSpec) else ""
    return f"tf.{type(spec).__name__}({shape}, tf.{spec.dtype.name}{ragged})"


def _is_plain(data: Any) -> bool:
    """Return True if the data is tuples and dicts of NumPy's arrays that are not converted."""
    fitted = as_fitted(data)
    try:
        tf.nest.assert_same_structure(data, fitted)
    except (TypeError, ValueError):
        return False
    pairs = zip(tf.nest.flatten(data), tf.nest.flatten(fitted), strict=True)
    return all(isinstance(array, np.ndarray) and array is same for array, same in pairs)
