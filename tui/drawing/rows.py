"""A line of the screen (`Row`) as pieces of text (`Piece`) with names of styles, independent of colours. Panels are
functions that return rows, and are tested as such."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable

from rich.cells import cell_len, set_cell_size

from ...engine.text_table import Table
from ..base.glyphs import Glyphs

Piece = tuple[str, str]
Row = list[Piece]
_PATH = re.compile(r"(?<![^\s(])/[^\s:;,()'\"]+")
_PYTHON_OF_ENVIRONMENT = re.compile(r"(.*[^/]+/[^/]+)/bin/python[\d.]*")
_COMMON_ENVIRONMENTS = ("env", "venv", ".venv")  # names that say nothing: people give them to each project's


def length(row: Iterable[Piece]) -> int:
    return sum([cells(text) for text, _ in row])


def cells(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fit(row: Iterable[Piece], width: int) -> Row:
    """Return the row, cropped or padded with blanks to exactly `width` cells."""
    left = width
    fitted: Row = []
    for text, style in row:
        if left <= 0:
            break
        wide = len(text) if text.isascii() else cell_len(text)
        if wide > left:
            text, wide = set_cell_size(text, left), left
        fitted.append((text, style))
        left -= wide
    if left > 0:
        fitted.append((" " * left, ""))
    return fitted


def fitting(text: str, width: int, glyphs: Glyphs) -> str:
    """Return the text, shortened to `width` characters with a mark at its end if it is longer."""
    return text if len(text) <= width else text[: max(0, width - len(glyphs.more))] + glyphs.more


def whole_words(text: str, width: int, glyphs: Glyphs) -> str:
    """Return the text, cut after a whole word with a mark if it is too long; empty if not even one word fits."""
    if len(text) <= width:
        return text
    kept = text[: max(0, width - len(glyphs.more))].rpartition(" ")[0].rstrip(" ,;:")
    return f"{kept} {glyphs.more}" if kept else ""


def wrapped(text: str, width: int, glyphs: Glyphs, most: int = 2) -> list[str]:
    """Return the text in lines of whole words within `width` (at least 10); a mark ends a cut text."""
    width = max(10, width)
    lines = textwrap.wrap(text.replace("\n", " "), width)
    if len(lines) <= most:
        return lines
    rest = " ".join(lines[most - 1 :])
    return [*lines[: most - 1], whole_words(rest, width, glyphs) or fitting(rest, width, glyphs)]


def hanging(lines: Iterable[str], style: str, lead: Row) -> list[Row]:
    """Return a row for each line: the first after `lead`, the others after as many blanks in the style of its begin."""
    blanks: Row = [(" " * length(lead), lead[0][1])]
    return [[*(blanks if at else lead), (line, style)] for at, line in enumerate(lines)]


def with_short_paths(sentence: str, width: int) -> str:
    """Return the sentence, if it is too wide with paths without their first folders and a final bin/python."""

    def short(path: re.Match[str]) -> str:
        environment = _PYTHON_OF_ENVIRONMENT.fullmatch(path[0])
        folders = (environment[1] if environment else path[0]).split("/")
        kept = folders[-2 if folders[-1] in _COMMON_ENVIRONMENTS else -1 :]
        return "/".join(("...", *kept)) if len(kept) + 2 < len(folders) else path[0]

    return sentence if cell_len(sentence) <= width else _PATH.sub(short, sentence)


def spread(left: Row, right: Row, width: int) -> Row:
    """Return a row with its parts at both edges. If they do not fit, `left` is cropped."""
    room = max(0, width - length(right))
    return fit([*fit(left, room), *right], width)


def headline(left: Row, right: Row, width: int, rule: str) -> Row:
    """Return a panel's first row: `left`, a line of `rule`, `right`. Without room, `left` is cropped first."""
    room = width - length(left) - length(right) - 2
    if room < 1:
        return spread(left, right, width)
    return [*left, (f" {rule * room} ", "track"), *right]


