"""The keys of a screen in its last line, made anew only where they have changed."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen
from textual.widgets import Footer


class KeyFooter(Footer):
    """Textual's footer; it hears of the keys at each move of the focus, and making them lays out the whole screen."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)
        self._told: list[Any] | None = None

    def bindings_changed(self, screen: Screen[Any]) -> None:
        if not (screen.app.app_focus and self.is_attached and screen is self.screen):
            super().bindings_changed(screen)  # which only notes it
            return
        bindings = screen.active_bindings.values()
        told = [(active.binding, active.enabled, active.tooltip) for active in bindings if active.binding.show]
        if told != self._told:
            self._told = told
            super().bindings_changed(screen)
