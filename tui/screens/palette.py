"""The commands of the palette: the verbs of the screen in front, its commands without keys, and the themes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen

from ..base import keys
from ..base.themes import THEMES
from .catalogue import ScreenEntry

# Verbs that users search by other words than the label of the footer; the palette searches only names.
NAMES = {"tune": "Tune: find the fastest settings"}


def of_screen(screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Yield the commands of a screen: the actions of its keys, with the key in the name, and its commands without a
    key.
    """
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
    """Return True for each action: the default for screens that do not define `offers`."""
    return True


def is_listed(screen: Screen[Any], place: ScreenEntry) -> bool:
    """Return whether the palette already lists this place, as a key of the screen opens it."""
    shown = (active.binding for active in screen.active_bindings.values() if active.enabled)
    return not place.verb and any(binding.description == place.title for binding in shown)


def of_themes(app: App[Any]) -> Iterator[SystemCommand]:
    """Yield a command for each theme; a chosen theme is stored in the settings. Textual's own themes appear only in a
    search.
    """
    own = {theme.name for theme in THEMES}
    for name in sorted(app.available_themes, key=lambda name: name not in own):
        help_text = "the theme in use" if name == app.theme else "use this theme; it is kept in the settings"
        yield SystemCommand(f"Theme {name}", help_text, partial(setattr, app, "theme", name), name in own)
