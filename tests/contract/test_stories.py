"""The story of small trainings: every event, the result and the files of a run, without times, in golden/stories/.

A training is carried out in this process from its options to its result. Their losses (story_programs.py)
are the same on every CPU; of gputui's own models only the names of figures are kept.
"""

from __future__ import annotations

import builtins
import json
import math
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.contract.conftest import Golden
from tests.doors.engine import EventWriter, Run, options_json
from tests.doors.trainer import (
    Devices,
    Prepared,
    RunReport,
    StopSwitch,
    actual_settings,
    devices,
    environment,
    progress_reports,
    session,
)
from tests.support.training import options

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' saving

PROGRAM = Path(__file__).with_name("story_programs.py")
SHORT = ("batch_size=4", "shuffle=off", "validation_split=0", "epochs=2")
OURS = ("model=mlp", "width=0.05", "data=synthetic", "shape=[4]", "classes=3", "samples=44", "batch_size=4",
        "validation_split=0", "epochs=2")  # fmt: skip
RULES = ("early_stop=cost:min", "early_stop_patience=2", "early_stop_restore=true", "keep_best=cost:min",
         "keep_best_count=2", "schedule=reduce_on_plateau", "plateau_figure=cost:min", "plateau_patience=1",
         "plateau_min_rate=0.2", "decay_rate=0.5", "learning_rate=0.5", "optimizer=sgd", "epochs=8", "checkpoint=1",
         "keep=20")  # fmt: skip


def own(*settings: str, **args: Any) -> tuple[str, ...]:
    return ("entry=train.py:story", f"args={json.dumps(args)}", *SHORT, *settings)


def does(what: str, **when: int) -> list[dict[str, Any]]:
    return [{"what": what, **when}]


# The launches of each: settings, or something happens to the files in between.
STORIES: dict[str, tuple[tuple[str, ...] | str, ...]] = {
    "arrays with a validation": (
        own("epochs=3", "checkpoint=epoch", "keep=2", "save_model=true", validation="arrays"),
    ),
    "rules, resumed within an epoch and at the end": (
        own(*RULES, cost=True, rows=8, csv=True, does=does("stopped", step=7)), "its log is changed",
        own(*RULES, cost=True, rows=8, csv=True), own(*RULES, cost=True, rows=8, csv=True),
    ),
    "test data, stopped in their evaluation, and resumed": (
        own(*RULES, cost=True, rows=8, test="stopping", test_samples=5), own(*RULES, cost=True, rows=8, test="arrays"),
    ),
    "test data of other forms, without any, and left out": (
        own(test="pages"), own("evaluate_at_end=true"), own("evaluate_at_end=false", test="arrays"),
        own("cache=memory", data="samples", mapped=True, test="samples"),
        own("batch_size=3", "strategy.kind=mirrored", "steps_per_execution=2", test="arrays", compiled=True),
    ),
    "rules about figures that are missing": (
        own("early_stop=val_loss", rows=4), own("keep_best=f1", rows=4), own("keep_best=cost", cost=True, rows=4),
    ),
    "a Dataset, stopped in an evaluation, and resumed": (
        own("checkpoint=2", "keep=9", data="shuffled", validation="arrays", does=does("stopped", test=1)),
        own("checkpoint=2", "keep=9", data="shuffled", validation="arrays"),
    ),
    "a Dataset that counts its batches, resumed at the end of an epoch": (
        own("checkpoint=epoch", data="counted", does=does("stopped", step=3)), own("checkpoint=epoch", data="counted"),
    ),
    "a batch that is larger than the data, and an end by a callback": (
        own("epochs=9", "batch_size=64", does=does("end", epoch=2)),
    ),
    "options without an effect, and a time limit": (
        own("batch_size=5", "shuffle=7", "cache=memory", "augment=light", "drop_remainder=true", "parallel_calls=2",
            "validation_split=0.2", "clip_norm=1", "prefetch=2", "max_minutes=3", "schedule=reduce_on_plateau",
            "plateau_figure=loss", data="dataset", compiled=True, does=does("timeout", step=3)),
    ),
    "a callback that ends the process": (
        own(validation="arrays", sample_weight=[0.0, 1.0] * 5, does=does("exit", epoch=1)),
    ),
    "weights that are not finite": (
        own("nan_check_steps=1", does=does("nan", step=2)),
        own("nan_check_steps=1", "stop_on_nan=false", does=does("nan", step=2)),
    ),
    "two replicas that share unevenly": (
        own("batch_size=3", "strategy.kind=mirrored", "steps_per_execution=2", class_weight={"0": 2.0},
            validation="arrays", compiled=True),
    ),
    "batches of a function, resumed": (
        own("checkpoint=epoch", rows=16, data="batches", validation="forever", validation_steps=1,
            does=does("stopped", step=5)),
        own("checkpoint=epoch", rows=16, data="batches", validation="forever", validation_steps=1,
            does=does("stopped", step=6)),
        own("checkpoint=epoch", rows=16, data="batches", validation="forever", validation_steps=1),
    ),
    "a PyDataset with arguments of fit": (
        own("epochs=4", data="pages", validation="pages", initial_epoch=1, validation_freq=[2, 3],
            class_weight={"1": 0.5}),
    ),
    "single samples, mapped and kept, in parts": (
        own("cache=memory", "drop_remainder=true", "shuffle=5", "micro_batches=2", "augment=light", "clip_norm=1",
            "validation_split=0.2", data="samples", mapped=True, validation="samples", compiled=True),
    ),
    "a damaged checkpoint, another model, and other replicas": (
        own("checkpoint=1", "keep=2", "epochs=3", layers=2, does=does("stopped", step=6)),
        "its newest checkpoint is damaged",
        own("checkpoint=1", "keep=2", layers=1),
        own("checkpoint=7", "keep=2", "strategy.kind=mirrored", "batch_size=1", layers=2),
    ),
    "executions of four steps in float16": (
        (*OURS, "steps_per_epoch=10", "steps_per_execution=4", "checkpoint=5", "keep=10", "save_model=true",
         "policy=mixed_float16", "input.cast=device"),
    ),
    "a validation split, augmented": (
        (*OURS, "shape=[8, 8, 1]", "samples=14", "validation_split=0.2", "augment=light", "keep_best=val_accuracy",
         "cache=memory"),
    ),
}  # fmt: skip


