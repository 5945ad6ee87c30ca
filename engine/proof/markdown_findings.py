"""The report on how the training was at first: the diagnosis with its remedies, the ablation, the profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..profile import phrases
from . import profiled, sentences
from .markdown_parts import capital, cell, figure, table, trials


def diagnosis(data: Mapping[str, Any]) -> Iterator[str]:
    found = data.get("diagnosis")
    if not found:
        return
    yield f"## At first\n\n{cell(found['sentence'])} (confidence {found['confidence']:.2f}, {found['steps']} steps)"
    rows = [[e["text"], f"{e['value']:.3g}", _threshold(e), e["source"]] for e in found["evidence"]]
    if rows:
        yield table(["evidence", "value", "threshold", "source"], rows)
    if found.get("others"):
        yield f"Also found: {sentences.others(found)}."
    if found.get("remedies"):
        yield table(["remedy", "reason", "expected"], [_remedy(remedy) for remedy in found["remedies"]])


def _threshold(evidence: Mapping[str, Any]) -> str:
    return "-" if evidence.get("threshold") is None else f"{evidence['threshold']:g}"


def _remedy(remedy: Mapping[str, Any]) -> list[str]:
    gain = remedy.get("expected_gain")
    learns = "; changes what is learnt" if remedy.get("changes_learning") else ""
    what = f"`{sentences.changes(remedy['changes'])}`" if remedy["changes"] else "(advice)"
    return [what, remedy["reason"] + learns, "-" if gain is None else f"at most {sentences.times(gain)}"]


def ablation(data: Mapping[str, Any]) -> Iterator[str]:
    told = data.get("ablation")
    if not told:
        return
    yield f"## Without input\n\n{cell(capital(sentences.input_cost(told)))}."
    yield trials(told["trials"], {"a": "as it is", "b": "one batch, prepared once"})
    stages = [[stage["name"], stage.get("op") or "-", figure(stage.get("ms_per_batch")),
               str(stage.get("parallelism") or "-")] for stage in told.get("stages") or ()]
    if stages:
        yield table(["input stage", "operation", "ms a batch", "in parallel"], stages)


def profile(data: Mapping[str, Any]) -> Iterator[str]:
    """What a step consists of, or why that is not known; the trial's speed counts for nothing."""
    if not data.get("profile_trial"):
        return
    yield "## Profile\n\n" + cell("; ".join(profiled.in_brief(data))) + "."
    yield trials([data["profile_trial"]], {"p": "profiled"})
    report = profiled.report(data)
    if report is not None and report.operations:
        rows = [[phrases.kind(one), one.name, figure(one.ms), f"{100 * one.share:.0f} %"]
                for one in report.operations]
        yield table(["operation", "name", "ms", "share"], rows)
