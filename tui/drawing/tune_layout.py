"""How the screen of a search divides its rows: arithmetic on its size."""

from __future__ import annotations

from dataclasses import dataclass

from .layout import CHART_WIDTH, EDGES_HEIGHT, EDGES_WIDTH, TALL_CHART

LINES = 3  # what each option brought, memory and the running trial, in one line each
LEAST_TABLE = 6
CHARTS_FROM = 27  # rows from which on charts stand in place of the lines
CHARTS = 4  # throughput and loss of the trial, the memory, and what each option brought
OF_CHARTS = 0.6
HIGH = 45  # rows from which on there is room for two rows of charts in any case


@dataclass(frozen=True)
class SearchLayout:
    """Heights in rows; 0 hides a part."""

    head: int
    table: int
    detail: int
    lines: int
    charts: int
    chart_columns: int
    edges: bool = False


def share_out(width: int, height: int, head: int, candidates: int) -> SearchLayout:
    """The layout. `height` excludes header and footer, `head` are the rows of the head.

    Where rows are few, the charts go first, then the lines, then what is known of the picked candidate; the head and
    the candidates stay.
    """
    head = min(head, max(1, height - 4))
    left = height - head
    detail = 2 if left >= LEAST_TABLE + 2 else 0
    if height < CHARTS_FROM:
        lines = LINES if left >= LEAST_TABLE + 2 + LINES else 0
        return SearchLayout(head, left - detail - lines, detail, lines, 0, 0)
    columns = CHARTS if width >= CHARTS * (CHART_WIDTH + 2) and height < HIGH else CHARTS // 2
    rows = CHARTS // columns
    edges = width >= EDGES_WIDTH and height >= EDGES_HEIGHT
    detail = 3 if height < 2 * CHARTS_FROM else 5
    charts = min(rows * TALL_CHART, round((left - detail) * OF_CHARTS))
    spare = left - detail - charts - max(LEAST_TABLE, candidates + 2)  # rows that the table would leave blank
    charts = min(rows * TALL_CHART, charts + max(0, spare))
    return SearchLayout(head, left - detail - charts, detail, 0, charts, columns, edges)
