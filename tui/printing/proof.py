"""Prints the chapters of measurements, their lists, and the lines of one that goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from ...engine import figures
from ...engine.figures import shown
from ...engine.text_table import Code, Table
from ...engine.trials import proof_sentences, search_results, sweep_record
from ...engine.trials.record import Candidate, Record, Trial, elapsed_of, search_of
from ...engine.trials.report import Block, chapters, titled
from ...engine.trials.search_results import WITHOUT_INPUT
from ...engine.units import change, seconds, size
from ..base import glyphs
from ..base.errors import clean
from ..drawing.proof import answer
from .plain_tables import broken, console, say, show_table

WIDTH, LINES = 100, 10  # of the answer


def show(blocks: Iterable[Block]) -> None:
    for place, block in enumerate(blocks):
        if isinstance(block, Table):
            print(end="\n" if place else "")
            show_table(block)
        elif isinstance(block, Code):
            print("\n".join(f"    {clean(line)}" for line in block.splitlines()))
        else:
            for line in [block] if isinstance(block, str) else block:
                say(line)


def show_list(proofs: Sequence[Record], sizes: Mapping[str, int]) -> None:
    """Print all proofs, one row per proof. `sizes` has the size of each proof's folder in bytes, by id."""
    rows = [
        [
            proof.id,
            proof.kind,
            proof.state,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(proof.started_t)),
            seconds(proof.seconds),
            size(sizes.get(proof.id)),
            proof_sentences.conclusion(proof) if proof.state != "running" else proof.doing,
        ]
        for proof in proofs
    ]
    show_table(Table(["proof", "kind", "state", "started", "time", "size", "result"], rows))


def show_details(data: Record, was_followed: bool = False) -> None:
    """Print the chapters. With `was_followed`, what the lines have said is left out."""
    for chapter in chapters(data):
        if not (was_followed and chapter.is_told):
            say(f"{chapter.title}:")
            show(chapter.blocks)
            print()


def show_answer(data: Record, more: Sequence[tuple[str, str]]) -> None:
    """Print the answer, and `more` texts with their words, in at most ten lines."""
    for row in answer(data, min(console().width, WIDTH), glyphs.suited(), LINES, more):
        print("".join(text for text, _ in row))
    if code := proof_sentences.code_of(data.advice):
        show([Code("\n".join(code))])


# ---- while it is measured -------------------------------------------------------------------------


class ProofLines:
    """Prints the new lines of a proof at each call of `show`. If `live`, the last line of the terminal, written again
    each time, shows its present activity and the time left."""

    def __init__(self, out: Console, live: bool) -> None:
        self.out = out
        self._told: set[str] = set()
        self._doing = ""
        self._status = out.status("") if live else None
        if self._status is not None:
            self._status.start()

    def show(self, data: Record) -> None:
        for key, text in news(data):
            if key not in self._told:
                self._told.add(key)
                self._line(text)
        if self._status is not None:
            doing = clean(f"{data.doing}  {seconds(elapsed_of(data))}{left(data)}")
            self._status.update(Text(doing, overflow="ellipsis"))
        elif data.doing != self._doing and data.state == "running" and not data.search:
            self._line(f"{data.doing} ...{left(data)}")  # a search's candidates follow each other in seconds
        self._doing = data.doing

    def _line(self, text: str) -> None:
        line = clean(text) if self._status is None else broken(clean(text), self.out.width)
        self.out.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


def news(data: Record) -> Iterator[tuple[str, str]]:
    """Yield a key, by which the caller prints each event only once, and its line."""
    of_candidates = set()
    for number, candidate in enumerate(search_of(data).candidates):
        of_candidates |= {trial.run for trial in candidate.trials}
        if candidate.decision != "running":
            yield f"candidate {number}", candidate_line(candidate)
            if search_results.is_marked(candidate):
                yield "without input", f"{WITHOUT_INPUT} {search_results.ABOUT_INPUT}"
            if candidate.gain is not None:
                yield "gains", f"({search_results.ABOUT_GAINS})"
            if search_results.is_weighed(candidate):
                yield "waits", f"({search_results.ABOUT_WAITS})"
    for title, trial in titled(data):
        if trial.run not in of_candidates:
            yield trial.run, trial_line(title, trial)
        if trial.disturbed:  # one is printed, their number follows at the end
            yield "disturbed", f"note: {trial.disturbed}: the figures can be worse than on a quiet machine"
    if data.sweep is not None:
        yield from sweep_record.news(data.sweep)
    if data.diagnosis and data.kind == "loop":
        yield "diagnosis", data.diagnosis["sentence"]
    for number, check in enumerate(search_of(data).losses):
        if check.decision != "running":
            yield f"losses {number}", search_results.loss_check(check)
    for number, comparison in enumerate(data.comparisons if data.kind in ("loop", "tune") else ()):
        if comparison.decision != "running":
            yield f"comparison {number}", proof_sentences.verdict(comparison)


def trial_line(title: str, trial: Trial) -> str:
    """Return the line of an ended trial: run, title, and its figures or how it failed."""
    head = f"{trial.run:<6}{title:<30}"
    if not trial.good:
        return f"{head} {trial.outcome}: {trial.error}"
    columns = [figure for figure in shown("trial") if trial.figure(figure.key) is not None]
    widths = [0 if figure.name else figure.width + 1 + len(figure.unit) for figure in columns]  # so that lines align
    figures_of = [
        figure.phrase(trial.figure(figure.key)).rjust(width) for figure, width in zip(columns, widths, strict=True)
    ]
    return f"{head} {'  '.join([*figures_of, *(['disturbed'] if trial.disturbed else [])])}"


def candidate_line(candidate: Candidate) -> str:
    """Return the line of a candidate: what was tried, its speed, its gain and the decision."""
    mark = WITHOUT_INPUT if search_results.is_marked(candidate) else " "
    speed = candidate.samples_per_second
    speed_text = "" if speed is None else figures.of_run("samples_per_second").text(speed) + mark
    gain = "" if candidate.gain is None else change(candidate.gain)
    # The widths leave room for speed, gain and `kept` on a terminal of 80 columns.
    what = f"{search_results.stage(candidate):<19} {search_results.title(candidate):<24}"
    return f"{what} {speed_text:>17} {gain:>8}  {search_results.outcome(candidate)}".rstrip()


def left(data: Record) -> str:
    """Return the time left as text, such as `, about 48 s left`. Empty if the proof has no time limit."""
    budget = data.budget_seconds
    if budget is None:
        return ""
    gone = elapsed_of(data)
    remaining, most = max(0.0, budget - gone), data.budget_most_seconds
    if most is not None:
        return f", about {seconds(remaining)} to {seconds(max(0.0, most - gone))} left"
    return f", {'at most' if data.search else 'about'} {seconds(remaining)} left"