def edged(rows: list[Row], width: int, glyphs: Glyphs) -> list[Row]:
    """Return the rows with an edge, two cells wider and one row higher; the first, a headline, is in the upper edge."""
    left, right, lower_left, lower_right = (glyphs.corners[at] for at in range(4))
    upper = _with_room(fit(rows[0], width), glyphs.rule)
    side = (glyphs.axis, "edge")
    return [
        [(left, "edge"), *upper, (right, "edge")],
        *([side, *fit(row, width), side] for row in rows[1:]),
        [(lower_left + glyphs.rule * width + lower_right, "edge")],
    ]


def _with_room(row: Row, rule: str) -> Row:
    """A headline with a blank at both ends, for which its line or its longest gap is shortened; else unchanged."""
    if row and row[0][0].startswith(" ") and row[-1][0].endswith(" "):
        return row
    gaps = [(len(text), at) for at, (text, _) in enumerate(row) if not text.strip(f"{rule} ")]
    if not gaps or max(gaps)[0] < 4:
        return row
    at = max(gaps)[1]
    gap = f" {rule * (len(row[at][0]) - 4)} " if at < len(row) - 1 else f" {rule * (len(row[at][0]) - 3)}"
    return [(" ", ""), *row[:at], (gap, "edge"), *row[at + 1 :], (" ", "")]


def kept_items(items: list[Row], width: int) -> list[Row]:
    """Return the first items that fit whole: a part of a figure would read as another figure."""
    kept, room = [], width
    for item in items:
        room -= length(item)
        if room < 0:
            break
        kept.append(item)
    return kept


def plain(row: Iterable[Piece]) -> str:
    return "".join(text for text, _ in row)


NEAR = 4  # unchanged cells that are sent between two changes, as moving the cursor costs more


def differences(old: Row, new: Row) -> list[tuple[int, int]]:
    """Return the spans (start, width) in which two rows differ, joined over at most NEAR equal cells. If lengths
    differ, or a character is not one cell wide, one span covers all."""
    if old == new:
        return []
    same = _same(old, new)
    rest = _same(old[:same:-1], new[:same:-1])  # at the end, but for the first piece that differs
    before, after = _cells(old[same : len(old) - rest]), _cells(new[same : len(new) - rest])
    if before is None or after is None or len(before) != len(after):
        return [(0, max(length(old), length(new)))]
    spans: list[tuple[int, int]] = []
    for at, (was, now) in enumerate(zip(before, after, strict=True), length(old[:same])):
        if was == now:
            continue
        if spans and at - sum(spans[-1]) <= NEAR:
            spans[-1] = (spans[-1][0], at + 1 - spans[-1][0])
        else:
            spans.append((at, 1))
    return spans


def _same(old: Row, new: Row) -> int:
    changed = (at for at, (was, now) in enumerate(zip(old, new, strict=False)) if was != now)
    return next(changed, min(len(old), len(new)))


def _cells(row: Row) -> list[Piece] | None:
    cells = [(char, style) for text, style in row for char in text]
    return cells if len(cells) == length(row) else None


# ---- large digits ---------------------------------------------------------------------------------


_TALL = {
    "0": ("╭─╮", "│ │", "╰─╯"), "1": ("╶╮ ", " │ ", "╶┴╴"), "2": ("╶─╮", "╭─╯", "╰─╴"),
    "3": ("╶─╮", " ─┤", "╶─╯"), "4": ("╷ ╷", "╰─┤", "  ╵"), "5": ("╭─╴", "╰─╮", "╶─╯"),
    "6": ("╭─╴", "├─╮", "╰─╯"), "7": ("╶─╮", "  │", "  ╵"), "8": ("╭─╮", "├─┤", "╰─╯"),
    "9": ("╭─╮", "╰─┤", "╶─╯"), ".": (" ", " ", "."), ",": (" ", " ", ","), "-": ("   ", "╶─╴", "   "),
    " ": ("   ", "   ", "   "), "→": ("   ", "──→", "   "),
}  # fmt: skip


