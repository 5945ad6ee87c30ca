"""The figures of a GPU that its gauges do not show: activity, clocks, traffic, errors, partitions, processes. If a
figure is not available, the reason is shown in a word."""

from __future__ import annotations

from ...engine.figures import GPU, of_run
from ...engine.leases.free_gpus import idle_hours
from ...engine.units import clock, count, gibibytes, percent, seconds, size
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.gpu_reading import FREE, Gpu, GpuProcess
from .rows import Row, fit, fitting, length

LABEL = 7
PAIRED = 76  # from this width on two of them share a row
LEFT, GAP = 42, 2  # the least width of the first of two, of which these cells stay empty

# The figures in the gauges and the head of a card.
_OF_THE_HEAD = (
    "busy",
    "memory_used_bytes",
    "temperature_c",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "throttle",
)


def whole(gpu: Gpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return all figures of a GPU, with the reason in place of one that is missing, and processes as there is room."""
    rows = [row for row, _ in (*_lease(gpu, width, glyphs), *_rows(gpu, width))]
    settings = clean(", ".join(gpu.clocks_set_by or ()))
    rows += [[_label("clocks"), (fitting(f"set by {settings}", width - LABEL, glyphs), "value")]] if settings else []
    rows += [[_label("lacks"), (fitting(_missing(gpu), width - LABEL, glyphs), "warn")]] if _missing(gpu) else []
    return (rows + _processes(gpu, width, max(1, height - len(rows)), glyphs))[:height]


def noteworthy_rows(gpu: Gpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the rows of a GPU that show something noteworthy, at most `height`, the most important first."""
    activity, *rest = _rows(gpu, width)
    alarms = [_narrow(row, width) for row in _alarms(gpu)]
    rows = [row for row, tells in (*alarms, *_lease(gpu, width, glyphs), activity, *_strangers(gpu), *rest) if tells]
    return rows[:height]


def whole_height(width: int) -> int:
    return (4 if width >= PAIRED else 8) + 2


# ---- rows, each with whether it is noteworthy ------------------------------------------------------

_NotedRow = tuple[Row, bool]
_WIDTHS = {
    GPU[key].unit: width for key, width in (("busy", 5), ("pcie_rx_bytes_per_second", 10), ("memory_clock_mhz", 9))
}


def _rows(gpu: Gpu, width: int) -> list[_NotedRow]:
    pairs = ((_activity, _clocks), (_energy, _slowed), (_pcie, _nvlink), (_errors, _mig))
    if width < PAIRED:
        return [_narrow(tell(gpu), width) for pair in pairs for tell in pair]
    row_pairs = [(left(gpu), right(gpu)) for left, right in pairs]
    room = width - max(length(right[0]) for _, right in row_pairs)
    column = max(LEFT, min(room, GAP + max(length(left[0]) for left, _ in row_pairs)))
    return [_side_by_side(left, right, column, width) for left, right in row_pairs]


def _side_by_side(left: _NotedRow, right: _NotedRow, column: int, width: int) -> _NotedRow:
    return [*fit(_cut(left[0], column - GAP), column), *_cut(right[0], width - column)], left[1] or right[1]


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


def _activity(gpu: Gpu) -> _NotedRow:
    of_chip, memory = ("sm_active", "tensor_active", "dram_active"), "memory_busy"
    reasons = {_reason(gpu, key) for key in of_chip if gpu.value(key) is None}
    if gpu.memory_busy is not None and len(reasons) == 1 and all(gpu.value(key) is None for key in of_chip):
        return [_label("active"), *_named(gpu, memory), (f" others {reasons.pop()}", "label")], True
    return _figures(gpu, "active", (memory, *of_chip) if gpu.dram_active is None else (*of_chip, memory))


def _clocks(gpu: Gpu) -> _NotedRow:
    row: Row = [_label("memory"), *_named(gpu, "memory_clock_mhz")]
    return row if gpu.mean else [*row, ("  ", "label"), *_named(gpu, "pstate")], False


def _slowed(gpu: Gpu) -> _NotedRow:
    # The share of the time since the first reading, noteworthy from 1 % on, then the total of the driver's counters.
    if not gpu.slowed:
        return [_label("slowed"), (_reason(gpu, "slowed_by_power_seconds"), "label")], False
    row: Row = [_label("slowed")]
    for cause, part in gpu.slowed.items():
        if part or cause in _USUAL:
            row += [(f"{cause.replace('_', ' ')} ", "label"), (f"{percent(part):>5} ", "warn" if part else "value")]
    return [*row, *_slowed_in_all(gpu)], any(part >= _TELLING for part in gpu.slowed.values())


_USUAL = ("power", "heat")  # the causes that are shown even if they have not held the clock down
_TELLING = 0.01


def _slowed_in_all(gpu: Gpu) -> Row:
    # All counters are 0 with some drivers.
    by_cause = {cause: gpu.value(f"slowed_by_{cause}_seconds") for cause in gpu.slowed}
    counted = [f"{cause.replace('_', ' ')} {seconds(value)}" for cause, value in by_cause.items() if value]
    return [(f" in all: {', '.join(counted)}", "label")] if counted else []


def _energy(gpu: Gpu) -> _NotedRow:
    # The second figure, since the driver was loaded, is that of the whole GPU, also for a MIG instance.
    if gpu.energy_j is None:
        return [_label("energy"), (_reason(gpu, "energy_j"), "label")], False
    row: Row = [_label("energy")]
    if gpu.energy_wh is not None:
        row += [(f"{ENERGY.text(gpu.energy_wh)} ", "value"), ("so far, ", "label")]
    whole = " of the whole card" if gpu.mig is not None else ""
    return [*row, (f"{gpu.energy_j / JOULES_PER_KWH:,.1f} kWh", "value"), (f" in all{whole}", "label")], False


ENERGY = of_run("gpu_energy_wh")
JOULES_PER_KWH = 3_600_000


def _pcie(gpu: Gpu) -> _NotedRow:
    return _figures(gpu, "PCIe", ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"))


def _nvlink(gpu: Gpu) -> _NotedRow:
    if gpu.nvlink_links is None:
        return [_label("NVLink"), (_reason(gpu, "nvlink"), "label")], False
    row, tells = _figures(gpu, "NVLink", ("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"))
    links = GPU["nvlink_links"]
    return [*row, (f"  {links.text(gpu.nvlink_links)} {links.label}", "label")], tells


def _errors(gpu: Gpu) -> _NotedRow:
    if gpu.ecc_corrected is None and gpu.ecc_uncorrected is None:
        return [_label("ECC"), (_reason(gpu, "ecc_errors"), "label")], False
    return [_label("ECC"), *_counted(gpu)], False


def _counted(gpu: Gpu) -> Row:
    corrected, uncorrected = gpu.ecc_corrected or 0, gpu.ecc_uncorrected or 0
    if not corrected and not uncorrected:
        return [("no errors", "value")]
    return [
        (f"{count(corrected)} {GPU['ecc_corrected'].label}, ", "value"),
        (f"{count(uncorrected)} {GPU['ecc_uncorrected'].label}", "bad" if uncorrected else "value"),
    ]


def _mig(gpu: Gpu) -> _NotedRow:
    if gpu.mig is None:
        return [_label("MIG"), ("off", "value") if gpu.mig_off else (_reason(gpu, "mig"), "label")], False
    return [_label("MIG"), *_instances(gpu)], False


def _instances(gpu: Gpu) -> Row:
    """Return pieces with the number of MIG instances, and the used and total memory of each."""
    count = len(gpu.mig or ())
    if not count:
        return [("on, no instances", "warn")]
    row: Row = [(f"{count} instance{'s' if count > 1 else ''}", "value")]
    for instance in gpu.mig or ():
        memory = f"{gibibytes(instance.memory_used_bytes)}/{gibibytes(instance.memory_total_bytes)} GiB"
        row += [("  ", "label"), (memory, "value")]
    return row


def _alarms(gpu: Gpu) -> list[_NotedRow]:
    alarms: list[_NotedRow] = [([_label("ECC"), *_counted(gpu)], True)] if gpu.ecc_uncorrected else []
    return alarms + ([([_label("MIG"), *_instances(gpu)], True)] if gpu.mig is not None else [])


def _lease(gpu: Gpu, width: int, glyphs: Glyphs) -> list[_NotedRow]:
    text = clean(gpu.lease)
    style = "warn" if text.startswith("stuck") else "value"
    return [([_label("lease"), (fitting(text, width - LABEL, glyphs), style)], text != FREE)] if text else []


def _strangers(gpu: Gpu) -> list[_NotedRow]:
    others = [process for process in gpu.processes or () if process.own is False]
    if not gpu.ours or not others:
        return []
    names = ", ".join(f"{clean(process.name or process.pid)} {size(process.memory_used_bytes)}" for process in others)
    return [([_label("also"), (names, "warn")], True)]


def _processes(gpu: Gpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    if not gpu.processes:
        return [[_label("procs"), ("none" if gpu.processes is not None else _reason(gpu, "processes"), "label")]]
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
    """Return the share of time in which the process uses the chip, or for how long it has been idle, as text. Empty if
    the driver reports neither."""
    if process.use is None or process.idle_seconds is None:
        return ""
    if process.idle_seconds == 0 and not process.idle_at_least:
        return f"busy {percent(process.use)}"
    if hours := idle_hours(process.idle_seconds):
        return f"idle for {hours} h"
    return f"idle {'at least ' * process.idle_at_least}{clock(process.idle_seconds)}"


def _missing(gpu: Gpu) -> str:
    return ", ".join(f"{GPU[key].label}: {gpu.why(key)}" for key in _OF_THE_HEAD if key in gpu.reasons)


# ---- figures ---------------------------------------------------------------------------------------


def _figures(gpu: Gpu, label: str, keys: tuple[str, ...]) -> _NotedRow:
    if all(gpu.value(key) is None for key in keys):
        return [_label(label), (_reason(gpu, keys[0]), "label")], False
    row: Row = [_label(label)]
    for number, key in enumerate(keys):
        row += [(" " * (number > 0), "label"), *_named(gpu, key)]
    return row, True


def _named(gpu: Gpu, key: str) -> Row:
    figure, value = GPU[key], gpu.value(key)
    name = (f"{figure.narrow or figure.label} ", "label")
    if value is None:
        return [name, (_reason(gpu, key), "label")]
    return [name, (f"{figure.text(value):>{_WIDTHS.get(figure.unit, 0)}}", "value")]


def _reason(gpu: Gpu, key: str) -> str:
    return clean(gpu.why(key))
