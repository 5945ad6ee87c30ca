"""The rows of a run's log: its lines with their levels, TensorFlow's own messages folded, and a line for each epoch."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

from ...engine.process.known_failures import RESUMED
from ...engine.runs.run_state import Epoch
from ...engine.units import counted, seconds, three_digits
from ..base.errors import clean
from ..base.glyphs import Glyphs
from .rows import Row

# How absl's C++ log (TensorFlow 2.21) begins a line: with a Unix time, or a date once it is initialised; and how
# TensorFlow's own log did before.
_ABSL = re.compile(r"([IWEF])\d{4} \d\d:\d\d:(\d+\.\d+)\s+\d+ [\w./-]+:\d+\] ")
_DATED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) ")
_PYTHON = re.compile(r"(?:\w+:)?(WARNING|ERROR|CRITICAL)\b|(?:\S+: )?\w*(Warning|Error|Exception)\b:")
_KERAS_EPOCH = re.compile(r"Epoch \d+(/\d+)?\b")
_TRACEBACK = "Traceback (most recent call last)"
# What each start of TensorFlow says although nothing is wrong, whatever level it has.
_NOISE = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "To enable the following instructions:",
    "Unable to register cuFFT factory", "Unable to register cuDNN factory", "Unable to register cuBLAS factory",
    "computation placer already registered", "TF-TRT Warning: Could not find TensorRT",
    "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",  # there is no driver
)  # fmt: skip
LEVELS = ("warn", "bad")  # styles of warnings and errors
_STYLES = {"I": "muted", "W": "warn", "E": "bad", "F": "bad"}
_METRIC = 8  # columns of "0.000572" and "5.72e-05"
_UNIX_TIME = 1e9  # a smaller number is the seconds of a minute


class LogLine(NamedTuple):
    """How a line of the log is shown. `style` names its colour. `noise` is True if the line may be folded. `t` is the
    Unix time in the line, 0 if it has none."""

    style: str
    noise: bool = False
    t: float = 0.0


class LogRow(NamedTuple):
    text: str
    style: str = ""


@lru_cache(maxsize=4096)
def judged(line: str) -> LogLine:
    is_noise = any(text in line for text in _NOISE)
    if match := _ABSL.match(line):
        t = float(match[2])
        return LogLine(
            _STYLES["I" if is_noise else match[1]], is_noise or match[1] == "I", t if t > _UNIX_TIME else 0.0
        )
    if match := _DATED.match(line):
        return LogLine(_STYLES["I" if is_noise else match[1]], is_noise or match[1] == "I")
    if is_noise:
        return LogLine("muted", noise=True)
    if line.startswith(_TRACEBACK):
        return LogLine("bad")
    if match := _PYTHON.match(line):
        return LogLine("warn" if "arn" in match[0] or "WARN" in match[0] else "bad")
    return LogLine("epoch" if _KERAS_EPOCH.match(line) else "")


def rows(
    lines: Sequence[str], arrived: Sequence[float], epochs: Sequence[Epoch], glyphs: Glyphs, key: str = "", *,
    fold: bool = True, width: int = 0, resumes: Sequence[float] = (),
) -> list[LogRow]:  # fmt: skip
    """Return the rows of the log with, by time, a row for each ended epoch. `arrived` has the Unix time at which each
    line was first read, 0 if it was there when the view was opened; `resumes` those of resumes. With `fold`, lines that
    may be folded become one row, which names the key that unfolds them. `width` limits the rows of epochs; 0 is no
    limit."""
    log_rows: list[LogRow] = []
    epochs_shown, begun = 0, False
    for noise, group in groupby(_timed(lines, arrived, resumes), key=lambda item: fold and judged(item[0]).noise):
        members = list(group)
        if noise:
            what, how = "TensorFlow" if begun else "TensorFlow's start-up", f"; {key} shows them" if key else ""
            log_rows.append(LogRow(f"{glyphs.folded} {counted(len(members), 'lines')} of {what}{how}", "fold"))
            continue
        begun = True
        for line, t in members:
            until = bisect_left(epochs, t, key=lambda item: item.t) if t else epochs_shown
            log_rows += [LogRow(epoch_text(item, width), "epoch") for item in epochs[epochs_shown:until]]
            epochs_shown = max(epochs_shown, until)
            log_rows.append(LogRow(line, judged(line).style))
    return log_rows + [LogRow(epoch_text(item, width), "epoch") for item in epochs[epochs_shown:]]


def _timed(lines: Sequence[str], arrived: Sequence[float], resumes: Sequence[float]) -> list[tuple[str, float]]:
    moments = resumed_at(lines.count(RESUMED), resumes)
    return [
        (line, next(moments) if line == RESUMED else judged(line).t or seen)
        for line, seen in zip(lines, arrived, strict=True)
    ]


def resumed_at(lines: int, resumes: Sequence[float]) -> Iterator[float]:
    """Yield the Unix times of the resumes in these lines, the last of `resumes`; infinity for one not known yet."""
    return itertools.chain(resumes[max(0, len(resumes) - lines) :], itertools.repeat(math.inf))


def epoch_text(epoch: Epoch, width: int = 0) -> str:
    """Return an epoch's number, duration, and the metrics in Keras' order that fit; with `width` 0 all."""
    of = f"/{epoch.epochs}" if epoch.epochs else ""
    number = f"epoch {epoch.number:>{len(of) - 1 if of else 0}}{of}"
    metrics = [f"{clean(name)} {three_digits(value):<{_METRIC}}" for name, value in epoch.metrics.items()]
    items = [number, f"{seconds(epoch.seconds):>6}", *metrics]
    while width and len(items) > 1 and len("  ".join(items).rstrip()) > width:
        items.pop()
    return "  ".join(items).rstrip()


def of_messages(messages: Sequence[Row]) -> list[LogRow]:
    return [
        LogRow("".join(text for text, _ in row), next((style for _, style in row if style in LEVELS), ""))
        for row in messages
    ]


def only(log_rows: Sequence[LogRow], sought: str) -> list[LogRow]:
    """Return the rows that contain the text `sought`. Upper and lower case are not distinguished."""
    return [row for row in log_rows if sought.casefold() in row.text.casefold()]


def wrapped(log_rows: Sequence[LogRow], width: int) -> list[LogRow]:
    """Return the rows, those that are longer than `width` (0: none) in several."""
    return [
        LogRow(text, row.style)
        for row in log_rows
        for text in (chop_cells(row.text, width) if cell_len(row.text) > width > 0 else [row.text])
    ]
