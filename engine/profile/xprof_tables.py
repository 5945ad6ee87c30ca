"""Turns the tables of XProf's tools into the figures of a report. XProf fills columns that do not apply (launches or
exchange on a CPU) with 0, here None, and identifies a stage of the input by the operations between it and the end of
the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

TOP = 10
DATASET, IDLE = "Dataset", "IDLE"

Key = TypeVar("Key")
Row = Mapping[str, Any]
Tools = Mapping[str, Any]


@dataclass(frozen=True)
class Shares:
    """The parts of the step time (0 to 1) on a GPU; `host` works while a device waits. On a CPU `compute` is the graph
    without `input`, and `host` the time outside it, which is Python's. None: unknown, or not on this device.
    """

    input: float | None = None
    compute: float | None = None
    host: float | None = None
    communication: float | None = None  # collective operations between devices
    copies: float | None = None  # from one device to another
    kernel_launch: float | None = None
    output: float | None = None


@dataclass(frozen=True)
class Operation:
    """An operation with its own time in ms over the whole profile. `share` is its share (0 to 1) of the time of all
    operations.
    """

    name: str
    type: str
    ms: float
    share: float


def on_gpu(tools: Tools) -> bool:
    """Return True if the profile has a GPU."""
    return property_of(tools, "input_pipeline_analyzer", "hardware_type") == "GPU"


def step_rows(tools: Tools) -> list[Row]:
    """Return one row for each step that XProf considers complete."""
    return [row for row in rows_with(tools, "input_pipeline_analyzer", "stepTimeMs") if float(row["stepTimeMs"]) > 0]


def shares(tools: Tools) -> Shares:
    """Return the parts of a step as means over the steps. The profile must have at least one step."""
    rows = step_rows(tools)
    whole = total(rows, "stepTimeMs")

    def share(*columns: str) -> float:
        return sum(total(rows, column) for column in columns) / whole

    if not on_gpu(tools):
        return _on_cpu(share("infeedTimeMs"), _graph_share(tools, rows))
    return Shares(
        input=share("infeedTimeMs"),
        compute=share("deviceComputeTimeMs"),
        host=share("hostComputeTimeMs", "compileTimeMs", "otherTimeMs"),
        communication=share("deviceCollectivesTimeMs"),
        copies=share("deviceToDeviceTimeMs"),
        kernel_launch=share("kernelLaunchTimeMs"),
        output=share("outfeedTimeMs"),
    )


def _on_cpu(waiting: float, graph: float | None) -> Shares:
    if graph is None:
        return Shares(input=waiting)
    return Shares(input=waiting, compute=max(0.0, graph - waiting), host=max(0.0, 1 - max(graph, waiting)))


def _graph_share(tools: Tools, rows: Sequence[Row]) -> float | None:
    # the rows of steps are named like `train 51`
    of_rows = [tools["python"].get(str(row["stepnum"]).rpartition(" ")[2]) for row in rows]
    times = [times for times in of_rows if times is not None]
    graph, whole = sum(graph for _, graph in times), sum(whole for whole, _ in times)
    return graph / whole if graph > 0 else None


def compute_16bit(tools: Tools) -> float | None:
    """Return the share (0 to 1) of the device's computing time that was spent in 16-bit formats. None without a GPU."""
    text = property_of(tools, "overview_page", "device_compute_16bit_percent")
    return float(text.rstrip("%")) / 100 if text and on_gpu(tools) else None


def operations(tools: Tools) -> tuple[str, tuple[Operation, ...]]:
    """Return where the TOP operations ran (`GPU`, `CPU`, or unassigned `GPU kernels`), and these."""
    place, rows = _operation_rows(tools)
    name, kind, us = ("kernel_name", "op_name", "total_duration_us") if place == "GPU kernels" else _OPERATION
    return place, _top((row[name], row[kind], row[us]) for row in rows)


def operation_times(tools: Tools) -> list[tuple[str, float]]:
    """Return all operations that `operations` has the longest of: their TensorFlow names with their microseconds."""
    place, rows = _operation_rows(tools)
    name, us = ("op_name", "total_duration_us") if place == "GPU kernels" else (_OPERATION[0], _OPERATION[2])
    return [(str(row[name]), float(row[us])) for row in rows]


_OPERATION = ("operation", "type", "total_self_time")  # columns: its name, its type, its microseconds


def _operation_rows(tools: Tools) -> tuple[str, Sequence[Row]]:
    rows = [row for row in last_rows(tools, "framework_op_stats") if row["type"] not in (DATASET, IDLE)]
    on_device = [row for row in rows if row["host_or_device"] == "Device"]
    if on_device:
        return "GPU", on_device
    return ("GPU kernels", last_rows(tools, "kernel_stats")) if on_gpu(tools) else ("CPU", rows)


