"""Assigns TensorFlow's operations to the named stages of the pipeline, and adds up the time of each stage for one
batch.

TensorFlow fuses operations and adds others. The pipeline's declared stages are matched with them from the end to the
source; without a declaration operations keep their names. The times are read in stages.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

SOURCE = "read"  # the stage that takes in everything beyond the declared ones
KINDS = ("MapAndBatch", "FlatMap", "Map", "Batch", "Shuffle", "Cache", "Prefetch")
# Node classes of TensorFlow's model. MANY: an element of the first input makes a data set, which is another input.
KNOWN_RATIO, MANY = (3, 4), (1, 2)
Place = tuple[
    tuple[int, str], ...
]  # operations from the end of the pipeline, each with the number of the input that it is


@dataclass(frozen=True)
class Stage:
    """A declared stage of the pipeline: its name, and the type of TensorFlow's operation.

    `splits` of a FlatMap is how many elements it makes of one; 0: it goes through data sets one after the other.
    """

    name: str
    kind: str
    splits: int = 0


@dataclass(frozen=True)
class Timed:
    """A stage with its own time for one global batch; `parallelism` is how many of its calls run in parallel."""

    name: str
    op: str
    ms_per_batch: float
    parallelism: int | None


@dataclass
class Tally:
    """The sums for one place in the pipeline; `seen` are the counts of its nodes when last read."""

    node_class: int = 0
    ratio: float = 0.0
    parallelism: int | None = None
    nanoseconds: float = 0.0
    elements: float = 0.0
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)


class Naming:
    """Turns the tallies of a pipeline into stages. A global batch is `replicas` elements at the pipeline's end."""

    def __init__(self, tallies: Mapping[Place, Tally], declared: Sequence[Stage], replicas: int) -> None:
        self._tallies, self._declared, self._replicas = tallies, declared, replicas

    def stages(self) -> list[Timed]:
        """The stages from the source to the end; those of one name are combined under the operation that takes most of
        the time.
        """
        root = min(self._tallies, key=len)
        parts = list(self._parts(root, float(self._replicas), "", list(self._declared)))
        if not self._declared:
            parts = _numbered(parts)
        together: dict[str, list[Timed]] = {}
        for part in parts:
            together.setdefault(part.name, []).append(part)
        return [_sum(parts) for parts in together.values()]

    def _parts(self, place: Place, elements: float, name: str, left: list[Stage]) -> Iterator[Timed]:
        """The inputs of this place, then the place itself, `elements` times for a batch; `left` are stages not matched
        yet.
        """
        op, children = place[-1][1], self._children(place)
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

    def _children(self, place: Place) -> list[Place]:
        return sorted(other for other in self._tallies if other[:-1] == place)

    def _behind(self, place: Place, child: Place, elements: float) -> float:
        """How many elements the child makes for this many elements of this place."""
        mine, its = self._tallies[place], self._tallies[child]
        if mine.node_class in KNOWN_RATIO:
            return elements * (mine.ratio or 1.0)
        if mine.node_class in MANY and child[-1][0] > 0:
            return elements
        return elements * its.elements / mine.elements if mine.elements else elements


def _kind(op: str) -> str:
    """ParallelMapV2 -> Map; other names stay unchanged."""
    return next((kind for kind in KINDS if kind in op), op)


def _match(left: list[Stage], op: str) -> Stage | None:
    """The next stage of the operation's type, from the end; it and the stages that TensorFlow left out are removed."""
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
    """The stages with the user's functions that they call, where there are as many of one kind as functions."""
    named = list(stages)
    for kind, places in functions.items():
        found = [i for i, stage in enumerate(stages) if _kind(stage.op).removesuffix("AndBatch") == kind]
        if len(found) == len(places):
            for i, place in zip(found, places, strict=True):
                named[i] = replace(stages[i], name=f"{stages[i].name} of {place}")
    return named


def _numbered(parts: list[Timed]) -> list[Timed]:
    """Adds numbers to names that occur several times."""
    times = Counter(part.name for part in parts)
    seen: Counter[str] = Counter()
    found = []
    for part in parts:
        seen[part.name] += 1
        name = f"{part.name} {seen[part.name]}" if times[part.name] > 1 else part.name
        found.append(replace(part, name=name))
    return found


def _sum(parts: list[Timed]) -> Timed:
    most = max(parts, key=lambda part: part.ms_per_batch)
    return replace(most, ms_per_batch=sum(part.ms_per_batch for part in parts))
