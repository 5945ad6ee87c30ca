"""`python -P -m gputui.engine.process.command RUN_DIR`: the trainer of a run whose workload is a command of the user
(workload.command). It passes requests to stop on to all processes of the command; its engine says how the run ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ..files.places import SCRATCH_VARIABLE
from ..files.writing import forgive_full_disk
from ..gpu import VISIBLE
from ..options import options_json
from ..runs.events import EVENTS_FILE, Phase
from ..runs.parsing import EventWriter
from ..system import child_process, descendants, heartbeat, stop_signals
from ..system.run_clock import VARIABLE, RunClock


def main() -> int:
    """Returns the exit code of the command, 128 + N after the signal N as in a shell."""
    forgive_full_disk()
    folder = Path(sys.argv[1])
    lifeline = os.fdopen(int(os.environ.pop("GPUTUI_LIFELINE")))
    for channel in (int(os.environ.pop("GPUTUI_REPORT")), lifeline.fileno()):
        os.set_inheritable(channel, False)
    heartbeat.TrainerHeartbeat.inherited(os.environ.pop(heartbeat.VARIABLE, None))
    clock = RunClock.read(os.environ.pop(VARIABLE, None))
    events = EventWriter(folder / EVENTS_FILE, folder.name, clock)
    events.emit(Phase(phase="starting"), clock.date)
    options = options_json.read(folder)
    command, visible = options.workload.command, options.device.visible
    variables = {name: value for name, value in os.environ.items() if name != SCRATCH_VARIABLE}
    if visible == "none":
        variables[VISIBLE] = "-1"
    elif isinstance(visible, list):
        variables |= {VISIBLE: ",".join(map(str, visible)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    variables["PWD"] = options.workload.folder or os.getcwd()
    ignored = (signal.SIGHUP, *stop_signals.BY_SCHEDULER.values())  # by the engine, but not by the command
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    asked, engine_gone = threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        if not asked.is_set():
            asked.set()
            _signal(process, signal.SIGTERM)
            _signal(process, signal.SIGCONT)  # if it is suspended, it cannot react before

    def watch_engine() -> None:
        if lifeline.readline():
            stop()
            return
        engine_gone.set()  # it was killed: nobody else ends what does not react
        descendants.adopt_orphans()
        stop()
        time.sleep(stop_signals.GRACE_SECONDS)
        _signal(process, signal.SIGKILL)

    try:
        # With signals let through, as it inherits what this process holds back.
        stop_signals.set_defaults()
        process = child_process.start(
            command, stdin=subprocess.DEVNULL, env=variables, cwd=options.workload.folder, start_new_session=True
        )
    except OSError as fault:
        print(f"{child_process.NOT_RUN}{fault.filename or command[0]}: {fault.strerror}", flush=True)
        return child_process.NOT_STARTED
    for number in (*stop_signals.NUMBERS, *ignored):
        signal.signal(number, stop if number in stop_signals.NUMBERS else signal.SIG_IGN)
    events.emit(Phase(phase="command"))
    child_process.release()
    threading.Thread(target=watch_engine, name="lifeline", daemon=True).start()
    code = process.wait()
    if engine_gone.is_set():
        descendants.end_descendants()
    events.emit(Phase(phase="ended"))
    events.close()
    return code if code >= 0 else 128 - code


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To all processes of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main())
