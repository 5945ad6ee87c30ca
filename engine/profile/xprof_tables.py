"""From the tables of XProf's tools to the figures of a report.

Separates what XProf's columns mean from getting them (xprof_process.py) and from the run (profile_report.py); the
input has a module of its own (xprof_input.py). XProf fills columns that do not apply with 0: on a CPU nothing is
launched on a device, sent to one or exchanged between them, and such a figure is None here.
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
    """Parts of the step time, 0 to 1. On a GPU XProf's, on a CPU `compute` is the rest of the graph beside `input`.

    `host` is what the host does while a device waits; on a CPU the time outside the graph, which is Python.
    """

    input: float | None = None
    compute: float | None = None
    host: float | None = None
    communication: float | None = None  # collectives between devices
    copies: float | None = None  # from one device to another
    kernel_launch: float | None = None
    output: float | None = None


@dataclass(frozen=True)
class Operation:
    """An operation with its own time over the whole profile; `share` is of all operations together."""

    name: str
    type: str
    ms: float
    share: float


def on_gpu(tools: Tools) -> bool:
    """Whether XProf saw a GPU."""
    return property_of(tools, "input_pipeline_analyzer", "hardware_type") == "GPU"


def step_rows(tools: Tools) -> list[Row]:
    """A row for each step that XProf takes as whole."""
    return [row for row in rows_with(tools, "input_pipeline_analyzer", "stepTimeMs") if float(row["stepTimeMs"]) > 0]


def shares(tools: Tools) -> Shares:
    """Means over the steps; there must be one."""
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
    """What part of these steps a graph ran; rows are called `train 51`."""
    told = [tools["python"].get(str(row["stepnum"]).rpartition(" ")[2]) for row in rows]
    times = [times for times in told if times is not None]
    graph, whole = sum(graph for _, graph in times), sum(whole for whole, _ in times)
    return graph / whole if graph > 0 else None


def compute_16bit(tools: Tools) -> float | None:
    """Share of the device's computing in 16 bits; None without a device."""
    text = property_of(tools, "overview_page", "device_compute_16bit_percent")
    return float(text.rstrip("%")) / 100 if text and on_gpu(tools) else None


def operations(tools: Tools) -> tuple[str, tuple[Operation, ...]]:
    """Where (`GPU`, `GPU kernels` where XProf cannot tell whose they are, or `CPU`), and those that take most."""
    rows = [row for row in last_rows(tools, "framework_op_stats") if row["type"] not in (DATASET, IDLE)]
    on_device = [row for row in rows if row["host_or_device"] == "Device"]
    if on_device:
        return "GPU", _top((row["operation"], row["type"], row["total_self_time"]) for row in on_device)
    if on_gpu(tools):
        kernels = last_rows(tools, "kernel_stats")
        return "GPU kernels", _top((row["kernel_name"], row["op_name"], row["total_duration_us"]) for row in kernels)
    return "CPU", _top((row["operation"], row["type"], row["total_self_time"]) for row in rows)


def _top(microseconds: Iterable[tuple[str, str, float]]) -> tuple[Operation, ...]:
    times = sums(((name, kind), us / 1000) for name, kind, us in microseconds)
    whole = sum(times.values())
    return tuple(Operation(*key, ms, ms / whole) for key, ms in largest(times)[:TOP] if ms > 0)


def property_of(tools: Tools, tool: str, name: str) -> str | None:
    """What the first table says that has a property of this name."""
    return next((str(table["properties"][name]) for table in tools[tool] if name in table["properties"]), None)


def rows_with(tools: Tools, tool: str, column: str) -> Sequence[Row]:
    """The rows of the first table that has a column of this name and is not empty."""
    return next((table["rows"] for table in tools[tool] if table["rows"] and column in table["rows"][0]), ())


def last_rows(tools: Tools, tool: str) -> Sequence[Row]:
    """XProf's operations come twice, with idle time and then without."""
    return tools[tool][-1]["rows"] if tools[tool] else ()


def sums(parts: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Those of one key together."""
    found: dict[Key, float] = {}
    for key, value in parts:
        found[key] = found.get(key, 0.0) + float(value)
    return found


def largest(times: Mapping[Key, float]) -> list[tuple[Key, float]]:
    return sorted(times.items(), key=lambda item: item[1], reverse=True)


def total(rows: Sequence[Row], column: str) -> float:
    return sum(float(row[column]) for row in rows)
