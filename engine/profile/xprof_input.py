"""The input pipeline in XProf's tables: which of its stages takes most, and what its time goes to.

Separates the stages from the steps (xprof_tables.py). XProf counts the whole profile, so that an evaluation within it
counts, too. It knows a stage by the operations between it and the end of the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .xprof_tables import Row, Tools, largest, on_gpu, rows_with, sums

# They hand over what others made: the time in them is waiting.
WAITING = ("Root", "Prefetch")
PLUMBING = "Generator"  # under a strategy: TensorFlow's own, between the pipeline and the devices
FILE_READS = ("Advanced file read", "Demanded file read")


@dataclass(frozen=True)
class InputStage:
    """A stage of the input pipeline; `ms` is the time in it alone, over the whole profile.

    `share` is of all stages together. A parallel stage waits for its calls: that is its time. `ms_per_batch` is None
    where batches are split over replicas.
    """

    name: str
    op: str
    ms: float
    share: float
    ms_per_batch: float | None


@dataclass(frozen=True)
class InputTime:
    """What the stages' time went to, over the whole profile; None: there is no device to transfer to."""

    preprocessing_ms: float
    reading_ms: float
    transfer_ms: float | None
    other_ms: float


def slowest_stage(tools: Tools, declared: Sequence[Row], distributed: bool) -> InputStage | None:
    """The stage that takes most; `declared` are the run's own (`name`, `op`), from the source to the end."""
    times = sums((_name(_chain(row), declared), row["selfTimeInMs"]) for row in _stages(tools, distributed))
    if not sum(times.values()):
        return None
    (name, place), ms = largest(times)[0]
    batches = sum(float(row["count"]) for row in _all_stages(tools) if _chain(row) == ["Root"])
    per_batch = ms / batches if batches and not distributed else None
    return InputStage(name, place.rpartition(" ")[2], ms, ms / sum(times.values()), per_batch)


def input_time(tools: Tools, distributed: bool) -> InputTime | None:
    """None where no stage has been seen."""
    times = sums((row["category"], row["selfTimeInMs"]) for row in _stages(tools, distributed))
    if not times:
        return None
    preprocessing, transfer = times.pop("Preprocessing", 0.0), times.pop("Enqueue", 0.0)
    reading = sum(times.pop(name, 0.0) for name in FILE_READS)
    return InputTime(preprocessing, reading, transfer if on_gpu(tools) else None, sum(times.values()))


def _all_stages(tools: Tools) -> Sequence[Row]:
    return rows_with(tools, "input_pipeline_analyzer", "selfTimeInMs")


def _stages(tools: Tools, distributed: bool) -> list[Row]:
    """Those that work, not wait."""
    return [row for row in _all_stages(tools) if not _waits(_chain(row), distributed)]


def _waits(chain: list[str], distributed: bool) -> bool:
    plumbing = distributed and chain[-1] == PLUMBING and set(chain[:-1]) <= set(WAITING)
    return chain[-1] in WAITING or plumbing


def _chain(row: Row) -> list[str]:
    """`Iterator::Root::FlatMap[1]::Map` -> Root, FlatMap, Map: from the end of the pipeline to the stage."""
    return [part.partition("[")[0] for part in str(row["opName"]).split("::")[1:]] or [str(row["opName"])]


def _name(chain: list[str], declared: Sequence[Row]) -> tuple[str, str]:
    """The run's name of the stage, and the operation; what TensorFlow has added belongs to the stage that it feeds.

    A stage without a name is called as its operation, and told apart by the operations that it feeds.
    """
    name, place, left = chain[-1], " ".join(chain), list(declared)
    for part in chain:
        met = [i for i, stage in enumerate(left) if stage.get("op") == part]
        if met:
            name, place, left = str(left[met[-1]]["name"]), part, left[: met[-1]]
    return name, place
