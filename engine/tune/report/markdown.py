"""The sections about a search in the report of its proof: limits, leaderboard, options, memory, losses, all trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...proof.markdown import capital, trials_table
from ...text_table import escaped
from ...trials import proof_sentences
from ...trials.record import Record, search_of
from ...units import count, size
from . import memory_sentences, search_sentences
from .search_results import WITHOUT_INPUT, limits_of, memory_of, ranked


def sections(data: Record) -> Iterator[str]:
    """Yield the sections about a search; of one that only predicts, its limit, the memory and the trials."""
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
    return f"Limits: {escaped('; '.join(lines))}."


def _leaderboard(data: Record) -> Iterator[str]:
    candidates = ranked(data)
    if not candidates:
        return
    yield f"## Leaderboard\n\nThe best first; {search_sentences.about_gains(candidates)}."
    yield search_sentences.leaderboard(data, in_report=True).markdown()
    if any(map(search_sentences.is_marked, candidates)):
        yield f"\\{WITHOUT_INPUT} {search_sentences.ABOUT_INPUT}."
    if ceiling := search_sentences.ceiling_in_words(data):
        yield f"{capital(ceiling)}."


def _options(data: Record) -> Iterator[str]:
    table = search_sentences.options(data)
    if table.rows:
        yield "## What each option brought"
        yield table.markdown()
        yield f"{capital(search_sentences.ABOUT_BROUGHT)}."


def _memory(data: Record) -> Iterator[str]:
    memory = memory_of(data)
    if not memory.points:
        return
    words = capital(memory_sentences.in_words(data))
    yield f"## Memory\n\n{escaped(words)} ({memory_sentences.kind_of_memory(memory)})."
    yield search_sentences.batches(data).markdown()
    if list(limits_of(data).only) == ["batch_size"] and (fitted := memory_sentences.fitted(data)):
        yield f"{capital(fitted)}."


def _learning(data: Record) -> Iterator[str]:
    if not search_of(data).losses:
        return
    yield "## What is learnt\n\n" + "\n".join(
        f"- {escaped(capital(line))}." for line in search_sentences.learning(data)
    )
    yield search_sentences.losses(data).markdown()


def _trials(data: Record, head: str = "Trials of the search") -> Iterator[str]:
    rows = {trial.run: trial for trials in search_of(data).trials for trial in trials}
    if rows:
        names: Mapping[str, Any] = {"s": "search", "a": "the preset, for its loss", "b": "for its loss"}
        yield f"## {head}"
        yield trials_table([rows[run] for run in sorted(rows, key=lambda run: (len(run), run))], names)
