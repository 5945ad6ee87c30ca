"""Options of `compile`, `device`, `train` and `run`, seen by what they do to a training."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import runs
from tests.doors.trainer import health, models, progress_reports
from tests.support.forking import ENVIRONMENT, Forks, Program
from tests.support.front_door import events as printed
from tests.support.front_door import gputui, happened
from tests.support.own import Write
from tests.support.training import Build, Training, source_of, with_source
from tests.trainer import test_own_steps

ROOT = Path(__file__).parents[2]
TINY = ("model=mlp", "width=0.05", "optimizer=sgd", "batch_size=32", "validation_split=0", "epochs=1")
AUTO_JIT = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}
HEAD = """
import numpy as np
from pathlib import Path
from tests.support.training import built, options
from gputui.engine.trainer.setup import environment
kept = []  # an iterator that is dropped waits for TensorFlow's tuning thread, for up to a minute
def train(folder, *settings):
    from gputui.engine.trainer.setup import devices
    wanted = options(*settings)
    environment.prepare(wanted)
    kept.append(built(Path(folder), devices.configure(wanted), wanted).train().loop)
    return kept[-1]
"""


def weights(training: Training) -> list[np.ndarray]:
    return [np.asarray(variable) for variable in training.loop.built.model.trainable_variables]


def same(a: Training, b: Training) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(weights(a), weights(b), strict=True))


# ---- xla --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_xla_compiles_when_on_and_nothing_when_off(tmp_path: Path, forks: Forks) -> None:
    # XLA itself writes each module that it compiles; single before mirrored, so that mirrored shows what it adds, and
    # off before on. Off takes what asks for XLA out of the environment, so that on has nothing of it.
    dump = tmp_path / "dump"
    (tmp_path / "train.py").write_text(
        HEAD
        + f"""
told = open("told", "w")
for xla, kind in (("false", "single"), ("false", "mirrored"), ("true", "single"), ("true", "mirrored")):
    common = ("model=mlp", "width=0.05", "optimizer=sgd", "steps_per_epoch=3", "epochs=1", "logical_devices=2",
              "validation_split=0", f"xla={{xla}}")
    train(f"{tmp_path}/{{xla}}-{{kind}}", *common, f"strategy.kind={{kind}}")
    print(len(list(Path({str(dump)!r}).glob("*before_optimizations*"))), file=told)
told.close()
"""
    )
    flags = {"XLA_FLAGS": f"{ENVIRONMENT['XLA_FLAGS']} --xla_dump_to={dump} --xla_dump_hlo_as_text"} | AUTO_JIT
    forks.run(Program(str(tmp_path), str(tmp_path / "train.out"), ["train.py"], [str(ROOT)], flags, of_gputui=True))
    told = (tmp_path / "told").read_text()
    off_single, off_mirrored, single, mirrored = map(int, told.split())
    assert (off_single, off_mirrored) == (0, 0)
    assert 0 < single < mirrored


# ---- steps ------------------------------------------------------------------------------------


def test_steps_per_execution_is_how_many_steps_run_in_one_call_and_changes_nothing_that_is_learnt(build: Build) -> None:
    calls = {1: [1] * 7, 3: [3, 3, 1]}
    one, other = (_in_calls(build, together, expected) for together, expected in calls.items())
    assert same(one, other)
    assert one.losses() == other.losses()


def _in_calls(build: Build, together: int, calls: list[int]) -> Training:
    training = build(*TINY, "epochs=2", "steps_per_epoch=7", f"steps_per_execution={together}")
    counted: list[int] = []
    run_steps = training.loop.executions.run_steps

    def counting(iterator: Any, count: Any) -> Any:
        counted.append(int(count))
        return run_steps(iterator, count)

    training.loop.executions.run_steps = counting
    training.train()
    assert counted == calls * 2, together
    assert int(training.loop.built.model.optimizer.iterations) == 14
    return training


def test_validation_split_is_evaluated_after_each_epoch(build: Build) -> None:
    together = "steps_per_execution=5"  # 12 batches, of which the last execution has 2
    held = build(*TINY, "validation_split=0.2", "steps_per_epoch=3", "epochs=2", together).train()
    assert all({"val_loss", "val_accuracy"} <= set(event["metrics"]) for event in held.events("epoch"))
    x, y = (np.concatenate(part) for part in zip(*_validation(held), strict=True))
    assert len(x) == 359
    expected = held.loop.built.model.evaluate(x, y, verbose=0, batch_size=32)
    found = held.events("epoch")[-1]["metrics"]
    assert [found["val_loss"], found["val_accuracy"]] == pytest.approx(expected, abs=1e-5)
    held.loop._tests_left = 7
    held.loop.on_test_end()  # as where its data have ended early
    held.loop.built.model.evaluate(x[:32], y[:32], verbose=0)
    assert held.loop._evaluated is None, "what was left is not taken from an evaluation of a callback"


def _validation(training: Training) -> list[tuple[np.ndarray, np.ndarray]]:
    pipe = training.pipeline
    return [(x.numpy(), y.numpy()) for x, y in pipe.validation().take(pipe.validation_batches)]


# ---- seed and determinism ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.nightly
def test_deterministic_gives_bitwise_the_same_twice_and_tells_neither_input_wait_nor_python(
    tmp_path: Path, forks: Forks
) -> None:
    (tmp_path / "train.py").write_text(
        HEAD
        + f"""
