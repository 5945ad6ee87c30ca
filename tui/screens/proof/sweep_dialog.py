"""The dialog that asks what to sweep, and starts the sweep. Enter starts it at once.
Deferred imports: this machine is read, and earlier runs, only for a dialog that is open."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Label
from textual.worker import get_current_worker

from ....engine.presets import PresetError
from ....engine.runs import RunError
from ....engine.sweep.preset_block import OVER
from ....engine.trials import SAMPLERS
from ...base.errors import clean
from ...form.search_limits import WrongLimit
from ...form.sweep_texts import SweepTexts
from ...widgets.limit_rows import LimitRow, Words
from .. import starting
from ..limits import LimitDialog, field

if TYPE_CHECKING:
    from ....engine.proof.request import Request
    from ...base.base_app import BaseApp
    from ...form.form_state import FormState

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
        super().__init__(f"the sweep of {state.name}")
        self.state, self.texts = state, texts

    def compose(self) -> ComposeResult:
        texts, rows = self.texts, list(ROWS.items())
        with VerticalScroll(id="box", can_focus=False):
            yield Label(f"Find the settings of {clean(self.state.name)} that learn best, and prove it", markup=False)
            for place, text in enumerate(texts.over):
                label, example = ("and", EXAMPLES[1]) if place else ("sweep", EXAMPLES[0])
                yield LimitRow(label, field(f"{OVER}{place}", text, example, classes="wide"))
            yield Label(id="buys", markup=False)
            for at, (key, (label, about)) in enumerate(rows):
                if at == FIRST_ROWS:
                    words = [(sampler, sampler) for sampler in SAMPLERS]
                    yield LimitRow(SAMPLER, Words(SAMPLER, words, {texts.others[SAMPLER]}, single=True))
                yield LimitRow(label, field(key, texts.others[key]), about)
            yield Label(id="complaint", markup=False)
            yield self.key_help()

    def requested(self) -> Callable[[], Request]:
        """Take the fields, and return the function that makes the request for the sweep. Raises WrongLimit."""
        self._take()
        given = self.texts.parameters()

        def make() -> Request:
            from ....engine.proof import request
            from ....engine.queue import adding
            from ....engine.sweep import sweep_request

            asked = sweep_request.of_opened(self.state.preset, self.state.path, **given)
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
        text = self._cost(texts)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_cost, text)

    def _cost(self, texts: SweepTexts) -> str:
        from ....engine.checks.option_rules import expected_seconds
        from ....engine.sweep import sweep_request
        from ....engine.trials import sweep_sentences

        preset = self.state.preset
        try:
            settings = sweep_request.settings_of(preset, **texts.parameters())
        except (WrongLimit, PresetError, RunError, OSError, ValueError, ArithmeticError):
            return ""
        return sweep_sentences.cost(settings, expected_seconds(preset))

    def _show_cost(self, text: str) -> None:
        if self.is_attached:
            self.query_one("#buys", Label).update(clean(text))


async def sweep(app: BaseApp, state: FormState, texts: SweepTexts | None) -> SweepTexts | None:
    """Ask what to sweep, start it and open it. Return the texts with which the next dialog opens: `texts` again if the
    dialog was left. Those of another preset are not used."""
    try:
        first = texts if texts is not None and texts.of == state.opened else SweepTexts.first(state.opened)
    except RunError as fault:
        app.complain(str(fault))
        return texts
    dialog = SweepDialog(state, deepcopy(first))
    made = await app.push_screen_wait(dialog)
    if made is not None:
        starting.open_measurement(app, *made)
    return dialog.texts if made is not None or dialog.waits else texts
