"""Fixtures of the tests of the screens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen


@pytest.fixture(scope="session", autouse=True)
def css_parsed_once() -> Iterator[None]:
    """Each test opens an application of its own; what the same CSS and colours were parsed to is kept for all."""
    parsed: dict[str, dict[Any, list[RuleSet]]] = {}  # by the variables of the theme
    parse = Stylesheet._parse_rules

    def once(self: Stylesheet, *arguments: Any, **more: Any) -> list[RuleSet]:
        kept = self.__dict__.get("kept_for_all")
        if kept is None or kept[0] is not self._variables:
            kept = self.__dict__["kept_for_all"] = self._variables, parsed.setdefault(repr(self._variables), {})
        key = (arguments, *more.values())
        if key not in kept[1]:
            kept[1][key] = parse(self, *arguments, **more)
        return kept[1][key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", once)
        yield


@pytest.fixture(autouse=True)
def painted_when_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal Textual throws away what it has painted: it is painted where a test looks (`text_of`, `seen`).

    A file whose tests do not look, or look at what goes to the terminal, has a fixture of this name that does nothing.
    """
    paint = Compositor.render_update

    def paint_whole(self: Compositor, full: bool = False, screen_stack: list[Screen[Any]] | None = None,
                    simplify: bool = False) -> Any:  # fmt: skip
        if full:
            return paint(self, full, screen_stack, simplify)
        visible_screen_stack.set(screen_stack or [])
        self._dirty_regions.clear()
        return None

    monkeypatch.setattr(Compositor, "render_update", paint_whole)
