"""The parts of the live view as rows: head, messages, summary.

Unknown values are shown as a dash, and foreign text is cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....engine.figures import of_run
from ....engine.files.values import number
from ....engine.runs.events import waits_for_others
from ....engine.units import abbreviated, amount, clock, named, percent, seconds
from ...base.errors import clean
from ...base.glyphs import Glyphs
from ...reading.run.snapshot import Snapshot
from ...wording.run import ASKED_FOR, DOING, ENDED, ENDLESS, compiling, is_early, scaled_learning_rate
from ..rows import Row, fit, kept_items, length, spread, whole_words
from . import phases, verdict

MFU = of_run("mfu")
NOT_WAITED_FOR = ("training", "ended")


class RunName(NamedTuple):
    """The title and the id of a run, and the description of its preset."""

    title: str
    id: str
    description: str

    def row(self, width: int, glyphs: Glyphs) -> Row:
        """The title, the id and the description in one row; parts without room are left out."""
        title, id_, about = clean(self.title), clean(self.id), clean(self.description).replace("\n", " ")
        row: Row = [(whole_words(title, width, glyphs), "title")]
        if title != id_ and length(row) + len(id_) + 2 <= width:
            row.append((f"  {id_}", "label"))
        return [*row, (whole_words(f"  {about}", width - length(row), glyphs), "label")]


def rows(named: RunName, note: str, now: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """The rows of the head: the run and its state, its progress, its settings, and after the start of training what
    limits its speed.
    """
    right = [("  ", ""), (f"{note}  " if note else "", "warn"), *_state(now, glyphs), (" ", "")]
    left = named.row(width - length(right), glyphs)
    drawn = [spread(left, right, width), _progress(now, width, glyphs), _facts(now, width)]
    return [*drawn, verdict.line(now, width, glyphs)] if verdict.is_due(now) else drawn


def _state(now: Snapshot, glyphs: Glyphs) -> Row:
    if now.outcome is None:
        doing = DOING.get(now.phase, clean(now.phase))
        if now.phase == "compiling":
            doing = compiling(now.phase_detail)
        if waits_for_others(now.phase, now.phase_detail):
            doing = "waiting for other workers"
        if now.phase in NOT_WAITED_FOR:
            return [(doing, "good")]
        if now.phase == phases.READING:
            return [(phases.CATCHING_UP, "label")]
        turn = glyphs.spinner[int(now.elapsed * 5) % len(glyphs.spinner)]
        return [(f"{turn} ", "curve2"), (doing, "value"), (f" {clock(now.phase_seconds):>5}", "value")]
    mark = glyphs.ok if now.outcome == "ok" else glyphs.stopped if now.outcome in ASKED_FOR else glyphs.failed
    style = "good" if now.outcome == "ok" else "warn" if now.outcome in ASKED_FOR else "bad"
    early = is_early(now.outcome, number(now.progress.get("step")), number(now.progress.get("steps")))
    return [(f"{mark} {ENDED.get(now.outcome, clean(now.outcome))}{' early, by a callback' * early}", style)]


def _progress(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    step, steps = number(now.progress.get("step")), number(now.progress.get("steps"))
    done = step / steps if step is not None and steps else None
    epoch = _of(now.progress.get("epoch"), now.progress.get("epochs"))
    left = [("epoch ", "label"), (epoch, "value"), ("  step ", "label"), (_of(step, steps), "value")]
    if (steps or 0) >= ENDLESS:  # ended by its time
        left, done = [("step ", "label"), (_count(step), "value")], None
    share: list[Row] = [] if done is None and step is not None else [[(f"  {percent(done)}", "value")]]
    right = kept_items([*share, *_times(now)], width - length(left))
    room = max(0, width - length(left) - sum(map(length, right)) - 2)
    filled = round((done or 0) * room)
    bar: Row = [("  ", ""), (glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track")] if room else []
    return fit([*left, *bar, *(piece for item in right for piece in item)], width)


def _times(now: Snapshot) -> list[Row]:
    elapsed: Row = [(f"{clock(now.elapsed):>9}", "value"), (" elapsed", "label")]
    if now.outcome is not None:
        return [elapsed]
    left = clock(number(now.progress.get("eta_seconds")))
    return [elapsed, [(f"{left:>9}", "value"), (" left", "label")]]


def _of(part: Any, whole: Any) -> str:
    """A text such as ` 12/300`, always as wide as it will be at the end; a dash if `whole` is unknown."""
    most = amount(number(whole))
    return f"{_count(part):>{len(_count(whole))}}/{_count(whole)}" if most != "-" else "-"


def _count(value: Any) -> str:
    return "-" if number(value) is None else f"{value:,.0f}"


def _facts(now: Snapshot, width: int) -> Row:
    """The row with TensorFlow's version, the devices, the batch size and further facts of the training."""
    started = now.started
    parts: list[str] = []
    if started:
        versions = started.get("versions") if isinstance(started.get("versions"), Mapping) else {}
        parts.append(f"TensorFlow {clean((versions or {}).get('tensorflow', '-'))}")
        parts.append(_devices(started))
        parts += _together(started)
        parts.append(f"batch {_count(started.get('global_batch_size'))}")
        parts += filter(None, [scaled_learning_rate(started)])
    reached = number(now.progress.get(MFU.progress)) if now.outcome is None else None
    if reached is not None:
        parts.append(f"{MFU.label} {percent(reached)}")
    if now.first_step_seconds is not None:
        parts.append(f"first step (tracing, compiling) {seconds(now.first_step_seconds)}")
    actual = started.get("actual")
    parameters = number(actual.get("parameters")) if isinstance(actual, Mapping) else None
    if parameters is not None:
        parts.append(f"{abbreviated(parameters)} {named(parameters, 'parameters')}")
    while len(", ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return fit([(", ".join(parts), "label")], width)


def _together(started: Mapping[str, Any]) -> list[str]:
    """For a training on several machines: the number of this worker, and the number of replicas on all machines. Else
    empty.
    """
    workers, index = started.get("workers"), number(started.get("worker"))
    if not isinstance(workers, list | tuple) or not workers or index is None:
        return []
    replicas = number(started.get("replicas"))
    return [f"worker {index:.0f} of {len(workers)}", f"{_count(replicas)} {named(replicas, 'replicas')} on all"]


def _devices(started: Mapping[str, Any]) -> str:
    names = started.get("devices")
    kinds = [clean(name).split("device:")[-1].partition(":")[0] for name in names] if isinstance(names, list) else []
    return f"{len(kinds)} {kinds[0]}s" if len(kinds) > 1 else kinds[0] if kinds else "-"
