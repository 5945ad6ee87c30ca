"""`python -P -m gputui.engine RUN_DIR`: the engine process of one run."""

import sys
from pathlib import Path

from .spawn import start_trainer

if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    trainer = start_trainer(folder)
    # Imported while the trainer starts: the first phase is on the screen 0.1 s sooner.
    from .runs import Run
    from .supervisor import Supervisor

    sys.exit(Supervisor(Run(folder), trainer).supervise())
