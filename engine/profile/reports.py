"""Reports what a run's profile shows: where the time of a step goes, the longest operations, the slowest input stage.
XProf reads it in a process of its own (xprof_process.py); xprof_tables.py interprets its tables.
"""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..figures import PROFILE
from ..files.reading import open_regular
from ..runs import Run
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, InputStages, Started
from ..runs.launched_with import options_of
from ..units import amount, share
from . import xprof_tables
from . import xprof_tables as tables
from .layer_times import LayerTime, layer_times, scopes_of
from .xprof_tables import InputStage, InputTime, Operation, Shares

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

    path: Path  # the log folder to give to XProf or TensorBoard
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
    """Read the newest profile of the run. This takes a second or more. Raises ProfileError."""
    options = options_of(run)
    files = _files(run, options)
    if importlib.util.find_spec("xprof") is None:
        raise ProfileError("XProf, which reads profiles, is not installed\npip install 'xprof>=2.24' adds it")
    try:
        return _report(run, options, _ask_xprof(files))
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, OSError) as fault:
        what = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
        raise ProfileError(f"XProf gave an unexpected answer ({what}) for\n{files[0]}") from fault


def from_plain(values: Mapping[str, Any]) -> ProfileReport:
    """Return the report from plain values, such as those in proof.json. Raises KeyError or TypeError if a value is
    missing or has another form.
    """
    stage, time, layers = values["slowest_stage"], values["input_time"], values.get("layers")
    parts: dict[str, Any] = {
        "path": Path(values["path"]),
        "shares": Shares(**values["shares"]),
        "operations": tuple(Operation(**operation) for operation in values["operations"]),
        "layers": None if layers is None else tuple(LayerTime(**layer) for layer in layers),
        "slowest_stage": InputStage(**stage) if stage else None,
        "input_time": InputTime(**time) if time else None,
    }
    return ProfileReport(**(dict(values) | parts))


def _report(run: Run, options: Mapping[str, Any], tools: tables.Tools) -> ProfileReport:
    if not tables.on_gpu(tools) and _trained_on_gpus(run):
        raise ProfileError(_no_gpu(run))
    rows = tables.step_rows(tools)
    if not rows:
        raise ProfileError(_no_steps(options))
    distributed = options.get("strategy.kind", "single") != "single"
    where, operations = tables.operations(tools)
    scopes = scopes_of(run.file("profile"))
    return ProfileReport(
        path=run.file("profile"),
        device="GPU" if tables.on_gpu(tools) else "CPU",
        steps=len(rows),
        step_ms=sum(float(row["stepTimeMs"]) for row in rows) / len(rows),
        shares=tables.shares(tools),
        compute_16bit=tables.compute_16bit(tools),
        operations_on=where,
        operations=operations,
        layers=None if scopes is None else layer_times(tables.operation_times(tools), scopes),
        slowest_stage=xprof_tables.slowest_stage(tools, _declared(run), distributed),
        input_time=xprof_tables.input_time(tools, distributed),
        peak_memory_bytes=_peak(tools["memory"]),
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


def _trained_on_gpus(run: Run) -> bool:
    started = read_events(run.path, [EVENTS_FILE]).last(Started)
    return any("GPU:" in name for name in (started.devices if started else ()))


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


def _no_steps(options: Mapping[str, Any]) -> str:
    together = options.get("compile.steps_per_execution", 1)
    if together != 1:
        return f"XProf cannot distinguish steps if {together} of them run in one execution\nprofile with {ASK}"
    return f"XProf finds no complete step in the profile\nprofile more steps: {ASK}"


def _ask_xprof(files: Sequence[Path]) -> tables.Tools:
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
        raise ProfileError(f"XProf cannot read {files[0]}\n{_reason(done.returncode, done.stderr)}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _reason(code: int, stderr: str) -> str:
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    return lines[-1] if lines else f"it ended with exit code {code}"


def _declared(run: Run) -> Sequence[Mapping[str, Any]]:
    last = read_events(run.path, [EVENTS_FILE]).last(InputStages)
    return last.stages if last else ()


def _peak(allocators: Mapping[str, Mapping[str, Any]]) -> int | None:
    # of the GPUs, else of the host
    on_gpus = {name: summary for name, summary in allocators.items() if name.startswith("GPU_")}
    return max((peak for summary in (on_gpus or allocators).values() for peak in _peaks(summary)), default=None)


def _peaks(summary: Mapping[str, Any]) -> Iterator[int]:
    for value in (summary.get("peakBytesUsageLifetime"), summary.get("peakStats", {}).get("peakBytesInUse")):
        if value is not None:
            yield int(value)


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
    """Return the parts of a step (of at least LEAST_SHARE), the slowest input stage and the longest operations, if
    known.
    """
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
