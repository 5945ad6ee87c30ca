"""The parts of the live view as rows: head, messages, summary. Unknown values are shown as a dash, and foreign text is
cleaned."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from ....engine.figures import LOSS, at, metric, of_run, summed_up
from ....engine.files.values import EMPTY
from ....engine.finding import Finding
from ....engine.learning import has_learnt_badly
from ....engine.runs.events import BACKENDS, LATER_COMPILING, Diagnosis, Started, waits_for_others
from ....engine.trials import proof_sentences
from ....engine.units import NONE, abbreviated, amount, clock, counted, named, percent, seconds
from ...base.errors import clean
from ...base.glyphs import Glyphs
from ...form.form_state import proposed
from ...reading.run.snapshot import UNFINISHED, EpochMean, Snapshot
from ...wording import run as best_epochs
from ...wording.run import DOING, ENDED, ENDLESS, compiling, ending, is_early, naming_log, scaled_learning_rate
from ..gpu_details import no_gpu
from ..plot.curves import style_of
from ..rows import Piece, Row, fit, hanging, kept_items, length, plain, spread, whole_words
from ..rows import wrapped as whole_lines
from . import phases

SPEEDS = tuple(of_run(key) for key in ("samples_per_second", "step_ms.p50", "input_wait", "mfu"))
NOT_WAITED_FOR = ("training", "command", "ended")
NO_FIGURES = "a command: output and devices, no figures of a training"
VERDICT_ROWS = 2  # at most
MOST_ROWS = 4 + VERDICT_ROWS
WHOLE_LINE = 1000  # characters, in which each line has all its parts


class RunName(NamedTuple):
    """Title, id, number and description of a run. One without a number shows its id."""

    title: str
    id: str
    description: str
    number: int | None = None

    def row(self, width: int, glyphs: Glyphs) -> Row:
        """Return name or id, title and description. An id without room is left out, other parts are cut."""
        title, id_, about = clean(self.title), clean(self.id), clean(self.description).replace("\n", " ")
        row: Row = [] if self.number is None else [(f"r{self.number}", style_of(self.number)), (" ", "")]
        row.append((whole_words(title, width - length(row), glyphs), "title"))
        if self.number is None and title != id_ and length(row) + len(id_) + 2 <= width:
            row.append((f"  {id_}", "label"))
        return [*row, (whole_words(f"  {about}", width - length(row), glyphs), "label")]


def rows(named: RunName, note: str, now: Snapshot, width: int, glyphs: Glyphs, height: int = MOST_ROWS) -> list[Row]:
    """Return the head: `note`, the run and its state, progress, what was learnt and how fast, the facts of the start
    while they are new (left out first), verdict on the speed."""
    right = [("  ", ""), (f"{note}  " if note else "", "warn"), *_state(now, glyphs), (" ", "")]
    left = named.row(width - length(right), glyphs)
    drawn = [spread(left, right, width), _progress(now, width, glyphs)]
    learnt, speeds = _shown_figures(now, width)
    if learnt or speeds:
        pieces = [piece for item in learnt.values() for piece in item]
        drawn.append(spread(pieces, [(" ".join(speeds.values()), "value")], width))
    verdict = verdict_rows(now, width, glyphs)
    facts = _fitting_facts(now, width) if phases.is_new(now) else ""
    if facts and len(drawn) + len(verdict) < height:
        drawn.append(fit([(facts, "label")], width))
    return [*drawn, *verdict[: max(1, height - len(drawn))]]


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
        return [(f"{turn} ", "curve1"), (doing, "value"), (f" {clock(now.phase_seconds):>5}", "value")]
    warned = now.outcome == "ok" and now.summary and has_learnt_badly(now.learning, now.summary.best)
    mark, style = (glyphs.warn, "warn") if warned else ending(now.outcome, glyphs)
    early = now.progress is not None and is_early(now.outcome, now.progress.step, now.progress.steps)
    by = "train.early_stop" if now.summary and best_epochs.stopped_early(now.summary) else "a callback"
    return [(f"{mark} {ENDED.get(now.outcome, clean(now.outcome))}{f' early, by {by}' * early}", style)]


def _progress(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    progress = now.progress
    if now.is_command:
        return spread([(NO_FIGURES, "label")], _times(now)[0], width)
    step, steps = (progress.step, progress.steps) if progress else (None, None)
    done = step / steps if step is not None and steps else None
    epoch = _of(progress.epoch, progress.epochs) if progress else NONE
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
    seconds = now.elapsed if now.outcome is None else now.elapsed or None  # a log of another program may have no times
    elapsed: Row = [(f"{clock(seconds):>9}", "value"), (" elapsed", "label")]
    if now.outcome is not None:
        return [elapsed]
    left = clock(now.progress.eta_seconds if now.progress else None)
    return [elapsed, [(f"{left:>9}", "value"), (" left", "label")]]


def _of(part: float | None, whole: float | None) -> str:
    # In the width that it will have at the end.
    return NONE if whole is None else f"{_count(part):>{len(_count(whole))}}/{_count(whole)}"


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


# ---- what was learnt, and how fast ------------------------------------------------------------------


def _shown_figures(now: Snapshot, width: int) -> tuple[dict[str, Row], dict[str, str]]:
    """The figures of the head for which there is room, by their keys: what was learnt, then the speed."""
    learnt = _learnt(now)
    kept = kept_items(list(learnt.values()), width)
    room, speeds = width - sum(map(length, kept)), dict[str, str]()
    for figure in SPEEDS:
        ended = now.outcome is not None
        value = at(now.summary, figure.key) if ended else at(now.progress, figure.progress)
        mean = "mean " if ended and figure is SPEEDS[0] else ""
        text = f" {mean}{figure.phrase(value)}"
        room -= len(text) + 1
        if value is not None and room >= 0:
            speeds[figure.key] = text
    return dict(zip(learnt, kept, strict=False)), speeds


def _learnt(now: Snapshot) -> dict[str, Row]:
    """The figures by which a model is judged, by Keras' names: that of the validation with its best epoch, then the
    first metric, of the validation if it has it, and the loss."""
    newest = now.epochs[-1].metrics if now.epochs else now.summary.metrics if now.summary else EMPTY
    # An epoch without a validation, as by a stop or `validation_freq`, leaves the newest one standing.
    validations = (
        {name: of.metrics[name] for name in of.metrics if name.startswith("val_")} for of in now.epochs[::-1]
    )
    newest = {**newest, **next(filter(None, validations), EMPTY)}
    asked = {best.figure: best.epoch for best in now.best.values()}
    judged = next((name for name in (*asked, "val_loss", *newest) if name.startswith("val_") and name in newest), "")
    metrics = [f"val_{name}" if f"val_{name}" in newest else name for name in now.metrics[:1]]
    items: dict[str, Row] = {}
    for name in dict.fromkeys((judged, *metrics, "val_loss", "loss")):
        mean = now.epoch_mean(name)
        value = newest.get(name) if mean.value is None else mean.value
        if value is not None or (name and name == judged):
            label = clean(metric(name).label) + " so far" * (mean.steps == UNFINISHED)
            items[name] = [(f"{'  ' * bool(items)}{label} ", "label"), (amount(value), "value")]
    values = [(value, epoch.number) for epoch in now.epochs if (value := epoch.metrics.get(judged)) is not None]
    if len(values) > 1:
        by_rule = [pair for pair in values if pair[1] == asked.get(judged)]
        best, epoch = by_rule[0] if by_rule else (max if metric(judged).more_is_better else min)(values)
        items[judged] += [("  best ", "label"), (amount(best), "value"), (f" (epoch {epoch})", "label")]
    return items


# ---- the facts of the start ------------------------------------------------------------------------


def detail_rows(named: RunName, now: Snapshot, width: int) -> list[Row]:
    """Return what is known of the run from its start on, and the phases with their times, one below the other."""
    versions = now.started.versions if now.started else EMPTY
    texts = {
        "id": named.id,
        "about": named.description,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "training": ", ".join(_facts(now)[1:]),
        "times": re.sub(" {2,}", ", ", plain(phases.phase_line(now, WHOLE_LINE)).strip()),
        "GPUs": "" if now.gpus else plain(no_gpu(now, WHOLE_LINE)[0]),
    }
    return phases.named_rows(texts, width)


def _fitting_facts(now: Snapshot, width: int) -> str:
    parts = _facts(now)
    while len(", ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return ", ".join(parts)


def _facts(now: Snapshot) -> list[str]:
    """TensorFlow's version, the devices, the batch size and more, the most important first."""
    started = now.started
    parts: list[str] = []
    if started:
        backend = next((name for name in BACKENDS if name in started.versions), "tensorflow")
        parts.append(f"{BACKENDS[backend]} {clean(started.versions.get(backend, NONE))}")
        parts.append(_devices(started))
        parts += _together(started)
        parts.append(f"batch {_count(started.global_batch_size)}")
        parts += filter(None, [scaled_learning_rate(started)])
    if now.first_step_seconds is not None:
        parts.append(f"first step (tracing, compiling) {seconds(now.first_step_seconds)}")
    if started and (parameters := started.actual.get("parameters")) is not None:
        parts.append(f"{abbreviated(parameters)} {named(parameters, 'parameters')}")
    return parts


