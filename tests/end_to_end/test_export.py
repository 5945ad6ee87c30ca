"""Exported scripts: they compile for every model, data and option, name their options, and train the same."""

from __future__ import annotations

import ast
import itertools
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gputui.engine import presets
from gputui.engine.export.engine_source import extract
from gputui.engine.export.script import to_script
from gputui.engine.options import OPTIONS, by_key

from tests.support.cases import all_hold
from tests.support.exporting import changed_lines, closing_list, named, trained_by_both
from tests.support.forking import Forks
from tests.support.front_door import happened
from tests.support.smaller import SMALLER

MODELS = ("mlp", "cnn", "separable_cnn", "resnet50", "transformer")
DATA = ("digits", "synthetic", "mnist", "npz:/tmp/a.npz", "images:/tmp/folder", "tfrecord:/tmp/*.rec")
CHANGES = {
    "workload.model": "mlp",
    "input.batch_size": "9",
    "train.epochs": "3",
    "run.python": "/usr/bin/python3",
    "train.learning_rate": "0.5",
    "train.learning_rate_scaling": "linear",
    "train.clip_value": "2",
    "train.global_clip_norm": "3",
    "train.gradient_accumulation": "4",
    "train.micro_batches": "3",
    "device.visible": "0,1",
    "device.memory_limit_mb": "512",
    "device.logical_devices": "2",
    "device.gpu_thread_mode": "gpu_private",
    "device.gpu_thread_count": "1",
    "device.allocator": "cuda_malloc_async",
    "device.numa": "off",
    "compile.xla_flags": "--xla_gpu_autotune_level=2",
    "compile.xla_cache": "false",
    "device.inter_op_threads": "2",
    "device.intra_op_threads": "3",
    "device.log_placement": "true",
    "device.memory_growth": "false",
    "precision.policy": "mixed_float16",
    "precision.tf32": "false",
    "compile.xla": "true",
    "compile.steps_per_execution": "4",
    "input.augment": "heavy",
    "input.cache": "/tmp/cache",
    "input.prefetch": "off",
    "input.across_epochs": "true",
    "input.prefetch_to_device": "3",
    "input.cast": "device",
    "input.parallel_calls": "off",
    "input.private_threads": "2",
    "input.drop_remainder": "true",
    "input.deterministic_order": "false",
    "input.shuffle": "off",
    "train.momentum": "0.8",
    "train.nesterov": "true",
    "train.weight_decay": "0.0",
    "train.hold_steps": "3",
    "train.validation": "test",
    "input.one_batch": "true",
    "strategy.kind": "mirrored",
    "strategy.devices": "0,1",
    "strategy.communication": "hierarchical_copy",
    "train.steps_per_epoch": "7",
    "train.optimizer": "rmsprop",
    "train.schedule": "cyclical",
    "train.warmup_steps": "5",
    "train.decay_steps": "9",
    "train.decay_rate": "0.5",
    "train.clip_norm": "1",
    "train.seed": "5",
    "train.plateau_figure": "loss",
    "train.plateau_patience": "3",
    "train.plateau_min_rate": "0.01",
    "train.early_stop": "val_loss",
    "train.early_stop_patience": "3",
    "train.early_stop_min_delta": "0.01",
    "train.early_stop_restore": "true",
    "train.deterministic": "true",
    "train.validation_split": "0.0",
    "train.stop_on_nan": "false",
    "train.nan_check_steps": "50",
    "run.checkpoint": "epoch",
    "run.keep": "5",
    "run.save_model": "true",
    "run.keep_best": "val_accuracy",
    "run.keep_best_count": "2",
    "run.profile": "5-9",
    "run.max_minutes": "3",
    "run.stop_signal": "SIGUSR1",
    "run.measure_seconds": "4",
    "run.on_oom": "halve",
    "run.hang_seconds": "off",
    "run.sample_seconds": "2",
    "run.pcie": "true",
    "run.follow": "tensorboard,prometheus",
    "run.code": "copy",
    "run.tries": "3",
    "run.give_way": "true",
    "run.per_gpu": "2",
    "notify.command": "echo",
    "notify.url": "$PLACE",
    "notify.format": "json",
    "notify.when": "failure",
    "workload.width": "0.5",
    "workload.normalization": "layer",
    "workload.samples": "99",
    "workload.classes": "4",
    "workload.shape": "[8, 8, 1]",
}
NEEDS = {
    "train.plateau_figure": ["schedule=reduce_on_plateau"],
    "train.plateau_patience": ["schedule=reduce_on_plateau"],
    "train.plateau_min_rate": ["schedule=reduce_on_plateau"],
    "train.early_stop_patience": ["early_stop=loss"],
    "train.early_stop_min_delta": ["early_stop=loss"],
    "train.early_stop_restore": ["early_stop=loss"],
    "run.keep_best_count": ["keep_best=loss"],
    "train.momentum": ["optimizer=sgd"],
    "train.nesterov": ["optimizer=sgd", "momentum=0.9"],
    "train.hold_steps": ["schedule=exponential"],
    "train.validation": ["data=mnist"],
    "workload.blocks": ["model=transformer"],
    "input.parallel_reads": ["data=tfrecord:a"],
    "input.cast": ["data=digits"],
    "strategy.devices": ["strategy.kind=mirrored"],
    "strategy.communication": ["strategy.kind=mirrored"],
    "workload.tfrecord_input": ["data=tfrecord:a"],
    "workload.tfrecord_label": ["data=tfrecord:a"],
    "workload.tfrecord_encoding": ["data=tfrecord:a"],
}
SPECIAL = {  # what only some data and models take
    "workload.tfrecord_input": "pixels",
    "workload.tfrecord_label": "number",
    "workload.tfrecord_encoding": "int64_list",
    "input.parallel_reads": "4",
    "workload.blocks": "3",
    "workload.kernel_size": "5",
    "workload.stride": "2",
    "workload.separable": "true",
}
# What plain Keras cannot do; every other option is named at a line that obeys it.
NOT_IN_A_SCRIPT = {
    "run.keep", "run.measure_seconds", "run.hang_seconds", "run.sample_seconds", "run.pcie", "train.nan_check_steps",
    "device.numa", "input.across_epochs", "compile.xla_cache", "run.on_oom", "run.stop_signal", "run.python",
    "run.code", "run.tries", "run.give_way", "run.per_gpu", "run.keep_best_count", "run.follow",
    "notify.command", "notify.url", "notify.format", "notify.when",
}  # fmt: skip

