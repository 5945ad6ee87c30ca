"""`python -P -m gputui.engine.trainer RUN_DIR`: train one run's preset. With `--warm` it imports TensorFlow first,
and waits until its engine sends the folder; with `--fork-server` it forks the trainers of several runs
(fork_server.py).

Deferred imports: TensorFlow takes seconds, and the first event is written before.
"""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..files import places, typed
from ..files.writing import forgive_full_disk
from ..process.spawn import DUMP_STACKS, FORK_SERVER, WARM, read_address, write_to_log
from ..runs.events import EVENTS_FILE, Phase
from ..runs.parsing import EventWriter
from ..system import child_process, import_cost, stop_signals
from ..system.heartbeat import VARIABLE as HEARTBEAT
from ..system.heartbeat import TrainerHeartbeat
from ..system.import_cost import exempt_from_gc
from ..system.run_clock import VARIABLE, RunClock
from .common.stopping import ENGINE_GONE, ENGINE_LOST, StopSwitch
from .setup import environment


def main() -> None:
    typed.trust_files()
    child_process.release()
    if sys.argv[-1] == FORK_SERVER:
        from . import fork_server

        fork_server.serve()
    forgive_full_disk()
    lifeline = os.fdopen(int(os.environ.pop("GPUTUI_LIFELINE")))
    engine_pipe = int(os.environ.pop("GPUTUI_REPORT"))
    os.set_inheritable(engine_pipe, False)
    heartbeat = TrainerHeartbeat.inherited(os.environ.pop(HEARTBEAT, None))
    faulthandler.register(DUMP_STACKS, file=2)  # the engine asks for it if the training hangs
    another_backend = environment.choose_backend()
    clock, folder = RunClock.read(os.environ.pop(VARIABLE, None)), sys.argv[1]
    if folder == WARM:
        clock, folder = read_address(_address_of_run(lifeline.readline))
        write_to_log(Path(folder))
    writer = EventWriter(Path(folder) / EVENTS_FILE, Path(folder).name, clock)
    writer.emit(Phase(phase="starting"), clock.date)
    writer.emit(Phase(phase="importing", detail="TensorFlow"))
    # Imported after the first event. Until the switch listens, signals and the engine's messages wait.
    from ..runs import Run
    from .common.stopping import ProcessExit
    from .measure.run_report import RunReport

    report, stop = RunReport(Run(Path(folder)), writer), StopSwitch()
    report.engine_pipe, report.heartbeat = engine_pipe, heartbeat
    process_exit = ProcessExit(stop)
    report.when_finished = process_exit.limit
    stop.leave_result = partial(_leave_result, report)
    stop.exit = process_exit.at_once
    stop.listen(lifeline)
    from .session import train_run

    if another_backend:
        what = f"KERAS_BACKEND={another_backend} does nothing here: gputui trains with TensorFlow"
        report.warn("backend", what, option="KERAS_BACKEND")
    process_exit.at_the_end(train_run(report, stop))


def _leave_result(report: Any, reason: str) -> None:
    # For other reasons, such as a time limit, the engine writes the result.
    if reason == ENGINE_GONE:
        report.finish("crashed", 0, ENGINE_LOST)
    elif reason == "stopped":
        report.finish("stopped", 0)


def _address_of_run(next_line: Callable[[], str]) -> str:
    """If none comes, the process ends, even if the import of TensorFlow hangs."""
    stop_signals.set_defaults()
    addresses: SimpleQueue[str] = SimpleQueue()

    def read_line() -> None:
        address = next_line().rstrip("\n")
        if not address:
            places.remove_scratch()  # its engine may have been killed
            os._exit(0)
        addresses.put(address)

    threading.Thread(target=read_line, name="run", daemon=True).start()
    with exempt_from_gc():
        from . import assembly  # noqa: F401

    return addresses.get()


if __name__ == "__main__":
    import_cost.with_room(main)
