"""`python -P -m gputui.engine.trainer RUN_DIR`: train one run's preset.

Says that it is there before it imports anything heavy; TensorFlow is first imported inside `session`.
"""

import os
import sys
from pathlib import Path

from ..events import EventWriter, Phase
from .stopping import StopSwitch


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    writer = EventWriter(folder / "events.jsonl", folder.name)
    writer.emit(Phase(phase="importing", detail="TensorFlow"))
    stop = StopSwitch()
    stop.listen()
    # Imported after the first sign of life.
    from ..runs import Run
    from .session import train_run

    code = train_run(Run(folder), writer, stop)
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's own teardown can abort or hang after a failure; the run's story is written.
    os._exit(code)


if __name__ == "__main__":
    main()
