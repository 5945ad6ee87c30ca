"""`python -P -m gputui.engine RUN_DIR`: the engine process of one run. With `--warm PYTHON` it starts the trainer with
that Python at once, and reads the folder from standard input later (launch.Warm).
"""

import os
import signal
import sys
from pathlib import Path

from .files import places
from .files.writing import forgive_full_disk
from .process import spawn
from .system import descendants, locks, stop_signals
from .system.run_clock import VARIABLE, RunClock

if __name__ == "__main__":
    # A lost terminal stops nothing; the trainer inherits this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # A scheduler may send these to all processes of a job; run.stop_signal makes the engine, and it alone, obey one.
    for number in stop_signals.BY_SCHEDULER.values():
        signal.signal(number, signal.SIG_IGN)
    forgive_full_disk()
    if sys.argv[1] == spawn.WARM:
        places.make_scratch()
        trainer = spawn.start_trainer(spawn.WARM, python=sys.argv[2])
        stop_signals.set_defaults()
        descendants.adopt_orphans()  # a trainer that is woken may leave some before the supervisor is imported
        address, lock, leased = spawn.take_run()
        if lock is None:
            trainer.process.kill()  # nobody wants a run, and it may be in the middle of an import
            places.remove_scratch()
            sys.exit(0)
        stop_signals.hold()  # until there are handlers again
        clock, folder = spawn.read_address(address)
        spawn.write_to_log(Path(folder))
        trainer = spawn.wake(trainer, clock, folder)
    else:
        leased = os.environ.pop(locks.LEASED, "")  # the trainer inherits none
        folder, clock = sys.argv[1], RunClock.read(os.environ.pop(VARIABLE, None))
        try:
            lock = spawn.own_lock(Path(folder) / locks.ENGINE_LOCK)
        except locks.Taken:
            sys.exit(f"{folder} has an engine already")
        try:
            if (forked := spawn.forked_trainer()) is None:  # one that was forked may have left its result already
                spawn.put_result_aside(Path(folder))
                places.make_scratch()
            trainer = forked or spawn.start_trainer(folder, clock)
        except OSError as fault:
            from .process.supervisor import leave

            sys.exit(leave(folder, None, fault))
    # Imported while the trainer starts: the first phase is on the screen 0.1 s sooner.
    from .process.supervisor import Supervisor, leave
    from .queue import entry_names
    from .runs import Run

    supervisor = None
    with lock:
        try:
            supervisor = Supervisor(Run(Path(folder)), trainer, lock, clock, leased)
            code = supervisor.supervise()
        except Exception as fault:  # noqa: BLE001 - the run says why its engine failed
            code = leave(folder, supervisor.started_trainer if supervisor else trainer, fault)
    if entry_names():  # the runner of the queue may have been killed while this run trained
        from .queue import entries

        entries.ensure_runner()
    sys.exit(code)
