"""The command line and the screens. Never imports TensorFlow. `main` is the entry point of the command `gputui`.
Deferred imports: without a word the form opens at once, and needs nothing that parses a command line (25 ms)."""

import os
import signal
import sys

# Until the command has been imported there is nothing but imports that Ctrl-C could interrupt: it ends the process as
# it would any program, without a traceback. `interruptible` puts Python's handler back.
if os.path.basename(sys.argv[0]) == "gputui" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command and exit with its code. Exceptions are shown as one or two lines, never as a traceback."""
    from .base.errors import guarded, interruptible

    if sys.argv[1:] or "_GPUTUI_COMPLETE" in os.environ:
        from .cli import run

        interruptible()
        sys.exit(run())
    from .show import show

    interruptible()
    sys.exit(guarded(show))
