"""Turns the training and validation data of a user's code into endless batches for the loop."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import keras
import tensorflow as tf

from ...options import Options
from ...options.own_code import Data
from ...options.training import TESTED
from ...plan import batches_per_pass
from ..checkpoint.object_graph import is_filled
from ..data.batches import ENDLESS, INDEPENDENT, Share, Stream
from ..data.batching import loaded, mapped
from ..data.pipeline import Pipeline, Samples
from ..data.sources import Part, Source, split_order
from ..measure.run_report import RunReport
from .dataset_facts import (
    SAMPLES,
    counted,
    inspected,
    length_follows_variable,
    nature_of,
    reshuffles,
    settable,
    share_a_shuffle,
)
from .iterated import Iterated, data_set_of, passes_of
from .model_checks import can_evaluate
from .py_dataset import Indexed
from .returned import Returned, check_classes, weigh
from .streams import TO_BATCH, Batched, SharedShuffle, as_array, as_fitted, as_tensors
from .user_code import UserCode, UserError, contains_none

READS_AHEAD = "what a callback sets reaches its samples some steps later than in Keras' fit"
ENDS_EARLY = "Keras' fit would end an epoch early"


def opened(
    options: Options, replicas: int, returned: Returned, file: Path, report: RunReport, share: Share | None = None
) -> Pipeline:
    """Return the user's data as a pipeline for all `replicas`, of which this worker has `share`. Raises UserError."""
    stamp = hashlib.sha256()  # a cache on disk is valid only for this code
    for path in sorted(file.parent.glob("*.py")):
        with contextlib.suppress(OSError):  # a dangling link, with which an editor locks a file
            stamp.update(path.read_bytes())
    not_trained = replace(options.input, shuffle="off", augment="off", drop_remainder=False, one_batch=False)

    def single(
        role: str, kind: Data, elements: tf.data.Dataset, number: int | None, given: Options, arrays: Any = None
    ) -> Samples:
        """Return single samples as a stream, `number` in a pass. `arrays` are tensors that can be gathered from."""
        inputs = given.input
        if number is None and inputs.cache != "off":
            what = "input.cache needs to know the number of samples in a pass over train"
            raise UserError(what, "return samples, or set input.cache=off")
        if number is None:
            elements, number = elements.repeat(), ENDLESS
        load, vary = (returned.map, returned.augment) if role == "train" else (returned.validation_map, None)
        part, of_role, samples = Part(elements, number), stamp.hexdigest() + role, loaded(elements, load, given)
        source = Source(part, part, (), 0, load=load, vary=vary, stamp=of_role, test=part)
        nature = INDEPENDENT  # arrays that no function of the user changes follow nothing
        if kind != "arrays" or load is not None or vary is not None:
            nature = nature_of(samples if vary is None else mapped(samples, vary, given))
        if inputs.cache != "off" and nature.depends and inputs.across_epochs is not True:
            inputs = replace(inputs, cache="off")
        x = samples.element_spec[0] if isinstance(samples.element_spec, tuple) else samples.element_spec
        images = isinstance(x, tf.TensorSpec) and x.dtype == tf.float32 and x.shape.rank == 3 and None not in x.shape
        if not images:
            inputs = replace(inputs, augment="off")
        given, seed = replace(given, input=inputs), options.train.seed
        assert seed is not None
        return Samples(given, source, replicas, seed, share, role, kind, arrays, nature, images)

    def stream(role: str, data: Any, limit: int | None) -> Stream:
        """`limit` is the number of batches to take, if it is given."""
        is_dataset, samples = isinstance(data, tf.data.Dataset), getattr(returned, SAMPLES[role])
        if limit is None and is_dataset and length_follows_variable(data):
            what = f"the number of elements of {role} follows a tf.Variable, so that epochs may have different lengths"
            raise UserError(what, f"end the Dataset with .repeat(), and {settable(role)}")
        cardinality = int(data.cardinality()) if is_dataset else -1
        if samples is None and limit is None and is_dataset and cardinality < 0:
            cardinality = counted(data, role, report)
        given, steps = options, options.train.steps_per_epoch
        if role != "train":
            given, steps = replace(options, input=not_trained), returned.fit.validation_steps
        if role == "test":  # which is read once
            given, steps = given.with_values({"input.cache": "off"}), None
        if is_dataset and not all(hasattr(leaf, "shape") for leaf in tf.nest.flatten(data.element_spec)):
            raise contains_none(f"the Dataset of {role}")
        if _are_arrays(data):
            arrays = as_tensors(as_fitted(data))
            with tf.device("/CPU:0"):
                elements = tf.data.Dataset.from_tensor_slices(arrays)
            dense = all(isinstance(leaf, tf.Tensor) for leaf in tf.nest.flatten(arrays))
            return single(role, "arrays", elements, int(elements.cardinality()), given, arrays if dense else None)
        if isinstance(data, keras.utils.PyDataset):
            return Indexed(data, given, samples, evaluates=role != "train")
        if (passes := passes_of(data, role)) is not None:
            return Iterated(passes, role, replicas, samples, steps, report)
        if returned.mapped:
            number = samples or (cardinality if cardinality >= 0 else None)
            if number is not None:
                number = min(number, cardinality) if cardinality >= 0 else number
                data = data.take(number)
            samples_of = single(role, "mapped", data, number, given)
            if number is None and samples_of.follows:
                hint = f"return {SAMPLES[role]} next to it"
                report.warn("reads_ahead", f"{role} has no end: {READS_AHEAD}: {samples_of.follows}", hint)
            return samples_of
        first = tf.nest.flatten(data.element_spec)[0]
        if first.shape.rank == 0:
            raise UserError(f"the elements of {role} are single values, not batches", TO_BATCH)
        if first.shape.rank is not None and first.shape[0] is not None:
            size = int(first.shape[0])
        elif (batch := inspected(data, lambda seen: next(iter(seen.take(1)), None))) is None:
            raise UserError(f"{role} has no batches", "check where it reads from")
        else:
            size = int(tf.shape(tf.nest.flatten(batch)[0])[0])
        batches = cardinality if cardinality >= 0 else None
        if batches is None and samples is not None:
            # A smaller last batch is not counted if the type of the data requires equal sizes.
            batches = batches_per_pass(samples, size, drop_remainder=first.shape[:1].is_fully_defined())
        return Batched(data, samples, batches, size, replicas, epoch_is_pass=steps is None)

    tests = options.train.tests(own=True) and options.run.measure_seconds is None
    data, kept_back, model = returned.train, returned.validation, returned.model
    tested = returned.test if tests else None
    if returned.mapped:
        data, kept_back, tested = (
            part if (passes := passes_of(part)) is None else data_set_of(passes, batched=False)
            for part in (data, kept_back, tested)
        )
    if _are_arrays(data) and kept_back is None and options.train.validation_split > 0:
        if can_evaluate(model, returned.loss):
            data, kept_back = split(data, options)
        else:
            what = "has a train_step of its own, but neither a test_step nor a compiled loss"
            hint = f"give {type(model).__name__} a test_step, or set train.validation_split=0"
            text = f"no validation: {type(model).__name__} {what}"
            report.warn("no_validation", text, hint, "train.validation_split")
    asked = options.train.steps_per_epoch
    train = stream("train", data, asked)
    whole = train.batches
    measures = options.run.measure_seconds is not None  # in an epoch that has no end, for which the data begin again
    if asked is not None and not measures and not isinstance(train, Samples):  # batches may end within an epoch
        hint = f"set train.steps_per_epoch to a divisor of {whole}, or to null"
        if isinstance(data, tf.data.Dataset):
            whole, hint = int(data.cardinality()), f"end the Dataset with .repeat(), or {hint}"
        elif isinstance(train, Iterated):
            whole = train.passes.batches
        if whole == tf.data.UNKNOWN_CARDINALITY:
            text = f"it is unknown whether train has an end within an epoch of {asked} steps, where {ENDS_EARLY}"
            raise UserError(text, "end the Dataset with .repeat()")
        if whole and 0 < whole < ENDLESS and whole % asked and asked * options.train.epochs > whole:
            text = f"train has {whole} batches, which {asked} steps per epoch do not divide: {ENDS_EARLY}"
            raise UserError(text, hint)
    if train.batches is not None and train.batches < 1:
        text = f"{train.samples} samples do not fill one global batch of {train.batch_size}"
        raise UserError(text, "lower input.batch_size, or set input.drop_remainder=false")
    held_out = None
    if kept_back is not None:
        steps = returned.fit.validation_steps
        length = int(kept_back.cardinality()) if isinstance(kept_back, tf.data.Dataset) else -1
        ends = 0 <= length <= (steps or length)
        if steps is not None and isinstance(kept_back, tf.data.Dataset) and not returned.mapped:
            kept_back, steps = kept_back.take(steps), None  # it may have fewer
        held_out = stream("validation", kept_back, steps)
        if isinstance(held_out, Batched):
            held_out = replace(held_out, ends=ends)
        if held_out.batches == 0:
            raise UserError("validation has no batches", "check where it reads from, and its batch size")
    if options.train.evaluate_at_end is True and returned.test is None:
        raise UserError(f"{TESTED} is true, and there is no test data", f"return test, or set {TESTED}=auto")
    test = None if tested is None else stream("test", tested, None)
    if test is not None and not test.batches:
        raise UserError("test has no batches", "check where it reads from, and its batch size")
    if replicas == 1 and isinstance(train, Batched) and train.begins_anew and reshuffles(data):
        _follow_shuffle(train, held_out, share_a_shuffle(data, kept_back), options, returned)
    if returned.fit.initial_epoch >= options.train.epochs:
        text = f"initial_epoch is {returned.fit.initial_epoch} and train.epochs {options.train.epochs}"
        hint = "epochs are counted from the first one, as in fit: raise train.epochs"
        raise UserError(f"{text}: nothing is left to train", hint)

    def weighed(batches: tf.data.Dataset) -> tf.data.Dataset:
        if returned.fit.class_weight is None:
            return batches
        check_classes(batches.element_spec)
        return weigh(batches, returned.fit.class_weight)

    return Pipeline(options, replicas, train, held_out, share, returned.fit, weighed, test=test)


