"""Writes partial updates of the screen in few bytes, for views that change constantly over a slow line. Textual (8.2)
sends every changed line from the left edge of its widget on, and repeats the colours with each piece. This sends only
the changed cells, each colour once per update, and moves the cursor in the shortest way: less than a tenth of the
bytes. Only the widgets in these cells render their lines. Waits for a compositor that does so. It relies on private
parts of Textual, all in textual/_compositor.py and textual/strip.py: - `Screen._compositor` is the compositor of a
screen, and is used for nothing before the screen is composed; - `Compositor.render_partial_update` returns a
`ChopsUpdate` or None, and nothing else calls for partial updates; the application writes what the
`render_segments(console)` of the update returns; - `Compositor._dirty_regions` are the regions that have changed, and
`_regions_to_spans` makes spans of them, in order (line, first column, column after the last); -
`Compositor.visible_widgets` has each widget with its region and the visible part of it, the widget in front first; -
`Strip.render_ansi(style, color_system)` gives attributes, foreground and background, in this order. If Textual changes
one of the first two, updates are larger and still right. If it changes the others, the live view and the screen of GPUs
show a wrong picture until the next full update, or end with an error. `tests/tui/test_painting.py` compares with the
output of Rich itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.screen import Screen
from textual.strip import Strip

_PLAIN = Style()
_SEEN_IN_BLANKS = {"4", "7", "9", "21", "53"}  # underlined, reversed, struck out, doubly underlined, overlined
Span = tuple[int, int, int]  # a line, a column, and the column after the last


class Codes(NamedTuple):
    """The look of cells as codes of SGR (a control sequence): attributes, foreground and background. Each text may be
    empty."""

    attributes: str
    foreground: str
    background: str

    @property
    def plain(self) -> bool:
        """True if a blank with these attributes looks the same in every foreground colour."""
        return _SEEN_IN_BLANKS.isdisjoint(self.attributes.split(";"))


class Piece(NamedTuple):
    """Neighbouring changed cells of a line with the same look. The look of blanks is only their background."""

    x: int
    y: int
    text: str
    end: int
    look: Codes

    @property
    def blank(self) -> bool:
        return self.look.plain and self.text.isspace()


class Shown(NamedTuple):
    """Changed cells of the line `y`, from the column `x` up to the column before `end`, and the strip that is visible
    there. `start` is the column at which the strip begins."""

    y: int
    x: int
    end: int
    strip: Strip
    start: int


def send_changed_cells(screen: Screen[Any]) -> None:
    """Make a screen send only changed cells in its partial updates. To be called before the screen is composed."""
    screen._compositor = ChangedCellsCompositor()


class ChangedCellsCompositor(Compositor):
    """Textual's compositor, except that its partial updates contain only changed cells."""

    def render_partial_update(self) -> ChopsUpdate | None:
        spans = list(self._regions_to_spans(self._dirty_regions))
        self._dirty_regions.clear()
        return ChangedCellsUpdate(spans, sorted(self._in_front(spans)), self.size.width) if spans else None

    def _in_front(self, spans: Iterable[Span]) -> Iterator[Shown]:
        """Yield the visible cells of the spans, the front widget first; each widget renders its lines at this
        moment."""
        left: dict[int, list[Span]] = {}
        for span in spans:
            left.setdefault(span[0], []).append(span)
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            begin, end = seen.column_span
            lines = [y for y in seen.line_range if any(x < end and after > begin for _, x, after in left.get(y, ()))]
            if not lines:
                continue
            strips = widget.render_lines(seen.translate(-region.offset))
            for y in lines:
                strip = strips[y - seen.y]
                yield from (
                    Shown(y, max(x, begin), min(after, end), strip, begin)
                    for _, x, after in left[y]
                    if x < end and after > begin
                )
                left[y] = list(_outside(left[y], begin, end))


def _outside(spans: Iterable[Span], begin: int, end: int) -> Iterator[Span]:
    for y, x, after in spans:
        if x < min(after, begin):
            yield y, x, min(after, begin)
        if max(x, end) < after:
            yield y, max(x, end), after


