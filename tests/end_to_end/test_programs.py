"""Keras programs of different shape, trained through workload.entry.

A program in tests/support/programs/same/, and each in entry/ without a `map`, is trained in four ways, which must give
the same figures of every epoch, to the last digit: plain Keras, a run, a run that is stopped in the middle of its
second epoch and resumed, and the exported script. Such a program is one file with

- `build(context)`, as for workload.entry. The context of plain Keras has the same fields;
- `SETTINGS` (optional): settings of the run that differ from those of `EVERY`, as for `--set`;
- `plain(made, context)` (optional): trains the dict `made` that build has returned by plain Keras, and returns its
  History. Without it, `model.fit` gets what is in the dict, arrays unshuffled and in batches of `global_batch_size`;
- `WARNS` (optional): the kinds of the warnings of the resumed run; by default it has none but those of `USUAL`;
- `REFUSED` (optional): the message with which the run ends before its first step, and with which the export is
  refused. Nothing is compared then.

`strategy.kind=mirrored` in its settings gives all of them two logical CPUs. test_trained_in_four_ways finds the file.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doors.engine import RefusedError, Run, presets, to_script
from tests.support.exporting import form_of, prepared_script
from tests.support.forking import TRAINER, Forks, Program, trainer_of
from tests.support.front_door import happened
from tests.support.own import Write

PROGRAMS = Path(__file__).parents[1] / "support" / "programs"
NAMES = ("custom_step", "multi_input", "sequence", "text", "transfer", "guide_step")
SETTINGS = {"transfer": ("epochs=3",), "text": ("epochs=4", "cache=memory")}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize(("name", "strategy"), [("text", "single"), ("custom_step", "mirrored")])
def test_the_program_trains_through_its_entry(name: str, strategy: str, own: Write) -> None:
    more = (*SETTINGS.get(name, ("epochs=2",)), "checkpoint=epoch", f"strategy.kind={strategy}")
    training = own(PROGRAMS / "entry" / f"{name}.py", "batch_size=16", "steps_per_execution=3", *more)
    losses = training.announce().train().losses()
    epochs = 4 if name == "text" else 2
    assert len(losses) == epochs
    assert np.isfinite(losses).all()
    assert training.loop.step == epochs * training.loop.steps_per_epoch
    assert training.loop.built.checkpoints.latest_step() == training.loop.step
    told = training.events("started")[0]
    assert told["replicas"] == (2 if strategy == "mirrored" else 1)
    assert told["not_applied"] == []
    # Its callback ends the transfer learning, which would go on.
    assert training.loop.steps == (3 if name == "transfer" else epochs) * training.loop.steps_per_epoch
    if name == "text":
        assert training.events("epoch")[-1]["metrics"]["val_accuracy"] > 0.9


# ---- four ways ----------------------------------------------------------------------------------

# Of own data that is batched, of options that it does not follow, and of a loaded machine.
USUAL = {"not_applied", "resumed_batches", "epoch_waits"}
SAME = [
    *sorted((PROGRAMS / "same").glob("*.py")),
    *(PROGRAMS / "entry" / f"{name}.py" for name in NAMES if name != "text"),  # Keras' fit knows no `map`
]
TRAINED = (
    "custom_step",
    "own_step_over_replicas",
    "python_in_generator",
    "shuffled_validation",
    "transfer",
    "own_strategy",
)
EVERY = ("seed=7", "deterministic=true", "shuffle=off", "validation_split=0", "batch_size=10", "epochs=3",
         "checkpoint=epoch", "parallel_calls=2")  # fmt: skip
PLAIN = """
import importlib, json, sys
import keras, tensorflow as tf
from gputui.engine import presets
from gputui.engine.trainer.own.building import context_of

settings = json.loads(sys.argv[2])
options = presets.defaults(settings).options
mirrored = options.strategy.kind == "mirrored"
if mirrored:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
keras.utils.set_random_seed(options.train.seed)
tf.config.experimental.enable_op_determinism()
if options.precision.policy != "float32":
    keras.config.set_dtype_policy(options.precision.policy)
context = context_of(options, 2 if mirrored else 1)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) if mirrored else tf.distribute.get_strategy()

