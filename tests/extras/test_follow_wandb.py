"""Followers write offline runs of W&B, also after kills; `wandb sync` would send them."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import follow_start as start
from tests.doors.tui import tui_cli as cli
from tests.support.followed import Written


@pytest.fixture
def written(home: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return Written(home / "runs" / "20260101-000000-small")


def records(path: Path) -> Iterator[Any]:
    """What W&B has written: records in the format of LevelDB's log, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, part = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part, at = part + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


def values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def whole(home: Path) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    """The run record, the rows and the summary of the only offline run."""
    (path,) = home.glob("follow/wandb/offline-run-*/run-*.wandb")
    run: Any = None
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for record in records(path):
        if record.HasField("run"):
            run = record.run
        elif record.HasField("history"):
            rows.append(values(record.history.item))
        elif record.HasField("summary"):
            summary |= values(record.summary.update)
    return run, rows, summary


def test_a_run_with_kills_is_one_offline_run_with_each_row_once(written: Written, home: Path) -> None:
    written.run.file("notes.json").write_text('{"note": "after the fix", "tags": ["best"]}')
    written.train(range(1, 301))

    def number() -> int:
        return start.state(written.run.path, "wandb").place.number

    for round_ in range(2):
        process = start.start(written.run.path, "wandb")
        while number() < 300 + 10 * round_:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
        written.train(range(301 + 10 * round_, 311 + 10 * round_))
    written.finish("stopped", 320)
    assert cli.run(["follow", written.run.id, "--to", "wandb"]) == 0
    run, rows, summary = whole(home)
    assert [row["_step"] for row in rows] == list(range(321))
    assert [row["step"] for row in rows] == [*range(1, 321), 320]
    assert (rows[3]["loss"], rows[3]["gpu0_busy"]) == (0.25, 0.04)
    assert rows[0]["_timestamp"] == pytest.approx(1_700_000_000.5)
    assert (summary["result/step_ms.p50"], summary["outcome"]) == (2.5, "stopped")
    assert (list(run.tags), run.notes, run.display_name) == (["best"], "after the fix", written.run.id)
    assert values(run.config.update)["run.checkpoint"] == "epoch"
