"""Lets a training continue after its memory has run out (run.on_oom) or XLA has failed, with another option and in
another trainer, as TensorFlow frees the memory of a GPU reliably only if its process ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from ..files import places
from ..files.writing import write_atomically
from ..options import Options, options_json
from ..runs import Run, checkpoint_files, titles
from ..runs.event_reading import events_of, last_of
from ..runs.events import MemoryAnswer, OptionChanged, Phase, Progress, Started, XlaAnswer
from .known_failures import MEMORY, XLA

MOST_ANSWERS = 12  # of one engine; each halves the samples that are computed at once
# In other phases the memory does not depend on the size of the batch.
HELPS_IN = ("compiling", "training", "evaluating")
CHECKPOINTS = "checkpoints"
XLA_KEY = "compile.xla"


@dataclass(frozen=True)
class Answer:
    """A change of one option with which the training continues."""

    key: str
    before: Any
    after: Any
    event: OptionChanged
    hint: str = ""
    kind: str = MEMORY  # the kind of the warning


def oom_answer(run: Run, options: Options, given_before: int) -> Answer | str:
    """The change as run.on_oom requires, after `given_before` ones in this run; a text says why none helps."""
    started, phase = last_of(run.path, Started), _last_phase(run)
    if started is None or phase not in HELPS_IN:
        return f"memory ran out in the phase {phase!r}, where smaller batches do not help"
    if given_before >= MOST_ANSWERS:
        return f"it has been tried {MOST_ANSWERS} times"
    try:
        checkpoint = checkpoint_files.whole_step(run.file(CHECKPOINTS))
    except checkpoint_files.Damage as damage:
        return f"there is no intact checkpoint to go on from ({damage})"
    steps = [event.step for event in events_of(run.path, Progress) if event.t >= started.t]  # of the latest trainer
    step = steps[-1] if steps else None
    ran_out = "out of memory in the first steps" if step is None else f"out of memory after step {step}"
    answer: Literal["halve", "accumulate"]
    if options.run.on_oom == "halve":
        answer, key, checkpoint = "halve", "input.batch_size", None
        before = started.option(key) or options.input.batch_size  # the fit of a script may have decided it
        if key in started.inapplicable:
            return f"{key} does nothing here: {started.inapplicable[key]}"
        if before == 1:
            return "the batch size is 1 already"
        after = before // 2
        message = f"{ran_out}: the training begins again with batch size {after} instead of {before}"
        rate = f"train.learning_rate stays {options.train.learning_rate:g}"
        if why := started.inapplicable.get("train.learning_rate"):
            rate = f"the learning rate stays as it is ({why})"
        hint = f"{rate}; a smaller batch often needs a lower one"
    else:
        answer, key, before = "accumulate", "train.micro_batches", options.train.micro_batches
        samples = (started.global_batch_size or 0) // (started.replicas or 1) or options.input.batch_size
        after = min(2 * before, samples)
        if after <= before:
            return "each sample is a part of its own already"
        is_active = "begins again" if checkpoint is None else f"goes on from step {checkpoint}"
        message = f"{ran_out}: the training {is_active} with each batch of {samples} in {after} parts"
        hint = f"global batch and learning rate stay; train.micro_batches={after} begins so"
        if options.run.checkpoint == "off":
            hint += "; with run.checkpoint set, what was trained would have been kept"
    event = MemoryAnswer(
        answer=answer, number=given_before + 1, option=key, before=before, after=after, ran_out_after_step=step,
        resumes_at_step=checkpoint, message=message,
    )  # fmt: skip
    return Answer(key, before, after, event, hint)


def _last_phase(run: Run) -> str:
    phases = [event.phase for event in events_of(run.path, Phase) if event.phase != "ended"]
    return phases[-1] if phases else "starting"


def xla_answer(run: Run, options: Options, result: Mapping[str, Any]) -> Answer | str | None:
    """`compile.xla` becomes false; a text says why not. None if the run (with the trainer's `result`) ended for another
    reason, compile.xla was not auto, or XLA failed in the user's own code.
    """
    error = result.get("error") or {}
    if error.get("kind") != XLA or options.compile.xla != "auto":
        return None
    started = last_of(run.path, Started)
    if started is None or started.actual.get("jit_compile") is not True or _last_phase(run) not in HELPS_IN:
        return None  # XLA has compiled something else, in the user's code
    try:
        checkpoint = checkpoint_files.whole_step(run.file(CHECKPOINTS))
    except checkpoint_files.Damage as damage:
        return f"there is no intact checkpoint to go on from ({damage})"
    is_active = "begins again" if checkpoint is None else f"goes on from step {checkpoint}"
    why, remedy = error.get("message") or "", error.get("hint")
    message = f"XLA has failed: the training {is_active} without it"
    event = XlaAnswer(
        option=XLA_KEY, before="auto", after=False, resumes_at_step=checkpoint, error=why, message=message
    )
    return Answer(
        XLA_KEY, "auto", False, event, f"{XLA_KEY}=false begins so{f': {why}; {remedy}' if remedy else ''}", XLA
    )


def record(run: Run, options: Options, chosen: Answer) -> Options:
    """Write the change into the run's files, and move checkpoints aside if the training begins again. Returns the new
    options. OSError: a file cannot be written; the checkpoints are then moved back.
    """
    aside = None
    if chosen.event.resumes_at_step is None and checkpoint_files.steps_in(run.file(CHECKPOINTS)):
        aside = run.file(f"{CHECKPOINTS}-{places.next_number(run.path, f'{CHECKPOINTS}-')}")
        os.rename(run.file(CHECKPOINTS), aside)
    changes = {chosen.key: chosen.after}
    if left := options.workload.left_to_fit:
        changes["workload.left_to_fit"] = [key for key in left if key != chosen.key]
    options = options.with_values(changes)
    preset = yaml.safe_load(run.file("preset.yaml").read_text(encoding="utf-8"))
    for group, name in (key.split(".") for key in changes):
        preset[group][name] = changes[f"{group}.{name}"]
    content = yaml.safe_dump(preset, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    try:
        write_atomically(run.file("preset.yaml"), content)
        write_atomically(run.file(options_json.FILE), options_json.to_json(options))
        titles.add_change(run, chosen.key, chosen.before, chosen.after)
    except OSError:
        if aside is not None:  # a later resume has the options as they are
            os.rename(aside, run.file(CHECKPOINTS))
        raise
    return options
