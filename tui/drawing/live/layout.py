"""How the live view divides the screen: the heights of its parts for its size and the number of items to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..gpu_details import whole_card

HEAD = 3  # without the verdict
CHART_WIDTH, CHART_HEIGHT = 38, 6
WIDE_CHART, TALL_CHART, TALLEST_CHART = 60, 12, 30  # a chart is made wide if it stays tall
CARD_WIDTH, TALL_CARD = 38, 6
MOST_ROWS = 3  # of charts
WHOLE_WIDTH, LEAST_DETAIL = 56, 5
LOG_HEIGHT = 4
OF_LOG, LOG_GROWS_FROM = 0.25, 24  # the log gets this share of the rows beyond the second figure
LEAST_BESIDE_ERROR = 4  # rows that an error leaves for all other parts
LOG_BESIDE = 10  # the log has rows only if the charts keep this many
EDGES_WIDTH, EDGES_HEIGHT = 96, 30  # from this size on, panels have edges
HOST_FROM = 12  # the host is shown if there are at least this many rows
OF_GPUS = 0.42  # the most that the GPUs take of the rows


class Cards(NamedTuple):
    """The arrangement of the cards of the GPUs. A card is the part of the screen about one GPU. `columns` is the number
    of cards side by side, `tall` the height of a card in rows. `all_of_it` is True if the cards show all figures.
    `detail` is the number of rows with details of the selected GPU, below the cards."""

    columns: int = 1
    tall: int = 1
    all_of_it: bool = False
    detail: int = 0


@dataclass(frozen=True)
class Layout:
    """The height of each part of the live view in rows; 0 hides a part. With `edges`, parts have edges, which the
    heights include. `chart_columns` and `chart_rows` are the numbers of charts side by side and one below the other.
    `devices` is the height of all `cards`, and `host` that of the host's row or panel."""

    head: int
    messages: int
    summary: int
    charts: int
    chart_columns: int
    chart_rows: int
    devices: int
    cards: Cards
    host: int
    log: int
    edges: bool = False
    details: int = 0


@dataclass(frozen=True)
class Demand:
    """The number of charts and of GPUs, and for each other part the number of rows that it could use."""

    charts: int
    gpus: int
    messages: int
    summary: int
    head: int = HEAD
    error: int = 0  # of the messages: rows of the error that ended the run
    reason: bool = True  # without GPUs, the reason stands above the host's row
    trains: bool = True  # False: neither charts nor the phases before them, and the log gets their rows


def share_out(width: int, height: int, sizes: Demand, zoom: str = "") -> Layout:
    """Return the layout of `width` columns and `height` rows, without header and footer, for these `sizes`: numbers of
    items and rows. `zoom` gives one part all the room. If there are few rows, the log is left out first, then the
    edges, facts of the head, the summary and messages. Charts, GPUs and, if possible, the error stay."""
    head = min(sizes.head, max(1, height // 4))
    room = max(0, height - head)
    edges = width >= EDGES_WIDTH and height >= EDGES_HEIGHT
    if zoom:
        return _zoomed(width, room, sizes, zoom, head, edges)
    whole_error = min(sizes.error, room - LEAST_BESIDE_ERROR)
    messages = min(sizes.messages, max(1, -(-room // 5), whole_error))
    summary = min(sizes.summary, max(0, room // 8))
    room -= messages
    host = (1 + (sizes.reason and not sizes.gpus)) if room >= HOST_FROM else 0
    if room - summary - host < _least_devices(width, sizes.gpus) + CHART_HEIGHT:
        summary = 0
    room -= summary
    cards, devices = _devices(width, room, sizes.gpus, edges)
    left = room - devices - host
    spare = left - LOG_HEIGHT - round(OF_LOG * max(0, left - LOG_GROWS_FROM)) - 2 * edges
    log = spare + 2 * edges >= LOG_BESIDE or not sizes.trains
    columns, rows, charts = _charts(width, spare if log else left, sizes.charts, edges) if sizes.trains else (1, 1, 0)
    if not log:  # nothing else takes what the charts leave
        charts = left if charts else 0
    return Layout(
        head, messages, summary, charts, columns, rows, devices, cards, host, left - charts if log else 0, edges
    )


def _least_devices(width: int, count: int) -> int:
    return -(-count // max(1, width // CARD_WIDTH))


def _devices(width: int, room: int, count: int, edges: bool) -> tuple[Cards, int]:
    if not count:
        return Cards(), 0
    around = 2 * edges
    least = min(_least_devices(width, count), room - CHART_HEIGHT - 1)
    budget = max(2, round(room * OF_GPUS) - 1, least + around)
    cards = arrange(width - around, max(1, budget - around), count)
    return cards, min(budget, -(-count // cards.columns) * cards.tall + around)


def arrange(width: int, height: int, count: int) -> Cards:
    """Return the tallest cards that fit in as few columns as possible; at last one row each in many columns."""
    most = max(1, width // CARD_WIDTH)
    for tall in range(TALL_CARD, 0, -1):
        for columns in range(1, most + 1):
            if -(-count // columns) * tall <= height:
                return Cards(columns, tall)
    return Cards(most, 1)


def arrange_whole(width: int, height: int, count: int) -> Cards:
    """Return cards with all figures, else small ones above the selected GPU's, if LEAST_DETAIL rows are left."""
    for columns in range(1, max(1, width // WHOLE_WIDTH) + 1):
        tall = height // -(-count // columns)
        if tall >= whole_card(width // columns):
            return Cards(columns, tall, all_of_it=True)
    lines = -(-count // max(1, width // CARD_WIDTH))
    cards = arrange(width, max(lines, height - whole_card(width)), count)
    detail = height - -(-count // cards.columns) * cards.tall
    return cards._replace(detail=detail if detail >= LEAST_DETAIL else 0)


def _charts(width: int, height: int, count: int, edges: bool = False) -> tuple[int, int, int]:
    least = CHART_HEIGHT + edges
    rows = max(1, min(height // least, -(-count * CHART_WIDTH // max(1, width)), MOST_ROWS))
    while rows < MOST_ROWS and height // (rows + 1) >= TALL_CHART and -(-count // rows) > max(1, width // WIDE_CHART):
        rows += 1
    columns = max(1, min(width // CHART_WIDTH, -(-count // rows)))
    tall = min(TALLEST_CHART, height // rows)
    return columns, rows, max(0, tall * rows) if tall >= 3 else 0


def _zoomed(width: int, room: int, sizes: Demand, zoom: str, head: int, edges: bool) -> Layout:
    columns, rows, _ = _charts(width, room, sizes.charts, edges)
    charts, log, details = (room if zoom == part else 0 for part in ("charts", "log", "details"))
    return Layout(head, 0, 0, charts, columns, rows, 0, Cards(), 0, log, edges, details)