ABOUT = {key: info.about for key, info in by_key(OPTIONS).items()}


@cache
def script(*settings: str, preset: str = "quickstart") -> str:
    return to_script(presets.resolve(preset, settings))


def test_scripts_compile_and_do_without_gputui() -> None:
    with all_hold() as cases:
        for model, data in itertools.product(MODELS, DATA):
            with cases.case(f"{model} {data}"):
                code = script(f"model={model}", f"data={data}", "augment=light", "warmup_steps=3")
                compile(code, "train.py", "exec")
                assert not re.search(r"^\s*(import|from) gputui", code, re.M)
                assert "\n\n\n\n" not in code


def test_every_changed_option_is_named_at_a_line_or_left_out_with_a_reason() -> None:
    with all_hold() as cases:
        for key, text in (CHANGES | SPECIAL).items():
            with cases.case(key):
                code = script("data=synthetic", *NEEDS.get(key, ()), f"{key}={text}")
                compile(code, "train.py", "exec")
                left = {key} & NOT_IN_A_SCRIPT
                assert (key in named(code)) == (not left)
                assert set(closing_list(code)) == left


def test_the_lines_that_an_option_changes(snapshot: Any) -> None:
    changed = []
    for key, text in (CHANGES | SPECIAL).items():
        given = ("data=synthetic", *NEEDS.get(key, ()))
        changed += [f"{key}={text}", *changed_lines(script(*given), script(*given, f"{key}={text}"), key)]
    assert "\n".join(changed) == snapshot


@pytest.mark.parametrize("data", DATA)
def test_the_data_is_named(data: str) -> None:
    changed = {"workload.data"} if data != "digits" else set()
    assert changed <= named(script(f"data={data}"))
    assert closing_list(script(f"data={data}")) == {}


