"""The part of an exported script that watches the training: checkpoints, profile, time limit, NaN."""

from __future__ import annotations

from ..options import Options
from .lines import Script
from .source import extract


def callbacks(script: Script, wanted: Options, theirs: str = "") -> None:
    """Defines `callbacks`, beginning with those of the expression `theirs`."""
    run = wanted.run
    if run.profile_steps:
        script.blocks(extract("trainer/exported.py", "Profile"))
    if isinstance(run.max_minutes, int | float):
        script.blocks(extract("trainer/exported.py", "TimeLimit"))
    script.text("callbacks = [")
    if theirs:
        script.text(f"    *{theirs},")
    _nan(script, wanted)
    _checkpoint(script, wanted)
    if run.profile_steps:
        script.add(f"    Profile{run.profile_steps},", "run.profile")
    if isinstance(run.max_minutes, int | float):
        script.add(f"    TimeLimit({run.max_minutes}),", "run.max_minutes")
    script.text("]")


def _nan(script: Script, wanted: Options) -> None:
    if not wanted.train.stop_on_nan:
        script.add("    # no TerminateOnNaN", "train.stop_on_nan")
    elif wanted.precision.policy == "mixed_float16":
        why = "not with float16, where TerminateOnNaN ends healthy runs at a skipped step"
        script.add("    # no TerminateOnNaN", "train.stop_on_nan", why)
    else:
        script.add("    keras.callbacks.TerminateOnNaN(),", "train.stop_on_nan", "looks at the loss alone")


def _checkpoint(script: Script, wanted: Options) -> None:
    every = wanted.run.checkpoint
    if every == "epoch":
        script.add(
            '    keras.callbacks.BackupAndRestore("backup"),',
            "run.checkpoint",
            "starts again at the epoch; exact without shuffling and dropout",
        )
    elif every != "off":
        script.add(
            f'    keras.callbacks.ModelCheckpoint("step.weights.h5", save_weights_only=True, save_freq={every}),',
            "run.checkpoint",
            "the weights alone; Keras resumes from epochs only",
        )