def plain(made, context):
    data = made["train"]
    if isinstance(data, tuple):
        weight = made.get("sample_weight")
        data = dict(zip(("x", "y", "sample_weight"), data if weight is None else (*data, weight)))
        data |= {"batch_size": context.global_batch_size, "shuffle": False}
    elif "shape" in dir(data):
        data = {"x": data, "batch_size": context.global_batch_size, "shuffle": False}
    else:
        data = {"x": data, "shuffle": False}
    names = ("class_weight", "initial_epoch", "validation_freq", "validation_steps", "callbacks")
    given = {name: made[name] for name in names if made.get(name) is not None}
    held_out = made.get("validation")
    if isinstance(held_out, tuple):
        given["validation_batch_size"] = context.global_batch_size
    return made["model"].fit(**data, **given, validation_data=held_out, epochs=context.epochs,
                             steps_per_epoch=context.steps_per_epoch, verbose=0)

program = importlib.import_module(sys.argv[1])
with strategy.scope():
    made = program.build(context)
if not isinstance(made, dict):
    made = dict(zip(("model", "train", "validation"), made))
history = getattr(program, "plain", plain)(made, context).history
print("HISTORY", json.dumps({name: [float(value) for value in values] for name, values in history.items()}))
"""
STOPPED = f"""
from gputui.engine.trainer.fit.training_loop import TrainingLoop

execute = TrainingLoop._execute
def stopped(loop, iterator):
    if loop.step == loop.steps_per_epoch * 3 // 2:
        loop.built.stop.request("stopped")
    return execute(loop, iterator)
TrainingLoop._execute = stopped
{TRAINER}
"""


def of_run(run: Run) -> dict[str, list[float]]:
    """The figures of each epoch, by their names."""
    epochs = [event["metrics"] for event in happened(run, "epoch")]
    return {name: [metrics[name] for metrics in epochs if name in metrics] for name in epochs[-1]}


def printed(file: Path) -> dict[str, list[float]]:
    (line,) = (line for line in file.read_text().splitlines() if line.startswith("HISTORY "))
    figures: dict[str, list[float]] = json.loads(line.removeprefix("HISTORY "))
    return figures


def declared(path: Path) -> dict[str, Any]:
    """The constants of a program, which is not run here: it may set what all of Keras follows."""
    found: dict[str, Any] = {}
    for line in ast.parse(path.read_text()).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id.isupper():
            with contextlib.suppress(ValueError):
                found[line.targets[0].id] = ast.literal_eval(line.value)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in TRAINED else pytest.mark.nightly, id=path.stem) for path in SAME],
)
def test_trained_in_four_ways(path: Path, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of which gives the same figures of every epoch; or the run is refused."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(path, tmp_path)
    program = declared(path)
    more = program.get("SETTINGS", ())
    replicas = ("logical_devices=2",) if "strategy.kind=mirrored" in more else ()
    settings = [*EVERY, *replicas, *more, f"entry={path.name}:build", f"folder={tmp_path}"]
    preset = presets.defaults(settings)
    run, ours = trainer_of(preset)
    if "REFUSED" in program:
        assert forks.codes(ours) == [1]
        assert [event["message"] for event in happened(run, "error")] == [program["REFUSED"]]
        assert happened(run, "progress") == []
        with pytest.raises(RefusedError, match=f"^{re.escape(program['REFUSED'])}$"):
            form_of(preset, forks, tmp_path)
        return
    ways = {name: str(tmp_path / f"{name}.out") for name in ("plain", "exported")}
    (tmp_path / "of_keras.py").write_text(PLAIN)
    plain = Program(str(tmp_path), ways["plain"], ["of_keras.py", path.stem, json.dumps(settings)], [str(tmp_path)])
    exported = prepared_script(to_script(preset, form=form_of(preset, forks, tmp_path)), tmp_path)
    theirs = Program(str(tmp_path), ways["exported"], ["exported.py"], exported)
    broken, stopped = trainer_of(preset)
    main = Path(stopped.arguments[0])
    main.write_text(STOPPED)
    forks.run(plain, ours)
    assert forks.codes(theirs, stopped)[0] == 0, Path(ways["exported"]).read_text()[-2000:]
    before = len(happened(broken, "warning"))
    main.write_text(TRAINER)
    forks.run(stopped)
    figures = printed(Path(ways["plain"]))
    assert of_run(run) == figures
    assert [event["resumed_at_step"] is not None for event in happened(broken, "started")] == [False, True]
    assert {event["kind"] for event in happened(broken, "warning")[before:]} - USUAL == {*program.get("WARNS", ())}
    assert of_run(broken) == figures
    assert printed(Path(ways["exported"])) == figures
