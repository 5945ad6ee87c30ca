"""Reads the time of the running pipeline's stages from the performance model that TensorFlow keeps of it.

It is read a few times a second at most. The data sets of a pass are created again for each pass, with counts that start
from zero, so the sums are kept by their place in the pipeline. Naming the stages is in stage_names.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import tensorflow as tf

from ...runs import events
from .stage_names import MANY, Naming, Place, Stage, Tally, Timed, with_functions

LOOK_SECONDS = 0.5
COST_SHARE = 1 / 200  # share of the time that reading may take
FIRST_SECONDS = 1.0
SOON_SECONDS, SOON_UNTIL_SECONDS = 2.0, 10.0
LATER_SECONDS = 10.0


class StageMeter:
    """Reads an iterator's model now and then; `take` returns the times read so far."""

    def __init__(
        self, declared: Sequence[Stage], replicas: int, functions: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """`functions` are the user's functions by the kind of their operation, from the source on."""
        self._declared, self._replicas, self._functions = tuple(declared), replicas, functions or {}
        self._tallies: dict[Place, Tally] = {}
        self._fills: list[float] = []

    def look(self, iterator: Any) -> bool:
        """Add what has been counted since the last reading; False where TensorFlow keeps no model."""
        try:
            model = tf.data.experimental.get_model_proto(iterator)
        except (ValueError, tf.errors.NotFoundError):
            return False
        found: dict[Place, list[int]] = {}
        _visit(model.nodes, model.output, ((0, model.nodes[model.output].name),), found)
        for place, numbers in found.items():
            self._count(place, {number: model.nodes[number] for number in numbers})
            if "Cache" in place[-1][1] and not any(other[:-1] == place for other in found):
                self._forget_behind(place)
        for number in model.nodes[model.output].inputs:
            self._see_buffer(model.nodes[number])
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

    def _forget_behind(self, place: Place) -> None:
        """Drop the stages before a cache that is now full, as they no longer run."""
        for other in list(self._tallies):
            if len(other) > len(place) and other[: len(place)] == place:
                del self._tallies[other]

    def _see_buffer(self, node: Any) -> None:
        size = next((p.state_value for p in node.parameters if p.name == "buffer_size"), 0.0)
        if node.name == "Prefetch" and size:
            self._fills.append(min(1.0, node.buffered_elements / size))

    def take(self) -> tuple[list[Timed], float | None]:
        """The stages from the source to the end, and how full the last buffer was since the last call.

        What has been read so far counts only half from now on.
        """
        stages = Naming(self._tallies, self._declared, self._replicas).stages() if self._tallies else []
        stages = with_functions(stages, self._functions)
        fill = sum(self._fills) / len(self._fills) if self._fills else None
        self._fills = []
        for tally in self._tallies.values():
            tally.nanoseconds, tally.elements = tally.nanoseconds / 2, tally.elements / 2
        return stages, fill


def _visit(nodes: Any, number: int, place: Place, found: dict[Place, list[int]]) -> None:
    found.setdefault(place, []).append(number)
    many = nodes[number].node_class in MANY
    for position, child in enumerate(nodes[number].inputs):
        index = min(position, 1) if many else position
        _visit(nodes, child, (*place, (index, nodes[child].name)), found)


class StageWatch:
    """Reads the pipeline when the loop has time for it, and reports the times, less and less often."""

    def __init__(self, meter: StageMeter, emit: Callable[[events.Event], None]) -> None:
        self._meter, self._emit = meter, emit
        self._began: float | None = None
        self._next_look = self._next_event = 0.0
        self._reported = False

    def pulse(self, iterator: Any) -> None:
        """May be called at any moment between two executions."""
        now = time.perf_counter()
        if now < self._next_look:
            return
        there = self._meter.look(iterator)
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
        """Report what was read, where the training was too short for a report while it ran."""
        if self._began is not None and not self._reported:
            self._report()

    def _report(self) -> None:
        stages, fill = self._meter.take()
        if stages:
            self._reported = True
            self._emit(events.InputStages(stages=[asdict(stage) for stage in stages], buffer_fill=fill))
