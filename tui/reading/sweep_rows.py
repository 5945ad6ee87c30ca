"""The measurements among the runs: one row of the table for each proof or search, and one for all trials of a sweep,
which can be opened. Imports no Textual."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...engine.proof.folder import Proof, proofs_folder
from ...engine.runs import Run, runs_folder
from ...engine.runs.event_reading import events_of
from ...engine.runs.events import EVENTS_FILE, EpochEnd
from ...engine.runs.run import WAITING, StateName
from ...engine.runs.titles import Notes, Title, name_of
from ...engine.trials import proof_sentences, sweep_record
from ...engine.trials.change_texts import short, value
from ...engine.trials.record import UNREAD, Record
from ...engine.trials.sweep_record import IN_FLIGHT, SweepTrial
from ...engine.units import amount, times
from .proofs import ProofEntry
from .queue_places import Queue
from .run.series import Line
from .run_list import GAIN, Entry

# The state of a measurement as that of a run; a sweep without a record has that of its trials.
_STATES: Mapping[str, StateName] = {
    "running": "running", "waiting": WAITING, "done": "ok", "failed": "error", "stopped": "stopped",
    "crashed": "crashed",
}  # fmt: skip


def _fitting(parts: Sequence[str], width: int) -> str:
    # At least the first.
    shown = range(len(parts), 0, -1)
    return next((text for count in shown if len(text := ", ".join(parts[:count])) <= width), parts[0])


@dataclass(frozen=True)
class PartsTitle(Title):
    """The title of a measurement. `changes` are its parts; those of a sweep: how many trials have ended, the best
    value, the swept options."""

    @property
    def whole(self) -> str:
        return ", ".join(self.changes)

    def within(self, width: int) -> str:
        return _fitting(self.changes, width)

    changes_within = within


@dataclass(frozen=True)
class TrialTitle(Title):
    """The title of a trial below the row of its sweep. `changes` are its swept options and, if seeds differ, its
    seed."""

    @property
    def whole(self) -> str:
        return " ".join(self.changes)

    def within(self, width: int) -> str:
        """Return the changes if they fit into `width` characters, else only their values, as many as fit."""
        if len(self.whole) <= width:
            return self.whole
        return _fitting([change.partition("=")[2] for change in self.changes], width)

    changes_within = within


@dataclass(frozen=True)
class MeasurementEntry(Entry):
    """The row of a proof, search or sweep. `run` is its own folder, among the proofs, which is no run."""

    record: Record = field(default_factory=lambda: UNREAD)
    noun: str = "sweep"
    extent: str = ""  # how much of it is done, while it goes on

    @property
    def proof(self) -> Proof:
        return Proof(self.run.path)

    @property
    def group(self) -> str:
        return self.noun

    @property
    def reached(self) -> str:
        return self.extent


@dataclass(frozen=True)
class SweepEntry(MeasurementEntry):
    """The row of a sweep. `trials` are the runs of the sweep that the table has, and `record` is UNREAD if the sweep
    was deleted."""

    @property
    def reached(self) -> str:
        ended, count = _counts(self.record, self.trials)
        return f"{ended} of {count}" if self.is_active and count else ""

    @cached_property
    def best_first(self) -> list[Run]:
        sweep, runs = self.record.sweep, {entry.run.id: entry.run for entry in self.trials}
        if sweep is None:
            return list(runs.values())
        groups = sweep_record.in_order(sweep.trials, sweep.settings.higher)
        named = [trial.run for group in groups for trial in group]
        return [runs[name] for name in dict.fromkeys((*named, *runs)) if name in runs]


def of_measurements(proofs: Iterable[ProofEntry], entries: Collection[Entry], queue: Queue) -> list[Entry]:
    """Return a row for each of the proofs that is no sweep whose trials are among the entries."""
    listed = {entry.sweep for entry in entries}
    rows: list[Entry] = []
    for each in proofs:
        if each.proof.id in listed:
            continue
        record, gain = each.data, each.data.gain_total
        preset = record.preset_name or name_of(Run(each.proof.path))
        words = [f"{each.noun} of {preset}"]
        if record.kind == "ab" and record.comparisons:
            words = [f"proof of {proof_sentences.changes(record.comparisons[0].changes)}", preset]
        words += [f"{times(gain)} as fast"] if gain is not None else []
        result = proof_sentences.conclusion(record) if record.is_read else "proof.json cannot be read"
        about = record.doing if each.is_active else result
        state = _STATES.get(each.state, "crashed")
        rows.append(MeasurementEntry(
            Run(each.proof.path), state, PartsTitle(preset, tuple(words)), about, when=each.when, size=each.size,
            figures={GAIN: gain if record.kind != "scaling" else None},  # that of several replicas is another thing
            waiting=queue.waiting.get(each.proof.id), record=record, noun=each.noun,
            extent=each.reached if each.is_active else "",
        ))  # fmt: skip
    return rows


def in_sweeps(
    entries: Iterable[Entry], records: Mapping[str, Record], is_open: Callable[[str, int], bool] | None = None
) -> list[Entry]:
    """Return the entries with one row for a sweep, at the place of its first trial, followed by its trials if open."""
    entries = list(entries)
    trials: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.sweep:
            trials.setdefault(entry.sweep, []).append(entry)
    rows: list[Entry] = []
    for entry in entries:
        if not entry.sweep:
            rows.append(entry)
        elif (of_sweep := trials.pop(entry.sweep, None)) is not None:
            opened = is_open is not None and is_open(entry.sweep, len(of_sweep))
            rows.append(_row(entry.sweep, of_sweep, records.get(entry.sweep, UNREAD), opened))
            rows += _below(of_sweep, records.get(entry.sweep, UNREAD)) if opened else []
    return rows


def _below(trials: list[Entry], record: Record) -> list[Entry]:
    """The trials of an open sweep, whose titles have only what differs among them."""
    if (sweep := record.sweep) is None:
        return trials
    several = len({trial.seed for trial in sweep.trials}) > 1
    titles = {}
    for trial in sweep.trials:
        words = [f"{short(key)}={value(of)}" for key, of in trial.changes.items()]
        titles[trial.run] = TrialTitle(record.preset_name, (*words, *([f"seed={trial.seed}"] if several else [])))
    return [replace(entry, title=titles.get(entry.run.id, entry.title)) for entry in trials]


def _row(name: str, trials: list[Entry], record: Record, is_open: bool) -> SweepEntry:
    run = Run(proofs_folder() / name)
    ended, count = _counts(record, trials)
    preset, sweep = record.preset_name or name_of(run), record.sweep
    words: list[str] = [f"sweep {ended} of {count}"]
    validation: tuple[str, float | None] = "", None
    if sweep is not None:
        groups = sweep_record.in_order(sweep.trials, sweep.settings.higher)
        best = sweep.proved
        if best is None and groups:
            best = sweep_record.mean_and_spread(groups[0])[0]
        validation = sweep.settings.metric, best
        words += [f"best {amount(best)}"] if best is not None else []
    over = [short(axis.key) for axis in sweep.settings.axes] if sweep is not None else []
    words += [preset, *([f"over {', '.join(over)}"] if over else [])]
    active = any(trial.is_active for trial in trials)
    state = _STATES.get(record.state, "running" if active else "ok")
    common = set.intersection(*(set(trial.notes.tags) for trial in trials))
    sizes = [trial.size for trial in trials if trial.size is not None]
    return SweepEntry(
        run,
        state,
        PartsTitle(preset, tuple(words)),
        record.doing if record.state == "running" else sweep_record.result(sweep) if record.is_read else "",
        when=max(trial.when for trial in trials),
        notes=Notes("", tuple(tag for tag in trials[0].notes.tags if tag in common)),
        validation=validation,
        size=sum(sizes) if sizes else None,
        trials=tuple(trials),
        record=record,
        is_open=is_open,
    )


def _counts(record: Record, trials: Collection[Entry]) -> tuple[int, int]:
    if record.sweep is None:
        return sum(not trial.is_active and trial.state != WAITING for trial in trials), len(trials)
    swept = record.sweep.trials
    return sum(trial.ended_t is not None and trial.state not in IN_FLIGHT for trial in swept), len(swept)


# ---- the metric of each epoch of its trials ---------------------------------------------------------


AGAIN_SECONDS = 3.0  # between two readings of a trial that trains


class TrialCurves:
    """Reads the curves of trials. `lines` has a line over epochs by run, and is another mapping if one has changed."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.lines: dict[str, Line] = {}
        self._read_at: dict[str, tuple[float, int]] = {}  # the time of the reading, and the size of the file

    def read(self, trials: Iterable[SweepTrial]) -> None:
        """Read the trials whose files have grown. One that trains is read at most once in AGAIN_SECONDS."""
        fresh = {trial.run: line for trial in trials if (line := self._line(trial)) is not None}
        if fresh:
            self.lines = self.lines | fresh

    def _line(self, trial: SweepTrial) -> Line | None:
        """The line of a trial, None if nothing new is to be read."""
        run, now = Run(runs_folder() / trial.run), time.monotonic()
        before, size_before = self._read_at.get(trial.run, (-math.inf, 0))
        if trial.state in IN_FLIGHT and now - before < AGAIN_SECONDS:
            return None
        try:
            size = run.file(EVENTS_FILE).stat().st_size
        except OSError:
            return None
        if size == size_before:
            return None
        self._read_at[trial.run] = now, size
        ends = {event.epoch: event.metrics.get(self.metric) for event in events_of(run.path, EpochEnd)}
        points = [(epoch, value) for epoch, value in sorted(ends.items()) if value is not None]
        values = [value for _, value in points]
        return Line(array("d", [epoch for epoch, _ in points]), array("d", values), last=values[-1] if values else None)
