"""Reports what a run's profile shows: where the time of a step goes, the longest operations, the slowest input stage.
XProf reads it in a process of its own (xprof_process.py), and its tables become the figures here.
"""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..figures import PROFILE
from ..files.reading import open_regular
from ..runs import Run
from ..runs.event_reading import last_of
from ..runs.events import InputStages, Started
from ..runs.launched_with import options_of
from ..units import amount, counted, share, size
from .layer_times import LayerTime, layer_times, scopes_of

TOP = 10
DATASET, IDLE = "Dataset", "IDLE"

Key = TypeVar("Key")
Row = Mapping[str, Any]
# XProf fills columns that do not apply (launches or exchange on a CPU) with 0, which is None here, and identifies a
# stage of the input by the operations between it and the end of the pipeline.
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
    """An operation with its own time in ms over the profile, and its share (0 to 1) of all operations."""

    name: str
    type: str
    ms: float
    share: float


def on_gpu(tools: Tools) -> bool:
    return property_of(tools, "input_pipeline_analyzer", "hardware_type") == "GPU"


def step_rows(tools: Tools) -> list[Row]:
    return [row for row in rows_with(tools, "input_pipeline_analyzer", "stepTimeMs") if float(row["stepTimeMs"]) > 0]


def step_shares(tools: Tools) -> Shares:
    """Return the parts of a step as means over the steps, of which there is at least one."""
    rows = step_rows(tools)
    whole = total(rows, "stepTimeMs")

    def share(*columns: str) -> float:
        return sum(total(rows, column) for column in columns) / whole

    if not on_gpu(tools):
        waiting = share("infeedTimeMs")
        graph = _graph_share(tools, rows)
        if graph is None:
            return Shares(input=waiting)
        return Shares(input=waiting, compute=max(0.0, graph - waiting), host=max(0.0, 1 - max(graph, waiting)))
    return Shares(
        input=share("infeedTimeMs"),
        compute=share("deviceComputeTimeMs"),
        host=share("hostComputeTimeMs", "compileTimeMs", "otherTimeMs"),
        communication=share("deviceCollectivesTimeMs"),
        copies=share("deviceToDeviceTimeMs"),
        kernel_launch=share("kernelLaunchTimeMs"),
        output=share("outfeedTimeMs"),
    )


def _graph_share(tools: Tools, rows: Sequence[Row]) -> float | None:
    # the rows of steps are named like `train 51`
    of_rows = [tools["python"].get(str(row["stepnum"]).rpartition(" ")[2]) for row in rows]
    times = [times for times in of_rows if times is not None]
    graph, whole = sum(graph for _, graph in times), sum(whole for whole, _ in times)
    return graph / whole if graph > 0 else None


def compute_16bit(tools: Tools) -> float | None:
    """Return the share (0 to 1) of computing that was in 16-bit formats. None without a GPU."""
    text = property_of(tools, "overview_page", "device_compute_16bit_percent")
    return float(text.rstrip("%")) / 100 if text and on_gpu(tools) else None


def operations(tools: Tools) -> tuple[str, tuple[Operation, ...]]:
    """Return where the TOP operations ran (`GPU`, `CPU`, or unassigned `GPU kernels`), and these."""
    place, rows = _operation_rows(tools)
    name, kind, us = ("kernel_name", "op_name", "total_duration_us") if place == "GPU kernels" else _OPERATION
    times = sums(((row[name], row[kind]), row[us] / 1000) for row in rows)
    whole = sum(times.values())
    return place, tuple(Operation(*key, ms, ms / whole) for key, ms in largest(times)[:TOP] if ms > 0)


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
    """The times of the input's stages over the whole profile, by kind of work; `transfer_ms` is None without a GPU."""

    preprocessing_ms: float
    reading_ms: float
    transfer_ms: float | None
    other_ms: float


def slowest_stage(tools: Tools, declared: Sequence[Row], distributed: bool) -> InputStage | None:
    """Return the stage that takes most time; those of a `distributed` strategy itself do not count."""
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


READ_SECONDS = 300.0
ASK = "--set run.profile=50-69 --set compile.steps_per_execution=1"
RIGHTS = (
    "as root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then restart; "
    "in a container: --cap-add SYS_ADMIN"
)
_CUPTI_ERROR = re.compile(rb"CUPTI_ERROR_\w+|CUPTI needs root access")
_LOG_LINE = re.compile(r"[IWEF]\d{4} |WARNING: All log messages")


class ProfileError(Exception):
    """Raised if there is no report. The text says why and what to do."""


