"""The layout of the form: title, options, help, errors and warnings, and Start.
Deferred imports: checks are not needed for the first paint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from ....engine.finding import Finding, error, errors
from ...base.errors import clean
from ...base.keys import keys_of
from ...drawing.rows import with_short_paths
from ...form.form_state import Act, FormState, History, Moment, to_text
from ...widgets.findings import Findings
from ...widgets.key_footer import KeyFooter, KeyHint, clickable, hints_text
from ...widgets.option_row import OptionRow
from ...widgets.options_view import OptionsView, PartHeading, Stop
from ...widgets.start_bar import StartBar
from ..base import AppScreen, Header
from .side import TINY, WIDE, FormSide

if TYPE_CHECKING:
    from ....engine.job.machine_gpus import Machine
    from ....engine.presets import Preset


# For users without runs: the first steps by their keys or, on a low terminal, one line.
FIRST_STEPS = (
    ("start", "trains this preset; {live} shows it, and it continues if you quit"),
    ("open", "changes the option under the cursor; {search} finds one by a word"),
    ("file", "opens another preset; `gputui init` begins one for your own code"),
    ("tune", "finds the fastest settings of this preset on this machine"),
    ("doctor", "checks GPUs, driver and TensorFlow; {help} lists all keys, {back} closes this"),
)
PURPOSE = (
    ("start", "trains this preset"), ("live", "shows it"), ("search", "finds options"), ("file", "opens presets"),
    ("help", "helps"),
)  # fmt: skip
HIGH = 30  # from this height on: full remarks
NAMES_KEYS = 80  # columns from which on the header names the keys of the places, and the description is cut for them
ROWS_AROUND, HELP_ROWS = 3, 7  # rows around the options, and of the help below them
CHECK_SECONDS = 0.15  # between a change and its check
LOW = 20  # below this height the help leaves more rows to the options


class Offer(NamedTuple):
    """A change `what` of the form `state` that Enter starts: the texts of its options by key."""

    state: FormState
    texts: Mapping[str, str]
    what: str


class CheckedForm(AppScreen):
    """The form without its keys: checks its options after each change, and shows the findings. `checked` is the preset
    of these findings, None before the first check."""

    AUTO_FOCUS = None

    def __init__(self, state: FormState, waits: bool = False) -> None:
        """If `waits`, another screen covers the form, whose widgets are built only when it becomes visible."""
        super().__init__()
        self.state = state
        self.machine: Machine | None = None
        self.options, self.side = OptionsView(state), FormSide(state)
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
        yield Header(Static(id="title", markup=False), keys_from=NAMES_KEYS)
        yield Static(id="purpose", markup=False)
        yield Input(id="search", placeholder="search options: name, help or TensorFlow call", compact=True)
        with Container(id="body"):
            yield self.options
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
        """Focus a widget. To an option or the heading of a part, the list of options scrolls itself after the
        layout."""
        super().set_focus(widget, scroll_visible and not isinstance(widget, Stop), from_app_focus)

    def _built(self) -> None:
        if self._offer is not None:
            self._focus_start(self._offer)
        else:
            self.options.last.focus(scroll_visible=False)
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
        self.set_class(height < LOW, "-low")
        self.set_class(height < TINY, "-tiny")
        self.side.fit(self.app.size)
        self.options.room = height - (ROWS_AROUND if width >= WIDE else ROWS_AROUND + HELP_ROWS)

    def introduce(self) -> None:
        """Show the first steps, for users without runs, as there is room."""
        if self._waits:
            return
        self._introduces = True
        height, purpose = self.app.size.height, self.query_one("#purpose", Static)
        verbs = {verb: self.app.key(verb) for verb in ("start", "live", "search", "file", "help", "back")}
        width = max(len(self.app.key(verb)) for verb, _ in FIRST_STEPS) + 2
        lines = [
            clickable(f"{self.app.key(verb):{width}}{text.format(**verbs)}", keys_of(self.app, verb)[0])
            .stylize("bold $text-primary", 0, width)
            for verb, text in FIRST_STEPS
        ]  # fmt: skip
        brief = hints_text(KeyHint(keys_of(self.app, verb)[0], effect) for verb, effect in PURPOSE)
        purpose.auto_links = False  # else Textual gives the keys the colour of links
        purpose.update(Content("\n").join(lines) if height >= HIGH else brief)
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
        """The reason why the form cannot be started. It is empty if the form can be started."""
        return "".join(self.refusals[:1])

    @property
    def refusals(self) -> list[str]:
        """Return the reason why the form cannot be started, as several texts from the longest to the shortest. Empty if
        it can be started."""
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

    @on(PartHeading.Folded)
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
        if isinstance(self.options.last, OptionRow):  # perhaps a hit of a part that is folded
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
