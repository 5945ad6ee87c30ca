"""Shows the screens, and tells after them which runs and measurements go on.

Deferred imports: what is refused without a terminal needs no screen.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from .base.errors import Refused, clean

if TYPE_CHECKING:
    from ..engine.runs import Run
    from .form.state import FormState


def need_a_terminal(instead: str = "gputui --preset NAME trains") -> None:
    """Refuse without one, and say which command needs none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise Refused(f"the screen needs a terminal (ssh -t gives one); {clean(instead)} without one")


def show(preset: FormState | None = None, watch: Run | None = None, replay_speed: float | None = None) -> int:
    """The TUI, and what to know after it; its exit code."""
    need_a_terminal(*([f"gputui logs {watch.id} prints the log"] if watch else []))
    gc.disable()  # until the application has been painted
    from .app import GputuiApp

    app = GputuiApp(preset, watch=watch, replay_speed=replay_speed)
    gc.freeze()  # what was imported stays to the end: no later collection looks at it
    app.run()
    from ..engine.runs import title

    for start in app.waiting.starts:
        print(f"{clean(start.title)} was not started: it waited until the devices are free")
    for run in app.going_on():
        print(f"{clean(title(run))} goes on: gputui watch {clean(run.id)} shows it again")
    for proof in app.measuring():
        print(f"the measurement {clean(proof.id)} goes on: gputui proof {clean(proof.id)} shows it")
    return app.return_code or 0
