"""The host as rows: one line below the GPUs, or a panel with the history of its CPUs if there is no GPU. If it is shown
without a run, it has no figures of a trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...engine.figures import HOST
from ...engine.files.values import number
from ...engine.units import gibibytes, percent, size
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.snapshot import Snapshot
from ..reading.run.store import MEAN
from .plot.canvas import curve_rows, draw
from .plot.curves import Curve, Plot
from .plot.scales import soon
from .rows import Piece, Row, fit, gauge, headline, kept_items, length

# nvitop 1.7, nvitop/tui/library/device.py: GPU_UTILIZATION_THRESHOLDS, which it applies to power of the limit, too,
# and MEMORY_UTILIZATION_THRESHOLDS, in percent.
BUSY = POWER = (0.10, 0.75)
MEMORY = (0.10, 0.80)
# nvitop has none for temperatures. 83 °C is the lowest "GPU Max Operating Temp" that `nvidia-smi -q -d TEMPERATURE`
# reports for NVIDIA's data centre GPUs (V100 83, A100 85, H100 87); 65 °C is usual under load.
TEMPERATURE_C = (65.0, 83.0)

LEVELS = ("light", "moderate", "heavy")


def level(value: float | None, thresholds: tuple[float, float]) -> str:
    """Return "light", "moderate" or "heavy", also the name of its style; "value" if the load is not known."""
    if value is None:
        return "value"
    return LEVELS[sum(value >= threshold for threshold in thresholds)]


def busy(share: float | None) -> str:
    return level(share, BUSY)


def memory(used: float | None, total: float | None) -> str:
    return level(used / total if used is not None and total else None, MEMORY)


def power(watts: float | None, limit: float | None) -> str:
    return level(watts / limit if watts is not None and limit else None, POWER)


def temperature(celsius: float | None) -> str:
    return level(celsius, TEMPERATURE_C)


LEAST_GAUGE, MOST_GAUGE, MOST_HISTORY = 6, 40, 40  # cells
_CPU, _MEMORY = (f"{HOST[key].label} " for key in ("cpu", "memory_used_bytes"))
_TRAINER = f"  {HOST['trainer_cpu'].label} "


def no_gpu(now: Snapshot, width: int) -> list[Row]:
    """Return one row with the reason why there is no GPU, which does not look like an error."""
    reason = _no_gpu(now)
    shorter = (reason, re.sub(r" *\([^)]*\)", "", reason), reason.partition(":")[0])
    return [[(next((text for text in shorter if len(text) <= width), shorter[-1]), "label")]]


def _no_gpu(now: Snapshot) -> str:
    what = "no GPU readings" if any("GPU" in str(name) for name in now.started.get("devices") or ()) else "no GPU"
    return f"{what}: {clean(now.no_gpu_reason)}" if now.no_gpu_reason else "no GPU readings so far"


def host_line(now: Snapshot, width: int, glyphs: Glyphs, alone: bool = False) -> Row:
    """Return the host's figures in one row, as there is room. `alone`: on a screen without a run."""
    name = "host  " if now.outcome is None else "mean  " if now.host.get(MEAN) else "last  "  # as narrow
    cpu: Row = [(name, "label"), (_CPU, "label"), _load(number(now.host.get("cpu")))]
    memory: Row = [(f"  {_MEMORY}", "label"), (_used_of_total(now.host), "value")]
    room = width - length(cpu) - LEAST_GAUGE - 1
    items = kept_items([memory, *([] if alone else _processes(now)), *_further(now)], room)
    row = [*cpu, *(piece for item in items for piece in item)]
    left = width - length(row) - 1
    if left < LEAST_GAUGE or memory not in items:
        return row
    at = row.index(memory[0]) + 1
    history = min(MOST_HISTORY, left - LEAST_GAUGE - 2)
    gauge_width = min(MOST_GAUGE, left - (history + 2 if history >= LEAST_GAUGE else 0))
    row[at:at] = [*_host_gauge(now, gauge_width, glyphs), (" ", "")]
    if history >= LEAST_GAUGE:
        row[3:3] = [("  ", ""), *_history(now, history, glyphs)]
    return row


