"""The host as rows: one line below the GPUs, or a panel with the history of its CPUs where there is no GPU.

It is also shown without a run, and then has no figures of a trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engine.figures import HOST
from ...engine.text import gibibytes, percent, share, size
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.store import Snapshot, number
from .gauge import gauge
from .plot import Curve, Plot, curve_rows, soon
from .rows import Row, fit, headline, length

_CPU, _MEMORY = (f"{HOST[key].label} " for key in ("cpu", "memory_used_bytes"))
_TRAINER = f"  {HOST['trainer_cpu'].label} "


def host_line(now: Snapshot, width: int, glyphs: Glyphs, alone: bool = False) -> Row:
    """The host in one row; `alone`: without a run."""
    left: Row = [("host   ", "label"), (_CPU, "label"), (percent(number(now.host.get("cpu"))), "value")]
    left += _io_wait(now) if alone or width >= 110 else []
    left += [(f"  {_MEMORY}", "label")]
    right = [(f" {_used_of_total(now.host)}", "value")]
    if not alone:
        right += [(_TRAINER, "label"), (_trainer(now.host), "value")]
        engine = size(number(now.host.get("engine_bytes")))
        right += [(f"  {HOST['engine_bytes'].label} ", "label"), (engine, "value")] if width >= 110 else []
    room = max(4, width - length(left) - length(right) - 1)
    return fit([*left, *_host_gauge(now, room, glyphs), *right], width)


def host(now: Snapshot, width: int, height: int, glyphs: Glyphs, alone: bool = False) -> list[Row]:
    """The host in place of the GPUs: why there is no GPU, CPU use over time, memory with TensorFlow's share.

    `alone`: without a run, on a screen that already says why there is no GPU.
    """
    what = "no GPU readings" if any("GPU" in str(name) for name in now.started.get("devices") or ()) else "no GPU"
    reason = f"{what}: {clean(now.no_gpu_reason)}" if now.no_gpu_reason else "no GPU readings so far"
    left = [("host  ", "title"), *([] if alone else [(reason, "warn" if now.no_gpu_reason else "label")])]
    right = [(f"  {_CPU}", "label"), (percent(number(now.host.get("cpu"))), "value")]
    for more in (_io_wait(now), [] if alone else [(_TRAINER, "label"), (_cores(now.host), "value")]):
        right += more if length(left) + length(right) + length(more) <= width else []
    rows = [headline(left, right, width, glyphs.rule)]
    tall = max(1, height - 2)
    plot = Plot(_CPU.strip(), "", (Curve("", now.line("cpu")),), bounds="share", x_end=soon(now.elapsed), final=True)
    labels = {0: share(1), tall - 1: share(0)} if tall > 1 else {}
    for position, row in enumerate(curve_rows(plot, width - 8, tall, glyphs)):
        edge = glyphs.tick if position in labels else glyphs.axis
        rows.append([(f"{labels.get(position, ''):>6}", "label"), (edge, "track"), *row])
    return [*rows, _host_memory(now, width, glyphs, alone)]


def _io_wait(now: Snapshot) -> Row:
    """The share of the CPUs that wait for the disk, where the system reports it."""
    waits = number(now.host.get("io_wait"))
    return [(f"  {HOST['io_wait'].label} ", "label"), (percent(waits), "value")] if waits is not None else []


def _host_memory(now: Snapshot, width: int, glyphs: Glyphs, alone: bool) -> Row:
    tensors = number(now.tf_host.get("peak_bytes"))
    right = [(f" {_used_of_total(now.host)}", "value")]
    if not alone and now.host.get("trainer_bytes"):  # 0 once its process has ended
        right += [(_TRAINER, "label"), (size(number(now.host.get("trainer_bytes"))), "value")]
    if tensors is not None:
        right += [("  tensors ", "label"), (size(number(now.tf_host.get("current_bytes"))), "value")]
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


def _trainer(host: Mapping[str, Any]) -> str:
    return f"{_cores(host)} {size(number(host.get('trainer_bytes'))):>8}"
