"""The text about an option's values in earlier runs of the preset, and about the gains that proofs have measured.
Imported after the first paint, when the runs have been read."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from ...engine import figures, units
from ...engine.trials import proof_sentences
from ..base.errors import clean
from ..form.form_state import INFO, FormState
from ..reading.option_runs import LAST_RUNS, EndedRun, Experience, Gain
from ..reading.run_list import when_text
from .option_help import labelled

LONGEST_VALUE = 24  # cells
MUTED = "$foreground-muted"


def experience_text(experience: Experience, key: str, state: FormState, width: int) -> Content:
    """Return a table of the option's values in the last runs, then the measured gains, in lines of `width` cells."""
    head = Content.assemble(
        (INFO[key].name, "bold $text-primary"),
        (f"  in the last runs of {clean(experience.preset)}", "$foreground-muted"),
    )
    present = state.texts[key].strip()
    ended = experience.by_value(key, state)
    lines = [head.truncate(width, ellipsis=True)]
    if ended:
        lines += _table(ended, key, state, width)
    elif experience.runs:
        text = f"no run here has changed it: {units.counted(len(experience.runs), 'runs')} with {_value(present)}"
        lines += labelled("", text, MUTED, width)
    else:
        lines += labelled("", "none has ended here yet", MUTED, width)
    for gain in experience.gains_with(key):
        proved = gain.comparison.decision in ("kept", "faster")
        lines += labelled("proved" if proved else "measured", _sentence(gain, proved), "", width)
    return Content("\n").join(lines)


def last_runs(experience: Experience, width: int) -> Content:
    """Return the speed and the validation of the last runs of the preset, as many as a line of `width` cells has."""
    if not experience.runs:
        return Content.styled(f"no run of {clean(experience.preset)} has ended here yet", MUTED)
    line = Content.styled("last runs, samples/s", MUTED)
    for run in experience.runs[:LAST_RUNS]:
        listed, (metric, value) = run.listed, run.listed.validation
        speed = listed.figures.get("samples_per_second")
        words = [listed.state_word] if listed.state != "ok" else []
        words += [units.count(speed)] if speed is not None else []
        words += [f"{clean(metric)} {units.amount(value)}"] if value is not None else []
        name = f"   {listed.name} " if listed.number else "   "
        piece = Content.assemble(
            (name, "bold"), " ".join(words), (" !" if listed.learnt_badly else "", "$text-warning")
        )
        if line.cell_length + piece.cell_length > width:
            break
        line += piece
    return line


def _table(ended: list[EndedRun], key: str, state: FormState, width: int) -> list[Content]:
    """A head and a row for each run: value, samples per second or how it ended, metric, start, name, other options."""
    metric = next((run.listed.validation[0] for run in ended if run.listed.validation[0]), "")
    cells = [["value", figures.of_run("samples_per_second").head, metric, "when", "run"]]
    for run in ended:
        listed = run.listed
        speed, (name, value) = listed.figures.get("samples_per_second"), listed.validation
        how = [units.count(speed)] if speed is not None else []
        how += [] if listed.state == "ok" else [listed.state_word]
        figure = units.amount(value) if metric and name == metric else ""
        cells.append([_value(run.text(key)), " ".join(how) or units.NONE, figure, when_text(listed.when).strip(),
                      listed.name if listed.number else ""])  # fmt: skip
    cells[0][-1] = "run" if any(run.listed.number for run in ended) else ""
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row, of in zip(cells, [None, *ended], strict=True):
        present = of is not None and of.has_value_of(key, state)
        texts = [text.rjust(size) for text, size in zip(row, widths, strict=True) if size]  # a column may be empty
        texts[0] = (">" if present else " ") + row[0].ljust(widths[0])
        others = "differs" if of is None else " ".join(of.others(key, state))
        style = MUTED if of is None else "bold" if present else ""
        line = Content.assemble(("  ".join(texts), style), (f"  {others}" if others else "", MUTED))
        lines.append(line.truncate(width, ellipsis=True))
    return lines


def _value(text: str) -> str:
    text = clean(text) or units.NONE
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _sentence(gain: Gain, proved: bool) -> str:
    comparison, record = gain.comparison, gain.record
    where = f"on {clean(gain.host)}" if gain.host else "here"
    measured = f"{proof_sentences.changes(comparison.changes)} {units.change(comparison.gain or 0.0)} {where}"
    decision = "" if proved else f": {comparison.decision}"
    return f"{measured} on {when_text(record.started_t).strip()}, {clean(record.preset_name)}{decision}"
