"""Which closed screens stay built, and which one is opened in place of a new one, on a stack without an application."""

from __future__ import annotations

from typing import Any

from gputui.tui.upstream.kept_screens import Keepable, KeptScreens


class Fake(Keepable):
    """Stands in for a screen of a run; `source` is the screen whose readings it shows."""

    KEPT = 2

    def __init__(self, name: str, number: int = 1, source: Any = None) -> None:
        self.kept_as, self.number, self.source = name, number, source
        self.log: list[str] = []

    def __repr__(self) -> str:
        return f"{self.kept_as or 'none'}{self.number}"

    def opened_again(self, other: Any) -> None:
        self.log.append(f"as {other}")

    def remove(self) -> None:
        self.log.append("removed")

    def _pop_result_callback(self) -> None:
        self.log.append("taken out")


class Chart(Fake):
    """Another kind of screen."""

    KEPT = 1


class Stack:
    """Stands in for the application and its stack of screens."""

    def __init__(self) -> None:
        self._screen_stack: list[Any] = [Fake("")]
        self.installed: dict[str, Any] = {}

    @property
    def screen_stack(self) -> list[Any]:
        return list(self._screen_stack)

    @property
    def screen(self) -> Any:
        return self._screen_stack[-1]

    def push_screen(self, screen: Any) -> None:
        self._screen_stack.append(screen)

    def switch_screen(self, screen: Any) -> None:
        self._screen_stack[-1] = screen

    def install_screen(self, screen: Any, name: str) -> None:
        self.installed[name] = screen

    def uninstall_screen(self, screen: Any) -> str | None:
        names = [name for name, one in self.installed.items() if one is screen]
        if screen in self._screen_stack or not names:
            return None
        del self.installed[names[0]]
        return names[0]

    def close(self) -> None:
        self._screen_stack.pop()


def made() -> tuple[Stack, Any]:
    stack: Any = Stack()
    return stack, KeptScreens(stack)


def test_a_kept_screen_is_opened_as_it_was_left_over_the_others() -> None:
    stack, kept = made()
    first, other = Fake("a"), Fake("b")
    for screen in (first, other):
        kept.open(screen, False)
    assert str(stack.screen_stack) == "[none1, a1, b1]"
    kept.open(Fake("b", 2), False)
    assert (str(stack.screen_stack), other.log) == ("[none1, a1, b1]", ["as b2"]), "it is in front"
    kept.open(Fake("a", 2), False)
    assert (str(stack.screen_stack), first.log) == ("[none1, b1, a1]", ["as a2", "taken out"])
    stack.close()
    kept.open(Fake("a", 3), True)
    assert str(stack.screen_stack) == "[none1, a1]", "in place of the one in front"
    assert first.log[2:] == ["as a3"]
    kept.open(Chart("a"), False)
    assert str(stack.screen_stack) == "[none1, a1, a1]", "one of another class"
    kept.open(Fake("", 5), False)
    kept.open(Fake("", 6), True)
    assert str(stack.screen_stack) == "[none1, a1, a1, none6]"
    assert list(map(str, stack.installed.values())) == ["a1", "b1", "a1"], "without a name none is kept"


def test_a_screen_that_shows_the_readings_of_another_is_taken_out_with_it() -> None:
    stack, kept = made()
    first = Fake("a")
    chart = Chart("c", source=first)
    for screen in (first, chart, Fake("b")):
        kept.open(screen, False)
    kept.open(Fake("a", 2), False)
    assert (str(stack.screen_stack), chart.log) == ("[none1, b1, a1]", ["taken out"])
    kept.open(Chart("c", 2, first), False)
    assert (str(stack.screen_stack), chart.log) == ("[none1, b1, a1, c1]", ["taken out", "as c2"])


def test_of_each_class_the_closed_screens_that_were_opened_longest_ago_are_removed() -> None:
    stack, kept = made()
    a, b, c, d = (Fake(name) for name in "abcd")
    chart = Chart("x", source=b)
    for screen in (a, b, chart):
        kept.open(screen, False)
        stack.close()
    kept.open(Fake("a", 2), False)
    stack.close()
    kept.open(c, False)
    assert [screen.log for screen in (a, b, chart)] == [["as a2"], ["removed"], ["removed"]], "and what shows it"
    assert list(map(str, stack.installed.values())) == ["a1", "c1"]
    kept.open(d, False)
    assert (a.log, c.log) == (["as a2", "removed"], []), "one that is open stays"
    kept.open(Fake("e"), False)
    assert (c.log, d.log) == ([], [])
    assert len(stack.installed) == 3
    kept.remove(c)
    assert c.log == [], "it is open"
    stack.close()
    stack.close()
    kept.remove(d)
    kept.remove(d)
    assert d.log == ["removed"]
    new = Fake("d", 2)
    kept.open(new, False)
    assert stack.screen is new, "a removed one is not opened again"
