"""The input pipeline in XProf's tables: which of its stages takes most time, and what the time is spent on.

XProf covers the whole profile, including an evaluation within it. It identifies a stage by the operations between it
and the end of the pipeline. The steps are in xprof_tables.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .xprof_tables import Row, Tools, largest, on_gpu, rows_with, sums

# These stages only pass on what others made: the time in them is waiting.
WAITING = ("Root", "Prefetch")
PLUMBING = "Generator"  # TensorFlow's own stages, between the pipeline and the devices of a strategy
FILE_READS = ("Advanced file read", "Demanded file read")


@dataclass(frozen=True)
class InputStage:
    """A stage of the input pipeline; `ms` is the time in it alone, over the whole profile.

    `share` is of all stages together. The time of a parallel stage is the time that it waits for its calls.
    `ms_per_batch` is None where batches are split over replicas.
    """

    name: str
    op: str
    ms: float
    share: float
    ms_per_batch: float | None


@dataclass(frozen=True)
class InputTime:
    """What the time of the stages is spent on, over the whole profile; None where there is no device to transfer to."""

    preprocessing_ms: float
    reading_ms: float
    transfer_ms: float | None
    other_ms: float


def slowest_stage(tools: Tools, declared: Sequence[Row], distributed: bool) -> InputStage | None:
    """The stage that takes most time; `declared` are the run's own names (`name`, `op`), from the source to the end."""
    times = sums((_name(_chain(row), declared), row["selfTimeInMs"]) for row in _stages(tools, distributed))
    if not sum(times.values()):
        return None
    (name, place), ms = largest(times)[0]
    batches = sum(float(row["count"]) for row in _all_stages(tools) if _chain(row) == ["Root"])
    per_batch = ms / batches if batches and not distributed else None
    return InputStage(name, place.rpartition(" ")[2], ms, ms / sum(times.values()), per_batch)


def input_time(tools: Tools, distributed: bool) -> InputTime | None:
    """The time of the input; None where XProf saw no stage."""
    times = sums((row["category"], row["selfTimeInMs"]) for row in _stages(tools, distributed))
    if not times:
        return None
    preprocessing, transfer = times.pop("Preprocessing", 0.0), times.pop("Enqueue", 0.0)
    reading = sum(times.pop(name, 0.0) for name in FILE_READS)
    return InputTime(preprocessing, reading, transfer if on_gpu(tools) else None, sum(times.values()))


def _all_stages(tools: Tools) -> Sequence[Row]:
    return rows_with(tools, "input_pipeline_analyzer", "selfTimeInMs")


def _stages(tools: Tools, distributed: bool) -> list[Row]:
    """The stages that work rather than wait."""
    return [row for row in _all_stages(tools) if not _waits(_chain(row), distributed)]


def _waits(chain: list[str], distributed: bool) -> bool:
    plumbing = distributed and chain[-1] == PLUMBING and set(chain[:-1]) <= set(WAITING)
    return chain[-1] in WAITING or plumbing


def _chain(row: Row) -> list[str]:
    """The stages from the end of the pipeline to this one: `Iterator::Root::FlatMap[1]::Map` -> Root, FlatMap, Map."""
    return [part.partition("[")[0] for part in str(row["opName"]).split("::")[1:]] or [str(row["opName"])]


def _name(chain: list[str], declared: Sequence[Row]) -> tuple[str, str]:
    """The run's own name of a stage, and its operation; what TensorFlow has added counts for the stage that it feeds.

    A stage without a name is called by its operation, and identified by the operations that it feeds.
    """
    name, place, left = chain[-1], " ".join(chain), list(declared)
    for part in chain:
        met = [i for i, stage in enumerate(left) if stage.get("op") == part]
        if met:
            name, place, left = str(left[met[-1]]["name"]), part, left[: met[-1]]
    return name, place
