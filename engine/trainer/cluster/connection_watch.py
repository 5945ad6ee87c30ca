"""`python connection_watch.py TASK`: watches the other workers while TensorFlow connects this one to them.

MultiWorkerMirroredStrategy's constructor waits for all workers without a time limit, and no thread of Python runs
meanwhile. So this process watches: it has the connections over which the workers have met, and the kernel closes the
connections of a worker that dies. Then it writes a message to the log, which the engine reads, and kills the trainer,
which could not be ended otherwise. It imports no module of gputui, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

CONNECTED = b"connected"  # sent by a trainer to its watching process, and by that to the others
PATIENCE_SECONDS = 3.0  # for the trainer to notice the failure itself, and to report more
LOST = "{worker} has ended while TensorFlow connected the workers"


def watch(trainer: int, control: int, watched: dict[int, str], answered: list[int]) -> None:
    """Return when the trainer is connected or has ended. If a `watched` worker ends before, kill the trainer and exit;
    first notify the watching processes in `answered`: one that closes without notice means a dead worker.
    """
    connections = {number: socket.socket(fileno=number) for number in (*watched, *answered)}
    while True:
        ready, _, _ = select.select([control, *watched], [], [])
        if control in ready:
            if os.read(control, len(CONNECTED)) == CONNECTED:
                for connection in (connections[number] for number in answered):
                    try:
                        connection.settimeout(PATIENCE_SECONDS)
                        connection.sendall(CONNECTED)
                    except OSError:
                        continue  # the worker has ended
            return
        for number in ready:
            worker = watched.pop(number)
            try:
                if connections[number].recv(len(CONNECTED)):  # its trainer is connected; otherwise the worker has died
                    continue
            except OSError:
                pass
            if not select.select([control], [], [], PATIENCE_SECONDS)[0]:  # the trainer does not end by itself
                print(f"gputui: {LOST.format(worker=worker)}", file=sys.stderr, flush=True)
                if os.getppid() == trainer:
                    os.kill(trainer, signal.SIGKILL)
                os._exit(0)  # at once: a process that outlives its trainer is reported


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    watch(task["trainer"], task["control"], {int(n): who for n, who in task["watched"].items()}, task["answered"])
