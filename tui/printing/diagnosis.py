"""Prints a diagnosis: the sentence, its evidence with thresholds and sources, findings, remedies, input stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...engine.diagnosis import label
from ...engine.profile import reports
from ...engine.profile.reports import InputTime, Operation, ProfileReport
from ...engine.trials import proof_sentences, trial_tables
from ...engine.units import amount, counted, share, size
from ..base.errors import clean
from .plain_tables import show_table


def show(diagnosis: Mapping[str, Any]) -> None:
    if diagnosis.get("learning"):
        print(clean(diagnosis["learning"]))
    print(clean(diagnosis["sentence"]))
    if diagnosis["verdict"] != "undecided":
        print(f"confidence {share(diagnosis['confidence'])}, from {counted(diagnosis['steps'], 'steps')}")
    if diagnosis["evidence"]:
        print()
        show_table(trial_tables.evidence(diagnosis))
    if diagnosis["others"]:
        print(f"\nalso: {', '.join(label(name) for name in diagnosis['others'])}")
    if diagnosis["remedies"]:
        print()
        show_table(trial_tables.remedies(diagnosis).numbered())
        show_code(diagnosis["remedies"])


def show_code(remedies: Iterable[Mapping[str, Any]]) -> None:
    for line in proof_sentences.code_of(remedies):
        print(clean(f"    {line}"))


def show_stages(stages: Sequence[Mapping[str, Any]]) -> None:
    """Print the stages of the input pipeline with the ms from batch to batch, which take parallel calls into
    account."""
    show_table(trial_tables.input_stages(stages))


# ---- a profile ------------------------------------------------------------------------------------


WIDTH = 60
MOST_LAYERS = 12  # longest layers, each in a line


def lines(report: ProfileReport) -> list[str]:
    return [clean(line) for line in _lines(report)]


def _lines(report: ProfileReport) -> Iterator[str]:
    steps = counted(report.steps, "steps")
    yield f"profile of {steps} on the {report.device}, {amount(report.step_ms)} ms each, read by XProf"
    yield from _shares(report)
    yield from _input(report)
    yield from _operations(report)
    yield from _layers(report)
    if report.compute_16bit is not None:
        yield f"{share(report.compute_16bit)} of the device's computing in 16 bits"
    if report.peak_memory_bytes is not None:
        yield f"{size(report.peak_memory_bytes)} of tensors at most"
    yield f"for TensorBoard and XProf: {report.path}"


def _shares(report: ProfileReport) -> Iterator[str]:
    for words, value in reports.shares(report):
        yield f"  {share(value):>5}  {words}"


def _input(report: ProfileReport) -> Iterator[str]:
    stage = report.slowest_stage
    if stage is None:
        return
    op = f" ({stage.op})" if stage.op != stage.name else ""
    each = f", {amount(stage.ms_per_batch)} ms per batch" if stage.ms_per_batch is not None else ""
    yield f"slowest input stage: {stage.name}{op}, {share(stage.share)} of the input's own time{each}"
    if report.input_time is not None:
        yield f"input's own time: {_breakdown(report.input_time)}"


def _breakdown(time: InputTime) -> str:
    parts = {
        "preparing": time.preprocessing_ms,
        "reading files": time.reading_ms,
        "transfer to the device": time.transfer_ms,
        "other": time.other_ms,
    }
    return ", ".join(f"{name} {amount(ms)} ms" for name, ms in parts.items() if ms)


def _operations(report: ProfileReport) -> Iterator[str]:
    if report.operations:
        yield f"{reports.PLACES[report.operations_on]} that take most, over the whole profile:"
    kernels = report.operations_on == "GPU kernels"
    yield from (_operation(operation, kernels) for operation in report.operations)


def _operation(operation: Operation, kernel: bool) -> str:
    name = _shortened(operation.name, keep_front=kernel)
    return f"  {amount(operation.ms):>7} ms {share(operation.share):>5}  {name}  {operation.type}".rstrip()


def _layers(report: ProfileReport) -> Iterator[str]:
    if not report.layers:
        if report.layers is not None:
            yield "no operation has the name of a layer: with compile.xla=false they have"
        return
    longest, more = report.layers[:MOST_LAYERS], report.layers[MOST_LAYERS:]
    rows = [
        (_shortened(layer.name, keep_front=False), layer.share, amount(layer.forward_ms), amount(layer.backward_ms))
        for layer in longest
    ]
    if more:
        forward_ms = sum(layer.forward_ms for layer in more)
        backward_ms = sum(layer.backward_ms for layer in more)
        others = counted(len(more), "more layers")
        rows.append((others, sum(layer.share for layer in more), amount(forward_ms), amount(backward_ms)))
    yield f"layers that take most, as shares of all {reports.PLACES[report.operations_on]} (ms forward, ms backward):"
    for name, part, forward, backward in rows:
        yield f"  {share(part):>5}  {forward:>8} {backward:>8}  {name}"
    outside = max(0.0, 1 - sum(layer.share for layer in report.layers))
    yield f"  {share(outside):>5}  {'':>8} {'':>8}  outside of layers: optimizer, loss, metrics"


def _shortened(name: str, keep_front: bool) -> str:
    # The beginning says what a kernel does, the end what an operation is.
    if len(name) <= WIDTH:
        return name
    return f"{name[: WIDTH - 3]}..." if keep_front else f"...{name[3 - WIDTH :]}"
