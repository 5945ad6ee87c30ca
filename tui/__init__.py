"""The command line and the screens. Never imports TensorFlow. `main` is the entry point of the command `gputui`.
Deferred imports: without a word the form opens at once, and needs nothing that parses a command line (25 ms)."""

import _signal  # type: ignore[import-not-found]  # `signal` takes 3 ms to import, of enumerations
import os
import sys

# While modules are being imported, Ctrl-C ends the command as it would any program, without a traceback: nothing has
# begun. `interruptible` puts Python's handler back.
if os.path.basename(sys.argv[0]) == "gputui" and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run the command and exit with its code. Exceptions are shown as one or two lines, never as a traceback."""
    if sys.argv[1:] or "_GPUTUI_COMPLETE" in os.environ:
        from .cli import run

        sys.exit(run())
    from .base.errors import guarded
    from .show import show

    sys.exit(guarded(show))
