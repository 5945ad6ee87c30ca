"""How the speed grows with the number of replicas, as request.json and proof.json hold it under `scaling`.

Weak scaling keeps the batch of each replica, so that the global batch grows; strong scaling keeps the global batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import KEEPS
from .trial import Trial

DECISIONS = ("measured", "failed", "running")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is measured with so many replicas: the changes against the preset."""

    replicas: int
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The numbers of replicas, the fewest first, which is one. `shared`: the replicas have no device of their own."""

    settings: Sequence[Setting]
    keep: str = KEEPS[0]
    shared: str = ""  # then in words what they share


@dataclass(kw_only=True)
class Point:
    """A training with so many replicas: medians over its trials, those of one replica beside them in each round.

    `speedup` is the median over the rounds of its samples per second relative to those of one replica in the same
    round, `efficiency` that over the number of replicas, `spread` the sample standard deviation of the efficiencies.
    `xla`: whether XLA compiled its step.
    """

    replicas: int
    changes: Mapping[str, Any]
    trials: list[Trial] = field(default_factory=list)
    global_batch_size: int | None = None
    samples_per_second: float | None = None
    step_ms: float | None = None
    input_wait: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    spread: float | None = None
    xla: bool | None = None
    decision: str = "running"
    why: str = ""


@dataclass(kw_only=True)
class Scaling:
    """All points, by their replicas; `rounds` have been measured completely."""

    keep: str
    shared: str = ""
    points: list[Point] = field(default_factory=list)
    rounds: int = 0

    @property
    def trials(self) -> list[Trial]:
        return [trial for point in self.points for trial in point.trials]


def asked(plain: Mapping[str, Any]) -> Asked:
    """What is asked for, as a file has it."""
    settings = [Setting(replicas=setting["replicas"], changes=setting["changes"]) for setting in plain["settings"]]
    return Asked(settings=settings, keep=plain["keep"], shared=plain["shared"])
