"""The form and what is checked of it: this machine, and the options against it, in threads after the first paint.

Deferred imports: reading the machine and checking happen in threads, after the first paint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on, work
from textual.timer import Timer

from ..form.state import FormState
from ..widgets.findings import Findings
from ..widgets.option_row import OptionRow
from .form_view import FormView

if TYPE_CHECKING:
    from ...engine.checks import Finding
    from ...engine.presets import Preset
    from ...engine.telemetry.machine import Machine

CHECK_SECONDS = 0.15


class CheckedForm(FormView):
    """Checks the options when they have changed, and shows what was found."""

    def __init__(self, state: FormState, waits: bool = False) -> None:
        super().__init__(state, waits)
        self.checked: Preset | None = None  # the options that the findings are about
        self._check_timer: Timer | None = None

    def _built(self) -> None:
        super()._built()
        self.call_after_refresh(self._read_machine)

    def load(self, state: FormState) -> None:
        """Show another preset."""
        self.state = state
        self._findings = ()
        self.options.load(state)
        if not self._waits:
            self._show_all()
            self._check()

    @work(thread=True, group="machine")
    def _read_machine(self) -> None:
        from ...engine.telemetry import machine

        here = machine.read()
        self.app.call_from_thread(self._machine_read, here)

    def _machine_read(self, here: Machine) -> None:
        self.machine = here
        self._check()

    def _check(self) -> None:
        if self.machine is not None:
            self._check_options(self.state, self.machine)

    @work(thread=True, exclusive=True, group="checks")
    def _check_options(self, state: FormState, here: Machine) -> None:
        """Check the options in a thread, as this reads files and must not block the keyboard."""
        from ...engine import checks

        preset = state.preset
        found = tuple(checks.of_preset(preset, here))
        self.app.call_from_thread(self._checked, preset, found)

    def _checked(self, preset: Preset, found: tuple[Finding, ...]) -> None:
        if preset is self.state.preset and self.query(Findings):  # there is none on a screen that is being removed
            self._findings, self.checked = found, preset
            self.options.grey(self.no_gpu_reason)
            self._show_remarks()
            self._show_help()

    @property
    def no_gpu_reason(self) -> str:
        """Why no GPU trains with these options, or nothing if one does or may do so."""
        if self.machine is None:
            return ""
        from ...engine import checks

        if not checks.on_cpu(self.state.preset.options, self.machine):
            return ""
        return "device.visible is none" if self.machine.gpus else self.machine.no_gpu_reason

    @on(OptionRow.Changed)
    def _option_changed(self, event: OptionRow.Changed) -> None:
        before = set(self.state.errors)
        self.state.set(event.key, event.text)
        entry = event.key == "workload.entry"  # this option decides for every row whether the user's code applies
        for key in self.options.rows if entry else before ^ set(self.state.errors) | {event.key}:
            self.options.rows[key].show()
        self._show_all()
        if self._check_timer is not None:
            self._check_timer.stop()
        self._check_timer = self.set_timer(CHECK_SECONDS, self._check)
