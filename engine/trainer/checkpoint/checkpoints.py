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
    """The checkpoints of a run, in the folders `folder`/step-NNNNNNNNNN. Only the newest `keep` of them are kept. With
    an `exchange` workers call the same methods in the same order, and only the chief has files.
    """

    def __init__(self, folder: Path, keep: int, state: State, exchange: Exchange | None = None) -> None:
        self._folder, self._keep, self.state, self._exchange = folder, keep, state, exchange
        self._index = exchange.index if exchange else 0  # of this worker
        if exchange is not None:
            state.of_workers = []
        self.last_step: int | None = None
        self._unusable: dict[int, str] = {}  # step -> why it cannot be used, as the end of a sentence
        self._end: int | None = None  # the training's last step
        # Returns the states of the callbacks, and adds their arrays (CalledCallbacks.state). None without callbacks.
        self.callbacks: Callable[[Arrays], Any] | None = None
        # Returns the place in the data after a number of steps for JSON, None if it follows from the step.
        self.place_in_data: Callable[[int], Any] = lambda _step: None

    def _of_chief(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the chief reads: a value for JSON."""
        if self._exchange is None:
            return read(*arguments)
        data = None if self._index else json.dumps(read(*arguments)).encode()
        return json.loads(self._exchange.of_chief(data))

    def save(self, step: int) -> None:
        """Write the state, unless it is written, and remove the oldest ones. Raises NotWritten."""
        if step == self.last_step:
            return
        states: tuple[list[Any], Arrays] | None = None
        if self._exchange is not None:
            self.state.of_workers = self._exchange.of_all(self.state.of_its_own())
            if self.callbacks is not None:
                arrays = Arrays()
                states = callback_state.gathered(self.callbacks(arrays), arrays, self._exchange)
        refused: NotWritten | None = None
        try:
            if self._index == 0:
                self._write(step, states)
        except NotWritten as reason:
            refused = reason
        # If the chief's disk has refused it, all try again when the same step is saved again.
        is_refused = float(refused is not None)
        if (is_refused if self._exchange is None else self._exchange.rows([is_refused])[0, 0]) == 0:
            self.last_step = step
        if refused is not None:
            raise refused

    def _write(self, step: int, states: tuple[list[Any], Arrays] | None) -> None:
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
        self._unusable.pop(step, None)
        # Unusable checkpoints do not count as kept, and are removed too.
        written = [each for each in checkpoint_files.steps_in(self._folder) if each <= step]
        kept = [each for each in written if each not in self._unusable][: self._keep]
        for old in written:
            if old < kept[-1] and len(kept) == self._keep:
                _remove(self._path(old))

    def callbacks_at(self, step: int) -> tuple[Any, Arrays] | None:
        """Return what `callbacks` returned at the checkpoint, and the arrays. None if an older gputui wrote it."""
        path = self._path(step) / CALLBACKS
        data = path.read_bytes() if self._index == 0 and path.exists() else b""
        if self._exchange is not None:
            data = self._exchange.of_chief(data)
        if not data:
            return None
        values, arrays = callback_state.read(data)
        return values[self._index if self._index < len(values) else 0], arrays  # the chief's, without such a worker

    def latest_step(self, end: int | None = None) -> int | None:
        """The newest intact one up to `end`, of workers the chief's. TrainerError if there are only damaged ones."""
        step: int | None = self._of_chief(self._latest_step, end)
        return step

    def _latest_step(self, end: int | None) -> int | None:
        for draft in self._folder.glob(".draft-*"):  # of a killed process: a run has only one trainer at a time
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
        return bool(self._of_chief(self.state.fits, str(self._path(step) / PREFIX)))

    def restore(self, step: int) -> list[str]:
        """Return the names of variables of a user's code that the checkpoint lacks. TrainerError if it does not fit."""
        path, new = self._path(step), list[str]()
        try:
            new = self.state.restore(str(path / PREFIX)) if self._index == 0 else []
        except (AssertionError, IndexError, ValueError, tf.errors.OpError) as fault:
            reason = " ".join(str(fault).split())[:200]
            raise TrainerError("checkpoint", f"{path} does not fit this model: {reason}") from None
        if self._exchange is not None:
            self._share(self._exchange)
        self.last_step = step
        return new

    def _share(self, exchange: Exchange) -> None:
        """Give the other workers the state that the chief has restored: what all have, and what each had of its own."""
        is_chief = self._index == 0
        self.state.shared_names = self._of_chief(lambda: self.state.shared_names)
        for part in self.state.the_same():
            data = part.numpy().tobytes() if is_chief else None
            self.state.take(part, exchange.of_chief(data, self.state.size_of(part)))
        own = self.state.of_workers or []
        for index in range(self._of_chief(lambda: len(own))):
            data = exchange.of_chief(own[index] if is_chief else None)
            if index == self._index and not is_chief:
                self.state.take_own(data)

    def saved_place(self, step: int) -> Any:
        """Return what `place_in_data` returned at the checkpoint."""
        path = self._path(step) / DATA
        return self._of_chief(lambda: json.loads(path.read_text()) if path.exists() else None)

    def _path(self, step: int) -> Path:
        return checkpoint_files.path_of(self._folder, step)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