def _follow_shuffle(
    train: Batched, held_out: Stream | None, is_shared: bool, options: Options, returned: Returned
) -> None:
    """Begin the iterators of train in the sequence of Keras' fit, if its shuffle serves the validation as well, or a
    script after its fit.
    """

    def evaluations(epoch: int) -> int:
        return sum(map(returned.fit.evaluates_after, range(epoch)))

    if is_shared and isinstance(held_out, Batched):
        train.shared = held_out.shared = SharedShuffle(train.iterators, evaluations, held_out.each)
    elif options.workload.is_script:
        train.shared = SharedShuffle(train.iterators, evaluations, each=0)


def _are_arrays(data: Any) -> bool:
    return not isinstance(data, tf.data.Dataset | keras.utils.PyDataset) and passes_of(data) is None


def split(data: Any, options: Options) -> tuple[Any, Any]:
    """Return the arrays split by train.validation_split, in an order drawn by the seed. An empty validation is None."""
    arrays = as_fitted(data)
    assert options.train.seed is not None
    total = int(tf.nest.flatten(arrays)[0].shape[0])
    orders = split_order(total, options.train.validation_split, options.train.seed)
    parts = [tf.nest.map_structure(lambda array, at=order: as_array(array)[at], arrays) for order in orders]
    return (parts[0], parts[1]) if len(orders[1]) else (data, None)


