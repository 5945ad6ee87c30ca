"""`python -P -m gputui.engine.queue`: the runner of this home's queue."""

import signal
import sys

from .runner import carry_out

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(carry_out(int(sys.argv[1]) if len(sys.argv) > 1 else None))
