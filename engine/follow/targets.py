"""The targets by their names: the library that each needs, and what makes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .target import Target


@dataclass(frozen=True)
class TargetKind:
    """A kind of target. `make` gets the target's part of the place. `module` is its library; empty: it needs none.

    `requirement` is the requirement of pip that installs the library.
    """

    make: Callable[[dict[str, Any]], Target]
    module: str = ""
    requirement: str = ""

    @property
    def missing(self) -> str:
        """One line that says how to install the library if it is missing, else an empty text."""
        if not self.module or importlib.util.find_spec(self.module) is not None:
            return ""
        return f"{self.module} is not installed; pip install '{self.requirement}' adds it"


def _tensorboard(remote: dict[str, Any]) -> Target:
    from .to_tensorboard import TensorBoard  # only the target that is used

    return TensorBoard(remote)


def _prometheus(remote: dict[str, Any]) -> Target:
    from .to_prometheus import Prometheus  # only the target that is used

    return Prometheus(remote)


def _mlflow(remote: dict[str, Any]) -> Target:
    from .to_mlflow import Mlflow  # only the target that is used

    return Mlflow(remote)


def _trackio(remote: dict[str, Any]) -> Target:
    from .to_trackio import Trackio  # only the target that is used

    return Trackio(remote)


def _wandb(remote: dict[str, Any]) -> Target:
    from .to_wandb import Wandb  # only the target that is used

    return Wandb(remote)


# The words of the option run.follow.
TARGETS: dict[str, TargetKind] = {
    "tensorboard": TargetKind(_tensorboard),
    "prometheus": TargetKind(_prometheus),
    "mlflow": TargetKind(_mlflow, "mlflow", "mlflow>=3,<4"),
    "wandb": TargetKind(_wandb, "wandb", "wandb>=0.21"),
    "trackio": TargetKind(_trackio, "trackio", "trackio>=0.43"),
}
