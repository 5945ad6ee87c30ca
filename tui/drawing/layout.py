"""How the live view shares out the screen: pure arithmetic over its size and over what there is to show."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = 3
CHART_WIDTH, CHART_HEIGHT, TALL_CHART = 38, 6, 16
CARD_WIDTH, TALL_CARD = 38, 6
LOG_HEIGHT = 4
HOST_HEIGHT = 5


@dataclass(frozen=True)
class Layout:
    """Heights in rows; 0 hides. `cards` are the GPUs' (columns, height of one)."""

    messages: int
    summary: int
    charts: int
    chart_columns: int
    chart_rows: int
    devices: int
    cards: tuple[int, int]
    host: int
    log: int


@dataclass(frozen=True)
class Wanted:
    """What there is to show, in rows or counts."""

    charts: int
    gpus: int
    messages: int
    summary: int


def share_out(width: int, height: int, wanted: Wanted, zoom: str = "") -> Layout:
    """`height` is without the footer; `zoom` (charts, gpus, log or messages) gives one part all of the room."""
    room = max(0, height - HEAD)
    if zoom:
        return _zoomed(width, room, wanted, zoom)
    messages = min(wanted.messages, max(2, room // 5))
    summary = min(wanted.summary, max(0, room // 8))
    room -= messages + summary
    budget = max(3, round(room * 0.42))
    cards, devices, host = (1, 1), 0, min(12, max(HOST_HEIGHT, room // 4))
    if wanted.gpus:
        cards = arrange(width, budget - 1, wanted.gpus)
        devices = min(budget - 1, -(-wanted.gpus // cards[0]) * cards[1])
        host = 1
    left = room - devices - host
    columns, rows, charts = _charts(width, left - LOG_HEIGHT, wanted.charts)
    return Layout(messages, summary, charts, columns, rows, devices, cards, host, max(0, left - charts))


def arrange(width: int, height: int, count: int) -> tuple[int, int]:
    """Columns and height of one card: as tall as all of them fit, in as few columns as that needs."""
    most = max(1, width // CARD_WIDTH)
    for tall in range(TALL_CARD, 0, -1):
        for columns in range(1, most + 1):
            if -(-count // columns) * tall <= height:
                return columns, tall
    return most, 1


def _charts(width: int, height: int, count: int) -> tuple[int, int, int]:
    """Columns, rows and the height of all charts."""
    rows = max(1, min(height // CHART_HEIGHT, -(-count * CHART_WIDTH // max(1, width)), 3))
    columns = max(1, min(width // CHART_WIDTH, -(-count // rows)))
    tall = min(TALL_CHART, height // rows)
    return columns, rows, max(0, tall * rows) if tall >= 3 else 0


def _zoomed(width: int, room: int, wanted: Wanted, zoom: str) -> Layout:
    columns, rows, _ = _charts(width, room, wanted.charts)
    cards = arrange(width, room - 1, wanted.gpus) if wanted.gpus else (1, 1)
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