import hashlib
told = open("told", "w")
for number in range(2):
    loop = train(f"{tmp_path}/{{number}}", "model=cnn", "width=0.25", "augment=light", "steps_per_epoch=8",
                 "epochs=1", "deterministic=true")
    print(hashlib.sha256(b"".join(np.asarray(v).tobytes() for v in loop.built.model.weights)).hexdigest(), file=told)
loop = train("{tmp_path}/measured", "model=mlp", "steps_per_epoch=60", "epochs=1", "deterministic=true")
loop.built.report.finish("ok", 0)
print(*(loop.built.report.run.result[name] for name in ("input_wait", "python_share", "traces")), file=told)
told.close()
"""
    )
    forks.run(Program(str(tmp_path), str(tmp_path / "train.out"), ["train.py"], [str(ROOT)], of_gputui=True))
    first, second, *figures = (tmp_path / "told").read_text().split()
    assert first == second
    assert figures == ["None", "None", "1"]


# ---- not-a-number -----------------------------------------------------------------------------

POISONED = ("data=synthetic", "shape=[4]", "samples=4000", "shuffle=off", "batch_size=10", "steps_per_epoch=9")


@pytest.fixture
def pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the figures after each step instead of a few times a second."""
    monkeypatch.setattr(progress_reports, "PULSE_SECONDS", 0.0)


def poisoned(training: Training, index: int, value: float) -> Training:
    """One sample of the data has only this value."""
    pipe = training.pipeline
    load = source_of(pipe).load
    assert load is not None

    def load_poison(number: Any) -> Any:
        x, y = load(number)
        return tf.where(number == index, tf.fill(tf.shape(x), value), x), y

    training.loop.built.pipeline = with_source(pipe, dataclasses.replace(source_of(pipe), load=load_poison))
    return training


