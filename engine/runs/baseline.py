"""The pinned baseline: the run that others are compared with until it is unpinned or another one is pinned.

`baseline.json` in gputui's home folder names the run; it is replaced atomically.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..files.places import home, runs_folder
from ..files.values import text
from ..files.writing import write_atomically
from .reading import read_object
from .run import Run

Choice = Literal["pinned", "given", "first"]
IGNORED = "it is left out; gputui compare --unpin forgets it"


@dataclass(frozen=True)
class Pin:
    """What is pinned: a run, or None with the reason in `lost` where something is pinned that is no longer there."""

    run: Run | None = None
    lost: str = ""


@dataclass(frozen=True)
class LineUp:
    """Runs to be compared, the baseline first; `choice` tells how it came to be it, `lost` is as in Pin."""

    runs: tuple[Run, ...]
    choice: Choice = "first"
    lost: str = ""


def pin(run: Run) -> None:
    """Make it the baseline of all comparisons to come, in place of any other."""
    write_atomically(_file(), json.dumps({"run": run.id}) + "\n")


def unpin() -> bool:
    """Forget the pinned baseline; whether there was one."""
    try:
        _file().unlink()
    except FileNotFoundError:
        return False
    return True


def pinned() -> Pin:
    """The baseline as it is pinned now."""
    if not os.path.lexists(_file()):
        return Pin()
    name = text(read_object(_file()).value.get("run"))
    if name is None:
        return Pin(lost=f"the pinned baseline cannot be read from {_file()}; {IGNORED}")
    run = Run(runs_folder() / name)
    if run.id == name and os.path.lexists(run.file("preset.yaml")):
        return Pin(run)
    return Pin(lost=f"the pinned baseline {name} is no longer there; {IGNORED}")


def line_up(runs: Iterable[Run], given: Run | None = None) -> LineUp:
    """Each run once: behind the `given` baseline, else behind the pinned one, else as they are."""
    pin = Pin() if given else pinned()
    baseline = given or pin.run
    once = dict.fromkeys([baseline, *runs] if baseline else runs)
    return LineUp(tuple(once), "given" if given else "pinned" if pin.run else "first", pin.lost)


def _file() -> Path:
    return home() / "baseline.json"
