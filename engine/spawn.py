"""Start the trainer of a run. Imports next to nothing, so that it is the first thing an engine does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Trainer:
    """The process, and the writing end of the pipe on which it is asked to stop."""

    process: subprocess.Popen[bytes]
    lifeline: int


def start_trainer(run_folder: Path) -> Trainer:
    """The trainer holds the pipe's reading end: it sees the end of file when this process is gone."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gputui.engine.trainer", str(run_folder)],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"GPUTUI_LIFELINE": str(reader)},
        pass_fds=[reader],
    )
    os.close(reader)
    return Trainer(process, writer)