def leave(code: int) -> None:
    raise AssertionError(f"the process would end with {code}")


@pytest.fixture
def alone(cpus: Devices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the program, in which trainings have this process for themselves, and report after each step."""
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(PROGRAM, folder / "train.py")
    for name in ("path", "argv"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(environment, "prepare", lambda _: Prepared())
    monkeypatch.setattr(devices, "configure", lambda *_: cpus)
    monkeypatch.setattr(actual_settings, "exclude_ours", lambda: None)
    monkeypatch.setattr(progress_reports, "PULSE_SECONDS", 0.0)
    monkeypatch.setattr(progress_reports, "LEAST_SECONDS", math.inf)  # nothing is told of a busy machine
    yield folder
    keras.mixed_precision.set_global_policy("float32")
    keras.config.enable_traceback_filtering()
    tf.debugging.enable_traceback_filtering()


def launched(folder: Path, run: Run, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a training as a trainer carries it out."""
    monkeypatch.chdir(folder)
    given = options(*settings, f"folder={folder}") if settings[0].startswith("entry") else options(*settings)
    run.file(options_json.FILE).write_text(options_json.to_json(given))
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
    keras.utils.clear_session()  # objects without a name are numbered from one again
    keras.utils.set_random_seed(7)
    report, stop = RunReport(run, EventWriter(run.file("events.jsonl"), run.id)), StopSwitch()
    stop.exit = leave
    monkeypatch.setattr(builtins, "stop", stop, raising=False)
    try:
        return session.train_run(report, stop)
    finally:
        report.writer.close()
        for log in getattr(sys.modules.pop("train", None), "LOGS", ()):
            if log.csv_file is not None:  # of a training that was stopped: its process would end
                log.csv_file.close()


# ---- in words --------------------------------------------------------------------------------------

SIZES = ("replicas", "global_batch_size", "steps_per_epoch", "epochs", "steps", "train_samples", "validation_samples",
         "sample_bytes", "resumed_at_step")  # fmt: skip
ACTUAL = ("jit_compile", "steps_per_execution", "optimizer", "learning_rate", "strategy", "deterministic_order",
          "inject_prefetch", "parameters", "compute_dtypes")  # fmt: skip
UNSTEADY = ("allocator", "input_stages")


def number(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def figures(metrics: Mapping[str, Any], exact: bool = True) -> str:
    return ", ".join(f"{name}={number(value)}" if exact else name for name, value in metrics.items())


def progress(event: dict[str, Any], exact: bool) -> str:
    more = {name: event[name] for name in ("samples", "traces", "loss_scale", "skipped_steps")}
    given = {name: value for name, value in more.items() if value is not None and (name, value) != ("traces", 1)}
    shown = {"loss": event["loss"], **event["metrics"], "window": event["window_loss"]}
    return f"{event['step']} {figures(shown, exact)}, {figures(given)}"


def told(event: dict[str, Any], exact: bool) -> str:
    match event["type"]:
        case "started":
            return "started: " + figures({name: event[name] for name in SIZES})
        case "epoch":
            return f"epoch {event['epoch']}, step {event['step']}: {figures(event['metrics'], exact)}"
        case "test":
            return f"test of epoch {event['epoch']}, {event['samples']} samples: {figures(event['metrics'], exact)}"
        case "warning" | "error":
            option = f" ({event['option']})" if event.get("option") else ""
            return f"{event['type']} {event['kind']}{option}: {event['message']}; {event['hint']}"
        case "best":
            value = number(event["value"]) if exact else "some"
            files = [f"{each['epoch']} {each['file']}" for each in event["files"]]
            restores = ", restores" if event["restores"] else ""
            return f"best {event['option']}: epoch {event['epoch']}, step {event['step']}: {value} {files}{restores}"
    return str(event["type"])


def lines_of(events: list[dict[str, Any]], exact: bool) -> Iterator[str]:
    """Phases that follow each other are in one line, and so are reports of progress."""
    for kind, group in groupby((each for each in events if each["type"] not in UNSTEADY), lambda event: event["type"]):
        same = list(group)
        if kind == "phase":
            yield "phases: " + ", ".join(f"{event['phase']} {event['detail']}".strip() for event in same)
        elif kind == "progress":
            of = f"{same[0]['steps']} steps and {same[0]['epochs']} epochs, in epoch {same[0]['epoch']}"
            yield f"progress of {of}: " + " | ".join(progress(event, exact) for event in same)
        elif kind != "finished":
            yield from (told(event, exact) for event in same)


def read_back(started: dict[str, Any]) -> list[str]:
    actual = figures({name: started["actual"][name] for name in ACTUAL})
    return [f"  actual: {actual}", f"  does not apply: {', '.join(sorted(started['inapplicable']))}"]


def result_of(run: Run, exact: bool) -> str:
    """Counts and words as they are; of measured figures the names."""
    result = {name: value for name, value in (run.result or {}).items() if value not in (None, [], "", {})}
    metrics, best = result.pop("metrics", {}), result.pop("best", [])
    as_they_are = {
        name: value
        for name, value in result.items()
        if not isinstance(value, float | dict) and not name.endswith("_bytes")
    }
    measured = sorted(name for name, value in result.items() if isinstance(value, float | dict) and name != "error")
    best_of = f"; best {', '.join(each['option'] for each in best)}" if best else ""
    return f"result: {figures(as_they_are)}; {figures(metrics, exact)}{best_of}; measured {', '.join(measured)}"


def files_of(run: Run) -> str:
    ends = ("events.jsonl", "options.json", "result.json", "code.json")
    files = (path.relative_to(run.path) for path in run.path.rglob("*") if path.name not in ends)
    return ", ".join(sorted(str(path) for path in files if len(path.parts) < 3))


def happens(what: str, run: Run, folder: Path) -> None:
    if what == "its log is changed":
        log = folder / "log.csv"
        log.write_text(log.read_text().replace("0,", "7,"))
    else:
        (max(run.file("checkpoints").iterdir()) / "state.index").write_bytes(b"no index")


@pytest.mark.parametrize("name", STORIES)
def test_the_story_of_a_training(
    name: str, alone: Path, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, last, before = list[str](), list[str](), 0
    if name == "arrays with a validation":  # after its first step it reports at the end of each epoch alone
        monkeypatch.setattr(progress_reports, "PULSE_SECONDS", math.inf)
    run = Run(tmp_path / "run")
    run.path.mkdir()
    for settings in STORIES[name]:
        if isinstance(settings, str):
            text.append(f"-- {settings}")
            happens(settings, run, alone)
            continue
        exact = settings[0].startswith("entry")
        code = launched(alone, run, settings, monkeypatch)
        events = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()]
        new, before = events[before:], len(events)
        text += [f"-- {' '.join(settings)}".replace("entry=train.py:story ", ""), *lines_of(new, exact)]
        facts = [line for event in new if event["type"] == "started" for line in read_back(event)]
        text += [line for line in facts if line not in last]  # what is as before is not told again
        last = facts
        text += [f"{result_of(run, exact)}; exit status {code}"]
    text.append(f"files: {files_of(run)}")
    text += [f"{path.name}: {path.read_text().split()}" for path in alone.glob("*.csv")]
    words = "\n".join(text).replace(str(alone), "MINE").replace(str(run.path), "RUN") + "\n"
    words = re.sub(r"of \d+ bytes\)", "of SIZE bytes)", words)
    golden("stories/" + re.sub(r"\W+", "-", name) + ".txt", words)