def _top(microseconds: Iterable[tuple[str, str, float]]) -> tuple[Operation, ...]:
    times = sums(((name, kind), us / 1000) for name, kind, us in microseconds)
    whole = sum(times.values())
    return tuple(Operation(*key, ms, ms / whole) for key, ms in largest(times)[:TOP] if ms > 0)


def property_of(tools: Tools, tool: str, name: str) -> str | None:
    """Return the value of the property `name` in the first table of the tool that has it. None if no table has it."""
    return next((str(table["properties"][name]) for table in tools[tool] if name in table["properties"]), None)


def rows_with(tools: Tools, tool: str, column: str) -> Sequence[Row]:
    """Return the rows of the first table of the tool with this column. Empty if there is none."""
    return next((table["rows"] for table in tools[tool] if table["rows"] and column in table["rows"][0]), ())


def last_rows(tools: Tools, tool: str) -> Sequence[Row]:
    """Return the rows of a tool's last table: of operations, the one without idle time. Empty without one."""
    return tools[tool][-1]["rows"] if tools[tool] else ()


def sums(parts: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Return for each key of `parts` the sum of its values."""
    totals: dict[Key, float] = {}
    for key, value in parts:
        totals[key] = totals.get(key, 0.0) + float(value)
    return totals


def largest(times: Mapping[Key, float]) -> list[tuple[Key, float]]:
    return sorted(times.items(), key=lambda item: item[1], reverse=True)


def total(rows: Sequence[Row], column: str) -> float:
    return sum(float(row[column]) for row in rows)


# ---- the input pipeline ------------------------------------------------------------------------


# These stages only pass on batches of others: the time in them is waiting.
WAITING = ("Root", "Prefetch")
PLUMBING = "Generator"  # TensorFlow's own stages, between the pipeline and the devices of a strategy
FILE_READS = ("Advanced file read", "Demanded file read")


@dataclass(frozen=True)
class InputStage:
    """A stage of the input pipeline: `ms` in it alone over the whole profile (of a parallel one, waiting for its
    calls), their share of all stages (0 to 1), and `ms_per_batch`, None if batches are split over replicas.
    """

    name: str
    op: str
    ms: float
    share: float
    ms_per_batch: float | None


@dataclass(frozen=True)
class InputTime:
    """The time that the input's stages take over the whole profile, by kind of work. `transfer_ms` is None without a
    GPU.
    """

    preprocessing_ms: float
    reading_ms: float
    transfer_ms: float | None
    other_ms: float


def slowest_stage(tools: Tools, declared: Sequence[Row], distributed: bool) -> InputStage | None:
    """Return the stage that takes most time, None if none did. `declared` are the run's stages from the source.
    `distributed`: the strategy's own stages do not count.
    """
    times = sums((_name(_chain(row), declared), row["selfTimeInMs"]) for row in _stages(tools, distributed))
    if not sum(times.values()):
        return None
    (name, place), ms = largest(times)[0]
    batches = sum(float(row["count"]) for row in _all_stages(tools) if _chain(row) == ["Root"])
    per_batch = ms / batches if batches and not distributed else None
    return InputStage(name, place.rpartition(" ")[2], ms, ms / sum(times.values()), per_batch)


def input_time(tools: Tools, distributed: bool) -> InputTime | None:
    """Return the times of the input by kind of work. None if XProf recorded no stage that works."""
    times = sums((row["category"], row["selfTimeInMs"]) for row in _stages(tools, distributed))
    if not times:
        return None
    preprocessing, transfer = times.pop("Preprocessing", 0.0), times.pop("Enqueue", 0.0)
    reading = sum(times.pop(name, 0.0) for name in FILE_READS)
    return InputTime(preprocessing, reading, transfer if on_gpu(tools) else None, sum(times.values()))


def _all_stages(tools: Tools) -> Sequence[Row]:
    return rows_with(tools, "input_pipeline_analyzer", "selfTimeInMs")


def _stages(tools: Tools, distributed: bool) -> list[Row]:
    return [row for row in _all_stages(tools) if not _waits(_chain(row), distributed)]


def _waits(chain: list[str], distributed: bool) -> bool:
    plumbing = distributed and chain[-1] == PLUMBING and set(chain[:-1]) <= set(WAITING)
    return chain[-1] in WAITING or plumbing


def _chain(row: Row) -> list[str]:
    # `Iterator::Root::FlatMap[1]::Map` gives Root, FlatMap, Map
    return [part.partition("[")[0] for part in str(row["opName"]).split("::")[1:]] or [str(row["opName"])]


def _name(chain: list[str], declared: Sequence[Row]) -> tuple[str, str]:
    # a stage that TensorFlow added has the name of the stage that it feeds
    name, place, left = chain[-1], " ".join(chain), list(declared)
    for part in chain:
        matching = [i for i, stage in enumerate(left) if stage.get("op") == part]
        if matching:
            name, place, left = str(left[matching[-1]]["name"]), part, left[: matching[-1]]
    return name, place
