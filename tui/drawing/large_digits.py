"""Draws important figures three rows tall, or in one row on consoles without the characters for it."""

from __future__ import annotations

from ..base.glyphs import Glyphs

_TALL = {
    "0": ("╭─╮", "│ │", "╰─╯"),
    "1": ("╶╮ ", " │ ", "╶┴╴"),
    "2": ("╶─╮", "╭─╯", "╰─╴"),
    "3": ("╶─╮", " ─┤", "╶─╯"),
    "4": ("╷ ╷", "╰─┤", "  ╵"),
    "5": ("╭─╴", "╰─╮", "╶─╯"),
    "6": ("╭─╴", "├─╮", "╰─╯"),
    "7": ("╶─╮", "  │", "  ╵"),
    "8": ("╭─╮", "├─┤", "╰─╯"),
    "9": ("╭─╮", "╰─┤", "╶─╯"),
    ".": (" ", " ", "."),
    ",": (" ", " ", ","),
    "-": ("   ", "╶─╴", "   "),
    " ": ("   ", "   ", "   "),
    "→": ("   ", "──→", "   "),
}


def tall(text: str, glyphs: Glyphs) -> list[str]:
    """The text drawn in three rows of equal width; the text itself in one row if the console cannot show box
    characters.
    """
    if not glyphs.braille:
        return [text]
    letters = [_TALL.get(char, (" ", " ", char)) for char in text]
    return ["".join(letter[row] for letter in letters) for row in range(3)]
