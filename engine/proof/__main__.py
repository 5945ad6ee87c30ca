"""`python -P -m gputui.engine.proof PROOF_DIR`: the process of one proof, independent of any viewer.

SIGTERM or SIGINT ends the present trial and the proof with the results so far; a second one ends it at once. A lost
terminal stops nothing. A failure is one line in proof.json; its traceback goes to proof.log.
"""

from __future__ import annotations

import platform
import signal
import sys
import traceback
from importlib import metadata
from pathlib import Path

from ..options import Options
from ..process.spawn import own_lock
from ..system import locks
from ..system.identity import Process
from ..telemetry import machine
from . import sharing
from .comparing import BaselineFailed, Stopped
from .folder import PROOF_LOCK
from .folder import record as empty_record
from .record import Record
from .request import Request
from .trial import Bench, Stop


def main(path: Path) -> int:
    """Carry out the proof; 0 when it is done, 1 when it could not be carried out."""
    stop = Stop()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its engines and trainers inherit this
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    request = Request.read(path / "request.json")
    record = empty_record(path, request)
    record.tell_process(Process.current())
    try:
        lock = own_lock(path / PROOF_LOCK)
    except locks.Taken:
        sys.exit(f"another process is already carrying out {path}")
    with lock:
        return _make(path, request, record, stop)


def _make(path: Path, request: Request, record: Record, stop: Stop) -> int:
    record.write("examining this machine")
    try:
        _prove(path, request, record, stop)
        record.state = "done"
    except Stopped:
        record.state, record.ended_because = "stopped", "a stop was requested"
    except BaselineFailed as fault:
        record.state, record.error = "failed", str(fault)
    except Exception as fault:
        traceback.print_exc()
        record.state, record.error = "failed", f"{type(fault).__name__}: {' '.join(str(fault).split()) or 'no message'}"
    for comparison in record.comparisons:
        if comparison.decision == "running":
            comparison.decision, comparison.why = "failed", "the proof ended before it was finished"
    record.budget_seconds = None
    record.write("ended")
    return int(record.state == "failed")


def _prove(path: Path, request: Request, record: Record, stop: Stop) -> None:
    from .loop import Prover  # loaded after the first sign of life in proof.json

    here = machine.read()
    record.machine = {
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": here.cpus,
        "memory_bytes": here.memory_bytes,
        "gpus": [gpu.name for gpu in here.gpus],
        "no_gpu_reason": here.no_gpu_reason or None,
        "gputui": metadata.version("gputui"),
    }

    def beside(options: Options) -> str:
        return sharing.beside(sharing.of_options(options, here), here, path)

    bench = Bench(path / "trials", Path(request.folder), request.seed, request.measure_seconds, here, stop, beside)
    Prover(request, record, bench, here).prove()


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
