"""From the form to a run: the last check, the launch, the live view. Runs in a thread; the screen stays alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..form_state import FormState

if TYPE_CHECKING:
    from .form import FormScreen


def start(form: FormScreen, state: FormState) -> None:
    """Check anew, launch, and open the run; says in the form why it cannot."""
    from ...engine import checks, launch, machine
    from ...engine.runs import RunError

    preset = state.preset
    here = machine.read()
    found = checks.check(preset.options, here)
    if any(finding.level == "error" for finding in found):
        form.app.call_from_thread(form.refused, here, tuple(found))
        return
    try:
        warm, form.app.warm = form.app.warm, None
        run, engine = warm.start(preset) if warm is not None else launch.start(preset)
    except (OSError, RunError) as fault:
        reason = f"the run cannot be started: {fault}"
        form.app.call_from_thread(form.app.complain, reason)
        return
    form.app.call_from_thread(form.started, state, run, engine)
