"""The line with the Start button: what would be started on which devices, or why nothing can be started.

Deferred imports: checks are not needed for the first paint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Static

from ..base.errors import clean

if TYPE_CHECKING:
    from ...engine.options import Options
    from ...engine.telemetry.machine import Machine


class StartBar(Horizontal):
    """A button and one line of text."""

    class Pressed(Message):
        """Start was pressed."""

    def compose(self) -> ComposeResult:
        yield Button("Start", id="start", variant="success", compact=True)
        yield Static(id="outlook", markup=False)

    def on_mount(self) -> None:
        self.query_one("#start", Button).can_focus = False

    def show(self, refusal: str, options: Options, machine: Machine | None) -> None:
        """Show what Start would do, or the reason beside a disabled button."""
        self.query_one("#start", Button).disabled = bool(refusal)
        text = (
            Content.assemble(("cannot start  ", "bold $text-error"), clean(refusal))
            if refusal
            else Content(clean(outlook(options, machine)))
        )
        self.query_one("#outlook", Static).update(text)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Pressed())


def outlook(options: Options, machine: Machine | None) -> str:
    """Batch size and devices in one line."""
    size = options.input.batch_size
    if machine is None:
        return f"batch {size:,}  examining this machine ..."
    from ...engine import checks

    gpus = checks.visible_gpus(options, machine)
    count = checks.replicas(options, machine)
    batch = f"global batch {size * count:,}" + (f" = {size:,} x {count} replicas" if count > 1 else "")
    return f"{batch}  {_devices([gpu.name or 'GPU' for gpu in gpus], options, machine)}"


def _devices(names: list[str], options: Options, machine: Machine) -> str:
    if names:
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        used = "" if options.strategy.kind == "mirrored" or len(names) == 1 else " (only one is used)"
        return f"on {kinds}{used}"
    if machine.missing and options.device.visible != "none":
        return f"on the GPUs that CUDA finds; no details: {machine.missing}"
    why = "device.visible is none" if machine.gpus else f"no GPU: {machine.no_gpu_reason}"
    return f"on {machine.cpus} CPU cores ({why})"
