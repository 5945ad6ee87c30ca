"""`python -P -m gputui.engine.trainer RUN_DIR`: train one run's preset.

Says that it is there before it imports anything heavy; TensorFlow is first imported inside `session`.
"""

import os
import sys
from pathlib import Path

from ..events import EventWriter, Phase
from ..runs import Run
from .stopping import StopSwitch


def main() -> None:
    run = Run(Path(sys.argv[1]).absolute())
    writer = EventWriter(run.file("events.jsonl"), run.id)
    writer.emit(Phase(phase="importing", detail="TensorFlow"))
    stop = StopSwitch()
    stop.listen()
    from .session import train_run  # the heavy import, after the first sign of life

    code = train_run(run, writer, stop)
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's own teardown can abort or hang after a failure; the run's story is written.
    os._exit(code)


if __name__ == "__main__":
    main()
