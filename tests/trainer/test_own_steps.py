"""What a user's own steps, callbacks and optimizers do in the loop: as in Keras' fit, and none of their files lost."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine.trainer.checkpoint.object_graph import optimizers
from gputui.engine.trainer.common.epoch_callbacks import EpochCallbacks, as_keras, flat, floats
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.own.returned import checked
from gputui.engine.trainer.own.user_code import UserError

from tests.support.own import Write
from tests.support.training import Training

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' own callbacks

HEAD = """
import keras, numpy as np, tensorflow as tf
seen = []
rng = np.random.default_rng(0)
x, y = rng.normal(size=(100, 4)).astype("float32"), rng.normal(size=(100, 1)).astype("float32")
def model(compiled=True, **more):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    if compiled:
        made.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], **more)
    return made
"""
SHORT = ("epochs=2", "batch_size=10", "validation_split=0")


def warnings(training: Training) -> list[str]:
    return [event["message"] for event in training.announce().events("warning")]


def seen() -> list[Any]:
    """What the user's module has collected."""
    found: list[Any] = sys.modules["train"].seen
    return found


# ---- figures that are no plain numbers ----------------------------------------------------------------

F1 = (
    HEAD
    + """
class See(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        assert logs == {}
    def on_train_batch_end(self, batch, logs=None):
        seen.append(logs["f1_score"])
    def on_epoch_end(self, epoch, logs=None):
        seen.append(logs["f1_score"])
        logs["note"], logs["rate"] = "hello", 0.5
        logs[7], logs[("a", 1)], logs["huge"], logs["odd"] = 0.25, 1, 10**400, Odd()
class Odd:
    def __float__(self):
        raise RuntimeError("no number")
def build(context):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    made.compile("sgd", "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    classes = keras.utils.to_categorical(rng.integers(0, 3, 100), 3)
    return {"model": made, "train": (x, classes), "validation": (x, classes), "callbacks": [See()]}
"""
)


@pytest.mark.parametrize("settings", [("steps_per_execution=3", "xla=true"), ("strategy.kind=mirrored",)])
def test_a_metric_that_is_a_vector_and_words_in_the_logs(settings: tuple[str, ...], own: Write) -> None:
    training = own(F1, *SHORT, "epochs=1", *settings).train()
    metrics = training.events("epoch")[-1]["metrics"]
    names = {"loss", *(f"f1_score_{index}" for index in range(3))}
    assert set(metrics) == names | {f"val_{name}" for name in names} | {"rate", "7", "('a', 1)"}
    assert all(array.shape == (3,) for array in seen())


def test_logs_as_keras_tells_them_and_as_numbers() -> None:
    logs = {"a": {"b": np.float32(1.5), "c": {"d": 2}}, "e": np.ones(3), "f": np.ones((2, 2)), "g": "words", "h": None}
    assert list(flat(logs)) == ["b", "d", "e", "f", "g", "h"]
    assert floats(logs) == {"b": 1.5, "d": 2.0, "e_0": 1.0, "e_1": 1.0, "e_2": 1.0}
    told = as_keras(logs)
    assert (told["b"], told["d"], told["g"], told["h"]) == (1.5, 2.0, "words", None)
    assert told["f"].shape == (2, 2)
    assert as_keras(None) == {}
    assert list(floats({"ten": np.zeros(10), "eleven": np.zeros(11)})) == [f"ten_{index}" for index in range(10)]
    assert floats({"text": "1.5", "bytes": b"1.5"}) == {}, "texts are no numbers, whatever they say"


class Loop:
    """Notes what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.told.append((name, *given))


def test_the_loop_is_told_of_epochs_evaluations_and_executions_and_of_no_single_batch() -> None:
    loop: Any = Loop()
    callbacks = EpochCallbacks(loop, keras.Sequential())
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(2)
    callbacks.on_train_batch_begin(0)
    callbacks.on_train_batch_end(0, {"loss": 1})
    callbacks.on_test_begin()
    callbacks.on_test_batch_begin(0)
    callbacks.on_test_batch_end(0)
    callbacks.on_test_end()
    callbacks.on_epoch_end(2, {"loss": 1})
    callbacks.on_epoch_end(3)
    assert loop.told == [
        ("training_begins",), ("epoch_begins",), ("execution_ends",), ("evaluation_begins",), ("evaluation_ends",),
        ("pause",), ("epoch_ends", 2, {"loss": 1}), ("pause",), ("epoch_ends", 3, {}),
    ]  # fmt: skip


def test_names_that_are_no_text_and_values_that_are_no_numbers_do_no_harm() -> None:
    class Odd:
        def __float__(self) -> float:
            raise RuntimeError("no number")

        def __str__(self) -> str:
            raise RuntimeError("no text")

    logs = {7: 1.5, ("a", 1): 2, None: 3, Odd(): 4, "object": Odd(), "huge": 10**400, "complex": 1j, "set": {1}}
    assert floats(logs) == {"7": 1.5, "('a', 1)": 2.0, "None": 3.0, "Odd": 4.0}  # type: ignore[arg-type]


PER_SAMPLE = (
    HEAD
    + """
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, inputs):
        return self.dense(inputs)
    def train_step(self, data):
        return {"each": tf.square(self(data[0]) - data[1])[:, 0], "loss": tf.constant(1.0), "word": "hello"}
