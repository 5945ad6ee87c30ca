"""Measures the time of each named stage of the running pipeline, by TensorFlow's performance model of it. The data
sets of a pass are created again for each pass, so sums are kept by their place in the pipeline. TensorFlow fuses
operations and adds others, so declared stages are matched from the end to the source.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...runs import events
from ..common.versions import tensorflow as tf

LOOK_SECONDS = 0.5
COST_SHARE = 1 / 200  # share of the time that reading may take
FIRST_SECONDS = 1.0
SOON_SECONDS, SOON_UNTIL_SECONDS = 2.0, 10.0
LATER_SECONDS = 10.0
SOURCE = "read"  # the stage that takes in everything beyond the declared ones
KINDS = ("MapAndBatch", "FlatMap", "Map", "Batch", "Shuffle", "Cache", "Prefetch")
# Node classes of TensorFlow's model. MANY: an element of the first input makes a data set, which is another input.
KNOWN_RATIO, MANY = (3, 4), (1, 2)
Place = tuple[
    tuple[int, str], ...
]  # operations from the end of the pipeline, each with the number of the input that it is


@dataclass(frozen=True)
class Stage:
    """A declared stage of the pipeline: its name, and the type of TensorFlow's operation."""

    name: str
    kind: str
    splits: int = 0  # of a FlatMap: the elements that it makes of one; 0: it goes through data sets one after the other


@dataclass(frozen=True)
class Timed:
    """A stage of the pipeline, its operation `op`, and its own time in ms for one global batch."""

    name: str
    op: str
    ms_per_batch: float
    parallelism: int | None  # its calls that run in parallel

    def timing(self) -> events.StageTiming:
        return {"name": self.name, "op": self.op, "ms_per_batch": self.ms_per_batch, "parallelism": self.parallelism}


@dataclass
class Tally:
    """The sums of the readings for one place in the pipeline, and TensorFlow's facts about its node."""

    node_class: int = 0
    ratio: float = 0.0
    parallelism: int | None = None
    nanoseconds: float = 0.0
    elements: float = 0.0
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)  # time and count of each node at the last reading


