"""Trainings that stand still: a device that never answers, a process that does not die."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.engine import (
    runs,
)
from tests.support.front_door import gputui

pytestmark = pytest.mark.usefixtures("nothing_left_running")


# ---- the engine ---------------------------------------------------------------------------------

# The engine itself tells that the trainer trains, before it starts it: on a busy machine a process may take more than a
# second to begin.
STANDS_IN = """
import os, sys
here = sys.orig_argv[-2:-1]

def tell(**event):
    import json, time
    with open(f"{sys.orig_argv[-1]}/events.jsonl", "a") as stream:
        stream.write(json.dumps({"t": time.time(), "run": "x"} | event) + "\\n")

if here == ["gputui.engine"]:
    tell(type="started", gpus=["GPU-a", "GPU-b"])
    tell(type="phase", phase="training")
if here == ["gputui.engine.trainer"]:
    import signal, time
    from gputui.engine.system import child_process

    child_process.release()  # as a trainer does, which looks at its engine from then on
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    while True:
        time.sleep(0.0005)
"""


@pytest.fixture
def polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All trainers from here on say that they train on two GPUs, and then poll a device that never answers."""
    folder = tmp_path / "standing-in"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(STANDS_IN)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_trainer_that_polls_a_device_for_ever_is_ended_and_the_usual_causes_are_named(polling: None) -> None:
    done = gputui("--preset", "quickstart", "--set", "hang_seconds=1", timeout=180)
    assert done.returncode == 1
    result = runs.find("latest").result
    assert result is not None
    assert (result["outcome"], result["error"]["kind"]) == ("timeout", "hang")
    for words in ("no step was completed", "run.hang_seconds=1", "NCCL_P2P_DISABLE=1", "IOMMU", "/dev/shm",
                  "NCCL_DEBUG=INFO"):  # fmt: skip
        assert words in done.stdout + done.stderr
