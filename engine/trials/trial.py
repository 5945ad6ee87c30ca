"""One measured training as proof.json holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import figures
from ..runs.events import TrialFigures

_OF_ONE_TRIAL = ("gain", "loss_at_samples", "seconds")
FIGURES = tuple(figure.key for figure in figures.shown("trial") if figure.key not in _OF_ONE_TRIAL)  # with medians


@dataclass(kw_only=True)
class Trial(TrialFigures):
    """One measured training in the folder `run` under trials/, the `repeat`th of a `side` (`a` is the baseline). The
    outcome is that of a run, or `slower` if it was ended early. Speed and step time are means over all measured steps:
    a median would hide stalls that a change causes or removes.
    """

    side: str
    repeat: int
    run: str
    step_ms: float | None = None
    loss_at_samples: float | None = None
    replicas: int | None = None  # this and the global batch are from the trainer's event `started`
    seconds: float = 0.0
    error: str | None = None
    disturbed: str = ""  # which other programs used the trial's devices or cores
    # Speed of the best settings on this trial's GPU, relative to the first GPU; `speed` is corrected by it.
    gpu_speed: float = 1.0
    key: str = ""  # identifies settings and turn, so that a resumed search does not measure the trial again

    @property
    def good(self) -> bool:
        return self.outcome == "ok"

    def figure(self, key: str) -> Any:
        """Return the value of the figure `key` (engine/figures). None if the trial does not have it."""
        return getattr(self, key, None)

    @property
    def speed(self) -> float:
        """Samples per second, converted to the speed of the first GPU. 0 if no speed was measured."""
        return (self.samples_per_second or 0.0) / self.gpu_speed


def place(run: str) -> tuple[int, str]:
    """Return the sort key of a trial's folder: its number (or 0) and its name, so that 99-s comes before 100-s."""
    number = run.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0, run