def _together(started: Started) -> list[str]:
    # This worker, and the replicas on all machines.
    if not started.workers or started.worker is None:
        return []
    on_all = f"{_count(started.replicas)} {named(started.replicas, 'replicas')} on all"
    return [f"worker {started.worker} of {len(started.workers)}", on_all]


def _devices(started: Started) -> str:
    kinds = [clean(name).split("device:")[-1].partition(":")[0] for name in started.devices]
    return f"{len(kinds)} {kinds[0]}s" if len(kinds) > 1 else kinds[0] if kinds else NONE


# ---- the verdict ----------------------------------------------------------------------------------


SURE, LIKELY = 0.8, 0.55
MEASURING = "measuring what limits the speed ..."
_BEGUN = ("training", "evaluating", "saving", "script")


def is_due(now: Snapshot) -> bool:
    """Return True if the run has a diagnosis, or if training has begun so that a diagnosis will follow."""
    compiles_again = now.phase == "compiling" and now.phase_detail in LATER_COMPILING
    return now.diagnosis is not None or (now.outcome is None and (now.phase in _BEGUN or compiles_again))


def verdict_rows(now: Snapshot, width: int, glyphs: Glyphs, most: int = VERDICT_ROWS) -> list[Row]:
    """Return that the training learns nothing, if known, then the verdict on the speed with its certainty, if due; of
    a run that failed no `No verdict`, above its error."""
    drawn = learning_rows(now, width, glyphs, 1 if is_due(now) else most)
    if (diagnosis := now.diagnosis) is not None and now.error is not None and diagnosis.verdict == "undecided":
        return drawn
    if diagnosis is not None:
        sign, sure = mark(diagnosis, glyphs), confidence(diagnosis, now.diagnosed_before_resume)
        lead, after = length([sign]) + 1, f" ({sure})" if sure else ""
        lines = whole_lines(sentence(diagnosis), width - lead - len(after), glyphs, most - len(drawn))
        speed = hanging(lines, "value", [sign, (" ", "")])
        speed[-1].append((after, "label"))
        drawn += [fit(row, width) for row in speed]
    elif is_due(now):
        drawn.append([(MEASURING, "label")])
    return drawn


