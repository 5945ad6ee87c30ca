"""Sequences that a slow line cuts: wherever it does, no letter and no digit comes of it."""

from __future__ import annotations

import random

import pytest
from gputui.tui.upstream.terminal_input import PIECE_SECONDS, TerminalInput
from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS, IGNORE_SEQUENCE
from textual._xterm_parser import XTermParser
from textual.message import Message

KEYS = [
    sequence
    for sequence, keys in ANSI_SEQUENCES_KEYS.items()
    if sequence[:2] in ("\x1b[", "\x1bO") and len(sequence) > 2 and keys is not IGNORE_SEQUENCE
]
MOUSE = ["\x1b[<35;120;40M", "\x1b[<0;5;7m", "\x1b[<64;33;21M"]
UNKNOWN = ["\x1b[99z", "\x1b[?1;2c", "\x1b[>41;354;0c", "\x1b]11;rgb:1a1a/1b1b/1c1c\x1b\\", "\x1bP>|xterm(390)\x1b\\"]
SLOW = (0.0, 0.15, 0.6)  # seconds between the pieces


class Line:
    """A terminal at the other end of a line whose packets take their time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.parser = TerminalInput(clock=lambda: self.now)

    def send(self, *pieces: str, pause: float = 0.0) -> list[Message]:
        found: list[Message] = []
        for piece in pieces:
            found += self.parser.feed(piece)
            until = self.now + pause
            while self.now < until:
                self.now += 0.1
                found += self.parser.tick()
        self.now += PIECE_SECONDS + 0.1
        return found + list(self.parser.tick())


def told(found: list[Message]) -> list[str]:
    return [event.key if isinstance(event, events.Key) else type(event).__name__ for event in found]


@pytest.mark.parametrize("pause", SLOW)
def test_a_cut_sequence_is_that_key_or_none(pause: float) -> None:
    for sequence in KEYS + MOUSE:
        whole = [key for key in told(list(XTermParser().feed(sequence))) if key != "escape"]
        for at in range(1, len(sequence)):
            line = Line()
            found = told(line.send(sequence[:at], sequence[at:], pause=pause))
            assert [key for key in found if key != "escape"] == whole, (sequence, at)
            assert told(line.send("x")) == ["x"]


@pytest.mark.parametrize("pause", SLOW)
def test_what_no_key_has_is_left_out(pause: float) -> None:
    for sequence in UNKNOWN:
        for at in range(1, len(sequence)):
            line = Line()
            assert not [key for key in told(line.send(sequence[:at], sequence[at:], pause=pause)) if key != "escape"]
            assert told(line.send("x")) == ["x"]


def test_a_sequence_that_never_becomes_whole_is_left_out() -> None:
    for sequence in KEYS:
        for at in range(2, len(sequence)):
            line = Line()
            assert told(line.send(sequence[:at])) == [], sequence[:at]
            assert told(line.send("x")) == ["x"]


def test_escape_and_letters_by_hand() -> None:
    line = Line()
    assert told(line.send("\x1b", "r", pause=0.3)) == ["escape", "r"]
    assert told(line.send("\x1b\x1b[B")) == ["escape", "down"]
    assert told(line.send("\x1br")) == ["alt+r"]
    assert told(line.send("\x1b", "[", pause=0.3)) == ["escape", "left_square_bracket"]
    assert told(line.send("añ中\r")) == ["a", "ñ", "中", "enter"]


@pytest.mark.parametrize("seed", range(20))
def test_a_paste_is_one_text_however_it_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    text = "train\nr s [A dd\x1b[3~ 201~ 256\n"
    sent, pieces = f"\x1b[200~{text}\x1b[201~", []
    while sent:
        at = chance.randrange(1, 9)
        pieces.append(sent[:at])
        sent = sent[at:]
    line = Line()
    # The first cut is within reach of the sequence that opens the paste; longer pauses come later.
    found = line.send(*pieces, pause=chance.choice((0.0, 0.15)))
    pasted = [event.text for event in found if isinstance(event, events.Paste)]
    assert pasted == [text.replace("\x1b", "")]
    assert [key for key in told(found) if key not in ("escape", "Paste")] == []
    assert told(line.send("x", "\x1b[B")) == ["x", "down"]


def test_a_paste_without_an_end_does_not_swallow_what_is_typed() -> None:
    line = Line()
    assert told(line.send("\x1b[200~train")) == ["Paste"]
    assert told(line.send("x")) == ["x"]
