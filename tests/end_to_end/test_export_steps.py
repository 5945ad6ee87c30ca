"""Trainer and exported script run the same steps over the same batches, whatever the sizes are."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from typing import Any

import pytest
from gputui.engine import plan, presets
from gputui.engine.export.script import to_script
from gputui.engine.options import Options

from tests.end_to_end.test_export import MODELS
from tests.support.cases import all_hold
from tests.support.combinations import some_of
from tests.support.training import options

SIZES: dict[str, tuple[Any, ...]] = {
    "samples": (2, 17, 40, 61), "validation_split": (0.0, 0.1, 0.5), "batch_size": (1, 4, 10),
    "drop_remainder": ("false", "true"), "steps_per_epoch": ("null", 3), "steps_per_execution": (1, 4),
    "replicas": (1, 2, 4),
}  # fmt: skip
SYNTHETIC = ("model=mlp", "data=synthetic", "shape=[1]", "classes=9", "epochs=2", "schedule=step")
DIGITS = (
    "model=mlp",
    "data=digits",
    "logical_devices=2",
    "strategy.kind=mirrored",
    "batch_size=808",
    "epochs=2",
    "schedule=cosine",
    "warmup_steps=1",
)


Case = dict[str, Any]


def wanted(case: Case) -> Options:
    kind = "single" if case["replicas"] == 1 else "mirrored"
    settings = [f"{key}={value}" for key, value in case.items() if key != "replicas"]
    return options(*SYNTHETIC, *settings, f"strategy.kind={kind}")


def begun(wanted: Options) -> tuple[dict[str, Any], dict[str, str]]:
    """The constants that the script of these options has defined at its start, and its sections."""
    code = to_script(presets.Preset("grid", wanted, ""))
    functions, body = code.split('if __name__ == "__main__":\n')
    parts = re.split(r"^# ---- (\w+)[^\n]*$", functions + textwrap.dedent(body), flags=re.M)
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
    from gputui.engine.trainer.common.training_errors import DataError
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
    together = plan.steps_together(per_epoch, wanted.compile.steps_per_execution) if replicas == 1 else 1
    if script.get("together", 1) != together:
        return f"executions of {script.get('together', 1)} steps instead of {together} in epochs of {per_epoch}"
    return differing_batches(script, ours) if whole else ""


def differing_batches(script: dict[str, Any], ours: Any) -> str:
    more = ours.batches_per_pass + 2
    if labels(script["train"], more) != labels(ours.global_batches(0), more):
        return "other batches"
    validated = [] if script["validation"] is None else labels(script["validation"], 99)
    if validated != labels(ours.global_validation_batches(), ours.validation_batches):
        return "other validation batches"
    return ""


def grid() -> tuple[list[Case], list[Case], list[Case]]:
    """Cases in which any three sizes meet, those of them for any two, and cases that are refused as nothing is left."""
    every = [dict(zip(SIZES, values, strict=True)) for values in itertools.product(*SIZES.values())]
    trained = [tuple(case.values()) for case in every if fills_a_batch(case)]
    refused = [tuple(case.values()) for case in every if not fills_a_batch(case)]
    chosen = some_of(3, trained), some_of(2, trained), some_of(2, refused)
    three, two, none = ([dict(zip(SIZES, values, strict=True)) for values in cases] for cases in chosen)
    return three, two, none


def fills_a_batch(case: Case) -> bool:
    samples, _ = plan.split_counts(case["samples"], case["validation_split"])
    drop, replicas = case["drop_remainder"] == "true", case["replicas"]
    return plan.batches_per_pass(samples, case["batch_size"] * replicas, replicas, drop) > 0


@pytest.mark.usefixtures("cpus")
def test_the_script_runs_the_steps_of_the_trainer_over_a_grid_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps wherever any three sizes meet, and the batches, which take longer to make, wherever any two meet."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the script sets it
    three, two, none = grid()
    found = {str(case): compared(wanted(case), case["replicas"], whole=False) for case in (*three, *none)}
    found |= {str(case): compared(wanted(case), case["replicas"], whole=True) for case in two}
    found[str(DIGITS)] = compared(options(*DIGITS), 2, whole=True)
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
