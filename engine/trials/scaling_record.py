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
    """The changes against the preset with which `replicas` replicas are measured."""

    replicas: int
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The settings to measure, one for each number of replicas, in rising order; the first has one replica.

    `shared` says in words what the replicas share if they have no device of their own; else it is empty.
    """

    settings: Sequence[Setting]
    keep: str = KEEPS[0]
    shared: str = ""  # for example "replicas share a GPU"


@dataclass(kw_only=True)
class Point:
    """The result with one number of replicas: its trials, and medians over them.

    `speedup` is the median over the rounds of the samples per second divided by those of one replica in the same round.
    `efficiency` is the median of the speed-ups divided by the number of replicas, and `spread` is their sample standard
    deviation. `xla`: whether XLA compiled the step. None: not known.
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
    """The results of a measurement of scaling: a point for each number of replicas, in rising order.

    `rounds` is the number of rounds that have been measured completely.
    """

    keep: str
    shared: str = ""
    points: list[Point] = field(default_factory=list)
    rounds: int = 0

    @property
    def trials(self) -> list[Trial]:
        return [trial for point in self.points for trial in point.trials]


def asked(plain: Mapping[str, Any]) -> Asked:
    """The settings to measure, made from their plain values in a file."""
    settings = [Setting(replicas=setting["replicas"], changes=setting["changes"]) for setting in plain["settings"]]
    return Asked(settings=settings, keep=plain["keep"], shared=plain["shared"])
