"""The state of a training as a checkpoint holds it: the variables that Keras lists, and further state.

Keras lists the variables of a model, its metrics and its optimizer. A user's code may have more: optimizers in lists,
TensorFlow variables, random generators in a module, Python's and NumPy's random state. object_graph.py finds the
objects that the user's objects refer to, and also the variables that the traced step writes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from . import object_graph
from .object_graph import Collected, optimizers

_GROUP = re.compile(r"([a-z]+)/")
_MORE, _HOST = "more", "host"  # group for a user's training; checkpoints of older versions lack it
_WORKERS = "workers"  # group for state that differs between the workers of several machines
_THE_SAME = ("weights", "optimizer")  # groups that all of them share
ANEW = (
    "the checkpoint is of an older gputui, which did not save random generators and what Keras does not list: "
    "they start again, and losses may differ"
)


class State:
    """The state of one model, for checkpoints.

    `find_more` finds the objects of a user's code that Keras does not list. It is None for gputui's own models.
    """

    def __init__(self, model: keras.Model, find_more: Callable[[], Collected] | None = None) -> None:
        self._model, self._find_more = model, find_more
        self._written: list[tf.Variable] = []  # variables that the traced step writes
        self.begins_anew = ""  # why a restored checkpoint lacks some state
        self.of_workers: list[bytes] | None = None  # with several machines: the state that differs, of each

    def saw(self, graph: Any, ours: Iterable[tf.Variable]) -> None:
        """Note the variables that the graph of a traced step writes, wherever the user's code keeps them.

        The variables in `ours` are left out.
        """
        ours_by_id = {id(variable) for variable in ours}
        self._written = [variable for variable in object_graph.written(graph) if id(variable) not in ours_by_id]

    def objects(self) -> dict[str, Any]:
        """Return all objects of the state by the names of their groups, in the form that tf.train.Checkpoint takes."""
        listed = _listed(self._model)
        if self._find_more is not None:
            listed = self._with_more(listed, self._find_more())
        return listed if self.of_workers is None else listed | {_WORKERS: _Workers(self)}

    def _with_more(self, listed: dict[str, Any], kept: Collected) -> dict[str, Any]:
        in_list = {id(part) for part in tf.nest.flatten(listed)}
        in_list |= {id(part) for variable in tf.nest.flatten(listed) for part in _parts(variable)}
        more = {id(part): part for variable in (*kept.variables, *self._written) for part in _parts(variable)}
        return listed | {
            _MORE: [part for key, part in more.items() if key not in in_list],
            _HOST: _Host(kept.generators),
        }

    # ---- of several machines --------------------------------------------------------------------

    def the_same(self) -> list[tf.Variable]:
        """Return the variables whose values are the same on all workers: weights and optimizer.

        If the worker has several replicas, these are the variables of the first replica.
        """
        groups = _listed(self._model)
        return [variable for name in _THE_SAME for variable in tf.nest.flatten(groups[name])]

    def of_its_own(self) -> bytes:
        """Return the state of this worker that differs from the other workers' state, as bytes."""
        host = json.dumps(read_random_states(self._generators())).encode()
        values = [part.numpy().tobytes() for part in self._own_parts()]
        return b"".join([len(host).to_bytes(8, "big"), host, *values])

    def take_own(self, data: bytes) -> None:
        """Restore the state of this worker from bytes that `of_its_own` has returned."""
        begins = 8 + int.from_bytes(data[:8], "big")
        write_random_states(self._generators(), json.loads(data[8:begins]))
        for part in self._own_parts():
            size = self.size_of(part)
            self.take(part, data[begins : begins + size])
            begins += size

    def _own_parts(self) -> list[tf.Variable]:
        groups = self.objects()
        own = [groups[name] for name in groups if name not in (*_THE_SAME, _HOST, _WORKERS)]
        parts = [part for variable in tf.nest.flatten(own) for part in _parts(variable)]
        return [part for part in parts if part.dtype != tf.string]

    def _generators(self) -> list[Any]:
        return self._find_more().generators if self._find_more is not None else []

    @staticmethod
    def size_of(variable: tf.Variable) -> int:
        """Return the size of a variable in bytes."""
        return int(variable.dtype.size * math.prod(variable.shape))

    @staticmethod
    def take(variable: tf.Variable, data: bytes) -> None:
        """Assign the values in `data`, as bytes, to all parts (replicas) of the variable in this process."""
        value = np.frombuffer(data, variable.dtype.as_numpy_dtype).reshape(variable.shape)
        for part in _parts(variable):
            part.assign(value)

    # ---- files ----------------------------------------------------------------------------------

    def write(self, prefix: str) -> None:
        tf.train.Checkpoint(**self.objects()).write(prefix)

    def fits(self, prefix: str) -> bool:
        """Return True if the model has as many variables as the checkpoint `prefix`, or if the checkpoint cannot be
        read.

        The model may have fewer variables, as some models create variables only in their first step.
        """
        try:
            held = _held(prefix)
        except (tf.errors.OpError, ValueError, RuntimeError):
            return True  # restoring it reports what is wrong
        counts = _counts(self.objects())
        return all(held[group] == count for group, count in counts.items() if _was_saved(group, held))

    def restore(self, prefix: str) -> None:
        """Restore the checkpoint `prefix`. If it does not fit, raises AssertionError, ValueError, IndexError or an
        error of TensorFlow.
        """
        held, objects = _held(prefix), self.objects()
        counts = _counts(objects)
        if not _was_saved(_HOST, held) and _HOST in objects:
            self.begins_anew = ANEW
        elif _HOST in objects and held[_MORE] != counts[_MORE]:
            raise ValueError(
                f"it contains {held[_MORE]} variables besides those that Keras lists, but your code has {counts[_MORE]}"
            )
        saved = {group: value for group, value in objects.items() if _was_saved(group, held)}
        tf.train.Checkpoint(**saved).read(prefix).assert_existing_objects_matched()


