"""Checkpoints from which a run is resumed exactly, even in the middle of an epoch, and when they are written. One is
written under another name, synced to disk and renamed, and checked before it is used. If it is damaged, an older one
is used. The position in the data follows from the step.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...files import writing
from ...files.writing import sync
from ...runs import checkpoint_files
from ...runs.checkpoint_files import PREFIX, Damage
from ...units import counted
from ..cluster.exchange import Exchange
from ..common.training_errors import TrainerError
from . import callback_state
from .callback_state import Arrays
from .training_state import State

CALLBACKS = "callbacks"  # the file of the states of callbacks
DATA = "data.json"  # the place in the user's data, if it is read by iterating over it


class NotWritten(Exception):
    """Raised if the disk refuses a checkpoint. The text says why."""


class Checkpoints:
    """The checkpoints of a run, in the folders `folder`/step-NNNNNNNNNN. Only the newest `keep` of them are kept.
    `place_in_data` returns the place in the data after a number of steps for JSON, None if it follows from the step.
    """

    def __init__(self, folder: Path, keep: int, state: State) -> None:
        self._folder, self._keep, self.state = folder, keep, state
        self._index = 0  # of this worker
        self.last_step: int | None = None
        self._unusable: dict[int, str] = {}  # step -> why it cannot be used, as the end of a sentence
        self._end: int | None = None  # the training's last step
        # Returns the states of the callbacks, and adds their arrays (CalledCallbacks.state). None without callbacks.
        self.callbacks: Callable[[Arrays], Any] | None = None
        self.place_in_data: Callable[[int], Any] = lambda _step: None

    def save(self, step: int, states: tuple[list[Any], Arrays] | None = None) -> None:
        """Write the state, unless it is written, and remove the oldest ones. Raises NotWritten. `states` are those of
        the callbacks of all workers, if there are several.
        """
        if step == self.last_step:
            return
        draft = self._folder / f".draft-{os.getpid()}"
        try:
            if not self._folder.is_dir():
                self._folder.mkdir()
                sync(self._folder.parent)
            _remove(draft)
            draft.mkdir()
            self.state.write(str(draft / PREFIX))
            if self.callbacks is not None:
                arrays = Arrays()
                with (draft / CALLBACKS).open("wb") as stream:
                    stream.writelines(callback_state.pieces(*(states or ([self.callbacks(arrays)], arrays))))
            if (place := self.place_in_data(step)) is not None:
                (draft / DATA).write_text(json.dumps(place))
            checkpoint_files.seal(draft, step)
            _remove(self._path(step))
            os.rename(draft, self._path(step))
            sync(self._folder)
        except (OSError, tf.errors.OpError) as fault:
            _remove(draft)
            if isinstance(fault, tf.errors.ResourceExhaustedError) and writing.refusal(fault) is None:
                raise  # out of memory
            raise NotWritten(
                f"{writing.reason(fault)}: {self._folder}: no checkpoint of step {step} is written"
            ) from None
        self.last_step = step
        self._unusable.pop(step, None)
        # Unusable checkpoints do not count as kept, and are removed too.
        written = [each for each in checkpoint_files.steps_in(self._folder) if each <= step]
        kept = [each for each in written if each not in self._unusable][: self._keep]
        for old in written:
            if old < kept[-1] and len(kept) == self._keep:
                _remove(self._path(old))

    def callbacks_at(self, step: int) -> tuple[Any, Arrays] | None:
        """Return what `callbacks` returned at the checkpoint, and the arrays. None if an older gputui wrote it."""
        if not (data := self._file_of_callbacks(step)):
            return None
        values, arrays = callback_state.read(data)
        return values[self._index if self._index < len(values) else 0], arrays  # the chief's, without such a worker

    def _file_of_callbacks(self, step: int) -> bytes:
        path = self._path(step) / CALLBACKS
        return path.read_bytes() if path.exists() else b""

    def latest_step(self, end: int | None = None) -> int | None:
        """The newest intact one up to `end`. TrainerError if there are only damaged ones. Half-written files of a
        killed process are removed: a run has only one trainer at a time.
        """
        for draft in self._folder.glob(".draft-*"):
            _remove(draft)
        self._end, self._unusable = end, {}
        for step in checkpoint_files.steps_in(self._folder):
            try:
                self._verify(step)
                return step
            except Damage as damage:
                self._unusable[step] = str(damage)
        if self._unusable:
            hint = (
                f"nothing was changed; gputui --preset {self._folder.parent / 'preset.yaml'} starts again from step 0"
            )
            reasons = checkpoint_files.describe(self._unusable)
            raise TrainerError("checkpoint", f"no checkpoint can be used: {reasons}", hint)
        return None

    def damaged(self, used: int) -> str:
        """A warning that names unusable ones after `latest_step`, and the steps lost by a resume from `used`."""
        if not self._unusable:
            return ""
        lost = max((step - used for step in self._unusable if self._end is None or step <= self._end), default=0)
        warning = f"{checkpoint_files.describe(self._unusable)}; resuming from step {used}"
        return f"{warning}, {counted(lost, 'steps')} {'is' if lost == 1 else 'are'} lost" if lost else warning

    def _verify(self, step: int) -> None:
        if self._end is not None and step > self._end:
            raise Damage(f"lies beyond the end of the training, step {self._end}")
        try:
            if not checkpoint_files.verify(self._folder, step):
                # One tensor at a time, so that TensorFlow verifies each.
                reader = tf.train.load_checkpoint(str(self._path(step) / PREFIX))
                for name in reader.get_variable_to_dtype_map():
                    reader.get_tensor(name)
        except (Damage, IndexError, RuntimeError, ValueError, tf.errors.OpError) as fault:
            what = str(fault) if isinstance(fault, Damage) else " ".join(str(fault).split())[:200]
            raise Damage(f"is damaged ({what})") from None

    def fits(self, step: int) -> bool:
        """Return True if the model has the checkpoint's variables: some are created only in a model's first step."""
        return self.state.fits(str(self._path(step) / PREFIX))

    def restore(self, step: int) -> list[str]:
        """Return the names of variables of a user's code that the checkpoint lacks. TrainerError if it does not fit."""
        path, new = self._path(step), list[str]()
        try:
            new = self.state.restore(str(path / PREFIX))
        except (AssertionError, IndexError, ValueError, tf.errors.OpError) as fault:
            reason = " ".join(str(fault).split())[:200]
            raise TrainerError("checkpoint", f"{path} does not fit this model: {reason}") from None
        self.last_step = step
        return new

    def saved_place(self, step: int) -> Any:
        try:
            return json.loads((self._path(step) / DATA).read_text())
        except FileNotFoundError:
            return None

    def _path(self, step: int) -> Path:
        return checkpoint_files.path_of(self._folder, step)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


