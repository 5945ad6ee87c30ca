"""The diagnosis of figures and of played runs, in golden/answers/diagnoses.txt and played.txt, and on
learning, in learning.txt.

`gpu input.prefetch=off transfer=0.4`: options and figures in place of those of tests/support/judged.py. `gpu:` asks for
the remedies alone, and `transfer~0.1,0.2` for the verdict alone with several values of a figure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import yaml

from tests.contract.conftest import HERE, Golden
from tests.doors.engine import (
    RULES,
    VERDICTS,
    Collector,
    Diagnosis,
    Measurements,
    RunState,
    SteadyVerdict,
    diagnose,
    judged_learning,
    recalled,
)  # fmt: skip
from tests.proof.judged import OPTIONS, STAGES, gpu, measured

GIB = 1024**3


@cache
def value_of(text: str) -> Any:
    if text == "STAGES":
        return STAGES
    value = yaml.safe_load(re.sub(r"([\d.]+)GiB", lambda match: str(int(float(match[1]) * GIB)), text))
    return tuple(value) if isinstance(value, list) else value


def given(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options among the words, which have a point in their names, and the figures."""
    values = {name: value_of(text) for name, text in (word.split("=", 1) for word in words)}
    options = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if "." in name
    }
    return options, {name: value for name, value in values.items() if "." not in name}


def verdict(found: Diagnosis) -> str:
    also = f"; also {', '.join(found.others)}" if found.others else ""
    limit = f" from {found.evidence[0]['threshold']}" if found.evidence else ""
    return f"{found.verdict} {found.confidence:g}{limit}{also}"


def in_brief(remedy: Mapping[str, Any]) -> str:
    """The changes of a remedy, or the beginning of an advice, and the gain."""
    changes = " ".join(f"{key}={value}" for key, value in remedy["changes"].items()) or f"({remedy['reason'][:40]} ...)"
    more = f", {remedy['expected_gain']} times" if remedy["expected_gain"] else ""
    more += ", changes learning" if remedy["changes_learning"] else ""
    return f"{remedy['step']} {changes}{more}" + (f", {len(remedy['code'])} lines" if remedy["code"] else "")


def judged(question: str) -> Iterator[str]:
    device, *words = shlex.split(question)
    make = gpu if device.startswith("gpu") else measured
    options, figures = given([word for word in words if "~" not in word])
    if several := [word for word in words if "~" in word]:
        name, _, texts = several[0].partition("~")
        values = {text: diagnose(make(options, **figures | {name: value_of(text)})) for text in texts.split(",")}
        yield " | ".join(f"{text}: {verdict(found)}" for text, found in values.items())
        return
    found = diagnose(make(options, **figures))
    if device.endswith(":"):
        yield " | ".join(map(in_brief, found.remedies))
        return
    yield f"{verdict(found)}: {found.sentence}"
    for row in found.evidence:
        yield "- {signal} {value} {unit} from {threshold} ({source}): {text}".format(**row)
    for remedy in found.remedies:
        yield (
            f"> {in_brief(remedy)}: {remedy['reason']}"
            if remedy["changes"]
            else f"> {remedy['step']}: {remedy['reason']}"
        )


def test_what_figures_mean(golden: Golden) -> None:
    golden.answers("answers/diagnoses.txt", judged)


def test_each_verdict_and_each_rule_is_asked_for(golden: Golden) -> None:
    text = (HERE / "golden/answers/diagnoses.txt").read_text(encoding="utf-8")
    assert [word for word in VERDICTS if f" {word} " not in text] == []
    assert [rule.measurement for rule in RULES if f"{rule.measurement}~" not in text] == []


# ---- played runs ---------------------------------------------------------------------------------

PHASES = ("importing", "compiling", "training", "evaluating", "saving", "ended")
CARD = {"busy": 0.97, "memory_used_bytes": 5 * GIB, "memory_total_bytes": 8 * GIB, "name": "A GPU"}
USUAL: dict[str, dict[str, Any]] = {
    "progress": {"step_ms_p50": 50.0, "step_ms_p95": 55.0, "input_wait": 0.01, "python_share": 0.01},
    "host": {"memory_used_bytes": 4 * GIB, "memory_total_bytes": 10 * GIB, "trainer_bytes": 2 * GIB},
    "started": {"devices": ["/device:GPU:0"], "gpus": ["GPU-0"], "train_samples": 4096, "global_batch_size": 64,
                "gpu_devices": [{"device": "/device:GPU:0", "uuid": "GPU-0"}], "compute_capability": [9, 0]},
}  # fmt: skip