@dataclass(frozen=True)
class ProfileReport:
    """The figures that XProf has computed from the profile at `path`, None if missing. `step_ms` is the mean of
    complete steps. `layers` are empty if no operation has a layer's name (as with XLA on a CPU), None if not recorded.
    """

    path: str  # the log folder to give to XProf or TensorBoard
    device: str  # GPU or CPU
    steps: int  # that XProf recorded completely
    step_ms: float
    shares: Shares
    compute_16bit: float | None  # share of the device's computing time
    operations_on: str  # GPU, GPU kernels, CPU
    operations: tuple[Operation, ...]
    slowest_stage: InputStage | None
    input_time: InputTime | None
    peak_memory_bytes: int | None  # of the GPU that uses most, or of the tensors on the host
    layers: tuple[LayerTime, ...] | None = None


def read(run: Run) -> ProfileReport:
    options = options_of(run)
    files = _files(run, options)
    if importlib.util.find_spec("xprof") is None:
        raise ProfileError("XProf, which reads profiles, is not installed\npip install 'xprof>=2.24' adds it")
    try:
        return _report(run, options, _ask_xprof(files))
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, OSError) as fault:
        what = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
        raise ProfileError(f"XProf gave an unexpected answer ({what}) for\n{files[0]}") from fault


def _report(run: Run, options: Mapping[str, Any], tools: Tools) -> ProfileReport:
    started = None if on_gpu(tools) else last_of(run.path, Started)
    if started is not None and any("GPU:" in name for name in started.devices):
        raise ProfileError(_no_gpu(run))
    rows = step_rows(tools)
    if not rows:
        if (together := options.get("compile.steps_per_execution", 1)) != 1:
            what = f"XProf cannot distinguish steps if {together} of them run in one execution"
            raise ProfileError(f"{what}\nprofile with {ASK}")
        raise ProfileError(f"XProf finds no complete step in the profile\nprofile more steps: {ASK}")
    distributed = options.get("strategy.kind", "single") != "single"
    where, longest = operations(tools)
    declared = last_of(run.path, InputStages)
    # Of the GPUs, else of the host.
    on_gpus = {name: summary for name, summary in tools["memory"].items() if name.startswith("GPU_")}
    peaks = [
        int(peak)
        for summary in (on_gpus or tools["memory"]).values()
        for peak in (summary.get("peakBytesUsageLifetime"), summary.get("peakStats", {}).get("peakBytesInUse"))
        if peak is not None
    ]
    scopes = scopes_of(run.file("profile"))
    return ProfileReport(
        path=str(run.file("profile")),
        device="GPU" if on_gpu(tools) else "CPU",
        steps=len(rows),
        step_ms=sum(float(row["stepTimeMs"]) for row in rows) / len(rows),
        shares=step_shares(tools),
        compute_16bit=compute_16bit(tools),
        operations_on=where,
        operations=longest,
        layers=None if scopes is None else layer_times(operation_times(tools), scopes),
        slowest_stage=slowest_stage(tools, declared.stages if declared else (), distributed),
        input_time=input_time(tools, distributed),
        peak_memory_bytes=max(peaks, default=None),
    )


def _files(run: Run, options: Mapping[str, Any]) -> list[Path]:
    """One for each host. Raises ProfileError if there are none."""
    sessions = sorted(run.file("profile").glob("plugins/profile/*/"))
    files = sorted(sessions[-1].glob("*.xplane.pb")) if sessions else []
    if files:
        return files
    profiled = options.get("run.profile", "off")
    if profiled == "off":
        raise ProfileError(f"{run.name} has no profile\ntrain with {ASK} to get one")
    steps = (run.result or {}).get("steps")
    ended = f"the run ended after step {steps}" if steps is not None else "the run has not reached them yet"
    raise ProfileError(f"{run.name} has no profile of its steps {profiled} yet\n{ended}")


def _no_gpu(run: Run) -> str:
    """A refusal of CUPTI, NVIDIA's profiler, is only in the log."""
    problem = "the run trained on a GPU, but its profile has no data of the GPU"
    try:
        with open_regular(run.file("engine.log")) as stream:
            refusal = next((match[0].decode() for line in stream if (match := _CUPTI_ERROR.search(line))), "")
    except OSError:
        refusal = ""
    why = refusal or "usually because the driver allows only administrators to profile"
    return f"{problem}: {why}\n{RIGHTS}"


