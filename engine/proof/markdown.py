"""The report of a proof in Markdown, complete in itself: the request, the machine, every trial, the result."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..options import PRIVATE
from ..plan import LEAST_STEPS
from ..profile import reports
from ..text_table import Table, escaped
from ..trials import proof_sentences, rate_sentences, scaling_sentences, sweep_sentences, trial_tables
from ..trials.kinds import kind
from ..trials.record import Comparison, Record, Section, Trial
from ..trials.significance import LEAST_GAIN, spreads
from ..trials.sweep_record import PROOF
from ..units import amount, counted, seconds, share, size, times


def as_markdown(data: Record, searched: Iterable[str] = ()) -> str:
    """Return the report of a proof; the sections `searched` about a search come before the comparisons."""
    parts = [
        f"# {_title(data)}: {escaped(data.preset_name)}",
        f"**{escaped(capital(proof_sentences.conclusion(data)))}.**",
        _properties(data),
        *_diagnosis(data),
        *_ablation(data),
        *_profile(data),
        *searched,
        *_scaling(data),
        *_rate(data),
        *_sweep(data),
        *(
            part
            for number, comparison in enumerate(data.comparisons, 1)
            for part in _comparison(number, comparison, data)
        ),
        *_before_and_after(data),
        *(part for section in data.sections for part in _section(section)),
        *_ending(data),
        *_preset(data),
    ]
    return "\n\n".join(parts) + "\n"


def _title(data: Record) -> str:
    return "What memory it takes" if proof_sentences.only_predicts(data) else kind(data.kind).title


def _properties(data: Record) -> str:
    machine, versions = data.machine, data.versions
    gpus = ", ".join(str(name) for name in machine.get("gpus") or ()) or f"none ({machine.get('no_gpu_reason') or '-'})"
    libraries = [f"{name} {version}" for name, version in {"gputui": machine.get("gputui", "-"), **versions}.items()]
    rows = [
        ("proof", f"`{data.id}`, {data.state}"),
        (
            "taken",
            time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(data.started_t)) + f", in {seconds(data.seconds)}",
        ),
        ("asked", _question(data)),
        ("method", _method(data)),
        (
            "machine",
            f"{machine.get('cpus', '-')} CPUs ({machine.get('processor') or 'unknown'}), "
            f"{size(machine.get('memory_bytes'))}, {machine.get('system', '-')}",
        ),
        ("GPUs", gpus),
        ("versions", ", ".join(libraries)),
    ]
    return Table(["", ""], rows).markdown()


def _method(data: Record) -> str:
    if proof_sentences.only_predicts(data):
        return "a line of memory over the batch size through short trials, each of a few steps in a process of its own"
    if declared := kind(data.kind).method:
        return declared
    pairs = counted(data.repeats, "pairs")
    each = (
        f"each in fresh processes, {data.measure_seconds:g} s and at least {LEAST_STEPS} steps measured after "
        "the warm-up, speeds as means over it"
    )
    if data.kind == "scaling":
        return (
            f"{counted(data.repeats, 'rounds')} of trials, one for each number of {scaling_sentences.head(data)[0]}, "
            f"up and down in turn, {each}; {scaling_sentences.kept(data)}; {scaling_sentences.about(data)}"
        )
    if data.kind == "rate":
        return (
            f"a ramp of the learning rate ({rate_sentences.SOURCE}), then {pairs} of trainings with the preset's rate "
            "and with the suggestion, each pair with a new seed and on the same number of samples; the ratio of the "
            f"losses counts beyond {share(LEAST_GAIN)} and {spreads(data.repeats):.2f} spreads of the pairs"
        )
    if data.sweep is not None:
        return "; ".join(filter(None, (sweep_sentences.ABOUT, sweep_sentences.saved(data.sweep))))
    if data.kind == "diagnosis":
        return f"{pairs} of trials, with its input and on one repeated batch, {each}"
    return (
        f"{pairs} of alternating trials (a b, b a, ...), {each}; a gain is the median of the pairs' gains, and "
        f"counts beyond {share(LEAST_GAIN)} and {spreads(data.repeats):.2f} spreads of the pairs"
    )


def _question(data: Record) -> str:
    if data.kind == "ab" and data.comparisons:
        return f"`--preset {data.preset_name} {proof_sentences.settings(data.comparisons[0].changes)}`"
    if proof_sentences.only_predicts(data):
        return "what memory this training takes, and its largest batch; nothing else was searched (`--dry-run`)"
    if data.kind == "scaling":
        return f"how the speed grows with the number of {scaling_sentences.head(data)[0]}"
    if data.sweep is not None:
        return f"with which settings the training learns best: {sweep_sentences.swept(data.sweep.settings)}"
    return kind(data.kind).question


# ---- how the training was at first --------------------------------------------------------------


def _diagnosis(data: Record) -> Iterator[str]:
    diagnosis = data.diagnosis
    if not diagnosis:
        return
    rests_on = f"confidence {share(diagnosis['confidence'])}, {diagnosis['steps']} steps"
    yield f"## At first\n\n{escaped(diagnosis['sentence'])} ({rests_on})"
    if diagnosis["evidence"]:
        yield trial_tables.evidence(diagnosis).markdown()
    if diagnosis.get("others"):
        yield f"Also found: {proof_sentences.others(diagnosis)}."
    if diagnosis.get("remedies"):
        yield trial_tables.remedies(diagnosis).markdown()
        yield from _code(diagnosis["remedies"])


def _code(remedies: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    if lines := proof_sentences.code_of(remedies):
        yield "\n".join(("```python", *lines, "```"))


def _ablation(data: Record) -> Iterator[str]:
    ablation = data.ablation
    if not ablation:
        return
    yield f"## Without input\n\n{escaped(capital(proof_sentences.input_cost(ablation)))}."
    yield trials_table(ablation.trials, {"a": "as it is", "b": "one repeated batch"})
    if ablation.stages:
        yield trial_tables.input_stages(ablation.stages).markdown()


def _profile(data: Record) -> Iterator[str]:
    """The speed of the profiled trial does not count."""
    if not data.profile_trial:
        return
    yield "## Profile\n\n" + escaped("; ".join(proof_sentences.profile_in_brief(data))) + "."
    yield trials_table([data.profile_trial], {"p": "profiled"})
    report = proof_sentences.profile_of(data)
    if report is not None and report.operations:
        rows = [
            [reports.kind(operation), operation.name, amount(operation.ms), share(operation.share)]
            for operation in report.operations
        ]
        yield Table(["operation", "name", "ms", "share"], rows).markdown()


def _scaling(data: Record) -> Iterator[str]:
    points = scaling_sentences.points(data)
    if not points:
        return
    of_copies = scaling_sentences.is_of_copies(data)
    yield f"## {capital(scaling_sentences.head(data)[0])}"
    yield trial_tables.scaling(data).markdown()
    if remarks := list(scaling_sentences.remarks(data)):
        yield "\n".join(f"- {escaped(capital(line))}." for line in remarks)
    names = {trial.side: scaling_sentences.what(point, of_copies) for point in points for trial in point.trials}
    yield "## Trials"
    yield trials_table([trial for point in points for trial in point.trials], names)


def _rate(data: Record) -> Iterator[str]:
    test = data.rate
    if test is None:
        return
    if test.suggested is not None:
        yield f"## The ramp\n\n{escaped(capital(rate_sentences.suggestion(test)))}."
    if table := rate_sentences.trial_rows(test):
        yield "## Trainings"
        yield Table(list(rate_sentences.HEAD), table).markdown()


def _sweep(data: Record) -> Iterator[str]:
    sweep = data.sweep
    if sweep is None:
        return
    if text := sweep_sentences.luck(sweep):
        yield f"{escaped(capital(text))}."
    if sweep.rivals:
        yield "## On fresh seeds"
        yield sweep_sentences.groups_table(sweep, PROOF).markdown(aligned=True)
    yield "## In the search"
    yield sweep_sentences.groups_table(sweep).markdown(aligned=True)
    yield "## All trials"
    yield sweep_sentences.trials_table(sweep).markdown(aligned=True)


def _section(section: Section) -> Iterator[str]:
    yield f"## {escaped(capital(section.title))}"
    if section.head:
        yield section.table.markdown()
    if section.sentences:
        yield "\n".join(f"- {escaped(capital(line))}." for line in section.sentences)


# ---- what was compared --------------------------------------------------------------------------


def _comparison(number: int, comparison: Comparison, data: Record) -> Iterator[str]:
    place = f"{number}. " if data.kind == "loop" else "Proof: " if data.kind == "tune" else ""
    head = f"## {place}`{proof_sentences.changes(comparison.changes)}`: {comparison.decision}"
    lines = [f"Why tried: {comparison.reason}." if data.kind in ("loop", "tune") and comparison.reason else ""]
    if comparison.expected_gain:
        lines.append(f"Expected: at most {times(comparison.expected_gain)} as fast.")
    lines.append(f"Result: {comparison.why or 'none'}.")
    yield f"{head}\n\n{escaped(' '.join(filter(None, lines)))}"
    if comparison.trials:
        yield trials_table(comparison.trials, {"a": "without", "b": "with"})
    if learning := comparison.learning:
        yield escaped(proof_sentences.learned(learning))


def _before_and_after(data: Record) -> Iterator[str]:
    table = trial_tables.before_and_after(data)
    if table.rows and data.kind not in ("diagnosis", "scaling"):
        yield "## Before and after"
        yield table.markdown()
        if data.gain_total is not None:
            yield _gain(data)


def _gain(data: Record) -> str:
    several = sum(comparison.decision == "kept" for comparison in data.comparisons) > 1
    how = (
        "the smaller of two figures: the gains of what is kept, multiplied, and the speed in the last pair divided by "
        "that in the first"
        if several
        else "the median gain of the pairs; the table has the figures of that pair"
    )
    return f"{capital(proof_sentences.speedup(data))} ({how})."


def _ending(data: Record) -> Iterator[str]:
    if disturbed := proof_sentences.disturbance(data):
        yield f"{escaped(disturbed)}."
    if data.ended_because and not proof_sentences.only_predicts(data):  # the prediction is the conclusion
        yield f"Ended because: {escaped(data.ended_because)}."
    if data.final_verdict:
        yield f"In the end: {escaped(data.final_verdict['sentence'])}"
    if data.advice:
        yield "\n".join(("## Advice", "", *(f"- {escaped(capital(each['reason']))}." for each in data.advice)))
        yield from _code(data.advice)


def _preset(data: Record) -> Iterator[str]:
    text, title = data.preset_after, "The resulting preset"
    if not text:
        text, title = data.preset_before, "The preset"
    elif data.changes_kept:
        title += f" ({proof_sentences.changes(data.changes_kept)})"
    yield f"## {escaped(title)}\n\n```yaml\n{without_private(text).strip()}\n```"


def without_private(text: str) -> str:
    """Return the YAML text of a preset without its private groups, for reports that may be shared."""
    return re.sub(rf"(?m)^({'|'.join(PRIVATE)}):.*\n(?:[ \t].*(?:\n|\Z))*", "", text)


def capital(text: str) -> str:
    """Return the text with a capital letter, unless its first word is a setting such as `cache=memory`."""
    first = text.split(" ", 1)[0]
    return text if "=" in first else text[:1].upper() + text[1:]


def trials_table(rows: Sequence[Trial], names: Mapping[str, str]) -> str:
    """Return a table of trials in Markdown, failed ones included; `names` has the title for each side."""
    return trial_tables.trials((names[trial.side], trial) for trial in rows).markdown()