def tall(text: str, glyphs: Glyphs) -> list[str]:
    """Return the text in three rows of equal width; as itself on a console without box characters."""
    if not glyphs.braille:
        return [text]
    letters = [_TALL.get(char, (" ", " ", char)) for char in text]
    return ["".join(letter[row] for letter in letters) for row in range(3)]


# ---- gauges ---------------------------------------------------------------------------------------


def gauge(
    width: int,
    used: float | None,
    total: float | None,
    glyphs: Glyphs,
    own: float | None = None,
    peak: float | None = None,
    *,
    why: str = "",
    style: str = "curve1",
) -> Row:
    """Return a bar for `used` of `total`, `own` being gputui's training, `peak` the highest; without a value, `why`."""
    if used is None or not total or width <= 0:
        text = (why, "warn") if why and len(why) <= width else ("?", "track")
        return [(text[0].center(max(0, width))[: max(0, width)], text[1])]
    used_cells = _gauge_cells(used, total, width)
    own_cells = min(used_cells, _gauge_cells(own or 0, total, width))
    pieces = [
        (glyphs.own, style, own_cells),
        (glyphs.used if own is not None else glyphs.own, style, used_cells - own_cells),
        (glyphs.free, "track", width - used_cells),
    ]
    cells = [(char, style) for char, style, count in pieces for _ in range(count)]
    if peak is not None:
        cells[max(0, _gauge_cells(peak, total, width) - 1)] = (glyphs.peak, "title")
    return joined(cells)


def _gauge_cells(part: float, total: float, width: int) -> int:
    return max(0, min(width, round(part / total * width)))


def joined(cells: Iterable[Piece]) -> Row:
    """Return the cells as a row, with one piece for neighbours of the same style."""
    row: Row = []
    for char, style in cells:
        if row and row[-1][1] == style:
            row[-1] = (row[-1][0] + char, style)
        else:
            row.append((char, style))
    return row


GAP = 2  # between two columns
_NARROWEST = 8  # of a column of texts, even if its words are longer
_WHOLE = 24  # characters of a word or a name that is not divided, such as steps_per_execution=16


class TableLayout:
    """The widths of a table's columns, without the gaps between them: `most` for its longest texts, `least` without
    loss: if a view `folds` texts, between words (not figures, pictures and short names)."""

    def __init__(self, table: Table, folds: bool) -> None:
        self._table = table
        columns = list(zip(table.head, *table.rows, strict=True))
        self.most = [max(map(cells, "\n".join(texts).split("\n"))) for texts in columns]
        self.least = list(self.most)
        for at, (most, texts) in enumerate(zip(self.most, columns, strict=True)):
            if at not in table.right and at not in table.drawn and not (at == 0 and most <= _WHOLE):
                longest = max(map(cells, " ".join(texts).split()), default=0)
                self.least[at] = min(_WHOLE, longest if folds else most)

    @staticmethod
    def total(widths: Collection[int]) -> int:
        return sum(widths) + GAP * (len(widths) - 1)

    def within(self, width: int) -> dict[int, int]:
        """Return the widths of the columns that are shown: without room the spare ones are left out, the last first.
        Room that is left is given to the texts that are folded most. If room is missing, the widest texts lose it."""
        widths, spare = dict(enumerate(self.least)), list(self._table.spare)
        while spare and self.total(widths.values()) > width:
            del widths[spare.pop()]
        texts = [at for at in widths if at not in self._table.right and at not in self._table.drawn]
        while self.total(widths.values()) < width and (folded := [at for at in texts if widths[at] < self.most[at]]):
            widths[max(folded, key=lambda at: self.most[at] / max(1, widths[at]))] += 1
        while self.total(widths.values()) > width and (wide := [at for at in texts if widths[at] > _NARROWEST]):
            widths[max(wide, key=lambda at: widths[at])] -= 1
        return widths
