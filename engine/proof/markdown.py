"""A proof as a report in Markdown that stands by itself: what was asked, on what machine, every trial, the result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..measuring import LEAST_STEPS
from . import markdown_findings, sentences
from .markdown_parts import FIGURES, capital, cell, table, trials
from .pairs import LEAST_GAIN, SPREADS, least_told

_TITLES = {"ab": "Before and after", "loop": "Faster, one change at a time", "diagnosis": "What the input costs"}


def as_markdown(data: Mapping[str, Any]) -> str:
    """The whole report of a proof.json."""
    parts = [
        f"# {_TITLES.get(data['kind'], 'Proof')}: {cell(data['preset_name'])}",
        f"**{cell(capital(sentences.conclusion(data)))}.**",
        _asked(data),
        *markdown_findings.diagnosis(data),
        *markdown_findings.ablation(data),
        *markdown_findings.profile(data),
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
        ("method", _method(data)),
        ("machine", f"{machine.get('cpus', '-')} CPUs ({machine.get('processor') or 'unknown'}), "
                    f"{(machine.get('memory_bytes') or 0) / 2**30:.1f} GiB, {machine.get('system', '-')}"),
        ("GPUs", gpus),
        ("versions", ", ".join([f"gputui {machine.get('gputui', '-')}", *libraries])),
    ]
    return table(["", ""], [[name, text] for name, text in rows])


def _method(data: Mapping[str, Any]) -> str:
    pairs = "1 pair" if data["repeats"] == 1 else f"{data['repeats']} pairs"
    each = (f"each in fresh processes, {data['measure_seconds']:g} s and at least {LEAST_STEPS} steps measured after "
            "the warm-up, speeds as means over it")
    if data["kind"] == "diagnosis":
        return f"{pairs} of trials, with its input and on one batch prepared once, {each}"
    return (f"{pairs} of trials in turn (a b, b a, ...), {each}; a gain is the median of the pairs' own gains, and "
            f"counts beyond {100 * LEAST_GAIN:.0f} % and {_spreads(data['repeats'])} the spread of them")


def _spreads(repeats: int) -> str:
    """Twice, or less where there are more than three pairs (pairs.py)."""
    count = least_told(1.0, repeats)
    return "twice" if count == SPREADS else f"{count:.2f} times"


def _question(data: Mapping[str, Any]) -> str:
    if data["kind"] == "ab" and data["comparisons"]:
        return f"`--preset {data['preset_name']} {sentences.settings(data['comparisons'][0]['changes'])}`"
    if data["kind"] == "diagnosis":
        return "what holds the training back, and what its input costs"
    return "what makes the training faster, by the remedies for what holds it back"


def _comparison(number: int, one: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    place = f"{number}. " if data["kind"] == "loop" else ""
    head = f"## {place}`{sentences.changes(one['changes'])}`: {one['decision']}"
    told = [f"Why tried: {one['reason']}." if data["kind"] == "loop" else ""]
    if one.get("expected_gain"):
        told.append(f"Expected: at most {sentences.times(one['expected_gain'])} as fast.")
    told.append(f"Result: {one['why'] or 'none'}.")
    yield f"{head}\n\n{cell(' '.join(filter(None, told)))}"
    if one["trials"]:
        yield trials(one["trials"], {"a": "without", "b": "with"})
    if learning := one.get("learning"):
        yield cell(learned(learning))


def learned(learning: Mapping[str, Any]) -> str:
    """One line: what changes in learning, and the losses of both sides."""
    a, b = learning.get("loss_a"), learning.get("loss_b")
    if a is None or b is None:
        return f"Note: {learning['note']}; the losses are not known."
    return f"Note: {learning['note']}; loss after {learning['samples']:,} samples: {a:.4g} without, {b:.4g} with."


def _before_and_after(data: Mapping[str, Any]) -> Iterator[str]:
    before, after = data.get("before") or {}, data.get("after") or {}
    rows = [
        [label, *("-" if side.get(key) is None else shown(side[key]) for side in (before, after))]
        for key, label, shown in FIGURES
        if before.get(key) is not None or after.get(key) is not None
    ]
    if rows and data["kind"] != "diagnosis":
        yield "## Before and after"
        yield table(["median", "before", "after"], rows)
        if data.get("gain_total") is not None:
            yield _gain(data)


def _gain(data: Mapping[str, Any]) -> str:
    """The gain, and why the medians above may say another one."""
    several = " of what is kept, multiplied" if len(data.get("comparisons") or ()) > 1 else ""
    told = f"{capital(sentences.speedup(data))} (the median gain of the pairs{several})"
    other = sentences.differing_medians(data)
    if other:
        told += f"; {other} by the medians in the table, which were taken over the whole proof and not pair by pair"
    return f"{told}."


def _ending(data: Mapping[str, Any]) -> Iterator[str]:
    if disturbed := sentences.disturbance(data):
        yield f"{cell(disturbed)}."
    if data.get("ended_because"):
        yield f"Ended because: {cell(data['ended_because'])}."
    if data.get("final_verdict"):
        yield f"In the end: {cell(data['final_verdict']['sentence'])}"


def _preset(data: Mapping[str, Any]) -> Iterator[str]:
    text, title = data.get("preset_after"), "The resulting preset"
    if not text:
        text, title = data["preset_before"], "The preset"
    elif data.get("changes_kept"):
        title += f" ({sentences.changes(data['changes_kept'])})"
    yield f"## {cell(title)}\n\n```yaml\n{text.strip()}\n```"
