"""Whole exported scripts, word for word: `__snapshots__` holds them. Functions of the trainer are only named.

What each option changes in them is in tests/contract/test_scripts.py.
"""

from __future__ import annotations

import ast
import builtins
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import DIGITS, Form, presets, to_script

# What the export itself writes, or makes of a function for the options.
OWN = ("build", "load", "onto_devices", "cache_file", "batches_of_epoch", "decay_steps")
FIGURES = (
    "early_stop=val_loss:min", "early_stop_patience=3", "early_stop_min_delta=0.01", "early_stop_restore=true",
    "keep_best=val_accuracy", "schedule=reduce_on_plateau", "plateau_figure=loss", "plateau_patience=2",
    "plateau_min_rate=0.001", "decay_rate=0.5",
)  # fmt: skip
CODE = "import tensorflow as tf\n\n\ndef build(context):\n" + "".join(
    f"    tf.random.normal([{number}])\n" for number in range(6)
)
MODULE = CODE.rpartition("    tf.")[0]
SCRIPTS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "mnist on all devices": (
        "data=mnist", "validation=test", "strategy.kind=mirrored", "strategy.devices=0,1",
        "communication=reduction_to_one_device",
        "xla=true", "steps_per_execution=4", "drop_remainder=true", "micro_batches=3", "logical_devices=2",
        "memory_limit_mb=512", "learning_rate_scaling=sqrt", "max_minutes=1.5", "run.profile=5-9", "checkpoint=10",
        "save_model=true", "seed=5", *FIGURES,
    ),
    "an array file": (
        "data=npz:/tmp/a.npz", "validation=test", "schedule=cyclical", "warmup_steps=3", "hold_steps=2",
        "optimizer=sgd", "momentum=0.9", "nesterov=true", "weight_decay=0.01", "clip_norm=1", "policy=mixed_bfloat16",
        "gradient_accumulation=4", "kernel_size=5", "stride=2", "separable=true", "xla=true", "steps_per_execution=3",
        "visible=MIG-1", "early_stop=loss", "early_stop_patience=2", "early_stop_restore=false",
    ),
}  # fmt: skip
OWN_CODE: dict[str, tuple[str, ...]] = {
    "a file": (
        "entry=train.py:build", *FIGURES, "checkpoint=epoch", "micro_batches=2", "save_model=true", "cast=device",
    ),
    "a module": (
        "entry=module:build", "workload.folder=.", "args={units: 3, names: [a]}", "steps_per_epoch=7", "shuffle=off",
        "checkpoint=epoch", "augment=light", "xla=true", "parallel_calls=3", "cache=/tmp/cache", "seed=5",
    ),
    "on all devices": (
        "entry=train.py:build", "strategy.kind=mirrored", "communication=hierarchical_copy", "parallel_calls=off",
        "drop_remainder=true", "learning_rate=0.1",
        "prefetch_to_device=3", "steps_per_execution=3", "run.keep=3", "batch_size=48", "xla=false",
    ),
    "on one device": (
        "entry=train.py:build", "strategy.kind=one_device", "prefetch_to_device=2", "steps_per_execution=2",
        "checkpoint=7", "run.profile=2-3", "max_minutes=3", "augment=blur", "one_batch=true", "deterministic=true",
    ),
}  # fmt: skip


FORMS = {
    "a file": Form("arrays", "arrays", is_split=True, given=frozenset({"callbacks", "loss", "metrics"})),
    "a module": Form("mapped", "mapped", given=frozenset({"map", "augment", "optimizer", "loss"}), images=True),
    "on all devices": Form("pydataset", "batched", compiled=True, given=frozenset({"class_weight", "initial_epoch"})),
    "on one device": Form(
        "batched",
        "pydataset",
        iterated={"train": "tf.data.Dataset.from_generator(train, tf.int32)"},
        batches=7,
        whole=False,
        counted=False,
    ),
}


def without_the_trainers_functions(code: str) -> str:
    lines = code.splitlines()
    for node in reversed(ast.parse(code).body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in OWN:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = [f"# {node.name}, as in the trainer"]
    return "\n".join(line for line in lines if line)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_whole_script_of_a_model_of_gputui(name: str, snapshot: Any) -> None:
    text = without_the_trainers_functions(to_script(presets.defaults(SCRIPTS[name])))
    assert text.replace(str(DIGITS), "DIGITS") == snapshot


@pytest.mark.parametrize("name", OWN_CODE)
def test_the_whole_script_of_own_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "module.py").write_text(MODULE)
    text = without_the_trainers_functions(to_script(presets.defaults(OWN_CODE[name]), form=FORMS[name]))
    assert text.replace(str(tmp_path), "HERE") == snapshot


def undefined(code: str) -> set[str]:
    """The names that a script uses and neither defines nor imports."""
    used: set[str] = set()
    given = set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else given).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            given.add(node.name)
        elif isinstance(node, ast.arg):
            given.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            given |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            given.add(node.name)
    return used - given - {"__file__"}
