"""`python -P -m gputui.engine.trainer.prepare`: reads samples, decodes them and writes them into files. The first
line of standard input is the request, each further line a command, both in JSON, answered by a line on standard
output. The process ends with its input.

Deferred imports: TensorFlow takes seconds, and everything that it prints goes to the log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from ..common.training_errors import TrainerError
from ..setup import environment


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
        import tensorflow as tf

        from . import work

        request = work.read(sys.stdin.readline())
        if request.options.workload.entry is None:  # a user's code may do as it likes
            tf.config.threading.set_intra_op_parallelism_threads(1)  # several processes share the CPUs
            tf.config.threading.set_inter_op_parallelism_threads(1)
        samples = work.opened(request)
        answer({"facts": dict(samples.facts), "one_process": samples.one_process})
        for line in sys.stdin:
            work.obey(json.loads(line), samples, request, answer)
    except TrainerError as fault:
        answer({"error": fault.message, "hint": fault.hint})
    except BrokenPipeError:  # nobody waits for answers any more
        pass


if __name__ == "__main__":
    main()
