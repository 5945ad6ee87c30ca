"""Trainer and exported script run the same steps over the same batches, whatever the sizes are."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import plan, presets
from gputui.engine.export.script import to_script
from gputui.engine.options import Options

from tests.end_to_end.test_export import MODELS
from tests.support.cases import all_hold
from tests.support.exporting import trained_by_both
from tests.support.forking import Forks
from tests.support.training import options

GRID: list[dict[str, Any]] = [
    {"samples": samples, "validation_split": split, "batch_size": batch, "drop_remainder": drop,
     "steps_per_epoch": per_epoch, "steps_per_execution": together, "replicas": replicas}
    for samples, split, batch, drop, per_epoch, together, replicas in itertools.product(
        (2, 17, 40, 61), (0.0, 0.1, 0.5), (1, 4, 10), ("false", "true"), ("null", 3), (1, 4), (1, 2, 4)
    )
][::7]  # fmt: skip
WHOLE = 23  # of so many cases one is compared batch by batch: making batches costs a third of a second
SYNTHETIC = ("model=mlp", "data=synthetic", "shape=[1]", "classes=9", "epochs=2", "schedule=step")
DIGITS = ("model=mlp", "data=digits", "logical_devices=4", "strategy.kind=mirrored", "batch_size=404", "epochs=2",
          "schedule=cosine", "warmup_steps=1")


def wanted(case: dict[str, Any]) -> Options:
    kind = "single" if case["replicas"] == 1 else "mirrored"
    settings = [f"{key}={value}" for key, value in case.items() if key != "replicas"]
    return options(*SYNTHETIC, *settings, f"strategy.kind={kind}")


def begun(wanted: Options) -> tuple[dict[str, Any], dict[str, str]]:
    """The constants that the script of these options has defined at its start, and its sections."""
    code = to_script(presets.Preset("grid", wanted, ""))
    parts = re.split(r"^# ---- (\w+)[^\n]*$", code, flags=re.M)
    names: dict[str, Any] = {}
    exec(compile(parts[0], "constants", "exec"), names)
    return names, dict(zip(parts[1::2], parts[2::2], strict=True))


def ran_until_training(wanted: Options, replicas: int, whole: bool) -> dict[str, Any]:
    """The names that the script has defined before it builds its model; not `whole`: all but the batches."""
    names, sections = begun(wanted)
    training = re.split(r"^(?:with strategy|model = build)", sections["training"], flags=re.M)[0]
    names |= {"replicas": replicas, "global_batch": names["BATCH_SIZE"] * replicas}
    for part in (sections["data"], training):
        tree = ast.parse(part)
        tree.body = [statement for statement in tree.body if whole or not makes_batches(statement)]
        exec(compile(tree, "script", "exec"), names)
    return names


def makes_batches(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in ("train", "validation")


def labels(batches: Any, count: int) -> list[list[int]]:
    return [y.tolist() for _, y in batches.take(count).as_numpy_iterator()]


def compared(wanted: Options, replicas: int, whole: bool) -> str:
    """In what the script differs from the trainer, or nothing."""
    from gputui.engine.trainer.common.faults import DataError
    from gputui.engine.trainer.data import pipeline

    script = ran_until_training(wanted, replicas, whole)
    try:
        ours = pipeline.build(wanted, replicas)
    except DataError:
        return "" if script["per_pass"] == 0 else "the trainer refuses it"
    per_epoch = plan.steps_per_epoch(wanted.train, ours.batches_per_pass)
    steps = (per_epoch, per_epoch * wanted.train.epochs)
    if (script["steps_per_epoch"], script["steps"]) != steps:
        return f"steps {script['steps_per_epoch'], script['steps']} instead of {steps}"
    if script["decay"] != plan.decay_steps(wanted.train, steps[1], per_epoch):
        return f"the rate falls after {script['decay']} steps"
    if per_epoch % script.get("together", 1):
        return f"executions of {script['together']} steps in epochs of {per_epoch}"
    return differing_batches(script, ours) if whole else ""


def differing_batches(script: dict[str, Any], ours: Any) -> str:
    more = ours.batches_per_pass + 2
    if labels(script["train"], more) != labels(ours.global_batches(0), more):
        return "other batches"
    if labels(script["validation"], 99) != labels(ours.global_validation_batches(), ours.validation_batches):
        return "other validation batches"
    return ""


@pytest.mark.usefixtures("cpus")
def test_the_script_runs_the_steps_of_the_trainer_over_a_grid_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the script sets it
    found = {str(case): compared(wanted(case), case["replicas"], i % WHOLE == 0) for i, case in enumerate(GRID)}
    found[str(DIGITS)] = compared(options(*DIGITS), 4, whole=True)
    assert {case: why for case, why in found.items() if why} == {}


@pytest.mark.usefixtures("cpus")
def test_the_script_builds_the_models_of_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer by layer, with all their settings: so the deepest one, too, trains as those whose losses are compared.

    The transformer, whose section is not complete by itself, is compared by its losses.
    """
    import keras
    from gputui.engine.trainer.setup import models

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the script sets it
    with all_hold() as cases:
        for name in sorted({*MODELS} - {"transformer"}):
            with cases.case(name):
                wanted = options(f"model={name}", "width=0.05", "data=digits")
                names, sections = begun(wanted)
                names |= {"shape": (8, 8, 1), "classes": 10}
                exec(compile(sections["model"], "model", "exec"), names)
                built = []
                for build in (names["build"], lambda: models.build(wanted, (8, 8, 1), 10)):  # noqa: B023
                    keras.utils.clear_session()  # layers are numbered from one again
                    built.append(build().get_config())
                assert built[0] == built[1]
                assert len(built[0]["layers"]) > 3


@pytest.mark.slow
def test_a_rest_too_small_for_all_replicas_is_left_out_by_both(tmp_path: Path, forks: Forks) -> None:
    """1617 samples, 1616 of them in the global batch: an epoch is one step."""
    settings = [*DIGITS, "deterministic=true", "seed=5", "width=0.1", "shuffle=off"]
    _, ours, theirs = trained_by_both(forks, presets.defaults(settings), tmp_path)
    assert len(ours) == 2
    assert ours == pytest.approx(theirs, rel=1e-6)
