"""The trainings of a sweep as queued runs, each made once under a name that its place in the sweep decides. After a
kill at most a run is not queued yet, which the next process queues.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import presets, runs
from ..options.training import WatchedFigure
from ..presets import Preset
from ..process import launch
from ..proof.request import Request
from ..queue import adding, entries, entry_changes
from ..runs import Run, RunError, code_files, launched_with, part_of_sweep, titles
from ..runs.event_reading import Tail, events_of
from ..runs.events import EVENTS_FILE, EpochEnd
from ..runs.run import WAITING
from ..trials.sweep_record import DONE, FAILED, PLANNED, RUNNING, STOPPED, SweepTrial
from .swept_values import as_settings

Figures = Mapping[str, float | None]  # of an epoch, by their names


def values(name: str, epochs: Sequence[Figures]) -> list[float | None]:
    """Return the metric after each epoch, of the latest that has it. None if missing or not finite."""
    made: list[float | None] = []
    latest: float | None = None
    for figures in epochs:
        value = figures.get(name, latest)
        latest = value if value is not None and math.isfinite(value) else None
        made.append(latest)
    return made


def why_missing(name: str, epochs: Sequence[Figures], has_ended: bool) -> str:
    """Return why a training has no metric `name`. Empty if it has, or a later epoch may have it."""
    there = dict.fromkeys(key for figures in epochs for key in figures)
    if not there or name in there:
        return ""
    may_come = WatchedFigure(name, "").of_validation and not any(WatchedFigure(key, "").of_validation for key in there)
    if may_come and not has_ended:
        return ""
    return (
        f"the trials have no {name}: their figures of an epoch are {', '.join(there)}; name one of them with --metric"
    )


ABSENT, HELD = "absent", "held"
CRASHED = "crashed"  # the cause if a process was killed, or the machine has restarted
NOT_FINITE = "nan"  # the kind of error of weights that are not finite
OUT_OF_MEMORY, TIMEOUT = "oom", "timeout"  # states of a run, which are causes as well


@dataclass(frozen=True)
class Look:
    """A training as its files show it."""

    state: str  # of a trial, ABSENT without a folder, or HELD in the queue
    epochs: Sequence[Figures] = field(default=())  # the figures of each ended epoch
    seconds: float | None = None
    error: str = ""  # also why it is held or waits
    cause: str = ""
    epoch_seconds: float | None = None
    test: Figures = field(default_factory=dict)


def changed_preset(request: Request, changes: Mapping[str, Any]) -> Preset:
    file = Path(request.folder) / f"{request.preset_name}.yaml"
    preset = presets.resolve_text(request.preset, file, as_settings(changes))
    return replace(preset, name=request.preset_name)


def trial_preset(request: Request, changes: Mapping[str, Any], seed: int) -> Preset:
    """Return the preset of a trial: its seed, one attempt, no notice, and as asked a checkpoint and a free GPU."""
    sweep, preset = request.sweep, changed_preset(request, changes)
    assert sweep is not None
    options = replace(
        preset.options,
        train=replace(preset.options.train, seed=seed),
        run=replace(preset.options.run, on_oom="stop", watch=[]),
        notify=replace(preset.options.notify, command=None, url=None, format=None, when="never"),
    )
    if sweep.rungs and options.run.checkpoint == "off":
        options = options.with_values({"run.checkpoint": "epoch"})
    if sweep.one_gpu_each and adding.takes_one_gpu(options):
        options = options.with_values({"device.visible": "free:1"})
    source = None if request.source is None else Path(request.source)
    return Preset(request.preset_name, options, preset.description, file=source)


def _is_alive(run: Run) -> bool:
    # not a new run without a process
    live = run.liveness
    return live.engine or live.trainer or (bool(live.host) and run.result is None)


class QueuedTrainings:
    """The trainings of the sweep with the id `sweep`."""

    def __init__(self, request: Request, sweep: str) -> None:
        self._request, self._sweep = request, sweep
        self._followed: dict[str, tuple[Tail, list[Figures]]] = {}  # events and figures of trials that train, by run

    def start(self, trial: SweepTrial) -> None:
        """Make and queue the run of a trial. Raises PresetError, OSError, and RunError, also for changed code."""
        run = self._run(trial)
        if not run.path.exists():
            before = (f"{self._sweep}-{number:03d}" for number in range(1, int(trial.run.rpartition("-")[2])))
            first = next((each for name in before if (each := Run(runs.runs_folder() / name)).path.exists()), run)
            if edited := code_files.describe(first):
                raise RunError(f"{edited}: all trials have the same code; undo that, or start another sweep")
            preset = trial_preset(self._request, trial.changes, trial.seed)
            tags = json.dumps({"tags": [f"sweep-{self._sweep[:15]}"]}) + "\n"  # such as sweep-20261126-214120
            place = part_of_sweep.SweepPlace(self._sweep, trial.until, trial.changes, trial.seed).as_file()
            more = {part_of_sweep.FILE: place, titles.NOTES_FILE: tags}
            launch.create_queued(preset, Path(self._request.folder), run.path, more)
        elif not self._is_in_flight(run):
            part_of_sweep.set_pause(run, trial.until)
        if not self._is_in_flight(run):
            adding.queue_trial(run, self._request.sweep is not None and self._request.sweep.anyway)

    def _run(self, trial: SweepTrial) -> Run:
        return Run(runs.runs_folder() / trial.run)

    @staticmethod
    def _is_in_flight(run: Run) -> bool:
        return entries.file_of(run.id).exists() or _is_alive(run)

    def look(self, trial: SweepTrial) -> Look:
        """Return the present state of a trial."""
        run = self._run(trial)
        if not run.path.exists():
            return Look(ABSENT)
        entry = entries.read(run.id)
        if entry is not None and entry.state == "held":
            return Look(HELD, error=entry.hold_reason)
        if entry is not None and entry.state in ("waiting", "starting"):
            return Look(WAITING, error=entries.news().why.get(run.id, ""))
        if entry is not None or _is_alive(run):
            return Look(RUNNING)
        result = run.result
        if result is None and not run.status:
            return Look(PLANNED)  # made, and not queued before the process was killed
        by_epoch = {event.epoch: event for event in events_of(run.path, EpochEnd)}
        figures = [by_epoch[epoch].metrics for epoch in sorted(by_epoch)]
        whole = run.whole_result
        seconds, metrics = whole.get("seconds"), whole.get("metrics") or {}
        test = {name: value for name, value in metrics.items() if name.startswith("test_")}
        state, error = run.state, (result or {}).get("error") or {}
        if state in ("ok", "stopped"):
            each = statistics.median(event.seconds or 0.0 for event in by_epoch.values()) if by_epoch else None
            return Look(DONE if state == "ok" else STOPPED, figures, seconds, epoch_seconds=each, test=test)
        message = (error.get("message") or f"it has {state}").partition("\n")[0]
        kind = "" if state in (CRASHED, OUT_OF_MEMORY, TIMEOUT) else error.get("kind")
        return Look(FAILED, figures, seconds, message, kind or state)

    def figures(self, trial: SweepTrial) -> Sequence[Figures]:
        """Return the figures of the epochs that a trial has trained up to now."""
        events, figures = self._followed.setdefault(trial.run, (Tail(self._run(trial).file(EVENTS_FILE)), []))
        figures += [event.metrics for event in events.read() if isinstance(event, EpochEnd)]
        return figures

    def without_effect(self, trial: SweepTrial) -> Mapping[str, str] | None:
        """Return why options have no effect on the user's own code, by their keys; None until a trial is built."""
        started = launched_with.started(self._run(trial))
        return None if started is None else started.inapplicable

    def stop(self, trial: SweepTrial) -> bool:
        """Take a waiting trial out of the queue, or ask a running one to stop. Return False if it is just starting."""
        with contextlib.suppress(RunError):  # it has begun
            entry_changes.remove(trial.run)
            return True
        with contextlib.suppress(RunError):
            runs.request_stop(self._run(trial))
            return True
        return False

    def let_go(self, trial: SweepTrial) -> None:
        """Let the run of a trial that has paused for good train to its end if a person resumes it."""
        run = self._run(trial)
        if run.path.exists() and not self._is_in_flight(run):
            part_of_sweep.set_pause(run, None)

    def keep_going(self) -> None:
        entries.ensure_runner()

    def code(self, trial: SweepTrial) -> Mapping[str, str]:
        """Return the hashes of the files of the user's code that a trial has used, by their names."""
        code = code_files.read(self._run(trial))
        return {code.name_of(path): digest for path, digest in code.files.items()}


SAME_FAILURES = 3  # in a row, with one cause, hold the sweep
OF_THE_SETTING = (NOT_FINITE, OUT_OF_MEMORY, TIMEOUT)  # causes that another setting may not have


def why_to_hold(trials: Iterable[SweepTrial], since_t: float) -> str:
    """Return why no further trial is started: the latest that ended since the Unix time `since_t` failed with one
    cause. A divergence never holds the sweep; memory and time limits only if no trial has ended otherwise.
    """
    ended = sorted((trial for trial in trials if trial.ended_t is not None), key=lambda trial: trial.ended_t or 0.0)
    latest = [trial for trial in ended if (trial.ended_t or 0.0) >= since_t and not trial.failures][-SAME_FAILURES:]
    causes = {
        (trial.cause, "" if trial.cause in OF_THE_SETTING else trial.error.replace(trial.run, "")) for trial in latest
    }
    if len(latest) < SAME_FAILURES or len(causes) != 1 or any(trial.state != FAILED for trial in latest):
        return ""
    cause = latest[-1].cause
    if cause == NOT_FINITE or (cause in OF_THE_SETTING and any(trial.cause != cause for trial in ended)):
        return ""
    return f"{SAME_FAILURES} trials in a row failed with one cause: {latest[-1].error}"
