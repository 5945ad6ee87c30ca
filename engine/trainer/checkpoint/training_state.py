"""The state of a training as a checkpoint holds it: variables that Keras lists, and what else a user's code may
keep. A checkpoint names each variable by Keras' path, or the attributes that lead to it: neither `trainable`, which
callbacks change, nor variables that appear later decide which value belongs where. Those up to 0.1.0 have variables
by position.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import random
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..common import versions
from . import object_graph
from .callback_state import Arrays, NotPackable
from .object_graph import MOST_ITEMS, Collected, Module, optimizers

_GROUP = re.compile(r"([a-z]+)/")
_MORE, _HOST = "more", "host"  # group for a user's training; checkpoints of older versions lack it
_WORKERS = "workers"  # group for state that differs between the workers of several machines
_MODEL, _METRICS, _OPTIMIZER = "model", "metrics", "optimizer"
_NESTS = (list, tuple, dict)
_LOST, _MARK = (np.ndarray, tf.Tensor, set, frozenset, deque), "lost"  # in attributes
MOST_BYTES = 64 * 1024**2  # of a value that a callback keeps: it is in every checkpoint
_NAMES = "names"  # which variable is which; checkpoints of older versions lack it
ANEW = (
    "the checkpoint is of an older gputui, which did not save random generators and what Keras does not list: "
    "they start again, and losses may differ"
)


@dataclass(frozen=True)
class _Entry:
    """A variable of the state. `shared`: its value is the same on all replicas and workers."""

    group: str
    name: str  # several variables of a group may have the same
    parts: list[tf.Variable]  # one for each replica
    shared: bool

    @property
    def saved(self) -> list[tf.Variable]:
        return self.parts[:1] if self.shared else self.parts

    def described(self) -> list[Any]:
        return [self.group, self.name, *_form(self.parts[0]), len(self.saved), self.shared]


@dataclass(frozen=True)
class _Saved:
    """A variable in a checkpoint, as `_Entry.described` has described it. `first`: the place of its first part."""

    group: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    shared: bool
    first: int


class State:
    """The state of one model. `find_more` finds the objects of a user's code that Keras does not list."""

    def __init__(self, model: keras.Model, find_more: Callable[[], Collected] | None = None) -> None:
        self._model, self._find_more, self._of_user = model, find_more or Collected, find_more is not None
        self._written: list[tf.Variable] = []  # variables that the traced step writes
        self.begins_anew = ""  # why a restored checkpoint lacks some state
        self.of_workers: list[bytes] | None = None  # with several machines: the state that differs, of each
        self.shared_names: list[str] | None = None  # of the restored checkpoint; None: those of now
        self.attributes = Attributes(type(model).__name__, self._find_more)
        self.later = Later()

    def saw(self, graph: Any, ours: Iterable[tf.Variable]) -> None:
        """Variables that the graph of a traced step writes, wherever the user's code keeps them."""
        ours_by_id = {id(variable) for variable in ours}
        self._written = [variable for variable in object_graph.written(graph) if id(variable) not in ours_by_id]

    def _entries(self) -> list[_Entry]:
        """Return the variables of the state, each once. Their order does not depend on `trainable`."""
        model, more = self._model, self._find_more()
        of_optimizers = [variable for optimizer in optimizers(model) for variable in optimizer.variables]
        listed = [
            *((_MODEL, variable.path, variable.value, variable.trainable) for variable in model.variables),
            *((_METRICS, variable.path, variable.value, False) for variable in model.metrics_variables),
            *((_OPTIMIZER, variable.path, variable.value, True) for variable in of_optimizers),
            *((_MORE, name, variable, False) for name, variable in more.variables),
            *((_MORE, variable.name, variable, False) for variable in self._written),
        ]
        seen, entries = set[int](), list[_Entry]()
        for group, name, variable, shared in listed:
            if parts := [part for part in parts_of(variable) if id(part) not in seen]:
                seen |= {id(part) for part in parts}
                entries.append(_Entry(group, name, parts, shared))
        return entries

    def _host(self) -> dict[str, Any]:
        """Of a user's training, with states that are no variables: random ones of Python, NumPy and the code."""
        generators = self._find_more().generators

        def write(states: Any) -> None:
            if len(states) != len(read_random_states(generators)):
                raise ValueError("your code has other random generators than when the checkpoint was written")
            write_random_states(generators, states)

        return {_HOST: _Json(lambda: read_random_states(generators), write)} if self._of_user else {}

    def _workers(self) -> dict[str, Any]:
        """The part of a checkpoint, by name, that saves and restores `of_workers`; empty if one machine trains."""
        if self.of_workers is None:
            return {}

        def write(states: Any) -> None:
            self.of_workers = [base64.b64decode(data) for data in states]

        return {_WORKERS: _Json(lambda: [base64.b64encode(data).decode() for data in self.of_workers or ()], write)}

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """A context after which all is as before but weights and optimizers, which only a training changes."""
        generators = self._find_more().generators
        states = read_random_states(generators)
        values = [(part, part.numpy()) for entry in self._entries() if not entry.shared for part in entry.parts]
        try:
            yield
        finally:
            write_random_states(generators, states)
            for part, value in values:
                part.assign(value)

    # ---- of several machines --------------------------------------------------------------------

    def the_same(self) -> list[tf.Variable]:
        """Return the variables with the same values on all workers, of the first replica: weights, optimizer."""
        return [entry.parts[0] for entry in self._entries() if self._is_shared(entry)]

    def _is_shared(self, entry: _Entry) -> bool:
        return entry.shared if self.shared_names is None else f"{entry.group}/{entry.name}" in self.shared_names

    def of_its_own(self) -> bytes:
        """Return the state of this worker that differs from the other workers' state, as bytes."""
        entries = [entry for entry in self._of_worker() if not entry.shared]
        head = {
            "host": read_random_states(self._find_more().generators),
            _NAMES: [entry.described() for entry in entries],
        }
        written = json.dumps(head).encode()
        values = [part.numpy().tobytes() for entry in entries for part in entry.saved]
        return b"".join([len(written).to_bytes(8, "big"), written, *values])

    def _of_worker(self) -> list[_Entry]:
        return [entry for entry in self._with_later() if entry.parts[0].dtype != tf.string]

    def take_own(self, data: bytes) -> None:
        """Restore the state of this worker from bytes that `of_its_own` has returned."""
        begins = 8 + int.from_bytes(data[:8], "big")
        head = json.loads(data[8:begins])
        if isinstance(head, list):  # of an older version
            states, groups = head, self._by_position()
            own = [groups[name] for name in groups if name not in ("weights", "optimizer", _HOST, _WORKERS)]
            parts = [
                part for variable in tf.nest.flatten(own) for part in parts_of(variable) if part.dtype != tf.string
            ]
        else:
            states, entries = head["host"], [each for each in self._of_worker() if not self._is_shared(each)]
            places = self._places(_read_names(head[_NAMES]), entries)
            parts = [places[place] for place in sorted(places)]
        write_random_states(self._find_more().generators, states)
        for part in parts:
            size = self.size_of(part)
            self.take(part, data[begins : begins + size])
            begins += size

    @staticmethod
    def size_of(variable: tf.Variable) -> int:
        return int(variable.dtype.size * math.prod(variable.shape))

    @staticmethod
    def take(variable: tf.Variable, data: bytes) -> None:
        value = np.frombuffer(data, variable.dtype.as_numpy_dtype).reshape(variable.shape)
        for part in parts_of(variable):
            part.assign(value)

    # ---- files ----------------------------------------------------------------------------------

    def write(self, prefix: str) -> None:
        entries = self._with_later()
        names = {"variables": [entry.described() for entry in entries]}
        tf.train.Checkpoint(
            variables=[part for entry in entries for part in entry.saved],
            **{_NAMES: _Json(lambda: names, lambda _: None)},
            **self._host(),
            **self._workers(),
        ).write(prefix)

    def _with_later(self) -> list[_Entry]:
        entries = self._entries()
        self.later.look_at(entries)
        return [*entries, *self.later.waiting]

    def missed(self) -> list[str]:
        """Return the names of the variables that were created after the restore without their values."""
        if self.later.waiting:
            self.later.look_at(self._entries())
        return self.later.missed

    def fits(self, prefix: str) -> bool:
        """The model has the variables of the checkpoint `prefix`, or that cannot be read."""
        try:
            held, names = _held(prefix), _names_in(prefix)
        except (tf.errors.OpError, ValueError, RuntimeError):
            return True  # restoring it reports what is wrong
        if names is None:
            counts = _counts(self._by_position())
            return all(held[group] == count for group, count in counts.items() if _was_saved(group, held))
        saved, entries = _read_names(names["variables"]), self._entries()
        return len(_matched(saved, entries)) == len(saved) == len(entries)

    def restore(self, prefix: str) -> list[str]:
        """Return the names of variables of a user's code that the checkpoint lacks. Raises AssertionError, ValueError,
        IndexError or an error of TensorFlow if it does not fit.
        """
        names, held = _names_in(prefix), _held(prefix)
        if names is None:  # of an older version
            objects = self._by_position()
            counts = _counts(objects)
            if not _was_saved(_HOST, held) and _HOST in objects:
                self.begins_anew = ANEW
            elif _HOST in objects and held[_MORE] != counts[_MORE]:
                what = f"it contains {held[_MORE]} variables besides those that Keras lists"
                raise ValueError(f"{what}, but your code has {counts[_MORE]}")
            older = {group: value for group, value in objects.items() if _was_saved(group, held)}
            tf.train.Checkpoint(**older).read(prefix).assert_existing_objects_matched()
            return []
        saved, entries = _read_names(names["variables"]), self._entries()
        matched = _matched(saved, entries)
        in_both = {id(entry) for entry in matched.values()}
        new = [entry for entry in entries if id(entry) not in in_both]
        _require_fit(saved, new, matched)
        places = {str(place): part for place, part in self._places(saved, entries).items()}
        host = self._host() if _HOST in held else {}
        workers = self._workers() if _WORKERS in held else {}
        checkpoint = tf.train.Checkpoint(variables=places, **host, **workers)
        checkpoint.read(prefix).assert_existing_objects_matched()
        self.shared_names = [f"{entry.group}/{entry.name}" for each, entry in matched.items() if each.shared]
        # The sums of a metric are those of the first replicas, as many as there were: the others begin with zeros.
        for each, entry in matched.items():
            for part in entry.parts[each.count :]:
                part.assign(tf.zeros_like(part) if entry.group == _METRICS else entry.parts[0])
        return [entry.name for entry in new]

    def _places(self, saved: Sequence[_Saved], entries: Sequence[_Entry]) -> dict[int, tf.Variable]:
        """Return the variables by the place of their value in a checkpoint, with stand-ins for those still to come."""
        matched = _matched(saved, entries)
        self.later.wait_for([each for each in saved if each not in matched], entries)
        parts_of = {each: matched[each].parts for each in matched} | self.later.parts_of
        numbered = (
            (each.first + at, part) for each, of in parts_of.items() for at, part in enumerate(of[: each.count])
        )
        return dict(numbered)

    # ---- files of older versions ----------------------------------------------------------------

    def _by_position(self) -> dict[str, Any]:
        """Return all objects of the state by the names of their groups, as versions up to 0.1.0 have saved them."""
        model = self._model
        listed: dict[str, Any] = {
            "weights": [variable.value for variable in model.trainable_variables],
            "others": [parts_of(variable.value) for variable in model.non_trainable_variables],
            "metrics": [parts_of(variable.value) for variable in model.metrics_variables],
            "optimizer": [variable.value for optimizer in optimizers(model) for variable in optimizer.variables],
        }
        if self._of_user:
            in_list = {id(part) for part in tf.nest.flatten(listed)}
            in_list |= {id(part) for variable in tf.nest.flatten(listed) for part in parts_of(variable)}
            kept = [*(variable for _, variable in self._find_more().variables), *self._written]
            more = {id(part): part for variable in kept for part in parts_of(variable)}
            listed |= {_MORE: [part for key, part in more.items() if key not in in_list], **self._host()}
        return listed | self._workers()