def test_the_environment_is_set_before_tensorflow_is_imported() -> None:
    code = script("allocator=cuda_malloc_async", "gpu_thread_count=3", "xla_flags=--xla_a=1 --xla_b", "visible=1")
    before = code.partition("import tensorflow")[0]
    given = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "NVIDIA_TF32_OVERRIDE": "0", "XLA_FLAGS": "--xla_c", "A": "x"}
    environment = dict(given)
    exec(before.replace("import os", ""), {"os": SimpleNamespace(environ=environment)})
    assert environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1", "TF_GPU_THREAD_COUNT": "3",
        "TF_GPU_ALLOCATOR": "cuda_malloc_async", "XLA_FLAGS": "--xla_c --xla_a=1 --xla_b", "A": "x",
    }  # fmt: skip
    assert "TF_GPU_ALLOCATOR" in script().partition("import tensorflow")[0]


def test_all_options_at_once() -> None:
    code = script(*(f"{key}={text}" for key, text in CHANGES.items()), "data=synthetic")
    compile(code, "train.py", "exec")
    idle = {
        "device.memory_growth",
        *(key for key in CHANGES if "plateau" in key),
    }  # next to a limit, to another schedule
    assert set(closing_list(code)) == NOT_IN_A_SCRIPT | idle
    assert set(CHANGES) - NOT_IN_A_SCRIPT - idle <= named(code)
    assert "Keras' fit fails with it over several replicas" in code


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (("strategy.devices=0,1", "communication=nccl"), ("strategy.devices", "strategy.communication")),
        (("schedule=constant", "decay_steps=9", "decay_rate=0.5"), ("train.decay_steps", "train.decay_rate")),
        (("memory_growth=false", "memory_limit_mb=512"), ("device.memory_growth",)),
        (("shape=[8, 8, 1]", "classes=4", "samples=9"), ("workload.shape", "workload.classes", "workload.samples")),
        (("workload.folder=/tmp", "args={a: 1}"), ("workload.args", "workload.folder")),
        (("model=mlp", *(f"{key}={text}" for key, text in SPECIAL.items())), tuple(SPECIAL)),
    ],
)
def test_what_has_no_effect_stands_in_the_list_with_the_true_reason(
    settings: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert closing_list(script("train.schedule=constant", *settings)) == {key: ABOUT[key].not_exported for key in left}


def test_what_looks_at_nothing_says_so() -> None:
    assert closing_list(script("stop_on_nan=false", "nan_check_steps=5")) == {
        "train.nan_check_steps": "train.stop_on_nan is off"
    }
    assert closing_list(script("run.keep=5")) == {"run.keep": "run.checkpoint is off"}


@pytest.mark.parametrize("name", sorted(path.stem for path in presets.SHIPPED.glob("*.yaml")))
def test_what_the_script_of_a_shipped_preset_leaves_out(name: str) -> None:
    left = {"debug": "train.nan_check_steps", "safe-memory": "run.keep"}.get(name)
    assert closing_list(script(preset=name)) == ({left: ABOUT[left].not_exported} if left else {})


def test_every_option_is_thought_of() -> None:
    spoken = {*CHANGES, *SPECIAL, "workload.data", "workload.entry", "workload.args", "workload.folder"}
    assert {info.key for info in OPTIONS} == spoken


@pytest.mark.parametrize("encoding", ["encoded", "uint8", "float32", "float_list", "int64_list"])
def test_tfrecord_features_are_named(encoding: str) -> None:
    code = script("data=tfrecord:a", f"tfrecord_encoding={encoding}", 'tfrecord_input=a"b', "tfrecord_label=c'd")
    strings = {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
    assert {'a"b', "c'd"} <= strings


def test_text_of_a_preset_stays_text() -> None:
    hostile = '"""\nimport os; os.abort()\n"""\\'
    options = presets.assemble('a"""b\\', {"workload.data": 'npz:/tmp/"x"\\y.npz'}, hostile)
    tree = compile(to_script(options), "train.py", "exec")
    assert "abort" not in tree.co_names


def test_what_is_extracted_stands_above_its_users() -> None:
    for model in ("_resnet50", "_transformer"):
        code = "from typing import Any\nlayers = keras = None\n" + "\n".join(extract("trainer/setup/models.py", model))
        names: dict[str, object] = {}
        exec(compile(code, model, "exec"), names)
        assert callable(names[model.lstrip("_")])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({path.stem for path in presets.SHIPPED.glob("*.yaml")} - {"debug"}))
def test_a_shipped_preset_trains_and_its_script_to_the_same_losses(name: str, tmp_path: Path, forks: Forks) -> None:
    """With its own options, XLA among them, at a size for two CPU cores; two of them with their validation, too.

    The options of the preset debug are in others, too; test_run_life.py trains it.
    """
    settings = ["epochs=2", "steps_per_epoch=4", *SMALLER.get(name, ())]
    if name == "multi-gpu":
        settings += ["logical_devices=2", "learning_rate_scaling=sqrt", "warmup_steps=2"]
    if name == "fast":
        settings += ["augment=light", "cast=device"]
    if name not in ("quickstart", "xla-bf16"):
        settings.append("validation_split=0")
    preset = presets.resolve(name, [*settings, "seed=5"])
    if preset.options.compile.xla is not True:  # Keras compiles nothing with XLA where operations must be deterministic
        preset = presets.resolve(name, [*settings, "seed=5", "deterministic=true"])
    run, ours, theirs = trained_by_both(forks, preset, tmp_path)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert len(ours) == 2
    assert all(0 < loss < 10 for loss in ours)
    assert run.result is not None
    assert (run.result["outcome"], run.result["steps"]) == ("ok", 8)
    (started,) = happened(run, "started")
    assert started["actual"]["jit_compile"] == (preset.options.compile.xla is True)
    if preset.options.compile.xla is True:
        assert "XLA True\n" in (tmp_path / "exported.out").read_text()


@pytest.mark.slow
def test_the_script_augments_holds_validates_and_optimizes_as_gputui_does(tmp_path: Path, forks: Forks) -> None:
    """One run for the options that the shipped presets leave alone."""
    x, y = np.random.default_rng(1).integers(0, 256, (60, 6, 6, 1), "uint8"), np.arange(60) % 3
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:20] // 2, y_test=y[:20])
    settings = ["model=mlp", "width=0.1", "normalization=layer", f"data=npz:{tmp_path}/a.npz", "epochs=2",
                "validation=test", "batch_size=10", "optimizer=sgd", "momentum=0.9", "nesterov=true",
                "weight_decay=0.01", "schedule=exponential", "hold_steps=4", "warmup_steps=2",
                "gradient_accumulation=4", "augment=heavy", "micro_batches=3",
                "deterministic=true"]  # fmt: skip
    _, ours, theirs = trained_by_both(forks, presets.defaults([*settings, "seed=5"]), tmp_path)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "samples", "held_out"), [(3, 34, 4), (2, 27, 1)])
