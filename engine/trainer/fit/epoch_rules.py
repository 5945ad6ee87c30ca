"""What follows from the figures of an epoch: the training ends, its model is kept, or the learning rate falls.

Early stopping and the learning rate are Keras' own callbacks. As the training loop calls them like a user's, every
training obeys them alike: gputui's models, a user's, and a fit that a user's class overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from ...options.training import EARLY_STOP, KEEP_BEST, PLATEAU_FIGURE, WatchedFigure
from ...runs import events
from ..checkpoint.callback_state import ATTRIBUTES
from ..common.epoch_callbacks import floats
from ..common.training_errors import TrainerError
from .best_models import BestModels
from .built_training import Built


class EpochRules(keras.callbacks.Callback):
    """Applies train.early_stop, run.keep_best and the schedule reduce_on_plateau to the training `built`.

    `callbacks` are the callbacks that do it. Empty if the options ask for none of the three.
    """

    def __init__(self, built: Built) -> None:
        super().__init__()
        self._built = built
        self._known: set[str] = set()  # options whose figure has appeared
        self._restored: dict[str, Any] | None = None  # the state of a checkpoint
        train, run = built.options.train, built.options.run
        self._figures: dict[str, WatchedFigure] = {}
        self._early: Any = None
        self._best: BestModels | None = None
        self.callbacks: dict[str, Any] = {}  # by the option that names their figure
        if (figure := run.keeps_best_by) is not None:
            self._figures[KEEP_BEST] = figure
            self._best = self.callbacks[KEEP_BEST] = BestModels(figure.name, run.keep_best_count, built)
        if (figure := train.reduces_rate_by) is not None and _chooses_rate(built):
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
        """Raise TrainerError if an option names a figure of the validation, and the training has no validation data."""
        for key, figure in self._figures.items():
            if figure.of_validation and not self._built.pipeline.validation_batches:
                raise TrainerError(
                    "options",
                    f"{key}: {figure.name} is a figure of the validation, and this training has no validation data",
                    f"return validation data, or set {key} to {figure.name.removeprefix('val_')}",
                )

    @property
    def stopped(self) -> bool:
        """True if train.early_stop has ended the training."""
        return self._early is not None and self._early.stopped_epoch > 0

    # ---- the state in a checkpoint ----------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        return {key: _state_of(callback) for key, callback in self.callbacks.items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set a state that `get_state` has returned, and report its best epochs again."""
        self._restored = state
        for key, callback in self.callbacks.items():
            _restore(callback, state[key])
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
        """Apply the rules at the end of an epoch, counted from 0. If the learning rate may fall, it is added to `logs`.

        To end the training, model.stop_training is set. Raises TrainerError if the epoch lacks a figure.
        """
        figures = self._of_chief(floats(logs))
        self._learn_directions(figures)
        if PLATEAU_FIGURE in self.callbacks:
            logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        for key, callback in self.callbacks.items():
            if callback.monitor in figures:
                callback.on_epoch_end(epoch, dict(figures))
                if _has_changed(callback, epoch):
                    self._report(key)

    def on_train_end(self, logs: Any = None) -> None:
        """Remove the files of superseded models, and give the model the weights of its best epoch if the options say
        so.
        """
        self.checkpoint_written()
        if self._early is not None:
            self._early.on_train_end(logs)

    # ---- figures ----------------------------------------------------------------------------------

    def _of_chief(self, figures: Mapping[str, float]) -> dict[str, float]:
        joined = self._built.joined
        if joined is None:
            return dict(figures)
        return dict(zip(figures, map(float, joined.exchange.rows(list(figures.values()))[0]), strict=True))

    def _learn_directions(self, figures: Mapping[str, float]) -> None:
        """Find out in which direction each figure improves, once, in the first epoch that has it.

        Keras knows the metrics of the model only then.
        """
        evaluated = any(name.startswith("val_") for name in figures)
        for key, figure in self._figures.items():
            if key in self._known:
                continue
            if figure.name not in figures:
                if evaluated or not figure.of_validation:
                    there = ", ".join(figures)
                    what = f"{key}: the training has no figure {figure.name}; its figures are {there}"
                    raise TrainerError("options", what, f"set {key} to one of them")
                continue
            callback = self.callbacks[key]
            callback.mode = _direction(self.model, key, figure)
            callback.on_train_begin()  # up to Keras 3.12 ReduceLROnPlateau reads its mode there
            if self._restored is not None:
                _restore(callback, self._restored[key])
            self._known.add(key)

    def _report(self, key: str) -> None:
        """Report the best epoch that the callback of this option knows. Nothing is reported if there is none yet."""
        callback, files, restores = self.callbacks[key], list[dict[str, Any]](), False
        value: float | None
        if isinstance(callback, BestModels):
            if not callback.kept:
                return
            epoch, value, files = callback.kept[0].epoch, callback.kept[0].value, callback.files
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


def _has_changed(callback: Any, epoch: int) -> bool:
    """Return True if this epoch, counted from 0, is a new best one of the callback."""
    if isinstance(callback, BestModels):
        return any(kept.epoch == epoch + 1 for kept in callback.kept)
    return bool(callback.wait == 0)


def _state_of(callback: Any) -> dict[str, Any]:
    if isinstance(callback, BestModels):
        return callback.get_state()
    return {name: getattr(callback, name) for name in ATTRIBUTES[type(callback)]}


def _restore(callback: Any, state: dict[str, Any]) -> None:
    if isinstance(callback, BestModels):
        callback.set_state(state)
    else:
        for name, value in state.items():
            setattr(callback, name, value)


def _chooses_rate(built: Built) -> bool:
    return built.own is None or "train.schedule" not in built.own.inapplicable


def _direction(model: keras.Model, key: str, figure: WatchedFigure) -> str:
    """Return `min` or `max`, in which direction the figure improves. Raises TrainerError if Keras does not know it."""
    if figure.direction != "auto":
        return figure.direction
    judge = keras.callbacks.EarlyStopping(figure.name)
    judge.set_model(model)
    try:
        judge._set_monitor_op()
    except ValueError:
        what = f"{key}: Keras does not know if {figure.name} is to rise or to fall"
        raise TrainerError("options", what, f"set {key} to {figure.name}:max or {figure.name}:min") from None
    return "max" if judge.monitor_op == keras.ops.greater else "min"
