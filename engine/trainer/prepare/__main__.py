"""`python -P -m gputui.engine.trainer.prepare`: reads samples, decodes them and writes them into files.

The first line of standard input is the request, each further line a command with one JSON object. Each is answered by a
line of JSON on standard output. The process ends with its input.

Deferred imports: TensorFlow takes seconds, and everything that it prints goes to the log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...prepare.layout import Shard
from ..common.training_errors import TrainerError
from ..setup import environment

PROGRESS_SECONDS = 0.3


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the process that has started this one decides
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what TensorFlow and the user's code print is for the log
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    environment.choose_backend()

    def answer(value: Mapping[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        _serve(answer)
    except TrainerError as fault:
        answer({"error": fault.message, "hint": fault.hint})
    except BrokenPipeError:  # nobody waits for answers any more
        pass


def _serve(answer: Callable[[Mapping[str, Any]], None]) -> None:
    from . import work

    request = work.read(sys.stdin.readline())
    samples = work.open_samples(request)
    answer({"facts": samples.facts, "one_process": samples.one_process})
    for line in sys.stdin:
        command = json.loads(line)
        if "shard" in command:
            progress = _Progress(answer)
            answer(work.write(samples, Shard(**command["shard"]), request, progress.at))
        elif "measure" in command:
            answer({"measured": work.measure(samples, int(command["measure"]), request, "reads" in command)})
        else:
            answer(work.join(command["join"], request))


class _Progress:
    """Sends the number of samples of the present file that were read, at most every PROGRESS_SECONDS."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], None]) -> None:
        self._answer, self._due = answer, 0.0

    def at(self, number: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + PROGRESS_SECONDS
            self._answer({"at": number})


if __name__ == "__main__":
    main()
