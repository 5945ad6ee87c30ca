"""What the report of a proof is made of: tables, cells, figures, the rows of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("samples_per_second", "samples/s", lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.3g}"),
    ("step_ms", "ms/step", lambda v: f"{v:.3g}" if v < 100 else f"{v:.0f}"),
    ("input_wait", "input wait", lambda v: f"{100 * v:.0f} %"),
    ("peak_memory_bytes", "peak memory", lambda v: f"{v / 2**20:,.1f} MiB"),
    ("gpu_busy_mean", "GPU busy", lambda v: f"{100 * v:.0f} %"),
)


def trials(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """A table of trials, the dead ones too; `names` are those of their sides."""
    figures = [row for row in FIGURES if any(trial.get(row[0]) is not None for trial in rows)]
    losses = any(trial.get("loss_at_samples") is not None for trial in rows)
    head = ["trial", "side", "repeat", *(label for _, label, _ in figures), *(["loss"] if losses else []), "outcome"]
    cells = [
        [
            trial["run"], names[trial["side"]], str(trial["repeat"]),
            *("-" if trial.get(key) is None else shown(trial[key]) for key, _, shown in figures),
            *([figure(trial.get("loss_at_samples"))] if losses else []),
            outcome(trial),
        ]
        for trial in rows
    ]
    return table(head, cells)


def outcome(trial: Mapping[str, Any]) -> str:
    """How it ended, with what; of a good one, what disturbed it."""
    more = trial.get("error") or trial.get("disturbed")
    return f"{trial['outcome']}: {more}" if more else str(trial["outcome"])


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def capital(text: str) -> str:
    """A sentence begins with a capital, unless it begins with the name of an option."""
    first = text.split(" ", 1)[0]
    return text if "=" in first else text[:1].upper() + text[1:]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


def cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