@cache
def measured_of(question: str) -> Measurements:
    """`run OPTION=VALUE ...: EVENT; 30 x EVENT; ...`. An event is a phase with its detail, or a type with its fields as
    YAML, `gpu` those of each GPU. A second passes with each; `@90 EVENT` is at that second. `<5+0.1>` grows.
    """
    head, _, story = question.partition(": ")
    now, step, events = 0.0, 0, list[dict[str, Any]]()
    for part in story.split("; "):
        match = re.fullmatch(r"(?:@(?P<at>[\d.]+) )?(?:(?P<often>\d+) x )?(?P<type>\w+) ?(?P<more>.*)", part)
        assert match is not None, part
        now = float(match["at"]) if match["at"] else now
        for number in range(int(match["often"] or 1)):
            event: dict[str, Any] = {"t": now, "type": match["type"]}
            text = re.sub(
                r"<([\d.]+)\+([\d.]+)>", lambda m, n=number: f"{float(m[1]) + float(m[2]) * n:.12g}", match["more"]
            )
            if match["type"] in PHASES:
                event |= {"type": "phase", "phase": match["type"], "detail": match["more"]}
            elif match["type"] == "gpu":
                event["gpus"] = [
                    {"index": i, "uuid": f"GPU-{i}"} | CARD | card for i, card in enumerate(value_of(f"[{text}]"))
                ]
            else:
                event |= USUAL.get(match["type"], {}) | {"step": step + 20} | value_of(f"{{{text}}}")
                step = event["step"] if match["type"] == "progress" else step
            events.append(event)
            now += 1.0
    collector = Collector(OPTIONS | given(head.split()[1:])[0])
    collector.feed(map(recalled, events))
    return collector.measurements()


def played(question: str) -> Iterator[str]:
    """The figures that are not those of the usual run, and the verdict."""
    known, usual = measured_of(question), measured_of("run: started; training; 30 x gpu {}; 40 x progress")
    pairs = ((each.name, getattr(known, each.name)) for each in fields(known) if each.name != "options")
    found, figures = (
        diagnose(known),
        [f"{name} {_rounded(value)}" for name, value in pairs if value != getattr(usual, name)],
    )
    yield f"{', '.join(figures)}: {verdict(found)}: {found.sentence}"


def _rounded(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def test_what_played_runs_measure(golden: Golden) -> None:
    golden.answers("answers/played.txt", played)


# ---- learning, and which verdicts are shown --------------------------------------------------------


def learnt(question: str) -> Iterator[str]:
    head, _, told = question.partition(": ")
    if head == "shown":
        steady, shown = SteadyVerdict(), list[str]()
        for times, word in (part.split(" x ") for part in told.split("; ")):
            for _ in range(int(times)):
                made = Diagnosis(verdict=word, sentence=word, confidence=0.9, steps=1, learning=word)
                after = steady.after(made)
                assert after.learning == word
                shown += [after.verdict] * (shown[-1:] != [after.verdict])
        yield " > ".join(shown)
        return
    given = dict(word.split("=", 1) for word in head.split() if "=" in word)
    steps, first = int(given.get("steps", 45)), int(given.get("from", 1))
    actual = {"loss": given["loss"].replace("+", " + "), "learning_rate": float(given.get("rate", 0.01))}
    started = {
        "type": "started", "t": 0.0, "actual": actual | {"classes": value_of(given.get("classes", "null"))},
        "train_samples": value_of(given.get("train", "null")),
        "validation_samples": value_of(given.get("validation", "null")),
        "inapplicable": dict.fromkeys(given.get("inapplicable", "").split(","), "code"),
        "options": {"workload": {"entry": given.get("entry"), "data": given.get("data", "digits")},
                    "train": {"early_stop": given.get("early_stop", "off")},
                    "run": {"keep_best": given.get("keep_best", "off")}},
    }  # fmt: skip
    state, before = RunState.of([recalled(started)]), "-"
    columns = {name: values for name, *values in map(str.split, told.split("; "))}
    last = first + len(columns["loss"]) - 1
    for epoch in range(first, last + 1):
        texts = {name: values[epoch - first] for name, values in columns.items()}
        metrics = {name: None if text == "-" else float(text) for name, text in texts.items()}
        state.fold(recalled({"type": "epoch", "t": epoch, "epoch": epoch, "step": epoch * steps, "metrics": metrics}))
        found = judged_learning(state)
        if found.what.partition(":")[0] != before or epoch == last:
            before = found.what.partition(":")[0]
            yield f"{epoch}: {found.text or 'nothing'}"


def test_what_is_said_of_learning(golden: Golden) -> None:
    golden.answers("answers/learning.txt", learnt)