def learning_rows(now: Snapshot, width: int, glyphs: Glyphs, most: int = VERDICT_ROWS) -> list[Row]:
    """Return the rows that say that the training diverges, learns nothing or overfits. Empty if none is known."""
    lines = whole_lines(clean(now.learning), width - 2, glyphs, most) if now.learning else []
    return [fit(row, width) for row in hanging(lines, "value", [(glyphs.warn, "warn"), (" ", "")])]


def sentence(diagnosis: Diagnosis) -> str:
    return clean(diagnosis.sentence or diagnosis.verdict or NONE).replace("\n", " ")


def mark(diagnosis: Diagnosis, glyphs: Glyphs) -> Piece:
    if diagnosis.verdict == "healthy":
        return glyphs.ok, "good"
    return (glyphs.more, "label") if diagnosis.verdict in ("", "undecided") else (glyphs.warn, "warn")


def confidence(diagnosis: Diagnosis, before_resume: bool = False) -> str:
    if diagnosis.confidence is None or diagnosis.verdict in ("", "undecided"):
        return ""
    if before_resume:
        return "before it was resumed"
    return "sure" if diagnosis.confidence >= SURE else "likely" if diagnosis.confidence >= LIKELY else "preliminary"


# ---- the result -----------------------------------------------------------------------------------


MOST_METRICS = 4
OF_PROGRESS = ("seconds", "epochs", "steps", "measured_steps")  # in the row of the progress
LEAST_CELL, LEAST_NAME, VALUE = 24, 12, 9  # columns of an item, of its name, and of its value


