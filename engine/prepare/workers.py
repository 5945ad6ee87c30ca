"""The processes that read and write samples (trainer/prepare/): they end with this one, killed by Linux's kernel,
elsewhere by the end of their input.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..interpreter import interpreter
from ..system import child_process

MODULE = "gputui.engine.trainer.prepare"
_BLOCK = 65536


class WorkerEnded(Exception):
    """A process has ended without an answer. The text says how, with the last line of its log."""


class Worker:
    """One process. Its answers are JSON objects, one on each line."""

    def __init__(self, python: str, request: Mapping[str, Any], log: Path) -> None:
        """Start the process, and send it the request. Raises OSError if it cannot be started."""
        self.log = log
        with log.open("ab") as stream:
            self.process = child_process.start(
                interpreter.command(python, MODULE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=interpreter.environment(python),
                start_new_session=True,  # Ctrl-C is for the command alone
                bufsize=0,
            )
        self._rest = b""
        self.send(request)

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is noticed when it is read
            self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the answers that have come; waits until there is something to read. Raises WorkerEnded."""
        block = os.read(self.fileno(), _BLOCK)
        if not block:
            raise WorkerEnded(self._how_it_ended())
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def answer(self) -> dict[str, Any]:
        """Return the next answer. Raises WorkerEnded."""
        while True:
            for answer in self.answers():
                return answer

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with return code {code}"
        with contextlib.suppress(OSError):
            lines = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
            if code >= 0 and lines:
                how += f": {lines[-1][:160]}"
        return f"a process that prepares the data {how}"

    def end(self) -> None:
        """End the process at once, and wait for its end. What it was writing is lost."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def answered(workers: Sequence[Worker]) -> Iterator[tuple[Worker, dict[str, Any]]]:
    """Yield the answers of the workers as they come, for ever. Raises WorkerEnded if one ends."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.fileno(), selectors.EVENT_READ, worker)
        while True:
            for key, _ in selector.select():
                for answer in key.data.answers():
                    yield key.data, answer
