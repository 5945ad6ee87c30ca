"""The command `gputui history`: writes a run's figures as CSV, as JSON Lines, or as a folder for TensorBoard; or the
schema of its events."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

from ...engine import runs as run_folders
from ...engine.files.values import to_json
from ...engine.files.writing import refuse_existing, write_new
from ...engine.follow import to_tensorboard
from ...engine.presets import SHIPPED
from ...engine.runs import Run, event_reading, history
from ...engine.runs.event_reading import RunEvents
from ...engine.runs.events import fields_of
from ...engine.runs.run import WAITING
from ..base.errors import STDOUT, Refused, clean, complain

SCHEMA = SHIPPED / "run-schema.json"  # made by docs/tables.py


def show_history(name: str, form: str, output: str | None) -> None:
    """Write the figures of the named run over time. `form` is csv, jsonl or tensorboard; or schema, for any run.
    `output` is the file to write, or the folder for tensorboard; Refused is raised if it exists. If it is None or `-`,
    csv and jsonl are printed; without it the folder has the id of the run as its name."""
    if form == "schema":
        _write(SCHEMA.read_text(encoding="utf-8"), output)
        return
    run = run_folders.find(name)
    if output == STDOUT and form != "tensorboard":
        output = None
    if output is not None:
        refuse_existing(Path(output))
    if form == "tensorboard":
        _to_tensorboard(run, Path(output or run.id))
        return
    recorded = event_reading.read_events(run.path)
    for damage in recorded.damage:
        complain(f"{run.name}: {damage}")
    text = _as_csv(run, recorded) if form == "csv" else _as_json_lines(recorded)
    _write(text, output)


def _write(text: str, output: str | None) -> None:
    if output is None or output == STDOUT:
        sys.stdout.write(text)
    else:
        write_new(Path(output), text)
        print(f"{clean(output)} written")


def _as_csv(run: Run, recorded: RunEvents) -> str:
    table = history.rows(recorded.events)
    if not table:
        goes_on = run.is_active or run.state == WAITING
        why = " so far" if goes_on else ": it ended before its first step"
        raise Refused(f"{run.name} has no figures{'' if recorded.damage else why}")
    out = io.StringIO()
    writer = csv.DictWriter(out, history.columns(table), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _as_json_lines(recorded: RunEvents) -> str:
    return "".join(to_json(fields_of(event), short=True) + "\n" for event in recorded.events)


def _to_tensorboard(run: Run, folder: Path) -> None:
    refuse_existing(folder)
    if (path := to_tensorboard.write_all(run, folder)) is None:
        raise Refused(f"{run.name} has no figures")
    print(f"{clean(str(path))} written; tensorboard --logdir {clean(str(folder))} shows it")
