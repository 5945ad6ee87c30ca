"""Finds the run that is gone on with where none is named: the newest that can be resumed, or the newest of a preset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import presets, runs
from ..presets import Preset, PresetError
from ..runs import GOES_ON, Run, RunError, checkpoint_files, cluster
from ..runs.events import TELEMETRY_FILE, OptionChanged
from ..runs.reading import read_events
from ..runs.titles import title_of
from ..telemetry import cluster as clusters
from . import launch

LOOK_SECONDS = 0.2


def latest() -> Run:
    """The newest run that can be resumed; raises RunError with the reason of the newest where there is none."""
    reason, count, is_mine = "", 0, _of_this_worker()
    for run in runs.all_runs():
        if reason and not _may_be_resumed(run):  # of many runs each is looked at but once, and the first says why
            count += 1
        elif is_mine(run):
            if not (why := why_not(run)):
                return run
            reason, count = reason or why, count + 1
    if not reason:
        return runs.find("latest")  # which says that there are no runs
    more = f"; nor can any of the {count - 1} before it" if count > 1 else ""
    raise RunError(f"there is no run to resume: {reason}{more}")


def _may_be_resumed(run: Run) -> bool:
    """Whether to ask further: it has a checkpoint, or is of several workers, and has not completed."""
    saved = checkpoint_files.steps_in(run.file("checkpoints")) or run.file(cluster.FILE).exists()
    return bool(saved) and not run.has_completed()


def why_not(run: Run) -> str:
    """Why a run cannot be resumed, in one line; empty where it can."""
    if run.state in GOES_ON:
        return f"{run.id} is {run.state}"
    try:
        launch.preset_to_resume(run)
    except (RunError, PresetError) as fault:
        return str(fault).partition("\n")[0]
    return ""


def of_preset(preset: Preset, on_wait: Callable[[str], None]) -> Run | None:
    """The newest run of the preset that has ended: of the same name, and with the same value of every option.

    A seed that the preset does not give may be any. `on_wait` is told where a run is waited for: for a minute the
    heartbeat of a machine that has died looks like that of a running one.
    """
    wanted = _values(launch.settle(preset, Path.cwd()), preset)
    for run in filter(_of_this_worker(), runs.all_runs()):
        if title_of(run).preset != preset.name or _launched_with(run, preset) != wanted:
            continue
        if not _goes_on(run, on_wait):
            return run
    return None


def _of_this_worker() -> Callable[[Run], bool]:
    """Whether a run is this worker's own; outside of a cluster any may be, but of workers in one home the chief's."""
    mine = clusters.read(os.environ)
    if mine is None or len(mine.workers) < 2:
        return lambda run: cluster.chief_beside(run) is None
    return lambda run: (kept := cluster.of_run(run)) is not None and kept.index == mine.index


def _launched_with(run: Run, preset: Preset) -> dict[str, Any] | None:
    """The options with which the run was launched: without what the engine has changed since."""
    try:
        found = _values(presets.resolve(str(run.file("preset.yaml"))), preset)
    except (PresetError, RunError, OSError):
        return None
    return found | dict(reversed(list(_before_answers(run))))


def _before_answers(run: Run) -> Iterator[tuple[str, Any]]:
    for event in read_events(run.path, [TELEMETRY_FILE]).events:
        if isinstance(event, OptionChanged):
            yield event.option, event.before


def _values(preset: Preset, asked: Preset) -> dict[str, Any]:
    groups = asdict(preset.options)
    found = {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}
    if asked.options.train.seed is None:
        del found["train.seed"]
    return found


def _goes_on(run: Run, on_wait: Callable[[str], None]) -> bool:
    """Whether the run is alive; one on another machine is if its heartbeat is seen to go on."""
    host, beat = run.liveness.host, run.status.get("heartbeat")
    if host and run.goes_on:
        on_wait(f"{run.id} was running on {host}: waiting until its heartbeat goes on, for at most a minute")
        while run.goes_on and run.status.get("heartbeat") == beat:
            time.sleep(LOOK_SECONDS)
    return run.goes_on
