"""The form with its keys and their actions; view.py has its layout, form_values.py its checks.
Deferred imports: the first paint needs nothing that only a key needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import SystemCommand
from textual.widgets import Input

from ....engine.finding import Finding
from ....engine.interpreter import interpreter
from ...base import keys
from ...base.errors import clean
from ...form.form_state import FormState, Moment
from ...widgets.findings import Findings
from ...widgets.option_help import MARKS, ROW_KEYS
from ...widgets.option_row import OptionRow, ValueInput
from ...widgets.start_bar import StartBar
from .. import catalogue
from .side import FILE_ROWS, WIDE
from .view import CheckedForm

if TYPE_CHECKING:
    from ....engine.job.machine_gpus import Machine
    from ....engine.runs import Run
    from ...form.search_limits import LimitTexts, SweepTexts


NO_REMARKS = "no errors or warnings"


class FormScreen(CheckedForm):
    """The form with its keys. It has one preset at a time."""

    HELP_SECTIONS = (("On an option", ROW_KEYS), ("Marks", MARKS))
    BINDINGS = [
        keys.bind("start", meaning="start the training"),
        keys.bind("tune", meaning="find the fastest settings of this preset on this machine"),
        keys.bind("queue", show=False, meaning="put the run in the queue; it starts when its devices are free"),
        keys.bind("search", meaning="search the options by name or by words of their help"),
        keys.bind("file", "presets", "Open"),
        keys.bind("save", meaning="save the preset; comments in the file stay"),
        keys.bind("help", "app.help"),
        keys.bind("copy", "text('yaml')", "YAML", meaning="show YAML, command line and Python, to be copied"),
        keys.bind(
            "compare", "changes", "Changes", show=False, meaning="list all changes against the file and the defaults"
        ),
        keys.bind("save_as", show=False),
        keys.bind("editor", show=False, meaning="open the preset's file in $EDITOR, and read it again afterwards"),
        keys.bind("undo", show=False),
        keys.bind("undo_list", show=False),
        keys.bind("redo", show=False),
        keys.bind("edit", "describe", "Describe", show=False, meaning="change the description of the preset"),
        keys.bind("next_match", "next_remark(1)", "Next remark", show=False, meaning="the next error or remark"),
        keys.bind(
            "previous_match", "next_remark(-1)", "Remark before", show=False, meaning="the error or remark before"
        ),
        keys.bind("messages", "remarks", "List of remarks", show=False, meaning="the list of errors and remarks"),
        keys.bind("part", "remarks", show=False),
        keys.bind("page_on", "scroll_help(4)", "Scroll the help", show=False, meaning="scroll the help"),
        keys.bind("page_back", "scroll_help(-4)", "Help above", show=False, meaning="scroll the help back"),
        keys.bind("back", "to_options", "Back to the options", show=False, meaning="back to the options"),
        keys.bind("file_view", show=False),
        keys.bind("leave", "app.quit", "Quit", meaning="quit; asks what is to be done with changes; runs go on"),
        catalogue.left_out("form"),  # a footer of 80 columns has no room for this key
    ]

    _limits: LimitTexts | None = None  # of the latest search
    _swept: SweepTexts | None = None  # of the latest sweep

    def can(self, action: str) -> bool | str:
        """Return False for the search while a slash is typed into a field, else True."""
        return not (action == "search" and isinstance(self.focused, Input))

    def offers(self, action: str) -> bool:
        """True if the palette lists the action: undo and redo only if there is a change."""
        acts = {"undo": self.history.done, "undo_list": self.history.done, "redo": self.history.undone}
        return action not in acts or bool(acts[action])

    def check_consume_key(self, _key: str, character: str | None) -> bool:
        """Return True if the key is a digit: here the form takes it as text, and it opens no other screen."""
        return character is not None and character.isdigit()

    @on(OptionRow.Choose)
    @work
    async def _choose(self, event: OptionRow.Choose) -> None:
        from ..dialogs import ChoiceScreen

        row = event.row
        present = self.state.texts[row.key]
        text = await self.app.push_screen_wait(ChoiceScreen(row.info, present, lambda: (row.region, row.value_column)))
        if text is not None:
            row.post_message(OptionRow.Changed(row.key, text))

    # ---- moving and searching -------------------------------------------------------------------

    @on(Findings.Jump)
    def _jumped(self, event: Findings.Jump) -> None:
        self.go_to(event.key)

    def action_to_options(self) -> None:
        self.close_introduction()
        if isinstance(self.focused, OptionRow) and self.query_one("#search", Input).value:
            self._end_search()
        self.options.focus_last()

    def action_remarks(self) -> None:
        """Move the focus from the options to the list of remarks, or back."""
        findings = self.query_one(Findings)
        if not self.remarks:
            self.app.notify(NO_REMARKS)
        elif not findings.has_focus:
            findings.focus()
        else:
            self.action_to_options()

    def action_next_remark(self, by: int) -> None:
        """Go to the next (1) or previous (-1) option with a remark, round the end."""
        named = list(dict.fromkeys(remark.options[0] for remark in self.remarks))
        if named:
            last = self.options.last_key
            begin = 0 if by > 0 else -1
            self.go_to(named[(named.index(last) + by) % len(named) if last in named else begin])
        else:
            self.app.notify(NO_REMARKS)

    def action_scroll_help(self, lines: int) -> None:
        self.query_one("#help-scroll").scroll_relative(y=lines, animate=False, immediate=True)

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

    # ---- acting -------------------------------------------------------------------------------

    def _accept_open_field(self) -> None:
        if isinstance(self.focused, ValueInput):
            self.focused.action_leave(True)

    @on(StartBar.Pressed)
    def action_start(self) -> None:
        self._start_or_queue(queued=False)

    def action_queue(self) -> None:
        self._start_or_queue(queued=True)

    def _start_or_queue(self, queued: bool) -> None:
        if self._is_refused():
            return
        if python := interpreter.slow():  # a start would wait for it, and every key until then
            self.app.notify(clean(f"{python} has not answered yet"), title="Not started", markup=False)
            return
        self._start(self.state, queued)

    @work(exclusive=True, group="start")
    async def _start(self, state: FormState, queued: bool) -> None:
        """Launch the run or, with `queued`, put it in the queue. If that is not possible, show the reason."""
        from ....engine.runs import RunError
        from ..starting import ConflictError, ask_and_launch, new_run, put_in_queue

        try:
            start = await asyncio.to_thread(new_run, self.app, state.preset)
            if queued:
                await put_in_queue(self.app, start)
                return
            made = await ask_and_launch(self.app, start)
        except ConflictError as conflict:
            self.refused(conflict.here, conflict.findings)
        except (OSError, RunError) as fault:
            self.app.complain(f"the run cannot be {'queued' if queued else 'started'}: {fault}")
        else:
            if made is not None:
                self.started(state, *made)

    @work(exclusive=True, group="tune")
    async def action_tune(self) -> None:
        """Search for the fastest settings, starting from the form's settings without errors."""
        from ...form.search_limits import LimitTexts
        from .. import limits

        if not self._is_refused():
            self._limits = self._limits or LimitTexts()
            self._limits.suit(await asyncio.to_thread(limits.fast_policies, self.state.preset, self.machine))
            self._limits = await limits.tune(self.app, self.state, self._limits)

    @work(exclusive=True, group="scaling")
    async def action_scaling(self) -> None:
        """Measure how the speed grows with the number of replicas."""
        from ..proof import actions

        if not self._is_refused():
            await actions.measure_scaling(self.app, self.state.preset, self.state.path)

    @work(exclusive=True, group="sweep")
    async def action_sweep(self) -> None:
        """Train the preset with many values of some options."""
        from .. import limits

        if not self._is_refused():
            self._swept = await limits.sweep(self.app, self.state, self._swept)

    def _is_refused(self) -> bool:
        self._accept_open_field()
        if self.refusal:
            self.app.notify(self.refusal, title="Not started", severity="error", markup=False)
            self.go_to(next(remark.options[0] for remark in self.remarks))
        return bool(self.refusal)

    def refused(self, here: Machine, findings: tuple[Finding, ...]) -> None:
        """Show the findings of the last check before a launch, of which one is an error, on the machine `here`."""
        self.machine, self._findings = here, findings
        self._show_remarks()
        self.app.complain(self.refusal)

    def started(self, state: FormState, run: Run, engine: object) -> None:
        """Open the live view of a started run. The form then has no unsaved changes: the run's folder has its
        values."""
        from ....engine.job import slurm

        state.keep()
        self.close_introduction()
        if finding := slurm.when_detached(os.environ):
            self.app.notify(str(finding), title="Slurm", severity="warning", markup=False)
        self.app.engines.append(engine)
        self.app.open_run(run)

    def offer(self, title: str) -> None:
        message = f"{clean(title)}; {self.app.key('live')} shows it"
        self.app.notify(message, title="A run is running", markup=False)

    def commands(self) -> Iterator[SystemCommand]:
        """Yield the form's commands that have no key, for the command palette."""
        for what, name in (("yaml", "YAML"), ("command", "Command line"), ("python", "Python code")):
            yield SystemCommand(f"Show {name}", "for the present form, to be copied", partial(self.action_text, what))
        measures = "how the speed of this preset grows with 1, 2, 4 ... replicas"
        yield SystemCommand("Measure scaling", measures, self.action_scaling)
        trains = "train this preset with many values of some options, and prove which learns best"
        yield SystemCommand("Sweep: find the settings that learn best", trains, self.action_sweep)

    def action_changes(self) -> None:
        from .changes import ChangesScreen

        self.app.push_screen(ChangesScreen(self))

    def action_presets(self) -> None:
        from ..presets import PresetsScreen

        self.app.push_screen(PresetsScreen())

    @work(exclusive=True, group="saving")
    async def action_save(self) -> None:
        from .. import saving

        self._accept_open_field()
        if await saving.save(self.app, self.state):
            self._saved()

    @work(exclusive=True, group="saving")
    async def action_save_as(self) -> None:
        from .. import saving

        if await saving.save_as(self.app, self.state):
            self._saved()

    @work(exclusive=True, group="saving")
    async def action_editor(self) -> None:
        from .. import saving

        await saving.edit(self.app)
        self._saved()

    def _saved(self) -> None:
        self.options.load(self.state)
        self.side.read_file()
        self._show_all()

    @work
    async def action_describe(self) -> None:
        from ..dialogs import AskText

        text = await self.app.push_screen_wait(AskText("Description of the preset", self.state.description))
        if text is not None:
            before = Moment.of(self.state)
            self.state.describe(text)
            self.history.record(before, self.state, "the description")
            self._show_title()
            self.side.read_file()

    def action_file_view(self) -> None:
        """Show the preset's file next to the options, or hide it."""
        if self.app.size.width < WIDE or self.app.size.height < FILE_ROWS:
            text_key = self.app.key("copy")
            self.app.notify(
                f"the file has room from {WIDE} columns and {FILE_ROWS} rows on; {text_key} shows the preset as YAML"
            )
            return
        self.app.settings.change("form.file_view", not self.app.settings.form.file_view)
        self.side.fit(self.app.size)
        self.call_after_refresh(self._fit_side)

    def action_text(self, what: str) -> None:
        from .changes import TextScreen

        self.app.push_screen(TextScreen(self.state, what))
