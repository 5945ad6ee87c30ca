"""The commands of the command palette, searched by the rules that all searches here have."""

from __future__ import annotations

from textual.app import SystemCommand
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from .. import word_search
from ..widgets.search_marks import with_marks
from ..word_search import Place, place


class Commands(Provider):
    """Offers the application's commands: all of them, or those that match typed words, the best first."""

    async def discover(self) -> Hits:
        commands = sorted(self.app.get_system_commands(self.screen), key=lambda command: command.title)
        for title, about, run, is_listed in commands:
            if is_listed:
                yield DiscoveryHit(title, run, help=about)

    async def search(self, query: str) -> Hits:
        for hit in word_search.search(query, self.app.get_system_commands(self.screen), _texts):
            command = hit.item
            line = with_marks(Content(command.title), hit)
            yield Hit(1 / (1 + hit.rank), line, command.callback, command.title, command.help)


def _texts(command: SystemCommand) -> tuple[Place, ...]:
    return place(command.title), place(command.help, 1, False, "help")
