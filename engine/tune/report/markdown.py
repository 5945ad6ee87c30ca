"""The sections about a search in the report of its proof: limits, leaderboard, options, memory, losses, all trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import figures
from ...proof.markdown import capital, cell, table, trials_table
from ...trials import sentences as proof_sentences
from ...trials.record import Record, search_of
from ...trials.search_record import Candidate
from ...units import NONE, amount, change, count, size, spread
from . import memory_sentences, sentences
from .findings import (
    PAIRS,
    WITHOUT_INPUT,
    brought,
    limits_of,
    memory_of,
    ranked,
    since_start,
)

_SPEED = figures.of_run("samples_per_second")


def sections(data: Record) -> Iterator[str]:
    """Yield the sections about a search, in the order of the report.

    If the search has only predicted memory, these are its limit, the memory and the trials.
    """
    if proof_sentences.only_predicts(data):
        if (most := limits_of(data).memory_bytes) is not None:
            yield f"Limits: memory at most {size(most)}."
        yield from _memory(data)
        yield from _trials(data, "Trials")
        return
    yield _limits(data)
    yield from _leaderboard(data)
    yield from _options(data)
    yield from _memory(data)
    yield from _learning(data)
    yield from _trials(data)


def _limits(data: Record) -> str:
    limits = limits_of(data)
    lines = [f"{limits.minutes:g} minutes", f"searched: {', '.join(limits.only)}"]
    if leave := limits.leave:
        lines.append(f"left as they are: {', '.join(leave)}")
    if (most := limits.largest_batch) is not None:
        lines.append(f"global batch at most {count(most)}")
    if (memory := limits.memory_bytes) is not None:
        lines.append(f"memory at most {size(memory)}")
    if precisions := limits.precisions:
        lines.append(f"precision: {', '.join(precisions)}")
    if avoided := limits.avoid_precisions:
        lines.append(f"precision: not {', '.join(avoided)}")
    lines.append(f"learning rate: {limits.learning_rate}")
    return f"Limits: {cell('; '.join(lines))}."


def _leaderboard(data: Record) -> Iterator[str]:
    candidates = ranked(data)
    if not candidates:
        return
    rows = [
        [
            str(place),
            _settings(candidate),
            _speed(candidate),
            change(since_start(candidate, data)),
            change(candidate.gain),
            spread(candidate.spread),
            size(candidate.peak_bytes),
            sentences.outcome(candidate, data) or "measured",
            ", ".join(trial.run for trial in candidate.trials) or NONE,
        ]
        for place, candidate in enumerate(candidates, 1)
    ]
    yield f"## Leaderboard\n\nThe best first; {sentences.about_gains(candidates)}."
    yield table(["", "settings", _SPEED.head, "vs. start", "vs. before", "spread", "memory", "outcome", "trials"], rows)
    if any(candidate.without_input and candidate.samples_per_second is not None for candidate in candidates):
        yield f"\\{WITHOUT_INPUT} {sentences.ABOUT_INPUT}."
    if ceiling := sentences.ceiling_in_words(data):
        yield f"{capital(ceiling)}."


def _settings(candidate: Candidate) -> str:
    settings = candidate.settings
    if candidate.stage == PAIRS:
        return sentences.title(candidate)
    return f"`{proof_sentences.changes(settings)}`" if settings else sentences.title(candidate)


def _speed(candidate: Candidate) -> str:
    speed = candidate.samples_per_second
    return NONE if speed is None else _SPEED.bare(speed) + (WITHOUT_INPUT if candidate.without_input else "")


def _options(data: Record) -> Iterator[str]:
    rows = [
        [
            option.name,
            change(option.gain) + (WITHOUT_INPUT if option.without_input else ""),
            spread(option.spread),
            option.state,
            f"`{proof_sentences.changes(option.settings)}`" if option.settings else "",
        ]
        for option in brought(data)
    ]
    if rows:
        yield "## What each option brought"
        yield table(["option", "vs. before", "spread", "", "settings"], rows)
        yield f"{capital(sentences.ABOUT_BROUGHT)}."


def _memory(data: Record) -> Iterator[str]:
    memory = memory_of(data)
    points = memory.points
    if not points:
        return
    yield f"## Memory\n\n{cell(capital(sentences.memory_in_words(data)))} ({sentences.kind_of_memory(memory)})."
    rows = [
        [
            count(point.batch_size),
            size(point.predicted_bytes),
            "out of memory" if point.peak_bytes is None else size(point.peak_bytes),
        ]
        for point in points
    ]
    yield table(["batch size", "predicted", "measured"], rows)
    if list(limits_of(data).only) == ["batch_size"] and (fitted := memory_sentences.fitted(data)):
        yield f"{capital(fitted)}."


def _learning(data: Record) -> Iterator[str]:
    checks = search_of(data).losses
    if not checks:
        return
    yield "## What is learnt\n\n" + "\n".join(f"- {cell(capital(line))}." for line in sentences.learning(data))
    rows = [
        [
            f"`{proof_sentences.changes(check.settings)}`",
            sentences.which_loss(check),
            amount(check.loss_a),
            amount(check.loss_b),
            amount(check.worse_from),
            check.decision,
        ]
        for check in checks
    ]
    yield table(["settings", "which", "the preset", "with them", "clearly worse above", ""], rows)


def _trials(data: Record, head: str = "Trials of the search") -> Iterator[str]:
    """Yield a table of all trials before the pairs, failed ones included."""
    rows = {trial.run: trial for trials in search_of(data).trials for trial in trials}
    if rows:
        names: Mapping[str, Any] = {"s": "search", "a": "the preset, for its loss", "b": "for its loss"}
        yield f"## {head}"
        yield trials_table([rows[run] for run in sorted(rows, key=lambda run: (len(run), run))], names)
