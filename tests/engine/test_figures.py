"""How figures are written, exported and reported."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_report import text
from benchmarks.gpu_report.text import ROOT as ROOT_report
from tests.doors.engine import Run, history, read_events, units
from tests.support.front_door import gputui

# ---- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "given", "shown"),
    [
        (units.amount, 0.0, "0"), (units.amount, 1.5670578368644907e19, "1.57e+19"),
        (lambda value: units.amount(value, 1), 12345.67, "12,345.7"), (units.abbreviated, 999_400.0, "999 k"),
        (units.abbreviated, 999_500.0, "1 M"), (units.abbreviated, 999_499_999.0, "999 M"),
        (units.abbreviated, 2.35e10, "23.5 G"), (units.abbreviated, 5, "5"),
        (lambda value: units.share(value, 1), 0.825, "82.5 %"), (units.percent, 0.5, " 50 %"),
        (units.percent, 0.05, "  5 %"), (units.percent, None, "  - %"), (units.change, 0.0, "+0.0 %"),
        (units.change, 0.05, "+5.0 %"), (units.change, 0.9999, "+100.0 %"), (units.change, 1.0, "+100 %"),
        (lambda value: units.change(value, "points"), -0.05, "-5.0 points"), (units.spread, 0.9999, "100.0 %"),
        (units.times, 9.994, "9.99 times"), (units.times, 9.999, "10.00 times"), (units.size, 1024, "1.0 KiB"),
        (units.size, 1023.4 * 1024, "1023 KiB"), (units.size, 1023.5 * 1024, "1.0 MiB"),
        (units.size, 99.949 * 1024**2, "99.9 MiB"), (units.size, 99.95 * 1024**2, "100 MiB"),
        (units.size, 5 * 1024**4, "5120 GiB"), (units.gibibytes, 99.9 * 1024**3, "99.9"),
        (units.gibibytes, 100.4 * 1024**3, "100"), (units.performance_state, 2.0, "P2"),
        (units.seconds, 59.94, "59.9 s"), (units.seconds, 59.95, "1:00"), (units.clock, 0.9, "0:00"),
        (units.axis_time, 59.0, "59 s"), (units.axis_time, 3659.0, "1 h"), (units.axis_time, 172_799.0, "47:59 h"),
        (units.axis_time, 172_800.0, "2 d"), (units.axis_time, 216_000.0, "2.5 d"), (units.estimate, 0.0, "10 s"),
        (units.estimate, 99.9, "100 s"), (units.estimate, 100.0, "2 min"), (units.estimate, 5999.0, "100 min"),
    ],
)  # fmt: skip
def test_each_form_at_its_limits(form: Any, given: float | None, shown: str) -> None:
    assert form(given) == shown


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
