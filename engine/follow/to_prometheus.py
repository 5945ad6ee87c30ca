"""The target `prometheus`: the newest figures as a text file for the textfile collector of node_exporter, replaced as a
whole, so that a scrape never reads a part of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files.writing import write_atomically
from ..follow_targets import FOLDER
from ..runs import history
from ..runs.events import Outcome
from .target import RESULT, AboutRun, Point

VARIABLE = "GPUTUI_PROMETHEUS_FOLDER"  # the folder that node_exporter reads; not set: the run folder
METRIC = "gputui_metric"  # of the user's model, by its name in a label


class Prometheus:
    """Keeps the newest value of each figure in `remote`, as a later launch may not have all."""

    def __init__(self, remote: dict[str, Any]) -> None:
        self.remote, self.where = remote, ""
        self._about: AboutRun | None = None

    def open(self, about: AboutRun, key: str) -> int | None:
        """The file's name has a part of `key`, as runs of several homes may have the same id."""
        folder = os.environ.get(VARIABLE)
        name = f"gputui-{about.id}-{key[:6]}.prom" if folder else "gputui.prom"
        self._about = about
        self.where = str(Path(folder).absolute() / name if folder else about.folder / FOLDER / name)
        return None

    def write(self, points: Sequence[Point]) -> None:
        values = dict(self.remote.get("values", {}))
        for point in points:
            values |= {"step": point.step, "t": point.t, **point.figures}
        self.remote["values"] = values
        self._replace("")

    def end(self, _about: AboutRun, outcome: Outcome) -> None:
        self._replace(outcome)

    def _replace(self, outcome: str) -> None:
        assert self._about is not None
        lines = exposition(self._about.id, self.remote.get("values", {}), outcome)
        write_atomically(Path(self.where), "".join(f"{line}\n" for line in lines), durable=False)
        os.chmod(self.where, 0o644)  # node_exporter is another user


def exposition(run_id: str, values: Mapping[str, float], outcome: str = "") -> Iterator[str]:
    """`outcome` is empty while the run goes on."""
    samples: dict[str, list[str]] = {}
    abouts: dict[str, str] = {}
    for column, value in values.items():
        name, labels, about = _named(column)
        samples.setdefault(name, []).append(f"{name}{{{_labels({'run': run_id} | labels)}}} {value!r}")
        abouts.setdefault(name, about)
    samples["gputui_ended"] = [f"gputui_ended{{{_labels({'run': run_id, 'outcome': outcome})}}} {int(bool(outcome))}"]
    abouts["gputui_ended"] = "1 if the run has ended, with its outcome"
    for name, lines in samples.items():
        yield f"# HELP {name} {_escaped(abouts[name])}"
        yield f"# TYPE {name} gauge"
        yield from lines


def _named(column: str) -> tuple[str, dict[str, str], str]:
    """Name, labels and description; metrics of the user's model are one name."""
    if column == "t":
        return "gputui_timestamp_seconds", {}, "the time of these figures, in Unix seconds"
    if column in ("step", "epoch"):
        return f"gputui_{column}", {}, f"the {column} that the training has reached"
    if column.startswith(RESULT):
        return "gputui_result", {"figure": column.removeprefix(RESULT)}, "the figures of result.json"
    device, figure = history.split(column)
    if column != "epoch_seconds" and history.figure_of(column) is None:
        return METRIC, {"metric": column}, "the model's loss and metrics, means over the epoch so far"
    name = re.sub(r"\W", "_", f"gputui_{device.rstrip('0123456789')}_{figure}" if device else f"gputui_{figure}")
    return name, {"gpu": device[3:]} if device.startswith("gpu") else {}, history.about(column)


def _labels(labels: Mapping[str, str]) -> str:
    quoted = ((name, _escaped(value).replace('"', '\\"')) for name, value in labels.items())
    return ",".join(f'{name}="{value}"' for name, value in quoted)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