def _ask_xprof(files: Sequence[Path]) -> Tools:
    command = [sys.executable, "-P", "-m", "gputui.engine.profile.xprof_process", *map(str, files)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=READ_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"XProf did not finish reading the profile within {READ_SECONDS:.0f} s\n{files[0]}"
        ) from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
        reason = lines[-1] if lines else f"it ended with exit code {done.returncode}"
        if done.returncode < 0:
            reason = f"it was ended by {signal.Signals(-done.returncode).name}"
        raise ProfileError(f"XProf cannot read {files[0]}\n{reason}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# ---- in words ----------------------------------------------------------------------------------


HOST_ON_CPU = "Python, outside the graph"
PLACES = {"GPU": "operations on the GPU", "GPU kernels": "kernels on the GPU", "CPU": "operations on the CPU"}
MOST = 3  # operations in brief
LEAST_SHARE = 0.005  # smaller parts of the step are left out


def shares(report: ProfileReport) -> Iterator[tuple[str, float]]:
    """Yield the known parts of a step, in the order of PROFILE: the words for each and its share (0 to 1)."""
    for field, figure in PROFILE.items():
        value: float | None = getattr(report.shares, field)
        if value is not None:
            yield HOST_ON_CPU if field == "host" and report.device == "CPU" else figure.label, value


def in_brief(report: ProfileReport) -> list[str]:
    """Return the parts of a step, the slowest input stage and the longest operations, if known."""
    parts = ", ".join(f"{words} {share(value)}" for words, value in shares(report) if value >= LEAST_SHARE)
    lines = [f"a step of {amount(report.step_ms)} ms on the {report.device}: {parts}"]
    stage = report.slowest_stage
    if stage is not None:
        lines.append(f"slowest input stage: {stage.name}, {share(stage.share)} of the input's own time")
    if report.operations:
        most = ", ".join(f"{kind(operation)} {share(operation.share)}" for operation in report.operations[:MOST])
        lines.append(f"{PLACES[report.operations_on]} that take most: {most}")
    return lines


def kind(operation: Operation) -> str:
    """Return the type of an operation, or the operation's own name if its type is unknown."""
    return operation.type or operation.name


WIDTH = 60
MOST_LAYERS = 12  # longest layers, each in a line


def lines(report: ProfileReport) -> Iterator[str]:
    """Yield all figures of a profile: the parts of a step, the input, the longest operations and layers."""
    steps = counted(report.steps, "steps")
    yield f"profile of {steps} on the {report.device}, {amount(report.step_ms)} ms each, read by XProf"
    yield from (f"  {share(value):>5}  {words}" for words, value in shares(report))
    if (stage := report.slowest_stage) is not None:
        op = f" ({stage.op})" if stage.op != stage.name else ""
        each = f", {amount(stage.ms_per_batch)} ms per batch" if stage.ms_per_batch is not None else ""
        yield f"slowest input stage: {stage.name}{op}, {share(stage.share)} of the input's own time{each}"
        if (times := report.input_time) is not None:
            parts = {
                "preparing": times.preprocessing_ms,
                "reading files": times.reading_ms,
                "transfer to the device": times.transfer_ms,
                "other": times.other_ms,
            }
            yield f"input's own time: {', '.join(f'{name} {amount(ms)} ms' for name, ms in parts.items() if ms)}"
    if report.operations:
        yield f"{PLACES[report.operations_on]} that take most, over the whole profile:"
    for operation in report.operations:
        name = _shortened(operation.name, keep_front=report.operations_on == "GPU kernels")
        yield f"  {amount(operation.ms):>7} ms {share(operation.share):>5}  {name}  {operation.type}".rstrip()
    yield from _layers(report)
    if report.compute_16bit is not None:
        yield f"{share(report.compute_16bit)} of the device's computing in 16 bits"
    if report.peak_memory_bytes is not None:
        yield f"{size(report.peak_memory_bytes)} of tensors at most"
    yield f"for TensorBoard and XProf: {report.path}"


def _layers(report: ProfileReport) -> Iterator[str]:
    if not report.layers:
        if report.layers is not None:
            yield "no operation has the name of a layer: with compile.xla=false they have"
        return
    longest, more = report.layers[:MOST_LAYERS], report.layers[MOST_LAYERS:]
    rows = [
        (_shortened(layer.name, keep_front=False), layer.share, amount(layer.forward_ms), amount(layer.backward_ms))
        for layer in longest
    ]
    if more:
        forward_ms = sum(layer.forward_ms for layer in more)
        backward_ms = sum(layer.backward_ms for layer in more)
        others = counted(len(more), "more layers")
        rows.append((others, sum(layer.share for layer in more), amount(forward_ms), amount(backward_ms)))
    yield f"layers that take most, as shares of all {PLACES[report.operations_on]} (ms forward, ms backward):"
    for name, part, forward, backward in rows:
        yield f"  {share(part):>5}  {forward:>8} {backward:>8}  {name}"
    outside = max(0.0, 1 - sum(layer.share for layer in report.layers))
    yield f"  {share(outside):>5}  {'':>8} {'':>8}  outside of layers: optimizer, loss, metrics"


def _shortened(name: str, keep_front: bool) -> str:
    # The beginning says what a kernel does, the end what an operation is.
    if len(name) <= WIDTH:
        return name
    return f"{name[: WIDTH - 3]}..." if keep_front else f"...{name[3 - WIDTH :]}"
