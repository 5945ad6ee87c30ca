"""The form: every option in a row, its help, errors and warnings, and Start, with its keys and their actions.
Deferred imports: the first paint needs neither checks nor anything that only a key needs."""

from __future__ import annotations

import asyncio
import os
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from textual import events, on, work
from textual.app import ComposeResult, SystemCommand
from textual.containers import Container, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from ....engine.finding import Finding, error, errors
from ....engine.interpreter import interpreter
from ...base import keys
from ...base.errors import clean
from ...base.keys import keys_of
from ...drawing.rows import with_short_paths
from ...form.form_state import Act, FormState, History, Moment, to_text
from ...widgets.key_footer import KeyFooter, clickable, hints_text
from ...widgets.option_help import MARKS, ROW_KEYS
from ...widgets.option_row import OptionRow, ValueInput
from ...widgets.options_view import GroupHeading, OptionsView, Stop
from ...widgets.start_bar import Findings, StartBar
from .. import catalogue
from ..base import AppScreen, Header
from .side import FILE_ROWS, TINY, WIDE, FormSide

if TYPE_CHECKING:
    from ....engine.job.machine_gpus import Machine
    from ....engine.presets import Preset
    from ...form.search_limits import LimitTexts, SweepTexts

# For users without runs: the first steps by their keys or, on a low terminal, one line.
FIRST_STEPS = (
    ("start", "trains this preset; {live} shows it, and it continues if you quit"),
    ("open", "changes the option under the cursor; {search} finds one by a word"),
    ("file", "opens another preset; `gputui init` begins one for your own code"),
    ("tune", "makes this preset faster, and proves the gain; {learn} makes it learn better"),
    ("doctor", "checks GPUs, driver and TensorFlow; {help} lists all keys, {back} closes this"),
)
PURPOSE = (
    ("start", "trains this preset"), ("live", "shows it"), ("search", "finds options"), ("file", "opens presets"),
    ("help", "helps"),
)  # fmt: skip
HIGH = 30  # from this height on: full remarks
CHECK_SECONDS = 0.15  # between a change and its check
LOW = 20  # below this height the help leaves more rows to the options


class Offer(NamedTuple):
    """A change `what` of the form `state` that Enter starts: the texts of its options by key."""

    state: FormState
    texts: Mapping[str, str]
    what: str


NO_REMARKS = "no errors or warnings"


