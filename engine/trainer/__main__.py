"""`python -P -m gputui.engine.trainer RUN_DIR`: train one run's preset.

Says that it is there before it imports anything heavy; TensorFlow is first imported inside `session`. With `--warm`
instead of the folder it imports TensorFlow first, touches no device, and waits for the folder on its engine's pipe.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..events import EventWriter, Phase
from ..spawn import WARM, write_to_log
from .stopping import StopSwitch


def main() -> None:
    lifeline = os.fdopen(int(os.environ.pop("GPUTUI_LIFELINE")))
    folder = _when_wanted(lifeline.readline) if sys.argv[1] == WARM else Path(sys.argv[1])
    writer = EventWriter(folder / "events.jsonl", folder.name)
    writer.emit(Phase(phase="importing", detail="TensorFlow"))
    stop = StopSwitch()
    stop.listen(lifeline)
    # Imported after the first sign of life.
    from ..runs import Run
    from .session import train_run

    code = train_run(Run(folder), writer, stop)
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's own teardown can abort or hang after a failure; the run's story is written.
    os._exit(code)


def _when_wanted(next_line: Callable[[], str]) -> Path:
    """Import what takes seconds, then wait for a run; end where none comes."""
    from . import assembly  # noqa: F401

    folder = next_line().strip()
    if not folder:
        os._exit(0)
    write_to_log(Path(folder))
    return Path(folder)


if __name__ == "__main__":
    main()
