"""What the dialogs share that ask for the limits of a search or a sweep and start it: their look, moving, starting.
Deferred imports: what a start needs is imported by the dialog that starts it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Label
from textual.worker import get_current_worker

from ...engine.checks.option_rules import expected_seconds
from ...engine.job import this_machine
from ...engine.job.machine_gpus import training_gpus
from ...engine.presets import PresetError
from ...engine.proof import request
from ...engine.runs import RunError
from ...engine.sweep.swept_values import OVER
from ...engine.telemetry import chips
from ...engine.trials import SAMPLERS, STAGES, sweep_record
from ...engine.trials.record import Limits
from ...engine.trials.search_results import WORDS
from ..base import keys
from ..base.errors import clean
from ..form.search_limits import POLICIES, RATES, LimitTexts, SweepTexts, WrongLimit
from ..upstream.thread_imports import in_background
from ..widgets.key_footer import KeyHints
from ..widgets.limit_rows import LimitInput, LimitRow, Step, Words
from ..widgets.option_row import NOT_GIVEN
from . import starting
from .dialogs import SEEN_AFTER_SECONDS

if TYPE_CHECKING:
    from ...engine.job.machine_gpus import Machine
    from ...engine.presets import Preset
    from ...engine.proof.request import Request
    from ...engine.trials.record import Limits
    from ...engine.tune.time_plan import TimePlan
    from ..base.base_app import BaseApp
    from ..form.form_state import FormState


SAID = (
    ("open", "starts it"), ("mark", "switches"), ("previous_choice", ""), ("next_choice", "choose"), ("back", "leaves"),
)  # fmt: skip
CHECKING = "checking ..."


class LimitDialog(ModalScreen[tuple[Any, Any] | None]):
    """Asks for limits and starts a measurement. The result is the measurement and its process, or None if none was
    started. Reasons why it cannot start are shown in the dialog. `waits` is True if it was put in the queue instead.
    `subject` names it in messages."""

    DEFAULT_CSS = """
    LimitDialog {
        align: center middle;
        background: $background 60%;
        #box { width: 78; max-width: 98%; height: auto; max-height: 96%; border: round $border; background: $panel;
               padding: 0 1; scrollbar-size-vertical: 1; }
        #box > Label { width: 100%; }
        #complaint { color: $text-error; display: none; }
        #said { dock: bottom; background: $panel; }
        #buys { color: $foreground-muted; }
    }
    """
    seen_after_seconds = SEEN_AFTER_SECONDS  # an earlier key starts nothing
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "start", "Start", meaning="start it"),  # and no letter: text is typed here
        *keys.back("dismiss(None)"),
    ]

    def __init__(self, subject: str, title: str) -> None:
        super().__init__()
        self.subject, self._title = subject, title
        self._starts = False  # it is being started: nothing more is, and it is not given up
        self.waits = False  # it begins later, without the dialog

    @property
    def host(self) -> BaseApp:
        return cast("BaseApp", self.app)

    def requested(self) -> Callable[[], Request]:
        """Take the fields, and return the request to make in a thread. Raises WrongLimit; later the request's
        errors."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box", can_focus=False):
            yield Label(self._title, markup=False)
            yield from self.rows()
            yield Label(id="complaint", markup=False)
            yield KeyHints(SAID, id="said")

    def rows(self) -> Iterator[Widget]:
        """Yield the rows with the fields, and the label `#buys`."""
        raise NotImplementedError

    @on(Step)
    def _step(self, event: Step) -> None:
        parts = list(self.query("LimitInput, Words").results(Widget))
        at = parts.index(self.focused) if self.focused in parts else 0
        parts[(at + event.by) % len(parts)].focus()

    @on(Input.Submitted)
    def action_start(self) -> None:
        """Start with the limits in the fields, or show the first invalid one."""
        if self._starts:
            return
        try:
            make = self.requested()
        except WrongLimit as wrong:
            self.complain(str(wrong))
            self.query_one(f"#{wrong.name}").focus()
        else:
            self._begin(make)

    async def action_dismiss(self, result: Any = None) -> None:
        if not self._starts:
            await super().action_dismiss(result)

    @work(exclusive=True, group="start")
    async def _begin(self, make: Callable[[], Request]) -> None:
        self.complain(CHECKING)
        try:
            request = await asyncio.to_thread(make)
            start = starting.measurement(self.host, self.subject, lambda: request)
            choice = await starting.choice_if_busy(self.host, start)
            if choice in (starting.WAIT, starting.CANCEL):
                self.query_one("#complaint").display = False
                self.waits = choice == starting.WAIT
                if self.waits:
                    self.dismiss(None)
                return
            self._starts = True
            made = await asyncio.to_thread(start.launch)
        except (PresetError, RunError, OSError, ValueError) as reason:
            self._starts = False
            self.complain(str(reason))
        else:
            self.dismiss(made)

    def complain(self, reason: str) -> None:
        label = self.query_one("#complaint", Label)
        label.display = True
        label.update(clean(reason))
        label.scroll_visible(animate=False)


