"""The help: the keys that work now on the screen below, and the meaning of its marks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from ..base import keys
from ..base.errors import clean
from .dialogs import Dialog

# A section of the help of several screens.
LOSS = (
    "Loss and metrics",
    (
        ("running run", "mean of the current epoch so far"),
        ("ended run", "mean of the last complete epoch"),
        ("train", "in charts: mean of the steps since the last reading"),
        ("EMA 0.9", "in charts: exponential moving average, earlier readings weigh 0.9"),
    ),
)
QUEUE = (
    "Runs in the queue",
    (
        ("waiting", "starts in its turn, when its devices are free; the reason says what is in the way"),
        ("held", "is not started until it is released: held by you, or after three quick failures of its preset"),
        ("starting", "its turn has come: its engine is being started"),
    ),
)
NOT_OFFERED = ("not offered", "this GPU or its driver does not have the figure")
ACTING, REST = "Here", "Focus and selected text"
OF_TEXTUAL = {
    "app.focus_next": "the next part of the screen",
    "app.focus_previous": "the part of the screen before",
    "screen.copy_text": "copy the text that is selected with the mouse",
}
WIDTH, BESIDE = 80, 7  # columns of the page, and of its edges with the scrollbar
KEYS_WIDTH, LEAST_WIDTH, INDENT = 15, 16, 4


class HelpPage(VerticalScroll):
    BINDINGS = keys.scrolls()


class HelpScreen(Dialog[None]):
    """Shows the help for the screen `below`: its keys and marks. The keys that open the help also close it."""

    DEFAULT_CSS = """
    HelpPage { width: 80; max-width: 96%; height: auto; max-height: 90%; border: round $border;
               background: $panel; padding: 0 2; scrollbar-size-vertical: 1; }
    """
    BINDINGS = [
        *keys.back("dismiss"),
        keys.bind("help", "dismiss", "Close"),
        keys.bind("open", "dismiss", "Close", meaning="close the help"),
        keys.bind("page_on", "page(1)", meaning="scroll the help"),
        keys.bind("page_back", "page(-1)", meaning="scroll the help back"),
    ]

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        self.below = below

    def compose(self) -> ComposeResult:
        with HelpPage():
            yield Static(markup=False)

    def on_resize(self) -> None:
        page = self.query_one(HelpPage)
        width = min(WIDTH, self.app.size.width * 96 // 100)
        page.styles.width = width
        self.query_one(Static).update(self._text(max(LEAST_WIDTH, width - BESIDE)))

    def action_page(self, by: int) -> None:
        page = self.query_one(HelpPage)
        page.scroll_relative(y=by * max(1, page.size.height - 2), animate=False, immediate=True)

    def _text(self, width: int) -> Content:
        groups = working(self.below)
        here = [(ACTING, groups.pop(ACTING))] if ACTING in groups else []
        sections = (*here, *getattr(self.below, "HELP_SECTIONS", ()), *groups.items())
        return Content("\n\n").join(
            Content("\n").join(
                [Content.styled(title, "bold $text-primary"), *(_line(keys, text, width) for keys, text in lines)]
            )
            for title, lines in sections
        )


class ListScreen(HelpScreen):
    """Shows lines of text under a title, in the same box as the help."""

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__(Screen())
        self._title, self._lines = title, tuple(lines)

    def _text(self, width: int) -> Content:
        wrapped = ["\n".join(textwrap.wrap(clean(line), width, subsequent_indent="  ")) for line in self._lines]
        return Content("\n").join([Content.styled(self._title, "bold $text-primary"), *map(Content, wrapped)])


def working(screen: Screen[Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the keys that work on the screen now, by group: for each action their names and meaning."""
    groups: dict[str, dict[str, tuple[list[str], str]]] = {}
    for key, active in screen.active_bindings.items():
        binding = active.binding
        if not active.enabled or not binding.description or binding.system:
            continue
        if len(key) == 1 and screen.check_consume_key(key, key):
            continue  # the screen takes it as text
        if key == "super+c":
            continue  # no terminal sends it by default
        verb = keys.VERBS.get(binding.id or "")
        group = REST if verb is None else ACTING if verb.group == "Actions" else verb.group
        meaning = OF_TEXTUAL.get(binding.action) or binding.tooltip or binding.description
        listed = groups.setdefault(group, {}).setdefault(
            f"{binding.action.partition('(')[0]} {meaning}", ([], meaning)
        )[0]
        if (name := keys.shown(key)) not in listed:
            listed.append(name)
    order = [ACTING, *(group for group in keys.GROUPS if group in groups), REST]
    return {
        group: [(", ".join(names), meaning) for names, meaning in groups[group].values()]
        for group in order
        if group in groups
    }


def _line(names: str, text: str, width: int) -> Content:
    # Wrapped at the right of the keys or, if there is too little room, below them.
    begin = max(min(KEYS_WIDTH, width // 3), len(names) + 1)
    beside = width - begin >= LEAST_WIDTH
    begin = begin if beside else INDENT
    wrapped = textwrap.wrap(text, max(INDENT, width - begin), break_on_hyphens=False) or [""]
    lead = names.ljust(begin) if beside else f"{names}\n{' ' * begin}"
    return Content.assemble((lead, "bold $text-primary"), ("\n" + " " * begin).join(wrapped))
