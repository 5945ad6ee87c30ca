"""The texts about a run in several views: its phases and endings, its workers, a scaled learning rate, the next step.
Deferred imports: the first paint needs no runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...engine import figures
from ...engine.figures import GPU
from ...engine.options.training import EARLY_STOP, KEEP_BEST
from ...engine.units import amount, counted
from ..base.glyphs import Glyphs

if TYPE_CHECKING:
    from ...engine.runs.events import Diagnosis, Started, Summary, WorkerReadings

DOING = {
    "starting": "starting the engine", "importing": "importing TensorFlow",
    "configuring": "opening the devices", "building": "building", "training": "training",
    "evaluating": "evaluating", "saving": "saving", "script": "running the rest of the script",
    "command": "running the command", "ended": "ending",
}  # fmt: skip
ENDED = {
    "ok": "done", "oom": "out of memory", "error": "failed", "stopped": "stopped",
    "timeout": "ended by its time limit", "crashed": "crashed", "waiting": "waiting in the queue",
}  # fmt: skip
# A trial has about this many steps or more, as it ends by its time (engine/trials/trial_runner.py).
ENDLESS = 900_000_000
ASKED_FOR = ("stopped", "timeout")  # ends that are no failure
NO_PREVIEWS = (
    "there are none yet; they are the images, texts or counts of the model that a function `preview`, which build "
    "returns in its dict, gives after each epoch (docs/own-code.md)"
)


def naming_log(text: str, way: str) -> str:
    """Return the message of a run with the `way` to its log, such as a command, instead of the name of its file."""
    return text.replace("engine.log", f"the log ({way})")


def error_text(error: Mapping[str, Any], run_name: str) -> str:
    return naming_log("\n".join(filter(None, map(error.get, ("message", "hint")))), f"gputui logs {run_name}")


def is_early(outcome: str | None, step: float | None, steps: float | None) -> bool:
    """Return True if a training has ended before its last step because a callback stopped it (model.stop_training)."""
    return outcome == "ok" and step is not None and steps is not None and step < steps < ENDLESS


def compiling(detail: str) -> str:
    """Return a text that says what is being compiled. `detail` is that of the phase `compiling`."""
    what = {"evaluation": "the evaluation", "smaller batch": "for a smaller last batch",
            "another learning rate": "for another learning rate"}.get(detail, "the first step")  # fmt: skip
    return f"compiling {what}"


_BRIEF = {
    "starting": "engine", "importing": "TensorFlow", "configuring": "devices", "building": "building",
    "compiling": figures.of_run("first_step_seconds").label, "training": "training", "evaluating": "evaluation",
    "saving": "saving", "script": "rest of the script", "command": "command",
}  # fmt: skip


def brief(phase: str, detail: str = "") -> str:
    """Return the phase in one or two words, for a text in which its duration follows."""
    from ...engine.runs.events import LATER_COMPILING, waits_for_others

    if phase == "compiling" and detail in LATER_COMPILING:
        return compiling(detail)
    if waits_for_others(phase, detail):
        return "other workers"
    return _BRIEF.get(phase, phase)


def doing(phase: str, detail: str) -> str:
    """Return the activity of the phase in words, such as `importing TensorFlow`."""
    from ...engine.runs.events import waits_for_others

    if phase == "compiling":
        return compiling(detail)
    if waits_for_others(phase, detail):
        return detail
    text = DOING.get(phase, phase)
    return f"{text} {detail}" if phase in ("building", "saving") and detail else text


WITHOUT_VERDICT = "no change is proposed; gputui tune (T in the form) tries changes without a diagnosis"


def next_step(diagnosis: Diagnosis) -> str:
    """Return a sentence that proposes what to do; empty if the diagnosis has a verdict or a remedy."""
    return "" if diagnosis.verdict != "undecided" or diagnosis.remedies else WITHOUT_VERDICT


_SHOWN = ("samples_per_second", "step_ms.p50", "input_wait")


def worker_lines(event: WorkerReadings | None) -> Iterator[str]:
    """Yield a line for each worker of an event `workers`, then a line about the slowest worker."""
    workers: Sequence[Mapping[str, Any]] = event.workers if event else ()
    for worker in workers:
        who = f"worker {worker['index']} ({worker['address']})"
        if worker.get("missing"):
            yield f"{who}: {worker['missing']}"
            continue
        phrases = [figure.phrase(worker.get(figure.progress)) for figure in map(figures.of_run, _SHOWN)]
        phrases += [GPU["busy"].phrase(busy) for busy in worker.get("gpus_busy") or ()]
        yield f"{who}: {'  '.join(phrases)}"
    if event is not None and event.slowest is not None:
        yield f"the others wait for worker {event.slowest}, which waits longest for its input"


def scaled_learning_rate(started: Started) -> str:
    """Return a text such as `learning rate 0.004 (linear over 4 replicas)`; empty if it was not scaled."""
    how = started.option("train.learning_rate_scaling")
    highest, applies = started.actual.get("learning_rate"), "train.learning_rate_scaling" not in started.inapplicable
    if how not in ("linear", "sqrt") or highest is None or (started.replicas or 1) < 2 or not applies:
        return ""
    return f"learning rate {amount(highest)} ({how} over {started.replicas} replicas)"


def sentences(summary: Summary) -> Iterator[str]:
    """Yield what rules of run.watch have done, and the best epochs, if the options asked for them."""
    yield from (str(answer.get("message", "")) for answer in summary.watch)
    best = {entry["option"]: entry for entry in summary.best}
    early, kept = best.get(EARLY_STOP), best.get(KEEP_BEST)
    same = early and kept and (early["figure"], early["epoch"]) == (kept["figure"], kept["epoch"])
    files = [item["file"] for item in (kept or {}).get("files") or () if item["file"]]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    where = f", kept in {files[0]}{more}" if files else ""
    if early:
        ends = ", whose weights the model has" if early.get("restores") and summary.ended_by else ""
        ends += where if same else ""
        begin = stopped_early(summary)
        text = _best(early)
        yield f"{begin}; best {text}{ends}" if begin else f"best {early['figure']} {text}{ends}"
    if kept and not same:
        yield f"best {kept['figure']} {_best(kept)}{where}"


def stopped_early(summary: Summary) -> str:
    """Return a text such as `stopped early after epoch 12: val_loss has not improved for 5 epochs`, else ""."""
    early = next((entry for entry in summary.best if entry["option"] == EARLY_STOP), None)
    if summary.ended_by != "early_stop" or early is None or summary.epochs is None:
        return ""
    since = counted(summary.epochs - early["epoch"], "epochs")
    return f"stopped early after epoch {summary.epochs}: {early['figure']} has not improved for {since}"


def _best(entry: Mapping[str, Any]) -> str:
    return f"{amount(entry.get('value'))} in epoch {entry['epoch']}"


def ending(state: str | None, glyphs: Glyphs) -> tuple[str, str]:
    """Return the mark of an end and its style. A stop on request is no failure, and looks neutral."""
    if state in ("ok", "done"):
        return glyphs.ok, "good"
    return (glyphs.stopped, "value") if state in ASKED_FOR else (glyphs.failed, "bad")
