"""Compares runs: the options that differ, and the figures with their difference from the first run, the baseline. Runs
with equal options but the seed are repeats, whose spread is the noise: a smaller difference means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .. import figures
from ..figures import Figure
from ..files.values import number
from ..options import is_private
from ..runs import Run, launched_with, run_cluster
from ..runs.launched_with import read_options
from ..runs.titles import Title, title_of
from .baseline import Choice, LineUp
from .caveats import caveats
from .over_seeds import SeedGroup, seed_groups
from .same_code import CodeRow, code_row

SEED = "train.seed"
NO_DIFFERENCE = (SEED, "run.code")  # options in which repeats may differ
VERSIONS = {"tensorflow": "TensorFlow", "keras": "Keras", "python": "Python"}  # keys of the event `started`, with names


@dataclass(frozen=True)
class OptionRow:
    """An option, or version of a package, that differs: its value in each run, and why it had no effect there (else
    empty).
    """

    key: str
    values: tuple[Any, ...]
    no_effect: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureRow:
    """A figure of each run, with `changes` from the first run (0.05: 5 % more; of a `share` plain differences) and the
    `noise`, the largest spread among repeats. `more_is_better` is None if neither is.
    """

    key: str
    label: str
    unit: str
    more_is_better: bool | None
    values: tuple[float | None, ...]
    changes: tuple[float | None, ...]
    noise: float | None

    def exceeds_noise(self, position: int) -> bool | None:
        """Return True if the run at `position` differs from the first by more than the noise. None: not known."""
        change = self.changes[position]
        return None if change is None or self.noise is None else abs(change) > self.noise


@dataclass(frozen=True)
class Comparison:
    """The comparison of runs, the baseline (its `choice` in words) first. Repeats have the same number in `groups`.
    `notes` are about figures that cannot be compared and runs left out. `code` compares the users' own code.
    """

    baseline: str
    choice: Choice
    runs: tuple[str, ...]
    states: tuple[str, ...]
    groups: tuple[int, ...]
    options: tuple[OptionRow, ...]
    figures: tuple[FigureRow, ...]
    notes: tuple[str, ...]
    titles: tuple[Title, ...] = ()
    versions: tuple[OptionRow, ...] = ()
    code: CodeRow | None = None
    names: tuple[str, ...] = ()
    over_seeds: tuple[SeedGroup, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON."""
        return asdict(self) | {"titles": [str(title) for title in self.titles]}


def compare(line_up: LineUp) -> Comparison:
    """Return the comparison of two or more runs. A run without a result has no figures."""
    runs = line_up.runs
    read = [read_options(run) for run in runs]
    options = [{key: value for key, value in of_run.items() if not is_private(key)} for of_run, _ in read]
    results = [_flat(run.whole_result) for run in runs]
    places = [run_cluster.of_run(run) for run in runs]
    started = [launched_with.started(run) for run in runs]
    versions_of_runs = [event.versions if event else {} for event in started]
    code = code_row(runs)
    codes = code.numbers if code else (0,) * len(runs)
    groups = _groups(options, [place.index if place else None for place in places], versions_of_runs, codes)
    metrics = _metrics(results)
    rows = [_row(figure, results, groups) for figure in (*figures.shown("compare"), *metrics)]
    states = tuple(run.state for run in runs)
    lost = (line_up.lost,) if line_up.lost else ()
    versions = _versions(versions_of_runs)
    return Comparison(
        baseline=runs[0].id,
        choice=line_up.choice,
        runs=tuple(run.id for run in runs),
        states=states,
        groups=groups,
        options=tuple(_different(options, [launched_with.unapplied(event) for event in started])),
        figures=tuple(row for row in rows if any(value is not None for value in row.values)),
        notes=(
            *lost,
            *_damage(runs, [why for _, why in read]),
            *_together(runs),
            *caveats(options, results, states, started, [row.key for row in versions]),
        ),
        titles=tuple(title_of(run) for run in runs),
        versions=versions,
        code=code,
        names=tuple(run.name for run in runs),
        over_seeds=seed_groups(
            groups,
            [of_run.get(SEED) for of_run in options],
            [(figure, [result.get(figure.key) for result in results]) for figure in metrics],
        ),
    )


