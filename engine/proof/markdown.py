"""A proof as a report in Markdown that stands by itself: what was asked, on what machine, every trial, the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import words
from .pairs import LEAST_GAIN

_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("samples_per_second", "samples/s", lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.3g}"),
    ("step_ms", "ms/step", lambda v: f"{v:.3g}" if v < 100 else f"{v:.0f}"),
    ("input_wait", "input wait", lambda v: f"{100 * v:.0f} %"),
    ("peak_memory_bytes", "peak memory", lambda v: f"{v / 2**20:,.1f} MiB"),
    ("gpu_busy_mean", "GPU busy", lambda v: f"{100 * v:.0f} %"),
)
_TITLES = {"ab": "Before and after", "loop": "Faster, one change at a time", "diagnosis": "What the input costs"}


def as_markdown(data: Mapping[str, Any]) -> str:
    """The whole report of a proof.json."""
    parts = [
        f"# {_TITLES.get(data['kind'], 'Proof')}: {_cell(data['preset_name'])}",
        f"**{_cell(_capital(words.conclusion(data)))}.**",
        _asked(data),
        *_diagnosis(data),
        *_ablation(data),
        *(part for number, one in enumerate(data["comparisons"], 1) for part in _comparison(number, one, data)),
        *_before_and_after(data),
        *_ending(data),
        *_preset(data),
    ]
    return "\n\n".join(parts) + "\n"


def _asked(data: Mapping[str, Any]) -> str:
    machine, versions = data.get("machine") or {}, data.get("versions") or {}
    gpus = ", ".join(str(name) for name in machine.get("gpus") or ()) or f"none ({machine.get('no_gpu_reason') or '-'})"
    libraries = [f"{name} {version}" for name, version in versions.items()]
    rows = [
        ("proof", f"`{data['id']}`, {data['state']}"),
        ("taken", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(data["started_t"]))
         + f", in {data['seconds']:.0f} s"),
        ("asked", _question(data)),
        ("method", f"{data['repeats']} pairs of trials in turn (a b, b a, ...), each in fresh processes, "
                   f"{data['measure_seconds']:g} s measured after the warm-up, speeds as means over it; a change "
                   f"counts beyond {100 * LEAST_GAIN:.0f} % and twice the spread of the pairs' gains"),
        ("machine", f"{machine.get('cpus', '-')} CPUs ({machine.get('processor') or 'unknown'}), "
                    f"{(machine.get('memory_bytes') or 0) / 2**30:.1f} GiB, {machine.get('system', '-')}"),
        ("GPUs", gpus),
        ("versions", ", ".join([f"gputui {machine.get('gputui', '-')}", *libraries])),
    ]
    return _table(["", ""], [[name, text] for name, text in rows])


def _question(data: Mapping[str, Any]) -> str:
    if data["kind"] == "ab" and data["comparisons"]:
        return f"`--preset {data['preset_name']} {words.settings(data['comparisons'][0]['changes'])}`"
    if data["kind"] == "diagnosis":
        return "what holds the training back, and what its input costs"
    return "what makes the training faster, by the remedies for what holds it back"


def _diagnosis(data: Mapping[str, Any]) -> Iterator[str]:
    found = data.get("diagnosis")
    if not found:
        return
    rows = [[e["text"], f"{e['value']:.3g}", _threshold(e), e["source"]] for e in found["evidence"]]
    yield f"## At first\n\n{_cell(found['sentence'])} (confidence {found['confidence']:.2f}, {found['steps']} steps)"
    if rows:
        yield _table(["evidence", "value", "threshold", "source"], rows)


def _threshold(evidence: Mapping[str, Any]) -> str:
    return "-" if evidence.get("threshold") is None else f"{evidence['threshold']:g}"


def _ablation(data: Mapping[str, Any]) -> Iterator[str]:
    ablation = data.get("ablation")
    if not ablation:
        return
    yield f"## Without input\n\n{_cell(_capital(words.input_cost(ablation)))}."
    yield _trials(ablation["trials"], {"a": "as it is", "b": "one batch, prepared once"})
    stages = [[stage["name"], stage.get("op") or "-", _ms(stage.get("ms_per_batch")),
               str(stage.get("parallelism") or "-")] for stage in ablation.get("stages") or ()]
    if stages:
        yield _table(["input stage", "operation", "ms a batch", "in parallel"], stages)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _comparison(number: int, one: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    place = f"{number}. " if data["kind"] == "loop" else ""
    head = f"## {place}`{words.changes(one['changes'])}`: {one['decision']}"
    told = [f"Why tried: {one['reason']}." if data["kind"] == "loop" else ""]
    if one.get("expected_gain"):
        told.append(f"Expected: at most {words.times(one['expected_gain'])} as fast.")
    told.append(f"Result: {one['why'] or 'none'}.")
    yield f"{head}\n\n{_cell(' '.join(filter(None, told)))}"
    if one["trials"]:
        yield _trials(one["trials"], {"a": "without", "b": "with"})
    if learning := one.get("learning"):
        yield _cell(learned(learning))


def learned(learning: Mapping[str, Any]) -> str:
    """One line: what changes in learning, and the losses of both sides."""
    a, b = learning.get("loss_a"), learning.get("loss_b")
    if a is None or b is None:
        return f"Note: {learning['note']}; the losses are not known."
    return f"Note: {learning['note']}; loss after {learning['samples']:,} samples: {a:.4g} without, {b:.4g} with."


def _trials(trials: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    figures = [row for row in _FIGURES if any(trial.get(row[0]) is not None for trial in trials)]
    losses = any(trial.get("loss_at_samples") is not None for trial in trials)
    head = ["trial", "side", "repeat", *(label for _, label, _ in figures), *(["loss"] if losses else []), "outcome"]
    rows = [
        [
            trial["run"], names[trial["side"]], str(trial["repeat"]),
            *("-" if trial.get(key) is None else shown(trial[key]) for key, _, shown in figures),
            *([_ms(trial.get("loss_at_samples"))] if losses else []),
            trial["outcome"] + (f": {trial['error']}" if trial.get("error") else ""),
        ]
        for trial in trials
    ]
    return _table(head, rows)


def _before_and_after(data: Mapping[str, Any]) -> Iterator[str]:
    before, after = data.get("before") or {}, data.get("after") or {}
    rows = [
        [label, *("-" if side.get(key) is None else shown(side[key]) for side in (before, after))]
        for key, label, shown in _FIGURES
        if before.get(key) is not None or after.get(key) is not None
    ]
    if rows and data["kind"] != "diagnosis":
        yield "## Before and after"
        yield _table(["median", "before", "after"], rows)
        if data.get("gain_total") is not None:
            yield f"{words.times(data['gain_total'])} as fast (the gains of what is kept, multiplied)."


def _ending(data: Mapping[str, Any]) -> Iterator[str]:
    if data.get("ended_because"):
        yield f"Ended because: {_cell(data['ended_because'])}."
    if data.get("final_verdict"):
        yield f"In the end: {_cell(data['final_verdict']['sentence'])}"


def _preset(data: Mapping[str, Any]) -> Iterator[str]:
    text, title = data.get("preset_after"), "The resulting preset"
    if not text:
        text, title = data["preset_before"], "The preset"
    elif data.get("changes_kept"):
        title += f" ({words.changes(data['changes_kept'])})"
    yield f"## {_cell(title)}\n\n```yaml\n{text.strip()}\n```"


def _capital(text: str) -> str:
    """A sentence begins with a capital, unless it begins with the name of an option."""
    first = text.split(" ", 1)[0]
    return text if "=" in first else text[:1].upper() + text[1:]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
