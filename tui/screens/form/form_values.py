"""The values of the form: they are changed, put in, undone, and checked for this machine, which is read once.
Deferred imports: reading the machine and checking happen in threads, after the first paint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from textual import on, work
from textual.timer import Timer

from ...base.errors import clean
from ...form.form_state import Act, FormState, History, Moment, to_text
from ...widgets.findings import Findings
from ...widgets.option_row import OptionRow
from .view import FormView

if TYPE_CHECKING:
    from ....engine.checks import Finding
    from ....engine.job.machine_gpus import Machine
    from ....engine.presets import Preset

CHECK_SECONDS = 0.15


class CheckedForm(FormView):
    """The form that checks its options after each change, and shows the findings. `checked` is the preset of these
    findings, None before the first check."""

    def __init__(self, state: FormState, waits: bool = False) -> None:
        super().__init__(state, waits)
        self.checked: Preset | None = None  # the options of the findings
        self._check_timer: Timer | None = None
        self.history = History()

    def _built(self) -> None:
        super()._built()
        self.call_after_refresh(self._read_machine)
        self.call_after_refresh(self.side.read)

    def load(self, state: FormState) -> None:
        before = Moment.of(self.state)
        self._hold(state)
        self.history.record(before, state, f"opening {state.name}")

    def apply(self, state: FormState, values: Mapping[str, Any], what: str) -> None:
        """Show `state` with `values` changed as one change for undo; Start gets the focus, so that Enter starts it."""
        before = Moment.of(self.state)
        if all(state.texts.get(key) == to_text(value) for key, value in values.items()):
            self.app.notify(clean(what), title="The options have that already", markup=False)
        state.change(values)
        self._hold(state)
        self.history.record(before, state, what)
        self.offer_start(values, what)

    def _hold(self, state: FormState) -> None:
        """Replace the state of the form by `state`, show it, and check it if the form is built."""
        self.state = state
        self._findings, self._own_batch = (), None
        self.options.load(state)
        self.side.state = state
        if not self._waits:
            self.side.load(state)
            self._show_all()
            self._check()

    @work(thread=True, group="machine")
    def _read_machine(self) -> None:
        from ....engine.job import this_machine
        from ....engine.options import validation

        validation.model()  # so that the first change is checked without waiting
        here = this_machine.read()
        self.app.call_from_thread(self._machine_read, here)

    def _machine_read(self, here: Machine) -> None:
        self.machine = here
        self._check()

    def _check(self) -> None:
        self.side.read_file()
        if self.machine is not None:
            self._check_options(self.state, self.machine)

    @work(thread=True, exclusive=True, group="checks")
    def _check_options(self, state: FormState, here: Machine) -> None:
        # In a thread, as the check reads files.
        from ....engine import checks

        preset = state.preset
        findings, batch = tuple(checks.on_screen(preset, here)), checks.own_batch(preset.options)
        self.app.call_from_thread(self._checked, preset, findings, batch)

    def _checked(self, preset: Preset, findings: tuple[Finding, ...], own_batch: int | None) -> None:
        # A screen that is being removed is not displayed, and has lost its innermost widgets first.
        if preset is self.state.preset and self.display and self.query(Findings):
            self._findings, self.checked, self._own_batch = findings, preset, own_batch
            self.options.grey(self.no_gpu_reason)
            self._show_remarks()
            self._show_help()

    @property
    def no_gpu_reason(self) -> str:
        """The reason why a training with these options uses no GPU; empty if it may use one, or if not known yet."""
        if self.machine is None:
            return ""
        from ....engine import checks

        if not checks.on_cpu(self.state.preset.options, self.machine):
            return ""
        return "device.visible is none" if self.machine.gpus else self.machine.no_gpu_reason

    @on(OptionRow.Changed)
    def _option_changed(self, event: OptionRow.Changed) -> None:
        before, held = set(self.state.errors), Moment.of(self.state)
        self.state.set(event.key, event.text)
        self.history.record(held, self.state, event.key, event.edit)
        entry = event.key == "workload.entry"  # this option decides for every row whether the user's code applies
        for key in self.options.rows if entry else before ^ set(self.state.errors) | {event.key}:
            self.options.rows[key].show()
        self._changed()

    def put(self, texts: Mapping[str, str], what: str) -> None:
        """Put texts, by option key, into their fields as one change for undo. `what` names the change."""
        before = Moment.of(self.state)
        self.state.put(texts)
        self.history.record(before, self.state, what)
        for row in self.options.rows.values():
            row.show()
        self._changed()

    def _changed(self) -> None:
        self._show_all()
        if self._check_timer is not None:
            self._check_timer.stop()
        self._check_timer = self.set_timer(CHECK_SECONDS, self._check)

    # ---- undo and redo ----------------------------------------------------------------------------

    def action_undo(self) -> None:
        self._go_back_to(self.history.undo(self.state), "undone", "redo")

    def action_redo(self) -> None:
        self._go_back_to(self.history.redo(self.state), "done again", "undo")

    @work(exclusive=True, group="undo")
    async def action_undo_list(self) -> None:
        """Let the user choose one of the changes, the last first. It is undone, with all changes after it."""
        from ..undoing import choose

        acts = self.history.done[::-1]
        if not acts:
            self.app.notify("nothing to be undone")
            return
        number = await choose(self.app, [(act.what, 0.0) for act in acts])
        if number is None:
            return
        act = self.history.undo(self.state, number + 1)
        self._go_back_to(act, "undone", "redo")

    def _go_back_to(self, act: Act | None, done: str, back: Literal["undo", "redo"]) -> None:
        """Restore the content from before the change `act`, or say that there is none, and go to the first option that
        differs."""
        if act is None:
            self.app.notify(f"nothing to be {done}")
            return
        moment = act.before
        other, keys = moment.state is not self.state, moment.keys(self.state)
        moment.state.put(moment.texts, moment.description)
        self._hold(moment.state)
        if other:  # which is seen only in the title
            held = f"the form now holds {self.state.name}; {self.app.key(back)} takes that back"
            self.app.notify(
                clean(f"{done}: {act.what}; {held}"), title="Another preset", severity="warning", markup=False
            )
        elif len(keys) != 1:
            self.app.notify(clean(act.what), title=done.capitalize(), markup=False)
        if keys and not other:
            self.go_to(keys[0])
