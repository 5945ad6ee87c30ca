"""`python -P -m gputui.engine.queue`: the runner of this home's queue."""

import signal
import sys

from ..system import stop_signals
from .runner import carry_out

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop_signals.set_defaults()  # they end it at once, as when the machine is shut down
    sys.exit(carry_out(int(sys.argv[1]) if len(sys.argv) > 1 else None))
