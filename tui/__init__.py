"""The command line and the screens. Never imports TensorFlow."""

import os
import signal
import sys

# Until the command has been imported there is nothing but imports that Ctrl-C could interrupt: it ends the process as
# it would any program, without a traceback. `cli.main` puts Python's handler back.
if os.path.basename(sys.argv[0]) == "gputui" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
