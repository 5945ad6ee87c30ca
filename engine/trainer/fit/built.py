"""The parts of a training when everything is built and nothing has run yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras

from ...options import Options
from ..checkpoint.checkpoints import Checkpoints
from ..cluster.joining import Joined
from ..common.stopping import StopSwitch
from ..data.batches import Batches
from ..measure.run_report import RunReport
from ..setup.devices import Devices
from ..setup.xla import Xla

if TYPE_CHECKING:
    from ..own.building import Own


@dataclass
class Built:
    """A compiled model, its data, and what goes with them; `own` where they come from a user's code, `joined` where
    several machines train together.
    """

    options: Options
    model: keras.Model
    pipeline: Batches
    devices: Devices
    report: RunReport
    checkpoints: Checkpoints
    stop: StopSwitch
    xla: Xla
    own: Own | None = None
    joined: Joined | None = None