def field(name: str, text: str, placeholder: str = NOT_GIVEN, classes: str = "") -> LimitInput:
    return LimitInput(text, id=name, compact=True, placeholder=placeholder, classes=classes)


# The fields of a search, with their labels and remarks.
FIELDS = {
    "minutes": ("minutes", "for the whole search"),
    "largest_batch": ("largest batch", "global; empty: a tenth of the samples"),
    "memory_gb": ("memory", "GB at most; empty: what there is"),
    "leave": ("leave alone", "options that keep their values: cache, xla"),
    "warmup_steps": ("warm-up", "steps, with linear or sqrt"),
}


class TuneDialog(LimitDialog):
    """Asks for the limits of a search and starts it."""

    def __init__(self, state: FormState, texts: LimitTexts) -> None:
        super().__init__(f"the search from {state.name}", f"Find the fastest settings of {clean(state.name)}")
        self.state, self.texts = state, texts
        self._plan: TimePlan | None = None  # by what trials take here, once that is known

    def rows(self) -> Iterator[Widget]:
        texts = self.texts
        typed = {
            name: LimitRow(label, field(name, getattr(texts, name)), about) for name, (label, about) in FIELDS.items()
        }
        yield typed["minutes"]
        yield Label(id="buys", markup=False)
        yield LimitRow("search", Words("only", [(stage, WORDS[stage]) for stage in STAGES], texts.only))
        yield LimitRow("precisions", Words("precisions", [(policy, policy) for policy in POLICIES], texts.precisions))
        yield from (typed[name] for name in ("largest_batch", "memory_gb", "leave"))
        rates = Words("learning_rate", [(rate, rate) for rate in RATES], {texts.learning_rate}, single=True)
        yield LimitRow("learning rate", rates)
        yield typed["warmup_steps"]
        allow = [("allow", "choose the fastest all the same")]
        yield LimitRow("worse loss", Words("allow_worse_loss", allow, {"allow"} if texts.allow_worse_loss else set()))

    # ---- what the time buys -----------------------------------------------------------------------

    def on_mount(self) -> None:
        in_background(self, partial(time_plan, self.state.preset.name), self._show_what_it_buys)

    @on(Input.Changed, "#minutes")
    @on(Words.Switched, "#only")
    def _show_what_it_buys(self, plan: TimePlan | Message) -> None:
        self._plan = self._plan if isinstance(plan, Message) else plan
        minutes, only = self.query_one("#minutes", Input).value, self.query_one("#only", Words).chosen
        try:
            limits = LimitTexts(minutes=minutes, only=set(only)).limits()
        except WrongLimit:
            limits = None
        text = "" if limits is None or self._plan is None else self._plan.with_limits(limits).in_words()
        self.query_one("#buys", Label).update(text)

    # ---- starting ---------------------------------------------------------------------------------

    def requested(self) -> Callable[[], Request]:
        for name in FIELDS:
            setattr(self.texts, name, self.query_one(f"#{name}", Input).value)
        for name in ("only", "precisions"):
            setattr(self.texts, name, set(self.query_one(f"#{name}", Words).chosen))
        (self.texts.learning_rate,) = self.query_one("#learning_rate", Words).chosen
        self.texts.allow_worse_loss = bool(self.query_one("#allow_worse_loss", Words).chosen)
        limits = self.texts.limits()

        def make() -> Request:
            from ...engine.tune import tune_request

            asked = tune_request.of_preset(self.state.preset, limits)
            request.refuse(asked, this_machine.read())
            return asked

        return make


async def tune(app: BaseApp, state: FormState, texts: LimitTexts) -> LimitTexts:
    """Ask for limits, start a search and open it. Return the limits of the next dialog: `texts` if it was left."""
    dialog = TuneDialog(state, deepcopy(texts))
    return dialog.texts if await _has_started(app, dialog) else texts


async def _has_started(app: BaseApp, dialog: LimitDialog) -> bool:
    """Open the dialog, then the measurement that it has started. True also for one that was put in the queue."""
    made = await app.push_screen_wait(dialog)
    if made is not None:
        starting.open_measurement(app, *made)
    return made is not None or dialog.waits


# ---- the request ---------------------------------------------------------------------------------