def _together(runs: Sequence[Run]) -> list[str]:
    chiefs = [chief.id for run in runs if (chief := run_cluster.local_chief(run)) is not None]
    if not any(run.id in chiefs for run in runs) and len(set(chiefs)) == len(chiefs):
        return []
    return ["some of these runs are workers of one training: the speed of each is that of all workers together"]


def _damage(runs: Sequence[Run], presets: Sequence[str]) -> list[str]:
    return [
        f"{run.name}: {text}"
        for run, preset in zip(runs, presets, strict=True)
        for text in (*run.damage, preset)
        if text
    ]


def _flat(result: Mapping[str, Any]) -> dict[str, float]:
    # by dotted keys (`step_ms.p50`)
    numbers: dict[str, float] = {}
    for key, value in result.items():
        if isinstance(value, Mapping):
            numbers |= {f"{key}.{name}": figure for name, figure in _flat(value).items()}
        elif (figure := number(value)) is not None:
            numbers[key] = figure
    return numbers


def _different(options: Sequence[Mapping[str, Any]], unapplied: Sequence[Mapping[str, str]]) -> list[OptionRow]:
    keys = list(dict.fromkeys(key for of_run in options for key in of_run))
    rows = [
        OptionRow(key, tuple(of_run.get(key) for of_run in options), tuple(why.get(key, "") for why in unapplied))
        for key in keys
    ]
    return [row for row in rows if any(value != row.values[0] for value in row.values)]


def _versions(of_runs: Sequence[Mapping[str, str]]) -> tuple[OptionRow, ...]:
    names = {**VERSIONS, "gputui": "gputui"}
    rows = [OptionRow(name, tuple(versions.get(key) for versions in of_runs)) for key, name in names.items()]
    return tuple(row for row in rows if len({value for value in row.values if value is not None}) > 1)


def _groups(
    options: Sequence[Mapping[str, Any]],
    workers: Sequence[int | None],
    versions_of_runs: Sequence[Mapping[str, str]],
    codes: Sequence[int],
) -> tuple[int, ...]:
    """Repeats have equal options but the seed, worker (None on one machine), versions and code, and the same number."""
    kinds: list[dict[str, Any]] = []
    numbers = []
    for of_run, worker, versions, code in zip(options, workers, versions_of_runs, codes, strict=True):
        kind = {key: value for key, value in of_run.items() if key not in NO_DIFFERENCE}
        kind |= {"worker": worker, "code": code}
        kind["versions"] = [versions.get(name) for name in VERSIONS]
        if kind not in kinds:
            kinds.append(kind)
        numbers.append(kinds.index(kind))
    return tuple(numbers)


def _metrics(results: Sequence[Mapping[str, float]]) -> list[Figure]:
    keys = dict.fromkeys(key for result in results for key in result if key.startswith("metrics."))
    return [figures.metric(key.removeprefix("metrics.")) for key in keys]


def _row(figure: Figure, results: Sequence[Mapping[str, float]], groups: Sequence[int]) -> FigureRow:
    values, unit = tuple(result.get(figure.key) for result in results), figure.unit
    changes = (None, *(_change(values[0], value, unit) for value in values[1:]))
    noise = _noise(values, groups, unit)
    return FigureRow(figure.key, figure.label, unit, figure.more_is_better, values, changes, noise)


def _change(first: float | None, value: float | None, unit: str) -> float | None:
    if first is None or value is None:
        return None
    if unit == "share":
        return value - first
    return (value - first) / abs(first) if first else None


def _noise(values: Sequence[float | None], groups: Sequence[int], unit: str) -> float | None:
    """The largest minus the smallest value of repeats, divided by the smallest (not for the unit `share`)."""
    spreads = []
    for group in set(groups):
        members = [value for value, of in zip(values, groups, strict=True) if of == group and value is not None]
        least = min(map(abs, members), default=0.0)
        if len(members) > 1 and (unit == "share" or least):
            spread = max(members) - min(members)
            spreads.append(spread if unit == "share" else spread / least)
    return max(spreads, default=None)
