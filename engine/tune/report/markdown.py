"""The sections about a search in the report of its proof: limits, leaderboard, options, memory, losses, all trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import figures
from ...files.values import mapping
from ...proof.markdown import capital, cell, table, trials_table
from ...trials import sentences as proof_sentences
from ...units import NONE, amount, change, count, size, spread
from . import memory_sentences, sentences
from .findings import (
    PAIRS,
    WITHOUT_INPUT,
    Told,
    brought,
    limits_of,
    listed,
    memory_of,
    ranked,
    search_of,
    since_start,
)

_SPEED = figures.of_run("samples_per_second")


def sections(data: Told) -> Iterator[str]:
    """A part each, in the order of the report; of a prediction of memory only what it is about."""
    if proof_sentences.only_predicts(data):
        if (most := limits_of(data).get("memory_bytes")) is not None:
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


def _limits(data: Told) -> str:
    limits = limits_of(data)
    told = [f"{limits.get('minutes', 0):g} minutes", f"searched: {', '.join(map(str, limits.get('only') or ()))}"]
    if leave := limits.get("leave"):
        told.append(f"left as they are: {', '.join(leave)}")
    if (most := limits.get("largest_batch")) is not None:
        told.append(f"global batch at most {count(most)}")
    if (memory := limits.get("memory_bytes")) is not None:
        told.append(f"memory at most {size(memory)}")
    if precisions := limits.get("precisions"):
        told.append(f"precision: {', '.join(precisions)}")
    if avoided := limits.get("avoid_precisions"):
        told.append(f"precision: not {', '.join(avoided)}")
    told.append(f"learning rate: {limits.get('learning_rate')}")
    return f"Limits: {cell('; '.join(told))}."


def _leaderboard(data: Told) -> Iterator[str]:
    candidates = ranked(data)
    if not candidates:
        return
    rows = [
        [
            str(place),
            _settings(one),
            _speed(one),
            change(since_start(one, data)),
            change(one.get("gain")),
            spread(one.get("spread")),
            size(one.get("peak_bytes")),
            sentences.outcome(one, data) or "measured",
            ", ".join(str(trial.get("run")) for trial in listed(one.get("trials"))) or NONE,
        ]
        for place, one in enumerate(candidates, 1)
    ]
    yield f"## Leaderboard\n\nThe best first; {sentences.about_gains(candidates)}."
    yield table(["", "settings", _SPEED.head, "vs. start", "vs. before", "spread", "memory", "outcome", "trials"], rows)
    if any(one.get("without_input") and one.get("samples_per_second") is not None for one in candidates):
        yield f"\\{WITHOUT_INPUT} {sentences.ABOUT_INPUT}."
    if said := sentences.ceiling_in_words(data):
        yield f"{capital(said)}."


def _settings(candidate: Told) -> str:
    settings = mapping(candidate.get("settings"))
    if candidate.get("stage") == PAIRS:
        return sentences.title(candidate)
    return f"`{proof_sentences.changes(settings)}`" if settings else sentences.title(candidate)


def _speed(candidate: Told) -> str:
    speed = candidate.get("samples_per_second")
    return NONE if speed is None else _SPEED.bare(speed) + (WITHOUT_INPUT if candidate.get("without_input") else "")


def _options(data: Told) -> Iterator[str]:
    rows = [
        [
            one.name,
            change(one.gain) + (WITHOUT_INPUT if one.without_input else ""),
            spread(one.spread),
            one.state,
            f"`{proof_sentences.changes(one.settings)}`" if one.settings else "",
        ]
        for one in brought(data)
    ]
    if rows:
        yield "## What each option brought"
        yield table(["option", "vs. before", "spread", "", "settings"], rows)
        yield f"{capital(sentences.ABOUT_BROUGHT)}."


def _memory(data: Told) -> Iterator[str]:
    memory = memory_of(data)
    points = listed(memory.get("points"))
    if not points:
        return
    yield f"## Memory\n\n{cell(capital(sentences.memory_in_words(data)))} ({sentences.kind_of_memory(memory)})."
    rows = [
        [
            count(point.get("batch_size")),
            size(point.get("predicted_bytes")),
            "out of memory" if point.get("peak_bytes") is None else size(point["peak_bytes"]),
        ]
        for point in points
    ]
    yield table(["batch size", "predicted", "measured"], rows)
    if limits_of(data).get("only") == ["batch_size"] and (said := memory_sentences.fitted(data)):
        yield f"{capital(said)}."


def _learning(data: Told) -> Iterator[str]:
    checks = listed(search_of(data).get("losses"))
    if not checks:
        return
    yield "## What is learnt\n\n" + "\n".join(f"- {cell(capital(line))}." for line in sentences.learning(data))
    rows = [
        [
            f"`{proof_sentences.changes(mapping(one.get('settings')))}`",
            sentences.which_loss(one),
            amount(one.get("loss_a")),
            amount(one.get("loss_b")),
            amount(one.get("worse_from")),
            str(one.get("decision")),
        ]
        for one in checks
    ]
    yield table(["settings", "which", "the preset", "with them", "clearly worse above", ""], rows)


def _trials(data: Told, head: str = "Trials of the search") -> Iterator[str]:
    """Every trial before the pairs, those that failed too."""
    groups = [*listed(search_of(data).get("candidates")), *listed(search_of(data).get("losses"))]
    rows = {str(trial["run"]): trial for one in groups for trial in listed(one.get("trials"))}
    if rows:
        names: Mapping[str, Any] = {"s": "search", "a": "the preset, for its loss", "b": "for its loss"}
        yield f"## {head}"
        yield trials_table([rows[run] for run in sorted(rows, key=lambda run: (len(run), run))], names)