class Attributes:
    """Plain attributes of a user's objects, and `trainable`. Keras traces a step once, and later changes do nothing in
    it: a resumed run traces it with the values of then. Those below the model (`root`) also go on as they were.
    """

    def __init__(self, root: str, find: Callable[[], Collected]) -> None:
        self._below, self._find = f"{root}.", find
        self._begun = self._values()
        self._alive = [_read(owner, name) for _, owner, name in find().attributes]  # else another one may get its id
        self.traced: dict[str, Any] = {}  # by the kind of step, train or test: what had changed, random states

    def _placed(self) -> Iterator[tuple[str, Any, str]]:
        # each place once: two callbacks may have the same class
        times = Counter[str]()
        for place, owner, name in self._find().attributes:
            times[place] += 1
            yield place if times[place] == 1 else f"{place} {times[place]}", owner, name

    def _values(self) -> dict[str, Any]:
        values = {place: _packed(_read(owner, name)) for place, owner, name in self._placed()}
        return {place: value for place, value in values.items() if value is not _LOST}

    def changed(self) -> dict[str, Any]:
        return {place: value for place, value in self._values().items() if self._begun.get(place, _LOST) != value}

    def set(self, changed: dict[str, Any], below: str = "") -> None:
        # Only those whose paths begin with `below`; what is not in `changed` becomes as it began.
        expected = {place: value for place, value in (self._begun | changed).items() if place.startswith(below)}
        # A layer sets the variables within it, which follow.
        for place, owner, name in sorted(self._placed(), key=lambda each: isinstance(each[1], keras.Variable)):
            value = expected.get(place, _LOST)
            if not _is_lost(value) and _packed(_read(owner, name)) not in (_LOST, value):
                _write(owner, name, Arrays().unpack(value))

    @contextlib.contextmanager
    def as_traced(self, kind: str) -> Iterator[None]:
        """A context in which a step is traced, with attributes and random states as when it was traced first."""
        generators = self._find().generators
        now: list[Any] = [self.changed(), read_random_states(generators)]
        first = self.traced.setdefault(kind, now)
        if first is now or len(first[1]) != len(now[1]):
            yield
            return
        self.set(first[0])
        write_random_states(generators, first[1])
        yield
        self.set(now[0])
        write_random_states(generators, now[1])

    def restore(self, changed: dict[str, Any]) -> list[str]:
        """Set the model's attributes as they were, and return texts on those that no checkpoint holds."""
        self.set(changed, self._below)
        lost = [place for place, value in changed.items() if place.startswith(self._below) and _is_lost(value)]
        return [f"no checkpoint holds {place}, which is as your code makes it again" for place in lost]


