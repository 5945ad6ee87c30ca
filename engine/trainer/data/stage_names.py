"""Which stage of the pipeline each of TensorFlow's operations belongs to, and what the stages take for one batch.

Separates the naming from the reading (stages.py). TensorFlow fuses operations and adds others; what the pipeline
declares of itself is matched with them from the end to the source. Without a declaration operations keep their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

SOURCE = "read"  # the stage that everything belongs to which lies behind the others
KINDS = ("MapAndBatch", "FlatMap", "Map", "Batch", "Shuffle", "Cache", "Prefetch")
# Node classes of TensorFlow's model. MANY: an element of the first input makes a data set, which is another input.
KNOWN_RATIO, MANY = (3, 4), (1, 2)
Place = tuple[tuple[int, str], ...]  # operations from the end of the pipeline, each with which input it is


@dataclass(frozen=True)
class Stage:
    """A stage that the pipeline has put in: its name, and the kind of TensorFlow's operation.

    Of a FlatMap, `splits` says that it makes so many elements of one; 0: that it goes through data sets one by one.
    """

    name: str
    kind: str
    splits: int = 0


@dataclass(frozen=True)
class Timed:
    """A stage with its own time for one global batch; `parallelism` is how many of its calls run at once."""

    name: str
    op: str
    ms_per_batch: float
    parallelism: int | None


@dataclass
class Tally:
    """What has been counted at one place; `seen` are the counts of the nodes that were there at the last look."""

    node_class: int = 0
    ratio: float = 0.0
    parallelism: int | None = None
    nanoseconds: float = 0.0
    elements: float = 0.0
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)


class Naming:
    """The tallies of one pipeline as stages. `replicas` are the elements at its end that make a global batch."""

    def __init__(self, tallies: Mapping[Place, Tally], declared: Sequence[Stage], replicas: int) -> None:
        self._tallies, self._declared, self._replicas = tallies, declared, replicas

    def stages(self) -> list[Timed]:
        """From the source to the end; those of one name together, told as the operation that takes most of it."""
        root = min(self._tallies, key=len)
        parts = list(self._parts(root, float(self._replicas), "", list(self._declared)))
        if not self._declared:
            parts = _numbered(parts)
        together: dict[str, list[Timed]] = {}
        for part in parts:
            together.setdefault(part.name, []).append(part)
        return [_sum(parts) for parts in together.values()]

    def _parts(self, place: Place, elements: float, name: str, left: list[Stage]) -> Iterator[Timed]:
        """What feeds this place, then the place itself, `elements` times a batch; `left` are stages not met yet."""
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
        """How many elements the child makes for so many of this place."""
        mine, its = self._tallies[place], self._tallies[child]
        if mine.node_class in KNOWN_RATIO:
            return elements * (mine.ratio or 1.0)
        if mine.node_class in MANY and child[-1][0] > 0:
            return elements
        return elements * its.elements / mine.elements if mine.elements else elements


def _kind(op: str) -> str:
    """ParallelMapV2 -> Map; what is of no kind keeps its name."""
    return next((kind for kind in KINDS if kind in op), op)


def _match(left: list[Stage], op: str) -> Stage | None:
    """The next stage of the operation's kind, from the end; it and those that TensorFlow has left out are taken off."""
    kind = _kind(op)
    fused = kind == "MapAndBatch"
    for i in range(len(left) - 1, -1, -1):
        if left[i].kind == ("Batch" if fused else kind):
            first = i - 1 if fused and i and left[i - 1].kind == "Map" else i
            stage = left[first]
            del left[first:]
            return stage
    return None


def _numbered(parts: list[Timed]) -> list[Timed]:
    """Names that come several times, told apart."""
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
