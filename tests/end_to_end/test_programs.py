"""Keras programs of different shape, trained through workload.entry.

A program is a function `build(context)` in tests/support/programs/; the context of plain Keras has the same fields. It
is trained in four ways, which must give the same figures of every epoch, to the last digit: plain Keras, a run, a run
that is stopped in the middle of its second epoch and resumed, and the exported script. Plain Keras' `model.fit` gets
what the program returns, arrays unshuffled and in batches of `global_batch_size`. Where the program is in REFUSED, the
run ends with that message before its first step, and the export is refused with it.

`strategy.kind=mirrored` in its settings gives all of them two logical CPUs.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.doors.engine import RefusedError, Run, presets, to_script, trial_preset
from tests.support.exporting import form_of, prepared_script
from tests.support.forking import TRAINER, Forks, Program, trainer_of
from tests.support.front_door import happened
from tests.support.own import PROGRAMS, Write, program


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_a_program_whose_words_become_numbers_in_the_pipeline_trains_through_its_entry(own: Write) -> None:
    settings = ("epochs=4", "checkpoint=epoch", "batch_size=16", "steps_per_execution=3", "cache=memory")
    training = own(program("entry/text", "build"), *settings).announce().train()
    assert len(training.losses()) == 4
    assert np.isfinite(training.losses()).all()
    assert training.loop.step == training.loop.steps == 4 * training.loop.steps_per_epoch
    assert training.loop.built.checkpoints.latest_step() == training.loop.step
    assert training.events("started")[0]["not_applied"] == []
    assert training.events("epoch")[-1]["metrics"]["val_accuracy"] > 0.9


# ---- four ways ----------------------------------------------------------------------------------

# Of own data that is batched, of options that it does not follow, and of a loaded machine.
USUAL = {"not_applied", "resumed_batches", "epoch_waits"}
SAME = {
    "own_data": (
        "shuffled", "shuffled_and_drawn", "shuffled_of_unknown_length", "shuffled_without_end", "shuffled_validation",
        "shuffled_validation_over_replicas", "shuffled_validation_steps", "ends_within_an_epoch", "filter_by_variable",
        "variable_in_map", "variable_in_samples", "table_filled_later", "flipped_in_map", "python_in_generator",
        "mined_samples",
    ),
    "own_models": (
        "limited_epochs", "own_strategy", "own_train_function", "train_function_made_again", "python_in_an_eager_step",
        "functions_run_eagerly", "floatx_float64", "output_of_16_bits", "weights_of_some_classes", "infinite_by_design",
        "second_model", "unfrozen_later", "changed_by_callback", "kept_by_callbacks", "multi_input", "transfer",
    ),
    "own_steps": ("vae", "guide", "five_parts", "over_replicas"),
}  # fmt: skip
TRAINED = ("python_in_generator", "own_strategy")
OF_STEP = "which replaces the training step with its checkpoints, figures and stops"
REFUSED = {
    "ends_within_an_epoch": "train has 10 batches, which 4 steps per epoch do not divide: Keras' fit would end an epoch"
    " early",
    "filter_by_variable": "the number of elements of train follows a tf.Variable, so that epochs may have different "
    "lengths",
    "limited_epochs": "KERAS_MAX_EPOCHS or keras.config.set_max_epochs sets 1: Keras' fit would end before the run",
    "own_strategy": "Sequential is made or compiled in the scope of your own OneDeviceStrategy",
    "own_train_function": f"OwnTrainFunction has a make_train_function of its own, {OF_STEP}",
    "train_function_made_again": "Unfreeze.on_epoch_begin calls make_train_function (own_models.py:LINE), " + OF_STEP,
    "python_in_an_eager_step": "Sequential is compiled with run_eagerly=True: here its steps run as a graph, in which "
    "Python code runs only once",
}
WARNS = {  # the resumed run
    "output_of_16_bits": {"narrow_output"}, "table_filled_later": {"data_state", "callbacks_not_restored"},
}  # fmt: skip
SETTINGS = {
    "ends_within_an_epoch": ("train.steps_per_epoch=4",),
    "multi_input": ("strategy.kind=mirrored", "input.cache=./cache"),
    "output_of_16_bits": ("precision.policy=mixed_bfloat16",),
    "over_replicas": ("strategy.kind=mirrored",),
    "shuffled_without_end": ("train.steps_per_epoch=4",),
    "shuffled_validation_over_replicas": ("strategy.kind=mirrored",),
    "variable_in_samples": ("input.cache=memory",),
}
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
    data, held_out = made["train"], made.get("validation")
    if "map" in made:
        data, held_out = (role.map(made["map"]).batch(context.global_batch_size) for role in (data, held_out))
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
    if isinstance(held_out, tuple):
        given["validation_batch_size"] = context.global_batch_size
    return made["model"].fit(**data, **given, validation_data=held_out, epochs=context.epochs,
                             steps_per_epoch=context.steps_per_epoch, verbose=0)

build = getattr(importlib.import_module(sys.argv[1]), sys.argv[3])
with strategy.scope():
    made = build(context)
if not isinstance(made, dict):
    made = dict(zip(("model", "train", "validation"), made))
history = plain(made, context).history
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param(file, name, marks=() if name in TRAINED else pytest.mark.nightly, id=name)
        for file, names in SAME.items()
        for name in names
    ],
)
def test_trained_in_four_ways(
    file: str, name: str, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of which gives the same figures of every epoch; or the run is refused."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROGRAMS / f"{file}.py", tmp_path)
    more = SETTINGS.get(name, ())
    replicas = ("logical_devices=2",) if "strategy.kind=mirrored" in more else ()
    settings = [*EVERY, *replicas, *more, f"entry={file}.py:{name}", f"folder={tmp_path}"]
    preset = presets.defaults(settings)
    run, ours = trainer_of(preset)
    if name in REFUSED:
        why = "^" + re.escape(REFUSED[name]).replace("LINE", r"\d+") + "$"
        assert forks.codes(ours) == [1]
        (error,) = happened(run, "error")
        assert re.match(why, error["message"])
        assert happened(run, "progress") == []
        with pytest.raises(RefusedError, match=why):
            form_of(preset, forks, tmp_path)
        return
    ways = {name: str(tmp_path / f"{name}.out") for name in ("plain", "exported")}
    (tmp_path / "of_keras.py").write_text(PLAIN)
    words = ["of_keras.py", file, json.dumps(settings), name]
    plain = Program(str(tmp_path), ways["plain"], words, [str(tmp_path)], of_gputui=True)
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
    assert {event["kind"] for event in happened(broken, "warning")[before:]} - USUAL == WARNS.get(name, set())
    assert of_run(broken) == figures
    assert bool((broken.result or {})["not_restored"]) == bool(WARNS.get(name, set()) - {"narrow_output"})
    assert printed(Path(ways["exported"])) == figures


# ---- scripts --------------------------------------------------------------------------------------

SCRIPTS = Path(__file__).parents[1] / "support" / "scripts"


def results(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.startswith("RESULT ")]


@pytest.mark.parametrize("name", ["arrays", "pages", "parted"])
def test_a_script_prints_what_it_prints_without_gputui_also_after_a_stop(
    name: str, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped in its second epoch, and prints after that what it had not printed before."""
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words = ["--rate", "0.02", "--epochs=4"] if name == "arrays" else []
    settings = ("checkpoint=epoch", "deterministic=true", f"argv={json.dumps(words)}")
    run, ours = trainer_of(presets.resolve(f"{name}.py", settings))
    plain = Program(str(tmp_path), str(tmp_path / "plain.out"), [f"{name}.py", *words], [str(tmp_path)])
    main = Path(ours.arguments[0])
    main.write_text(STOPPED)
    assert forks.codes(plain, ours)[0] == 0, Path(plain.output).read_text()[-2000:]
    assert len(happened(run, "epoch")) == 1
    before, printed = results(Path(ours.output)), results(Path(plain.output))
    main.write_text(TRAINER)
    forks.run(ours)
    assert before + results(Path(ours.output)) == printed
    history = next(line.removeprefix("RESULT ") for line in printed if "{" in line)
    assert of_run(run) == json.JSONDecoder().raw_decode(history)[0]
    assert [event["epochs"] for event in happened(run, "started")] == [4, 4]
    evaluated = [json.loads(line[7:]) for line in printed if line.startswith("RESULT [")]
    assert [[*event["metrics"].values()] for event in happened(run, "test")] == evaluated[:1]
    assert {event["kind"] for event in happened(run, "warning")} <= {"resumed_batches", "shared_shuffle", "epoch_waits"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('no training')", "own.py has ended without a call of fit"),
        (
            "import sys\nsys.exit('no data')",
            "own.py:2 ended the process with sys.exit: no data\n",
        ),
        ("import argparse\nargparse.ArgumentParser().parse_args()", "own.py:2: unrecognized arguments: --rate (usage:"),
        ("import json\njson.loads('{')", "own.py:2: JSONDecodeError: Expecting property name"),
    ],
    ids=["no fit", "exit", "arguments", "exception"],
)
def test_a_script_without_a_training_says_where_it_ended(
    text: str, why: str, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(text)
    run, ours = trainer_of(presets.resolve("own.py", ('argv=["--rate"]',)))
    assert forks.codes(ours) == [1]
    (error,) = happened(run, "error")
    assert error["message"].startswith(why)


def test_what_is_set_is_no_longer_left_to_the_fit_of_a_script(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the default."""
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    preset = presets.resolve("arrays.py", ("batch_size=64", "args.epochs=3"))
    steps, split, epochs = "compile.steps_per_execution", "train.validation_split", "train.epochs"
    assert preset.options.workload.left_to_fit == [epochs, split, steps]
    changed = trial_preset.with_changes(preset, {split: 0.1})
    assert changed.options.workload.left_to_fit == [epochs, steps]
    run, ours = trainer_of(changed)
    forks.run(ours)
    (started,) = happened(run, "started")
    assert [started[name] for name in ("global_batch_size", "epochs", "validation_samples")] == [64, 3, 17]
    assert presets.resolve(str(run.file("preset.yaml"))).options.workload.left_to_fit == [epochs, steps]
