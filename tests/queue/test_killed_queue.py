"""The queue goes on, whichever of its processes is killed: a round of those that benchmarks/killed_queue.py makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("cc")]


@pytest.mark.parametrize("kinds", ["runner,start", "runner,start,engine"])
def test_no_run_is_lost_or_runs_twice_if_processes_of_the_queue_are_killed(kinds: str) -> None:
    program = Path(__file__).parents[2] / "benchmarks/killed_queue.py"
    command = [sys.executable, "-P", str(program), "--rounds", "1", "--runs", "4", "--kill", kinds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 runs in 1 rounds" in done.stdout
    assert "killed: {}" not in done.stdout