def build(context):
    made = Mine()
    made.compile("sgd")
    return made, (x[:95], y[:95])
"""
)


def test_a_figure_of_each_sample_and_a_smaller_last_batch(own: Write) -> None:
    training = own(PER_SAMPLE, *SHORT, "steps_per_execution=4").train()
    assert training.losses() == [1.0, 1.0]


# ---- their callbacks -------------------------------------------------------------------------------------

EVALUATES = (
    HEAD
    + """
class Test(keras.callbacks.Callback):
    def test(self):
        told = self.model.evaluate(x[:90], y[:90], batch_size=18, verbose=0, return_dict=True)
        predicted = self.model.predict(x[:90], batch_size=18, verbose=0)
        seen.append((told["loss"], float(np.mean((predicted - y[:90]) ** 2))))
    def on_epoch_end(self, epoch, logs=None):
        self.test()
    def on_test_end(self, logs=None):
        if len(seen) < 2:
            seen.append(None)
            self.test()
def build(context):
    return {"model": model(), "train": (x, y), "validation": (x[:30], y[:30]), "callbacks": [Test()]}
"""
)


@pytest.mark.parametrize("settings", [(), ("steps_per_execution=2", "mirrored")])
def test_evaluate_in_a_callback_tells_the_truth(settings: tuple[str, ...], own: Write) -> None:
    wanted = ["strategy.kind=mirrored" if word == "mirrored" else word for word in settings]
    own(EVALUATES, *SHORT, "epochs=1", *wanted).train()
    pairs = [pair for pair in seen() if pair]
    assert len(pairs) == 2, "while Keras validates, and after the epoch"
    for told, true in pairs:
        assert told == pytest.approx(true, rel=1e-4)


FILES = (
    HEAD
    + """
class Best(keras.callbacks.ModelCheckpoint):
    pass
def build(context):
    kept = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    return {"model": model(), "train": (x, y),
            "callbacks": [keras.callbacks.CSVLogger("log.csv"), Best("best.keras"), kept]}
"""
)


def test_a_run_that_only_measures_leaves_their_files_alone(own: Write, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("theirs")
    training = own(FILES, *SHORT, "run.measure_seconds=1000").train()
    assert (tmp_path / "log.csv").read_text() == "theirs"
    assert not (tmp_path / "best.keras").exists()
    assert seen() == [0, 1]
    told = [message for message in warnings(training) if "does not touch your files" in message]
    assert [message.split()[0] for message in told] == ["CSVLogger", "Best"]
    own(FILES, *SHORT).train()
    assert (tmp_path / "log.csv").read_text().startswith("epoch,")
    assert (tmp_path / "best.keras").exists()


def test_backup_and_restore_is_refused(own: Write) -> None:
    with pytest.raises(TrainerError, match=r"BackupAndRestore would train epochs twice here; run\.checkpoint") as fault:
        own(FILES.replace('CSVLogger("log.csv")', 'BackupAndRestore("backup")'), *SHORT)
    assert "gputui resume" in fault.value.hint


UNCOMPILED = FILES.replace("model(), ", 'model(False), "loss": "mse", ')


def test_what_they_compiled_and_an_option_takes_the_place_of_is_told(own: Write) -> None:
    source = HEAD + "def build(context):\n    return model(jit_compile=True, steps_per_execution=5), (x, y)\n"
    told = warnings(own(source, *SHORT))
    assert not [message for message in told if "jit_compile" in message], "compile.xla is auto: theirs stays"
    assert "steps_per_execution=5 of your compile does nothing here: compile.steps_per_execution is 1" in told
    set_by_hand = warnings(own(source, *SHORT, "xla=true", "steps_per_execution=2"))
    assert not [message for message in set_by_hand if "of your compile" in message]
    plain = HEAD + "def build(context):\n    return model(), (x, y)\n"
    assert warnings(own(plain, *SHORT)) == []


# ---- resuming ----------------------------------------------------------------------------------------------

NESTED = (
    HEAD
    + """
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = [keras.layers.Dense(1), keras.layers.Dense(1)]
    def compile(self, chosen):
        super().compile()
        self.chosen = chosen
    def call(self, inputs):
        return self.parts[0](inputs) + self.parts[1](inputs)
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(data[0]) - data[1]))
        first, second = (part.trainable_variables for part in self.parts)
        gradients = tape.gradient(loss, first + second)
        self.chosen["one"].apply_gradients(zip(gradients[:2], first))
        self.chosen["rest"][0].apply_gradients(zip(gradients[2:], second))
        return {"loss": loss}
