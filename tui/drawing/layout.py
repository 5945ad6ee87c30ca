"""How the live view divides the screen: arithmetic on its size and on what there is to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .gpu_details import whole_height

HEAD = 3  # and one more with a verdict
CHART_WIDTH, CHART_HEIGHT, TALL_CHART = 38, 6, 16
CARD_WIDTH, TALL_CARD = 38, 6
WHOLE_WIDTH, LEAST_DETAIL = 56, 5
LOG_HEIGHT = 4
HOST_HEIGHT = 5


class Cards(NamedTuple):
    """The GPUs' cards: columns, and the height of one. `all_of_it`: with all figures; `detail`: rows for the selected
    GPU.
    """

    columns: int = 1
    tall: int = 1
    all_of_it: bool = False
    detail: int = 0


@dataclass(frozen=True)
class Layout:
    """Heights in rows; 0 hides a part."""

    messages: int
    summary: int
    charts: int
    chart_columns: int
    chart_rows: int
    devices: int
    cards: Cards
    host: int
    log: int


@dataclass(frozen=True)
class Wanted:
    """What there is to show, in rows or counts."""

    charts: int
    gpus: int
    messages: int
    summary: int
    head: int = HEAD


def share_out(width: int, height: int, wanted: Wanted, zoom: str = "") -> Layout:
    """The layout. `height` excludes the footer; `zoom` (charts, gpus, log or messages) gives one part all the space."""
    room = max(0, height - wanted.head)
    if zoom:
        return _zoomed(width, room, wanted, zoom)
    messages = min(wanted.messages, max(2, room // 5))
    summary = min(wanted.summary, max(0, room // 8))
    room -= messages + summary
    budget = max(3, round(room * 0.42))
    cards, devices, host = Cards(), 0, min(12, max(HOST_HEIGHT, room // 4))
    if wanted.gpus:
        cards = arrange(width, budget - 1, wanted.gpus)
        devices = min(budget - 1, -(-wanted.gpus // cards.columns) * cards.tall)
        host = 1
    left = room - devices - host
    columns, rows, charts = _charts(width, left - LOG_HEIGHT, wanted.charts)
    return Layout(messages, summary, charts, columns, rows, devices, cards, host, max(0, left - charts))


def arrange(width: int, height: int, count: int) -> Cards:
    """Cards as tall as all of them fit, in as few columns as that needs."""
    most = max(1, width // CARD_WIDTH)
    for tall in range(TALL_CARD, 0, -1):
        for columns in range(1, most + 1):
            if -(-count // columns) * tall <= height:
                return Cards(columns, tall)
    return Cards(most, 1)


def arrange_whole(width: int, height: int, count: int) -> Cards:
    """All figures of every GPU; where there is no room for that, those of the selected GPU below the cards of all."""
    for columns in range(1, max(1, width // WHOLE_WIDTH) + 1):
        tall = height // -(-count // columns)
        if tall >= whole_card(width // columns):
            return Cards(columns, tall, all_of_it=True)
    lines = -(-count // max(1, width // CARD_WIDTH))
    cards = arrange(width, max(lines, height - whole_card(width)), count)
    detail = height - -(-count // cards.columns) * cards.tall
    return cards._replace(detail=detail if detail >= LEAST_DETAIL else 0)


def whole_card(width: int) -> int:
    """The height of a card with all figures and two rows of history."""
    return 4 + whole_height(width - 1)


def _charts(width: int, height: int, count: int) -> tuple[int, int, int]:
    """Columns, rows and the height of all charts."""
    rows = max(1, min(height // CHART_HEIGHT, -(-count * CHART_WIDTH // max(1, width)), 3))
    columns = max(1, min(width // CHART_WIDTH, -(-count // rows)))
    tall = min(TALL_CHART, height // rows)
    return columns, rows, max(0, tall * rows) if tall >= 3 else 0


def _zoomed(width: int, room: int, wanted: Wanted, zoom: str) -> Layout:
    columns, rows, _ = _charts(width, room, wanted.charts)
    cards = arrange_whole(width, room - 1, wanted.gpus) if wanted.gpus else Cards()
    gpus = zoom == "gpus"
    return Layout(
        messages=room if zoom == "messages" else 0,
        summary=0,
        charts=room if zoom == "charts" else 0,
        chart_columns=columns,
        chart_rows=rows,
        devices=room - 1 if gpus and wanted.gpus else 0,
        cards=cards,
        host=(1 if wanted.gpus else room) if gpus else 0,
        log=room if zoom == "log" else 0,
    )
