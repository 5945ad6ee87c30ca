"""Exported scripts: they compile for every model, data and option, name their options, and train the same."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gputui.engine import launch, presets, runs
from gputui.engine.export import to_script
from gputui.engine.export_source import extract
from gputui.engine.options import OPTIONS
from gputui.engine.presets import Preset

MODELS = ("mlp", "cnn", "separable_cnn", "resnet50", "transformer")
DATA = ("digits", "synthetic", "mnist", "npz:/tmp/a.npz", "images:/tmp/folder", "tfrecord:/tmp/*.rec")
CHANGES = {
    "device.visible": "0,1",
    "device.memory_limit_mb": "512",
    "device.logical_devices": "2",
    "device.gpu_thread_mode": "gpu_private",
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
    "input.parallel_calls": "off",
    "input.private_threads": "2",
    "input.drop_remainder": "true",
    "input.deterministic_order": "false",
    "input.shuffle": "off",
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
    "train.deterministic": "true",
    "train.validation_split": "0.0",
    "train.stop_on_nan": "false",
    "train.nan_check_steps": "50",
    "run.checkpoint": "epoch",
    "run.keep": "5",
    "run.save_model": "true",
    "run.profile": "5-9",
    "run.max_minutes": "3",
    "run.measure_seconds": "4",
    "run.hang_seconds": "off",
    "run.sample_seconds": "2",
    "run.pcie": "true",
    "workload.width": "0.5",
    "workload.samples": "99",
    "workload.classes": "4",
    "workload.shape": "[8, 8, 1]",
}


def script(*settings: str, preset: str = "quickstart") -> str:
    return to_script(presets.resolve(preset, settings))


@pytest.mark.parametrize(("model", "data"), itertools.product(MODELS, DATA))
def test_scripts_compile_and_do_without_gputui(model: str, data: str) -> None:
    code = script(f"model={model}", f"data={data}", "augment=light", "warmup_steps=3")
    compile(code, "train.py", "exec")
    assert not re.search(r"^\s*(import|from) gputui", code, re.M)
    assert "\n\n\n\n" not in code


@pytest.mark.parametrize(("key", "text"), CHANGES.items(), ids=CHANGES)
def test_every_changed_option_is_named(key: str, text: str) -> None:
    code = script(f"{key}={text}", "data=synthetic")
    compile(code, "train.py", "exec")
    assert key in code


def test_all_options_at_once() -> None:
    code = script(*(f"{key}={text}" for key, text in CHANGES.items()), "data=synthetic")
    compile(code, "train.py", "exec")
    assert all(key in code for key in CHANGES)
    assert "Keras' fit fails with it over several replicas" in code


def test_every_option_is_thought_of() -> None:
    """Each option is named by a script that changes it, or can only be left out with a reason."""
    spoken = set(CHANGES) | {
        "workload.model", "workload.data", "input.batch_size", "train.epochs", "train.learning_rate",
        "train.clip_value", "train.global_clip_norm",
        "workload.tfrecord_input", "workload.tfrecord_label", "workload.tfrecord_encoding",
        "workload.entry", "workload.args", "workload.folder",
    }  # fmt: skip
    assert {info.key for info in OPTIONS} <= spoken


def test_their_own_code_is_exported_already() -> None:
    code = script("entry=train.py:build")
    assert "your own code is plain Keras already" in str(ast.get_docstring(ast.parse(code)))


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
        code = "from typing import Any\nlayers = keras = None\n" + "\n".join(extract("models.py", model))
        names: dict[str, object] = {}
        exec(compile(code, model, "exec"), names)
        assert callable(names[model.lstrip("_")])


def _losses(preset: Preset, folder: Path) -> tuple[list[float], list[float]]:
    """Of each epoch, by gputui and by the exported script. Both train at once."""
    script = folder / "train.py"
    script.write_text(to_script(preset) + '\nprint("LOSSES", model.history.history["loss"])\n')
    run, engine = launch.start(preset)
    done = subprocess.run(
        [sys.executable, script.name], cwd=folder, capture_output=True, text=True, timeout=200,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONWARNINGS": "error::DeprecationWarning:__main__"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    engine.wait(200)
    told = [event for event in runs.Tail(run.file("events.jsonl")).read() if event["type"] == "epoch"]
    (losses,) = re.findall(r"^LOSSES (.*)$", done.stdout, re.M)
    return [event["metrics"]["loss"] for event in told], json.loads(losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in presets.SHIPPED.glob("*.yaml")))
def test_the_script_of_a_shipped_preset_trains_to_the_same_losses(name: str, tmp_path: Path) -> None:
    steps = 16 if name == "fast" else 4  # whole executions
    settings = ["deterministic=true", "xla=false", "epochs=3", f"steps_per_epoch={steps}"]
    if name == "multi-gpu":
        settings.append("logical_devices=2")
    ours, theirs = _losses(presets.resolve(name, [*settings, "seed=5"]), tmp_path)
    assert len(ours) == 3
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
def test_the_script_augments_and_drops_out_as_gputui_does(tmp_path: Path) -> None:
    settings = ["augment=heavy", "deterministic=true", "epochs=2", "batch_size=200", "schedule=exponential"]
    ours, theirs = _losses(presets.resolve("quickstart", [*settings, "warmup_steps=3"]), tmp_path)
    assert ours == pytest.approx(theirs, rel=1e-6)
