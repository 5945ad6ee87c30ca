"""Logs that other programs have written, as events of a run: TensorBoard's event files and the table of Keras'
CSVLogger. An event file is a sequence of records (TFRecord: length, checksum of the length, data, checksum of the
data), each an `Event` in the format of Protocol Buffers, with the fields of event.proto, summary.proto and
tensor.proto. What is no scalar is skipped, and checksums are not looked at.
"""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files.reading import why
from ..files.values import finite, harmless
from .events import EpochEnd, Event, Finished, Phase, Progress, Started, Warn
from .run import RunError

TENSORBOARD = "*.tfevents.*"
SEVERAL = 3  # trainings that are named
MOST_BYTES = 1 << 16  # of a record of scalars; histograms and pictures may be larger
# A folder, or a part of a figure's name, that says of which data it is, and what then stands before its name.
DATA = {"train": "", "validation": "val_", "val": "val_", "valid": "val_", "eval": "val_", "test": "test_"}
_LEADING = re.compile(rf"({'|'.join(DATA)})_(?=\w)")
NO_FIGURES = ("epoch", "runtime", "samples_per_second", "steps_per_second")  # of Hugging Face's Trainer, by step
_OF_EPOCH, _OF_BATCH, _AT_ITERATION = "epoch_", "batch_", "_vs_iterations"  # in the tags of Keras' callback


@dataclass
class OtherLog:
    """The events of a log, each with its Unix time, and the content of result.json. `files` were read; `place` is the
    folder of the training, or the table.
    """

    place: Path
    files: list[Path]
    dated: list[tuple[float, Event]] = field(default_factory=list)
    summary: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass
class _Point:
    """The figures after a step; those after an epoch have its number, from 1."""

    t: float
    step: int
    epoch: int | None = None
    figures: dict[str, float | None] = field(default_factory=dict)


def is_path(text: str) -> bool:
    return "/" in text or text.endswith(".csv")


def read(path: Path) -> OtherLog:
    """Raise RunError if the path has no such log, or those of several trainings."""
    try:
        files = sorted(path.rglob(TENSORBOARD)) if path.is_dir() else [path]
        if not files:
            tables = sorted(path.glob("*.csv"))
            of_tables = f"; it has {tables[0].name}: name that file" if tables else ""
            raise RunError(f"{path} is no run, and has no event files of TensorBoard{of_tables}")
        log = OtherLog(_training_of(files[0].resolve()), files)
        points = _of_tensorboard(path, log) if ".tfevents." in files[0].name else _of_table(log)
    except OSError as fault:
        raise RunError(f"{path} cannot be read: {why(fault)}") from None
    if not points:
        raise RunError(f"{path} has no figures (yet): an epoch must have ended")
    log.dated = list(_events(points, log))
    return log


def _events(points: list[_Point], log: OtherLog) -> Iterator[tuple[float, Event]]:
    began, last = points[0].t, points[-1]
    whole_seconds = last.t - began or None
    ended = [point for point in points if point.epoch]
    epochs = max((point.epoch or 0 for point in ended), default=0)
    per_epoch = ended[-1].step // (ended[-1].epoch or 1) if ended else None
    yield began, Started(
        pid=0, versions={}, devices=[], options={}, actual={}, replicas=1, global_batch_size=None,
        steps_per_epoch=per_epoch, epochs=epochs, steps=last.step, train_samples=None, validation_samples=None,
    )  # fmt: skip
    yield began, Phase(phase="training")
    for message in log.warnings:
        yield began, Warn(kind="log", message=message)
    before, latest, epoch = began, dict[str, float | None](), 0
    for point in points:
        rate = point.figures.pop("learning_rate", None)
        latest |= point.figures
        of_training = {name: value for name, value in point.figures.items() if not name.startswith(("val_", "test_"))}
        metrics = {name: value for name, value in of_training.items() if name != "loss"}
        yield point.t, Progress(
            epoch=point.epoch or epoch + 1, epochs=epochs, step=point.step, steps=last.step, samples_per_second=None,
            step_ms_p50=None, step_ms_p95=None, input_wait=None, loss=of_training.get("loss"), metrics=metrics,
            eta_seconds=None, window_loss=None if point.epoch else of_training.get("loss"), learning_rate=rate,
        )  # fmt: skip
        if point.epoch:
            seconds = point.t - before if whole_seconds else None
            yield point.t, EpochEnd(epoch=point.epoch, step=point.step, metrics=point.figures, seconds=seconds)
            epoch, before = point.epoch, point.t
    log.summary = {"outcome": "ok", "epochs": epochs, "steps": last.step, "metrics": latest, "seconds": whole_seconds}
    yield last.t, Phase(phase="ended")
    yield last.t, Finished(outcome="ok", summary=log.summary)


# ---- the table of CSVLogger ------------------------------------------------------------------------


def _of_table(log: OtherLog) -> list[_Point]:
    # It has no times and no steps: all of it is as old as the file, and an epoch counts as a step.
    path = log.files[0]
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        head = stream.readline()
        separator = max(",;\t", key=head.count)
        names = [harmless(name.strip()) for name in next(csv.reader([head], delimiter=separator), [])]
        if "epoch" not in names:
            raise RunError(f"{path} is no table of Keras' CSVLogger: its first line has no column `epoch`")
        t, points = path.stat().st_mtime, []
        for number, row in enumerate(csv.reader(stream, delimiter=separator), 2):
            figures = {name: _number(text) for name, text in zip(names, row, strict=False)}
            epoch = figures.pop("epoch", None)
            if epoch is None or len(row) < len(names):
                log.warnings += [f"line {number} of {path.name} is left out: it is not complete"] if row else []
                continue
            points.append(_Point(t, int(epoch) + 1, int(epoch) + 1, figures))
    return points


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # CSVLogger writes NA
        return None


