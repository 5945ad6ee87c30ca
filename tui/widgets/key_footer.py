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
    """The keys for which there is room, in the order of their importance."""

    def on_mount(self) -> None:
        if hasattr(self.app, "running_count"):
            self.watch(self.app, "running_count", self.choose_again, init=False)

    def chosen_keys(self) -> list[ShownKey]:
        """Return the keys for which there is room, the most important first; the last keys always stay."""
        known = [one for one in self._known() if self._is_offered(one)]
        named = self._has_keys_above()
        wanted = [one for one in known if one.binding.show and not (named and _goes_to_a_place(one))]
        shown = {one.binding.id for one in wanted}  # of numbered keys only the first is shown
        more = [one for one in known if one.binding.id not in shown and one.enabled and _acts(one)]
        last = [one for one in wanted if one.binding.id in ALWAYS]
        last.sort(key=lambda one: one.binding.id == "help")
        places = [one for one in wanted if _goes_to_a_place(one)]
        first = [one for one in wanted if one not in last and one not in places]
        free = self.app.size.width - sum(map(self._width, last)) + 1  # no gap follows the last key
        found = []
        for one in (*first, *places, *more):
            free -= self._width(one)
            if free < 0:
                break
            found.append(one)
        return [ShownKey(one.binding, one.enabled, one.tooltip) for one in found + last]

    def _known(self) -> list[ActiveBinding]:
        """Return the first key of each action, with Enter in a field, which Textual does not show."""
        found = _by_action(one for one in self.screen.active_bindings.values() if not self._is_written(one))
        found = [self._with_runs(one) for one in found]
        if not isinstance(self.screen.focused, Input):
            return found
        accept = keys.VERBS["accept"].label
        return [
            one._replace(binding=replace(one.binding, description=accept, show=True))
            if one.binding.key == "enter" and one.binding.action == "submit"
            else one
            for one in found
        ]

    def _with_runs(self, one: ActiveBinding) -> ActiveBinding:
        """Add to the key that quits that running runs continue."""
        if one.binding.action != "app.quit" or one.binding.id != "leave" or not getattr(self.app, "running_count", 0):
            return one
        return one._replace(binding=replace(one.binding, description=f"{one.binding.description}, runs go on"))

    def _is_offered(self, one: ActiveBinding) -> bool:
        """Return whether the action could do anything now, according to `keys_without_use` of the screen."""
        without: Container[str] = getattr(self.screen, "keys_without_use", ())
        return (one.binding.id or "") not in without

    def _is_written(self, one: ActiveBinding) -> bool:
        """Return whether the focused field takes the key as text; Textual (8.2) does not know that of all signs."""
        sign, focused = keys.shown(one.binding.key), self.screen.focused
        return len(sign) == 1 and focused is not None and focused.check_consume_key(one.binding.key, sign)

    def _has_keys_above(self) -> bool:
        """Return whether the header names the keys of its screens."""
        try:
            return self.screen.query_one(ScreenTabs).with_keys
        except NoMatches:
            return False

    def _width(self, one: ActiveBinding) -> int:
        """In columns, with the gap that follows."""
        return cell_len(f"{self.app.get_key_display(one.binding)} {one.binding.description} ")


def _by_action(bindings: Iterable[ActiveBinding]) -> list[ActiveBinding]:
    """Return the first key of each action."""
    found: dict[str, ActiveBinding] = {}
    for one in bindings:
        found.setdefault(one.binding.action, one)
    return list(found.values())


def _goes_to_a_place(one: ActiveBinding) -> bool:
    return (verb := keys.VERBS.get(one.binding.id or "")) is not None and verb.group == keys.PLACES


def _acts(one: ActiveBinding) -> bool:
    """Return whether the key is worth showing if there is room."""
    verb = keys.VERBS.get(one.binding.id or "")
    return verb is not None and (verb.group == "Actions" or verb.id == "palette")