class StageMeter:
    """Reads the performance model of a pipeline's iterator. A global batch is `replicas` elements at its end.
    `functions` are the user's functions by the kind of their operation (`Map`), from the source on.
    """

    def __init__(
        self, declared: Sequence[Stage], replicas: int, functions: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._declared, self._replicas, self._functions = tuple(declared), replicas, functions or {}
        self._tallies: dict[Place, Tally] = {}
        self._fills: list[float] = []

    def read(self, iterator: Any) -> bool:
        """Add the times and counts since the last reading. Returns False if TensorFlow keeps no model."""
        try:
            model = tf.data.experimental.get_model_proto(iterator)
        except (ValueError, tf.errors.NotFoundError):
            return False
        by_place: dict[Place, list[int]] = {}
        _visit(model.nodes, model.output, ((0, model.nodes[model.output].name),), by_place)
        for place, numbers in by_place.items():
            self._count(place, {number: model.nodes[number] for number in numbers})
            if "Cache" in place[-1][1] and not any(other[:-1] == place for other in by_place):
                # The cache is now full, so that the stages behind it no longer run.
                for other in [each for each in self._tallies if len(each) > len(place)]:
                    if other[: len(place)] == place:
                        del self._tallies[other]
        for number in model.nodes[model.output].inputs:
            node = model.nodes[number]
            size = next((p.state_value for p in node.parameters if p.name == "buffer_size"), 0.0)
            if node.name == "Prefetch" and size:
                self._fills.append(min(1.0, node.buffered_elements / size))
        return True

    def _count(self, place: Place, there: Mapping[int, Any]) -> None:
        tally = self._tallies.setdefault(place, Tally())
        seen = {}
        for number, node in there.items():
            seen[number] = (node.processing_time, node.num_elements)
            time, elements = tally.seen.get(number, (0, 0))
            if node.processing_time < time or node.num_elements < elements:
                time, elements = 0, 0  # the node of another iterator
            tally.nanoseconds += node.processing_time - time
            tally.elements += node.num_elements - elements
            tally.node_class, tally.ratio = node.node_class, node.ratio
            tally.parallelism = next((int(p.state_value) for p in node.parameters if p.name == "parallelism"), None)
        tally.seen = seen

    def take(self) -> tuple[list[Timed], float | None]:
        """Return the stages from the source on, and the mean fill (0 to 1) of the last buffer. These readings then
        count half.
        """
        stages = with_functions(self._stages() if self._tallies else [], self._functions)
        fill = sum(self._fills) / len(self._fills) if self._fills else None
        self._fills = []
        for tally in self._tallies.values():
            tally.nanoseconds, tally.elements = tally.nanoseconds / 2, tally.elements / 2
        return stages, fill

    def _stages(self) -> list[Timed]:
        # Those of one name become one, with the sum of times, and operation and parallelism of the slowest.
        root = min(self._tallies, key=len)
        parts = list(self._parts(root, float(self._replicas), "", list(self._declared)))
        if not self._declared:  # those of one name are numbered
            times, seen = Counter(part.name for part in parts), Counter[str]()
            for number, part in enumerate(parts):
                seen[part.name] += 1
                if times[part.name] > 1:
                    parts[number] = replace(part, name=f"{part.name} {seen[part.name]}")
        together: dict[str, list[Timed]] = {}
        for part in parts:
            together.setdefault(part.name, []).append(part)
        slowest = {name: max(parts, key=lambda part: part.ms_per_batch) for name, parts in together.items()}
        totals = {name: sum(part.ms_per_batch for part in parts) for name, parts in together.items()}
        return [replace(part, ms_per_batch=totals[name]) for name, part in slowest.items()]

    def _parts(self, place: Place, elements: float, name: str, left: list[Stage]) -> Iterator[Timed]:
        """The stages behind this place, which makes `elements` for a batch, then the place, with their times."""
        op, children = place[-1][1], sorted(other for other in self._tallies if other[:-1] == place)
        stage = _match(left, op)
        if stage:
            name = stage.name
        elif not self._declared:
            name = _kind(op)
        elif [stage.name for stage in left] == [SOURCE] and not op.endswith("Impl"):
            name, left = SOURCE, []
        splits = stage.splits if stage else 0
        main = (children[0] if splits else children[-1]) if children else None
        for child in sorted(children, key=lambda child: child != main):
            each = elements / splits if splits and child == main else self._behind(place, child, elements)
            yield from self._parts(child, each, name, left if child == main else [])
        if name and op != "Root":
            tally = self._tallies[place]
            own = tally.nanoseconds / tally.elements / 1e6 if tally.elements else 0.0
            yield Timed(name, op, own * elements, tally.parallelism)

    def _behind(self, place: Place, child: Place, elements: float) -> float:
        mine, its = self._tallies[place], self._tallies[child]
        if mine.node_class in KNOWN_RATIO:
            return elements * (mine.ratio or 1.0)
        if mine.node_class in MANY and child[-1][0] > 0:
            return elements
        return elements * its.elements / mine.elements if mine.elements else elements


def _visit(nodes: Any, number: int, place: Place, by_place: dict[Place, list[int]]) -> None:
    by_place.setdefault(place, []).append(number)
    many = nodes[number].node_class in MANY
    for position, child in enumerate(nodes[number].inputs):
        index = min(position, 1) if many else position
        _visit(nodes, child, (*place, (index, nodes[child].name)), by_place)


class StageWatch:
    """Reads the pipeline's performance model while the training runs, and reports the times, less and less often."""

    def __init__(self, meter: StageMeter, emit: Callable[[events.Event], None]) -> None:
        self._meter, self._emit = meter, emit
        self._began: float | None = None
        self._next_look = self._next_event = 0.0
        self._reported = False

    def pulse(self, iterator: Any) -> None:
        """Read the times of the pipeline that `iterator` runs, and report them, if due, between two executions."""
        now = time.perf_counter()
        if now < self._next_look:
            return
        there = self._meter.read(iterator)
        cost = time.perf_counter() - now
        if self._began is None:
            self._began, self._next_event = now, now + FIRST_SECONDS
            cost = 0.0  # the first reading imports what it needs
        self._next_look = now + min(max(LOOK_SECONDS, cost / COST_SHARE), SOON_SECONDS) if there else math.inf
        if there and now >= self._next_event:
            soon = now - self._began < SOON_UNTIL_SECONDS
            self._next_event = now + (SOON_SECONDS if soon else LATER_SECONDS)
            self._report()

    def finish(self) -> None:
        """Report the times if none were reported yet, because the training was too short."""
        if self._began is not None and not self._reported:
            self._report()

    def _report(self) -> None:
        stages, fill = self._meter.take()
        if stages:
            self._reported = True
            self._emit(events.InputStages(stages=[stage.timing() for stage in stages], buffer_fill=fill))


def _kind(op: str) -> str:
    # ParallelMapV2 gives Map.
    return next((kind for kind in KINDS if kind in op), op)


def _match(left: list[Stage], op: str) -> Stage | None:
    """The last of `left` with the operation's type; it goes, with those after it, which TensorFlow has left out."""
    kind = _kind(op)
    fused = kind == "MapAndBatch"
    for i in range(len(left) - 1, -1, -1):
        if left[i].kind == ("Batch" if fused else kind):
            first = i - 1 if fused and i and left[i - 1].kind == "Map" else i
            stage = left[first]
            del left[first:]
            return stage
    return None


def with_functions(stages: list[Timed], functions: Mapping[str, Sequence[str]]) -> list[Timed]:
    """Return the stages, with the user's functions in their names, of kinds with as many stages as functions."""
    named = list(stages)
    for kind, places in functions.items():
        indexes = [i for i, stage in enumerate(stages) if _kind(stage.op).removesuffix("AndBatch") == kind]
        if len(indexes) == len(places):
            for i, place in zip(indexes, places, strict=True):
                named[i] = replace(stages[i], name=f"{stages[i].name} of {place}")
    return named
