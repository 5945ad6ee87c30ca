"""The dialog that asks for the limits of a search for the fastest settings, and starts it. Enter starts it at once.
Deferred imports: the machine and proofs are needed only when a search is started."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Label

from ....engine.trials import STAGES
from ....engine.tune.report.search_results import WORDS
from ...base.errors import clean
from ...form.search_limits import POLICIES, RATES, LimitTexts, WrongLimit
from ...widgets.limit_rows import LimitRow, Words
from .. import starting
from ..limits import LimitDialog, field

if TYPE_CHECKING:
    from pathlib import Path

    from ....engine.job.machine_gpus import Machine
    from ....engine.presets import Preset
    from ....engine.proof.request import Request
    from ....engine.trials.search_record import Limits
    from ....engine.tune.time_plan import TimePlan
    from ...base.base_app import BaseApp
    from ...form.form_state import FormState


_FIELDS = ("minutes", "largest_batch", "memory_gb", "leave", "warmup_steps")


class TuneDialog(LimitDialog):
    """Asks for the limits of a search and starts it."""

    def __init__(self, state: FormState, texts: LimitTexts) -> None:
        super().__init__(f"the search from {state.name}")
        self.state, self.texts = state, texts
        self._plan: TimePlan | None = None  # by what trials take here, once that is known

    def compose(self) -> ComposeResult:
        texts = self.texts
        with VerticalScroll(id="box", can_focus=False):
            yield Label(f"Find the fastest settings of {clean(self.state.name)}", markup=False)
            yield LimitRow("minutes", field("minutes", texts.minutes), "for the whole search")
            yield Label(id="buys", markup=False)
            yield LimitRow("search", Words("only", [(stage, WORDS[stage]) for stage in STAGES], texts.only))
            yield LimitRow(
                "precisions", Words("precisions", [(policy, policy) for policy in POLICIES], texts.precisions)
            )
            yield LimitRow(
                "largest batch", field("largest_batch", texts.largest_batch), "global; empty: a tenth of the samples"
            )
            yield LimitRow("memory", field("memory_gb", texts.memory_gb), "GB at most; empty: what there is")
            yield LimitRow("leave alone", field("leave", texts.leave), "options that keep their values: cache, xla")
            yield LimitRow(
                "learning rate",
                Words("learning_rate", [(rate, rate) for rate in RATES], {texts.learning_rate}, single=True),
            )
            yield LimitRow("warm-up", field("warmup_steps", texts.warmup_steps), "steps, with linear or sqrt")
            yield LimitRow(
                "worse loss",
                Words(
                    "allow_worse_loss",
                    [("allow", "choose the fastest all the same")],
                    {"allow"} if texts.allow_worse_loss else set(),
                ),
            )
            yield Label(id="complaint", markup=False)
            yield self.key_help()

    # ---- what the time buys -----------------------------------------------------------------------

    def on_mount(self) -> None:
        self._read_plan()

    @work(thread=True, group="reading")
    def _read_plan(self) -> None:
        # In a thread.
        self.app.call_from_thread(self._take_plan, time_plan(self.state.preset.name))

    def _take_plan(self, plan: TimePlan) -> None:
        self._plan = plan
        self._show_what_it_buys()

    @on(Input.Changed, "#minutes")
    @on(Words.Switched, "#only")
    def _show_what_it_buys(self) -> None:
        minutes, only = self.query_one("#minutes", Input).value, self.query_one("#only", Words).chosen
        try:
            limits = LimitTexts(minutes=minutes, only=set(only)).limits()
        except WrongLimit:
            limits = None
        text = "" if limits is None or self._plan is None else buys(self._plan, limits)
        self.query_one("#buys", Label).update(text)

    # ---- starting ---------------------------------------------------------------------------------

    def requested(self) -> Callable[[], Request]:
        """Take the fields, and return the function that makes the request for the search. Raises WrongLimit."""
        self._take()
        limits = self.texts.limits()
        return lambda: search_request(self.state.preset, self.state.path, limits)

    def _take(self) -> None:
        for name in _FIELDS:
            setattr(self.texts, name, self.query_one(f"#{name}", Input).value)
        for name in ("only", "precisions"):
            setattr(self.texts, name, set(self.query_one(f"#{name}", Words).chosen))
        (self.texts.learning_rate,) = self.query_one("#learning_rate", Words).chosen
        self.texts.allow_worse_loss = bool(self.query_one("#allow_worse_loss", Words).chosen)


async def tune(app: BaseApp, state: FormState, texts: LimitTexts) -> LimitTexts:
    """Ask for limits, start a search and open it. Return the limits of the next dialog: `texts` if it was left."""
    dialog = TuneDialog(state, deepcopy(texts))
    made = await app.push_screen_wait(dialog)
    if made is not None:
        starting.open_measurement(app, *made)
    return dialog.texts if made is not None or dialog.waits else texts


# ---- the request ---------------------------------------------------------------------------------


def fast_policies(preset: Preset, here: Machine | None) -> list[str]:
    """Return the mixed precisions that are fast on the training's devices; without `here` the machine is read."""
    from ....engine.job import this_machine
    from ....engine.job.training_gpus import training_gpus
    from ....engine.telemetry import chips

    gpus = training_gpus(preset.options, here or this_machine.read())
    slowest = min((gpu.compute_capability or (0, 0) for gpu in gpus), default=None)
    return chips.fast_policies(slowest, chips.cpu_multiplies_bfloat16())


def search_request(preset: Preset, path: Path | None, limits: Limits) -> Request:
    """Return the search's request. Raises PresetError, RunError, OSError or ValueError if not possible here."""
    from ....engine.job import this_machine
    from ....engine.proof import request
    from ....engine.tune import tune_request

    requested = tune_request.of_opened(preset, path, limits)
    request.refuse(requested, this_machine.read())
    return requested


def time_plan(preset_name: str) -> TimePlan:
    """Return how a search's minutes are divided on this machine, by earlier measurements and runs, read here."""
    from ....engine.trials.search_record import Limits
    from ....engine.tune import tune_request

    return tune_request.plan_of(Limits(), preset_name)


def buys(plan: TimePlan, limits: Limits) -> str:
    """Return in words for the user what a search with these limits can do in its minutes."""
    return plan.with_limits(limits).in_words()
