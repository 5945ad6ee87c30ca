"""Compares runs: the options that differ, and the figures with their difference from the first run, the baseline. Runs
with equal options but the seed are repeats, whose spread is the noise: a smaller difference means nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .. import figures
from ..figures import Figure
from ..files.places import home, runs_folder
from ..files.reading import read_bytes, read_object
from ..files.values import number
from ..files.writing import write_atomically
from ..job.environment_variables import differing
from ..options import is_private
from ..plan import batches_per_pass, samples_seen
from ..runs import Run, code_copy, code_files, launched_with, run_cluster
from ..runs.events import BACKENDS, Started
from ..runs.launched_with import read_options
from ..runs.titles import Title, title_of

Choice = Literal["pinned", "given", "first"]


@dataclass(frozen=True)
class SeedFigure:
    """A metric of a group: its value for each run (None: missing), their mean and standard deviation."""

    key: str
    label: str
    unit: str
    values: tuple[float | None, ...]
    mean: float
    spread: float


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in their seed: their places (from 0), seeds and metrics."""

    places: tuple[int, ...]
    seeds: tuple[Any, ...]
    figures: tuple[SeedFigure, ...]


def mean_and_spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation. None for a mean of no value, and for a spread of fewer than two."""
    mean = statistics.fmean(values) if values else None
    return mean, statistics.stdev(values) if len(values) > 1 else None


def seed_groups(
    groups: Sequence[int], seeds: Sequence[Any], metrics: Sequence[tuple[Figure, Sequence[float | None]]]
) -> tuple[SeedGroup, ...]:
    """Return each group of repeats with at least two seeds, and the metrics that two of its runs have."""
    made = []
    for repeated in dict.fromkeys(groups):
        places = tuple(at for at, group in enumerate(groups) if group == repeated)
        if len({seeds[at] for at in places}) < 2:
            continue
        figures = []
        for figure, of_runs in metrics:
            values = tuple(of_runs[at] for at in places)
            mean, spread = mean_and_spread([value for value in values if value is not None])
            if mean is not None and spread is not None:
                figures.append(SeedFigure(figure.key, figure.label, figure.unit, values, mean, spread))
        if figures:
            made.append(SeedGroup(places, tuple(seeds[at] for at in places), tuple(figures)))
    return tuple(made)


NAMED = 2  # files in a cell


@dataclass(frozen=True)
class CodeRow:
    """The code of each run: commit, files that differ (None: unknown), and the same number for the same code."""

    commits: tuple[str, ...]
    differing: tuple[tuple[str, ...] | None, ...]
    numbers: tuple[int, ...]

    def text(self, position: int) -> str:
        """Return the cell of a run: its commit, and `same` or `differs` with the files."""
        commit, names = self.commits[position], self.differing[position]
        if names is None or position == 0:
            return commit
        more = f" +{len(names) - NAMED}" if len(names) > NAMED else ""
        text = f"differs: {', '.join(names[:NAMED])}{more}" if names else "same"
        return f"{text} ({commit})" if commit else text


def code_row(runs: Sequence[Run]) -> CodeRow | None:
    """Return the comparison of the code with that of the first run. None if no run has recorded code of its own."""
    codes = [_Code(run) for run in runs]
    if not any(code.files for code in codes):
        return None
    commits = tuple(code_copy.read(run).short_commit for run in runs)
    alike = [[code.files == other.files or code.differing(other) == () for other in codes] for code in codes]
    return CodeRow(commits, tuple(codes[0].differing(code) for code in codes), tuple(row.index(True) for row in alike))


class _Code:
    def __init__(self, run: Run) -> None:
        record = code_files.read(run)
        self.files = {record.name_of(path): digest for path, digest in record.files.items()}
        self._copy = code_copy.of(run)

    def differing(self, other: _Code) -> tuple[str, ...] | None:
        # a file that only one run has imported is compared with the other's copy; None if one has recorded no file
        if not self.files or not other.files:
            return None
        names = sorted(self.files.keys() | other.files.keys())
        return tuple(name for name in names if self._hash(name) != other._hash(name))

    def _hash(self, name: str) -> str | None:
        if name in self.files or self._copy is None:
            return self.files.get(name)
        try:
            return hashlib.sha256(read_bytes(Path(self._copy) / name)).hexdigest()
        except OSError:
            return None


SEED = "train.seed"
OPTIONS_UNKNOWN = "its options are not known"
LEFT = "workload.left_to_fit"
NO_DIFFERENCE = (SEED, "run.code")  # options in which repeats may differ
VERSIONS = {**BACKENDS, "keras": "Keras", "python": "Python"}  # keys of the event `started`, with names


@dataclass(frozen=True)
class OptionRow:
    """An option, or version of a package, that differs: its value in each run, and why it had no effect."""

    key: str
    values: tuple[Any, ...]
    no_effect: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureRow:
    """A figure of each run, and its difference from the first run."""

    key: str
    label: str
    unit: str
    more_is_better: bool | None  # None: neither is
    values: tuple[float | None, ...]
    changes: tuple[float | None, ...]  # from the first run (0.05: 5 % more; of a `share` plain differences)
    noise: float | None  # the largest spread among repeats

    def exceeds_noise(self, position: int) -> bool | None:
        """Return True if the run at `position` differs from the first by more than the noise. None: not known."""
        change = self.changes[position]
        return None if change is None or self.noise is None else abs(change) > self.noise


@dataclass(frozen=True)
class Comparison:
    """The comparison of runs, the baseline first."""

    baseline: str
    choice: Choice  # of the baseline
    runs: tuple[str, ...]
    states: tuple[str, ...]
    groups: tuple[int, ...]  # repeats have the same number
    options: tuple[OptionRow, ...]
    figures: tuple[FigureRow, ...]
    notes: tuple[str, ...]  # about figures that cannot be compared and runs left out
    titles: tuple[Title, ...] = ()
    versions: tuple[OptionRow, ...] = ()
    code: CodeRow | None = None  # of the users' own code
    names: tuple[str, ...] = ()
    over_seeds: tuple[SeedGroup, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"titles": [str(title) for title in self.titles]}


def compare(line_up: LineUp) -> Comparison:
    """Return the comparison of two or more runs. A run without a result has no figures."""
    runs = line_up.runs
    read = [read_options(run) for run in runs]
    results = [_flat(run.whole_result) for run in runs]
    places = [run_cluster.of_run(run) for run in runs]
    started = [launched_with.started(run) for run in runs]
    options = [_settled(of_run, event) for (of_run, _), event in zip(read, started, strict=True)]
    versions_of_runs = [event.versions if event else {} for event in started]
    code = code_row(runs)
    codes = code.numbers if code else (0,) * len(runs)
    groups = _groups(options, [place.index if place else None for place in places], versions_of_runs, codes)
    keys = dict.fromkeys(key for result in results for key in result if key.startswith("metrics."))
    metrics = [figures.metric(key.removeprefix("metrics.")) for key in keys]
    rows = [figure_row(figure, results, groups) for figure in (*metrics, *figures.shown("compare"))]
    states = tuple(run.state for run in runs)
    notes = [line_up.lost] if line_up.lost else []
    notes += [
        f"{run.name}: {text}"
        for run, preset in zip(runs, read, strict=True)
        for text in (*run.damage, preset[1] or OPTIONS_UNKNOWN * (not preset[0]), _not_restored(run.whole_result))
        if text
    ]
    chiefs = [chief.id for run in runs if (chief := run_cluster.local_chief(run)) is not None]
    if any(run.id in chiefs for run in runs) or len(set(chiefs)) < len(chiefs):
        notes.append(
            "some of these runs are workers of one training: the speed of each is that of all workers together"
        )
    packages = {**VERSIONS, "gputui": "gputui"}
    versions = [OptionRow(name, tuple(of.get(key) for of in versions_of_runs)) for key, name in packages.items()]
    versions = [row for row in versions if len({value for value in row.values if value is not None}) > 1]
    reasons = [event.inapplicable if event else {} for event in started]
    different = [
        OptionRow(key, tuple(of_run.get(key) for of_run in options), tuple(why.get(key, "") for why in reasons))
        for key in dict.fromkeys(key for of_run in options for key in of_run)
    ]
    with_options = [place for place, of_run in enumerate(options) if of_run]
    return Comparison(
        baseline=runs[0].id,
        choice=line_up.choice,
        runs=tuple(run.id for run in runs),
        states=states,
        groups=groups,
        options=tuple(
            row for row in different if any(row.values[at] != row.values[with_options[0]] for at in with_options)
        ),
        figures=tuple(row for row in rows if any(value is not None for value in row.values)),
        notes=(*notes, *caveats(options, results, states, started, [row.key for row in versions])),
        titles=tuple(title_of(run) for run in runs),
        versions=tuple(versions),
        code=code,
        names=tuple(run.name for run in runs),
        over_seeds=seed_groups(
            groups,
            [of_run.get(SEED) for of_run in options],
            [(figure, [result.get(figure.key) for result in results]) for figure in metrics],
        ),
    )


def _settled(options: Options, started: Started | None) -> Options:
    # what a script's fit decided has the value that it had there; None if that is not known
    decided = {key: started.option(key) if started else None for key in options.get(LEFT) or ()}
    return {key: value for key, value in {**options, **decided}.items() if not is_private(key) and key != LEFT}


def _not_restored(result: Mapping[str, Any]) -> str:
    names = result.get("not_restored") or []
    return f"a resume has not restored all, so that its figures may differ: {'; '.join(names[:NAMED])}" if names else ""


def _flat(result: Mapping[str, Any]) -> dict[str, float]:
    # by dotted keys (`step_ms.p50`)
    numbers: dict[str, float] = {}
    for key, value in result.items():
        if isinstance(value, Mapping):
            numbers |= {f"{key}.{name}": figure for name, figure in _flat(value).items()}
        elif (figure := number(value)) is not None:
            numbers[key] = figure
    return numbers


def _groups(
    options: Sequence[Mapping[str, Any]],
    workers: Sequence[int | None],
    versions_of_runs: Sequence[Mapping[str, str]],
    codes: Sequence[int],
) -> tuple[int, ...]:
    """Repeats have equal options but the seed, worker (None on one machine), versions and code, and the same number."""
    kinds: list[dict[str, Any]] = []
    numbers = list[int]()
    for of_run, worker, versions, code in zip(options, workers, versions_of_runs, codes, strict=True):
        kind = {key: value for key, value in of_run.items() if key not in NO_DIFFERENCE}
        kind |= {"worker": worker, "code": code}
        kind["versions"] = [versions.get(name) for name in VERSIONS] if versions else len(numbers)  # of another program
        if kind not in kinds:
            kinds.append(kind)
        numbers.append(kinds.index(kind))
    return tuple(numbers)


def figure_row(figure: Figure, results: Sequence[Mapping[str, float]], groups: Sequence[int]) -> FigureRow:
    """The noise is the largest minus the smallest value of repeats, divided by the smallest (not of a share)."""
    values, is_share, spreads = tuple(result.get(figure.key) for result in results), figure.unit == "share", []

    def change(value: float | None) -> float | None:
        first = values[0]
        if first is None or value is None or not (first or is_share):
            return None
        return value - first if is_share else (value - first) / abs(first)

    for group in set(groups):
        members = [value for value, of in zip(values, groups, strict=True) if of == group and value is not None]
        least = min(map(abs, members), default=0.0)
        if len(members) > 1 and (is_share or least):
            spread = max(members) - min(members)
            spreads.append(spread if is_share else spread / least)
    changes, noise = (None, *map(change, values[1:])), max(spreads, default=None)
    return FigureRow(figure.key, figure.label, figure.unit, figure.more_is_better, values, changes, noise)


Options = Mapping[str, Any]
Figures = Mapping[str, float]
SAME_SAMPLES = 0.01  # relative to the largest
ONE_REPLICA = ("single", "one_device")


def caveats(
    options: Sequence[Options],
    results: Sequence[Figures],
    states: Sequence[str],
    started: Sequence[Started | None],
    versions: Sequence[str] = (),
) -> list[str]:
    """Return sentences about figures that cannot be compared; sequences have an item for each run."""
    actual: list[Mapping[str, Any]] = [trainer.actual if trainer else {} for trainer in started]
    with_options = [of_run for of_run in options if of_run]
    batches = [_global_batch(*run) for run in zip(options, results, started, strict=True)]
    texts = [] if results[0] else [f"the baseline has no figures to compare with (it is {states[0]})"]
    keys = [key for key in with_options[0] if key.startswith("workload.")] if with_options else []
    if work := [key for key in keys if any(of_run.get(key) != with_options[0][key] for of_run in with_options)]:
        texts.append(
            f"the runs do different work ({', '.join(work)}): speed and loss belong to different models or data"
        )
    if any(of_run.get("input.one_batch") for of_run in with_options):
        texts.append("input.one_batch repeats a single batch: the speed is an upper limit, and the loss means nothing")
    sizes = dict.fromkeys(batch for batch in batches if batch is not None)
    if len(sizes) > 1:
        texts.append(
            f"the global batch sizes differ ({_amounts(sizes)} samples): a step is not the same amount of work"
        )
    seen = {
        _seen(of_run, result["steps"], batch, begun): None
        for of_run, result, batch, begun in zip(options, results, batches, started, strict=True)
        if batch is not None and result.get("steps") and any(key.startswith("metrics.") for key in result)
    }
    if len(seen) > 1 and max(seen) - min(seen) > SAME_SAMPLES * max(seen):
        after = f"the losses are after different numbers of samples ({_amounts(seen)})"
        texts.append(f"{after}: they do not show which learns better")
    if versions:
        texts.append(f"the versions of {' and '.join(versions)} differ: the speed may differ for that reason")
    environments = [trainer["environment"] for trainer in actual if isinstance(trainer.get("environment"), Mapping)]
    if names := differing(environments):
        texts.append(f"the environments differ ({', '.join(names)}): the speed may differ for that reason")
    by_itself = {
        trainer.get("jit_compile")
        for of_run, trainer in zip(options, actual, strict=False)
        if of_run.get("compile.xla") == "auto"
    }
    if len(by_itself - {None}) > 1:  # the same option can have another effect on another machine
        texts.append(
            "compile.xla is auto, and XLA has compiled only some of these runs: see xla_reason in their events"
        )
    return texts


def _seen(options: Options, steps: float, batch: float, started: Started | None) -> float:
    """If the size of its data is not known, all batches count as full."""
    samples = started.train_samples if started else None
    if started is None or not samples or batch < 1:
        return steps * batch
    batches = started.steps_per_epoch  # of an epoch with one pass, counted by the trainer
    if options.get("train.steps_per_epoch") or started.global_batch_size != batch:
        drops = options.get("input.drop_remainder") is True
        batches = batches_per_pass(samples, int(batch), started.replicas or 1, drops)
    return samples_seen(int(steps), samples, int(batch), batches) if batches else steps * batch


def _global_batch(options: Options, result: Figures, started: Started | None) -> float | None:
    # of a user's own code without a result, only the trainer can have told it
    batch_of_result = result.get("global_batch_size")
    if batch_of_result is not None:
        return batch_of_result
    if options.get("workload.entry"):
        return started.global_batch_size if started else None
    batch = number(options.get("input.batch_size"))
    return batch if options.get("strategy.kind") in ONE_REPLICA else None


def _amounts(numbers: Mapping[float, None]) -> str:
    return ", ".join(f"{number:,.0f}" for number in numbers)


# ---- the pinned baseline: baseline.json in the home folder names it -------------------------------


IGNORED = "it is left out; gputui compare --unpin removes the pin"


@dataclass(frozen=True)
class Pin:
    """The pinned run, or None, with a sentence in `lost` if it cannot be found."""

    run: Run | None = None
    lost: str = ""


@dataclass(frozen=True)
class LineUp:
    """The runs to compare, the baseline (its `choice` in words) first; `lost` if the pinned run cannot be found."""

    runs: tuple[Run, ...]
    choice: Choice = "first"
    lost: str = ""


def pin(run: Run) -> None:
    """Make the run the baseline of all later comparisons. Raises OSError."""
    write_atomically(_file(), json.dumps({"run": run.id}) + "\n")


def unpin() -> bool:
    try:
        _file().unlink()
    except FileNotFoundError:
        return False
    return True


def pinned() -> Pin:
    """Return the run that is pinned now, or a sentence if it cannot be found."""
    if not os.path.lexists(_file()):
        return Pin()
    if not isinstance(name := read_object(_file()).value.get("run"), str):
        return Pin(lost=f"the pinned baseline cannot be read from {_file()}; {IGNORED}")
    run = Run(runs_folder() / name)
    if run.id == name and os.path.lexists(run.file("preset.yaml")):
        return Pin(run)
    return Pin(lost=f"the pinned baseline {name} no longer exists; {IGNORED}")


def line_up(runs: Iterable[Run], given: Run | None = None) -> LineUp:
    """Return the runs to compare, each once, the baseline first: the run `given`, the pinned one, or the first."""
    pin = Pin() if given else pinned()
    baseline = given or pin.run
    once = dict.fromkeys([baseline, *runs] if baseline else runs)
    return LineUp(tuple(once), "given" if given else "pinned" if pin.run else "first", pin.lost)


def _file() -> Path:
    return home() / "baseline.json"
