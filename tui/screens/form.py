"""The form: every option in a row, its help, errors and warnings, and Start.

The form's values and rules are in form/state.py. Everything that needs the machine or the disk is read in threads,
after the first paint.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Footer, Input, Static

from ..base.errors import clean
from ..form.state import FormState
from ..widgets.findings import Findings, Remark
from ..widgets.option_help import MARKS, ROW_KEYS, help_text
from ..widgets.option_row import OptionRow
from ..widgets.options_view import OptionsView
from ..widgets.start_bar import StartBar

if TYPE_CHECKING:
    from ...engine.checks import Finding
    from ...engine.presets import Preset
    from ...engine.runs import Run
    from ...engine.telemetry.machine import Machine
    from ..base.services import Host

CHECK_SECONDS = 0.15
WIDE, HUGE, HIGH = 110, 180, 30  # from these widths on: help beside the options, two columns of options, full remarks



class FormScreen(Screen[None]):
    """One form, on one preset at a time."""

    AUTO_FOCUS = None
    app: Host
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
        Binding("f2,1", "app.form", "Form", show=False),  # a footer of 80 columns has no room for these keys
    ]

    def __init__(self, state: FormState, waits: bool = False) -> None:
        """`waits`: nothing is built until the screen becomes visible, as another one covers it."""
        super().__init__()
        self.state = state
        self.machine: Machine | None = None
        self.options = OptionsView(state)
        self._waits = waits
        self._findings: tuple[Finding, ...] = ()
        self.checked: Preset | None = None  # the options that the findings are about
        self._check_timer: Timer | None = None
        self._resumed = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash that is typed into a field does not start a search."""
        return not (action == "search" and isinstance(self.focused, Input))

    # ---- building -----------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        if self._waits:
            return
        self._fit()
        yield Static(id="title", markup=False)
        yield Input(id="search", placeholder="search options: name, help or TensorFlow call", compact=True)
        with Container(id="body"):
            yield self.options
            with Vertical(id="side"), VerticalScroll(id="help-scroll", can_focus=False):
                yield Static(id="help", markup=False)
        yield Findings()
        yield StartBar()
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        if not self._waits:
            self._built()

    async def on_screen_resume(self) -> None:
        if self._waits and self._resumed:
            self._waits = False
            await self.recompose()
            self._built()
        if self._resumed:
            self.app.warm_up()
        self._resumed = True  # the first time is when the application starts

    def _built(self) -> None:
        self.options.last_row.focus(scroll_visible=False)
        self._show_title()
        self._show_remarks()
        self._show_help()
        self.call_after_refresh(self._read_machine)

    def on_resize(self) -> None:
        if not self._waits:
            self._fit()
            self.call_after_refresh(self._show_help)

    def _fit(self) -> None:
        """Set classes by the terminal's size, right before the first layout, so that there is only one."""
        width, height = self.app.size
        self.set_class(width >= WIDE, "-wide")
        self.set_class(width >= HUGE, "-huge")
        self.set_class(height >= HIGH, "-high")

    def load(self, state: FormState) -> None:
        """Show another preset."""
        self.state = state
        self._findings = ()
        self.options.load(state)
        if not self._waits:
            self._show_all()
            self._check()

    # ---- this machine, errors and warnings -------------------------------------------------------

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
        """Why no GPU trains with these options, or nothing if one does."""
        if self.machine is None:
            return ""
        from ...engine import checks

        if checks.training_gpus(self.state.preset.options, self.machine):
            return ""
        return "device.visible is none" if self.machine.gpus else self.machine.no_gpu_reason

    @property
    def remarks(self) -> list[Remark]:
        wrong = [Remark("error", (key,), message) for key, message in self.state.errors.items()]
        return wrong + [Remark(f.level, f.options, f"{f.message}; {f.change}") for f in self._findings]

    @property
    def refusal(self) -> str:
        """Why Start is refused, or nothing."""
        errors = [remark for remark in self.remarks if remark.level == "error"]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return f"{errors[0]}{more}" if errors else ""

    # ---- showing ------------------------------------------------------------------------------

    def _show_all(self) -> None:
        self._show_title()
        self._show_remarks()
        self._show_help()

    def _show_title(self) -> None:
        state = self.state
        unsaved = len(state.unsaved())
        mark = f" + {unsaved} not saved" if unsaved else (" + not saved" if state.modified else "")
        whose = " shipped" if state.shipped else f" {state.record}" if state.record else ""
        self.query_one("#title", Static).update(
            Content.assemble(
                (clean(state.name), "bold $text-primary"),
                (mark, "bold $text-warning"),
                ("" if mark else whose, "$foreground-muted"),
                f"  {clean(state.description)}",
            )
        )

    def _show_remarks(self) -> None:
        self.query_one(Findings).show(self.remarks)
        self.query_one(StartBar).show(self.refusal, self.state.preset.options, self.machine)

    def _show_help(self) -> None:
        row = self.options.last_row
        laid_out = self.query_one("#help-scroll").size.width
        width = laid_out - 1 if laid_out else min(40, self.app.size.width - 3)
        text = help_text(row.key, self.state, row.locked, self.remarks, width)
        self.query_one("#help", Static).update(text)

    @on(OptionsView.Moved)
    def _moved(self) -> None:
        self._show_help()
        self.query_one("#help-scroll").scroll_home(animate=False)

    # ---- changing -----------------------------------------------------------------------------

    @on(OptionRow.Changed)
    def _option_changed(self, event: OptionRow.Changed) -> None:
        before = set(self.state.errors)
        self.state.set(event.key, event.text)
        entry = event.key == "workload.entry"  # this option decides for every row whether the user's code applies
        for key in self.options.rows if entry else before ^ set(self.state.errors) | {event.key}:
            self.options.rows[key].show()
        self._show_title()
        self._show_remarks()
        self._show_help()
        if self._check_timer is not None:
            self._check_timer.stop()
        self._check_timer = self.set_timer(CHECK_SECONDS, self._check)

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
        state.keep()
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
