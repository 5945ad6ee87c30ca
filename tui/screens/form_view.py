"""The layout of the form: title, options, help, errors and warnings, and Start.

Deferred imports: checks are not needed for the first paint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from ..base.errors import clean
from ..form.state import FormState
from ..widgets.findings import Findings, Remark
from ..widgets.key_footer import KeyFooter
from ..widgets.option_help import help_text
from ..widgets.options_view import OptionsView
from ..widgets.start_bar import StartBar
from .base import AppScreen

if TYPE_CHECKING:
    from ...engine.checks import Finding
    from ...engine.telemetry.machine import Machine

WIDE, HUGE, HIGH = 110, 180, 30  # from these sizes on: help beside the options, two columns of options, full remarks


class FormView(AppScreen):
    """Shows a state of the form, and what is known of this machine and found in its checks."""

    AUTO_FOCUS = None

    def __init__(self, state: FormState, waits: bool = False) -> None:
        """`waits`: nothing is built until the screen becomes visible, as another one covers it."""
        super().__init__()
        self.state = state
        self.machine: Machine | None = None
        self.options = OptionsView(state)
        self._waits = waits
        self._findings: tuple[Finding, ...] = ()
        self._resumed = False

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
        yield KeyFooter()

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
        self._show_all()

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

    # ---- errors and warnings ---------------------------------------------------------------------

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
