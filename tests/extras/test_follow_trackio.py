"""Followers write to Trackio: on this machine and on a server, also after kills."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import follow_start as start
from tests.doors.tui import tui_cli as cli
from tests.support.followed import Written


@pytest.fixture
def written(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    return Written(home / "runs" / "20260101-000000-small")


def rows(folder: Path) -> list[dict[str, Any]]:
    """What Trackio reads of the only run of the project."""
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    assert folder == utils.TRACKIO_DIR
    (run,) = SQLiteStorage.get_run_records("gputui")
    assert run["name"] == "20260101-000000-small"
    return list(SQLiteStorage.get_logs("gputui", run["name"], run_id=run["id"]))


def test_kills_lose_and_double_nothing(written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trackio import sqlite_storage, utils

    for module in (utils, sqlite_storage):  # read when they are imported, in this process by an earlier test
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    written.train(range(1, 801))

    def number() -> int:
        return start.state(written.run.path, "trackio").place.number

    for _ in range(3):
        before, process = number(), start.start(written.run.path, "trackio")
        while number() == before:
            time.sleep(0.01)
        process.kill()
        process.wait()
        written.train(range(before + 801, before + 803))
    steps = [*range(1, 801)]
    written.finish("ok", 900)
    assert cli.run(["follow", written.run.id, "--to", "trackio"]) == 0
    table = rows(tmp_path / "trackio")
    assert [row["step"] for row in table][:800] == steps
    assert len(table) == 807
    assert (table[3]["loss"], table[3]["gpu0_busy"], table[-1]["result/step_ms.p50"]) == (0.25, 0.04, 2.5)
    assert table[0]["timestamp"].startswith("2023-11-14T22:13:20.5")
    (config,) = [sqlite_storage.SQLiteStorage.get_run_config("gputui", written.run.id)]
    assert config is not None
    assert (config["run.checkpoint"], config["outcome"]) == ("epoch", "ok")
