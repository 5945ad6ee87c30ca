"""`python -P -m gputui.engine.queue.slurm_job ID`: the process of a Slurm job, which trains one queued run or
measurement. It passes a stop on; two minutes before the job's time limit, or a tenth of it if that is less, it stops
the run, so that there is time for a checkpoint. Exit codes: 0 ended well or stopped; 1 failed; 3 nothing was started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from .. import runs
from ..files.reading import why
from ..follow import following as follow
from ..job import slurm
from ..job.cluster import ClusterError
from ..presets import PresetError
from ..proof import folder
from ..proof.folder import Proof
from ..runs import RunError
from ..runs.run import PROOF
from ..system import stop_signals
from . import entries, start
from .entries import Entry
from .jobs import FAILED
from .runner import REFUSED

POLL_SECONDS = 0.1
ENDED_WELL, ENDED_BADLY = 0, 1


class Requests:
    """The signals to stop that came; `asked` has the numbers of those to send on to the engine. Slurm may repeat its
    signals, so that only its first one counts. A person's request counts each time.
    """

    def __init__(self) -> None:
        self.asked: list[Sequence[int]] = []
        self.is_by_slurm = False
        for number in (*stop_signals.NUMBERS, *stop_signals.BY_SCHEDULER.values()):
            signal.signal(number, self.stop)
        signal.signal(stop_signals.BY_PERSON, lambda *_: self.asked.append(runs.ASKED_BY_PERSON))

    def stop(self, *signal_of_slurm: object) -> None:
        """Stop the run gracefully, unless it was asked to stop before."""
        self.is_by_slurm |= bool(signal_of_slurm)
        if not self.asked:
            self.asked.append((signal.SIGTERM,))


def carry_out(name: str, job: str) -> int:
    """Train the run or measurement `name` in the Slurm job `job`. Return the exit code."""
    stops = Requests()
    entry = None
    try:
        with entries.locked():
            waiting = entries.read(name)
            if waiting is None or waiting.slurm_job is None or (waiting.slurm_job or job) != job:
                raise RunError(f"{name} is not in the queue as job {job}; nothing is started")
            if waiting.tries >= waiting.most_tries and waiting.most_tries > 1:
                raise RunError(f"{name} was started {waiting.tries} times, as run.tries allows; nothing is started")
            starting = replace(waiting, state="starting", slurm_job=job, started_at=time.time(), hold_reason="")
            starting = replace(starting, tries=waiting.tries + 1)
            entries.write(starting)
            entry = starting
        start.refuse(entry)
        process = start.launch_job(entry, None)  # with the devices of this job
        with entries.locked():
            entry = replace(entry, state="running", code="")
            entries.write(entry)
    except (RunError, PresetError, ClusterError, OSError) as fault:
        filename = getattr(fault, "filename", None)
        message = why(fault) + (f": {filename}" if filename else "") if isinstance(fault, OSError) else str(fault)
        print(message, flush=True)
        if entry is not None:
            with entries.locked():
                if entry.job.exists():
                    message = message.partition("\n")[0]
                    entry.job.close("error", {"kind": "queue", "message": message, "hint": ""})
                entries.discard(name)
        return REFUSED
    print(f"{name} trains in job {job} on {os.uname().nodename}", flush=True)
    _wait(entry, process, stops)
    end = entry.job.end_of()
    print(f"{name} has ended: {end.state}" + (f": {end.message}" if end.state in FAILED else ""), flush=True)
    if entry.kind != PROOF:
        follow.wait(entry.job.path)
    if not stops.is_by_slurm:  # else it may be requeued: the runner asks Slurm
        with entries.locked():
            entries.discard(name)
    return ENDED_BADLY if end.state in FAILED else ENDED_WELL


def _wait(entry: Entry, process: subprocess.Popen[bytes], stops: Requests) -> None:
    """Wait for the end of `process`, and pass each request in `stops` on to it."""
    left = slurm.time_left(os.environ)
    if left.problem:
        print(f"the time limit of the job is not known: {left.problem}", flush=True)
    usable = left.usable_seconds
    end = None if usable is None else time.monotonic() + usable
    passed_on = 0
    while process.poll() is None:
        if end is not None and time.monotonic() >= end:
            end = None
            print("the time limit of the job comes soon: the run is stopped", flush=True)
            stops.stop()
        if passed_on < len(stops.asked):
            with contextlib.suppress(RunError):  # its process has not recorded its id yet
                if entry.kind == PROOF:
                    folder.request_stop(Proof(entry.job.path), stops.asked[passed_on])
                else:
                    runs.request_stop(entry.folder, stops.asked[passed_on])
                passed_on += 1
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    os.environ.pop("GPUTUI_LOCK", None)
    sys.exit(carry_out(sys.argv[1], slurm.job_of(os.environ)))
