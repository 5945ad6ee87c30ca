"""A trainer that trains nothing: for tests of who lives, stops and resumes, with real engines that start in 0.3 s.

Python reads `sitecustomize` before anything else. Where the trainer of a run is started, the one written here takes its
place: it says that it is there, leaves a checkpoint, and ends when its engine asks it to, or is gone.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.engine import Process, Run, launch, presets
from tests.support.front_door import until

TRAINER = """
import sys
if sys.orig_argv[-2:-1] == ["gputui.engine.trainer"]:
    import json, os, signal, time
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    lifeline, folder = os.fdopen(int(os.environ.pop("GPUTUI_LIFELINE"))), sys.orig_argv[-1]
    if folder == "--warm":
        folder = (lifeline.readline() or os._exit(0)).strip().split(" ", 2)[2]

    def tell(**event):
        line = json.dumps({"t": time.time(), "run": os.path.basename(folder)} | event) + "\\n"
        with open(f"{folder}/events.jsonl", "a") as stream:
            stream.write(line)

    tell(type="phase", phase="importing")
    os.makedirs(f"{folder}/checkpoints/step-0000000001", exist_ok=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        with open(f"{folder}/checkpoints/step-0000000001/{name}", "w") as stream:
            stream.write("x")
    tell(type="phase", phase="training")
    if asked := lifeline.readline().strip():
        with open(f"{folder}/result.json", "w") as stream:
            json.dump({"outcome": "timeout" if asked == "timeout" else "stopped"}, stream)
    os._exit(0)
"""


_engines: list[subprocess.Popen[bytes]] = []


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All trainers that are started from here on; no engine of theirs goes on beyond the test."""
    folder = tmp_path / "standing-in"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(TRAINER)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield
    while _engines:
        engine = _engines.pop()
        engine.kill()
        engine.wait()


def training() -> Run:
    """A run whose trainer stands in, at it."""
    run, engine = launch.start(presets.resolve("quickstart"))
    kept(engine)
    until(lambda: run.status.get("phase") == "training")
    return run


def kept(engine: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """An engine that the fixture looks after."""
    _engines.append(engine)
    return engine


def engines_of(run: Run) -> list[int]:
    """All processes that are engines of the run, whatever its files say."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _is_engine(pid) and Process.of(pid).serves(run.path)]


def _is_engine(pid: int) -> bool:
    try:
        return b"gputui.engine" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