def items(now: Snapshot, width: int) -> list[tuple[str, str]]:
    """Return the names and values of the result that are not in a head of this width."""
    devices = now.started.devices if now.started else ()
    in_learnt, in_speeds = _shown_figures(now, width)
    above = {*OF_PROGRESS, *in_learnt, *in_speeds}
    results = {figure: figure.item(at(now.summary, figure.key)) for figure in summed_up(devices)}
    if EpochMean.of_result(now.summary).steps == UNFINISHED:
        results[LOSS] = (f"{LOSS.name} so far", results[LOSS][1])
    if SPEEDS[0] in results:  # the chart of it has the last value
        results[SPEEDS[0]] = (f"mean {results[SPEEDS[0]][0]}", results[SPEEDS[0]][1])
    values = {name: value for name, value in now.summary.metrics.items() if name not in above} if now.summary else {}
    names = sorted(values.keys() - {"loss"}, key=lambda name: not name.startswith("val_"))
    learnt = [(name.replace("_", " "), amount(values[name])) for name in names if values[name] is not None]
    loss = results.pop(LOSS, ("", NONE))
    figures = [*([loss] if "loss" not in above else []), *(results[key] for key in results if key.key not in above)]
    return [*learnt[:MOST_METRICS], *(item for item in figures if item[1] != NONE)]


def result_rows(now: Snapshot, width: int) -> list[Row]:
    """Return the sentences about the best epochs, then the figures of the result in columns."""
    results = items(now, width)
    cell = max([LEAST_CELL, *(max(len(name), LEAST_NAME) + max(len(value), VALUE) + 2 for name, value in results)])
    columns = max(1, width // cell)
    cell = width // columns
    widths = [_name_width(results[column::columns], cell) for column in range(columns)]
    sentences = (clean(sentence) for sentence in (best_epochs.sentences(now.summary) if now.summary else ()))
    lines = (line for sentence in sentences for line in textwrap.wrap(sentence, max(1, width)))
    drawn: list[Row] = [fit([(line, "value")], width) for line in lines]
    for start in range(0, len(results), columns):
        row: Row = []
        for (name, value), name_width in zip(results[start : start + columns], widths, strict=False):
            row += fit([(f"{name:<{name_width}}", "label"), (f"{value:>{VALUE}}", "value")], cell)
        drawn.append(row)
    return drawn


def _name_width(column: list[tuple[str, str]], cell: int) -> int:
    longest = max([LEAST_NAME, *(len(name) for name, _ in column)])
    return longest if longest + max([VALUE, *(len(value) for _, value in column)]) < cell else LEAST_NAME


# ---- messages -------------------------------------------------------------------------------------


def message_rows(now: Snapshot, width: int, height: int, glyphs: Glyphs, apply_key: str = "") -> list[Row]:
    """Return the error that ended the run with its hint, then warnings, the newest last; those without room are
    counted, and the keys named that show all in the log."""
    drawn = error(now, width, glyphs, apply_key)
    in_result = "watch" if now.summary else ""
    warnings = [_message(warning.finding, width, glyphs) for warning in now.warnings if warning.kind != in_result]
    room = height - len(drawn)
    if sum(map(len, warnings)) <= room:
        return [*drawn, *(row for warning in warnings for row in warning)]
    newest = [warning[0] for warning in warnings[max(0, len(warnings) - room) :]] if room > 0 else []
    hidden = f"  {counted(len(warnings), 'warnings')}: l m shows all"
    newest[-1:] = [spread(row, [(hidden, "label")], width) for row in newest[-1:]]
    return (drawn + newest)[:height]


def error(now: Snapshot, width: int, glyphs: Glyphs, apply_key: str = "") -> list[Row]:
    """Return the error that ended the run, its hint, and the key that puts the hint's values into the form."""
    if now.error is None:
        return []
    rows = _message(now.error.finding, width, glyphs)
    if changes := proposed(now.error.hint) if apply_key else {}:
        offer: Row = [(apply_key, "title"), (f" puts {clean(proof_sentences.changes(changes))} into the form", "value")]
        if length(rows[-1]) + 2 + length(offer) > width:
            return [*rows, fit([("  ", ""), *offer], width)]
        rows[-1] += [("  ", ""), *offer]
    return rows


def _message(finding: Finding, width: int, glyphs: Glyphs) -> list[Row]:
    mark, style = (glyphs.failed, "bad") if finding.level == "error" else (glyphs.warn, "warn")
    key = ", ".join(finding.options)
    about = "" if finding.what.startswith(key) else f"{key}: "
    rows: list[Row] = []
    for text, sign, look in ((about + finding.what, mark, style), (finding.remedy, glyphs.hint, "value")):
        rows += hanging(wrapped(naming_log(text, "l"), width - len(sign) - 2), look, [(f"{sign} ", style)])
    return rows


def wrapped(text: str, width: int) -> list[str]:
    """Return the text as lines of at most `width` characters (but at least 10), without control characters."""
    return [line for part in clean(text).split("\n") for line in textwrap.wrap(part, max(10, width))]
