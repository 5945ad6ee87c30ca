"""Resumes a run from its last checkpoint, and finds the run to resume: the newest, or the newest of a preset."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .. import presets, runs
from ..files import reading
from ..files.writing import write_atomically
from ..job import cluster as clusters
from ..job import start_worker
from ..options import Options, options_json
from ..presets import Preset, PresetError
from ..runs import ACTIVE_STATES, Run, RunError, checkpoint_files, code_copy, code_files, run_cluster, waiting_error
from ..runs.event_reading import read_events
from ..runs.events import EVENT_FILES, TELEMETRY_FILE, OptionChanged
from ..runs.launched_with import options_of
from ..runs.liveness import Liveness
from ..runs.run import WAITING
from ..runs.titles import title_of
from ..system.identity import Place
from ..system.run_clock import RunClock
from . import launch
from .known_failures import RESUMED
from .spawn import put_result_aside

POLL_SECONDS = 0.2
RESUMABLE = ("stopped", "crashed", "timeout", "oom", "error")


def resume(
    run: Run,
    new_code: bool = False,
    tell: Callable[[str], None] = lambda _text: None,
    from_copy: bool = False,
    among: Collection[str] | None = None,
    from_queue: bool = False,
) -> subprocess.Popen[bytes]:
    """Start an engine that continues the run from its last checkpoint in the same run folder. Return the engine's
    process.

    If the user's code has changed since the run was trained, either `new_code` must be True, or `from_copy`, with which
    the run continues with its copy of the code. `tell` is called with a line if the choice of GPUs takes time. `among`
    is that of `lease_devices`. With `from_queue`, a queued run is allowed, as the queue itself resumes it. Raises
    NotFree if too few GPUs are free, another RunError if the run cannot be resumed, PresetError if its preset cannot be
    read, or ClusterError if it was a worker of another cluster. The run is then unchanged.
    """
    joins = start_worker.cluster_to_resume(run)
    clock = RunClock.launched(not_before=run.last_date())
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(runs.reserved(run, "resume", from_queue))
        preset = preset_to_resume(run)
        if not new_code:
            code_files.check(run, from_copy)
        if from_copy:
            preset = replace(preset, options=_with_copy(preset.options))
        devices = stack.enter_context(launch.leased(preset.options, title_of(run).preset, tell, among=among))
        if from_copy:
            code_copy.link_data(run, preset.options)
        # Written with every option, as engine and trainer expect it, even if an older gputui wrote it.
        write_atomically(run.file("preset.yaml"), preset.to_yaml())
        write_atomically(run.file(options_json.FILE), options_json.to_json(devices.options))
        if joins is not None:
            write_atomically(run.file(run_cluster.FILE), joins.as_file())
        place = Place.read(run.status)
        if (
            place is not None and not place.is_here
        ):  # the run has left that machine, whose last heartbeat may look recent
            write_atomically(run.file("status.json"), json.dumps({**run.status, "phase": "ended"}), durable=False)
        if not lock.works:  # this file shows that a run is starting
            put_result_aside(run.path)
            run.file("status.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError), run.file("engine.log").open("a") as log:  # the disk may be full
            log.write(f"{RESUMED}\n")
        if new_code:  # last: after a resume that fails, the code must be accepted again
            take_new_code(run, preset.options)
        return launch.spawn(run, lock, clock, devices)


def take_new_code(run: Run, options: Options) -> None:
    """Copy the user's code as it is now to the run, and record the files that have changed since the run used them.

    Raises OSError if the copy cannot be recorded.
    """
    code_copy.make(run, options)
    code_files.accept(run, code_copy.trained(run, options))


def _with_copy(options: Options) -> Options:
    return replace(options, run=replace(options.run, code="copy"))


def preset_to_resume(run: Run) -> Preset:
    """Return the preset of a run that is not alive.

    Raises RunError if the run cannot be resumed because it has not begun, has completed, has no intact checkpoint, or
    because one of its files is a folder. Raises PresetError if its preset cannot be read.
    """
    state = run.state_without_queue(Liveness())
    if state not in RESUMABLE:
        why = "has completed" if state == "ok" else f"is {run.state}; stop it before resuming it"
        raise RunError(f"{run.name} cannot be resumed: it {why}")
    preset = presets.resolve(str(run.file("preset.yaml")))
    _require_files(run)
    if not _has_whole_checkpoint(run):
        raise RunError(without_checkpoint(run))
    return preset


def _require_files(run: Run) -> None:
    """Raise RunError if a file that the resumed run goes on to write is a folder, or cannot be read."""
    for name in (*EVENT_FILES, "status.json", "engine.log"):
        try:
            reading.open_regular(run.file(name)).close()
        except FileNotFoundError:
            continue
        except OSError as fault:
            what = f"{run.name} cannot be resumed: {name} cannot be read: {reading.why(fault)}"
            raise RunError(f"{what}\nmove {run.file(name)} away, and resume it again") from None


def without_checkpoint(run: Run) -> str:
    """Return the message about a run that cannot be resumed because it has no checkpoint."""
    if options_of(run).get("run.checkpoint") in (None, "off"):
        return f"{run.name} has no checkpoint to resume from; set run.checkpoint for the next run"
    return f"{run.name} has no checkpoint to resume from: it ended before its first one"


def _has_whole_checkpoint(run: Run) -> bool:
    """Return True if there is an intact checkpoint. Raises RunError if there are checkpoints and all are damaged.

    In a training on several machines the first worker (the chief) has the checkpoints. If the chief's folder cannot be
    read from this machine, only the trainer can check them; then return True if the option run.checkpoint is on.
    """
    if (joined := run_cluster.of_run(run)) is not None and not joined.is_chief:
        chief = run_cluster.chief_of(run)
        if chief is None:
            return options_of(run).get("run.checkpoint") not in (None, "off")
        run = chief
    try:
        return checkpoint_files.whole_step(run.file("checkpoints")) is not None
    except checkpoint_files.Damage as damage:
        again = f"gputui --preset {run.file('preset.yaml')} starts it again from the beginning"
        raise RunError(f"{run.name} has no intact checkpoint to resume from ({damage})\n{again}") from None


# ---- which run to resume -----------------------------------------------------------------------


def latest() -> Run:
    """Return the newest run of this worker that can be resumed.

    Raises RunError if there is none, with the reason why the newest run cannot be resumed.
    """
    reason, count, is_own = "", 0, _of_this_worker()
    for run in runs.all_runs():
        if reason and not _may_be_resumed(run):  # the message has the reason of the newest run alone
            count += 1
        elif is_own(run):
            if not (why := why_not(run)):
                return run
            reason, count = reason or why, count + 1
    if not reason:
        newest = runs.find("latest")  # raises RunError if there are no runs
        raise RunError(f"there is no run to resume: none is of this worker, and the newest is {newest.name}")
    more = f"; nor can any of the {count - 1} before it" if count > 1 else ""
    raise RunError(f"there is no run to resume: {reason}{more}")


def _may_be_resumed(run: Run) -> bool:
    """Return False for a run that certainly cannot be resumed, else True.

    That is a run that has completed, or that has no checkpoint and no cluster whose chief may have one. The test is
    quick, as there may be thousands of runs.
    """
    saved = checkpoint_files.steps_in(f"{run.path}/checkpoints") or os.path.exists(f"{run.path}/{run_cluster.FILE}")
    return bool(saved) and not run.has_completed()


def why_not(run: Run) -> str:
    """Return the reason why a run cannot be resumed, in one line; empty if it can be resumed."""
    if (state := run.state) == WAITING:
        return str(waiting_error(run, "resume"))
    if state in ACTIVE_STATES:
        return f"{run.name} is {state}"
    try:
        preset_to_resume(run)
    except (RunError, PresetError) as fault:
        return str(fault).partition("\n")[0]
    return ""


def of_preset(preset: Preset, on_wait: Callable[[str], None]) -> Run | None:
    """Return the newest run that is not alive and was launched with this preset: the same name, and the same value of
    every option. None if there is none.

    The option run.code is not compared, nor the seed if the preset has none. If the run may be alive on another
    machine, its heartbeat is watched for up to a minute; before that, `on_wait` is called with a message.
    """
    values = _values(launch.settle(preset, Path.cwd()), preset)
    for run in filter(_of_this_worker(), runs.all_runs()):
        if title_of(run).preset != preset.name or _launched_with(run, preset) != values:
            continue
        if not _is_active(run, on_wait):
            return run
    return None


def _of_this_worker() -> Callable[[Run], bool]:
    """Return a test for runs that returns True for a run of this worker.

    Outside of a cluster it is True for all runs, except those of a local cluster's workers other than the chief.
    """
    own = clusters.read(os.environ)
    if own is None or len(own.workers) < 2:
        return lambda run: run_cluster.local_chief(run) is None
    return lambda run: (kept := run_cluster.of_run(run)) is not None and kept.index == own.index


def _launched_with(run: Run, preset: Preset) -> dict[str, Any] | None:
    """Return the values of all options, by `group.name`, at the launch of the run, before the engine changed any; None
    if its preset cannot be read.
    """
    try:
        values = _values(presets.resolve(str(run.file("preset.yaml"))), preset)
    except (PresetError, RunError, OSError):
        return None
    return values | dict(reversed(list(_before_changes(run))))


def _before_changes(run: Run) -> Iterator[tuple[str, Any]]:
    for event in read_events(run.path, [TELEMETRY_FILE]).events:
        if isinstance(event, OptionChanged):
            yield event.option, event.before


def _values(preset: Preset, requested: Preset) -> dict[str, Any]:
    """Return the preset's values by `group.name`, without run.code, which a resume may have changed; also without the
    seed if the `requested` preset has none.
    """
    groups = asdict(preset.options)
    values = {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}
    del values["run.code"]
    if requested.options.train.seed is None:
        del values["train.seed"]
    return values


def _is_active(run: Run, on_wait: Callable[[str], None]) -> bool:
    """Return True if the run is alive.

    For a run on another machine, wait until its heartbeat changes or counts as stopped; before that, call `on_wait`
    with a message.
    """
    host, beat = run.liveness.host, run.status.get("heartbeat")
    if host and run.is_active:
        on_wait(f"{run.name} was running on {host}: waiting until its heartbeat goes on, for at most a minute")
        while run.is_active and run.status.get("heartbeat") == beat:
            time.sleep(POLL_SECONDS)
    return run.is_active
