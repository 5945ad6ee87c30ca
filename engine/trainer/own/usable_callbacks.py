"""Which of a user's own Keras callbacks a run calls: all, or in a run that only measures those that write no files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ...options import Options
from ..checkpoint import callback_state
from ..measure.run_report import RunReport
from .user_code import UserError

_WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


def usable(
    theirs: Sequence[keras.callbacks.Callback], options: Options, report: RunReport, writes: bool = True
) -> list[Any]:
    """Return those of the user's callbacks (`theirs`) that this run calls. Raises UserError for a callback that cannot
    be called.

    A run that only measures leaves out callbacks that write files, so that the files of the real run stay unchanged. Of
    several machines only the chief `writes`. There is a warning for each callback that is left out.
    """
    if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in theirs):
        raise UserError(
            "BackupAndRestore would train epochs twice here; run.checkpoint replaces it",
            "remove it, set run.checkpoint=epoch, and continue with gputui resume",
        )
    callback_state.require_pair(theirs)
    measures = options.run.measure_seconds is not None
    if writes and not measures:
        return list(theirs)
    why = "a run with run.measure_seconds does not touch your files" if measures else "the chief alone writes files"
    for callback in (callback for callback in theirs if isinstance(callback, _WRITERS)):
        report.warn(
            "callback_left_out",
            f"{type(callback).__name__} does nothing here: {why}",
            option=type(callback).__name__,
        )
    return [callback for callback in theirs if not isinstance(callback, _WRITERS)]