@pytest.mark.usefixtures("pulses")
def test_a_dead_run_goes_on_with_a_warning_when_stop_on_nan_is_off(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FEW_WEIGHTS", 0)  # those of larger models are checked in a graph
    training = poisoned(build(*TINY, *POISONED, "nan_check_steps=1", "stop_on_nan=false"), 45, math.nan).train()
    assert training.loop.step == 9
    warnings = training.events("warning")
    assert [(event["kind"], event["option"]) for event in warnings] == [("nan", "train.stop_on_nan")]
    assert not np.isfinite(weights(training)[0]).all()


@pytest.mark.usefixtures("pulses")
def test_a_skipped_float16_step_is_counted_and_the_run_goes_on_with_a_finite_loss(build: Build) -> None:
    # 1e30 is infinite in float16: this one step cannot be taken.
    settings = (*TINY, *POISONED, "policy=mixed_float16", "nan_check_steps=1")
    training = poisoned(build(*settings), 25, 1e30).train()
    last = training.events("progress")[-1]
    assert last["skipped_steps"] == 1
    assert last["step"] == 9
    assert last["loss_scale"] == 2.0**14  # halved from its first value, 2**15
    assert last["learning_rate"] == pytest.approx(training.loop.built.options.train.learning_rate)
    assert last["loss"] is not None
    assert math.isfinite(last["loss"])
    assert math.isfinite(training.losses()[0])
    assert np.isfinite(weights(training)[0]).all()
    assert [event["kind"] for event in training.events("warning")] == ["loss_restarted"]


# ---- what a run leaves ------------------------------------------------------------------------


def test_checkpoints_come_every_n_steps_and_the_newest_are_kept(build: Build) -> None:
    training = build(*TINY, "steps_per_epoch=5", "epochs=2", "checkpoint=3", "keep=2").train()
    assert sorted(path.name for path in training.run.file("checkpoints").iterdir()) == [
        "step-0000000006",
        "step-0000000009",
    ]


def test_profile_writes_the_profile_of_these_steps(build: Build) -> None:
    training = build(*TINY, "steps_per_epoch=8", "profile=3-5").train()
    (file,) = training.run.file("profile").rglob("*.xplane.pb")
    content = file.read_bytes()
    assert b"train" in content


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in Keras' saving
def test_saved_models_load_in_plain_keras_and_predict_the_same(
    build: Build, own: Write, forks: Forks, tmp_path: Path
) -> None:
    training = build("model=separable_cnn", "width=0.25", "steps_per_epoch=4", "epochs=1", "schedule=cosine").train()
    models.save(training.loop.built.model, tmp_path / "model.keras")
    x = np.random.default_rng(0).random((5, 8, 8, 1), dtype="float32")
    np.save(tmp_path / "x.npy", x)
    # What a callback of a user's own saves while it trains with a schedule of gputui's.
    uncompiled = test_own_steps.FILES.replace("model(), ", 'model(False), "loss": "mse", ')
    theirs = own(uncompiled, *test_own_steps.SHORT, "schedule=cosine", "warmup_steps=3").train()
    # In a folder and a process that know nothing of gputui's classes.
    (tmp_path / "load.py").write_text("""
import json, sys, keras, numpy as np
np.save("y.npy", keras.models.load_model("model.keras")(np.load("x.npy")))
json.dump(keras.saving.load_model("best.keras").get_weights()[0].ravel().tolist(), open("weights.json", "w"))
assert "gputui" not in sys.modules
""")
    forks.run(Program(str(tmp_path), str(tmp_path / "loaded.out"), ["load.py"]))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), training.loop.built.model(x).numpy(), atol=1e-5)
    weights = json.loads((tmp_path / "weights.json").read_text())
    assert weights == pytest.approx(theirs.loop.built.model.get_weights()[0].ravel())


# ---- devices ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
def test_threads_placement_and_the_saved_model_of_a_whole_run(tmp_path: Path) -> None:
    settings = (*TINY, "steps_per_epoch=3", "inter_op_threads=3", "intra_op_threads=1", "log_placement=true")
    arguments = [word for setting in (*settings, "save_model=true") for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    told = printed(done.stdout)
    actual = next(event for event in told if event["type"] == "started")["actual"]
    assert (actual["inter_op_threads"], actual["intra_op_threads"]) == (3, 1)
    run = runs.find("latest")
    assert "device:CPU:0" in run.file("engine.log").read_text()
    assert "MatMul" in run.file("engine.log").read_text()
    assert keras.models.load_model(run.file("model.keras")).output_shape == (None, 10)
    assert not happened(run, "warning", "error")
