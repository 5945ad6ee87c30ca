"""The names of the targets to which the figures of a run can be written (engine/follow/), without importing the
options.
"""

from __future__ import annotations

from typing import Literal, get_args

FollowTarget = Literal["tensorboard", "prometheus", "mlflow", "wandb", "trackio"]
FOLLOW_TARGETS: tuple[FollowTarget, ...] = get_args(FollowTarget)
FOLDER = "follow"  # in a run folder: the files of its followers