@dataclass(frozen=True)
class KeptValue:
    """An attribute of `owner`, or a variable of a module, that the code of a callback changes."""

    label: str
    owner: Any
    name: str
    text: str  # what changes it, and where

    @property
    def values(self) -> list[Any]:
        """The value in a list, which is empty if there is none yet, or if it is Keras' or TensorFlow's own."""
        try:
            value = _read(self.owner, self.name)
        except (AttributeError, ValueError):
            return []
        return [] if isinstance(value, (*object_graph.HOLDERS, keras.Variable, tf.Variable)) else [value]

    def packed(self, arrays: Arrays) -> list[Any]:
        """Return the value for JSON in a list, which is empty if no checkpoint can hold it."""
        mine = Arrays()
        try:
            packed = [mine.pack(value) for value in self.values]
        except NotPackable:
            return []
        if len(json.dumps(packed)) + sum(array.nbytes for array in mine.by_digest.values()) > MOST_BYTES:
            return []
        arrays.by_digest |= mine.by_digest
        return packed


def restore_kept(kept: Sequence[KeptValue], states: Sequence[Any], arrays: Arrays) -> list[str]:
    """Set what was saved as labels with `KeptValue.packed`. Return a text for each that starts again."""
    left, texts = list(kept), list[str]()
    for label, packed in states:
        if each := next((each for each in left if each.label == label), None):
            left.remove(each)
            for value in packed:
                _write(each.owner, each.name, arrays.unpack(value))
            texts += [] if packed else [f"{each.text}: no checkpoint holds that, so that it starts again"]
    return texts


