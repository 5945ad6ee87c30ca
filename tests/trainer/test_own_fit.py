"""What people give to Keras' fit, given to gputui: data, settings, a fit of the model's own, and errors of theirs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import TrainerError, UserError, dataset_facts, exported
from tests.support.own import Write, resumed

pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")


def test_a_stream_that_does_not_end_is_given_up() -> None:
    report: Any = SimpleNamespace(phase=lambda *_: None)
    endless = tf.data.Dataset.range(3).repeat().filter(lambda number: True)
    with pytest.raises(UserError, match=r"train has more than \d+ elements, or no end") as refused:
        dataset_facts.counted(endless, "train", report, most_seconds=0.0)
    assert refused.value.hint == f"return samples next to it, or {dataset_facts.ASSERTED}"


# ---- the order of data of unknown length --------------------------------------------------------------

UNCOUNTED = """
import random
import keras, numpy as np, tensorflow as tf
ended = False
def drawn():
    for _ in range(120):
        if ended:
            return
        value = random.random() + np.random.rand()
        yield [value], [2 * value]
def data(kind):
    if kind == "generator":
        spec = (tf.TensorSpec((1,), tf.float32), tf.TensorSpec((1,), tf.float32))
        return tf.data.Dataset.from_generator(drawn, output_signature=spec).batch(20)
    numbers = tf.data.Dataset.range(120).map(lambda x: tf.cast(x, tf.float32)[None] / 120)
    numbers = numbers.filter(lambda x: x[0] >= 0)
    nested = tf.data.Dataset.range(2).flat_map(lambda _: numbers.shuffle(120))
    return nested.shuffle(120).map(lambda x: (x, 2 * x)).batch(20)
def model():
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.3), "mse")
    return made
def build(context):
    return model(), data(context.args["kind"])
