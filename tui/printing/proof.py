"""Prints the tables of a proof: its trials, its comparisons, before and after, and the sentence with the result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ...engine.table import Table
from ...engine.trials import scaling_sentences, sentences, tables
from ...engine.trials.record import Record
from ...engine.units import seconds, size
from ..base.errors import clean
from . import profile, tune
from .console import say
from .diagnosis import show, show_stages
from .proof_progress import trials
from .tables import show_table


def show_list(proofs: Sequence[Record], sizes: Mapping[str, int]) -> None:
    """Print all proofs, one row per proof, with the size of the proof's folder in bytes."""
    rows = [
        [
            proof.id,
            proof.kind,
            proof.state,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(proof.started_t)),
            seconds(proof.seconds),
            size(sizes.get(proof.id)),
            sentences.conclusion(proof) if proof.state != "running" else proof.doing,
        ]
        for proof in proofs
    ]
    show_table(Table(["proof", "kind", "state", "started", "time", "size", "result"], rows))


def show_trials(data: Record) -> None:
    """Print every trial, also trials that failed."""
    table = tables.trials(trials(data), head="")
    if table.rows:
        show_table(table)
        print()


def show_result(data: Record, was_followed: bool = False) -> None:
    """Print the result of a proof: its tables of comparisons and of figures before and after, then the result in a
    sentence.

    `was_followed`: the user has followed the search line by line, so that its losses are not printed a second time.
    """
    if sentences.only_predicts(data):
        say(sentences.conclusion(data))
        return
    if data.kind == "diagnosis" and data.diagnosis:
        show(data.diagnosis)
        print()
    if data.ablation and data.ablation.stages:
        show_stages(data.ablation.stages)
        print()
    if data.profile_trial:
        print("\n".join(_profile(data)), end="\n\n")
    if data.kind == "loop" and data.comparisons:
        show_table(tables.comparisons(data.comparisons))
        print()
    if data.kind == "tune":
        tune.show_tables(data)
    if data.kind == "scaling":
        _show_scaling(data)
    if data.kind not in ("diagnosis", "scaling") and data.before:
        show_table(_before_and_after(data))
        print()
    if data.kind == "tune":
        tune.show_words(data, was_followed)
    for comparison in data.comparisons:
        if comparison.learning:
            say(sentences.learned(comparison.learning))
    if disturbed := sentences.disturbance(data):
        say(disturbed)
    if other := sentences.differing_medians(data):
        say(f"{sentences.speedup(data)} by the gains of the pairs, {other} by the medians above")
    if data.state == "running":
        say(f"running: {data.doing}")
        return
    if data.ended_because:
        say(f"ended because: {data.ended_because}")
    say(sentences.result(data))


def _show_scaling(data: Record) -> None:
    """Print one row for each number of replicas, and what limits the scaling."""
    table = tables.scaling(data)
    if table.rows:
        show_table(table)
        say(scaling_sentences.ABOUT)
        print()
    for line in scaling_sentences.remarks(data):
        say(line)


def _profile(data: Record) -> list[str]:
    """The lines of the profile that XProf has read, or the reason why there is no profile."""
    report = sentences.profile_of(data)
    return profile.lines(report) if report is not None else [clean(line) for line in sentences.profile_in_brief(data)]


def _before_and_after(data: Record) -> Table:
    """The medians before and after: of an A/B comparison always both sides; of a loop or a search the second only if a
    change was kept.
    """
    table = tables.before_and_after(data, ("without", "with") if data.kind == "ab" else ("before", "after"))
    if data.kind in ("loop", "tune") and not data.after:
        return Table(["median", "as it is"], [row[:2] for row in table.rows], right=[1])
    return table