def _is_lost(value: Any) -> bool:
    return value is _LOST or (isinstance(value, dict) and _MARK in value)


def _read(owner: Any, name: str) -> Any:
    inside = owner.values if isinstance(owner, Module) else getattr(owner, "__dict__", {})
    return inside[name] if name in inside else getattr(owner, name)


def _write(owner: Any, name: str, value: Any) -> None:
    try:
        now = _read(owner, name)
    except (AttributeError, ValueError):  # there is none yet
        now = None
    if isinstance(now, list) and isinstance(value, list):  # others may hold the same list
        now[:] = value
    elif isinstance(now, dict) and isinstance(value, dict):
        now.clear()
        now.update(value)
    elif isinstance(owner, Module):
        owner.values[name] = value
    else:
        setattr(owner, name, value)


def _packed(value: Any) -> Any:
    # The value for JSON, or a mark of arrays and the like, which no checkpoint holds. _LOST: of no interest.
    try:
        return Arrays().pack(_plain(value))
    except NotPackable:
        items = list(value.values() if isinstance(value, dict) else value) if isinstance(value, _NESTS) else [value]
        return {_MARK: [*map(id, items)]} if isinstance(items[0], _LOST) else _LOST


def _plain(value: Any) -> Any:
    # Without types of NumPy, and of Keras' lists and dicts. An array raises NotPackable.
    if isinstance(value, np.ndarray) or (isinstance(value, _NESTS) and len(value) > MOST_ITEMS):
        raise NotPackable
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


