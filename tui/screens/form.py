"""The form: every option in a row, its help, errors and warnings, and Start; here its keys and their actions.

Deferred imports: the first paint needs none of what a key asks for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import SystemCommand
from textual.binding import Binding
from textual.widgets import Input

from ..form.state import FormState
from ..widgets.findings import Findings
from ..widgets.option_help import MARKS, ROW_KEYS
from ..widgets.option_row import OptionRow
from ..widgets.start_bar import StartBar
from . import catalogue
from .form_checks import CheckedForm

if TYPE_CHECKING:
    from ...engine.checks import Finding
    from ...engine.runs import Run
    from ...engine.telemetry.machine import Machine


class FormScreen(CheckedForm):
    """One form, on one preset at a time."""

    HELP_SECTIONS = (("On an option", ROW_KEYS), ("Marks", MARKS))
    BINDINGS = [
        Binding("r", "start", "Start"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("o", "presets", "Open"),
        Binding("s,ctrl+s", "save", "Save"),
        Binding("question_mark,f1", "app.help", "Help"),
        Binding("y", "text('yaml')", "YAML"),
        Binding("c", "text('command')", "Command", show=False),
        Binding("p", "text('python')", "Python", show=False),
        Binding("a", "save_as", "Save as", show=False),
        Binding("e", "describe", "Describe", show=False),
        Binding("n", "next_remark", "Next error or remark", show=False),
        Binding("tab", "remarks", "List of remarks", show=False),
        Binding("right_square_bracket", "scroll_help(4)", "Scroll the help", show=False),
        Binding("left_square_bracket", "scroll_help(-4)", "Help above", show=False),
        Binding("escape", "to_options", "Back to the options", show=False),
        catalogue.left_out("form"),  # a footer of 80 columns has no room for this key
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash that is typed into a field does not start a search."""
        return not (action == "search" and isinstance(self.focused, Input))

    @on(OptionRow.Choose)
    @work
    async def _choose(self, event: OptionRow.Choose) -> None:
        from .choice import ChoiceScreen

        row = event.row
        text = await self.app.push_screen_wait(ChoiceScreen(row.info, self.state.texts[row.key], row.region))
        if text is not None:
            row.post_message(OptionRow.Changed(row.key, text))

    # ---- moving and searching -------------------------------------------------------------------

    @on(Findings.Jump)
    def _jumped(self, event: Findings.Jump) -> None:
        self.go_to(event.key)

    def go_to(self, key: str) -> None:
        """Focus an option, wherever it is."""
        if not self.options.rows[key].display:
            self._end_search()
        self.options.rows[key].focus()

    def action_to_options(self) -> None:
        if isinstance(self.focused, OptionRow) and self.query_one("#search", Input).value:
            self._end_search()
        self.options.focus_last()

    def action_remarks(self) -> None:
        """Switch between the options and the list of remarks."""
        findings = self.query_one(Findings)
        if self.remarks and not findings.has_focus:
            findings.focus()
        else:
            self.action_to_options()

    def action_next_remark(self) -> None:
        """Go to the next option with an error or remark, starting over after the last."""
        keys = list(dict.fromkeys(remark.keys[0] for remark in self.remarks))
        if keys:
            last = self.options.last_key
            self.go_to(keys[(keys.index(last) + 1 if last in keys else 0) % len(keys)])

    def action_scroll_help(self, lines: int) -> None:
        self.query_one("#help-scroll").scroll_relative(y=lines, animate=False)

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    @on(Input.Changed, "#search")
    def _searched(self, event: Input.Changed) -> None:
        self.options.narrow(event.value)

    @on(Input.Submitted, "#search")
    def _search_taken(self) -> None:
        self.options.action_edge(0)

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", "down") and self.focused is self.query_one("#search"):
            event.stop()
            if event.key == "escape":
                self._end_search()
            self.options.focus_last()

    def _end_search(self) -> None:
        field = self.query_one("#search", Input)
        with self.prevent(Input.Changed):
            field.value = ""
        self.options.narrow("")
        self.options.focus_last()
        field.display = False

    # ---- acting -------------------------------------------------------------------------------

    @on(StartBar.Pressed)
    def action_start(self) -> None:
        if self.refusal:
            self.app.notify(self.refusal, title="Not started", severity="error", markup=False)
            self.go_to(next(remark.keys[0] for remark in self.remarks))
            return
        self._start(self.state)

    @work(thread=True, exclusive=True, group="start")
    def _start(self, state: FormState) -> None:
        """Launch in a thread; shows why it cannot."""
        from ...engine.runs import RunError
        from .starting import ConflictError, start

        warm, self.app.warm = self.app.warm, None
        try:
            run, engine = start(state.preset, warm)
        except ConflictError as conflict:
            self.app.warm = warm
            self.app.call_from_thread(self.refused, conflict.here, conflict.findings)
        except (OSError, RunError) as fault:
            self.app.call_from_thread(self.app.complain, f"the run cannot be started: {fault}")
        else:
            self.app.call_from_thread(self.started, state, run, engine)

    def refused(self, here: Machine, found: tuple[Finding, ...]) -> None:
        """The last check before a launch has found an error."""
        self.machine, self._findings = here, found
        self._show_remarks()
        self.app.complain(self.refusal)

    def started(self, state: FormState, run: Run, engine: object) -> None:
        """A run was started with the values of the form, which are now saved in the run."""
        from ...engine.telemetry import job

        state.keep()
        if remark := job.when_detached(os.environ):
            self.app.notify(str(remark), title="Slurm", severity="warning", markup=False, timeout=20)
        self.app.engines.append(engine)
        self.app.open_run(run)

    def offer(self, run: Run) -> None:
        """Say that a run is running, and which key shows it."""
        self.app.notify(f"{run.id}\nF3 shows it", title="A run is running", markup=False, timeout=12)

    def commands(self) -> Iterator[SystemCommand]:
        """The form's entries in the command palette."""
        yield SystemCommand("Start", "Train with these options", self.action_start)
        yield SystemCommand("Open preset", "Shipped presets and your own", self.action_presets)
        yield SystemCommand("Save preset", "Overwrite its file, keeping comments", self.action_save)
        yield SystemCommand("Save preset as", "Save as a new preset", self.action_save_as)
        yield SystemCommand("Describe preset", "Change its description", self.action_describe)
        for what, name in (("yaml", "YAML"), ("command", "Command line"), ("python", "Python code")):
            yield SystemCommand(f"Show {name}", "For the present form, to be copied", partial(self.action_text, what))

    def action_presets(self) -> None:
        from .presets import PresetsScreen

        self.app.push_screen(PresetsScreen())

    @work(exclusive=True, group="saving")
    async def action_save(self) -> None:
        from . import saving

        if await saving.save(self.app, self.state):
            self._saved()

    @work(exclusive=True, group="saving")
    async def action_save_as(self) -> None:
        from . import saving

        if await saving.save_as(self.app, self.state):
            self._saved()

    def _saved(self) -> None:
        self.options.load(self.state)
        self._show_all()

    @work
    async def action_describe(self) -> None:
        from .questions import AskText

        text = await self.app.push_screen_wait(AskText("Description of the preset", self.state.description))
        if text is not None:
            self.state.describe(text)
            self._show_title()

    def action_text(self, what: str) -> None:
        from .text import TextScreen

        self.app.push_screen(TextScreen(self.state, what))
