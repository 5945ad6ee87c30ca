"""Finds random operations in a training step that use TensorFlow's own random state, which no checkpoint can save."""

from __future__ import annotations

import keras

from ..checkpoint import step_graph
from ..measure.run_report import RunReport
from .user_code import UserCode

MOST_TOLD = 4
INSTEAD = (
    "draw with keras.random and a keras.random.SeedGenerator that the model keeps, or with a tf.random.Generator: "
    "their states are saved"
)


def warn(graph: object, code: UserCode, model: keras.Model, report: RunReport) -> None:
    """Warn of a resumed run which operations of its step begin their random numbers anew."""
    places = list(dict.fromkeys(_place(draw, code, model) for draw in step_graph.draws(graph)))
    if not places:
        return
    more = f" and {len(places) - MOST_TOLD} more" if len(places) > MOST_TOLD else ""
    verb = "draws" if len(places) == 1 else "draw"
    report.warn(
        "random_anew",
        f"{', '.join(places[:MOST_TOLD])}{more} {verb} from a random state of TensorFlow that cannot be saved: it "
        "starts again, so that losses differ from those of a run that was not interrupted",
        INSTEAD,
    )


def _place(draw: step_graph.Draw, code: UserCode, model: keras.Model) -> str:
    """The innermost line of the user's code; a layer of Keras may also draw."""
    theirs = [line for line in draw.lines if code.owns_file(line[0])]
    if not theirs:
        return f"{draw.name} in a step of {type(model).__name__}"
    file, line, function = theirs[-1]
    return f"{draw.name} in {function} ({code.name_of(file)}:{line})"