def fast_policies(preset: Preset, here: Machine | None) -> list[str]:
    """Return the mixed precisions that are fast on the training's devices; without `here` the machine is read."""
    gpus = training_gpus(preset.options, here or this_machine.read())
    slowest = min((gpu.compute_capability or (0, 0) for gpu in gpus), default=None)
    return chips.fast_policies(slowest, chips.cpu_multiplies_bfloat16())


def time_plan(preset_name: str) -> TimePlan:
    """Return how a search's minutes are divided on this machine, by earlier measurements and runs, read here."""
    from ...engine.tune import tune_request

    return tune_request.plan_of(Limits(), preset_name)


PAUSE_SECONDS = 0.2  # after a key, before what is typed is read
SAMPLER = "sampler"
EXAMPLES = ("learning_rate=1e-3,3e-3", "another option: weight_decay=0..0.1")
# The fields by the entry of the block `sweep:` that each stands for, with their labels and remarks.
ROWS = {
    "metric": ("metric", "a figure of an epoch, such as val_loss"),
    "seeds": ("seeds", "of each setting"),
    "minutes": ("minutes", "for everything, also the proof"),
    "trials": ("trials", "settings that random or tpe draws"),
    "halving": ("halving", "epoch from which bad trials end early"),
    "finalists": ("finalists", "the best one and its rivals"),
    "proof_seeds": ("proof seeds", "fresh seeds for the proof; 0: no proof"),
    "parallel": ("parallel", "trials at once; empty: one for each GPU"),
}
FIRST_ROWS = 3  # before the sampler


class SweepDialog(LimitDialog):
    """Asks what to sweep and starts the sweep."""

    def __init__(self, state: FormState, texts: SweepTexts) -> None:
        title = f"Find the settings of {clean(state.name)} that learn best, and prove it"
        super().__init__(f"the sweep of {state.name}", title)
        self.state, self.texts = state, texts

    def rows(self) -> Iterator[Widget]:
        texts = self.texts
        for place, text in enumerate(texts.over):
            label, example = ("and", EXAMPLES[1]) if place else ("sweep", EXAMPLES[0])
            yield LimitRow(label, field(f"{OVER}{place}", text, example, classes="wide"))
        yield Label(id="buys", markup=False)
        for at, (key, (label, about)) in enumerate(ROWS.items()):
            if at == FIRST_ROWS:
                words = [(sampler, sampler) for sampler in SAMPLERS]
                yield LimitRow(SAMPLER, Words(SAMPLER, words, {texts.others[SAMPLER]}, single=True))
            yield LimitRow(label, field(key, texts.others[key]), about)

    def requested(self) -> Callable[[], Request]:
        self._take()
        given = self.texts.parameters()

        def make() -> Request:
            from ...engine.queue import adding
            from ...engine.sweep import sweep_request

            asked = sweep_request.of_preset(self.state.preset, **given)
            request.refuse(asked, adding.machine())
            return asked

        return make

    def _take(self) -> None:
        self.texts.over = [self.query_one(f"#{OVER}{place}", Input).value for place in range(len(self.texts.over))]
        self.texts.others |= {key: self.query_one(f"#{key}", Input).value for key in ROWS}
        (self.texts.others[SAMPLER],) = self.query_one(f"#{SAMPLER}", Words).chosen

    # ---- what it costs ----------------------------------------------------------------------------

    @on(Input.Changed)
    @on(Words.Switched)
    def _changed(self) -> None:
        self._take()
        self._read_cost(deepcopy(self.texts))

    @work(thread=True, exclusive=True, group="reading")
    def _read_cost(self, texts: SweepTexts) -> None:
        # In a thread.
        worker = get_current_worker()
        time.sleep(PAUSE_SECONDS)
        if worker.is_cancelled:
            return
        from ...engine.sweep import sweep_request

        preset, text = self.state.preset, ""
        with contextlib.suppress(WrongLimit, PresetError, RunError, OSError, ValueError, ArithmeticError):
            settings = sweep_request.settings_of(preset, **texts.parameters())
            text = clean(sweep_record.cost(settings, expected_seconds(preset)))
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_cost, text)

    def _show_cost(self, text: str) -> None:
        if self.is_attached:
            self.query_one("#buys", Label).update(text)


async def sweep(app: BaseApp, state: FormState, texts: SweepTexts | None) -> SweepTexts | None:
    """Ask what to sweep, start it and open it. Return the texts with which the next dialog opens: `texts` again if the
    dialog was left. Those of another preset are not used."""
    try:
        first = texts if texts is not None and texts.of == state.opened else SweepTexts.first(state.opened)
    except RunError as fault:
        app.complain(str(fault))
        return texts
    dialog = SweepDialog(state, deepcopy(first))
    return dialog.texts if await _has_started(app, dialog) else texts
