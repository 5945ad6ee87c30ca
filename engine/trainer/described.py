"""`python -P -m gputui.engine.trainer.described RUN_DIR`: builds the training of a user's code, and prints as JSON
what an exported script depends on (own/export_facts.py), of a script what its fit says, or why the run would be
refused.

Deferred imports: TensorFlow takes seconds, and everything that it prints goes to the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import typed
from ..options import options_json
from ..runs import Run
from ..runs.events import EVENTS_FILE
from ..runs.parsing import EventWriter
from .common.stopping import StopRequested, StopSwitch
from .common.training_errors import TrainerError
from .measure.run_report import RunReport
from .setup import environment

if TYPE_CHECKING:
    from .fit.training_loop import TrainingLoop


def main() -> None:
    typed.trust_files()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what TensorFlow and the user's code print is for the log
    environment.choose_backend()
    run = Run(Path(sys.argv[1]))
    options = options_json.read(run.path)
    try:
        environment.prepare(options)
        from . import script
        from .assembly import assemble
        from .own import export_facts

        report = RunReport(run, EventWriter(run.file(EVENTS_FILE), run.id))
        if options.workload.is_script:
            facts = {}

            def know(loop: TrainingLoop) -> None:
                facts.update({key: loop.built.options.value(key) for key in options.workload.left_to_fit or ()})
                raise StopRequested("stopped")

            with contextlib.suppress(StopRequested):
                script.run(options, report, StopSwitch(), know)
        else:
            own = assemble(options, report, StopSwitch()).built.own
            assert own is not None
            own.warn(options, report, None)
            facts = export_facts.of(own)
    except TrainerError as fault:
        traceback.print_exc()
        facts = {"error": fault.message, "hint": fault.hint}
    answer.write(json.dumps(facts))
    answer.flush()
    os._exit(0)  # the code's threads and processes are not waited for


if __name__ == "__main__":
    main()