class FormScreen(AppScreen):
    """The form with its keys. It has one preset at a time, and checks its options after each change. `checked` is the
    preset of the findings that are shown, None before the first check."""

    AUTO_FOCUS = None
    HELP_SECTIONS = (("On an option", ROW_KEYS), ("Marks", MARKS))
    BINDINGS = [
        keys.bind("start", meaning="start the training"),
        keys.bind("tune"),
        keys.bind("learn", "sweep", show=False),
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
        keys.bind("suit", show=False),
        keys.bind("editor", show=False, meaning="open the preset's file in $EDITOR, and read it again afterwards"),
        keys.bind("undo", show=False),
        keys.bind("undo_list", show=False),
        keys.bind("redo", show=False),
        keys.bind("edit", "describe", "Describe", show=False, meaning="change the description of the preset"),
        keys.bind("next_match", "next_remark(1)", "Next remark", show=False, meaning="the next error or remark"),
        keys.bind(
            "previous_match", "next_remark(-1)", "Remark before", show=False, meaning="the error or remark before"
        ),
        keys.bind("part", "remarks", show=False),
        keys.bind("page_on", "scroll_help(4)", "Scroll the help", show=False, meaning="scroll the help"),
        keys.bind("page_back", "scroll_help(-4)", "Help above", show=False, meaning="scroll the help back"),
        keys.bind("back", "to_options", "Back to the options", show=False, meaning="leave the search or the remarks"),
        keys.bind("file_view", show=False),
        keys.bind("leave", "app.quit", "Quit", meaning="quit; asks what is to be done with changes; runs go on"),
    ]

    _limits: LimitTexts | None = None  # of the latest search
    _swept: SweepTexts | None = None  # of the latest sweep

    def __init__(self, state: FormState, waits: bool = False) -> None:
        """If `waits`, another screen covers the form, whose widgets are built only when it becomes visible."""
        super().__init__()
        self.state = state
        self.machine: Machine | None = None
        self.last_runs = Static(id="last-runs", markup=False)
        self.options, self.side = OptionsView(state), FormSide(state, self.last_runs)
        self._waits, self._builds = waits, False
        self._findings: tuple[Finding, ...] = ()
        self._own_batch: int | None = None  # of the user's code, if it does not follow input.batch_size
        self._resumed = False
        self._introduces = False  # shows the first steps
        self.checked: Preset | None = None
        self._check_timer: Timer | None = None
        self.history = History()
        self._offer: Offer | None = None  # a change that Enter starts, until the form no longer has it

    # ---- building -----------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        if self._waits and not self._builds:
            return
        self._fit()
        yield Header(Static(id="title", markup=False))
        yield Static(id="purpose", markup=False)
        yield Input(id="search", placeholder="search options: name, help or TensorFlow call", compact=True)
        with Container(id="body"):
            with Vertical(id="left"):
                yield self.options
                yield self.last_runs
            yield self.side
        yield Findings()
        yield StartBar()
        yield KeyFooter()

    def on_mount(self) -> None:
        if not self._waits:
            self._built()

    async def on_screen_resume(self) -> None:
        if self._waits and self._resumed:
            self._builds = True
            await self.recompose()
            self._waits = False  # only now are there widgets to show another preset
            self._built()
        if self._resumed:
            self.app.warm_up()
            self._fit()  # the settings may show or hide the preset's file
            self.call_after_refresh(self._fit_side)
            self.side.read_runs()
        self._resumed = True  # the first time is when the application starts

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """Focus a widget. To an option or a heading, the list of options scrolls itself after the layout."""
        super().set_focus(widget, scroll_visible and not isinstance(widget, Stop), from_app_focus)

    def _built(self) -> None:
        if self._offer is not None:
            self._focus_start(self._offer)
        else:
            self.options.current.focus(scroll_visible=False)
        self._show_all()
        self.call_after_refresh(self._read_machine)
        self.call_after_refresh(self.side.read)

    def on_resize(self) -> None:
        if not self._waits:
            self._fit()
            if self._introduces:
                self.introduce()
            self.call_after_refresh(self._fit_side)

    def _fit_side(self) -> None:
        self._show_help()
        self.side.read()

    def _fit(self) -> None:
        # Before the first layout, so that one layout suffices.
        width, height = self.app.size
        self.set_class(width >= WIDE, "-wide")
        self.set_class(height >= HIGH, "-high")
        self.last_runs.display = height >= HIGH
        self.set_class(height < LOW, "-low")
        self.set_class(height < TINY, "-tiny")
        self.side.fit(self.app.size)

    def introduce(self) -> None:
        """Show the first steps, for users without runs, as there is room."""
        if self._waits:
            return
        self._introduces = True
        height, purpose = self.app.size.height, self.query_one("#purpose", Static)
        verbs = {verb: self.app.key(verb) for verb in ("start", "learn", "live", "search", "file", "help", "back")}
        width = max(len(self.app.key(verb)) for verb, _ in FIRST_STEPS) + 2
        lines = [
            clickable(f"{self.app.key(verb):{width}}{text.format(**verbs)}", keys_of(self.app, verb)[0])
            .stylize("bold $text-primary", 0, width)
            for verb, text in FIRST_STEPS
        ]  # fmt: skip
        purpose.auto_links = False  # else Textual gives the keys the colour of links
        purpose.update(Content("\n").join(lines) if height >= HIGH else hints_text(self.app, PURPOSE))
        purpose.styles.height = len(lines) if height >= HIGH else 1
        purpose.display = height >= LOW

    def close_introduction(self) -> None:
        self._introduces = False
        self.query_one("#purpose").display = False

    # ---- errors and warnings ---------------------------------------------------------------------

    @property
    def remarks(self) -> list[Finding]:
        return [*(error(key, message) for key, message in self.state.errors.items()), *self._findings]

    @property
    def refusal(self) -> str:
        return "".join(self.refusals[:1])

    @property
    def refusals(self) -> list[str]:
        """Return why the form cannot be started, from the longest text to the shortest; empty if it can."""
        if not (wrong := errors(self.remarks)):
            return []
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        texts = (wrong[0].text, wrong[0].what, with_short_paths(wrong[0].what, 0))
        return [f"{', '.join(wrong[0].options)}: {text}{more}" for text in texts]

    # ---- showing ------------------------------------------------------------------------------

    def _show_all(self) -> None:
        self._show_title()
        self.options.show_counts()
        self._show_remarks()
        self._show_help()

    def _show_title(self) -> None:
        state = self.state
        unsaved = len(state.unsaved())
        mark = f" + {unsaved} not saved" if unsaved else (" + not saved" if state.modified else "")
        self.query_one("#title", Static).update(
            Content.assemble(
                (clean(state.source), "bold $text-primary"),
                (mark or " shipped" * state.shipped, "bold $text-warning" if mark else "$foreground-muted"),
                f"  {clean(state.description)}",
            )
        )

    def _show_remarks(self) -> None:
        self.query_one(Findings).show(self.remarks)
        self.query_one(StartBar).show(self.refusals, self.state.preset.options, self.machine, self._own_batch)
        self._end_offer()

    def _show_help(self) -> None:
        self.side.show(self.options.current, self.remarks)

    @on(GroupHeading.Folded)
    @on(OptionsView.Moved)
    def _moved(self) -> None:
        self._show_help()
        self.query_one("#help-scroll").scroll_home(animate=False, immediate=True)

    # ---- moving -------------------------------------------------------------------------------

    def go_to(self, key: str) -> None:
        if not self.options.rows[key].display:
            self._end_search()
            self.options.reveal(key)
        self.options.rows[key].focus()

    def _end_search(self) -> None:
        self._clear_search()
        if isinstance(self.options.last, OptionRow):  # perhaps a hit of a group that is folded
            self.options.reveal(self.options.last_key)
        self.options.focus_last()

    def _clear_search(self) -> None:
        field = self.query_one("#search", Input)
        with self.prevent(Input.Changed):
            field.value = ""
        self.options.narrow("")
        field.display = False

    def _focus_start(self, offer: Offer) -> None:
        if key := next(iter(offer.texts), ""):
            self._clear_search()
            self.options.reveal(key)
            self.options.point_at(key)
        self.query_one(StartBar).take_focus(offer.what)

    def _end_offer(self) -> None:
        offer, self._offer = self._offer, None
        if offer is not None and offer.state is self.state and offer.texts.items() <= self.state.texts.items():
            self._offer = offer
        elif offer is not None and self.query_one(StartBar).has_focus_within:
            self.options.focus_last()

    # ---- checking --------------------------------------------------------------------------------

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
        texts = {key: to_text(value) for key, value in values.items() if key in self.options.rows}
        self._offer = Offer(state, texts, what)
        if not self._waits:
            self._focus_start(self._offer)

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
            check = partial(self._check_options, self.state, self.machine)
            self.run_worker(check, thread=True, exclusive=True, group="checks")

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
        entry = event.key in ("workload.entry", "workload.command")  # which decide what applies of every row
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
        from ..dialogs import choose

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
        """Restore the content before `act`, or say that there is none, and go to the first option that differs."""
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

    def can(self, action: str) -> bool | str:
        """A command cannot be measured, and a slash that is typed into a field searches nothing."""
        if action in ("tune", "sweep", "suit") and self.state.preset.options.workload.command:
            return "a command is not measured"
        return not (action == "search" and isinstance(self.focused, Input))

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
        self._start(queued=False)

    def action_queue(self) -> None:
        self._start(queued=True)

    @work(exclusive=True, group="start")
    async def _start(self, queued: bool) -> None:
        """Launch the run or, with `queued`, put it in the queue. If that is not possible, show the reason."""
        from ....engine.job import slurm
        from ....engine.runs import RunError
        from ..starting import ConflictError, ask_and_launch, new_run, put_in_queue

        state = self.state
        if await self._is_refused():
            return
        if python := interpreter.slow():  # a start would wait for it, and every key until then
            self.app.notify(clean(f"{python} has not answered yet"), title="Not started", markup=False)
            return
        try:
            start = await asyncio.to_thread(new_run, self.app, state.preset)
            if queued:
                await put_in_queue(self.app, start)
                return
            made = await ask_and_launch(self.app, start)
        except ConflictError as conflict:
            self.machine, self._findings = conflict.here, conflict.findings
            self._show_remarks()
            self.app.complain(self.refusal)
        except (OSError, RunError) as fault:
            self.app.complain(f"the run cannot be {'queued' if queued else 'started'}: {fault}")
        else:
            if made is None:
                return
            state.keep()  # the run's folder has its values
            self.close_introduction()
            if finding := slurm.when_detached(os.environ):
                self.app.notify(str(finding), title="Slurm", severity="warning", markup=False)
            self.app.open_run(made)

    @work(exclusive=True, group="tune")
    async def action_tune(self) -> None:
        """Ask how to make the preset faster: by the remedies of its diagnosis, a search, or more GPUs."""
        from ...form.search_limits import LimitTexts
        from .. import limits, starting

        if await self._is_refused():
            return
        policies = await asyncio.to_thread(limits.fast_policies, self.state.preset, self.machine)
        match await starting.how_faster(self.app, self.state.name):  # each answer opens its dialog at once
            case starting.DIAGNOSE:
                await starting.measure(self.app, partial(starting.loop_of, self.state.preset))
            case starting.SEARCH:
                self._limits = self._limits or LimitTexts()
                self._limits.suit(policies)
                self._limits = await limits.tune(self.app, self.state, self._limits)
            case starting.MORE_GPUS:
                await starting.measure_scaling(self.app, self.state.preset)

    @work(exclusive=True, group="scaling")
    async def action_scaling(self) -> None:
        from .. import starting

        if not await self._is_refused():
            await starting.measure_scaling(self.app, self.state.preset)

    @work(exclusive=True, group="sweep")
    async def action_sweep(self) -> None:
        from .. import limits

        if not await self._is_refused():
            self._swept = await limits.sweep(self.app, self.state, self._swept)

    async def _is_refused(self) -> bool:
        self._accept_open_field()
        if self.refusal and self.machine is not None:  # perhaps the user's code has been mended since
            await asyncio.to_thread(self._check_options, self.state, self.machine)
        if self.refusal:
            self.app.notify(self.refusal, title="Not started", severity="error", markup=False)
            self.go_to(next(remark.options[0] for remark in self.remarks))
        return bool(self.refusal)

    def offer(self, title: str) -> None:
        message = f"{clean(title)}; {self.app.key('live')} shows it"
        self.app.notify(message, title="A run is running", markup=False)

    def commands(self) -> Iterator[SystemCommand]:
        """Yield the form's commands that have no key, for the command palette."""
        for what, name in (("yaml", "YAML"), ("command", "Command line"), ("python", "Python code")):
            yield SystemCommand(f"Show {name}", "for the present form, to be copied", partial(self.action_text, what))
        measures = "how the speed of this preset grows with 1, 2, 4 ... replicas"
        yield SystemCommand("Measure scaling", measures, self.action_scaling)

    @work(exclusive=True, group="suit")
    async def action_suit(self) -> None:
        """Offer precision, TF32 and XLA as they suit the GPUs of this training, as one change with its reasons."""
        from ....engine import checks
        from ....engine.job import machine_gpus
        from ..dialogs import Ask

        options, machine = self.state.preset.options, self.machine
        suited = checks.for_gpus(options, machine) if machine is not None else []
        if machine is None or not suited:
            reason = "this machine is being examined" if machine is None else self.no_gpu_reason
            self.app.notify(reason or "its compute capability is not known", title="For this GPU", markup=False)
            return
        lines, changes = [], {}
        for key, value, why in suited:
            now, then = self.state.texts[key], to_text(value)
            lines.append(f"{key}  {now} -> {then}" if now != then else f"{key}  stays {now}")
            lines += textwrap.wrap(why, 56, initial_indent="  ", subsequent_indent="  ")
            if now != then:
                changes[key] = then
        name = machine_gpus.training_gpus(options, machine)[0].name or "this GPU"
        answers = ("Take them", "Cancel") if changes else ("Close",)
        answer = await self.app.push_screen_wait(Ask("\n".join([f"For {name}", "", *lines]), answers))
        if changes and answer == answers[0]:
            self.put(changes, f"what suits {name}")

    def action_changes(self) -> None:
        self.app.push_screen(catalogue.screen("changes", self))

    def action_presets(self) -> None:
        self.app.push_screen(catalogue.screen("presets"))

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
        self.app.push_screen(catalogue.screen("text", self.state, what))
