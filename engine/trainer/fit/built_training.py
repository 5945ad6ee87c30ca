"""The parts of a training when everything is built, and saving its model in the end."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from ...files import writing
from ...files.writing import sync
from ...options import Options
from ..checkpoint.checkpoints import Checkpoints
from ..cluster.rendezvous import Joined
from ..common.stopping import StopSwitch
from ..common.training_errors import TrainerError
from ..data.batches import Batches
from ..measure.run_report import RunReport
from ..setup import models
from ..setup.devices import Devices
from ..setup.xla import Xla

if TYPE_CHECKING:
    from ..own.building import Own

PATIENCE_SECONDS = 30.0
_RETRY_SECONDS = 1.0
FILES = ("model.keras", "model.weights.h5")


@dataclass
class Built:
    """A compiled model, its data, and all other parts that a training needs."""

    options: Options
    model: keras.Model
    pipeline: Batches
    devices: Devices
    report: RunReport
    checkpoints: Checkpoints
    stop: StopSwitch
    xla: Xla
    own: Own | None = None  # if model and data come from a user's code
    joined: Joined | None = None  # if several machines train together


def save_model(built: Built, step: int) -> None:
    """model.keras, or only the weights if Keras cannot save the model. TrainerError if the disk refuses it."""
    folder = built.report.run.path
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            save_as(built, folder / FILES[0])
            for name in FILES:
                if (folder / name).exists():
                    sync(folder / name)
            return
        except Exception as fault:
            number = writing.refusal(fault)
            if number is None:
                raise
            for name in FILES:  # a partial file is useless and takes space
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
            if time.monotonic() > until or built.stop.reason or not writing.passes(number):
                reason = writing.describe(number, folder)
                message = f"{reason}: the training has ended well, but its model could not be saved"
                hint = "and train again; with run.checkpoint set, gputui resume could save it"
                if built.checkpoints.last_step == step:
                    hint = "and gputui resume saves it from the last checkpoint"
                raise TrainerError("disk", message, f"{writing.remedy(number)} {hint}") from None
        time.sleep(_RETRY_SECONDS)


def save_as(built: Built, path: Path, named: Path | None = None, option: str = "run.save_model") -> Path:
    """Write the model to `path` (.keras), or its weights alone if Keras cannot save the whole, and return the file.
    A warning is about `option`, and names the file `named`, if `path` is renamed to it later.
    """
    if built.own is not None:
        return built.own.save(built.report, path, named, option)
    models.save(built.model, path)
    return path
