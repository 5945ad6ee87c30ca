"""Shows the screens, or refuses without a terminal; afterwards names the runs and measurements that continue.
Deferred imports: without a terminal no screen is needed."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

from .base.errors import Refused, clean, complain, interruptible
from .base.glyphs import in_cell

if TYPE_CHECKING:
    from .form.form_state import FormState


WEB_DRIVER = "textual.drivers.web_driver:WebDriver"  # of textual-serve, by which a browser is the terminal
DUMB = ("dumb", "unknown")  # rich assumes 80 x 25 for these, and a screen of another size is painted without end


def need_a_terminal(instead: str = "gputui --preset NAME trains") -> None:
    """Raise Refused without a usable terminal. `instead` names, in the message, a command that needs no terminal."""
    if os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise Refused(f"the screen needs a terminal (ssh -t gives one); {clean(instead)} without one")
    if in_cell():
        raise Refused(f"the cell of a notebook shows no screen, a terminal does; {clean(instead)} in a cell")
    if (name := os.environ.get("TERM", "")).lower() in DUMB:
        change = f"export TERM=xterm-256color, if this terminal supports it; {clean(instead)} without a screen"
        raise Refused(f"the screen cannot be drawn with TERM={clean(name)}; {change}")


def show(
    preset: FormState | None = None, opens: tuple[Any, ...] = (), instead: str = "gputui --preset NAME trains"
) -> int:
    """Run the screens, then print what continues. The arguments are those of GputuiApp and of `need_a_terminal`."""
    need_a_terminal(instead)
    gc.disable()  # until the application has been painted, 40 ms earlier
    from .app import GputuiApp

    interruptible()
    app = GputuiApp(preset, opens)
    gc.freeze()  # imported objects stay to the end: later collections skip them
    app.run()
    from ..engine.queue import entries
    from ..engine.runs.titles import with_name
    from ..engine.units import counted

    for run in app.going_on():
        print(f"{clean(with_name(run))} goes on: gputui watch {clean(run.name)} shows it again")
    for proof in app.measuring():
        print(f"the measurement {clean(proof.id)} goes on: gputui proof {clean(proof.id)} shows it")
    if waiting := sum(entry.state in entries.WAITS for entry in entries.all_entries()):
        print(f"{counted(waiting, 'jobs')} {'waits' if waiting == 1 else 'wait'} in the queue: gputui queue shows why")
    if app.not_deleted:
        complain(app.not_deleted)
    return app.return_code or 0