def test_batches_that_replicas_share_unevenly_train_to_the_same_losses(
    replicas: int, samples: int, held_out: int, tmp_path: Path, forks: Forks
) -> None:
    """The first batch, the last one and those of the validation, for which too few samples may be held out."""
    total = samples + held_out
    settings = ["model=mlp", "width=0.1", "data=synthetic", "shape=[4]", "classes=3", f"samples={total}",
                f"validation_split={held_out / total}", "epochs=2", f"logical_devices={replicas}",
                "strategy.kind=mirrored", "batch_size=10", "deterministic=true"]  # fmt: skip
    _, ours, theirs = trained_by_both(forks, presets.defaults([*settings, "seed=5"]), tmp_path)
    assert len(ours) == 2
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
def test_the_script_of_quickstart_augments_and_drops_out_as_gputui_does(tmp_path: Path, forks: Forks) -> None:
    settings = ["augment=flip,contrast,blur", "deterministic=true", "epochs=2", "batch_size=200",
                "schedule=exponential", "kernel_size=5", "stride=2", "separable=true"]  # fmt: skip
    _, ours, theirs = trained_by_both(forks, presets.resolve("quickstart", [*settings, "warmup_steps=3"]), tmp_path)
    assert len(ours) == 2
    assert ours == pytest.approx(theirs, rel=1e-6)