class Later:
    """The variables of a restored checkpoint that do not exist yet: values for those that the code will create. One
    of Keras gets its value when it is created with the checkpoint's path. Another one is noticed when it exists
    (`look_at`).
    """

    def __init__(self) -> None:
        self.waiting: list[_Entry] = []
        self.parts_of: dict[_Saved, list[tf.Variable]] = {}
        self.missed: list[str] = []
        self._known: set[tuple[str, str]] = set()  # groups and names of variables that need nothing

    def wait_for(self, lacking: Sequence[_Saved], there: Sequence[_Entry]) -> None:
        self._known, self.missed = {(entry.group, entry.name) for entry in there}, []
        self.parts_of = {
            each: [tf.Variable(tf.zeros(each.shape, each.dtype), trainable=False) for _ in range(each.count)]
            for each in lacking
        }
        self.waiting = [_Entry(each.group, each.name, parts, each.shared) for each, parts in self.parts_of.items()]
        versions.set_first_values(self._value_of if self.waiting else None)

    def _value_of(self, path: str, dtype: str, shape: list[int]) -> Any:
        for entry in self.waiting:
            if entry.name == path and _form(entry.parts[0]) == (dtype, shape) and len(entry.parts) == 1:
                self.waiting.remove(entry)
                self._known.add((entry.group, entry.name))
                with tf.init_scope():  # the variable may be created in a graph
                    return entry.parts[0].numpy()
        return None

    def look_at(self, entries: Sequence[_Entry]) -> None:
        """Note which `entries` were created without values: a new one may be one under another name."""
        if self.waiting:
            new = {(entry.group, entry.name) for entry in entries} - self._known
            self.missed += [name for _, name in sorted(new)]
            self._known |= new
            self.waiting = [entry for entry in self.waiting if (entry.group, entry.name) not in new]

    def close(self) -> None:
        versions.set_first_values(None)


