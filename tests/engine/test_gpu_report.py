"""The report of a first hour on a GPU: what becomes of a step that fails, and what a recording of the GPU tells."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu_report import __main__ as report
from benchmarks.gpu_report import timeline
from benchmarks.gpu_report.commands import ROOT, Failed, Lab, Skipped, call
from tests.support.front_door import until

LAB = Lab(Path("/nowhere"), "cnn", 32, 1.0, 8, 60, 10.0)


def test_without_a_gpu_one_line_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_report", "--output", str(tmp_path / "report.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "is missing" not in done.stdout:
        pytest.skip("this machine has a driver")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.startswith("no GPU to report on: no NVIDIA driver")
    assert not (tmp_path / "report.md").exists()


def test_a_step_that_fails_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fault: Exception) -> None:
        def do(lab: Lab) -> str:
            raise fault

        monkeypatch.setitem(report.STEPS, "doctor", ("What the doctor says", do))

    rows = []
    for fault in (Failed("oom: no memory"), Skipped("there is one GPU only"), KeyError("busy")):
        fails(fault)
        rows.append(report.done(LAB, "doctor"))
    monkeypatch.setitem(report.STEPS, "doctor", ("What the doctor says", lambda lab: "| all | well |"))
    text = report.report(LAB, [*rows, report.done(LAB, "doctor")])
    for line in ("| What the doctor says | failed: oom: no memory | 0 |", "failed: KeyError: 'busy'", "| all | well |",
                 "| What the doctor says | left out: there is one GPU only | 0 |"):  # fmt: skip
        assert line in text


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    with pytest.raises(Failed, match="not done within 3 s"):
        call(["/bin/sh", "-c", f"sleep 600 & echo $! > {told}; wait"], 3.0)

    def has_ended() -> bool:
        try:
            return psutil.Process(int(told.read_text())).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(has_ended)


def test_gaps_and_copies_are_read_from_a_recording(tmp_path: Path) -> None:
    ms = 10**6
    path = tmp_path / "nsys.sqlite"
    with sqlite3.connect(path) as recording:
        recording.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId INT, start INT, end INT)")
        recording.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (deviceId INT, start INT, end INT, bytes INT, "
                          "copyKind INT)")  # fmt: skip
        kernels = [(0, 10 * i, 10 * i + 8) for i in range(10)] + [(0, 52, 57)] + [(1, 0, 5), (1, 7, 10)]
        recording.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)",
                              [(device, a * ms, b * ms) for device, a, b in kernels])  # fmt: skip
        copies = [(0, 5 * ms, 6 * ms, 99, 1), (0, 66 * ms, 72 * ms, 600, 1), (0, 80 * ms, 81 * ms, 50, 2)]
        recording.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?)", copies)
    first, second = timeline.read(path)
    # Of eleven kernels the last six count: from 50 ms to 98 ms, two ms between each.
    assert (first.device, first.longest_gap_ms, first.copied_bytes) == (0, 2.0, 600)
    assert first.seconds == pytest.approx(0.048)
    assert first.idle == pytest.approx(4 * 2 / 48)
    assert first.copying == pytest.approx(6 / 48)
    assert first.hidden == pytest.approx(4 / 6)
    assert (second.device, second.idle, second.copied_bytes, second.hidden) == (1, 0.0, 0, None)
    with pytest.raises(sqlite3.Error):
        timeline.read(tmp_path / "none.sqlite")
