"""What follows from the figures of an epoch: the training ends, its model is kept, or the learning rate falls. As
the loop calls Keras' own callbacks for it like a user's, every training obeys them alike.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from ...files import writing
from ...files.writing import sync
from ...options import Options
from ...options.training import EARLY_STOP, KEEP_BEST, PLATEAU_FIGURE, WatchedFigure
from ...runs import events
from ..checkpoint.callback_state import ATTRIBUTES
from ..checkpoint.checkpoints import Checkpoints
from ..cluster.rendezvous import Joined
from ..common.logs import floats
from ..common.stopping import StopSwitch
from ..common.training_errors import TrainerError
from ..data.pipeline import Pipeline
from ..measure.run_report import RunReport
from ..setup import models
from ..setup.compiling import Xla
from ..setup.devices import Devices

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
    pipeline: Pipeline
    devices: Devices
    report: RunReport
    checkpoints: Checkpoints
    stop: StopSwitch
    xla: Xla
    own: Own | None = None  # if model and data come from a user's code
    joined: Joined | None = None  # if several machines train together

    def holds_anywhere(self, condition: bool) -> bool:
        """Return True if the condition holds on at least one worker. All call this at the same place."""
        return condition if self.joined is None else bool(self.joined.exchange.rows([condition]).any())


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


class EpochRules(keras.callbacks.Callback):
    """train.early_stop, run.keep_best and the schedule reduce_on_plateau for the training `built`."""

    def __init__(self, built: Built) -> None:
        super().__init__()
        self._built = built
        self._known: set[str] = set()  # options whose figure has appeared
        self._restored: dict[str, Any] | None = None  # the state of a checkpoint
        train, run = built.options.train, built.options.run
        chooses_rate = built.own is None or "train.schedule" not in built.own.inapplicable
        self._figures: dict[str, WatchedFigure] = {}
        self._early: Any = None
        self._best: BestModels | None = None
        self.callbacks: dict[str, Any] = {}  # by the option that names their figure
        if (figure := run.keeps_best_by) is not None:
            self._figures[KEEP_BEST] = figure
            self._best = self.callbacks[KEEP_BEST] = BestModels(figure.name, run.keep_best_count, built)
        if (figure := train.reduces_rate_by) is not None and chooses_rate:
            self._figures[PLATEAU_FIGURE] = figure
            self.callbacks[PLATEAU_FIGURE] = keras.callbacks.ReduceLROnPlateau(
                figure.name, train.decay_rate, train.plateau_patience, min_lr=train.plateau_min_rate
            )
        if (figure := train.stops_by) is not None:
            self._figures[EARLY_STOP] = figure
            self._early = self.callbacks[EARLY_STOP] = keras.callbacks.EarlyStopping(
                figure.name, train.early_stop_min_delta, train.early_stop_patience,
                restore_best_weights=train.early_stop_restore,
            )  # fmt: skip

    def require_figures(self) -> None:
        """Raise TrainerError if an option names a figure of the validation, and there is no validation data."""
        for key, figure in self._figures.items():
            if figure.of_validation and not self._built.pipeline.validation_batches:
                raise TrainerError(
                    "options",
                    f"{key}: {figure.name} is a figure of the validation, and this training has no validation data",
                    f"return validation data, or set {key} to {figure.name.removeprefix('val_')}",
                )

    @property
    def stopped(self) -> bool:
        return self._early is not None and self._early.stopped_epoch > 0

    # ---- the state in a checkpoint ----------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        names = {key: ATTRIBUTES.get(type(callback), ("kept",)) for key, callback in self.callbacks.items()}
        return {key: {name: getattr(self.callbacks[key], name) for name in names[key]} for key in names}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set a state that `get_state` has returned, and report its best epochs again."""
        self._restored = state
        for key, callback in self.callbacks.items():
            vars(callback).update(state[key])
            self._report(key)

    def checkpoint_written(self) -> None:
        if self._best is not None:
            self._best.remove_others()

    # ---- called by Keras' fit ---------------------------------------------------------------------

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        for callback in self.callbacks.values():
            callback.set_model(model)

    def on_train_begin(self, logs: Any = None) -> None:
        for callback in self.callbacks.values():
            callback.on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """`epoch` counts from 0. A rate that may fall is added to `logs`. TrainerError if a figure lacks."""
        figures, joined = floats(logs), self._built.joined
        if joined is not None:  # those of the chief
            figures = dict(zip(figures, map(float, joined.exchange.rows(list(figures.values()))[0]), strict=True))
        # Keras knows in which direction a figure improves only in the first epoch that has it.
        evaluated = any(name.startswith("val_") for name in figures)
        for key, figure in self._figures.items():
            if key in self._known:
                continue
            if figure.name not in figures:
                if evaluated or not figure.of_validation:
                    what = f"{key}: the training has no figure {figure.name}; its figures are {', '.join(figures)}"
                    raise TrainerError("options", what, f"set {key} to one of them")
                continue
            callback = self.callbacks[key]
            callback.mode = figure.direction
            if callback.mode == "auto":
                judge = keras.callbacks.EarlyStopping(figure.name)
                judge.set_model(self.model)
                try:
                    judge._set_monitor_op()
                except ValueError:
                    what = f"{key}: Keras does not know if {figure.name} is to rise or to fall"
                    hint = f"set {key} to {figure.name}:max or {figure.name}:min"
                    raise TrainerError("options", what, hint) from None
                callback.mode = "max" if judge.monitor_op == keras.ops.greater else "min"
            callback.on_train_begin()  # up to Keras 3.12 ReduceLROnPlateau reads its mode there
            if self._restored is not None:
                vars(callback).update(self._restored[key])
            self._known.add(key)
        if PLATEAU_FIGURE in self.callbacks:
            logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        for key, callback in self.callbacks.items():
            if callback.monitor in figures:
                callback.on_epoch_end(epoch, dict(figures))
                if callback.wait == 0:
                    self._report(key)

    def weights_to_test(self) -> tuple[int | None, Path | None]:
        """The best epoch that an option knows, and the file with its model, if the model is not of that epoch. None: of
        the last one.
        """
        kept = self._best.kept[:1] if self._best is not None else []
        if kept and kept[0]["file"] and self._built.joined is None:
            return kept[0]["epoch"], self._built.report.run.file(kept[0]["file"])
        if self._early is not None and self._early.restore_best_weights and self._early.best is not None:
            return self._early.best_epoch + 1, None
        return None, None

    def on_train_end(self, logs: Any = None) -> None:
        """Remove files of superseded models, and give the model the weights of its best epoch if the options say so."""
        self.checkpoint_written()
        if self._early is not None:
            self._early.on_train_end(logs)

    def _report(self, key: str) -> None:
        """Report the best epoch, if there is one yet, that the callback of this option knows."""
        callback, files, restores = self.callbacks[key], list[events.KeptModel](), False
        value: float | None
        if isinstance(callback, BestModels):
            if not callback.kept:
                return
            epoch, value, files = callback.kept[0]["epoch"], callback.kept[0]["value"], callback.kept
        elif callback is not self._early or callback.best is None:
            return
        else:
            epoch, value = callback.best_epoch + 1, events.finite(callback.best)
            restores = callback.restore_best_weights
        self._built.report.best_epoch(
            events.Best(
                option=key,
                figure=callback.monitor,
                epoch=epoch,
                step=epoch * self.params["steps"],
                value=value,
                files=files,
                restores=restores,
            )
        )


