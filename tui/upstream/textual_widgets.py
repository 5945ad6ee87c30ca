"""Widgets, a screen and functions for what the public API of Textual 8.2 lacks. Each can be removed when Textual offers
what is named after "until". - `StyledOnce`: styles a screen again only if the theme or the application's classes have
changed. Textual styles it again each time it comes to the front. Until: Textual does so only after such a change. -
`ChosenKeys`: a footer with chosen keys, made again only if they change, also while the terminal has no focus. Until:
`Footer` has a method that chooses the keys, and compares them with the keys that it shows. - `ScrollRequests`: calls a
method for each requested scroll, but not for scrolls after a resize. Until: Textual sends a message for requested
scrolls only. - `use_layout`: gives a widget a layout. Until: this needs no private property. - `lay_out_again`: lays
out a widget after its width has changed. Until: `refresh(layout=True)` drops the old width."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.css.query import NoMatches
from textual.layout import Layout
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class StyledOnce(Screen[None]):
    """A screen that is styled again only if the theme or the classes of the application have changed."""

    _styled: tuple[object, ...] | None = None  # theme and classes of the application when this screen was styled

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        now = self.app.theme, self.app.classes, frozenset(self.app.get_pseudo_classes())
        event.refresh_styles = event.refresh_styles and self._styled not in (None, now)
        self._styled = now


class ChosenKeys(Footer):
    """A footer with the keys that `chosen_keys` returns. Its widgets are made again only if the keys have changed."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)
        self._made: list[ActiveBinding] | None = None

    def chosen_keys(self) -> list[ActiveBinding]:
        raise NotImplementedError

    def _keys_now(self) -> list[ActiveBinding]:
        # If the screen misses a widget, as it is being built or removed, the keys that are shown already.
        try:
            return self.chosen_keys()
        except NoMatches:
            return self._made or []

    def compose(self) -> ComposeResult:
        if self._bindings_ready:
            self._made = self._keys_now()
            for _, binding, enabled, tooltip in self._made:
                key = FooterKey(
                    binding.key, self.app.get_key_display(binding), binding.description, binding.action,
                    disabled=not enabled, tooltip=tooltip, classes="-compact",
                )  # fmt: skip
                yield key.data_bind(compact=Footer.compact)

    def bindings_changed(self, screen: Screen[Any]) -> None:
        self._bindings_ready = True
        if self.is_attached and screen is self.screen:
            self.choose_again()

    def on_resize(self) -> None:
        self.choose_again()

    def choose_again(self) -> None:
        if self._bindings_ready and self._keys_now() != self._made:
            self.call_after_refresh(self.recompose)

    async def recompose(self) -> None:
        """Make the widgets again only if the keys differ: Textual calls this several times when a screen opens."""
        if self.is_attached and self._keys_now() != self._made:
            await super().recompose()


class ScrollRequests(ScrollView):
    """A view whose `scroll_requested` is called for each requested scroll, but not for scrolls after a resize."""

    def scroll_requested(self, y: float) -> None:
        """Handle a request to scroll the view to the line `y`, before the view is scrolled."""

    def _scroll_to(self, x: float | None = None, y: float | None = None, **how: Any) -> bool:
        if y is not None:
            self.scroll_requested(y)
        return super()._scroll_to(x, y, **how)


def use_layout(widget: Widget, layout: Layout) -> None:
    """Lay out the children of a widget with `layout`, unless its styles name another layout."""
    widget._default_layout = layout  # type: ignore[assignment]  # Textual declares a vertical layout


def lay_out_again(widget: Widget) -> None:
    """Lay out a widget again after the width of its content has changed."""
    widget.refresh(layout=True)
    widget._layout_updates += 1