class ChangedCellsUpdate(ChopsUpdate):
    """An update with the changed cells in the order of their looks. The cells do not overlap, so that each order gives
    the same screen."""

    def __init__(self, spans: list[Span], shown: list[Shown], width: int) -> None:
        super().__init__([], spans, [])
        self._shown, self._width = shown, width

    def render_segments(self, console: Console) -> str:
        groups: dict[Codes, list[Piece]] = {}
        blanks = []
        for piece in _joined(self._changed(console._color_system)):
            if piece.blank:
                blanks.append(piece)
            else:
                groups.setdefault(piece.look, []).append(piece)
        for piece in blanks:
            look = next((look for look in groups if look.plain and look.background == piece.look.background), None)
            groups.setdefault(look or piece.look, []).append(piece)
        return "".join(self._written(groups))

    def _written(self, groups: dict[Codes, list[Piece]]) -> Iterator[str]:
        before: Codes | None = None
        at: tuple[int, int] | None = None
        for look, pieces in groups.items():
            yield _colours(before, look)
            before = look
            for piece in sorted(pieces):
                yield _move(at, piece.x, piece.y)
                yield piece.text
                # At the right edge, and after a character that terminals draw in one or two cells, the cursor may
                # stand elsewhere.
                sure = piece.end < self._width and _of_known_width(piece.text)
                at = (piece.end, piece.y) if sure else None
        yield "\x1b[0m"

    def _changed(self, system: ColorSystem | None) -> Iterator[Piece]:
        for y, x, end, strip, start in self._shown:
            for segment, width in _within(strip, x - start, end - start):
                yield Piece(x, y, segment.text, x + width, _codes(segment.style or _PLAIN, system))
                x += width


def _within(strip: Strip, begin: int, end: int) -> Iterator[tuple[Segment, int]]:
    """Yield the segments of the strip in the cells from `begin` to before `end`, each with its width."""
    at = 0
    for segment in strip:
        width = segment.cell_length
        after = at + width
        if after > begin and segment.text:
            if at < begin:
                segment, width = segment.split_cells(begin - at)[1], after - begin
            if after > end:
                segment, width = segment.split_cells(width - (after - end))[0], width - (after - end)
            yield segment, width
        if after >= end:
            return
        at = after


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces, joined if both can be written in one look. A blank may have its neighbour's foreground."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and last.y == piece.y and last.end == piece.x and (look := _common(last, piece)):
            last = Piece(last.x, last.y, last.text + piece.text, piece.end, look)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _common(left: Piece, right: Piece) -> Codes | None:
    if left.look == right.look:
        return left.look
    if left.look.background != right.look.background:
        return None
    if right.blank and left.look.plain:
        return left.look
    return right.look if left.blank and right.look.plain else None


@lru_cache(4096)
def _codes(style: Style, system: ColorSystem | None) -> Codes:
    if system is None:
        return Codes("", "", "")
    whole = Strip.render_ansi(style, system)
    front, back = (
        ";".join(color.downgrade(system).get_ansi_codes(is_front)) if color else ""
        for color, is_front in ((style.color, True), (style.bgcolor, False))
    )
    colours = ";".join(filter(None, (front, back)))
    return Codes(whole[: len(whole) - len(colours)].rstrip(";"), front, back)


def _colours(before: Codes | None, now: Codes) -> str:
    """The sequence from the look `before` to `now`: only colours that differ if the attributes are equal, else all of
    it."""
    if before is None or before.attributes != now.attributes:
        codes = ["0", now.attributes, now.foreground, now.background]
    else:
        codes = [
            "" if now.foreground == before.foreground else now.foreground or "39",
            "" if now.background == before.background else now.background or "49",
        ]
    return f"\x1b[{';'.join(filter(None, codes))}m"


def _move(at: tuple[int, int] | None, x: int, y: int) -> str:
    absolute = f"\x1b[{y + 1};{x + 1}H"
    if at is None:
        return absolute
    across, down = x - at[0], y - at[1]
    relative = _steps(abs(down), "B" if down > 0 else "A")
    relative += "\b" * -across if -4 < across < 0 else _steps(abs(across), "C" if across > 0 else "D")
    return min(absolute, relative, key=len)


def _steps(count: int, direction: str) -> str:
    return "" if count == 0 else f"\x1b[{direction}" if count == 1 else f"\x1b[{count}{direction}"


@lru_cache(1024)
def _of_known_width(text: str) -> bool:
    return text.isascii() or all(east_asian_width(character) in ("N", "Na", "H") for character in text)
