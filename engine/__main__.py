"""`python -P -m gputui.engine RUN_DIR`: the engine process of one run.

`--warm` instead of the folder: start the trainer now, and take the folder from standard input later (launch.Warm).
"""

import os
import signal
import sys
from pathlib import Path

from . import scratch, stop_signals
from .spawn import WARM, start_trainer, write_to_log

if __name__ == "__main__":
    # A lost terminal stops nothing; the trainer inherits this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    scratch.make()
    trainer = start_trainer(sys.argv[1])
    if sys.argv[1] == WARM:
        stop_signals.set_defaults()
        folder = sys.stdin.readline().strip()
        if not folder:
            scratch.remove()
            sys.exit(0)  # nobody wants a run; the trainer sees the end of its pipe and goes, too
        write_to_log(Path(folder))
        os.write(trainer.lifeline, f"{folder}\n".encode())
    else:
        folder = sys.argv[1]
    # Imported while the trainer starts: the first phase is on the screen 0.1 s sooner.
    from .runs import Run
    from .supervisor import Supervisor

    sys.exit(Supervisor(Run(Path(folder)), trainer).supervise())
