"""`python -P -m gputui.engine.follow RUN_DIR TARGET`: writes the figures of a run to a target until the run has ended.
Its output is a log of the run folder. Ends with 0 if all is written, 1 if not, and 2 if it cannot begin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

NICE = 19
_OUT_OF_MEMORY_FIRST = "1000"  # the kernel then ends the follower and not the training


def be_last() -> None:
    """Take CPU, disk and memory only after all other processes, above all the training."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_FIRST)
    with contextlib.suppress(Exception):
        import psutil  # after the priority is low

        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    be_last()
    from ..files.writing import forgive_full_disk  # after the priority is low
    from .following import main

    forgive_full_disk()
    code = main(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    os._exit(code)  # a call of a library that hangs must not keep the process
