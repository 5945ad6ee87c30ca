"""What the dialogs share that ask for the limits of a search or a sweep and start it: their look, moving, starting.
Deferred imports: what a start needs is imported by the dialog that starts it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label, Static
from textual.worker import get_current_worker

from ...engine.checks.option_rules import expected_seconds
from ...engine.files.values import EMPTY
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
from ...engine.units import NONE
from ..base import keys
from ..base.errors import clean
from ..form.search_limits import POLICIES, RATES, LimitTexts, SweepTexts, WrongLimit
from ..upstream.thread_imports import in_background
from ..widgets.key_footer import KeyHints
from . import starting
from .dialogs import Dialog

if TYPE_CHECKING:
    from ...engine.job.machine_gpus import Machine
    from ...engine.presets import Preset
    from ...engine.proof.request import Request
    from ...engine.tune.tune_request import TimePlan
    from ..base.base_app import BaseApp
    from ..form.form_state import FormState


class LimitInput(Input):
    """A field for a limit of a search. The dialog handles Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("field_up", "app.focus_previous", show=False),
        keys.bind("field_down", "app.focus_next", show=False),
    ]


class Words(Static, can_focus=True):
    """Words that can each be switched on or off, or of which exactly one is on. A cursor marks that of the keys."""

    @dataclass
    class Switched(Message):
        """The `words` have changed."""

        words: Words

        @property
        def control(self) -> Words:
            return self.words

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("mark", "switch", "Switch", meaning="switch on or off what the cursor is on"),
        keys.bind("previous_choice", "move(-1)", show=False),
        keys.bind("next_choice", "move(1)", show=False),
        keys.bind("up", "app.focus_previous", show=False),
        keys.bind("down", "app.focus_next", show=False),
    ]

    def __init__(self, name: str, words: Sequence[tuple[str, str]], chosen: set[str], *, single: bool = False) -> None:
        """`words` are pairs of an id and its text, `chosen` the ids that are on. With `single` exactly one is."""
        super().__init__(id=name, markup=False)
        self._words, self.chosen, self._single = words, set(chosen), single
        self._at = next((at for at, (word, _) in enumerate(words) if single and word in chosen), 0)
        self._places: list[tuple[int, int, int]] = []  # line, first and last column of each word

    @property
    def value(self) -> str | set[str]:
        """The ids of the words that are on or, if exactly one is, its id."""
        return next(iter(self.chosen)) if self._single else set(self.chosen)

    def on_mount(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._show()

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self._show()

    def _show(self) -> None:
        line, column, parts = 0, 0, []
        self._places = []
        for at, (word, shown) in enumerate(self._words):
            text = f"{'>' if self.has_focus and at == self._at else ' '}{self._mark(word)} {shown}"
            if column and column + len(text) + 1 > max(20, self.size.width):
                line, column = line + 1, 0
                parts.append(("\n", ""))
            self._places.append((line, column, column + len(text)))
            here = "bold $text-primary" if self.has_focus and at == self._at else ""
            parts.append((text + " ", here or ("$foreground" if word in self.chosen else "$foreground-muted")))
            column += len(text) + 1
        self.update(Content.assemble(*parts))

    def _mark(self, word: str) -> str:
        on, off = ("(*)", "( )") if self._single else ("[x]", "[ ]")
        return on if word in self.chosen else off

    def action_move(self, by: int) -> None:
        self._at = (self._at + by) % len(self._words)
        if self._single:
            self.chosen = {self._words[self._at][0]}
            self.post_message(self.Switched(self))
        self._show()

    def action_switch(self) -> None:
        word = self._words[self._at][0]
        self.chosen = {word} if self._single else self.chosen ^ {word}
        self._show()
        self.post_message(self.Switched(self))

    def on_click(self, event: events.Click) -> None:
        for at, (line, first, last) in enumerate(self._places):
            if event.y == line and first <= event.x < last:
                self._at = at
                self.action_switch()


# ---- the dialogs ----------------------------------------------------------------------------------


SAID = (
    ("open", "starts it"), ("mark", "switches"), ("previous_choice", ""), ("next_choice", "choose"), ("back", "leaves"),
)  # fmt: skip
CHECKING = "checking ..."


class DialogRow(NamedTuple):
    """A row of a dialog about the limit `name`: the `words` to choose from, texts by their ids, else a field with a
    remark or, if it is as wide as the dialog, an example. Without a label, a line of text."""

    name: str
    label: str = ""
    about: str = ""
    words: Mapping[str, str] = EMPTY
    example: str = ""


class LimitDialog(Dialog[Any]):
    """Asks for limits and starts a measurement. The result is the measurement, or None if none was started. Reasons
    why it cannot start are shown in the dialog. `waits` is True if it was put in the queue instead. `subject` names it
    in messages. `texts` are the texts of the fields, the chosen word or the set of chosen words."""

    DEFAULT_CSS = """
    LimitDialog > #box {
        width: 78; max-width: 98%; max-height: 96%; border: round $border; padding: 0 1; scrollbar-size-vertical: 1;
        #said { dock: bottom; background: $panel; }
        #buys { color: $foreground-muted; }
        & > .row {
            height: auto;
            & > .name { width: 15; }
            & > Words { width: 1fr; height: auto; }
            & > LimitInput { width: 14; margin: 0 0 0 1; background: $surface; }
            & > LimitInput.wide { width: 1fr; }
            & > .about { width: 1fr; height: 1; margin-left: 2; color: $foreground-muted; text-wrap: nowrap;
                         text-overflow: ellipsis; }
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "start", "Start", meaning="start it"),  # and no letter: text is typed here
        *keys.back("dismiss(None)"),
    ]

    def __init__(self, subject: str, title: str, rows: Sequence[DialogRow], texts: dict[str, Any]) -> None:
        super().__init__()
        self.subject, self._title, self._rows, self._texts = subject, title, rows, texts
        self._starts = False  # it is being started: nothing more is, and it is not given up
        self.waits = False  # it begins later, without the dialog

    def requested(self) -> Callable[[], Request]:
        """Return the request by the texts, to be made in a thread. Raises WrongLimit; later the request's errors."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box", can_focus=False):
            yield Label(self._title, markup=False)
            for name, label, about, words, example in self._rows:
                text: Any = self._texts.get(name)
                part: Widget = Label(id=name, markup=False)
                if words:
                    single = isinstance(text, str)
                    part = Words(name, [*words.items()], {text} if single else text, single=single)
                elif label:
                    shown, classes = example or NONE, "wide" if example else ""
                    part = LimitInput(text, shown, id=name, compact=True, classes=classes)
                row = [Label(label, classes="name", markup=False), part] if label else []
                row += [Label(about, classes="about", markup=False)] if about else []
                yield Horizontal(*row, classes="row") if row else part
            yield Label(id="complaint", markup=False)
            yield KeyHints(SAID, id="said")

    def take(self) -> None:
        for part in (*self.query(LimitInput), *self.query(Words)):
            self._texts[part.id or ""] = part.value

    @on(Input.Submitted)
    def action_start(self) -> None:
        """Start with the limits in the fields, or show the first invalid one."""
        if self._starts or not self.can_have_been_read:
            return
        self.take()
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
            start = starting.measurement(self.app, self.subject, lambda: request)
            choice = await starting.choice_if_busy(self.app, start)
            if choice in (starting.WAIT, starting.CANCEL):
                self.query_one("#complaint").display = False
                self.waits = choice == starting.WAIT
                if self.waits:
                    self.dismiss(None)
                return
            self._starts = True
            made = await starting.launched(self.app, start)
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


TUNE = (
    DialogRow("minutes", "minutes", "for the whole search"),
    DialogRow("buys"),
    DialogRow("only", "search", words={stage: WORDS[stage] for stage in STAGES}),
    DialogRow("precisions", "precisions", words={policy: policy for policy in POLICIES}),
    DialogRow("largest_batch", "largest batch", "global; empty: a tenth of the samples"),
    DialogRow("memory_gb", "memory", "GB at most; empty: what there is"),
    DialogRow("leave", "leave alone", "options that keep their values: cache, xla"),
    DialogRow("learning_rate", "learning rate", words={rate: rate for rate in RATES}),
    DialogRow("warmup_steps", "warm-up", "steps, with linear or sqrt"),
    DialogRow("allow_worse_loss", "worse loss", words={"allow": "choose the fastest all the same"}),
)


class TuneDialog(LimitDialog):
    def __init__(self, state: FormState, texts: LimitTexts) -> None:
        title = f"Find the fastest settings of {clean(state.name)}"
        super().__init__(f"the search from {state.name}", title, TUNE, vars(texts))
        self.state, self.texts = state, texts
        self._plan: TimePlan | None = None  # by what trials take here, once that is known

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
        app.open_proof(made)
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
EXAMPLES = ("learning_rate=1e-3,3e-3", "another option: weight_decay=0..0.1")
# The rows of a sweep but those of the swept options, by the entry of the block `sweep:` that each stands for.
SWEEP = (
    DialogRow("buys"),
    DialogRow("metric", "metric", "a figure of an epoch, such as val_loss"),
    DialogRow("seeds", "seeds", "of each setting"),
    DialogRow("minutes", "minutes", "for everything, also the proof"),
    DialogRow("sampler", "sampler", words={sampler: sampler for sampler in SAMPLERS}),
    DialogRow("trials", "trials", "settings that random or tpe draws"),
    DialogRow("halving", "halving", "epoch from which bad trials end early"),
    DialogRow("finalists", "finalists", "the best one and its rivals"),
    DialogRow("proof_seeds", "proof seeds", "fresh seeds for the proof; 0: no proof"),
    DialogRow("parallel", "parallel", "trials at once; empty: one for each GPU"),
)


class SweepDialog(LimitDialog):
    def __init__(self, state: FormState, texts: SweepTexts) -> None:
        title = f"Find the settings of {clean(state.name)} that learn best, and prove it"
        names = [name for name in texts.texts if name.startswith(OVER)]
        heads = [("sweep", EXAMPLES[0])] + [("and", EXAMPLES[1])] * len(names)
        swept = [DialogRow(name, label, example=of) for name, (label, of) in zip(names, heads, strict=False)]
        super().__init__(f"the sweep of {state.name}", title, [*swept, *SWEEP], texts.texts)
        self.state, self.texts = state, texts

    def requested(self) -> Callable[[], Request]:
        given = self.texts.parameters()

        def make() -> Request:
            from ...engine.queue import adding
            from ...engine.sweep import sweep_request

            asked = sweep_request.of_preset(self.state.preset, **given)
            request.refuse(asked, adding.machine())
            return asked

        return make

    # ---- what it costs ----------------------------------------------------------------------------

    @on(Input.Changed)
    @on(Words.Switched)
    def _changed(self) -> None:
        self.take()
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
