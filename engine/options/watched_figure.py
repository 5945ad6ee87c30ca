"""The figure of an epoch that an option names, such as `val_loss`, and the direction in which it improves."""

from __future__ import annotations

from typing import Annotated, Literal

from ..frozen import dataclass
from .catalogue import Limits

# The options that name one.
EARLY_STOP, KEEP_BEST, PLATEAU_FIGURE = "train.early_stop", "run.keep_best", "train.plateau_figure"
OFF: Literal["off"] = "off"
OF_OWN_MODELS = ("loss", "accuracy", "val_loss", "val_accuracy")  # the figures of the models that gputui has
FigureName = Annotated[
    str,
    Limits(
        "the name of a figure of each epoch, such as val_loss; with :min or :max if Keras does not know its direction",
        pattern=r"^[^\s:]+(:(min|max))?$",
        max_length=200,
    ),
]


@dataclass(frozen=True)
class WatchedFigure:
    """A figure of each epoch. `direction` is `min` or `max`, or `auto` if Keras infers it from the metric."""

    name: str
    direction: str

    @property
    def of_validation(self) -> bool:
        return self.name.startswith("val_")


def figure_of(value: str) -> WatchedFigure:
    """Return the figure that the value of an option names: `val_loss`, or `val_cost:min` with its direction."""
    name, _, direction = value.partition(":")
    return WatchedFigure(name, direction or "auto")


def watched(value: str) -> WatchedFigure | None:
    """Return the figure that the value of an option names. None for `off`."""
    return None if value == OFF else figure_of(value)
