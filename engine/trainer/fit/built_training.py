"""The parts of a training when everything is built, and saving its model in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras

from ...options import Options
from ..checkpoint.checkpoints import Checkpoints
from ..cluster.tensorflow_cluster import Joined
from ..common.stopping import StopSwitch
from ..data.batches import Batches
from ..measure.run_report import RunReport
from ..setup.devices import Devices
from ..setup.xla import Xla

if TYPE_CHECKING:
    from ..own.building import Own
import contextlib
import time
from pathlib import Path

from ...files import writing
from ...files.writing import sync
from ..common.training_errors import TrainerError
from ..setup import models

PATIENCE_SECONDS = 30.0
_RETRY_SECONDS = 1.0
FILES = ("model.keras", "model.weights.h5")


@dataclass
class Built:
    """A compiled model, its data, and all other parts that a training needs.

    `own` is set if model and data come from a user's code, `joined` if several machines train together. Otherwise they
    are None.
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


def save_model(built: Built, step: int) -> None:
    """Write model.keras, or only the weights if Keras cannot save the model. Raises TrainerError if the disk refuses
    it.

    `step` is the last step that was trained.
    """
    folder = built.report.run.path
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            _save(built, folder)
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
                raise TrainerError("disk", message, f"{writing.remedy(number)} {_saving_hint(built, step)}") from None
        time.sleep(_RETRY_SECONDS)


def save_as(built: Built, path: Path, named: Path | None = None, option: str = "run.save_model") -> Path:
    """Write the model to the file `path`, which ends with `.keras`, and return the file.

    If Keras cannot save the whole model, only its weights are saved, and the file ends with `.weights.h5`. The warning
    is about `option`, and names the file `named`, if `path` is renamed to it later.
    """
    if built.own is not None:
        return built.own.save(built.report, path, named, option)
    models.save(built.model, path)
    return path


def _save(built: Built, folder: Path) -> None:
    save_as(built, folder / FILES[0])
    for name in FILES:
        if (folder / name).exists():
            sync(folder / name)


def _saving_hint(built: Built, step: int) -> str:
    if built.checkpoints.last_step == step:
        return "and gputui resume saves it from the last checkpoint"
    return "and train again; with run.checkpoint set, gputui resume could save it"
