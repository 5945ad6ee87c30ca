"""`python -P -m gputui.engine RUN_DIR`: the engine process of one run.

`--warm` instead of the folder: start the trainer now, and take the folder from standard input later (launch.Warm).
"""

import os
import signal
import sys
from pathlib import Path

from .files import log_streams, scratch
from .process.spawn import WARM, own_lock, put_result_aside, read_address, start_trainer, take_run, wake, write_to_log
from .system import locks, stop_signals
from .system.run_clock import VARIABLE, RunClock

if __name__ == "__main__":
    # A lost terminal stops nothing; the trainer inherits this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log_streams.forgive()
    if sys.argv[1] == WARM:
        scratch.make()
        trainer = start_trainer(WARM)
        stop_signals.set_defaults()
        address, lock = take_run()
        if lock is None:
            scratch.remove()
            sys.exit(0)  # nobody wants a run; the trainer sees the end of its pipe and goes, too
        stop_signals.hold()  # until there are handlers again
        clock, folder = read_address(address)
        write_to_log(Path(folder))
        trainer = wake(trainer, clock, folder)
    else:
        folder, clock = sys.argv[1], RunClock.read(os.environ.pop(VARIABLE, None))
        try:
            lock = own_lock(Path(folder) / locks.ENGINE_LOCK)
        except locks.Taken:
            sys.exit(f"{folder} has an engine already")
        put_result_aside(Path(folder))
        scratch.make()
        try:
            trainer = start_trainer(folder, clock)
        except OSError as fault:
            from .process import failure

            sys.exit(failure.leave(folder, None, fault))
    # Imported while the trainer starts: the first phase is on the screen 0.1 s sooner.
    from .process.supervisor import Supervisor
    from .runs import Run

    with lock:
        try:
            code = Supervisor(Run(Path(folder)), trainer, lock, clock).supervise()
        except Exception as fault:
            from .process import failure

            code = failure.leave(folder, trainer, fault)
    sys.exit(code)
