"""How figures are written, exported and reported."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from benchmarks.gpu_report import text
from benchmarks.gpu_report.text import ROOT as ROOT_report
from tests.doors.engine import Run, history, read_events
from tests.support.front_door import gputui

# ---- A run's figures on their way out ------------------------------------------------------------


EVENTS = [
    {"t": 10.0, "type": "phase", "phase": "training"},
    {"t": 12.0, "type": "progress", "epoch": 1, "step": 5, "samples_per_second": None, "loss": 2.0,
     "metrics": {"accuracy": 0.25}, "traces": 1},
    {"t": 14.0, "type": "progress", "epoch": 1, "step": 9, "samples_per_second": 90.5, "loss": 1.5, "metrics": {}},
    {"t": 15.0, "type": "epoch", "epoch": 1, "step": 10, "seconds": 5.0,
     "metrics": {"loss": 1.4, "val_loss": 1.6, "val_accuracy": None}},
]  # fmt: skip
TELEMETRY = [
    {"t": 13.0, "type": "gpu", "gpus": [{"index": 1, "busy": 0.5, "power_w": None}]},
    {"t": 13.5, "type": "host", "cpu": 0.75, "memory_used_bytes": 7},
]


@pytest.fixture
def run(home: Path) -> Run:
    """A run as it stands on disk."""
    folder = home / "runs" / "20260101-000000-small"
    folder.mkdir(parents=True)
    for name, events in (("events.jsonl", EVENTS), ("telemetry.jsonl", TELEMETRY)):
        (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "preset.yaml").write_text("schema_version: 1\n")
    return Run(folder)


def test_rows_hold_what_was_known_at_each_moment(run: Run) -> None:
    first, second, epoch = history.rows(read_events(run.path).events)
    assert first == {"t": 12.0, "seconds": 0.0, "epoch": 1, "step": 5, "loss": 2.0, "accuracy": 0.25}
    newest = {"samples_per_second": 90.5, "gpu1_busy": 0.5, "host_cpu": 0.75}
    assert second == {"t": 14.0, "seconds": 2.0, "epoch": 1, "step": 9, "loss": 1.5} | newest
    assert epoch == {"t": 15.0, "seconds": 3.0, "epoch": 1, "step": 10, "epoch_seconds": 5.0, "val_loss": 1.6}


def test_csv_and_json_lines_through_the_command(run: Run, tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(gputui("history", run.id).stdout)))
    assert [row["step"] for row in table] == ["5", "9", "10"]
    assert (table[0]["samples_per_second"], table[1]["samples_per_second"]) == ("", "90.5")
    lines = [json.loads(line) for line in gputui("history", "--jsonl").stdout.splitlines()]
    assert [event["t"] for event in lines] == [10.0, 12.0, 13.0, 13.5, 14.0, 15.0]
    told = gputui("history", run.id, "-o", str(tmp_path / "out.csv"))
    assert "written" in told.stdout
    assert (tmp_path / "out.csv").read_text().startswith("t,seconds,")


# ---- The report of a first hour on a GPU ---------------------------------------------------------


def test_the_report_names_no_user_no_machine_and_none_of_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "jane.doe")
    monkeypatch.setenv("HOME", "/home/jane.doe")
    monkeypatch.setenv("PWD", "/data/My secret project")
    monkeypatch.setattr("socket.gethostname", lambda: "doe-box.lab.example")
    planted = (
        "/data/My secret project/train.py: no file", "read ~/thesis/run.py", "at '/mnt/thesis/secret/a b.py'",
        "ssh Jane.Doe@doe-box", "doe-box.lab.example: GPU-12345678-1234-1234-1234-123456789abc", "user jane.doe.",
        "jane@lab.example", f"{ROOT_report}/engine/x.py", "/home/jane.doe", "file:///home/other/secret/x",
    )  # fmt: skip
    shown = text.anonymous("\n".join(planted))
    for word in ("jane", "doe", "thesis", "secret", "/mnt", "lab", "12345678", ROOT_report.name + "/", "other"):
        assert word not in shown.lower(), shown
    kept = (
        "| 12.5 samples/s | /device:GPU:0 | /job:localhost/replica:0/task:0 |",
        "see /dev/shm and /usr/lib/libcuda.so, with / without",
        "9.10.2.21, https://docs.nvidia.com/cuda/x, driver 580.10, NVIDIA H100 80GB HBM3",
    )
    for line in kept:
        assert text.anonymous(line) == line
