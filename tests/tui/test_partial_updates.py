"""Partial updates give the picture that Textual's own updates give, in far fewer bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.proof.proofs import ProofsScreen
from gputui.tui.upstream import partial_updates
from gputui.tui.upstream.partial_updates import ChangedCellsCompositor, ChangedCellsUpdate, Codes
from rich.cells import cell_len
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor

from tests.support import recorded
from tests.support.tiny import Tiny, still, wait_for

TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\x08)|(\n)|([^\x1b\x08\n]+)")
PLAIN = Codes("", "", "")


@pytest.fixture(autouse=True)
def painted_when_looked_at() -> None:
    """What is painted for the terminal is what these tests are about."""


class Screen:
    """What a terminal shows that was sent escape sequences; what it does not know is an error."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, Codes]] = {}
        self.x, self.y, self.look = 0, 0, PLAIN

    def send(self, text: str) -> None:
        at = 0
        while at < len(text):
            token = TOKEN.match(text, at)
            assert token, repr(text[at : at + 20])
            at = token.end()
            numbers, final, back, line, written = token.groups()
            if final:
                self._sequence(numbers, final)
            elif back:
                self.x -= 1
            elif not line:
                self._write(written)

    def _sequence(self, numbers: str, final: str) -> None:
        first = int(numbers.partition(";")[0] or 1) if final != "m" else 0
        if final == "H":
            self.y, self.x = (int(number) - 1 for number in numbers.split(";"))
        elif final == "m":
            self._colours([int(number or 0) for number in numbers.split(";")])
        else:
            dx, dy = {"A": (0, -1), "B": (0, 1), "C": (1, 0), "D": (-1, 0)}[final]
            self.x, self.y = self.x + dx * first, self.y + dy * first

    def _colours(self, codes: list[int]) -> None:
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.look = PLAIN
            elif code in (38, 48):
                taken = [codes.pop(0) for _ in range(4 if codes[0] == 2 else 2)]
                self._colour(code == 38, str(taken))
            elif 30 <= code <= 49 or 90 <= code <= 107:
                self._colour(code // 10 in (3, 9), "" if code in (39, 49) else str(code))
            else:
                self.look = self.look._replace(attributes=f"{self.look.attributes};{code}")

    def _colour(self, front: bool, colour: str) -> None:
        self.look = self.look._replace(**{"foreground" if front else "background": colour})

    def _write(self, text: str) -> None:
        for character in text:
            blank = character == " " and self.look.plain
            look = Codes("", "", self.look.background) if blank else self.look
            self.cells[self.x, self.y] = (character, look)
            self.x += cell_len(character)


async def test_they_give_the_picture_of_textual_in_a_third_of_the_bytes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails where the compositor of another Textual works differently, and the module has to follow."""
    ours, theirs, sent = Screen(), Screen(), [0, 0]
    console = Console(color_system="truecolor", force_terminal=True)
    render = ChangedCellsCompositor.render_partial_update

    def both(compositor: ChangedCellsCompositor) -> ChopsUpdate | None:
        """In tests there is no terminal to which Textual would write the update."""
        changed = compositor._dirty_regions.copy()
        textuals = Compositor.render_partial_update(compositor)
        compositor._dirty_regions = changed
        update = render(compositor)
        if update is None or textuals is None:
            assert update is textuals
            return None
        assert type(update) is ChangedCellsUpdate
        pair = update.render_segments(console), textuals.render_segments(console)
        for number, (screen, text) in enumerate(zip((ours, theirs), pair, strict=True)):
            screen.send(text)
            sent[number] += len(text.encode())
        for place in ours.cells:
            assert ours.cells[place] == theirs.cells[place], (place, pair)
        return update

    monkeypatch.setattr(ChangedCellsCompositor, "render_partial_update", both)
    # On a busy machine few of its readings are painted: it lasts until enough of them are.
    run = recorded.write(home, gpus=8, seconds=400, readings_a_second=5.0)
    async with Tiny(lambda: LiveScreen(run, 8.0)).run_test(size=(120, 40)) as pilot:
        assert type(pilot.app.screen._compositor) is ChangedCellsCompositor
        await wait_for(pilot, "samples/s")
        sent[:] = [0, 0]
        await wait_for(pilot, lambda: sent[1] > 30_000)
    assert len(ours.cells) > 400
    assert sent[0] < sent[1] / 3, sent


def test_looks_and_moves_are_written_in_the_shortest_way() -> None:
    red, bold, blue = Codes("", "31", "40"), Codes("1", "31", "40"), Codes("", "34", "40")
    colours, move = partial_updates._colours, partial_updates._move
    assert colours(None, red) == "\x1b[0;31;40m"
    assert colours(red, blue) == "\x1b[34m"
    assert colours(blue, Codes("", "", "")) == "\x1b[39;49m"
    assert colours(red, bold) == "\x1b[0;1;31;40m"
    assert move(None, 4, 9) == "\x1b[10;5H"
    assert move((4, 9), 4, 9) == ""
    assert move((6, 9), 4, 10) == "\x1b[B\b\b"
    assert move((4, 9), 40, 9) == "\x1b[36C"
    assert move((4, 9), 5, 7) == "\x1b[8;6H"
    assert not partial_updates._of_known_width("─")  # two cells wide where a terminal is set to Chinese
    assert partial_updates._of_known_width("⣿ 12%")


async def test_what_has_not_changed_is_not_sent_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the titles in the edges, with which Textual paints everything within them."""
    sent = []
    render = ChangedCellsCompositor.render_partial_update

    def counted(compositor: ChangedCellsCompositor) -> ChopsUpdate | None:
        update = render(compositor)
        sent.extend(update.spans if update is not None else [])
        return update

    monkeypatch.setattr(ChangedCellsCompositor, "render_partial_update", counted)
    run = recorded.write(home, gpus=8, seconds=60)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(120, 40)) as pilot:
        await still(pilot, "✓ done")
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)
        sent.clear()
        screen.show_now()
        await pilot.pause(0.2)
        assert sent == []


async def test_a_screen_is_not_painted_again_by_what_it_hides(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live view that is drawn below another screen costs no bytes."""
    painted = []
    render = Compositor.render_update

    def counted(compositor: Compositor, *given: Any, **more: Any) -> Any:
        painted.append(update := render(compositor, *given, **more))
        return update

    monkeypatch.setattr(Compositor, "render_update", counted)
    run = recorded.write(home, gpus=1, seconds=100)
    async with Tiny(lambda: LiveScreen(run, 4.0)).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "samples/s")
        live = pilot.app.screen
        await pilot.app.push_screen(ProofsScreen())
        await still(pilot, "no proofs so far")
        painted.clear()
        assert isinstance(live, LiveScreen)
        live.show_now()
        await pilot.pause(0.3)
        assert [update for update in painted if update is not None] == []
        await pilot.press("escape")
        await wait_for(pilot, "samples/s")