FOLDER = "best"


class BestModels(keras.callbacks.Callback):
    """Keeps the models of the `count` epochs with the best values of the figure `monitor` (run.keep_best). Of
    several workers only the first writes. A superseded file is removed when the next checkpoint has been written, so
    that a resumed run finds the files that its checkpoint names.
    """

    def __init__(self, monitor: str, count: int, built: Built) -> None:
        super().__init__()
        self.monitor, self.mode, self._count, self._built = monitor, "auto", count, built
        self.kept: list[events.KeptModel] = []  # the best one first; a worker that writes none has no names of files
        self.wait = 0  # 0 if the last epoch was kept
        self._writes = built.joined is None or built.joined.cluster.is_chief
        self._folder = built.report.run.file(FOLDER)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keep the model if the epoch, counted from 0, is one of the best. Of equal ones the earlier is the better."""
        value, self.wait = float(logs[self.monitor]), 1
        if math.isnan(value):
            return
        sign = 1 if self.mode == "max" else -1
        better = [kept for kept in self.kept if not sign * value > sign * (kept["value"] or 0.0)]
        if len(better) >= self._count:
            return
        file = self._save(epoch + 1) if self._writes else ""
        if file is None:
            return
        worse = [kept for kept in self.kept if kept not in better]
        new: events.KeptModel = {"epoch": epoch + 1, "value": value, "file": file}
        self.kept, self.wait = [*better, new, *worse][: self._count], 0
        if self._built.options.run.checkpoint == "off":
            self.remove_others()

    def _save(self, epoch: int) -> str | None:
        """The path in the run folder; None, with a warning, if the disk refuses it."""
        report, draft = self._built.report, self._folder / f".draft-{epoch:04d}.keras"
        report.phase("saving", "best model")
        try:
            self._folder.mkdir(exist_ok=True)
            final = draft.with_name(f"epoch-{epoch:04d}.keras")
            written = save_as(self._built, draft, final, KEEP_BEST)
            target = self._folder / written.name.replace(".draft", "epoch")
            sync(written)
            os.replace(written, target)
            sync(self._folder)
            return f"{FOLDER}/{target.name}"
        except Exception as fault:
            self._remove(lambda name: name.startswith("."))
            if writing.refusal(fault) is None:
                raise
            reason = writing.reason(fault) if isinstance(fault, OSError) else str(fault)
            report.warn("keep_best", f"{reason}: the model of epoch {epoch} is not kept", "the training goes on")
            return None
        finally:
            report.phase("training")

    def remove_others(self) -> None:
        names = {Path(kept["file"]).name for kept in self.kept}
        self._remove(lambda name: name not in names)

    def _remove(self, unwanted: Any) -> None:
        if self._writes:
            for file in (path for path in self._folder.glob("*") if unwanted(path.name)):
                with contextlib.suppress(OSError):
                    file.unlink()
