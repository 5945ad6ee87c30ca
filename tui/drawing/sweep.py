"""The settings of a sweep as rows: the metric over each swept option, and the trials of one setting."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ...engine.trials import sweep_groups, sweep_sentences
from ...engine.trials.change_texts import short, value
from ...engine.trials.sweep_record import DONE, DROPPED, FAILED, SEARCH, Sweep, SweepTrial
from ...engine.units import amount, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from .interval_bar import Interval, around
from .rows import Row, fitting, wrapped

NAMES, FIGURES = 26, 9  # cells of an option with its value, and of a figure
STYLES = {DONE: "good", FAILED: "bad", DROPPED: "label"}


def interval(group: Sequence[SweepTrial]) -> Interval | None:
    """Return the mean metric of the trials of a setting, with its standard deviation over seeds. None without one."""
    metrics = sweep_groups.values(group)
    spread = statistics.stdev(metrics) if len(metrics) > 1 else None
    return around(statistics.fmean(metrics), spread) if metrics else None


def reference(groups: Sequence[Sequence[SweepTrial]]) -> float:
    """Return the mean metric at which bars have their line: that of the preset, if it is a setting, else the best."""
    own = [group for group in groups if not group[0].changes]
    means = (mean.value for group in (*own, *groups) if (mean := interval(group)) is not None)
    return next(means, 0.0)


def detail(sweep: Sweep, picked: Sequence[SweepTrial], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return at most `height` rows: remarks on the result, the trials of the setting `picked`, and the metric over each
    swept option.
    """
    remarks = filter(None, (sweep_sentences.luck(sweep), sweep_sentences.saved(sweep)))
    rows: list[Row] = [[(line, "label")] for text in remarks for line in wrapped(clean(text), width, glyphs)]
    rows += [_trial(sweep, trial, width, glyphs) for trial in picked]
    over = over_options(sweep, width, glyphs)
    if over and len(rows) + 2 <= height:
        rows += [[], *over]
    return rows[:height]


def _trial(sweep: Sweep, trial: SweepTrial, width: int, glyphs: Glyphs) -> Row:
    last = sweep_groups.last_value(trial)
    figure = "" if last is None else f"  {sweep.settings.metric} {amount(last)}"
    time = "" if trial.seconds is None else f"  {seconds(trial.seconds)}"
    text = f"{trial.part:<8}seed {trial.seed:<12}"
    rest = f"{clean(sweep_sentences.outcome(trial))}{figure}{time}"
    return [(text, "label"), (fitting(rest, max(1, width - len(text)), glyphs), STYLES.get(trial.state, "value"))]


def over_options(sweep: Sweep, width: int, glyphs: Glyphs) -> list[Row]:
    """Return for each value of each swept option a row with a bar: the mean metric of the search's trials with it.

    The bars are between the lowest and the highest of these means. Empty if no trial is complete.
    """
    done = [trial for trial in sweep.trials if trial.part == SEARCH and trial.state == DONE and trial.value is not None]
    means: list[tuple[str, str, float]] = []
    for axis in sweep.settings.axes:
        by_value: dict[str, list[float]] = {}
        for trial in sorted(done, key=lambda trial: _place(trial.changes.get(axis.key))):
            by_value.setdefault(value(trial.changes.get(axis.key)), []).append(trial.value or 0.0)
        means += [(short(axis.key), of, statistics.fmean(metrics)) for of, metrics in by_value.items()]
    if not means:
        return []
    low, high = min(mean for *_, mean in means), max(mean for *_, mean in means)
    room = max(4, width - NAMES - FIGURES - 2)
    rows: list[Row] = [[(f"mean {clean(sweep.settings.metric)} over each swept option", "label")]]
    before = ""
    for name, of, mean in means:
        filled = 1 + round((mean - low) / (high - low) * (room - 1)) if high > low else room
        label = fitting(clean(f"{name if name != before else '':<16}{of:>9}"), NAMES - 1, glyphs)
        rows.append([(f"{label:<{NAMES}}", "value"), (glyphs.done * filled, "curve1"),
                     (glyphs.to_do * (room - filled), "track"), (f" {amount(mean):>{FIGURES}}", "value")])  # fmt: skip
        before = name
    return rows


def _place(of: object) -> tuple[int, float, str]:
    """Return the place of a value in an order: numbers by their size, then other values by their text."""
    is_number = isinstance(of, int | float) and not isinstance(of, bool)
    return (0, float(of), "") if is_number else (1, 0.0, str(of))  # type: ignore[arg-type]
