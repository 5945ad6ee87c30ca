"""Keeps the models of the best epochs in files of the run folder (run.keep_best)."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras

from ...files import writing
from ...files.writing import sync
from ...options.training import KEEP_BEST
from .built_training import Built, save_as

FOLDER = "best"


@dataclass(frozen=True)
class Kept:
    """A model that is kept: its epoch, counted from 1, the value of the figure, and its file in the run folder.

    The file is empty on a worker that writes none.
    """

    epoch: int
    value: float
    file: str


class BestModels(keras.callbacks.Callback):
    """Keeps the models of the `count` epochs with the best values of the figure `monitor`, each in a file.

    `mode` is `min` or `max` and must be set before the first epoch ends. Of several workers only the first one writes.
    A superseded file is removed when the next checkpoint has been written, so that a resumed run finds the files that
    its checkpoint names.
    """

    def __init__(self, monitor: str, count: int, built: Built) -> None:
        super().__init__()
        self.monitor, self.mode, self._count, self._built = monitor, "auto", count, built
        self.kept: list[Kept] = []  # the best one first
        self._writes = built.joined is None or built.joined.cluster.is_chief
        self._folder = built.report.run.file(FOLDER)

    @property
    def files(self) -> list[dict[str, Any]]:
        """The kept models, the best one first, as values for JSON."""
        return [asdict(kept) for kept in self.kept]

    def get_state(self) -> dict[str, Any]:
        return {"kept": self.files}

    def set_state(self, state: dict[str, Any]) -> None:
        self.kept = [Kept(**item) for item in state["kept"]]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keep the model if the epoch, counted from 0, is one of the best. Of equal ones the earlier is the better."""
        value = float(logs[self.monitor])
        if math.isnan(value):
            return
        better = [kept for kept in self.kept if not self._improves(value, kept.value)]
        if len(better) >= self._count:
            return
        file = self._save(epoch + 1) if self._writes else ""
        if file is None:
            return
        worse = [kept for kept in self.kept if kept not in better]
        self.kept = [*better, Kept(epoch + 1, value, file), *worse][: self._count]
        if self._built.options.run.checkpoint == "off":
            self.remove_others()

    def _improves(self, value: float, on: float) -> bool:
        return value > on if self.mode == "max" else value < on

    def _save(self, epoch: int) -> str | None:
        """Write the model to a file, and return its path in the run folder. If the disk refuses it, warn and return
        None.
        """
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
        """Remove the files of models that are no longer kept."""
        names = {Path(kept.file).name for kept in self.kept}
        self._remove(lambda name: name not in names)

    def _remove(self, unwanted: Any) -> None:
        if self._writes:
            for file in (path for path in self._folder.glob("*") if unwanted(path.name)):
                with contextlib.suppress(OSError):
                    file.unlink()
