"""The last line of a screen with its keys, as many as there is room for. It is made again only if the keys have
changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Input, Label

from ..base import keys
from ..drawing.rows import Row, length
from ..upstream.textual_widgets import ChosenKeys, lay_out_again
from .row_widgets import Painted

ALWAYS = ("help", "back", "leave")  # the way to the other keys, and the way out
MOST_KEYS = 9  # more are read by nobody; the help has all
ROOMY = 84  # columns from which the footer says that runs go on


class KeyFooter(ChosenKeys):
    """The footer with the keys of the screen in the order of importance: MOST_KEYS, if there is room for them."""

    def on_mount(self) -> None:
        if hasattr(self.app, "running_count"):
            self.watch(self.app, "running_count", self.choose_again, init=False)

    def chosen_keys(self) -> list[ActiveBinding]:
        """Return the first key of each action for which there is room, those that leave and open the help always, at
        the end. If a field has the focus, Enter is included, which Textual does not show."""
        firsts: dict[str, ActiveBinding] = {}
        for key in self.screen.active_bindings.values():
            if key.binding.action not in firsts and not self._is_written(key):
                firsts[key.binding.action] = self._labelled(key)
        firsts = self._as_declared(firsts)
        visible = [key for key in firsts.values() if key.binding.show]
        shown = {key.binding.id for key in visible}  # of numbered keys only the first is shown
        more = [
            key for key in firsts.values() if key.binding.id not in shown and key.enabled and _group(key) == "Actions"
        ]
        last = [key for key in visible if key.binding.id in ALWAYS]
        last.sort(key=lambda key: key.binding.id == "help")
        first = [key for key in visible if key not in last]
        free = self.app.size.width - sum(map(self._width, last)) + 1  # no gap follows the last key
        fitting: list[ActiveBinding] = []
        for key in (*first, *more):
            free -= self._width(key)
            if free < 0 or len(fitting) + len(last) == MOST_KEYS:
                break
            fitting.append(key)
        return fitting + last

    def _as_declared(self, firsts: dict[str, ActiveBinding]) -> dict[str, ActiveBinding]:
        """Put the screen's keys in the order of its bindings: Textual (8.2) puts those of the settings at the end."""
        bindings = (each for base in reversed(type(self.screen).__mro__) for each in vars(base).get("BINDINGS", ()))
        order = {each.action: at for at, each in enumerate(bindings) if isinstance(each, Binding)}

        def place(action: str) -> int:
            node = firsts[action].node
            return order.get(action, 0) if node is self.screen else len(order) if node is self.app else -1

        return {action: firsts[action] for action in sorted(firsts, key=place)}

    def _labelled(self, key: ActiveBinding) -> ActiveBinding:
        binding, labels = key.binding, getattr(self.screen, "labels_now", {})
        label, show = labels.get(binding.id or "", binding.description), binding.show
        quits = (binding.action, binding.id) == ("app.quit", "leave") and self.size.width >= ROOMY
        if quits and getattr(self.app, "running_count", False):
            label += ", runs go on"
        if (binding.key, binding.action) == ("enter", "submit") and isinstance(self.screen.focused, Input):
            label, show = keys.VERBS["accept"].label, True
        return key._replace(binding=replace(binding, description=label, show=show))

    def _is_written(self, key: ActiveBinding) -> bool:
        # Textual (8.2) does not detect this for all characters.
        sign, focused = keys.shown(key.binding.key), self.screen.focused
        return len(sign) == 1 and focused is not None and focused.check_consume_key(key.binding.key, sign)

    def _width(self, key: ActiveBinding) -> int:
        return cell_len(f"{self.app.get_key_display(key.binding)} {key.binding.description} ")


def _group(key: ActiveBinding) -> str:
    verb = keys.VERBS.get(key.binding.id or "")
    return "Actions" if verb is not None and verb.id == "palette" else verb.group if verb is not None else ""


# ---- tabs of screens ------------------------------------------------------------------------------


KEYS_FROM = 60  # columns of the terminal from which on keys are named


class ScreenTab(NamedTuple):
    """The item of a screen in the header: the screen's name, its label and its key."""

    name: str
    label: str
    key: str


class ScreenTabs(Painted):
    """The row of screens in the header; the item of `counted` has the number of running runs."""

    DEFAULT_CSS = "ScreenTabs { width: auto; height: 1; background: $panel; }"

    def __init__(self, places: Sequence[ScreenTab], here: str, counted: str) -> None:
        super().__init__()
        self._places, self._here, self._counted = tuple(places), here, counted
        self._count = 0

    def show(self, count: int) -> None:
        if count != self._count:
            self._count = count
            lay_out_again(self)
            self.repaint()

    def get_content_width(self, _container: Size, _viewport: Size) -> int:
        return sum(map(length, self._items(self.with_keys)))

    def rows(self, width: int, _height: int) -> list[Row]:
        return [[piece for item in self._fitting(width) for piece in item]]

    def _fitting(self, width: int) -> list[Row]:
        items = self._items(self.with_keys)
        return items if sum(map(length, items)) <= width else self._items(False)

    @property
    def with_keys(self) -> bool:
        return self.app.size.width >= KEYS_FROM

    def _items(self, with_keys: bool) -> list[Row]:
        """For each screen its key, its label and, if not 0, the number of running runs."""
        items: list[Row] = []
        for tab in self._places:
            here, count = tab.name == self._here, self._count if tab.name == self._counted else 0
            style = "here" if here else "value"
            before, after = (self.glyphs.here[0], self.glyphs.here[1]) if here else (" ", " ")
            key: Row = [(f"{tab.key} ", style if here else "label")] if with_keys else []
            badge: Row = [(f" {self.glyphs.running}{count}", "badge")] if count else []
            items.append([(before, style), *key, (tab.label, style), *badge, (after, style)])
        return items

    async def on_click(self, event: events.Click) -> None:
        end = 0
        for place, shown in zip(self._places, self._fitting(self.size.width), strict=True):
            end += length(shown)
            if event.x < end:
                await self.app.run_action(f"app.show('{place.name}')")
                return


class KeyHints(Label):
    """Shows the first keys of verbs, each with its effect in words, such as `enter accepts, esc leaves`."""

    DEFAULT_CSS = """
    KeyHints {
        width: 100%; color: $foreground-muted;
        link-color: $foreground-muted; link-style: none; link-background: transparent;
        link-color-hover: $foreground; link-style-hover: underline; link-background-hover: transparent;
    }
    """

    def __init__(self, hints: Iterable[tuple[str, str]], *, id: str | None = None) -> None:
        super().__init__(hints_text(self.app, hints), id=id, markup=False)


def hints_text(app: App[Any], hints: Iterable[tuple[str, str]]) -> Content:
    """Return verbs' keys with their effects in one line, each with the click that stands for its key. A key without an
    effect has that of the next one."""
    line = Content()
    for verb, effect in hints:
        key = keys.keys_of(app, verb)[0]
        line += clickable(f"{keys.shown(key)} {effect}".rstrip(), key)
        line += Content(", " if effect else " ")
    return line.rstrip(", ")


def clickable(text: str, key: str) -> Content:
    """Return the text; a click on it has the effect of the key."""
    return Content.from_markup(f"[@click=app.simulate_key({key!r})]$text[/]", text=text)
