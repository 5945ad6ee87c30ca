"""Figures in words: amounts, shares, bytes and times at a width that stays the same. Unknown is a dash, never 0."""

from __future__ import annotations

NONE = "-"


def amount(value: float | None) -> str:
    """About three significant digits: 0.0123, 1.23, 123, 12,346."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f} %"


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def seconds(value: float | None) -> str:
    """4.2 s, 3:07, 2:05:09."""
    if value is None:
        return NONE
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def compiling(detail: str) -> str:
    """What the phase `compiling` does, by its detail."""
    what = {"evaluation": "the evaluation", "smaller batch": "for a smaller last batch"}.get(detail, "the first step")
    return f"compiling {what}"