"""


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # which is how Keras finds its length
@pytest.mark.parametrize("kind", ["nested", pytest.param("generator", marks=pytest.mark.nightly)])
def test_data_that_are_counted_come_in_the_same_order_as_in_the_plain_script(kind: str, own: Write) -> None:
    names: dict[str, Any] = {}
    exec(UNCOUNTED, names)
    losses = []
    for counts in (False, True):  # as the plain script, and as the exported one
        keras.utils.set_random_seed(7)
        made, data = names["model"](), names["data"](kind)
        if counts:
            assert exported.batches_in(data, None, needed=True) == (12 if kind == "nested" else 6)
            assert exported.batches_in(data, 120, needed=True) == 6
        losses.append(made.fit(data, epochs=3, verbose=0).history["loss"])
    training = own(UNCOUNTED, f"args={{kind: {kind}}}", "epochs=3", "batch_size=20").train()
    sys.modules["train"].ended = True  # type: ignore[attr-defined]  # its thread draws ahead: from the next test's numbers
    assert training.losses() == pytest.approx(losses[0], rel=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_data_set_is_written_down_only_to_leave_out_its_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(**_: Any) -> None:
        calls.append("write")
        raise RuntimeError("more than protobuf can hold")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", fail)
    for data in (tf.data.Dataset.range(5), tf.data.Dataset.from_tensor_slices(np.zeros(9)).batch(2)):
        assert dataset_facts.unshuffled(data) is data
    large = tf.data.Dataset.from_tensor_slices(np.zeros(9)).shuffle(9).batch(2)
    with monkeypatch.context() as patched:
        patched.setattr(dataset_facts, "MOST_BYTES", 71)
        assert dataset_facts.unshuffled(large) is large
    assert not calls
    assert dataset_facts.unshuffled(large) is large
    assert calls == ["write"]


# ---- a fit of the model's own ------------------------------------------------------------------------

# As KerasHub's models and those with a Gaussian process: fit changes the batches, and adds callbacks.
WRAPPED = """
import keras, numpy as np, tensorflow as tf
words = np.array(["a b", "b a", "a a", "b b"] * 30)
y = np.arange(120).astype("float32") % 4
class Count(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        Count.seen = ["begin"]
    def on_epoch_end(self, epoch, logs=None):
        Count.seen.append(sorted(logs))
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")
    def call(self, x):
        return self.dense(x)
    def encoded(self, text, y):
        one_hot = tf.strings.to_hash_bucket_fast(tf.strings.substr(text, 0, 1), 2)
        return tf.one_hot(one_hot, 2), y
    def fit(self, dataset, validation_data=None, callbacks=None, **more):
        data = validation_data if validation_data is None else validation_data.map(self.encoded)
        return super().fit(dataset.map(self.encoded), validation_data=data, callbacks=[*callbacks, Count()], **more)
def data():
    return tf.data.Dataset.from_tensor_slices((words, y)).batch(20)
def build(context):
    keras.utils.set_random_seed(7)
    made = Mine()
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return {"model": made, "train": data(), "validation": data(), "callbacks": []}
"""
WRAPPED_SETTINGS = ("epochs=3", "checkpoint=4", "keep=10")


def test_a_model_whose_fit_changes_batches_and_adds_callbacks_trains_as_in_keras_and_resumes(own: Write) -> None:
    training = own(WRAPPED, *WRAPPED_SETTINGS).train()
    names: dict[str, Any] = {}
    exec(WRAPPED, names)
    made = names["build"](None)
    plain = made["model"].fit(made["train"], validation_data=made["validation"], callbacks=[], epochs=3, verbose=0)
    ours = [event["metrics"] for event in training.events("epoch")]
    for figure in ("loss", "val_loss"):
        assert [metrics[figure] for metrics in ours] == pytest.approx(plain.history[figure], rel=1e-5)
    assert sys.modules["train"].Count.seen == ["begin", *[["loss", "val_loss"]] * 3] == names["Count"].seen
    told = {event["kind"] for event in training.events("warning")}
    assert "fit_overridden" not in told, "it leaves the options as they are"
    again = resumed(own, WRAPPED, training, 8, *WRAPPED_SETTINGS)
    assert again.losses() == training.losses()[1:]


FIT_OF_THEIRS = {
    "no-fit": ("pass", "the fit of Mine does not call Keras' fit"),
    "arrays": ("super().fit(x=np.zeros((20, 2)), y=np.zeros(20))", "train.py:10 in fit: TypeError: Keras' fit gets"),
    "twice": (
        "super().fit(x, **more); super().fit(x, **more)",
        "train.py:10 in fit: RuntimeError: Keras' fit is called",
    ),
    "compile": (
        "self.compile('sgd', 'mse'); super().fit(x, **more)",
        "train.py:10 in fit: RuntimeError: compile cannot",
    ),
    "callback": (
        "super().fit(x, **more | {'callbacks': [Lambda(on_epoch_end=lambda *_: self.compile())]})",
        "train.py:10 in <lambda>: RuntimeError: compile cannot be called while the model trains",
    ),
}


@pytest.mark.parametrize("name", FIT_OF_THEIRS)
def test_what_a_fit_of_the_models_own_cannot_do_is_told_with_its_line(name: str, own: Write) -> None:
    line, message = FIT_OF_THEIRS[name]
    source = f"""\
import keras, numpy as np
from keras.callbacks import LambdaCallback as Lambda
def build(context):
    made = Mine([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made, (np.zeros((40, 2), "float32"), np.zeros(40, "float32"))

class Mine(keras.Sequential):
    def fit(self, x, **more):
        {line}
"""
    training = own(source, "epochs=2", "batch_size=20", "validation_split=0")
    assert training.loop.built.own is not None
    with pytest.raises(TrainerError) as refused, training.loop.built.own.code.blamed(found_only=True):
        training.train()
    assert refused.value.message.startswith(message)


HEAD_OF_OWN_ERRORS = """\
import keras, numpy as np, tensorflow as tf
x, y = np.zeros((64, 4), "float32"), np.zeros((64,), "float32")
def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made
"""
CASES = {
    "argparse": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--train', required=True)\n"
        "args = parser.parse_args()\ndef build(context): ...\n",
        "train.py:10: the following arguments are required: --train (usage: train.py [-h] --train TRAIN)",
        "args = parser.parse_args()",
    ),
    "in-map": (
        "def load(a, b):\n    a = a.reshape(3)\n    return a, b\ndef build(context):\n"
        "    data = tf.data.Dataset.from_tensor_slices((x, y))\n"
        "    return {'model': model(), 'train': data, 'map': load}\n",
        "train.py:8 in load: AttributeError: ",
        "a = a.reshape(3)",
    ),
    "in-train-step": (
        "class Mine(keras.Model):\n    def train_step(self, data):\n        return {'loss': undefined}\n"
        "def build(context):\n    made = Mine()\n    made.compile('sgd')\n"
        "    return made, tf.data.Dataset.from_tensor_slices((x, y)).batch(8)\n",
        "train.py:9 in train_step: NameError: name 'undefined' is not defined",
        "return {'loss': undefined}",
    ),
    "in-callback": (
        "class Told(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch, logs=None):\n"
        "        self.history[logs['accuracy']]\ndef build(context):\n"
        "    return {'model': model(), 'train': (x, y), 'callbacks': [Told()]}\n",
        "train.py:9 in on_epoch_end: ",
        "self.history[logs['accuracy']]",
    ),
    "at-run-time": (
        "class Mine(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
        "        self.dense = keras.layers.Dense(1)\n    def call(self, a):\n"
        "        tf.debugging.assert_less(tf.reduce_sum(a), -1.0, 'too large')\n        return self.dense(a)\n"
        "def build(context):\n    made = Mine()\n    made.compile('sgd', 'mse')\n    return made, (x, y)\n",
        "train.py:12 in call: InvalidArgumentError: ",
        "tf.debugging.assert_less(tf.reduce_sum(a), -1.0, 'too large')",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_told_as_a_line_of_theirs(name: str, own: Write) -> None:
    text, message, line = CASES[name]
    with pytest.raises(UserError) as raised:  # noqa: PT012
        training = own(HEAD_OF_OWN_ERRORS + text, "epochs=1", "batch_size=8", "validation_split=0")
        assert training.loop.built.own is not None
        with training.loop.built.own.code.blamed(found_only=True):
            training.train()
    told = raised.value.message
    assert told.startswith(message)
    assert told.partition("\n")[2].strip() == line
    assert len(told) < 500
    assert ("workload.args" in raised.value.hint) == (name == "argparse")
    assert isinstance(raised.value, TrainerError)
