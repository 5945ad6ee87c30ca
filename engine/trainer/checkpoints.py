"""Checkpoints that a run can go on from exactly, in mid-epoch too.

One holds the variables of model, optimizer and running metrics, dropout's seeds among them; where the data
stands follows from the step (pipeline.py). Each is written beside and renamed, so that what exists is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from .faults import TrainerError

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # what a checkpoint holds beside the variables


class Checkpoints:
    """`folder`/step-NNNNNNNNNN, the newest `keep` of them."""

    def __init__(self, folder: Path, keep: int, model: keras.Model) -> None:
        self._folder, self._keep, self._model = folder, keep, model
        self.last_step: int | None = None

    def _variables(self) -> dict[str, list[Any]]:
        """All that changes while training; dropout's seeds are among the variables that are not trained."""
        model = self._model
        return {
            "weights": [variable.value for variable in model.trainable_variables],
            "others": [_parts(variable) for variable in model.non_trainable_variables],
            "metrics": [_parts(variable) for variable in model.metrics_variables],
            "optimizer": [variable.value for optimizer in optimizers(model) for variable in optimizer.variables],
        }

    def _state(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(**self._variables())

    def save(self, step: int) -> None:
        """Write the state after `step` steps; raises TrainerError where the disk refuses."""
        if step == self.last_step:
            return
        final = self._folder / f"step-{step:010d}"
        draft = self._folder / f".draft-{os.getpid()}"
        try:
            self._folder.mkdir(exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            self._state().write(str(draft / "state"))
            shutil.rmtree(final, ignore_errors=True)
            os.rename(draft, final)
        except (OSError, tf.errors.OpError) as fault:
            reason = " ".join(str(fault).split())[:200]
            raise TrainerError("checkpoint", f"cannot write a checkpoint to {self._folder}: {reason}") from None
        self.last_step = step
        for old in self._all()[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)

    def latest_step(self) -> int | None:
        """The step of the newest whole checkpoint, or None."""
        found = self._all()
        return int(found[-1].name.removeprefix("step-")) if found else None

    def fits(self, step: int) -> bool:
        """Whether the model has as many variables as a checkpoint; some make theirs in their first step."""
        try:
            names = tf.train.load_checkpoint(str(self._path(step))).get_variable_to_dtype_map()
        except (tf.errors.OpError, ValueError, RuntimeError):
            return True  # restoring it tells what is wrong
        held = [name for name in names if name != _OBJECT_GRAPH]
        return len(held) == len({id(variable) for variable in tf.nest.flatten(self._variables())})

    def restore(self, step: int) -> None:
        """Bring the built model to the state after `step` steps; raises TrainerError where it does not fit."""
        path = self._path(step)
        try:
            self._state().read(str(path)).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as fault:
            reason = " ".join(str(fault).split())[:200]
            raise TrainerError("checkpoint", f"{path.parent} does not fit this model: {reason}") from None
        self.last_step = step

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:010d}" / "state"

    def _all(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))


def optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The model's optimizer, and those that a model with a training step of its own keeps in itself.

    They may be attributes, lie in lists and dicts, or belong to models within it.
    """
    return list({id(found): found for found in _optimizers([model.optimizer, model], set())}.values())


def _optimizers(value: Any, seen: set[int]) -> Iterator[keras.optimizers.Optimizer]:
    if isinstance(value, keras.optimizers.Optimizer):
        yield value
    elif id(value) not in seen and isinstance(value, (keras.Model, dict, list, tuple)):
        seen.add(id(value))
        inside = vars(value) if isinstance(value, keras.Model) else value
        for item in inside.values() if isinstance(inside, dict) else inside:
            yield from _optimizers(item, seen)


def _parts(variable: keras.Variable) -> list[tf.Variable]:
    """What each replica holds: batch norm's statistics and metrics differ until they are read together."""
    return list(getattr(variable.value, "values", [variable.value]))
