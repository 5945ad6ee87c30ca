"""A small part of benchmarks/verdicts.py: what gputui says of short runs of shipped presets is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_short_runs_of_shipped_presets_tell_nothing_false() -> None:
    three_epochs = "5"
    command = [sys.executable, "benchmarks/verdicts.py", "--runs", "1", "--seed", three_epochs, "--only", "input-heavy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 runs" in done.stdout
    assert "input_bound" in done.stdout
