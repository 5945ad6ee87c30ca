"""The process of a proof, independent of any viewer: its record always ends with a state. SIGTERM, SIGINT or the
preset's run.stop_signal ends it gracefully, a person's second request (system/stop_signals.py) at once. A traceback
goes to proof.log.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from .. import __version__, runs
from ..files import writing
from ..files.places import TRIALS
from ..gpu import VISIBLE
from ..job import this_machine
from ..leases import gpu_use
from ..notify import sending, targets
from ..options import Options
from ..process.spawn import own_lock
from ..runs import Run, RunError, results
from ..runs.launched_with import options_of
from ..system import locks, stop_signals
from ..system.identity import Process
from ..system.locks import PROOF_LOCK
from ..system.run_clock import steady
from ..trials import SEEDS, proof_sentences
from ..trials.comparing import BaselineFailed, Stopped
from ..trials.kinds import kind
from ..trials.record import Record, Trial
from ..trials.trial_runner import ORPHAN_SECONDS, POLL_SECONDS, Stop, TrialRunner, kill_trainer
from . import proof_start
from .folder import Proof, empty_record, read_record
from .measurement import Measurement
from .request import Request

STAND = ("ok", "slower", "timeout")  # a resumed proof that had failed keeps its trials with these outcomes
Work = Callable[[Measurement], None]  # may raise Stopped and BaselineFailed


def measure(measurement: Measurement) -> None:
    """Carry out a proof by the strategy of its kind."""
    import_module(kind(measurement.request.kind).module).measure(measurement)


def main(path: Path, work: Work = measure) -> int:
    """Carry out the proof in the folder `path`; 1 if it failed or was not written. Exits if another process does."""
    stop = Stop()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its engines and trainers inherit this
    for number in stop_signals.NUMBERS:
        signal.signal(number, stop.ask)
    signal.signal(stop_signals.BY_PERSON, stop.ask_by_person)
    leases = gpu_use.inherited(os.environ.pop(locks.LEASED, ""))
    try:  # before the request and the record are read, which another process may be replacing
        lock = own_lock(path / PROOF_LOCK)
    except locks.Taken:
        sys.exit(f"another process is already carrying out {path}")
    request = Request.read(path / "request.json")
    named = request.preset_options.run.stop_signal
    for name, number in stop_signals.BY_SCHEDULER.items():
        signal.signal(number, stop.ask if name == named else signal.SIG_IGN)
    stop_signals.let_through()
    record = empty_record(path, request)
    if leases and request.chooses_gpus:
        os.environ[VISIBLE] = ",".join(each.name for each in leases)  # all trials train on the same GPUs
    with lock:
        earlier = _go_on(path, record)
        record.set_process(Process.current())
        record.write("examining this machine")

        def carry_out() -> None:
            _refuse_other_seed(request, record)
            here = this_machine.read()
            record.machine = {
                "system": platform.platform(),
                "processor": processor(),
                "cpus": here.cpus,
                "memory_bytes": here.memory_bytes,
                "gpus": [gpu.name for gpu in here.gpus],
                "no_gpu_reason": here.no_gpu_reason or None,
                "gputui": __version__,
            }

            def beside(options: Options) -> str:
                return proof_start.other_training(proof_start.of_options(options, here), here, path)

            paths_from, seconds = Path(request.folder), request.measure_seconds
            with TrialRunner(path / TRIALS, paths_from, request.seed, seconds, here, stop, beside) as bench:
                work(Measurement(request, record, bench, here, earlier))

        code = _make(record, carry_out, stop)
        for line in gpu_use.give_back(leases):
            print(f"gputui: {line}", file=sys.stderr)
    _notify(request, record)
    return code


def _notify(request: Request, record: Record) -> None:
    def find() -> targets.Targets:  # of an invalid preset, the settings file alone decides
        options = asdict(request.preset_options.notify)
        return targets.of_options({f"notify.{name}": value for name, value in options.items()})

    def make() -> sending.Notice:
        return sending.Notice(
            kind=record.kind,
            outcome=record.state,
            failed=record.state in sending.FAILED,
            id=record.id,
            title=record.preset_name,
            seconds=record.seconds,
            result=proof_sentences.conclusion(record) if record.state != "failed" else "",
            error=record.error or "",
            folder=str(record.path.parent),
        )

    for line in sending.send_to(find, make):
        print(f"gputui: {line}", file=sys.stderr)


def _go_on(path: Path, record: Record) -> list[Trial]:
    """Trials that still run are ended first. Failed ones do not count if the proof itself had failed."""
    before = read_record(path)
    if not before.is_read or (before.pid is None and not before.all_trials):  # the proof has never begun
        return []
    for run in Proof(path).trials:  # several may still run, if they were measured at once
        _end(run)
    record.started_t, record.started_mark = before.started_t, steady() - before.seconds
    record.earlier, record.sweep = before.all_trials, before.sweep
    if before.state == "failed":  # the cause may be repaired, so that failed trials do not count
        record.earlier = [trial for trial in record.earlier if trial.outcome in STAND]
    return record.earlier


def _refuse_other_seed(request: Request, record: Record) -> None:
    """Raise BaselineFailed if the request was given another seed than the trials so far have: they would be mixed."""
    own, sweep = request.baseline().options.train.seed, record.sweep
    asked = request.seed if own is None else own
    seeds = [trial.seed for trial in sweep.trials[:1]] if sweep and not sweep.settings.study else []
    for trial in record.earlier[:1]:
        seed = options_of(Run(record.path.parent / TRIALS / trial.run)).get("train.seed")
        seeds += [seed - (trial.repeat - 1 if ":" in trial.key else 0)] if isinstance(seed, int) else []
    if seeds and (seeds[0] - asked) % SEEDS:
        raise BaselineFailed(
            f"its trials so far have train.seed={seeds[0]}, and the request now has {asked}: what is resumed keeps its "
            f"seed; give it back, or start anew: {request.command}"
        )


def _end(run: Run) -> None:
    """If it still runs after ORPHAN_SECONDS, its trainer is killed."""
    asked, since = False, time.monotonic()
    while run.liveness.engine or run.alive("trainer"):
        if not asked:
            with contextlib.suppress(RunError):  # its process id is not known yet
                runs.request_stop(run)
                asked = True
        if time.monotonic() - since > ORPHAN_SECONDS:
            kill_trainer(run)  # the engine, if it is alive, then ends as well
        time.sleep(POLL_SECONDS)


def _make(record: Record, work: Callable[[], None], stop: Stop) -> int:
    try:
        work()
        record.state, record.earlier = "done", []
    except Stopped:
        record.state, record.ended_because = "stopped", "a stop was requested"
    except BaselineFailed as fault:
        record.state, record.error = "failed", str(fault)
    except Exception as fault:  # noqa: BLE001 - the record says why the measurement failed
        traceback.print_exc()
        record.state, record.error = "failed", f"{type(fault).__name__}: {' '.join(str(fault).split()) or 'no message'}"
        if (number := writing.refusal(fault)) is not None:
            where = writing.place(fault) or record.path.parent
            record.error = f"{writing.describe(number, where)}: no trial can be started"
    for comparison in record.comparisons:
        if comparison.decision == "running":
            comparison.decision, comparison.why = "failed", "the proof ended before it was finished"
    record.budget_seconds = record.budget_most_seconds = None
    # what the disk refuses is tried again for a while, or until another stop is requested
    refused, asked = None, stop.count
    for _ in results.tries(results.ENGINE_SECONDS, lambda: stop.count > asked):
        try:
            record.put("ended")
            return int(record.state == "failed")
        except OSError as fault:
            refused = fault
    print(f"gputui: {record.path} could not be written: {refused}", file=sys.stderr)
    return 1


def processor() -> str | None:
    """Return the model name of the CPU. None if the kernel does not report it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
