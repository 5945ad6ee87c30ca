"""The card of a GPU (load and memory and, as there is room, activity, clocks, traffic, errors, partitions, processes),
and the rows of the host. If a figure is not available, the reason is shown in a word."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from ...engine.figures import GPU, HOST, at, of_run
from ...engine.files.values import EMPTY
from ...engine.gpu import EccErrors, GpuProcess, MigInstance
from ...engine.runs.events import HostReading
from ...engine.units import clock, count, gibibytes, percent, seconds, size
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.gpu_reading import FREE, ShownGpu
from ..reading.run.snapshot import Snapshot
from .plot.axes import soon
from .plot.canvas import curve_rows, draw
from .plot.curves import Curve, Plot
from .rows import Row, fit, fitting, gauge, hanging, headline, kept_items, length, whole_words

_BUSY = f"{GPU['busy'].label} "
WIDE = 76  # from this width on, one line has room for all of a GPU's figures
WITH_AXES = 6  # from this height on the history has axes
HISTORY_ROWS = 2  # of the history on a card that also shows other figures
LABEL = 7
PAIRED = 76  # from this width on two of them share a row
LEFT, GAP = 42, 2  # the least width of the first of two, of which these cells stay empty

# The figures in the gauges and the head of a card.
_OF_THE_HEAD = ("busy", "memory_used_bytes", "temperature_c", "power_w", "power_limit_w", "sm_clock_mhz", "throttle")


def card(gpu: ShownGpu, x_end: float, width: int, height: int, glyphs: Glyphs, all_of_it: bool = False) -> list[Row]:
    """Return a GPU's card: a history to `x_end` seconds in the rows that are left; `all_of_it`: every figure."""
    if gpu.missing:
        return _lost(gpu, width, height, glyphs)
    if height == 1:
        return [_line(gpu, width, glyphs) if width >= WIDE else _short_line(gpu, width, glyphs)]
    if height == 2:
        left = [*_busy(gpu, max(0, width // 3 - 13), glyphs), ("  ", "")]
        return [_head(gpu, width, glyphs), [*left, *_memory(gpu, width - length(left), glyphs)]]
    room = height - 2 - HISTORY_ROWS + bool(gpu.lease)  # its row is taken from the history
    more = (whole if all_of_it else noteworthy_rows)(gpu, width, max(0, room), glyphs)
    history = _history(gpu, x_end, width, height - 2 - len(more), glyphs)
    return [_head(gpu, width, glyphs), *history, _memory(gpu, width, glyphs), *(fit(row, width) for row in more)]


def _lost(gpu: ShownGpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    reason = f"{glyphs.failed} no readings: {clean(gpu.missing)}"
    # In one line first its part in parentheses is left out.
    brief = reason if len(reason) <= width - 7 else reason.partition(" (")[0]
    lines = textwrap.wrap(reason, max(10, width - 7)) if height > 1 else [whole_words(brief, width - 7, glyphs)]
    rows = hanging((lines + [""] * height)[:height], "bad", _number(gpu, glyphs))
    return [fit(row, width) for row in rows]


def _number(gpu: ShownGpu, glyphs: Glyphs) -> Row:
    return [("GPU ", "label"), (f"{gpu.index:<2}", "title"), (glyphs.point if gpu.ours else " ", "title")]


def _throttled(gpu: ShownGpu, glyphs: Glyphs) -> Row:
    return [(f"{glyphs.warn} {', '.join(gpu.throttle)}  ", "warn")] if gpu.throttle else []


def _warmth(gpu: ShownGpu) -> Row:
    limit = f"/{GPU['power_limit_w'].bare(gpu.power_limit_w)}" if gpu.power_limit_w is not None else ""
    return [*_value(gpu, "temperature_c", 3), (" ", "label"), *_value(gpu, "power_w", 4, limit)]


def _value(gpu: ShownGpu, key: str, width: int, limit: str = "") -> Row:
    figure = GPU[key]
    return [(f"{figure.bare(gpu.value(key)):>{width}}{limit}", trouble(gpu, key)), (f" {figure.unit}", "label")]


def _clock(gpu: ShownGpu) -> Row:
    return _value(gpu, "sm_clock_mhz", 7)


def _head(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    right = _warmth(gpu) + (_clock(gpu) if width >= 46 else [])
    sign: Row = [(glyphs.warn, "warn")] if gpu.throttle else []
    marks = [[(" ", ""), *_throttled(gpu, glyphs)], _throttled(gpu, glyphs), sign]
    lefts = [[*_number(gpu, glyphs), *mark] for mark in marks]
    left = next((row for row in lefts if length(row) + length(right) <= width), lefts[-1])
    words = clean(gpu.name or "").removeprefix("NVIDIA ").split()
    while words and len(" ".join(words)) > width - length(left) - length(right) - 1:
        words.pop()
    return headline([*left, (" ".join(words), "label")], right, width, glyphs.rule)


def _line(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    right: Row = [("  ", ""), *_warmth(gpu), *_clock(gpu)] if width >= WIDE + 10 else [("  ", ""), *_warmth(gpu)]
    if gpu.throttle:
        right += [(f" {glyphs.warn} {gpu.throttle[0]}", "warn")]
    room = width - length(right) - 8
    busy = max(6, room // 4)
    left = [*_number(gpu, glyphs), *_busy(gpu, busy - 6, glyphs), (" ", "")]
    left += _memory(gpu, width - length(left) - length(right), glyphs)
    return [*fit(left, width - length(right)), *right]


def _short_line(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    """One row with the most important figures for a narrow card, with names if there is room."""
    taken = (f" {_gib(gpu.memory_used_bytes)}", trouble(gpu, "memory_used_bytes"))
    right = [taken, (" GiB" if width >= 50 else " G", "label"), (" ", "value"), *_value(gpu, "temperature_c", 3)]
    right += [(" ", "value"), *_value(gpu, "power_w", 3)] if width >= 42 else []
    right += [(f" {glyphs.warn}" if gpu.throttle else "  ", "warn")]
    left: Row = [(f"{gpu.index:>2}{glyphs.point if gpu.ours else ' '}", "title")]
    left += [(_BUSY if width >= 50 else "", "label"), (f"{percent(gpu.busy)} ", "value")]
    return [*left, *_gauge(gpu, width - length(left) - length(right), glyphs), *right]


def _busy(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    value = f" {percent(gpu.busy)}"
    if gpu.busy is None and 0 < len(why := _why(gpu, "busy")) <= width + len(value):
        return [(_BUSY, "label"), (why.center(width + len(value)), "warn")]
    return [(_BUSY, "label"), *gauge(width, gpu.busy, 1.0, glyphs), (value, "value")]


def _why(gpu: ShownGpu, figure: str) -> str:
    return clean(gpu.why(figure)) if figure in (gpu.reasons or ()) else ""


def _history(gpu: ShownGpu, x_end: float, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The share of busy time over the whole run, to `x_end` seconds, with its present value at the left."""
    plot = Plot(_BUSY.strip(), "", (Curve("", gpu.history),), bounds="share", x_end=x_end, final=True)
    if height >= WITH_AXES and width >= 46 and gpu.busy is not None:
        return draw(plot, width, height, glyphs)[0]
    labels = [_BUSY.strip(), percent(gpu.busy)] + [""] * height
    clock = _clock(gpu) if width < 46 else []
    rows: list[Row] = []
    for number, row in enumerate(curve_rows(plot, max(1, width - 7 - length(clock)), height, glyphs)):
        label = labels[number] if height > 1 else percent(gpu.busy)
        head = [(f"{label:<6}", "value" if "%" in label else "label"), (glyphs.axis, "track")]
        if gpu.busy is None and number == height // 2 and (why := _why(gpu, "busy")):
            row = [(f" {why}", "warn")]
        rows.append(fit([*head, *row, *(clock if number == height - 1 else [])], width))
    return rows


def _memory(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    """A gauge of used and total memory, followed by TensorFlow's own figures if there is room."""
    taken = trouble(gpu, "memory_used_bytes")
    right: Row = [(" peak", "label")] if gpu.mean else []
    right += [(f" {_gib(gpu.memory_used_bytes)}/{_gib(gpu.memory_total_bytes)}", taken), (" GiB", "label")]
    if width >= 56 and gpu.tf_peak_bytes is not None:
        right += [(f"  {GPU['tf_current_bytes'].label}", "label")]
        right += [] if gpu.mean else [(f" {_gib(gpu.tf_current_bytes)}", "value")]
        right += [(f" {GPU['tf_peak_bytes'].label} ", "label"), (_gib(gpu.tf_peak_bytes), "value")]
    if gpu.shared_with_host:
        right += [(" shared with host", "label")]
    elif gpu.memory_used_counts_reserved and width >= 56:
        right += [(" with the driver's own", "label")]
    room = width - 7 - length(right)
    return fit([(f"{GPU['memory_used_bytes'].label} ", "label"), *_gauge(gpu, room, glyphs), *right], width)


def _gauge(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    why, style = _why(gpu, "memory_used_bytes"), trouble(gpu, "memory_used_bytes")
    style = "curve1" if style == "value" else style
    return gauge(width, used, total, glyphs, gpu.tf_current_bytes, gpu.tf_peak_bytes, why=why, style=style)


def _gib(value: float | None) -> str:
    # In four characters, such as 61.4 or " 512".
    return f"{gibibytes(value):>4}"


# ---- all figures of a GPU ------------------------------------------------------------------------


def whole(gpu: ShownGpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return all figures of a GPU, with the reason in place of one that is missing, and processes as there is room."""
    rows = [row for row, _ in (*_lease(gpu, width, glyphs), *_rows(gpu, width))]
    settings = clean(", ".join(gpu.clocks_set_by or ()))
    rows += [[_label("clocks"), (fitting(f"set by {settings}", width - LABEL, glyphs), "value")]] if settings else []
    rows += [[_label("lacks"), (fitting(_missing(gpu), width - LABEL, glyphs), "warn")]] if _missing(gpu) else []
    return (rows + _processes(gpu, width, max(1, height - len(rows)), glyphs))[:height]


def noteworthy_rows(gpu: ShownGpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the rows of a GPU that show something noteworthy, at most `height`, the most important first."""
    activity, *rest = _rows(gpu, width)
    errors = gpu.ecc_errors
    alarms = [[_label("ECC"), *_counted(errors)]] if errors and errors.uncorrected else []
    alarms += [[_label("MIG"), *_instances(gpu.instances)]] if gpu.instances is not None else []
    noted = [_narrow((row, True), width) for row in alarms]
    noted += [*_lease(gpu, width, glyphs), activity, *_strangers(gpu), *rest]
    return [row for row, tells in noted if tells][:height]


def whole_card(width: int) -> int:
    """Return the height of a card of this width with all figures, two processes and two rows of history of a GPU."""
    return 4 + (4 if width > PAIRED else 8) + 2


# ---- rows, each with whether it is noteworthy ------------------------------------------------------

_NotedRow = tuple[Row, bool]
_WIDTHS = {
    GPU[key].unit: width for key, width in (("busy", 5), ("pcie_rx_bytes_per_second", 10), ("memory_clock_mhz", 9))
}


def _rows(gpu: ShownGpu, width: int) -> list[_NotedRow]:
    pairs = ((_activity, _clocks), (_energy, _slowed), (_pcie, _nvlink), (_errors, _mig))
    if width < PAIRED:
        return [_narrow(tell(gpu), width) for pair in pairs for tell in pair]
    row_pairs = [(left(gpu), right(gpu)) for left, right in pairs]
    room = width - max(length(right[0]) for _, right in row_pairs)
    column = max(LEFT, min(room, GAP + max(length(left[0]) for left, _ in row_pairs)))
    return [
        ([*fit(_cut(left, column - GAP), column), *_cut(right, width - column)], tells or tells_too)
        for (left, tells), (right, tells_too) in row_pairs
    ]


def _narrow(noted_row: _NotedRow, width: int) -> _NotedRow:
    # A row that is too long first loses the blanks that align its figures.
    row, tells = noted_row
    if length(row) > width:
        row = [(text.lstrip() if style == "value" else text, style) for text, style in row]
    return _cut(row, width), tells


def _cut(row: Row, width: int) -> Row:
    # No piece is cut, as a part of a figure reads as another figure. A name without its value is removed, too.
    if length(row) <= width:
        return row
    while row and (length(row) > width or row[-1][1] == "label"):
        row = row[:-1]
    return row


def _label(text: str) -> tuple[str, str]:
    return f"{text:<{LABEL}}", "label"


def _activity(gpu: ShownGpu) -> _NotedRow:
    of_chip, memory = ("sm_active", "tensor_active", "dram_active"), "memory_busy"
    reasons = {clean(gpu.why(key)) for key in of_chip if gpu.value(key) is None}
    if gpu.memory_busy is not None and len(reasons) == 1 and all(gpu.value(key) is None for key in of_chip):
        return [_label("active"), *_named(gpu, memory), (f" others {reasons.pop()}", "label")], True
    return _figures(gpu, "active", (memory, *of_chip) if gpu.dram_active is None else (*of_chip, memory))


def _clocks(gpu: ShownGpu) -> _NotedRow:
    row: Row = [_label("memory"), *_named(gpu, "memory_clock_mhz")]
    return row if gpu.mean else [*row, ("  ", "label"), *_named(gpu, "pstate")], False


def _slowed(gpu: ShownGpu) -> _NotedRow:
    # The share of the time since the first reading, noteworthy from 1 % on, then the total of the driver's counters.
    if not gpu.slowed:
        return [_label("slowed"), (clean(gpu.why("slowed_by_power_seconds")), "label")], False
    row: Row = [_label("slowed")]
    for cause, part in gpu.slowed.items():
        if part or cause in _USUAL:
            row += [(f"{cause.replace('_', ' ')} ", "label"), (f"{percent(part):>5} ", "warn" if part else "value")]
    # All counters are 0 with some drivers.
    by_cause = {cause: gpu.value(f"slowed_by_{cause}_seconds") for cause in gpu.slowed}
    counted = [f"{cause.replace('_', ' ')} {seconds(value)}" for cause, value in by_cause.items() if value]
    row += [(f" in all: {', '.join(counted)}", "label")] if counted else []
    return row, any(part >= _TELLING for part in gpu.slowed.values())


_USUAL = ("power", "heat")  # the causes that are shown even if they have not held the clock down
_TELLING = 0.01


def _energy(gpu: ShownGpu) -> _NotedRow:
    # The second figure, since the driver was loaded, is that of the whole GPU, also for a MIG instance.
    if gpu.energy_j is None:
        return [_label("energy"), (clean(gpu.why("energy_j")), "label")], False
    row: Row = [_label("energy")]
    if gpu.energy_wh is not None:
        row += [(f"{ENERGY.text(gpu.energy_wh)} ", "value"), ("so far, ", "label")]
    whole = " of the whole card" if gpu.in_mig_mode else ""
    return [*row, (f"{gpu.energy_j / JOULES_PER_KWH:,.1f} kWh", "value"), (f" in all{whole}", "label")], False


ENERGY = of_run("gpu_energy_wh")
JOULES_PER_KWH = 3_600_000


def _pcie(gpu: ShownGpu) -> _NotedRow:
    return _figures(gpu, "PCIe", ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"))


def _nvlink(gpu: ShownGpu) -> _NotedRow:
    if gpu.nvlink is None:
        return [_label("NVLink"), (clean(gpu.why("nvlink")), "label")], False
    row, tells = _figures(gpu, "NVLink", ("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"))
    links = GPU["nvlink_links"]
    return [*row, (f"  {links.text(gpu.nvlink.links)} {links.label}", "label")], tells


def _errors(gpu: ShownGpu) -> _NotedRow:
    if gpu.ecc_errors is None:
        return [_label("ECC"), (clean(gpu.why("ecc_errors")), "label")], False
    return [_label("ECC"), *_counted(gpu.ecc_errors)], False


def _counted(errors: EccErrors) -> Row:
    corrected, uncorrected = errors.corrected or 0, errors.uncorrected or 0
    if not corrected and not uncorrected:
        return [("no errors", "value")]
    return [
        (f"{count(corrected)} {GPU['ecc_corrected'].label}, ", "value"),
        (f"{count(uncorrected)} {GPU['ecc_uncorrected'].label}", "bad" if uncorrected else "value"),
    ]


def _mig(gpu: ShownGpu) -> _NotedRow:
    if gpu.instances is None:
        return [_label("MIG"), ("off", "value") if gpu.mig is None else (clean(gpu.why("mig")), "label")], False
    return [_label("MIG"), *_instances(gpu.instances)], False


def _instances(instances: Sequence[MigInstance]) -> Row:
    """Return pieces with the number of MIG instances, and the used and total memory of each."""
    count = len(instances)
    if not count:
        return [("on, no instances", "warn")]
    row: Row = [(f"{count} instance{'s' if count > 1 else ''}", "value")]
    for instance in instances:
        memory = f"{gibibytes(instance.memory_used_bytes)}/{gibibytes(instance.memory_total_bytes)} GiB"
        row += [("  ", "label"), (memory, "value")]
    return row


def _lease(gpu: ShownGpu, width: int, glyphs: Glyphs) -> list[_NotedRow]:
    text = clean(gpu.lease)
    style = "warn" if text.startswith("stuck") else "value"
    return [([_label("lease"), (fitting(text, width - LABEL, glyphs), style)], text != FREE)] if text else []


def _strangers(gpu: ShownGpu) -> list[_NotedRow]:
    others = [process for process in gpu.processes or () if process.own is False]
    if not gpu.ours or not others:
        return []
    names = ", ".join(f"{clean(process.name or process.pid)} {size(process.memory_used_bytes)}" for process in others)
    return [([_label("also"), (names, "warn")], True)]


def _processes(gpu: ShownGpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    if not gpu.processes:
        return [[_label("procs"), ("none" if gpu.processes is not None else clean(gpu.why("processes")), "label")]]
    shown = gpu.processes[: height if len(gpu.processes) <= height else max(1, height - 1)]
    rows = [_process(process, number == 0, width, glyphs) for number, process in enumerate(shown)]
    hidden = len(gpu.processes) - len(shown)
    return [*rows, [_label(""), (f"and {hidden} more", "label")]] if hidden else rows


def _process(process: GpuProcess, first: bool, width: int, glyphs: Glyphs) -> Row:
    """Return the row of a process: its number, user and program, its memory, and its use of the chip."""
    does = (f"{glyphs.point} this run  " if process.own else "") + doing(process)
    room = max(6, width - LABEL - 8 - 12 - max(DOING_WIDTH, len(does)))
    who = f"{clean(process.user or '-')} {clean(process.program or '-')}" if not process.hidden else process.hidden
    return [
        _label("procs" if first else ""),
        (f"{process.pid:>7} ", "label"),
        (f"{fitting(who, room, glyphs):<{room}}", "label" if process.hidden else "value"),
        (f" {size(process.memory_used_bytes):>9}  ", "value"),
        (does, "title" if process.own else "label"),
    ]


DOING_WIDTH = 14


def doing(process: GpuProcess) -> str:
    """Return the process' share of the chip's time, or for how long it has been idle; empty if not reported."""
    if process.use is None or process.idle_seconds is None:
        return ""
    if process.idle_seconds == 0 and not process.idle_at_least:
        return f"busy {percent(process.use)}"
    if process.idle_hours:
        return f"idle for {process.idle_hours} h"
    return f"idle {'at least ' * process.idle_at_least}{clock(process.idle_seconds)}"


def _missing(gpu: ShownGpu) -> str:
    return ", ".join(f"{GPU[key].label}: {gpu.why(key)}" for key in _OF_THE_HEAD if key in (gpu.reasons or EMPTY))


# ---- figures ---------------------------------------------------------------------------------------


def _figures(gpu: ShownGpu, label: str, keys: tuple[str, ...]) -> _NotedRow:
    if all(gpu.value(key) is None for key in keys):
        return [_label(label), (clean(gpu.why(keys[0])), "label")], False
    row: Row = [_label(label)]
    for place, key in enumerate(keys):
        row += [(" " * (place > 0), "label"), *_named(gpu, key)]
    return row, True


def _named(gpu: ShownGpu, key: str) -> Row:
    figure, value = GPU[key], gpu.value(key)
    name = (f"{figure.narrow or figure.label} ", "label")
    if value is None:
        return [name, (clean(gpu.why(key)), "label")]
    return [name, (f"{figure.text(value):>{_WIDTHS.get(figure.unit, 0)}}", "value")]


# From these values on a figure is near its limit, and at it. 83 °C is the lowest "GPU Max Operating Temp" that
# `nvidia-smi -q -d TEMPERATURE` reports for NVIDIA's data centre GPUs (V100 83, A100 85, H100 87). TensorFlow takes
# most of a GPU's memory at its start: if the peak of what it has given out is known, that counts.
LIMITS = {"memory_used_bytes": (0.90, 0.97), "temperature_c": (78.0, 83.0)}
LEVELS = ("value", "moderate", "heavy")  # styles


def trouble(gpu: ShownGpu, key: str) -> str:
    """Return the style of a GPU's figure: "moderate" near its limit, "heavy" at it, else "value"."""
    value = gpu.value(key)
    if key == "memory_used_bytes":
        taken = value if gpu.tf_peak_bytes is None else gpu.tf_peak_bytes
        value = taken / gpu.memory_total_bytes if taken is not None and gpu.memory_total_bytes else None
    return LEVELS[sum(value >= limit for limit in LIMITS.get(key, ())) if value is not None else 0]


# ---- the host -------------------------------------------------------------------------------------


LEAST_GAUGE, MOST_GAUGE, MOST_HISTORY = 6, 40, 40  # cells
_CPU, _MEMORY = (f"{HOST[key].label} " for key in ("cpu", "memory_used_bytes"))
_TRAINER = f"  {HOST['trainer_cpu'].label} "


def no_gpu(now: Snapshot, width: int) -> list[Row]:
    """Return one row with the reason why there is no GPU, which does not look like an error."""
    on_gpu = now.started is not None and any("GPU" in name for name in now.started.devices)
    what = "no GPU readings" if on_gpu else "no GPU"
    reason = f"{what}: {clean(now.no_gpu_reason)}" if now.no_gpu_reason else "no GPU readings so far"
    shorter = (reason, re.sub(r" *\([^)]*\)", "", reason), reason.partition(":")[0])
    return [[(next((text for text in shorter if len(text) <= width), shorter[-1]), "label")]]


def host_line(now: Snapshot, width: int, glyphs: Glyphs, alone: bool = False) -> Row:
    """Return the host's figures in one row, as there is room. `alone`: on a screen without a run."""
    name = "host  " if now.outcome is None else "mean  " if now.host_is_mean else "last  "  # as narrow
    cpu: Row = [(name, "label"), (_CPU, "label"), (percent(at(now.host, "cpu")), "value")]
    memory: Row = [(f"  {_MEMORY}", "label"), (_used_of_total(now.host), "value")]
    room = width - length(cpu) - LEAST_GAUGE - 1
    own: list[Row] = []
    if not alone:
        trainer, engine = (size(at(now.host, f"{name}_bytes")) for name in ("trainer", "engine"))
        # The trainer's CPU use and memory, unless its process had ended before the last reading.
        if now.outcome is None or at(now.host, "trainer_bytes"):
            own = [[(_TRAINER, "label"), (_cores(now.host), "value")], [(f" {trainer:>8}", "value")]]
        own.append([(f"  {HOST['engine_bytes'].label} ", "label"), (engine, "value")])
    items = kept_items([memory, *own, *_further(now)], room)
    row = [*cpu, *(piece for item in items for piece in item)]
    left = width - length(row) - 1
    if left < LEAST_GAUGE or memory not in items:
        return row
    place = row.index(memory[0]) + 1
    history = min(MOST_HISTORY, left - LEAST_GAUGE - 2)
    gauge_width = min(MOST_GAUGE, left - (history + 2 if history >= LEAST_GAUGE else 0))
    row[place:place] = [*_host_gauge(now, gauge_width, glyphs), (" ", "")]
    if history >= LEAST_GAUGE:
        row[3:3] = [("  ", ""), *fit(curve_rows(_of_cpu(now), history, 1, glyphs)[0], history)]
    return row


def _of_cpu(now: Snapshot) -> Plot:
    return Plot(_CPU.strip(), "", (Curve("", now.line("cpu")),), bounds="share", x_end=soon(now.elapsed), final=True)


def host(now: Snapshot, width: int, height: int, glyphs: Glyphs, alone: bool = False) -> list[Row]:
    """Return the host in place of GPUs: why there are none (not if `alone`), its CPUs, memory and tensors."""
    name = "host  " if now.outcome is None else "mean while training  " if now.host_is_mean else "last reading  "
    left = [(name, "title"), *([] if alone else no_gpu(now, max(0, width - 40))[0])]
    right = [(f"  {_CPU}", "label"), (percent(at(now.host, "cpu")), "value")]
    for more in (*_further(now), [] if alone else [(_TRAINER, "label"), (_cores(now.host), "value")]):
        right += more if length(left) + length(right) + length(more) <= width else []
    head = headline(left, right, width, glyphs.rule)
    history = draw(_of_cpu(now), width, max(2, height - 1), glyphs)[0][1:]
    return [head, *history, _host_memory(now, width, glyphs, alone)]


def _further(now: Snapshot) -> list[Row]:
    shown = ((figure, at(now.host, figure.key)) for figure in HOST.values() if "host" in figure.shown)
    return [
        [(f"  {figure.label} ", "label"), (percent(value) if figure.unit == "share" else figure.text(value), "value")]
        for figure, value in shown
        if value is not None
    ]


def _host_memory(now: Snapshot, width: int, glyphs: Glyphs, alone: bool) -> Row:
    tensors, trainer = now.tf_host.get("peak_bytes"), at(now.host, "trainer_bytes")
    right = [(f" {_used_of_total(now.host)}", "value")]
    if not alone and trainer:  # 0 once its process has ended
        right += [(_TRAINER, "label"), (size(trainer), "value")]
    if tensors is not None:
        right += [("  tensors", "label")]
        right += [] if now.host_is_mean else [(f" {size(now.tf_host.get('current_bytes'))}", "value")]
        right += [(" peak ", "label"), (size(tensors), "value")]
    room = max(4, width - length(right) - 8)
    return fit([(_MEMORY, "label"), *_host_gauge(now, room, glyphs), *right], width)


def _host_gauge(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    used, total, trainer = (at(now.host, key) for key in ("memory_used_bytes", "memory_total_bytes", "trainer_bytes"))
    return gauge(width, used, total, glyphs, trainer)


def _used_of_total(host: HostReading | None) -> str:
    used, total = (at(host, key) for key in ("memory_used_bytes", "memory_total_bytes"))
    return f"{gibibytes(used):>4}/{gibibytes(total):>4} GiB"


def _cores(host: HostReading | None) -> str:
    figure = HOST["trainer_cpu"]
    return f"{figure.bare(at(host, figure.key)):>4} {figure.unit}"