class _Host(tf.train.experimental.PythonState):
    """Random states that are not variables: the global ones of Python and NumPy, and the generators in the
    user's code.
    """

    def __init__(self, generators: list[Any]) -> None:
        self._generators = generators

    def serialize(self) -> str:
        return json.dumps(read_random_states(self._generators))

    def deserialize(self, text: Any) -> None:
        states = json.loads(text)
        if len(states) != len(read_random_states(self._generators)):
            raise ValueError("your code has other random generators than when the checkpoint was written")
        write_random_states(self._generators, states)


class _Workers(tf.train.experimental.PythonState):
    """The state of each worker that differs from worker to worker, if several machines train."""

    def __init__(self, state: State) -> None:
        self._state = state

    def serialize(self) -> str:
        return json.dumps([base64.b64encode(data).decode() for data in self._state.of_workers or ()])

    def deserialize(self, text: Any) -> None:
        self._state.of_workers = [base64.b64decode(data) for data in json.loads(text)]


def _listed(model: keras.Model) -> dict[str, list[Any]]:
    """Return the variables that Keras lists, by group. The seeds of dropout are among the non-trainable ones
    (`others`).
    """
    return {
        "weights": [variable.value for variable in model.trainable_variables],
        "others": [_parts(variable.value) for variable in model.non_trainable_variables],
        "metrics": [_parts(variable.value) for variable in model.metrics_variables],
        "optimizer": [variable.value for optimizer in optimizers(model) for variable in optimizer.variables],
    }


def _parts(variable: Any) -> list[tf.Variable]:
    """Return the parts of a variable, one for each replica.

    The statistics of batch normalization, and metrics, differ between replicas until they are aggregated.
    """
    return list(getattr(variable, "values", [variable]))


def _counts(objects: dict[str, Any]) -> Counter[str]:
    return Counter(
        {
            group: 1 if group in (_HOST, _WORKERS) else len({id(part) for part in tf.nest.flatten(value)})
            for group, value in objects.items()
        }
    )


def _held(prefix: str) -> Counter[str]:
    """Return the number of variables of each group in the checkpoint `prefix`."""
    names = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
    return Counter(match[1] for match in map(_GROUP.match, names) if match)


def _was_saved(group: str, held: Counter[str]) -> bool:
    """Return True if the version of gputui that wrote the checkpoint saved this group. `held` has the number of
    variables of each group in the checkpoint.
    """
    if group == _WORKERS:
        return _WORKERS in held
    return group not in (_MORE, _HOST) or _HOST in held


def read_random_states(generators: list[Any]) -> list[Any]:
    """Return the states of Python's and NumPy's global generators, then of `generators`, as values for JSON."""
    return [random.getstate(), _as_plain(np.random.get_state(legacy=False)), *map(_generator_state, generators)]


def write_random_states(generators: list[Any], states: list[Any]) -> None:
    """Restore the states that `read_random_states` has returned: the global ones, and one for each of `generators`.
    Raises ValueError if their numbers differ.
    """
    random.setstate(_as_tuples(states[0]))
    np.random.set_state(states[1])
    for generator, state in zip(generators, states[2:], strict=True):
        if isinstance(generator, random.Random):
            generator.setstate(_as_tuples(state))
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        else:
            generator.bit_generator.state = state


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _as_plain(generator.get_state(legacy=False))
    return _as_plain(generator.bit_generator.state)


def _as_plain(value: Any) -> Any:
    """Return the value with NumPy's arrays and numbers replaced by Python's lists and numbers."""
    if isinstance(value, dict):
        return {key: _as_plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def host_random_kept() -> Iterator[None]:
    """A context that restores the global random states of Python and NumPy at its end."""
    states = read_random_states([])
    try:
        yield
    finally:
        write_random_states([], states)
