"""`python -P -m gputui.engine RUN_DIR`: the engine process of one run."""

import sys
from pathlib import Path

from .runs import Run
from .supervisor import Supervisor

if __name__ == "__main__":
    sys.exit(Supervisor(Run(Path(sys.argv[1]).absolute())).supervise())
