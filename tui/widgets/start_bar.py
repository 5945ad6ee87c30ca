"""The line with the Start button: batch and devices of the run, or why it cannot be started; and the list of remarks.
Deferred imports: checks are not needed for the first paint."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, OptionList, Static
from textual.widgets.option_list import Option

from ...engine.finding import Finding, errors
from ..base import keys
from ..base.errors import clean
from ..drawing.rows import with_short_paths

if TYPE_CHECKING:
    from ...engine.job.machine_gpus import Machine
    from ...engine.options import Options


BESIDE = 13  # columns of the button and of the gaps
BRIEFEST = 2
REFUSED = "cannot start  "


class StartButton(Button, inherit_css=False):
    """The Start button. screens/form/form.tcss styles it, as reading Textual's fifty rules for buttons takes time."""


class StartBar(Horizontal):
    BINDINGS = [
        keys.bind("up", "screen.to_options", "Options", show=False, meaning="back to the options"),
        keys.bind("down", "screen.to_options", "Options", show=False, meaning="back to the options"),
    ]

    class Pressed(Message):
        """Start was pressed."""

    def __init__(self) -> None:
        super().__init__()
        self._offered = ""
        self._refusals: list[str] = []  # from the longest to the briefest
        self._outlooks: list[str] = []  # the same

    def compose(self) -> ComposeResult:
        yield StartButton("Start", id="start", variant="success", compact=True)
        yield Static(id="outlook", markup=False)

    def on_mount(self) -> None:
        self.query_one("#start", Button).can_focus = False

    def take_focus(self, what: str) -> None:
        """Focus Start, so that Enter presses it; `what` names a change next to it."""
        self._offered = f"enter starts it with {what}" if what else ""
        self._show_outlook()
        button = self.query_one("#start", Button)
        button.can_focus = True
        button.focus()

    def on_descendant_blur(self) -> None:
        self.query_one("#start", Button).can_focus = False
        self._offered = ""
        self._show_outlook()

    def show(
        self, refusals: Sequence[str], options: Options, machine: Machine | None, own_batch: int | None = None
    ) -> None:
        """Show what a start would use, or why it is refused (longest first). `own_batch` is that of the user's code."""
        self.query_one("#start", Button).disabled = bool(refusals)
        self._refusals = [clean(refusal) for refusal in refusals]
        self._outlooks = [clean(outlook(options, machine, brief, own_batch)) for brief in range(BRIEFEST + 1)]
        self._show_outlook()

    def on_resize(self) -> None:
        self._show_outlook()

    def _show_outlook(self) -> None:
        offered = (f"{clean(self._offered)}  ", "bold $text-primary") if self._offered else ""
        shown = self.query_one("#outlook", Static)
        first = (REFUSED, "bold $text-error") if self._refusals else offered
        room = self.size.width - BESIDE - cell_len(first[0] if first else "")
        sentences = self._refusals or self._outlooks
        text = next((sentence for sentence in sentences if cell_len(sentence) <= room), "".join(sentences[-1:]))
        shown.update(Content.assemble(first, text))

    def on_click(self, event: events.Click) -> None:
        if self._offered and event.widget is self.query_one("#outlook"):
            self.post_message(self.Pressed())

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Pressed())


def outlook(options: Options, machine: Machine | None, brief: int = 0, own_batch: int | None = None) -> str:
    """Return batch size and devices; the greater `brief` (0 to BRIEFEST), the shorter why there is no GPU."""
    size = options.input.batch_size
    if machine is None:
        return f"batch {size:,}  examining this machine ..."
    from ...engine import checks
    from ...engine.job import machine_gpus

    gpus = machine_gpus.visible_gpus(options, machine)
    count = checks.replicas(options, machine)
    batch = f"global batch {size * count:,}" + (f" = {size:,} x {count} replicas" if count > 1 else "")
    if own_batch is not None:
        batch = f"global batch {own_batch:,} (of your code)"
    if is_command := bool(options.workload.command):
        batch = "the command"
    names = [(gpu.name or "GPU").removeprefix("NVIDIA " if brief else "") for gpu in gpus]
    if names:
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        uses_all = options.strategy.kind == "mirrored" or len(names) == 1 or is_command
        used = "" if uses_all else " (only one is used)"
        return f"{batch}  on {kinds}{used}"
    if machine.missing and options.device.visible != "none":
        return f"{batch}  on the GPUs that CUDA finds" + ("" if brief else f"; no details: {machine.missing}")
    why = f": {machine.no_gpu_reason.partition(' on this machine' if brief else ' (')[0]}" if brief < BRIEFEST else ""
    return f"{batch}  on {machine.cpus} CPU cores ({'device.visible is none' if machine.gpus else f'no GPU{why}'})"


LEVEL_WIDTH = 8
STYLES = {"error": "bold $text-error", "warning": "$text-warning", "note": "$foreground-muted"}


class Findings(OptionList):
    """The list of remarks, errors first and whole, as they name the valid values; hidden if empty."""

    BINDINGS = [
        keys.bind("open", "select", "Go to option", meaning="go to the option"),
        *keys.moves(),
        keys.bind("back", "screen.to_options", meaning="back to the options"),
    ]

    @dataclass
    class Jump(Message):
        """A request to focus the option `key`."""

        key: str

    def __init__(self) -> None:
        super().__init__(id="findings", markup=False, compact=True)
        self.remarks: tuple[Finding, ...] = ()
        self.display = False

    def show(self, remarks: Sequence[Finding]) -> None:
        if tuple(remarks) == self.remarks:
            return
        self.remarks = tuple(remarks)
        self.display = bool(self.remarks)
        self.set_class(bool(errors(self.remarks)), "-errors")
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        at, width = self.highlighted, (self.size.width or self.app.size.width) - 2
        wraps = self.styles.text_wrap == "wrap"
        self.set_options([Option(_prompt(remark, width, wraps)) for remark in self.remarks])
        if at is not None and self.remarks:
            self.highlighted = min(at, len(self.remarks) - 1)

    def on_focus(self) -> None:
        if self.highlighted is None:
            self.highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Jump(self.remarks[event.option_index].options[0]))


def _prompt(remark: Finding, width: int, wraps: bool) -> Content:
    # Long paths in its message are shortened; the remedy never is.
    keys = ", ".join(remark.options) + " "
    room = width - LEVEL_WIDTH - cell_len(keys) - (cell_len(remark.remedy) + 2 if remark.remedy else 0)
    message = with_short_paths(clean(remark.what), room)
    text = f"{message}; {clean(remark.remedy)}" if remark.remedy else message
    lines = textwrap.wrap(keys + text, max(16, width - LEVEL_WIDTH), break_on_hyphens=False) if wraps else [keys + text]
    body = Content(("\n" + " " * LEVEL_WIDTH).join(lines)).stylize("bold", 0, len(keys))
    return Content.assemble((remark.level.ljust(LEVEL_WIDTH), STYLES[remark.level]), body)
