"""The progress of `gputui prepare` on stderr: one bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ...engine.prepare import preparing
from ..base.errors import clean, complain
from ..base.terminal import in_cell

LINE_SECONDS = 10.0  # between two lines if there is no terminal


class LineView:
    """Prints a line about the progress at most every LINE_SECONDS."""

    def __init__(self) -> None:
        self._due: float | None = None  # LINE_SECONDS after the first progress

    def say(self, text: str) -> None:
        complain(text)

    def show(self, progress: preparing.Progress) -> None:
        now = time.monotonic()
        if self._due is not None and now >= self._due:
            complain(_figures(progress))
        if self._due is None or now >= self._due:
            self._due = now + LINE_SECONDS


class BarView(LineView):
    """Shows the progress as a bar in the last line."""

    def __init__(self, bar: Progress) -> None:
        super().__init__()
        self._bar = bar
        self._task = bar.add_task("", total=None, figures="")

    def say(self, text: str) -> None:
        self._bar.console.print(clean(text), markup=False, highlight=False)

    def show(self, progress: preparing.Progress) -> None:
        self._bar.update(self._task, completed=progress.samples, total=progress.all_samples, figures=_figures(progress))


@contextmanager
def progress_view() -> Iterator[LineView]:
    """Yield the view for standard error as it is: a terminal or not."""
    if not sys.stderr.isatty() or in_cell():
        yield LineView()
        return
    columns = BarColumn(bar_width=20), TextColumn("{task.fields[figures]}", markup=False), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as bar:
        yield BarView(bar)


def _figures(progress: preparing.Progress) -> str:
    broken = f", {progress.broken:,} broken" if progress.broken else ""
    samples = f"{progress.samples:,} of {progress.all_samples:,} samples"
    return f"{samples}, {progress.files} of {progress.all_files} files{broken}"
