"""Resumes a run from its last checkpoint, and finds the run to resume: the newest, or the newest of a preset."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import presets, runs
from ..files import reading
from ..files.writing import write_atomically
from ..job import cluster as clusters
from ..job import start_worker
from ..leases.gpu_use import lease_devices
from ..options import options_json
from ..presets import Preset, PresetError
from ..runs import ACTIVE_STATES, Run, RunError, checkpoint_files, code_copy, code_files, not_ended_error, run_cluster
from ..runs.event_reading import read_events
from ..runs.events import EVENT_FILES, TELEMETRY_FILE, OptionChanged
from ..runs.launched_with import options_of
from ..runs.run import Liveness
from ..runs.titles import preset_of
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
    """Start an engine that continues the run. If its code has changed, `new_code` or `from_copy` is needed; with
    `from_queue` a queued run is allowed. Raises RunError, PresetError or ClusterError; the run is then unchanged.
    """
    joins = start_worker.cluster_to_resume(run)
    clock = RunClock.launched(not_before=run.last_date())
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(runs.reserved(run, "resume", from_queue))
        preset = preset_to_resume(run)
        if not new_code:
            code_files.check(run, from_copy)
        if from_copy:
            preset = replace(preset, options=preset.options.with_values({"run.code": "copy"}))
        devices = stack.enter_context(lease_devices(preset.options, preset_of(run), tell, among=among))
        if from_copy:
            code_copy.link_data(run, preset.options)
        # Written with every option, as engine and trainer expect it, even if an older gputui wrote it.
        write_atomically(run.file("preset.yaml"), preset.to_yaml())
        write_atomically(run.file(options_json.FILE), options_json.to_json(devices.options))
        if joins is not None:
            write_atomically(run.file(run_cluster.FILE), joins.as_file())
        place = Place.read(run.status)
        if place is not None and not place.is_here:  # it has left that machine, whose last heartbeat may look recent
            write_atomically(run.file("status.json"), json.dumps({**run.status, "phase": "ended"}), durable=False)
        if not lock.works:  # this file shows that a run is starting
            put_result_aside(run.path)
            run.file("status.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError), run.file("engine.log").open("a") as log:  # the disk may be full
            log.write(f"{RESUMED}\n")
        if new_code:  # last: after a resume that fails, the code must be accepted again
            code_copy.make(run, preset.options)
            code_files.accept(run, code_copy.trained(run, preset.options))
        return launch.spawn(run, lock, clock, devices, joins or run_cluster.of_run(run))


def preset_to_resume(run: Run) -> Preset:
    """Raises RunError if the run, which is not alive, has not begun, has completed, has no intact checkpoint, or has a
    folder in place of a file; PresetError if its preset cannot be read.
    """
    state = run.state_without_queue(Liveness())
    if state not in RESUMABLE:
        why = "has completed" if state == "ok" else f"is {run.state}; stop it before resuming it"
        raise RunError(f"{run.name} cannot be resumed: it {why}")
    preset = presets.resolve(str(run.file("preset.yaml")))
    if preset.options.workload.command:
        again = f"gputui --preset run:{run.name} --queue starts it again"
        raise RunError(f"{run.name} cannot be resumed: it is a command, which has no checkpoints\n{again}")
    for name in (*EVENT_FILES, "status.json", "engine.log"):
        try:
            reading.open_regular(run.file(name)).close()
        except FileNotFoundError:
            continue
        except OSError as fault:
            what = f"{run.name} cannot be resumed: {name} cannot be read: {reading.why(fault)}"
            raise RunError(f"{what}\nmove {run.file(name)} away, and resume it again") from None
    joined = run_cluster.of_run(run)
    keeper = run if joined is None or joined.is_chief else run_cluster.chief_of(run)
    if keeper is None:  # this machine cannot read it
        is_whole = options_of(run).get("run.checkpoint") not in (None, "off")
    else:
        try:
            is_whole = checkpoint_files.whole_step(keeper.file("checkpoints")) is not None
        except checkpoint_files.Damage as damage:
            again = f"gputui --preset {keeper.file('preset.yaml')} starts it again from the beginning"
            raise RunError(f"{keeper.name} has no intact checkpoint to resume from ({damage})\n{again}") from None
    if not is_whole:
        raise RunError(without_checkpoint(run))
    return preset


def without_checkpoint(run: Run) -> str:
    if options_of(run).get("run.checkpoint") in (None, "off"):
        return f"{run.name} has no checkpoint to resume from; set run.checkpoint for the next run"
    return f"{run.name} has no checkpoint to resume from: it ended before its first one"


# ---- which run to resume -----------------------------------------------------------------------


def latest() -> Run:
    """The newest run of this worker that can be resumed. RunError says why the newest cannot."""
    reason, count, is_own = "", 0, _of_this_worker()
    for run in runs.all_runs():
        # A quick test, as there may be thousands of runs, and the message has the reason of the newest alone. The chief
        # of a cluster may have the checkpoint.
        saved = checkpoint_files.steps_in(f"{run.path}/checkpoints") or os.path.exists(f"{run.path}/{run_cluster.FILE}")
        if reason and (not saved or run.has_completed()):
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


def why_not(run: Run) -> str:
    """Return the reason in one line; empty if the run can be resumed."""
    if (state := run.state) in ACTIVE_STATES:
        return f"{run.name} is {state}"
    if error := not_ended_error(run, state, "resume"):
        return str(error)
    try:
        preset_to_resume(run)
    except (RunError, PresetError) as fault:
        return str(fault).partition("\n")[0]
    return ""


def of_preset(preset: Preset, on_wait: Callable[[str], None]) -> Run | None:
    """The newest run, not alive, with this preset's name and value of every option but run.code, and the seed if that
    is not given. A heartbeat of another machine is watched for up to a minute, after `on_wait` got a message.
    """
    values = _values(launch.settle(preset, Path.cwd()), preset)
    for run in filter(_of_this_worker(), runs.all_runs()):
        if preset_of(run) != preset.name:
            continue
        try:  # its options before the engine changed any: the first change of an option counts
            launched = _values(presets.resolve(str(run.file("preset.yaml"))), preset)
        except (PresetError, RunError, OSError):
            continue
        written = reversed(read_events(run.path, [TELEMETRY_FILE]).events)
        launched |= {event.option: event.before for event in written if isinstance(event, OptionChanged)}
        if launched != values:
            continue
        host, beat = run.liveness.host, run.status.get("heartbeat")
        if host and run.is_active:
            on_wait(f"{run.name} was running on {host}: waiting until its heartbeat goes on, for at most a minute")
            while run.is_active and run.status.get("heartbeat") == beat:
                time.sleep(POLL_SECONDS)
        if not run.is_active:
            return run
    return None


def _of_this_worker() -> Callable[[Run], bool]:
    """Outside of a cluster all but a local cluster's workers other than the chief."""
    own = clusters.read(os.environ)
    if own is None or len(own.workers) < 2:
        return lambda run: run_cluster.local_chief(run) is None
    return lambda run: (kept := run_cluster.of_run(run)) is not None and kept.index == own.index


def _values(preset: Preset, requested: Preset) -> dict[str, Any]:
    """Leave out run.code, which a resume may have changed, and the seed if `requested` has none."""
    values = preset.options.values()
    del values["run.code"]
    if requested.options.train.seed is None:
        del values["train.seed"]
    return values