DEEPEST = 5  # from TensorFlow's function of from_generator to the user's generator it is three
# The class of a data set -> the kind of the operation in which its function works.
KINDS = {"_MapDataset": "Map", "_ParallelMapDataset": "Map", "_FlatMapDataset": "Generator"}
_OF_TENSORFLOW = "tensorflow.python.data"


def user_functions(data: tf.data.Dataset, code: UserCode) -> dict[str, list[str]]:
    """Return texts such as `load (train.py:12)` by the kind of operation; none if it fails."""
    functions: dict[str, list[str]] = {}
    try:
        for each in _chain(data):
            kind = KINDS.get(type(each).__name__)
            function = getattr(getattr(each, "_map_func", None), "_func", None)  # private names of TensorFlow
            if kind is None or function is None:
                continue
            theirs = next(_owned(function, code, DEEPEST), None)
            if theirs is not None and (kind == "Map" or theirs is not function):
                file, line = theirs.__code__.co_filename, theirs.__code__.co_firstlineno
                functions.setdefault(kind, []).append(f"{theirs.__name__} ({code.name_of(file)}:{line})")
    except Exception:  # noqa: BLE001 - private names of TensorFlow, and attributes of a user's objects, may raise anything
        return {}
    return functions


def _chain(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    for source in data._inputs():
        yield from _chain(source)
    yield data


def _owned(value: Any, code: UserCode, depth: int) -> Iterator[FunctionType]:
    """Yield the user's functions that `value`, a function or an object, contains, the outermost first."""
    value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, FunctionType):
        if code.owns_file(value.__code__.co_filename):
            yield value
            return
        inner: list[Any] = [cell.cell_contents for cell in value.__closure__ or () if is_filled(cell)]
    else:
        inner = list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []
    for item in inner if depth else ():
        if isinstance(item, FunctionType | MethodType) or type(item).__module__.startswith(_OF_TENSORFLOW):
            yield from _owned(item, code, depth - 1)