# ---- of several machines --------------------------------------------------------------------------


class ClusterCheckpoints(Checkpoints):
    """Workers call the same methods in the same order, as these exchange values. Only the chief has files."""

    def __init__(self, folder: Path, keep: int, state: State, exchange: Exchange) -> None:
        super().__init__(folder, keep, state)
        self._exchange, self._index, self._is_chief = exchange, exchange.index, exchange.index == 0
        state.of_workers = []

    def _file_of_callbacks(self, step: int) -> bytes:
        return self._exchange.of_chief(super()._file_of_callbacks(step) if self._is_chief else None)

    def save(self, step: int, states: tuple[list[Any], Arrays] | None = None) -> None:
        if step == self.last_step:
            return
        self.state.of_workers = self._exchange.of_all(self.state.of_its_own())
        if self.callbacks is not None:
            arrays = Arrays()
            states = callback_state.gathered(self.callbacks(arrays), arrays, self._exchange)
        refused: NotWritten | None = None
        try:
            if self._is_chief:
                super().save(step, states)
        except NotWritten as reason:
            refused = reason
        # If the chief's disk has refused it, all try again when the same step is saved again.
        if self._exchange.rows([float(refused is not None)])[0, 0] == 0:
            self.last_step = step
        if refused is not None:
            raise refused

    def _of_chief(self, read: Callable[..., Any], *arguments: Any) -> Any:
        return json.loads(self._exchange.of_chief(json.dumps(read(*arguments)).encode() if self._is_chief else None))

    def latest_step(self, end: int | None = None) -> int | None:
        step = self._of_chief(super().latest_step, end)
        return None if step is None else int(step)

    def fits(self, step: int) -> bool:
        fits = self._is_chief and super().fits(step)
        return bool(self._exchange.rows([float(fits)])[0, 0])

    def saved_place(self, step: int) -> Any:
        return self._of_chief(super().saved_place, step)

    def restore(self, step: int) -> list[str]:
        new = super().restore(step) if self._is_chief else []
        self.state.shared_names = self._of_chief(lambda: self.state.shared_names)
        for part in self.state.the_same():
            data = part.numpy().tobytes() if self._is_chief else None
            self.state.take(part, self._exchange.of_chief(data, self.state.size_of(part)))
        kept = self.state.of_workers or [] if self._is_chief else []
        count = int(self._exchange.rows([float(len(kept))])[0, 0])
        blobs = [self._exchange.of_chief(kept[index] if self._is_chief else None) for index in range(count)]
        if not self._is_chief and self._exchange.index < count:
            self.state.take_own(blobs[self._exchange.index])
        self.last_step = step
        return new
