"""The pinned baseline: the run that others are compared with. `baseline.json` in gputui's home folder names it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..files.places import home, runs_folder
from ..files.reading import read_object
from ..files.writing import write_atomically
from ..runs import Run

Choice = Literal["pinned", "given", "first"]
IGNORED = "it is left out; gputui compare --unpin removes the pin"


@dataclass(frozen=True)
class Pin:
    """The pinned run, or None, with a sentence in `lost` if it cannot be found."""

    run: Run | None = None
    lost: str = ""


@dataclass(frozen=True)
class LineUp:
    """The runs to compare, the baseline (its `choice` in words) first; `lost` if the pinned run cannot be found."""

    runs: tuple[Run, ...]
    choice: Choice = "first"
    lost: str = ""


def pin(run: Run) -> None:
    """Make the run the baseline of all later comparisons. Raises OSError."""
    write_atomically(_file(), json.dumps({"run": run.id}) + "\n")


def unpin() -> bool:
    try:
        _file().unlink()
    except FileNotFoundError:
        return False
    return True


def pinned() -> Pin:
    """Return the run that is pinned now, or a sentence if it cannot be found."""
    if not os.path.lexists(_file()):
        return Pin()
    if not isinstance(name := read_object(_file()).value.get("run"), str):
        return Pin(lost=f"the pinned baseline cannot be read from {_file()}; {IGNORED}")
    run = Run(runs_folder() / name)
    if run.id == name and os.path.lexists(run.file("preset.yaml")):
        return Pin(run)
    return Pin(lost=f"the pinned baseline {name} no longer exists; {IGNORED}")


def line_up(runs: Iterable[Run], given: Run | None = None) -> LineUp:
    """Return the runs to compare, each once, the baseline first: the run `given`, the pinned one, or the first."""
    pin = Pin() if given else pinned()
    baseline = given or pin.run
    once = dict.fromkeys([baseline, *runs] if baseline else runs)
    return LineUp(tuple(once), "given" if given else "pinned" if pin.run else "first", pin.lost)


def _file() -> Path:
    return home() / "baseline.json"
