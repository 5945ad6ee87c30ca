"""Exported scripts beside gputui: both train, and the losses of each epoch are compared."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from gputui.engine import runs
from gputui.engine.export.left_out import TITLE
from gputui.engine.export.script import to_script
from gputui.engine.presets import Preset
from gputui.engine.process import launch

TELL = '\nprint("LOSSES", __import__("json").dumps(model.history.history["loss"]))\n'
NOT_HERE = "raise ImportError('gputui is not installed here')\n"


def named(code: str) -> set[str]:
    """The options that the comments of its lines name, the closing list not among them."""
    above = code.partition(TITLE)[0]
    comments = re.findall(r"# ((?:\w+\.\w+(?:, |(?=[:\n])))+)", above)
    return {key for comment in comments for key in comment.rstrip(", ").split(", ")}


def closing_list(code: str) -> dict[str, str]:
    """What a script says is not in it: option -> reason."""
    return dict(re.findall(r"^# (\w+\.\w+): (.*)$", code.partition(TITLE)[2], re.M))


def losses_of_script(code: str, folder: Path, name: str = "exported.py") -> list[float]:
    """Run a script that knows no gputui, in `folder`; the loss of each epoch."""
    blocked = folder / "blocked"
    blocked.mkdir(exist_ok=True)
    (blocked / "gputui.py").write_text(NOT_HERE)
    (folder / name).write_text(code + TELL)
    told = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONWARNINGS": "error::DeprecationWarning:__main__"}
    done = subprocess.run(
        [sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=200,
        env=os.environ | told | {"PYTHONPATH": str(blocked)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (losses,) = re.findall(r"^LOSSES (.*)$", done.stdout, re.M)
    found: list[float] = json.loads(losses)
    return found


def losses_of_both(preset: Preset, folder: Path) -> tuple[list[float], list[float]]:
    """By gputui and by the exported script. Both train at once."""
    code = to_script(preset)
    run, engine = launch.start(preset)
    theirs = losses_of_script(code, folder)
    engine.wait(200)
    assert run.result is not None
    assert run.result["outcome"] == "ok", run.result["error"]
    told = [event for event in runs.Tail(run.file("events.jsonl")).read() if event["type"] == "epoch"]
    return [event["metrics"]["loss"] for event in told], theirs