def build(context):
    made = Mine()
    made.compile({"one": keras.optimizers.Adam(0.05), "rest": [keras.optimizers.Adam(0.02)]})
    return made, (x, y)
"""
)


def resumed(own: Write, whole: Training, step: int, source: str, *settings: str) -> Training:
    again = own(source, *settings)
    shutil.copytree(whole.run.file("checkpoints"), again.run.file("checkpoints"))
    again.loop.run(step)
    return again


def test_optimizers_in_dicts_and_lists_of_the_model_go_on(own: Write) -> None:
    settings = ("epochs=4", "batch_size=10", "validation_split=0", "run.checkpoint=epoch", "run.keep=9")
    whole = own(NESTED, *settings).train()
    assert len(optimizers(whole.loop.built.model)) == 2 + (whole.loop.built.model.optimizer is not None)
    again = resumed(own, whole, 20, NESTED, *settings)
    assert int(again.loop.built.model.chosen["one"].iterations) == 40
    assert again.losses() == pytest.approx(whole.losses()[2:], rel=1e-5)


def test_optimizers_of_models_within_are_found() -> None:
    class Outer(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            self.inner.compile(keras.optimizers.Adam(), "mse")

    outer = Outer()
    outer.compile("sgd", "mse")
    assert [type(found).__name__ for found in optimizers(outer)] == ["SGD", "Adam"]


RATES = (
    HEAD
    + """
class Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append(round(float(self.model.optimizer.learning_rate), 4))
def build(context):
    rate = keras.callbacks.LearningRateScheduler(lambda epoch, now: 0.1 / (epoch + 1))
    return {"model": model(), "train": (x, y), "callbacks": [rate, Tell()]}
"""
)


def test_a_resumed_epoch_has_the_rate_that_their_callback_sets(own: Write) -> None:
    settings = ("epochs=4", "batch_size=50", "validation_split=0", "run.checkpoint=epoch", "run.keep=9")
    whole = own(RATES, *settings).train()
    rates = list(seen())
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.0333, 0.0333, 0.025, 0.025]
    again = resumed(own, whole, 4, RATES, *settings)
    assert seen() == rates[4:]
    assert again.losses() == pytest.approx(whole.losses()[2:], rel=1e-5)


# ---- their script --------------------------------------------------------------------------------------------


def test_a_parser_at_the_top_of_their_script_sees_its_own_name_alone(
    own: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["-m", "/a/run/folder"])
    parses = "import argparse, sys\nargparse.ArgumentParser().parse_args()\nARGV = list(sys.argv)\n"
    training = own(parses + HEAD + "def build(context):\n    return model(), (x, y)\n", *SHORT)
    assert training.loop.built.own is not None
    argv = sys.modules["train"].ARGV
    assert argv == [str(training.loop.built.own.code.file)]


def test_a_missing_package_is_told_with_their_import_line(own: Write) -> None:
    with pytest.raises(TrainerError) as fault:
        own("import keras\nimport no_such_package\ndef build(context): ...\n", *SHORT)
    words = "train.py:2: ModuleNotFoundError: No module named 'no_such_package'\n    import no_such_package"
    assert fault.value.message == words


@pytest.mark.usefixtures("cpus")
def test_a_loss_comes_from_the_compiled_model_the_return_or_the_model_s_own_methods() -> None:
    class Computes(keras.Model):  # type: ignore[misc]
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return 0.0

    class Steps(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> dict[str, Any]:
            return {"loss": 0.0}

    class Tests(keras.Model):  # type: ignore[misc]
        def test_step(self, data: Any) -> dict[str, Any]:
            return {"loss": 0.0}

    train = (np.zeros((3, 4)), np.zeros(3))
    for kind, compiled, given, trains in (
        (keras.Model, False, None, False), (keras.Model, False, "mse", True), (keras.Model, True, None, True),
        (keras.Model, True, "mse", False), (Computes, False, None, True), (Steps, False, None, True),
        (Tests, False, None, False), (Computes, True, "mse", False), (Steps, False, "mse", True),
    ):  # fmt: skip
        model = kind()
        if compiled:
            model.compile("sgd", "mse")
        parts = {"model": model, "train": train, "loss": given}
        if trains:
            assert checked(parts, "build").model is model
        else:
            with pytest.raises(UserError, match="already compiled" if compiled else "no loss is given"):
                checked(parts, "build")
