"""Prints what a search came to: its leaderboard, what each option brought, memory, losses, what is next."""

from __future__ import annotations

from ...engine import figures
from ...engine.trials import sentences as proof_sentences
from ...engine.trials.record import Record
from ...engine.trials.search_record import Candidate
from ...engine.tune.report import memory_sentences, sentences
from ...engine.tune.report.findings import (
    PAIRS,
    WITHOUT_INPUT,
    Ranked,
    brought,
    chosen,
    in_all,
    limits_of,
    memory_of,
    ranked,
    since_start,
)
from ...engine.units import NONE, change, size, spread
from .console import say
from .tables import Columns, show_table
from .tune_progress import ABOUT_INPUT, is_marked

_SPEED = figures.of_run("samples_per_second")


def show_tables(data: Record) -> None:
    """Print the candidates, the best first, and the gain of each option; nothing without candidates."""
    candidates = ranked(data)
    if not candidates:
        return
    show_table(_leaderboard(candidates, data))
    if any(candidate.gain is not None for candidate in candidates):
        say(sentences.about_gains(candidates))
    if any(map(is_marked, candidates)):
        say(ABOUT_INPUT)
    print()
    show_table(_brought(data))
    say(sentences.ABOUT_BROUGHT)
    print()


def _leaderboard(candidates: list[Ranked], data: Record) -> Columns:
    rows = [
        [
            str(place),
            _settings(candidate),
            _speed(candidate),
            change(since_start(candidate, data)),
            change(candidate.gain),
            spread(candidate.spread),
            _memory(candidate),
            sentences.outcome(candidate, data) or "measured",
        ]
        for place, candidate in enumerate(candidates, 1)
    ]
    head = ["", "settings", _SPEED.head, "vs. start", "vs. before", "spread", "memory", "outcome"]
    return Columns(head, rows, right=(0, 2, 3, 4, 5, 6))


def _settings(candidate: Candidate) -> str:
    """All settings of the candidate that differ from the preset."""
    settings = candidate.settings
    if candidate.stage == PAIRS:
        return sentences.title(candidate)
    return proof_sentences.changes(settings) if settings else sentences.title(candidate)


def _speed(candidate: Candidate) -> str:
    speed = candidate.samples_per_second
    return NONE if speed is None else _SPEED.bare(speed) + (WITHOUT_INPUT if is_marked(candidate) else " ")


def _memory(candidate: Candidate) -> str:
    """The measured memory as text; if it was not measured, the predicted memory after a "~"."""
    peak, predicted = candidate.peak_bytes, candidate.predicted_bytes
    return f"~{size(predicted)}" if peak is None and predicted is not None else size(peak)


def _brought(data: Record) -> Columns:
    rows = [
        [
            option.name,
            NONE if option.gain is None else change(option.gain) + (WITHOUT_INPUT if option.without_input else " "),
            spread(option.spread),
            option.state,
            proof_sentences.changes(option.settings) if option.settings else "",
        ]
        for option in brought(data)
    ]
    gain, noise, proved = in_all(data)
    if gain is not None:
        how = "vs. start, in pairs" if proved else "vs. start, in single trials"
        rows.append(["all together", f"{change(gain)} ", spread(noise), how, proof_sentences.changes(chosen(data))])
    return Columns(["option", "vs. before", "spread", "", "settings"], rows, right=(1, 2))


def show_words(data: Record, was_followed: bool) -> None:
    """Print lines about memory, the ceiling of the speed and the losses. `was_followed`: the user has followed the
    search, so that losses printed before are not repeated.
    """
    if sentence := sentences.memory_in_words(data):
        say(f"memory: {sentence} ({sentences.kind_of_memory(memory_of(data))})")
    if list(limits_of(data).only) == ["batch_size"] and (sentence := memory_sentences.fitted(data)):
        say(sentence)
    for sentence in (sentences.ceiling_in_words(data), sentences.study_in_words(data)):
        if sentence:
            say(sentence)
    for line in sentences.learnt(data) if was_followed else sentences.learning(data):
        say(line)


def show_next(data: Record, saved: bool) -> None:
    """Print what can be done next with the result; `saved`: the best settings were saved to a file."""
    for line in sentences.next_steps(data, saved):
        say(line)