class _Json(tf.train.experimental.PythonState):
    """A value for JSON in a checkpoint: `read` returns it, and `write` gets that of a checkpoint that is restored."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write

    def serialize(self) -> str:
        return json.dumps(self._read())

    def deserialize(self, text: Any) -> None:
        self._write(json.loads(text))


def parts_of(variable: Any) -> list[tf.Variable]:
    """Return the variables of the replicas, which differ until they are aggregated: batch statistics and metrics."""
    return list(getattr(variable, "values", [variable]))


def _form(variable: Any) -> tuple[str, list[int]]:
    return variable.dtype.name, list(map(int, variable.shape))


def _read_names(described: Sequence[Sequence[Any]]) -> list[_Saved]:
    saved, first = [], 0
    for group, name, dtype, shape, count, shared in described:
        saved.append(_Saved(group, name, dtype, tuple(shape), count, shared, first))
        first += count
    return saved


def _matched(saved: Sequence[_Saved], entries: Sequence[_Entry]) -> dict[_Saved, _Entry]:
    """Match by name, or in order if only names differ, as those of another Keras do."""
    matched: dict[_Saved, _Entry] = {}
    for group in dict.fromkeys(each.group for each in saved):
        theirs = [each for each in saved if each.group == group]
        ours = [entry for entry in entries if entry.group == group]
        by_name, of_name = defaultdict[str, list[_Entry]](list), defaultdict[str, list[_Saved]](list)
        for entry in ours:
            by_name[entry.name].append(entry)
        for each in theirs:
            of_name[each.name].append(each)
        same = [name for name, items in of_name.items() if len(by_name[name]) == len(items)]
        forms = [(each.dtype, [*each.shape]) for each in theirs]
        if len(same) < len(of_name) and [_form(entry.parts[0]) for entry in ours] == forms:
            matched |= dict(zip(theirs, ours, strict=True))
        else:
            for name in same:
                matched |= dict(zip(of_name[name], by_name[name], strict=True))
    return matched


def _require_fit(saved: Sequence[_Saved], new: Sequence[_Entry], matched: Mapping[_Saved, _Entry]) -> None:
    """Raise ValueError if the checkpoint is of another model or optimizer. What only a user's code keeps may differ."""
    for group in (_MODEL, _METRICS, _OPTIMIZER):
        lacking = [
            f"{each.name} only in the checkpoint" for each in saved if each.group == group and each not in matched
        ]
        added = [f"{entry.name} only in the model" for entry in new if entry.group == group]
        if added or (lacking and group != _OPTIMIZER):  # an optimizer may be created later
            there = ", ".join([*lacking[:2], *added[:2]])
            raise ValueError(f"its variables of the {group} are others: {there}")
    for each, entry in matched.items():
        if _form(entry.parts[0]) != (each.dtype, [*each.shape]):
            dtype, shape = _form(entry.parts[0])
            raise ValueError(f"{each.name} is {each.dtype} {[*each.shape]} in it, and {dtype} {shape} in the model")


def _names_in(prefix: str) -> dict[str, Any] | None:
    # An older version has written none.
    if _NAMES not in _held(prefix):
        return None
    names: list[dict[str, Any]] = []
    tf.train.Checkpoint(**{_NAMES: _Json(dict, names.append)}).read(prefix).assert_existing_objects_matched()
    return names[-1]


def _counts(objects: dict[str, Any]) -> Counter[str]:
    return Counter({group: len({id(part) for part in tf.nest.flatten(value)}) for group, value in objects.items()})


def _held(prefix: str) -> Counter[str]:
    names = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
    return Counter(match[1] for match in map(_GROUP.match, names) if match)


def _was_saved(group: str, held: Counter[str]) -> bool:
    return _WORKERS in held if group == _WORKERS else group not in (_MORE, _HOST) or _HOST in held


def read_random_states(generators: list[Any]) -> list[Any]:
    """Return the states of Python's and NumPy's global generators, then of `generators`, as values for JSON."""
    return [random.getstate(), _as_plain(np.random.get_state(legacy=False)), *map(generator_state, generators)]


def write_random_states(generators: list[Any], states: list[Any]) -> None:
    """Restore what `read_random_states` has returned. Raises ValueError for another number of generators."""
    random.setstate(_as_tuples(states[0]))
    np.random.set_state(states[1])
    for generator, state in zip(generators, states[2:], strict=True):
        set_generator_state(generator, state)


def set_generator_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(_as_tuples(state))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def generator_state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _as_plain(generator.get_state(legacy=False))
    return _as_plain(generator.bit_generator.state)


def _as_plain(value: Any) -> Any:
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
