"""The tables of a search: its leaderboard, each option's gain, the memory of batches, and losses."""

from __future__ import annotations

from ... import figures
from ...text_table import Table
from ...trials import proof_sentences
from ...trials.record import Record, search_of
from ...trials.search_record import Candidate
from ...trials.trial_tables import settings
from ...units import NONE, amount, change, count, size, spread
from . import search_sentences
from .search_results import PAIRS, WITHOUT_INPUT, brought, chosen, in_all, memory_of, ranked, since_start

_SPEED = figures.of_run("samples_per_second")


def leaderboard(data: Record, in_report: bool = False) -> Table:
    """Return a table of the candidates, the best first. In the report trials are named, and memory is only the measured
    one, as it has a table of predictions.
    """
    rows = [
        [
            str(place),
            _settings(candidate),
            _speed(candidate),
            change(since_start(candidate, data)),
            change(candidate.gain),
            spread(candidate.spread),
            size(candidate.peak_bytes) if in_report else memory(candidate),
            search_sentences.outcome(candidate, data) or "measured",
            *([", ".join(trial.run for trial in candidate.trials) or NONE] if in_report else []),
        ]
        for place, candidate in enumerate(ranked(data), 1)
    ]
    head = ["", "settings", _SPEED.head, "vs. start", "vs. before", "spread", "memory", "outcome"]
    return Table([*head, "trials"] if in_report else head, rows, right=(0, 2, 3, 4, 5, 6))


def is_marked(candidate: Candidate) -> bool:
    """Return True if the candidate has a speed that was measured without the input."""
    return candidate.without_input and candidate.samples_per_second is not None


def _settings(candidate: Candidate) -> str:
    return settings({} if candidate.stage == PAIRS else candidate.settings) or search_sentences.title(candidate)


def _speed(candidate: Candidate) -> str:
    speed = candidate.samples_per_second
    return NONE if speed is None else _SPEED.bare(speed) + (WITHOUT_INPUT if is_marked(candidate) else " ")


def memory(candidate: Candidate) -> str:
    """Return the measured memory as text. If it was not measured, the predicted memory after a "~"."""
    peak, predicted = candidate.peak_bytes, candidate.predicted_bytes
    return f"~{size(predicted)}" if peak is None and predicted is not None else size(peak)


def options(data: Record, together: bool = False) -> Table:
    """Return a table of the gain of each option: a row for each stage of the search. With `together`, one more row for
    all of them together.
    """
    rows = [
        [
            option.name,
            NONE if option.gain is None else change(option.gain) + (WITHOUT_INPUT if option.without_input else " "),
            spread(option.spread),
            option.state,
            settings(option.settings),
        ]
        for option in brought(data)
    ]
    gain, noise, proved = in_all(data)
    if together and gain is not None:
        how = "vs. start, in pairs" if proved else "vs. start, in single trials"
        rows.append(["all together", f"{change(gain)} ", spread(noise), how, proof_sentences.changes(chosen(data))])
    return Table(["option", "vs. before", "spread", "", "settings"], rows, right=(1, 2))


def batches(data: Record) -> Table:
    """Return a table of the predicted and the measured memory of each batch size that was trained."""
    rows = [
        [
            count(point.batch_size),
            size(point.predicted_bytes),
            "out of memory" if point.peak_bytes is None else size(point.peak_bytes),
        ]
        for point in memory_of(data).points
    ]
    return Table(["batch size", "predicted", "measured"], rows)


def losses(data: Record) -> Table:
    """Return a table of the losses with and without the settings: a row for each comparison of them."""
    rows = [
        [
            settings(check.settings),
            search_sentences.which_loss(check),
            amount(check.loss_a),
            amount(check.loss_b),
            amount(check.worse_from),
            check.decision,
        ]
        for check in search_of(data).losses
    ]
    return Table(["settings", "which", "the preset", "with them", "clearly worse above", ""], rows)
