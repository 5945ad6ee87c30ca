"""`python connection_watch.py TASK`: watches the other workers while TensorFlow connects this one to them.

MultiWorkerMirroredStrategy's constructor waits for all workers without a time limit, and no thread of Python runs
meanwhile. So this process watches: it has the connections over which the workers have met, and the kernel closes those
of a worker that dies. Then it says so in the log, where the engine reads it, and kills the trainer, which could not be
ended otherwise. It imports nothing of gputui's, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

CONNECTED = b"connected"  # said by a trainer to its lookout, and by that to the others
PATIENCE_SECONDS = 3.0  # for the trainer to find out by itself, and to say more
LOST = "{worker} has ended while TensorFlow connected the workers"


def watch(trainer: int, control: int, watched: dict[int, str], answered: list[int]) -> None:
    """Return when the trainer is connected or has ended; kill it when one of the `watched` workers has ended.

    `watched` are the connections by which this worker has reached the others. Those in `answered` lead to the others'
    lookouts, which must not take this worker for one that has died when they are closed.
    """
    lines = {number: socket.socket(fileno=number) for number in (*watched, *answered)}
    while True:
        ready, _, _ = select.select([control, *watched], [], [])
        if control in ready:
            if os.read(control, len(CONNECTED)) == CONNECTED:
                _tell([lines[number] for number in answered])
            return
        for number in ready:
            worker = watched.pop(number)
            if not _is_connected(lines[number]) and not _ends_by_itself(control):
                print(f"gputui: {LOST.format(worker=worker)}", file=sys.stderr, flush=True)
                if os.getppid() == trainer:
                    os.kill(trainer, signal.SIGKILL)
                os._exit(0)  # at once: what outlives a trainer is reported


def _is_connected(line: socket.socket) -> bool:
    """Whether the worker has said so; where it has died, its connection is at its end."""
    try:
        return line.recv(len(CONNECTED)) != b""
    except OSError:
        return False


def _ends_by_itself(control: int) -> bool:
    """Whether the trainer gets on or ends within a moment, without being killed."""
    return bool(select.select([control], [], [], PATIENCE_SECONDS)[0])


def _tell(lines: list[socket.socket]) -> None:
    for line in lines:
        try:
            line.settimeout(PATIENCE_SECONDS)
            line.sendall(CONNECTED)
        except OSError:
            continue  # that worker has ended


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    watch(task["trainer"], task["control"], {int(n): who for n, who in task["watched"].items()}, task["answered"])