# ---- TensorBoard -----------------------------------------------------------------------------------


def _training_of(file: Path) -> Path:
    """Return the folder of the training to which an event file belongs; of a table the file."""
    if ".tfevents." not in file.name:
        return file
    return file.parent.parent if file.parent.name in DATA else file.parent


def _of_tensorboard(path: Path, log: OtherLog) -> list[_Point]:
    trainings = sorted({str(_training_of(file)) for file in log.files})
    if len(trainings) > 1:
        named = ", ".join(trainings[:SEVERAL]) + (" ..." if len(trainings) > SEVERAL else "")
        raise RunError(f"{path} has the logs of {len(trainings)} trainings; name one of {named}")
    epochs, points, at_steps = dict[int, _Point](), dict[int, _Point](), list[tuple[float, int]]()
    for file in log.files:
        for t, step, tag, value in _scalars(file, log):
            before = DATA.get(file.parent.name, "")
            if tag.startswith(_OF_EPOCH):  # Keras' epochs begin with 0
                point = epochs.setdefault(step + 1, _Point(t, step + 1, step + 1))
                point.t = max(point.t, t)
                point.figures[before + tag.removeprefix(_OF_EPOCH)] = value
            elif tag.endswith(_AT_ITERATION):
                at_steps.append((t, step))
            elif tag.rpartition("/")[2] not in NO_FIGURES:
                if tag.startswith(_OF_BATCH):
                    at_steps.append((t, step))
                point = points.setdefault(step, _Point(t, step))
                point.figures[_figure(before, tag.removeprefix(_OF_BATCH))] = value
    for point in epochs.values():
        point.step = max((step for t, step in at_steps if t <= point.t), default=point.step)
    if not epochs:  # of another program than Keras: an evaluation ends what is shown as an epoch
        evaluated = [point for _, point in sorted(points.items()) if any(n.startswith("val_") for n in point.figures)]
        for number, point in enumerate(evaluated or [points[max(points)]] if points else [], 1):
            point.epoch = number
    return sorted([*points.values(), *epochs.values()], key=lambda point: (point.step, point.epoch or 0))


def _figure(before: str, tag: str) -> str:
    """Return Keras' name of a figure: `val_loss` for `Loss/val`, `eval/loss` and `val_loss`."""
    parts = harmless(tag).lower().split("/")
    data = next((part for part in parts if part in DATA), "")
    name = "_".join(part for part in parts if part != data) or data
    if not data and not before and (leading := _LEADING.match(name)):
        data, name = leading[1], name[leading.end() :]
    return (before or DATA.get(data, "")) + name


def _scalars(file: Path, log: OtherLog) -> Iterator[tuple[float, int, str, float | None]]:
    """Yield the time, step, tag and value of each scalar of an event file, up to a record that is damaged."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        while len(head := stream.read(12)) == 12:
            length = struct.unpack("<Q", head[:8])[0]
            if length > size - stream.tell():
                log.warnings.append(
                    f"{file.name} ends within a record: from byte {stream.tell() - 12:,} on it is left out"
                )
                return
            if length > MOST_BYTES:
                stream.seek(length + 4, 1)
                continue
            data = stream.read(length + 4)[:-4]
            try:
                event = _message(data)
                if 5 not in event:
                    continue
                t, step = struct.unpack("<d", event[1][0])[0], int(event.get(2, [0])[0])
                for part in _message(event[5][0]).get(1, []):
                    of = _message(part)
                    if (value := _scalar(of)) is not None:
                        yield t, step, of[1][0].decode("utf-8", "replace"), finite(value)
            except (LookupError, struct.error, TypeError):
                log.warnings.append(f"{file.name} has a damaged record, which is left out")


def _scalar(value: Mapping[int, list[Any]]) -> float | None:
    """Return the number of a Summary.Value; None if it has none, or several."""
    if 2 in value:  # simple_value
        return float(struct.unpack("<f", value[2][0])[0])
    if 8 not in value:
        return None
    tensor = _message(value[8][0])
    form = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}.get(int(tensor.get(1, [0])[0]), "")
    content = next((tensor[number][0] for number in (4, 5, 6) if number in tensor), b"")  # content, or a list of values
    is_one = form and isinstance(content, bytes) and len(content) == struct.calcsize(form)
    return float(struct.unpack(form, content)[0]) if is_one else None


def _message(data: bytes) -> dict[int, list[Any]]:
    """Return the fields of a message by their numbers: a varint as an int, all else as bytes."""
    fields, at = dict[int, list[Any]](), 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            number, at = _varint(data, at)
            fields.setdefault(key >> 3, []).append(number)
        else:
            length, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else _varint(data, at)
            fields.setdefault(key >> 3, []).append(data[at : at + length])
            at += length
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value, at, shift = value | (data[at] & 0x7F) << shift, at + 1, shift + 7
    return value | data[at] << shift, at + 1
