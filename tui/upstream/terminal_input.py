"""Splits the terminal's input into keys, so that a key sequence that arrives in pieces is never taken for letters. A
slow line splits the sequence of an arrow key or of the mouse anywhere. Textual (8.2) waits a tenth of a second for the
rest and then takes the pieces for letters and digits, which are commands here. This parser passes only complete
sequences on to Textual's. It waits for pieces, and drops sequences that are never completed or that belong to no key. A
paste is text up to its end. Waits for a parser of Textual that keeps incomplete sequences."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from textual import events
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers import linux_driver
from textual.message import Message

ESC = "\x1b"
PASTE, PASTE_END = f"{ESC}[200~", f"{ESC}[201~"
PIECE_SECONDS = 1.0  # the rest of a sequence arrives within this time
# A sequence with its final byte, the reply of a terminal with its end, or alt with a key.
WHOLE = re.compile(
    r"\x1b(\[(\d+\$|\[?[0-?]*[ -/]*[@-Z\\-~])|O[ -~]|[\]PX^_][^\x07\x1b]*(\x07|\x1b\\)|[^\[O\]PX^_\x1b])", re.DOTALL
)
REPLY = re.compile(r"\x1b[\]PX^_]")
# The rest of a sequence whose Escape was already taken for the key; its first character may also be a key.
REST = re.compile(r"\[[0-?A-Za-z~[]|O[A-Za-z]|\][0-9]|P[>0-9]")
FIRST = ("[", "O", "]", "P")


class TerminalInput(XTermParser):
    """Textual's parser, except that it gets only complete sequences. `clock` returns the time in seconds."""

    def __init__(self, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(debug)
        self._clock = clock
        self._piece, self._since = "", 0.0
        self._pasted: str | None = None
        self._escaped = -PIECE_SECONDS
        self._doubtful = False  # the piece may be a key pressed after Escape

    def feed(self, data: str) -> Iterator[Message]:
        if not data:
            yield from super().feed(data)
            return
        now, text = self._clock(), self._piece + data
        if not self._piece or self._pasted is not None:
            self._since = now
        self._doubtful = now - self._escaped < PIECE_SECONDS and text in FIRST
        if self._doubtful or (now - self._escaped < PIECE_SECONDS and REST.match(text)):
            text = ESC + text
        self._escaped = -PIECE_SECONDS
        self._piece = ""
        while text:
            messages, text = self._cut(text)
            yield from messages

    def tick(self) -> Iterator[Message]:
        """Yield the events of incomplete sequences that waited too long. Called about ten times a second."""
        now = self._clock()
        waited = now - self._since
        if self._pasted is not None:
            if waited >= PIECE_SECONDS:
                yield self._end_paste()
        elif self._piece == ESC:
            if waited >= ESCAPE_DELAY:
                self._piece, self._escaped = "", now
                yield events.Key("escape", ESC)
        elif self._doubtful and waited >= ESCAPE_DELAY:
            piece, self._piece, self._doubtful = self._piece, "", False
            yield from super().feed(piece[1:])
        elif waited >= PIECE_SECONDS:
            self._piece = ""

    def _cut(self, text: str) -> tuple[list[Message], str]:
        """Return the events for the beginning of the text, and the rest. An incomplete sequence is kept."""
        if self._pasted is not None:
            return self._paste(text)
        plain, escape, rest = text.partition(ESC)
        if plain:
            return list(super().feed(plain)), escape + rest
        if text.startswith(ESC + ESC):
            return [events.Key("escape", ESC)], text[1:]
        whole = WHOLE.match(text)
        if whole is None:
            self._piece = text
            return [], ""
        sequence, rest = whole.group(), text[whole.end() :]
        if sequence == PASTE:
            self._pasted = ""
            return [], rest
        return ([] if REPLY.match(sequence) else self._events_of(sequence)), rest

    def _events_of(self, sequence: str) -> list[Message]:
        # Textual's parser is reset if it waits for more characters after an unknown sequence.
        messages = list(super().feed(sequence))
        if self._awaiting.timeout is not None:
            self._gen = self.parse(self._tokens.append)
            self._awaiting, self._timeout_time = next(self._gen), None
            if len(sequence) == 2:
                messages += self._sequence_to_key_events(sequence[1], alt=True)
        return messages

    def _paste(self, text: str) -> tuple[list[Message], str]:
        # Until the end of the paste has arrived, no event, and the text is kept.
        held = (self._pasted or "") + text
        pasted, end, rest = held.partition(PASTE_END)
        self._pasted = pasted
        return ([self._end_paste()], rest) if end else ([], "")

    def _end_paste(self) -> Message:
        text, self._pasted = self._pasted or "", None
        return events.Paste(text.replace("\x00", "").replace(ESC, ""))


class TerminalDriver(linux_driver.LinuxDriver):
    def run_input_thread(self) -> None:
        vars(linux_driver)["XTermParser"] = TerminalInput
        super().run_input_thread()
