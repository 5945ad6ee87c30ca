"""Rules about the figures by which a training ends early, keeps its best models, or reduces its learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from ..job.machine_gpus import Machine
from ..options import OPTIONS, Options
from ..options.run import BEST_MODELS
from ..options.training import EARLY_STOPPING, ON_PLATEAU, PLATEAU
from ..options.watched_figure import EARLY_STOP, KEEP_BEST, OF_OWN_MODELS, OFF, PLATEAU_FIGURE, WatchedFigure
from .option_finding import Finding

_SCHEDULE = "train.schedule"


def early_stop(options: Options, _machine: Machine) -> Iterator[Finding]:
    train, key = options.train, EARLY_STOP
    figure = train.stops_by
    if figure is None:
        yield from _without(options, key, OFF, EARLY_STOPPING)
        return
    yield from _of_gputui(options, key, figure)
    if train.early_stop_patience >= train.epochs:
        yield Finding(
            "warning",
            ("train.early_stop_patience", "train.epochs"),
            f"a training of {train.epochs} epochs cannot end early after {train.early_stop_patience} without "
            "improvement",
            "raise train.epochs, or lower train.early_stop_patience",
        )


def keep_best(options: Options, _machine: Machine) -> Iterator[Finding]:
    figure, key = options.run.keeps_best_by, KEEP_BEST
    if figure is None:
        yield from _without(options, key, OFF, BEST_MODELS)
    else:
        yield from _of_gputui(options, key, figure)


def plateau(options: Options, _machine: Machine) -> Iterator[Finding]:
    train = options.train
    figure = train.reduces_rate_by
    if figure is None:
        yield from _without(options, _SCHEDULE, train.schedule, ON_PLATEAU)
        return
    yield from _of_gputui(options, PLATEAU_FIGURE, figure)
    if train.warmup_steps:
        yield Finding(
            "error",
            (_SCHEDULE, "train.warmup_steps"),
            f"{PLATEAU} follows a figure, and cannot follow a warm-up by steps",
            "set train.warmup_steps=0, or another train.schedule",
        )
    if train.decay_steps is not None:
        yield Finding(
            "warning",
            (_SCHEDULE, "train.decay_steps"),
            f"{PLATEAU} does not follow the steps",
            "remove train.decay_steps",
        )


def _without(options: Options, key: str, value: str, part: str) -> Iterator[Finding]:
    """Yield an error for each option of this part of the group that is set: it has no effect while `key` has this
    `value`.
    """
    group = key.partition(".")[0]
    infos = [info for info in OPTIONS if info.group == group and info.about.part == part and info.key != key]
    for info in infos:
        if getattr(getattr(options, group), info.name) != info.default:
            instead = f"set {key}={PLATEAU}" if key == _SCHEDULE else f"set {key}=val_loss or another figure"
            what = f"{info.name} has no effect while {key} is {value}"
            yield Finding("error", (info.key, key), what, f"{instead}, or remove {info.key}")


def _of_gputui(options: Options, key: str, figure: WatchedFigure) -> Iterator[Finding]:
    """Yield an error if gputui's own training lacks the figure. The figures of a user's own code are known only when it
    trains.
    """
    if lack := lacks_figure(options, figure):
        why, others = lack
        if figure.name not in OF_OWN_MODELS:
            yield Finding("error", (key,), why, f"set it to one of {', '.join(others)}")
        else:
            instead = f"set train.validation_split, or {key}={others[0]}"
            yield Finding("error", (key, "train.validation_split"), why, instead)


def lacks_figure(options: Options, figure: WatchedFigure) -> tuple[str, tuple[str, ...]] | None:
    """Return why a training of gputui's own model lacks the figure, and which figures are there instead. None if it has
    the figure, or for own code.
    """
    if options.workload.entry is not None:
        return None
    if figure.name not in OF_OWN_MODELS:
        return f"the training has no figure {figure.name}", OF_OWN_MODELS
    if figure.of_validation and not options.train.validates:
        return f"{figure.name} is a figure of the validation, which is off", (figure.name.removeprefix("val_"),)
    return None
