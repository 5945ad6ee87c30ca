"""The commands of the palette: every verb of the screen in front, the places, the themes, and what has no key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen

from ..base import keys
from ..base.themes import THEMES
from .catalogue import ScreenEntry

# Of verbs that are looked for by other words than the footer's; the palette searches names alone.
NAMES = {"tune": "Tune: find the fastest settings"}


def of_screen(screen: Screen[Any]) -> Iterator[SystemCommand]:
    """What the keys of the screen do now, with the key beside the name; and its commands without a key."""
    seen = set()
    for active in screen.active_bindings.values():
        binding = active.binding
        verb = keys.VERBS.get(binding.id or "")
        if verb is None or not active.enabled or verb.group in (keys.MOVING, keys.PLACES, keys.FIELD):
            continue
        if binding.id in ("palette", "leave") or binding.action in seen:
            continue
        if not getattr(screen, "offers", offers_all)(binding.action):
            continue
        seen.add(binding.action)
        run = partial(screen.app.run_action, binding.action, active.node)
        name = NAMES.get(verb.id, binding.description)
        yield SystemCommand(f"{name}  ({keys.shown(binding.key)})", binding.tooltip, run)
    commands = getattr(screen, "commands", None)
    if commands is not None:
        yield from commands()


def offers_all(_action: str) -> bool:
    """For screens on which every key can be used at any time."""
    return True


def is_listed(screen: Screen[Any], place: ScreenEntry) -> bool:
    """Whether a key of the screen opens this one, and stands in the list already."""
    shown = (active.binding for active in screen.active_bindings.values() if active.enabled)
    return not place.verb and any(one.description == place.title for one in shown)


def of_themes(app: App[Any]) -> Iterator[SystemCommand]:
    """A command for each theme, which the settings keep; those of Textual are found by their names."""
    own = {theme.name for theme in THEMES}
    for name in sorted(app.available_themes, key=lambda name: name not in own):
        said = "the theme in use" if name == app.theme else "use this theme; it is kept in the settings"
        yield SystemCommand(f"Theme {name}", said, partial(setattr, app, "theme", name), name in own)