def _processes(now: Snapshot) -> list[Row]:
    """Return items of the row: the trainer's CPU use and memory, unless it has ended, and the engine's memory."""
    trainer, engine = (size(number(now.host.get(f"{name}_bytes"))) for name in ("trainer", "engine"))
    items: list[Row] = [[(_TRAINER, "label"), (_cores(now.host), "value")], [(f" {trainer:>8}", "value")]]
    if now.outcome is not None and not now.host.get("trainer_bytes"):  # its process had ended before the last reading
        items = []
    return [
        *items,
        [(f"  {HOST['engine_bytes'].label} ", "label"), (engine, "value")],
    ]


def _history(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    plot = Plot(_CPU.strip(), "", (Curve("", now.line("cpu")),), bounds="share", x_end=soon(now.elapsed), final=True)
    return fit(curve_rows(plot, width, 1, glyphs)[0], width)


def host(now: Snapshot, width: int, height: int, glyphs: Glyphs, alone: bool = False) -> list[Row]:
    """Return the host in place of the GPUs: why there is none (not if `alone`), CPU use, memory and TensorFlow's
    share."""
    name = "host  " if now.outcome is None else "mean while training  " if now.host.get(MEAN) else "last reading  "
    left = [(name, "title"), *([] if alone else no_gpu(now, max(0, width - 40))[0])]
    right = [(f"  {_CPU}", "label"), _load(number(now.host.get("cpu")))]
    for more in (*_further(now), [] if alone else [(_TRAINER, "label"), (_cores(now.host), "value")]):
        right += more if length(left) + length(right) + length(more) <= width else []
    head = headline(left, right, width, glyphs.rule)
    plot = Plot(_CPU.strip(), "", (Curve("", now.line("cpu")),), bounds="share", x_end=soon(now.elapsed), final=True)
    return [head, *draw(plot, width, max(2, height - 1), glyphs)[0][1:], _host_memory(now, width, glyphs, alone)]


def _load(cpu: float | None) -> Piece:
    return percent(cpu), busy(cpu)


def _further(now: Snapshot) -> list[Row]:
    shown = ((figure, number(now.host.get(figure.key))) for figure in HOST.values() if "host" in figure.shown)
    return [
        [(f"  {figure.label} ", "label"), (percent(value) if figure.unit == "share" else figure.text(value), "value")]
        for figure, value in shown
        if value is not None
    ]


def _host_memory(now: Snapshot, width: int, glyphs: Glyphs, alone: bool) -> Row:
    tensors = number(now.tf_host.get("peak_bytes"))
    right = [(f" {_used_of_total(now.host)}", "value")]
    if not alone and now.host.get("trainer_bytes"):  # 0 once its process has ended
        right += [(_TRAINER, "label"), (size(number(now.host.get("trainer_bytes"))), "value")]
    if tensors is not None:
        right += [("  tensors", "label")]
        right += [] if now.host.get(MEAN) else [(f" {size(number(now.tf_host.get('current_bytes')))}", "value")]
        right += [(" peak ", "label"), (size(tensors), "value")]
    room = max(4, width - length(right) - 8)
    return fit([(_MEMORY, "label"), *_host_gauge(now, room, glyphs), *right], width)


def _host_gauge(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    used, total = (number(now.host.get(f"memory_{name}_bytes")) for name in ("used", "total"))
    return gauge(width, used, total, glyphs, number(now.host.get("trainer_bytes")))


def _used_of_total(host: Mapping[str, Any]) -> str:
    used, total = (number(host.get(f"memory_{name}_bytes")) for name in ("used", "total"))
    return f"{gibibytes(used):>4}/{gibibytes(total):>4} GiB"


def _cores(host: Mapping[str, Any]) -> str:
    figure = HOST["trainer_cpu"]
    return f"{figure.bare(number(host.get(figure.key))):>4} {figure.unit}"
