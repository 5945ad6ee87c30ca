"""Exported scripts beside gputui: both train, and the losses of each epoch are compared."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import EpochEnd, Form, Preset, Run, own_code, read_events, to_script
from tests.support.forking import Forks, Program, trainer_of

TELL = """
print("XLA", model.jit_compile)
figures = {name: [float(value) for value in values] for name, values in model.history.history.items()}
print("HISTORY", __import__("json").dumps(figures))
print("LOSSES", __import__("json").dumps(model.history.history["loss"]))
"""
NOT_HERE = "raise ImportError('gputui is not installed here')\n"


def form_of(preset: Preset, forks: Forks, folder: Path) -> Form | None:
    """What the export asks of the preset's code, answered by a forked process."""
    main, output = folder / "described.py", folder / "described.out"
    main.write_text("from gputui.engine.trainer.described import main\n\nmain()\n")

    def run(command: list[str], **_more: Any) -> Any:
        forks.run(Program(os.getcwd(), str(output), [str(main), command[-1]], of_gputui=True))
        return SimpleNamespace(stdout=output.read_text().splitlines()[-1])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(own_code, "subprocess", SimpleNamespace(run=run, PIPE=0))
        return own_code.asked(preset)


def trained_by_both(forks: Forks, preset: Preset, folder: Path, code: str = "") -> tuple[Run, list[float], list[float]]:
    """The run, its losses, and those of the exported script, which knows no gputui. Both train at once."""
    run, ours = trainer_of(preset)
    path = prepared_script(code or to_script(preset, form=form_of(preset, forks, folder)), folder)
    theirs = Program(str(folder), str(folder / "exported.out"), ["exported.py"], path)
    forks.run(ours, theirs)
    (losses,) = re.findall(r"^LOSSES (.*)$", (folder / "exported.out").read_text(), re.M)
    return run, losses_of_run(run), json.loads(losses)


def prepared_script(code: str, folder: Path, name: str = "exported.py") -> list[str]:
    """Write the script; its folder, and one with a gputui that cannot be imported."""
    blocked = folder / "blocked"
    blocked.mkdir(exist_ok=True)
    (blocked / "gputui.py").write_text(NOT_HERE)
    (folder / name).write_text(code + TELL)
    return [str(folder), str(blocked)]


def losses_of_run(run: Run) -> list[float]:
    """The loss of each epoch of a run that has ended."""
    assert run.result is not None
    assert run.result["outcome"] == "ok", run.result["error"]
    told = read_events(run.path).of(EpochEnd)
    return [event.metrics["loss"] or 0.0 for event in told]
