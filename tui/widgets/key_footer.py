"""The keys of a screen in its last line: as many as there is room for, made again only if they have changed."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from rich.cells import cell_len
from textual.binding import ActiveBinding
from textual.css.query import NoMatches
from textual.widgets import Input

from ..base import keys
from ..upstream.widgets import ChosenKeys, ShownKey
from .screen_tabs import ScreenTabs

ALWAYS = ("help", "back", "leave")  # the way to the other keys, and the way out


class KeyFooter(ChosenKeys):
    """The footer with the keys of the screen, as many as there is room for, in the order of importance."""

    def on_mount(self) -> None:
        if hasattr(self.app, "running_count"):
            self.watch(self.app, "running_count", self.choose_again, init=False)

    def chosen_keys(self) -> list[ShownKey]:
        """Return the keys for which there is room, the most important first. At the end are always the keys for leaving
        the screen and for the help.
        """
        offered = [key for key in self._first_keys() if self._is_offered(key)]
        named = self._has_keys_above()
        visible = [key for key in offered if key.binding.show and not (named and _goes_to_a_place(key))]
        shown = {key.binding.id for key in visible}  # of numbered keys only the first is shown
        more = [key for key in offered if key.binding.id not in shown and key.enabled and _acts(key)]
        last = [key for key in visible if key.binding.id in ALWAYS]
        last.sort(key=lambda key: key.binding.id == "help")
        places = [key for key in visible if _goes_to_a_place(key)]
        first = [key for key in visible if key not in last and key not in places]
        free = self.app.size.width - sum(map(self._width, last)) + 1  # no gap follows the last key
        fitting = []
        for key in (*first, *places, *more):
            free -= self._width(key)
            if free < 0:
                break
            fitting.append(key)
        return [ShownKey(key.binding, key.enabled, key.tooltip) for key in fitting + last]

    def _first_keys(self) -> list[ActiveBinding]:
        """Return the first key of each action. In a field, Enter is included, which Textual does not show."""
        keys_now = _by_action(key for key in self.screen.active_bindings.values() if not self._is_written(key))
        keys_now = [self._with_runs(key) for key in keys_now]
        if not isinstance(self.screen.focused, Input):
            return keys_now
        accept = keys.VERBS["accept"].label
        return [
            key._replace(binding=replace(key.binding, description=accept, show=True))
            if key.binding.key == "enter" and key.binding.action == "submit"
            else key
            for key in keys_now
        ]

    def _with_runs(self, key: ActiveBinding) -> ActiveBinding:
        """Return the key; if it quits gputui while runs are running, its label says that they continue."""
        if key.binding.action != "app.quit" or key.binding.id != "leave" or not getattr(self.app, "running_count", 0):
            return key
        return key._replace(binding=replace(key.binding, description=f"{key.binding.description}, runs go on"))

    def _is_offered(self, key: ActiveBinding) -> bool:
        """Return whether the key has an effect now: `keys_without_use` of the screen does not name its verb."""
        without: Container[str] = getattr(self.screen, "keys_without_use", ())
        return (key.binding.id or "") not in without

    def _is_written(self, key: ActiveBinding) -> bool:
        """Return whether the focused field takes the key as text; Textual (8.2) does not detect this for all signs."""
        sign, focused = keys.shown(key.binding.key), self.screen.focused
        return len(sign) == 1 and focused is not None and focused.check_consume_key(key.binding.key, sign)

    def _has_keys_above(self) -> bool:
        """Return whether the header shows the keys of its screens."""
        try:
            return self.screen.query_one(ScreenTabs).with_keys
        except NoMatches:
            return False

    def _width(self, key: ActiveBinding) -> int:
        """The width of a key with its label and the gap after it, in columns."""
        return cell_len(f"{self.app.get_key_display(key.binding)} {key.binding.description} ")


def _by_action(bindings: Iterable[ActiveBinding]) -> list[ActiveBinding]:
    """Return the first binding of each action."""
    first: dict[str, ActiveBinding] = {}
    for key in bindings:
        first.setdefault(key.binding.action, key)
    return list(first.values())


def _goes_to_a_place(key: ActiveBinding) -> bool:
    return (verb := keys.VERBS.get(key.binding.id or "")) is not None and verb.group == keys.PLACES


def _acts(key: ActiveBinding) -> bool:
    """Return whether the key may be shown if there is room: it starts an action or opens the palette."""
    verb = keys.VERBS.get(key.binding.id or "")
    return verb is not None and (verb.group == "Actions" or verb.id == "palette")
