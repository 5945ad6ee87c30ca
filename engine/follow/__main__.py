"""`python -P -m gputui.engine.follow RUN_DIR TARGET`: writes the figures of a run to a target until the run has ended.

Its output is the log `follow/TARGET.log` of the run folder. Ends with 0 if all is written, 1 if not, and 2 if it cannot
begin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from ..files.writing import forgive_full_disk
from ..system import locks
from .following import Following
from .place import FollowError, Place, file_of, read_place
from .targets import TARGETS

LOCK_ATTEMPTS = 3000  # of 10 ms: a follower that ends while the run is resumed holds the lock a little longer
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


def say(line: str) -> None:
    """Write a line with the date into the log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)


def main(folder: Path, name: str) -> int:
    """Follow the run. Returns the exit code."""
    be_last()
    kind, path = TARGETS[name], file_of(folder, name)
    path.parent.mkdir(exist_ok=True)
    try:
        lock = locks.take(file_of(folder, name, "lock"), LOCK_ATTEMPTS)
    except locks.Taken:
        say("another follower of this run has this target")
        return 0
    with lock:
        try:
            if kind.missing:
                raise FollowError(kind.missing)
            place = read_place(path) or Place()
            following = Following(folder, name, kind.make(place.remote), place, say)
        except (FollowError, OSError) as fault:
            say(str(fault))
            return 2
        return 0 if following.follow() == "done" else 1


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    forgive_full_disk()
    code = main(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    os._exit(code)  # a call of a library that hangs must not keep the process
