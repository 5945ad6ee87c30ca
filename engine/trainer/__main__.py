"""`python -P -m gputui.engine.trainer RUN_DIR`: train one run's preset.

Says that it is there before it imports anything heavy; TensorFlow is first imported inside `session`. With `--warm`
instead of the folder it imports TensorFlow first, touches no device, and waits for the folder on its engine's pipe.

Deferred imports: TensorFlow takes seconds, and the first sign of life comes before what it needs.
"""

import faulthandler
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..files import log_streams, scratch
from ..process.spawn import DUMP_STACKS, WARM, read_address, write_to_log
from ..runs.event_writer import EventWriter
from ..runs.events import Phase
from ..system import stop_signals
from ..system.gc_freeze import exempt_from_gc
from ..system.heartbeat import VARIABLE as HEARTBEAT
from ..system.heartbeat import TrainerHeartbeat
from ..system.run_clock import VARIABLE, RunClock
from .common.stopping import StopSwitch
from .setup import environment


def main() -> None:
    log_streams.forgive()
    lifeline = os.fdopen(int(os.environ.pop("GPUTUI_LIFELINE")))
    engine_pipe = int(os.environ.pop("GPUTUI_REPORT"))
    os.set_inheritable(engine_pipe, False)
    heartbeat = TrainerHeartbeat.inherited(os.environ.pop(HEARTBEAT, None))
    faulthandler.register(DUMP_STACKS, file=2)  # the engine asks for it where the training hangs
    another_backend = environment.choose_backend()
    clock, folder = RunClock.read(os.environ.pop(VARIABLE, None)), sys.argv[1]
    if folder == WARM:
        clock, folder = read_address(_when_wanted(lifeline.readline))
        write_to_log(Path(folder))
    writer = EventWriter(Path(folder) / "events.jsonl", Path(folder).name, clock)
    writer.emit(Phase(phase="starting"), clock.date)
    writer.emit(Phase(phase="importing", detail="TensorFlow"))
    # Imported after the first sign of life. Until the switch listens, signals and the engine's words wait.
    from ..runs import Run
    from .common.process_exit import ProcessExit
    from .measure.run_report import RunReport

    report, stop = RunReport(Run(Path(folder)), writer), StopSwitch()
    report.engine_pipe, report.heartbeat = engine_pipe, heartbeat
    process_exit = ProcessExit(stop)
    stop.leave_result = lambda reason: report.finish("stopped", 0) if reason == "stopped" else None
    stop.exit = process_exit.at_once
    stop.listen(lifeline)
    from .session import train_run

    environment.tell_backend(another_backend, report)
    process_exit.at_the_end(train_run(report, stop))


def _when_wanted(next_line: Callable[[], str]) -> str:
    """Import what takes seconds, then wait for a run; end where none comes."""
    stop_signals.set_defaults()
    with exempt_from_gc():
        from . import assembly  # noqa: F401

    address = next_line().rstrip("\n")
    if not address:
        scratch.remove()  # its engine may have been killed
        os._exit(0)
    return address


if __name__ == "__main__":
    main()
