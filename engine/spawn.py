"""Start the trainer of a run. Imports next to nothing, so that it is the first thing an engine does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WARM = "--warm"  # in place of a run folder, which then comes later


@dataclass(frozen=True)
class Trainer:
    """The process, and the writing end of the pipe on which it is asked to stop."""

    process: subprocess.Popen[bytes]
    lifeline: int


def start_trainer(run_folder: str) -> Trainer:
    """The trainer holds the pipe's reading end: it sees the end of file when this process is gone."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gputui.engine.trainer", run_folder],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"GPUTUI_LIFELINE": str(reader)},
        pass_fds=[reader],
    )
    os.close(reader)
    return Trainer(process, writer)


def write_to_log(run_folder: Path) -> None:
    """From here on what this process prints goes into the run's log."""
    log = os.open(run_folder / "engine.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
