"""The state and the results of a learning-rate range test, as proof.json holds them under `rate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .trial import Trial

KEY = "train.learning_rate"
RATE_DECISIONS = ("better", "worse", "no difference", "undecided", "close", "no suggestion", "not judged", "running")


@dataclass(frozen=True, kw_only=True)
class RateSettings:
    """What a range test is to do: a ramp of `steps` steps from the rate `low` to the rate `high`, and comparisons, all
    within `minutes`.
    """

    low: float = 1e-6
    high: float = 10.0
    steps: int = 300
    minutes: float = 10.0


@dataclass(kw_only=True)
class RateTest:
    """A range test: the curve of the ramp (a loss is None if not finite), `smoothed` until it diverges, and pairs of
    the preset's rate (side a) and the suggestion (side b) on seeds after `seed`. `gains` are the loss of a divided by
    that of b, minus 1, after `samples`. `of` is `validation` or `training`.
    """

    settings: RateSettings
    before: float
    seed: int | None = None
    ramp: list[Trial] = field(default_factory=list)
    rates: Sequence[float] = ()
    losses: Sequence[float | None] = ()
    smoothed: Sequence[float] = ()
    lowest_at: float | None = None
    suggested: float | None = None
    reason: str = ""
    of: str = ""
    samples: int | None = None
    passes: int | None = None
    trials: list[Trial] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    loss_a: float | None = None
    loss_b: float | None = None
    decision: str = "running"  # one of RATE_DECISIONS
    why: str = ""

    @property
    def changes(self) -> Mapping[str, Any]:
        """The suggestion as a change of the preset. Empty if there is none."""
        return {} if self.suggested is None else {KEY: self.suggested}


def settings(plain: Mapping[str, Any]) -> RateSettings:
    """Return the settings of a range test, made from their plain values in a file."""
    return RateSettings(**{name: plain[name] for name in RateSettings.__dataclass_fields__})
